"""Texts over data at rest: what a runtime delivers that is told the same, in any cut, on any device."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.errors import ColumnError, PlanError, TextError, TimeError
from gpu_ops.texts.binding.types import event_type
from tests.support.epl_at_rest import live, rows, told
from tests.support.epl_scripts import SCHEMA, Advance, Scenario, Send, asking, joins, scenarios
from tests.support.examples import examples

_TIMES = pa.schema([("seq", pa.int64()), ("at", pa.int64())])


def _frames(scenario: Scenario) -> tuple[dict[str, pa.Table], int]:
    """(the events of each type with their numbers and times, when the script ends)."""
    now, sent = 0, {name: list[Mapping[str, Any]]() for name in SCHEMA}
    for number, step in enumerate(scenario.steps):
        if isinstance(step, Advance):
            now = step.now
        elif isinstance(step, Send):
            sent[step.type_name].append({**step.row, "seq": number, "at": now})
    schemas = {name: pa.schema([*event_type(dict(SCHEMA[name])), *_TIMES]) for name in SCHEMA}
    return {name: pa.Table.from_pylist(list(some), schemas[name]) for name, some in sent.items()}, now


def _arranged(rows: Sequence[Mapping[str, Any]], scenario: Scenario) -> list[Mapping[str, Any]]:
    """The rows as they came, unless those of a delivery have no order."""
    return sorted(rows, key=repr) if scenario.in_any_order else list(rows)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(scenarios() | scenarios() | joins() | asking())
@examples(20, dear=True)
def test_a_query_gives_what_a_runtime_delivers(device: str, scenario: Scenario) -> None:
    frames, until = _frames(scenario)
    try:
        query = epl.query(scenario.text, frames, order="seq", time="at", until=until)
    except TextError:
        return
    expected = told(scenario.text, frames, until)
    assert _arranged(rows(query.collect(device=device)), scenario) == _arranged(expected, scenario)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(scenarios() | joins(), st.integers(0, 1 << 30))
@examples(15, dear=True)
def test_a_live_query_gives_it_in_any_cut(
    device: str, tmp_path_factory: pytest.TempPathFactory, scenario: Scenario, seed: int
) -> None:
    frames, until = _frames(scenario)
    try:
        query = epl.query(scenario.text, frames, order="seq", time="at", until=until)
    except TextError:
        return
    folder = tmp_path_factory.mktemp("live")
    found = rows(live(query, frames, device, random.Random(seed), folder))
    assert _arranged(found, scenario) == _arranged(rows(query.collect(device=device)), scenario)


# What users see

_DRAWN = pa.table({"seq": [1, 2, 3], "account": ["a", "b", "a"], "amount": [5, 7, 1], "at": [0, 0, 4_000]})


def test_statements_insert_one_into_another() -> None:
    """Large ones twice over; both inserted streams and events that come belong to the last statement."""
    text = """
        insert into Large select account, amount from Withdrawal where amount > 1;
        insert into Large(amount) select 2 * amount from Withdrawal where account = 'a';
        insert into Twice select sum(amount) as total from Large;
        @name('s') select * from Twice#length(1)
    """
    frames = {"Withdrawal": _DRAWN, "Large": _DRAWN.slice(0, 1).set_column(0, "seq", pa.array([9]))}
    query = epl.query(text, frames, order="seq", time="at")
    assert rows(query.collect()) == told(text, frames, 0)
    assert rows(query.collect(device="array")) == told(text, frames, 0)
    assert [row["total"] for row in rows(query.collect())] == [5, 15, 22, 27, 29]


def test_expressions_are_declared_and_streams_are_made_in_any_order() -> None:
    text = """
        create expression twice { x => 2 * x.amount };
        create schema Large (amount long);
        insert into Larger select sum(amount) as total from Large;
        insert into Large select twice(w) as amount from Withdrawal as w where w.amount >= 5;
        select * from Larger
    """
    query = epl.query(text, Withdrawal=_DRAWN, order="seq")
    assert [row["total"] for row in rows(query.collect())] == [10, 24]
    assert rows(query.collect()) == told(text, {"Withdrawal": _DRAWN}, 0)


def test_without_times_the_clock_stays() -> None:
    query = epl.query(
        "select current_timestamp() as now, amount from Withdrawal", Withdrawal=_DRAWN, order="seq", start=7
    )
    assert [(row["turn"], row["now"], row["amount"]) for row in rows(query.collect())] == [
        (1, 7, 5),
        (2, 7, 7),
        (3, 7, 1),
    ]


def test_streams_have_their_times() -> None:
    """Both streams are points; the second event of A moves the clock past the end of the first one's window."""
    tables = pa.table({"at": [1, 20], "a": [1, 2]}), pa.table({"at": [5], "b": [7]})
    one, other = (g.events(table, start="at", unit="s") for table in tables)
    text = "select irstream a, b from A#time(10 sec), B#keepall"
    found = epl.query(text, A=one, B=other).collect()
    assert [(row["row"], row["a"], row["start"].timestamp()) for row in found.to_pylist()] == [
        ("new", 1, 5),
        ("old", 1, 20),
        ("new", 2, 20),
    ]


def test_frames_come_back_as_what_they_were() -> None:
    query = epl.query("select account from Withdrawal", Withdrawal=pl.from_arrow(_DRAWN), order="seq")
    assert isinstance(query.collect(), pl.DataFrame)
    assert query.collect()["account"].to_list() == ["a", "b", "a"]


def test_events_of_several_inputs_come_in_their_order_where_they_are_tied() -> None:
    frames = {"B": pa.table({"seq": [1]}), "A": pa.table({"seq": [1]})}
    text = "insert into C select 'a' as n from A; insert into C select 'b' as n from B; select n from C"
    assert [row["n"] for row in rows(epl.query(text, frames, order="seq").collect())] == ["b", "a"]


@pytest.mark.parametrize(
    ("text", "given", "error", "says"),
    [
        ("select * from W", {"order": "nr"}, ColumnError, "'nr'"),
        ("select * from W", {}, PlanError, "order="),
        ("select ammount from W", {"order": "seq"}, TextError, "amount"),
        ("select 1 as turn from W", {"order": "seq"}, ColumnError, "turn"),
        ("select * from X", {"order": "seq"}, TextError, "X"),
        ("create schema X (a int); select * from X", {"order": "seq"}, PlanError, "X=frame"),
        ("select * from W; select * from W", {"order": "seq"}, PlanError, "insert into"),
        ("create schema X (a int)", {"order": "seq"}, PlanError, "asks nothing"),
        ("select * from W(on", {"order": "seq"}, TextError, "line 1"),
        ("select * from W", {"order": "account"}, ColumnError, "account"),
    ],
)
def test_what_cannot_be_asked_is_an_error_at_once(
    text: str, given: Mapping[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        epl.query(text, W=_DRAWN, **given)


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"time": "at"}, ColumnError, "come at 1970-01-01T00:00:00Z, and nothing says which is first"),
        ({"order": "at"}, ColumnError, "one number"),
        ({"time": "at", "order": "seq", "start": 1}, TimeError, "before the clock starts"),
    ],
)
def test_what_has_no_order_is_an_error_when_it_is_read(
    given: Mapping[str, Any], error: type[Exception], says: str
) -> None:
    query = epl.query("select * from W", W=_DRAWN, **given)
    with pytest.raises(error, match=says):
        query.collect()


SAVED = [
    (
        "create window W#unique(k) as E; insert into W select * from E; "
        "@name('s') on E(v<0) as d select W.v as v, d.x as x from W where W.k=d.k"
    ),
    (
        "create window W#length(3) as E; insert into W select * from E; "
        "@name('s') on E(v>1) as d merge W where W.k=d.k when matched then update set v=d.v "
        "when not matched then insert select *"
    ),
    (
        "create table T(k string primary key, c count(*), s sum(long)); into table T select count(*) as c, sum(v) as s "
        "from E(k is not null)#time(20 msec) group by k; "
        "@name('s') select T[k].c as c, T[k].s as s from E(k is not null)"
    ),
    "create variable long z=0; on E(v>1) set z=v; @name('s') select z, v from E",
    "@name('s') select a.v as v, b.v as w from E(v>0)#length(3) as a, E(v<1)#time(9 msec) as b where a.k=b.k",
    "@name('s') select v, (select count(*) from E#time(7 msec) where k=e.k) as c from E as e",
    "@name('s') select * from pattern [every a=E(v>1) -> (timer:interval(4 msec) or b=E(k=a.k))]",
    "@name('s') select a.v as v from pattern [every-distinct(a.k, a.v, 9 msec) a=E]",
    (
        "@name('s') select * from E match_recognize (partition by k measures X.v as x, last(Y.v) as y "
        "pattern (X Y+ Z?) define Y as Y.v >= X.v, Z as Z.v<0)"
    ),
    (
        "create context C initiated by E(v>1) as e terminated after 9 msec; "
        "@name('s') context C select context.e.v as w, v, x from E(v<0)"
    ),
    "@name('s') select k, sum(v) as s, median(x) as m from E#time(9 msec) group by k output all every 5 msec",
]


@pytest.mark.parametrize("text", SAVED)
def test_a_text_goes_on_from_its_saves(tmp_path: Path, text: str) -> None:
    """Its parts are written once, and read back in any cut."""
    chance, count = random.Random(text), 60
    times = list(itertools.accumulate(chance.choice([0, 0, 0, 1, 4, 30]) for _ in range(count)))
    events = pa.table(
        {
            "at": pa.array(times, pa.timestamp("ms", "UTC")),
            "seq": pa.array(range(count)),
            "k": [chance.choice(["a", "b", None]) for _ in range(count)],
            "v": [chance.choice([None, *range(-3, 4)]) for _ in range(count)],
            "x": [chance.choice([None, -2.5, float("-inf"), 0.5]) for _ in range(count)],
        }
    )
    query = epl.query(text, E=g.events(events.schema.empty_table(), start="at"), order="seq")
    whole, live, found, at = query.start(device="cpu"), query.start(device="cpu"), list[str](), 0
    whole.push(events)
    whole.close()
    while at < count:
        size = chance.choice([1, 2, 5, 17])
        live.push(events.slice(at, size))
        at += size
        if at < count:
            live.advance(events["at"][at].as_py())
        if chance.random() < 0.4:
            live.save(tmp_path / "saves")
            if chance.random() < 0.7:
                live = g.restore(tmp_path / "saves", query, device=chance.choice(["cpu", "array"]))
        found += map(repr, live.results().to_pylist())
    live.close()
    wanted = [*map(repr, whole.results().to_pylist())]
    assert len(wanted) > 1
    assert [*found, *map(repr, live.results().to_pylist())] == wanted
