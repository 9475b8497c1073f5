"""Esper's vectors: statements over a script, and what a listener is handed in each step.

The windows and the aggregates are computed by `gpu_ops`. What is done here is how Esper shows them: which rows a
delivery has, old ones beside new ones.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

import gpu_ops as g
from tests.conformance.epl import Call, Expression, Item, Literal, Name, Ordered, Star, Statement, parts
from tests.conformance.epl_parser import parse
from tests.conformance.epl_values import value
from tests.conformance.esper_aggregates import CONTENT, Aggregates, Member, is_aggregate, local_keys
from tests.conformance.esper_conditions import RESERVED, TYPES, of_events
from tests.conformance.esper_derived import as_aggregates
from tests.conformance.esper_script import Arrival, Moment, Script, instants
from tests.conformance.esper_stays import Ask, Content, EventScope, Stay
from tests.conformance.esper_together import content
from tests.conformance.unsupported import UnsupportedError

Row = dict[str, Any]
Rows = list[Row]

_TOLERANCE = 1e-9


def difference(line: Mapping[str, Any], ask: Ask) -> str | None:
    """What is wrong with the answers to a vector's statements; None when they are the engine's.

    Args:
        line: The vector.
        ask: How a query is run.

    Raises:
        UnsupportedError: There is no translation of a statement.
    """
    statements = {statement.name: statement for statement in map(as_aggregates, parse(line["epl"]))}
    if any("deploy" in step or "undeploy" in step for step in line["script"]):
        raise UnsupportedError("EPL: no statements that come and go")
    same = _same_in_any_order if line["any_order"] else _same
    for name in dict.fromkeys([*line["listen"], *(entry.get("statement") for entry in line["expected"])]):
        if name not in statements:
            raise UnsupportedError("EPL: no counts of filters")
        shown = Shown(statements[name], line, ask)
        entries = [entry for entry in line["expected"] if entry.get("statement") == name]
        deliveries = [(entry["after_step"], entry["new"], entry["old"]) for entry in entries if "iterator" not in entry]
        if name in line["listen"] and (wrong := _compare(shown.deliveries(), deliveries, same)):
            return f"{name}: {wrong}"
        in_place = _same_in_any_order if shown.content.is_hashed and not shown.statement.order else same
        for entry in entries:
            if "iterator" in entry and not in_place(found := shown.iterator(entry["after_step"]), entry["iterator"]):
                return f"{name} after step {entry['after_step']}: iterator {found}, expected {entry['iterator']}"
    return None


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

    def __init__(self, statement: Statement, line: Mapping[str, Any], ask: Ask) -> None:
        self._script = Script(line)
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
        sent = list(self._script.arrivals(statement.event_type))
        let_in = self._filtered(sent, fields, statement.filters)
        if let_in is None:
            scopes = {each.row: EventScope(each.event, each.at[1]) for each in sent}
            let_in = {row for row, scope in scopes.items() if all(value(x, scope) is True for x in statement.filters)}
        arrivals = [replace(arrival, row=row) for row, arrival in enumerate(x for x in sent if x.row in let_in)]
        self.content: Content = content(statement, arrivals, self._script, ask)
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

    @cached_property
    def _apart(self) -> bool:
        """Whether what one of several windows holds says nothing of the rows of another one."""
        levels = [local_keys(call) or self.statement.keys for call in self.calls]
        return len(self.statement.levels or ()) < 2 and all(set(self.window_keys) <= set(keys) for keys in levels)

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
        for at, moment in enumerate(self.moments):
            shown = [stay for stay in self.content.stays if stay.arrival.row in self.passing]
            entering = [stay for stay in shown if stay.enter == moment]
            left = (stay for stay in shown if stay.leave == moment and stay.enter is not None)
            leaving = sorted(left, key=lambda stay: stay.place)
            posts = moment in self.content.posts
            if not (entering or leaving or posts):
                continue
            if len({repr(stay.group) for stay in (*entering, *leaving)}) > 1 and not self._apart:
                # Each group's timer is an update by itself: aggregates are shown after each.
                raise UnsupportedError("EPL: no aggregates while windows of several groups change at once")
            new = self._rows(self._scopes(entering, leaving, at, is_old=False))
            old = self._rows(self._scopes(entering, leaving, at, is_old=True))
            if self.statement.selector == "rstream":
                new = old
            if self.statement.selector != "irstream":
                old = []
            if new or old or posts:
                made.append((moment[0], new or None, old or None))
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
        now = self._script.steps[step + 1]
        if self.kind == "all":
            return self._rows([_Scope(self, None, at, now)])
        if not self.content.windowed and self.kind == "event":
            return []
        moment = (step, now)
        held = [stay for stay in self.content.stays if stay.arrival.row in self.passing and self._holds(stay, moment)]
        held.sort(key=lambda stay: stay.place)
        if self.kind == "event":
            return self._rows([self._event_scope(stay, at, now=now) for stay in held])
        return self._rows(self._group_scopes(held, at, now))

    def _holds(self, stay: Stay, moment: Moment) -> bool:
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


# Comparing


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and "$num" in wanted:
        wanted = float(wanted["$num"].replace("Infinity", "inf"))
    if isinstance(wanted, dict):
        return (
            isinstance(found, Mapping)
            and found.keys() == wanted.keys()
            and all(_same(found[name], each) for name, each in wanted.items())
        )
    if isinstance(wanted, list):
        same_size = isinstance(found, list) and len(found) == len(wanted)
        return same_size and all(_same(*pair) for pair in zip(found, wanted, strict=True))
    if isinstance(wanted, float) and isinstance(found, float):
        alike = math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        return alike or (math.isnan(found) and math.isnan(wanted))
    return type(found) is type(wanted) and bool(found == wanted)


def _same_in_any_order(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, list):
        return _same(found, wanted)
    if not isinstance(found, list) or len(found) != len(wanted):
        return False
    left = list(wanted)
    for row in found:
        at = next((at for at, other in enumerate(left) if _same(row, other)), None)
        if at is None:
            return False
        del left[at]
    return True


def _compare(
    found: Sequence[tuple[int, Any, Any]], wanted: Sequence[tuple[int, Any, Any]], same: Callable[[Any, Any], bool]
) -> str | None:
    for mine, theirs in zip(found, wanted, strict=False):
        if mine[0] != theirs[0] or not same(mine[1], theirs[1]) or not same(mine[2], theirs[2]):
            return "step {}: new {}, old {}; ".format(*mine) + "expected step {}: new {}, old {}".format(*theirs)
    if len(found) == len(wanted):
        return None
    longer, word = (found, "not expected") if len(found) > len(wanted) else (wanted, "missing")
    return f"{word} " + "step {}: new {}, old {}".format(*longer[min(len(found), len(wanted))])
