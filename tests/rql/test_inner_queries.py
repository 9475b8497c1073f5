"""Queries over tables within the conditions of partitions and of queries, beside DuckDB's answer at each event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import rql
from tests.support.examples import by_default

TABLES = {"p": {"k": "string", "n": "int"}, "q": {"k": "string", "m": "int"}}
CONDITIONS = (
    "k in (select k from p where n in (select m from q))",
    "k not in (select k from p where n not in (select m from q))",
    "k in (select p.k from p, q where p.k = q.k and p.n < q.m)",
    "v in (select m from p left join q on p.k = q.k)",
    "v not in (select m from p left join q on p.k = q.k)",
    "k in (select k from p group by k having count(*) > 1)",
    "v in (select max(n) from p group by k)",
    "v > (select max(n) from p)",
    "not (v <= (select sum(m) from q where m > 1))",
    "(select count(*) from q) = v",
    "v in (select n from p union select m from q)",
    "v not in (select n from p intersect select m from q) and v > 1",
    "v in (select distinct n from p) and k in (select k from q)",
    "v in (select x.n from (select k, n from p where n > 1) as x, q where x.k = q.k)",
)
"""Each reads the same in both languages."""

_KEYS = st.sampled_from(["a", "b", None])
_NUMBERS = st.sampled_from([None, 1, 2, 3])
_STEPS = st.lists(st.tuples(st.integers(0, 6), st.sampled_from(["s", "s", "p", "q"]), _KEYS, _NUMBERS), max_size=14)


def ids(query: rql.RunningCycles) -> list[int]:
    return sorted(query.results()["id"].to_pylist())


@by_default(30)
@given(st.sampled_from(CONDITIONS), st.sampled_from(["cpu", "array"]), _STEPS, st.booleans())
def test_an_event_passes_where_the_query_says_so(
    condition: str,
    device: str,
    steps: list[tuple[int, str, Any, Any]],
    together: bool,  # noqa: FBT001
) -> None:
    runtime = rql.Runtime({"s": {"id": "int", "k": "string", "v": "int"}}, tables=TABLES, refresh="10ms", device=device)
    before = runtime.register(
        "before", f"select id from s (partition store last 99 where {condition}) as t where t.$row_status is new;"
    )
    behind = runtime.register(
        "behind", f"select id from s (partition store last 99) as t where t.$row_status is new and {condition};"
    )
    before.results()
    behind.results()
    now, waiting = 0, []
    script: list[tuple[int, str, dict[str, Any]]] = []
    for number, (gap, name, key, value) in enumerate(steps):
        now += gap
        row = {"s": {"id": number, "k": key, "v": value}, "p": {"k": key, "n": value}, "q": {"k": key, "m": value}}[
            name
        ]
        script.append((now, name, row))
    for at, name, row in script:
        if name == "s" and together:
            waiting.append((at, row))
            continue
        _send(runtime, waiting)
        waiting = []
        runtime.send(name, row, at=[at]) if name == "s" else runtime.insert(name, row, at=[at])
    _send(runtime, waiting)
    runtime.advance(1_000)
    # A partition's condition sees what was read at the last multiple of ten milliseconds; a query what is there at the
    # end of the millisecond.
    assert ids(before) == _passing(
        script, condition, lambda place, at, order, time: -(-time // 10) * 10 <= at and (time < at or order < place)
    )
    assert ids(behind) == _passing(script, condition, lambda place, at, order, time: time <= at)


def _send(runtime: rql.Runtime, rows: list[tuple[int, dict[str, Any]]]) -> None:
    if rows:
        runtime.send("s", [row for _, row in rows], at=[at for at, _ in rows])


def _passing(
    script: list[tuple[int, str, dict[str, Any]]], condition: str, sees: Callable[[int, int, int, int], bool]
) -> list[int]:
    """The events that DuckDB takes, each beside the rows of tables that are seen then.

    Args:
        script: What comes, and when.
        condition: The condition.
        sees: Whether the event of a place and a time sees the row of a table of a place and a time.
    """
    found = []
    for place, (at, name, row) in enumerate(script):
        if name != "s":
            continue
        with duckdb.connect() as database:
            kinds = {"string": pa.string(), "int": pa.int64()}
            for table, columns in TABLES.items():
                schema = pa.schema([(column, kinds[kind]) for column, kind in columns.items()])
                rows = [
                    other
                    for order, (time, into, other) in enumerate(script)
                    if into == table and sees(place, at, order, time)
                ]
                database.register(table, pa.Table.from_pylist(rows, schema=schema))
            event = pa.schema([("id", pa.int64()), ("k", pa.string()), ("v", pa.int64())])
            database.register("s", pa.Table.from_pylist([row], schema=event))
            found += [each[0] for each in database.execute(f"select id from s where {condition}").fetchall()]
    return found
