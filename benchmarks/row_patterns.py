"""Row patterns over a stream of bids, in EPL and by verbs, events pushed in batches; prints a line of JSON for each.

    python -m benchmarks.row_patterns --events 1000000 --batch 250000 --repeats 3

P3a reads the row before (`B.v < prev(B.v)`), P3b the rows alone. What a million bids over a thousand keys give is
compared with the figures of another engine before any time is told. "each": the clock moves before each bid; "stays":
it stays, as where another engine is sent events alone.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gpu_ops as g
from benchmarks.statements import bids
from gpu_ops import epl

_TEXT = """select * from Bid match_recognize (
    partition by k measures A.v as av, last(B.v) as bv, C.v as cv, count(B.v) as nb pattern (A B+ C) define {})"""
_COLUMNS = ("av", "bv", "cv", "nb")


@dataclass(frozen=True)
class Pattern:
    """A row pattern.

    Attributes:
        text: Its conditions in EPL.
        rows: Its rows by verbs.
        known: How many matches a million bids have, the sums of the columns, and how many rows are in matches.
        goal: Million events per CPU second.
        esper: What Esper did elsewhere, on one thread.
    """

    text: str
    rows: tuple[g.PatternRow, g.PatternRow, g.PatternRow]
    known: tuple[int, ...]
    goal: float
    esper: float


_V = g.col("v")
PATTERNS = {
    "P3a": Pattern(
        "B as B.v < prev(B.v), C as C.v > prev(C.v)",
        (g.row("A"), g.row("B", g.previous("v") > _V), g.row("C", g.previous("v") < _V)),
        (237_737, 170_719_317, 57_535_437, 147_718_827, 825_703),
        20,
        2.9,
    ),
    "P3b": Pattern(
        "A as A.v < 300, B as B.v >= 300 and B.v < 700, C as C.v >= 700",
        (g.row("A", _V < 300), g.row("B", (_V >= 300) & (_V < 700)), g.row("C", _V >= 700)),
        (59_728, 8_928_639, 29_838_475, 50_746_064, 219_009),
        30,
        5.9,
    ),
}


def _summed(rows: Any) -> Any:
    sums = [int(pc.sum(rows[name]).as_py() or 0) for name in _COLUMNS]
    return np.array([len(rows), *sums[:3], sums[3] + 2 * len(rows)], np.int64)


def in_epl(pattern: Pattern, events: pa.Table, at: Any, batch: int, device: str) -> tuple[float, tuple[int, ...]]:
    """(CPU seconds, the answer) of a runtime; the clock stays where times are None."""
    runtime = epl.Runtime({"Bid": {"t": "long", "k": "long", "v": "long"}}, device=device)
    *_, statement = runtime.deploy(_TEXT.format(pattern.text))
    statement.deliveries()
    cpu, found = 0.0, np.zeros(5, np.int64)
    for first in range(0, len(events), batch):
        some = events.slice(first, batch)
        begun = time.process_time()
        runtime.send("Bid", some, **({} if at is None else {"at": at[first : first + batch]}))
        rows = statement.deliveries()
        cpu += time.process_time() - begun
        found += _summed(rows)
    return cpu, tuple(found.tolist())


def by_verbs(pattern: Pattern, events: pa.Table, batch: int, device: str) -> tuple[float, tuple[int, ...]]:
    """(CPU seconds, the answer) of a running query."""
    a, b, c = pattern.rows
    stream = g.arrivals(g.events(events.slice(0, 0), start="t", unit="us"), order="n").by("k")
    matched = stream.match(a + b.repeat() + c, {"av": a["v"], "bv": b["v"], "cv": c["v"], "nb": b.count()})
    live = matched.deliveries(*_COLUMNS).start(device=device)
    cpu, found = 0.0, np.zeros(5, np.int64)
    for first in range(0, len(events), batch):
        some = events.slice(first, batch)
        begun = time.process_time()
        live.push(some)
        if first + batch >= len(events):
            live.close()
        else:
            live.advance(np.datetime64(int(events["t"][first + batch].as_py()), "us"))
        rows = live.results()
        cpu += time.process_time() - begun
        found += _summed(rows)
    return cpu, tuple(found.tolist())


def measure(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """One pattern in all ways.

    Raises:
        ValueError: An answer is wrong.
    """
    pattern, events = PATTERNS[name], bids(options.events, options.keys)
    at = events["t"].to_numpy()
    timed = events.append_column("n", pa.array(np.arange(len(events))))
    ways: dict[str, Callable[[], tuple[float, tuple[int, ...]]]] = {
        "EPL, stays": lambda: in_epl(pattern, events, None, options.batch, options.device),
        "EPL, each": lambda: in_epl(pattern, events, at, options.batch, options.device),
        "verbs, each": lambda: by_verbs(pattern, timed, options.batch, options.device),
    }
    made = []
    wanted = pattern.known if (options.events, options.keys) == (1_000_000, 1000) else None
    for way, run in ways.items():
        _, found = run()  # loads what is loaded late
        wanted = wanted or found
        if found != wanted:
            raise ValueError(f"{name}, {way}: {found}, not {wanted}.")
        cpu = statistics.median(run()[0] for _ in range(options.repeats))
        rate = round(options.events / cpu / 1e6, 2)
        made.append({"pattern": name, "way": way, "cpu_s": round(cpu, 3), "meps": rate, "goal": pattern.goal})
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--patterns", nargs="*", default=list(PATTERNS), choices=list(PATTERNS), metavar="NAME")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=250_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    g.set_threads(1)
    for name in options.patterns:
        for line in measure(name, options):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
