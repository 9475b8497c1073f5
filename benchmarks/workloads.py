"""The workloads: their input, made anew each time from a hash of the row's number, and what their answers must be.

No file is read and no random state is kept, so every engine on every machine is asked about the same events. At any
size the events are as dense as at full size: fewer events are a shorter stretch of time, and each window holds as much.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.time import TIME_TYPE

FULL = 10_000_000
"""The number of events that the answers in `WORKLOADS` belong to: one day of them."""

EVENTS_PER_CHUNK = 1 << 18  # Temporaries stay small, so that what a run takes at its peak is the engine's doing.

UInts = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Checks:
    """What is compared of an answer. All sums are exact but the last.

    Attributes:
        rows: Results.
        duration: Sum of their lifetimes, in ticks.
        value_duration: Sum of value times lifetime.
        mean_total: Sum of the means, where there are any; double arithmetic, so compared to 1e-9 of it.
    """

    rows: int
    duration: int
    value_duration: int
    mean_total: float | None = None

    def agrees(self, other: Checks) -> bool:
        if (self.mean_total is None) != (other.mean_total is None):
            return False
        close = bool(np.isclose(self.mean_total or 0, other.mean_total or 0, rtol=1e-9, atol=0))
        exact = (self.rows, self.duration, self.value_duration)
        return close and exact == (other.rows, other.duration, other.value_duration)


@dataclass(frozen=True)
class Workload:
    """A question that engines are timed on.

    Attributes:
        question: In words; lifetimes are those of the input unless it says otherwise.
        value: The column of the answer that goes into `Checks.value_duration`.
        answer: The checks at `FULL` events.
        target: Million events per CPU second that gpu_ops is to reach.
        best_peers: The peers that came out first, or near it, at `FULL` events.
    """

    question: str
    value: str
    answer: Checks
    target: float
    best_peers: tuple[str, ...]


WORKLOADS = {
    "W1": Workload(
        "of the events with v < 500, k and v * 2 + 1",
        "value",
        Checks(4_997_422, 4_997_422, 2_499_247_414),
        300,
        ("polars", "polars-streaming"),
    ),
    "W2": Workload(
        "per k, whenever it changes: count and mean of v over the last 180 s",
        "n",
        Checks(19_998_997, 86_562_938_209_340, 1_800_000_000_000_000, 9_991_757_745.3665),
        15,
        ("duckdb", "polars-streaming"),
    ),
    "W3": Workload(
        "per k and every 5 s: sum of v over the last 60 s",
        "total",
        Checks(17_271_717, 86_358_585_000_000, 299_784_520_260_000_000),
        20,
        ("polars", "duckdb"),
    ),
    "W4": Workload(
        "every 60 s: count",
        "n",
        Checks(1_440, 86_400_000_000, 600_000_000_000_000),
        200,
        ("polars",),
    ),
    "W4b": Workload(
        "per k and every 60 s: count",
        "n",
        Checks(1_438_592, 86_315_520_000_000, 600_000_000_000_000),
        80,
        ("duckdb", "polars-streaming"),
    ),
    "W6": Workload(
        "per k, whenever a window of W2 changes: maximum of v in it",
        "best",
        Checks(19_998_997, 86_562_938_209_340, 82_330_158_254_711_526),
        12,
        ("polars", "duckdb"),
    ),
}


def splitmix64(seed: int, index: UInts) -> UInts:
    """The (index + 1)-th output of the SplitMix64 generator that starts from `seed`."""
    mixed = np.uint64(seed) + (index + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


def _chunks(events: int) -> Iterator[tuple[slice, UInts]]:
    for first in range(0, events, EVENTS_PER_CHUNK):
        rows = slice(first, min(first + EVENTS_PER_CHUNK, events))
        yield rows, np.arange(rows.start, rows.stop, dtype=np.uint64)


def points(events: int, keys: int = 1000, *, first: int = 0) -> pa.Table:
    """P: point events in time order, one each 8640 us on average, from the event number ``first`` on.

    Returns:
        t (timestamp[us, UTC]), k and v (int32), 0 <= k < keys, 0 <= v < 1000; the arrays are NumPy's, in one chunk.
    """
    time = np.empty(events, np.int64)
    key, value = np.empty(events, np.int32), np.empty(events, np.int32)
    for rows, number in _chunks(events):
        index = number + np.uint64(first)
        time[rows] = index * np.uint64(8640) + splitmix64(1, index) % np.uint64(8640)
        key[rows] = splitmix64(2, index) % np.uint64(keys)
        value[rows] = splitmix64(3, index) % np.uint64(1000)
    return pa.table({"t": _timestamps(time), "k": pa.array(key), "v": pa.array(value)})


def intervals(events: int, seed: int) -> pa.Table:
    """A (seed 10) and B (seed 20): intervals of 36 to 180 s in start order, one each 43 200 us on average.

    Returns:
        start and end (timestamp[us, UTC]), k and v (int32, below 1000).
    """
    start, end = np.empty(events, np.int64), np.empty(events, np.int64)
    key, value = np.empty(events, np.int32), np.empty(events, np.int32)
    for rows, index in _chunks(events):
        start[rows] = index * np.uint64(43_200) + splitmix64(seed, index) % np.uint64(43_200)
        end[rows] = splitmix64(seed + 1, index) % np.uint64(144_000_000)
        end[rows] += start[rows] + 36_000_000
        key[rows] = splitmix64(seed + 2, index) % np.uint64(1000)
        value[rows] = splitmix64(seed + 3, index) % np.uint64(1000)
    return pa.table({"start": _timestamps(start), "end": _timestamps(end), "k": pa.array(key), "v": pa.array(value)})


def _timestamps(ticks: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(ticks).view(TIME_TYPE)


def text_keys(table: pa.Table, keys: int) -> pa.Table:
    """The same events with k as text of ten characters."""
    names = pa.array([f"key-{number:06}" for number in range(keys)])
    return table.set_column(1, "k", names.take(table["k"]))


def checks(workload: Workload, answer: pa.Table) -> Checks:
    """What is compared of an answer with columns start, end and the workload's value."""
    duration = _integers(answer["end"]) - _integers(answer["start"])
    # Below 2**63 for every workload up to 100 million events: the values are below 1000, and most windows overlap none.
    value_duration = int(np.dot(_integers(answer[workload.value]), duration))
    means = float(answer["mean"].to_numpy().sum()) if "mean" in answer.column_names else None
    return Checks(answer.num_rows, int(duration.sum()), value_duration, means)


def _integers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    numbers: npt.NDArray[np.int64] = column.cast(pa.int64()).to_numpy()
    return numbers
