"""Runtimes of queries in cycles: batches, devices, checkpoints, listeners, queries behind queries, data at rest."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import rql
from gpu_ops.errors import ColumnError, PlanError, SourceError, TextError

Row = dict[str, Any]

TYPES = {"order": {"id": "int", "item": "string", "n": "int", "ts": "timestamp"}}
COUNTED = (
    "select item, many from order (partition by item store last 3 seconds with count(id) as many) as t "
    "where t.$row_status is new"
)
ALERT = (
    "select a_id, b_id from alert a.id as a_id, b.id as b_id using order (partition store last 2 seconds "
    "where item = 'a') as a correlate on n, order (partition store last 2 seconds where item = 'b') as b "
    "correlate on n when present(a and not b) or present(a and b)"
)
JOINED = (
    "select t.id, u.id as other from order (partition store last 3) as t, self#t as u "
    "where t.$row_status is new and u.$row_status is not dead and t.item = u.item and t.id > u.id order by other"
)
TEXTS = {"counted": COUNTED, "alert": ALERT, "joined": JOINED}


def made(device: str = "cpu") -> rql.Runtime:
    return rql.Runtime(TYPES, times={"order": "ts"}, device=device)


def events(seed: int = 3, size: int = 40) -> list[dict[str, Any]]:
    chance = random.Random(seed)
    times = sorted(chance.randrange(20_000) // 500 * 500 for _ in range(size))
    return [{"id": at, "item": chance.choice("ab"), "n": at // 4, "ts": time} for at, time in enumerate(times)]


def found(results: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in results.columns), strict=True), key=str)


def whole(text: str) -> list[tuple[Any, ...]]:
    """What a query gives where all events are sent at once."""
    runtime, rows = made(), events()
    query = runtime.register("q", text)
    query.results()
    runtime.send("order", rows, at=[row["ts"] for row in rows])
    runtime.advance(60_000)
    return found(query.results())


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_cut_of_the_input_changes_nothing(text: str, device: str) -> None:
    runtime, rows, chance = made(device), events(), random.Random(5)
    query = runtime.register("q", text)
    query.results()
    while rows:
        some, rows = rows[: (size := chance.randint(1, 6))], rows[size:]
        runtime.send("order", some, at=[row["ts"] for row in some])
    runtime.advance(30_000)
    runtime.advance(60_000)
    assert found(query.results()) == whole(text) != []


@pytest.mark.parametrize("text", [COUNTED, JOINED], ids=["counted", "joined"])
def test_a_checkpoint_changes_nothing(text: str, tmp_path: Path) -> None:
    runtime, path = made(), tmp_path / "cycles.checkpoint"
    runtime.register("q", text).results()
    for at, row in enumerate(events()):
        if at % 10 == 7:
            runtime.checkpoint(path)
            runtime = rql.Runtime.restore(path, device="array" if at % 20 == 7 else "cpu")
        runtime.send("order", row, at=[row["ts"]])
    runtime.advance(60_000)
    assert found(runtime["q"].results()) == whole(text)


def test_at_rest_a_query_gives_the_same() -> None:
    types = pa.schema([("id", pa.int32()), ("item", pa.string()), ("n", pa.int32()), ("ts", pa.int64())])
    rows = pa.Table.from_pylist(events(), types)
    table = rql.query(COUNTED, {"order": rows}, order="id", time="ts").collect()
    at = table["start"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64())
    columns = [table["cycle"], at, table["item"], table["many"]]
    assert found(pa.table(columns, names=["cycle", "at", "item", "many"])) == whole(COUNTED)


def test_frames_of_polars_give_one_beside_tables_too() -> None:
    text = "select id from s (partition by store last 2 where k in (select k from t)) as r where r.$row_status is new"
    events, table = pl.DataFrame({"at": [0, 1, 2], "id": [1, 2, 3], "k": [7, 8, 7]}), pl.DataFrame({"k": [7]})
    answer = rql.query(text, s=events, time="at", tables={"t": table}).collect()
    assert isinstance(answer, pl.DataFrame)
    assert answer["id"].to_list() == [1, 3]
    as_table = rql.query(text, s=events, time="at", tables={"t": {"k": [7]}}).collect()
    assert as_table["id"].to_pylist() == [1, 3]


def test_a_query_reads_what_another_one_gives() -> None:
    runtime = made()
    runtime.register("counted", COUNTED)
    busy = runtime.register(
        "busy",
        "select item, many from counted (partition store last 10 where many > 1) as t where t.$row_status is new",
    )
    said: list[Any] = []
    busy.listen(lambda result: said.append((result.at, result.rows.to_pylist())))
    runtime.send("order", [{"id": at, "item": "a", "ts": at * 1_000} for at in range(3)], at=[0, 1_000, 2_000])
    runtime.advance(2_500)
    assert said == [(1_000, [{"item": "a", "many": 2}]), (2_000, [{"item": "a", "many": 3}])]
    with pytest.raises(PlanError, match="'busy' reads what 'counted' gives"):
        runtime.unregister("counted")
    runtime.unregister("busy")
    runtime.unregister("counted")
    assert runtime.queries == ()


def test_a_listener_that_raises_stops_nothing() -> None:
    runtime = made()
    query = runtime.register("q", COUNTED)

    def raises(result: rql.CycleResult) -> None:
        raise ValueError(result.query)

    query.listen(raises)
    assert len(runtime.send("order", {"id": 1, "item": "a", "ts": 0}, at=[0])) == 0
    (result,) = runtime.advance(1)
    assert (result.query, result.cycle, result.at, result.rows.to_pylist()) == ("q", 0, 0, [{"item": "a", "many": 1}])
    assert [(name, str(error)) for name, error in runtime.errors] == [("q", "q")]


def test_what_is_wrong_is_refused(tmp_path: Path) -> None:
    runtime = made()
    with pytest.raises(PlanError, match="There is no stream 'orders'"):
        runtime.send("orders", [])
    with pytest.raises(PlanError, match="There is no table 'order'"):
        runtime.insert("order", [])
    with pytest.raises(PlanError, match="which is no stream"):
        runtime.register("q", COUNTED, weights={"orders": 0.5})
    runtime.register("q", COUNTED)
    with pytest.raises(PlanError, match="There is a query, a stream or a table 'q'"):
        runtime.register("q", COUNTED)
    runtime.advance(5)
    with pytest.raises(PlanError, match="cannot go back"):
        runtime.advance(4)
    with pytest.raises(ColumnError, match="no such column"):
        rql.Runtime(TYPES, times={"order": "seen"})
    with pytest.raises(SourceError):
        rql.Runtime.restore(tmp_path / "none")


def _width(rows: pa.Table) -> int:
    values = rows["n"].to_pylist()
    return int(max(values) - min(values))


def _other_width(rows: pa.Table) -> int:
    return _width(rows) + 1


OWN: dict[str, Callable[..., Any]] = {
    "width": lambda of: g.window_function(_width, returns=pa.int64(), of=of),
    "share": g.quantile,
}
SPREAD = (
    "select item, w, q from order (partition by item store last 3 with custom(width, n) as w, "
    "custom(share, n, 0.5) as q, count(id) as many) as t where t.$row_status is new and w > 2"
)


def test_own_aggregates_are_those_of_the_verbs_and_outlive_a_restart(tmp_path: Path) -> None:
    given = events()
    told = pa.Table.from_pylist(given).append_column("at", pa.array([each["ts"] for each in given]))
    window = g.cycles(g.events(told, start="at", unit="ms"), order="id").partition("item").last(3)
    shown = window.agg(w=OWN["width"]("n"), q=g.quantile("n", 0.5), many=g.count()).new().filter(g.col("w") > 2)
    wanted = shown.collect().select(["cycle", "item", "w", "q"]).to_pylist()
    at_rest = rql.query(SPREAD, {"order": told}, time="at", order="id", aggregates=OWN).collect()
    assert at_rest.select(["cycle", "item", "w", "q"]).to_pylist() == wanted
    runtime = rql.Runtime(TYPES, times={"order": "ts"}, aggregates=OWN)
    runtime.register("spread", SPREAD)
    cut, found = len(given) // 2, list[Row]()
    runtime["spread"].listen(lambda result: found.extend(result.rows.to_pylist()))
    runtime.send("order", given[:cut], at=[each["ts"] for each in given[:cut]])
    runtime.checkpoint(tmp_path / "c")
    runtime = rql.Runtime.restore(tmp_path / "c", aggregates=OWN)
    runtime["spread"].listen(lambda result: found.extend(result.rows.to_pylist()))
    runtime.send("order", given[cut:], at=[each["ts"] for each in given[cut:]])
    runtime.advance(60_000)
    assert found == [{name: value for name, value in row.items() if name != "cycle"} for row in wanted]
    with pytest.raises(SourceError, match="no aggregate 'width' of your own"):
        rql.Runtime.restore(tmp_path / "c")
    other = OWN | {"width": lambda of: g.window_function(_other_width, returns=pa.int64(), of=of)}
    with pytest.raises(SourceError):
        rql.Runtime.restore(tmp_path / "c", aggregates=other)


@pytest.mark.parametrize(
    ("called", "says"),
    [
        ("custom(none, n)", "no aggregate 'none' of your own"),
        ("custom(width, m)", "no column 'm'"),
        ("custom(width)", "refuses what it is given"),
        ("custom(five, n)", "gives 5, which is no aggregate"),
    ],
)
def test_an_own_aggregate_that_is_none_is_refused_by_place(called: str, says: str) -> None:
    runtime = rql.Runtime(TYPES, aggregates=OWN | {"five": lambda of: 5})
    with pytest.raises(TextError, match=says):
        runtime.register("q", f"select w from order (partition store last 3 with {called} as w) as t")


def test_sums_of_whole_numbers_are_those_of_the_nearest_doubles() -> None:
    large = (1 << 63) - 1
    values = [large, large, (1 << 53) + 1, None, -3, -large - 1, -((1 << 53) + 1)]
    told = pa.table({"at": range(len(values)), "v": pa.array(values, pa.int64())})
    text = "select s from x (partition store last 3 milliseconds with sum(v) as s) as t where t.$row_status is new"
    found = rql.query(text, x=told, time="at").collect()["s"].to_pylist()
    wanted: list[float | None] = []
    for at in range(len(values) + 2):
        some = [float(each) for each in values[max(0, at - 2) : at + 1] if each is not None]
        wanted.append(math.fsum(some) if some else None)
    assert found == [each for at, each in enumerate(wanted) if at == 0 or each != wanted[at - 1]]


def _wrong() -> list[tuple[str, str]]:
    """Queries that ask for what there is not, and what is said of each, from a file beside this one."""
    found = (Path(__file__).parent / "wrong_queries.txt").read_text(encoding="utf-8")
    return [tuple(case.rstrip("\n").split("\n~~~~\n")) for case in found.split("\n----\n")]  # type: ignore[misc]


@pytest.mark.parametrize(("text", "message"), _wrong(), ids=[text for text, _ in _wrong()])
def test_a_query_that_asks_for_what_there_is_not(text: str, message: str) -> None:
    streams = {"s": {"id": "int", "k": "string", "v": "int", "at": "timestamp"}, "u": {"id": "int", "k": "string"}}
    tables = {"p": {"n": "int", "k": "string"}, "q": {"m": "int"}}
    runtime = rql.Runtime(streams, times={"s": "at"}, tables=tables)
    with pytest.raises(TextError) as raised:
        runtime.register("q1", text)
    assert str(raised.value) == message
    assert runtime.queries == ()


def test_what_a_notebook_echoes_is_short() -> None:
    runtime = rql.Runtime({"s": {"id": "int"}})
    text = "select id from s (partition store last 3) as t where t.$row_status is new;"
    assert repr(runtime.register("all", text)) == f"<Query 'all': {text}>"
    runtime.send("s", {"id": 1}, at=[2])
    assert repr(runtime.advance(3)) == "<results of cycles: 1>"
    assert repr(runtime) == "<Runtime, queries: 1, clock 3 ms>"
    with pytest.raises(PlanError, match=r"aggregates\['middle'\] is 3"):
        rql.Runtime({"s": {"id": "int"}}, aggregates={"middle": 3})  # type: ignore[dict-item]


def test_a_time_that_is_no_millisecond_of_a_year_is_refused() -> None:
    runtime = rql.Runtime({"S": {"v": "int"}})
    with pytest.raises(PlanError, match=r"no millisecond of the years 1 to 9999"):
        runtime.send("S", {"v": 1}, at=[1_700_000_000_000_000])
    with pytest.raises(PlanError, match=r"no millisecond of the years 1 to 9999"):
        runtime.advance(1_700_000_000_000_000)
    assert runtime.clock == 0
