"""Alerts: patterns fire where the interpreter has them fire, however the input is cut."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from tests.support.cuts import in_any_cut
from tests.support.cycle_interpreter import Part, Row, alerts
from tests.support.examples import by_default
from tests.support.pieces import in_pieces, sizes

PATTERNS = [
    {"a": True, "b": True},
    {"a": True, "b": True, "c": False},
    {"a": True, "b": False, "c": False},
    {"b": True, "c": True, "a": True},
    {"c": True, "a": False},
]
PARTS = {
    "last": Part("last", 2),
    "span": Part("span", None, 3),
    "most": Part("span", 2, 5),
    "highest": Part("highest", 2),
    "latest": Part("latest", 2),
}


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[int, Row]]:
    """Events of three streams, in their order."""
    now, events = 0, []
    for number, gap in enumerate(draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 5]), max_size=24))):
        now += gap
        value = draw(st.sampled_from(["x", "y", "z", None]))
        events.append(
            (now, {"id": number, "s": draw(st.sampled_from("abc")), "k": value, "v": draw(st.integers(0, 3))})
        )
    return events


def alert(stream: g.Stream, kinds: Sequence[str], chosen: Sequence[dict[str, bool]]) -> g.Stream:
    coming = g.cycles(stream, order="id")
    partitions = {}
    for name, kind in zip("abc", kinds, strict=True):
        part, windows = PARTS[kind], coming.where(g.col("s") == name).partition()
        partitions[name] = {
            "last": lambda windows=windows, part=part: windows.last(part.size),
            "latest": lambda windows=windows, part=part: windows.latest(part.size),
            "span": lambda windows=windows, part=part: windows.last_span(f"{part.span}ms"),
            "most": lambda windows=windows, part=part: windows.last_span(f"{part.span}ms", most=part.size),
            "highest": lambda windows=windows, part=part: windows.highest(part.size, "v"),
        }[kind]()
    return g.alert(
        partitions,
        on="k",
        when=[
            g.present(
                *(name for name, there in each.items() if there),
                absent=tuple(name for name, there in each.items() if not there),
            )
            for each in chosen
        ],
        columns={f"{name}_id": (name, "id") for name in "abc"},
    )


def table(events: Sequence[tuple[int, Row]]) -> pa.Table:
    columns = {"id": pa.int64(), "s": pa.string(), "k": pa.string(), "v": pa.int64()}
    times = pa.array([at * 1000 for at, _ in events], pa.timestamp("us", "UTC"))
    rows = {name: pa.array([row[name] for _, row in events], dtype) for name, dtype in columns.items()}
    return pa.table({"start": times, **rows})


def answered(answer: pa.Table) -> list[Any]:
    starts = answer["start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    rows = answer.select(["cycle", "a_id", "b_id", "c_id"]).to_pylist()
    return sorted(((at // 1000, *row.values()) for at, row in zip(starts, rows, strict=True)), key=repr)


def expected(events: Sequence[tuple[int, Row]], kinds: Sequence[str], chosen: Sequence[dict[str, bool]]) -> list[Any]:
    chains = {name: [PARTS[kind]] for name, kind in zip("abc", kinds, strict=True)}
    by_stream = [(at, row["s"], row) for at, row in events]
    found = []
    for now, number, rows in alerts(chains, by_stream, "k", chosen):
        found.append((now, number, *(rows[name]["id"] if name in rows else None for name in "abc")))
    return sorted(found, key=repr)


some_kinds = st.tuples(*[st.sampled_from(list(PARTS))] * 3)
some_patterns = st.lists(st.sampled_from(PATTERNS), min_size=1, max_size=3, unique_by=str)


@pytest.mark.parametrize("device", ["cpu", "array"])
@by_default(40)
@given(events=scripts(), kinds=some_kinds, chosen=some_patterns, size=sizes)
def test_alerts_are_those_of_the_interpreter(
    device: str, events: list[tuple[int, Row]], kinds: tuple[str, ...], chosen: list[dict[str, bool]], size: int
) -> None:
    with in_pieces(size):
        answer = alert(g.events(table(events), start="start"), kinds, chosen).collect(device=device)
    assert answered(answer) == expected(events, kinds, chosen)


@pytest.mark.parametrize("device", ["cpu", "array"])
@by_default(20)
@given(events=scripts(), kinds=some_kinds, chosen=some_patterns, seed=st.integers(0, 1 << 20))
def test_no_cut_and_no_restart_changes_an_alert(
    device: str, events: list[tuple[int, Row]], kinds: tuple[str, ...], chosen: list[dict[str, bool]], seed: int
) -> None:
    given = table(events)
    query = alert(g.events(given.slice(0, 0), start="start"), kinds, chosen)
    with TemporaryDirectory() as folder:
        found = in_any_cut(query, given, device, random.Random(seed), Path(folder))
    assert answered(found) == expected(events, kinds, chosen)


#  0    1    2    3
#  a----+----+----|      a leaves at 3: then the pattern fires, unless c has come while a and b were there
#       b----+----+--
@pytest.mark.parametrize(("c", "fires"), [([9], [3]), ([2], []), ([3], [3])])
def test_what_comes_in_between_taints_a_pattern(c: list[int], fires: list[int]) -> None:
    streams = [g.events(pa.table({"at": at, "k": ["x"] * len(at)}), start="at", unit="ms") for at in ([0], [1], c)]
    first, second, third = g.cycles(*streams)
    query = g.alert(
        {
            "a": first.partition().last_span("3ms"),
            "b": second.partition().last_span("9ms"),
            "c": third.partition().last_span("1ms"),
        },
        on="k",
        when=g.present("a", "b", absent="c"),
        columns={"k": ("a", "k")},
    )
    assert [at.microsecond // 1000 for at in query.collect()["start"].to_pylist()] == fires


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda a, b: g.alert({"a": a}, on="k", when=g.present("a"), columns={"k": ("a", "k")}), "2 to"),
        (
            lambda a, b: g.alert({"a": a, "b": b}, on="k", when=g.present("a"), columns={"k": ("a", "k")}),
            "two partitions",
        ),
        (lambda a, b: g.alert({"a": a, "b": b}, on="n", when=g.present("a", "b"), columns={"k": ("a", "k")}), "'n'"),
        (lambda a, b: g.alert({"a": a, "b": b}, on="k", when=g.present("a", "c"), columns={"k": ("a", "k")}), "'c'"),
        (lambda a, b: g.alert({"a": a, "b": b}, on="k", when=g.present("a", "b"), columns={"k": ("c", "k")}), "'c'"),
        (lambda a, b: g.alert({"a": a, "b": b}, on={"a": "k"}, when=g.present("a", "b"), columns={}), "'b'"),
        (lambda a, b: g.present(absent="c"), "wants"),
    ],
)
def test_what_makes_no_alert_is_refused(made: Any, says: str) -> None:
    streams = [g.events(pa.table({"at": [0], "k": ["x"]}), start="at", unit="ms") for _ in "ab"]
    a, b = (each.partition().last(2) for each in g.cycles(*streams))
    with pytest.raises(g.GpuOpsError, match=says):
        made(a, b)
