"""Queries over data at rest, as those of the page of StreamCruncher are: with nulls, of two streams, beside tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import rql
from gpu_ops.errors import ColumnError, GpuOpsError
from tests.support.examples import examples

ORDER = {"seq": "int", "at": "timestamp", "country": "string", "sku": "string", "qty": "int", "cust": "long"}
SENT = {"seq": "int", "at": "timestamp", "cust": "long", "sku": "string", "qty": "int"}
TABLES = {
    "known": {"customer": "long", "label": "string"},
    "goods": {"item": "string", "kind": "string"},
}
ROWS: dict[str, list[dict[str, Any]]] = {
    "known": [{"customer": 1, "label": "gold"}, {"customer": 3, "label": None}, {"customer": None, "label": "none"}],
    "goods": [{"item": "a", "kind": "x"}, {"item": "b", "kind": None}],
}
QUERIES = (Path(__file__).parent / "at_rest.txt").read_text(encoding="utf-8").split("\n----\n")
LAST = "from s (partition store last 2) as t where t.$row_status is new"


@st.composite
def _events(draw: st.DrawFn, *, of_orders: bool, first: int) -> list[dict[str, Any]]:
    rows, at = [], 0
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0, 100, 1_000, 3_000]))
        row = {
            "seq": first + number,
            "at": at,
            "cust": draw(st.sampled_from([1, 2, 3, None])),
            "sku": draw(st.sampled_from(["a", "b", "c"])),
            "qty": draw(st.sampled_from([1, 2, 5, None])),
        }
        rows.append({**row, "country": draw(st.sampled_from(["US", "IN", None]))} if of_orders else row)
    return rows


def _table(rows: list[dict[str, Any]], types: dict[str, str]) -> pa.Table:
    kinds = {"int": pa.int32(), "long": pa.int64(), "timestamp": pa.int64(), "string": pa.string()}
    return pa.Table.from_pylist(rows, pa.schema([(name, kinds[kind]) for name, kind in types.items()]))


def _live(text: str, orders: list[dict[str, Any]], sends: list[dict[str, Any]], together: int) -> list[str]:
    """What a runtime gives that is told so many events at once."""
    times = {"orders": "at", "sends": "at"}
    runtime = rql.Runtime({"orders": ORDER, "sends": SENT}, times=times, tables=TABLES)
    for name, rows in ROWS.items():
        runtime.insert(name, rows)
    query = runtime.register("query", text)
    query.results()
    given = sorted([("orders", row) for row in orders] + [("sends", row) for row in sends], key=_when)
    while given:
        name = given[0][0]
        some = [row for stream, row in given[:together] if stream == name]
        if [stream for stream, _ in given[: len(some)]] != [name] * len(some):
            some = some[:1]
        runtime.send(name, some, at=[row["at"] for row in some])
        given = given[len(some) :]
    runtime.advance(10**9)
    return _sorted(query.results().drop_columns(["at"]))


def _when(given: tuple[str, dict[str, Any]]) -> tuple[int, int]:
    return given[1]["at"], given[1]["seq"]


def _sorted(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("text", QUERIES)
@given(_events(of_orders=True, first=0), _events(of_orders=False, first=100), st.sampled_from([1, 3, 100]))
@examples(kinds=True)
def test_at_rest_a_query_gives_what_a_runtime_does(
    text: str, orders: list[dict[str, Any]], sends: list[dict[str, Any]], together: int
) -> None:
    frames = {"orders": _table(orders, ORDER), "sends": _table(sends, SENT)}
    tables = {name: _table(rows, TABLES[name]) for name, rows in ROWS.items()}
    answer = rql.query(text, frames, order="seq", time="at", tables=tables)
    expected = _live(text, orders, sends, together)
    for device in ("cpu", "array"):
        found = answer.collect(device=device)
        assert _sorted(found.drop_columns(["start", "end"])) == expected


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tables": 5}, "tables is 5. Give the rows of each by its name"),
        ({"tables": {"s": {"k": ["a"]}}}, "'s' is a stream and a table."),
        ({"times": {"r": "at"}}, "times= names 'r', which is no stream."),
        ({"weights": {"r": 0.5}}, "weights= names 'r', which is no stream. Streams: s."),
        ({"weights": {"s": -1}}, "The weight of 's' is -1."),
        ({"waiting": {"s": 0.5}}, "waiting['s'] is 0.5."),
        ({"seed": "x"}, "seed is 'x'."),
    ],
)
def test_what_is_said_wrongly_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(GpuOpsError, match=re.escape(said)):
        rql.query(f"select k {LAST}", s={"at": [0], "k": ["a"]}, time="at", **options)


def test_a_column_that_results_have_is_refused() -> None:
    runtime = rql.Runtime({"s": {"at": "timestamp", "k": "string"}})
    with pytest.raises(ColumnError, match="Results have a column of this name"):
        runtime.register("q", f"select at, k {LAST}")
    assert runtime.queries == ()
    runtime.register("q", f"select at as seen, k {LAST}")
