"""Lookups: rows ask what a window holds at their places, beside a loop over lists."""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import replace
from typing import Any

import narwhals as nw
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from gpu_ops.errors import PlanError
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.data_windows import DataWindow, Last
from gpu_ops.plan.lookups import Looked, Lookup, PairGroups, PairLookup
from gpu_ops.plan.nodes import Feed, Filter, Node, Project
from gpu_ops.plan.ordered_aggregates import median
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.on_turns import ARRIVALS, ROWS, Placed, Row, Script, Stepped, placed, scripts

_SIZE = 3


def _named(name: str, aggregate: Aggregate) -> Aggregate:
    return replace(aggregate, name=name)


_KEYS = (("of", "k"),)
_AGGREGATES = {
    "n": g.count(),
    "least": g.min("v"),
    "total": g.sum("v"),
    "middle": median("v"),
}


def _asking(arrivals: Node) -> Node:
    some = Filter(arrivals, ~nw.col("t").is_null() & (nw.col("t") < 30))
    return Project(some, (nw.col("k").alias("of"), nw.col("v").alias("bound"), nw.col("t").alias("at")), keep=False)


def _by_key(arrivals: Node, *, before: bool) -> Node:
    looked = [Looked(_named(name, each), _KEYS) for name, each in _AGGREGATES.items()]
    looked += [
        Looked(_named("all", g.count())),
        Looked(_named("equal", g.count()), (*_KEYS, ("bound", "v"))),
    ]
    return Lookup(DataWindow(arrivals, Last(_SIZE)), _asking(arrivals), tuple(looked), before)


def _by_pairs(arrivals: Node, *, before: bool) -> Node:
    looked = tuple(Looked(_named(name, each)) for name, each in _AGGREGATES.items())
    more = (Looked(_named("sums", g.sum("both"))),)
    return PairLookup(
        DataWindow(arrivals, Last(_SIZE)),
        _asking(arrivals),
        (*looked, *more),
        before,
        _KEYS,
        nw.col("v") <= nw.col("bound"),
        ((nw.col("v") + nw.col("bound")).alias("both"),),
    )


def _by_groups(arrivals: Node, *, before: bool) -> Node:
    """How many values are held more than once, and the greatest sum of how often one is and the row's bound."""
    groups = PairGroups(
        ("v",),
        (_named("many", g.count()),),
        nw.col("many") > 1,
        ((nw.col("many") + nw.col("bound")).alias("more"),),
    )
    looked = (Looked(_named("n", g.count())), Looked(_named("most", g.max("more"))))
    return PairLookup(DataWindow(arrivals, Last(_SIZE)), _asking(arrivals), looked, before, _KEYS, groups=groups)


def _folded(held: list[Row]) -> dict[str, Any]:
    values = [each.v for each in held if each.v is not None]
    return {
        "n": len(held) or None,
        "least": min(values, default=None),
        "total": sum(values) if values else None,
        "middle": statistics.median(values) if values else None,
    }


def _wanted(turns: list[Placed], *, before: bool, kind: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    held: list[Row] = []
    for each in turns:
        if not isinstance(each.turn, Row):
            continue
        row, then = each.turn, list(held)
        held = [*held, row][-_SIZE:]
        seen = then if before else held
        if row.t is None or row.t >= 30:
            continue
        made: dict[str, Any] = {"start": each.place, "end": each.place + 1, "of": row.k, "bound": row.v, "at": row.t}
        mine = [other for other in seen if other.k == row.k]
        if kind == "groups":
            often = [count for count in Counter(other.v for other in mine).values() if count > 1]
            most = max(often) + row.v if often and row.v is not None else None
            found.append({**made, "n": len(often) or None, "most": most})
        elif kind == "pairs":
            met = [
                (other, other.v + row.v)
                for other in mine
                if other.v is not None and row.v is not None and other.v <= row.v
            ]
            sums = [each for _, each in met]
            found.append({**made, **_folded([other for other, _ in met]), "sums": sum(sums) if sums else None})
        else:
            equal = sum(other.v == row.v for other in mine)
            found.append({**made, **_folded(mine), "all": len(seen) or None, "equal": equal or None})
    return found


@pytest.mark.slow
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("kind", ["key", "pairs", "groups"])
@given(script=scripts(ROWS), cuts=st.sets(st.integers(1, 30)), device=st.sampled_from(HERE))
@examples(40)
def test_as_a_loop_over_lists(script: Script, cuts: set[int], device: str, kind: str, *, before: bool) -> None:
    """In any pieces, from the state as tables between them, on each device."""
    make = {"key": _by_key, "pairs": _by_pairs, "groups": _by_groups}[kind]
    stepped = Stepped(lambda arrivals, _: make(arrivals, before=before), device)
    turns = placed(script)
    piece: list[Placed] = []
    for each in turns:
        if each.place >> 24 in cuts:
            stepped.step(piece, each.place)
            stepped.again()
            piece = []
        piece.append(each)
    stepped.step(piece, MAX_TIME)
    assert stepped.found == _wanted(turns, before=before, kind=kind)


def test_columns_that_are_compared_are_of_one_type() -> None:
    arrivals = Feed(ARRIVALS, (), 1)
    looked = Looked(_named("n", g.count()), (("of", "v"),))
    with pytest.raises(PlanError, match="Cast one of them"):
        Lookup(arrivals, _asking(arrivals), (looked,))


def test_what_is_held_is_on_turns() -> None:
    arrivals = Feed(ARRIVALS, (), 1)
    with pytest.raises(PlanError, match="on turns"):
        Lookup(_asking(arrivals), arrivals, ())
