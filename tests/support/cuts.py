"""A running query that gets its events in any cut, with CTIs anywhere, and that stops and goes on anywhere."""

from __future__ import annotations

import random
from pathlib import Path
from tempfile import mkdtemp

import pyarrow as pa

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.engines.live.running_query import RunningQuery
from tests.support.ticks import at_us


def in_some_order(given: pa.Table, chance: random.Random) -> pa.Table:
    """Somewhat out of order, so that CTIs can say something."""
    starts = _ticks(given)
    order = sorted(range(len(starts)), key=lambda row: starts[row] + chance.randrange(0, 20))
    return given.take(pa.array(order, pa.int64()))


def in_any_cut(
    query: g.Stream, events: pa.Table, device: str, chance: random.Random, folder: Path | None = None
) -> pa.Table:
    """What a running query gives; nothing of it starts before what had been promised, and nothing is left at the end.

    Args:
        query: Over a source with ``start`` and ``end``.
        events: What comes, in this order; its first columns are the source's times.
        device: Where it runs.
        chance: Decides on the cuts, the CTIs, and when it stops.
        folder: Where checkpoints go; without one it never stops.
    """
    live, found = query.start(device=device), list[pa.Table]()
    starts, at, promised = _ticks(events), 0, -(1 << 60)
    in_parts = chance.random() < 0.5
    path = None if folder is None else Path(mkdtemp(dir=folder)) / "kept"
    while at < events.num_rows:
        size = chance.randrange(1, 7)
        live.push(events.slice(at, size))
        at += size
        if chance.random() < 0.65:
            live.advance(at_us(chance.randrange(-5, 1 + min(starts[at:], default=100))))
        if chance.random() < 0.7:
            found.append(live.results())
            assert all(start >= promised for start in _ticks(found[-1]))
            promised = live.status().cti_out
        if path is not None and chance.random() < 0.2:
            live = gone_on(live, query, path, device, in_parts=in_parts)
    live.close()
    found.append(live.results())
    assert all(start >= promised for start in _ticks(found[-1]))
    assert (live.status().cti_out, live.status().alive) == (MAX_TIME, 0)
    return pa.concat_tables(found)


def gone_on(live: RunningQuery, query: g.Stream, path: Path, device: str, *, in_parts: bool = False) -> RunningQuery:
    """The same query again from its checkpoint, a file or a folder of saves, which remembers all."""
    if in_parts:
        live.save(path)
    else:
        live.checkpoint(path)
    again = g.restore(path, query, device=device)
    assert remembered(again) == remembered(live)
    return again


def remembered(live: RunningQuery) -> dict[str, list[str]]:
    """The state, its rows and columns in orders of their own: runs that are read back are one run."""
    return {
        name: sorted(repr(sorted(row.items())) for row in state.to_pylist()) for name, state in live.state().items()
    }


def _ticks(table: pa.Table) -> list[int]:
    ticks: list[int] = table["start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    return ticks
