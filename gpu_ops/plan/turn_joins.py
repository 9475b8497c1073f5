"""Joins of streams on turns over what their windows hold: the rows of Esper's joins, and when each is there."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, get_args

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.arguments import word
from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, IS_NEW, IS_OLD, PLACE, of_stream
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.expression_text import line_text
from gpu_ops.plan.expressions import check_boolean
from gpu_ops.plan.joins import On
from gpu_ops.plan.nodes import Computed, Ends, Node, check_known
from gpu_ops.plan.splits import Split, matched

TurnJoinKind = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True)
class Further:
    """How a further stream is joined to the streams before it.

    Attributes:
        kind: Which rows are there without a match: those of none, of the streams before, of this stream, or both.
        on: Pairs of columns that are equal: of the streams before, and of this stream. Null equals nothing.
        condition: What else a match needs, over the columns of all streams so far; null counts as no.
    """

    kind: TurnJoinKind = "inner"
    on: On = ()
    condition: nw.Expr | None = None

    def __str__(self) -> str:
        on = ", ".join(f"{mine}={other}" for mine, other in self.on)
        where = "" if self.condition is None else f" where {line_text(self.condition)}"
        return f"{self.kind}{f' on {on}' if on else ''}{where}"

    @property
    def keeps(self) -> tuple[bool, bool]:
        """Whether rows of the streams before, and those of this one, are there without a match."""
        return self.kind in {"left", "full"}, self.kind in {"right", "full"}


@dataclass(frozen=True, eq=False)
class TurnJoin(Node):
    """What the windows of several streams on turns hold, joined as SQL does it, one stream after another.

    A row of the result is there while its members are: it enters with the last one and leaves with the first one. A
    row of an outer join with nulls is there while its members have no match. Each row has the columns of its members,
    null where an outer join found none, and:

    - ``@place`` (int64): a number of its own, the same in any cut of the input: a hash of its members' places. Two
      rows of a query have the same one as seldom as two of as many random numbers of 62 bits.
    - ``@clock``: the greatest of its members.
    - ``@new`` and ``@old`` (bool): whether it is delivered where it enters, and where it leaves. Esper's outer joins
      do not retract: a row with nulls is a new one only where one of its members enters, and an old one only where one
      leaves; neither where a match has left or comes. ``@old`` is known when it leaves.

    A row of a window that leaves where it enters meets, as a new row, the others as they are after that moment, and as
    an old row the others as they were before: these are points, each ``@new`` or ``@old``.

    Args:
        streams: Rows in windows on turns. Stream number i has columns ``@place i`` and ``@clock i``, and no other
            column has the name of a column of another stream.
        further: How each stream but the first is joined.
        unidirectional: The numbers of streams whose rows alone make rows of the result, each for its own moment only
            (Esper: unidirectional). They are no windows but points, and no other stream meets them.
        drops: Columns that it does not hand on, as nobody reads them.

    Examples:
        >>> from gpu_ops.plan.nodes import Feed
        >>> def stream(number: int, name: str) -> Feed:
        ...     special = [(of_stream(CLOCK, number), TIME_TYPE), (of_stream(PLACE, number), pa.int64())]
        ...     return Feed(pa.schema([(name, pa.int64()), *special]), (), None)
        >>> node = TurnJoin((stream(0, "a"), stream(1, "b")), (Further("left", (("a", "b"),)),))
        >>> node.schema.names
        ['a', '@place 0', 'b', '@place 1', '@place', '@clock', '@new', '@old']
        >>> node.describe()
        'TurnJoin of 2 streams: left on a=b'
    """

    streams: tuple[Node, ...]
    further: tuple[Further, ...]
    unidirectional: tuple[int, ...] = ()
    drops: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if len(self.streams) < 2 or len(self.further) != len(self.streams) - 1:
            raise PlanError(
                f"A join of {len(self.streams)} streams says of {len(self.further)} how they are joined.",
                remedy="Give two streams or more, and how each but the first is joined.",
            )
        known: set[str] = set()
        for number, each in enumerate(self.streams):
            schema = each.schema
            for name, dtype in ((of_stream(CLOCK, number), TIME_TYPE), (of_stream(PLACE, number), pa.int64())):
                if name not in schema.names or schema.field(name).type != dtype:
                    raise ColumnError(
                        f"Stream {number} of a join needs this column of {dtype}.", column=name, remedy=""
                    )
            both = known.intersection(schema.names) or {PLACE, CLOCK, IS_NEW, IS_OLD}.intersection(schema.names)
            if both:
                raise ColumnError("Two streams of a join have this column.", column=min(both), remedy="Rename one.")
            known.update(schema.names)
        for number, how in enumerate(self.further, start=1):
            word(how.kind, get_args(TurnJoinKind), name="kind")
            before, own = self.paired(number - 1), self.streams[number].schema
            for mine, other in how.on:
                check_known(before, [mine])
                check_known(own, [other])
                if before.field(mine).type != own.field(other).type:
                    raise ColumnError(
                        f"The key is of {own.field(other).type}, and {mine!r} is of {before.field(mine).type}.",
                        column=other,
                        remedy="Cast one of them first.",
                    )
            if how.condition is not None:
                check_boolean(self.paired(number), how.condition, where="the condition of a join")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.streams

    def over(self, *inputs: Node) -> Node:
        return replace(self, streams=inputs)

    def columns(self, number: int) -> pa.Schema:
        """The columns of a stream in the result, as they come in."""
        clock = of_stream(CLOCK, number)
        return pa.schema([each for each in self.streams[number].schema if each.name != clock])

    def paired(self, number: int) -> pa.Schema:
        """The columns of a stream and of all before it, null where an outer join finds none."""
        fields: list[pa.Field] = list(self.columns(0))
        for at in range(1, number + 1):
            mine, other = self.further[at - 1].keeps
            fields = [each.with_nullable(True) for each in fields] if other else fields
            fields += [each.with_nullable(mine or each.nullable) for each in self.columns(at)]
        return pa.schema(fields)

    @cached_property
    def schema(self) -> pa.Schema:
        own = [(PLACE, pa.int64()), (CLOCK, TIME_TYPE), (IS_NEW, pa.bool_()), (IS_OLD, pa.bool_())]
        every = [*self.paired(len(self.further)), *(pa.field(*each, nullable=False) for each in own)]
        return pa.schema([each for each in every if each.name not in self.drops])

    @cached_property
    def duration(self) -> int | None:
        return TICK if self.unidirectional else None

    stateless = False

    def ends(self, at: int) -> Ends:
        return "unread" if at in self.unidirectional else "later"

    gathers = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    @property
    def time_rule(self) -> str:
        return "the oldest CTI of all inputs leaves"

    collects = True

    @property
    def held(self) -> str:
        return "rows that have not left, in order of their keys"

    def split(self, below: Sequence[Split]) -> Split:
        made, known = below[0], self.columns(0).names
        for number, how in enumerate(self.further, start=1):
            own = self.columns(number).names
            keeps_mine, keeps_own = how.keeps
            # Nulls in place of what a row has are no key, though they look like one.
            known, own = ([] if keeps_own else known), ([] if keeps_mine else own)
            made = matched(
                made,
                below[number],
                how.on,
                "A join without an equal column by which its windows are grouped",
                (known, own),
            )
            known = [*known, *own]
        return made.made()

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return [tuple(each.schema.names) for each in self.streams]

    def lighter(self, wanted: Collection[str]) -> Node:
        return replace(self, drops=frozenset(self.schema.names) - {*wanted, PLACE, IS_NEW, IS_OLD})

    @property
    def computed(self) -> tuple[Computed, ...]:
        conditions = [(how.condition, self.paired(at)) for at, how in enumerate(self.further, start=1)]
        return tuple((condition, schema) for condition, schema in conditions if condition is not None)

    def describe(self) -> str:
        alone = f", unidirectional {', '.join(map(str, self.unidirectional))}" if self.unidirectional else ""
        return f"TurnJoin of {len(self.streams)} streams: {'; '.join(map(str, self.further))}{alone}"
