"""Partitions as tables of a query: what each cycle sees is what the interpreter sees, however the input is cut."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from tests.support.cuts import in_any_cut
from tests.support.cycle_interpreter import Part, Row, together
from tests.support.examples import by_default
from tests.support.pieces import in_pieces, sizes

CHAINS = {"a": [Part("span", 3, 4, by=("k",))], "b": [Part("last", 2)]}
Seen = Mapping[str, Mapping[str, list[Row]]]


@st.composite
def scripts(draw: st.DrawFn) -> list[tuple[int, Row]]:
    """Events of two streams, in their order."""
    now, events = 0, []
    for number, gap in enumerate(draw(st.lists(st.sampled_from([0, 0, 1, 1, 2, 5]), max_size=14))):
        now += gap
        key = draw(st.sampled_from(["x", "y"]))
        events.append((now, {"id": number, "s": draw(st.sampled_from("ab")), "k": key}))
    return events


def pairs(seen: Seen, left: Sequence[str], right: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of a and of b with one key."""
    rows = [row for word in left for row in seen["a"][word]], [row for word in right for row in seen["b"][word]]
    return [(one["id"], other["id"]) for one in rows[0] for other in rows[1] if one["k"] == other["k"]]


def both(tables: g.CycleTables) -> g.Stream:
    new, others = tables.new("a"), tables.not_dead("b").select(other=g.col("id"), k=g.col("k"))
    return new.join(others, on="k").select("id", "other")


def lean(tables: g.CycleTables) -> g.Stream:
    new = tables.new("a")
    others = tables.not_dead("b", while_=new).select(other=g.col("id"), k=g.col("k"))
    return new.join(others, on="k").select("id", "other")


def itself(tables: g.CycleTables) -> g.Stream:
    return (
        tables.new("a")
        .join(tables.not_dead("a").select(other=g.col("id"), k=g.col("k")), on="k")
        .filter(g.col("id") > g.col("other"))
        .select("id", "other")
    )


def outer(tables: g.CycleTables) -> g.Stream:
    dead = tables.dead("a").select(id=g.col("id"), k=g.col("k"))
    return dead.join(tables.not_dead("b").select(other=g.col("id"), k=g.col("k")), on="k", how="left").select(
        "id", "other"
    )


def missing(tables: g.CycleTables) -> g.Stream:
    return tables.not_dead("b").join(tables.any_status("a"), on="k", how="anti").select("id", other=g.col("id"))


def grouped(tables: g.CycleTables) -> g.Stream:
    counts = tables.not_dead("a").by("k").snapshot().agg(n=g.count(), most=g.max("id"))
    return counts.filter(g.col("n") > 1).select(id=g.col("n").cast(g.Int64), other=g.col("most"))


def by_hand(name: str, seen: Seen) -> list[tuple[Any, ...]]:
    match name:
        case "both" | "lean":
            return pairs(seen, ["new"], ["new", "old"])
        case "itself":
            rows = [*seen["a"]["new"], *seen["a"]["old"]]
            return [
                (one["id"], other["id"])
                for one in seen["a"]["new"]
                for other in rows
                if one["k"] == other["k"] and one["id"] > other["id"]
            ]
        case "outer":
            found = pairs(seen, ["dead"], ["new", "old"])
            return [*found, *((row["id"], None) for row in seen["a"]["dead"] if row["id"] not in dict(found))]
        case "missing":
            keys = {row["k"] for rows in seen["a"].values() for row in rows}
            rows = [*seen["b"]["new"], *seen["b"]["old"]]
            return [(row["id"], row["id"]) for row in rows if row["k"] not in keys]
    groups: dict[str, list[int]] = {}
    for row in [*seen["a"]["new"], *seen["a"]["old"]]:
        groups.setdefault(row["k"], []).append(row["id"])
    return [(len(ids), max(ids)) for ids in groups.values() if len(ids) > 1]


QUERIES: dict[str, Callable[[g.CycleTables], g.Stream]] = {
    each.__name__: each for each in (both, lean, itself, outer, missing, grouped)
}


def tables_of(stream: g.Stream) -> g.CycleTables:
    coming = g.cycles(stream, order="id")
    a, b = (coming.where(g.col("s") == name) for name in "ab")
    made: g.CycleTables = g.cycle_tables(a=a.partition("k").last_span("4ms", most=3), b=b.partition().last(2))
    return made


def table(events: Sequence[tuple[int, Row]]) -> pa.Table:
    columns = {"id": pa.int64(), "s": pa.string(), "k": pa.string()}
    times = pa.array([at * 1000 for at, _ in events], pa.timestamp("us", "UTC"))
    return pa.table(
        {"start": times, **{name: pa.array([row[name] for _, row in events], columns[name]) for name in columns}}
    )


def answered(answer: pa.Table) -> list[Any]:
    return sorted((tuple(row.values()) for row in answer.select(["cycle", "id", "other"]).to_pylist()), key=repr)


@pytest.mark.parametrize("name", list(QUERIES))
@by_default(15)
@given(events=scripts(), device=st.sampled_from(["cpu", "array"]), seed=st.integers(0, 1 << 20), size=sizes)
def test_each_cycle_sees_the_content_of_all_partitions(
    name: str, events: list[tuple[int, Row]], device: str, seed: int, size: int
) -> None:
    given = table(events)
    by_stream = [(at, row["s"], row) for at, row in events]
    wanted = sorted(
        ((number, *row) for number, (_, seen) in enumerate(together(CHAINS, by_stream)) for row in by_hand(name, seen)),
        key=repr,
    )
    tables = tables_of(g.events(given, start="start"))
    with in_pieces(size):
        assert answered(tables.answer(QUERIES[name](tables)).collect(device=device)) == wanted
    running = tables_of(g.events(given.slice(0, 0), start="start"))
    live = running.answer(QUERIES[name](running))
    assert answered(in_any_cut(live, given, device, random.Random(seed))) == wanted


def test_rows_of_a_plain_table_are_there_from_their_start_to_their_end() -> None:
    events = g.events(pa.table({"at": [0, 5, 9], "k": ["x", "x", "x"]}), start="at", unit="ms")
    prices = pa.table({"from": [0, 5], "to": [5, None], "k": ["x", "x"], "price": [3, 4]})
    known = g.events(prices, start="from", end="to", unit="ms", null_end="open")
    tables = g.cycle_tables(seen=g.cycles(events).partition().last(1))
    found = tables.answer(tables.new("seen").join(tables.table(known), on="k")).collect()
    assert [(row["cycle"], row["price"]) for row in found.to_pylist()] == [(0, 3), (1, 4), (2, 4)]


def test_what_makes_no_tables_is_refused() -> None:
    stream = g.events(pa.table({"at": [0], "k": ["x"]}), start="at", unit="ms")
    last = g.cycles(stream).partition().last(1)
    with pytest.raises(g.PlanError, match="by names"):
        g.cycle_tables()
    with pytest.raises(g.PlanError, match="not of one"):
        g.cycle_tables(a=last, b=g.cycles(stream, every="1s").partition().last(1))
    with pytest.raises(g.PlanError, match="no partition 'b'"):
        g.cycle_tables(a=last).new("b")
