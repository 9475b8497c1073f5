"""StreamCruncher's language: queries that run in cycles over partitions of streams."""

from __future__ import annotations

from gpu_ops.rql.parsing import parse
from gpu_ops.rql.planning.known import WindowSize
from gpu_ops.rql.query import query
from gpu_ops.rql.running import CycleResult, RunningCycles
from gpu_ops.rql.runtime import CycleRuntime as Runtime

__all__ = ["CycleResult", "RunningCycles", "Runtime", "WindowSize", "parse", "query"]
