"""Sub-queries beside the interpreter: in each clause, over windows of the same and of other types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl.runtime import Runtime
from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, Send, Step, played, same_traces, scripts
from tests.support.examples import examples

# Statements and scripts

_WINDOWS = ("B#lastevent", "B#keepall", "B#length(2)", "B#unique(k)", "B(w > 0)#keepall", "B#sort(2, w)")
_OWN = ("A#length(2)", "A#keepall", "A#lastevent")
_CONDITIONS = (
    "",
    " where q.k = a.k",
    " where q.{0} = a.v",
    " where q.{0} > 1 and q.k = a.k",
    " where q.k is null",
    " where a.v = 1",
    " where q.{0} < a.v",
    " where q.{0} < a.v and q.k = a.k",
    " where q.{0} is a.v or q.k is null",
    " where prev(1, q.{0}) < q.{0}",
    " where prior(1, q.{0}) < q.{0}",
)
_OPERATORS = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
_OF_GROUPS = "(select max(w) from B#keepall as b where b.k = a.k)"


def _from(draw: st.DrawFn) -> tuple[str, str]:
    """(from and where of a sub-query, the property of its rows)."""
    window = draw(st.sampled_from([*_WINDOWS, "B#time(1 sec)", *_OWN]))
    name = "w" if window[0] == "B" else "v"
    return f"from {window} as q{draw(st.sampled_from(_CONDITIONS)).format(name)}", name


_SPANS = ("2 events", "3 events", "1 sec")
_OUTPUTS = st.sampled_from([f"output {word} every {span}" for word in ("", "last", "all", "first") for span in _SPANS])
_OUTPUTS_OF_AGGREGATES = st.sampled_from(
    [f"output {word} every {span}" for word in ("", "snapshot") for span in _SPANS]
    + ["output last every 2 events order by sum(v)", "output all every 1 sec order by sum(v)"]
)


@st.composite
def _values(draw: st.DrawFn) -> str:
    rows, name = _from(draw)
    shown = draw(
        st.sampled_from(
            [
                f"select q.{name} {rows}",
                f"select q.{name} + 1 as m, q.k as n {rows}",
                f"select sum(q.{name}) {rows}",
                f"select count(*) {rows}",
                f"select max(q.{name}) + count(*) {rows} having count(*) > 1",
                f"select avg(q.{name}) {rows}",
                f"select sum(q.{name} + a.v) {rows}",
                f"select q.{name} + a.v {rows}",
                f"select prev(1, q.{name}) + a.v {rows}",
                f"select prior(1, q.{name}) {rows}",
                f"select sum(prior(2, q.{name})) + a.v {rows}",
                f"select prevtail(q.{name}) as m, prevcount(q.{name}) as n {rows}",
                f"select sum(q.{name}) {rows} group by q.k",
                f"select q.k as m, count(*) as n {rows} group by q.k having count(*) > 1",
                f"select max(q.{name}) + a.v {rows} group by q.k, a.v",
            ]
        )
    )
    return f"({shown})"


@st.composite
def _tests(draw: st.DrawFn) -> str:
    rows, name = _from(draw)
    operator, quantity = draw(_OPERATORS), draw(st.sampled_from(["any", "all", "some"]))
    return draw(
        st.sampled_from(
            [
                f"exists (select * {rows})",
                f"not exists (select * {rows})",
                f"a.v in (select q.{name} {rows})",
                f"a.v not in (select q.{name} {rows})",
                f"a.v {operator} {quantity} (select q.{name} {rows})",
                f"a.v {operator} {quantity} (select max(q.{name}) {rows})",
                f"(select count(*) {rows}) > 1",
                f"a.v {operator} {quantity} (select sum(q.{name}) {rows} group by q.k)",
                f"a.v in (select max(q.{name}) {rows} group by q.k having count(*) > a.v)",
                f"exists (select count(*) {rows} group by q.k having sum(q.{name}) > 1)",
            ]
        )
    )


def _output(value: str, rows: str, output: str, of_aggregates: str) -> list[str]:
    """Statements whose rows wait for an output, and ask then."""
    value = value.replace("B#time(1 sec)", "B#keepall")
    in_window = "A#length(2) as a"
    return [
        f"select irstream v, {value} as s from {rows} {output}",
        f"select v, sum(v) as n, {value} as s from {in_window} {of_aggregates}",
        f"select k, sum(v) as n, {_OF_GROUPS} as m from {in_window} group by k {of_aggregates}",
        f"select sum(v) as n, (select count(*) from B#keepall) as m from {in_window} {of_aggregates}",
    ]


@st.composite
def _asking(draw: st.DrawFn) -> Scenario:
    window = draw(st.sampled_from(["", "", "#length(2)", "#length_batch(2)"]))
    rows = f"A{window} as a"
    value, test = draw(_values()), draw(_tests())
    text = draw(
        st.sampled_from(
            [
                f"select irstream v, {value} as s from {rows}",
                f"select irstream v, {test} as t, {value} as s from {rows}",
                f"select irstream v, {value} as s from {rows} where {test}",
                f"select irstream v from {rows} having {test}",
                f"select irstream v from A({test.replace('a.', 'A.')}){window}",
                "select irstream sum(v) as n, (select count(*) from B#keepall) as m from A",
                f"select irstream k, count(*) as n, {_OF_GROUPS} as m from {rows} group by k",
                *_output(value, rows, draw(_OUTPUTS), draw(_OUTPUTS_OF_AGGREGATES)),
            ]
        )
    )
    return Scenario(f"@name('{NAME}') {text}", draw(scripts()), in_any_order=False)


# The runtime as an engine of scripts


class _Rows(NamedTuple):
    statement: str
    new: Sequence[Mapping[str, Any]] | None
    old: Sequence[Mapping[str, Any]] | None


class _Engine:
    """A runtime, whose deliveries are rows."""

    active_filters = 0

    def __init__(self) -> None:
        self._runtime = Runtime(SCHEMA)

    def deploy(self, text: str) -> Sequence[str]:
        return [each.name for each in self._runtime.deploy(text)]

    def undeploy(self, name: str) -> None:
        self._runtime.undeploy(name)

    def send(self, type_name: str, row: Mapping[str, Any]) -> list[_Rows]:
        return _rows(self._runtime.send(type_name, [row]))

    def advance(self, now: int) -> list[_Rows]:
        return _rows(self._runtime.advance(now))

    def advance_span(self, now: int, resolution: int | None = None) -> list[_Rows]:
        return _rows(self._runtime.advance_span(now, resolution))

    def rows(self, name: str) -> Any:
        return self._runtime.rows(name).to_pylist()

    def has_order(self, name: str) -> bool:
        return False


def _rows(deliveries: Sequence[Any]) -> list[_Rows]:
    sides = [[None if side is None else side.to_pylist() for side in (each.new, each.old)] for each in deliveries]
    return [_Rows(each.statement, *side) for each, side in zip(deliveries, sides, strict=True)]


@given(_asking())
@examples(60, dear=True)
def test_as_the_interpreter(scenario: Scenario) -> None:
    found = played(scenario, _Engine())
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario), scenario.text


# How events come

_CUT = st.lists(st.integers(0, 15), max_size=4)


@given(_asking(), _CUT)
@examples(25, dear=True)
def test_events_that_come_together_make_the_same(scenario: Scenario, cuts: list[int]) -> None:
    """Events of one type that follow each other are sent at once, or in pieces."""
    engine = _Engine()
    engine.deploy(scenario.text)
    found: list[Any] = []
    for step in _together(scenario.steps, cuts):
        if isinstance(step, list):
            made = _rows(engine._runtime.send(step[0].type_name, [dict(each.row) for each in step]))
        else:
            made = engine.advance_span(step.now, step.resolution) if step.walks else engine.advance(step.now)
        found += [(each.new, each.old) for each in made]
    alone = [delivery for step in played(scenario, _Engine()) for delivery in step]
    assert found == alone


def _together(steps: Sequence[Step], cuts: Sequence[int]) -> list[Any]:
    found: list[Any] = []
    for at, step in enumerate(steps):
        if not isinstance(step, Send):
            found.append(step)
        elif found and isinstance(found[-1], list) and found[-1][0].type_name == step.type_name and at not in cuts:
            found[-1].append(step)
        else:
            found.append([step])
    return found


# What an iterator shows


def test_an_iterator_asks_when_it_is_asked() -> None:
    runtime = Runtime(SCHEMA)
    runtime.deploy(
        "@name('s') select v, (select max(w) from B#keepall) as m from A#keepall as a "
        "where exists (select * from B#lastevent as b where b.k = a.k)"
    )
    runtime.send("A", [{"k": "a", "v": 1, "x": None, "ts": 0}, {"k": "b", "v": 2, "x": None, "ts": 0}])
    assert runtime.rows("s").to_pylist() == []
    runtime.send("B", [{"k": "b", "w": 5}])
    assert runtime.rows("s").to_pylist() == [{"v": 2, "m": 5}]
    runtime.send("B", [{"k": "a", "w": 3}])
    assert runtime.rows("s").to_pylist() == [{"v": 1, "m": 5}]


# What is refused


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select (select w from B) from A", "needs a window"),
        ("select (select w from C#keepall) from A", "no type of events 'C'"),
        ("select (select nothing from B#keepall) from A", "no property 'nothing'"),
        ("select v in (select k, w from B#keepall) from A", "several columns"),
        ("select v in (select k from B#keepall) from A", "cannot be compared"),
        ("select sum(v) from A#length(2) where exists (select * from B#keepall)", "aggregates over a window"),
        ("select sum(v), (select w from B#keepall as b where b.k = a.k) from A#length(2) as a group by v", "keys"),
        ("select (select (select v from A#keepall) from B#keepall) from A", "sub-queries of sub-queries"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(TextError, match=said):
        Runtime(SCHEMA).deploy(text)
