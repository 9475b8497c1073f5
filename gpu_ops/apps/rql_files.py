"""A file of a query in RQL over files of events or topics, for the ``gpu_ops rql`` command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from gpu_ops.api.stream import Stream
from gpu_ops.core.bounds import Bounds
from gpu_ops.ingest.raw import open_raw
from gpu_ops.ingest.raw_source import PIECE_ROWS
from gpu_ops.rql.query import query
from gpu_ops.topics.topic import Topic


def asked_of_files(
    text: str,
    inputs: Mapping[str, str | Topic],
    tables: Mapping[str, str | Topic],
    *,
    time: str,
    order: str | None,
    until: str | None,
) -> Stream:
    """What a query gives over files.

    Args:
        text: The query.
        inputs: The path of the events of each stream, or their topic.
        tables: The path of the rows of each table, or their topic.
        time: The column that says when an event comes.
        order: The column that says in which order events of one time come.
        until: The last time of which cycles are shown: milliseconds since 1970, or ISO 8601 with a zone.
    """
    from gpu_ops.apps.epl_files import clock_time

    return query(
        text,
        {name: read_whole(each) for name, each in inputs.items()},
        tables={name: read_whole(each) for name, each in tables.items()},
        time=time,
        order=order,
        until=None if until is None else clock_time(until, "--until"),
    )


def asked_live(
    text: str, streams: Mapping[str, Stream], tables: Mapping[str, str | Topic], *, order: str | None
) -> Stream:
    """What a query gives of streams that are followed.

    Args:
        text: The query.
        streams: The streams.
        tables: As in `asked_of_files`: their rows of now.
        order: Likewise.
    """
    return query(text, streams, tables={name: read_whole(each) for name, each in tables.items()}, order=order)


def query_in(path: Path) -> str:
    """The query in a file."""
    from gpu_ops.apps.epl_files import text_of

    return text_of(path)


def read_whole(given: str | Topic) -> pa.Table:
    """The rows of a file, or of a topic as far as it goes now."""
    source = open_raw(given, (), None, None, Bounds())
    pieces = [piece.table for piece in source.read(source.schema.names, PIECE_ROWS)]
    return pa.concat_tables([source.schema.empty_table(), *pieces]).combine_chunks()
