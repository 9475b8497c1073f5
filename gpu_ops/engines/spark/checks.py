"""Rules that Spark checks row by row, and the errors that come back from it."""

from __future__ import annotations

import re

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops import errors
from gpu_ops.errors import GpuOpsError


def checked(frame: DataFrame, holds: Column, message: Column, keep: Column | None = None) -> DataFrame:
    """The rows of a frame, or an error where a condition does not hold (null counts as no).

    Spark may move later filters below this one, or drop an expression that nobody reads; it does neither across a
    filter that is not deterministic, and the partition's number makes this one so. It is one expression, so that no
    part of it moves alone. (Spark 4.1: PushPredicateThroughNonJoin, ColumnPruning.)
    """
    anchor = F.spark_partition_id() >= 0
    return frame.where(
        F.when(holds, anchor if keep is None else keep & anchor).otherwise(F.raise_error(message).cast("boolean"))
    )


def error_text(kind: str, problem: str, column: str, values: Column, remedy: str) -> Column:
    """What an error of gpu_ops says, with a row's values; `unwrapped` reads it again."""
    before = F.lit(f"gpu_ops.errors.{kind}: {problem} [column '{column}', ")
    return F.concat(before, values, F.lit(f"] {remedy}"))


def shown(name: str, value: Column) -> Column:
    """``name=value`` as text."""
    return F.concat(F.lit(f"{name}="), F.coalesce(value.cast("string"), F.lit("null")))


_MESSAGE = re.compile(r"gpu_ops\.errors\.(\w+): (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_PARTS = re.compile(r"(.*?) \[(?:column '(.*?)')?(?:(?:, )?row (\d+))?(?:(?:, )?(.*?))?\](?: (.*))?")


def unwrapped(error: BaseException) -> GpuOpsError | None:
    """The error of gpu_ops inside one of Spark's, whether a worker raised it or a check; None when there is none.

    Examples:
        >>> text = "gpu_ops.errors.TimeError: The end is null. [column 'e'] Fill it. SQLSTATE: P0001"
        >>> error = unwrapped(RuntimeError(text))
        >>> error, error.column, error.remedy
        (TimeError("The end is null. [column 'e'] Fill it."), 'e', 'Fill it.')
    """
    found = _MESSAGE.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, GpuOpsError)):
        return None
    parts = _PARTS.fullmatch(found[2])
    if parts is None:
        return kind(found[2])
    problem, column, row, values, remedy = parts.groups()
    return kind(problem, column=column, row=None if row is None else int(row), values=values or None, remedy=remedy)
