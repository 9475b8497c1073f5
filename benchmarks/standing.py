"""Standing statements that differ in constants; prints a line of JSON for each number of them.

    python -m benchmarks.standing --work "P4, 1,000" P4c --batch 250000 10000

Statement j is `select * from Tick(symbol = j % symbols and price > c)`; all of them deliver into one table with a
column for the statement. They are deployed from single texts, and from a template and a frame of constants. Answers are
compared with those that another engine gave before times are told. "listeners" is the CPU time of the same with a
listener in Python for each statement, which counts its rows, over as many events as make some 100,000 rows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import time
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gpu_ops as g
from benchmarks.workloads import splitmix64
from gpu_ops import epl

_HEARD = 100_000


@dataclass(frozen=True)
class Work:
    """How many statements there are, over how many symbols and events.

    Attributes:
        rows: How many rows they deliver.
        price: The sum of their prices.
        goal: Million events per CPU second.
        esper: What Esper did elsewhere, on one thread, and how many CPU seconds it took to deploy; None if not known.
    """

    statements: int
    symbols: int
    events: int
    rows: int
    price: int
    goal: float
    esper: tuple[float, float | None]


WORKS = {
    "P4, 1,000": Work(1_000, 1_000, 1_000_000, 503_143, 333_915_787, 5, (2.1, 2.4)),
    "P4, 10,000": Work(10_000, 1_000, 1_000_000, 4_987_319, 3_323_423_326, 4, (0.07, 10.6)),
    "P4, 100,000": Work(100_000, 1_000, 50_000, 2_501_144, 1_664_925_852, 0.5, (0.0054, 277)),
    "P4c": Work(10_000, 10_000, 1_000_000, 498_922, 332_436_679, 5, (0.28, None)),
}
TYPES = {"Tick": {"symbol": "long", "price": "long"}}


def _numbers(seed: int, count: int, size: int) -> Any:
    return (splitmix64(seed, np.arange(count, dtype=np.uint64)) % np.uint64(size)).astype(np.int64)


def ticks(work: Work) -> pa.Table:
    """The events."""
    return pa.table({"symbol": _numbers(31, work.events, work.symbols), "price": _numbers(32, work.events, 1000)})


def constants(work: Work) -> pa.Table:
    """A row for each statement."""
    return pa.table({"s": np.arange(work.statements) % work.symbols, "c": _numbers(33, work.statements, 1000)})


def from_texts(runtime: epl.Runtime, rules: pa.Table) -> float:
    """CPU seconds to deploy a text for each statement."""
    texts = [
        f"select * from Tick(symbol = {s} and price > {c})" for s, c in zip(*rules.to_pydict().values(), strict=True)
    ]
    begun = time.process_time()
    for text in texts:
        runtime.deploy(text)
    return time.process_time() - begun


def from_frame(runtime: epl.Runtime, rules: pa.Table) -> float:
    """CPU seconds to deploy a template and a frame."""
    begun = time.process_time()
    runtime.deploy_each("select * from Tick(symbol = ?:s:int and price > ?:c:int)", rules)
    return time.process_time() - begun


def sent(runtime: epl.Runtime, events: pa.Table, batch: int) -> tuple[float, int, int]:
    """(CPU seconds, rows, the sum of their prices) of events that are sent in batches, and taken as one table each."""
    (group,) = runtime.groups
    group.deliveries()
    runtime.send("Tick", {"symbol": -1, "price": -1})  # what came is sorted
    cpu, rows, price = 0.0, 0, 0
    for first in range(0, len(events), batch):
        some = events.slice(first, batch)
        begun = time.process_time()
        runtime.send("Tick", some)
        made = group.deliveries()
        cpu += time.process_time() - begun
        rows, price = rows + len(made), price + int(pc.sum(made["price"]).as_py() or 0)
    return cpu, rows, price


def heard(runtime: epl.Runtime, events: pa.Table, batch: int) -> tuple[float, int]:
    """(CPU seconds, rows) with a listener for each statement."""
    rows = 0

    def listen(new: Any, old: Any, statement: epl.RunningStatement) -> None:
        nonlocal rows
        rows += len(new)

    for each in runtime.statements:
        each.listen(listen)
    begun = time.process_time()
    for first in range(0, len(events), batch):
        runtime.send("Tick", events.slice(first, batch))
    return time.process_time() - begun, rows


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """One number of statements; see the module's text.

    Raises:
        ValueError: An answer is wrong.
    """
    work = WORKS[name]
    events, rules = ticks(work), constants(work)
    found: dict[str, Any] = {"work": name, "events": work.events, "goal": work.goal, "esper": work.esper}
    for way in (from_texts, from_frame):
        runtime = epl.Runtime(TYPES, device=options.device)
        found[f"deploy_{way.__name__}_s"] = round(way(runtime, rules), 2)
        for batch in options.batch:
            runs = []
            for _ in range(options.repeats):
                cpu, *answer = sent(runtime, events, batch)
                if answer != [work.rows, work.price]:
                    raise ValueError(f"{name}: {answer}, not {[work.rows, work.price]}.")
                runs.append(cpu)
            found[f"meps_{way.__name__}_by_{batch}"] = round(work.events / statistics.median(runs) / 1e6, 3)
        found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        found["together"] = len(runtime.groups) == 1 and runtime.active_filters() == work.statements
    few = max(1, work.events * _HEARD // work.rows)
    cpu, rows = heard(runtime, events.slice(0, few), min(options.batch))
    found["listeners_us_per_row"] = round(cpu / max(rows, 1) * 1e6, 1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--work", nargs="*", default=list(WORKS), choices=list(WORKS), metavar="NAME")
    parser.add_argument("--batch", nargs="*", type=int, default=[250_000, 10_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    g.set_threads(1)
    pa.set_cpu_count(1)
    for name in options.work:
        print(json.dumps(measure(name, options)), flush=True)


if __name__ == "__main__":
    main()
