"""Windows whose rows leave when the clock has advanced, beside a brute force that takes one turn at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import narwhals as nw
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
    UntilTick,
)
from gpu_ops.plan.data_windows import DataWindow, Output
from gpu_ops.plan.nodes import Node, extended
from gpu_ops.plan.window_kinds import DataWindowKind
from tests.support import clock_reference as brute
from tests.support.devices import HERE
from tests.support.on_turns import ROWS, Row, Script, feeds, in_any_cut, in_one_step, members, scripts, ticks_of

CHANCE = st.randoms(use_true_random=False)
SPAN = st.integers(1, 15)


def until(expression: nw.Expr) -> Callable[[Node, Node], Node]:
    return lambda arrivals, ticks: UntilTick(extended(arrivals, [expression.alias(DUE)]), ticks)


@pytest.mark.parametrize("device", HERE)
@given(script=scripts(ROWS), span=SPAN, chance=CHANCE)
def test_rows_for_a_span(device: str, script: Script, span: int, chance: random.Random) -> None:
    plan = until(g.col(CLOCK) + g.lit(timedelta(microseconds=span)))
    wanted = brute.members(brute.run(lambda: brute.UntilDue(lambda clock, row: clock + span), script))
    assert members(in_one_step(plan, script, device)) == wanted
    assert members(in_any_cut(plan, script, device, chance)) == wanted


@pytest.mark.parametrize("device", HERE)
@given(script=scripts(ROWS), chance=CHANCE)
def test_rows_until_times_of_their_own(device: str, script: Script, chance: random.Random) -> None:
    due = g.when(g.col("v") != 0).then(g.col("t")).otherwise(g.lit(None, g.Int64)).cast(g.Datetime("us", "UTC"))
    wanted = brute.run(lambda: brute.UntilDue(lambda clock, row: row.t if row.v else None), script)
    found = in_one_step(until(due), script, device)
    assert members(found) == brute.members(wanted)
    assert members(in_any_cut(until(due), script, device, chance)) == brute.members(wanted)


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
