"""What a query needs of the Spark session that it runs in."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from gpu_ops.core.time import LIFETIME
from gpu_ops.errors import ColumnError, PlanError, shown

_UTC = {"UTC", "ETC/UTC", "ZULU", "UCT", "GMT", "ETC/GMT", "GMT0", "Z", "UTC+0", "+00:00", "+0:00", "UTC+00:00"}
_ZONE = "spark.sql.session.timeZone"
_CASE = "spark.sql.caseSensitive"
_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_ANSI = "spark.sql.ansi.enabled"


_DATA_FRAMES = {
    "frame.DataFrame": 'Say .to_spark(), or .to_spark(index_col="id") to keep its index as a column.',
    "series.Series": "Say .to_frame().to_spark().",
    "rdd.RDD": "Say .toDF() with its columns.",
    "readwriter.DataFrameReader": "Load it: .load(path).",
}
"""How other objects of PySpark become a DataFrame."""

_MEMORY = "spark.gpu_ops.worker.memory"


USUAL_MEMORY = 512 << 20
"""How many bytes of events a task holds in memory where nobody says."""


def worker_memory(session: SparkSession) -> int | None:
    """How many bytes of events each task may hold in memory by the session's settings; None if they do not say.

    Raises:
        PlanError: The setting is no number of bytes.
    """
    said = session.conf.get(_MEMORY, None)
    found = None if said is None else _bytes(said)
    if said is not None and not found:
        raise PlanError(f"{_MEMORY} is {said!r}.", remedy="Say how many bytes, for instance 256m.")
    return found


def task_memory(session: SparkSession) -> int:
    """How many bytes of events each task holds in memory, as far as the driver knows.

    Raises:
        PlanError: As `worker_memory`.
    """
    allowed = _bytes(session.conf.get("spark.executor.pyspark.memory", None) or "", "m")
    return worker_memory(session) or (USUAL_MEMORY if allowed is None else allowed // 8)


def _bytes(said: str, unit: str = " ") -> int | None:
    """A size as Spark's settings write it; None if it is none."""
    found = re.fullmatch(r"([1-9][0-9]*)([kmgt]?)b?", said.strip().lower())
    return None if found is None else int(found[1]) << 10 * " kmgt".index(found[2] or unit)


def has_plugin(session: SparkSession) -> bool:
    """Whether the RAPIDS plugin is on."""
    return "com.nvidia.spark.SQLPlugin" in str(session.conf.get("spark.plugins", ""))


def stream_reader(spark: object, option: str) -> DataStreamReader:
    """A session's reader of streams; or such a reader, with options.

    Args:
        spark: What the user gave.
        option: An option, for the error that says so.

    Raises:
        PlanError: It is neither.
    """
    if isinstance(spark, SparkSession):
        return spark.readStream
    if isinstance(spark, DataStreamReader):
        return spark
    raise PlanError(
        f"spark is {shown(spark)}, and no session of Spark.",
        remedy=f"Give a classic session, or its reader with options: spark.readStream.{option}.",
    )


def check_session(frame: DataFrame) -> None:
    """Refuse a frame whose session would give other answers, or none.

    Raises:
        PlanError: It is no DataFrame; or its session is a Spark Connect session, has a zone other than UTC, or has no
            limit for Arrow batches.
    """
    if type(frame).__module__.startswith("pyspark.sql.connect"):
        raise PlanError(
            "The DataFrame belongs to a Spark Connect session, which hides the planner.",
            remedy="Use a classic session: SparkSession.builder.master(…), or spark-submit.",
        )
    if not isinstance(frame, DataFrame):
        kind: type = type(frame)
        remedy = _DATA_FRAMES.get(f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}")
        raise PlanError(
            f"{kind.__module__}.{kind.__name__} is no DataFrame of Spark SQL.",
            remedy=remedy or "Give a pyspark.sql.DataFrame.",
        )
    zone = str(frame.sparkSession.conf.get(_ZONE))
    if zone.upper() not in _UTC:
        raise PlanError(
            f"The Spark session's time zone is {zone}: hours and days in expressions would be its own, not UTC's.",
            remedy=f'Say spark.conf.set("{_ZONE}", "UTC") first; instants do not change by that.',
        )
    rows = int(str(frame.sparkSession.conf.get(_ROWS)))
    if rows <= 0:
        raise PlanError(
            f"{_ROWS} is {rows}: a worker would get all rows as one batch, and the RAPIDS plugin divides by it.",
            remedy=f'Say spark.conf.set("{_ROWS}", 100000), for instance.',
        )


def check_ends(frames: Sequence[DataFrame]) -> None:
    """Refuse streaming frames where an answer is to come from all rows.

    Raises:
        PlanError: One of them is a stream.
    """
    if any(frame.isStreaming for frame in frames):
        raise PlanError(
            "The DataFrame is a stream that never ends: no answer comes from all of its rows.",
            remedy="Start the query: stream.start_on_spark(into=…, checkpoint=…) gives Spark's own StreamingQuery. Or "
            "follow a store without Spark, with a running query: stream.start().follow(store).",
        )


def check_sessions(frames: Sequence[DataFrame]) -> None:
    """Refuse frames whose sessions differ too much; what is made of them belongs to the first one's session.

    Raises:
        PlanError: As `check_session`, for any of them; or two sessions compute or compare names differently.
    """
    for frame in frames:
        check_session(frame)
    first = frames[0].sparkSession
    for frame in frames[1:]:
        other = frame.sparkSession
        for name in () if other is first else (_ANSI, _CASE):
            values = [str(each.conf.get(name)).lower() for each in (first, other)]
            if values[0] != values[1]:
                raise PlanError(
                    f"The DataFrames belong to two Spark sessions: {name} is {values[0]} in one and {values[1]} in the "
                    "other.",
                    remedy="Make both with one session, or give both sessions the same settings.",
                )


def check_names(frame: DataFrame, names: Sequence[str]) -> None:
    """Refuse payload columns that Spark would take for each other or for the lifetime.

    Raises:
        ColumnError: Two names differ only in case, which the session ignores.
    """
    if str(frame.sparkSession.conf.get(_CASE)).lower() == "true":
        return
    seen = {name: name for name in LIFETIME}
    for name in names:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise ColumnError(
                f"This Spark session does not tell its name from {other!r}: they differ only in case.",
                column=name,
                remedy=f'Rename it in the source, or say spark.conf.set("{_CASE}", "true").',
            )
