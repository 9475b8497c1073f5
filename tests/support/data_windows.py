"""Events for data windows, and what can be asked of one, in a batch and of a running query."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import DataWindowed, Stream
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.reference import NEVER, Event
from tests.support.rows import to_table

SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("x", pa.float64())])

NUMBER = st.integers(1, 4)

SPAN = st.integers(1, 12)

EVENTS = st.lists(
    st.builds(
        lambda start, length, payload: Event(
            start, NEVER if length is None else start + length, {name: payload[name] for name in SCHEMA.names}
        ),
        st.integers(0, 40),
        st.sampled_from([None, 1, 1, 5, 20]),
        st.fixed_dictionaries(
            {
                "k": st.sampled_from(["a", "b", None]),
                "v": st.none() | st.integers(-2, 3),
                "x": st.none() | st.sampled_from([0.5, -1.5, float("nan"), 0.0]),
            }
        ),
    ),
    max_size=25,
)

KEYS = st.sampled_from([(), ("k",), ("k", "x")])


def source(events: list[Event]) -> Stream:
    return g.events(to_table(events, SCHEMA), start="start", end="end")


def pushed(query: Stream, device: str, events: list[Event], chance: random.Random, folder: Any = None) -> pa.Table:
    """What a running query gives in any cut."""
    return in_any_cut(query, in_some_order(to_table(events, SCHEMA), chance), device, chance, folder)


ASKED: dict[str, Callable[[DataWindowed], Stream]] = {
    "rows": lambda window: window.rows(),
    "insert": lambda window: window.insert_stream(),
    "remove": lambda window: window.remove_stream(),
    "changes": lambda window: window.changes(),
    "each": lambda window: window.each(n=g.count(), s=g.sum("v"), m=g.max("x"), y=g.sum("v") / g.count()),
    "sums": lambda window: window.agg(n=g.count(), s=g.sum("v"), m=g.mean("x")),
    "sums, closely": lambda window: (
        window.rows().filter(g.col("k").is_null() | (g.col("k") != "b")).snapshot().agg(s=g.sum(g.col("v") * 2))
    ),
    "agg": lambda window: window.agg(n=g.count(), s=g.sum("v"), m=g.max("x")),
    "agg by time": lambda window: window.agg(f=g.first("x"), all=g.collect_list("v"), e=g.max("end")),
}


def told(results: pa.Table) -> list[tuple[Any, ...]]:
    """Rows with times as numbers."""
    times = [results[name].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() for name in ("start", "end")]
    return list(zip(*times, *(results[name].to_pylist() for name in results.column_names[2:]), strict=True))


def points(events: list[tuple[int, int]]) -> Stream:
    table = pa.table({"at": [at for at, _ in events], "v": [v for _, v in events]})
    return g.events(table, start="at", unit="us")
