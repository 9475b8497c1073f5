"""What a runtime does beside statements: several streams in order of time, the system's clock, isolated services."""

from __future__ import annotations

import datetime as dt
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.epl import runtime as runtime_module
from gpu_ops.epl import service as service_module
from gpu_ops.errors import ColumnError, GpuOpsError, PlanError, TextError
from tests.support.epl_on_runtime import rows_of
from tests.support.epl_recorded import same
from tests.support.epl_scripts import SCHEMA, Advance, Scenario, Send, joins, scenarios
from tests.support.examples import examples

_BANK = {"Withdrawal": {"account": "string", "amount": "int"}}


def _shown(deliveries: Sequence[epl.Delivery]) -> list[Any]:
    return [(each.statement, rows_of(each.new), rows_of(each.old)) for each in deliveries]


# States


def test_whoever_listens_to_states_is_told_of_statements_that_come_fail_and_go() -> None:
    runtime = epl.Runtime({"E": {"v": "long"}})
    told: list[tuple[str, str]] = []
    runtime.listen_states(lambda statement, state: told.append((statement.name, state)))

    def wrong(statement: epl.RunningStatement, state: str) -> None:
        raise ZeroDivisionError(statement.name, state)

    runtime.listen_states(wrong)
    runtime.deploy("@name('total') select sum(v) as v from E; @name('all') select v from E")
    with pytest.raises(TextError):
        runtime.deploy("@name('new') select v from E; select w from E")
    with pytest.raises(GpuOpsError):
        runtime.send("E", [{"v": (1 << 63) - 1}, {"v": 1}])
    runtime.undeploy("total")
    assert told == [("total", "deployed"), ("all", "deployed"), ("total", "failed"), ("total", "undeployed")]
    assert [(name, type(error)) for name, error in runtime.errors] == [(name, ZeroDivisionError) for name, _ in told]
    with pytest.raises(PlanError, match="function of two"):
        runtime.listen_states(5)  # type: ignore[arg-type]


# Several streams


@pytest.mark.slow
@given(joins() | scenarios(), st.randoms(use_true_random=False))
@examples(15, dear=True)
def test_a_replay_delivers_what_events_and_advances_in_order_of_time_deliver(scenario: Scenario, chance: Any) -> None:
    """Events of two streams, each at the time that the clock shows; the rows of each stream are shuffled."""
    singly, together = epl.Runtime(SCHEMA), epl.Runtime(SCHEMA)
    try:
        for each in (singly, together):
            each.deploy(scenario.text)
    except TextError:
        return
    clock, came = 0, list[tuple[int, str, Mapping[str, Any]]]()
    for step in scenario.steps:
        if isinstance(step, Advance):
            clock = step.now
        elif isinstance(step, Send):
            came.append((clock, step.type_name, step.row))
    streams: dict[str, list[dict[str, Any]]] = {"B": [], "A": []}
    for at, name, row in came:
        streams[name].append({**row, "came": at})
    one_by_one = list[epl.Delivery]()
    for at, name, row in sorted(came, key=lambda each: (each[0], each[1] == "A")):
        one_by_one += [*(singly.advance(at) if at > singly.clock else ()), *singly.send(name, row)]
    # Blocks of one time keep their order: it is that of the rows.
    for rows in streams.values():
        blocks = {at: [row for row in rows if row["came"] == at] for at in {row["came"] for row in rows}}
        order = list(blocks)
        chance.shuffle(order)
        rows[:] = [row for at in order for row in blocks[at]]
    assert _shown(together.replay(streams, time="came")) == _shown(one_by_one)
    assert together.clock == singly.clock


def test_a_replay_takes_frames_and_a_time_that_is_a_property() -> None:
    runtime = epl.Runtime({"A": {"ms": "long", "v": "int"}, "B": {"v": "int"}, "C": {}})
    runtime.deploy("select ms, v from A; select v from B#time(1 sec); @name('c') select count(*) as n from C")
    a = pa.table({"ms": [3_000, 1_000], "v": pa.array([3, 1], pa.int32())})
    at = [dt.datetime.fromtimestamp(2, dt.UTC)]
    found = runtime.replay({"A": a, "B": {"at": at, "v": [2], "ms": [2_000]}, "C": [{"ms": 2_000}]}, time="ms")
    assert [(rows_of(each.new), rows_of(each.old)) for each in found] == [
        ([{"ms": 1_000, "v": 1}], None),
        ([{"v": 2}], None),
        ([{"n": 1}], None),
        ([{"ms": 3_000, "v": 3}], None),
    ]
    assert runtime.clock == 3_000
    assert not runtime.replay({"A": []}, time="ms")


@pytest.mark.parametrize(
    ("streams", "error", "says"),
    [
        ([], PlanError, "streams by their types"),
        ({"D": []}, PlanError, "no type of events 'D'"),
        ({"A": [{"v": 1}]}, PlanError, "'ms' has no time for row 0"),
        ({"A": {"v": [1]}}, ColumnError, "no times.*'ms'"),
        ({"A": [{"v": 1, "ms": "now"}]}, PlanError, "'ms' has no times"),
        ({"A": [{"v": 1, "ms": 9}, {"v": 1, "ms": 4}]}, PlanError, "clock shows 5, and the first event comes at 4"),
        ({"A": [{"w": 1, "ms": 9}]}, ColumnError, "no such property"),
        ({"A": [5]}, PlanError, "Row 0 is 5"),
    ],
)
def test_a_replay_refuses_what_has_no_order_of_times_and_sends_nothing(
    streams: Any, error: type[Exception], says: str
) -> None:
    runtime = epl.Runtime({"A": {"v": "int"}}, start=5)
    with pytest.raises(error, match=says):
        runtime.replay(streams, time="ms")
    assert runtime.clock == 5


# The system's clock


def test_ticks_set_the_clock_to_the_systems_and_never_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10_000]
    for module in (runtime_module, service_module):
        monkeypatch.setattr(module, "system_time", lambda: now[0])
    runtime = epl.Runtime(_BANK, clock="system")
    runtime.deploy("select irstream sum(amount) as total from Withdrawal#time(5 sec)")
    assert runtime.clock == 10_000
    runtime.send("Withdrawal", {"account": "a", "amount": 1})
    now[0] = 14_999
    assert not runtime.tick()
    now[0] = 15_000
    assert _shown(runtime.tick()) == [("statement 1", [{"total": None}], [{"total": 1}])]
    now[0] = 3
    assert not runtime.tick()
    assert runtime.clock == 15_000


def test_what_does_not_go_with_the_systems_clock_is_refused() -> None:
    runtime = epl.Runtime(_BANK, clock="system")
    refused: list[Callable[[], Any]] = [
        lambda: runtime.advance(1 << 41),
        lambda: runtime.advance_span(1 << 41),
        lambda: runtime.replay({}, time="t"),
        lambda: runtime.send("Withdrawal", {"account": "a", "amount": 1}, at=[1 << 41]),
    ]
    for said in refused:
        with pytest.raises(PlanError, match="the system's"):
            said()
    with pytest.raises(PlanError, match="millisecond or more"):
        runtime.start_timer("1us")
    runtime.stop_timer()
    with pytest.raises(PlanError, match="has no start"):
        epl.Runtime(clock="system", start=5)
    with pytest.raises(PlanError, match="clock 'sun' is unknown"):
        epl.Runtime(clock="sun")
    manual: list[Callable[[], Any]] = [epl.Runtime().tick, epl.Runtime().start_timer]
    for said in manual:
        with pytest.raises(PlanError, match="not the system's"):
            said()


def test_a_timer_ticks_in_a_thread_of_its_own_until_it_is_stopped() -> None:
    """A listener waits for what the clock makes leave; several threads send meanwhile, and one listener raises."""
    runtime = epl.Runtime(_BANK, clock="system")
    (statement,) = runtime.deploy("select rstream account from Withdrawal#time(30 msec)")
    left, gone = list[Any](), threading.Event()

    def listen(new: pa.Table | None, old: pa.Table | None, told: epl.RunningStatement) -> None:
        left.extend(rows_of(new) or [])
        if len(left) == 40:
            runtime.stop_timer()  # in the timer's own thread
            gone.set()
        assert told is not statement

    statement.listen(listen)
    runtime.start_timer("2ms")
    with pytest.raises(PlanError, match="a timer already"):
        runtime.start_timer("2ms")
    senders = [
        threading.Thread(target=lambda: [runtime.send("Withdrawal", {"account": "a", "amount": 1}) for _ in range(10)])
        for _ in range(4)
    ]
    for each in senders:
        each.start()
    for each in senders:
        each.join()
    assert gone.wait(30)
    clock = runtime.clock
    runtime.start_timer("1ms")
    while runtime.clock == clock:
        time.sleep(0.001)
    with runtime._lock:  # the timer waits for the lock while it is stopped
        runtime.stop_timer()
    for each in threading.enumerate():
        if each.name == "gpu_ops timer":  # the one that was stopped within itself is about to end
            each.join(30)
            assert not each.is_alive()
    assert {type(error) for _, error in runtime.errors} == {AssertionError}


# Isolated services


def test_events_and_time_reach_the_statements_of_their_service_alone() -> None:
    """'big' inserts, 'sum' reads: both aside, an event goes through; one aside, it goes nowhere."""
    runtime = epl.Runtime(_BANK)
    runtime.deploy("@name('big') insert into Big select amount from Withdrawal(amount > 10)")
    runtime.deploy("@name('sum') select sum(amount) as total from Big#time(10 sec)")
    aside = runtime.isolated()
    assert runtime.isolated() is aside
    event = {"account": "a", "amount": 20}
    aside.add("big")
    assert not runtime.send("Withdrawal", event)
    assert [each.statement for each in aside.send("Withdrawal", event)] == ["big"]
    aside.add("sum")
    assert _shown(aside.send("Withdrawal", event))[-1] == ("sum", [{"total": 20}], None)
    assert [each.name for each in aside.statements] == [each.name for each in runtime.statements] == ["big", "sum"]
    (own,) = aside.deploy("@name('own') select count(*) as n from Withdrawal")
    assert own.home == "isolated"
    assert runtime.rows("own").to_pylist() == aside.rows("own").to_pylist() == [{"n": 0}]
    aside.remove("big", "sum")
    assert _shown(runtime.send("Withdrawal", event))[-1] == ("sum", [{"total": 40}], None)
    with pytest.raises(PlanError, match="'sum' is not in this service"):
        aside.rows("sum")
    with pytest.raises(PlanError, match="'sum' is in the runtime's own service"):
        aside.remove("own", "sum")
    assert own.home == "isolated"
    runtime.undeploy("own")
    assert not aside.statements


_TIMES = ("current_timestamp", "oldest_timestamp", "timetolive", "time_order", "200L")


@pytest.mark.slow
@given(scenarios(), st.sampled_from([-1_000_000, -777, 0, 5_000_000]), st.data())
@examples(15, dear=True)
def test_a_statement_goes_on_by_the_clock_of_the_service_that_it_is_in(
    scenario: Scenario, ahead: int, data: st.DataObject
) -> None:
    """Some steps are done aside, by a clock that is ahead or behind; then the statement goes back, and time goes on."""
    whole, cut = epl.Runtime(SCHEMA, start=1_000_000), epl.Runtime(SCHEMA, start=1_000_000)
    try:
        for each in (whole, cut):
            each.deploy(scenario.text)
    except TextError:
        return
    stop = data.draw(st.integers(0, len(scenario.steps)))
    for step in scenario.steps[:stop]:
        for each in (whole, cut):
            _do(each, step, 1_000_000)
    aside = cut.isolated("aside", start=cut.clock + ahead)
    if any(word in scenario.text for word in _TIMES):
        if ahead:
            with pytest.raises(PlanError, match="names times of the clock"):
                aside.add("s")
        return
    aside.add("s")
    for step in scenario.steps[stop:]:
        assert _do(aside, step, 1_000_000 + ahead) == _do(whole, step, 1_000_000)
    assert same(rows_of(aside.rows("s")), rows_of(whole.rows("s")), in_any_order=True)
    aside.remove("s")
    for wait in (400, 700, 1_900):
        assert _shown(cut.advance(cut.clock + wait)) == _shown(whole.advance(whole.clock + wait))


def _do(runtime: Any, step: Any, offset: int) -> list[Any]:
    match step:
        case Send(type_name, row):
            return _shown(runtime.send(type_name, row))
        case Advance(now, False):
            return _shown(runtime.advance(now + offset))
        case Advance(now, True, resolution):
            return _shown(runtime.advance_span(now + offset, resolution))
    raise AssertionError(step)


@pytest.mark.parametrize(
    "text",
    [
        "select current_timestamp as t from Withdrawal",
        "select amount from Withdrawal(current_timestamp() > 5)#length(2)",
        "select amount from Withdrawal#time_order(amount, 5 sec)",
        "select amount from Withdrawal#win:time_batch(5 sec, 200L)",
        "select amount from Withdrawal#time(1 month)",
        "select amount from Withdrawal#expr(oldest_timestamp > 5)",
        "select amount from Withdrawal output at (*/5, *, *, *, *)",
    ],
)
def test_a_statement_that_names_times_moves_only_between_clocks_that_show_the_same(text: str) -> None:
    types = {"Withdrawal": {"account": "string", "amount": "long"}}
    runtime = epl.Runtime(types, start=1_000)
    runtime.deploy(f"@name('s') {text}")
    aside = runtime.isolated(start=5_000)
    with pytest.raises(PlanError, match=r"names times of the clock .* the clocks show 1000 and 5000"):
        aside.add("s")
    runtime.advance(5_000)
    aside.add("s")
    assert runtime["s"].home == "isolated"
