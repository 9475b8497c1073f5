"""A named window by EPL, event by event, and by the verbs of streams over data at rest (docs/tables.md)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import epl
from tests.support.examples import examples

TYPES = {
    "Order": {"id": "int", "item": "string", "n": "int"},
    "Move": {"id": "int", "item": "string"},
    "Cancel": {"id": "int"},
    "Ask": {"item": "string"},
}

TEXT = """
    @name('open') create window Open#unique(id) as Order;
    insert into Open select * from Order;
    on Move as m update Open as o set item = m.item where o.id = m.id;
    on Cancel as c delete from Open as o where o.id = c.id;
    @name('found') on Ask as a select o.id as id from Open as o where o.item = a.item
"""

Said = list[tuple[str, dict[str, Any]]]

ids, items = st.integers(1, 3), st.sampled_from(["pen", "ink"])
events = st.one_of(
    st.tuples(st.just("Order"), st.fixed_dictionaries({"id": ids, "item": items, "n": st.integers(0, 9)})),
    st.tuples(st.just("Move"), st.fixed_dictionaries({"id": ids, "item": items})),
    st.tuples(st.just("Cancel"), st.fixed_dictionaries({"id": ids})),
    st.tuples(st.just("Ask"), st.fixed_dictionaries({"item": items})),
)


def by_epl(said: Said) -> tuple[list[list[dict[str, Any]]], list[tuple[int, int]]]:
    """What the window holds behind each event, and the ids that are found, by the events that ask."""
    runtime = epl.Runtime(TYPES, start=0)
    runtime.deploy(TEXT)
    held, found = list[list[dict[str, Any]]](), list[tuple[int, int]]()

    def told(new: pa.Table | None, *_: Any) -> None:
        # An event comes when those before it are held.
        if new is not None:
            found.extend((len(held), row["id"]) for row in new.to_pylist())

    runtime["found"].listen(told)
    for name, event in said:
        runtime.send(name, event)
        held.append(sorted(runtime.rows("open").to_pylist(), key=lambda row: int(row["id"])))
    return held, found


def by_verbs(said: Said) -> tuple[g.Stream, g.Stream]:
    """The window as rows with lifetimes, and what the events that ask find; the nth event comes at second n."""

    def told(name: str) -> g.Stream:
        mine = [(at, event) for at, (of, event) in enumerate(said) if of == name]
        types = {"int": pa.int64(), "string": pa.string()}
        columns = {key: pa.array([each[key] for _, each in mine], types[kind]) for key, kind in TYPES[name].items()}
        return g.events(pa.table({"at": pa.array([at for at, _ in mine], pa.int64()), **columns}), start="at", unit="s")

    orders, cancels = told("Order"), told("Cancel")
    placed = orders.unique("id").rows().clip_by(cancels, on="id")
    moved = told("Move").select("id", to="item").join(placed, on="id").select("id", "n", item=g.col("to"))
    window = orders.union(moved.select("id", "item", "n")).unique("id").rows().clip_by(cancels, on="id")
    return window, told("Ask").join(window, on="item")


@examples(dear=True)
@given(said=st.lists(events, max_size=12))
def test_what_events_do_to_a_named_window_is_said_by_verbs(said: Said) -> None:
    held, found = by_epl(said)
    window, asked = by_verbs(said)
    rows = [
        {**row, "start": row["start"].timestamp(), "end": row["end"].timestamp()}
        for row in window.collect().to_pylist()
    ]
    for at, wanted in enumerate(held):
        there = [row for row in rows if row["start"] <= at < row["end"]]
        shown = [{name: row[name] for name in TYPES["Order"]} for row in there]
        assert sorted(shown, key=lambda row: int(row["id"])) == wanted
    answers = [(int(row["start"].timestamp()), row["id"]) for row in asked.collect().to_pylist()]
    assert sorted(answers) == sorted(found)
