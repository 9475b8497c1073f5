"""An opened source: a schema, and a way to read some of its columns piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

PIECE_ROWS = 1 << 20
"""The default number of rows in a piece of a source that is not in memory."""


class Piece(NamedTuple):
    """Some rows, and their place if the source is several files."""

    table: pa.Table
    file: str | None = None
    file_row: int = 0


@dataclass(frozen=True)
class RawSource:
    """An opened source: only its schema was read.

    Attributes:
        schema: All columns.
        read: The rows of the named columns, in pieces of about the given number of rows.
        origin: The kind of frame that came in.
        shape: The source in a few words.
        rows: The number of rows, if known.
        replayable: Whether it can be read twice.
        text_times: Whether times may be text.
        outside: Whether its bytes come from outside and are not validated yet.
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
    """A source in a few words, with its numbers of rows and columns."""
    return f"{kind}, {'' if rows is None else f'{rows:,} rows x '}{columns} columns"
