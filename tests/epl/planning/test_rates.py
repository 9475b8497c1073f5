from __future__ import annotations

from typing import Any

import narwhals as nw
import pytest

from gpu_ops.epl import parse
from gpu_ops.epl.planning.rates import PlannedOutput, crontab_times, output_rate
from gpu_ops.epl.queries import Crontab, Output, Query
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.crontab_times import CrontabTimes
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, Rate, When
from gpu_ops.texts.binding.expressions import constant
from gpu_ops.texts.expressions import Expression, Name
from gpu_ops.texts.placed_error import PlacedError


def planned(clause: str, **more: Any) -> PlannedOutput:
    return output_rate(clause_of(clause), **more)


def clause_of(clause: str) -> Output:
    (statement,) = parse(f"select * from Ticks output {clause}")
    assert isinstance(statement.body, Query)
    assert statement.body.output is not None
    return statement.body.output


def value(node: Expression) -> Any:
    return {"rows": 7, "pause": 0.5}[node.name] if isinstance(node, Name) else constant(node)


@pytest.mark.parametrize(
    ("clause", "selection", "rate"),
    [
        ("every 3 events", "", Rate(EveryRows(3))),
        ("last every 1 month 2 sec", "last", Rate(EveryPeriod(ClockSpan(1, 2_000_000)))),
        ("snapshot every rows events", "snapshot", Rate(EveryRows(7))),
        ("all every pause seconds", "all", Rate(EveryPeriod(ClockSpan(ticks=500_000)))),
        ("after 4 events last every 2 events", "last", Rate(EveryRows(2), after_rows=4)),
        ("after 20 sec every 5 sec", "", Rate(EveryPeriod(ClockSpan(0, 5_000_000)), None, ClockSpan(0, 20_000_000))),
        ("after 3 events", "", Rate(None, after_rows=3)),
        ("first at (0, 12, *, *, *)", "first", Rate(AtTimes(CrontabTimes(frozenset({0}), frozenset({12}))))),
    ],
)
def test_clauses(clause: str, selection: str, rate: Rate) -> None:
    made = planned(clause, resolve=value)
    assert (made.selection, made.rate) == (selection, rate)
    assert planned(clause, resolve=value, since=5).rate.since == 5


def test_a_condition_is_made_by_who_knows_the_variables() -> None:
    asked = list[str]()

    def condition(node: Expression) -> nw.Expr:
        asked.append(str(node))
        return nw.col("count_insert") > 3

    rate = planned("snapshot when count_insert > most", conditions=condition).rate
    assert isinstance(rate.every, When)
    assert asked == ["count_insert>most"]


@pytest.mark.parametrize(
    ("fields", "times"),
    [
        ("*, *, *, *, *", {"minutes": None}),
        ("[1,3:4], 2:4, *, *, *", {"minutes": {1, 3, 4}, "hours": {2, 3, 4}}),
        ("*/20, */5, */10, */6, *", {"minutes": {0, 20, 40}, "hours": {0, 5, 10, 15, 20}, "days": {10, 20, 30}}),
        ("0, 0, *, *, 5 last, *", {"last_weekdays": {5}, "seconds": None}),
        ("0, 0, *, *, last, 30", {"weekdays": {6}, "seconds": {30}}),
        ("0, 0, last, *, *", {"last_day": True}),
        ("0, 0, 10 weekday, *, *", {"workdays": {10}}),
        ("0, 0, lastweekday, *, *", {"last_workday": True}),
        ("*, *, *, *, *, */5, *, 0", {"seconds": set(range(0, 60, 5))}),
        ("*, *, *, *, *, *, 'UTC'", {"seconds": None}),
    ],
)
def test_crontabs(fields: str, times: dict[str, Any]) -> None:
    rate = planned(f"at ({fields})").rate.every
    assert isinstance(rate, AtTimes)
    for name, expected in times.items():
        assert getattr(rate.crontab, name) == expected, name


@pytest.mark.parametrize(
    ("clause", "at", "problem"),
    [
        ("every 0 events", "0", "at least 1, not 0"),
        ("every 1.5 events", "1.5", "whole number"),
        ("after -1 events", "-1", "of at least 0"),
        ("snapshot when terminated", "when terminated", "context partition ends"),
        ("when count_insert > 3", "count_insert > 3", "no condition for output"),
        ("every rows events", "rows", "is no constant"),
        ("at (61, *, *, *, *)", "61", "A minute is a whole number from 0 to 59, not 61"),
        ("at (*, *, 0, *, *)", "0", "day of the month is a whole number from 1 to 31"),
        ("at (*, *, *, *)", "(", "five fields or more, not 4"),
        ("at (*, *, *, *, *, *, 'Mars')", "'Mars'", "no time zone 'Mars'"),
        ("at (*, *, *, *, *, *, *, 1000)", "1000)", "A millisecond is a whole number from 0 to 999"),
        ("at (*, *, *, *, *, *, *, *, 5)", "5)", "whole milliseconds"),
        ("at (last, *, *, *, *)", "last", "is no constant"),
        ("at (*, *, *, *, 5 weekday)", "5 weekday", "names no days"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(clause: str, at: str, problem: str) -> None:
    with pytest.raises(PlacedError, match=problem) as caught:
        planned(clause)
    assert f"select * from Ticks output {clause}"[caught.value.start :].startswith(at)


def test_a_crontab_by_itself() -> None:
    crontab = clause_of("at (1, *, *, *, *)").rate
    assert isinstance(crontab, Crontab)
    assert crontab_times(crontab.fields, crontab).minutes == frozenset({1})
