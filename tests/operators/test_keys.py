from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support.reference import Event
from tests.support.rows import check, stream, to_events
from tests.support.ticks import at_us

NAN = math.nan


def counts(values: list[Any], dtype: pa.DataType) -> g.Stream:
    """How many rows have each value."""
    events = [Event(0, 1, {"k": value}) for value in values]
    return stream(events, pa.schema([("k", dtype)])).by("k").snapshot().agg(n=g.count())


def counted(*pairs: tuple[Any, int]) -> list[Event]:
    return [Event(0, 1, {"k": value, "n": number}) for value, number in pairs]


KEYS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a", "", None, "é"]),
    "large text": (pa.large_string(), ["a", "", None]),
    "text view": (pa.string_view(), ["a", "a text of more than twelve bytes", None]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "", None]),
    "small dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None]),
    "binary": (pa.binary(), [b"a", b"", None, b"\xff"]),
    "bool": (pa.bool_(), [True, False, None]),
    "small": (pa.int8(), [-128, 127, None]),
    "large": (pa.int64(), [-(2**63), 0, 2**63 - 1, None]),
    "unsigned": (pa.uint64(), [0, 2**63, 2**64 - 1, None]),
    "decimal": (pa.decimal128(38, 2), [Decimal("0.01"), Decimal("-0.01"), Decimal("1" + "0" * 35 + ".00"), None]),
    "date": (pa.date32(), [datetime.date(1, 1, 1), datetime.date(1970, 1, 1), None]),
    "time": (
        pa.timestamp("us", "UTC"),
        [datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC), datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), None],
    ),
    "duration": (pa.duration("us"), [datetime.timedelta(0), datetime.timedelta(days=-1), None]),
    "float": (pa.float64(), [0.0, 1.5, math.inf, -math.inf, NAN, None]),
    "single float": (pa.float32(), [0.0, 1.5, math.inf, NAN, None]),
    "half float": (pa.float16(), [0.0, 1.5, math.inf, NAN, None]),
}


@pytest.mark.parametrize("name", KEYS)
def test_any_type_is_a_key_and_null_is_a_group(device_name: str, name: str) -> None:
    dtype, values = KEYS[name]
    asked = counts([*values, *reversed(values), values[0]], dtype)
    check(asked, device_name, counted((values[0], 3), *((value, 2) for value in values[1:])))
    assert asked.collect(device=device_name).schema.field("k").type == asked.schema.field("k").type


@pytest.mark.parametrize("name", ["text", "text view", "binary"])
def test_texts_that_share_a_hash_are_told_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pl.Series, "hash", lambda series: pl.Series(np.zeros(len(series), np.uint64)))
    dtype, values = KEYS[name]
    check(counts(values + values, dtype), "cpu", counted(*((value, 2) for value in values)))


def test_nans_are_one_key_and_zeros_are_one_key(device_name: str) -> None:
    other_nan = np.array([0x7FF8_0000_0000_0123], np.uint64).view(np.float64)[0]
    values = [NAN, -NAN, float(other_nan), 0.0, -0.0, None]
    check(counts(values, pa.float64()), device_name, counted((NAN, 3), (0.0, 2), (None, 1)))
    check(counts([-0.0], pa.float64()), device_name, counted((0.0, 1)))


def test_a_dictionary_with_equal_or_null_entries_is_what_it_stands_for(device_name: str) -> None:
    entries = pa.array(["a", None, "b"])
    words = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None, 0], pa.int8()), entries)
    table = pa.table({"at": [0, 0, 0, 0, 0], "k": words})
    asked = g.events(table, start="at", unit="us").by("k").snapshot().agg(n=g.count())
    check(asked, device_name, counted(("a", 2), ("b", 1), (None, 2)))


def test_chunks_with_dictionaries_of_their_own_are_one_column(device_name: str) -> None:
    one = pa.array(["a", "b"]).dictionary_encode()
    other = pa.array(["b", "c", "b"]).dictionary_encode()
    table = pa.table({"at": [0] * 5, "k": pa.chunked_array([one, other])})
    asked = g.events(table, start="at", unit="us").by("k").snapshot().agg(n=g.count())
    check(asked, device_name, counted(("a", 1), ("b", 3), ("c", 1)))


def test_several_keys(device_name: str) -> None:
    rides = [
        Event(0, 1, {"zone": zone, "kind": kind})
        for zone, kind in [("a", 1), ("a", 2), ("b", 1), (None, None), (None, 1), ("a", 1)]
    ]
    expected = [
        Event(0, 1, {"kind": kind, "zone": zone, "n": n})
        for zone, kind, n in [("a", 1, 2), ("a", 2, 1), ("b", 1, 1), (None, None, 1), (None, 1, 1)]
    ]
    asked = stream(rides).by("kind", "zone").snapshot().agg(n=g.count())
    assert asked.schema.names == ["kind", "zone", "n"]
    check(asked, device_name, expected)


def test_the_key_lasts_until_a_window_has_used_it(device_name: str) -> None:
    rides = stream([Event(0, 2, {"zone": "a", "v": 1}), Event(1, 3, {"zone": "b", "v": 2})])
    keyed = rides.by("zone").filter(g.col("v") > 0).shift("1us").with_columns(w=g.col("v") * 2)
    assert keyed.key == ("zone",)
    busy = keyed.snapshot().agg(n=g.count())
    assert busy.key == ()
    most = busy.snapshot().agg(zones=g.count())
    expected = [Event(1, 2, {"zones": 1}), Event(2, 3, {"zones": 2}), Event(3, 4, {"zones": 1})]
    check(most, device_name, expected)
    assert rides.by("zone").by().key == ()
    assert rides.by("zone").by("v").key == ("v",)


def test_a_key_that_never_repeats(device_name: str) -> None:
    count = 100_000
    rng = np.random.default_rng(7)
    keys = rng.permutation(count) * 1_000_003
    table = pa.table({"at": rng.integers(0, 1_000, count), "k": keys, "v": np.arange(count)})
    asked = g.events(table, start="at", unit="us").by("k").sliding("5us").agg(n=g.count(), v=g.max("v"))
    events = to_events(asked.collect(device=device_name))
    assert sorted((event.payload["v"], event.payload["k"]) for event in events) == list(
        zip(range(count), keys.tolist(), strict=True)
    )
    assert {event.payload["n"] for event in events} == {1}


@pytest.mark.slow
def test_more_events_than_are_worked_on_at_once(device_name: str) -> None:
    """Many groups of very different size, against a sweep and a count by Polars."""
    count = 600_000
    rng = np.random.default_rng(11)
    start = rng.integers(0, 10_000_000, count)
    columns = {"start": start, "end": start + rng.integers(1, 5_000, count), "k": rng.zipf(1.3, count) % 5_000}
    table = pl.DataFrame(columns)
    rides = g.events(table, start="start", end="end", unit="us").by("k")

    steps = pl.concat([table.select("k", at="start", by=pl.lit(1)), table.select("k", at="end", by=pl.lit(-1))])
    swept = steps.group_by("k", "at").agg(pl.sum("by")).sort("k", "at").with_columns(n=pl.col("by").cum_sum().over("k"))
    swept = swept.filter(pl.col("n") > 0)
    busy = rides.snapshot().agg(n=g.count()).collect(device=device_name).sort("k", "start")
    assert busy.select("k", "n").equals(swept.select("k", "n").cast(pl.Int64))
    assert busy["start"].dt.epoch("us").equals(swept["at"], check_names=False)

    counted = table.group_by("k", at=pl.col("start") // 100_000).len().sort("k", "at")
    begun = (
        rides.to_point()
        .tumbling("100000us", align=at_us(0))
        .agg(n=g.count())
        .collect(device=device_name)
        .sort("k", "start")
    )
    assert begun["n"].equals(counted["len"].cast(pl.Int64), check_names=False)
    assert (begun["start"].dt.epoch("us") // 100_000).equals(counted["at"], check_names=False)


def test_what_is_no_key_is_refused_when_the_plan_is_made() -> None:
    rides = stream([Event(0, 1, {"zone": "a", "parts": [1, 2]})])
    with pytest.raises(ColumnError, match="Did you mean 'zone'"):
        rides.by("zones")
    with pytest.raises(ColumnError, match="no key"):
        rides.by("parts")
    with pytest.raises(ColumnError, match="no key"):
        rides.by("start")
    with pytest.raises(PlanError, match="column names"):
        rides.by(g.col("zone"))  # type: ignore[arg-type]
    with pytest.raises(ColumnError, match="grouped by"):
        rides.by("zone").select(other=g.lit(1))
