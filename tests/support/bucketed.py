"""Joins whose long lifetimes Spark cuts into buckets of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import gpu_ops as g
from gpu_ops.engines.spark.bucketed import bucketed
from gpu_ops.engines.spark.compiling import Compiler
from gpu_ops.plan.joins import How, Join

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


HOWS: tuple[How, ...] = get_args(How)


def joined(stream: g.Stream) -> Join:
    node = stream._node
    assert isinstance(node, Join)
    return node


def in_buckets(stream: g.Stream, bucket: int | None) -> DataFrame:
    node = joined(stream)
    inputs = Compiler(node, "cpu")
    return bucketed(node, inputs.frame(node.left), inputs.frame(node.right), bucket)
