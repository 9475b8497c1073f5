"""A file of a query in RQL over files of events, for the ``gpu_ops rql`` command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from gpu_ops.api.stream import Stream
from gpu_ops.core.bounds import Bounds
from gpu_ops.ingest.raw import open_raw
from gpu_ops.ingest.raw_source import PIECE_ROWS
from gpu_ops.rql.query import query


def asked_of_files(
    text: str,
    inputs: Mapping[str, str],
    tables: Mapping[str, str],
    *,
    time: str,
    order: str | None,
    until: str | None,
) -> Stream:
    """What a query gives over files.

    Args:
        text: The query.
        inputs: The path of the events of each stream.
        tables: The path of the rows of each table.
        time: The column that says when an event comes.
        order: The column that says in which order events of one time come.
        until: The last time of which cycles are shown: milliseconds since 1970, or ISO 8601 with a zone.
    """
    from gpu_ops.apps.epl_files import clock_time

    return query(
        text,
        {name: _read(path) for name, path in inputs.items()},
        tables={name: _read(path) for name, path in tables.items()},
        time=time,
        order=order,
        until=None if until is None else clock_time(until, "--until"),
    )


def query_in(path: Path) -> str:
    """The query in a file."""
    from gpu_ops.apps.epl_files import text_of

    return text_of(path)


def _read(path: str) -> pa.Table:
    source = open_raw(path, (), None, None, Bounds())
    pieces = [piece.table for piece in source.read(source.schema.names, PIECE_ROWS)]
    return pa.concat_tables([source.schema.empty_table(), *pieces]).combine_chunks()
