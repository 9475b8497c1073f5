"""The order of rows: stretches of equal rows, sums and maxima of groups, sorts by several keys, and tied rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device

_MOST_SHIFT = 48

LEAST = -(1 << 63)
"""The order code of null: below those of all values."""


def run_starts(*columns: Any) -> Any:
    """bool: which rows differ from the row before them in any of some columns; the first row does."""
    return np.concatenate([np.ones_like(columns[0][:1], dtype=np.bool_), _changes(*columns)])


def run_ends(*columns: Any) -> Any:
    """bool: which rows differ from the row after them in any of some columns; the last row does."""
    return np.concatenate([_changes(*columns), np.ones_like(columns[0][:1], dtype=np.bool_)])


def distinct(values: Any, device: Device) -> Any:
    """The values without repetition, ascending."""
    if device.kernels.ascends(values):
        return values[run_starts(values)]
    grid = _grid(values, device)
    if grid is None:
        # Mostly some ascending runs, one behind the other.
        ordered = np.sort(values, kind="stable")
        return ordered[run_starts(ordered)]
    here = np.zeros_like(values, dtype=np.bool_, shape=(grid.count,))
    here[grid.numbers] = True
    return (device.kernels.keep(here) << grid.shift) + grid.least


def _changes(*columns: Any) -> Any:
    """bool: between which neighbouring rows any of some columns changes."""
    changes = columns[0][1:] != columns[0][:-1]
    for each in columns[1:]:
        changes = changes | (each[1:] != each[:-1])
    return changes


def sums_by(groups: Any, values: Any, count: int, device: Device) -> Any:
    """int64: the sum of each group's values, for groups ``0 … count - 1`` in any order."""
    groups = groups.astype(np.int64, copy=False)
    return device.kernels.range_sum(values, groups, groups + 1, count, np.arange(count, like=groups))


def greatest_by(groups: Any, values: Any, count: int, device: Device) -> Any:
    """int64: the greatest of each group's values, for groups ``0 … count - 1`` in any order."""
    groups = groups.astype(np.int64, copy=False)
    return device.kernels.range_max(values, groups, groups + 1, count, np.arange(count, like=groups))


def stable_order(keys: Sequence[Any], like: Any, device: Device) -> Any:
    """int64 order of rows by some keys, the first one before the others; rows with equal keys keep their order.

    Args:
        keys: Integers or bools; without keys the rows stay as they are.
        like: Any array with a value for each row.
        device: Where arrays live.
    """
    kernels, order = device.kernels, np.arange(len(like), like=like)
    one_group = np.zeros_like(order, dtype=np.int32)
    for key in reversed(keys):
        values = kernels.take(key, order).astype(np.int64, copy=False)
        order = kernels.take(order, kernels.group_order(one_group, 1, values))
    return order


def in_order(keys: Sequence[Any]) -> bool:
    """Whether rows are in order by some keys, the first one before the others."""
    if strictly_ascend(keys[0]):
        return True
    tied = None
    for at, key in enumerate(keys):
        before, after, is_last = key[:-1], key[1:], at + 1 == len(keys)
        if tied is None and not is_last and bool((after > before).all()):
            return True
        falls = after < before
        if bool((falls if tied is None else falls & tied).any()):
            return False
        if not is_last:
            same = after == before
            tied = same if tied is None else same & tied
    return True


def strictly_ascend(values: Any) -> bool:
    """Whether each value is greater than the one before."""
    return bool((values[1:] > values[:-1]).all())


@dataclass(frozen=True)
class _PlaceGrid:
    """Places that are a power of two apart, or several such steps, as those of turns and cycles are.

    Attributes:
        least: The least place.
        shift: The power.
        count: How many steps there are, at most some for each place.
        numbers: int64: the step of each place.
    """

    least: int
    shift: int
    count: int
    numbers: Any


def _grid(places: Any, device: Device) -> _PlaceGrid | None:
    """The grid of some places, at least one; None if they are on none, or far apart."""
    least, most = device.kernels.extent(places)
    above, shift = places - least, 0
    while shift < _MOST_SHIFT and (most - least) >> shift >= 4 * len(places):
        shift += 4
    if (most - least) >> shift >= 4 * len(places) or bool((above & ((1 << shift) - 1)).any()):
        return None
    return _PlaceGrid(least, shift, ((most - least) >> shift) + 1, above >> shift)


def order_in_places(places: Any, keys: Sequence[Any], device: Device) -> Any:
    """int64 order of rows by place, then by some keys, the first one before the others; equal rows keep their order.

    Places a power of two apart, as those of turns are, are counted, and not sorted.
    """
    if not len(places):
        return places
    kernels, grid = device.kernels, _grid(places, device)
    if grid is None:
        return stable_order([places, *keys], places, device)
    codes, count = grid.numbers.astype(np.int32), grid.count
    if len(keys) == 1:
        return kernels.group_order(codes, count, keys[0].astype(np.int64, copy=False))
    order = stable_order(keys, places, device)
    positions = np.arange(len(order), like=order)
    return kernels.take(order, kernels.group_order(kernels.take(codes, order), count, positions))


def ranks_of(frame: Any, name: str, dtype: pa.DataType, device: Device) -> tuple[Any, Any | None]:
    """(int64 order codes of a column, NaN the greatest, null the least; which are not null, None for all)."""
    if pa.types.is_floating(dtype):
        values, valid = device.columns.values(frame, name)
        codes = device.kernels.order_float(values.astype(np.float64))
    elif pa.types.is_signed_integer(dtype) and dtype.bit_width < 64:
        values, valid = device.columns.values(frame, name)
        codes = values.astype(np.int64)
    elif dtype == pa.int64() and device.columns.validity(frame, name) is None:
        # Without null, no value can be taken for one.
        codes, valid = device.columns.values(frame, name)
    else:
        codes, valid, _ = device.columns.ranks(frame, name)
    return (codes, None) if valid is None else (np.where(valid, codes, LEAST), valid)


def payload_keys(frame: Any, names: Sequence[str], schema: pa.Schema, device: Device) -> list[Any]:
    """Keys that order rows by some columns of their payload, null first; nested columns play no part."""
    keys = []
    for name in names:
        dtype = schema.field(name).type
        if name not in frame.columns or pa.types.is_nested(dtype):
            continue
        keys.append(ranks_of(frame, name, dtype, device)[0])
        if pa.types.is_floating(dtype):  # 0.0 and -0.0 are of one rank
            floats, _ = device.columns.values(frame, name)
            keys.append(floats.view(f"i{floats.itemsize}"))
    return keys


def tied_rows(code: Any, start: Any, device: Device) -> Any | None:
    """int64 indices of the rows that share group and start with another row; None if no row does.

    Args:
        code: Group of each row, ascending.
        start: int64 ticks, ascending within each group.
        device: Where arrays live.
    """
    same = (code[1:] == code[:-1]) & (start[1:] == start[:-1])
    if not bool(same.any()):
        return None
    no = np.zeros_like(same, shape=(1,))
    return device.kernels.keep(np.concatenate([same, no]) | np.concatenate([no, same]))


def row_order(
    codes: Any, start: Any, end: Any, frame: Any, schema: pa.Schema, first: Sequence[str], device: Device, *, ties: bool
) -> Any | None:
    """int64 order of rows by group, then start; of one start by some columns, then all others, null first, then end.

    It is None if the rows already stand in this order.

    Args:
        codes: int32 groups.
        start: int64 ticks.
        end: int64 ticks.
        frame: The payload.
        schema: Its types; nested columns play no part.
        first: The columns that come first.
        device: Where arrays live.
        ties: Whether rows of one start need an order.
    """
    kernels, order = device.kernels, None
    code, time = codes, start
    if not kernels.is_ordered(codes, start):  # so there are some
        order = kernels.group_order(codes, int(codes.max()) + 1, start)
        code, time = kernels.take(codes, order), kernels.take(start, order)
    places = tied_rows(code, time, device) if ties else None
    if places is None:
        return order
    rows = places if order is None else kernels.take(order, places)
    by_payload = payload_keys(
        device.columns.take(frame, rows), [*dict.fromkeys((*first, *schema.names))], schema, device
    )
    found = stable_order(
        [kernels.take(code, places), kernels.take(time, places), *by_payload, kernels.take(end, rows)], rows, device
    )
    order = np.arange(len(time), like=start) if order is None else order.copy()
    order[places] = rows[found]
    return order
