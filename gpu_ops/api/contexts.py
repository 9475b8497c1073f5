"""Instances that start and end by arrivals and the clock, by verbs: `ArrivalStream.until` makes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw

from gpu_ops.core.turns import CLOCK, INSTANCE, NEW, ORDER, PLACE, ROW
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.arrivals import delivered
from gpu_ops.plan.clock_windows import ClockSpan
from gpu_ops.plan.combinations import Combinable
from gpu_ops.plan.contexts import InstanceAsks, Instances, OfInstances, Within
from gpu_ops.plan.joins import named_keys
from gpu_ops.plan.lean import lean
from gpu_ops.plan.lookups import Looked, Lookup
from gpu_ops.plan.nodes import Filter, Node, Project, check_flat, extended, selected
from gpu_ops.plan.questions import aggregated_rows

NUMBER = "instance"
"""The column with the number of an instance."""


@dataclass(frozen=True)
class ArrivalContext:
    """Instances: stretches of turns, from the arrival that starts one to what ends it (Esper: context).

    `ArrivalStream.until` makes it, and `ArrivalStream.within` asks what comes within them.
    """

    _node: Instances
    _ticks: Node

    def __repr__(self) -> str:
        return f"<ArrivalContext [{', '.join(self.columns)}]>"

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the arrivals that start instances."""
        return tuple(name.removeprefix(_STARTED) for name in self._node.started.names if name.startswith(_STARTED))


_STARTED, _ENDED = "@started ", "@ended "


def instances(
    starts: Node, ticks: Node, ends: Node | None, on: Any, after: ClockSpan | None, one_per: Sequence[str] | None
) -> ArrivalContext:
    """The instances of a context; see `ArrivalStream.until`."""
    if ends is None and on is not None:
        raise PlanError("on= says which arrivals end an instance, and none do.", remedy="Give these first.")
    mine = [name for name in starts.schema.names if name not in {CLOCK, PLACE}]
    for name in one_per or ():
        check_flat(starts.schema, name, "has no instances")
    pairs = () if ends is None else named_keys(on, starts, ends)
    begun = Project(starts, (*(nw.col(name).alias(f"{_STARTED}{name}") for name in mine), *_OWN), keep=False)
    over = None
    if ends is not None:
        keys = [nw.col(other).alias(f"{_ENDED}{other}") for other in dict.fromkeys(other for _, other in pairs)]
        over = Project(ends, (*keys, *_OWN), keep=False)
    made = lean(
        Instances(
            "instances",
            ticks,
            begun,
            over,
            keys=None if one_per is None else tuple(f"{_STARTED}{name}" for name in one_per),
            on=tuple((f"{_STARTED}{one}", f"{_ENDED}{other}") for one, other in pairs),
            lasts=after,
        )
    )
    assert isinstance(made, Instances)  # noqa: S101  (it stays one)
    return ArrivalContext(made, ticks)


_OWN = (nw.col(CLOCK), nw.col(PLACE))


def within(rows: Node, context: ArrivalContext, on: Any, suffix: str) -> Node:
    """Arrivals with the instances that they are within; see `ArrivalStream.within`.

    Raises:
        ColumnError: A column is unknown, key types differ, or a name is taken.
    """
    node = context._node  # noqa: SLF001  (of the same module)
    own = rows.schema.names
    started = Project(node, tuple(nw.col(f"{_STARTED}{name}").alias(name) for name in context.columns), keep=False)
    pairs = tuple((one, f"{_STARTED}{other}") for one, other in named_keys(on, rows, started))
    if NUMBER in own:
        raise ColumnError("Within instances this column has their numbers.", column=NUMBER, remedy="Rename it first.")
    for mine, _ in pairs:
        rows = Filter(rows, ~nw.col(mine).is_null())  # null equals nothing
    found = Within(rows, node, pairs, tuple(f"{_STARTED}{name}" for name in context.columns))
    names = {name: f"{name}{suffix}" if name in own else name for name in context.columns}
    for name in names.values():
        if name in own or name == NUMBER or list(names.values()).count(name) > 1:
            raise ColumnError("Both have a column of this name.", column=name, remedy="Give another suffix=.")
    columns = [nw.col(f"{_STARTED}{name}").alias(other) for name, other in names.items()]
    made = extended(found, [nw.col(INSTANCE).alias(NUMBER), *columns])
    return selected(made, [*own, INSTANCE, NUMBER, *names.values()])


def at_ends(rows: Node, context: ArrivalContext, asked: dict[str, Combinable]) -> Node:
    """A row for each instance where it ends; see `ArrivalStream.at_ends`."""
    node, ticks = context._node, context._ticks  # noqa: SLF001  (of the same module)
    below, made, aggregates = aggregated_rows(rows, asked)
    asks = InstanceAsks(node, ticks, at_ends=True, at_asks=False)
    looked = tuple(Looked(each.aggregate, ((INSTANCE, INSTANCE),)) for each in aggregates)
    carried = tuple(f"{_STARTED}{name}" for name in context.columns)
    found = OfInstances(Lookup(below, asks, looked), node, carried, ending=True)
    columns = {NUMBER: nw.col(INSTANCE), **{name: nw.col(f"{_STARTED}{name}") for name in context.columns}, **made}
    if len(columns) < len(context.columns) + len(made) + 1:
        raise ColumnError(
            "An aggregate has the name of a column.", remedy="Give it another name.", column=next(iter(made))
        )
    shown = [value.alias(f"@column {at}") for at, value in enumerate(columns.values())]
    ready = Filter(Project(found, (*shown, nw.col(ROW), nw.col(ORDER)), keep=False), nw.col(ROW) == NEW)
    return delivered(lean(ready), ticks, {f"@column {at}": name for at, name in enumerate(columns)}, (NEW, None))
