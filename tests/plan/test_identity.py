"""Plans that are written alike over one source are identical, and what is identical is computed once."""

from __future__ import annotations

import datetime
import decimal
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.engines.live.running_query import RunningQuery
from gpu_ops.errors import SourceError
from gpu_ops.ingest.sources import EventSource
from gpu_ops.plan.identity import NodeIdentity
from gpu_ops.plan.nodes import Feed, merged
from tests.support.following import facts_of

ROWS = pa.table({"at": [0, 1, 2, 61], "v": [1, 2, 3, 4], "w": [0.5, -0.0, 2.0, 4.0], "k": ["a", "b", "a", "b"]})
S = g.events(ROWS, start="at", unit="s", name="s")
OTHER = g.events(ROWS, start="at", unit="s", name="other")
V, W = g.col("v"), g.col("w")


Function = Callable[[pa.Table], int]


def first(table: pa.Table) -> int:
    return int(table["v"][0].as_py())


def second(table: pa.Table) -> int:
    return int(table["v"][0].as_py())


def own(function: Function) -> Any:
    return g.window_function(function, returns=pa.int64(), of="v")


PLANS: dict[str, Callable[[], g.Stream]] = {
    "source": lambda: S,
    "another source of the same rows": lambda: OTHER,
    "filter": lambda: S.filter(V > 1),
    "filter by another column": lambda: S.filter(W > 1),
    "filter by another constant": lambda: S.filter(V > 2),
    "filter, the other way": lambda: S.filter(V < 1),
    "two filters": lambda: S.filter(V > 1).filter(V > 1),
    "two conditions": lambda: S.filter(V > 1, V > 1),
    "is_in": lambda: S.filter(V.is_in([1, 2])),
    "is_in another": lambda: S.filter(V.is_in([1, 3])),
    "with_columns": lambda: S.with_columns(x=V + 1),
    "select": lambda: S.select(x=V + 1),
    "another name": lambda: S.with_columns(y=V + 1),
    "cast": lambda: S.with_columns(x=V.cast(nw.Int32)),
    "another cast": lambda: S.with_columns(x=V.cast(nw.Int16)),
    "when": lambda: S.with_columns(x=nw.when(V > 1).then("w").otherwise(nw.lit(3.0))),
    "when with a constant": lambda: S.with_columns(x=nw.when(V > 1).then(nw.lit(2.0)).otherwise(nw.lit(3.0))),
    "by": lambda: S.by("k"),
    "by two": lambda: S.by("k", "v"),
    "tumbling": lambda: S.by("k").tumbling("1min").agg(n=g.count()),
    "tumbling without a key": lambda: S.tumbling("1min").agg(n=g.count()),
    "hopping": lambda: S.by("k").hopping("1min", "5s").agg(n=g.count()),
    "another aggregate": lambda: S.by("k").tumbling("1min").agg(n=g.sum("v")),
    "of an expression": lambda: S.by("k").tumbling("1min").agg(n=g.sum(V * 2)),
    "where": lambda: S.by("k").tumbling("1min").agg(n=g.count(where=V > 1)),
    "quantile": lambda: S.by("k").tumbling("1min").agg(n=g.quantile("v", 0.2)),
    "another quantile": lambda: S.by("k").tumbling("1min").agg(n=g.quantile("v", 0.3)),
    "a function": lambda: S.tumbling("1min").agg(n=own(first)),
    "another function": lambda: S.tumbling("1min").agg(n=own(second)),
    "zone": lambda: S.tumbling("1d", zone="Europe/Vienna").agg(n=g.count()),
    "another zone": lambda: S.tumbling("1d", zone="UTC").agg(n=g.count()),
    "fill": lambda: S.by("k").tumbling("1min", fill="zero").agg(n=g.count()),
    "last": lambda: S.by("k").last(2).rows(),
    "unique": lambda: S.unique("k").rows(),
    "each": lambda: S.by("k").last(2).each(n=g.sum("v")),
    "intersection": lambda: S.by("k").last(2).intersect(S.by("k").unique("v")).rows(),
    "shift": lambda: S.shift("5s"),
    "another shift": lambda: S.shift("6s"),
    "alter": lambda: S.alter_lifetime(end=g.col("start") + datetime.timedelta(seconds=2)),
    "join": lambda: S.join(OTHER, on="v"),
    "anti join": lambda: S.join(OTHER, on="v", how="anti"),
    "join where": lambda: S.join(OTHER, on="v", condition=g.col("w") > g.col("w_right")),
    "join the other way": lambda: OTHER.join(S, on="v"),
    "as of": lambda: S.asof_join(OTHER, on="v"),
    "clip": lambda: S.clip_by(OTHER, on="v"),
    "union": lambda: S.union(OTHER),
    "stitch": S.stitch,
    "advance": lambda: S.advance_time(1, late="drop"),
    "advance with": lambda: S.advance_time(late="drop", advance_with=OTHER),
    "late": lambda: S.advance_time(1, late="divert").late(),
    "apply": lambda: S.by("k").apply(lambda s: s.tumbling("1min").agg(n=g.count())),
    "top": lambda: S.tumbling("1min").top(2, by="v"),
}


def test_plans_are_identical_when_they_are_written_alike_and_else_are_not() -> None:
    once, again = ({name: plan()._node.identity for name, plan in PLANS.items()} for _ in range(2))
    assert once == again
    assert len(set(once.values())) == len(PLANS)


SERIES = pl.Series([1, 2])
CONSTANTS: list[Any] = [
    *(0, 1, 1.0, True, False, "1", b"1", 0.0, -0.0, float("nan"), float("inf"), None, np.float32(1), np.int64(1)),
    *(decimal.Decimal("1.0"), decimal.Decimal("1.00"), datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2)),  # noqa: DTZ001
    *(datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC), datetime.timedelta(1), datetime.timedelta(2)),
]


def test_constants_are_identical_by_type_and_value() -> None:
    told = [S.with_columns(x=nw.lit(each))._node.identity for each in CONSTANTS if each is not None]
    assert told == [S.with_columns(x=nw.lit(each))._node.identity for each in CONSTANTS if each is not None]
    assert len(set(told)) == len(told)
    listed = [S.filter(V.is_in([each]))._node.identity for each in (1, 2, 3)]
    assert len({*listed, S.filter(V.is_in((1,)))._node.identity, S.filter(V.is_in([1, 2]))._node.identity}) == 5


def test_dates_and_zones_are_constants() -> None:
    def later(zone: str) -> NodeIdentity:
        return S.with_columns(x=g.col("start").dt.convert_time_zone(zone))._node.identity

    assert later("Europe/Vienna") == later("Europe/Vienna")
    assert later("Europe/Vienna") != later("Europe/Paris")


def test_series_and_functions_are_identical_only_as_the_same_object() -> None:
    def within(series: Any) -> NodeIdentity:
        return S.filter(V.is_in(series))._node.identity

    assert within(SERIES) == within(SERIES)
    assert within(SERIES) != within(pl.Series([1, 2]))
    # Also where one is there only once the other is gone.
    one, other = (S.tumbling("1min").agg(n=own(lambda table: table.num_rows))._node.identity for _ in range(2))
    assert one != other


def test_sources_are_identical_only_as_the_same_object() -> None:
    """Each counts what is read of it."""
    one, other = (g.events(ROWS, start="at", unit="s", on_invalid="divert") for _ in range(2))
    both = one.union(other)
    assert both.collect(device="cpu").num_rows == 8
    assert one.report().valid == other.report().valid == 4


def test_feeds_are_identical_only_as_the_same_object() -> None:
    one, other = (Feed(pa.schema([("v", pa.int64())]), (), None) for _ in range(2))
    assert one.identity == one.identity != other.identity


def test_the_identity_of_a_long_plan_needs_no_deep_stack() -> None:
    def long() -> g.Stream:
        stream = S
        for _ in range(3000):
            stream = stream.shift("1s")
        return stream

    one, other = long(), long()
    assert one._node.identity == other._node.identity
    assert len(list(merged(one.union(other)._node).walk())) == 3002


def test_another_process_tells_objects_by_itself() -> None:
    node = Feed(pa.schema([("v", pa.int64())]), (), None)
    shifted = g.Stream(node).shift("1s")._node
    before = shifted.identity
    again = pickle.loads(pickle.dumps(shifted))  # noqa: S301  (just made)
    assert again.identity != before
    assert again.describe() == shifted.describe()


# What is identical is computed once


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the sources that are read, as they are."""
    made: list[str] = []
    before = EventSource.read

    def read(self: EventSource, *args: Any, **options: Any) -> Any:
        made.append(self.schema.names[0])
        return before(self, *args, **options)

    monkeypatch.setattr(EventSource, "read", read)
    return made


class Counted:
    """A function of a window that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, table: pa.Table) -> int:
        self.calls += 1
        return int(table.num_rows)


def busiest(stream: g.Stream, function: Function) -> g.Stream:
    """What each of two users writes."""
    return stream.filter(V + 0 > 0).by("k").tumbling("1min").agg(n=own(function))


BOTH: dict[str, Callable[[g.Stream, Callable[[], Function]], g.Stream]] = {
    "union": lambda s, f: busiest(s, f()).union(busiest(s, f())),
    "join": lambda s, f: busiest(s, f()).join(busiest(s, f()), on="k"),
    "anti join": lambda s, f: busiest(s, f()).join(busiest(s, f()).shift("1min"), on="k", how="anti"),
    "behind other steps": lambda s, f: busiest(s, f()).filter(g.col("n") > 0).union(busiest(s, f()).shift("1min")),
    "twice over": lambda s, f: busiest(s, f()).union(busiest(s, f()).filter(g.col("n") > 0).union(busiest(s, f()))),
}
WINDOWS = 3


@pytest.mark.parametrize("name", BOTH)
def test_what_two_users_ask_is_computed_once(name: str, reads: list[str]) -> None:
    counted, alone = Counted(), [Counted() for _ in range(3)]
    answer = BOTH[name](S, lambda: counted).collect(device="cpu")
    assert counted.calls == WINDOWS
    assert reads == ["v"]
    # By functions of their own nothing is identical.
    apart = BOTH[name](S, iter(alone).__next__).collect(device="cpu")
    assert sum(each.calls for each in alone) >= 2 * WINDOWS
    order = [(column, "ascending") for column in answer.column_names]
    assert answer.sort_by(order).equals(apart.sort_by(order))


@pytest.mark.parametrize("name", BOTH)
def test_a_running_query_computes_it_once_too(name: str) -> None:
    counted = Counted()
    plan = BOTH[name](S, lambda: counted)
    with plan.start(device="cpu") as live:
        live.push(ROWS)
    assert counted.calls == WINDOWS
    order = [(column, "ascending") for column in plan.schema.names]
    assert live.results().sort_by(order).equals(plan.collect(device="cpu").sort_by(order))


def test_explain_shows_it_once() -> None:
    counted = Counted()
    shown = BOTH["behind other steps"](S, lambda: counted).explain(device="cpu")
    assert shown.count("Window tumbling") == 2
    assert shown.count("(as above: one stream in several places)") == 1


def test_windows_over_identical_streams_go_together() -> None:
    def stream() -> g.Stream:
        return S.filter(V > 0).by("k")

    together = stream().last(2).intersect(stream().unique("v")).agg(n=g.count())
    named = stream()
    assert together._node.identity == named.last(2).intersect(named.unique("v")).agg(n=g.count())._node.identity


# Checkpoints of before have what was written twice twice


def test_an_older_checkpoint_is_restored_as_it_was_made(tmp_path: Path) -> None:
    plan = BOTH["behind other steps"](S, lambda: first)
    older = RunningQuery(plan._node, "cpu")
    with plan.start(device="cpu") as whole:
        for live in (older, whole):
            live.push(ROWS.slice(0, 2))
    older.checkpoint(tmp_path / "older")
    facts = facts_of(tmp_path / "older")
    assert [name.partition(" ")[0] for name in facts["functions"]] == ["3", "7"]
    again = g.restore(tmp_path / "older", plan, device="cpu")
    again.push(ROWS.slice(2))
    again.close()
    expected = plan.collect(device="cpu")
    order = [(column, "ascending") for column in expected.column_names]
    assert again.results().sort_by(order).equals(expected.sort_by(order))


def test_a_checkpoint_of_another_plan_is_refused_as_ever(tmp_path: Path) -> None:
    live = BOTH["union"](S, Counted).start(device="cpu")
    live.checkpoint(tmp_path / "checkpoint")
    with pytest.raises(SourceError, match="is of another plan"):
        g.restore(tmp_path / "checkpoint", BOTH["twice over"](S, Counted), device="cpu")
