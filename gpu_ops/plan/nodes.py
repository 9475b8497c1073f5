"""The nodes of sources, filters, projections and keys, and the base class of all nodes."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import LIFETIME
from gpu_ops.core.turns import CLOCK
from gpu_ops.core.types import storage
from gpu_ops.errors import ColumnError, PlanError, is_one_of, unknown_column
from gpu_ops.ingest.advance import Advance
from gpu_ops.plan.expression_text import for_readers, line_text
from gpu_ops.plan.expressions import (
    as_expression,
    bare_column,
    check_boolean,
    column_names,
    copied,
    exact_divisions,
    guards,
    output_schema,
    values,
)
from gpu_ops.plan.identity import Identified, NodeIdentity, identity, inside
from gpu_ops.plan.integers import Guard
from gpu_ops.plan.splits import Split, one_order
from gpu_ops.plan.terms import Term

if TYPE_CHECKING:
    from gpu_ops.ingest import EventSource
    from gpu_ops.topics.topic import Topic


Ends = Literal["needed", "later", "unread", "passed on"]
"""How a node uses the ends of its input's events: it waits for an event's end; it takes the start at once and the end
later; it never reads the end; or it hands on events whose ends are open."""

Computed = tuple[nw.Expr, pa.Schema]


@dataclass(frozen=True)
class Arrival:
    """The input at a leaf of a running query.

    Attributes:
        node: The node at which time advances, or the source itself.
        source: The source of the events.
        settings: How time advances; None if only the CTIs of the input advance it.
        follows: The node from which CTIs are imported.
        late: Whether the leaf gives the late events.
    """

    node: Node
    source: Source
    settings: Advance | None = None
    follows: Node | None = None
    late: bool = False


N = TypeVar("N", bound="Node")


@dataclass(frozen=True, eq=False)
class Node(Identified):
    """One step of a plan. Subclasses are frozen; two plans may share nodes freely.

    What a node says of its events is cached: a step of a long query that asks its input finds the answer there.
    """

    def __getstate__(self) -> dict[str, Any]:
        # An identity holds addresses of objects, which differ in another process.
        return {name: value for name, value in vars(self).items() if name != "_identity"}

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The nodes whose events it reads."""
        return ()

    def over(self, *inputs: Node) -> Node:
        """The same node over other inputs."""
        assert not inputs  # noqa: S101  (a node with inputs overrides this)
        return self

    @property
    def identity(self) -> NodeIdentity:
        """Its kind, its parameters and its inputs: equal for nodes of two plans that surely give the same events.

        `gpu_ops.plan.identity` says when parameters are identical. A source is identical only to itself, because it
        counts the rows that are read from it.
        """
        made: NodeIdentity = self._known("_identity", lambda node: identity(type(node), inside(node)))
        return made

    @cached_property
    def schema(self) -> pa.Schema:
        """The payload's columns, without ``start`` and ``end``."""
        raise NotImplementedError

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The columns by which the next window groups."""
        return ()

    @cached_property
    def scope(self) -> tuple[str, ...]:
        """The columns of the groups of the enclosing `Stream.apply`; none outside of one."""
        return self.inputs[0].scope if self.inputs else ()

    @cached_property
    def zone(self) -> str:
        """The time zone of the results."""
        return self.inputs[0].zone

    @cached_property
    def duration(self) -> int | None:
        """The length of every lifetime in ticks, if the plan knows that all lengths are equal."""
        return None

    stateless: ClassVar[bool] = True
    """Whether it handles each event by itself, so that its input may be cut anywhere."""

    takes_ends: ClassVar[Ends] = "needed"
    """How it uses the ends of events, if it treats all inputs alike."""

    def ends(self, at: int) -> Ends:
        """How it uses the ends of an input's events.

        Args:
            at: The input's place in `inputs`.
        """
        return self.takes_ends

    comes_in: ClassVar[bool] = False
    """Whether its events enter a running query here, so that nodes below it need no operators."""

    @property
    def arrival(self) -> Arrival | None:
        """Its input, at a leaf of a running query; else None."""
        return None

    @property
    def grouped(self) -> tuple[str, ...]:
        """The columns by which it groups, or the key that it hands on."""
        return self.key

    @property
    def unkeyed(self) -> Node:
        """The node that makes its events: below all nodes that only name the key."""
        return self

    @property
    def time_rule(self) -> str:
        """How it maps its input's CTI to its output's CTI, in a few words."""
        return "CTI T leaves as T"

    @property
    def held(self) -> str:
        """Which of its events a batch of the local engine holds in memory, in a few words."""
        return "lifetimes, batch by batch"

    keeps_rows: ClassVar[bool] = False
    """Whether its results share the memory of its input: who holds the results holds the input."""

    collects: ClassVar[bool] = False
    """Whether it holds all rows of its inputs in memory before it gives any result."""

    in_pieces: ClassVar[bool] = False
    """Whether it walks through time, so that a batch takes its input in pieces of time, one after the other."""

    @property
    def whole(self) -> tuple[str, ...] | None:
        """Columns such that each piece of its output holds whole groups by them; None if no such columns are known."""
        made: tuple[str, ...] | None = self._known("_whole_by", lambda node: node._whole())  # noqa: SLF001  (its own kind)
        return made

    def _whole(self) -> tuple[str, ...] | None:
        """Computes `whole`, when that of its inputs is known."""
        return None

    @property
    def gathers(self) -> bool:
        """Whether it needs all events of a group at once."""
        return False

    @property
    def together(self) -> tuple[str, ...]:
        """The columns of its (left) input by which it needs whole groups; none if it needs all events together."""
        return tuple(self.schema.names)

    @property
    def takes_part(self) -> bool:
        """Whether grouping by some of the columns of `together` is enough."""
        return not self.gathers

    @property
    def matched(self) -> tuple[tuple[str, ...], ...]:
        """For each input the columns by which it groups or matches events; empty if it does neither."""
        return ()

    @property
    def alone(self) -> tuple[bool, ...]:
        """For each input whether an event without a match gives a result."""
        return (True,) * len(self.inputs)

    def split(self, below: Sequence[Split]) -> Split:
        """How its rows, on turns, may be split among tasks.

        Args:
            below: How those of its inputs may be.

        Raises:
            PlanError: They cannot: it needs one order of all events.
        """
        raise one_order(self.explained())

    handed: ClassVar[Literal["all", "needed", "needed alone"]] = "all"
    """Which payload columns of its input a Spark worker gets: all; those of `needs`; or those of `needs`, in a schema
    that has no others."""

    @property
    def counted(self) -> set[str]:
        """The columns of its input of which it reads only which values are null."""
        return set()

    @property
    def strategy(self) -> str:
        """The strategy that the user asks of Spark."""
        return "auto"

    def lowered(self) -> Node:
        """The same node over plain columns: a projection below it computes its expressions."""
        return self

    def keeps(self, name: str) -> bool:
        """Whether it hands on a column unchanged."""
        return True

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        """The columns of each input that it needs to give the wanted ones."""
        return [tuple(wanted)] * len(self.inputs)

    @property
    def decisive(self) -> frozenset[str]:
        """The columns of its inputs that decide its results, beside those that expressions of `computed` read."""
        return frozenset(name for names in self.needs(()) for name in names)

    def lighter(self, wanted: Collection[str]) -> Node:
        """The same without columns that it need not carry to give the wanted ones."""
        return self

    @property
    def arriving(self) -> Node | None:
        """Its rows as they come, if they are in from then on and never leave; None for all other rows."""
        return None

    def chain(self, apart: Collection[Node] = ()) -> list[Expressions]:
        """The chain of nodes that ends in it and can be evaluated as one, lowest first; empty if there is none.

        Args:
            apart: Nodes that are evaluated by themselves, and so end a chain.
        """
        return []

    def all(self, kind: type[N]) -> list[N]:
        """The nodes of a kind among it and those below it, in the order of `walk`."""
        return [each for each in self.walk() if isinstance(each, kind)]

    @cached_property
    def gives_open(self) -> bool:
        """Whether it may give events whose ends are not known yet: its own, or its input's."""
        return any(self.ends(at) == "passed on" and each.gives_open for at, each in enumerate(self.inputs))

    @property
    def computed(self) -> tuple[Computed, ...]:
        """The expressions that it computes itself, each with the payload that it reads."""
        return ()

    @cached_property
    def exact(self) -> tuple[nw.Expr, ...]:
        """These expressions, in the form in which they are evaluated here."""
        return tuple(exact_divisions([expression], schema)[0] for expression, schema in self.computed)

    @cached_property
    def guards(self) -> dict[int, Guard]:
        """The guards of expressions whose whole numbers may not fit, by the places of the expressions."""
        schemas = [schema for _, schema in self.computed]
        return guards([each for each, _ in self.computed], schemas[0], self.exact, self.names) if schemas else {}

    @property
    def names(self) -> Mapping[str, str]:
        """The names that an error shows for columns that the user has not named."""
        return {}

    def describe(self) -> str:
        """The node in a line, for checkpoints and for `explain`."""
        raise NotImplementedError

    @for_readers()
    def explained(self) -> str:
        """The node's own line of `explain`, with expressions as their users write them."""
        return self.describe()

    def walk(self) -> Iterator[Node]:
        """This node and those below it, each once, inputs first."""
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
        """Whether it reads a Spark DataFrame."""
        return bool(
            self._known(
                "_on_spark",
                lambda node: isinstance(node, SparkSource) or any(vars(each)["_on_spark"] for each in node.inputs),
            )
        )

    def _known(self, name: str, found: Callable[[Node], Any]) -> Any:
        """A fact of a node that is computed from its inputs' facts, without recursion, once for each node."""
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
    """A node with one input. By default it hands on schema, key and duration."""

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
    """A local source, whose rows are validated while they are read.

    ``name`` distinguishes it from other inputs of a running query.
    """

    source: EventSource
    name: str | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        return self.source.schema

    @cached_property
    def zone(self) -> str:
        return self.source.zone

    @cached_property
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
    """Events in a Spark DataFrame with the time columns ``start`` and ``end`` (TIMESTAMP).

    ``refused`` makes the DataFrame of invalid rows; None if the name of a payload column is taken by the rule's column.
    ``validated_first`` makes the same events, all rows of which are validated before any is read, so that filters may
    move below the validation; or None, if the frame cannot be looked at twice. ``drops`` says that invalid rows are
    left out, and no error.
    ``name`` distinguishes it from other inputs of a live query; ``endless`` says that the DataFrame is a stream.
    ``faults`` is the column of rows that are no events and say what was dropped before; ``ctis`` that of rows that are
    CTIs. ``topic`` is the topic that Spark reads, if it is one.
    """

    frame: Any
    payload: pa.Schema
    time_zone: str
    points: bool
    refused: Any = None
    validated_first: Callable[[], Any] | None = None
    drops: bool = False
    name: str | None = None
    endless: bool = False
    faults: str | None = None
    topic: Topic | None = None
    ctis: str | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        return self.payload

    @cached_property
    def zone(self) -> str:
        return self.time_zone

    @cached_property
    def duration(self) -> int | None:
        return 1 if self.points else None

    def describe(self) -> str:
        said = f"{'streaming ' * self.endless}Spark DataFrame" if self.topic is None else f"{self.topic!r} on Spark"
        return f"Source {self.name or ''}{' ' * bool(self.name)}{said}"


@dataclass(frozen=True, eq=False)
class Feed(Node):
    """The leaf of a fragment: events that an engine passes in, as a Spark worker does."""

    payload: pa.Schema
    columns: tuple[str, ...]
    length: int | None

    @property
    def identity(self) -> NodeIdentity:
        # Two feeds that look the same may get different events.
        return NodeIdentity(str(id(self)).encode(), (self,))

    @cached_property
    def schema(self) -> pa.Schema:
        return self.payload

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.columns

    zone = "UTC"

    @cached_property
    def duration(self) -> int | None:
        return self.length

    comes_in = True

    def describe(self) -> str:
        return "Feed"


@dataclass(frozen=True, eq=False)
class Expressions(Unary):
    """A node that computes expressions of each row by itself. A chain of them is evaluated as one."""

    @cached_property
    def copies(self) -> dict[str, str] | None:
        """The columns that it picks or renames, from new names to old ones or ``start``, if it does no more."""
        return None

    @cached_property
    def values(self) -> dict[str, Term]:
        """The terms of the expressions, by the names of their columns."""
        return {}

    @property
    def beside(self) -> bool:
        """Whether its input's columns stay."""
        return True

    def evaluated(self, frame: Any, expressions: Iterable[nw.Expr]) -> Any:
        """The Narwhals frame of its results, with these expressions in place of its own."""
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

    @property
    def arriving(self) -> Node | None:
        below = self.input.arriving if self.ends(0) == "passed on" else None
        return None if below is None else self.over(below)

    held = "expressions, batch by batch"

    def _whole(self) -> tuple[str, ...] | None:
        key = self.input.whole
        return key if key is not None and all(map(self.keeps, key)) else None


@dataclass(frozen=True, eq=False)
class Filter(Expressions):
    """Events for which a condition holds; null counts as no. ``said`` as in `Project`."""

    condition: nw.Expr
    said: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_boolean(self.input.schema, self.condition, where="filter")

    @property
    def names(self) -> Mapping[str, str]:
        return self.said

    @cached_property
    def exact(self) -> tuple[nw.Expr, ...]:
        (condition,) = exact_divisions([self.condition], self.input.schema)
        if column_names(self.condition, [*self.input.schema.names, *LIFETIME]):
            return (condition,)
        # A constant has one value. It needs a value for each row, which an expression has if it reads a column.
        return (nw.all_horizontal(condition, ~nw.col("start").is_null(), ignore_nulls=False),)

    def evaluated(self, frame: Any, expressions: Iterable[nw.Expr]) -> Any:
        return frame.filter(*expressions)

    def split(self, below: Sequence[Split]) -> Split:
        return below[0]

    @property
    def computed(self) -> tuple[Computed, ...]:
        return ((self.condition, self.input.schema),)

    def describe(self) -> str:
        return f"Filter {line_text(self.condition)}"


@dataclass(frozen=True, eq=False)
class Project(Expressions):
    """A new payload; with ``keep`` the old columns stay beside the new ones.

    ``said`` has the names that an error shows for columns that the user has not named, and for whole expressions
    (`gpu_ops.plan.integers.Guard`).
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
    def copies(self) -> dict[str, str] | None:
        return copied(self.expressions, frozenset({*self.input.schema.names, "start"}))

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

    def split(self, below: Sequence[Split]) -> Split:
        schema = self.input.schema
        made = output_schema(schema, self.expressions, where="select", only_columns=True).names
        names = {name: name for name in schema.names if self.keep and name not in made}
        for expression in self.expressions:
            names |= copied([expression], frozenset(schema.names)) or {}
        picked = below[0].picked(names)
        return picked if names.get(CLOCK) == CLOCK else picked.made()

    def evaluated(self, frame: Any, expressions: Iterable[nw.Expr]) -> Any:
        if self.keep:
            return frame.with_columns(*expressions)
        return frame.select("start", "end", *expressions)

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
        listed = ", ".join(line_text(each) for each in self.expressions)
        return f"{'WithColumns' if self.keep else 'Select'} {listed}"


@dataclass(frozen=True, eq=False)
class KeyBy(Unary):
    """Groups for the windows that follow. Null is a group of its own."""

    columns: tuple[str, ...]

    def __post_init__(self) -> None:
        for name in self.columns:
            if name in LIFETIME:
                raise ColumnError("The lifetime is no key.", column=name, remedy="Copy it: .with_columns(…) first.")
            check_flat(self.input.schema, name, "is no key")

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.columns

    def split(self, below: Sequence[Split]) -> Split:
        return below[0]

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
    """From here on every verb applies to each group by itself; with fewer columns a scope ends."""

    @cached_property
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
    """Refuse an unknown column, and a nested one.

    Raises:
        ColumnError: The column is unknown or nested.
    """
    if name not in schema.names:
        raise unknown_column(name, schema.names, what=what)
    dtype = schema.field(name).type
    if pa.types.is_nested(storage(dtype)):
        raise ColumnError(f"A column of {dtype} {problem}.", column=name, remedy=remedy)


def check_known(schema: pa.Schema, names: Iterable[str], *, what: str = "stream") -> None:
    """Refuse unknown columns. On turns, columns of any type tell groups apart.

    Raises:
        ColumnError: A column is unknown.
    """
    for name in names:
        if not is_one_of(name, schema.names):  # whatever was handed in
            raise unknown_column(name, schema.names, what=what)


def merged(plan: Node) -> Node:
    """The same plan with identical nodes merged; the plan itself if no two are identical."""
    nodes = list(plan.walk())
    if all(len(each.inputs) < 2 for each in nodes):
        return plan  # a chain has no identical nodes
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
    """Raise Python's recursion limit to what a long plan needs, as far as the stack surely allows.

    Engines use a few frames for each step. The limit is the process's, and it is never lowered: another thread may
    need it.

    Raises:
        PlanError: The plan is too deep for the stack.
    """
    depths: dict[Node, int] = {}
    for each in node.walk():
        # A chain of filters and projections is evaluated as one.
        depths[each] = max((depths[below] for below in each.inputs), default=0) + (not isinstance(each, Expressions))
    if depths[node] > (most := _most_steps()):
        raise PlanError(
            f"The query chains {depths[node]:,} steps, and at most {most:,} are possible here.",
            remedy="Combine steps, or write an intermediate result to a store.",
        )
    needed = 1_000 + 4 * min(len(depths), _STEPS)
    if needed > sys.getrecursionlimit():
        sys.setrecursionlimit(needed)


_STEPS, _STACK = 1_600, 8 << 20
"""This many steps, of which each may be a window, fit on a stack of this many bytes."""


def _most_steps() -> int:
    if threading.current_thread() is threading.main_thread():
        return _STEPS
    asked = threading.stack_size()
    threading.stack_size(asked)  # reading the size resets it
    size = asked or (512 << 10 if sys.platform == "darwin" else _STACK)
    return min(_STEPS, _STEPS * size // _STACK)


def selected(node: Node, names: Sequence[str]) -> Node:
    """A node's columns selected by name, in that order; the node itself if these are its columns."""
    if node.schema.names == list(names):
        return node
    return Project(node, tuple(nw.col(name) for name in names), keep=False)


def extended(node: Node, columns: Iterable[nw.Expr]) -> Node:
    """A node with columns added or replaced; the node itself if no columns are given."""
    made = tuple(columns)
    return Project(node, made, keep=True) if made else node


def filter_condition(conditions: tuple[object, ...]) -> nw.Expr:
    """The conjunction of conditions."""
    expressions = [as_expression(condition, where="filter") for condition in conditions]
    return expressions[0] if len(expressions) == 1 else nw.all_horizontal(*expressions, ignore_nulls=False)
