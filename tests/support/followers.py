"""Followers in processes of their own, to be killed and stopped.

Each is a fork of one process that has the package and its first kernel: to load these takes two seconds.
"""

from __future__ import annotations

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pyarrow as pa

import gpu_ops as g
from gpu_ops.devices.cpu import kernels
from gpu_ops.engines.live.running_query import RunningQuery
from tests.support import following
from tests.support.following import UTC

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([__name__])

kernels.ascends(np.zeros(1, np.int64))


@contextmanager
def forked(follow: Callable[[Path, Connection], None], folder: Path) -> Iterator[BaseProcess]:
    """A process that follows, from its first sign on."""
    heard, told = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=follow, args=(folder, told))
    process.start()
    told.close()
    with heard:
        heard.recv()
        yield process
    process.join()
    process.close()


def run(follow: Callable[[Path, Connection], None], folder: Path, seconds: float | None = None) -> int:
    """Follow in a process that is killed so many seconds after its first sign; its exit code."""
    with forked(follow, folder) as process:
        if seconds is not None:
            time.sleep(seconds)
            process.kill()
        process.join()
        assert process.exitcode is not None
        return process.exitcode


def follow_one(folder: Path, told: Connection) -> None:
    """One source, whose late rows go into a store too."""
    source = g.store(folder / "in")
    late = g.events(source).advance_time("5us", late="divert")
    query = late.by("k").snapshot().agg(n=g.count(), v=g.sum("v"), best=g.max("v"))
    path = folder / "checkpoint"
    live = g.restore(path, query, device="cpu") if path.exists() else query.start(device="cpu")
    told.send("started")
    live.follow(
        source,
        into=g.store(folder / "out"),
        late_into=g.store(folder / "late"),
        checkpoint=path,
        every=3,
        timeout=0,
        on_step=lambda _: time.sleep(0.01),
    )


def batch_of_two(starts: list[int]) -> pa.Table:
    start = pa.array(starts, pa.int64())
    return pa.table(
        {
            "start": start.cast(UTC),
            "end": pa.array([each + 3 for each in starts], pa.int64()).cast(UTC),
            "k": pa.array([each % 2 for each in starts], pa.int64()),
        }
    )


def late(table: pa.Table, name: str) -> g.Stream:
    return g.events(table, start="start", end="end", name=name).advance_time("5us", late="divert")


def both(one: pa.Table, two: pa.Table) -> g.Stream:
    return late(one, "one").union(late(two, "two")).by("k").snapshot().agg(n=g.count())


def follow_two(folder: Path, told: Connection) -> None:
    """Two sources with late rows, and the last two checkpoints."""
    sources = {name: g.store(folder / name) for name in ("one", "two")}
    plan = both(*(batch_of_two([]) for _ in sources))
    path = folder / "check pöint"
    told.send("started")
    live = g.restore(path, plan, device="cpu") if path.exists() else plan.start(device="cpu")
    live.follow(
        sources,
        into=g.store(folder / "out"),
        late_into=g.store(folder / "late"),
        checkpoint=path,
        every=4,
        keep=2,
        timeout=0,
        on_step=lambda _: time.sleep(0.01),
    )


def follow_until_stopped(folder: Path, told: Connection) -> None:
    """Until a signal comes; it tells when it has come to batches 7, 12 and 13."""
    path = folder / "checkpoint"
    plan = following.query(following.batch(0).slice(0, 0))
    live = g.restore(path, plan, device="cpu") if path.exists() else plan.start(device="cpu")

    def step(live: RunningQuery) -> None:
        if live.positions["store"] in {7, 12, 13}:
            told.send("step")
            time.sleep(0.5)

    live.follow(
        g.store(folder / "in"),
        into=g.store(folder / "out"),
        checkpoint=path,
        every=1000,
        on_step=step,
        stop_on=(signal.SIGTERM, signal.SIGINT),
        timeout="60s",
    )
