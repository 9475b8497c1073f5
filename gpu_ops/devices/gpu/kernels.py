"""Kernels as functions of an array namespace (CuPy's on a GPU, NumPy's in tests): all that operators may call.

The names, what they take and the bytes they give are those of ``devices/cpu``, where each is described. They are built
of stable sorts, searches and running sums of integers; where something is written by index, no index occurs twice. So
no result hangs on which thread comes first.
"""

from __future__ import annotations

from gpu_ops.devices.gpu.axis import axis, stitch_order
from gpu_ops.devices.gpu.grids import (
    dense_count,
    dense_slots,
    dense_sum,
    dense_totals,
    dense_zeros,
    grid_ranges,
    grid_ranges_by_start,
)
from gpu_ops.devices.gpu.joins import coverage, last_started, meetings, pair_offsets, starts_within
from gpu_ops.devices.gpu.numbers import (
    exact_limbs_decimal,
    exact_limbs_int,
    float_limbs,
    join_decimal,
    join_int,
    join_unsigned,
    limb_plan,
    order_float,
    round_limbs,
    square_limbs,
    square_limbs_int,
    unorder_float,
    variance,
)
from gpu_ops.devices.gpu.order import (
    ascends,
    extent,
    group_bounds,
    group_codes,
    group_order,
    is_ordered,
    partition,
    take,
)
from gpu_ops.devices.gpu.ranges import expand, keep, occupied, quotient, range_count, range_max, range_sum, slot_bounds
from gpu_ops.devices.gpu.steps import search_pairs, step_axis

__all__ = [
    "ascends",
    "axis",
    "coverage",
    "dense_count",
    "dense_slots",
    "dense_sum",
    "dense_totals",
    "dense_zeros",
    "exact_limbs_decimal",
    "exact_limbs_int",
    "expand",
    "extent",
    "float_limbs",
    "grid_ranges",
    "grid_ranges_by_start",
    "group_bounds",
    "group_codes",
    "group_order",
    "is_ordered",
    "join_decimal",
    "join_int",
    "join_unsigned",
    "keep",
    "last_started",
    "limb_plan",
    "meetings",
    "occupied",
    "order_float",
    "pair_offsets",
    "partition",
    "quotient",
    "range_count",
    "range_max",
    "range_sum",
    "round_limbs",
    "search_pairs",
    "slot_bounds",
    "square_limbs",
    "square_limbs_int",
    "starts_within",
    "step_axis",
    "stitch_order",
    "take",
    "unorder_float",
    "variance",
]
