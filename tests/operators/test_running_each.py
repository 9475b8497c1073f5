"""A row for each event that enters a data window, step by step: what comes and goes is enough, whatever is in."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import DataWindowed
from gpu_ops.operators.row_windows.incremental import IncrementalDataWindow
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.live_plans import events, source, table
from tests.support.rows import rows
from tests.support.ticks import at_us, us

WINDOWS: dict[str, Callable[[g.Stream], DataWindowed]] = {
    "last": lambda s: s.by("k").last(3),
    "last of all": lambda s: s.last(2, order="v"),
    "only whole": lambda s: s.by("k").last(3, partial=False),
    "moving": lambda s: s.by("k").last(4, every=3),
    "batches": lambda s: s.by("k").batches(2),
    "count window": lambda s: s.by("k").count_window(2),
    "last span": lambda s: s.by("k").last_span("9us"),
    "time batches": lambda s: s.by("k").time_batches("7us"),
    "time batches on a grid": lambda s: s.time_batches("7us", align=at_us(1)),
    "first": lambda s: s.by("k").first(3),
    "first span": lambda s: s.by("k").first_span("20us"),
    "keep all": lambda s: s.keep_all(),
    "unique": lambda s: s.by("k").unique("v"),
    "first unique": lambda s: s.unique("v", "t"),
    "highest": lambda s: s.by("k").highest(2, "v"),
    "sample": lambda s: s.by("k").sample(3, seed=5),
    "running session": lambda s: s.by("k").session("6us", running=True),
    "session": lambda s: s.by("k").session("6us"),
}
ASKED: dict[str, dict[str, Any]] = {
    "sums": {"n": g.count(), "s": g.sum("x"), "w": g.count("v", where=g.col("x") > 0)},
    "orders": {"m": g.median("v"), "a": g.min("v"), "b": g.max("x"), "d": g.count_distinct("v")},
    "what is looked at again": {"c": g.collect_list("v"), "b": g.max("t")},
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WINDOWS)
@pytest.mark.parametrize("asked", ASKED)
@examples(5, kinds=True)
@given(events, st.sampled_from(HERE), st.randoms(use_true_random=False))
def test_live_is_batch_in_any_cut(
    kind: str, asked: str, tmp_path_factory: Any, events: list[Any], device: str, chance: random.Random
) -> None:
    arrived = in_some_order(table(events), chance)
    query = WINDOWS[kind](source(arrived)).each(**ASKED[asked])
    found = in_any_cut(query, arrived, device, chance, tmp_path_factory.mktemp("any"))
    assert rows(found) == rows(query.collect(device=device))


@pytest.mark.slow
@pytest.mark.parametrize("gives", ["each", "agg", "rows", "changes", "with_prior"])
@pytest.mark.parametrize("kind", ["last", "count window", "batches", "last span"])
def test_rows_that_stay_are_not_looked_at_again(kind: str, gives: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    settled = IncrementalDataWindow._settled

    def seen(self: IncrementalDataWindow, rows: Any, *rest: Any) -> Any:
        looked.append(len(rows))
        return settled(self, rows, *rest)

    monkeypatch.setattr(IncrementalDataWindow, "_settled", seen)
    many = 400
    windows: dict[str, Callable[[g.Stream], DataWindowed]] = {
        "last": lambda s: s.last(many),
        "count window": lambda s: s.count_window(many // 5),
        "batches": lambda s: s.batches(many),
        "last span": lambda s: s.last_span(us(many)),
    }
    asks: dict[str, Callable[[DataWindowed], g.Stream]] = {
        "each": lambda w: w.each(n=g.count(), m=g.median("v")),
        "agg": lambda w: w.agg(n=g.count(), m=g.median("v")),
        "rows": lambda w: w.rows(),
        "changes": lambda w: w.changes(),
        "with_prior": lambda w: source(table([])).by("k").with_prior(many, before="v"),
    }
    query = asks[gives](windows[kind](source(table([])).by("k")))
    live = query.start()
    given_events = [(at // 5, at // 5 + 1, "a", at % 7, None, None) for at in range(3 * many)]
    found = []
    for at in range(0, len(given_events), 20):
        live.push(table(given_events[at : at + 20]))
        live.advance(at_us(at // 5 + 4))
        found.append(live.results())
    # New rows, and as many that leave; of batches all, but only once in a batch.
    assert sum(looked) <= 4 * len(given_events)
    live.close()
    whole = asks[gives](windows[kind](source(table(given_events)).by("k")))
    if gives == "with_prior":
        whole = source(table(given_events)).by("k").with_prior(many, before="v")
    assert rows(pa.concat_tables([*found, live.results()])) == rows(whole.collect())


@pytest.mark.parametrize("device", HERE)
@pytest.mark.parametrize("seed", range(4))
def test_a_row_is_given_what_is_in_of_its_own_key(seed: int, device: str) -> None:
    """The last row of one key leaves while those of the next key enter, in the numbers of whatever step comes first.

    ::

        a     ├──────┤                      leaves behind its last enter
        null        ├────┤   ├──────┤       enters then: one row is in, not what is left of a
    """
    chance, keys = random.Random(seed), ["a", "b", "c", None]
    times = sorted(chance.sample(range(1000), 60))
    given_events = [(at, at + 1, chance.choice(keys), chance.randrange(9), None, None) for at in times]
    live = source(table([])).by("k").last_span("200us").each(n=g.count(), s=g.sum("v")).start(device=device)
    begin = 0
    while begin < len(times):
        end = min(begin + chance.randrange(1, 25), len(times))
        live.push(table(given_events[begin:end]))
        live.advance(at_us(times[end]) if end < len(times) else "infinity")
        begin = end
    inside = [
        [other[3] for other in given_events if other[2] == row[2] and row[0] - 200 < other[0] <= row[0]]
        for row in given_events
    ]
    found = live.results().sort_by("start")
    assert found["n"].to_pylist() == [len(each) for each in inside]
    assert found["s"].to_pylist() == [sum(each) for each in inside]
