"""Spark's own plan of a DataFrame in numbers; nothing runs for it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from gpu_ops.engines.spark.bucketed import supported
from gpu_ops.engines.spark.checks import unwrapped
from gpu_ops.engines.spark.compiling import Compiler
from gpu_ops.engines.spark.slice_policy import uncut

_LINE = re.compile(r"(?P<depth>[\s:|+-]*)(?:\*\(\d+\) )?(?:Gpu)?(?P<name>\w+)(?: (?P<how>\w+))?")
_KINDS = {
    "scan": re.compile(r"\w*Scan|Range"),
    "broadcast": re.compile(r"BroadcastExchange"),
    "reused exchange": re.compile(r"Reused\w*Exchange"),
    "exchange": re.compile(r"\w*Exchange"),
    "sort": re.compile(r"Sort"),
}
"""In this order: by its name a broadcast is an exchange too."""

_SAID = ("scan", "exchange", "reused exchange", "broadcast", "sort")


def counted(plan: str) -> str:
    r"""The number of nodes of each costly kind in a plan that Spark printed.

    Examples:
        >>> plan = ["MapInArrow gpu_ops(start#1)", "+- Exchange hashpartitioning(k#2L, 4), REPARTITION_BY_COL"]
        >>> plan += ["   +- *(1) Sort [k#2L ASC]", "      +- FileScan parquet [k#2L]"]
        >>> counted("\n".join(plan))
        'scans 1 (FileScan 1), exchanges 1 (hashpartitioning 1), broadcasts 0, sorts 1'
    """
    found: dict[str, Counter[str]] = {kind: Counter() for kind in _SAID}
    for name, how in _nodes(plan):
        kind = next((kind for kind, names in _KINDS.items() if names.fullmatch(name)), None)
        if kind is not None:
            found[kind][how if kind == "exchange" else name] += 1
    said = []
    for kind, names in found.items():
        listed = ", ".join(f"{name} {count}" for name, count in sorted(names.items()))
        if kind != "reused exchange" or names:
            said.append(f"{kind}s {names.total()}" + f" ({listed})" * (kind in ("scan", "exchange") and bool(names)))
    return ", ".join(said)


def _nodes(plan: str) -> Iterator[tuple[str, str]]:
    """The name of each node and the word after it, without the nodes below a cached table."""
    cached: int | None = None
    for line in plan.splitlines():
        read = _LINE.match(line)
        if read is None:
            continue
        depth = len(read["depth"])
        if cached is not None and depth > cached:
            continue
        cached = depth if read["name"] == "InMemoryRelation" else None
        yield read["name"], read["how"] or ""


def summary(frame: DataFrame, compiler: Compiler) -> list[str]:
    """Spark's plan in numbers, and a warning for each part of it that may be needlessly costly."""
    execution: Any = frame._jdf.queryExecution()  # noqa: SLF001
    try:
        plan = execution.executedPlan().toString()
    except (PySparkException, Py4JJavaError) as error:
        # Spark computes constant parts while it plans, and raises the errors that the answer would.
        said = unwrapped(error) or str(error).partition("\n")[0]
        return [f"Spark's own plan: none, as Spark fails while it plans, and so will the answer: {said}"]
    adaptive = "; adaptive execution may share some and join tasks" * plan.startswith("AdaptiveSparkPlan")
    lines = [f"Spark's own plan: {counted(plan)}{adaptive}"]
    for node in compiler.alone:
        reason = uncut(node)
        remedy = "Give it a key (by)" + ", or say spark.gpu_ops.slices=auto." * (reason is None) + "." * bool(reason)
        lines.append(f"warning: all events of {node.explained()} go through one task. {remedy}")
    conf: Any = execution.sparkSession().sessionState().conf()
    most = conf.autoBroadcastJoinThreshold()
    for join in compiler.kernels:
        for side, each in (("left", join.left), ("right", join.right)):
            size = compiler.frame(each)._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()  # noqa: SLF001
            if int(str(size)) <= most and supported(join) is None:
                lines.append(
                    f"warning: both sides of {join.explained()} are shuffled, and the {side} one has "
                    f"{int(str(size)):,} bytes by Spark's statistics. "
                    'strategy="sql" broadcasts so little; it may take more CPU time.'
                )
    return lines
