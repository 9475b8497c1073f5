"""The roads that large inputs take, for small ones: thresholds so low that a handful of rows is past them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from unittest import mock

from gpu_ops.devices.cpu import order
from gpu_ops.epl import groups
from gpu_ops.ingest import turn_numbers
from gpu_ops.operators import events
from gpu_ops.operators.aggregates import holistic, pairs
from gpu_ops.operators.contexts import instances
from gpu_ops.operators.deliveries import merged_rows
from gpu_ops.operators.joins import joins
from gpu_ops.operators.patterns import cells, chains, machine
from gpu_ops.operators.row_windows import conditions
from gpu_ops.operators.runtime import released
from gpu_ops.operators.state import integer_numbers, least, row_runs, rows
from gpu_ops.operators.windows import recomputing_window

LOWERED: list[tuple[ModuleType, dict[str, int]]] = [
    (merged_rows, {"_FEW": 1, "_SPARSE": 1}),
    (least, {"_FEW": 1}),
    (recomputing_window, {"_FEW": 1}),
    (rows, {"_CROWD": 1}),
    (row_runs, {"FEW": 0, "MANY": 0}),
    (events, {"FEW": 0, "MANY": 0}),
    (integer_numbers, {"_TABLE": 1}),
    (turn_numbers, {"_FEW": 1}),
    (order, {"_FEW": 1}),
    (holistic, {"_DENSE": 0}),
    (pairs, {"_PAIRS": 3}),
    (joins, {"PAIRS": 3}),
    (instances, {"_PAIRS": 3}),
    (machine, {"_SMALL": 1, "_ROWS": 1, "_CHAINS": 1}),
    (chains, {"_ROWS": 1}),
    (cells, {"_FEW": 1}),
    (released, {"FEW": 1, "MANY": 1}),
    (conditions, {"_FEWEST_ROWS": 1}),
    (groups, {"_SPARSE": 1}),
]
"""Module-wide thresholds that Python reads when it runs; those within compiled kernels stay."""


@contextmanager
def large_roads() -> Iterator[None]:
    """Each step does as if it were of very many rows, groups and pairs."""
    with ExitStack() as lowered:
        for module, thresholds in LOWERED:
            for name, value in thresholds.items():
                assert isinstance(getattr(module, name), int)
                lowered.enter_context(mock.patch.object(module, name, value))
        yield
