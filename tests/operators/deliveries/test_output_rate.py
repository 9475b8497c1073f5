from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.state_tables import check
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.core.turns import ASK, CLOCK, DUE, EMPTY, ENTERED, HELD, LEFT, MARK, NEW, OLD, ORDER, ROW
from gpu_ops.devices import choose
from gpu_ops.errors import ColumnError, PlanError, SourceError
from gpu_ops.operators.deliveries import first_rows, output_rate
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.runtime.steps import Leaves, running
from gpu_ops.operators.state import rows as state_rows
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, OutputRate, Rate, When
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.output_rate_reference import Output
from tests.support.turns import DELIVERED, Row, again, delivered, events, feed
from tests.support.turns import told as turns_told

TIME = pa.timestamp("us", "UTC")
PAYLOAD = pa.schema(
    [*DELIVERED, (DUE, TIME), ("key", pa.string()), ("id", pa.int64()), ("total", pa.int64()), ("ok", pa.bool_())]
)
ROWS = feed(PAYLOAD)
TICKS = feed(pa.schema([(CLOCK, TIME), (ASK, pa.bool_())]))
SHOWN = ("key", "id", "total")

KINDS = ["un-aggregated", "row for all", "row per event", "row per group", "aggregated and grouped"]


def node(
    rate: Rate,
    selection: Any,
    kind: Any,
    shows: Any = (NEW, OLD),
    passes: str | None = "ok",
    *,
    judged: bool = False,
) -> OutputRate:
    group = ("key",) if kind in {"row per group", "aggregated and grouped"} else ()
    return OutputRate(ROWS, TICKS, rate, selection, kind, group, ("total",), shows, passes, judged=judged)


def short(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(row["place"], row[ROW], row[ORDER], *(row.get(name) for name in SHOWN)) for row in rows]


def output(of: OutputRate, deliveries: list[Row], ticks: list[Row], *more: Any) -> list[tuple[Any, ...]]:
    return short(delivered(of, {ROWS: deliveries, TICKS: ticks}, *more))


# What each kind of query outputs. A clock every two places; rows are told as (kind, key, id, total)

SECOND = Rate(EveryPeriod(ClockSpan(ticks=1000)), since=0)


def told(*deliveries: tuple[int, list[tuple[Any, ...]]]) -> list[Row]:
    """Deliveries at places, with their marks; a fifth value says whether a row passes, which it does without one."""
    made = list[Row]()
    for place, rows in deliveries:
        for number, (kind, key, name, total, *ok) in enumerate(rows):
            made.append({"place": place, ROW: kind, ORDER: number, "key": key, "id": name, "total": total})
            made[-1]["ok"] = ok[0] if ok else True
        moved = {ENTERED: sum(row[0] == NEW for row in rows), LEFT: sum(row[0] == OLD for row in rows)}
        made.append({"place": place, ROW: MARK, ORDER: 0} | moved)
    return made


def clock(*times: tuple[int, int]) -> list[Row]:
    return [{"place": place, CLOCK: time, ASK: False} for place, time in times]


def test_rows_as_they_came_and_an_empty_delivery_for_an_interval_without_any() -> None:
    rows = told((2, [(NEW, "a", 1, None)]), (4, [(NEW, "b", 2, None), (OLD, "a", 1, None)]))
    assert output(node(SECOND, "", "un-aggregated"), rows, clock((6, 999), (8, 1000), (10, 2000))) == [
        (8, NEW, 0, "a", 1, None),
        (8, NEW, 1, "b", 2, None),
        (8, OLD, 0, "a", 1, None),
        (10, EMPTY, 0, None, None, None),
    ]


def test_a_count_alone_posts_no_empty_delivery() -> None:
    rows = told((2, [(NEW, "a", 1, None, False)]), (4, [(NEW, "b", 2, None, False)]))
    assert output(node(Rate(EveryRows(2)), "", "un-aggregated"), rows, []) == []


def test_a_total_of_all_is_posted_again_where_nothing_came() -> None:
    # total  0 ─▶ 5 ─▶ 7   |   7, 7   |
    rows = told((2, [(NEW, None, 0, 5), (OLD, None, 0, None)]), (4, [(NEW, None, 0, 7), (OLD, None, 0, 5)]))
    ticks = clock((6, 1000), (8, 2000))
    assert [row[:3] + row[5:] for row in output(node(SECOND, "", "row for all"), rows, ticks)] == [
        (6, NEW, 0, 5),
        (6, NEW, 1, 7),
        (6, OLD, 0, None),
        (6, OLD, 1, 5),
        (8, NEW, 0, 7),
        (8, OLD, 0, 7),
    ]
    assert [row[:3] + row[5:] for row in output(node(SECOND, "last", "row for all"), rows, ticks)] == [
        (6, NEW, 0, 7),
        (6, OLD, 0, None),
        (8, NEW, 0, 7),
        (8, OLD, 0, 7),
    ]


GROUPS = told(
    (2, [(NEW, "a", 0, 5), (OLD, "a", 0, None)]),
    (4, [(NEW, "b", 0, 1), (OLD, "b", 0, None)]),
    (6, [(NEW, "a", 0, 8), (OLD, "a", 0, 5)]),
    (10, [(NEW, "b", 0, 4), (OLD, "b", 0, 1)]),
)


def test_the_last_row_of_each_group_that_changed_beside_what_it_was() -> None:
    made = output(node(SECOND, "last", "row per group"), GROUPS, clock((8, 1000), (12, 2000)))
    assert [(place, kind, key, total) for place, kind, _, key, _, total in made] == [
        (8, NEW, "b", 1),
        (8, NEW, "a", 8),
        (8, OLD, "a", None),
        (8, OLD, "b", None),
        (12, NEW, "b", 4),
        (12, OLD, "b", 1),
    ]


def test_a_row_of_every_group_ever_seen() -> None:
    made = output(node(SECOND, "all", "row per group"), GROUPS, clock((8, 1000), (12, 2000)))
    assert [(kind, key, total) for place, kind, _, key, _, total in made if place == 12] == [
        (NEW, "a", 8),
        (NEW, "b", 4),
        (OLD, "a", 8),
        (OLD, "b", 1),
    ]


def test_a_group_that_passes_no_more_is_not_shown_again() -> None:
    rows = told((2, [(NEW, "a", 0, 60)]), (6, [(NEW, "a", 0, 40, False)]))
    made = output(node(SECOND, "all", "row per group", (NEW,)), rows, clock((4, 1000), (8, 2000)))
    assert made == [(4, NEW, 0, "a", 0, 60), (8, EMPTY, 0, None, None, None)]


def test_all_rows_of_groups_and_the_last_ones_of_the_others() -> None:
    """What leaves shows its group's last new row with the group's new total."""
    rows = told((2, [(NEW, "a", 1, 5)]), (4, [(NEW, "b", 2, 1)]), (6, [(NEW, "a", 3, 8)]), (10, [(OLD, "a", 1, 3)]))
    made = output(node(SECOND, "all", "aggregated and grouped", (NEW,)), rows, clock((8, 1000), (12, 2000)))
    assert [(place, key, name, total) for place, _, _, key, name, total in made] == [
        (8, "a", 1, 5),
        (8, "b", 2, 1),
        (8, "a", 3, 8),
        (12, "a", 3, 3),
        (12, "b", 2, 1),
    ]


def test_the_first_delivery_of_each_interval_at_once() -> None:
    rows = told(*((place, [(NEW, "a", place, None)]) for place in (2, 4, 8, 10)))
    made = output(node(SECOND, "first", "un-aggregated"), rows, clock((6, 1000)))
    assert [row[0] for row in made] == [2, 8]


def test_intervals_of_each_group_begin_with_its_rows() -> None:
    # a at 0, 700 | 1000  b at 700 | 1600 1700
    rows = told(*((place, [(NEW, key, 0, None)]) for place, key in [(2, "a"), (6, "a"), (8, "b"), (12, "a")]))
    rows += told((16, [(NEW, "b", 0, None)]), (20, [(NEW, "b", 0, None)]))
    made = output(node(SECOND, "first", "row per group"), rows, clock((4, 700), (10, 1000), (14, 1600), (18, 1700)))
    assert [(place, key) for place, _, _, key, *_ in made] == [(2, "a"), (8, "b"), (12, "a"), (20, "b")]


@pytest.mark.parametrize(("due", "places"), [(2000, {8: [1, 2]}), (2001, {8: [1], 14: [2]})])
def test_what_falls_due_before_the_rate_at_one_jump_is_part_of_the_output(
    due: int, places: dict[int, list[int]]
) -> None:
    rows = told((2, [(OLD, "a", 1, None)]), (8, [(OLD, "a", 2, None)]))
    for row in rows:
        row[DUE] = due if row["place"] == 8 else None
    made = output(
        node(Rate(EveryPeriod(ClockSpan(0, 2000)), since=0), "", "un-aggregated"), rows, clock((8, 3000), (14, 4000))
    )
    found: dict[int, list[int]] = {}
    for place, kind, _, _, name, _ in made:
        if kind == OLD:
            found.setdefault(place, []).append(name)
    assert found == places


def test_a_condition_on_counts_and_on_columns_of_marks() -> None:
    rate = Rate(When((nw.col("count_insert") >= 2) & (nw.col("id").is_null())))
    rows = told(*((place, [(NEW, "a", place, None)]) for place in range(2, 12, 2)))
    made = output(node(rate, "last", "un-aggregated"), rows, [])
    assert [(row[0], row[4]) for row in made] == [(4, 4), (8, 8)]


def test_deliveries_wait_for_the_ticks() -> None:
    made, device = node(SECOND, "", "un-aggregated"), choose("cpu")
    plan = running(made, device)
    rows = told((2, [(NEW, "a", 1, None)]), (6, [(NEW, "b", 2, None)]))
    late: Leaves = {(ROWS, "whole"): (StepInput([events(ROWS, rows, device)]), 8), (TICKS, "whole"): (StepInput(), 4)}
    given_rows, cti = plan.step(late)
    assert (given_rows.events, cti) == ([], 4)
    plan = again(plan, made, device)
    assert plan.own is not None
    assert plan.own.waiting == 2
    ticks = events(TICKS, clock((4, 5), (8, 1005)), device)
    rest: Leaves = {(ROWS, "whole"): (StepInput(), MAX_TIME), (TICKS, "whole"): (StepInput([ticks]), MAX_TIME)}
    shown = [row for piece in plan.step(rest)[0].events for row in turns_told(piece, made.schema, device)]
    assert [(row["place"], row["id"]) for row in shown] == [(8, 1), (8, 2)]


def test_a_damaged_state_is_refused() -> None:
    made, device = node(SECOND, "", "un-aggregated"), choose("cpu")
    plan = running(made, device)
    first: Leaves = {
        (ROWS, "whole"): (StepInput([events(ROWS, told((2, [(NEW, "a", 1, None)])), device)]), 4),
        (TICKS, "whole"): (StepInput(), 4),
    }
    plan.step(first)
    assert plan.own is not None
    tables = plan.own.tables()
    check("The state", tables, plan.own.declared)
    kept = tables["kept"].set_column(1, "row/@row", pa.array([MARK], pa.int8()))
    with pytest.raises(SourceError, match=r"column 'row/@row'"):
        check("The state", {**tables, "kept": kept}, plan.own.declared)
    firing = tables["firing"].set_column(0, "clock", pa.array([1 << 61], pa.int64()))
    with pytest.raises(SourceError, match=r"column 'clock'"):
        check("The state", {**tables, "firing": firing}, plan.own.declared)


def test_a_batch_without_the_columns_that_nobody_reads() -> None:
    made, device = node(SECOND, "", "un-aggregated", passes=None), choose("cpu")
    rows, ticks = told((2, [(NEW, "a", 1, None)])), clock((4, 1000), (6, 2000))
    needed, clocks = made.needs(("id",))
    whole = [events(ROWS, rows, device), events(TICKS, ticks, device)]
    pairs = zip(whole, (needed, clocks), strict=True)
    narrow = [replace(each, frame=device.columns.select(each.frame, names)) for each, names in pairs]
    kind = Operator.registered(made)
    assert kind is not None
    found = list(kind.of(made, device).batch(BatchInput([iter([each]) for each in narrow], ("id",))))
    assert [each.start.tolist() for each in found] == [[4], [6]]
    assert all(set(each.frame.columns) == set(needed) for each in found)


def test_what_cannot_be_is_refused() -> None:
    grouped: Any = "row per group"
    with pytest.raises(PlanError, match=r"'row per group', and its groups are by \(\)"):
        OutputRate(ROWS, TICKS, SECOND, "", grouped)
    with pytest.raises(PlanError, match="shows new rows, old ones, or both"):
        node(SECOND, "", "un-aggregated", (HELD,))
    with pytest.raises(PlanError, match="cannot wait for a condition"):
        node(Rate(When(nw.col("count_insert") > 1)), "first", grouped)
    with pytest.raises(ColumnError, match=r"no such column.*'kee'"):
        OutputRate(ROWS, TICKS, SECOND, "", grouped, ("kee",))
    with pytest.raises(ColumnError, match="'totl'"):
        node(Rate(When(nw.col("totl") > 1)), "", "un-aggregated")
    with pytest.raises(PlanError, match="having takes a condition"):
        node(SECOND, "", "un-aggregated", passes="id")


def test_it_says_what_it_does() -> None:
    assert node(SECOND, "last", "row per group").describe() == "OutputRate last every 1ms of row per group by key"
    after = Rate(EveryRows(3), after=ClockSpan(0, 2_000_000))
    assert node(after, "", "un-aggregated").describe() == "OutputRate after 2s every 3 rows of un-aggregated"


# Random deliveries: which rows there are depends on the kind of query


def turns(
    kind: str, chance: random.Random, count: int, since: int, keys: Sequence[str | None] = ("a", "b", "c", None)
) -> tuple[list[Row], list[Row]]:
    """Deliveries and ticks of some turns; a tick may jump, ask, and have a delivery at its place."""
    deliveries, ticks, clock = list[Row](), list[Row](), since
    for at in range(count):
        place, is_tick = 2 * at, chance.random() < 0.5
        if is_tick:
            asks = chance.random() < 0.2
            clock += 0 if asks else chance.choice([0, 300, 1000, 1000, 2600, 100_000_000])
            ticks.append({"place": place, CLOCK: clock, ASK: asks})
        if chance.random() < (0.4 if is_tick else 0.9):
            behind = (max(since, clock - back) for back in (0, 500, 1000, 2000))
            due: list[int | None] = [None, *behind] if is_tick else [None]
            deliveries += _delivery(kind, place, chance, due, keys)
        if chance.random() < 0.1:
            deliveries.append({"place": place, ROW: HELD, ORDER: 0, "id": at})
        if chance.random() < 0.05:
            deliveries.append({"place": place, ROW: EMPTY, ORDER: 0})
    return deliveries, ticks


def _delivery(
    kind: str, place: int, chance: random.Random, due: list[int | None], every: Sequence[str | None]
) -> list[Row]:
    rows, moved = list[Row](), [0, 0]

    def add(side: int, number: int, key: str | None, entered: int | None = None, left: int | None = None) -> None:
        made = {"place": place, ROW: side, ORDER: number, "key": key, DUE: chance.choice(due)}
        made |= {
            "id": chance.randrange(100),
            "total": chance.choice([1, 2, 3, None]),
            "ok": chance.choice([1, 1, 0, None]),
        }
        rows.append(made | {"ok": None if made["ok"] is None else bool(made["ok"]), ENTERED: entered, LEFT: left})

    keys = chance.sample(every, chance.randrange(1, 4))
    if kind == "row per group":
        for number, key in enumerate(keys):
            moved = [chance.randrange(1, 3), chance.randrange(0, 3)]
            add(NEW, number, key, *(moved if chance.random() < 0.8 else []))
            add(OLD, number, key)
    elif kind == "row for all":
        moved = [chance.randrange(3), chance.randrange(1, 3)]
        add(NEW, 0, None)
        add(OLD, 0, None)
    else:
        moved = [chance.randrange(3), chance.randrange(3)]
        for side, count in zip((NEW, OLD), moved, strict=True):
            for number in range(count):
                add(side, number, chance.choice(keys))
    if sum(moved):
        rows.append({"place": place, ROW: MARK, ORDER: 0, ENTERED: moved[0], LEFT: moved[1], DUE: chance.choice(due)})
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


_DRAWN = (
    _RATES,
    st.sampled_from(["", "all", "last", "first"]),
    st.sampled_from(KINDS),
    _SHOWS,
    st.sampled_from(["ok", None]),
    st.integers(0, 1 << 40),
    st.sampled_from(HERE),
)


@given(*_DRAWN)
def test_as_one_turn_after_the_other(
    rate: Rate, selection: Any, kind: Any, shows: Any, passes: str | None, seed: int, device: str
) -> None:
    made, chance = node(rate, selection, kind, shows, passes, judged=passes is not None), random.Random(seed)
    deliveries, ticks = turns(kind, chance, chance.randrange(40), rate.since)
    expected = short(Output(made).run(deliveries, [tick for tick in ticks if not tick[ASK]]))
    cuts = sorted({2 * chance.randrange(0, 40) for _ in range(chance.randrange(5))})
    assert output(made, deliveries, ticks, cuts, device) == expected


@examples(dear=True)
@given(*_DRAWN)
def test_what_is_done_with_many_rows_and_groups_with_a_few(
    rate: Rate, selection: Any, kind: Any, shows: Any, passes: str | None, seed: int, device: str
) -> None:
    """Rows are looked through again, groups forgotten, conditions computed for many rows at a time."""
    made, chance = node(rate, selection, kind, shows, passes, judged=passes is not None), random.Random(seed)
    keys = [None, *(f"k{number}" for number in range(20))]
    deliveries, ticks = turns(kind, chance, chance.randrange(60), rate.since, keys)
    expected = short(Output(made).run(deliveries, [tick for tick in ticks if not tick[ASK]]))
    with pytest.MonkeyPatch.context() as patch:
        for where, name in ((output_rate, "_FEW"), (first_rows, "_MANY")):
            patch.setattr(where, name, 1)
        patch.setattr(state_rows, "_CROWD", 3)
        assert output(made, deliveries, ticks, range(2, 120, 2 * chance.randrange(1, 9)), device) == expected
