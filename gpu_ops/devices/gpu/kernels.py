"""Kernels as functions of an array namespace (CuPy's on a GPU, NumPy's in tests): all that operators may call.

`gpu_ops.devices.kernels.Kernels` says what each does. They are built of stable sorts, searches and running sums of
integers; where something is written by index, no index occurs twice. So no result depends on which thread comes first.
"""

# ruff: noqa: F401  (operators call them by way of this module; pyproject.toml lets mypy see them here)

from __future__ import annotations

from gpu_ops.devices.gpu.axis import axis, stitch_order
from gpu_ops.devices.gpu.digits import (
    digits_decimal,
    digits_int,
    digits_limbs,
    divide_digits,
    multiply_digits,
    round_digits,
    scaled,
    sum_digits,
)
from gpu_ops.devices.gpu.grids import (
    dense_count,
    dense_slots,
    dense_sum,
    dense_totals,
    dense_zeros,
    grid_ranges,
    grid_ranges_by_start,
)
from gpu_ops.devices.gpu.joins import coverage, joined, last_started, meetings, pair_offsets, starts_within
from gpu_ops.devices.gpu.logarithms import exp_limbs, log_limbs
from gpu_ops.devices.gpu.means import mean_limbs
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
from gpu_ops.devices.gpu.ranges import (
    expand,
    keep,
    occupied,
    quotient,
    range_count,
    range_max,
    range_sum,
    running_max,
    slot_bounds,
)
from gpu_ops.devices.gpu.runs import runs_between
from gpu_ops.devices.gpu.scans import best_rows, reached, timed_batches, window_walk
from gpu_ops.devices.gpu.statistics import merged_ranges, range_kth
from gpu_ops.devices.gpu.steps import search_pairs, step_axis
