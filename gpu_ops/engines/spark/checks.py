"""Rules that Spark checks row by row, and the errors that come back from it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import narwhals as nw
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)

from gpu_ops import errors
from gpu_ops.core.time import LIFETIME
from gpu_ops.engines.spark.sending import worker_error
from gpu_ops.engines.spark.types import column
from gpu_ops.errors import GpuOpsError, IntegerOverflowError
from gpu_ops.operators.checked import REMEDY, problem
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.integers import DecimalTests, Guard, by_type


def checked(frame: DataFrame, holds: Column, message: Column, keep: Column | None = None) -> DataFrame:
    """The rows of a frame, or an error where a condition does not hold (null counts as no).

    Spark may move later filters below this one, or drop an expression that nobody reads. It does neither across a
    nondeterministic filter, and the partition's number makes this one nondeterministic. It is one expression, so that
    no part of it moves alone. (Spark 4.1: PushPredicateThroughNonJoin, ColumnPruning.)
    """
    anchor = F.spark_partition_id() >= 0
    return frame.where(
        F.when(holds, anchor if keep is None else keep & anchor).otherwise(F.raise_error(message).cast("boolean"))
    )


def fitting(frame: DataFrame, guards: Iterable[Guard]) -> DataFrame:
    """The events of a frame, or an error where a whole number of an expression does not fit its type.

    The check is a filter of its own, whatever ``spark.sql.ansi.enabled`` says: no expression after it wraps or fails.
    Times and durations have no check: Spark's arithmetic on them is exact or an error in either case.

    Args:
        frame: ``start``, ``end`` and the columns that the expressions read.
        guards: The checks of the expressions.

    Raises:
        NotImplementedError: Spark's SQL has no check for one of them.
    """
    for guard in guards:
        test = guard.wrong(by_type, DecimalTests())
        lazy: Any = nw.from_native(frame)
        made: DataFrame = lazy.with_columns(test.fill_null(False).alias(_WRONG)).to_native()
        read = column_names(guard.expression, frame.columns)
        payload = [name for name in read if name not in LIFETIME]
        values = [shown(guard.called(name), column(name)) for name in (*LIFETIME, *payload)]
        listed = reduce(lambda one, other: F.concat(one, F.lit(", "), other), values)
        only = payload[0] if len(payload) == 1 else None
        message = error_text("IntegerOverflowError", problem(guard), only, listed, REMEDY)
        frame = checked(made, ~F.col(_WRONG), message).drop(_WRONG)
    return frame


_WRONG = "__gpu_ops_wrong"


def error_text(kind: str, problem: str, column: str | None, values: Column, remedy: str) -> Column:
    """The text of an error of gpu_ops with a row's values; `unwrapped` reads it."""
    place = "" if column is None else f"column '{column}', "
    before = F.lit(f"gpu_ops.errors.{kind}: {problem} [{place}")
    return F.concat(before, values, F.lit(f"] {remedy}"))


def shown(name: str, value: Column) -> Column:
    """``name=value`` as text."""
    return F.concat(F.lit(f"{name}="), F.coalesce(value.cast("string"), F.lit("null")))


_OVERFLOW = re.compile(
    r"\[(?:\w+\.)?(?:ARITHMETIC_OVERFLOW|CAST_OVERFLOW|INTERVAL_ARITHMETIC_OVERFLOW|DATETIME_OVERFLOW)[^\n]*"
    "|long overflow"
)
"""Spark's errors for numbers that do not fit."""

_PLAN = "=== Streaming Query ==="

_MESSAGE = re.compile(r"gpu_ops\.errors\.(\w+): (.*?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
_PARTS = re.compile(r"(.*?) \[(?:column '(.*?)')?(?:(?:, )?row (\d+))?(?:(?:, )?(.*?))?\](?: (.*))?")


def unwrapped(error: BaseException) -> GpuOpsError | None:
    """The error of gpu_ops inside one of Spark's, raised by a worker or by a check; None if there is none.

    Examples:
        >>> text = "gpu_ops.errors.TimeError: The end is null. [column 'e'] Fill it. SQLSTATE: P0001"
        >>> error = unwrapped(RuntimeError(text))
        >>> error, error.column, error.remedy
        (TimeError("The end is null. [column 'e'] Fill it."), 'e', 'Fill it.')
    """
    # What ends a streaming query is followed by its plan, which has the texts of all errors that rows may raise.
    said = str(error).partition(_PLAN)[0]
    found = _MESSAGE.search(said)
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, GpuOpsError)):
        own = _OVERFLOW.search(said)
        return worker_error(said) if own is None else IntegerOverflowError(f"In Spark: {own[0]}", remedy=REMEDY)
    parts = _PARTS.fullmatch(found[2])
    if parts is None:
        return kind(found[2])
    text, name, row, values, remedy = parts.groups()
    return kind(text, column=name, row=None if row is None else int(row), values=values or None, remedy=remedy)


def first_line(error: object) -> str:
    """The first line of what an error says; its class if it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def our_errors() -> Iterator[None]:
    """Raise the error of gpu_ops that ended a job, in place of Spark's error around it, which becomes its cause.

    `Stream.write` and `Stream.to_reader` do so by themselves; this is for actions on a DataFrame of ours.

    Examples:
        >>> import gpu_ops as g
        >>> rides = spark.createDataFrame([(0, 60, "A"), (60, 60, "B")], "pickup long, dropoff long, zone string")
        >>> frame = g.events(rides, start="pickup", end="dropoff", unit="s").collect()
        >>> with our_errors():
        ...     frame.count()
        Traceback (most recent call last):
        gpu_ops.errors.TimeError: The end is the start, and a lifetime is never empty (zero_length). ...
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        ours = unwrapped(error)
        if ours is None:
            raise
        raise ours from error
