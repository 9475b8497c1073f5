"""What events say of themselves is true: each node's results are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from gpu_ops.operators.events import TimeOrder
from gpu_ops.operators.runtime.steps import RunningNode


@contextmanager
def true_claims() -> Iterator[None]:
    """Times that are said to ascend do."""
    step = RunningNode.step

    def looked_at(node: RunningNode, leaves: Any) -> Any:
        given, cti = step(node, leaves)
        for each in (*given.events, *given.opened, *given.closed):
            if each.order is TimeOrder.ASCENDS:
                assert bool((each.start[1:] >= each.start[:-1]).all()), node.node.describe()
            if each.end_order is TimeOrder.ASCENDS:
                assert bool((each.ends[1:] >= each.ends[:-1]).all()), node.node.describe()
        return given, cti

    with mock.patch.object(RunningNode, "step", looked_at):
        yield
