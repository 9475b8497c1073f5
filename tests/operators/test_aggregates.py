from __future__ import annotations

import datetime
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import ColumnError, PlanError, SumOverflowError
from tests.support.reference import Event
from tests.support.rows import check, rows, stream, to_events
from tests.support.timeline import timeline

NAN = math.nan
INF = math.inf


def of(values: list[Any], dtype: pa.DataType, length: int = 2) -> g.Stream:
    """A stream of one value a tick, each alive for ``length`` ticks."""
    events = [Event(at, at + length, {"v": value}) for at, value in enumerate(values)]
    return stream(events, pa.schema([("v", dtype)]))


def over_time(aggregate: g.Aggregate, events: g.Stream, device: str) -> list[Any]:
    """The aggregate in each snapshot, in order of time."""
    table = events.snapshot().agg(r=aggregate).collect(device=device)
    return [event.payload["r"] for event in sorted(to_events(table), key=lambda event: event.start)]


def whole(aggregate: g.Aggregate, values: list[Any], dtype: pa.DataType, device: str) -> Any:
    """The aggregate over all values at once."""
    (answer,) = over_time(aggregate, stream([Event(0, 1, {"v": v}) for v in values], pa.schema([("v", dtype)])), device)
    return answer


def same(left: list[Any], right: list[Any]) -> bool:
    """Equal in every bit."""
    return rows([Event(at, at + 1, {"v": v}) for at, v in enumerate(left)]) == rows(
        [Event(at, at + 1, {"v": v}) for at, v in enumerate(right)]
    )


# What passes through a window leaves nothing behind


def test_a_huge_float_that_passes_leaves_no_dust(device_name: str) -> None:
    values = [0.1, 0.2, 1e300, 0.3, 0.4]
    sums = over_time(g.sum("v"), of(values, pa.float64()), device_name)
    assert same(sums, [0.1, 0.1 + 0.2, 1e300, 1e300, 0.7, 0.4])
    means = over_time(g.mean("v"), of(values, pa.float64()), device_name)
    assert same(means, [0.1, (0.1 + 0.2) / 2, 5e299, 5e299, 0.35, 0.4])


def test_nan_and_infinities_leave_with_their_event(device_name: str) -> None:
    values = [1.0, NAN, 2.0, INF, 3.0, -INF, INF, 4.0]
    sums = over_time(g.sum("v"), of(values, pa.float64()), device_name)
    assert same(sums, [1.0, NAN, NAN, INF, INF, -INF, NAN, INF, 4.0])
    least = over_time(g.min("v"), of(values, pa.float64()), device_name)
    assert same(least, [1.0, 1.0, 2.0, 2.0, 3.0, -INF, -INF, 4.0, 4.0])
    most = over_time(g.max("v"), of(values, pa.float64()), device_name)
    assert same(most, [1.0, NAN, NAN, INF, INF, 3.0, INF, INF, 4.0])
    spread = over_time(g.variance("v", of="population"), of(values, pa.float64()), device_name)
    assert same(spread, [0.0, NAN, NAN, NAN, NAN, NAN, NAN, NAN, 0.0])


def test_nulls_are_skipped_and_only_nulls_give_null(device_name: str) -> None:
    values = [None, 1, None, None, 2]
    assert over_time(g.sum("v"), of(values, pa.int64()), device_name) == [None, 1, 1, None, 2, 2]
    assert over_time(g.count("v"), of(values, pa.int64()), device_name) == [0, 1, 1, 0, 1, 1]
    assert over_time(g.count(), of(values, pa.int64()), device_name) == [1, 2, 2, 2, 2, 1]
    assert over_time(g.mean("v"), of(values, pa.int64()), device_name) == [None, 1.0, 1.0, None, 2.0, 2.0]
    assert over_time(g.max("v"), of(values, pa.int64()), device_name) == [None, 1, 1, None, 2, 2]
    assert over_time(g.min("v"), of(["b", None, None, "a"], pa.string()), device_name) == ["b", "b", None, "a", "a"]


def test_a_filter_takes_events_out_of_the_aggregate_and_none_out_of_the_window(device_name: str) -> None:
    rides = timeline("""
        a: [=====)  v=5
        b:   [=)    v=7
    """)
    answer = (
        stream(rides)
        .snapshot()
        .agg(n=g.count(), large=g.count(where=g.col("v") > 6), total=g.sum("v", where=g.col("v") > 6))
    )
    expected = [
        *timeline("1: [=)  large=0 total=None", label="n"),
        *timeline("2:   [=)  large=1 total=7", label="n"),
        *timeline("1:     [=)  large=0 total=None", label="n"),
    ]
    check(answer, device_name, expected)


def test_a_null_condition_counts_as_no(device_name: str) -> None:
    assert over_time(g.count(where=g.col("v") > 1), of([1, None, 2], pa.int64(), 1), device_name) == [0, 0, 1]


def test_an_aggregate_is_over_any_expression(device_name: str) -> None:
    answer = over_time(g.sum(g.col("v") * 2 + 1), of([1, 2, 3], pa.int64()), device_name)
    assert answer == [3, 8, 12, 7]
    lived = over_time(g.max(g.col("end") - g.col("start")), of([1, 2], pa.int64(), 3), device_name)
    assert lived == [datetime.timedelta(microseconds=3)] * 3


# Exact or an error


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pa.int64(), [2**63 - 1, 1]),
        (pa.int64(), [-(2**63), -1]),
        (pa.int64(), [2**62, 2**62]),
        (pa.uint64(), [2**64 - 1, 1]),
        (pa.decimal128(38, 0), [Decimal(10**38 - 1), Decimal(1)]),
        (pa.decimal128(38, 2), [Decimal("9" * 36 + ".99"), Decimal("0.01")]),
        (pa.decimal128(38, 0), [Decimal(1 - 10**38), Decimal(-1)]),
    ],
)
def test_a_sum_that_does_not_fit_is_an_error(device_name: str, dtype: pa.DataType, values: list[Any]) -> None:
    with pytest.raises(SumOverflowError, match="does not fit"):
        whole(g.sum("v"), values, dtype, device_name)
    # Apart they fit.
    assert over_time(g.sum("v"), of(values, dtype, 1), device_name) == values


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        (pa.int64(), [2**63 - 1, -(2**63), 2**63 - 1, -1]),
        (pa.int64(), [-(2**63)]),
        (pa.uint64(), [2**64 - 2, 1]),
        (pa.int8(), [127] * 300),
        (pa.uint32(), [2**32 - 1] * 3),
        (pa.decimal128(38, 1), [Decimal("9" * 37), Decimal("-0.1"), Decimal("-" + "9" * 37)]),
        (pa.decimal128(4, 2), [Decimal("99.99")] * 300),
    ],
)
def test_a_sum_that_fits_is_exact_whatever_it_passes_on_the_way(
    device_name: str, dtype: pa.DataType, values: list[Any]
) -> None:
    assert Fraction(whole(g.sum("v"), values, dtype, device_name)) == sum(map(Fraction, values))


def test_sums_keep_the_large_type(device_name: str) -> None:
    types = {
        pa.int8(): pa.int64(),
        pa.uint32(): pa.int64(),
        pa.uint64(): pa.uint64(),
        pa.float32(): pa.float64(),
        pa.decimal128(5, 3): pa.decimal128(38, 3),
        pa.duration("us"): pa.duration("us"),
    }
    for before, after in types.items():
        answer = of([None], before).snapshot().agg(total=g.sum("v")).collect(device=device_name)
        assert answer.schema.field("total").type == after
        assert answer["total"].to_pylist() == [None]


@pytest.mark.parametrize(
    "values",
    [
        [1e16, 1.0, -1e16],
        [1.0, 2.0**-53, 2.0**-105],
        [1.0, 2.0**-53],
        [5e-324, 5e-324, -5e-324],
        [2.0**1023, 2.0**1023, -(2.0**1023)],
        [1.7976931348623157e308, 2.0**969],
        [0.1] * 10,
        [-0.0, -0.0],
        [0.5, -0.5],
    ],
)
def test_a_float_sum_is_the_exact_sum_rounded_once(device_name: str, values: list[float]) -> None:
    assert same([whole(g.sum("v"), values, pa.float64(), device_name)], [float(sum(map(Fraction, values)))])


def test_a_float_sum_too_large_is_infinite(device_name: str) -> None:
    largest = 1.7976931348623157e308
    assert whole(g.sum("v"), [largest, largest], pa.float64(), device_name) == INF
    assert whole(g.sum("v"), [-largest, -(2.0**970)], pa.float64(), device_name) == -INF


def test_float32_is_summed_as_what_it_is(device_name: str) -> None:
    single = pa.array([0.1, 0.2], pa.float32()).to_pylist()
    assert same([whole(g.sum("v"), [0.1, 0.2], pa.float32(), device_name)], [math.fsum(single)])


def test_a_mean_of_integers_does_not_overflow(device_name: str) -> None:
    assert whole(g.mean("v"), [2**63 - 1, 2**63 - 1], pa.int64(), device_name) == 2.0**63
    assert whole(g.mean("v"), [2**64 - 1, 2**64 - 3], pa.uint64(), device_name) == 2.0**64
    assert whole(g.mean("v"), [Decimal("0.10"), Decimal("0.20")], pa.decimal128(9, 2), device_name) == 0.3 / 2


# Variance


@pytest.mark.parametrize("dtype", [pa.int64(), pa.float64(), pa.decimal128(9, 0)])
def test_variances_of_samples_and_populations(device_name: str, dtype: pa.DataType) -> None:
    values = [Decimal(v) if pa.types.is_decimal(dtype) else v for v in (2, 4, 4, 4, 5, 5, 7, 9)]
    assert whole(g.variance("v", of="population"), values, dtype, device_name) == 4.0
    assert whole(g.standard_deviation("v", of="population"), values, dtype, device_name) == 2.0
    assert whole(g.variance("v"), values, dtype, device_name) == 32 / 7
    assert whole(g.standard_deviation("v"), values, dtype, device_name) == math.sqrt(32 / 7)


def test_a_sample_of_one_has_no_variance(device_name: str) -> None:
    assert whole(g.variance("v"), [3.0], pa.float64(), device_name) is None
    assert whole(g.variance("v"), [3.0, None], pa.float64(), device_name) is None
    assert whole(g.variance("v", of="population"), [3.0], pa.float64(), device_name) == 0.0
    assert whole(g.variance("v", of="population"), [None], pa.float64(), device_name) is None


@pytest.mark.parametrize("offset", [0.0, 1e9, -1e12])
def test_a_variance_far_from_zero_loses_nothing(device_name: str, offset: float) -> None:
    values = [offset + v for v in (4.0, 7.0, 13.0, 16.0)]
    assert whole(g.variance("v"), values, pa.float64(), device_name) == 30.0


# Extremes of all that has an order


@pytest.mark.parametrize(
    ("dtype", "ascending"),
    [
        (pa.bool_(), [False, True]),
        (pa.int8(), [-128, 0, 127]),
        (pa.uint64(), [0, 2**63, 2**64 - 1]),
        (pa.int64(), [-(2**63), 0, 2**63 - 1]),
        (pa.float32(), [-INF, -1.5, 0.0, INF, NAN]),
        (pa.float64(), [-INF, -5e-324, 0.0, 5e-324, INF, NAN]),
        (pa.string(), ["", "Z", "a", "é", "\U0001f6b2"]),
        (pa.large_string(), ["", "Z", "a"]),
        (pa.binary(), [b"", b"\x00", b"\xff"]),
        (pa.decimal128(38, 2), [Decimal("-99.99"), Decimal("0.01"), Decimal("1" + "0" * 30 + ".00")]),
        (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
        (
            pa.timestamp("us", "UTC"),
            [datetime.datetime(y, 1, 1, tzinfo=datetime.UTC) for y in (1969, 1970, 2026)],
        ),
        (pa.duration("us"), [datetime.timedelta(seconds=s) for s in (-1, 0, 1)]),
    ],
)
def test_min_and_max_follow_the_order_of_the_type(device_name: str, dtype: pa.DataType, ascending: list[Any]) -> None:
    for values in (ascending, ascending[::-1], [None, *ascending, None]):
        assert same([whole(g.min("v"), values, dtype, device_name)], [ascending[0]])
        assert same([whole(g.max("v"), values, dtype, device_name)], [ascending[-1]])
    made = of([None], dtype).snapshot().agg(r=g.max("v"))
    assert made.schema.field("r").type == dtype
    assert made.collect(device=device_name).schema.field("r").type == made.schema.field("r").type


def test_negative_zero_is_zero(device_name: str) -> None:
    for aggregate in (g.min("v"), g.max("v"), g.sum("v"), g.mean("v")):
        assert same([whole(aggregate, [-0.0], pa.float64(), device_name)], [0.0])


# What is refused when the plan is made


@pytest.mark.parametrize("make", [g.sum, g.mean, g.variance, g.standard_deviation])
def test_texts_have_no_sum(make: Any) -> None:
    with pytest.raises(ColumnError, match="does not take"):
        of(["a"], pa.string()).snapshot().agg(r=make("v"))


def test_what_is_no_aggregate_is_refused() -> None:
    windows = of([1], pa.int64()).snapshot()
    with pytest.raises(PlanError, match="takes an aggregate"):
        windows.agg(r=g.col("v").sum())
    with pytest.raises(PlanError, match="at least one"):
        windows.agg()
    with pytest.raises(ColumnError, match="Did you mean 'v'"):
        windows.agg(r=g.sum("vv"))
    with pytest.raises(PlanError, match="takes a condition"):
        windows.agg(r=g.count(where=g.col("v") + 1))
    with pytest.raises(ColumnError, match="two columns of one name"):
        of([1], pa.int64()).by("v").snapshot().agg(v=g.count())
    with pytest.raises(PlanError, match="other rows"):
        windows.agg(r=g.sum(g.col("v").cum_sum()))


@pytest.mark.parametrize(
    "make",
    [
        *(g.sum, g.mean, g.variance, g.product, g.geometric_mean, g.harmonic_mean, g.skewness, g.kurtosis, g.median),
        *(g.integral, g.time_weighted_mean, g.mean_absolute_deviation, lambda v: g.weighted_mean("w", v)),
        *(lambda v: g.covariance(v, "w"), lambda v: g.slope("w", v)),
    ],
)
def test_numbers_that_are_codes_of_some_values_are_no_numbers(make: Any) -> None:
    # Their codes would be taken for them: the product of 7, 5, 7 came to 0 * 1 * 0.
    coded = pa.table({"at": [0, 1, 2], "v": pa.array([7, 5, 7]).dictionary_encode(), "w": [1, 2, 3]})
    windows = g.events(coded, start="at", unit="s").tumbling("1min")
    with pytest.raises(ColumnError, match=r"does not take dictionary.*cast\(g.Float64\)"):
        windows.agg(r=make("v"))
    assert windows.agg(r=make(g.col("v").cast(g.Float64))).collect().num_rows == 1
    # Where one of the values is the answer there is nothing to compute.
    assert windows.agg(r=g.quantile("v", 0.5, interpolation="lower")).collect()["r"].to_pylist() == [7]


@pytest.mark.parametrize(
    ("make", "expected"), [(g.collect_list, [8, 6, 8]), (g.collect_set, [6, 8]), (lambda v: g.top(v, 2), [8, 8])]
)
def test_lists_are_over_any_expression(make: Any, expected: list[int], device_name: str) -> None:
    windows = of([7, 5, 7], pa.int64(), length=9).tumbling("1min").agg(r=make(g.col("v") + 1))
    assert windows.schema.field("r").type == pa.list_(pa.int64())
    assert windows.collect(device=device_name)["r"].to_pylist() == [expected]
