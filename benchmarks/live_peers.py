"""W2 and W3 over streams as a user of Spark would write them: its own aggregation, and Python with state.

    spark         W3: ``groupBy(k, window(…))`` below a watermark
    pandas state  W2: ``applyInPandasWithState``
    transform     W2: ``transformWithStateInPandas``, with timers

All keep their state in RocksDB, and append to a folder by Spark's own sink. The two in Python hold the changes that no
row is final for yet as NumPy arrays, and take all rows of a group in one pass. Their groups are `GROUPS` hashes of k,
or each k by itself: Spark calls Python for each group, so fewer of them cost less.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812  what everyone calls it
from pyspark.sql.pandas.serializers import ApplyInPandasWithStateSerializer
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from benchmarks.engines import SLIDING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

GROUPS = 8

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}

LATE = "1 second"
COLUMNS = "k int, low bigint, high bigint, n bigint, mean double"
STATE = "k binary, at binary, n binary, total binary"

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Changes:
    """By how much the count and the sum of a key change at some times.

    Attributes:
        k: The keys.
        at: The times, in microseconds.
        n: By how much the counts change.
        total: By how much the sums change.
    """

    k: Ints
    at: Ints
    n: Ints
    total: Ints

    @classmethod
    def of(cls, frames: Iterable[pd.DataFrame]) -> Changes:
        """What events change: where each comes, and where its time is over."""
        given = [*frames]
        at = _ints(each["t"].to_numpy("datetime64[us]").view(np.int64) for each in given)
        k, v = (_ints(each[name].to_numpy(np.int64) for each in given) for name in ("k", "v"))
        one = np.ones(len(k), np.int64)
        return cls(*map(np.concatenate, ([k, k], [at, at + SLIDING], [one, -one], [v, -v])))

    def to_state(self) -> tuple[bytes, ...]:
        return tuple(each.tobytes() for each in (self.k, self.at, self.n, self.total))

    @classmethod
    def of_state(cls, state: Sequence[bytes]) -> Changes:
        return cls(*(np.frombuffer(each, np.int64) for each in state))

    def and_more(self, more: Changes) -> Changes:
        pairs = ((self.k, more.k), (self.at, more.at), (self.n, more.n), (self.total, more.total))
        return Changes(*map(np.concatenate, pairs))

    def final(self, watermark: int) -> tuple[pd.DataFrame, Changes]:
        """The rows that end at a watermark or before it, and the changes that later ones need."""
        order = np.lexsort((self.at, self.k))
        k, at, n, total = (each[order] for each in (self.k, self.at, self.n, self.total))
        first = np.flatnonzero(np.concatenate([[True], (k[1:] != k[:-1]) | (at[1:] != at[:-1])])[: len(k)])
        n, total = (np.add.reduceat(each, first) if len(first) else each for each in (n, total))
        k, at = k[first], at[first]
        # Counts and sums begin at 0 with each key: all that has come is gone again at its last change.
        count, sums = np.cumsum(n), np.cumsum(total)
        follows = np.concatenate([k[1:] == k[:-1], [False]])[: len(k)]
        following = np.concatenate([at[1:], at[:1]])
        over = follows & (following <= watermark)
        given = np.flatnonzero(over & (count > 0))
        rows = {"k": k[given], "low": at[given], "high": following[given], "n": count[given]}
        stay = np.flatnonzero(~over & ((at > watermark) | (count > 0)))
        opens = at[stay] <= watermark
        left = [np.where(opens, now[stay], by[stay]) for now, by in ((count, n), (sums, total))]
        return pd.DataFrame(rows | {"mean": sums[given] / count[given]}), Changes(k[stay], at[stay], *left)

    def due(self, watermark: int) -> int | None:
        """When the next row can be final, in milliseconds."""
        later = self.at[self.at > watermark]
        return -(-int(later.min()) // 1000) if len(later) else None


def _ints(parts: Iterable[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _watermarked(events: DataFrame) -> DataFrame:
    return events.withWatermark("t", LATE)


def _grouped(events: DataFrame, *, by_key: bool) -> Any:
    group = F.col("k") if by_key else F.pmod(F.hash("k"), F.lit(GROUPS))
    return _watermarked(events).select(group.alias("group"), "t", "k", "v").groupBy("group")


def _named(rows: DataFrame) -> DataFrame:
    times = [F.timestamp_micros(name).alias(to) for name, to in (("low", "start"), ("high", "end"))]
    return rows.select(*times, "k", "n", "mean")


def pandas_state(events: DataFrame, *, by_key: bool = False) -> DataFrame:
    def step(_: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        changes = Changes.of([] if state.hasTimedOut else frames)
        if state.exists:
            changes = Changes.of_state(state.get).and_more(changes)
        watermark = state.getCurrentWatermarkMs() * 1000
        rows, left = changes.final(watermark)
        due = left.due(watermark)
        if due is None:
            state.remove()
        else:
            state.update(left.to_state())
            state.setTimeoutTimestamp(due)
        yield rows

    grouped = _grouped(events, by_key=by_key)
    return _named(grouped.applyInPandasWithState(step, COLUMNS, STATE, "append", "EventTimeTimeout"))


class Sliding(StatefulProcessor):
    """W2 of the keys of a group; a timer is set for when the next row can be final."""

    def init(self, handle: Any) -> None:
        self._handle = handle
        self._state = handle.getValueState("changes", STATE)
        self._timer = handle.getValueState("timer", "due bigint")

    # Spark gives arguments by these names.

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Any:  # noqa: N802, N803
        if self._timer.exists():
            self._handle.deleteTimer(self._timer.get()[0])
        yield self._step(Changes.of(rows), timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:  # noqa: N802, N803
        yield self._step(Changes.of([]), timerValues)

    def _step(self, changes: Changes, timers: Any) -> pd.DataFrame:
        if self._state.exists():
            changes = Changes.of_state(self._state.get()).and_more(changes)
        watermark = timers.getCurrentWatermarkInMs() * 1000
        rows, left = changes.final(watermark)
        due = left.due(watermark)
        if due is None:
            self._state.clear()
            self._timer.clear()
        else:
            self._state.update(left.to_state())
            self._timer.update((due,))
            self._handle.registerTimer(due)
        return rows

    def close(self) -> None:
        pass


def transform(events: DataFrame, *, by_key: bool = False) -> DataFrame:
    grouped = _grouped(events, by_key=by_key)
    return _named(grouped.transformWithStateInPandas(Sliding(), COLUMNS, "Append", "EventTime"))


def spark_hopping(events: DataFrame) -> DataFrame:
    windows = _watermarked(events).groupBy("k", F.window("t", "60 seconds", "5 seconds").alias("at"))
    return windows.agg(F.sum("v").alias("total")).select(F.col("at.start").alias("start"), "at.end", "k", "total")


_to_pandas: Any = ApplyInPandasWithStateSerializer.arrow_to_pandas


def _with_whole_offsets(serializer: Any, values: pa.ChunkedArray, *given: Any, **more: Any) -> Any:
    """What PySpark 4.1 makes of a column; but of offsets of groups whole numbers, as it stops at floats.

    Some rows of their struct are null, and pyarrow 26 gives the numbers of such a struct to pandas as floats.
    """
    if pa.types.is_struct(values.type) and "startOffset" in [each.name for each in values.type]:
        return pd.Series(values.to_pylist(), dtype=object)
    return _to_pandas(serializer, values, *given, **more)


# Workers import this module with the functions that are in it, before they read a batch.
ApplyInPandasWithStateSerializer.arrow_to_pandas = _with_whole_offsets  # type: ignore[method-assign, assignment]
