"""The nodes that are not windows: where events come from, which stay, what their payload is, how they are grouped."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.types import storage
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.ingest.advance import Advance
from gpu_ops.plan.expressions import (
    LIFETIME,
    as_expression,
    bare_column,
    check_boolean,
    check_row_wise,
    column_names,
    exact_divisions,
    guards,
    output_schema,
    values,
)
from gpu_ops.plan.identity import Identified, NodeIdentity, identity, inside
from gpu_ops.plan.integers import Guard
from gpu_ops.plan.terms import Term

if TYPE_CHECKING:
    from gpu_ops.ingest import EventSource


Ends = Literal["needed", "later", "unread", "passed on"]
"""What a node does with the ends of the events that it takes: it needs an event's end before it takes the event; it
takes the event when it starts, and its end later; it never looks at the end; it hands on events without their ends."""

Computed = tuple[nw.Expr, pa.Schema]


@dataclass(frozen=True)
class Arrival:
    """What comes in at a leaf of a running query.

    Attributes:
        node: Where time advances, or the source itself.
        source: Where the events come from.
        settings: How time advances; None: by the CTIs that come in.
        follows: Where CTIs come from besides.
        late: Whether it is the events that came too late.
    """

    node: Node
    source: Source
    settings: Advance | None = None
    follows: Node | None = None
    late: bool = False


N = TypeVar("N", bound="Node")


@dataclass(frozen=True, eq=False)
class Node(Identified):
    """One step of a plan. Subclasses are frozen; two plans may share nodes freely."""

    def __init_subclass__(cls) -> None:
        """What a node says of its input's events is kept: asked for at each step of a long query, it is known below."""
        for name in ("schema", "key", "scope", "zone", "duration"):
            own = cls.__dict__.get(name)
            if isinstance(own, property) and own.fget is not None:
                kept = cached_property(own.fget)
                kept.__set_name__(cls, name)
                setattr(cls, name, kept)

    def __getstate__(self) -> dict[str, Any]:
        # In another process objects are elsewhere.
        return {name: value for name, value in vars(self).items() if name != "_identity"}

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose events it takes."""
        return ()

    def over(self, *inputs: Node) -> Node:
        """The same node over other inputs."""
        assert not inputs  # noqa: S101  (what takes some says how)
        return self

    @property
    def identity(self) -> NodeIdentity:
        """Its kind, its parameters and its inputs: equal for nodes of two plans that give the same, as far as is seen.

        `gpu_ops.plan.identity` says when parameters are identical. A source is so only as the same object: it counts
        what is read of it.
        """
        made: NodeIdentity = self._known("_identity", lambda node: identity(type(node), inside(node)))
        return made

    @property
    def schema(self) -> pa.Schema:
        """The payload's columns; the lifetime, ``start`` and ``end``, goes along unsaid."""
        raise NotImplementedError

    @property
    def key(self) -> tuple[str, ...]:
        """The columns by which the next window groups."""
        return ()

    @cached_property
    def scope(self) -> tuple[str, ...]:
        """The columns of the groups that the verbs are applied to one by one; none outside of `Stream.apply`."""
        return self.inputs[0].scope if self.inputs else ()

    @cached_property
    def zone(self) -> str:
        """The time zone that results carry."""
        return self.inputs[0].zone

    @property
    def duration(self) -> int | None:
        """Ticks that every lifetime lasts, where the plan knows that they all last as long."""
        return None

    stateless: ClassVar[bool] = True
    """Whether each event is handled by itself, so that input may come in pieces of any size."""

    takes_ends: ClassVar[Ends] = "needed"
    """What it does with the ends of events, if that is the same for all inputs."""

    def ends(self, at: int) -> Ends:
        """What it does with the ends of the events of an input.

        Args:
            at: The input's place in `inputs`.
        """
        return self.takes_ends

    comes_in: ClassVar[bool] = False
    """Whether its events come into a running query here: what is below it has been looked at already."""

    @property
    def arrival(self) -> Arrival | None:
        """What comes in at it; nothing but at a leaf of a running query."""
        return None

    @property
    def grouped(self) -> tuple[str, ...]:
        """The columns by which it groups, or which it hands on as the key."""
        return self.key

    @property
    def unkeyed(self) -> Node:
        """The node that makes its events: of one that only names the key, what is below."""
        return self

    @property
    def time_rule(self) -> str:
        """How a CTI passes: what it promises of its results, given what was promised of its events, in a few words."""
        return "CTI T leaves as T"

    @property
    def held(self) -> str:
        """How the local engine takes its events in a batch, and what of them is in memory, in a few words."""
        return "lifetimes, batch by batch"

    keeps_rows: ClassVar[bool] = False
    """Whether its rows are all those that it takes: who keeps its rows keeps theirs."""

    collects: ClassVar[bool] = False
    """Whether all rows of its inputs are in memory together before it gives any."""

    @property
    def whole(self) -> tuple[str, ...] | None:
        """The columns by which all rows of a group are in one of the pieces that it gives; None where that is open."""
        made: tuple[str, ...] | None = self._known("_whole_by", lambda node: node._whole())  # noqa: SLF001  (its own kind)
        return made

    def _whole(self) -> tuple[str, ...] | None:
        """The same, asked once that of its inputs is known."""
        return None

    @property
    def gathers(self) -> bool:
        """Whether it needs all events of a group at once."""
        return False

    @property
    def together(self) -> tuple[str, ...]:
        """The columns of its (left) input that events agree in which it needs together; none if it needs all."""
        return tuple(self.schema.names)

    @property
    def takes_part(self) -> bool:
        """Whether some of the columns of `together` are as good as all of them."""
        return not self.gathers

    @property
    def matched(self) -> tuple[tuple[str, ...], ...]:
        """For each input the columns by which it groups or matches events; nothing if it does neither."""
        return ()

    @property
    def alone(self) -> tuple[bool, ...]:
        """For each input whether its events give anything where they match none."""
        return (True,) * len(self.inputs)

    handed: ClassVar[Literal["all", "needed", "needed alone"]] = "all"
    """What a Spark worker is handed of the payload of its one input: all; the columns that `needs` says; or these, and
    it is told of no others."""

    @property
    def counted(self) -> set[str]:
        """The columns of its input of which it matters where they are null, and nothing else."""
        return set()

    @property
    def strategy(self) -> str:
        """How Spark is asked to do it, if its user says."""
        return "auto"

    def lowered(self) -> Node:
        """The same over plain columns, where it computes with expressions that may be computed below it."""
        return self

    def keeps(self, name: str) -> bool:
        """Whether a column comes out as it went in."""
        return True

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        """The columns that it needs of each input to give the wanted ones."""
        return [tuple(wanted)] * len(self.inputs)

    def chain(self, apart: Collection[Node] = ()) -> list[Expressions]:
        """The nodes that can be evaluated as one and end in it, the first of them first; nothing if it is not such.

        Args:
            apart: Nodes that are evaluated by themselves.
        """
        return []

    def all(self, kind: type[N]) -> list[N]:
        """The nodes of a kind among it and all below it, in the order of `walk`."""
        return [each for each in self.walk() if isinstance(each, kind)]

    @cached_property
    def gives_open(self) -> bool:
        """Whether it can give start edges before their ends are known: it has them itself, or hands them on."""
        return any(self.ends(at) == "passed on" and each.gives_open for at, each in enumerate(self.inputs))

    @property
    def computed(self) -> tuple[Computed, ...]:
        """The expressions that it computes itself, with the payload that each reads."""
        return ()

    def describe(self) -> str:
        """The node's own line of `explain`."""
        raise NotImplementedError

    def walk(self) -> Iterator[Node]:
        """This node and all below it, each once, inputs first."""
        found: set[Node] = set()
        stack: list[Node] = [self]
        while stack:
            node = stack[-1]
            below = [] if node in found else [each for each in reversed(node.inputs) if each not in found]
            stack.extend(below)
            if below:
                continue
            stack.pop()
            if node not in found:
                found.add(node)
                yield node

    @property
    def on_spark(self) -> bool:
        """Whether any of its events come from a Spark DataFrame."""
        return bool(
            self._known(
                "_on_spark",
                lambda node: isinstance(node, SparkSource) or any(vars(each)["_on_spark"] for each in node.inputs),
            )
        )

    def _known(self, name: str, found: Callable[[Node], Any]) -> Any:
        """What is found of a node once that of its inputs is known: once for each node, however long a plan is."""
        stack: list[Node] = [self]
        while stack:
            node = stack[-1]
            unknown = [each for each in node.inputs if name not in vars(each)]
            stack.extend(unknown)
            if not unknown:
                stack.pop()
                if name not in vars(node):
                    vars(node)[name] = found(node)
        return vars(self)[name]


@dataclass(frozen=True, eq=False)
class Unary(Node):
    """A node with one input. It passes schema, key and durations on unless it says otherwise."""

    input: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (self.input,)

    def over(self, *inputs: Node) -> Node:
        (below,) = inputs
        return replace(self, input=below)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.input.schema

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.input.key

    @cached_property
    def duration(self) -> int | None:
        return self.input.duration


@dataclass(frozen=True, eq=False)
class Source(Node):
    """Events as they come in: a local source, validated row by row while it is read.

    ``name`` tells it from the other inputs of a running query.
    """

    source: EventSource
    name: str | None = None

    @property
    def schema(self) -> pa.Schema:
        return self.source.schema

    @property
    def zone(self) -> str:
        return self.source.zone

    @property
    def duration(self) -> int | None:
        return 1 if self.source.points else None

    @cached_property
    def gives_open(self) -> bool:
        return self.source.edges

    comes_in = True

    @property
    def arrival(self) -> Arrival:
        return Arrival(self, self)

    @property
    def held(self) -> str:
        return "read in batches" if self.source.rows is None else "in memory, not copied"

    def describe(self) -> str:
        return f"Source {self.name or ''}{' ' * bool(self.name)}{self.source!r}"


@dataclass(frozen=True, eq=False)
class SparkSource(Node):
    """Events in a Spark DataFrame whose time columns are called ``start`` and ``end`` (TIMESTAMP).

    ``refused`` makes the DataFrame of the rows that are no events; None where a column's name leaves no room for the
    rule.
    """

    frame: Any
    payload: pa.Schema
    time_zone: str
    points: bool
    refused: Any = None

    @property
    def schema(self) -> pa.Schema:
        return self.payload

    @property
    def zone(self) -> str:
        return self.time_zone

    @property
    def duration(self) -> int | None:
        return 1 if self.points else None

    def describe(self) -> str:
        return "Source Spark DataFrame"


@dataclass(frozen=True, eq=False)
class Feed(Node):
    """Events that an engine hands in: the leaf of a fragment of a plan, as a Spark worker runs it."""

    payload: pa.Schema
    columns: tuple[str, ...]
    length: int | None

    @property
    def identity(self) -> NodeIdentity:
        # Others may be handed to one that looks the same.
        return NodeIdentity(str(id(self)).encode(), (self,))

    @property
    def schema(self) -> pa.Schema:
        return self.payload

    @property
    def key(self) -> tuple[str, ...]:
        return self.columns

    zone = "UTC"

    @property
    def duration(self) -> int | None:
        return self.length

    comes_in = True

    def describe(self) -> str:
        return "Feed"


@dataclass(frozen=True, eq=False)
class Expressions(Unary):
    """A node that computes expressions, of each row by itself. One behind the other, they are evaluated as one."""

    @property
    def computed(self) -> tuple[Computed, ...]:
        raise NotImplementedError

    @cached_property
    def exact(self) -> tuple[nw.Expr, ...]:
        """The expressions as they are evaluated here."""
        raise NotImplementedError

    @cached_property
    def guards(self) -> dict[int, Guard]:
        """What watches over expressions whose whole numbers may not fit, by their places."""
        return guards([each for each, _ in self.computed], self.input.schema, self.exact, self.names)

    @property
    def names(self) -> Mapping[str, str]:
        """What columns are called, in an error, that the user has not named."""
        return {}

    @cached_property
    def picked(self) -> list[str] | None:
        """The columns that it picks, if it does nothing else."""
        return None

    @cached_property
    def values(self) -> dict[str, Term]:
        """What the expressions give, by the names of their columns."""
        return {}

    @property
    def beside(self) -> bool:
        """Whether the columns before stay."""
        return True

    def evaluated(self, frame: Any, expressions: Iterable[nw.Expr]) -> Any:
        """A Narwhals frame of events behind it, its expressions being written as these."""
        raise NotImplementedError

    def ends(self, at: int) -> Ends:
        needed = any("end" in column_names(each, ["end"]) for each, _ in self.computed)
        return "needed" if needed else "passed on"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        known = self.input.schema.names
        read = {name for expression, _ in self.computed for name in column_names(expression, known)}
        read.update(wanted if self.beside else ())
        return [tuple(name for name in known if name in read)]

    def chain(self, apart: Collection[Node] = ()) -> list[Expressions]:
        found = [self]
        while isinstance(below := found[-1].input, Expressions) and below not in apart:
            found.append(below)
        return found[::-1]

    held = "expressions, batch by batch"

    def _whole(self) -> tuple[str, ...] | None:
        key = self.input.whole
        return key if key is not None and all(map(self.keeps, key)) else None


@dataclass(frozen=True, eq=False)
class Filter(Expressions):
    """Events for which a condition holds; null counts as no."""

    condition: nw.Expr

    def __post_init__(self) -> None:
        check_boolean(self.input.schema, self.condition, where="filter")

    @cached_property
    def exact(self) -> tuple[nw.Expr, ...]:
        (condition,) = exact_divisions([self.condition], self.input.schema)
        if column_names(self.condition, [*self.input.schema.names, *LIFETIME]):
            return (condition,)
        # A constant is one value for each row, which an expression only says where it reads a column.
        return (nw.all_horizontal(condition, ~nw.col("start").is_null(), ignore_nulls=False),)

    def evaluated(self, frame: Any, expressions: Iterable[nw.Expr]) -> Any:
        return frame.filter(*expressions)

    @property
    def computed(self) -> tuple[Computed, ...]:
        return ((self.condition, self.input.schema),)

    def describe(self) -> str:
        return f"Filter {self.condition!r}"


@dataclass(frozen=True, eq=False)
class Project(Expressions):
    """The payload anew: ``keep`` says whether the columns before stay beside the new ones.

    ``said`` has what columns are called, in an error, that the user has not named.
    """

    expressions: tuple[nw.Expr, ...]
    keep: bool
    said: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _ = self.schema
        lost = [name for name in self.input.key if name not in self.schema.names]
        if lost:
            raise ColumnError(
                "select would lose a column that the stream is grouped by.",
                column=lost[0],
                remedy="Select it too, or call .by(…) after .select(…).",
            )

    @cached_property
    def picked(self) -> list[str] | None:
        names = [bare_column(expression) for expression in self.expressions]
        return None if self.keep or names != self.schema.names else [str(name) for name in names]

    @cached_property
    def exact(self) -> tuple[nw.Expr, ...]:
        return exact_divisions(self.expressions, self.input.schema)

    @property
    def names(self) -> Mapping[str, str]:
        return self.said

    @property
    def beside(self) -> bool:
        return self.keep

    keeps_rows = True

    def keeps(self, name: str) -> bool:
        if any(bare_column(expression) == name for expression in self.expressions):
            return True
        made = output_schema(self.input.schema, self.expressions, where="select", only_columns=True)
        return self.keep and name not in made.names

    def evaluated(self, frame: Any, expressions: Iterable[nw.Expr]) -> Any:
        if self.keep:
            return frame.with_columns(*expressions)
        return frame.select(nw.col("start"), nw.col("end"), *expressions)

    @cached_property
    def values(self) -> dict[str, Term]:
        return values(self.exact, self.input.schema)

    @cached_property
    def schema(self) -> pa.Schema:
        where = "with_columns" if self.keep else "select"
        schema = output_schema(self.input.schema, self.expressions, where=where, only_columns=not self.keep)
        if not len(schema):
            raise ColumnError(
                "select leaves no payload column.", remedy="Keep one: an event has a payload besides its lifetime."
            )
        return schema

    @property
    def computed(self) -> tuple[Computed, ...]:
        return tuple((each, self.input.schema) for each in self.expressions)

    def describe(self) -> str:
        shown = ", ".join(repr(expression) for expression in self.expressions)
        return f"{'WithColumns' if self.keep else 'Select'} {shown}"


@dataclass(frozen=True, eq=False)
class KeyBy(Unary):
    """Groups for the windows that follow. Null is a group of its own."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.columns:
            if name in LIFETIME:
                raise ColumnError("The lifetime is no key.", column=name, remedy="Copy it: .with_columns(…) first.")
            check_flat(self.input.schema, name, "is no key")

    @property
    def key(self) -> tuple[str, ...]:
        return self.columns

    takes_ends = "passed on"

    @property
    def unkeyed(self) -> Node:
        node: Node = self
        while isinstance(node, KeyBy):
            node = node.input
        return node

    held = "names the key, moves nothing"

    keeps_rows = True

    def _whole(self) -> tuple[str, ...] | None:
        return self.input.whole

    def describe(self) -> str:
        return f"By {', '.join(self.columns)}"


@dataclass(frozen=True, eq=False)
class Scope(KeyBy):
    """From here on every verb is meant for each group by itself; or, with fewer columns, no longer so."""

    @property
    def scope(self) -> tuple[str, ...]:
        return self.columns

    def describe(self) -> str:
        return f"Apply to each {', '.join(self.columns)}" if self.columns else "Apply ends"


def check_flat(
    schema: pa.Schema,
    name: str,
    problem: str,
    *,
    remedy: str = "Take its fields or its text as columns first.",
    what: str = "stream",
) -> None:
    """Refuse the name of a column that is not there, or is nested.

    Raises:
        ColumnError: It is one of these.
    """
    if name not in schema.names:
        raise unknown_column(name, schema.names, what=what)
    dtype = schema.field(name).type
    if pa.types.is_nested(storage(dtype)):
        raise ColumnError(f"A column of {dtype} {problem}.", column=name, remedy=remedy)


def merged(plan: Node) -> Node:
    """The same plan, in which nodes that are identical are one; the plan itself if there are none."""
    nodes = list(plan.walk())
    if all(len(each.inputs) < 2 for each in nodes):
        return plan  # a chain holds nothing twice
    known: dict[NodeIdentity, Node] = {}
    made: dict[Node, Node] = {}
    for each in nodes:
        if each.identity not in known:
            inputs = [made[below] for below in each.inputs]
            same = all(mine is before for mine, before in zip(inputs, each.inputs, strict=True))
            known[each.identity] = each if same else each.over(*inputs)
        made[each] = known[each.identity]
    return made[plan]


def make_room(node: Node) -> None:
    """Let Python call as deep as a long plan needs, up to what its stack surely holds; deeper plans are refused.

    Engines stand in a few frames for each step that hands events on. The limit is the process's, and never lowered:
    another thread may be about to need it.

    Raises:
        PlanError: The plan is deeper than that.
    """
    depths: dict[Node, int] = {}
    for each in node.walk():
        # A chain of filters and projections is evaluated as one.
        depths[each] = max((depths[below] for below in each.inputs), default=0) + (not isinstance(each, Expressions))
    if depths[node] > (most := _most_steps()):
        raise PlanError(
            f"The query has {depths[node]:,} steps, one behind the other, and {most:,} are the most here.",
            remedy="Say more in each step, or write what is in between to a store.",
        )
    needed = 1_000 + 4 * min(len(depths), _STEPS)
    if needed > sys.getrecursionlimit():
        sys.setrecursionlimit(needed)


_STEPS, _STACK = 1_600, 8 << 20
"""This many steps, each at most a window, are known to fit on a stack of this many bytes."""


def _most_steps() -> int:
    if threading.current_thread() is threading.main_thread():
        return _STEPS
    asked = threading.stack_size()
    threading.stack_size(asked)  # to ask for it sets it back
    size = asked or (512 << 10 if sys.platform == "darwin" else _STACK)
    return min(_STEPS, _STEPS * size // _STACK)


def selected(node: Node, names: Sequence[str]) -> Node:
    """Some columns of a node in an order; the node itself if it has no others."""
    if node.schema.names == list(names):
        return node
    return Project(node, tuple(nw.col(name) for name in names), keep=False)


def extended(node: Node, columns: Iterable[nw.Expr]) -> Node:
    """A node with columns added or replaced; the node itself if there are none."""
    made = tuple(columns)
    return Project(node, made, keep=True) if made else node


def filter_condition(conditions: tuple[object, ...]) -> nw.Expr:
    """One condition that holds where all do."""
    expressions = [as_expression(condition, where="filter") for condition in conditions]
    for expression in expressions:
        check_row_wise(expression, where="filter")
    return expressions[0] if len(expressions) == 1 else nw.all_horizontal(*expressions, ignore_nulls=False)
