"""Union: the events of several streams, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gpu_ops.devices import Device
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import BatchInput, Operator, Stateless, StepInput
from gpu_ops.plan.joins import Union
from gpu_ops.plan.nodes import Node


class UnionOperator(Stateless, nodes=(Union,)):
    """All events of several inputs.

    In a batch nested unions are one operator, so that pieces pass once. In steps each union is its own operator:
    checkpoints name the nodes of a plan by their places.

    Args:
        parts: The inputs.
        node: The node.
        device: Where arrays live.
    """

    _node: Union

    def __init__(self, parts: Sequence[Node], node: Union, device: Device) -> None:
        super().__init__(node, device)
        self._parts = tuple(parts)

    @classmethod
    def of(cls, node: Any, device: Device, apart: Collection[Node] | None = None) -> Operator:
        """The operator of a union, and in a batch of those below it that no other node reads."""
        parts, left = list[Node](), [node]
        while left:
            each = left.pop()
            if each is node or (apart is not None and isinstance(each, Union) and each not in apart):
                left.extend(reversed(each.inputs))
            else:
                parts.append(each)
        return cls(parts, node, device)

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs."""
        return self._parts

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The wanted columns of each input, at least one: a frame without columns has no height."""
        return [wanted or tuple(self._node.schema.names[:1])] * len(self._parts)

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """Piece by piece, one input after the other."""
        names = list(self.needs(whole.wanted)[0])
        for pieces in whole.inputs:
            for events in pieces:
                yield replace(events, frame=self._device.columns.select(events.frame, names))

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """All events of the step; the oldest CTI."""
        names = self._node.schema.names

        def every(parts: Iterable[Sequence[Events]]) -> list[Events]:
            """Events with their ends as arrays, as state keeps them."""
            return [
                Events(each.start, each.ends, self._device.columns.select(each.frame, names))
                for part in parts
                for each in part
            ]

        parts = ((fed.events, fed.opened, fed.closed) for fed in given)
        return StepInput(*map(every, zip(*parts, strict=True))), min(ctis)
