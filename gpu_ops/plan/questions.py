"""Questions of deliveries: what is asked of rows in windows on turns, and the nodes that answer it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import LIFETIME
from gpu_ops.core.turns import EMPTY, MARK, NEW, OLD, ORDER, PLACE, ROW
from gpu_ops.errors import PlanError
from gpu_ops.plan.aggregate_kinds import Aggregate
from gpu_ops.plan.arrivals import delivered
from gpu_ops.plan.combinations import Combinable, Combination, hangs_on_bounds
from gpu_ops.plan.contexts import OfInstances
from gpu_ops.plan.deliveries import Delivered, Deliveries
from gpu_ops.plan.expressions import bare_column, column_names
from gpu_ops.plan.lean import lean
from gpu_ops.plan.nodes import Filter, Node, Project, extended, selected
from gpu_ops.plan.ordered_aggregates import END, START
from gpu_ops.plan.per_delivery import PerDelivery, RowKey
from gpu_ops.plan.rates import AtTimes, EveryPeriod, EveryRows, Kind, OutputRate, Rate
from gpu_ops.plan.windows import Snapshot, counted_within

Shown = Literal["new", "old", "both"]
"""The insert stream, the remove stream, or both."""

Which = Literal["", "all", "last", "first", "snapshot"]
"""Which rows an output has: all of them, as they came, and what `gpu_ops.plan.rates.OutputRate` says of the words."""

_PASSES = "@passes"


@dataclass(frozen=True)
class Question:
    """What is asked of rows in a window.

    Attributes:
        rows: The rows, on turns.
        ticks: The ticks.
        columns: The columns of the answer by their names, over the columns of rows, keys, and aggregates.
        by: The columns of groups.
        aggregates: The aggregates, over plain columns; each names its column.
        reads_rows: Whether a column of the answer reads others than keys and aggregates.
        having: A condition on the columns of the answer; None for none.
        shown: Which rows there are.
        distinct: Whether equal rows of a delivery are one.
        order: Columns of the answer by which a delivery is ordered.
        limit: How many rows of a delivery there are at most; None for all.
        offset: How many are left out before them.
        in_batches: Whether rows enter together.
        rate: When there is output; None for at once.
        which: Which rows it has.
        instances: The points of the instances that rows are within; None if they are within none.
    """

    rows: Node
    ticks: Node
    columns: dict[str, nw.Expr]
    by: tuple[str, ...] = ()
    aggregates: tuple[Delivered, ...] = ()
    reads_rows: bool = True
    having: nw.Expr | None = None
    shown: Shown = "new"
    distinct: bool = False
    order: tuple[RowKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    in_batches: bool = False
    rate: Rate | None = None
    which: Which = ""
    instances: Node | None = None

    @property
    def kind(self) -> Kind:
        """Which of Esper's kinds of queries it is."""
        if self.by:
            return "aggregated and grouped" if self.reads_rows else "row per group"
        if not self.aggregates:
            return "un-aggregated"
        return "row per event" if self.reads_rows else "row for all"

    @property
    def by_group(self) -> bool:
        """Whether a delivery has a row for each group, and not for each row that enters or leaves."""
        return self.kind in {"row for all", "row per group"}

    @property
    def node(self) -> Node:
        """The nodes that answer it: events with ``turn``, ``row`` and the columns.

        Raises:
            ColumnError: Two columns have one name, or one is not what it must be.
            PlanError: A condition is none, or gpu_ops does not have what is asked.
        """
        return delivered(
            lean(self._arranged(self._given())),
            self.ticks,
            {f"@column {at}": name for at, name in enumerate(self.columns)},
            {"new": (NEW, None), "old": (OLD, None), "both": (NEW, OLD)}[self.shown],
        )

    def _given(self) -> Node:
        """The rows that are delivered, before their columns."""
        rate, kind = self.rate, self.kind
        is_snapshot = rate is not None and self.which == "snapshot"
        if is_snapshot and self.in_batches:
            raise PlanError("A window of batches has no snapshots.", remedy='Output "all" or "last" rows.')
        if rate is not None and self.which == "first" and self.aggregates and _waits(rate):
            raise PlanError("First rows of aggregates are output from the beginning.", remedy="Leave after= out.")
        touched = rate is not None and self._outputs_touched(rate)
        limited = rate is not None and not is_snapshot and not touched
        keys = None if self.by_group else self.by
        node: Node = Deliveries(
            self.rows,
            self.ticks,
            "group" if self.by_group else "row",
            (self.by,) if self.by_group else ((),),
            tuple(replace(each, keys=keys) for each in self.aggregates),
            new=True,
            old=limited or self.shown != "new",
            marks=limited,
            snapshot=rate if is_snapshot or touched else None,
            touched=touched,
        )
        if self.instances is not None:
            if rate is not None:
                raise PlanError("There are no output rates within instances.", remedy="Ask at_ends(…) for their ends.")
            node = OfInstances(node, self.instances)
        if self.having is not None:
            node = self._judged(node, self.having, None if limited else {*self._read_of(node), ROW, ORDER})
        if limited and rate is not None:
            is_row = nw.col(_PASSES) if self.having is not None else ~nw.col(ROW).is_in([MARK, EMPTY])
            node = extended(node, [is_row.fill_null(False).alias(_PASSES)])
            takes_values = kind == "aggregated and grouped" and self.which == "all"
            return OutputRate(
                node,
                self.ticks,
                rate,
                self.which,  # type: ignore[arg-type]
                kind,
                self.by,
                tuple(each.aggregate.name for each in self.aggregates) if takes_values else (),
                {"new": (NEW,), "old": (OLD,), "both": (NEW, OLD)}[self.shown],
                _PASSES,
                waits=bool(self.order) and (self.which, kind) != ("last", "un-aggregated"),
                judged=self.having is not None,
            )
        if self.having is not None:
            node = Filter(node, nw.col(ROW).is_in([MARK, EMPTY]) | nw.col(_PASSES))
        return node

    def _outputs_touched(self, rate: Rate) -> bool:
        """Whether an output of groups is their values then: a row for each that was touched since the last one."""
        if self.which != "last" or self.kind != "row per group" or self.having is not None or self.in_batches:
            return False
        return isinstance(rate.every, EveryRows | EveryPeriod | AtTimes)

    def _read_of(self, node: Node) -> list[str]:
        """The columns of rows that the answer reads."""
        known = node.schema.names
        return [name for each in self.columns.values() for name in column_names(each, known)]

    def _judged(self, node: Node, condition: nw.Expr, kept: Container[str] | None) -> Node:
        """Rows with a column that says for which a condition on the answer holds.

        Args:
            node: The rows.
            condition: The condition.
            kept: Which of their other columns are read later; None for all.
        """
        names = [name for name in node.schema.names if kept is None or name in kept]
        aside = {name: f"@beside {at}" for at, name in enumerate(names)}
        answer = [value.alias(name) for name, value in self.columns.items()]
        beside = Project(node, (*answer, *(nw.col(name).alias(other) for name, other in aside.items())), keep=False)
        judged = extended(beside, [condition.alias(_PASSES)])
        back = (nw.col(other).alias(name) for name, other in aside.items())
        return Project(judged, (*back, nw.col(_PASSES)), keep=False)

    def _arranged(self, node: Node) -> Node:
        """The columns of the answer, each delivery in its order."""
        own = {name: f"@column {at}" for at, name in enumerate(self.columns)}
        columns = [value.alias(own[name]) for name, value in self.columns.items()]
        node = Project(node, (*columns, nw.col(ROW), nw.col(ORDER)), keep=False)
        if self.order or self.distinct or self.limit is not None or self.offset:
            keys = tuple(replace(each, column=own[each.column]) for each in self.order)
            empties = self.rate is not None and self.which != "first" and self.rate.posts_empty
            node = PerDelivery(
                node,
                keys,
                tuple(own.values()) if self.distinct else None,
                self.limit,
                self.offset,
                leaves_empty=empties,
            )
        return selected(node, [*own.values(), ROW, ORDER])


def _waits(rate: Rate) -> bool:
    return rate.after is not None or rate.after_rows is not None


def refuse_lifetimes(expression: nw.Expr) -> None:
    """Refuse an expression that reads when an event starts or ends.

    Raises:
        PlanError: It does.
    """
    if column_names(expression, LIFETIME):
        raise PlanError(
            "What happens at an arrival reads no lifetimes.",
            remedy='Copy the time before: g.arrivals(stream.with_columns(at=g.col("start"))).',
        )


def aggregated_rows(
    rows: Node, asked: Mapping[str, Combinable]
) -> tuple[Node, dict[str, nw.Expr], tuple[Delivered, ...]]:
    """Aggregates over plain columns of rows.

    Args:
        rows: Rows on turns.
        asked: Aggregates and combinations of them, by the names of their results.

    Returns:
        (the rows with the columns that aggregates read, what each result is made of, the aggregates).

    Raises:
        ColumnError: A column is unknown, or an aggregate does not take its type.
        PlanError: An aggregate reads lifetimes.
    """
    parts: list[Aggregate] = []
    found: dict[str, tuple[Combinable, int]] = {}
    for name, given in asked.items():
        each = given.within(Snapshot())
        if hangs_on_bounds(each, Snapshot()):
            raise PlanError(f"{name}=… depends on how long a window lasts.", remedy="Leave it out of deliveries.")
        found[name] = each, len(parts)
        some = each.parts() if isinstance(each, Combination) else [each]
        parts += [part for part in some if isinstance(part, Aggregate)]
    inputs: dict[int | str, nw.Expr] = {}

    def column(expression: nw.Expr) -> str:
        bare = bare_column(expression)
        if bare == "start" or expression is START or expression is END:
            return PLACE  # what starts first has come first
        refuse_lifetimes(expression)
        if bare is not None:
            return bare
        name = f"@read {len(inputs)}"
        return str(inputs.setdefault(id(expression), expression.alias(name))._nodes[-1].kwargs["name"])  # noqa: SLF001

    plain = [
        replace(each.over(column), name=f"@value {at}") for at, each in enumerate(counted_within(parts, rows.schema))
    ]
    below = extended(rows, inputs.values())
    schema = pa.schema([each.field(below.schema) for each in plain])
    made = {}
    for name, (each, at) in found.items():
        own = [part.name for part in plain[at : at + (len(each.parts()) if isinstance(each, Combination) else 1)]]
        made[name] = each.result(own, schema) if isinstance(each, Combination) else _shown_value(plain[at])
    return below, made, tuple(Delivered(each) for each in plain)


def _shown_value(aggregate: Aggregate) -> nw.Expr:
    """A count of nothing is 0."""
    value = nw.col(aggregate.name)
    return value.fill_null(0) if aggregate.kind.name in {"count", "count_distinct"} else value
