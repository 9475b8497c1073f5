"""Values that come and go, kept in sorted runs with weights, in array form: all searches side by side."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from array_api_compat import array_namespace

from gpu_ops.devices.array.steps import search_pairs
from gpu_ops.devices.kernels import Array


def runs_between(
    codes: Array, values: Array, sums: Array, bounds: Array, of_codes: Array, low: Array, high: Array
) -> tuple[Array, Array, Array]:
    """Where some groups' values from one rank to another stand: a search by halves between the least and the greatest.

    In each round it is counted in every run how many values there are up to the middle one.
    """
    xp = array_namespace(values)
    cuts = [int(bounds[at]) for at in range(bounds.shape[0])]
    runs = [(begin, codes[begin:end], values[begin:end], sums[begin:end]) for begin, end in pairwise(cuts)]
    every = (low < high) & (values.shape[0] > 0)
    if not runs or not values.shape[0]:
        nothing = xp.zeros(of_codes.shape[0] * len(runs), dtype=xp.int64)
        return nothing, nothing, xp.zeros_like(low)

    def upto(value: Array) -> tuple[list[Array], Array]:
        """For each run the first row after a value of the query's group; and the weights up to there, of that group."""
        found, total = [], xp.zeros_like(low)
        for _, code, place, weight in runs:
            at, begins = search_pairs(code, place, of_codes, value), search_pairs(code, place, of_codes - 1, most)
            found.append(at)
            total = total + _sum_before(xp, weight, at) - _sum_before(xp, weight, begins)
        return found, total

    least, most = (xp.full_like(low, int(each)) for each in (xp.min(values), xp.max(values)))

    def at_rank(rank: Array) -> Array:
        left, right = least, most
        for _ in range(65):
            # Half of the sum, which may be too large itself.
            middle = (left & right) + ((left ^ right) >> 1)
            enough = upto(middle)[1] > rank
            left, right = xp.where(enough | (left == right), left, middle + 1), xp.where(enough, middle, right)
        return right

    from_value, to_value = at_rank(low), at_rank(high - 1)
    ends, _ = upto(to_value)
    here, before = upto(from_value)
    begins = []
    for (begin, code, place, weight), at in zip(runs, here, strict=True):
        last = xp.maximum(at - 1, xp.zeros_like(at))
        same = (at > 0) & (xp.take(code, last) == of_codes) & (xp.take(place, last) == from_value)
        start = xp.where(same, last, at)
        before = before - _sum_before(xp, weight, at) + _sum_before(xp, weight, start)
        begins.append(start + begin)
    ends = [at + begin for (begin, *_), at in zip(runs, ends, strict=True)]
    asked = xp.astype(every, xp.int64)
    begin, end = (xp.reshape(xp.stack(each, axis=1) * asked[:, None], (-1,)) for each in (begins, ends))
    return begin, end, before * asked


def _sum_before(xp: Any, sums: Array, at: Array) -> Array:
    """The weights of the rows before some rows."""
    found = xp.take(sums, xp.maximum(at - 1, xp.zeros_like(at)))
    return xp.where(at > 0, found, xp.zeros_like(found))
