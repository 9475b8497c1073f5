"""What decoding gives: rows, and what was wrong with the values that gave none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.errors import PlanError, refuse_names, shown


@dataclass(frozen=True)
class Fault:
    """A value that cannot be decoded.

    Attributes:
        value: Its index among the values.
        rule: The rule that it breaks, for counts.
        problem: What is wrong, for people.
        column: The column at fault, if it is one.
    """

    value: int
    rule: str
    problem: str
    column: str | None = None


@dataclass(frozen=True)
class Decoded:
    """The rows of some values.

    Attributes:
        table: The rows, in the order of the values.
        rows: How many of them each value gave; 0 for one with a fault.
        faults: What was wrong, in the order of the values.
    """

    table: pa.Table
    rows: npt.NDArray[np.int64]
    faults: Sequence[Fault] = ()


def one_by_one(
    values: Sequence[bytes],
    schema: pa.Schema,
    together: Callable[[Sequence[bytes]], pa.Table],
    fault: Callable[[bytes, Exception], tuple[str, str, str | None]],
) -> Decoded:
    """Decode values together; where that fails, halve them until those are found that are at fault.

    Args:
        values: The values.
        schema: The columns of their rows.
        together: Decodes values, each one row, or raises any error.
        fault: From a value and its error to the rule, the problem and the column.
    """
    tables, faults, rows = [schema.empty_table()], [], np.ones(len(values), np.int64)
    left = [(0, len(values))] if values else []
    while left:
        first, last = left.pop()
        try:
            tables.append(together(values[first:last]))
        except Exception as error:  # noqa: BLE001  (of bytes from outside: of any kind)
            if last - first == 1:
                faults.append(Fault(first, *fault(values[first], error)))
                rows[first] = 0
            else:
                middle = (first + last) // 2
                left += [(middle, last), (first, middle)]
    return Decoded(pa.concat_tables(tables), rows, faults)


def arrow_schema(given: object, value: str) -> pa.Schema:
    """A pyarrow schema that a user gave.

    Raises:
        PlanError: It is none, or it has no columns.
        ColumnError: Two columns have one name, or one has none.
    """
    if not isinstance(given, pa.Schema) or not len(given):
        raise PlanError(
            f'A topic with value="{value}" needs a pyarrow schema of its columns, and has {shown(given)}.',
            remedy='Say schema=pa.schema([("at", pa.timestamp("us", "UTC")), ("price", pa.int64())]), for instance.',
        )
    refuse_names(given.names)
    return given.remove_metadata()
