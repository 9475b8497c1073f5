"""Kernels as functions of an array namespace (CuPy's on a GPU, NumPy's in tests): all that operators may call.

`gpu_ops.devices.kernels.Kernels` says what each does. They are built of stable sorts, searches and running sums of
integers; where something is written by index, no index occurs twice. So no result depends on which thread comes first.
"""

# ruff: noqa: F401  (operators call them by way of this module; pyproject.toml lets mypy see them here)

from __future__ import annotations

from gpu_ops.devices.array.axis import axis, stitch_order
from gpu_ops.devices.array.digits import (
    digits_decimal,
    digits_int,
    digits_limbs,
    divide_digits,
    multiply_digits,
    round_digits,
    sum_digits,
)
from gpu_ops.devices.array.grids import (
    dense_count,
    dense_places,
    dense_slots,
    dense_sum,
    dense_totals,
    dense_zeros,
    grid_ranges,
    grid_ranges_by_start,
)
from gpu_ops.devices.array.holding import count_holding, pairs_holding
from gpu_ops.devices.array.joins import (
    coverage,
    joined,
    last_by_place,
    last_started,
    meetings,
    meetings_in_order,
    pair_offsets,
    starts_within,
)
from gpu_ops.devices.array.logarithms import exp_limbs, log_limbs
from gpu_ops.devices.array.means import mean_limbs
from gpu_ops.devices.array.numbers import (
    exact_limbs_decimal,
    exact_limbs_int,
    float_limbs,
    join_decimal,
    join_int,
    join_unsigned,
    limb_plan,
    order_float,
    round_limbs,
    scaled,
    square_limbs,
    square_limbs_int,
    unorder_float,
    variance,
)
from gpu_ops.devices.array.order import (
    ascends,
    extent,
    group_bounds,
    group_codes,
    group_order,
    is_ordered,
    partition,
    take,
)
from gpu_ops.devices.array.ranges import (
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
from gpu_ops.devices.array.runs import runs_between
from gpu_ops.devices.array.scans import best_rows, clocked_batches, least_rows, reached, timed_batches, window_walk
from gpu_ops.devices.array.statistics import merged_ranges, range_kth
from gpu_ops.devices.array.steps import moment_places, search_pairs, step_axis
from gpu_ops.devices.array.turns import (
    clocks_at,
    due_places,
    edge_counts,
    merged_order,
    merged_rows,
    met_stretches,
    numbered_turns,
    output_rows,
    pairs_in_turn,
    ranks_among,
    row_sums,
    touched_rows,
    turn_rows,
    walked_totals,
)
