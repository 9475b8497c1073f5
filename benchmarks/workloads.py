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

from gpu_ops.core.time import TIME_TYPE

FULL = 10_000_000
"""The number of events that most answers in `WORKLOADS` belong to: one day of them."""

DAY = 86_400_000_000

EVENTS_PER_CHUNK = 1 << 18  # Temporaries stay small, so that what a run takes at its peak is the engine's doing.

UInts = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Checks:
    """What is compared of an answer. All sums are exact but the last.

    Attributes:
        rows: Results.
        duration: Sum of their lifetimes, in ticks.
        value_duration: Sum of value times lifetime.
        mean_total: Sum of the means or medians, where there are any; double arithmetic, so compared to 1e-9 of it.
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
class Spread:
    """How events are spread over keys.

    Attributes:
        keys: How many; if 0, events have no column k, and the question has no key.
        shape: "even"; or "half" or "most": half or four fifths of all events have key 0, and the others are spread over
            all keys.
    """

    keys: int = 1000
    shape: str = "even"

    @property
    def name(self) -> str:
        """As tables name it."""
        return f"{self.shape} on one" if self.shape in HOT else f"{self.keys:,}" if self.keys else "none"

    @property
    def thousandths(self) -> int:
        """Lifetimes times so many thousandths give an event of the busiest key as many partners as of 1,000 keys."""
        return 2 if self.shape in HOT else max(self.keys, 1)


HOT = {"half": np.uint64(1 << 63), "most": np.uint64((1 << 66) // 5)}
"""The hashes below which events have key 0, by the shape."""

EVEN = Spread()

SPREADS = {
    spread.name: spread
    for spread in (
        Spread(0),
        Spread(1),
        Spread(10),
        EVEN,
        Spread(100_000),
        Spread(1_000_000),
        Spread(1000, "half"),
    )
}


@dataclass(frozen=True)
class Workload:
    """A question that engines are timed on.

    Attributes:
        question: In words; lifetimes are those of the input unless it says otherwise.
        values: The columns of the answer whose sum goes into `Checks.value_duration`.
        answer: The checks at ``full`` events.
        target: Million events per CPU second that gpu_ops is to reach.
        best_peers: The peers that came out first, or near it, at ``full`` events.
        full: The number of events that the answer belongs to, of all inputs together.
        spread: Over keys, if that is part of the question.
    """

    question: str
    values: tuple[str, ...]
    answer: Checks
    target: float
    best_peers: tuple[str, ...]
    full: int = FULL
    spread: Spread | None = None


WORKLOADS = {
    "W1": Workload(
        "of the events with v < 500, k and v * 2 + 1",
        ("value",),
        Checks(4_997_422, 4_997_422, 2_499_247_414),
        300,
        ("polars", "polars-streaming"),
    ),
    "W2": Workload(
        "per k, whenever it changes: count and mean of v over the last 180 s",
        ("n",),
        Checks(19_998_997, 86_562_938_209_340, 1_800_000_000_000_000, 9_991_757_745.3665),
        15,
        ("duckdb", "polars-streaming"),
    ),
    "W3": Workload(
        "per k and every 5 s: sum of v over the last 60 s",
        ("total",),
        Checks(17_271_717, 86_358_585_000_000, 299_784_520_260_000_000),
        20,
        ("polars", "duckdb"),
    ),
    "W4": Workload(
        "every 60 s: count",
        ("n",),
        Checks(1_440, 86_400_000_000, 600_000_000_000_000),
        200,
        ("polars",),
    ),
    "W4b": Workload(
        "per k and every 60 s: count",
        ("n",),
        Checks(1_438_592, 86_315_520_000_000, 600_000_000_000_000),
        80,
        ("duckdb", "polars-streaming"),
    ),
    "W6": Workload(
        "per k, whenever a window of W2 changes: maximum of v in it",
        ("best",),
        Checks(19_998_997, 86_562_938_209_340, 82_330_158_254_711_526),
        12,
        ("polars", "duckdb"),
    ),
    "W7": Workload(
        "per k, whenever a window of W2 changes: median of v in it",
        (),
        Checks(19_998_997, 86_562_938_209_340, 0, 9_992_472_069.5),
        3,
        ("polars",),
    ),
    "W8": Workload(
        "per k, whenever a window of W2 changes: how many different v are in it",
        ("n",),
        Checks(19_998_997, 86_562_938_209_340, 1_781_426_473_287_544),
        5,
        ("duckdb",),
    ),
    "last": Workload(
        "per k, whenever an event comes: mean of v over the last 100",
        (),
        Checks(10_000_000, 172_782_938_209_340, 0, 4_996_281_620.9165),
        15,
        ("polars", "duckdb"),
    ),
    "session": Workload(
        "per k: count of each session, which 10 s without an event end",
        ("n",),
        Checks(3_141_504, 59_254_829_758_121, 277_178_195_535_844),
        15,
        ("polars", "duckdb"),
    ),
    "W5": Workload(
        "A and B joined on k where their lifetimes overlap: v of both",
        ("v", "v_right"),
        Checks(9_995_130, 539_875_002_318_321, 539_482_209_216_004_305),
        15,
        ("polars-streaming", "duckdb"),
        4_000_000,
    ),
    "W5-keys": Workload(
        "W5 with 4 keys and lifetimes a 250th as long",
        ("v", "v_right"),
        Checks(10_000_350, 2_159_900_188_433, 2_157_570_997_516_624),
        7.5,
        ("polars-streaming", "duckdb"),
        4_000_000,
        Spread(4),
    ),
    "W5-long": Workload(
        "W5 where one interval in a thousand is a day long",
        ("v", "v_right"),
        Checks(13_976_887, 1_202_551_778_527_984, 1_205_622_962_023_934_356),
        6,
        ("polars-streaming", "duckdb"),
        4_000_000,
    ),
    "as-of": Workload(
        "each point with v of the last one of another stream that has the same k",
        ("v", "v_right"),
        Checks(10_000_000, 10_000_000, 9_988_949_814),
        15,
        ("polars", "duckdb"),
        20_000_000,
    ),
    "union": Workload(
        "the points of two streams",
        ("v",),
        Checks(10_000_000, 10_000_000, 4_995_949_891),
        200,
        ("polars",),
        10_000_000,
    ),
}


def inputs(workload: str, events: int, spread: Spread = EVEN) -> tuple[pa.Table, ...]:
    """What a workload is asked of: so many events in all, spread over keys."""
    spread = WORKLOADS[workload].spread or spread
    match workload:
        case "W5" | "W5-keys":
            return intervals(events // 2, 10, spread), intervals(events // 2, 20, spread)
        case "W5-long":
            return intervals(events // 2, 10, days=1000), intervals(events // 2, 20, days=1000)
        case "as-of" | "union":
            return points(events // 2, spread), points(events // 2, spread, seed=31)
        case _:
            return (points(events, spread),)


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


def points(events: int, spread: Spread = EVEN, *, first: int = 0, seed: int = 1) -> pa.Table:
    """P: point events in time order, one each 8640 us on average, from the event number ``first`` on.

    Returns:
        t (timestamp[us, UTC]), k and v (int32), 0 <= k < keys, 0 <= v < 1000; the arrays are NumPy's, in one chunk.
    """
    time = np.empty(events, np.int64)
    key, value = np.empty(events if spread.keys else 0, np.int32), np.empty(events, np.int32)
    for rows, number in _chunks(events):
        index = number + np.uint64(first)
        time[rows] = index * np.uint64(8640) + splitmix64(seed, index) % np.uint64(8640)
        if spread.keys:
            key[rows] = _keys(spread, splitmix64(seed + 1, index))
        value[rows] = splitmix64(seed + 2, index) % np.uint64(1000)
    return pa.table({"t": _timestamps(time), **({"k": key} if spread.keys else {}), "v": pa.array(value)})


def intervals(events: int, seed: int, spread: Spread = EVEN, *, days: int = 0) -> pa.Table:
    """A (seed 10) and B (seed 20): intervals in start order, one each 43 200 us on average.

    Args:
        events: How many.
        seed: Of its hashes.
        spread: Over keys; with 1,000 keys intervals last for 36 to 180 s, and with fewer for so much less.
        days: One interval in so many lasts for a day; none if 0.

    Returns:
        start and end (timestamp[us, UTC]), k and v (int32), 0 <= k < keys, 0 <= v < 1000.
    """
    start, end = np.empty(events, np.int64), np.empty(events, np.int64)
    key, value = np.empty(events if spread.keys else 0, np.int32), np.empty(events, np.int32)
    for rows, index in _chunks(events):
        start[rows] = index * np.uint64(43_200) + splitmix64(seed, index) % np.uint64(43_200)
        lasts = splitmix64(seed + 1, index) % np.uint64(144_000_000) + np.uint64(36_000_000)
        lasts = lasts * np.uint64(spread.thousandths) // np.uint64(1000)
        if days:
            lasts[splitmix64(seed + 4, index) % np.uint64(days) == 0] = DAY
        end[rows] = start[rows] + lasts.astype(np.int64)
        if spread.keys:
            key[rows] = _keys(spread, splitmix64(seed + 2, index))
        value[rows] = splitmix64(seed + 3, index) % np.uint64(1000)
    keys = {"k": key} if spread.keys else {}
    return pa.table({"start": _timestamps(start), "end": _timestamps(end), **keys, "v": pa.array(value)})


def _keys(spread: Spread, hashes: UInts) -> UInts:
    """Keys of hashes: ``even`` takes what is left by a division, others give those below a part of all to key 0."""
    even = hashes % np.uint64(spread.keys)
    return np.where(hashes < HOT[spread.shape], np.uint64(0), even) if spread.shape in HOT else even


def _timestamps(ticks: npt.NDArray[np.int64]) -> pa.Array:
    return pa.array(ticks).view(TIME_TYPE)


def text_keys(table: pa.Table, keys: int) -> pa.Table:
    """The same events with k as text of ten characters."""
    names = pa.array([f"key-{number:06}" for number in range(keys)])
    return table.set_column(1, "k", names.take(table["k"]))


def checks(workload: Workload, answer: pa.Table) -> Checks:
    """What is compared of an answer with columns start, end and the workload's values."""
    duration = _integers(answer["end"]) - _integers(answer["start"])
    # Durations in two parts, so that no sum wraps around, of a million days and values of thousands for instance.
    parts = [(duration >> 20, 1 << 20), (duration & (1 << 20) - 1, 1)]
    columns = [_integers(answer[name]) for name in workload.values]
    value_duration = sum(int(np.dot(column, part)) * unit for column in columns for part, unit in parts)
    halves = [name for name in ("mean", "median") if name in answer.column_names]
    means = float(answer[halves[0]].to_numpy().sum()) if halves else None
    return Checks(answer.num_rows, int(duration.sum()), value_duration, means)


def cut_to_events(answer: pa.Table, events: pa.Table) -> pa.Table:
    """The rows of an answer that begin with an event, each as long as a tick: what forms without ends share with it.

    Args:
        answer: It has a column end only if it has other rows too.
        events: Points; no two have the same time.
    """
    if "end" in answer.column_names:
        keys = ["start", *(["k"] if "k" in events.column_names else [])]
        begun = events.select(["t", *keys[1:]]).rename_columns(keys)
        answer = answer.drop_columns(["end"]).join(begun, keys=keys, join_type="left semi")
    return answer.append_column("end", pa.array(_integers(answer["start"]) + 1))


def _integers(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    # Null, of what has no partner, counts as 0.
    numbers: npt.NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy()
    return numbers
