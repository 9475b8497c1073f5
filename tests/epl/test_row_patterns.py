"""match_recognize in EPL and by verbs: the same matches, those of an iterator, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.errors import ColumnError, PlanError, TextError
from gpu_ops.plan.row_patterns import OneRow, OrderedRows, RepeatedRows
from tests.support.examples import examples
from tests.support.row_pattern_reference import Partition, PlacedRow, Rules

SCHEMA = {"T": {"k": "string", "v": "int"}}

# a single step: prices of x   7 5 4 8     A B B C
FALL = """@name('s') select * from T match_recognize (partition by k
    measures A.v as a, first(B.v) as b0, last(B.v) as b1, count(B.v) as n, avg(B.v) as m, C.v as c, B as rows
    pattern (A B+ C) define B as B.v < prev(B.v), C as C.v > A.v)"""


def test_a_match_is_delivered_as_it_ends_with_its_measures() -> None:
    runtime = epl.Runtime(SCHEMA)
    (statement,) = runtime.deploy(FALL)
    statement.deliveries()
    rows = [("x", 7), ("y", 1), ("x", 5), ("x", 4), ("y", 0), ("x", 8)]
    runtime.send("T", [{"k": k, "v": v} for k, v in rows])
    assert statement.deliveries().drop_columns(["turn", "row"]).to_pylist() == [
        {"a": 7, "b0": 5, "b1": 4, "n": 2, "m": 4.5, "c": 8, "rows": [{"k": "x", "v": 5}, {"k": "x", "v": 4}]}
    ]


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 4)), max_size=30), st.data())
@examples(15, dear=True)
def test_verbs_give_the_same(rows: list[tuple[str, int]], data: st.DataObject) -> None:
    skip = data.draw(st.sampled_from(["past last row", "to next row", "to current row"]))
    every, interval = data.draw(st.booleans()), data.draw(st.sampled_from([None, 2]))
    waits = "" if interval is None else f"interval {interval} sec"
    text = f"""select * from T match_recognize (partition by k
        measures A.v as a, B.v as b, count(B.v) as n, sum(B.v) as s, C[0].v as c
        {"all matches" * every} after match skip {skip} pattern (A B* (C | A))  {waits}
        define B as B.v < prev(B.v), C as C.v + sum(B.v) > A.v)"""
    table = pa.table(
        {"seq": range(len(rows)), "k": [k for k, _ in rows], "v": pa.array([v for _, v in rows], pa.int32())},
        pa.schema([("seq", pa.int64()), ("k", pa.string()), ("v", pa.int32())]),
    ).append_column("at", pa.array(np.arange(len(rows)) // 2 * 1000, pa.int64()))
    in_epl = epl.query(text, T=table, order="seq", time="at", until=60_000).collect()
    a = g.row("A")
    b = g.row("B", g.col("v") < g.previous("v"))
    c = g.row("C", g.col("v") + b.sum("v") > a["v"])
    stream = g.arrivals(
        g.events(table, start="at", unit="ms"),
        order="seq",
        start="1970-01-01T00:00:00Z",
        until=np.datetime64(60_000, "ms"),
    )
    matched = stream.by("k").match(
        a + b.repeat(0) + (c | a),
        {"a": a["v"], "b": b["v"], "n": b.count(), "s": b.agg(g.sum("v")), "c": c.nth("v", 0)},
        skip=skip,
        every=every,
        interval=None if interval is None else f"{interval}s",
    )
    names = ["turn", "row", "a", "b", "n", "s", "c"]
    by_verbs = matched.deliveries("a", "b", "n", "s", "c").collect()
    assert by_verbs.select(names).to_pylist() == in_epl.select(names).to_pylist()


@given(st.lists(st.integers(-2, 4), max_size=14), st.sampled_from(["keepall", "length(4)"]), st.data())
@examples(15, dear=True)
def test_an_iterator_gives_the_matches_in_the_content(numbers: list[int], window: str, data: st.DataObject) -> None:
    every = data.draw(st.booleans())
    skip: Any = data.draw(st.sampled_from(["past last row", "to next row", "to current row"]))
    runtime = epl.Runtime(SCHEMA)
    runtime.deploy(
        f"""@name('s') select * from T#{window} match_recognize (measures A.v as a, count(B.v) as n, last(B.v) as b
        {"all matches" * every} after match skip {skip} pattern (A B*) define A as A.v >= 2, B as B.v > 0)"""
    )

    def holds(name: str, row: PlacedRow, before: Any, so_far: Any) -> bool:
        return bool(row.values >= 2 if name == "A" else row.values > 0)

    rules = Rules(OrderedRows((OneRow("A"), RepeatedRows(OneRow("B"), 0, None))), holds, skip, every)
    for at, number in enumerate(numbers, 1):
        runtime.send("T", {"k": "x", "v": number})
        if not data.draw(st.booleans()):
            continue
        held = numbers[:at] if window == "keepall" else numbers[:at][-4:]
        expected = []
        for match in Partition(rules, [PlacedRow(1, 0, value) for value in held], []).matches():
            first, *others = [row.values for row in match.rows]
            expected.append({"a": first, "n": len(others), "b": others[-1] if others else None})
        found = runtime.rows("s").to_pylist()
        key = repr
        assert sorted(found, key=key) == sorted(expected, key=key)


@pytest.mark.parametrize(
    ("clause", "says"),
    [
        ("measures A.w as w pattern (A)", "has no property 'w'"),
        ("measures A.v as v pattern (A) define B as B.v > 0", "no variable 'B'"),
        ("measures A.v as v pattern (A) define A as A.v > 0, A as A.v < 9", "'A' is defined twice"),
        ("measures v as v pattern (A)", "'v' is no variable of the pattern"),
        ("measures sum(A.v + B.v) as s pattern (A+ B+)", "over the rows of one variable"),
        ("measures A.v as v pattern (A B) define B as prev(A.v) > 0", "prev is of the row that comes, which is 'B'"),
        ("measures A.v as v pattern (A B) define B as A", "A is a row, not a value"),
        ("measures A.v as v pattern (A B) define B as B.v % A.v = 0", "A condition over several events has '__mod__'"),
        ("measures A.v as v pattern (match_recognize_permute(A, B, C, D, E, F, G))", "more than 4096 places"),
    ],
)
def test_what_cannot_be_is_refused_at_its_place(clause: str, says: str) -> None:
    with pytest.raises(TextError, match=says.replace("(", r"\(").replace("+", r"\+")):
        epl.Runtime(SCHEMA).deploy(f"select * from T match_recognize ({clause})")


def test_a_hint_that_changes_the_answer_is_refused() -> None:
    with pytest.raises(TextError, match="iterated alone"):
        epl.Runtime(SCHEMA).deploy(f"@Hint('iterate_only') {FALL}")


def test_verbs_refuse_what_cannot_be() -> None:
    stream = g.arrivals(g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s"))
    a, b = g.row("a"), g.row("b", g.col("w") > 0)
    for made, says in (
        (lambda: stream.match(a, {}), "no measures"),
        (lambda: stream.match(a, {"v": g.col("v")}), "no value of a row of the pattern"),
        (lambda: stream.match(a, {"v": b["v"]}), "The pattern has no row 'b'"),
        (lambda: stream.match(a + g.row("a", g.col("v") > 0), {"v": a["v"]}), "Two rows of the pattern are called 'a'"),
        (lambda: g.row("a b"), "is called"),
        (lambda: a.repeat(3, 2), "repeated 3 to 2 times"),
    ):
        with pytest.raises(PlanError, match=says):
            made()
    with pytest.raises(ColumnError, match="column 'w'"):
        stream.match(b, {"v": b["v"]})
