"""A pipeline applied to each group gives what it gives for each group's events by themselves."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import Stream
from gpu_ops.errors import ColumnError, PlanError
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.examples import examples
from tests.support.reference import Event
from tests.support.rows import rows, stream, to_events, to_table

PAYLOAD = pa.schema([("k", pa.string()), ("j", pa.int64()), ("v", pa.int64())])

PIPELINES: dict[str, Callable[[Stream], Stream]] = {
    "window": lambda s: s.snapshot().agg(n=g.count(), v=g.sum("v")),
    "windows of windows": lambda s: s.tumbling("5us").agg(n=g.count()).hopping("20us", "10us").agg(m=g.max("n")),
    "by more": lambda s: s.by("j").tumbling("8us").agg(v=g.sum("v")).snapshot().agg(m=g.max("v")),
    "filled": lambda s: s.tumbling("5us", fill="zero").agg(n=g.count()).filter(g.col("n") < 2),
    "distinct": lambda s: s.distinct("j").snapshot().agg(n=g.count()),
    "beside itself": lambda s: s.join(s.snapshot().agg(most=g.max("v"))).filter(g.col("v") == g.col("most")),
    "until the next": lambda s: s.extend("30us").clip_by(s),
    "as of": lambda s: s.asof_join(s.shift(timedelta(microseconds=3)), suffix="_before"),
    "stitch": lambda s: s.select(*s.key, "j").extend("2us").stitch(),
    "union": lambda s: s.union(s.shift("50us")).snapshot().agg(n=g.count()),
    "nested": lambda s: s.by("j").apply(lambda t: t.tumbling("8us").agg(n=g.count()).snapshot().agg(m=g.max("n"))),
    "nothing": lambda s: s,
}

events = st.lists(
    st.builds(
        lambda at, lasts, k, j, v: Event(at, at + lasts, {"k": k, "j": j, "v": v}),
        st.integers(0, 40),
        st.integers(1, 12),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 1),
        st.integers(-3, 3),
    ),
    max_size=12,
)


def each_alone(found: list[Event], pipeline: Callable[[Stream], Stream], device: str) -> list[Event]:
    made = []
    for k in sorted({event.payload["k"] for event in found}):
        alone = pipeline(stream([event for event in found if event.payload["k"] == k], PAYLOAD))
        made += [
            Event(start, end, {**payload, "k": k}) for start, end, payload in to_events(alone.collect(device=device))
        ]
    return made


@pytest.mark.parametrize("name", list(PIPELINES))
@examples(12, kinds=True)
@given(found=events)
def test_apply_is_each_group_by_itself(device_name: str, name: str, found: list[Event]) -> None:
    asked = stream(found, PAYLOAD).by("k").apply(PIPELINES[name])
    answer = to_events(asked.collect(device=device_name))
    # The group is in the result once, whatever the pipeline does of itself.
    answer = [Event(start, end, {n: v for n, v in one.items() if n != "k_before"}) for start, end, one in answer]
    expected = each_alone(found, PIPELINES[name], device_name)
    expected = [Event(start, end, {n: v for n, v in one.items() if n != "k_before"}) for start, end, one in expected]
    assert rows(answer) == rows(expected)


@examples(dear=True)
@given(found=events, chance=st.randoms(use_true_random=False))
def test_a_running_query_applies_too(found: list[Event], chance: random.Random) -> None:
    def ask(s: Stream) -> Stream:
        return s.by("k").apply(PIPELINES["by more"])

    arriving = in_some_order(to_table(found, PAYLOAD), chance)
    expected = rows(ask(stream(found, PAYLOAD)).collect())
    assert rows(in_any_cut(ask(stream([], PAYLOAD)), arriving, "cpu", chance)) == expected


def test_the_result_is_not_grouped_any_more() -> None:
    s = stream([Event(0, 1, {"k": "a", "j": 0, "v": 1}), Event(0, 1, {"k": "b", "j": 0, "v": 1})], PAYLOAD)
    counted = s.by("k").apply(lambda each: each.tumbling("5us").agg(n=g.count()))
    assert counted.key == ()
    assert counted.tumbling("5us").agg(n=g.sum("n")).collect()["n"].to_pylist() == [2]


def test_another_stream_meets_every_group() -> None:
    s = stream([Event(0, 5, {"k": k, "j": 0, "v": 1}) for k in "ab"], PAYLOAD)
    other = stream([Event(1, 3, {"why": "storm"})])
    met = s.by("k").apply(lambda each: each.join(other)).collect()
    assert sorted(met["k"].to_pylist()) == ["a", "b"]


def test_what_is_no_pipeline_is_refused() -> None:
    s = stream([], PAYLOAD)
    with pytest.raises(PlanError, match="needs a grouped stream"):
        s.apply(lambda each: each)
    with pytest.raises(PlanError, match="must return a stream"):
        s.by("k").apply(lambda each: each.collect())
    with pytest.raises(PlanError, match="must return a stream"):
        s.by("k").apply(lambda _: s)
    with pytest.raises(ColumnError, match="grouped by"):
        s.by("k").apply(lambda each: each.select("v"))


def test_explain_shows_what_is_applied() -> None:
    plan = stream([], PAYLOAD).by("k").apply(PIPELINES["window"]).explain()
    assert "Apply to each k" in plan
    assert "Apply ends" in plan
