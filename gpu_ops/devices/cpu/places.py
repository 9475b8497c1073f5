"""Places on the CPU: those of turns and cycles are some power of two apart, and are counted where others are sorted."""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np

from gpu_ops.core.arrow_buffers import room
from gpu_ops.devices.cpu.compiling import INT, INTS, Bools, Ints, kernel, output, unsigned

_FAR = (1 << 63) - 1
"""The greatest distance in 63 bits."""

_SPARSE = 8
"""A grid has at most so many steps for each place."""


def ranks_among(values: Ints, among: Sequence[Ints]) -> tuple[Ints, int]:
    """How many distinct values of some arrays are less than each of some values, and how many there are.

    Examples:
        >>> ranks, count = ranks_among(np.array([30, 10]), [np.array([10, 20]), np.array([10, 30])])
        >>> ranks.tolist(), count
        ([2, 0], 3)
    """
    some = [each for each in (values, *among) if each.size]
    total = sum(each.size for each in some)
    if not total:
        return np.zeros(0, np.int64), 0
    origin = int(some[0][0])
    found = [_grid(each, origin) for each in some]
    least, most = min(low for low, _, _ in found), max(high for _, high, _ in found)
    apart = int(np.bitwise_or.reduce([bits for _, _, bits in found]))
    shift = (apart & -apart).bit_length() - 1 if apart else 0
    steps = ((most - least) >> shift) + 1
    if steps > _SPARSE * total or most - least > _FAR:
        distinct = np.unique(np.concatenate([values[:0], *among]))
        return np.searchsorted(distinct, values), len(distinct)
    here = np.zeros(steps, np.bool_)
    for each in among:
        _mark(each, least, shift, here)
    before, ranks = room(steps, np.int32), room(values.size, np.int64)
    return ranks, _ranked(values, least, shift, here, before, ranks)


@kernel(INTS, INT)
def _grid(values: Ints, origin: int) -> tuple[int, int, int]:
    """(the least, the greatest, the bits in which any differs from a value)."""
    least, most, apart = values[0], values[0], 0
    for at in range(values.size):
        value = values[at]
        least, most = min(least, value), max(most, value)
        apart |= value ^ origin
    return least, most, apart


@kernel(INTS, INT, INT, output(numba.types.boolean), allocates=False)
def _mark(values: Ints, least: int, shift: int, here: Bools) -> None:
    """Say which steps of a grid have a value."""
    for at in range(values.size):
        here[unsigned((values[at] - least) >> shift)] = True


@kernel(
    *(INTS, INT, INT, numba.types.Array(numba.types.boolean, 1, "C", readonly=True)),
    *(output(numba.types.int32), output(numba.types.int64)),
    allocates=False,
)
def _ranked(values: Ints, least: int, shift: int, here: Bools, before: Ints, ranks: Ints) -> int:
    """Count the steps that have a value: before each step, and with that before each of some values."""
    count = 0
    for step in range(here.size):
        before[step] = count
        count += here[step]
    for at in range(values.size):
        ranks[at] = before[unsigned((values[at] - least) >> shift)]
    return count
