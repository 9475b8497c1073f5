"""Aggregates of many kinds at once, over any windows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import gpu_ops as g


def holistic(windows: Any) -> g.Stream:
    """Aggregates that no bounded part can say."""
    made: g.Stream = windows.agg(
        kinds=g.count_distinct("v"),
        total=g.sum("v", distinct=True),
        middle=g.median("x"),
        low=g.quantile("v", 0.3, interpolation="lower"),
        often=g.mode("v"),
        last=g.nth("v", -1),
        best=g.top("v", 2),
        all=g.collect_list("v"),
        away=g.mean_absolute_deviation("x"),
        own=g.window_function(lambda table: table.num_rows, returns=pa.int64(), of="v"),
    )
    return made


def moments(windows: Any) -> g.Stream:
    """Moments, products, choices, and a combination of two."""
    made: g.Stream = windows.agg(
        lean=g.skewness("x"),
        tails=g.kurtosis("v", of="population"),
        together=g.covariance("v", "x", where=g.col("v") > 0),
        alike=g.correlation("v", g.col("v") * g.col("v")),
        steep=g.slope("x", "v"),
        paid=g.weighted_mean("v", "x"),
        times=g.product("v"),
        root=g.geometric_mean(g.col("x").abs()),
        pace=g.harmonic_mean("v"),
        some=g.any(g.col("v") > 2),
        every=g.all(g.col("v") > 2),
        begins=g.first("v", order="x"),
        ends=g.last("x"),
        least=g.arg_min("v", "x"),
        most=g.arg_max("x", "v"),
        each=(g.sum("v") + 1) / g.count(),
    )
    return made
