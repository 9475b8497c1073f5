"""The auction is a function of its seed: cut anywhere it has the same rows, and what a row refers to is there."""

from __future__ import annotations

import datetime
import decimal
import hashlib
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import compute

from gpu_ops.apps import nexmark
from gpu_ops.apps.nexmark import draws
from gpu_ops.apps.nexmark.generator import ACTIVE_PERSONS, RECENT_AUCTIONS
from gpu_ops.core.time import instant
from gpu_ops.errors import PlanError
from tests.support.examples import examples

EVENTS = 20_000
WHOLE = nexmark.Generator(EVENTS, rate=1000, seed=11)
TABLES = WHOLE.tables()


def ticks(column: Any) -> Any:
    return column.cast(pa.int64()).to_numpy()


def digest(table: pa.Table) -> str:
    """A fingerprint of the values, whatever machine made them and however Arrow keeps them."""
    text = repr([(name, *table[name].cast(pa.string()).to_pylist()) for name in table.column_names])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def test_the_numbers_are_those_of_splitmix64() -> None:
    def written_down(state: int) -> int:
        mask = 2**64 - 1
        z = state & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    step = 0x9E3779B97F4A7C15
    key = written_down(5 + step)
    assert int(draws.key(5)) == key
    for event in (0, 1, 77_777_777_777):
        for draw in (0, 9):
            expected = written_down(key + step * (draws.PER_EVENT * event + draw + 1))
            assert draws.numbers(draws.key(5), np.array([event]), draw).tolist() == [expected]


def test_the_rows_of_a_seed_stay_what_they_are() -> None:
    """A change here changes every figure that was ever taken: say so in the changelog."""
    tables = nexmark.generate(5000, seed=42)
    assert [digest(getattr(tables, kind)) for kind in nexmark.KINDS] == [
        "48554b4d8f9b05a7",
        "12908c3f6135e966",
        "df97ad0e059efbbf",
    ]


def test_seeds_differ_and_repeat() -> None:
    for kind in nexmark.KINDS:
        first, again, other = (nexmark.Generator(500, seed=seed).batch(kind) for seed in (1, 1, 2))
        assert first.equals(again)
        assert not first.equals(other)


@examples(dear=True)
@given(st.sampled_from(nexmark.KINDS), st.integers(0, 400), st.integers(0, 400), st.integers(1, 130))
def test_any_cut_gives_the_same_rows(kind: nexmark.Kind, one: int, other: int, size: int) -> None:
    first, last = sorted((one, other))
    whole = nexmark.Generator(400, rate=7, seed=3)
    times = ticks(whole.table(kind)["date_time"])
    within = (times >= whole.time(first)) & (times < whole.time(last))
    expected = whole.table(kind).filter(pa.array(within)).combine_chunks()
    part = pa.Table.from_batches(whole.batches(kind, first, last, size=size), nexmark.SCHEMAS[kind])
    assert part.combine_chunks().equals(expected)
    assert nexmark.Generator(last, rate=7, seed=3).table(kind, first).combine_chunks().equals(expected)


@examples(dear=True)
@given(st.integers(1, 200))
def test_micro_batches_are_the_whole_in_order(size: int) -> None:
    parts = list(nexmark.batches(300, size=size, rate=9, seed=8))
    whole = nexmark.generate(300, rate=9, seed=8)
    for kind in nexmark.KINDS:
        tables = [getattr(part, kind) for part in parts]
        assert pa.concat_tables(tables).combine_chunks().equals(getattr(whole, kind).combine_chunks())
        for part, following in pairwise(parts):
            assert (ticks(getattr(part, kind)["date_time"]) < part.cti).all()
            assert (ticks(getattr(following, kind)["date_time"]) >= part.cti).all()
    assert parts[-1].cti == whole.cti


def test_a_large_batch_is_as_several_small_ones() -> None:
    """Beyond the blocks in which numbers are mixed."""
    many = nexmark.Generator(70_000, seed=1)
    parts = pa.Table.from_batches(many.batches("bids", size=999))
    assert many.batch("bids").equals(parts.combine_chunks().to_batches()[0])


def test_columns_are_nexmarks() -> None:
    names = {kind: getattr(TABLES, kind).column_names for kind in nexmark.KINDS}
    assert names == {
        "persons": ["id", "name", "email_address", "credit_card", "city", "state", "date_time", "extra"],
        "auctions": [
            *("id", "item_name", "description", "initial_bid", "reserve"),
            *("date_time", "expires", "seller", "category", "extra"),
        ],
        "bids": ["auction", "bidder", "price", "channel", "url", "date_time", "extra"],
    }
    for kind in nexmark.KINDS:
        table = getattr(TABLES, kind)
        table.validate(full=True)
        assert table.schema == nexmark.SCHEMAS[kind]
        assert table.schema.field("date_time").type == pa.timestamp("us", "UTC")
        assert sum(column.null_count for column in table.columns) == 0


def test_of_fifty_events_one_is_a_person_and_three_are_auctions() -> None:
    assert [getattr(TABLES, kind).num_rows for kind in nexmark.KINDS] == [
        EVENTS // 50,
        EVENTS * 3 // 50,
        EVENTS * 46 // 50,
    ]
    times = {
        kind: ticks(getattr(nexmark.generate(51, rate=1, start="1970-01-01T00:00Z"), kind)["date_time"])
        for kind in nexmark.KINDS
    }
    seconds = {kind: (each // 1_000_000).tolist() for kind, each in times.items()}
    assert seconds == {"persons": [0, 50], "auctions": [1, 2, 3], "bids": list(range(4, 50))}


def test_ids_count_up_and_times_keep_the_rate() -> None:
    for kind in ("persons", "auctions"):
        table = getattr(TABLES, kind)
        assert table["id"].to_pylist() == list(range(1000, 1000 + table.num_rows))
    times = np.sort(np.concatenate([ticks(getattr(TABLES, kind)["date_time"]) for kind in nexmark.KINDS]))
    assert times.tolist() == [instant(nexmark.generator.BASE_TIME) + event * 1000 for event in range(EVENTS)]


def test_what_is_referred_to_has_come_before_and_is_recent() -> None:
    born = dict(zip(TABLES.persons["id"].to_pylist(), ticks(TABLES.persons["date_time"]), strict=True))
    opened = dict(zip(TABLES.auctions["id"].to_pylist(), ticks(TABLES.auctions["date_time"]), strict=True))
    bids, auctions = TABLES.bids, TABLES.auctions
    for times, ids, known, span in (
        (bids["date_time"], bids["auction"], opened, (RECENT_AUCTIONS + 4) * 50 // 3),
        (bids["date_time"], bids["bidder"], born, (ACTIVE_PERSONS + 2) * 50),
        (auctions["date_time"], auctions["seller"], born, (ACTIVE_PERSONS + 2) * 50),
    ):
        came = np.array([known[each] for each in ids.to_pylist()])
        assert (came < ticks(times)).all()
        assert (ticks(times) - came <= span * 1000).all()


def test_some_are_hot() -> None:
    shares = {}
    for table, column in (("bids", "auction"), ("bids", "bidder"), ("auctions", "seller")):
        ids = getattr(TABLES, table)[column].to_numpy() - 1000
        shares[column] = float((ids % 100 == (column == "bidder")).mean())
    # 1 - 1/2, 1 - 1/4, 1 - 1/4, and one in a hundred of the others.
    assert shares["auction"] == pytest.approx(0.505, abs=0.02)
    assert shares["bidder"] == pytest.approx(0.7525, abs=0.02)
    assert shares["seller"] == pytest.approx(0.7525, abs=0.05)


def test_prices_are_uniform_on_a_logarithmic_scale() -> None:
    prices = TABLES.bids["price"].to_numpy()
    assert prices.min() >= 100
    assert prices.max() <= 100_000_000
    decades, _ = np.histogram(np.log10(prices), bins=range(2, 9))
    assert decades / len(prices) == pytest.approx([1 / 6] * 6, abs=0.02)
    assert compute.all(compute.greater(TABLES.auctions["reserve"], TABLES.auctions["initial_bid"])).as_py()


def test_no_machine_rounds_the_table_of_prices_otherwise() -> None:
    """No point of it is so near to a half that the last bits of a float decide."""
    with decimal.localcontext(prec=30):
        ratio = decimal.Decimal(10) ** (decimal.Decimal(6) / 4096)
        exact, nearest = decimal.Decimal(102_400), decimal.Decimal(1)
        for rounded in draws._powers().tolist():
            assert rounded == int(exact.to_integral_value())
            nearest = min(nearest, abs(abs(exact - rounded) - decimal.Decimal("0.5")))
            exact *= ratio
    assert nearest > 2 * decimal.Decimal(1.024e11 * 2**-52)


def test_auctions_last_until_a_hundred_more_have_come() -> None:
    lasted = ticks(TABLES.auctions["expires"]) - ticks(TABLES.auctions["date_time"])
    horizon = 100 * 50 / 3 / 1000 * 1_000_000
    assert lasted.min() >= 1
    assert lasted.max() <= 2 * horizon
    assert lasted.mean() == pytest.approx(horizon, rel=0.05)
    assert set(TABLES.auctions["category"].to_pylist()) == set(range(10, 15))


def test_texts_have_their_form() -> None:
    forms = {
        "persons": {
            "name": "^[A-Z][a-z]+ [A-Z][a-z]+$",
            "email_address": r"^[a-p]{7}@[a-p]{5}\.com$",
            "credit_card": "^[0-9]{4}( [0-9]{4}){3}$",
            "state": "^(AZ|CA|ID|OR|WA|WY)$",
            "extra": "^[a-p]{128}$",
        },
        "auctions": {"item_name": "^[a-p]{16}$", "description": "^[a-p]{64}$", "extra": "^[a-p]{368}$"},
        "bids": {
            "channel": "^(Google|Facebook|Baidu|Apple|channel-[0-9]{1,4})$",
            "url": r"^https://auction\.example(/[a-p]{5}){3}/item\.htm\?query=1(&channel_id=[0-9]+)?$",
            "extra": "^[a-p]{64}$",
        },
    }
    for kind, columns in forms.items():
        for name, form in columns.items():
            assert compute.all(compute.match_substring_regex(getattr(TABLES, kind)[name], form)).as_py(), (kind, name)
    assert len(set(TABLES.bids["extra"].to_pylist())) == TABLES.bids.num_rows
    hot = compute.is_in(TABLES.bids["channel"], pa.array(["Google", "Facebook", "Baidu", "Apple"]))
    assert compute.mean(hot).as_py() == pytest.approx(0.5, abs=0.02)


def test_far_events_are_made_as_quickly_as_near_ones() -> None:
    endless = nexmark.Generator(9_000_000_000_000, rate=10**6, seed=2**64 - 1)
    assert endless.batch("bids", endless.events - 10).num_rows == 10
    last = endless.batch("bids", endless.events - 1)
    assert ticks(last.column("date_time")).tolist() == [endless.time(endless.events - 1)]
    assert endless.batch("bids", 5, 5).num_rows == 0
    assert nexmark.generate(0).bids.schema == nexmark.SCHEMAS["bids"]


def test_a_start_is_any_instant() -> None:
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert nexmark.generate(1, start=start).persons["date_time"].to_pylist() == [start]
    side = nexmark.side_input(start=start)
    assert side.num_rows == 10_000
    assert set(side["date_time"].to_pylist()) == {start}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"events": -1}, r"events is -1\. Give a whole number from 0 to 9,000,000,000,000\."),
        ({"events": 1.5}, "events is 1.5. Give a whole number"),
        ({"events": True}, "events is True. Give a whole number"),
        ({"events": 1, "rate": 0}, "rate is 0. Give a whole number from 1"),
        ({"events": 1, "seed": 2**64}, "seed is 18446744073709551616. Give a whole number"),
        ({"events": 1, "start": "noon"}, "start 'noon' is not a point in time"),
        ({"events": 1, "start": "2026-01-01"}, "start '2026-01-01' has no zone"),
        ({"events": 10**12, "rate": 1}, "leave the years 1 to 9999.*earlier start, a higher rate or fewer events"),
    ],
)
def test_what_cannot_be_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        nexmark.generate(**arguments)
    with pytest.raises(PlanError, match=said):
        nexmark.batches(**arguments, size=10)


def test_ranges_that_are_none_are_refused() -> None:
    generator = nexmark.Generator(100)
    with pytest.raises(PlanError, match=r"NEXMark has no 'cats'\. It has persons, auctions, bids"):
        generator.batch("cats")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=r"last is 101\. Give a whole number from 0 to 100"):
        generator.batches("bids", 0, 101)
    with pytest.raises(PlanError, match=r"first is 60\. Give a whole number from 0 to 50"):
        generator.table("bids", 60, 50)
    with pytest.raises(PlanError, match=r"size is 0\. Give a whole number from 1"):
        nexmark.batches(100, size=0)
    with pytest.raises(PlanError, match=r"rows is -1\. Give a whole number"):
        nexmark.side_input(-1)
