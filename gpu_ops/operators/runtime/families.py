"""All operators of this package: each is declared in the module that computes it."""

from __future__ import annotations

import gpu_ops.operators.contexts.buckets
import gpu_ops.operators.contexts.in_time
import gpu_ops.operators.contexts.instances
import gpu_ops.operators.contexts.outputs
import gpu_ops.operators.contexts.timed_output
import gpu_ops.operators.contexts.within
import gpu_ops.operators.cycles.alerts
import gpu_ops.operators.cycles.content
import gpu_ops.operators.cycles.intake
import gpu_ops.operators.cycles.issued
import gpu_ops.operators.cycles.timed
import gpu_ops.operators.cycles.totals
import gpu_ops.operators.cycles.weighed
import gpu_ops.operators.cycles.window
import gpu_ops.operators.deliveries.deliveries
import gpu_ops.operators.deliveries.lookups
import gpu_ops.operators.deliveries.nested_aggregates
import gpu_ops.operators.deliveries.output_rate
import gpu_ops.operators.deliveries.per_delivery
import gpu_ops.operators.deliveries.walked
import gpu_ops.operators.deliveries.walked_joins
import gpu_ops.operators.filter_project
import gpu_ops.operators.joins.incremental
import gpu_ops.operators.joins.incremental_asof
import gpu_ops.operators.joins.incremental_stitch
import gpu_ops.operators.joins.turn_joins
import gpu_ops.operators.ledger.at_clock
import gpu_ops.operators.ledger.inserted
import gpu_ops.operators.ledger.ledger
import gpu_ops.operators.lifetimes
import gpu_ops.operators.list_methods
import gpu_ops.operators.list_picks
import gpu_ops.operators.patterns.pattern
import gpu_ops.operators.row_patterns.matches
import gpu_ops.operators.row_windows.clocked
import gpu_ops.operators.row_windows.incremental
import gpu_ops.operators.row_windows.look_back
import gpu_ops.operators.row_windows.until_tick
import gpu_ops.operators.union
import gpu_ops.operators.unnest
import gpu_ops.operators.windows.fills
import gpu_ops.operators.windows.incremental_window  # noqa: F401
from gpu_ops.operators.operator import Operator

registered = Operator.registered
