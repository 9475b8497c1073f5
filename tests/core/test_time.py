"""Spans and instants."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME, MIN_TIME, format_span, format_time, instant, positive_ticks, ticks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1us", 1),
        ("10min", 600_000_000),
        ("1h 30m", 5_400_000_000),
        ("-5s", -5_000_000),
        ("2 d", 172_800_000_000),
        ("1W", 604_800_000_000),
    ],
)
def test_texts(text: str, expected: int) -> None:
    assert ticks(text) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        "",
        "five minutes",
        "1 parsec",
        "1.5h",
        None,
        True,
        "10 min ago",
        np.timedelta64(5),
        np.timedelta64("NaT"),
        pd.NaT,
    ],
)
def test_what_is_no_span(wrong: object) -> None:
    with pytest.raises(g.PlanError, match="not a span of time"):
        ticks(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (60, "size is 60, a number without a unit. Say '60s' for seconds, or '60us' for microseconds."),
        ("60", "Say '60s'"),
        (np.int64(5), "Say '5s'"),
        (1.5, "Say '1s 500ms' for seconds."),
        (np.float32(0.25), "Say '250ms' for seconds."),
        (float("nan"), "a number without a unit. Give a text such as"),
    ],
)
def test_a_bare_number_is_no_span(number: Any, says: str) -> None:
    with pytest.raises(g.PlanError, match=re.escape(says)):
        ticks(number, name="size")


def test_zero_needs_no_unit() -> None:
    assert ticks(0) == ticks(0.0) == ticks("0s") == 0  # type: ignore[arg-type]


def test_spans_of_numpy_and_pandas() -> None:
    assert ticks(np.timedelta64(2, "h")) == ticks("2h") == ticks(pd.Timedelta("2h"))
    assert ticks(np.timedelta64(3, "W")) == ticks("3w")
    assert ticks(np.timedelta64(5000, "ns")) == 5
    for fine in (np.timedelta64(5001, "ns"), pd.Timedelta("1ns")):
        with pytest.raises(g.PlanError, match="finer than a microsecond"):
            ticks(fine)
    with pytest.raises(g.PlanError, match="not a span of time"):
        ticks(np.timedelta64(1, "M"))


def test_instants_of_numpy_and_pandas() -> None:
    wanted = instant("2026-02-01T00:00:00Z")
    assert instant(np.datetime64("2026-02")) == instant(np.datetime64("2026-02-01T00:00", "ns")) == wanted
    assert instant(pd.Timestamp("2026-02-01T01:00", tz="Europe/Vienna")) == wanted
    assert instant(np.datetime64(MIN_TIME, "us")) == MIN_TIME
    assert instant("infinity") == instant(np.datetime64(MAX_TIME, "us")) == MAX_TIME
    with pytest.raises(g.PlanError, match="no zone"):
        instant(pd.Timestamp("2026-02-01"))
    with pytest.raises(g.PlanError, match="finer than a microsecond"):
        instant(np.datetime64("2026-02-01T00:00:00.000000001"))
    with pytest.raises(g.TimeError, match="outside the years 1 to 9999"):
        instant(np.datetime64("12026-02-01"))


def _live() -> Any:
    return bids().tumbling("1min").agg(n=g.count()).start(device="cpu")


def bids() -> g.Stream:
    """Of which the times are integers: their unit is the source's own."""
    return g.events(pa.table({"at": [0], "v": [1]}), start="at", unit="s")


SPANS: dict[str, Callable[[Any], Any]] = {
    "size": lambda n: bids().tumbling(n),
    "every": lambda n: bids().hopping("1min", n),
    "duration": lambda n: bids().sliding(n),
    "gap": lambda n: bids().session(n),
    "cap": lambda n: bids().session("1s", cap=n),
    "grid_cap": lambda n: bids().session("1s", grid_cap=n),
    "span": lambda n: bids().first_span(n),
    "by": lambda n: bids().shift(n),
    "limit": lambda n: bids().clip_duration(n),
    "period": lambda n: bids().chop(n),
    "progress": lambda n: bids().quantize("1s", progress=n),
    "tolerance": lambda n: bids().asof_join(bids(), tolerance=n),
    "delay": lambda n: bids().advance_time(1, delay=n),
    "reorder": lambda n: bids().advance_time(1, reorder=n),
    "per": g.rate,
    "over": lambda n: g.rate("1s", over=n),
    "unit": lambda n: g.integral("v", unit=n),
    "timeout": lambda n: list(g.store(".").follow(timeout=n)),
    "poll": lambda n: list(g.store(".").follow(poll=n)),
}

INSTANTS: dict[str, Callable[[Any], Any]] = {
    "align": lambda n: bids().tumbling("1s", align=n),
    "until": lambda n: bids().tumbling("1s", until=n),
    "span": lambda n: bids().tumbling("1s", fill="zero", span=(n, n)),
    "since": lambda n: bids().first_span("1s", since=n),
    "cti": lambda n: _live().advance(n),
    "before": lambda n: g.store(".").expire(n),
    "start": lambda n: g.store(".").read(start=n),
    "end": lambda n: g.store(".").read(end=n),
}


@pytest.mark.parametrize("name", SPANS)
@pytest.mark.parametrize("number", [60, 2.5])
def test_no_verb_takes_a_bare_number_for_a_span(
    name: str, number: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(g.PlanError, match=rf"^{name} is {number}, a number without a unit\. Say '"):
        SPANS[name](number)


@pytest.mark.parametrize("name", INSTANTS)
def test_no_verb_takes_a_bare_number_for_an_instant(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with g.store(".").writer() as writer:
        writer.append(bids().collect())
    says = rf"^{name} is 60, a number without a unit\. Say np\.datetime64\(60, 's'\) for seconds since 1970"
    with pytest.raises(g.PlanError, match=says):
        INSTANTS[name](60)


def test_a_span_longer_than_time_is_refused() -> None:
    with pytest.raises(g.PlanError, match="longer than the years"):
        ticks("99999999d")


@pytest.mark.parametrize("span", [0, "-1us", "0s", datetime.timedelta(0)])
def test_positive(span: object) -> None:
    with pytest.raises(g.PlanError, match="longer than zero"):
        positive_ticks(span, name="size")  # type: ignore[arg-type]


@given(st.integers(MIN_TIME - MAX_TIME, MAX_TIME - MIN_TIME))
def test_a_span_is_read_back_as_it_is_printed(span: int) -> None:
    assert ticks(format_span(span)) == span


@given(st.timedeltas(datetime.timedelta(days=-3_000_000), datetime.timedelta(days=3_000_000)))
def test_timedeltas_are_exact(span: datetime.timedelta) -> None:
    assert datetime.timedelta(microseconds=ticks(span)) == span


def test_instants() -> None:
    utc = datetime.UTC
    assert instant(datetime.datetime(1970, 1, 1, tzinfo=utc)) == 0
    assert instant(datetime.date(1970, 1, 2)) == 86_400_000_000
    assert instant("2026-01-01T01:00:00+01:00") == instant("2026-01-01T00:00:00Z")
    assert instant(datetime.datetime(1, 1, 1, tzinfo=utc)) == MIN_TIME
    assert instant(datetime.datetime.max.replace(tzinfo=utc)) == MAX_TIME
    assert datetime.date(1, 1, 1).weekday() == 0, "grids that begin there begin on a Monday"


@pytest.mark.parametrize("wrong", ["tomorrow", None, True, pd.NaT, np.datetime64("NaT")])
def test_what_is_no_instant(wrong: object) -> None:
    with pytest.raises(g.PlanError, match="not a point in time"):
        instant(wrong)  # type: ignore[arg-type]


def test_an_instant_has_a_zone() -> None:
    with pytest.raises(g.PlanError, match="no zone"):
        instant("2026-01-01T00:00:00")


def test_how_times_are_shown() -> None:
    assert format_time(MAX_TIME) == "infinity"
    assert format_time(MIN_TIME) == "0001-01-01T00:00:00Z"
    assert format_time(MAX_TIME + 1) == f"{MAX_TIME + 1} us"
