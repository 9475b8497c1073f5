"""Nodes with several inputs: union, join, clip by another stream, as-of join; and how their columns are combined."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal, get_args

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.arguments import word
from gpu_ops.core.arrow_types import is_text
from gpu_ops.core.time import LIFETIME, TICK, format_span
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.plan.aggregates import count
from gpu_ops.plan.arguments import names
from gpu_ops.plan.expression_text import line_text
from gpu_ops.plan.expressions import check_boolean, column_names
from gpu_ops.plan.lifetimes import Stitch
from gpu_ops.plan.nodes import Computed, Ends, KeyBy, Node, Project, Unary, check_flat, extended, selected
from gpu_ops.plan.splits import Split, united
from gpu_ops.plan.windows import Snapshot, WindowAggregate, named_aggregates

How = Literal["inner", "left", "right", "full", "semi", "anti"]
AsofHow = Literal["left", "inner"]
AsofDirection = Literal["backward", "forward", "nearest"]
Strategy = Literal["auto", "kernel", "sql"]

On = tuple[tuple[str, str], ...]
"""Key columns: a pair (left name, right name) for each."""


@dataclass(frozen=True, eq=False)
class Binary(Node):
    """A node with a left and a right input, matched where the key columns of both are equal."""

    left: Node
    right: Node
    on: On

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.left, self.right

    def over(self, *inputs: Node) -> Node:
        left, right = inputs
        return replace(self, left=left, right=right)

    @cached_property
    def schema(self) -> pa.Schema:
        return self.left.schema

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.left.key

    stateless = False

    @property
    def alone(self) -> tuple[bool, bool]:
        """Whether left and right events without a partner give results."""
        raise NotImplementedError

    @property
    def in_parts(self) -> tuple[bool, bool]:
        """Whether parts of the left side, each beside all right events, give all results; and parts of the right side.

        Events without a partner, and times with one, are found beside all events that could be partners.
        """
        return True, False

    @cached_property
    def renamed(self) -> dict[str, str]:
        """The right columns of the result: from their own names to their names beside the left columns."""
        return {}

    gathers = True

    @property
    def together(self) -> tuple[str, ...]:
        return tuple(left for left, _ in self.on)

    @property
    def matched(self) -> tuple[tuple[str, ...], ...]:
        return tuple(zip(*self.on, strict=True))

    @property
    def time_rule(self) -> str:
        return "the older CTI of both inputs leaves"

    @property
    def held(self) -> str:
        return "both inputs in memory, in order of key and start"

    collects = True

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        read = set(wanted)
        left, right = ({each[at] for each in self.on} for at in (0, 1))
        right |= self._needs_right(read)
        return [
            tuple(name for name in each.schema.names if name in names)
            for each, names in ((self.left, left | read), (self.right, right))
        ]

    def _needs_right(self, read: set[str]) -> set[str]:
        """The right columns, besides the keys, that it needs to give ``read``, which gets what it reads itself."""
        return set()

    @property
    def _shown_on(self) -> str:
        if not self.on:
            return ""
        return " on " + ", ".join(left if left == right else f"{left}={right}" for left, right in self.on)


@dataclass(frozen=True, eq=False)
class Join(Binary):
    """Pairs of left and right events that are alive at the same time, and the pieces of events without a partner.

    A pair lives while both events do. ``condition`` is part of the match and reads both payloads under the names of
    `paired`. An outer join also gives the pieces of a kept side's events during which they have no partner, with nulls
    for the other side. Semi and anti joins give the pieces of left events with and without a partner.
    """

    how: How
    condition: nw.Expr | None = None
    suffix: str = "_right"
    strategy: Strategy = "auto"

    def __post_init__(self) -> None:
        word(self.how, get_args(How), name="how")
        word(self.strategy, get_args(Strategy), name="strategy")
        _ = self.paired
        if self.condition is not None:
            if column_names(self.condition, LIFETIME):
                raise PlanError(
                    "A join's condition reads payloads alone: the join itself compares lifetimes.",
                    remedy='Copy what it needs first: .with_columns(started=g.col("start")).',
                )
            check_boolean(self.paired, self.condition, where="join(condition=…)")

    @cached_property
    def renamed(self) -> dict[str, str]:
        if self.condition is None and not self.pairs:
            return {}  # neither the result nor a condition has them
        return beside_names(self.left.schema, self.right.schema, [name for _, name in self.on], self.suffix)

    @cached_property
    def paired(self) -> pa.Schema:
        """The payload of a pair."""
        right = [self.right.schema.field(name).with_name(new) for name, new in self.renamed.items()]
        return pa.schema([*self.left.schema, *right])

    @cached_property
    def schema(self) -> pa.Schema:
        if self.how in {"semi", "anti"}:
            return self.left.schema
        lefts = len(self.left.schema)
        keys = {name for name, _ in self.on}
        fields = []
        for at, field in enumerate(self.paired):
            missing = self.how in ({"right", "full"} if at < lefts else {"left", "full"})
            fields.append(field.with_nullable(True) if missing and field.name not in keys else field)
        for left, right in self.on:
            if self.how in {"right", "full"} and self.right.schema.field(right).nullable:
                at = self.left.schema.get_field_index(left)
                fields[at] = fields[at].with_nullable(True)
        return pa.schema(fields)

    @property
    def pairs(self) -> bool:
        """Whether pairs are part of the result."""
        return self.how not in {"semi", "anti"}

    @property
    def alone(self) -> tuple[bool, bool]:
        return self.how in {"left", "full", "anti"}, self.how in {"right", "full"}

    @property
    def in_parts(self) -> tuple[bool, bool]:
        return not self.alone[1], self.pairs and not self.alone[0]

    @cached_property
    def duration(self) -> int | None:
        # A point overlaps another event as a whole, or not at all.
        points = self.left.duration == TICK, self.right.duration == TICK
        kept = self.alone
        if self.how in {"semi", "anti"}:
            return TICK if points[0] else None
        return TICK if (points[0] or not kept[0]) and (points[1] or not kept[1]) and any(points) else None

    @property
    def computed(self) -> tuple[Computed, ...]:
        return () if self.condition is None else ((self.condition, self.paired),)

    @property
    def time_rule(self) -> str:
        if any(self.alone) or not self.pairs:
            return "the older CTI of both inputs leaves, or the start of the oldest piece that may still grow"
        return super().time_rule

    @property
    def held(self) -> str:
        return f"{super().held}; pairs in pieces, as they are asked for"

    def _needs_right(self, read: set[str]) -> set[str]:
        if self.condition is not None:
            read.update(column_names(self.condition, self.paired.names))
        return {name for name, new in self.renamed.items() if new in read}

    def as_inner(self) -> Node:
        """A semi join in terms of other nodes: left events joined with the times at which each has a partner.

        A piece of it is final once the CTI has passed the piece's end, so it needs no state of its own.
        """
        number = "__number" + "_" * max(map(len, (*self.left.schema.names, *self.right.schema.names)))
        left, right = Numbered(self.left, number), self.right
        if self.condition is None:
            # Right events need their keys alone, and at least one column.
            keys = tuple(nw.col(name) for _, name in self.on)
            one = nw.col(right.schema.names[0]).alias(f"{number}_any")
            right = Project(KeyBy(right, ()), keys or (one,), keep=False)
        met: Node = Join(left, right, self.on, "inner", self.condition, self.suffix)
        met = distinct(met, (number,))
        return selected(Join(left, met, ((number, number),), "inner"), self.left.schema.names)

    def describe(self) -> str:
        where = "" if self.condition is None else f" where {line_text(self.condition)}"
        return f"Join {self.how}{self._shown_on}{where}"


@dataclass(frozen=True, eq=False)
class Numbered(Unary):
    """Events with a number each, which tells apart the pieces of different events."""

    name: str

    @cached_property
    def schema(self) -> pa.Schema:
        return self.input.schema.append(pa.field(self.name, pa.int64(), nullable=False))

    stateless = False

    def describe(self) -> str:
        return "Numbered"


@dataclass(frozen=True, eq=False)
class ClipBy(Binary):
    """Left events, each ended by the first matching right start after its own start (Trill: ClipEventDuration)."""

    @cached_property
    def duration(self) -> int | None:
        return TICK if self.left.duration == TICK else None

    def ends(self, at: int) -> Ends:
        # Only the starts of right events matter.
        return "unread" if at else "needed"

    alone = True, False

    @property
    def time_rule(self) -> str:
        return f"{super().time_rule}, or the start of the oldest event that has not ended by then"

    def describe(self) -> str:
        return f"ClipBy{self._shown_on}"


@dataclass(frozen=True, eq=False)
class AsOf(Binary):
    """Each left event with a matching right event that starts near it.

    That is the last one that started at or before it (``backward``), the first one that starts then or later
    (``forward``), or the nearer one of both (``nearest``), which is the earlier one if both are as near.
    """

    how: AsofHow
    tolerance: int | None = None
    suffix: str = "_right"
    direction: AsofDirection = "backward"

    def __post_init__(self) -> None:
        word(self.how, get_args(AsofHow), name="how")
        word(self.direction, get_args(AsofDirection), name="direction")
        _ = self.schema

    @cached_property
    def renamed(self) -> dict[str, str]:
        return beside_names(self.left.schema, self.right.schema, [name for _, name in self.on], self.suffix)

    @cached_property
    def schema(self) -> pa.Schema:
        right = [self.right.schema.field(name).with_name(new) for name, new in self.renamed.items()]
        if self.how == "left":
            right = [field.with_nullable(True) for field in right]
        return pa.schema([*self.left.schema, *right])

    @cached_property
    def duration(self) -> int | None:
        return self.left.duration

    @property
    def alone(self) -> tuple[bool, bool]:
        return self.how == "left", False

    def _needs_right(self, read: set[str]) -> set[str]:
        return set(self.right.schema.names)  # the payload decides between equal starts

    def describe(self) -> str:
        tolerance = "" if self.tolerance is None else f" tolerance={format_span(self.tolerance)}"
        direction = "" if self.direction == "backward" else f" {self.direction}"
        return f"AsOf {self.how}{direction}{self._shown_on}{tolerance}"

    @property
    def time_rule(self) -> str:
        if self.direction == "backward":
            return super().time_rule
        return "the older CTI of both inputs leaves, or the oldest left start whose match is not known"


@dataclass(frozen=True, eq=False)
class Union(Node):
    """All events of several streams with the same columns."""

    parts: tuple[Node, ...]

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.parts

    def over(self, *inputs: Node) -> Node:
        return replace(self, parts=inputs)

    @cached_property
    def schema(self) -> pa.Schema:
        schemas = [part.schema for part in self.parts]
        return pa.schema(
            [field.with_nullable(any(schema.field(field.name).nullable for schema in schemas)) for field in schemas[0]]
        )

    @cached_property
    def key(self) -> tuple[str, ...]:
        return self.parts[0].key

    @cached_property
    def duration(self) -> int | None:
        durations = {part.duration for part in self.parts}
        return durations.pop() if len(durations) == 1 else None

    takes_ends = "passed on"

    def split(self, below: Sequence[Split]) -> Split:
        return united(below, "A union of streams that share no key")

    time_rule = "the oldest CTI of all inputs leaves"

    held = "one input after the other, batch by batch"

    keeps_rows = True

    def lighter(self, wanted: Collection[str]) -> Node:
        """Inputs without the columns that only some of them still have; one stays, as rows without any are none."""
        shared = [name for name in self.schema.names if all(name in each.schema.names for each in self.parts)]
        names = [name for name in shared if name in wanted] or shared[:1]
        return replace(self, parts=tuple(selected(each, names) for each in self.parts))

    def describe(self) -> str:
        return f"Union of {len(self.parts)}"


def distinct(node: Node, names: tuple[str, ...]) -> Node:
    """The times at which at least one event has each combination of some columns."""
    counted = "__count" + "_" * max(map(len, names))
    pieces = WindowAggregate(KeyBy(node, names), Snapshot(), named_aggregates({counted: count()}))
    return Stitch(selected(pieces, names))


def beside_names(left: pa.Schema, right: pa.Schema, keys: Sequence[str], suffix: str) -> dict[str, str]:
    """The names of right columns beside left ones, by their own names.

    Raises:
        ColumnError: The name with the suffix is taken too.

    Examples:
        >>> schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
        >>> beside_names(schema, schema, ["k"], "_right")
        {'v': 'v_right'}
    """
    if not isinstance(suffix, str):
        raise PlanError(f"suffix is {shown(suffix)}, not a text.", remedy='Write suffix="_right", for instance.')
    names = {name: name if name not in left.names else name + suffix for name in right.names if name not in keys}
    taken = [*left.names, *LIFETIME]
    for name, new in names.items():
        if new in taken:
            raise ColumnError(
                f"Both streams have this column, and {new!r} is taken too.",
                column=name,
                remedy="Give another suffix=, or rename it first with .select(…).",
            )
        taken.append(new)
    return names


def named_keys(on: object, left: Node, right: Node) -> On:
    """Key columns as pairs of names.

    Raises:
        ColumnError: A column is unknown, or cannot be a key.
        PlanError: The argument does not name columns.
    """
    pairs = list(on.items()) if isinstance(on, Mapping) else [(name, name) for name in names(on, where="on=")]
    for each in pairs:
        for name, side, which in zip(each, (left, right), ("left", "right"), strict=True):
            if not isinstance(name, str):
                raise PlanError(
                    f"on= takes column names, not {type(name).__name__}.",
                    remedy='Write on="zone", on=["zone", "day"] or on={"zone": "area"}.',
                )
            if name in LIFETIME:
                raise ColumnError(
                    "The lifetime is no key: lifetimes match where they overlap.",
                    column=name,
                    remedy='Copy it first: .with_columns(day=g.col("start").dt.truncate("1d")).',
                )
            remedy = "Take its fields or its text first."
            check_flat(side.schema, name, "is no key", remedy=remedy, what=f"{which} stream")
    for columns in zip(*pairs, strict=True):
        if len(set(columns)) < len(columns):
            twice = next(name for name in columns if columns.count(name) > 1)
            raise ColumnError("A key column is named twice.", column=str(twice), remedy="Name each once.")
    return tuple((str(mine), str(other)) for mine, other in pairs)


def with_common_keys(left: Node, right: Node, on: On) -> tuple[Node, Node]:
    """Both streams with each pair of key columns cast to their common type.

    Raises:
        ColumnError: Two types have no common type.
    """
    wanted: tuple[dict[str, pa.DataType], dict[str, pa.DataType]] = ({}, {})
    for mine, other in on:
        types = left.schema.field(mine).type, right.schema.field(other).type
        common = common_type(*types)
        if common is None:
            raise ColumnError(
                f"The key types have no common type: {types[0]} on the left, {types[1]} on the right ({other!r}).",
                column=mine,
                remedy="Cast one of them first: .with_columns(g.col(…).cast(…)).",
            )
        wanted[0][mine], wanted[1][other] = common, common
    return _cast(left, wanted[0]), _cast(right, wanted[1])


def with_common_columns(parts: Sequence[Node]) -> tuple[Node, ...]:
    """Streams with the first one's columns in its order, each cast to the common type of all streams.

    Raises:
        ColumnError: A stream lacks a column or has another, or the types of a column have no common type.
    """
    first = parts[0].schema
    wanted = {field.name: field.type for field in first}
    for number, part in enumerate(parts[1:], start=2):
        mine, others = set(first.names), set(part.schema.names)
        if mine != others:
            does = "lacks a column of the first" if mine - others else "has a column that the first lacks"
            raise ColumnError(
                f"Stream {number} of the union {does}.",
                column=min(mine - others or others - mine),
                remedy="Give all the same columns: .select(…) or .with_columns(…).",
            )
        for name, dtype in wanted.items():
            other = part.schema.field(name).type
            common = common_type(dtype, other)
            if common is None:
                raise ColumnError(
                    f"The streams of the union have it as {dtype} and as {other}.",
                    column=name,
                    remedy="Cast one of them first: .with_columns(g.col(…).cast(…)).",
                )
            wanted[name] = common
    return tuple(selected(_cast(part, wanted), first.names) for part in parts)


def _cast(node: Node, types: Mapping[str, pa.DataType]) -> Node:
    return extended(
        node,
        (
            nw.col(name).cast(_narwhals_type(wanted))
            for name, wanted in types.items()
            if _narwhals_type(node.schema.field(name).type) != _narwhals_type(wanted)
        ),
    )


def cast_to(node: Node, schema: pa.Schema, sources: Mapping[str, str], kept: Sequence[str]) -> Node:
    """The columns of a schema, of some columns of a node; those without a source are null.

    Args:
        node: The node.
        schema: The columns, and their types.
        sources: From names of the schema to columns of the node.
        kept: Columns of the node that are there besides.
    """
    made = []
    for each in schema:
        source, wanted = sources.get(each.name), _narwhals_type(each.type)
        value = nw.lit(None) if source is None else nw.col(source)
        is_there = source is not None and _narwhals_type(node.schema.field(source).type) == wanted
        made.append((value if is_there else value.cast(wanted)).alias(each.name))
    return Project(node, (*made, *map(nw.col, kept)), keep=False)


@lru_cache(maxsize=256)
def _narwhals_type(dtype: pa.DataType) -> nw.dtypes.DType:
    made: nw.dtypes.DType = nw.from_native(pa.Table.from_batches([], pa.schema([("c", dtype)]))).schema["c"]
    return made


def common_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type that holds every value of two types exactly; None if there is none.

    Examples:
        >>> common_type(pa.int32(), pa.uint32()), common_type(pa.int64(), pa.float64())
        (DataType(int64), None)
    """
    types = pa.types
    if left == right and not types.is_dictionary(left):
        return left
    left, right = (each.value_type if types.is_dictionary(each) else each for each in (left, right))
    for one, other in ((left, right), (right, left)):
        if types.is_null(one) or one == other:
            return other
    if is_text(left) and is_text(right):
        return left
    if all(types.is_binary(each) or types.is_large_binary(each) for each in (left, right)):
        return left
    if types.is_integer(left) and types.is_integer(right):
        return _common_integer(left, right)
    if all(types.is_integer(each) or types.is_floating(each) for each in (left, right)):
        whole = [each for each in (left, right) if types.is_integer(each)]
        return pa.float64() if all(each.bit_width <= 32 for each in whole) else None
    if types.is_timestamp(left) and types.is_timestamp(right) and (left.tz is None) == (right.tz is None):
        return pa.timestamp(_finer(left.unit, right.unit), left.tz)
    if types.is_duration(left) and types.is_duration(right):
        return pa.duration(_finer(left.unit, right.unit))
    return None


def _common_integer(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    signed = [pa.types.is_signed_integer(each) for each in (left, right)]
    if signed[0] == signed[1]:
        return left if left.bit_width >= right.bit_width else right
    has_sign, has_none = (left, right) if signed[0] else (right, left)
    width = max(has_sign.bit_width, 2 * has_none.bit_width)
    return {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}.get(width)


def _finer(left: str, right: str) -> str:
    units = ("s", "ms", "us", "ns")
    return max(left, right, key=units.index)
