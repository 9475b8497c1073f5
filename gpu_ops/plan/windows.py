"""Windows over stretches of time, and the aggregates over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import LIFETIME
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.combinations import Combinable, Combination
from gpu_ops.plan.expressions import bare_column, column_names, guards, output_schema
from gpu_ops.plan.nodes import Computed, Ends, Node, Project, Unary
from gpu_ops.plan.window_kinds import TimeWindowKind


@dataclass(frozen=True)
class Snapshot(TimeWindowKind):
    """The stretches between neighbouring end points of lifetimes with a live event (StreamInsight)."""

    grid = None
    duration = None
    time_rule = "CTI T leaves as T, or as the start of the oldest snapshot that does not end by T"

    def __str__(self) -> str:
        return "snapshot"


@dataclass(frozen=True, eq=False)
class WindowAggregate(Unary):
    """Aggregates over each window of each group. The result is not grouped."""

    window: TimeWindowKind
    aggregates: tuple[Aggregate, ...]

    def __post_init__(self) -> None:
        if not self.aggregates:
            raise PlanError("agg takes at least one aggregate.", remedy="Write .agg(n=g.count()).")
        check_names([aggregate.name for aggregate in self.aggregates], self.input.key)
        _ = self.schema

    @cached_property
    def schema(self) -> pa.Schema:
        before = self.input.schema
        fields = [before.field(name) for name in self.input.key]
        return pa.schema([*fields, *(aggregate.field(before) for aggregate in self.aggregates)])

    key = ()

    @property
    def group(self) -> tuple[str, ...]:
        """The columns that group the events that come in."""
        return self.input.key

    @cached_property
    def duration(self) -> int | None:
        return self.window.duration

    stateless = False

    def ends(self, at: int) -> Ends:
        read = [each for aggregate in self.aggregates for each in aggregate.reads]
        if any("end" in column_names(each, ["end"]) for each in read):
            return "needed"
        grid = self.window.grid
        if grid is not None and grid.membership == "start":
            return "unread"
        if grid is not None and grid.until is not None:
            return "needed"
        # A minimum or maximum needs the ends, to know which values it can forget.
        adds_up = all(each.keeps(self.input.schema) == "sums" for each in self.aggregates)
        return "later" if adds_up else "needed"

    gathers = True

    @property
    def together(self) -> tuple[str, ...]:
        return self.group

    @property
    def matched(self) -> tuple[tuple[str, ...], ...]:
        return (self.group,)

    @property
    def grouped(self) -> tuple[str, ...]:
        return self.group

    @property
    def time_rule(self) -> str:
        return self.window.time_rule

    held = "the columns it needs of all events are held in memory; kernels run over blocks of whole groups"

    collects = True

    handed = "needed alone"

    @property
    def counted(self) -> set[str]:
        read, counted = {*self.group}, set[str]()
        for aggregate in self.aggregates:
            counts = aggregate.kind.incremental.made_of == "counts" and not aggregate.distinct
            for expression in aggregate.reads:
                if (name := bare_column(expression)) is not None:
                    (counted if counts and expression is aggregate.expression else read).add(name)
        return counted - read

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        lowered = self.lowered()
        return [()] if lowered is self else lowered.input.needs(())

    def describe(self) -> str:
        aggregates = ", ".join(str(aggregate) for aggregate in self.aggregates)
        return f"Window {self.window} agg {aggregates}"

    @property
    def computed(self) -> tuple[Computed, ...]:
        return tuple((each, self.input.schema) for aggregate in self.aggregates for each in aggregate.reads)

    def lowered(self) -> WindowAggregate:
        """The same node over plain columns: a projection below it computes each aggregate's inputs and filter.

        The node then needs no expressions, so it can be sent to a worker, and reads only columns that it needs.
        """
        inputs, aggregates = self.plain()
        if not inputs:
            return self
        return replace(self, input=Project(self.input, inputs, keep=False), aggregates=aggregates)

    def plain(self) -> tuple[tuple[nw.Expr, ...], tuple[Aggregate, ...]]:
        """The columns that the aggregates and the group need, as expressions, and the aggregates over these columns."""
        inputs: dict[str, nw.Expr] = {name: nw.col(name) for name in self.group}
        known: dict[int | str, str] = {}

        def column(expression: nw.Expr) -> str:
            bare = bare_column(expression)
            if bare is not None and bare not in LIFETIME:
                inputs.setdefault(bare, nw.col(bare))
                return bare
            # In the payload, start and end need names of their own.
            name = known.get(bare or id(expression))
            if name is None:
                taken = {*self.input.schema.names, *inputs}
                name = next(free for free in map("__{}".format, count(len(inputs))) if free not in taken)
                known[bare or id(expression)] = name
                inputs[name] = expression.alias(name)
            return name

        aggregates = tuple(each.over(column) for each in counted_within(self.aggregates, self.input.schema))
        return tuple(inputs.values()), aggregates


def counted_within(aggregates: Sequence[Aggregate], schema: pa.Schema) -> list[Aggregate]:
    """Aggregates that compute expressions only for rows that ``where=`` selects, if a whole number may not fit."""
    known: dict[tuple[int, int], nw.Expr] = {}

    def within(expression: nw.Expr, where: nw.Expr) -> nw.Expr:
        if not guards([expression], schema, [expression]):
            return expression
        return known.setdefault((id(expression), id(where)), nw.when(where).then(expression))

    made = []
    for each in aggregates:
        where = each.filter
        if where is None:
            made.append(each)
            continue
        first = None if each.expression is None else within(each.expression, where)
        made.append(replace(each, expression=first, others=tuple(within(other, where) for other in each.others)))
    return made


def check_names(names: Iterable[str], taken: Sequence[str]) -> None:
    """Refuse names of results that are equal or taken.

    Raises:
        ColumnError: A name is.
    """
    seen = {*taken, *LIFETIME}
    for name in names:
        if name in seen:
            raise ColumnError(
                "The result would have two columns of one name.",
                column=name,
                remedy="Give the aggregate another name.",
            )
        seen.add(name)


def named_aggregates(named: Mapping[str, object]) -> tuple[Aggregate, ...]:
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


def by_name(node: Node, given: Sequence[object], named: Mapping[str, object], *, where: str) -> dict[str, object]:
    """Aggregates by the names of their results. An unnamed aggregate has its column's name; ``count()`` is ``count``.

    Args:
        node: The input of the windows.
        given: The unnamed aggregates. A combination of aggregates has the name of the first of them.
        named: The named aggregates.
        where: The verb, for errors.

    Raises:
        PlanError: An argument is not an aggregate of gpu_ops.
        ColumnError: Two results have one name.
    """
    made: dict[str, object] = {}
    for each in given:
        if not isinstance(each, Combinable):
            raise PlanError(
                f"{where} takes aggregates of gpu_ops, not {type(each).__name__}.",
                remedy=f'Write for instance .{where}(total=g.sum("price"), n=g.count()).',
            )
        name = _own_name(node, each, where)
        if name in made or name in named:
            raise ColumnError(
                f"Two results of {where} would have this name.",
                column=name,
                remedy=f"Name them: .{where}(least_{name}=…, most_{name}=…).",
            )
        made[name] = each
    return made | dict(named)


def _own_name(node: Node, given: Combinable, where: str) -> str:
    part = given.within(Snapshot())
    if isinstance(part, Combination):
        part = next(iter(part.parts()), part)
    if not isinstance(part, Aggregate):
        raise PlanError(f"{where} has no name for {given}.", remedy=f"Give it one: .{where}(length=…).")
    if part.expression is None:
        return part.kind.name
    bare = bare_column(part.expression)
    if bare is not None:
        return bare
    return str(output_schema(node.schema, [part.expression], where=where, only_columns=True).names[0])


def aggregated(
    node: Node, window: TimeWindowKind, named: Mapping[str, object]
) -> tuple[WindowAggregate, Project | None]:
    """The nodes of ``agg(name=aggregate, …)``: the aggregates, and a projection that combines some of them, or None.

    Each aggregate of a combination has a name of its own, and the projection computes the result from them.

    Args:
        node: The input of the windows.
        window: The windows.
        named: The aggregates.

    Raises:
        PlanError: An argument is not an aggregate of gpu_ops.
    """
    given = {name: each.within(window) if isinstance(each, Combinable) else each for name, each in named.items()}
    parts: dict[str, object] = {}
    combined: dict[str, Combination] = {}
    for name, each in given.items():
        if isinstance(each, Combination):
            combined[name] = each
            parts |= {f"__{name}_{at}": part for at, part in enumerate(each.parts())}
        else:
            parts[name] = each
    check_names(named, node.key)
    windows = WindowAggregate(node, window, named_aggregates(parts))
    if not combined:
        return windows, None
    results = [nw.col(name) for name in node.key]
    for name in given:
        if name in combined:
            columns = [f"__{name}_{at}" for at in range(len(combined[name].parts()))]
            results.append(combined[name].result(columns, windows.schema).alias(name))
        else:
            results.append(nw.col(name))
    said = {name: str(part).removeprefix("=") for name, part in parts.items() if name not in given}
    return windows, Project(windows, tuple(results), keep=False, said=said)
