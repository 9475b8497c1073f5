"""Kernels on the CPU, by Numba: all that operators may call, from the modules beside this one.

`gpu_ops.devices.kernels.Kernels` says what each kernel does; the functions themselves add examples and what holds on
the CPU alone. Where NumPy is as fast as compiled loops, the CPU uses the GPU's function.
"""

# ruff: noqa: F401  (operators call them by way of this module; pyproject.toml lets mypy see them here)

from __future__ import annotations

import ctypes
from contextlib import suppress

import numpy as np

from gpu_ops.core.arrow_buffers import HEAP, KEPT
from gpu_ops.devices.array.digits import (
    digits_decimal,
    digits_int,
    digits_limbs,
    divide_digits,
    multiply_digits,
    round_digits,
    sum_digits,
)
from gpu_ops.devices.array.grids import dense_zeros
from gpu_ops.devices.array.logarithms import exp_limbs, log_limbs
from gpu_ops.devices.array.numbers import (
    exact_limbs_decimal,
    exact_limbs_int,
    join_decimal,
    join_int,
    join_unsigned,
    order_float,
    scaled,
    square_limbs_int,
    unorder_float,
)
from gpu_ops.devices.cpu.axis import axis, stitch_order
from gpu_ops.devices.cpu.grids import (
    dense_count,
    dense_places,
    dense_slots,
    dense_sum,
    dense_totals,
    grid_ranges,
    grid_ranges_by_start,
)
from gpu_ops.devices.cpu.holding import count_holding, pairs_holding
from gpu_ops.devices.cpu.joins import (
    coverage,
    joined,
    last_by_place,
    last_started,
    meetings,
    meetings_in_order,
    pair_offsets,
    starts_within,
)
from gpu_ops.devices.cpu.means import mean_limbs
from gpu_ops.devices.cpu.numbers import float_limbs, limb_plan, round_limbs, square_limbs, variance
from gpu_ops.devices.cpu.order import (
    ascends,
    extent,
    group_bounds,
    group_codes,
    group_order,
    is_ordered,
    partition,
    take,
)
from gpu_ops.devices.cpu.places import ranks_among
from gpu_ops.devices.cpu.ranges import (
    expand,
    keep,
    occupied,
    occurring,
    quotient,
    range_count,
    range_max,
    range_sum,
    running_max,
    slot_bounds,
)
from gpu_ops.devices.cpu.runs import runs_between
from gpu_ops.devices.cpu.scans import best_rows, clocked_batches, least_rows, reached, timed_batches, window_walk
from gpu_ops.devices.cpu.statistics import merged_ranges, range_kth
from gpu_ops.devices.cpu.steps import moment_places, search_pairs, step_axis
from gpu_ops.devices.cpu.turns import (
    clocks_at,
    due_places,
    edge_counts,
    merged_order,
    merged_rows,
    met_stretches,
    numbered_turns,
    output_rows,
    pairs_in_turn,
    row_sums,
    touched_rows,
    turn_rows,
    walked_totals,
)

_M_TRIM_THRESHOLD = -1


def _keep_freed_memory() -> None:
    """Have glibc keep memory that was freed for the next arrays, at most `KEPT` at the end of the heap.

    It returns such memory to the system at once, so each block of events would fault its arrays in again: that took
    half the time of a snapshot on one thread, and more on two. It has the heap give memory for sizes up to the largest
    allocation that was ever freed (at most 32 MiB): this one is freed at once, untouched. Then it keeps twice as much,
    which is less than a step of a join over 250,000 events needs: faults were two fifths of its time.
    """
    np.empty(HEAP, np.uint8)
    with suppress(AttributeError, OSError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, KEPT)


_keep_freed_memory()
