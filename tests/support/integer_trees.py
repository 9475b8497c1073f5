"""Random expressions of whole numbers: each as Narwhals has it, and as Python's integers have it, row by row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import pyarrow as pa
from hypothesis import strategies as st

Row = Mapping[str, int | None]

TYPES = {
    "i8": (nw.Int8, pa.int8(), -(1 << 7), (1 << 7) - 1),
    "i16": (nw.Int16, pa.int16(), -(1 << 15), (1 << 15) - 1),
    "i32": (nw.Int32, pa.int32(), -(1 << 31), (1 << 31) - 1),
    "i64": (nw.Int64, pa.int64(), -(1 << 63), (1 << 63) - 1),
    "u8": (nw.UInt8, pa.uint8(), 0, (1 << 8) - 1),
    "u16": (nw.UInt16, pa.uint16(), 0, (1 << 16) - 1),
    "u32": (nw.UInt32, pa.uint32(), 0, (1 << 32) - 1),
    "u64": (nw.UInt64, pa.uint64(), 0, (1 << 64) - 1),
}
"""For each type of whole numbers: Narwhals' name, Arrow's, the least and the greatest number."""


class DoesNotFitError(Exception):
    """A result is none that its type holds."""


@dataclass(frozen=True)
class Whole:
    """An expression of one of the `TYPES`.

    Attributes:
        kind: Which type.
        expression: Narwhals' expression.
        of: What it is in a row.
    """

    kind: str
    expression: Any
    of: Callable[[Row], int | None]


@dataclass(frozen=True)
class Condition:
    """A condition, as `Whole`."""

    expression: Any
    of: Callable[[Row], bool | None]


def edges(kind: str) -> st.SearchStrategy[int]:
    """Numbers of a type, its least and greatest ones among them often."""
    _, _, low, high = TYPES[kind]
    special = {
        low,
        low + 1,
        high,
        high - 1,
        high // 2,
        high // 2 + 1,
        low // 2,
        low // 2 - 1,
        0,
        1,
        2,
        3,
        -1,
        -2,
        7,
        10,
    }
    near = sorted(each for each in special if low <= each <= high)
    return st.sampled_from(near) | st.integers(max(low, -20), min(high, 20)) | st.integers(low, high)


@st.composite
def tables(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(TYPES)) -> pa.Table:
    """Events with three columns of each type (``i64_0`` and so on)."""
    count = draw(st.integers(1, 6))
    columns: dict[str, Any] = {"at": pa.array(range(count), pa.int64())}
    for kind in kinds:
        for at in range(2):
            values = draw(st.lists(st.none() | edges(kind), min_size=count, max_size=count))
            columns[f"{kind}_{at}"] = pa.array(values, TYPES[kind][1])
    return pa.table(columns)


def fitting(kind: str, value: int | None) -> int | None:
    """The value, if its type holds it.

    Raises:
        DoesNotFitError: It does not.
    """
    _, _, low, high = TYPES[kind]
    if value is not None and not low <= value <= high:
        raise DoesNotFitError(f"{value} is no {kind}")
    return value


def _binary(name: str, one: Whole, other: Whole) -> Whole:
    def of(row: Row) -> int | None:
        mine, theirs = one.of(row), other.of(row)
        if mine is None or theirs is None or (name in {"//", "%"} and theirs == 0):
            return None
        made = {
            "+": lambda: mine + theirs,
            "-": lambda: mine - theirs,
            "*": lambda: mine * theirs,
            "//": lambda: mine // theirs,
            "%": lambda: mine % theirs,
        }[name]()
        return fitting(one.kind, made)

    expression = {
        "+": lambda: one.expression + other.expression,
        "-": lambda: one.expression - other.expression,
        "*": lambda: one.expression * other.expression,
        "//": lambda: one.expression // other.expression,
        "%": lambda: one.expression % other.expression,
    }[name]()
    return Whole(one.kind, expression, of)


def _unary(name: str, one: Whole) -> Whole:
    def of(row: Row) -> int | None:
        value = one.of(row)
        return None if value is None else fitting(one.kind, abs(value) if name == "abs" else -value)

    return Whole(one.kind, one.expression.abs() if name == "abs" else -one.expression, of)


def _power(one: Whole, exponent: int) -> Whole:
    def of(row: Row) -> int | None:
        value = one.of(row)
        return None if value is None else fitting(one.kind, value**exponent)

    return Whole(one.kind, one.expression**exponent, of)


def _cast(kind: str, one: Whole) -> Whole:
    return Whole(kind, one.expression.cast(TYPES[kind][0]), lambda row: fitting(kind, one.of(row)))


def _chosen(condition: Condition, one: Whole, other: Whole) -> Whole:
    made = nw.when(condition.expression).then(one.expression).otherwise(other.expression)
    return Whole(one.kind, made, lambda row: one.of(row) if condition.of(row) else other.of(row))


def _filled(one: Whole, other: Whole) -> Whole:
    def of(row: Row) -> int | None:
        value = one.of(row)
        return other.of(row) if value is None else value

    return Whole(one.kind, one.expression.fill_null(other.expression), of)


def _column(kind: str, at: int) -> Whole:
    return Whole(kind, nw.col(f"{kind}_{at}"), lambda row: row[f"{kind}_{at}"])


@st.composite
def wholes(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(TYPES), depth: int = 3, kind: str | None = None) -> Whole:
    """Expressions of one type, or of any of some."""
    kind = kind or draw(st.sampled_from(kinds))
    same = wholes(kinds, depth - 1, kind)
    if depth == 0:
        return _column(kind, draw(st.integers(0, 1)))
    ways = ["column", "+", "-", "*", "+ number", "* number", "//", "%", "power", "cast", "when", "fill"]
    way = draw(st.sampled_from([*ways, *(["abs", "-1"] if kind.startswith("i") else [])]))
    if way == "column":
        return _column(kind, draw(st.integers(0, 1)))
    if way in {"+", "-", "*", "//", "%"}:
        return _binary(way, draw(same), draw(same))
    if way.endswith("number"):
        value = draw(edges(kind))
        return _binary(way[0], draw(same), Whole(kind, value, lambda _: value))
    if way == "power":
        return _power(draw(same), draw(st.integers(0, 4)))
    if way == "cast":
        return _cast(kind, draw(wholes(kinds, depth - 1)))
    if way == "when":
        return _chosen(draw(conditions(kinds, depth - 1)), draw(same), draw(same))
    if way == "fill":
        return _filled(draw(same), draw(same))
    return _unary(way, draw(same))


@st.composite
def conditions(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(TYPES), depth: int = 2) -> Condition:
    """Comparisons of expressions with numbers, joined by ``&`` and ``|``, which are taken from left to right."""
    if depth > 0 and draw(st.booleans()):
        one, other = draw(conditions(kinds, depth - 1)), draw(conditions(kinds, depth - 1))
        both = draw(st.booleans())

        def of(row: Row) -> bool | None:
            mine = one.of(row)
            if mine is (not both):
                return mine
            theirs = other.of(row)
            if theirs is (not both):
                return theirs
            return None if mine is None or theirs is None else both

        return Condition(one.expression & other.expression if both else one.expression | other.expression, of)
    value = draw(wholes(kinds, max(depth, 0)))
    limit = draw(edges(value.kind))

    def above(row: Row) -> bool | None:
        number = value.of(row)
        return None if number is None else number > limit

    return Condition(value.expression > limit, above)


def expected(table: pa.Table, value: Whole, keep: Condition) -> list[int | None] | None:
    """The values of the rows that are kept; None if one does not fit."""
    try:
        return [value.of(row) for row in table.to_pylist() if keep.of(row)]
    except DoesNotFitError:
        return None
