"""Feeding a running query: push each batch, yield results, close at the end."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any, Protocol

import pyarrow as pa

from gpu_ops.engines.live.inputs import Input
from gpu_ops.engines.progress import Progress, known_rows
from gpu_ops.errors import PlanError, shown


class Feedable(Protocol):
    """The part of `RunningQuery` that feeding needs."""

    @property
    def rows_in(self) -> int:
        """How many rows were pushed."""

    @property
    def is_ready(self) -> bool:
        """Whether `results` has any rows to give."""

    def push(self, batch: Any, *, input: str | None = None) -> None:  # noqa: A002  (the word for it)
        """As in `RunningQuery`."""

    def results(self) -> pa.Table:
        """As in `RunningQuery`."""

    def close(self) -> None:
        """As in `RunningQuery`."""


def run(live: Feedable, own: list[Input], batches: Iterable[Any] | None) -> Iterator[pa.Table]:
    """`RunningQuery.run`.

    Args:
        live: The query.
        own: Its inputs. Their sources are read if no batches are given.
        batches: As in `RunningQuery.run`.
    """
    if batches is not None and not isinstance(batches, Iterable):
        raise PlanError(
            f"run takes batches, not {shown(batches)}.", remedy="Give a list of tables, or anything that yields them."
        )
    with Progress(known_rows(each.source for each in own) if batches is None else None) as progress:
        for name, batch in _source_tables(own) if batches is None else map(_named, batches):
            before = live.rows_in
            live.push(batch, input=name)
            progress.read(live.rows_in - before)
            if live.is_ready:
                table = live.results()
                progress.gave(table.num_rows)
                yield table
        live.close()
        if live.is_ready:
            yield live.results()


async def arun(live: Feedable, batches: AsyncIterable[Any]) -> AsyncIterator[pa.Table]:
    """`RunningQuery.arun`."""
    if not isinstance(batches, AsyncIterable):
        raise PlanError(
            f"arun takes batches that come asynchronously, not {shown(batches)}.",
            remedy="Give an async generator; for others there is run.",
        )
    async for batch in batches:
        name, rows = _named(batch)
        live.push(rows, input=name)
        if live.is_ready:
            yield live.results()
    live.close()
    if live.is_ready:
        yield live.results()


def _source_tables(own: list[Input]) -> Iterator[tuple[str, pa.Table]]:
    """The tables of the sources, one of each source in turn."""
    left = [(each.name, each.source.raw_tables()) for each in own]
    while left:
        for each in list(left):
            table = next(each[1], None)
            if table is None:
                left.remove(each)
            else:
                yield each[0], table


def _named(batch: Any) -> tuple[str | None, Any]:
    """(input name or None, batch) of a batch or an (input name, batch) pair."""
    named = isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[0], str)
    return (batch[0], batch[1]) if named else (None, batch)
