"""What sinks of live queries on Spark keep in files: results of tasks, their columns, which epochs are published."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.engines.spark.streams.log import NamedFile, age, create_once
from gpu_ops.errors import SourceError
from gpu_ops.microbatches.files import make_folder, whole_or_nothing


@dataclass(frozen=True)
class Published:
    """The rows of a committed epoch, for a sink.

    Attributes:
        query: The query.
        epoch: The epoch's number.
        files: Their files, in the sink's folder for tasks.
        cti: The CTI of the results.
    """

    query: str
    epoch: int
    files: Sequence[NamedFile]
    cti: int


def noted(folder: Path, epoch: int) -> bool:
    """Whether it is noted that an epoch was published."""
    return _note_of(folder, epoch).exists()


def note(folder: Path, epoch: int) -> None:
    """Note that an epoch was published. What cannot be asked that gets it again, if this is not done in time."""
    create_once(_note_of(folder, epoch), {})


def later_note(folder: Path, epoch: int) -> int | None:
    """The last epoch after one that is noted; None if there is none."""
    return max((each for each in _notes(folder) if each > epoch), default=None)


def _notes(folder: Path) -> list[int]:
    return [int(each.name.partition(".")[0]) for each in folder.glob("*.published.json")]


def _note_of(folder: Path, epoch: int) -> Path:
    return folder / f"{epoch:012d}.published.json"


def remove_notes(folder: Path, epoch: int) -> None:
    """Remove the notes of epochs before one."""
    for each in _notes(folder):
        if each < epoch:
            _note_of(folder, each).unlink(missing_ok=True)


def remove_older(folder: Path, epoch: int) -> None:
    """Remove the files that tasks wrote for epochs up to one. What cannot be removed stays."""
    with suppress(OSError):
        for each in folder.iterdir():
            written = age(each.name)
            if written is not None and written <= epoch:
                with suppress(OSError):
                    each.unlink()


def make_sink(folder: Path, columns: Path, schema: pa.Schema) -> None:
    """Make a sink's folder, and the file with its columns."""
    try:
        make_folder(folder)
        if not columns.exists():
            with whole_or_nothing(columns, "replace") as file:
                file.write(schema.serialize())
    except OSError as error:
        raise SourceError(f"{folder} cannot be made: {error}", remedy="See that you may write there.") from error


def columns_in(path: Path) -> pa.Schema:
    """The columns that such a file has."""
    return pa.ipc.read_schema(pa.py_buffer(path.read_bytes()))


def read_files(folder: Path, files: Sequence[NamedFile], schema: pa.Schema) -> pa.Table:
    """The rows of some files.

    Raises:
        SourceError: A file is gone.
    """
    tables = []
    for each in files:
        try:
            tables.append(pq.read_table(folder / each.name, partitioning=None).cast(schema))
        except FileNotFoundError as error:
            raise lost(folder / each.name) from error
    return pa.concat_tables([empty_table(schema), *tables])


def lost(path: Path) -> SourceError:
    """The error for a file of a committed epoch that is gone."""
    return SourceError(f"The results {path} are gone, and their epoch is committed.", remedy="Put the file back.")


def another_sink(what: str) -> SourceError:
    """The error for a sink in whose place the checkpoint names another one."""
    return SourceError(
        f"{what} is another sink than the one that the query's checkpoint names.",
        remedy="Continue in the sink that it was started with, or start it afresh with a new checkpoint.",
    )


def sink_of_another(what: str) -> SourceError:
    """The error for a sink that has results of another query."""
    return SourceError(
        f"{what} is not the sink of this query: another one has written there, or this checkpoint is another one.",
        remedy="Give an empty one, or the checkpoint that goes with it.",
    )
