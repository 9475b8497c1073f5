"""One operator for each family of nodes: whole, or not made at all; and found by both engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpu_ops.errors import PlanError
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import EachPiece, Operator
from gpu_ops.operators.runtime.families import registered
from gpu_ops.plan import advance, cycles, data_windows, fills, joins, lifetimes, nodes, unnest, windows
from gpu_ops.plan.nodes import KeyBy, Node

FAMILIES = {nodes.Unary, nodes.Expressions, joins.Binary, cycles.InCycles}
"""What several nodes have in common, and is none itself; as are classes whose names begin with an underscore."""


def every(kind: type[Node]) -> Iterator[type[Node]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("gpu_ops."):
            yield each
            yield from every(each)


def test_each_node_comes_in_or_has_an_operator() -> None:
    assert all((advance, data_windows, fills, joins, lifetimes, nodes, unnest, windows))  # they declare the nodes
    some = [each for each in set(every(Node)) - FAMILIES if not each.__name__.startswith("_")]
    lacking = [each for each in some if not each.comes_in and registered(object.__new__(each)) is None]
    assert lacking == [nodes.SparkSource]  # Spark alone runs it


def test_an_operator_that_lacks_a_part_is_not_made() -> None:
    with pytest.raises(
        PlanError, match=r"The operator Half does not say: alive, declared, restore, step, tables, waiting\."
    ):

        class Half(Operator):
            def batch(self, whole: object) -> Iterator[Events]:
                return iter(())


def test_a_node_has_one_operator() -> None:
    with pytest.raises(PlanError, match=r"KeyBy has two operators: KeyNames and Other\."):

        class Other(EachPiece, nodes=(KeyBy,)):
            def each(self, events: Events) -> Events:
                return events
