"""Order in array form: events by group and start, and moving what belongs to them along."""

from __future__ import annotations

from collections.abc import Sequence

from array_api_compat import array_namespace, to_device

from gpu_ops.devices.kernels import Array


def group_bounds(codes: Array, groups: int) -> Array:
    """Where each group begins in group order: found in the sorted codes."""
    xp = array_namespace(codes)
    edges = xp.arange(groups + 1, dtype=xp.int32)
    return xp.astype(xp.searchsorted(xp.sort(codes), edges), xp.int64)


def group_codes(bounds: Array) -> Array:
    """The codes of events in group order."""
    xp = array_namespace(bounds)
    events = xp.arange(int(bounds[0]), int(bounds[-1]), dtype=xp.int64)
    return xp.astype(xp.searchsorted(bounds, events, side="right") - 1, xp.int32)


def is_ordered(codes: Array, start: Array) -> bool:
    """Whether events are in order of group, then start."""
    xp = array_namespace(codes)
    if codes.shape[0] < 2:
        return True
    same = codes[:-1] == codes[1:]
    return bool(xp.all((codes[:-1] < codes[1:]) | (same & (start[:-1] <= start[1:]))))


def ascends(values: Array) -> bool:
    """Whether no value is less than the one before."""
    return values.shape[0] < 2 or bool(array_namespace(values).all(values[:-1] <= values[1:]))


def extent(values: Array) -> tuple[int, int]:
    """The least and the greatest value."""
    xp = array_namespace(values)
    return int(xp.min(values)), int(xp.max(values))


def group_order(codes: Array, groups: int, start: Array) -> Array:
    """The order of events by group, then start: two stable sorts, or one of a single group."""
    xp = array_namespace(codes)
    order = xp.argsort(start, stable=True)
    if groups == 1:
        return order
    return xp.take(order, xp.argsort(xp.take(codes, order), stable=True))


def first_rows(codes: Array, groups: int) -> Array:
    """The first event of each group; every group has one.

    Examples:
        >>> import numpy as np
        >>> first_rows(np.array([1, 0, 1, 0]), 2)
        array([1, 0])
    """
    xp = array_namespace(codes)
    order = xp.argsort(codes, stable=True)
    return xp.take(order, xp.searchsorted(xp.take(codes, order), xp.arange(groups, dtype=codes.dtype)))


def take(values: Array, indices: Array) -> Array:
    """The values at these indices."""
    return array_namespace(values).take(values, indices)


def partition(codes: Array, groups: int, arrays: Sequence[Array]) -> tuple[Array, Array, list[Array]]:
    """Events ordered by group, then start; the bounds of the groups are on the host."""
    bounds = group_bounds(codes, groups)
    if not is_ordered(codes, arrays[0]):
        order = group_order(codes, groups, arrays[0])
        codes, arrays = group_codes(bounds), [take(values, order) for values in arrays]
    return codes, to_device(bounds, "cpu"), list(arrays)
