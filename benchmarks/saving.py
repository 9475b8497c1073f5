"""What a checkpoint in a folder costs after a step, by how many rows are alive; prints a line of JSON for each.

    python -m benchmarks.saving                                   count and sum of 100,000 and of 10,000,000 rows
    python -m benchmarks.saving --query clip --alive 1000000 --device array --steps 100
    python -m benchmarks.saving --keys 10000000                   as many keys as rows: most groups rest
    python -m benchmarks.saving --query starts --keys 10000000    as many open starts of a pattern, nearly

Each step pushes 10,000 events by 1,000 keys (or as many as asked for), moves the CTI past them, and takes the results.
Times are seconds of CPU.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import gpu_ops as g
from gpu_ops.core.time import utc

STEP = 10_000
BLOCK = 500_000
FAR = 1 << 50


def _source(name: str) -> g.Stream:
    return g.events(_events(0, 0), start="at", end="until", unit="us", name=name)


QUERIES: dict[str, Callable[[], g.Stream]] = {
    "sums": lambda: _source("left").by("k").snapshot().agg(n=g.count(), sum=g.sum("v")),
    "clip": lambda: _source("left").clip_by(_source("right"), on="k"),
    "starts": lambda: g.pattern(
        g.every("a", each := g.arrivals(_source("left"))) >> g.one("b", each, on="k")
    ).deliveries("a.k", "b.v"),
    "each": lambda: _source("left").by("k").last_span("1000d").each(n=g.count(), sum=g.sum("v")),
}


def _events(first: int, count: int, keys_of_all: int = 1000) -> pa.Table:
    """Events that outlive all steps."""
    chance = np.random.default_rng(first)
    keys, values = chance.integers(0, keys_of_all, count), chance.integers(0, 100, count)
    return pa.table({"at": np.arange(first, first + count), "until": np.full(count, FAR), "k": keys, "v": values})


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def measured(query: str, alive: int, device: str, steps: int, keys: int) -> dict[str, Any]:
    """The cost of steps, of the checkpoints after them, and of a restore."""
    stream = QUERIES[query]()
    live = stream.start(device=device)

    def push(first: int, count: int) -> None:
        live.push(_events(first, count, keys), input="left")
        for name in live.input_ctis():
            live.advance(utc(first + count), input=name)
        live.results()

    for first in range(0, alive, BLOCK):
        push(first, min(BLOCK, alive - first))
    with tempfile.TemporaryDirectory() as folder:
        whole = _seconds(lambda: live.save(folder))
        pushed, saved = [], []
        for first in range(alive, alive + steps * STEP, STEP):
            pushed.append(_seconds(lambda first=first: push(first, STEP)))  # type: ignore[misc]
            saved.append(_seconds(lambda: live.save(folder)))
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        restored = _seconds(lambda: g.restore(folder, stream, device=device))
    return {
        "query": query,
        "alive": alive,
        "keys": keys,
        "device": device,
        "first": whole,
        "bytes": size,
        "restore": restored,
        "step": statistics.median(pushed),
        "save": statistics.median(saved),
        "save_mean": statistics.mean(saved),
    }


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--query", choices=QUERIES, nargs="+", default=["sums"])
    parser.add_argument("--alive", type=int, nargs="+", default=[100_000, 10_000_000])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--keys", type=int, default=1000)
    asked = parser.parse_args()
    for query in asked.query:
        for alive in asked.alive:
            print(json.dumps(measured(query, alive, asked.device, asked.steps, asked.keys)), flush=True)


if __name__ == "__main__":
    main()
