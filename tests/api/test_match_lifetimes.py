"""A match as an event lives from its first to its last member; registers are carried from row to row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import ColumnError, IntegerOverflowError, PlanError

col = g.col
SIGNS = [*"(()a()))()"]
ROWS = pa.table({"at": range(10), "sign": SIGNS, "key": [0, 0, 0, 1, 0, 0, 0, 1, 0, 0]})


def arrived(table: pa.Table = ROWS) -> g.ArrivalStream:
    stream: g.ArrivalStream = g.arrivals(g.events(table.append_column("t", table["at"]), start="at", unit="s"))
    return stream


def second(at: int) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def balanced(stream: g.ArrivalStream, **options: Any) -> g.ArrivalStream:
    """An opening sign, until as many are closed as opened."""
    depth = g.register("depth")
    opens = g.row("opens", (col("sign") == "(") & (depth >= 0), sets={"depth": depth + 1})
    closes = g.row("closes", (col("sign") == ")") & (depth > 1), sets={"depth": depth - 1})
    last = g.row("last", (col("sign") == ")") & (depth == 1), sets={"depth": depth - 1})
    term = opens + (opens | closes).repeat(0) + last
    measures: dict[str, Any] = {"n": (opens + closes + last).agg(g.count("sign")), "depth": depth}
    return stream.match(term, measures, registers={"depth": 0}, **options)


@pytest.mark.parametrize("device", ["cpu", "array"])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # 0 (  1 (  2 )  4 (  5 )  6 )   8 (  9 )      of key 0
        # └─────────────────────────┘   └─────┘        no match begins while one may go on
        ({"skip": "while open", "every": True}, [(0, 6, 6), (8, 9, 2)]),
        #    └────┘    └────┘                          as many as begin
        ({"skip": "to current row", "every": True}, [(0, 6, 6), (1, 2, 2), (4, 5, 2), (8, 9, 2)]),
        ({"skip": "to current row", "every": True, "within": "6s"}, [(1, 2, 2), (4, 5, 2), (8, 9, 2)]),
        # A match that ends all others: the one in the middle
        ({}, [(1, 2, 2), (4, 5, 2), (8, 9, 2)]),
    ],
)
def test_a_match_lives_from_its_first_row_to_its_last(
    device: str, options: dict[str, Any], expected: list[tuple[int, int, int]]
) -> None:
    found = balanced(arrived().by("key"), **options).events("key", "n", "depth").collect(device=device)
    tick = timedelta(microseconds=1)
    wanted = [
        {"start": second(first), "end": second(last) + tick, "key": 0, "n": n, "depth": 0}
        for first, last, n in expected
    ]
    assert sorted(found.to_pylist(), key=lambda row: row["start"]) == wanted


def test_matches_are_events_for_other_verbs_live_too() -> None:
    def alive(table: pa.Table) -> g.Stream:
        found = balanced(arrived(table).by("key"), skip="to current row", every=True, within="10s")
        return found.events("n").snapshot().agg(n=g.count())

    live, parts = alive(ROWS.schema.empty_table()).start(), []
    for at in range(len(ROWS)):
        live.push(ROWS.slice(at, 1).append_column("t", ROWS["at"].slice(at, 1)))
        parts.append(live.results())
    early = sum(map(len, parts))
    # A match may be ten seconds old when it is found: at second 30 those of the first twenty are known.
    live.push({"at": [30], "sign": ["a"], "key": [0], "t": [30]})
    live.advance("1970-01-01T00:00:31Z")
    parts.append(live.results())
    whole = alive(ROWS).collect()
    assert pa.concat_tables(parts).sort_by("start").equals(whole.sort_by("start"))
    assert not early
    assert whole["n"].to_pylist() == [1, 2, 1, 2, 1, 1]


def test_a_match_of_a_pattern_lives_until_it_is_complete() -> None:
    # 0 ( 1 ( 2 )   4 ( 5 ) 6 ) 7 ) 8 ( 9 )
    rows = arrived(ROWS.filter(pa.array([sign in "()" for sign in SIGNS])))
    then = g.every("a", rows, col("sign") == "(") >> g.one("b", rows, col("sign") == ")")
    silent = g.every("a", rows, col("sign") == ")") >> g.none("", rows, col("sign") == "(").within("2s")
    twice = g.every(g.one("a", rows, col("sign") == "(").times(2)) >> g.one("b", rows, col("sign") == ")")
    for pattern, expected in (
        (then, [(0, 2), (1, 2), (4, 5), (8, 9)]),
        (silent, [(2, 4), (5, 7), (6, 8)]),
        (twice, [(0, 2), (4, 9)]),
    ):
        found = g.pattern(pattern).events().collect()
        spans = {(row["start"].second, row["end"].second) for row in found.to_pylist()}
        assert spans == {*expected}


def test_what_arrives_is_a_point() -> None:
    assert arrived().events("t").collect()["start"].to_pylist() == [second(at) for at in range(10)]
    with pytest.raises(ColumnError, match="no such column"):
        arrived().events("x")


def test_what_is_wrong_with_registers_is_said() -> None:
    row, a = arrived(), g.row("a", sets={"r": g.register("r") + 1})
    wrong: Any = {"r": "x"}
    for ask, says in (
        (lambda: row.match(a, {"r": g.register("r")}), "sets 'r', which is no register"),
        (lambda: row.match(g.row("b", g.register("r") > 1), {"n": g.row("b").count()}), "no such column"),
        (lambda: row.match(a, {"r": g.register("r")}, registers=wrong), "it is a number"),
        (lambda: row.match(a, {"r": g.register("q")}, registers={"r": 0}), "no such column"),
        (lambda: row.match(g.row("a", sets={"r": col("sign")}), {"n": a.count()}, registers={"r": 0}), "not of that"),
        (lambda: row.match(g.row("a", sets={"r": col("t") * 0.5}), {"n": a.count()}, registers={"r": 0}), "Begin with"),
        (lambda: g.register("no name"), "is called"),
        (lambda: g.row("register"), "is called"),
    ):
        with pytest.raises((PlanError, ColumnError), match=says):
            ask()
    large = g.row("a", sets={"r": g.register("r") * 4_000_000_000})
    found = row.match(large.repeat(3), {"r": g.register("r")}, registers={"r": 4})
    with pytest.raises(IntegerOverflowError, match="does not fit"):
        found.deliveries("r").collect()


def test_a_register_may_be_a_float_and_may_be_null() -> None:
    a = g.row("a", sets={"half": g.register("half") / 2, "t": col("t") + g.register("t")})
    found = arrived().match(
        a.repeat(), {"half": g.register("half"), "t": g.register("t")}, registers={"half": 1.0, "t": 0}
    )
    assert found.deliveries("half", "t").collect().select(["half", "t"]).to_pylist()[0] == {"half": 0.5, "t": 0}
    none = g.row("a", sets={"t": g.when(col("t") > 0).then(col("t"))})
    null = arrived().match(none, {"t": g.register("t")}, registers={"t": 7})
    assert null.deliveries("t").collect()["t"].to_pylist() == [None, *range(1, 10)]
