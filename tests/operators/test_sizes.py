"""More rows than there is memory for are refused before they are made, and those that fit never are."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core import bounds

DAY = 86_400
TABLE = pa.table({"at": [0, 0, 9], "until": [DAY * 30, DAY * 40, DAY * 50], "k": ["a", "b", "a"], "n": [2, 3, 4]})
MiB = 1 << 20


def lasting() -> g.Stream:
    return g.events(TABLE, start="at", end="until", unit="s")


def points(rows: int) -> g.Stream:
    return g.events(pa.table({"at": pa.array([0] * rows, pa.int64())}), start="at", unit="s")


SPAN = ("0001-01-01T00:00Z", "9999-01-01T00:00Z")
TOO_MANY: dict[str, tuple[Callable[[], g.Stream], str]] = {
    "hopping": (lambda: lasting().hopping("1h", every="1us").agg(n=g.count()), "longer hop"),
    "rows": (lambda: lasting().tumbling("1us").rows(), "longer"),
    "fill": (lambda: lasting().to_point().tumbling("1us", fill="zero", span=SPAN).agg(n=g.count()), "longer windows"),
    "chop": (lambda: lasting().chop("1us"), "longer period"),
    "repeat": (lambda: lasting().with_columns(n=g.col("n") * 2**40).repeat("n"), "fewer times"),
    "past int64": (lambda: lasting().with_columns(n=g.col("n") * 0 + 2**62).repeat("n"), "fewer times"),
}


@pytest.mark.parametrize("name", TOO_MANY)
def test_what_cannot_fit_is_refused_before_it_is_made(name: str) -> None:
    query, remedy = TOO_MANY[name]
    tracemalloc.start()
    try:
        with pytest.raises(g.OutOfMemoryError, match=rf"would make [\d,]{{13,}} rows: they take .* has .*{remedy}"):
            query().collect(device="cpu")
        assert tracemalloc.get_traced_memory()[1] < 64 * MiB
    finally:
        tracemalloc.stop()


def test_live_is_refused_too() -> None:
    live = TOO_MANY["chop"][0]().start(device="cpu")
    with pytest.raises(g.OutOfMemoryError, match="longer period"):
        live.push(TABLE)


def test_pairs_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "memory", lambda: 10 * MiB)
    one = points(1_000)
    crossed = one.join(one.shift("0s").select(m=g.lit(1)), on=[])
    with pytest.raises(g.OutOfMemoryError, match=r"would make 1,000,000 rows.*filter both sides first"):
        crossed.collect(device="cpu")
    # Who takes them piece by piece, or keeps few of them, is not refused.
    assert sum(batch.num_rows for batch in crossed.to_reader(device="cpu")) == 1_000_000
    assert crossed.filter(g.col("m") > 1).collect(device="cpu").num_rows == 0
    with pytest.raises(g.OutOfMemoryError, match="would make 1,000,000 rows"):
        crossed.select("m").tumbling("1s").agg(n=g.count()).collect(device="cpu")


def test_lists_are_counted_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "memory", lambda: 1 * MiB)
    query = lasting().hopping("20d", every="1s", until="1970-02-09T00:00Z").agg(n=g.collect_list("n"))
    with pytest.raises(g.OutOfMemoryError, match=r"would make .*(longer hop|shorter windows)"):
        query.collect(device="cpu")


def test_what_is_gathered_stops_before_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "used", lambda: 1 << 62)
    monkeypatch.setattr(bounds, "_OFTEN", 10)
    with pytest.raises(g.OutOfMemoryError, match=r"has 100 rows so far.*piece by piece"):
        points(100).collect(device="cpu")
    assert points(100).to_reader(device="cpu").read_all().num_rows == 100


def test_this_process_holds_some_memory() -> None:
    assert 0 < bounds.used() < bounds.memory()
