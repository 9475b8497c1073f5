"""Windows: over which stretches of time events are put together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.calendars import Calendar
from gpu_ops.plan.expressions import LIFETIME, as_expression, bare_column
from gpu_ops.plan.nodes import Node, Project, Unary
from gpu_ops.time import MIN_TIME, TICK, format_span, format_time


@dataclass(frozen=True)
class Snapshot:
    """The stretches between neighbouring end points of lifetimes; none where no event is alive (StreamInsight)."""

    def __str__(self) -> str:
        return "snapshot"


WindowOutput = Literal["window", "point", "hop"]
Membership = Literal["overlap", "start"]


@dataclass(frozen=True)
class Hopping:
    """Windows on a grid; tumbling windows are those whose hop is their size.

    With ``membership="overlap"`` (StreamInsight) window k is ``[align + k * hop, + size)`` and holds every event that
    overlaps it. With ``membership="start"`` (Trill's repetitive hopping window) the grid point ``T = align + k * hop``
    holds every event that starts in ``(T - size, T]``.

    ``output`` gives the result's lifetime: ``"window"`` the window itself, ``"point"`` one tick at its end,
    ``"hop"`` the hop that begins at the grid point T (for ``membership="start"``).
    ``until`` clips every lifetime, which bounds the windows of events that never end.
    """

    size: int
    hop: int
    align: int = MIN_TIME
    membership: Membership = "overlap"
    output: WindowOutput = "window"
    until: int | None = None

    def __str__(self) -> str:
        kind = "tumbling" if self.hop == self.size else "hopping"
        every = "" if self.hop == self.size else f" every={format_span(self.hop)}"
        align = "" if self.align == MIN_TIME else f" align={format_time(self.align)}"
        until = "" if self.until is None else f" until={format_time(self.until)}"
        rest = ("" if self.membership == "overlap" else " membership=start") + (
            "" if self.output == "window" else f" output={self.output}"
        )
        return f"{kind} size={format_span(self.size)}{every}{align}{until}{rest}"

    @property
    def lifetime(self) -> tuple[int, int]:
        """A result's start and end, in ticks after its grid point ``align + k * hop``."""
        ends = self.size if self.membership == "overlap" else 0
        if self.output == "point":
            return ends, ends + TICK
        if self.output == "hop":
            return 0, self.hop
        return ends - self.size, ends


Grid = Hopping | Calendar
"""Windows that are there whatever the events are, numbered from the oldest on."""

Window = Snapshot | Grid


@dataclass(frozen=True, eq=False)
class WindowAggregate(Unary):
    """Aggregates over each window, for each group by itself. Its key is spent: the result is not grouped."""

    window: Window
    aggregates: tuple[Aggregate, ...]

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise PlanError("agg takes at least one aggregate.", remedy="Write .agg(n=g.count()).")
        seen = set(self.input.key)
        for aggregate in self.aggregates:
            if aggregate.name in seen or aggregate.name in LIFETIME:
                raise ColumnError(
                    "The result would have two columns of one name.",
                    column=aggregate.name,
                    remedy="Give the aggregate another name.",
                )
            seen.add(aggregate.name)
        _ = self.schema

    @cached_property
    def _schema(self) -> pa.Schema:
        before = self.input.schema
        fields = [before.field(name) for name in self.input.key]
        return pa.schema([*fields, *(aggregate.field(before) for aggregate in self.aggregates)])

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    @property
    def key(self) -> tuple[str, ...]:
        return ()

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that group the events that come in."""
        return self.input.key

    @property
    def duration(self) -> int | None:
        if isinstance(self.window, Hopping):
            start, end = self.window.lifetime
            return end - start
        if isinstance(self.window, Calendar) and self.window.output == "point":
            return TICK
        return None

    @property
    def stateless(self) -> bool:
        return False

    def describe(self) -> str:
        aggregates = ", ".join(str(aggregate) for aggregate in self.aggregates)
        return f"Window {self.window} agg {aggregates}"

    def lowered(self) -> WindowAggregate:
        """The same node over plain columns: every aggregate's input and filter computed by a projection before it.

        What is left needs no expressions, so it can be shipped as it is, and no column that it does not need.
        """
        inputs: dict[str, nw.Expr] = {name: nw.col(name) for name in self.group}

        def column(expression: nw.Expr) -> str:
            bare = bare_column(expression)
            name = bare or f"__{len(inputs)}"
            inputs.setdefault(name, nw.col(name) if bare else expression.alias(name))
            return name

        lowered = [aggregate.over(column) for aggregate in self.aggregates]
        if not inputs:
            return self
        project: Node = Project(self.input, tuple(inputs.values()), keep=False)
        return replace(self, input=project, aggregates=tuple(lowered))


def named_aggregates(named: dict[str, object]) -> tuple[Aggregate, ...]:
    """The aggregates of ``agg(name=aggregate, …)``.

    Raises:
        PlanError: One of them is not an aggregate of gpu_ops.
    """
    result = []
    for name, aggregate in named.items():
        if not isinstance(aggregate, Aggregate):
            raise PlanError(
                f"agg({name}=…) takes an aggregate of gpu_ops, not {type(aggregate).__name__}.",
                remedy='Write for instance g.sum("price"), not g.col("price").sum().',
            )
        result.append(replace(aggregate, name=name))
    return tuple(result)


__all__ = ["Calendar", "Grid", "Hopping", "Snapshot", "Window", "WindowAggregate", "as_expression", "named_aggregates"]
