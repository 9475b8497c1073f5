"""Conditions over several rows at once, as `b.v > a.v`, in a form that a kernel evaluates row by row.

A condition is a Narwhals expression whose columns belong to named slots: the row that comes, and rows that came
before. Whatever reads one slot alone is a `Cell`: it is computed for all rows of that slot at once, as any other
expression. What combines slots becomes a `RowProgram`: instructions of a machine with a stack, over numbers and truth
values with null as in SQL. Texts take part as ranks among all texts of all cells, so they can be compared.

`condition` splits a condition into conjuncts: those about the row that comes alone, equalities of one of its cells with
a cell of another slot, and a program for the rest.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, auto
from typing import Any, Literal

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa

from gpu_ops.core.polars_frames import plain_type, to_frame
from gpu_ops.errors import PlanError
from gpu_ops.plan.expression_text import text_of
from gpu_ops.plan.expressions import output_schema, values
from gpu_ops.plan.terms import INT64, Term, is_float, renamed

Kind = Literal["whole", "float", "text"]
"""How a value is encoded: as an integer, as the bits of a float64, or as its rank among texts."""


class Op(IntEnum):
    """The instructions. Each takes its operands from the stack, the last one on top, and puts its result there."""

    CELL = 0  # argument: number of the cell
    CONSTANT = auto()  # argument: number of the constant
    NULL = auto()
    FLOAT = auto()  # a whole number as a float
    EQUAL = auto()  # of whole numbers; argument: 1 negates
    LESS = auto()  # argument: 1 for "or equal"
    EQUAL_FLOAT = auto()  # NaN equals itself and is the greatest number
    LESS_FLOAT = auto()
    AND = auto()
    OR = auto()
    NOT = auto()
    IS_NULL = auto()
    CHOOSE = auto()  # condition, value, otherwise
    FIRST = auto()  # the second operand, where the first one is null
    ADD = auto()  # of whole numbers; argument: number of the first of two constants, the least and the greatest result
    SUBTRACT = auto()
    MULTIPLY = auto()
    ADD_FLOAT = auto()
    SUBTRACT_FLOAT = auto()
    MULTIPLY_FLOAT = auto()
    DIVIDE_FLOAT = auto()


@dataclass(frozen=True, eq=False)
class Cell:
    """A value of one row.

    Attributes:
        slot: The slot of the row.
        value: What computes it from the row's columns.
        type: The type of the value.
        absent: What it is where the slot has no row: what it is for a row of nulls.
    """

    slot: str
    value: nw.Expr
    type: pa.DataType
    absent: Any

    @property
    def kind(self) -> Kind:
        """How it is encoded."""
        if pa.types.is_string(self.type) or pa.types.is_large_string(self.type):
            return "text"
        return "float" if pa.types.is_floating(self.type) else "whole"


@dataclass(frozen=True, eq=False)
class RowProgram:
    """What a kernel evaluates for some rows, one of each slot.

    Attributes:
        code: Instructions with their arguments.
        constants: Whole numbers, and the bits of floats.
        cells: What it reads.
        kind: How its result is encoded; truth values are 0 and 1.
        said: How errors show it.
    """

    code: tuple[tuple[int, int], ...]
    constants: tuple[int, ...]
    cells: tuple[Cell, ...]
    kind: Kind
    said: str

    @property
    def depth(self) -> int:
        """How many values are on its stack at most: no more than it has instructions."""
        return len(self.code)


@dataclass(frozen=True, eq=False)
class RowCondition:
    """A condition in parts, all of which hold where it holds.

    Attributes:
        alone: What is about the row that comes alone; None for nothing.
        equal: Cells of that row that equal cells of other slots; null equals nothing.
        rest: What else is to hold; None for nothing.
    """

    alone: nw.Expr | None
    equal: tuple[tuple[Cell, Cell], ...]
    rest: RowProgram | None


@dataclass(frozen=True)
class RowSlots:
    """Which columns belong to which slot.

    Attributes:
        schema: The columns of all slots, as expressions name them.
        places: For each column its slot, and what it is called among the columns of the slot's rows.
        current: The slot of the row that comes.
        totals: Slots of values of several rows together: a column of theirs is a cell, what is computed of it is none.
    """

    schema: pa.Schema
    places: Mapping[str, tuple[str, str]]
    current: str = ""
    totals: frozenset[str] = frozenset()


def condition(expression: nw.Expr, slots: RowSlots, *, most: int | None = None) -> RowCondition:
    """A condition in parts.

    Args:
        expression: A condition on one row of each slot.
        slots: The columns that it may read.
        most: How many equalities are parts of their own at most; None for all. The others are in the rest.

    Raises:
        PlanError: It combines slots by a function that programs do not have.

    Examples:
        >>> schema = pa.schema([("k", pa.string()), ("v", pa.int64()), ("a.k", pa.string()), ("a.v", pa.int64())])
        >>> places = {"k": ("", "k"), "v": ("", "v"), "a.k": ("a", "k"), "a.v": ("a", "v")}
        >>> larger = (nw.col("k") == nw.col("a.k")) & (nw.col("v") > nw.col("a.v")) & (nw.col("v") > 3)
        >>> made = condition(larger, RowSlots(schema, places))
        >>> [(mine.slot, other.slot) for mine, other in made.equal], made.alone is None, len(made.rest.code)
        ([('', 'a')], False, 3)
    """
    writer = _ProgramWriter(slots)
    (term,) = values([expression], slots.schema).values()
    alone, equal, rest = list[nw.Expr](), list[tuple[Cell, Cell]](), list[Term]()
    for conjunct in _conjuncts(term):
        read = writer.slots_of(conjunct)
        if read <= {slots.current}:
            alone.append(writer.own(conjunct))
        elif (most is None or len(equal) < most) and (pair := writer.equality(conjunct)) is not None:
            equal.append(pair)
        else:
            rest.append(conjunct)
    made = None if not alone else nw.all_horizontal(*alone, ignore_nulls=False)
    return RowCondition(made, tuple(equal), _program(rest, slots, repr(expression)) if rest else None)


def program(expression: nw.Expr, slots: RowSlots) -> RowProgram:
    """What computes a value from one row of each slot.

    Raises:
        PlanError: As `condition`.
    """
    return _program(list(values([expression], slots.schema).values()), slots, repr(expression))


@dataclass(frozen=True, eq=False)
class ProgramTables:
    """Several programs as the arrays that a kernel takes.

    Attributes:
        code: int64[2 n]: the instructions and arguments of all programs.
        bounds: int64[programs + 1]: where each begins in ``code``.
        constants: int64: the constants of all programs.
        cells: The cells of all programs, by the numbers that their instructions have.
        depth: How many values are on a stack at most.
    """

    code: Any
    bounds: Any
    constants: Any
    cells: tuple[Cell, ...]
    depth: int


def tables(programs: Sequence[RowProgram]) -> ProgramTables:
    """Programs as arrays."""
    code, bounds, constants, cells = list[int](), [0], list[int](), list[Cell]()
    for each in programs:
        for op, argument in each.code:
            shift = {Op.CELL: len(cells), **dict.fromkeys(_WITH_CONSTANTS, len(constants))}.get(Op(op), 0)
            code += [op, argument + shift]
        constants += each.constants
        cells += each.cells
        bounds.append(len(code))
    depth = max((each.depth for each in programs), default=0)
    whole = [np.array(numbers, np.int64) for numbers in (code, bounds, constants)]
    return ProgramTables(whole[0], whole[1], whole[2], tuple(cells), depth)


_WITH_CONSTANTS = (Op.CONSTANT, Op.ADD, Op.SUBTRACT, Op.MULTIPLY)


def _program(conjuncts: Sequence[Term], slots: RowSlots, said: str) -> RowProgram:
    writer = _ProgramWriter(slots)
    writer.write(conjuncts[0])
    for each in conjuncts[1:]:
        writer.write(each)
        writer.code.append((Op.AND, 0))
    kind = writer.kind(conjuncts[0])
    return RowProgram(tuple(writer.code), tuple(writer.constants), tuple(writer.cells), kind, said)


def _conjuncts(term: Term) -> Iterator[Term]:
    if term.name == "alias":
        yield from _conjuncts(term.terms[0])
    elif term.name == "__and__" or (term.name == "all_horizontal" and not term.options["ignore_nulls"]):
        for each in term.terms:
            yield from _conjuncts(each)
    else:
        yield term


def _bits(number: float) -> int:
    return int(struct.unpack("<q", struct.pack("<d", number))[0])


class _ProgramWriter:
    """Writes the instructions of terms."""

    def __init__(self, slots: RowSlots) -> None:
        self._slots = slots
        self.code: list[tuple[int, int]] = []
        self.constants: list[int] = []
        self.cells: list[Cell] = []
        self._numbers: dict[tuple[str, str], int] = {}

    def slots_of(self, term: Term) -> set[str]:
        """The slots that a term reads."""
        return {self._slots.places[each.options["name"]][0] for each in term.walk() if each.name == "col"}

    def own(self, term: Term) -> nw.Expr:
        """A term of one slot, over the columns of its rows."""
        return renamed(term.value, {name: own for name, (_, own) in self._slots.places.items()})

    def cell(self, term: Term) -> Cell:
        """A term of one slot as a cell."""
        (slot,) = self.slots_of(term)
        names = {each.options["name"]: None for each in term.walk() if each.name == "col"}
        fields = [self._slots.schema.field(name).with_name(self._slots.places[name][1]) for name in names]
        schema, value = pa.schema(fields), self.own(term).alias("value")
        dtype = output_schema(schema, [value], where="a condition over rows", only_columns=True).field("value").type
        nulls = to_frame(pa.table({each.name: pa.nulls(1, plain_type(each.type)) for each in schema}))
        absent = nw.from_native(nulls).select(value)["value"].to_list()[0]
        return Cell(slot, self.own(term), dtype, absent)

    def equality(self, term: Term) -> tuple[Cell, Cell] | None:
        """A term that says that a cell of the row that comes equals one of another slot; None if it does not."""
        if term.name != "__eq__":
            return None
        sides = [(self.slots_of(each), each) for each in term.terms]
        if sides[0][0] != {self._slots.current}:
            sides.reverse()
        (mine, one), (others, other) = sides
        comparable = one.dtype == other.dtype or all(_is_whole(each.dtype) for each in (one, other))
        if mine != {self._slots.current} or len(others) != 1 or self._slots.current in others or not comparable:
            return None
        return None if is_float(one.dtype) else (self.cell(one), self.cell(other))

    def kind(self, term: Term) -> Kind:
        """How the values of a term are encoded."""
        if is_float(term.dtype):
            return "float"
        if term.dtype == nw.String:
            return "text"
        if term.dtype == nw.UInt64 or term.holds is None:
            raise self._refused(term)
        return "whole"

    def write(self, term: Term) -> None:
        """Write what computes a term."""
        read = self.slots_of(term)
        if term.name == "alias":
            self.write(term.terms[0])
        elif not read:
            self._write_constant(term)
        elif len(read) == 1 and (term.name == "col" or not read <= self._slots.totals):
            self._write_cell(term)
        elif term.name in _WRITTEN:
            _WRITTEN[term.name](self, term)
        else:
            raise self._refused(term)

    def _write_constant(self, term: Term) -> None:
        (value,) = nw.from_native(pl.DataFrame({"": [0]})).select(value=term.value)["value"].to_list()
        if value is None:
            self.code.append((Op.NULL, 0))
        elif isinstance(value, bool | int | float):
            self.code.append((Op.CONSTANT, self._constants(_bits(value) if isinstance(value, float) else int(value))))
        elif isinstance(value, str):
            # It has a rank among the texts of the cells: it is the same for all rows that come.
            current = self._slots.current
            self._append_cell((current, repr(term.value)), Cell(current, term.value, pa.string(), value))
        else:
            raise self._refused(term)

    def _constants(self, *numbers: int) -> int:
        self.constants += numbers
        return len(self.constants) - len(numbers)

    def _write_cell(self, term: Term) -> None:
        self.kind(term)
        (slot,) = self.slots_of(term)
        key = slot, repr(term.value)
        self._append_cell(key, None if key in self._numbers else self.cell(term))

    def _append_cell(self, key: tuple[str, str], cell: Cell | None) -> None:
        if key not in self._numbers and cell is not None:
            self._numbers[key] = len(self.cells)
            self.cells.append(cell)
        self.code.append((Op.CELL, self._numbers[key]))

    def _as_floats(self, terms: Iterable[Term]) -> None:
        for each in terms:
            self.write(each)
            if self.kind(each) == "whole":
                self.code.append((Op.FLOAT, 0))

    def compare(self, term: Term) -> None:
        """Write a comparison."""
        one, other = term.terms
        kinds = {self.kind(each) for each in term.terms if each.name != "lit" or each.options["value"] is not None}
        if "text" in kinds and len(kinds) > 1:
            raise self._refused(term)
        if not (one.dtype == other.dtype or all(_is_number(each.dtype) for each in term.terms)):
            raise self._refused(term)
        first, op, argument, negated = _COMPARISONS[term.name]
        operands = (one, other) if first == 0 else (other, one)
        if "float" in kinds:
            self._as_floats(operands)
            op = Op.EQUAL_FLOAT if op == Op.EQUAL else Op.LESS_FLOAT
        else:
            for each in operands:
                self.write(each)
        self.code.append((op, argument))
        if negated:
            self.code.append((Op.NOT, 0))

    def is_in(self, term: Term) -> None:
        """Write `is_in` some constants: it is null where the value is."""
        (value,), others = term.terms, term.options["other"]
        if not others:
            raise self._refused(term)
        for at, each in enumerate(others):
            (other,) = values([nw.lit(each)], self._slots.schema).values()
            self.compare(replace(term, name="__eq__", terms=(value, other)))
            if at:
                self.code.append((Op.OR, 0))

    def between(self, term: Term) -> None:
        """Write `is_between`."""
        value, low, high = term.terms
        above, below = {
            "both": ("__ge__", "__le__"),
            "left": ("__ge__", "__lt__"),
            "right": ("__gt__", "__le__"),
            "none": ("__gt__", "__lt__"),
        }[term.options["closed"]]
        self.compare(replace(term, name=above, terms=(value, low)))
        self.compare(replace(term, name=below, terms=(value, high)))
        self.code.append((Op.AND, 0))

    def calculate(self, term: Term) -> None:
        """Write a sum, a difference, a product or a quotient."""
        if any(each.scale is not None or not _is_number(each.dtype) for each in term.terms):
            raise self._refused(term)
        op = _CALCULATIONS[term.name]
        if term.dtype == nw.Float64:
            self._as_floats(term.terms)
            self.code.append((_OF_FLOATS[op], 0))
        elif term.holds is not None and term.dtype != nw.UInt64 and op in _OF_FLOATS and op != Op.DIVIDE_FLOAT:
            for each in term.terms:
                self.kind(each)
                self.write(each)
            low, high = term.holds.clipped(INT64)
            self.code.append((op, self._constants(low, high)))
        else:
            raise self._refused(term)

    def negate(self, term: Term) -> None:
        """Write a minus sign: a difference from 0."""
        (operand,) = term.terms
        zero = Term("lit", nw.lit(0.0 if is_float(term.dtype) else 0), (), term.dtype, {"value": 0})
        self.calculate(replace(term, name="__sub__", terms=(zero, operand)))

    def logic(self, term: Term) -> None:
        """Write `and` or `or`."""
        if term.options.get("ignore_nulls") or any(each.dtype != nw.Boolean for each in term.terms):
            raise self._refused(term)
        op = Op.AND if "and" in term.name or "all" in term.name else Op.OR
        first, *more = term.terms
        self.write(first)
        for each in more:
            self.write(each)
            self.code.append((op, 0))

    def invert(self, term: Term) -> None:
        """Write `not`."""
        if term.dtype != nw.Boolean:
            raise self._refused(term)
        self.write(term.terms[0])
        self.code.append((Op.NOT, 0))

    def is_null(self, term: Term) -> None:
        """Write a test for null."""
        self.write(term.terms[0])
        self.code.append((Op.IS_NULL, 0))

    def choose(self, term: Term) -> None:
        """Write `when … then … otherwise`."""
        condition, value, *otherwise = term.terms
        self.write(condition)
        for each in (value, *otherwise):
            self._write_as(each, term)
        if not otherwise:
            self.code.append((Op.NULL, 0))
        self.code.append((Op.CHOOSE, 0))

    def first(self, term: Term) -> None:
        """Write the first operand that is not null."""
        if term.options.get("strategy") or term.options.get("limit"):
            raise self._refused(term)
        first, *more = term.terms
        self._write_as(first, term)
        for each in more:
            self._write_as(each, term)
            self.code.append((Op.FIRST, 0))

    def fill_nan(self, term: Term) -> None:
        """Write a value that stands for NaN, which is greater than infinity."""
        (operand,), value = term.terms, term.options["value"]
        if value is None or not is_float(operand.dtype):
            raise self._refused(term)
        self.code.append((Op.CONSTANT, self._constants(_bits(float("inf")))))
        self.write(operand)
        self.code += [(Op.LESS_FLOAT, 0), (Op.CONSTANT, self._constants(_bits(float(value))))]
        self.write(operand)
        self.code.append((Op.CHOOSE, 0))

    def cast(self, term: Term) -> None:
        """Write a cast to a type that holds all values."""
        (operand,) = term.terms
        widens = operand.holds is not None and term.holds is not None and operand.holds.within(term.holds)
        if term.scale is not None or operand.scale is not None or not (widens or term.dtype == nw.Float64):
            raise self._refused(term)
        self._write_as(operand, term)

    def _write_as(self, term: Term, other: Term) -> None:
        self.write(term)
        if term.name == "lit" and term.options["value"] is None:
            return
        kinds = self.kind(term), self.kind(other)
        if kinds == ("whole", "float"):
            self.code.append((Op.FLOAT, 0))
        elif kinds[0] != kinds[1]:
            raise self._refused(other)

    def _refused(self, term: Term) -> PlanError:
        return PlanError(
            f"A condition over several events has {term.name!r} of {term.dtype}, in {text_of(term.value)}.",
            remedy="Compare values of two events, join comparisons by and, or, not, and add, subtract or multiply "
            "numbers; whatever is about one event alone may be anything.",
        )


def _is_whole(dtype: Any) -> bool:
    return bool(dtype.is_integer()) and dtype != nw.UInt64


def _is_number(dtype: Any) -> bool:
    return _is_whole(dtype) or dtype in {nw.Float64, nw.Float32}


_COMPARISONS: dict[str, tuple[int, Op, int, bool]] = {
    "__eq__": (0, Op.EQUAL, 0, False),
    "__ne__": (0, Op.EQUAL, 0, True),
    "__lt__": (0, Op.LESS, 0, False),
    "__le__": (0, Op.LESS, 1, False),
    "__gt__": (1, Op.LESS, 0, False),
    "__ge__": (1, Op.LESS, 1, False),
}
"""For each comparison the operand that is first, the instruction, its argument, and whether the result is negated."""

_CALCULATIONS = {
    "__add__": Op.ADD,
    "__sub__": Op.SUBTRACT,
    "__mul__": Op.MULTIPLY,
    "__truediv__": Op.DIVIDE_FLOAT,
}
_OF_FLOATS = {
    Op.ADD: Op.ADD_FLOAT,
    Op.SUBTRACT: Op.SUBTRACT_FLOAT,
    Op.MULTIPLY: Op.MULTIPLY_FLOAT,
    Op.DIVIDE_FLOAT: Op.DIVIDE_FLOAT,
}
_WRITTEN = {
    **dict.fromkeys(_COMPARISONS, _ProgramWriter.compare),
    **dict.fromkeys(_CALCULATIONS, _ProgramWriter.calculate),
    **dict.fromkeys(["__and__", "__or__", "all_horizontal", "any_horizontal"], _ProgramWriter.logic),
    "__invert__": _ProgramWriter.invert,
    "__neg__": _ProgramWriter.negate,
    "is_null": _ProgramWriter.is_null,
    "is_between": _ProgramWriter.between,
    "is_in": _ProgramWriter.is_in,
    "when_then": _ProgramWriter.choose,
    "coalesce": _ProgramWriter.first,
    "fill_null": _ProgramWriter.first,
    "fill_nan": _ProgramWriter.fill_nan,
    "cast": _ProgramWriter.cast,
}
