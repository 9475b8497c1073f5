"""Spans and instants of so many ticks: a public argument takes no bare number, and tests count in microseconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa


def us(span: Any) -> Any:
    """A span of so many microseconds; what is no whole number stays as it is."""
    return np.timedelta64(int(span), "us") if isinstance(span, int | np.integer) else span


def at_us(time: Any) -> Any:
    """The instant so many microseconds after 1970-01-01T00:00Z; what is no whole number stays as it is."""
    return np.datetime64(int(time), "us") if isinstance(time, int | np.integer) else time


def instants(times: Sequence[int | None]) -> pa.Array:
    """Whole numbers as timestamps, a microsecond each."""
    return pa.array(times, pa.timestamp("us", "UTC"))


def timed(given: dict[str, Any], *, spans: tuple[str, ...] = (), instants: tuple[str, ...] = ()) -> dict[str, Any]:
    """Options of a verb, those of these names as spans and instants."""
    asked = {name: us(given[name]) for name in spans if name in given}
    return given | asked | {name: at_us(given[name]) for name in instants if name in given}
