"""Runtimes of statements: they give what the interpreter gives, in any batches, and say what is wrong."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.errors import ColumnError, PlanError, TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine, rows_of
from tests.support.epl_recorded import same
from tests.support.epl_scripts import (
    NAME,
    SCHEMA,
    Advance,
    Scenario,
    Send,
    Step,
    played,
    same_traces,
    scenarios,
    scripts,
)
from tests.support.examples import by_default, examples


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@given(scenarios())
@by_default(150, derandomize=True)
def test_a_runtime_delivers_what_the_interpreter_delivers(device: str, scenario: Scenario) -> None:
    try:
        found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    except TextError:
        return
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@examples(dear=True)
@given(
    st.sampled_from(["avg(count(*))", "sum(sum(v))", "sum(count(v))"]),
    st.sampled_from(["", "#length(2)", "#time(2 sec)", "#unique(k)"]),
    st.sampled_from(["", "k"]),
    scripts(),
)
def test_aggregates_of_aggregates_are_those_of_the_interpreter(
    device: str, nested: str, window: str, key: str, script: tuple[Step, ...]
) -> None:
    keys, grouping = (f"{key}, ", f" group by {key}") if key else ("", "")
    text = f"@name('{NAME}') select {keys}{nested} from A{window}{grouping}"
    scenario = Scenario(text, script, in_any_order=True)
    found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


def test_sums_of_counts_begin_anew_where_all_have_left() -> None:
    """1, then 1 + 2; both leave together: the counts were 1 and 0 then, and 2 would be left of the sum."""
    runtime = epl.Runtime(SCHEMA)
    runtime.deploy("select sum(count(*)) as s from A#time(2 sec)")
    found = [rows_of(each.new) for each in runtime.send("A", [{"v": 1}, {"v": 1}])]
    found += [rows_of(each.new) for each in runtime.advance(2_000)]
    found += [rows_of(each.new) for each in runtime.send("A", {"v": 1})]
    assert found == [[{"s": 1}], [{"s": 3}], [{"s": None}], [{"s": 1}]]


@pytest.mark.slow
@given(scenarios())
@examples(20, dear=True)
def test_events_sent_together_are_delivered_as_events_sent_one_by_one(scenario: Scenario) -> None:
    """Neighbouring events of one type are one batch; asking for content in between changes nothing."""
    try:
        singly, together = _runtimes(scenario.text)
    except TextError:
        return
    for is_event, steps in groupby(scenario.steps, lambda step: isinstance(step, Send) and step.type_name):
        some = list(steps)
        events = [step.row for step in some if isinstance(step, Send)]
        one_by_one = [each for row in events for each in singly.send(str(is_event), row)]
        at_once = list(together.send(str(is_event), events)) if events else []
        for step in some:
            if isinstance(step, Advance):
                one_by_one += list(singly.advance(step.now))
                at_once += list(together.advance(step.now))
        assert _shown(at_once) == _shown(one_by_one)
        kept = [rows_of(each.rows(NAME)) for each in (singly, together)]
        assert same(*kept, in_any_order=True)


@pytest.mark.slow
@given(scenarios())
@examples(20, dear=True)
def test_events_sent_with_their_times_are_delivered_as_after_advances(scenario: Scenario) -> None:
    """The clock moves before each event that comes later than it shows."""
    try:
        singly, together = _runtimes(scenario.text)
    except TextError:
        return
    clock, timed = singly.clock, list[tuple[str, int, Any]]()
    for step in scenario.steps:
        if isinstance(step, Advance):
            clock = step.now
        elif isinstance(step, Send):
            timed.append((step.type_name, clock, step.row))
    for type_name, some in groupby(timed, lambda each: each[0]):
        events = list(some)
        one_by_one = list[epl.Delivery]()
        for _, time, row in events:
            one_by_one += [*(singly.advance(time) if time > singly.clock else ()), *singly.send(type_name, row)]
        at_once = together.send(type_name, [row for _, _, row in events], at=[time for _, time, _ in events])
        assert _shown(at_once) == _shown(one_by_one)
        kept = [rows_of(each.rows(NAME)) for each in (singly, together)]
        assert same(*kept, in_any_order=True)


def _runtimes(text: str) -> tuple[epl.Runtime, epl.Runtime]:
    made = epl.Runtime(SCHEMA), epl.Runtime(SCHEMA)
    for each in made:
        each.deploy(text)
    return made


def _shown(deliveries: Sequence[epl.Delivery]) -> list[Any]:
    return [(rows_of(each.new), rows_of(each.old)) for each in deliveries]


# What users see


def _bank() -> epl.Runtime:
    return epl.Runtime({"Withdrawal": {"account": "string", "amount": "int"}})


def test_listeners_subscribers_and_a_table_of_deliveries() -> None:
    """W1 5 | W2 7 | W3 9 through a window of two: the third event drops the first."""
    runtime = _bank()
    (statement,) = runtime.deploy("@name('last two') select irstream account, amount from Withdrawal#length(2)")
    told: list[Any] = []
    rows: list[Any] = []
    statement.listen(lambda new, old, given: told.append((rows_of(new), rows_of(old), given.name)))
    statement.subscribe(lambda account, amount: rows.append((account, amount)))
    assert statement.deliveries().num_rows == 0
    for account, amount in (("a", 5), ("b", 7), ("a", 9)):
        runtime.send("Withdrawal", {"account": account, "amount": amount})
    assert told[-1] == ([{"account": "a", "amount": 9}], [{"account": "a", "amount": 5}], "last two")
    assert rows == [("a", 5), ("b", 7), ("a", 9)]
    assert statement.deliveries().select(["row", "amount"]).to_pylist() == [
        {"row": "new", "amount": 5},
        {"row": "new", "amount": 7},
        {"row": "new", "amount": 9},
        {"row": "old", "amount": 5},
    ]
    assert statement.deliveries().num_rows == 0
    assert runtime.rows("last two").to_pylist() == [{"account": "b", "amount": 7}, {"account": "a", "amount": 9}]
    assert statement.schema == pa.schema([("account", pa.string()), ("amount", pa.int32())])


def test_a_listener_that_raises_stops_nothing_and_is_noted() -> None:
    runtime = _bank()
    (statement,) = runtime.deploy("select amount from Withdrawal")
    seen: list[Any] = []

    def fails(*given: Any) -> None:
        raise ValueError("not today")

    statement.listen(fails)
    statement.listen(lambda new, old, given: seen.append(rows_of(new)))
    runtime.send("Withdrawal", {"account": "a", "amount": 5})
    assert seen == [[{"amount": 5}]]
    assert [(name, str(error)) for name, error in runtime.errors] == [(statement.name, "not today")]


def test_events_without_properties_are_events() -> None:
    runtime = epl.Runtime({"Bell": {}})
    runtime.deploy("select count(*) as n from Bell")
    told = [*runtime.send("Bell", {}), *runtime.send("Bell", [{}, {}]), *runtime.send("Bell", [])]
    assert [rows_of(each.new) for each in told] == [[{"n": 1}], [{"n": 2}], [{"n": 3}]]


def test_times_of_events_are_checked_before_any_is_sent() -> None:
    """0 |- 5 ... 12 : the clock goes along; a time before it, too few times, and what is no time are named."""
    runtime = _bank()
    (statement,) = runtime.deploy("select current_timestamp() as t, sum(amount) as total from Withdrawal#time(10 sec)")
    rows = [{"account": "a", "amount": each} for each in (5, 7, 9)]
    found = runtime.send("Withdrawal", rows, at=pa.array([0, 5_000, 12_000], pa.timestamp("ms")))
    assert [(each.new.to_pylist() if each.new else None) for each in found] == [
        [{"t": 0, "total": 5}],
        [{"t": 5_000, "total": 12}],
        [{"t": 12_000, "total": 7}],
        [{"t": 12_000, "total": 16}],
    ]
    assert runtime.clock == 12_000
    for at, said in (
        ([12_000, 11_999, 13_000], "Row 0 comes at 12000, row 1 at 11999, which is earlier"),
        ([11_000, 12_000, 13_000], "The clock shows 12000, row 0 at 11000, which is earlier"),
        ([12_000], "1 times for 3 rows"),
        ([12_000, None, 13_000], "no time for row 1"),
        (["noon"] * 3, "at has no times"),
    ):
        with pytest.raises(PlanError, match=said):
            runtime.send("Withdrawal", rows, at=at)
    assert runtime.clock == 12_000
    assert runtime.rows(statement.name).to_pylist() == [{"t": 12_000, "total": 16}]


@pytest.mark.parametrize("how", ["send", "replay"])
def test_arrays_may_be_written_into_once_they_are_sent(how: str) -> None:
    """4 6 8 : every second time of a longer array; a window holds the rows, whose arrays are used again."""
    runtime = _bank()
    (statement,) = runtime.deploy("select amount, current_timestamp() as t from Withdrawal#keepall")
    amounts, times = np.array([7, 8, 9]), np.arange(4, 10)[::2]
    rows = {"account": ["a"] * 3, "amount": amounts}
    if how == "replay":
        runtime.replay({"Withdrawal": rows | {"at": times}}, time="at")
    else:
        runtime.send("Withdrawal", rows, at=times)
    amounts[:], times[:] = 0, 0
    assert [each["amount"] for each in runtime.rows(statement.name).to_pylist()] == [7, 8, 9]
    assert runtime.clock == 8


def test_times_of_an_array_are_checked_as_others_are() -> None:
    runtime = _bank()
    rows = [{"account": "a", "amount": each} for each in (5, 7, 9)]
    masked = np.ma.masked_array([0, 1, 2], [False, True, False])
    for at, said in (
        (np.array([0, 3, 2]), "Row 1 comes at 3, row 2 at 2, which is earlier"),
        (np.array([0, 1 << 60, 2]), "for row 1 the time"),
        (np.array([0, 1]), "2 times for 3 rows"),
        (masked, "no time for row 1"),
    ):
        with pytest.raises(PlanError, match=said):
            runtime.send("Withdrawal", rows, at=at)
    assert runtime.clock == 0


def test_inserted_events_have_the_time_of_what_made_them() -> None:
    runtime = _bank()
    runtime.deploy("insert into Large select amount from Withdrawal(amount > 5)")
    (late,) = runtime.deploy("select current_timestamp() as t, count(*) as n from Large#time(2 sec)")
    found = runtime.send("Withdrawal", [{"account": "a", "amount": each} for each in (6, 7, 8)], at=[0, 1_000, 2_500])
    assert [each.new.to_pylist()[0] for each in found if each.statement == late.name and each.new] == [
        {"t": 0, "n": 1},
        {"t": 1_000, "n": 2},
        {"t": 2_500, "n": 1},
        {"t": 2_500, "n": 2},
    ]


def test_statements_insert_into_each_other() -> None:
    """Large ones become events of their own; of these the last two are summed, each event a delivery."""
    runtime = _bank()
    runtime.deploy("insert into Large select account, amount * 2 as twice from Withdrawal(amount > 5)")
    (total,) = runtime.deploy("select sum(twice) as total from Large#length(2)")
    sent = pa.table({"account": ["a"] * 4, "amount": [6, 1, 7, 8]})
    assert [rows_of(each.new) for each in runtime.send("Withdrawal", sent) if each.statement == total.name] == [
        [{"total": 12}],
        [{"total": 26}],
        [{"total": 30}],
    ]


def test_the_clock_goes_forward() -> None:
    runtime = epl.Runtime({"T": {"v": "int"}}, start=1000)
    runtime.deploy("select irstream v from T#time(1 sec)")
    runtime.send("T", {"v": 1})
    assert len(runtime.advance(1999)) == 0
    (gone,) = runtime.advance(2000)
    assert (gone.new, rows_of(gone.old)) == (None, [{"v": 1}])
    with pytest.raises(PlanError, match="cannot go back to 1500"):
        runtime.advance(1500)


def test_wrong_words_are_refused_and_leave_nothing() -> None:
    runtime = _bank()
    with pytest.raises(TextError, match="no property 'ammount'"):
        runtime.deploy("select amount from Withdrawal; select ammount from Withdrawal")
    assert runtime.statements == ()
    with pytest.raises(TextError, match="no type of events 'Withdrawl'"):
        runtime.deploy("select * from Withdrawl")
    with pytest.raises(PlanError, match="no type of events 'Deposit'"):
        runtime.send("Deposit", {"amount": 1})
    with pytest.raises(ColumnError, match="no such property"):
        runtime.send("Withdrawal", [{"account": "a", "amount": 1}, {"account": "a", "amont": 1}])
    runtime.deploy("@name('one') select * from Withdrawal")
    with pytest.raises(TextError, match="a statement 'one' already"):
        runtime.deploy("@name('one') select amount from Withdrawal")
    with pytest.raises(PlanError, match="no statement 'two'"):
        runtime.undeploy("two")
    runtime.undeploy("one")
    assert runtime.statements == ()


def test_the_remove_stream_may_be_the_default() -> None:
    runtime = epl.Runtime({"T": {"v": "int"}}, default_selector="irstream")
    runtime.deploy("select v from T#length(1)")
    runtime.send("T", {"v": 1})
    (second,) = runtime.send("T", {"v": 2})
    assert (rows_of(second.new), rows_of(second.old)) == ([{"v": 2}], [{"v": 1}])


def test_a_plan_can_be_read() -> None:
    (statement,) = _bank().deploy("select account, sum(amount) from Withdrawal#length(2) group by account")
    assert "Deliveries of new and held rows per (@key 0)" in statement.explain()
    assert g.errors.TextError is TextError


# Seams


def test_a_statement_that_fails_stops_no_other() -> None:
    """v: 2**31 - 1 twice: their sum is no int. The count goes on, and so does what is inserted elsewhere."""
    runtime = epl.Runtime({"T": {"v": "int"}})
    runtime.deploy("@name('sum') select sum(v) as t from T#keepall")
    runtime.deploy("@name('count') select count(*) as n from T#keepall; insert into U select v from T")
    runtime.deploy("@name('last') select v from U#lastevent")
    told: list[Any] = []
    runtime["count"].listen(lambda new, old, given: told.append(rows_of(new)))
    with pytest.raises(g.errors.IntegerOverflowError) as failed:
        runtime.send("T", [{"v": 2_147_483_647}] * 2)
    assert "The statement 'sum' has failed, and gives nothing any more." in failed.value.__notes__
    assert told == [[{"n": 1}], [{"n": 2}]]
    runtime.send("T", {"v": 1})
    assert runtime.rows("count").to_pylist() == [{"n": 3}]
    assert runtime.rows("last").to_pylist() == [{"v": 1}]
    with pytest.raises(g.errors.QueryFailedError, match="'sum' has failed"):
        runtime.rows("sum")
    runtime.undeploy("sum")
    runtime.deploy("@name('sum') select sum(v) as t from T#keepall")
    runtime.send("T", {"v": 5})
    assert runtime.rows("sum").to_pylist() == [{"t": 5}]


def test_a_listener_may_send_deploy_and_undeploy() -> None:
    """What it sends is a turn of its own, behind the one that it is told of, for statements before and after it."""
    runtime = epl.Runtime({"T": {"v": "int"}})
    (first,) = runtime.deploy("@name('first') select v from T")
    runtime.deploy("@name('all') select window(v) as vs from T#keepall")

    def answer(new: pa.Table, old: pa.Table, given: Any) -> None:
        value = new["v"][0].as_py()
        if value < 3:
            runtime.send("T", {"v": value + 1})
        else:
            runtime.undeploy("first")
            runtime.deploy("@name('late') select count(*) as n from T#keepall")

    first.listen(answer)
    runtime.send("T", {"v": 1})
    assert runtime.errors == []
    assert runtime.rows("all").to_pylist() == [{"vs": [1, 2, 3]}]
    assert runtime.rows("late").to_pylist() == [{"n": 0}]
    assert [each.name for each in runtime.statements] == ["all", "late"]


def test_threads_take_turns() -> None:
    runtime = epl.Runtime({"T": {"v": "int"}})
    runtime.deploy("@name('n') select count(*) as n, sum(v) as t from T#keepall")

    def some(first: int) -> None:
        for value in range(first, first + 20):
            runtime.send("T", {"v": value})

    threads = [threading.Thread(target=some, args=(first,)) for first in (0, 20, 40)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert runtime.rows("n").to_pylist() == [{"n": 60, "t": sum(range(60))}]


@pytest.mark.parametrize(
    ("rows", "error", "said"),
    [
        ([{"v": 1}, {"v": "x"}], ColumnError, r"'x' is no int\. \[column 'v', row 1\]"),
        ([{"v": 3_000_000_000}], ColumnError, r"3000000000 is no int"),
        ([5], PlanError, "Row 0 is 5"),
        (5, PlanError, "These are no rows"),
        (pa.table({"w": [1]}), ColumnError, "lack a property"),
        (pa.table({"v": ["x"]}), ColumnError, r"'x' is no int\. \[column 'v', row 0\]"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_sent(rows: Any, error: type[Exception], said: str) -> None:
    runtime = epl.Runtime({"T": {"v": "int"}})
    runtime.deploy("@name('n') select count(*) as n from T#keepall")
    with pytest.raises(error, match=said):
        runtime.send("T", rows)
    assert runtime.rows("n").to_pylist() == [{"n": 0}]


def test_wrong_arguments() -> None:
    with pytest.raises(ColumnError, match="begins with @"):
        epl.Runtime({"T": {"@clock": "int"}})
    runtime = epl.Runtime({"T": {"v": "int"}})
    with pytest.raises(PlanError, match=r"A time is 1\.5"):
        runtime.advance(1.5)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="resolution is 0"):
        runtime.advance_span(10, 0)
    with pytest.raises(PlanError, match="deploy takes a text"):
        runtime.deploy(5)  # type: ignore[arg-type]
    (statement,) = runtime.deploy("select v from T")
    with pytest.raises(PlanError, match="listener is 3"):
        statement.listen(3)  # type: ignore[arg-type]


def test_a_stream_that_becomes_deeper_is_still_read_after_what_makes_it() -> None:
    """A -> C -> D is deployed first, then A -> B -> C: what comes of one event by both ways reaches D in its turn."""
    runtime = epl.Runtime({"A": {"v": "int"}, "B": {"v": "int"}, "C": {"v": "int"}})
    runtime.deploy(
        """
        insert into D select v as v from C;
        @name('end') select v from D;
        insert into B select v + 1 as v from A;
        insert into C select v + 1 as v from B;
        """
    )
    runtime["end"].deliveries()
    runtime.send("A", [{"v": 1}, {"v": 5}])
    assert runtime["end"].deliveries()["v"].to_pylist() == [3, 7]
    with pytest.raises(TextError, match="streams in a circle"):
        runtime.deploy("insert into A select v from D")
    with pytest.raises(TextError, match="another type of events 'C' already"):
        runtime.deploy("create schema C (w int)")
    runtime.send("A", {"v": 1})
    assert runtime["end"].deliveries()["v"].to_pylist() == [3]


def test_what_the_readme_shows_runs(capsys: pytest.CaptureFixture[str]) -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    code = readme.split("## Esper's statements")[1].split("```python\n")[1].split("```")[0]
    exec(compile(code, "README.md", "exec"), {})  # noqa: S102  (it is ours)
    printed = capsys.readouterr().out.splitlines()
    assert printed[:3] == [f"[{{'account': 'A', 'total': {total}}}]" for total in (5, 11, None)]
    assert printed[-1] == "amount: [[6]]"


def test_what_a_notebook_echoes_is_short() -> None:
    runtime = epl.Runtime({"A": {"id": "int"}})
    (statement,) = runtime.deploy("@name('all') select * from A")
    assert repr(statement) == "<Statement 'all': @name('all') select * from A>"
    assert repr(runtime) == "<Runtime, statements: 1>"
    assert repr(runtime.send("A", {"id": 1})) == "<deliveries: 1>"
    assert repr(runtime.deploy_each("select * from A(id = ?:x:int)", pa.table({"x": [1, 2]}))).startswith(
        "<StatementGroup"
    )


FAR = {"microseconds": 1_700_000_000_000_000, "nanoseconds": 1_700_000_000_000_000_000, "year 0": -62_135_596_800_001}


@pytest.mark.parametrize("time", FAR.values(), ids=FAR)
def test_a_time_that_is_no_millisecond_of_a_year_is_refused_and_nothing_was_sent(time: int) -> None:
    runtime = epl.Runtime({"E": {"v": "int"}})
    (statement,) = runtime.deploy("select current_timestamp() as t, sum(v) as n from E#time(10 sec)")
    heard: list[Any] = []
    statement.listen(lambda new, *_: heard.extend(new.to_pylist()))
    with pytest.raises(PlanError, match=rf"{time}, which is no millisecond of the years 1 to 9999.*divide micro"):
        runtime.advance(time)
    with pytest.raises(PlanError, match=rf"at has for row 1 the time {time},"):
        runtime.send("E", [{"v": 1}, {"v": 2}], at=[5, time])
    with pytest.raises(PlanError, match=r"no millisecond of the years 1 to 9999"):
        epl.Runtime({"E": {"v": "int"}}, start=time)
    assert runtime.clock == 0
    runtime.send("E", {"v": 7}, at=[253_402_300_799_999])  # the last one
    assert heard == [{"t": 253_402_300_799_999, "n": 7}]


@pytest.mark.parametrize(
    "text",
    [
        "select v from E#time(SPAN)",
        "select v from E#time_batch(SPAN)",
        "select * from pattern [every timer:interval(SPAN)]",
        "select * from pattern [every a=E where timer:within(SPAN)]",
        "create context C start @now end after SPAN; context C select count(*) from E",
    ],
)
@pytest.mark.parametrize("span", ["106751991 days", "120001 months", "99999999999 days", "1e300 sec"])
def test_a_span_longer_than_all_times_together_is_refused(text: str, span: str) -> None:
    """A span of 106,751,991 days fits int64, and the clock with it does not: rows left as they came."""
    runtime = epl.Runtime({"E": {"v": "int"}}, start=253_402_300_799_000)
    with pytest.raises(TextError, match=r"at most 10,000 years long. \[line 1, column"):
        runtime.deploy(text.replace("SPAN", span))
    assert runtime.statements == ()
    runtime.deploy(text.replace("SPAN", "9999 years" if "month" in span else "3650000 days"))
    assert len(runtime.send("E", {"v": 1})) in {0, 1}
