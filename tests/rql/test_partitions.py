"""Partitions in queries beside a brute force, and the query around them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpu_ops.errors import TextError
from tests.conformance.streamcruncher import batches as batches_of
from tests.conformance.streamcruncher import difference
from tests.support.examples import by_default
from tests.support.streamcruncher_reference import Kind, cycles

SCHEMA = {"s": {"id": "long", "ts": "timestamp", "k": "string", "g": "int", "v": "int"}}
KEYS = {"s": {"id": "id", "ts": "ts"}}


def vector(rql: str, events: Sequence[tuple[int, dict[str, Any]]], columns: list[str], batches: Any) -> dict[str, Any]:
    return {
        "rql": rql,
        "schema": SCHEMA,
        "keys": KEYS,
        "script": [{"send": "s", "event": event, "at_ms": at} for at, event in events],
        "expected": {"kind": "batches", "columns": columns, "ordered": False, "batches": batches},
    }


@st.composite
def scripts(draw: st.DrawFn, *, late: bool) -> list[tuple[int, dict[str, Any]]]:
    least = draw(st.sampled_from([0, 8]))
    gaps = draw(st.lists(st.sampled_from([0, 0, 0, 1, 2, 5]), min_size=least, max_size=16))
    events: list[tuple[int, dict[str, Any]]] = []
    now = 0
    for number, gap in enumerate(gaps):
        now += gap
        event = {
            "id": number,
            "ts": now - (draw(st.sampled_from([0, 0, 0, 3, 6])) if late else 0),
            "k": draw(st.sampled_from(["a", "b", None])),
            "g": draw(st.integers(-3, -1)),
            "v": draw(st.sampled_from([None, 1, 2, 3, 4])),
        }
        events.append((now, event))
    return events


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    name = draw(st.sampled_from(["sliding", "tumbling", "time", "max", "highest", "lowest"]))
    size, span = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    functions = draw(st.sampled_from([(), (), (), ("sum",), ("avg", "min"), ("max",)]))
    kept = {
        "by_key": draw(st.booleans()),
        "functions": functions,
        "pinned": bool(functions) and draw(st.booleans()),
        "entrance_only": bool(functions) and draw(st.booleans()),
    }
    if name in {"time", "max"}:
        return Kind("time", size if name == "max" else None, span, **kept)  # type: ignore[arg-type]
    return Kind(name, size, update=name in {"highest", "lowest"} and draw(st.booleans()), **kept)  # type: ignore[arg-type]


def picked(kind: Kind) -> str:
    picks = {
        "sliding": f"last {kind.size}",
        "tumbling": f"latest {kind.size}",
        "time": f"last {kind.span} milliseconds" + ("" if kind.size is None else f" max {kind.size}"),
    }
    best = f"{kind.name} {kind.size} using {kind.column}{' with update group g' * kind.update}"
    pick = picks.get(kind.name, best)
    if kind.functions:
        counted = f"count(id) {'entrance only ' * kind.entrance_only}as a0"
        calls = ", ".join([counted, *(f"{name}(v) as a{at + 1}" for at, name in enumerate(kind.functions))])
        pick += f" with {'pinned ' * kind.pinned}{calls}"
    return f"partition {'by k ' * kind.by_key}store {pick}"


def written(kinds: Sequence[Kind], state: str, where: str = "") -> tuple[str, list[str]]:
    """A query, and the columns that it shows."""
    kind = kinds[0]
    results = [f"a{at}" for at in range(len(kind.functions) + 1)]
    columns = [*["k"] * kind.by_key, *results] if kind.functions else ["id"]
    first, *others = map(picked, kinds)
    chain = " to ".join([f"({first})", *(f"({other} where {where})" for other in others)])
    shown = "" if state == "any" else f" where t.$row_status is {state}"
    return f"select {', '.join(columns)} from s {chain} as t{shown};", columns


SHOWN = {
    "new": ("new",),
    "dead": ("dead",),
    "not dead": ("new", "old"),
    "any": ("new", "old", "dead"),
}


def wrong(
    kinds: Sequence[Kind], events: Sequence[tuple[int, dict[str, Any]]], state: str, forwarded: str = "new"
) -> str | None:
    """What is wrong with the answer for one partition, or for one behind another one."""
    column = "a0" if kinds[0].functions else "v"
    rql, columns = written(kinds, state, f"$row_status is {forwarded} and {column} > 1")
    batches = []
    for at, rows in cycles(kinds, events, forwarded, lambda row: row[column] is not None and row[column] > 1):
        found = [[row[name] for name in columns] for word in SHOWN[state] for row in rows[word]]
        if found:
            batches.append({"at_ms": at, "rows": found})
    return difference(vector(rql, events, columns, batches), together=True)


@by_default(30)
@given(data=st.data(), kind=kinds(), state=st.sampled_from(list(SHOWN)))
def test_a_partition_is_the_brute_force(data: st.DataObject, kind: Kind, state: str) -> None:
    events = data.draw(scripts(late=kind.name == "time" and kind.size is None))
    assert wrong([kind], events, state) is None


@by_default(25)
@given(
    events=scripts(late=False),
    first=kinds(),
    then=kinds(),
    state=st.sampled_from(list(SHOWN)),
    forwarded=st.sampled_from(["new", "dead"]),
)
def test_a_partition_behind_another_one_is_the_brute_force(
    events: list[tuple[int, dict[str, Any]]], first: Kind, then: Kind, state: str, forwarded: str
) -> None:
    # Several keys change in one cycle in no order that matters, and rows go on in no order of time.
    first = replace(first, by_key=False, update=False)
    then = replace(then, by_key=False, update=False, functions=(), pinned=False, entrance_only=False)
    then = replace(then, column="a0" if first.functions else "v", size=None if then.name == "time" else then.size)
    if first.name == "tumbling" and then.name not in {"highest", "lowest"}:
        assume(not first.functions and forwarded == "new")  # refused: what is taken would depend on itself
    assert wrong([first, then], events, state, forwarded) is None


# The query around partitions


def run(rql: str, events: Sequence[dict[str, Any]], **more: Any) -> list[tuple[int, list[list[Any]]]]:
    """The batches of a query; an event comes at its own time."""
    line = vector(rql, [(event["ts"], event) for event in events], [], []) | more
    line["script"] = sorted([*line["script"], *more.get("operations", [])], key=lambda step: step["at_ms"])
    return batches_of(line, None)


EVENTS = [
    {"id": 1, "ts": 0, "k": "a", "g": 1, "v": 5},
    {"id": 2, "ts": 0, "k": "b", "g": 1, "v": None},
    {"id": 3, "ts": 5, "k": "a", "g": 2, "v": 3},
]
TABLE = {"t": {"columns": {"k": "string", "n": "int"}, "rows": [["a", 1], ["a", 2]]}}
LAST = "s (partition store last 2) as x"


@pytest.mark.parametrize(
    ("rql", "batches"),
    [
        ("select id as i from {last} where x.$row_status is new;", [(0, [[1], [2]]), (5, [[3]])]),
        ("select x.* from {last} where $row_status is dead;", None),
        (("select x.id, y.id as other from {last}, self#x as y where x.$row_status is new and "
          "y.$row_status is not dead and x.id > y.id;"), [(0, [[2, 1]]), (5, [[3, 2]])]),
        ("select id, n from {last}, t where x.$row_status is new and x.k = t.k order by n desc;",
         [(0, [[1, 2], [1, 1]]), (5, [[3, 2], [3, 1]])]),
        ("select id, n from {last} left outer join t on x.k = t.k and n > 1 where x.$row_status is new order by id;",
         [(0, [[1, 2], [2, None]]), (5, [[3, 2]])]),
        ("select id from {last} where x.$row_status is new and k in (select k from t where n = 2);",
         [(0, [[1]]), (5, [[3]])]),
        ("select id from {last} where x.$row_status is new and not exists (select k from t where t.k = x.k);",
         [(0, [[2]])]),
        ("select id from {last} where x.$row_status is new and v is null;", [(0, [[2]])]),
        ("select first 1 id from {last} where x.$row_status is not dead order by id desc;", [(0, [[2]]), (5, [[3]])]),
        ("select id from {last} where x.$row_status is not dead order by v nulls last limit 1 offset 1;",
         [(0, [[2]]), (5, [[2]])]),
        ("select distinct g from {last} where x.$row_status is not dead order by g;", [(0, [[1]]), (5, [[1], [2]])]),
        (("select k, count(*) as n, sum(v) as total from {last} where not (x.$row_status is dead) group by k "
          "having count(*) > 0 order by k;"), [(0, [["a", 1, 5], ["b", 1, None]]), (5, [["a", 1, 3], ["b", 1, None]])]),
        ("select count(*) as n, max(v) as most from {last} where x.$row_status is dead;",
         [(0, [[0, None]]), (5, [[1, 5]])]),
        ("select id from {last} where x.$row_status is new union select n from t order by id;",
         [(0, [[1], [2]]), (5, [[1], [2], [3]])]),
        ("select id from {last} where x.$row_status is new minus select n from t;", [(5, [[3]])]),
        ("select id from {last} where x.$row_status is new intersect select n from t;", [(0, [[1], [2]])]),
        ("select id, m from {last}, (select n as m from t where n > 1) as y where x.$row_status is new and id = m;",
         [(0, [[2, 2]])]),
        (("select case k when 'a' then v / 2 else -1 end as h, current_timestamp as now from {last} "
          "where x.$row_status is new order by id;"), [(0, [[2, 0], [-1, 0]]), (5, [[1, 5]])]),
        (("select id from s (partition store last 9 where k in (select k from t where n > 1) and v % 2 = 1 and "
          "not (g in (7, 8))) as x where x.$row_status is new;"), [(0, [[1]]), (5, [[3]])]),
    ],
)  # fmt: skip
def test_the_query_around_partitions(rql: str, batches: Any) -> None:
    text = rql.format(last=LAST)
    if batches is None:
        with pytest.raises(TextError, match="row status"):
            run(text, EVENTS, tables=TABLE)
    else:
        assert run(text, EVENTS, tables=TABLE) == batches


def test_a_partition_sees_a_table_as_it_was_read_last() -> None:
    rql = "select id from s (partition store last 9 where k in (select k from t)) as x where x.$row_status is new;"
    events = [{"id": at, "ts": at, "k": "b", "g": 0, "v": 0} for at in (4, 6, 9, 11)]
    operations = [{"op": "table_insert", "table": "t", "row": ["b", 3], "at_ms": 5}]
    found = run(rql, events, tables=TABLE, operations=operations, config={"cache_refresh_ms": 10})
    assert found == [(11, [[11]])]
    assert run(rql, events, tables=TABLE, operations=operations) == []


def test_a_query_that_is_paused_takes_all_that_came() -> None:
    rql = "select id from s (partition store last 3 milliseconds) as x where x.$row_status is dead;"
    operations = [{"op": "pause", "at_ms": 1}, {"op": "resume", "at_ms": 7}]
    assert run(rql, EVENTS, operations=operations) == [(7, [[1], [2]]), (8, [[3]])]


def test_a_program_says_a_windows_size_for_each_key() -> None:
    rql = "select id from s (partition by k store last 1 'of k') as x where x.$row_status is dead;"
    events = [{"id": at, "ts": at, "k": k, "g": 0, "v": 0} for at, k in enumerate("aabbab")]
    words = {"of k": "per-partition size: k 'a' -> 2; others -> the declared 1"}
    assert run(rql, events, providers=words) == [(3, [[2]]), (4, [[0]]), (5, [[3]])]
    spans = "select id from s (partition by k store last 2 milliseconds max 9 'of k') as x where x.$row_status is dead;"
    words = {"of k": "per-partition size: k 'a' -> 4 ms max 1; others -> the declared 2 ms max 9"}
    assert run(spans, events, providers=words) == [(1, [[0]]), (4, [[1], [2]]), (5, [[3]]), (7, [[5]]), (8, [[4]])]


def test_texts_are_ranked_and_a_group_may_be_updated_twice_in_a_cycle() -> None:
    partition = "(partition store highest 2 using k with update group g)"
    rql = f"select id from s {partition} as x where x.$row_status is not dead;"
    at = [(0, 1, "b"), (0, 1, "c"), (3, 1, "a"), (5, 2, "d"), (5, 2, "e")]
    events = [{"id": number, "ts": ts, "k": k, "g": g, "v": 0} for number, (ts, g, k) in enumerate(at)]
    assert run(rql, events) == [(0, [[0], [1]]), (3, [[2]]), (5, [[3], [4]])]
