"""Date-time methods, beside Python's datetime."""

from __future__ import annotations

import calendar
import datetime as dt
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import epl
from gpu_ops.errors import TextError
from tests.support.examples import examples

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAY = dt.timedelta(days=1)


def _at(milliseconds: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=milliseconds)


def _milliseconds(time: dt.datetime) -> int:
    return (time - _EPOCH) // dt.timedelta(milliseconds=1)


def _to_half(time: dt.datetime) -> dt.datetime:
    """The nearest hour; the half is nearer to the next one."""
    return (time + dt.timedelta(minutes=30)).replace(minute=0, second=0, microsecond=0)


def _by_months(time: dt.datetime, months: int) -> dt.datetime:
    """So many months later; the last day of a month that has fewer."""
    year, month = divmod(time.year * 12 + time.month - 1 + months, 12)
    return time.replace(year=year, month=month + 1, day=min(time.day, calendar.monthrange(year, month + 1)[1]))


def _begun(time: dt.datetime) -> dt.datetime:
    return time.replace(day=1, hour=0, minute=0, second=0, microsecond=0)


_CALLS: Mapping[str, Callable[[dt.datetime, dt.datetime], Any]] = {
    "a.plus(1 hour 30 min)": lambda a, b: _milliseconds(a + dt.timedelta(minutes=90)),
    "a.minus(2 days)": lambda a, b: _milliseconds(a - 2 * _DAY),
    "a.plus(500)": lambda a, b: _milliseconds(a + dt.timedelta(milliseconds=500)),
    "a.toMillisec()": lambda a, b: _milliseconds(a),
    "a.toDate()": lambda a, b: _milliseconds(a),
    "a.get('month')": lambda a, b: a.month - 1,
    "a.get('minutes')": lambda a, b: a.minute,
    "a.set('hour', 5)": lambda a, b: _milliseconds(a.replace(hour=5)),
    "a.set('sec', b.get('sec'))": lambda a, b: _milliseconds(a.replace(second=b.second)),
    "a.set('min', 61)": lambda a, b: _milliseconds(a.replace(minute=1) + dt.timedelta(hours=1)),
    "a.withTime(9, 30, 0, 250)": lambda a, b: _milliseconds(
        a.replace(hour=9, minute=30, second=0, microsecond=250_000)
    ),
    "a.withMin('min')": lambda a, b: _milliseconds(a.replace(minute=0)),
    "a.withMax('msec')": lambda a, b: _milliseconds(a.replace(microsecond=999_000)),
    "a.set('day', 31)": lambda a, b: _milliseconds(a.replace(day=1) + 30 * _DAY),
    "a.set('month', 1)": lambda a, b: _milliseconds(a.replace(month=2, day=1) + (a.day - 1) * _DAY),
    "a.set('month', -1)": lambda a, b: _milliseconds(a.replace(year=a.year - 1, month=12)),
    "a.set('year', 2001)": lambda a, b: _milliseconds(a.replace(year=2001, day=1) + (a.day - 1) * _DAY),
    "a.withDate(2024, 13, 0)": lambda a, b: _milliseconds(a.replace(year=2025, month=1, day=31)),
    "a.withMin('day')": lambda a, b: _milliseconds(a.replace(day=1)),
    "a.withMax('day')": lambda a, b: _milliseconds(_by_months(a.replace(day=1), 1) - _DAY),
    "a.withMax('month')": lambda a, b: _milliseconds(a.replace(month=12)),
    "a.plus(1 month)": lambda a, b: _milliseconds(_by_months(a, 1)),
    "a.minus(14 months 1 hour)": lambda a, b: _milliseconds(_by_months(a, -14) - dt.timedelta(hours=1)),
    "a.plus(1 year 1 month 2 days)": lambda a, b: _milliseconds(_by_months(_by_months(a, 12), 1) + 2 * _DAY),
    "a.roundFloor('month')": lambda a, b: _milliseconds(_begun(a)),
    "a.roundFloor('year')": lambda a, b: _milliseconds(_begun(a).replace(month=1)),
    "a.roundCeiling('month')": lambda a, b: _milliseconds(a if a == _begun(a) else _by_months(_begun(a), 1)),
    "a.format('yyyy-MM-dd HH:mm:ss.SSS')": lambda a, b: f"{a:%Y-%m-%d %H:%M:%S}.{a.microsecond // 1000:03}",
    """a.format("dd. MMM yy, hh 'h' a")""": lambda a, b: f"{a:%d. %b %y, %I} h {a:%p}",
    "a.before(b)": lambda a, b: a < b,
    "a.after(b)": lambda a, b: a > b,
    "a.before(b, 1 day)": lambda a, b: b - a >= _DAY,
    "a.before(b, 1 hour, 1 day)": lambda a, b: dt.timedelta(hours=1) <= b - a <= _DAY,
    "a.after(b, 1 hour, 1 day)": lambda a, b: dt.timedelta(hours=1) <= a - b <= _DAY,
    "a.coincides(b)": lambda a, b: a == b,
    "a.coincides(b, 1 day)": lambda a, b: abs(a - b) <= _DAY,
    "a.between(b, b.plus(1 day))": lambda a, b: b <= a <= b + _DAY,
    "a.between(b.plus(1 day), b)": lambda a, b: b <= a <= b + _DAY,
    "a.between(b, b.plus(1 day), false, true)": lambda a, b: b < a <= b + _DAY,
    "a.between(b.plus(1 day), b, false, true)": lambda a, b: b <= a < b + _DAY,
    "a.roundFloor('hour')": lambda a, b: _milliseconds(a.replace(minute=0, second=0, microsecond=0)),
    "a.roundFloor('day')": lambda a, b: _milliseconds(a.replace(hour=0, minute=0, second=0, microsecond=0)),
    "a.roundCeiling('sec')": lambda a, b: -(-_milliseconds(a) // 1_000) * 1_000,
    "a.roundHalf('hour')": lambda a, b: _milliseconds(_to_half(a)),
    "a.plus(1 hour).roundFloor('min').before(b)": lambda a, b: (
        (a + dt.timedelta(hours=1)).replace(second=0, microsecond=0) < b
    ),
}
_LEAP, _LAST = 1_709_164_800_000, 1_706_659_200_001
"""The 29th of February 2024, and just behind the beginning of the 31st of January."""
_TIMES = (
    st.integers(-100_000_000, 200_000_000)
    | st.integers(-30_000_000_000_000, 200_000_000_000_000)
    | st.sampled_from([0, 1_800_000, -1_800_000, 86_400_000, -3_600_000, _LEAP, _LAST, 1_704_067_200_000])
)


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.lists(st.tuples(st.none() | _TIMES, st.none() | _TIMES), min_size=1, max_size=8))
@examples(dear=True)
def test_methods_of_times(device: str, pairs: list[tuple[int | None, int | None]]) -> None:
    names = {f"c{at}": call for at, call in enumerate(_CALLS)}
    text = f"select {', '.join(f'{call} as {name}' for name, call in names.items())} from T"
    schema = pa.schema([("seq", pa.int64()), ("a", pa.int64()), ("b", pa.int64())])
    data = pa.Table.from_pylist([{"seq": at, "a": a, "b": b} for at, (a, b) in enumerate(pairs)], schema)
    found = epl.query(text, T=data, order="seq").collect(device=device).to_pylist()
    for (a, b), row in zip(pairs, found, strict=True):
        for name, call in names.items():
            reads_b = re.search(r"\bb\b", call) is not None
            if a is None or (b is None and reads_b):
                assert row[name] is None, call
            else:
                assert row[name] == _CALLS[call](_at(a), _at(0 if b is None else b)), call


def test_what_is_of_the_last_hour() -> None:
    runtime = epl.Runtime({"Order": {"id": "string", "placed": "long"}}, start=10_000_000)
    (late,) = runtime.deploy("select id from Order where placed.before(current_timestamp.minus(1 hour))")
    late.deliveries()
    runtime.send("Order", [{"id": "a", "placed": 6_399_999}, {"id": "b", "placed": 6_400_000}])
    assert late.deliveries()["id"].to_pylist() == ["a"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("a.plus()", "plus\\(…\\) takes 1 values, not 0"),
        ("a.before('x')", "takes times or periods, and 'x' is of type string"),
        ("a.plus(b months)", "'b' is no constant"),
        ("a.between(b, 1 month)", "no months"),
        ("a.roundHalf('month')", "no roundHalf to 'month'"),
        ("a.withMax('year')", "no withMax of 'year'"),
        ("a.format(b)", "takes a constant text"),
        ("a.format('d.M.yyyy')", "no field 'd' of a format"),
        ("a.format('--')", "is no format of times"),
        ("a.roundFloor(a)", "takes the name of a field"),
        ("a.between(b, b, 1)", "takes true or false behind its times"),
        ("a.get(a)", "takes the name of a field"),
        ("a.set('week', 1)", "no set of 'week'. .* Take one of msec, sec, min, hour"),
        ("a.withTime(1, 2)", "withTime\\(…\\) takes 4 values, not 2"),
        ("a.befor(b)", "Did you mean 'before'"),
    ],
)
def test_wrong(call: str, said: str) -> None:
    runtime = epl.Runtime({"T": {"a": "long", "b": "long"}})
    with pytest.raises(TextError, match=said):
        runtime.deploy(f"select {call} as x from T")


_FORMATS: Mapping[str, Callable[[dt.datetime], str]] = {
    "yyyy-MM-dd HH:mm:ss.SSS": lambda time: f"{time:%Y-%m-%d %H:%M:%S}.{time.microsecond // 1000:03}",
    "dd/MM/yyyy": lambda time: f"{time:%d/%m/%Y}",
    "yyyyMMddHHmm": lambda time: f"{time:%Y%m%d%H%M}",
    "iso": lambda time: time.isoformat(timespec="milliseconds"),
}
_KEPT: Mapping[str, dict[str, Any]] = {
    "dd/MM/yyyy": {"hour": 0, "minute": 0, "second": 0, "microsecond": 0},
    "yyyyMMddHHmm": {"second": 0, "microsecond": 0},
}


@pytest.mark.parametrize("device", ["cpu", "array"])
@given(st.lists(st.none() | _TIMES, min_size=1, max_size=5))
@examples(10, dear=True)
def test_texts_as_times(device: str, times: list[int | None]) -> None:
    there = [None if each is None else _at(each) for each in times]
    columns = {
        f"t{at}": [None if each is None else written(each) for each in there]
        for at, written in enumerate(_FORMATS.values())
    }
    data = pa.table(
        {"seq": range(len(there)), **{name: pa.array(given, pa.string()) for name, given in columns.items()}}
    )
    items = ", ".join(f"cast(t{at}, long, dateformat: '{name}') as c{at}" for at, name in enumerate(_FORMATS))
    found = epl.query(f"select {items} from T", T=data, order="seq").collect(device=device)
    for at, name in enumerate(_FORMATS):
        expected = [None if each is None else _milliseconds(each.replace(**_KEPT.get(name, {}))) for each in there]
        assert found[f"c{at}"].to_pylist() == expected, name


def test_a_text_that_is_no_time() -> None:
    runtime = epl.Runtime({"T": {"a": "string"}})
    runtime.deploy("select cast(a, date, dateformat: 'yyyy-MM-dd') as x from T")
    with pytest.raises(Exception, match="2010-02-30"):
        runtime.send("T", {"a": "2010-02-30"})
