"""How much memory a task takes above its worker's own: run as a process, it prints two numbers of bytes.

``python -m tests.support.worker_memory BATCHES TIMES``: the first is the size of the task's events, the second by how
much the process grew at most while it ran them. The system gives the task no more than so many times its events
(``ulimit -d``).
"""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

import gpu_ops as g
from gpu_ops.engines.spark.stages import fragment
from gpu_ops.engines.spark.worker import Task, run_task

PAYLOAD = pa.schema([("k", pa.int64()), ("v", pa.float64())])


def kept(name: str) -> int:
    """A line of the process's status, in bytes."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="utf-8"))
    assert found is not None
    return int(found[1]) << 10


def batches(count: int) -> Iterator[pa.RecordBatch]:
    """Points as Spark sends them, in batches of 10,000 rows."""
    chance = np.random.default_rng(1)
    for at in range(count):
        start = pa.array(np.sort(chance.integers(at * 10**7, (at + 1) * 10**7, 10_000))).cast(pa.timestamp("us", "UTC"))
        columns = {"0_k": chance.integers(0, 1000, 10_000), "1_v": chance.random(10_000)}
        yield pa.record_batch({"start": start, **{name: pa.array(values) for name, values in columns.items()}})


def main() -> None:
    empty = pa.table({"t": pa.array([], pa.int64()), **{each.name: pa.array([], each.type) for each in PAYLOAD}})
    hops = g.events(empty, start="t", unit="us").by("k").hopping("60s", "5s").agg(total=g.sum("v"))._node
    task = Task(fragment(hops).plan(PAYLOAD), (PAYLOAD,), hops.schema)
    assert list(run_task(task, "cpu", batches(1)))  # loads what the next one needs
    before, size, count = kept("VmRSS"), next(batches(1)).nbytes, int(sys.argv[1])
    most = kept("VmData") + int(sys.argv[2]) * size * count
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    for _ in run_task(task, "cpu", batches(count), memory=1 << 40):
        pass
    print(size * count, kept("VmHWM") - before)


if __name__ == "__main__":
    main()
