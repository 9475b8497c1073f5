"""By which keys patterns can be split among tasks, and which need all events in one order."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import PlanError
from gpu_ops.plan.ledger import AtClock, EventLedger
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.splits import Split

ROWS = pa.table({"at": [0], "k": [0], "other": [0], "v": [0]})
col = g.col


def split(found: g.ArrivalStream) -> tuple[set[frozenset[tuple[int, str]]], set[int] | None]:
    """By which keys the deliveries of matches may be split, and which ticks tasks must see."""
    (last,) = found.deliveries()._node.all(AtClock)
    known: dict[Node, Split] = {}
    for each in last.walk():
        if isinstance(each, EventLedger) or (each.inputs and each.inputs[0] in known):
            known[each] = each.split([known[below] for below in each.inputs if below in known])
    made = known[last]
    return set(made.keys or ()), None if made.spans is None else set(made.spans)


def streams() -> tuple[Any, Any]:
    one, two = g.arrivals(*(g.events(ROWS, start="at", unit="s", name=name) for name in "ab"))
    return one, two


def test_a_row_pattern_needs_the_rows_of_its_partitions() -> None:
    one, _ = streams()
    low = g.row("low")
    pattern = low + g.row("high", col("v") > low["v"])
    asked: dict[str, dict[str, Any]] = {"": {}, "2s": {"within": "2s"}, "1s": {"interval": "1s"}}
    for span, options in asked.items():
        spans = {int(span[0]) * 1_000_000} if span else set()
        made = split(one.by("k").match(pattern, {"v": low["v"]}, **options))
        assert made == ({frozenset({(0, "k")})}, spans)
    with pytest.raises(PlanError, match="A row pattern needs all events in one order"):
        split(one.match(pattern, {"v": low["v"]}))


def test_an_event_pattern_needs_the_events_of_its_key() -> None:
    one, two = streams()
    start, b = g.every("a", one), g.one("b", two, col("v") > col("a.v"), on="k")
    for step, spans in (
        (b, set()),
        (b.within("3s"), {3_000_000}),
        (g.none("b", two, on="k").within("2s"), {2_000_000}),
        (b & g.one("c", two, on="k"), set()),
        ((b & g.one("c", two, on="k")).within("2s"), None),  # whose time may be any
    ):
        assert split(g.pattern(start >> step)) == ({frozenset({(0, "k"), (1, "k")})}, spans)
    same = g.pattern(g.every("a", one) >> g.one("b", one, on="k"))
    assert split(same) == ({frozenset({(0, "k")})}, set())


def test_other_patterns_need_one_order() -> None:
    one, two = streams()
    start, b = g.every("a", one), g.one("b", two, on="k")
    for step, says in (
        (g.every(g.one("a", one) >> b), "does not begin with every event"),
        (g.one("a", one) >> b, "does not begin with every event"),
        ((start >> b).within("2s"), "does not begin with every event"),
        (start >> g.one("b", two), "an event that has no key of the first one"),
        (start >> b >> g.one("c", two, col("k") == col("b.other")), "an event that has no key of the first one"),
        (start >> b >> g.one("c", two, col("other") == col("a.k")), "A pattern"),
    ):
        with pytest.raises(PlanError, match=f"{says}.* needs all events in one order"):
            split(g.pattern(step))
    with pytest.raises(PlanError, match="whose matches end others needs"):
        split(g.pattern(start >> b, suppress=True))
