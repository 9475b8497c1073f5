from __future__ import annotations

import datetime
import math
import random
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError
from tests.support import aggregate_reference as exact
from tests.support.cuts import in_any_cut, in_some_order
from tests.support.devices import HERE
from tests.support.examples import examples
from tests.support.reference import Event
from tests.support.rows import rows, stream, to_events, to_table

NAN, INF = math.nan, math.inf
PAYLOAD = pa.schema(
    [
        ("k", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
        ("whole", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
    ]
)

EVERY: dict[str, Any] = {
    "skewness": g.skewness("x"),
    "skewness of all": g.skewness("x", of="population"),
    "skewness of whole": g.skewness("whole"),
    "kurtosis": g.kurtosis("x", where=g.col("flag")),
    "kurtosis of all": g.kurtosis("whole", of="population"),
    "kurtosis of prices": g.kurtosis("price"),
    "covariance": g.covariance("x", "price"),
    "covariance of all": g.covariance("whole", "whole", of="population"),
    "correlation": g.correlation("x", "y"),
    "correlation of some": g.correlation("x", "whole", where=g.col("flag")),
    "slope": g.slope("y", "x"),
    "slope of prices": g.slope("price", "whole"),
    "intercept": g.intercept("y", "price"),
    "weighted": g.weighted_mean("x", "y"),
    "weighted by price": g.weighted_mean("price", "whole", where=g.col("flag")),
    "product": g.product("whole"),
    "product of floats": g.product("x"),
    "geometric": g.geometric_mean(g.col("x").abs()),
    "geometric of whole": g.geometric_mean("whole"),
    "harmonic": g.harmonic_mean("x"),
    "harmonic of prices": g.harmonic_mean("price", where=g.col("flag")),
    "any": g.any("flag"),
    "all": g.all(g.col("whole") > 0, where=g.col("flag")),
    "ratio": g.sum("x") / g.count(),
    "more": (g.max("x") - g.min("x")) * 2 + 1 - g.mean("whole") / 3,
    "price of one": g.sum("price") / g.max("whole"),
}


def whole(aggregate: Any, values: list[Any], dtype: pa.DataType, device: str) -> Any:
    """The aggregate over all values at once."""
    return among(aggregate, {"v": values}, {"v": dtype}, device)


def among(aggregate: Any, columns: Mapping[str, Any], types: dict[str, pa.DataType], device: str) -> Any:
    """The aggregate over all events at once."""
    payloads = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    made = stream([Event(0, 1, payload) for payload in payloads], pa.schema(list(types.items())))
    (answer,) = made.snapshot().agg(r=aggregate).collect(device=device)["r"].to_pylist()
    return answer


def of_floats(aggregate: Any, values: list[Any], device: str) -> Any:
    return whole(aggregate, values, pa.float64(), device)


# By definition

CALM = st.sampled_from([0.1, -2.5, 3.0, 1e9 + 0.1, 1e9, -7.25, 0.0, 1e-3]) | st.floats(-1000, 1000).map(
    lambda value: round(value, 3)
)
WHOLE = st.integers(-9, 9) | st.integers(-(2**63), 2**63 - 1) | st.integers(10**12, 10**12 + 9)
SOME = st.lists(CALM, min_size=1, max_size=8)
ONE_OF_TWO = pytest.mark.parametrize("of", ["sample", "population"])


@examples(dear=True)
@given(SOME, st.sampled_from(HERE))
@ONE_OF_TWO
def test_shapes_of_floats(of: Any, values: list[float], device: str) -> None:
    fractions, sample = list(map(Fraction, values)), of == "sample"
    assert exact.close(of_floats(g.skewness("v", of=of), values, device), exact.skewness(fractions, sample=sample), 3)
    assert exact.close(of_floats(g.kurtosis("v", of=of), values, device), exact.kurtosis(fractions, sample=sample), 4)


@examples(dear=True)
@given(st.lists(WHOLE, min_size=1, max_size=8), st.sampled_from(HERE))
@ONE_OF_TWO
def test_shapes_of_integers(of: Any, values: list[int], device: str) -> None:
    fractions, sample = list(map(Fraction, values)), of == "sample"
    skewness, kurtosis = exact.skewness(fractions, sample=sample), exact.kurtosis(fractions, sample=sample)
    assert exact.close(whole(g.skewness("v", of=of), values, pa.int64(), device), skewness, 3)
    assert exact.close(whole(g.kurtosis("v", of=of), values, pa.int64(), device), kurtosis, 4)


@examples(dear=True)
@given(st.lists(st.tuples(CALM, WHOLE), min_size=1, max_size=8), st.sampled_from(HERE))
def test_what_two_columns_have_in_common(pairs: list[tuple[float, int]], device: str) -> None:
    columns = {"x": [x for x, _ in pairs], "w": [w for _, w in pairs]}
    types = {"x": pa.float64(), "w": pa.int64()}
    fractions = [(Fraction(x), Fraction(w)) for x, w in pairs]
    for aggregate, wanted, ulps in (
        (g.covariance("x", "w"), exact.covariance(fractions, sample=True), 4),
        (g.covariance("x", "w", of="population"), exact.covariance(fractions, sample=False), 4),
        (g.correlation("x", "w"), exact.correlation(fractions), 3),
        (g.slope("x", "w"), exact.slope(fractions), 4),
        (g.intercept("x", "w"), exact.intercept(fractions), 4),
    ):
        assert exact.close(among(aggregate, columns, types, device), wanted, ulps), str(aggregate)


@given(SOME, st.sampled_from(HERE))
def test_products_and_their_roots(values: list[float], device: str) -> None:
    fractions = list(map(Fraction, values))
    assert exact.close(of_floats(g.product("v"), values, device), exact.product(fractions), 1)
    assert exact.close(of_floats(g.geometric_mean("v"), values, device), exact.geometric_mean(fractions), 1)


@given(st.lists(st.integers(-60, 60).filter(bool), min_size=1, max_size=8), st.sampled_from(HERE))
def test_a_product_of_integers_that_fits_is_exact(values: list[int], device: str) -> None:
    assert whole(g.product("v"), values, pa.int64(), device) == float(math.prod(values))


# What is chosen where there is nothing, or no number


@pytest.mark.parametrize(
    ("aggregate", "enough"),
    [
        (g.skewness("v"), 3),
        (g.skewness("v", of="population"), 2),
        (g.kurtosis("v"), 4),
        (g.kurtosis("v", of="population"), 2),
        (g.covariance("v", "v"), 2),
        (g.covariance("v", "v", of="population"), 1),
        (g.correlation("v", "v"), 2),
        (g.slope("v", "v"), 2),
        (g.intercept("v", "v"), 2),
        (g.weighted_mean("v", "v"), 1),
        (g.product("v"), 1),
        (g.geometric_mean("v"), 1),
        (g.harmonic_mean("v"), 1),
    ],
    ids=str,
)
def test_too_few_values_give_null(device_name: str, aggregate: Any, enough: int) -> None:
    for count in range(6):
        values = [float(1 + value**2) for value in range(count)]
        answer = of_floats(aggregate, [*values, None], device_name)
        assert (answer is None) == (count < enough)
        assert answer is None or math.isfinite(answer)
    made = stream([Event(0, 1, {"v": 1.0})]).snapshot().agg(r=aggregate)
    assert made.schema.field("r").type == pa.float64()


@pytest.mark.parametrize("make", [g.skewness, g.kurtosis])
@pytest.mark.parametrize("offset", [0.0, 1e9, -1e15])
def test_far_from_zero_nothing_is_lost(device_name: str, make: Any, offset: float) -> None:
    values = [4.0, 7.0, 13.0, 16.0, 100.0]
    assert of_floats(make("v"), [offset + v for v in values], device_name) == of_floats(make("v"), values, device_name)


def test_equal_values_have_no_shape(device_name: str) -> None:
    for aggregate in (g.skewness("v"), g.kurtosis("v", of="population"), g.correlation("v", "v"), g.slope("v", "v")):
        assert of_floats(aggregate, [0.1] * 7, device_name) is None
    assert of_floats(g.covariance("v", "v"), [0.1] * 7, device_name) == 0.0


def test_no_power_is_too_large_or_too_small(device_name: str) -> None:
    for scale in (1e300, 1e-300, 5e-324):
        values = [scale, 2 * scale, 4 * scale, 7 * scale]
        near = [1.0, 2.0, 4.0, 7.0]
        for make in (g.skewness, g.kurtosis):
            got = of_floats(make("v"), values, device_name)
            assert math.isclose(got, of_floats(make("v"), near, device_name), rel_tol=1e-12)
        assert of_floats(g.geometric_mean("v"), [scale] * 3, device_name) == scale
        assert of_floats(g.correlation("v", "v"), values, device_name) == 1.0
    assert of_floats(g.product("v"), [1e300, 1e300], device_name) == INF
    assert of_floats(g.product("v"), [-(2.0**1000), 2.0**1000, 2.0**-1000], device_name) == -(2.0**1000)
    assert of_floats(g.product("v"), [1e-300, 1e-300], device_name) == 0.0
    assert of_floats(g.product("v"), [5e-324, 1.0], device_name) == 5e-324


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize(
    "aggregate",
    [
        g.skewness("v"),
        g.kurtosis("v", of="population"),
        g.covariance("v", "w"),
        g.correlation("w", "v"),
        g.slope("v", "w"),
        g.intercept("v", "w"),
    ],
    ids=str,
)
def test_what_is_no_number_has_no_moments_while_it_is_there(device_name: str, aggregate: Any, value: float) -> None:
    columns = {"v": [1.0, 2.0, 4.0, 9.0, value], "w": [1.0, 2.0, 3.0, 4.0, 5.0]}
    types = dict.fromkeys(columns, pa.float64())
    assert math.isnan(among(aggregate, columns, types, device_name))
    without = {name: values[:4] for name, values in columns.items()}
    assert math.isfinite(among(aggregate, without, types, device_name))


def test_products_with_zeros_and_infinities(device_name: str) -> None:
    def product(*values: float | None) -> Any:
        return of_floats(g.product("v"), list(values), device_name)

    assert product(3.0, 0.0) == product(0.0, -2.0) == product(-0.0) == 0.0
    assert math.copysign(1, product(-0.0, -2.0)) == 1.0
    assert product(-INF, 2.0) == -INF
    assert product(-INF, -2.0) == INF
    assert math.isnan(product(INF, 0.0))
    assert math.isnan(product(1.0, NAN))
    assert product(None) is None


def test_geometric_means_with_zeros_and_negatives(device_name: str) -> None:
    def mean(*values: float) -> Any:
        return of_floats(g.geometric_mean("v"), list(values), device_name)

    assert mean(0.0, 8.0) == 0.0
    assert mean(2.0, -8.0, NAN) is None
    assert mean(INF, 2.0) == INF
    assert math.isnan(mean(INF, 0.0))
    assert mean(2.0, 4.0, 8.0) == 4.0
    assert mean(10.0, 1000.0) == 100.0


def test_harmonic_means(device_name: str) -> None:
    def mean(*values: float) -> Any:
        return of_floats(g.harmonic_mean("v"), list(values), device_name)

    assert mean(1.0, 4.0, 4.0) == 2.0
    assert mean(0.0, 4.0) == mean(-0.0, 1.0) == 0.0
    assert mean(1.0, -1.0) is None
    assert mean(INF, 2.0) == 4.0
    assert mean(5e-324, 1.0) == 0.0  # its reciprocal is past the greatest float64
    assert math.isnan(mean(NAN, 0.0))
    assert whole(g.harmonic_mean("v"), [Decimal("0.50"), Decimal("0.25")], pa.decimal128(9, 2), device_name) == 2 / 6


def test_weights(device_name: str) -> None:
    def mean(*pairs: tuple[float | None, float | None]) -> Any:
        columns = {"v": [v for v, _ in pairs], "w": [w for _, w in pairs]}
        return among(g.weighted_mean("v", "w"), columns, dict.fromkeys(columns, pa.float64()), device_name)

    assert mean((10.0, 3.0), (20.0, 1.0), (None, 5.0), (7.0, None)) == 12.5
    assert mean((10.0, 1.0), (20.0, -1.0)) is None
    assert mean((1e300, 1e300), (3e300, 1e300)) == 2e300
    assert mean((INF, 2.0), (1.0, 1.0)) == INF
    assert mean((INF, -2.0), (1.0, 1.0)) == INF  # minus infinity over minus one
    assert mean((-INF, 2.0), (1.0, 1.0)) == -INF
    assert math.isnan(mean((INF, 0.0), (1.0, 1.0)))
    assert math.isnan(mean((INF, 1.0), (-INF, 1.0)))
    assert math.isnan(mean((1.0, INF)))
    assert math.isnan(mean((1.0, NAN), (1.0, 1.0)))


def test_decimals_are_exact(device_name: str) -> None:
    prices = [Decimal("0.10"), Decimal("0.20"), Decimal("1.00"), Decimal("9999999.99")]
    dtype = pa.decimal128(9, 2)
    fractions = list(map(Fraction, prices))
    assert exact.close(whole(g.kurtosis("v"), prices, dtype, device_name), exact.kurtosis(fractions, sample=True), 4)
    columns: dict[str, Any] = {"v": prices, "w": [1, 2, 3, 5]}
    types = {"v": dtype, "w": pa.int8()}
    pairs = [(price, Fraction(w)) for price, w in zip(fractions, columns["w"], strict=True)]
    for aggregate, wanted in (
        (g.slope("v", "w"), exact.slope(pairs)),
        (g.slope("w", "v"), exact.slope([(w, v) for v, w in pairs])),
        (g.intercept("v", "w"), exact.intercept(pairs)),
        (g.covariance("v", "v"), exact.covariance([(v, v) for v, _ in pairs], sample=True)),
        (g.weighted_mean("v", "w"), exact.weighted_mean(pairs)),
    ):
        assert exact.close(among(aggregate, columns, types, device_name), wanted, 6)
    large = [Decimal(10**37), Decimal(-(10**37) + 1), Decimal(3), Decimal(10**36)]
    skewness = exact.skewness(list(map(Fraction, large)), sample=False)
    assert exact.close(whole(g.skewness("v", of="population"), large, pa.decimal128(38, 0), device_name), skewness, 3)


def test_unsigned_and_single_numbers(device_name: str) -> None:
    large = [2**64 - 1, 2**64 - 2, 2**63, 5]
    wanted = exact.skewness(list(map(Fraction, large)), sample=True)
    assert exact.close(whole(g.skewness("v"), large, pa.uint64(), device_name), wanted, 3)
    single = pa.array([0.1, 0.2, 0.4], pa.float32()).to_pylist()
    wanted = exact.skewness(list(map(Fraction, single)), sample=True)
    assert exact.close(whole(g.skewness("v"), single, pa.float32(), device_name), wanted, 3)


def test_any_and_all(device_name: str) -> None:
    for values, some, every in (
        ([True, False], True, False),
        ([True, None], True, True),
        ([False], False, False),
        ([None], None, None),
    ):
        assert whole(g.any("v"), values, pa.bool_(), device_name) is some
        assert whole(g.all("v"), values, pa.bool_(), device_name) is every


# Aggregates of aggregates


def test_aggregates_combine(device_name: str) -> None:
    windows = stream([Event(0, 2, {"k": "a", "v": 1, "w": 3}), Event(1, 3, {"k": "a", "v": 5, "w": 0})]).by("k")
    answer = windows.snapshot().agg(
        n=g.count(),
        ratio=g.sum("v") / g.sum("w"),
        mixed=(g.max("v") - g.min("v")) * 10 + 1,
        less=100 - g.count(),
        part=1 / g.sum("w"),
        minus=-g.sum("v"),
    )
    assert answer.schema.names == ["k", "n", "ratio", "mixed", "less", "part", "minus"]
    made = [dict(e.payload) for e in sorted(to_events(answer.collect(device=device_name)))]
    wanted: list[dict[str, Any]] = [
        {"k": "a", "n": 1, "ratio": 1 / 3, "mixed": 1, "less": 99, "part": 1 / 3, "minus": -1},
        {"k": "a", "n": 2, "ratio": 2.0, "mixed": 41, "less": 98, "part": 1 / 3, "minus": -6},
        {"k": "a", "n": 1, "ratio": INF, "mixed": 1, "less": 99, "part": INF, "minus": -5},
    ]
    assert made == wanted


def test_a_quotient_of_decimals_is_a_float(device_name: str) -> None:
    prices = [Decimal("1.00"), Decimal("2.00")]
    assert whole(g.sum("v") / g.count(), prices, pa.decimal128(9, 2), device_name) == 1.5
    assert whole(g.sum("v") / g.max("v") * 2, prices, pa.decimal128(9, 2), device_name) == 3.0
    spans = [datetime.timedelta(seconds=1), datetime.timedelta(seconds=2)]
    if device_name == "gpu":  # cuDF divides no durations
        with pytest.raises(g.DeviceError, match=r"__truediv__ in .* is computed otherwise there"):
            whole(g.sum("v") / g.count(), spans, pa.duration("us"), device_name)
    else:
        each = whole(g.sum("v") / g.count(), spans, pa.duration("us"), device_name)
        assert each == datetime.timedelta(seconds=1.5)


def test_null_and_zero_by_zero(device_name: str) -> None:
    assert whole(g.sum("v") / g.count(), [None], pa.int64(), device_name) is None
    assert math.isnan(whole(g.sum("v") / g.sum("v"), [0], pa.int64(), device_name))
    assert whole(g.sum("v") / g.sum("v"), [None], pa.int64(), device_name) is None


# Refused


@pytest.mark.parametrize(
    "aggregate",
    [
        g.skewness("t"),
        g.kurtosis("t"),
        g.covariance("v", "t"),
        g.correlation("t", "v"),
        g.slope("v", "t"),
        g.weighted_mean("v", "t"),
        g.product("t"),
        g.geometric_mean("t"),
        g.harmonic_mean("t"),
        g.integral("t"),
        g.any("t"),
        g.all("v"),
        g.sum("t") / g.count(),
    ],
    ids=str,
)
def test_types_are_refused_with_the_column(aggregate: Any) -> None:
    events = stream([Event(0, 1, {"v": 1, "t": "a"})])
    with pytest.raises(ColumnError, match="does not take") as caught:
        events.snapshot().agg(r=aggregate)
    assert caught.value.column in {"v", "t"}


def test_combinations_that_are_none_are_refused() -> None:
    windows = stream([Event(0, 1, {"v": 1})]).by("v").snapshot()
    for wrong in (g.col("v"), "v", True):
        with pytest.raises(PlanError, match="cannot be computed"):
            _ = g.sum("v") / wrong
        with pytest.raises(PlanError, match="cannot be computed"):
            _ = g.sum("v") * g.count() + wrong
    with pytest.raises(ColumnError, match="two columns of one name"):
        windows.agg(v=g.sum("v") / 2)
    with pytest.raises(ColumnError, match="Did you mean 'v'"):
        windows.agg(r=g.sum("vv") / 2)


# The same bits everywhere

FLOATS = st.none() | st.sampled_from([0.1, -2.5, 1e9 + 0.1, 3.0, 1e9, -0.0, 0.0, NAN, INF, -INF, 1e-3, 1.5])
EVENTS = st.lists(
    st.builds(
        lambda start, length, *payload: Event(start, start + length, dict(zip(PAYLOAD.names, payload, strict=True))),
        st.integers(0, 40),
        st.integers(1, 20),
        st.sampled_from(["a", "b", None]),
        FLOATS,
        FLOATS,
        st.none() | st.integers(-4, 9) | st.sampled_from([2**63 - 1, -(2**63)]),
        st.none() | st.integers(-99, 999999).map(lambda cents: Decimal(cents) / 100),
        st.none() | st.booleans(),
    ),
    max_size=14,
)
WINDOWS = st.sampled_from(["snapshot", "keyed", "hopping", "tumbling"])
NAMES = st.lists(st.sampled_from([*EVERY]), min_size=1, max_size=6, unique=True)


def over(window: str, events: g.Stream, names: list[str]) -> g.Stream:
    """Some of the aggregates over some windows."""
    windows: dict[str, Callable[[], g.Windowed]] = {
        "snapshot": events.snapshot,
        "keyed": events.by("k").snapshot,
        "hopping": lambda: events.by("k").hopping("10us", "4us"),
        "tumbling": lambda: events.tumbling("7us"),
    }
    return windows[window]().agg(**{name: EVERY[name] for name in names})


@examples(dear=True)
@given(EVENTS, WINDOWS, NAMES)
def test_devices_agree(events: list[Event], window: str, names: list[str]) -> None:
    first, *others = (rows(over(window, stream(events, PAYLOAD), names).collect(device=device)) for device in HERE)
    assert all(other == first for other in others)


@examples(dear=True)
@given(EVENTS, WINDOWS, NAMES, st.randoms(use_true_random=False), st.sampled_from(HERE))
def test_live_is_batch(
    tmp_path_factory: pytest.TempPathFactory,
    events: list[Event],
    window: str,
    names: list[str],
    chance: random.Random,
    device: str,
) -> None:
    arrived = in_some_order(to_table(events, PAYLOAD), chance)
    asked = over(window, g.events(arrived, start="start", end="end"), names)
    found = in_any_cut(asked, arrived, device, chance, tmp_path_factory.mktemp("live"))
    assert rows(found) == rows(asked.collect(device=device))


@pytest.mark.parametrize("aggregate", [g.skewness, g.product, g.harmonic_mean, g.geometric_mean, g.kurtosis])
def test_equal_values_may_count_once(device_name: str, aggregate: Any) -> None:
    values = [2.0, 2.0, 9.0, 4.0, 9.0, 1.0]
    wanted = of_floats(aggregate("v"), sorted({*values}), device_name)
    assert of_floats(aggregate("v", distinct=True), values, device_name) == wanted
