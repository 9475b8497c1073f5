"""The benchmark's input is what its published answers belong to, and every engine answers the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import polars as pl
import polars.testing
import pyarrow as pa
import pytest

from benchmarks.engines import FORMS, PEERS, at_events, prepare
from benchmarks.workloads import (
    DAY,
    EVENTS_PER_CHUNK,
    SPREADS,
    WORKLOADS,
    Checks,
    Spread,
    checks,
    cut_to_events,
    inputs,
    intervals,
    points,
    text_keys,
)

pytestmark = pytest.mark.slow

SMALL = 20_000
MASK = (1 << 64) - 1


def output(seed: int, index: int) -> int:
    """SplitMix64 by Python's own integers."""
    mixed = (seed + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & MASK
    return mixed ^ (mixed >> 31)


def ticks(column: pa.ChunkedArray) -> list[int]:
    numbers: list[int] = column.cast(pa.int64()).to_pylist()
    return numbers


def test_splitmix64_is_the_published_generator() -> None:
    # The first outputs for seed 1234567 that Vigna's reference implementation prints.
    assert [output(1234567, index) for index in range(2)] == [6457827717110365317, 3203168211198807973]


@pytest.mark.parametrize("index", [0, 1, 999, EVENTS_PER_CHUNK - 1, EVENTS_PER_CHUNK, EVENTS_PER_CHUNK + 4])
def test_points_are_hashes_of_their_row(index: int) -> None:
    row = points(EVENTS_PER_CHUNK + 5).slice(index, 1)
    assert ticks(row["t"]) == [index * 8640 + output(1, index) % 8640]
    assert row["k"].to_pylist() == [output(2, index) % 1000]
    assert row["v"].to_pylist() == [output(3, index) % 1000]


@pytest.mark.parametrize("seed", [10, 20])
def test_intervals_are_hashes_of_their_row(seed: int) -> None:
    row = intervals(8, seed).slice(7, 1)
    start = 7 * 43_200 + output(seed, 7) % 43_200
    assert ticks(row["start"]) == [start]
    assert ticks(row["end"]) == [start + 36_000_000 + output(seed + 1, 7) % 144_000_000]
    assert row["k"].to_pylist() == [output(seed + 2, 7) % 1000]
    assert row["v"].to_pylist() == [output(seed + 3, 7) % 1000]


def test_intervals_can_be_short_and_some_of_them_long() -> None:
    whole, short, some = intervals(2000, 10), intervals(2000, 10, Spread(4)), intervals(2000, 10, days=100)
    lasts = [
        [end - start for start, end in zip(ticks(table["start"]), ticks(table["end"]), strict=True)]
        for table in (whole, short, some)
    ]
    assert lasts[1] == [span // 250 for span in lasts[0]]
    assert short["k"].to_pylist() == [output(12, row) % 4 for row in range(2000)]
    long = [row for row in range(2000) if output(14, row) % 100 == 0]
    assert long
    assert lasts[2] == [DAY if row in long else span for row, span in enumerate(lasts[0])]


def test_a_second_stream_of_points_has_another_seed() -> None:
    row = inputs("as-of", 16)[1].slice(7, 1)
    assert ticks(row["t"]) == [7 * 8640 + output(31, 7) % 8640]
    assert row["k"].to_pylist() == [output(32, 7) % 1000]
    assert row["v"].to_pylist() == [output(33, 7) % 1000]


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_inputs_are_spread_over_keys(spread: Spread) -> None:
    for table in (*inputs("W2", 2000, spread), *inputs("as-of", 4000, spread), *inputs("W5", 4000, spread)):
        assert ("k" in table.column_names) == bool(spread.keys)
        if spread.keys:
            keys = table["k"].to_pylist()
            assert 0 <= min(keys) <= max(keys) < spread.keys
            assert len(set(keys)) >= min(spread.keys, 2000) / 2
            assert (keys.count(0) > 900) == (spread.keys == 1 or spread.shape == "half")


def test_half_of_the_events_are_on_one_key_by_their_hash() -> None:
    expected = [0 if output(2, row) < 1 << 63 else output(2, row) % 1000 for row in range(500)]
    assert points(500, Spread(1000, "half"))["k"].to_pylist() == expected


def test_intervals_have_as_many_partners_over_any_keys() -> None:
    rows = {
        name: prepare("gpu_ops", "W5", inputs("W5", SMALL, spread), device="cpu")().num_rows
        for name, spread in SPREADS.items()
        if spread.keys <= 10
    }
    assert all(4 < count / (SMALL / 2) < 6 for count in rows.values()), rows


@pytest.mark.parametrize("workload", WORKLOADS)
def test_inputs_have_so_many_events_together(workload: str) -> None:
    assert sum(table.num_rows for table in inputs(workload, 100)) == 100


def test_what_has_no_partner_counts_as_nothing() -> None:
    times = pa.array([3, 5], pa.timestamp("us", "UTC"))
    answer = pa.table({"start": times, "end": pa.array([4, 9], times.type), "v": [7, 1], "v_right": [None, 2]})
    assert checks(WORKLOADS["as-of"], answer) == Checks(2, 1 + 4, 7 + (1 + 2) * 4)


def test_fewer_events_are_the_first_of_them() -> None:
    assert points(100).equals(points(1000).slice(0, 100))


def test_text_keys_name_the_same_groups() -> None:
    events = points(100)
    assert text_keys(events, 1000)["k"].to_pylist() == [f"key-{key:06}" for key in events["k"].to_pylist()]


def test_checks_are_exact_sums() -> None:
    times = pa.array([3, 5, 2**40], pa.timestamp("us", "UTC"))
    answer = pa.table({"start": times, "end": pa.array([4, 9, 2**40 + 2**20], times.type), "n": [7, 1, 2**20]})
    assert checks(WORKLOADS["W4"], answer) == Checks(3, 1 + 4 + 2**20, 7 + 4 + 2**40)


def test_means_agree_to_a_billionth() -> None:
    found = Checks(1, 1, 1, 1e9)
    assert found.agrees(replace(found, mean_total=1e9 + 0.1))
    assert not found.agrees(replace(found, mean_total=1e9 + 10))
    assert not found.agrees(replace(found, mean_total=None))
    assert not found.agrees(replace(found, rows=2))


def in_order(answer: pa.Table) -> pl.DataFrame:
    frame = pl.DataFrame(answer)
    # Peers count time by integers, and type sums and counts in their own way.
    frame = frame.with_columns(pl.col("start", "end").to_physical()).cast(
        {name: pl.Int64 for name, dtype in frame.schema.items() if dtype.is_integer()}
    )
    return frame.select("start", "end", *sorted(set(frame.columns) - {"start", "end"})).sort(pl.all())


@pytest.fixture(scope="module")
def ours() -> Callable[[str], pl.DataFrame]:
    return lambda workload: in_order(prepare("gpu_ops", workload, inputs(workload, SMALL), device="cpu")())


@pytest.mark.parametrize(
    ("workload", "peer"), [(workload, peer) for workload, peers in PEERS.items() for peer in peers]
)
def test_engines_agree_row_by_row(workload: str, peer: str, ours: Callable[[str], pl.DataFrame]) -> None:
    answer = in_order(prepare(peer, workload, inputs(workload, SMALL), device="cpu")())
    polars.testing.assert_frame_equal(ours(workload), answer, check_exact=True)
    assert answer.height


@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
@pytest.mark.parametrize("workload", FORMS)
def test_forms_agree_row_by_row_over_any_keys(workload: str, spread: Spread) -> None:
    tables = inputs(workload, 3000, spread)
    answer = prepare("gpu_ops", workload, tables, device="cpu")()
    for engine in FORMS[workload]:
        theirs = prepare(engine, workload, tables, device="cpu", spread=spread)()
        if at_events(engine):
            assert "end" not in theirs.column_names
            assert theirs.num_rows == 3000 < answer.num_rows
            shared = in_order(cut_to_events(answer, tables[0]))
            theirs = cut_to_events(theirs, tables[0])
        else:
            shared = in_order(answer)
        assert shared.height
        polars.testing.assert_frame_equal(shared, in_order(theirs), check_exact=True)


def test_rows_at_events_are_those_of_their_key() -> None:
    """Two keys, windows of 4: an event of a comes while one of b leaves, and a row of another time is left out.

    a   0   4
    b 1     5   leaves at 5
    """
    type_ = pa.timestamp("us", "UTC")
    events = pa.table({"t": pa.array([0, 1, 4, 5], type_), "k": [0, 1, 0, 1], "v": [1, 2, 3, 4]})
    rows = {"start": pa.array([0, 4, 1, 5, 4], type_), "end": pa.array([4, 8, 5, 9, 9], type_)}
    answer = pa.table({**rows, "k": [0, 0, 1, 1, 1], "best": [1, 3, 2, 4, 9]})
    cut = in_order(cut_to_events(answer, events))
    assert cut.rows() == [(0, 1, 1, 0), (1, 2, 2, 1), (4, 5, 3, 0), (5, 6, 4, 1)]
