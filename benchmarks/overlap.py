"""What an event costs that is in 1, 10, 100 or 1,000 windows: to be the same within 1.5x for sums, 3x for quantiles.

    python -m benchmarks.overlap --events 1000000 --json FILE

Windows overlap more, and are not more: from one overlap to the next only their length differs, so that about as many
results come out (`KINDS` says of each kind how many). Overlaps are taken in turns, and the median of the turns counts,
in CPU seconds.

Nothing is timed before its answer is known to be right: a few hundred events are asked on a CPU, by the GPU's kernels
on NumPy and of a running query, and all three must give what a literal definition gives. At full size the sums of all
windows are compared with what each event adds to them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import operator
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import gpu_ops as g
from benchmarks.workloads import splitmix64
from gpu_ops.core.time import MAX_TIME, TIME_TYPE, utc

OVERLAPS = (1, 10, 100, 1000)
KEYS = 10
GAP = 100_000
"""From one event of a key to its next one, in microseconds and in the mean."""
HOP = 10 * GAP
SMALL = 300

Event = tuple[int, int, int, float]
Held = Iterator[tuple[int, int, int, list[Event]]]


@dataclass(frozen=True)
class Kind:
    """A kind of window with a knob for how many hold an event.

    Attributes:
        question: In words; n is how many windows hold an event.
        ask: The windows, of a keyed stream and n.
        literal: The windows that hold any event, of all events and n: start, end, key, events, by key and start.
        total: What the sums of v times the windows' lifetimes add up to, of all events and n; what never ends left out.
    """

    question: str
    ask: Callable[[g.Stream, int], g.Windowed | g.DataWindowed]
    literal: Callable[[list[Event], int], Held]
    total: Callable[[pa.Table, int], int]


@dataclass(frozen=True)
class Asked:
    """An aggregate, by its definition too, and by how much the dearest overlap may cost more than the cheapest."""

    aggregate: g.Aggregate
    literal: Callable[[list[Event]], Any]
    limit: float


def events(count: int) -> pa.Table:
    """Points in time order, from hashes of their numbers; no two of a key have the same time."""
    number = np.arange(count, dtype=np.uint64)
    step = np.uint64(GAP // KEYS)
    start = number * step + splitmix64(1, number) % step
    value = splitmix64(3, number) % np.uint64(1000)
    # From 2**-20 to 2**20, of both signs: a running sum of doubles would be off.
    share = (splitmix64(4, number) >> np.uint64(11)).astype(np.float64) / 2.0**53 - 0.5
    real = np.ldexp(share, (splitmix64(5, number) % np.uint64(40)).astype(np.int32) - 20)
    columns = {"t": pa.array(start.astype(np.int64)).view(TIME_TYPE), "k": splitmix64(2, number) % np.uint64(KEYS)}
    return pa.table({**columns, "v": value.astype(np.int32), "f": real}).cast(
        pa.schema([("t", TIME_TYPE), ("k", pa.int32()), ("v", pa.int32()), ("f", pa.float64())])
    )


def query(kind: str, asked: str, given: pa.Table, overlap: int) -> g.Stream:
    """A question with its overlap, as a stream."""
    return KINDS[kind].ask(g.events(given, start="t").by("k"), overlap).agg(x=ASKED[asked].aggregate)


# What windows hold, by their definitions


def _by_key(given: list[Event]) -> Iterator[tuple[int, list[Event]]]:
    for key in sorted({event[1] for event in given}):
        yield key, [event for event in given if event[1] == key]


def _hopping(given: list[Event], overlap: int) -> Held:
    size = overlap * HOP
    for key, own in _by_key(given):
        for start in range(own[0][0] // HOP * HOP - size + HOP, own[-1][0] + 1, HOP):
            if held := [event for event in own if start <= event[0] < start + size]:
                yield start, start + size, key, held


def _sliding(given: list[Event], overlap: int) -> Held:
    span = overlap * GAP
    for key, own in _by_key(given):
        times = sorted({time for event in own for time in (event[0], event[0] + span)})
        for start, end in itertools.pairwise(times):
            if held := [event for event in own if event[0] <= start < event[0] + span]:
                yield start, end, key, held


def _last(given: list[Event], overlap: int) -> Held:
    for key, own in _by_key(given):
        for at, event in enumerate(own):
            end = own[at + 1][0] if at + 1 < len(own) else MAX_TIME
            yield event[0], end, key, own[max(0, at + 1 - overlap) : at + 1]


def _integers(column: pa.ChunkedArray) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers: np.ndarray[Any, np.dtype[np.int64]] = column.cast(pa.int64()).to_numpy()
    return numbers


def _last_total(given: pa.Table, overlap: int) -> int:
    """Each event counts from its start until n later ones of its key have come; what never ends is left out."""
    total = 0
    start, key, value = (_integers(given[name]) for name in ("t", "k", "v"))
    for each in range(KEYS):
        own, worth = start[key == each], value[key == each]
        if len(own):
            leaves = np.full(len(own), own[-1])
            leaves[: max(0, len(own) - overlap)] = own[overlap:]
            total += int(np.dot(leaves - own, worth))
    return total


KINDS = {
    "hopping": Kind(
        "hopping(n s, every=1 s): each window that holds any of some 10 events a second; n - 1 more for each key",
        lambda stream, n: stream.hopping(timedelta(microseconds=n * HOP), timedelta(microseconds=HOP)),
        _hopping,
        lambda given, n: int(_integers(given["v"]).sum()) * n * n * HOP,
    ),
    "sliding": Kind(
        "sliding(n / 10 s): whenever an event comes or goes, at up to two times for each",
        lambda stream, n: stream.sliding(timedelta(microseconds=n * GAP)),
        _sliding,
        lambda given, n: int(_integers(given["v"]).sum()) * n * GAP,
    ),
    "last_span": Kind(
        "last_span(n / 10 s): the same, as a data window",
        lambda stream, n: stream.last_span(timedelta(microseconds=n * GAP)),
        _sliding,
        lambda given, n: int(_integers(given["v"]).sum()) * n * GAP,
    ),
    "last": Kind("last(n): whenever an event comes", lambda stream, n: stream.last(n), _last, _last_total),
}


def _values(held: Iterable[Event]) -> list[int]:
    return [event[2] for event in held]


def _reals(held: Iterable[Event]) -> list[float]:
    return [event[3] for event in held]


ASKED = {
    "sum": Asked(g.sum("v"), lambda held: sum(_values(held)), 1.5),
    "sum of floats": Asked(g.sum("f"), lambda held: math.fsum(_reals(held)), 1.5),
    "mean of floats": Asked(g.mean("f"), lambda held: math.fsum(_reals(held)) / len(held), 1.5),
    "median": Asked(g.median("v"), lambda held: statistics.median(_values(held)), 3),
    "ninth decile of floats": Asked(
        g.quantile("f", 0.9, interpolation="discrete"),
        lambda held: sorted(_reals(held))[-(-len(held) * 9 // 10) - 1],
        3,
    ),
    "distinct values": Asked(g.count_distinct("v"), lambda held: len(set(_values(held))), 3),
    "mode": Asked(g.mode("v"), lambda held: min(_values(held), key=lambda v: (-_values(held).count(v), v)), 3),
    "three greatest": Asked(g.top("v", 3), lambda held: sorted(_values(held), reverse=True)[:3], 3),
}


# That answers are right


def listed(given: pa.Table) -> list[Event]:
    """Events as literal definitions take them."""
    columns = [given["t"].cast(pa.int64()), *(given[name] for name in ("k", "v", "f"))]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def rows(answer: pa.Table) -> list[tuple[int, int, int, Any]]:
    """Results as literal definitions give them, by key and start."""
    columns = [answer["start"].cast(pa.int64()), answer["end"].cast(pa.int64()), answer["k"], answer["x"]]
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True), key=lambda row: (row[2], row[0]))


def check_small(kind: str, asked: str, overlap: int) -> None:
    """That a few hundred events get the literal answer from every form of a query.

    Raises:
        ValueError: They do not.
    """
    given = events(SMALL)
    literal = [
        (start, end, key, ASKED[asked].literal(held))
        for start, end, key, held in KINDS[kind].literal(listed(given), overlap)
    ]
    stream = query(kind, asked, given, overlap)
    live = stream.start(device="cpu")
    for first in range(0, SMALL, 50):
        live.push(given.slice(first, 50))
        live.advance(utc((first + 50) * (GAP // KEYS)))
    live.close()
    found = {"cpu": stream.collect(device="cpu"), "array": stream.collect(device="array"), "live": live.results()}
    for form, answer in found.items():
        if rows(answer) != literal:
            raise ValueError(f"{asked} over {kind}, {overlap} windows for an event: {form} gives something else.")


def check_full(kind: str, given: pa.Table, overlap: int) -> int:
    """That sums add up; how many results there are.

    Raises:
        ValueError: They do not.
    """
    answer = query(kind, "sum", given, overlap).collect(device="cpu")
    lasts = np.where(
        _integers(answer["end"]) == MAX_TIME, 0, _integers(answer["end"]) - _integers(answer["start"])
    ).tolist()
    total = sum(map(operator.mul, answer["x"].to_pylist(), lasts))
    if total != KINDS[kind].total(given, overlap):
        raise ValueError(f"The sums over {kind} do not add up with {overlap} windows for an event: {total}.")
    made: int = answer.num_rows
    return made


# What it takes


def measure(kind: str, asked: str, given: pa.Table, repeats: int) -> list[float]:
    """CPU nanoseconds per event of each overlap: the median of calls that are made in turns."""
    streams = [query(kind, asked, given, overlap) for overlap in OVERLAPS]
    spent: list[list[float]] = [[] for _ in OVERLAPS]
    for _ in range(repeats):
        for stream, costs in zip(streams, spent, strict=True):
            began = time.process_time()
            stream.collect(device="cpu")
            costs.append((time.process_time() - began) / given.num_rows * 1e9)
    return [statistics.median(costs) for costs in spent]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=5, help="calls of which the median counts")
    parser.add_argument("--kinds", nargs="*", choices=KINDS, default=list(KINDS))
    parser.add_argument("--asked", nargs="*", choices=ASKED, default=list(ASKED))
    parser.add_argument("--json", type=Path, help="a file to add a line of JSON per kind and aggregate to")
    options = parser.parse_args()
    console = Console()
    # A log is not read through a keyhole.
    console.width = max(console.width, 132)
    given = events(options.events)
    for kind in options.kinds:
        with console.status(f"{kind}: checking"):
            for overlap in OVERLAPS:
                for asked in options.asked:
                    check_small(kind, asked, overlap)
            results = [check_full(kind, given, overlap) for overlap in OVERLAPS]
        table = Table(
            title=KINDS[kind].question,
            title_justify="left",
            caption_justify="left",
            caption=f"CPU ns per event, {options.events:,} events, {KEYS} keys, median of {options.repeats}",
        )
        table.add_column("windows for an event")
        for overlap in OVERLAPS:
            table.add_column(f"{overlap:,}", justify="right")
        table.add_column("dearest / cheapest", justify="right")
        table.add_column("at most", justify="right")
        table.add_row("results, M", *(f"{each / 1e6:.2f}" for each in results), f"{max(results) / min(results):.2f}x")
        table.add_section()
        for asked in options.asked:
            with console.status(f"{kind}: {asked}"):
                costs = measure(kind, asked, given, options.repeats)
            ratio, limit = max(costs) / min(costs), ASKED[asked].limit
            shown = (*(f"{cost:.1f}" for cost in costs), f"{ratio:.2f}x", f"{limit:g}x")
            table.add_row(asked, *shown, style="" if ratio <= limit else "bold red")
            if options.json:
                figures = {"kind": kind, "asked": asked, "events": options.events, "cpu_ns": costs, "results": results}
                with options.json.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(figures) + "\n")
        console.print(table)


if __name__ == "__main__":
    main()
