"""Deliveries of a join of two windows of time in one walk, beside windows, join and deliveries by themselves.

even        a          b  a'    .           (a window of 10 ticks of the clock)
odd            A  A'            .           (a window of 5)
clock       0  1  2    3  4  5  6   7
pairs          aA aA'        a'A -aA        (A is gone at the tick that shows 6)
                             a'A'-a'A
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import narwhals as nw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import CLOCK, DUE, ORDER, PLACE, ROW, of_stream
from gpu_ops.plan.clock_windows import ClockSpan, UntilTick
from gpu_ops.plan.data_windows import DataWindow, FirstSpan
from gpu_ops.plan.deliveries import Deliveries
from gpu_ops.plan.joins import On
from gpu_ops.plan.lean import lean
from gpu_ops.plan.nodes import Filter, Node, Project, extended
from gpu_ops.plan.per_delivery import PerDelivery, RowKey
from gpu_ops.plan.splits import Split
from gpu_ops.plan.turn_joins import Further, TurnJoin
from gpu_ops.plan.walked_joins import WalkedJoin
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.on_turns import ROWS, Script, feeds, in_any_cut, in_one_step, scripts

_SPANS: dict[str, tuple[int | None, int | None]] = {
    "as long": (10, 10),
    "longer on the left": (12, 3),
    "longer on the right": (1, 10),
    "one for ever": (None, 5),
}
_SIDES: dict[str, tuple[nw.Expr, nw.Expr]] = {
    "apart": (nw.col("t") % 2 == 0, nw.col("t") % 2 == 1),
    "some on both": (nw.col("t") < 30, nw.col("t") >= 10),
    "with itself": (nw.lit(True), nw.lit(True)),
}
_KEYS: dict[str, On] = {"by text": (("0 k", "1 k"),), "by both": (("0 k", "1 k"), ("0 v", "1 v"))}
_CONTENT = {"new": False, "new and old": True}

Plan = Callable[[Node, Node], Node]


def _stream(arrivals: Node, ticks: Node, number: int, some: nw.Expr, span: int | None) -> Node:
    rows: Node = Filter(arrivals, some)
    if span is None:
        rows = DataWindow(rows, FirstSpan(MAX_TIME - MIN_TIME + TICK, MIN_TIME), (), (PLACE,))
    else:
        rows = UntilTick(rows, ticks, CLOCK, ClockSpan(ticks=span))
    named = [nw.col(name).alias(f"{number} {name}") for name in ("k", "v", "t")]
    special = [nw.col(name).alias(of_stream(name, number)) for name in (PLACE, CLOCK)]
    return Project(rows, (*named, *special), keep=False)


def _general(sides: str, spans: str, on: str, *, old: bool, above: bool = True) -> Plan:
    def made(arrivals: Node, ticks: Node) -> Node:
        parts = zip(range(2), _SIDES[sides], _SPANS[spans], strict=True)
        streams = tuple(_stream(arrivals, ticks, number, some, span) for number, some, span in parts)
        join = TurnJoin(streams, (Further("inner", _KEYS[on]),))
        rows = extended(join, [nw.lit(MAX_TIME).cast(nw.Datetime("us", "UTC")).alias(DUE)])
        if above:
            rows = Filter(rows, nw.col("0 t") != nw.col("1 t") + 1)
            rows = extended(rows, [(nw.col("0 t") * 2).alias("twice")])
        delivered = Deliveries(rows, ticks, "row", ((),), (), new=True, old=old, content=True)
        return PerDelivery(delivered, tuple(RowKey(of_stream(PLACE, number)) for number in range(2)))

    return made


def _shown(found: list[dict[str, Any]]) -> list[str]:
    """Rows in order of place, kind and number."""
    names = ("start", ROW, "0 k", "0 v", "0 t", "1 t", "twice")
    found = sorted(found, key=lambda row: (row["start"], row[ROW], row[ORDER]))
    return [repr([row.get(name) for name in names]) for row in found]


def _leaned(plan: Plan) -> Plan:
    """What is left of a plan of which the columns of the answer are read."""

    def made(arrivals: Node, ticks: Node) -> Node:
        node = plan(arrivals, ticks)
        names = [name for name in ("0 k", "0 v", "0 t", "1 t", "twice", ROW, ORDER) if name in node.schema.names]
        node = lean(Project(node, tuple(nw.col(name) for name in names), keep=False))
        assert any(isinstance(each, WalkedJoin) for each in node.walk())
        assert not any(isinstance(each, TurnJoin | Deliveries | UntilTick | DataWindow) for each in node.walk())
        return node

    return made


@pytest.mark.parametrize("kinds", sorted(_CONTENT))
@pytest.mark.parametrize("sides", sorted(_SIDES))
@given(
    st.sampled_from(sorted(_SPANS)),
    st.sampled_from(sorted(_KEYS)),
    st.sampled_from(["pairs", "some pairs, computed"]),
    scripts(ROWS),
    st.randoms(),
    st.sampled_from(HERE),
)
@examples(15, dear=True)
def test_as_the_windows_the_join_and_the_deliveries(
    kinds: str, sides: str, spans: str, on: str, what: str, script: Script, chance: random.Random, device: str
) -> None:
    """In one step and in any cut, with the state as tables in between."""
    general = _general(sides, spans, on, old=_CONTENT[kinds], above=what != "pairs")
    wanted = _shown(in_one_step(general, script, device))
    assert _shown(in_one_step(_leaned(general), script, device)) == wanted
    assert _shown(in_any_cut(_leaned(general), script, device, chance)) == wanted


def test_which_joins_are_walked() -> None:
    arrivals, ticks = feeds()
    plain = _general("apart", "as long", "by text", old=True)(arrivals, ticks)
    assert isinstance(plain, PerDelivery)
    delivered = plain.input
    assert isinstance(delivered, Deliveries)
    names = ["0 k", "1 t", ROW, ORDER]

    def walks(node: Node) -> bool:
        made = lean(Project(node, tuple(nw.col(name) for name in names), keep=False))
        return any(isinstance(each, WalkedJoin) for each in made.walk())

    def joined(*further: Further, **others: Any) -> Deliveries:
        (join,) = delivered.all(TurnJoin)
        made = extended(replace(join, further=further or join.further, **others), [nw.col(CLOCK).alias(DUE)])
        return replace(delivered, rows=made)

    assert walks(plain)
    assert walks(joined())
    assert "in one walk" in " ".join(
        each.describe() for each in lean(Project(plain, (nw.col(ROW), nw.col(ORDER)), keep=False)).walk()
    )
    (join,) = delivered.all(TurnJoin)
    left, right = join.streams
    monthly = _stream(arrivals, ticks, 0, nw.lit(True), 1)
    (window,) = monthly.all(UntilTick)
    monthly = replace(monthly, input=replace(window, span=ClockSpan(months=1)))  # type: ignore[call-arg]
    for other in (
        joined(Further("left", join.further[0].on)),
        joined(Further()),
        joined(replace(join.further[0], condition=nw.col("0 v") < nw.col("1 v"))),
        joined(streams=(monthly, right)),
        joined(streams=(left, extended(right, [(nw.col("end") == nw.col("start")).alias("ends")]))),
        replace(delivered, marks=True),
        replace(delivered, momentary=True),
        replace(delivered, new=False),
        replace(delivered, rows=Filter(delivered.rows, ~nw.col(DUE).is_null())),
    ):
        assert not walks(other)


def test_events_are_split_as_without_it() -> None:
    arrivals, ticks = feeds()
    plain = _general("some on both", "longer on the left", "by text", old=True)(arrivals, ticks)
    assert isinstance(plain, PerDelivery)
    assert isinstance(plain.input, Deliveries)
    plain = replace(plain, input=replace(plain.input, content=False))
    shown = Project(plain, tuple(nw.col(name) for name in ("0 k", ROW, ORDER)), keep=False)

    def split(node: Node) -> Split:
        known: dict[Node, Split] = {arrivals: Split.of_stream(0, arrivals.schema.names), ticks: Split()}
        for each in node.walk():
            if each not in known:
                known[each] = each.split([known[below] for below in each.inputs])
        return known[node]

    walked = lean(shown)
    assert walked.all(WalkedJoin)
    assert split(walked) == split(shown)
    assert split(walked).spans == frozenset({3, 12})
