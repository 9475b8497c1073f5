from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MIN_TIME
from gpu_ops.core.turns import ASK, CLOCK, DUE, ENTERED, LEFT, NEW, OLD, ORDER, ROW
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, OutputRate, Rate
from tests.support.devices import HERE
from tests.support.output_rate_reference import Output
from tests.support.turns import DELIVERED, Row, delivered, feed

TIME = pa.timestamp("us", "UTC")
PAYLOAD = pa.schema(
    [*DELIVERED, (DUE, TIME), ("key", pa.string()), ("id", pa.int64()), ("total", pa.int64()), ("ok", pa.bool_())]
)
ROWS = feed(PAYLOAD)
TICKS = feed(pa.schema([(CLOCK, TIME), (ASK, pa.bool_())]))
SHOWN = ("key", "id", "total")

KINDS = ["un-aggregated", "row for all", "row per event", "row per group", "aggregated and grouped"]


def node(rate: Rate, selection: Any, kind: Any, shows: Any = (NEW, OLD), passes: str | None = "ok") -> OutputRate:
    group = ("key",) if kind in {"row per group", "aggregated and grouped"} else ()
    return OutputRate(ROWS, TICKS, rate, selection, kind, group, ("total",), shows, passes)


def short(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["place"], row[ROW], row[ORDER], *(row.get(name) for name in SHOWN)) for row in rows]


def output(of: OutputRate, deliveries: list[Row], ticks: list[Row], *more: Any) -> list[tuple[Any, ...]]:
    return short(delivered(of, {ROWS: deliveries, TICKS: ticks}, *more))


# Random deliveries: which rows there are depends on the kind of query


def turns(kind: str, chance: random.Random, count: int, since: int) -> tuple[list[Row], list[Row]]:
    """Deliveries and ticks of some turns; a tick may jump, ask, and have a delivery at its place."""
    deliveries, ticks, clock = list[Row](), list[Row](), since
    for at in range(count):
        place, is_tick = 2 * at, chance.random() < 0.5
        if is_tick:
            asks = chance.random() < 0.2
            clock += 0 if asks else chance.choice([0, 300, 1000, 1000, 2600, 100_000_000])
            ticks.append({"place": place, CLOCK: clock, ASK: asks})
        if chance.random() < (0.4 if is_tick else 0.9):
            due = [None, *(max(since, clock - back) for back in (0, 500, 1000, 2000))] if is_tick else [None]
            deliveries += _delivery(kind, place, chance, due)
        if chance.random() < 0.1:
            deliveries.append({"place": place, ROW: "held", ORDER: 0, "id": at})
        if chance.random() < 0.05:
            deliveries.append({"place": place, ROW: "empty", ORDER: 0})
    return deliveries, ticks


def _delivery(kind: str, place: int, chance: random.Random, due: list[int | None]) -> list[Row]:
    rows, moved = list[Row](), [0, 0]

    def add(word: str, number: int, key: str | None, entered: int | None = None, left: int | None = None) -> None:
        made = {"place": place, ROW: word, ORDER: number, "key": key, DUE: chance.choice(due)}
        made |= {
            "id": chance.randrange(100),
            "total": chance.choice([1, 2, 3, None]),
            "ok": chance.choice([1, 1, 0, None]),
        }
        rows.append(made | {"ok": None if made["ok"] is None else bool(made["ok"]), ENTERED: entered, LEFT: left})

    keys = chance.sample(["a", "b", "c", None], chance.randrange(1, 4))
    if kind == "row per group":
        for number, key in enumerate(keys):
            moved = [chance.randrange(1, 3), chance.randrange(0, 3)]
            add("new", number, key, *(moved if chance.random() < 0.8 else []))
            add("old", number, key)
    elif kind == "row for all":
        moved = [chance.randrange(3), chance.randrange(1, 3)]
        add("new", 0, None)
        add("old", 0, None)
    else:
        moved = [chance.randrange(3), chance.randrange(3)]
        for word, count in zip(("new", "old"), moved, strict=True):
            for number in range(count):
                add(word, number, chance.choice(keys))
    if sum(moved):
        rows.append({"place": place, ROW: "turn", ORDER: 0, ENTERED: moved[0], LEFT: moved[1], DUE: chance.choice(due)})
    chance.shuffle(rows)
    return rows


_EVERY = st.one_of(
    st.builds(EveryRows, st.integers(1, 5)),
    st.builds(EveryPeriod, st.sampled_from([ClockSpan(ticks=1000), ClockSpan(ticks=2500), ClockSpan(months=1)])),
    st.just(AtTimes(CrontabTimes(seconds=frozenset({0, 30})))),
)
_RATES = st.builds(Rate, _EVERY, st.none() | st.integers(0, 6), since=st.sampled_from([0, MIN_TIME + 5])) | st.builds(
    Rate, _EVERY | st.none(), after=st.just(ClockSpan(ticks=1500)), since=st.just(0)
)
_SHOWS = st.sampled_from([(NEW,), (OLD,), (NEW, OLD)])


@given(
    _RATES,
    st.sampled_from(["", "all", "last", "first"]),
    st.sampled_from(KINDS),
    _SHOWS,
    st.sampled_from(["ok", None]),
    st.integers(0, 1 << 40),
    st.sampled_from(HERE),
)
def test_as_one_turn_after_the_other(
    rate: Rate, selection: Any, kind: Any, shows: Any, passes: str | None, seed: int, device: str
) -> None:
    chance = random.Random(seed)
    deliveries, ticks = turns(kind, chance, chance.randrange(40), rate.since)
    moving = [tick for tick in ticks if not tick[ASK]]
    made = node(rate, selection, kind, shows, passes)
    expected = short(Output(made).run(deliveries, moving))
    cuts = sorted({2 * chance.randrange(0, 40) for _ in range(chance.randrange(5))})
    assert output(made, deliveries, ticks, cuts, device) == expected
