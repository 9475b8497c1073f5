"""The text of `Stream.explain`: the plan as a tree, with the engine, the key and the columns of each node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpu_ops.core.time import format_span
from gpu_ops.devices import gpu_refusal
from gpu_ops.engines.local.placing import place
from gpu_ops.plan.expression_text import for_readers
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.sameness import owned

if TYPE_CHECKING:
    from gpu_ops.engines.spark import Placement

Notes = Callable[[Node], list[str]]

_DEEPEST = 30
"""Deeper nodes are not indented further but numbered by level, so that the text of a long chain stays short."""


def explain(node: Node, device: str) -> str:
    """The plan as a tree, the answer at the top and the sources at the bottom."""
    if node.on_spark:
        from gpu_ops.engines import spark

        return explain_placed(node, spark.placement(node, device))
    chosen = place(node, device)

    def local(each: Node) -> list[str]:
        return [f"local engine, {chosen.name}: {each.held}", f"time, live: {each.time_rule}"]

    lines = [*_tree(node, local, set()), f"device {chosen.name}: {chosen.why}"]
    if chosen.name != "gpu" and device != "auto":
        lines.append(f"no GPU here: {gpu_refusal()}" if gpu_refusal() else "a GPU works here: device='gpu' takes it")
    return "\n".join(lines)


def explain_placed(node: Node, placed: Placement) -> str:
    """The text for a plan on Spark whose nodes were already placed."""
    return "\n".join([*_tree(node, placed.notes, set()), *placed.summary])


@for_readers()
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
    lasts = "" if node.duration is None else f"; every lifetime lasts {format_span(node.duration)}"
    own = [str(each) for each in owned(node)]
    return [*own, f"key: {', '.join(node.grouped) or 'none'}{lasts}", f"gives: start, end, {columns}"]
