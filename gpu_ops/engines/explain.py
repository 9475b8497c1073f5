"""What `Stream.explain` prints: the plan as a tree, and per node where it runs, its key, and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu_ops.devices import gpu_refusal
from gpu_ops.engines.placing import place
from gpu_ops.plan.advance import AdvanceTime, Late
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.joins import Binary, Join, Union
from gpu_ops.plan.lifetimes import Stitch
from gpu_ops.plan.nodes import Filter, KeyBy, Node, Project, Source
from gpu_ops.plan.sameness import owned
from gpu_ops.plan.time_rules import time_rule
from gpu_ops.plan.windows import WindowAggregate
from gpu_ops.time import format_span

if TYPE_CHECKING:
    from gpu_ops.engines.spark import Placement

Notes = Callable[[Node], list[str]]

_DEEPEST = 30
"""From this level on nodes stand one below the other, with their levels: the text of a long chain grows as it does."""


def explain(node: Node, device: str) -> str:
    """The plan as a tree, the answer at the top and the sources at the bottom."""
    if node.on_spark:
        from gpu_ops.engines import spark

        return explain_placed(node, spark.placement(node, device))
    chosen = place(node, device)

    def local(each: Node) -> list[str]:
        return [f"local engine, {chosen.name}: {_local_place(each)}", f"time, live: {time_rule(each)}"]

    lines = [*_tree(node, local, set()), f"device {chosen.name}: {chosen.why}"]
    if chosen.name != "gpu" and device != "auto":
        lines.append(f"no GPU here: {gpu_refusal()}" if gpu_refusal() else "a GPU works here: device='gpu' takes it")
    return "\n".join(lines)


def explain_placed(node: Node, placed: Placement) -> str:
    """What `explain` says of a plan on Spark, where it is known already what runs where."""
    return "\n".join([*_tree(node, placed.notes, set()), *placed.summary])


def _tree(node: Node, notes: Notes, shown: set[Node]) -> list[str]:
    lines: list[str] = []
    waiting = [(node, "", "", 1)]
    while waiting:
        node, head, tail, level = waiting.pop()
        inputs = node.inputs
        if inputs and node in shown:
            lines.append(f"{head}{node.describe()} (as above: one stream in several places)")
            continue
        shown.add(node)
        stem = tail + ("│   " if inputs else "    ")
        lines += [head + node.describe(), *(stem + line for line in (*notes(node), *_facts(node)))]
        if level >= _DEEPEST:
            waiting += [(each, f"{tail}(level {level}) ", tail, level + 1) for each in reversed(inputs)]
            continue
        below = [(each, f"{tail}├─ ", f"{tail}│  ", level + 1) for each in inputs[:-1]]
        below += [(each, f"{tail}└─ ", f"{tail}   ", level + 1) for each in inputs[-1:]]
        waiting += reversed(below)
    return lines


def _facts(node: Node) -> list[str]:
    columns = ", ".join(f"{field.name}: {field.type}" for field in node.schema)
    group = node.group if isinstance(node, WindowAggregate | DataWindow) else node.key
    lasts = "" if node.duration is None else f"; every lifetime lasts {format_span(node.duration)}"
    own = [str(each) for each in owned(node)]
    return [*own, f"key: {', '.join(group) or 'none'}{lasts}", f"gives: start, end, {columns}"]


def _local_place(node: Node) -> str:
    if isinstance(node, Source):
        return "read in batches" if node.source.rows is None else "in memory, not copied"
    if isinstance(node, AdvanceTime | Late):
        return "rows judged one after the other as they come, on the host"
    if isinstance(node, Filter | Project):
        return "expressions, batch by batch"
    if isinstance(node, KeyBy):
        return "names the key, moves nothing"
    if isinstance(node, WindowAggregate):
        return "all events it needs of its input are held in memory; kernels run over blocks of whole groups"
    if isinstance(node, DataWindow) and node.window.on_host:
        return "all events of its input are held in memory, and taken one by one, on the host"
    if isinstance(node, DataWindow | Stitch):
        return "all events of its input are held in memory"
    if isinstance(node, Join):
        return "both inputs in memory, in order of key and start; pairs in pieces, as they are asked for"
    if isinstance(node, Binary):
        return "both inputs in memory, in order of key and start"
    if isinstance(node, Union):
        return "one input after the other, batch by batch"
    return "lifetimes, batch by batch"
