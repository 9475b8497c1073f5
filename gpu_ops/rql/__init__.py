"""StreamCruncher's language: queries that run in cycles over partitions of streams."""

from __future__ import annotations

from gpu_ops.rql.parsing import parse

__all__ = ["parse"]
