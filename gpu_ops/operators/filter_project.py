"""Filter and projection: Narwhals over the device's frame."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.checked import checked, extents
from gpu_ops.operators.cudf_expressions import steps_on
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import EachPiece
from gpu_ops.plan.integers import IntegerRanges, Known
from gpu_ops.plan.nodes import Expressions, Filter, KeyBy, Node
from gpu_ops.plan.terms import Range


class KeyNames(EachPiece, nodes=(KeyBy,)):
    """The node that names the key: it changes no event."""

    passes_open = True

    def each(self, events: Events) -> Events:
        """The events as they are."""
        return events


class FilterProject(EachPiece, nodes=(Expressions,)):
    """A chain of filters and projections, evaluated as one.

    Args:
        chain: The nodes, the first of them first.
        device: Where arrays live.
    """

    def __init__(self, chain: Sequence[Expressions], device: Device) -> None:
        super().__init__(chain[-1], device)
        self._chain = chain

    @classmethod
    def of(cls, node: Any, device: Device, apart: Collection[Node] | None = None) -> FilterProject:
        """The chain that ends in a node."""
        return cls(node.chain(apart or ()), device)

    @property
    def lowest(self) -> Node:
        """The first of the chain."""
        return self._chain[0]

    @property
    def passes_open(self) -> bool:
        """Whether nothing in the chain asks when an event ends."""
        return not any(each.ends(0) == "needed" for each in self._chain)

    def needs(self, wanted: tuple[str, ...]) -> Sequence[tuple[str, ...]]:
        """The columns that the chain needs of its input."""
        for node in reversed(self._chain):
            (wanted,) = node.needs(wanted)
        return [wanted]

    def each(self, events: Events) -> Events:
        """The events behind the chain.

        Raises:
            IntegerOverflowError: A whole number of an expression does not fit its type.
        """
        chain = self._chain
        if all(node.copies is not None for node in chain):
            return replace(events, frame=_copied(chain, events, self._device))
        return _evaluated(*_ready(chain, events, self._device), self._device)

    def answers(self, pieces: Iterator[Events], schema: pa.Schema) -> Iterator[pa.Table]:
        """The results of a batch as tables, without arrays of times in between."""
        for piece in pieces:
            events, steps = _ready(self._chain, piece, self._device)
            yield self._device.columns.answer(
                events.start, events.end, events.frame, steps_on(self._device, steps), schema
            )


_FILTERED_FIRST = range(1 << 14, 1 << 19)
"""How many rows a filter leaves fewer of before their ranges are found: of few rows they are soon found, and steps over
more rows are planned as one."""


def _copied(nodes: Sequence[Expressions], events: Events, device: Device) -> Any:
    """A frame behind nodes that only pick and rename columns, or starts: nothing is evaluated."""
    columns, frame = device.columns, events.frame
    sources = {str(name): str(name) for name in ("start", *frame.columns)}
    for node in nodes:
        picked = {name: sources[source] for name, source in (node.copies or {}).items()}
        sources = {**(sources if node.beside else {"start": "start"}), **picked}
    del sources["start"]
    kept = [name for name, source in sources.items() if name == source]
    parts = [columns.select(frame, kept)] if kept else []
    for name, source in sources.items():
        if source == "start":
            parts.append(columns.build({name: (events.start, None, nodes[-1].schema.field(name).type)}))
        elif name != source:
            parts.append(columns.rename(columns.select(frame, [source]), source, name))
    return columns.select(columns.beside(*parts), list(sources)) if parts else frame


def _evaluated(events: Events, steps: Sequence[Any], device: Device) -> Events:
    return Events(*device.columns.evaluate(events.start, events.end, events.frame, steps_on(device, steps)))


def _ready(nodes: Sequence[Expressions], events: Events, device: Device) -> tuple[Events, list[Any]]:
    """Events and the steps that remain to be evaluated over them.

    The chain is evaluated up to a node whose numbers may not fit according to the ranges of its columns: there the
    remaining rows are checked one by one. Behind a filter it often is in any case: then there are fewer
    rows whose ranges have to be found.
    """
    steps: list[Any] = []
    done = 0
    known = extents(events, device)
    guarded = max((at for at, node in enumerate(nodes) if node.guards), default=-1)
    for at, node in enumerate(nodes):
        expressions: Sequence[nw.Expr] = node.exact
        if node.guards:
            filters = any(isinstance(each, Filter) for each in nodes[done:at]) and len(events) in _FILTERED_FIRST
            if filters or (steps and any(each.may_not_fit(known) for each in node.guards.values())):
                events, steps, done = _evaluated(events, steps, device), [], at
                known = extents(events, device)
            expressions = checked(node.guards, expressions, events, device, known)
        steps.append(partial(node.evaluated, expressions=expressions))
        # Ranges are asked for by guards alone.
        if at < guarded and node.values:
            known = _behind(node, known)
    return events, steps


def _behind(node: Expressions, before: Known) -> Known:
    """The ranges of columns behind a projection, by those before it."""
    ranges = IntegerRanges(before)

    def known(name: str) -> Range | None:
        value = node.values.get(name)
        return before(name) if value is None else ranges.of(value)

    return known
