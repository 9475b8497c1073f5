"""A text's statements as one node, where they change what others read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import CLOCK, ORDER, PLACE, ROW
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.splits import Split, one_order


@dataclass(frozen=True, eq=False)
class EmbeddedStatements(Node):
    """What the last statement of a text delivers, where all of its statements are told some arrivals.

    Attributes:
        arrivals: The arrivals of each type.
        ticks: The ticks.
        called: What these types are called.
        text: The statements.
        since: What the clock shows when they begin, in ticks.
        irstream: Whether a statement that says nothing of it gives old rows too.
        columns: What the last one's columns are called, and their types.
    """

    arrivals: tuple[Node, ...]
    ticks: Node
    called: tuple[str, ...]
    text: str
    since: int
    irstream: bool
    columns: pa.Schema

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (*self.arrivals, self.ticks)

    def over(self, *inputs: Node) -> Node:
        return replace(self, arrivals=inputs[:-1], ticks=inputs[-1])

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [each.with_name(f"@column {at}") for at, each in enumerate(self.columns)]
        return pa.schema([*fields, (ROW, pa.int8()), (ORDER, pa.int64())])

    @cached_property
    def types(self) -> dict[str, pa.Schema]:
        """The properties of each type."""
        return {name: properties(each.schema) for name, each in zip(self.called, self.arrivals, strict=True)}

    duration: ClassVar[int | None] = TICK
    stateless = False
    gathers = True
    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        del below
        remedy = "Collect the frames first: epl.query(text, Order=frame.toArrow(), …)."
        raise one_order("A text with a named window, a table or a variable that is set", remedy)

    time_rule = "CTI T leaves as T"
    held = "what a runtime of these statements holds"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        del wanted
        return [tuple(each.schema.names) for each in self.inputs]

    def describe(self) -> str:
        return f"EmbeddedStatements {' '.join(self.text.split())}"


def properties(arrivals: pa.Schema) -> pa.Schema:
    """The properties of a type, by the columns of its arrivals."""
    return pa.schema([each for each in arrivals if each.name not in {CLOCK, PLACE}])
