"""What a listener of one of Esper's statements is handed at each moment, and what its iterator holds.

The windows and the aggregates are computed by `gpu_ops`. What is done here is how Esper shows them: which rows a
delivery has, old ones beside new ones.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, groupby
from typing import Any

import pyarrow as pa

import gpu_ops as g
from tests.conformance.epl import Call, Expression, Item, Literal, Name, Ordered, Star, Statement, parts
from tests.conformance.epl_values import value
from tests.conformance.esper_aggregates import CONTENT, Aggregates, Member, is_aggregate, local_keys
from tests.conformance.esper_conditions import RESERVED, TYPES, of_events
from tests.conformance.esper_script import Arrival, Moment, Script, instants
from tests.conformance.esper_stays import Ask, Content, EventScope, Stay
from tests.conformance.esper_together import content
from tests.conformance.unsupported import UnsupportedError

Row = dict[str, Any]
Rows = list[Row]


@dataclass(frozen=True)
class _Scope:
    """What a row's expressions are about.

    Attributes:
        shown: The statement.
        event: Its event; None for a row of a group, or of all.
        delivery: The number of the delivery after which aggregates are looked at.
        now: The engine's clock.
        stay: The event's time in the window.
        level: By what the row is grouped.
        keys: The keys' values, where the row is of a group and not of an event.
        is_old: Whether it is among the old rows.
    """

    shown: Shown
    event: Mapping[str, Any] | None
    delivery: int
    now: int
    stay: Stay | None = None
    level: tuple[Expression, ...] = ()
    keys: Mapping[Expression, Any] | None = None
    is_old: bool = False

    def known(self, expression: Expression) -> tuple[Any] | None:
        """Aggregates, keys and other events."""
        if self.keys is not None and expression in self.keys:
            return (self.keys[expression],)
        if not isinstance(expression, Call) or expression.of is not None:
            return None
        if is_aggregate(expression):
            return (self.shown.aggregate(expression, self),)
        special = _SPECIAL.get(expression.name)
        return None if special is None else (special(expression, self),)


class Shown:
    """A statement's deliveries and content."""

    def __init__(
        self, statement: Statement, line: Mapping[str, Any], ask: Ask, script: Script, sent: Sequence[Arrival]
    ) -> None:
        self.script = script
        self._ask = ask
        fields = line["schema"].get(statement.event_type, {})
        aliases = {item.name: item.expression for item in statement.items if item.name not in fields}
        order = (
            Ordered(aliases.get(key.expression.name, key.expression), key.descending)
            if isinstance(key.expression, Name)
            else key
            for key in statement.order
        )
        self.statement = replace(statement, order=tuple(order))
        let_in = self._filtered(sent, fields, statement.filters)
        if let_in is None:
            scopes = {each.row: EventScope(each.event, each.at[1]) for each in sent}
            let_in = {row for row, scope in scopes.items() if all(value(x, scope) is True for x in statement.filters)}
        arrivals = [replace(arrival, row=row) for row, arrival in enumerate(x for x in sent if x.row in let_in)]
        self.content: Content = content(statement, arrivals, self.script, ask)
        if self.window_keys:
            self.content = replace(self.content, stays=_one_after_another(self.content.stays))
        stays = self.content.stays
        moments = {each.at for each in arrivals}
        moments |= {moment for stay in stays for moment in (stay.enter, stay.leave) if moment is not None}
        moments |= self.content.posts
        self.moments: list[Moment] = sorted(moments)
        self.number = {moment: at for at, moment in enumerate(self.moments)}
        self.arrivals = arrivals
        self._earlier: dict[int, dict[int, int | None]] = {}
        self.kind = _kind(self.statement)
        self.calls = list(dict.fromkeys(_aggregate_calls(self.statement)))
        where = () if statement.where is None else (statement.where,)
        passing = self._filtered(arrivals, fields, where)
        self.passing = {stay.arrival.row for stay in stays if self._passes(stay)} if passing is None else passing

    def _filtered(
        self, arrivals: Sequence[Arrival], fields: Mapping[str, str], conditions: Sequence[Expression]
    ) -> set[int] | None:
        """The rows for which conditions hold; None where expressions of single events do not say them."""
        try:
            made = [of_events(condition, fields) for condition in conditions]
        except UnsupportedError:
            return None
        if not made:
            return {each.row for each in arrivals}
        columns = {
            name: pa.array([each.event[name] for each in arrivals], TYPES[kind])
            for name, kind in fields.items()
            if kind in TYPES and name not in RESERVED
        }
        rows = pa.array([each.row for each in arrivals], pa.int64())
        table = pa.table({"start": instants([each.at[0] for each in arrivals]), "the row": rows} | columns)
        return set(self._ask(g.events(table, start="start").filter(*made).select("the row"))["the row"].to_pylist())

    # What rows are made of

    @cached_property
    def _aggregates(self) -> Aggregates:
        members = [self._member(stay) for stay in self.content.stays if stay.arrival.row in self.passing and stay.enter]
        return Aggregates(self.calls, members, self._ask)

    @cached_property
    def windows(self) -> Aggregates:
        """What each window holds after a delivery, whatever of it is shown."""
        return Aggregates([CONTENT], [self._member(stay) for stay in self.content.stays if stay.enter], self._ask)

    def earlier(self, row: int, back: int) -> Mapping[str, Any] | None:
        """The event that came so many before another one, whatever of it is in the window."""
        if back == 0:
            return self.arrivals[row].event
        if back not in self._earlier:
            starts, rows = [each.at[0] for each in self.arrivals], [each.row for each in self.arrivals]
            stream = g.events(pa.table({"start": instants(starts), "row": rows}), start="start")
            found = self._ask(stream.with_prior(back, before="row"))
            self._earlier[back] = dict(zip(found["row"].to_pylist(), found["before"].to_pylist(), strict=True))
        before = self._earlier[back][row]
        return None if before is None else self.arrivals[before].event

    @cached_property
    def window_keys(self) -> tuple[Expression, ...]:
        """By what there is a window for each."""
        return next((view.arguments for view in self.statement.views if view.name == "groupwin"), ())

    def _member(self, stay: Stay) -> Member:
        assert stay.enter is not None
        leave = None if stay.leave is None else self.number[stay.leave]
        return Member(stay.arrival.event, stay.arrival.at[1], self.number[stay.enter], leave, stay.place)

    def aggregate(self, call: Call, scope: _Scope) -> Any:
        """The value of an aggregate for a row."""
        local = local_keys(call)
        keys = scope.level if local is None else local
        return self._aggregates.at(call, keys, tuple(value(key, scope) for key in keys), scope.delivery)

    def _passes(self, stay: Stay) -> bool:
        if self.statement.where is None:
            return True
        moment = stay.enter or stay.arrival.at
        return value(self.statement.where, self._event_scope(stay, self.number[moment])) is True

    def _event_scope(self, stay: Stay, delivery: int, *, now: int | None = None, is_old: bool = False) -> _Scope:
        levels = self.statement.levels
        now = self.moments[delivery][1] if now is None else now
        return _Scope(self, stay.arrival.event, delivery, now, stay, levels[0] if levels else (), None, is_old)

    def _group_scopes(
        self, stays: Sequence[Stay], delivery: int, now: int, *, is_old: bool = False
    ) -> Iterator[_Scope]:
        """A row for each group of some events, the finest level first."""
        for level in self.statement.levels or ((),):
            rolled_up = [part for key in self.statement.keys if key not in level for part in parts(key)]
            nothing: dict[Expression, Any] = {part: None for part in rolled_up if not isinstance(part, Literal)}
            seen: dict[str, tuple[tuple[Any, ...], Mapping[str, Any]]] = {}
            for stay in stays:
                scope = EventScope(stay.arrival.event)
                values = tuple(value(key, scope) for key in level)
                seen[repr(values)] = values, stay.arrival.event
            for values, event in seen.values():
                keys = {**nothing, **dict(zip(level, values, strict=True))}
                yield _Scope(self, event, delivery, now, level=level, keys=keys, is_old=is_old)

    # What is shown

    def deliveries(self) -> list[tuple[int, Rows | None, Rows | None]]:
        """Step, new rows and old rows of each delivery."""
        made: list[tuple[int, Rows | None, Rows | None]] = []
        selector = self.statement.selector
        # What the timers of several windows do at once is one delivery.
        shared = slice(2) if self.window_keys else slice(None)
        for moment, updates in groupby(self._posted, key=lambda posted: posted[0][shared]):
            entering, leaving = (list(chain(*rows)) for rows in list(zip(*updates, strict=True))[1:])
            new = leaving if selector == "rstream" else entering
            old = leaving if selector == "irstream" else []
            if new or old or moment in self.content.posts:
                made.append((moment[0], new or None, old or None))
        return made

    def inserted(self) -> Iterator[tuple[Moment, Row]]:
        """The rows that are events of another stream."""
        _, selector = self.statement.into or ("", "")
        names = self.statement.columns
        for moment, new, old in self._posted:
            for row in [*(new if selector != "rstream" else ()), *(old if selector != "istream" else ())]:
                yield moment, dict(zip(names, row.values(), strict=True)) if names else row

    @cached_property
    def _posted(self) -> list[tuple[Moment, Rows, Rows]]:
        """New rows and old rows at each moment at which there are any, whichever are selected."""
        made: list[tuple[Moment, Rows, Rows]] = []
        for at, moment in enumerate(self.moments):
            shown = [stay for stay in self.content.stays if stay.arrival.row in self.passing]
            entering = [stay for stay in shown if stay.enter == moment]
            left = (stay for stay in shown if stay.leave == moment and stay.enter is not None)
            leaving = sorted(left, key=lambda stay: stay.place)
            if not (entering or leaving or moment in self.content.posts):
                continue
            scopes = (self._scopes(entering, leaving, at, is_old=is_old) for is_old in (False, True))
            new, old = (self._rows(each) for each in scopes)
            made.append((moment, new, old))
        return made

    def _scopes(self, entering: Sequence[Stay], leaving: Sequence[Stay], at: int, *, is_old: bool) -> Iterator[_Scope]:
        now = self.moments[at][1]
        if self.kind == "event":
            yield from (self._event_scope(stay, at, is_old=is_old) for stay in (leaving if is_old else entering))
        elif self.kind == "all":
            yield _Scope(self, None, at - is_old, now, is_old=is_old)
        else:
            yield from self._group_scopes([*entering, *leaving], at - is_old, now, is_old=is_old)

    def iterator(self, step: int) -> Rows:
        """The rows that are there after a step."""
        at = bisect_right(self.moments, (step, math.inf)) - 1
        now = self.script.steps[step + 1]
        if self.kind == "all":
            return self._rows([_Scope(self, None, at, now)])
        moment = (step, math.inf)
        if not self.content.windowed and self.kind == "event" and not self.statement.keeps_last:
            return []
        held = [stay for stay in self.content.stays if stay.arrival.row in self.passing and self._holds(stay, moment)]
        held.sort(key=lambda stay: stay.place)
        if self.statement.keeps_last and not self.content.windowed:
            held = held[-1:]
        if self.kind == "event":
            return self._rows([self._event_scope(stay, at, now=now) for stay in held])
        return self._rows(self._group_scopes(held, at, now))

    def _holds(self, stay: Stay, moment: tuple[int, float]) -> bool:
        """Whether an event is in the window; where batches are collected, in the one that is not yet posted."""
        if self.content.in_batches:
            until = stay.enter or stay.leave
            return stay.arrival.at <= moment and (until is None or until > moment)
        return stay.enter is not None and stay.enter <= moment and (stay.leave is None or stay.leave > moment)

    def _rows(self, scopes: Iterator[_Scope] | Sequence[_Scope]) -> Rows:
        statement = self.statement
        kept = [scope for scope in scopes if statement.having is None or value(statement.having, scope) is True]
        for key in reversed(statement.order):
            kept.sort(key=partial(_sort_key, key.expression), reverse=key.descending)
        if statement.limit is not None:
            rows, skipped = statement.limit
            kept = kept[skipped : skipped + rows] if rows >= 0 else kept[skipped:]
        made = [self._row(scope) for scope in kept]
        return [row for at, row in enumerate(made) if row not in made[:at]] if statement.distinct else made

    def _row(self, scope: _Scope) -> Row:
        row: Row = {}
        for item in self.statement.items:
            if _is_wildcard(item):
                row |= scope.event or {}
            else:
                row[item.name] = value(item.expression, scope)
        return row


def _one_after_another(stays: Sequence[Stay]) -> list[Stay]:
    """The same, where each group's timer has a moment of its own: groups follow each other by their oldest events."""
    first: dict[tuple[Moment, str], int] = {}
    for stay in stays:
        for moment in {stay.enter, stay.leave} - {None}:
            assert moment is not None
            key = moment, repr(stay.group)
            first[key] = min(first.get(key, stay.arrival.row), stay.arrival.row)
    groups: dict[Moment, list[str]] = defaultdict(list)
    for (moment, group), _ in sorted(first.items(), key=lambda pair: pair[1]):
        groups[moment].append(group)

    def own(moment: Moment | None, stay: Stay) -> Moment | None:
        together = [] if moment is None else groups[moment]
        return (*moment, together.index(repr(stay.group))) if moment is not None and len(together) > 1 else moment

    return [replace(stay, enter=own(stay.enter, stay), leave=own(stay.leave, stay)) for stay in stays]


def _sort_key(expression: Expression, scope: _Scope) -> tuple[bool, Any]:
    """Null comes first."""
    found = value(expression, scope)
    return (found is not None, 0 if found is None else found)


# The kinds of queries


def _is_wildcard(item: Item) -> bool:
    return isinstance(item.expression, Star) and item.name.endswith("*")


def _aggregate_calls(statement: Statement) -> Iterator[Call]:
    for expression in _shown_expressions(statement):
        for part in parts(expression):
            if isinstance(part, Call) and is_aggregate(part):
                yield part


def _calls(statement: Statement, name: str) -> Iterator[Call]:
    where = () if statement.where is None else (statement.where,)
    for expression in (*_shown_expressions(statement), *where):
        yield from (part for part in parts(expression) if isinstance(part, Call) and part.name == name)


def _shown_expressions(statement: Statement) -> list[Expression]:
    having = () if statement.having is None else (statement.having,)
    return [*(item.expression for item in statement.items), *having, *statement.order]


def _kind(statement: Statement) -> str:
    """What a row is of: an "event", a "group", or "all" events."""
    calls = list(_aggregate_calls(statement))
    keys = statement.keys

    def names(expressions: Sequence[Expression]) -> set[Expression]:
        found = (part for each in expressions for part in parts(each, stop=lambda e: is_aggregate(e) or e in keys))
        return {part for part in found if isinstance(part, Name | Star) and part not in keys}

    shown = [item.expression for item in statement.items]
    if statement.having is not None:
        shown.append(statement.having)
    own = names(shown)
    local = all(local_keys(call) in {None, keys} for call in calls)
    if statement.levels is None:
        others = any(True for name in _PREVIOUS for _ in _calls(statement, name))
        return "all" if calls and not own and local and not others else "event"
    if len(statement.levels) > 1:
        return "group"
    grouped = calls or statement.having is not None or not all(_is_wildcard(item) for item in statement.items)
    return "group" if grouped and not own | names(statement.order) and local else "event"


# Other events


def _prior(call: Call, scope: _Scope) -> Any:
    if scope.stay is None:
        return None
    back = value(call.arguments[0], scope) if len(call.arguments) > 1 else 1
    event = scope.shown.earlier(scope.stay.arrival.row, back)
    return None if event is None else value(call.arguments[-1], EventScope(event))


def _previous(call: Call, scope: _Scope) -> Any:
    """Those that look at what the window holds, from the newest event on, or in its own order if it has one."""
    if not scope.shown.content.windowed:
        raise UnsupportedError(f"EPL: no {call.name} without a window")
    if scope.is_old or scope.stay is None:
        return None
    keys = scope.shown.window_keys
    values = tuple(value(key, EventScope(scope.stay.arrival.event)) for key in keys)
    held = scope.shown.windows.at(CONTENT, keys, values, scope.delivery) or []
    if call.name == "prevcount":
        return len(held)
    newest_first = held if scope.shown.content.is_ordered else held[::-1]
    if call.name == "prevwindow":
        return [value(call.arguments[-1], EventScope(event)) for event in newest_first]
    arguments: Sequence[Expression] = call.arguments
    if len(arguments) == 1:
        arguments = (Literal(0 if call.name == "prevtail" else 1), *arguments)
    # The place stands first; behind, it is a constant.
    given, shown = reversed(arguments) if isinstance(arguments[-1], Literal) else arguments
    at = value(given, scope)
    ordered = newest_first[::-1] if call.name == "prevtail" else newest_first
    if at is not None and scope.shown.content.in_batches and call.name == "prev":
        own = [place for place, event in enumerate(ordered) if event is scope.stay.arrival.event]
        at += own[0] if own else len(ordered)
    if at is None or not 0 <= at < len(ordered):
        return None
    return value(shown, EventScope(ordered[at]))


def _grouping(call: Call, scope: _Scope) -> int:
    """A bit for each key that a level of a rollup leaves out."""
    left_out = 0
    for key in call.arguments:
        left_out = left_out << 1 | (key not in scope.level)
    return left_out


_PREVIOUS = ("prev", "prevtail", "prevcount", "prevwindow")

_SPECIAL: Mapping[str, Callable[[Call, _Scope], Any]] = {
    "prior": _prior,
    **dict.fromkeys(_PREVIOUS, _previous),
    "grouping": _grouping,
    "grouping_id": _grouping,
    "istream": lambda _, scope: not scope.is_old,
    "current_timestamp": lambda _, scope: scope.now,
}
