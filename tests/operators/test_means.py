"""Means are the exact sum over the count, rounded once, wherever one is made: by brute force in fractions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.reference import Event
from tests.support.rows import rows, stream, to_events, to_table
from tests.support.ticks import at_us

LARGEST = float(np.finfo(np.float64).max)
LEAST = 5e-324


def nearest(exact: Fraction) -> float:
    """Python divides integers with one rounding, half to even; what is too large for it is infinite."""
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def quotient(values: Sequence[Any]) -> float | None:
    exact = list(map(Fraction, values))
    return nearest(sum(exact, start=Fraction(0)) / len(exact)) if exact else None


def harmonic(values: Sequence[float]) -> float | None:
    total = sum((Fraction(1 / value) for value in values), start=Fraction(0))
    return nearest(len(values) / total) if total else None


def weighted(values: Sequence[Any], weights: Sequence[Any]) -> float | None:
    below = sum(map(Fraction, weights), start=Fraction(0))
    above = sum((Fraction(x) * Fraction(w) for x, w in zip(values, weights, strict=True)), start=Fraction(0))
    return nearest(above / below) if below else None


def median(values: Sequence[Any]) -> float | None:
    ordered = sorted(map(Fraction, values))
    return quotient(ordered[(len(ordered) - 1) // 2 : len(ordered) // 2 + 1])


# Values

FINITE = st.floats(allow_nan=False, allow_infinity=False)
ODD = st.integers(1 << 52, (1 << 53) - 1)
NEAR = st.builds(math.ldexp, ODD, st.integers(-60, -50)) | st.builds(math.ldexp, ODD.map(lambda n: -n), st.just(-52))
SUBNORMAL = st.integers(-(1 << 53), 1 << 53).map(lambda whole: whole * LEAST)
GREAT = st.builds(math.ldexp, ODD, st.just(971)) | st.just(LARGEST) | st.just(-LARGEST)
FLOATS = [FINITE, NEAR, SUBNORMAL, GREAT, st.one_of(FINITE, NEAR, SUBNORMAL, GREAT)]


@st.composite
def floats(draw: st.DrawFn) -> list[float]:
    """Of one kind or of several; some cancel."""
    values = draw(st.lists(draw(st.sampled_from(FLOATS)), min_size=1, max_size=12))
    if draw(st.booleans()):
        values += [-value for value in values[: draw(st.integers(0, len(values)))]]
    return values * draw(st.sampled_from([1, 1, 1, 3, 40]))


INT64 = st.integers(-(1 << 63), (1 << 63) - 1) | st.integers((1 << 53) - 9, (1 << 53) + 9) | st.integers(-9, 9)
UINT64 = st.integers(0, (1 << 64) - 1) | st.integers((1 << 64) - 9, (1 << 64) - 1)
DECIMALS = {
    pa.decimal128(38, 0): 0,
    pa.decimal128(9, 2): 2,
    pa.decimal128(38, 20): 20,
    pa.decimal128(38, 38): 38,
}


@st.composite
def numbers(draw: st.DrawFn) -> tuple[list[Any], pa.DataType]:
    dtype = draw(st.sampled_from([pa.float64(), pa.float64(), pa.float32(), pa.int64(), pa.uint64(), *DECIMALS]))
    if dtype == pa.float64():
        return draw(floats()), dtype
    if dtype == pa.float32():
        return draw(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9)), dtype
    if dtype in DECIMALS:
        digits = st.integers(1 - 10**dtype.precision, 10**dtype.precision - 1) | st.integers(-99, 99)
        unit = digits.map(lambda whole: Decimal((int(whole < 0), tuple(map(int, str(abs(whole)))), -DECIMALS[dtype])))
        return draw(st.lists(unit, min_size=1, max_size=9)), dtype
    return draw(st.lists(INT64 if dtype == pa.int64() else UINT64, min_size=1, max_size=9)), dtype


def payload(dtype: pa.DataType) -> pa.Schema:
    return pa.schema([("k", pa.string()), ("v", dtype)])


# Everywhere that a mean is made

Window = Callable[[g.Stream], Any]

WINDOWS: dict[str, Window] = {
    "snapshot": lambda s: s.snapshot(),
    "of a group": lambda s: s.by("k").snapshot(),
    "hopping": lambda s: s.by("k").hopping("9us", "4us"),
    "few groups on a grid": lambda s: s.tumbling("7us"),
    "last": lambda s: s.by("k").last(4),
    "batches": lambda s: s.batches(3),
}


def held(events: list[Event], result: Event) -> list[Event]:
    """The events that overlap a window."""
    return [event for event in events if event.start < result.end and event.end > result.start]


@given(numbers(), st.sampled_from(HERE))
def test_a_mean_is_the_exact_sum_over_the_count_rounded_once(drawn: tuple[list[Any], pa.DataType], device: str) -> None:
    values, dtype = drawn
    events = stream([Event(0, 1, {"k": "a", "v": value}) for value in values], payload(dtype))
    asked = {"mean": g.mean("v"), "once": g.mean("v", distinct=True), "over": g.sum("v") / g.count()}
    if dtype != pa.float64():  # whose sums may not fit
        del asked["over"]
    answer = events.snapshot().agg(**asked)
    (found,) = answer.collect(device=device).select(list(asked)).to_pylist()
    assert rows([Event(0, 1, {"m": found["mean"]})]) == rows([Event(0, 1, {"m": quotient(values) + 0.0})])  # type: ignore[operator]
    different = {Fraction(value) for value in values}
    assert found["once"] == quotient(list(different))


@examples(dear=True)
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 12), st.sampled_from("ab")), max_size=20), st.data())
def test_in_every_kind_of_window_and_live(lifetimes: list[tuple[int, int, str]], data: st.DataObject) -> None:
    device, name = data.draw(st.sampled_from(HERE)), data.draw(st.sampled_from(sorted(WINDOWS)))
    dtype, value = data.draw(
        st.sampled_from([(pa.float64(), st.one_of(*FLOATS)), (pa.int64(), INT64), (pa.float64(), NEAR)])
    )
    events = [Event(at, at + length, {"k": key, "v": data.draw(value)}) for at, length, key in lifetimes]
    chance = data.draw(st.randoms(use_true_random=False))
    arrived = in_some_order(to_table(events, payload(dtype)), chance)
    asked = WINDOWS[name](g.events(arrived, start="start", end="end")).agg(
        mean=g.mean("v"), once=g.mean("v", distinct=True), all=g.collect_list("v")
    )
    answer = asked.collect(device=device)
    for result in to_events(answer):
        values = result.payload["all"]
        assert result.payload["mean"] == quotient(values)
        assert result.payload["once"] == quotient(sorted(set(values)))
    assert rows(in_any_cut(asked, arrived, device, chance)) == rows(answer)


@examples(dear=True)
@given(floats(), st.sampled_from(HERE))
def test_beside_each_event(values: list[float], device: str) -> None:
    events = stream(
        [Event(at, at + 1, {"k": "a", "v": value}) for at, value in enumerate(values)], payload(pa.float64())
    )
    answer = to_events(events.last(3).each(m=g.mean("v")).collect(device=device))
    assert [event.payload["m"] for event in sorted(answer, key=lambda event: event.start)] == [
        quotient(values[max(0, at - 2) : at + 1]) for at in range(len(values))
    ]


@given(numbers(), st.sampled_from(HERE))
def test_means_of_other_kinds(drawn: tuple[list[Any], pa.DataType], device: str) -> None:
    values, dtype = drawn
    if dtype in DECIMALS:  # they take part as the nearest floats
        plain: list[Any] = [nearest(Fraction(value)) for value in values]
    else:
        plain = values
    with np.errstate(over="ignore"):
        reciprocals = [1 / float(value) if value else math.inf for value in plain]
    events = stream([Event(0, 1, {"k": "a", "v": value}) for value in values], payload(dtype))
    asked = {"middle": g.median("v"), "away": g.mean_absolute_deviation("v"), "pace": g.harmonic_mean("v")}
    (found,) = events.snapshot().agg(**asked).collect(device=device).select(list(asked)).to_pylist()
    assert found["middle"] == median(plain)
    away = [abs(float(value) - float(quotient(values) or 0.0)) for value in plain]
    assert found["away"] == (quotient(away) if all(map(math.isfinite, away)) else math.inf)
    if all(map(math.isfinite, reciprocals)):
        assert found["pace"] == harmonic([float(value) for value in plain])


@examples(dear=True)
@given(
    st.lists(st.tuples(st.one_of(*FLOATS), st.one_of(FINITE, st.integers(-9, 9).map(float))), min_size=1, max_size=7),
    st.sampled_from(HERE),
)
def test_a_weighted_mean_is_rounded_once(pairs: list[tuple[float, float]], device: str) -> None:
    values, weights = [value for value, _ in pairs], [weight for _, weight in pairs]
    schema = pa.schema([("v", pa.float64()), ("w", pa.float64())])
    events = stream([Event(0, 1, {"v": value, "w": weight}) for value, weight in pairs], schema)
    (found,) = events.snapshot().agg(m=g.weighted_mean("v", "w")).collect(device=device)["m"].to_pylist()
    assert found == weighted(values, weights)


def test_a_weighted_mean_of_decimals_is_rounded_once(device_name: str) -> None:
    values = [Decimal("0.1"), Decimal("12345678901234567890.123456789012345678")]
    weights = [Decimal(3), Decimal(7)]
    schema = pa.schema([("v", pa.decimal128(38, 18)), ("w", pa.decimal128(9, 0))])
    pairs = zip(values, weights, strict=True)
    events = stream([Event(0, 1, {"v": value, "w": weight}) for value, weight in pairs], schema)
    (found,) = events.snapshot().agg(m=g.weighted_mean("v", "w")).collect(device=device_name)["m"].to_pylist()
    assert found == weighted(values, weights)


@examples(dear=True)
@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 12), st.one_of(*FLOATS)), min_size=1, max_size=8),
    st.sampled_from(HERE),
)
def test_a_time_weighted_mean_is_rounded_once(drawn: list[tuple[int, int, float]], device: str) -> None:
    events = [Event(at, at + length, {"k": "a", "v": value}) for at, length, value in drawn]
    answer = stream(events, payload(pa.float64())).hopping("9us", "4us").agg(m=g.time_weighted_mean("v"))
    for result in to_events(answer.collect(device=device)):
        inside = held(events, result)
        lengths = [min(event.end, result.end) - max(event.start, result.start) for event in inside]
        assert result.payload["m"] == weighted([event.payload["v"] for event in inside], lengths)


@pytest.mark.parametrize(
    ("values", "mean"),
    [
        ([LARGEST, LARGEST], LARGEST),
        ([LARGEST, -LARGEST, LARGEST], LARGEST / 3),
        ([LEAST, 0.0], 0.0),
        ([LEAST, 2 * LEAST], 2 * LEAST),
        ([3 * LEAST, 0.0], 2 * LEAST),
        ([1.0, 1.0 + 2.0**-52], 1.0),
        ([1.0 + 2.0**-52, 1.0 + 2.0**-51], 1.0 + 2.0**-51),
        ([0.1, 0.2, 0.3], 0.2),
    ],
)
def test_means_that_were_wrong_or_are_in_the_middle(device_name: str, values: list[float], mean: float) -> None:
    assert quotient(values) == mean
    events = stream([Event(0, 1, {"k": "a", "v": value}) for value in values], payload(pa.float64()))
    made = events.snapshot().agg(m=g.mean("v"), d=g.median("v")).collect(device=device_name)
    assert made["m"].to_pylist() == [mean]
    assert made["d"].to_pylist() == [median(values)]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1 << 17, (1 << 17) + 1])
def test_of_many_values(device_name: str, count: int) -> None:
    chance = np.random.default_rng(7)
    values = {
        "plain": chance.normal(size=count),
        "wide": np.ldexp(chance.normal(size=count), chance.integers(-1000, 1000, count)),
        "whole": chance.integers(-(1 << 63), (1 << 63) - 1, count),
    }
    table = pa.table({"at": pa.array(np.zeros(count, np.int64)), **values})
    answer = g.events(table, start="at", unit="s").snapshot().agg(**{name: g.mean(name) for name in values})
    (found,) = answer.collect(device=device_name).select(list(values)).to_pylist()
    assert found == {
        name: nearest(sum(map(Fraction, some.tolist()), start=Fraction(0)) / count) for name, some in values.items()
    }


def test_a_running_mean_takes_a_wider_plan_of_limbs(device_name: str) -> None:
    chance = random.Random(3)
    values = [math.ldexp(chance.randrange(-(1 << 53), 1 << 53), power) for power in (-52, -1074, 300, -400, 971, -52)]
    events = g.events(to_table([], payload(pa.float64())), start="start", end="end")
    live = events.by("k").snapshot().agg(m=g.mean("v")).start(device=device_name)
    for at, value in enumerate(values):
        live.push(to_table([Event(at, 20, {"k": "a", "v": value})], payload(pa.float64())))
        live.advance(at_us(at))
    live.close()
    found = sorted(to_events(live.results()), key=lambda event: event.start)
    assert [event.payload["m"] for event in found] == [quotient(values[: at + 1]) for at in range(len(values))]
