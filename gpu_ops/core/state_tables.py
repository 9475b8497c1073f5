"""Declarations of the tables of a state, and the check of tables that are read back.

A checkpoint is a file, and a file may hold anything. Kernels do not check their arguments: an index out of range reads
foreign memory, and a wrong order makes a loop run forever. So no table reaches a kernel before `check` has compared it
with the declaration of its operator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, integers, nulls
from gpu_ops.core.polars_frames import to_frame
from gpu_ops.errors import SourceError

Tables = Mapping[str, pa.Table]
Mask = npt.NDArray[np.bool_]

MANY = (1 << 62) - 1
"""More than any counter of a state, and any place on an axis."""

OLDER = "Restore an older one: follow(…, keep=3) keeps those before it as PATH.1 and PATH.2."

_OTHER_VERSION = "If an older version of gpu_ops wrote it, run the query over its input again (CHANGELOG.md). "


@dataclass(frozen=True)
class Field:
    """A column of a table of a state.

    Attributes:
        type: Its Arrow type.
        nullable: Whether a value may be null.
        least: The least number, or time in ticks; None for no limit.
        most: The greatest number.
        besides: Allowed numbers out of that range.
        words: The allowed texts; None for any.
        above: A column whose value in each row is less than this one's.
        from_: A column whose value in each row is at most this one's.
        ascends: Whether each value is greater than the previous one.
        optional: Whether the column may be missing.
    """

    type: pa.DataType
    nullable: bool = False
    least: int | None = None
    most: int | None = None
    besides: tuple[int, ...] = ()
    words: tuple[str, ...] | None = None
    above: str | None = None
    from_: str | None = None
    ascends: bool = False
    optional: bool = False


@dataclass(frozen=True)
class RowRule:
    """What holds for each row of a table beside what its columns say by themselves.

    Attributes:
        column: The column that an error names.
        says: The end of the error's sentence about a value.
        holds: From the table to the rows for which it holds.
    """

    column: str
    says: str
    holds: Callable[[pa.Table], Mask]


@dataclass(frozen=True)
class StateTable:
    """A table of a state.

    Attributes:
        name: Its name.
        columns: Its columns by name, no others.
        rows: The number of rows; None for any.
        required: Whether the table must exist.
        unique: Columns whose values no two rows share.
        rules: Other rules.
        doubts: Rules for files that are not trusted: sound tables may break them, but damage is the likelier cause.
    """

    name: str
    columns: Mapping[str, Field]
    rows: int | None = None
    required: bool = False
    unique: tuple[str, ...] = ()
    rules: tuple[RowRule, ...] = field(default=())
    doubts: tuple[RowRule, ...] = field(default=())


def check(
    of: str, tables: Tables, declared: Callable[[Tables], Iterator[StateTable]], *, trusted: bool = False
) -> None:
    """Check tables against their declarations.

    Args:
        of: The owner of the tables, as the beginning of an error: "The checkpoint c is damaged: node 2".
        tables: The tables.
        declared: From the tables to their declarations, one by one: a table is checked before the next declaration is
            made. So a declaration may depend on an earlier table, for instance on the number of groups.
        trusted: Whether doubts are left out.

    Raises:
        SourceError: A table differs. The error names the table, and if possible the column, the row and the rule.

    Examples:
        >>> def counts(tables: Tables) -> Iterator[StateTable]:
        ...     yield StateTable("counts", {"n": Field(pa.int64(), least=0)})
        >>> check("The state", {"counts": pa.table({"n": [3, -5]})}, counts)
        Traceback (most recent call last):
        gpu_ops.errors.SourceError: The state, table 'counts': -5 is not 0 or more. [column 'n', row 1] Restore an ...
    """
    known: dict[str, None] = {}
    for each in declared(tables):
        known[each.name] = None
        if each.name in tables:
            rules = each.rules if trusted else each.rules + each.doubts
            _Check(f"{of}, table {each.name!r}", each, tables[each.name], rules)
        elif each.required:
            raise SourceError(f"{of}, table {each.name!r}: it is missing.", remedy=OLDER)
    strange = next((name for name in tables if name not in known), None)
    if strange is not None:
        raise SourceError(
            f"{of}, table {strange!r}: there is no such table in its state.", remedy=_OTHER_VERSION + OLDER
        )


class _Check:
    """The check of one table against its declaration."""

    def __init__(self, where: str, declared: StateTable, table: pa.Table, rules: Sequence[RowRule]) -> None:
        self._where, self._declared, self._table = where, declared, table
        self._check_columns()
        self._arrays = {name: in_one(table[name]) for name in table.column_names}
        for name in table.column_names:
            self._check_column(name, declared.columns[name])
        for name in table.column_names:
            self._compare(name, declared.columns[name])
        if declared.unique:
            self._check_unique(declared.unique)
        for rule in rules:
            self._refuse(rule.column, ~rule.holds(table), rule.says)

    def _error(self, problem: str, column: str | None = None, row: int | None = None) -> SourceError:
        return SourceError(f"{self._where}: {problem}.", column=column, row=row, remedy=OLDER)

    def _refuse(self, column: str, wrong: Mask, says: str) -> None:
        if wrong.any():
            row = int(wrong.argmax())
            raise self._error(f"{self._shown(column, row)} {says}", column, row)

    def _shown(self, column: str, row: int) -> str:
        array = self._arrays[column]
        if array.is_null()[row].as_py():
            return "null"
        if _is_number(array.type):
            return f"{int(integers(array)[row])}"
        return repr(array[row].as_py())

    def _check_columns(self) -> None:
        names, columns = self._table.column_names, self._declared.columns
        for name in names:
            if name not in columns or names.count(name) > 1:
                raise self._error("there is a column too many", name)
        for name, each in columns.items():
            if name not in names and not each.optional:
                raise self._error("a column is missing", name)
            if name in names and self._table.schema.field(name).type != each.type:
                found = self._table.schema.field(name).type
                raise self._error(f"a column has the type {found}, and not {each.type}", name)
        rows = self._declared.rows
        if rows is not None and self._table.num_rows != rows:
            raise self._error(f"it has {self._table.num_rows} rows, and not {rows}")

    def _check_column(self, name: str, each: Field) -> None:
        array = self._arrays[name]
        if not each.nullable and array.null_count:
            self._refuse(name, nulls(array), "is not allowed")
        if each.words is not None:
            wrong = np.array([word not in each.words for word in array.to_pylist()], np.bool_)
            self._refuse(name, wrong, f"is not one of {', '.join(each.words)}")
        if each.least is None and each.most is None and not each.ascends:
            return
        values, there = self._numbers(name)
        if each.least is not None and each.most is not None:
            inside = (values >= each.least) & (values <= each.most)
            says = f"is not between {each.least} and {each.most}"
        elif each.least is not None:
            inside, says = values >= each.least, f"is not {each.least} or more"
        else:
            inside = np.ones(len(values), np.bool_) if each.most is None else values <= each.most
            says = f"is not {each.most} or less"
        for one in each.besides:
            inside |= values == one
        self._refuse(name, ~inside & there, says)
        if each.ascends:
            self._refuse(name, np.append(False, values[1:] <= values[:-1]), "is not above the one before")

    def _compare(self, name: str, each: Field) -> None:
        for other, strictly in ((each.above, True), (each.from_, False)):
            if other is None:
                continue
            (values, there), (less, too) = self._numbers(name), self._numbers(other)
            wrong = values <= less if strictly else values < less
            self._refuse(name, wrong & there & too, f"is not {'above' if strictly else 'at or after'} {other!r}")

    def _numbers(self, name: str) -> tuple[npt.NDArray[np.int64], Mask]:
        """(values, which are not null)."""
        array = self._arrays[name]
        there = ~nulls(array) if array.null_count else np.ones(len(array), np.bool_)
        return integers(array).astype(np.int64, copy=False), there

    def _check_unique(self, names: tuple[str, ...]) -> None:
        if not self._table.num_rows:
            return
        twice = to_frame(self._table.select(list(names))).is_duplicated().to_numpy()
        if twice.any():
            row = int(np.flatnonzero(twice)[-1])
            raise self._error("another row has the same values, and there is one of each", names[0], row)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_temporal(kind))


def counter(most: int = MANY) -> Field:
    """A column of whole numbers from 0 on."""
    return Field(pa.int64(), least=0, most=most)
