"""W2 pushed into a running query in micro-batches, over an hour instead of three minutes; prints a line of JSON.

    python -m benchmarks.live --batch 1000 --events 10000000

Events are made a block at a time, outside the clock, so that there is no more in memory than a query needs. After each
micro-batch the CTI goes to the start of the next one, and the results are taken. They are checked: each event counts
for an hour, so the counts times their lifetimes add up to so many hours; and up to ten million events there are as many
results as a batch gives.
"""

from __future__ import annotations

import argparse
import json
import time

import numpy as np
import psutil
import pyarrow as pa

import gpu_ops as g
from benchmarks.workloads import FULL, points
from gpu_ops.core.time import utc

BLOCK = 1_000_000
HOUR = 3_600_000_000


def query(events: pa.Table) -> g.Stream:
    """Count and mean of the last hour, per key, at every change."""
    return g.events(events, start="t").by("k").sliding("1h").agg(n=g.count(), mean=g.mean("v"))


def integers(column: pa.ChunkedArray) -> np.ndarray:
    """The integers behind a column without nulls."""
    return np.concatenate(
        [np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset :][: len(chunk)] for chunk in column.chunks]
    )


def measure(batch: int, events: int, device: str) -> dict[str, float | int | list[float]]:
    """Push all events; see the module's text.

    Raises:
        ValueError: The results are wrong.
    """
    warm = query(points(1)).start(device=device)
    for first in range(0, 10_000, 1000):
        warm.push(points(1000, first=first))
        warm.advance(utc((first + 1000) * 8640))
        warm.results()
    # The end loads kernels of its own, or compiles them in a new checkout, which takes longer than thousands of steps.
    warm.close()
    live = query(points(1)).start(device=device)
    spent, rows, alive, peaks = 0.0, 0, 0, list[float]()
    process = psutil.Process()
    for block in range(0, events, BLOCK):
        table = points(min(BLOCK, events - block), first=block)
        starts = integers(table["t"])
        for first in range(0, table.num_rows, batch):
            piece = table.slice(first, batch)
            following = first + batch
            cti = int(starts[following]) if following < table.num_rows else (block + table.num_rows) * 8640
            began = time.process_time()
            live.push(piece)
            live.advance(utc(cti))
            results = live.results()
            spent += time.process_time() - began
            rows += results.num_rows
            if results.num_rows:
                lasts = integers(results["end"]) - integers(results["start"])
                alive += int(np.dot(integers(results["n"]), lasts))
        peaks.append(process.memory_info().rss / (1 << 20))
    began = time.process_time()
    live.close()
    results = live.results()
    spent += time.process_time() - began
    rows += results.num_rows
    alive += int(np.dot(integers(results["n"]), integers(results["end"]) - integers(results["start"])))
    if alive != events * HOUR:
        raise ValueError(f"The counts cover {alive} event-microseconds, not {events * HOUR}.")
    if events <= FULL and rows != (expected := query(points(events)).collect(device=device).num_rows):
        raise ValueError(f"There are {rows} results, not {expected}.")
    return {
        "workload": "live-W2",
        "batch": batch,
        "events": events,
        "cpu_s": round(spent, 2),
        "meps": round(events / spent / 1e6, 3),
        "results": rows,
        "rss_mib": [round(peak) for peak in peaks],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--events", type=int, default=FULL)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    print(json.dumps(measure(options.batch, options.events, options.device)))


if __name__ == "__main__":
    main()
