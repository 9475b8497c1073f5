"""Conditions of the variables of a row pattern: the columns that they read, and what is left of them for each way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import PLACE
from gpu_ops.errors import PlanError
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.look_back import Earlier, LookBack
from gpu_ops.plan.nodes import Node, extended
from gpu_ops.plan.row_matches import NotedProgram, NotedRows, NoteKind, Register, VariableRule
from gpu_ops.plan.row_programs import Op, RowProgram, RowSlots, condition, program


@dataclass
class RowConditions:
    """Columns that are computed of rows before they are matched.

    Attributes:
        schema: The columns of the rows.
        keys: Columns for partitions, and those that rows behind are shown.
        earlier: Columns of earlier rows of the partition.
        added: Columns that sums add up, which may read those.
        behind: Columns that may read all of them.
    """

    schema: pa.Schema
    keys: dict[str, nw.Expr] = field(default_factory=dict)
    earlier: list[Earlier] = field(default_factory=list)
    added: dict[str, nw.Expr] = field(default_factory=dict)
    behind: dict[str, nw.Expr] = field(default_factory=dict)
    _previous: dict[tuple[str, int, str], str] = field(default_factory=dict)
    _notes: dict[str, NotedRows] = field(default_factory=dict)
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)
    _types: dict[str, pa.DataType] = field(default_factory=dict)

    def key(self, value: nw.Expr) -> str:
        """A column of the row alone."""
        bare = bare_column(value)
        if bare is not None and bare in self.schema.names:
            return bare
        name = f"@key {len(self.keys)}"
        self.keys[name] = value
        return name

    def previous(self, value: nw.Expr, dtype: pa.DataType, back: int, name: str = "") -> nw.Expr:
        """What the row so many before in the partition has; the column may have a name of its own."""
        key = repr(value), back, name
        if key in self._previous:
            return nw.col(self._previous[key])
        name = self._previous[key] = name or f"@before {len(self.earlier)}"
        self.earlier.append(Earlier(name, self.key(value), back))
        self._types[name] = dtype
        return nw.col(name)

    def noted(
        self, variable: str, kind: NoteKind, column: str, dtype: pa.DataType, index: int = 0, name: str = ""
    ) -> nw.Expr:
        """A value of an earlier row of a variable; the sum of a column over its rows, or their number."""
        slot = f"{kind} {variable} {index}{f' {column}' if kind == 'sum' else ''}"
        name = name or f"@{slot} {column}"
        self._notes[slot] = NotedRows(variable, kind, index)
        self._places[name], self._types[name] = (slot, column), dtype
        return nw.col(name)

    def total(self, variable: str, value: nw.Expr, dtype: pa.DataType, name: str = "") -> nw.Expr:
        """The sum of numbers over the rows of a variable, int64 or float64; null where it has none that is not null."""
        added = f"@added {len(self.added)}"
        self.added[added] = value.cast(nw.Float64 if dtype == pa.float64() else nw.Int64)
        return self.noted(variable, "sum", added, dtype, name=name)

    def number(self, variable: str, name: str = "") -> nw.Expr:
        """How many rows a variable has."""
        return self.noted(variable, "count", PLACE, pa.int64(), name=name)

    def register(self, number: int, register: Register) -> nw.Expr:
        """What a register is before the row that comes."""
        column = PLACE
        if register.type != pa.int64():
            column = f"@added {len(self.added)}"  # what is there is never read, but has the type
            self.added[column] = nw.col(PLACE).cast(nw.Float64)
        return self.noted("", "register", column, register.type, number, register.name)

    def rule(self, holds: nw.Expr) -> VariableRule:
        """The condition of a variable.

        Raises:
            PlanError: It combines rows by a function that programs do not have.
        """
        parts = condition(holds, self._slots)
        alone = None if parts.alone is None else self.add(parts.alone)
        joined = _joined(parts.equal, parts.rest, repr(holds))
        return VariableRule(alone, None if joined is None else self._noted(joined))

    def change(self, value: nw.Expr, register: Register) -> NotedProgram:
        """What a row changes a register to.

        Raises:
            PlanError: As `rule`; or it is no number, or a float where the register is a whole number.
        """
        value = value.cast(nw.Float64) if register.type == pa.float64() else value
        made = program(value, self._slots)
        if made.kind != ("float" if register.type == pa.float64() else "whole"):
            raise PlanError(
                f"The register {register.name!r} begins with {register.begins!r}, and {value!r} is not of that type.",
                remedy="Begin with 0.0 for floats; a register is a number.",
            )
        return self._noted(made)

    def _noted(self, made: RowProgram) -> NotedProgram:
        cells = tuple(self.add(cell.value) for cell in made.cells)
        return NotedProgram(made, cells, tuple(self._notes.get(cell.slot) for cell in made.cells))

    @property
    def _slots(self) -> RowSlots:
        own = {each.name: each.type for each in self.schema}
        own |= {each.name: self._types[each.name] for each in self.earlier}
        places = self._places | {name: ("", name) for name in own}
        totals = frozenset(slot for slot, note in self._notes.items() if note.kind in {"sum", "count", "register"})
        return RowSlots(pa.schema(list((self._types | own).items())), places, "", totals)

    def add(self, value: nw.Expr) -> str:
        """A column that may read all others."""
        name = f"@part {len(self.behind)}"
        self.behind[name] = value
        return name

    def over(self, rows: Node, partition: tuple[str, ...]) -> Node:
        """Rows with the columns."""
        rows = extended(rows, [value.alias(name) for name, value in self.keys.items()])
        if self.earlier:
            rows = LookBack(rows, tuple(self.earlier), within=partition)
        rows = extended(rows, [value.alias(name) for name, value in self.added.items()])
        return extended(rows, [value.alias(name) for name, value in self.behind.items()])


def _joined(equal: Sequence[tuple[Any, Any]], rest: RowProgram | None, said: str) -> RowProgram | None:
    """One program of equalities of cells and of a program."""
    code, cells = ([], []) if rest is None else ([*rest.code], [*rest.cells])
    for mine, other in equal:
        joins = [(Op.AND, 0)] if code else []
        code += [(Op.CELL, len(cells)), (Op.CELL, len(cells) + 1), (Op.EQUAL, 0), *joins]
        cells += [mine, other]
    whole = tuple((int(op), argument) for op, argument in code)
    return RowProgram(whole, () if rest is None else rest.constants, tuple(cells), "whole", said) if code else None
