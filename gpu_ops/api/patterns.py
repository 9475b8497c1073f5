"""The verbs of event patterns over `gpu_ops.arrivals`: `pattern`, and the steps that it is made of (Esper: pattern)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw

from gpu_ops.api.arrivals import ArrivalStream
from gpu_ops.core.arguments import whole
from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.time import Duration, positive_ticks
from gpu_ops.errors import ColumnError, PlanError, shown, unknown_column
from gpu_ops.plan import patterns as tree
from gpu_ops.plan.arguments import Names, names
from gpu_ops.plan.expressions import Expression, as_expression, column_names, columns_named
from gpu_ops.plan.nodes import filter_condition
from gpu_ops.plan.pattern_streams import PatternColumns, PatternStreams, SetTag
from gpu_ops.plan.row_programs import RowProgram
from gpu_ops.plan.terms import renamed

MOST_ELEMENTS = 16
"""How many elements of a repeated step conditions may name: ``g.col("a[0].id")`` to ``g.col("a[15].id")``."""


class PatternStep(ABC):
    """A step of a pattern. Steps are joined by ``>>`` (then), ``&`` (both) and ``|`` (either)."""

    @abstractmethod
    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        """The part; the names that it sets are added to those that are set."""

    def __rshift__(self, other: PatternStep) -> PatternStep:
        return _ThenSteps((*_those_of(self, _ThenSteps), *_those_of(_step(other), _ThenSteps)))

    def __and__(self, other: PatternStep) -> PatternStep:
        return _BothSteps((*_those_of(self, _BothSteps), *_those_of(_step(other), _BothSteps)))

    def __or__(self, other: PatternStep) -> PatternStep:
        return _EitherStep((*_those_of(self, _EitherStep), *_those_of(_step(other), _EitherStep)))

    def within(self, span: Duration, *, most: int | None = None) -> PatternStep:
        """The step, as long as it turns true before a span of time is over (Esper: timer:within).

        Args:
            span: The span, from when the step starts.
            most: How often it may turn true; None for any number (Esper: timer:withinmax).
        """
        return _WithinStep(self, positive_ticks(span, name="span"), None if most is None else whole(most, name="most"))

    def while_(self, condition: Expression) -> PatternStep:
        """The step, until it turns true with events for which a condition does not hold (Esper: while)."""
        return _WhileStep(self, as_expression(condition, where="while_"))

    def times(self, low: int, high: int | None = None, *, until: PatternStep | None = None) -> PatternStep:
        """The step, several times: its events are lists (Esper: [low:high] … until …).

        Args:
            low: How often; with ``until`` how often at least.
            high: With ``until`` how often at most; None for any number.
            until: What ends it.
        """
        least = whole(low, name="low", least=0 if until is not None else 1)
        most = None if high is None else whole(high, name="high")
        if until is None and most not in {None, least}:
            raise PlanError("A step that is repeated a range of times needs an end.", remedy="Say until=….")
        return _RepeatedStep(self, least, least if until is None else most, None if until is None else _step(until))


@own_errors
def one(name: str, stream: ArrivalStream, *conditions: Expression, on: Names = ()) -> PatternStep:
    """One event of a stream.

    Args:
        name: What later steps and the columns of matches call it; nothing where nobody does.
        stream: The stream.
        conditions: What holds for it: ``g.col("v")`` is its own column, ``g.col("a.v")`` that of an earlier step ``a``.
        on: Columns that it has in common with the first step that has a name.

    Examples:
        See `pattern`.
    """
    if not isinstance(stream, ArrivalStream):
        raise PlanError(f"A step is of arrivals, not of {shown(stream)}.", remedy="Make them: g.arrivals(…).")
    _check_name(name)
    where = None if not conditions else filter_condition(conditions)
    return _OneStep(name, stream, where, names(on, where="on") if on else ())


@own_errors
def every(
    name: str | PatternStep,
    stream: ArrivalStream | None = None,
    *conditions: Expression,
    on: Names = (),
    distinct: Expression | Sequence[Expression] = (),
    forget: Duration | None = None,
) -> PatternStep:
    """A step that starts anew whenever it turned true (Esper: every, every-distinct).

    Args:
        name: A step; or the name of an event of a stream, as in `one`.
        stream: As in `one`.
        conditions: Likewise.
        on: Likewise.
        distinct: Values of its events, as ``g.col("a.id")``: only one match for each of them.
        forget: After which time such a value may come again; None for never.
    """
    if isinstance(name, PatternStep):
        step = name
    elif stream is None:
        raise PlanError("every takes a step, or a name and a stream.", remedy='Write g.every("a", orders).')
    else:
        step = one(name, stream, *conditions, on=on)
    given = [distinct] if isinstance(distinct, str | nw.Expr) else list(distinct)
    keys = tuple(as_expression(each, where="distinct") for each in given)
    return _EveryStep(step, keys, None if forget is None else positive_ticks(forget, name="forget"))


@own_errors
def none(name: str, stream: ArrivalStream, *conditions: Expression, on: Names = ()) -> NoStep:
    """No event of a stream: with ``.within(span)`` none for so long; beside others (``&``) none before they are true.

    Args:
        name: As in `one`, like the others.
        stream: The stream.
        conditions: What would hold for it.
        on: Columns that it would have in common with the first step that has a name.
    """
    return NoStep(one(name, stream, *conditions, on=on))


@own_errors
def after(span: Duration) -> PatternStep:
    """A span of time that passes (Esper: timer:interval)."""
    return _AfterStep(positive_ticks(span, name="span"))


@own_errors
def pattern(step: PatternStep, *, discard: bool = False, suppress: bool = False) -> ArrivalStream:
    """The matches of a pattern: events that happen in some order, or do not happen in some time (Esper: pattern).

    A match comes in the turn that completes it. It has the columns of its events, as ``"a.id"``, null where there is no
    such event; a step that was repeated is a list of records. A step does not see the event with which it starts.

    Args:
        step: What matches.
        discard: Whether what shares an event with a match ends with it (Esper: @DiscardPartialsOnMatch).
        suppress: Whether only the first counts of matches of one turn that share an event
            (Esper: @SuppressOverlappingMatches).

    Returns:
        Arrivals, which have windows and deliveries as all others.

    Raises:
        PlanError: The streams are not of one `arrivals`; a condition combines events by what there is no kernel for.
        ColumnError: A condition names a column that there is not.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> orders = pa.table({"at": [0, 5, 40], "id": [1, 2, 3]})
        >>> payments = pa.table({"at": [20, 70], "id": [1, 3]})
        >>> streams = (g.events(each, start="at", unit="s") for each in (orders, payments))
        >>> placed, paid = g.arrivals(*streams, until="1970-01-01T00:02:00Z")
        >>> late = g.pattern(g.every("order", placed) >> g.none("", paid, on="id").within("30s"))
        >>> late.deliveries("order.id").collect().select(["turn", "order.id"]).to_pylist()
        [{'turn': 7, 'order.id': 2}, {'turn': 9, 'order.id': 3}]
    """
    planner = _StepPlanner()
    whole_tree = _step(step).planned(planner, {})
    if planner.first is None:
        raise PlanError("A pattern has a step of a stream.", remedy='Write g.every("a", orders).')
    ticks, since = planner.first._ticks, planner.first._start  # noqa: SLF001
    node = planner.streams.pattern(whole_tree, ticks, discards=discard, suppresses=suppress, flat="alone", spans=True)
    return ArrivalStream(node, ticks, start=since)


class _StepPlanner:
    """What the steps of a pattern become."""

    def __init__(self) -> None:
        self.streams = PatternStreams()
        self.first: ArrivalStream | None = None
        self._numbers: dict[int, int] = {}

    def stream(self, given: ArrivalStream) -> int:
        """The number of a stream."""
        self.first = self.first or given
        if given._context is not None:  # noqa: SLF001  (the frame of all verbs)
            raise PlanError("Patterns within instances are not made by verbs.", remedy="Leave the context out.")
        if given._ticks is not self.first._ticks:  # noqa: SLF001
            raise PlanError(
                "The streams of a pattern are on the turns of different clocks.",
                remedy="Make all of them by one call: one, other = g.arrivals(…, …).",
            )
        if id(given) not in self._numbers:
            self._numbers[id(given)] = self.streams.stream(given._rows, given.schema)  # noqa: SLF001
        return self._numbers[id(given)]

    def named(self, value: nw.Expr, columns: PatternColumns) -> nw.Expr:
        """An expression over the columns of earlier steps by their names in the plan."""
        own = [] if columns.current is None else self.streams.properties(columns.current).names
        meant: dict[str, tuple[str, str, int | None]] = {}
        for tag, each in columns.tags.items():
            for name in self.streams.properties(each.stream).names:
                for element in range(MOST_ELEMENTS) if each.repeated else (None,):
                    meant[f"{tree.slot_of(tag, element)}.{name}"] = tag, name, element
        known = [*own, *(name for name in meant if name not in own)]
        read = column_names(value, known)
        found = {name: columns.of_tag(*meant[name]) for name in read if name not in own}
        strange = set(column_names(value, [*known, *columns_named(value)])) - set(known)
        if strange:
            raise unknown_column(min(strange), known, what="pattern")
        return renamed(value, found)

    def value(self, value: nw.Expr, tags: dict[str, SetTag]) -> RowProgram:
        """A value of earlier steps."""
        columns = self.streams.columns(None, tags)
        return self.streams.program(self.named(value, columns), columns)

    def number(self, value: int | None) -> RowProgram | None:
        """A whole number."""
        return None if value is None else self.value(nw.lit(value), {})


def _check_name(given: object) -> None:
    if not isinstance(given, str) or (given and not given.isidentifier()):
        raise PlanError(f"A step is called {shown(given)}.", remedy="Give it a name of letters and digits.")


def _step(given: Any) -> PatternStep:
    if not isinstance(given, PatternStep):
        raise PlanError(
            f"A pattern is made of steps, and this is {shown(given)}.", remedy='Write g.every("a", orders).'
        )
    return given


def _those_of(step: PatternStep, kind: type[Any]) -> tuple[PatternStep, ...]:
    return step.steps if type(step) is kind else (step,)  # type: ignore[attr-defined]


@dataclass(frozen=True, eq=False)
class _OneStep(PatternStep):
    name: str
    stream: ArrivalStream
    where: nw.Expr | None
    on: tuple[str, ...]

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        stream = planner.stream(self.stream)
        columns = planner.streams.columns(stream, tags)
        conditions = [] if self.where is None else [planner.named(self.where, columns)]
        if self.on:
            first = next((tag for tag, each in tags.items() if not each.repeated), None)
            if first is None:
                raise PlanError(
                    "on= compares with an earlier step, and none has a name.", remedy="Name the first step."
                )
            for name in self.on:
                for each in (stream, tags[first].stream):
                    if name not in planner.streams.properties(each).names:
                        raise unknown_column(name, planner.streams.properties(each).names, what="step")
                conditions.append(nw.col(name) == nw.col(columns.of_tag(first, name)))
        if self.name and planner.streams.tags.get(self.name, SetTag(stream)).stream != stream:
            raise ColumnError("Steps of two streams have one name.", column=self.name, remedy="Rename one of them.")
        if self.name:
            planner.streams.tags.setdefault(self.name, SetTag(stream))
        holds = None if not conditions else nw.all_horizontal(*conditions, ignore_nulls=False)
        atom = planner.streams.atom(stream, self.name, holds, columns)
        if self.name:
            tags[self.name] = SetTag(stream)
        return atom


@dataclass(frozen=True, eq=False)
class _EveryStep(PatternStep):
    step: PatternStep
    keys: tuple[nw.Expr, ...]
    forget: int | None

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        part = self.step.planned(planner, tags)
        if not self.keys:
            return tree.EveryMatch(part)
        forgets = None if self.forget is None else tree.ElapsedTime(ticks=self.forget)
        return tree.DistinctMatches(part, tuple(planner.value(each, tags) for each in self.keys), forgets)


@dataclass(frozen=True, eq=False)
class NoStep(PatternStep):
    """A step that is true as long as another one is not. `gpu_ops.none` makes it."""

    step: PatternStep

    def within(self, span: Duration, *, most: int | None = None) -> PatternStep:
        """True when a span of time has passed without the event."""
        if most is not None:
            raise PlanError("What does not happen has no number of times.", remedy="Leave most= out.")
        return _BothSteps((after(span), self))

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        """The part."""
        return tree.NoMatch(self.step.planned(planner, tags))


@dataclass(frozen=True, eq=False)
class _ThenSteps(PatternStep):
    steps: tuple[PatternStep, ...]

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        made = tuple(each.planned(planner, tags) for each in self.steps)
        return tree.FollowedBy(made, (None,) * (len(made) - 1))


@dataclass(frozen=True, eq=False)
class _BothSteps(PatternStep):
    steps: tuple[PatternStep, ...]

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        if len(self.steps) > tree.MOST_CHILDREN:
            raise PlanError(f"More than {tree.MOST_CHILDREN} steps are joined by &.", remedy="Put some in parentheses.")
        return tree.AllOf(tuple(each.planned(planner, tags) for each in self.steps))


@dataclass(frozen=True, eq=False)
class _EitherStep(PatternStep):
    steps: tuple[PatternStep, ...]

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        return tree.AnyOf(tuple(each.planned(planner, tags) for each in self.steps))


@dataclass(frozen=True, eq=False)
class _RepeatedStep(PatternStep):
    step: PatternStep
    low: int
    high: int | None
    until: PatternStep | None

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        before, inside = dict(tags), dict(tags)
        part = self.step.planned(planner, inside)
        until = None if self.until is None else self.until.planned(planner, before)
        tags.update(before)
        for tag in tree.tags_below(part):
            if inside[tag].repeated:
                raise PlanError("A repeated step is repeated.", remedy="Leave out the names of its events.")
            tags[tag] = planner.streams.tags[tag] = replace(inside[tag], repeated=True)
        return tree.RepeatedMatch(part, until, planner.number(self.low), planner.number(self.high))


@dataclass(frozen=True, eq=False)
class _WithinStep(PatternStep):
    step: PatternStep
    ticks: int
    most: int | None

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        most = planner.number(self.most)
        return tree.WithinGuard(self.step.planned(planner, tags), tree.ElapsedTime(ticks=self.ticks), most)


@dataclass(frozen=True, eq=False)
class _WhileStep(PatternStep):
    step: PatternStep
    condition: nw.Expr

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        return tree.WhileGuard(self.step.planned(planner, tags), planner.value(self.condition, tags))


@dataclass(frozen=True, eq=False)
class _AfterStep(PatternStep):
    ticks: int

    def planned(self, planner: _StepPlanner, tags: dict[str, SetTag]) -> tree.PatternPart:
        return tree.ClockTime(tree.ElapsedTime(ticks=self.ticks))
