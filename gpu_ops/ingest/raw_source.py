"""An opened source: a schema, and a way to read some of its columns piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

PIECE_ROWS = 1 << 20
"""The default number of rows in a piece of a source that is not in memory."""


class Piece(NamedTuple):
    """Some rows, and their place if the source is several files."""

    table: pa.Table
    file: str | None = None
    file_row: int = 0


class Feeding(Protocol):
    """What gives events as it runs: a running query."""

    def attach(self, query: Any, into: str, told: int | None = None) -> int:
        """Push what comes from now on into an input of another running query, which has been `told` what came before.

        Returns:
            How much has come.
        """


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
        fed_by: What gives its rows to running queries, if it has none of its own.
    """

    schema: pa.Schema
    read: Callable[[Sequence[str], int], Iterator[Piece]]
    origin: str
    shape: str
    rows: int | None = None
    replayable: bool = True
    text_times: bool = False
    outside: bool = False
    fed_by: Feeding | None = None


def shown_shape(kind: str, rows: int | None, columns: int) -> str:
    """A source in a few words, with its numbers of rows and columns."""
    return f"{kind}, {'' if rows is None else f'{rows:,} rows x '}{columns} columns"
