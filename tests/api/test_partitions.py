"""Streams whose partitions have clocks of their own: at rest and live, in any cut, on every device."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support.devices import HERE

SCHEMA = pa.schema([("at", pa.int64()), ("device", pa.string()), ("v", pa.int64())])


def read(*rows: tuple[int, str, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def stream(table: pa.Table, **options: Any) -> g.Stream:
    return g.events(table, start="at", unit="s").advance_time(per="device", **options)


def shown(table: pa.Table) -> list[tuple[Any, ...]]:
    """Rows as starts in seconds and payload, in order."""
    rows = table.drop_columns(["end"]).to_pylist()
    return sorted((int(row.pop("start").timestamp()), *row.values()) for row in rows)


QUERIES = {
    "tumbling": lambda s: s.tumbling("10s").agg(n=g.count(), total=g.sum("v")),
    "sliding": lambda s: s.sliding("7s").agg(best=g.max("v")),
    "session": lambda s: s.session("4s").agg(n=g.count()),
    "data window": lambda s: s.last(2).agg(total=g.sum("v")),
    "join": lambda s: s.set_duration("5s").join(s.set_duration("5s"), on="v"),
    "anti join": lambda s: s.set_duration("5s").join(s.filter(g.col("v") == 1), how="anti"),
    "one clock": lambda s: s.one_clock().tumbling("10s").agg(n=g.count()),
}


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("device", [name for name in HERE if name != "cpu"] + ["cpu"])
def test_a_running_query_gives_what_a_batch_gives_in_any_cut(query: str, device: str, tmp_path: Path) -> None:
    chance = random.Random(query)
    clocks = dict.fromkeys("abc", 0)
    rows = []
    for _ in range(40):
        which = chance.choice("abc")
        clocks[which] = max(0, clocks[which] + chance.randrange(-2, 8))
        rows.append((clocks[which], which, chance.randrange(3)))
    table = read(*rows)
    asked = QUERIES[query](stream(table, late="drop", reorder="1s", low_watermark="5s", lag="30s"))
    right = shown(asked.collect(device="cpu"))
    live, found, at = asked.start(device=device), list[pa.Table](), 0
    while at < table.num_rows:
        size = chance.randrange(1, 12)
        live.push(table.slice(at, size))
        at += size
        found.append(live.results())
        if chance.random() < 0.3:
            live.checkpoint(tmp_path / "state")
            live = g.restore(tmp_path / "state", asked)
    live.close()
    assert shown(pa.concat_tables([*found, live.results()])) == right
    assert len(right) > 5


def test_results_come_at_the_low_watermark() -> None:
    # a           *50   CTI of a at 60: no row of a is behind it, b is not asked
    # b  *3 *12         low watermark 20: [0, 10) and [10, 20) of b are over, [50, 60) of a is not
    live = stream(SCHEMA.empty_table(), late="drop").tumbling("10s").agg(n=g.count()).start()
    live.push(read((50, "a", 0), (3, "b", 0)))
    live.advance("1970-01-01T00:01:00Z", partition="a")
    live.push(read((59, "a", 0), (12, "b", 0)))
    assert live.results().num_rows == 0
    assert live.report().late == {"dropped": 1}
    live.advance("1970-01-01T00:00:20Z")
    assert shown(live.results()) == [(0, "b", 1), (10, "b", 1)]
    live.close()
    assert shown(live.results()) == [(50, "a", 1)]


def test_a_row_is_a_cti_of_the_partition_that_it_names_or_of_all() -> None:
    rows = {"at": [30, 10, 29, 30, 9, 20, 15], "device": ["a", "b", "a", "a", "b", None, "c"]}
    kinds = ["insert", "insert", "insert", "insert", "insert", "cti", "insert"]
    kinds[0] = "cti"
    table = pa.table({**rows, "kind": kinds})
    events = g.events(table, start="at", unit="s", kind="kind").advance_time(per="device", late="divert")
    assert shown(events.collect()) == [(9, "b"), (10, "b"), (30, "a")]
    assert [row[:2] for row in shown(events.late().collect())] == [(15, "c"), (29, "a")]


def test_several_columns_tell_partitions_apart() -> None:
    table = pa.table({"at": [50, 3, 2], "site": [1, 1, 2], "device": ["a", "b", "b"]})
    events = g.events(table, start="at", unit="s").advance_time(per=["site", "device"], reorder="0s")
    assert events.key == ("site", "device")
    live = events.start()
    live.advance("1970-01-01T00:01:00Z", partition={"site": 1, "device": "a"})
    live.push(table.slice(1))
    with pytest.raises(PlanError, match="site, device"):
        live.advance("1970-01-01T00:02:00Z", partition="a")


def test_what_leaves_the_partitions_says_so() -> None:
    events = stream(read((5, "a", 1), (3, "b", 1)))
    with pytest.raises(ColumnError, match="grouped by"):
        events.select("v")
    assert events.one_clock().select("v").key == ()
    with pytest.raises(PlanError, match="one_clock"):
        events.one_clock().one_clock()
    with pytest.raises(ColumnError):
        g.events(read(), start="at", unit="s").advance_time(per="place")
    with pytest.raises(PlanError, match="low_watermark"):
        g.events(read(), start="at", unit="s").advance_time(low_watermark="5s")
