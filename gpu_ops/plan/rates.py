"""Output rates: when what a statement has gathered is output, and the node that gathers it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import MIN_TIME, TICK
from gpu_ops.core.turns import ASK, CLOCK, DUE, ENTERED, LEFT, NEW, OLD, ORDER, ROW
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.expression_text import line_text
from gpu_ops.plan.expressions import check_boolean
from gpu_ops.plan.nodes import Node, check_known
from gpu_ops.plan.splits import Split, one_order


@dataclass(frozen=True)
class EveryRows:
    """As soon as so many rows have entered, or so many have left, since the last time."""

    rows: int

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise PlanError(
                f"An output rate of {self.rows} events is none.", remedy="Say for instance: every 3 events."
            )

    def __str__(self) -> str:
        return f"every {self.rows} rows"


@dataclass(frozen=True)
class EveryPeriod:
    """On a grid that begins when the first rows come, whether there are rows or not."""

    period: ClockSpan

    def __str__(self) -> str:
        return f"every {self.period}"


@dataclass(frozen=True)
class AtTimes:
    """At the times of a crontab, from the first rows on."""

    crontab: CrontabTimes

    def __str__(self) -> str:
        return f"at {self.crontab}"


COUNTS = ("count_insert", "count_remove", "count_insert_total", "count_remove_total")
"""How many rows entered and left, since the last output and altogether."""

LAST_OUTPUT = "last_output_timestamp"
"""When the last output was, in milliseconds since 1970; before it, when the statement began."""


@dataclass(frozen=True, eq=False)
class When:
    """As soon as a condition holds behind a delivery. It reads `COUNTS`, `LAST_OUTPUT`, and columns of the marks."""

    condition: nw.Expr

    def __str__(self) -> str:
        return f"when {line_text(self.condition)}"


Condition: TypeAlias = EveryRows | EveryPeriod | AtTimes | When


@dataclass(frozen=True)
class Rate:
    """When there is output.

    Attributes:
        every: When; None at once, whenever there are rows.
        after_rows: How many rows must have entered before any output; None for no such condition.
        after: How much time must have passed.
        since: The clock at which the statement began, in ticks.
    """

    every: Condition | None = None
    after_rows: int | None = None
    after: ClockSpan | None = None
    since: int = MIN_TIME

    @property
    def posts_empty(self) -> bool:
        """Whether there is an empty delivery where no row is to be shown: a count alone posts none."""
        return self.every is not None and not isinstance(self.every, EveryRows)

    def __str__(self) -> str:
        after = "" if self.after_rows is None else f"after {self.after_rows} rows "
        if self.after is not None:
            after = f"after {self.after} "
        return f"{after}{self.every or 'at once'}"


Selection: TypeAlias = Literal["", "all", "last", "first"]
"""Which of the rows since the last output there are; without a word all of them, as they came."""

Kind: TypeAlias = Literal["un-aggregated", "row for all", "row per event", "row per group", "aggregated and grouped"]
"""The kind of query: which rows a delivery has."""


@dataclass(frozen=True, eq=False)
class OutputRate(Node):
    """Deliveries held back until a rate fires, and what is left of them then (Esper: output rate limiting).

    It takes new and old rows, whichever of them are shown, before `having`: the column `passes` says for which rows it
    holds. Rows of the content pass. Marks say how many rows each turn moved, and are gone behind it.

    | rows at a firing | as they came | all | last |
    |---|---|---|---|
    | un-aggregated, row per event | all rows | all rows | the last new and the last old row |
    | row for all | all rows; the current one if there is none | the same | the current row, the first old row |
    | row per group | all rows | each group's current row; its first old row that passes | each changed group's current row, its first old row |
    | aggregated and grouped | all rows | these, a new row for each old one, and the other groups' last rows | each group's last new and last old row |

    The current row is the last new one, if it passes; it is the old row too of a group that did not change. Where there
    are several levels, `last` looks for the first old row that passes, and `all` takes the first. Rows of groups come in
    the order in which the groups changed last. With `all` of an aggregated and grouped query an old row's new row is its group's last new row with its values;
    where the output has an order there is none, and a group to which nothing new came is one that did not change.

    Un-aggregated rows that come before the rate's `after` holds are never shown, but with ``"last"`` and ``"all"`` without
    an order the first firing takes them too.

    ``"first"`` fires at once: the first delivery of an interval that has a row to show. With groups each has intervals of
    its own, which begin with its rows; an old row of an aggregated and grouped query is shown as a new one there.

    Attributes:
        deliveries: The deliveries of a statement, at even places, with marks.
        ticks: The ticks: when the clock moves.
        rate: When there is output.
        selection: Which rows.
        kind: The kind of query.
        group: The columns of its groups, if it has any.
        values: The columns with a group's values, of an aggregated and grouped query with ``"all"``.
        shows: Which of new and old rows are shown.
        passes: The column of bools that says which rows pass `having`; None if all do.
        judged: Whether there is a `having`: then the old row of a group with ``"first"`` is its row as it is afterwards.
        waits: Whether all that is selected is evaluated at the output (Esper: where the output has an order), as it is
            without a selection, of un-aggregated rows, and of the current row of groups: ``@clock`` says which time
            that is.

    Raises:
        ColumnError: A column is unknown or of the wrong type.
        PlanError: The kind and the columns, or the selection and the rate, do not fit.
    """  # noqa: E501

    deliveries: Node
    ticks: Node
    rate: Rate
    selection: Selection = ""
    kind: Kind = "un-aggregated"
    group: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    shows: tuple[int, ...] = (NEW,)
    passes: str | None = None
    waits: bool = False
    judged: bool = False

    def __post_init__(self) -> None:
        check_known(self.schema, (ROW, ORDER, ENTERED, LEFT, *self.group, *self.values), what="delivery")
        check_known(self.ticks.schema, (CLOCK, ASK), what="ticks")
        if self.passes is not None:
            check_boolean(self.schema, nw.col(self.passes), where="having")
        if not self.shows or not set(self.shows) <= {NEW, OLD}:
            raise PlanError("An output rate shows new rows, old ones, or both.", remedy="shows=(NEW, OLD)")
        if self.by_group != bool(self.group):
            raise PlanError(
                f"A query is {self.kind!r}, and its groups are by {self.group}.", remedy="Say group= for both."
            )
        if self.by_group and self.selection == "first" and isinstance(self.rate.every, When):
            raise PlanError("The first rows of each group cannot wait for a condition.", remedy="Say every, or at.")
        if isinstance(self.rate.every, When):
            check_boolean(self.conditions, self.rate.every.condition, where="output when")
        for name in COUNTS:
            if isinstance(self.rate.every, When) and name in self.schema.names:
                raise ColumnError("A condition of output reads a count of this name.", column=name, remedy="Rename it.")

    @property
    def by_group(self) -> bool:
        """Whether its query groups."""
        return self.kind in {"row per group", "aggregated and grouped"}

    @property
    def keeps_early(self) -> bool:
        """Whether the first firing takes rows from before the rate's `after` holds."""
        if self.kind == "un-aggregated" and (self.selection not in {"all", "last"} or self.waits):
            return False
        return self.selection != "first" and self.rate.every is not None

    @cached_property
    def conditions(self) -> pa.Schema:
        """The columns that a condition can read."""
        counts = [pa.field(name, pa.int64()) for name in (*COUNTS, LAST_OUTPUT)]
        return pa.schema([*counts, *(each for each in self.schema if each.name not in {*COUNTS, LAST_OUTPUT})])

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.deliveries, self.ticks

    def over(self, *inputs: Node) -> Node:
        deliveries, ticks = inputs
        return replace(self, deliveries=deliveries, ticks=ticks)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.deliveries.schema

    @cached_property
    def duration(self) -> int | None:
        return TICK

    stateless = False

    gathers = True

    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = {ROW, ORDER, ENTERED, LEFT, DUE, *self.group, *self.values, *wanted}
        read |= set(self.schema.names) if isinstance(self.rate.every, When) else set()
        read |= set() if self.passes is None else {self.passes}
        return [tuple(name for name in self.schema.names if name in read), (CLOCK, ASK)]

    def split(self, below: Sequence[Split]) -> Split:
        waits = self.rate.after is not None or self.rate.after_rows is not None
        if not self.by_group or self.selection != "first" or waits:
            raise one_order(f"The output rate {f'{self.selection} ' if self.selection else ''}{self.rate}")
        return below[0].by(self.group, f"The output rate first {self.rate}")

    time_rule = "the older CTI of deliveries and ticks leaves"

    def describe(self) -> str:
        groups = f" by {', '.join(self.group)}" if self.group else ""
        return f"OutputRate {f'{self.selection} ' if self.selection else ''}{self.rate} of {self.kind}{groups}"


@dataclass(frozen=True, eq=False)
class RateCounts(Node):
    """What an output rate has counted where its condition holds (Esper: ``output when … then set``).

    A row stands at the delivery that makes the condition hold, or at the change of a variable that does, of which the
    next tick makes an output.

    Attributes:
        output: The output rate.

    Raises:
        PlanError: Its rate has no condition.
    """

    output: OutputRate

    def __post_init__(self) -> None:
        if not isinstance(self.output.rate.every, When):
            raise PlanError("Only a condition of output reads counts.", remedy="Say: output when ….")

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.output.inputs

    def over(self, *inputs: Node) -> Node:
        deliveries, ticks = inputs
        return replace(self, output=replace(self.output, deliveries=deliveries, ticks=ticks))

    @cached_property
    def schema(self) -> pa.Schema:
        counts = [(name, pa.int64()) for name in (*COUNTS, LAST_OUTPUT)]
        return pa.schema([*counts, (ROW, pa.int8()), (ORDER, pa.int64())])

    @property
    def duration(self) -> int | None:
        return TICK

    stateless = False

    gathers = True

    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        return self.output.needs(())

    def split(self, below: Sequence[Split]) -> Split:
        return self.output.split(below)

    time_rule = OutputRate.time_rule

    def describe(self) -> str:
        return f"RateCounts {self.output.rate}"
