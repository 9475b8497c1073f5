"""Texts over data at rest whose statements change what others read: named windows, tables, variables."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import IntegerOverflowError, PlanError, TextError
from gpu_ops.plan.embedded_statements import EmbeddedStatements
from tests.support.epl_at_rest import in_turns, live, rows, told
from tests.support.examples import examples

_SCHEMA = pa.schema(
    [("seq", pa.int64()), ("at", pa.int64()), ("k", pa.string()), ("v", pa.int32()), ("m", pa.string())]
)
_WINDOW = "create window W#{} as select k, v from A; insert into W select k, v from A; "
_CHANGED = "on B as x delete from W as w where w.k = x.k; "
_TABLE = "create table T(k string primary key, s sum(int), n count(*)); "
_TOTALS = "into table T select sum(v) as s, count(*) as n from A#length(3) group by k; "

_BY_KEY = "create context C partition by k from A, k from B; context C "
_MERGED = """
    create window W#keepall as select k, v from A;
    on A as a merge W as w where a.k = w.k
        when matched and a.v < 0 then delete
        when matched then update set v = w.v + a.v
        when not matched then insert select k, v;
"""

_TEXTS = [
    _WINDOW.format(view) + _CHANGED + "select irstream k, v from W"
    for view in ("keepall", "length(2)", "time(3 sec)", "unique(k)", "sort(2, v)", "time_batch(2 sec)")
] + [
    _WINDOW.format("keepall") + "on B as x update W as w set v = w.v + x.v where w.k = x.k; select sum(v) as s from W",
    _WINDOW.format("keepall") + "on B as x select w.k as k, w.v + x.v as s from W as w where w.k = x.k",
    _WINDOW.format("keepall") + "on B as x select and delete w.v as v from W as w where w.k = x.k",
    _WINDOW.format("length(3)") + "select x.v as v, (select max(v) from W where k = x.k) as most from B as x",
    _WINDOW.format("length(3)") + "select a.v as v, w.v as w from B as a unidirectional, W as w where a.k = w.k",
    _WINDOW.format("time(2 sec)") + "select k, count(*) as n from W group by k output all every 2 sec",
    _MERGED + "select irstream k, v from W",
    _TABLE + _TOTALS + "select k, T[k].s as s, T[k].n as n from B",
    _TABLE + _TOTALS + "on B as x select t.k as k, t.s as s from T as t where t.k = x.k",
    "create variable int least = 0; on B set least = v; select k, v, least from A(v >= least)",
    "create variable int seen = 0; on A(v > 2) set seen = seen + 1; select k, seen from B",
    "create variable int n = 0; select v from A output when count_insert > 1 then set n = n + 1; select n from B",
    _BY_KEY + "create variable int seen = 0; context C on A set seen = seen + v; context C select k, seen from B",
    _BY_KEY + _WINDOW.format("length(2)").replace("insert", "context C insert") + "context C select sum(v) as s from W",
    _WINDOW.format("keepall") + "insert into S select k, v from W where v > 1; select k, sum(v) as s from S group by k",
]


@st.composite
def _events(draw: Any) -> Mapping[str, pa.Table]:
    found: dict[str, list[Mapping[str, Any]]] = {"A": [], "B": []}
    now = 0
    for number in range(draw(st.integers(0, 14))):
        now += draw(st.sampled_from([0, 0, 500, 1_000, 2_500]))
        found[draw(st.sampled_from("AAB"))].append(
            {
                "seq": number,
                "at": now,
                "k": draw(st.sampled_from(["x", "y", None])),
                "v": draw(st.integers(-2, 6)),
                "m": draw(st.sampled_from("pq")),
            }
        )
    return {name: pa.Table.from_pylist(list(some), _SCHEMA) for name, some in found.items()}


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.sampled_from(_TEXTS), _events())
@examples(40, dear=True)
def test_a_text_gives_what_a_runtime_delivers(device: str, text: str, frames: Mapping[str, pa.Table]) -> None:
    answer = epl.query(text, frames, order="seq", time="at", until=60_000).collect(device=device)
    assert in_turns(rows(answer)) == in_turns(told(text, frames, 60_000))


@pytest.mark.slow
@given(st.sampled_from(_TEXTS), _events(), st.integers(0, 1 << 30))
@examples(40, dear=True)
def test_it_does_so_live_in_any_cut(
    tmp_path_factory: pytest.TempPathFactory, text: str, frames: Mapping[str, pa.Table], seed: int
) -> None:
    query = epl.query(text, frames, order="seq", time="at", until=60_000)
    found = rows(live(query, frames, "cpu", random.Random(seed), tmp_path_factory.mktemp("live")))
    assert in_turns(found) == in_turns(rows(query.collect()))


# What users see

_ORDERS = pa.table(
    {
        "seq": [1, 2, 4, 6],
        "at": [0, 1_000, 3_000, 5_000],
        "id": ["a", "b", "c", "d"],
        "amount": pa.array([5, 7, 1, 2], pa.int32()),
    }
)
_PAID = pa.table({"seq": [3, 5], "at": [2_000, 4_000], "id": ["a", "c"]})


def test_a_named_window_holds_what_is_open() -> None:
    # seconds   0    1    2      3    4      5
    # orders    a:5  b:7         c:1         d:2
    # paid                a           c
    # owed      5    12   7      8    7      9
    text = """
        create window Open#keepall as select id, amount from Orders;
        insert into Open select id, amount from Orders;
        on Paid as p delete from Open as o where o.id = p.id;
        select sum(amount) as owed from Open
    """
    answer = epl.query(text, Orders=_ORDERS, Paid=_PAID, order="seq", time="at").collect()
    assert answer["owed"].to_pylist() == [5, 12, 7, 8, 7, 9]


def test_a_statement_whose_rows_nobody_reads_is_an_error() -> None:
    text = "create variable int n = 1; on Paid set n = 2; select id from Orders; select n from Orders"
    with pytest.raises(PlanError, match="Nobody reads what the statement 'statement 2' delivers"):
        epl.query(text, Orders=_ORDERS, Paid=_PAID, order="seq")


def test_a_wrong_text_is_refused_at_once() -> None:
    changed = "create window Open#keepall as Orders; on Paid as p delete from Open as o where o.idd = p.id; "
    text = changed + "select * from Open"
    with pytest.raises(TextError, match="Did you mean 'id'"):
        epl.query(text, Orders=_ORDERS, Paid=_PAID, order="seq")


def test_a_statement_that_fails_raises_when_data_is_read() -> None:
    text = "create variable int n = 2147483647; on Paid set n = n + 1; select n from Orders"
    query = epl.query(text, Orders=_ORDERS, Paid=_PAID, order="seq", time="at")
    with pytest.raises(IntegerOverflowError):
        query.collect()


def test_its_plan_is_the_text() -> None:
    text = "create window Open#keepall as Orders; insert into Open select * from Orders; select id from Open"
    assert "EmbeddedStatements create window" in epl.query(text, Orders=_ORDERS, order="seq").explain()


def test_no_key_shares_it_out_among_tasks() -> None:
    text = "create window Open#keepall as Orders; insert into Open select * from Orders; select id from Open"
    query = epl.query(text, Orders=_ORDERS, order="seq")
    (node,) = (each for each in query._node.walk() if isinstance(each, EmbeddedStatements))
    with pytest.raises(PlanError, match="one order") as raised:
        node.split(())
    assert "Collect the frames first" in str(raised.value)
    assert "key (by" not in str(raised.value)
