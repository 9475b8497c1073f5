"""What is true of all statements, of the interpreter's random ones: it is the brute force of others, and has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given

from gpu_ops.epl import parse, unparse
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_scripts import (
    NAME,
    SCHEMA,
    Advance,
    Scenario,
    Send,
    Trace,
    asking,
    done,
    joins,
    played,
    same_traces,
    scenarios,
)
from tests.support.examples import examples

pytestmark = pytest.mark.slow


def _engine() -> Interpreter:
    return Interpreter(SCHEMA)


@given(scenarios() | scenarios() | joins() | asking())
@examples(75)
def test_asking_for_rows_and_other_statements_change_nothing(scenario: Scenario) -> None:
    alone = played(scenario, _engine())
    engine = _engine()
    engine.deploy("select * from A#time(1 sec) output every 500 msec; insert into C select * from B")
    engine.deploy(scenario.text)
    asked = []
    for step in scenario.steps:
        engine.rows(NAME)
        asked.append(done(step, engine))
    assert asked == alone


@given(scenarios() | joins() | asking())
@examples(50)
def test_a_statement_written_again_does_the_same(scenario: Scenario) -> None:
    again = replace(scenario, text=unparse(parse(scenario.text)))
    assert played(again, _engine()) == played(scenario, _engine())


@given(scenarios() | joins())
@examples(50)
def test_a_time_at_which_nothing_is_due_changes_nothing(scenario: Scenario) -> None:
    engine = _engine()
    engine.deploy(scenario.text)
    trace = []
    for step in scenario.steps:
        if isinstance(step, Advance):
            due = engine.clock.next_due()
            before = step.now - 1 if due is None else min(step.now, due) - 1
            if before >= engine.clock.now and step.resolution is None:
                assert engine.advance(before) == []
        trace.append(done(step, engine))
    assert same_traces(trace, played(scenario, _engine()), scenario)


@given(scenarios(["plain"]))
@examples(75)
def test_what_has_come_and_not_left_is_there(scenario: Scenario) -> None:
    """Of a plain statement that outputs at once, over a window that makes no batches."""
    (statement,) = parse(scenario.text)
    query: Any = statement.body
    names = [view.name for view in query.stream.views]
    if not names or any(name.endswith("batch") for name in names):
        return
    items = parse(f"select ts, k from A{''.join(map(str, query.stream.views))}")[0].body
    plain = replace(query, selector="irstream", distinct=False, output=None, order_by=(), limit=None, having=None)
    text = unparse([replace(statement, body=replace(plain, items=items.items))])  # type: ignore[union-attr]
    engine = _engine()
    engine.deploy(text)
    held: Counter[Any] = Counter()
    for step in scenario.steps:
        for new, old in done(step, engine):
            held += _counted(new or ())
            held -= _counted(old or ())
        assert held == _counted(engine.rows(NAME))


def _counted(rows: Iterable[Mapping[str, Any]]) -> Counter[Any]:
    return Counter(tuple(row.items()) for row in rows)


@given(scenarios(["plain", "event", "event of group"]))
@examples(50)
def test_rstream_is_the_old_rows_of_irstream(scenario: Scenario) -> None:
    """Of a statement that outputs at once."""
    (statement,) = parse(scenario.text)
    query: Any = replace(statement.body, output=None)  # type: ignore[arg-type]
    both, old = (unparse([replace(statement, body=replace(query, selector=each))]) for each in ("irstream", "rstream"))
    of_both = played(replace(scenario, text=both), _engine())
    of_old = played(replace(scenario, text=old), _engine())
    wanted: Trace = [[(gone, None) for new, gone in step if gone is not None or new is None] for step in of_both]
    assert same_traces(of_old, wanted, scenario)


@given(scenarios())
@examples(50)
def test_events_of_other_types_do_nothing(scenario: Scenario) -> None:
    mine = [step for step in scenario.steps if not isinstance(step, Send) or step.type_name == "A"]
    trace = played(scenario, _engine())
    at_mine = [each for each, step in zip(trace, scenario.steps, strict=True) if step in mine]
    assert at_mine == played(replace(scenario, steps=tuple(mine)), _engine())


@given(joins())
@examples(75)
def test_rows_of_an_inner_join_are_those_of_both_windows(scenario: Scenario) -> None:
    """What has come and not left is what matches, where both windows keep what comes to them."""
    (statement,) = parse(scenario.text)
    query: Any = statement.body
    if any("batch" in str(stream) for stream in query.streams) or query.stream.unidirectional:
        return
    (match,) = [each for each in (query.joins[0].on, query.where) if each is not None][:1]
    views = ["".join(map(str, stream.views)) for stream in query.streams]
    engine = _engine()
    engine.deploy(
        f"@name('{NAME}') select irstream a.ts as ts, a.k as k, b.w as w from A{views[0]} as a, B{views[1]} as b "
        f"where {match}; "
        f"@name('a') select * from A{views[0]} as a; @name('b') select * from B{views[1]} as b"
    )
    held: Counter[Any] = Counter()
    for step in scenario.steps:
        for new, old in done(step, engine):
            held += _counted(new or ())
            held -= _counted(old or ())
        pairs = [(a, b) for a in engine.rows("a") for b in engine.rows("b") if _matches(str(match), a, b)]
        assert held == _counted({"ts": a["ts"], "k": a["k"], "w": b["w"]} for a, b in pairs)


def _matches(match: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    by_key = a["k"] is not None and a["k"] == b["k"]
    numbers = None not in {a["v"], b["w"]}
    return {
        "a.k=b.k": by_key,
        "a.v=b.w": numbers and a["v"] == b["w"],
        "a.k=b.k and a.v>b.w": by_key and numbers and a["v"] > b["w"],
        "a.v<b.w": numbers and a["v"] < b["w"],
    }[match]
