"""Workloads pushed into a running query in micro-batches; prints a line of JSON for each.

    python -m benchmarks.live                                              W2 over an hour, in batches of 1,000
    python -m benchmarks.live --workloads W2 as-of --keys 0 1000 --shape half --batches 1000 100000 --events 1000000

After each micro-batch the CTI goes to the start of the next one, and the results are taken. An answer is compared with
the batch's before its time is told.

"hour" is W2 over an hour instead of three minutes. Its events are made a block at a time, outside the clock, so that
there is no more in memory than a query needs. Each event counts for an hour, so the counts times their lifetimes add up
to so many hours; and up to ten million events there are as many results as a batch gives.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import psutil
import pyarrow as pa

import gpu_ops as g
from benchmarks.engines import INPUTS, ask_gpu_ops
from benchmarks.workloads import EVEN, FULL, WORKLOADS, Spread, checks, inputs, points
from gpu_ops.core.time import utc

BLOCK = 1_000_000
HOUR = 3_600_000_000
WARM = 10_000

Tables = Sequence[pa.Table]


def query(workload: str, events: Tables) -> g.Stream:
    """A workload as a stream; "hour": count and mean of the last hour, per key, at every change."""
    if workload != "hour":
        return ask_gpu_ops(workload, events)
    return g.events(events[0], start="t").by("k").sliding("1h").agg(n=g.count(), mean=g.mean("v"))


def blocks(workload: str, events: int, spread: Spread) -> Iterator[Tables]:
    """The inputs, a block of events at a time if the workload asks for no comparison of all."""
    if workload != "hour":
        yield inputs(workload, events, spread)
        return
    for first in range(0, events, BLOCK):
        yield [points(min(BLOCK, events - first), spread, first=first)]


def integers(column: pa.ChunkedArray) -> np.ndarray:
    """The integers behind a column without nulls."""
    return np.concatenate(
        [np.frombuffer(chunk.buffers()[1], np.int64)[chunk.offset :][: len(chunk)] for chunk in column.chunks]
    )


@dataclass
class Pushed:
    """A running query that is fed, and what it took.

    Attributes:
        live: The query.
        cpu: CPU seconds of this process.
        wall: Seconds.
        results: What it gave.
    """

    live: Any
    cpu: float = 0.0
    wall: float = 0.0
    results: list[pa.Table] = field(default_factory=list)

    def push(self, tables: Tables, batch: int) -> None:
        """Push inputs of equal length in batches of so many events together."""
        size, names = max(batch // len(tables), 1), INPUTS if len(tables) > 1 else (None,)
        named = dict(zip(names, tables, strict=True))
        starts = {name: integers(table.column(0)) for name, table in named.items()}
        for first in range(0, tables[0].num_rows, size):
            given = [
                (name, table.slice(first, size), utc(int(starts[name][min(first + size, table.num_rows - 1)])))
                for name, table in named.items()
            ]
            cpu, wall = time.process_time(), time.perf_counter()
            for name, piece, _ in given:
                self.live.push(piece, input=name)
            for name, _, cti in given:
                self.live.advance(cti, input=name)
            self.take(cpu, wall)

    def close(self) -> None:
        """End the input."""
        cpu, wall = time.process_time(), time.perf_counter()
        self.live.close()
        self.take(cpu, wall)

    def take(self, cpu: float, wall: float) -> None:
        """Take the results, and stop the clocks that began then."""
        self.results.append(self.live.results())
        self.cpu += time.process_time() - cpu
        self.wall += time.perf_counter() - wall


def measure(workload: str, spread: Spread, batch: int, events: int, device: str) -> dict[str, Any]:
    """Push all events; see the module's text.

    Raises:
        ValueError: The results are wrong.
    """
    # The end loads kernels of its own, or compiles them in a new checkout, which takes longer than thousands of steps.
    for warm in blocks(workload, WARM, spread):
        first = Pushed(query(workload, warm).start(device=device))
        first.push(warm, min(batch, WARM // 5))
        first.close()
    pushed: Pushed | None = None
    rows, alive, peaks = 0, 0, list[float]()
    process = psutil.Process()
    for tables in blocks(workload, events, spread):
        pushed = pushed or Pushed(query(workload, tables).start(device=device))
        pushed.push(tables, batch)
        peaks.append(process.memory_info().rss / (1 << 20))
        if workload == "hour":
            rows, alive = rows + sum(each.num_rows for each in pushed.results), alive + lasting(pushed.results)
            pushed.results.clear()
    assert pushed is not None
    pushed.close()
    rows, alive = rows + sum(each.num_rows for each in pushed.results), alive + lasting(pushed.results)
    if workload == "hour":
        if alive != events * HOUR:
            raise ValueError(f"The counts cover {alive} event-microseconds, not {events * HOUR}.")
        expected = query(workload, [points(events, spread)]).collect(device=device).num_rows if events <= FULL else rows
        if rows != expected:
            raise ValueError(f"There are {rows} results, not {expected}.")
    else:
        asked = WORKLOADS[workload]
        found = checks(asked, pa.concat_tables(pushed.results))
        wanted = checks(asked, query(workload, tables).collect(device=device))
        if not found.agrees(wanted):
            raise ValueError(f"{workload}, {spread.name} keys, batches of {batch}: {found}, not {wanted}.")
    return {
        "workload": f"live-{workload}",
        "keys": spread.name,
        "batch": batch,
        "events": events,
        "cpu_s": round(pushed.cpu, 3),
        "wall_s": round(pushed.wall, 3),
        "meps": round(events / pushed.cpu / 1e6, 3),
        "results": rows,
        "rss_mib": [round(peak) for peak in peaks],
    }


def lasting(results: Tables) -> int:
    """The sum of lifetimes times the column n; 0 without that column."""
    some = [each for each in results if each.num_rows and "n" in each.column_names]
    return sum(int(np.dot(integers(each["n"]), integers(each["end"]) - integers(each["start"]))) for each in some)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workloads", nargs="*", default=["hour"], choices=["hour", *WORKLOADS], metavar="WORKLOAD")
    parser.add_argument("--keys", nargs="*", type=int, default=[EVEN.keys], help="how many; 0 for no key")
    parser.add_argument("--shape", nargs="*", default=[EVEN.shape], choices=["even", "half"], help="half: on one key")
    parser.add_argument("--batches", nargs="*", type=int, default=[1000])
    parser.add_argument("--events", type=int, default=FULL)
    parser.add_argument("--repeats", type=int, default=1, help="so often each; the quickest counts")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    spreads = [Spread(keys, shape) for shape in options.shape for keys in options.keys if keys or shape == "even"]
    for workload, spread, batch in product(options.workloads, spreads, options.batches):
        runs = [measure(workload, spread, batch, options.events, options.device) for _ in range(options.repeats)]
        print(json.dumps(min(runs, key=lambda run: run["cpu_s"])), flush=True)


if __name__ == "__main__":
    main()
