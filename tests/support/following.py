"""A query that follows a store and is killed on the way, for the tests of followers."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from tests.support.ticks import at_us

UTC = pa.timestamp("us", "UTC")
TICKS = 10
"""From one batch to the next."""


class Killed(BaseException):
    """The process is no more."""


def batch(number: int, rows: int = 3) -> pa.Table:
    """A batch of events that are over before the next batch begins."""
    starts = [number * TICKS + at for at in range(rows)]
    return pa.table(
        {
            "start": pa.array(starts, pa.int64()).cast(UTC),
            "end": pa.array([each + 2 for each in starts], pa.int64()).cast(UTC),
            "k": [each % 2 for each in starts],
            "v": starts,
        }
    )


def fill(source: g.Store, batches: int, first: int = 0, *, closed: bool = True) -> g.Store:
    """So many batches, each with a CTI behind it that makes its events final."""
    with source.writer() as writer:
        for number in range(first, first + batches):
            writer.append(batch(number), cti=at_us((number + 1) * TICKS))
        if closed:
            writer.advance(at_us(MAX_TIME))
    return source


def query(source: g.Store | pa.Table) -> g.Stream:
    return g.events(source, start="start", end="end").by("k").snapshot().agg(n=g.count(), v=g.sum("v"))


def killed_after(batches: int) -> Callable[[Any], None]:
    """An `on_step` that kills the query after so many batches."""
    steps = [0]

    def step(_: Any) -> None:
        steps[0] += 1
        if steps[0] == batches:
            raise Killed

    return step


def follow_killed(live: Any, source: Any, after: int, **options: Any) -> None:
    """Follow until it is killed, after so many batches."""
    try:
        live.follow(source, on_step=killed_after(after), **options)
    except Killed:
        return
    message = "it was not killed"
    raise AssertionError(message)


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change what a checkpoint says."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    facts = json.loads(files["checkpoint.json"])
    change(facts)
    files["checkpoint.json"] = json.dumps(facts).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def of_format_one(facts: dict[str, Any]) -> None:
    """What a version before identities wrote."""
    facts["format"] = 1
    for name in ("following", "functions", "version", "python"):
        del facts[name]


def facts_of(path: Path) -> dict[str, Any]:
    """What a checkpoint says."""
    with zipfile.ZipFile(path) as archive:
        facts: dict[str, Any] = json.loads(archive.read("checkpoint.json"))
    return facts
