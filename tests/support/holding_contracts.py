"""What the kernels of ranges that hold values must give."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.support.kernel_contracts import ANY_INT, Contract, codes_of, ints


@st.composite
def lists_and_rows(draw: st.DrawFn) -> tuple[Any, ...]:
    """What `count_holding` takes: short lists of ranges and long ones, and rows of these keys and of none."""
    number = st.integers(0, 9) | ANY_INT
    lists = []
    for _ in range(draw(st.integers(1, 3))):
        pairs = draw(st.lists(st.tuples(number, number), max_size=4))
        times = draw(st.sampled_from([1, 1, 20]))
        lists.append([(min(pair), max(pair)) for pair in pairs] * times)
    bounds = np.cumsum([0, *map(len, lists)])
    low, high = (ints([pair[at] for each in lists for pair in each]) for at in (0, 1))
    by_low, by_high = [], []
    for begin, end in pairwise(bounds):
        by_low += (begin + np.argsort(low[begin:end], kind="stable")).tolist()
        by_high += (begin + np.argsort(~high[begin:end], kind="stable")).tolist()
    rows = draw(st.lists(st.tuples(st.integers(-1, len(lists) - 1), number), max_size=6))
    keys, values = zip(*rows, strict=True) if rows else ((), ())
    return codes_of(keys), ints(values), ints(bounds), low, high, ints(by_low), ints(by_high)


@st.composite
def counted(draw: st.DrawFn) -> tuple[Any, ...]:
    given = draw(lists_and_rows())
    return (*given, held_counts(*given))


def _held(keys: Any, values: Any, bounds: Any, low: Any, high: Any) -> list[tuple[int, int]]:
    return [
        (row, at)
        for row, (key, value) in enumerate(zip(keys, values, strict=True))
        for at in (range(bounds[key], bounds[key + 1]) if key >= 0 else ())
        if low[at] <= value <= high[at]
    ]


def held_counts(keys: Any, values: Any, bounds: Any, low: Any, high: Any, *_orders: Any) -> Any:
    rows = ints([row for row, _ in _held(keys, values, bounds, low, high)])
    return np.bincount(rows, minlength=len(keys)).astype(np.int64)


def held_pairs(keys: Any, values: Any, bounds: Any, low: Any, high: Any, *_orders: Any) -> tuple[Any, Any]:
    pairs = _held(keys, values, bounds, low, high)
    return ints([row for row, _ in pairs]), ints([at for _, at in pairs])


CONTRACTS = {
    "count_holding": Contract(lists_and_rows(), held_counts),
    "pairs_holding": Contract(counted(), held_pairs),
}
