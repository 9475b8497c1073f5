"""Answers as folders of files on any file system of the session: read back and whole, or not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from gpu_ops.engines.spark.checks import our_errors
from gpu_ops.engines.spark.hadoop import Hadoop, place
from gpu_ops.engines.spark.metrics import rows_written, tagged
from gpu_ops.engines.spark.spills import Spills
from gpu_ops.engines.spark.swaps import Sizes, Writing
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.files import WriteReport

_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_LITERALLY = {"__globPaths__": "false"}
"""How Spark's own writers say that a path is no pattern."""


def write_files(
    frame: DataFrame,
    path: str | Path,
    form: str,
    *,
    replace: bool = False,
    spills: Spills | None = None,
    partition_by: Sequence[str] = (),
    **options: str,
) -> WriteReport:
    """Run a DataFrame, write it beside its place, read that back, and swap it with an existing answer.

    Args:
        frame: What `collect` gave.
        path: A folder: text that means what it means to Spark, or a `Path` on the driver's machine.
        form: A format of Spark's writers, such as "parquet".
        replace: Whether to replace an existing answer; otherwise it is an error.
        spills: How much the answer's tasks sort in files.
        partition_by: The columns by whose values the rows are in folders of their own.
        options: The writer's own, and the reader's.

    Returns:
        What was read back. For other formats than Parquet the row groups are the files.

    Raises:
        SourceError: The session does not have the file system; something is there, or another writer took the place; or
            the answer cannot be read back.
        GpuOpsError: An error of ours stopped the query. The place is as it was before.
    """
    where = place(frame.sparkSession, path)
    files = where.files
    assert isinstance(files, Hadoop)  # noqa: S101  (as `place` makes it)
    writing = Writing.begin(where, replace=replace)
    try:
        with tagged(frame.sparkSession, _tag(writing)):
            _run(frame, writing.new, form, options, partition_by)
        rows, groups, whole = _read_back(frame, writing, form, options)
        writing.swap(whole)
    except BaseException as error:
        lost = isinstance(error, PySparkException | Py4JJavaError | SourceError) and _lost(writing)
        writing.give_up()
        if lost:
            raise writing.taken() from error
        raise
    writing.done()
    spilled = 0 if spills is None else spills.size()
    return WriteReport(files.shown(where.path), rows, groups, sum(whole.values()), spilled)


def _run(frame: DataFrame, path: str, form: str, options: dict[str, str], partition_by: Sequence[str]) -> None:
    conf = frame.sparkSession.conf
    # Others read Spark's default (INT96) as nanoseconds, which do not reach the open end.
    before = str(conf.get(_TIMESTAMPS))
    conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
    try:
        with our_errors():
            frame.write.format(form).options(**options).partitionBy(*partition_by).save(path)
    finally:
        conf.set(_TIMESTAMPS, before)


def _lost(writing: Writing) -> bool:
    """Whether another writer took the place: its removal of this one's files may have stopped this one."""
    try:
        return writing.lost()
    except SourceError:
        return False


def _tag(writing: Writing) -> str:
    return f"gpu_ops-{writing.name}"


def _unseen(writing: Writing, wrote: str, found: str) -> SourceError:
    """The error for tasks on machines whose disks the driver does not see."""
    path = writing.place.path
    letters = "" if path.isascii() else ", and start each worker with LC_ALL=C.UTF-8, so that it can spell the name"
    return SourceError(
        f"Tasks have written {wrote} for {path}, and the driver finds {found}.",
        remedy=f"Give a path that the driver and all workers see alike, on a file system that they share{letters}.",
    )


def _read_back(frame: DataFrame, writing: Writing, form: str, options: dict[str, str]) -> tuple[int, int, Sizes]:
    """Rows, row groups and files of the new answer, read from its file system."""
    files: Any = writing.place.files
    whole = files.sizes(writing.new) or {}
    data = [name for name in whole if not name.rpartition("/")[2].startswith(("_", "."))]
    if not data:
        if writing.lost():
            raise writing.taken()
        raise _unseen(writing, "an answer", "none of its files")
    if form != "parquet":
        with our_errors():
            reader = frame.sparkSession.read.format(form).options(**options, **_LITERALLY).schema(frame.schema)
            rows, groups = reader.load(writing.new).count(), len(data)
    else:
        footers = [files.parquet_footer(f"{writing.new}/{name}") for name in data]
        rows, groups = (sum(each) for each in zip(*footers, strict=True))
    said = rows_written(frame.sparkSession, _tag(writing))
    # More rows are no error: a reader of CSV takes each line of a text for a row.
    if said is not None and rows < said:
        raise _unseen(writing, f"{said:,} rows of an answer", f"{rows:,} of them")
    return rows, groups, whole
