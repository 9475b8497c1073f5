"""Files of EPL statements over files of events, for the ``gpu_ops epl`` command."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from gpu_ops.core.bounds import Bounds
from gpu_ops.core.polars_frames import to_frame
from gpu_ops.epl.runtime import Runtime
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.ingest.raw import open_raw
from gpu_ops.ingest.raw_source import PIECE_ROWS
from gpu_ops.microbatches.files import IfExists, WriteReport, write
from gpu_ops.topics.topic import Topic


def text_of(path: Path) -> str:
    """The statements in a file.

    Raises:
        PlanError: There is no such file, or it is no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError(f"{path} cannot be read: {error}", remedy="Give a text file of statements in EPL.") from error


def clock_time(text: str, name: str) -> int | dt.datetime:
    """A time of the clock: milliseconds since 1970, or a time in ISO 8601 with a zone.

    Raises:
        PlanError: It is neither.

    Examples:
        >>> clock_time("5000", "--start")
        5000
        >>> clock_time("2020-01-01T00:00:00Z", "--start").year
        2020
    """
    try:
        return int(text) if text.strip().lstrip("-").isdecimal() else dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise PlanError(f"{name} is {text!r}.", remedy="Write milliseconds, or 2020-01-01T00:00:00Z.") from error


def played(
    text: str,
    inputs: Mapping[str, str | Topic],
    *,
    time: str | None,
    start: int | dt.datetime,
    until: int | dt.datetime | None,
    default_selector: str,
    device: str,
) -> Runtime:
    """A runtime that has taken all events of some files, and keeps what its statements delivered.

    Args:
        text: The statements.
        inputs: The path of the events of each type, or their topic; all columns are its properties.
        time: The column that says when an event comes. Without it the clock stays, and inputs come one after another.
        start: What the clock shows first.
        until: What it shows last.
        default_selector: As in `Runtime`.
        device: Likewise.
    """
    sources = {name: open_raw(path, (), None, None, Bounds()) for name, path in inputs.items()}
    for name, source in sources.items():
        if time is not None and time not in source.schema.names:
            raise ColumnError(
                f"{name!r} has no such column.", column=time, remedy=f"It has: {', '.join(source.schema.names)}."
            )
    types = {name: source.schema for name, source in sources.items()}
    runtime = Runtime(types, start=start, default_selector=default_selector, device=device)
    for statement in runtime.deploy(text):
        statement.deliveries()
    pieces = (
        (name, piece.table) for name, each in sources.items() for piece in each.read(each.schema.names, PIECE_ROWS)
    )
    if time is None:
        for name, table in pieces:
            runtime.send(name, table)
    else:
        came: dict[str, list[pa.Table]] = {name: [] for name in sources}
        for name, table in pieces:
            came[name].append(table)
        runtime.replay({name: pa.concat_tables(tables) for name, tables in came.items() if tables}, time=time)
    if until is not None:
        runtime.advance(until)
    return runtime


def lines(runtime: Runtime) -> Iterator[str]:
    """What the statements delivered as lines of JSON, in order of turns."""
    found: list[str] = []
    turns = [np.zeros(0, np.int64)]
    for statement in runtime.statements:
        table = statement.deliveries()
        _refuse_twice(statement.name, table)
        turns.append(table["turn"].to_numpy())
        named = table.add_column(1, "statement", pa.array([statement.name] * len(table), pa.string()))
        found += to_frame(named).write_ndjson().splitlines()
    for at in np.argsort(np.concatenate(turns), kind="stable").tolist():
        yield found[at]


def write_deliveries(runtime: Runtime, folder: Path, if_exists: IfExists) -> Iterator[WriteReport]:
    """Write what each statement delivered to a Parquet file of its name.

    Raises:
        SourceError: A file exists, or cannot be written.
        PlanError: A statement's name is no name of a file.
    """
    for statement in runtime.statements:
        if Path(f"{statement.name}.parquet").name != f"{statement.name}.parquet" or "\0" in statement.name:
            raise PlanError(f"{statement.name!r} is no name of a file.", remedy="Give the statement another: @name.")
    folder.mkdir(parents=True, exist_ok=True)
    for statement in runtime.statements:
        table = statement.deliveries()
        _refuse_twice(statement.name, table)
        yield write([table], table.schema, folder / f"{statement.name}.parquet", if_exists=if_exists)


def _refuse_twice(name: str, table: pa.Table) -> None:
    twice = [each for at, each in enumerate(table.column_names) if each in ["statement", *table.column_names[:at]]]
    if twice:
        raise ColumnError(
            f"Deliveries of {name!r} have two columns of this name.", column=twice[0], remedy="Select it as another."
        )
