"""Windows whose rows leave when the clock has advanced, beside a brute force that takes one turn at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.turns import CLOCK, DUE, PLACE, TURN
from gpu_ops.plan.clock_windows import (
    Accumulated,
    ClockBatches,
    ClockedWindow,
    ClockLengthBatches,
    ClockSpan,
    FirstClock,
    StampBatches,
    StampSpan,
    UntilStamp,
    UntilTick,
)
from gpu_ops.plan.data_windows import DataWindow, First, Last, Output, Sorted
from gpu_ops.plan.nodes import Node, extended
from gpu_ops.plan.window_kinds import DataWindowKind
from gpu_ops.plan.window_sets import SetPart, SetRule, UntilTime, WindowSet
from tests.support import clock_reference as brute
from tests.support.devices import HERE
from tests.support.examples import by_default
from tests.support.on_turns import ROWS, Row, Script, feeds, in_any_cut, in_one_step, members, scripts, ticks_of

CHANCE = st.randoms(use_true_random=False)
SPAN = st.integers(1, 15)


@pytest.mark.parametrize("device", HERE)
@by_default(100)
@given(script=scripts(ROWS), span=SPAN, chance=CHANCE)
def test_rows_for_a_span(device: str, script: Script, span: int, chance: random.Random) -> None:
    def plan(arrivals: Node, ticks: Node) -> Node:
        return UntilTick(arrivals, ticks, span=ClockSpan(ticks=span))

    wanted = brute.members(brute.run(lambda: brute.UntilDue(lambda clock, row: clock + span), script))
    assert members(in_one_step(plan, script, device)) == wanted
    assert members(in_any_cut(plan, script, device, chance)) == wanted


@pytest.mark.parametrize("device", HERE)
@by_default(100)
@given(script=scripts(ROWS), chance=CHANCE)
def test_rows_until_times_of_their_own(device: str, script: Script, chance: random.Random) -> None:
    due = g.when(g.col("v") != 0).then(g.col("t")).otherwise(g.lit(None, g.Int64)).cast(g.Datetime("us", "UTC"))

    def plan(arrivals: Node, ticks: Node) -> Node:
        return UntilTick(extended(arrivals, [due.alias("until")]), ticks, "until")

    windows = brute.run(lambda: brute.UntilDue(lambda clock, row: row.t if row.v else None), script)
    for found in (in_one_step(plan, script, device), in_any_cut(plan, script, device, chance)):
        assert members(found) == brute.members(windows)
        told = {row[PLACE] // TURN: ticks_of(row[DUE]) for row in found if row[DUE] is not None}
        assert told == {at: turn.t for at, turn in enumerate(script, 1) if isinstance(turn, Row) and turn.v}


@pytest.mark.parametrize("device", HERE)
@by_default(100)
@given(script=scripts(ROWS), span=SPAN, chance=CHANCE)
def test_rows_until_a_stamp(device: str, script: Script, span: int, chance: random.Random) -> None:
    def plan(arrivals: Node, ticks: Node) -> Node:
        stamped = extended(arrivals, [g.col("t").cast(g.Datetime("us", "UTC")).alias("at")])
        return UntilStamp(stamped, "at", ClockSpan(ticks=span))

    wanted = brute.members(brute.run(lambda: brute.StampSpan(span), script))
    assert members(in_one_step(plan, script, device)) == wanted
    assert members(in_any_cut(plan, script, device, chance)) == wanted


KEYS = st.sampled_from([(), ("k",), ("k", "v")])


def key_of(keys: tuple[str, ...]) -> Callable[[Row], object]:
    return (lambda row: tuple(getattr(row, name) for name in keys)) if keys else (lambda row: None)


def windowed(kind: DataWindowKind, keys: tuple[str, ...], output: Output) -> Callable[[Node, Node], Node]:
    def plan(arrivals: Node, ticks: Node) -> Node:
        if getattr(kind, "by_clock", False):
            return ClockedWindow(arrivals, kind, keys, output=output, ticks=ticks)
        return DataWindow(arrivals, kind, keys, output=output)

    return plan


def span_of(ticks: int) -> ClockSpan:
    return ClockSpan(ticks=ticks)


COUNT = st.integers(1, 4)
POINT = st.none() | st.integers(0, 20)

CASES = st.one_of(
    st.builds(lambda d: (Accumulated(span_of(d)), lambda: brute.Accumulated(lambda clock: clock + d)), SPAN),
    st.builds(
        lambda d, align, since, runs: (
            ClockBatches(span_of(d), align, since, runs),
            lambda: brute.GridBatches(d, align, since, runs=runs),
        ),
        SPAN,
        POINT,
        st.none(),
        st.booleans(),
    ),
    st.builds(
        lambda d, n, runs: (
            ClockLengthBatches(span_of(d), n, None, runs),
            lambda: brute.LengthBatches(d, n, None, runs=runs),
        ),
        SPAN,
        COUNT,
        st.booleans(),
    ),
    st.builds(lambda d, s: (FirstClock(span_of(d), s), lambda: brute.FirstClock(d, s)), SPAN, POINT),
    st.builds(lambda d: (StampSpan(span_of(d), "t"), lambda: brute.StampSpan(d)), SPAN),
    st.builds(
        lambda d, align: (StampBatches(span_of(d), "t", align), lambda: brute.StampBatches(d, align)), SPAN, POINT
    ),
)


@pytest.mark.parametrize("device", HERE)
@by_default(100)
@given(script=scripts(ROWS), case=CASES, keys=KEYS, chance=CHANCE)
def test_windows_of_groups(
    device: str,
    script: Script,
    case: tuple[DataWindowKind, Callable[[], brute.Window]],
    keys: tuple[str, ...],
    chance: random.Random,
) -> None:
    kind, window = case
    windows = brute.run(window, script, key_of(keys))
    plan = windowed(kind, keys, "alive")
    for found in (in_one_step(plan, script, device), in_any_cut(plan, script, device, chance)):
        assert members(found) == brute.members(windows)
        if DUE in plan(*feeds()).schema.names:
            told = {row[PLACE] // TURN: row[DUE] for row in found if row[DUE] is not None}
            assert {row: ticks_of(due) for row, due in told.items()} == brute.dues(windows)
    if kind.enters == "later":
        plan = windowed(kind, keys, "gathering")
        for found in (in_one_step(plan, script, device), in_any_cut(plan, script, device, chance)):
            assert members(found) == brute.gathering(windows, script, key_of(keys))


@pytest.mark.parametrize("device", HERE)
@by_default(100)
@given(
    script=scripts(ROWS),
    span=SPAN,
    count=st.none() | COUNT,
    align=POINT,
    since=st.none() | st.just(0),
    keys=KEYS,
    chance=CHANCE,
)
def test_posts_of_nothing(
    device: str,
    script: Script,
    span: int,
    count: int | None,
    align: int | None,
    since: int | None,
    keys: tuple[str, ...],
    chance: random.Random,
) -> None:
    since = None if keys else since
    kind: DataWindowKind
    if count is None:
        align = 0 if since is not None and align is None else align
        kind = ClockBatches(span_of(span), align, since, runs=True)
        windows = brute.run(lambda: brute.GridBatches(span, align, since, runs=True), script, key_of(keys))
    else:
        kind = ClockLengthBatches(span_of(span), count, since, runs=True)
        windows = brute.run(lambda: brute.LengthBatches(span, count, since, runs=True), script, key_of(keys))
    plan = windowed(kind, keys, "posts")
    wanted = sorted({at for window in windows.values() for at in window.posts})
    for found in (in_one_step(plan, script, device), in_any_cut(plan, script, device, chance)):
        assert sorted(row["start"] // TURN for row in found) == wanted
    plan = windowed(kind, keys, "alive")
    for found in (in_one_step(plan, script, device), in_any_cut(plan, script, device, chance)):
        assert members(found) == brute.members(windows)


# Together

Rows = dict[int, tuple[int, Row]]
Made = tuple[SetPart, Callable[[Rows], brute.Part]]


def _same(rows: Rows, content: list[int]) -> list[int]:
    return [each for each in content if rows[each][1].v == rows[content[-1]][1].v]


def _beyond(count: int, rows: Rows, content: list[int]) -> list[int]:
    """Of more than so many rows the one with the greatest time, of equal ones the oldest."""
    return [max(content, key=lambda each: (rows[each][1].t, -each))] if len(content) > count else []


def _late(span: int, rows: Rows, content: list[int]) -> list[int]:
    newest, gone = rows[content[-1]][1].t, 0
    assert newest is not None
    while (rows[content[gone]][1].t or 0) + span <= newest:
        gone += 1
    return content[:gone]


DUE_OF = {"due": (g.col(CLOCK) + g.lit(timedelta(microseconds=7))), "own": g.col("t").cast(g.Datetime("us", "UTC"))}

PARTS = st.one_of(
    st.builds(
        lambda n: (SetPart(Last(n)), lambda rows: brute.Part(rows, lambda rows, content: content[:-n])),
        COUNT,
    ),
    st.just((SetPart(Last(1), ("v",)), lambda rows: brute.Part(rows, lambda rows, content: _same(rows, content)[:-1]))),
    st.builds(
        lambda n: (SetPart(First(n)), lambda rows: brute.Part(rows, lambda rows, content: content[n:], first=True)),
        COUNT,
    ),
    st.just(
        (
            SetPart(First(1), ("v",)),
            lambda rows: brute.Part(rows, lambda rows, content: _same(rows, content)[1:], first=True),
        )
    ),
    st.builds(
        lambda n: (
            SetPart(Sorted(n, (("t", False),))),
            lambda rows: brute.Part(rows, lambda rows, content: _beyond(n, rows, content)),
        ),
        COUNT,
    ),
    st.builds(
        lambda d: (
            SetPart(StampSpan(span_of(d), "t")),
            lambda rows: brute.Part(rows, lambda rows, content: _late(d, rows, content)),
        ),
        SPAN,
    ),
    st.just((SetPart(UntilTime(column="due")), lambda rows: brute.Part(rows, due=lambda clock, row: clock + 7))),
    st.just((SetPart(UntilTime(column="own")), lambda rows: brute.Part(rows, due=lambda clock, row: row.t or 0))),
    st.builds(
        lambda d, s: (
            SetPart(FirstClock(span_of(d), s)),
            lambda rows: brute.Part(
                rows,
                lambda rows, content: content[-1:] if rows[content[-1]][0] >= s + d else [],
                first=True,
            ),
        ),
        SPAN,
        st.integers(0, 20),
    ),
)

TIMERS = st.one_of(
    st.none(),
    st.builds(lambda d: (SetPart(Accumulated(span_of(d))), lambda rows: brute.Part(rows, gap=d)), SPAN),
)

BATCHES = st.one_of(
    st.none(),
    st.builds(
        lambda d, align: (
            SetPart(ClockBatches(span_of(d), align)),
            lambda: brute.GridBatches(d, align, None, runs=False),
        ),
        SPAN,
        POINT,
    ),
    st.builds(
        lambda d, n: (
            SetPart(ClockLengthBatches(span_of(d), n)),
            lambda: brute.LengthBatches(d, n, None, runs=False),
        ),
        SPAN,
        COUNT,
    ),
)


def together(
    rule: SetRule, parts: list[SetPart], keys: tuple[str, ...], output: Output
) -> Callable[[Node, Node], Node]:
    def plan(arrivals: Node, ticks: Node) -> Node:
        below = extended(arrivals, [value.alias(name) for name, value in DUE_OF.items()])
        kind = WindowSet(rule, tuple(parts), "shown")
        return ClockedWindow(below, kind, keys, output=output, ticks=ticks)

    return plan


@pytest.mark.parametrize("device", HERE)
@by_default(100)
@given(
    script=scripts(ROWS),
    parts=st.lists(PARTS, min_size=1, max_size=2),
    timer=TIMERS,
    batches=BATCHES,
    rule=st.sampled_from(["all", "any"]),
    keys=st.sampled_from([(), ("k",)]),
    chance=CHANCE,
)
def test_windows_together(
    device: str,
    script: Script,
    parts: list[Made],
    timer: Made | None,
    batches: tuple[SetPart, Callable[[], brute.Batches]] | None,
    rule: SetRule,
    keys: tuple[str, ...],
    chance: random.Random,
) -> None:
    if batches is not None and rule == "all":
        timer = None
    else:
        batches = None
    made = [*parts, *([] if timer is None else [timer])]

    def window() -> brute.Window:
        reference = [part for _, part in made]
        if rule == "any":
            return brute.Either(reference)
        return brute.Both(reference, None if batches is None else batches[1]())

    windows = brute.run(window, script, key_of(keys))
    known = [part for part, _ in made] + ([] if batches is None else [batches[0]])
    if batches is not None:
        plan = together(rule, known, keys, "gathering")
        found = in_any_cut(plan, script, device, chance)
        assert members(found) == brute.gathering(windows, script, key_of(keys))
    plan = together(rule, known, keys, "alive")
    for found in (in_one_step(plan, script, device), in_any_cut(plan, script, device, chance)):
        assert members(found) == brute.members(windows)
        told = {row[PLACE] // TURN: row[DUE] for row in found if row[DUE] is not None}
        assert {row: ticks_of(due) for row, due in told.items()} == brute.dues(windows)
