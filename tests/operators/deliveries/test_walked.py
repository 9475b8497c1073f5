"""Deliveries of groups in one walk over a window's rows, beside the window and the deliveries by themselves.

rows of k   a    b  a         .              (a window of 10 ticks of the clock)
clock       0    3  5        10     13  15
walked      a+   b+ a+       a-     b-  a-   (the first a leaves at the tick that shows 10)
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.turns import CLOCK, DUE, HELD, ORDER, PLACE, ROW
from gpu_ops.operators.deliveries import merged_rows
from gpu_ops.plan.clock_windows import ClockBatches, ClockedWindow, ClockSpan, UntilTick
from gpu_ops.plan.deliveries import Delivered, Deliveries
from gpu_ops.plan.nodes import Filter, Node, Project, extended
from gpu_ops.plan.rates import EveryPeriod, EveryRows, Rate
from gpu_ops.plan.walked_deliveries import WalkedDeliveries, in_one_walk
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.on_turns import ROWS, Script, feeds, in_any_cut, in_one_step, scripts

_COUNT = Delivered(replace(g.count(), name="n"))
_SUM = Delivered(replace(g.sum("v"), name="total"))
_MEAN = Delivered(replace(g.mean("v"), name="mean"))
_OF_FEW = Delivered(replace(g.sum("t", where=nw.col("few")), name="of few"))
_FLOATS = Delivered(replace(g.sum("tenth"), name="tenths"))
_OF_TIMES = Delivered(replace(g.mean("t"), name="mean time"))
_EACH = (_COUNT, _SUM, _MEAN, _OF_FEW, _FLOATS)

_WHOLE = ROWS.map(lambda row: replace(row, v=row.v or 0))
"""Rows of which sums are of whole numbers alone: those with nulls are not merged."""

_OUTPUTS: dict[str, dict[str, Any]] = {
    "each turn": {},
    "each turn, new and old": {"old": True},
    "old alone": {"new": False, "old": True},
    "asked": {"new": False},
    "touched, every 7 ticks": {"snapshot": Rate(EveryPeriod(ClockSpan(ticks=7)), since=0), "touched": True},
    "touched, every 3 rows": {"snapshot": Rate(EveryRows(3), since=0), "touched": True},
    "touched, after 2 rows": {"snapshot": Rate(EveryRows(2), after_rows=2, since=0), "touched": True},
    "all, every 7 ticks": {"snapshot": Rate(EveryPeriod(ClockSpan(ticks=7)), since=0)},
    "all, every 3 rows": {"snapshot": Rate(EveryRows(3), since=0)},
}
_KEYS: dict[str, tuple[str, ...]] = {"by none": (), "by text": ("k",), "by number": ("t4",), "by both": ("k", "t4")}


def _above(window: Node, *, some: bool = True) -> Node:
    """Expressions above a window, as statements have them."""
    few, by, tenth = nw.col("v") < 2, nw.col("t") % 4, nw.col("v") * 0.1
    rows = Filter(window, nw.col("t") != 3) if some else window
    rows = extended(rows, [few.alias("few"), by.alias("t4"), tenth.alias("tenth")])
    names = ["few", "t4", "tenth", "k", "v", "t", PLACE, DUE]
    return Project(rows, tuple(nw.col(name) for name in names), keep=False)


def _general(keys: tuple[str, ...], output: dict[str, Any]) -> Callable[[Node, Node], Deliveries]:
    def made(arrivals: Node, ticks: Node) -> Deliveries:
        rows = _above(UntilTick(arrivals, ticks, CLOCK, ClockSpan(ticks=10)))
        drops = frozenset({DUE, CLOCK})
        return Deliveries(rows, ticks, "group", (keys,), _EACH, content=True, drops=drops, **output)

    return made


def _in_batches(
    keys: tuple[str, ...], output: dict[str, Any], align: int | None, aggregates: tuple[Delivered, ...] = _EACH
) -> Any:
    def made(arrivals: Node, ticks: Node) -> Deliveries:
        window = ClockedWindow(arrivals, ClockBatches(ClockSpan(ticks=7), align), (), (PLACE,), ticks=ticks)
        rows, waiting = (_above(each, some=align is not None) for each in (window, replace(window, output="gathering")))
        drops = frozenset({DUE, CLOCK})
        return Deliveries(
            rows, ticks, "group", (keys,), aggregates, content=True, waiting=waiting, drops=drops, **output
        )

    return made


def _shown(found: list[dict[str, Any]], *, ordered: bool) -> list[str]:
    """Rows in order of place, kind and number; rows of content and of all groups are in no order that says anything."""
    if ordered:
        found = sorted(found, key=lambda row: (row["start"], row[ROW], row[ORDER]))
        content = [row[ROW] == HELD for row in found]
        rest = [row for row, held in zip(found, content, strict=True) if not held]
        found = rest + sorted((row for row, held in zip(found, content, strict=True) if held), key=repr)
    rows = [repr({name: value for name, value in row.items() if name != ORDER}) for row in found]
    return rows if ordered else sorted(rows)


@pytest.mark.parametrize("output", sorted(_OUTPUTS))
@given(st.sampled_from(sorted(_KEYS)), scripts(ROWS), st.randoms(), st.sampled_from(HERE))
@examples(15, dear=True)
def test_as_the_window_and_the_deliveries(
    output: str, by: str, script: Script, chance: random.Random, device: str
) -> None:
    """In one step and in any cut, with the state as tables in between."""
    _check(_general(_KEYS[by], _OUTPUTS[output]), script, chance, device, ordered=not output.startswith("all"))


@pytest.mark.parametrize("output", sorted(each for each in _OUTPUTS if "snapshot" not in _OUTPUTS[each]))
@given(
    st.sampled_from(sorted(_KEYS)), scripts(ROWS), st.sampled_from([None, 0, 3]), st.randoms(), st.sampled_from(HERE)
)
@examples(15, dear=True)
def test_as_batches_and_the_deliveries(
    output: str, by: str, script: Script, align: int | None, chance: random.Random, device: str
) -> None:
    """The same where rows come and go in batches of 7 ticks."""
    _check(_in_batches(_KEYS[by], _OUTPUTS[output], align), script, chance, device, ordered=True)


@pytest.mark.parametrize("output", sorted(each for each in _OUTPUTS if "snapshot" not in _OUTPUTS[each]))
@given(
    st.sampled_from(sorted(_KEYS)), scripts(_WHOLE), st.sampled_from([None, 0, 3]), st.randoms(), st.sampled_from(HERE)
)
@examples(15)
def test_as_batches_whose_rows_are_merged(
    output: str, by: str, script: Script, align: int | None, chance: random.Random, device: str
) -> None:
    """The same where all that a batch has of a group becomes one row as soon as it comes.

    clock     0   1   2        7           9          14
    a         5   6   1   (3 rows: 12)     2      (1 row: 2)
    merged    12 x 3                       2 x 1
    """
    aggregates = (_COUNT, _SUM, _OF_TIMES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merged_rows, "_FEW", 0)
        patch.setattr(merged_rows, "_SPARSE", 1)
        _check(_in_batches(_KEYS[by], _OUTPUTS[output], align, aggregates), script, chance, device, ordered=True)


def _check(general: Any, script: Script, chance: random.Random, device: str, *, ordered: bool) -> None:
    def walked(arrivals: Node, ticks: Node) -> Node:
        made = in_one_walk(general(arrivals, ticks))
        assert isinstance(made, WalkedDeliveries)
        return made

    wanted = _shown(in_one_step(general, script, device), ordered=ordered)
    assert _shown(in_one_step(walked, script, device), ordered=ordered) == wanted
    assert _shown(in_any_cut(walked, script, device, chance), ordered=ordered) == wanted


def test_which_deliveries_are_walked() -> None:
    arrivals, ticks = feeds()
    plain = _general(("k",), {})(arrivals, ticks)
    assert isinstance(in_one_walk(plain), WalkedDeliveries)
    assert "in one walk" in in_one_walk(plain).describe()
    least = Delivered(replace(g.min("v"), name="least"))
    monthly = UntilTick(arrivals, ticks, CLOCK, ClockSpan(months=1))
    some = replace(plain, aggregates=(_COUNT, _SUM))
    for other in (
        replace(plain, aggregates=(*plain.aggregates, least)),
        replace(plain, levels=(("k",), ())),
        replace(plain, levels=(("tenth",),)),
        replace(plain, marks=True),
        replace(plain, per="row", levels=((),)),
        replace(plain, drops=frozenset()),
        replace(some, rows=arrivals),
        replace(some, rows=monthly),
        _in_batches(("k",), {"snapshot": Rate(EveryRows(3), since=0)}, 0)(arrivals, ticks),
        replace(_in_batches(("k",), {}, 0)(arrivals, ticks), waiting=plain.rows),
        replace(plain, rows=Filter(plain.rows, ~nw.col(DUE).is_null())),
    ):
        assert in_one_walk(other) is other


def test_content_that_waits_is_that_of_the_same_window() -> None:
    """Where only columns are picked, no plan is told to see that; others are seen to differ."""
    arrivals, ticks = feeds()

    def picked(span: int, output: Any, key: str, *, rows: Node = arrivals) -> Node:
        below = Project(rows, tuple(nw.col(name) for name in ("k", "v", CLOCK, PLACE)), keep=False)
        window = ClockedWindow(below, ClockBatches(ClockSpan(ticks=span), 0), (), (PLACE,), output, ticks=ticks)
        return extended(window, [nw.col(key).alias("by")])

    def asked(waiting: Node) -> Deliveries:
        drops = frozenset({DUE, CLOCK})
        rows = picked(7, "alive", "k")
        return Deliveries(rows, ticks, "group", (("by",),), (_COUNT,), content=True, waiting=waiting, drops=drops)

    some = Filter(arrivals, nw.col("v") > 1)
    assert isinstance(in_one_walk(asked(picked(7, "gathering", "k"))), WalkedDeliveries)
    for other in (
        picked(8, "gathering", "k"),
        picked(7, "alive", "k"),
        picked(7, "gathering", "v"),
        picked(7, "gathering", "k", rows=some),
    ):
        assert isinstance(in_one_walk(asked(other)), Deliveries)


def test_a_condition_on_groups_by_verbs_leaves_the_walk() -> None:
    """It is asked of what the answer reads; when rows came, and when they leave, is carried no further."""
    events = g.events(pa.table({"at": [0, 5, 12], "k": ["a", "b", "a"], "v": [1, 2, 3]}), start="at", unit="s")
    begin, until = (np.datetime64(each, "s") for each in (0, 20))
    batches = g.arrivals(events, start=begin, until=until).time_batches("10s", align=begin)
    asked = batches.deliveries("k", n=g.count(), total=g.sum("v"), by="k", having=g.col("total") > 1)
    assert "in one walk" in asked.explain()
    assert asked.collect().select(["k", "n", "total"]).to_pylist() == [
        {"k": "b", "n": 1, "total": 2},
        {"k": "a", "n": 1, "total": 3},
    ]


def test_a_batch_of_many_rows_of_few_groups_counts_each_of_them() -> None:
    """Two batches of 2,000 rows of four groups: each group has 500 rows in each, and their sum."""
    second = pa.array(np.arange(4000))
    events = pa.table({"at": second, "k": pa.array(np.arange(4000) % 4), "v": second})
    begin, until = (np.datetime64(each, "s") for each in (0, 4000))
    stream = g.arrivals(g.events(events, start="at", unit="s"), start=begin, until=until)
    asked = stream.time_batches("2000s", align=begin).deliveries("k", n=g.count(), total=g.sum("v"), by="k")
    found = asked.collect().select(["k", "n", "total"]).to_pylist()
    assert [(row["k"], row["n"]) for row in found] == [(k, 500) for k in range(4)] * 2
    assert [row["total"] for row in found] == [
        sum(range(first + k, first + 2000, 4)) for first in (0, 2000) for k in range(4)
    ]
