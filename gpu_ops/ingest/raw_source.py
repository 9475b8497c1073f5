"""An opened source: a schema, and a way to read some of its columns piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

PIECE_ROWS = 1 << 20
"""Rows that a source which is not in memory gives at a time, unless it is told."""


class Piece(NamedTuple):
    """Some rows, and where they are if the source is several files."""

    table: pa.Table
    file: str | None = None
    file_row: int = 0


@dataclass(frozen=True)
class RawSource:
    """A source, opened: only its schema was read.

    Attributes:
        schema: All columns.
        read: The rows of the named columns, in pieces of about the given number of rows.
        origin: The kind of frame that came in.
        shape: What it is, in a few words.
        rows: How many there are, where that is known.
        replayable: Whether it can be read twice.
        text_times: Whether times may be text.
        outside: Whether its rows are still to be validated.
    """

    schema: pa.Schema
    read: Callable[[Sequence[str], int], Iterator[Piece]]
    origin: str
    shape: str
    rows: int | None = None
    replayable: bool = True
    text_times: bool = False
    outside: bool = False


def shown_shape(kind: str, rows: int | None, columns: int) -> str:
    """What a source is, with how many rows and columns."""
    return f"{kind}, {'' if rows is None else f'{rows:,} rows x '}{columns} columns"
