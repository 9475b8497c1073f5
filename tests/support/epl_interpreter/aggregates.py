"""Aggregates: what they keep of the events that have entered and not left, and what they say of it.

Each keeps the values themselves in lists, and computes its own value from them anew whenever it is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpu_ops.epl import queries as q
from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter.clock import whole_milliseconds
from tests.support.epl_interpreter.values import (
    Events,
    MakeScope,
    Scope,
    compare_keys,
    divided,
    evaluate,
    holds,
    key_of,
    parts,
)

Key = tuple[Any, ...]

_OF_VALUES = {"count", "sum", "avg", "min", "max", "fmin", "fmax", "median", "stddev", "stddevpa", "variance", "avedev"}
_EVER = {"minever", "maxever", "fminever", "fmaxever", "firstever", "lastever", "countever"}
_OF_EVENTS = {"first", "last", "window", "nth", "sorted", "maxby", "minby", "maxbyever", "minbyever"}
_OTHERS = {"leaving", "rate"}


def is_aggregate(node: Any) -> bool:
    """Whether a node is a call of an aggregate. `min` and `max` of several values are none: they are of one row."""
    if not isinstance(node, e.FunctionCall) or node.of is not None:
        return False
    if node.name in {"min", "max"}:
        return len([each for each in node.arguments if not isinstance(each, e.NamedArgument)]) == 1
    return node.name in _OF_VALUES | _EVER | _OF_EVENTS | _OTHERS


def aggregate_calls(*nodes: Any) -> list[e.FunctionCall]:
    """The aggregates in expressions, those within others first. Sub-queries have their own."""
    found: list[e.FunctionCall] = []
    for part in parts(nodes, into=lambda node: not isinstance(node, q.Query) and not is_aggregate(node)):
        if is_aggregate(part):
            found += [each for each in (*aggregate_calls(*part.arguments), part) if each not in found]
    return found


def local_keys(call: e.FunctionCall) -> tuple[Any, ...] | None:
    """By what an aggregate is grouped, where it says so itself."""
    return _named(call).get("group_by")


def _named(call: e.FunctionCall) -> dict[str, tuple[Any, ...]]:
    return {each.name: each.values for each in call.arguments if isinstance(each, e.NamedArgument)}


def _remove(values: list[Any], value: Any) -> bool:
    """Take the first equal value out, or say that there is none."""
    for at, each in enumerate(values):
        if each is value or each == value or (_is_nan(each) and _is_nan(value)):
            del values[at]
            return True
    return False


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


class State:
    """What one aggregate knows of one group."""

    def __init__(self, call: e.FunctionCall) -> None:
        self.call = call
        self.name = call.name
        plain = [each for each in call.arguments if not isinstance(each, e.NamedArgument)]
        self.filters: list[Any] = list(_named(call).get("filter", ()))
        if self.name in _OF_VALUES | _EVER and len(plain) == 2:
            self.filters.append(plain.pop())
        if self.name == "countever" and not plain:
            plain = [e.Wildcard()]
        self.arguments = plain
        for name in _named(call):
            if name not in {"filter", "group_by"}:
                raise NotImplementedError(f"named parameter {name}")

    def enter(self, scope: Scope) -> None:
        """An event has entered."""
        if all(holds(each, scope) for each in self.filters):
            self._enter(scope)

    def leave(self, scope: Scope) -> None:
        """An event has left."""
        if all(holds(each, scope) for each in self.filters):
            self._leave(scope)

    def _argument(self, scope: Scope) -> Any:
        """The value that is aggregated; a wildcard is anything but null."""
        if not self.arguments:
            return None
        node = self.arguments[0]
        return True if isinstance(node, e.Wildcard) else evaluate(node, scope)

    def _enter(self, scope: Scope) -> None:
        raise NotImplementedError(f"aggregate {self.name}")

    def _leave(self, scope: Scope) -> None:
        """By itself it keeps everything for ever."""

    def value(self, scope: Scope) -> Any:
        """What it says now. The scope is that of the row that asks."""
        raise NotImplementedError(f"aggregate {self.name}")


class OfValues(State):
    """Of the values that are not null, each by itself or each distinct one once.

    What leaves may be worth another value than as it entered, if it is an aggregate itself, or a row of an outer join
    that never entered: counts and sums take such values off, and others take no notice. No count goes below
    nothing, and a sum begins anew where its count is nothing.
    """

    def __init__(self, call: e.FunctionCall) -> None:
        super().__init__(call)
        self.held: list[Any] = []
        self.taken: list[Any] = []

    def _enter(self, scope: Scope) -> None:
        value = self._argument(scope)
        if value is not None:
            self.held.append(value)

    def _leave(self, scope: Scope) -> None:
        value = self._argument(scope)
        if value is None or _remove(self.held, value) or self.call.quantity == "distinct":
            return
        if self.name in {"count", "sum", "avg"}:
            self.taken.append(value)

    def leave(self, scope: Scope) -> None:
        super().leave(scope)
        if len(self.held) <= len(self.taken):
            self.held, self.taken = [], []

    def value(self, scope: Scope) -> Any:
        held = self.held
        if self.call.quantity == "distinct":
            held = [each for at, each in enumerate(held) if each not in held[:at]]
        count = len(held) - len(self.taken)
        if self.name == "count":
            return count
        if not count:
            return None
        if self.name in {"sum", "avg"}:
            total = sum(held) - sum(self.taken)
            return total if self.name == "sum" else total / count
        return _VALUES[self.name](held)


def _median(held: Sequence[Any]) -> float:
    ordered, half = sorted(held), len(held) // 2
    return float(ordered[half]) if len(held) % 2 else (ordered[half - 1] + ordered[half]) / 2


def _variance(held: Sequence[Any], less: int) -> float | None:
    if len(held) <= less:
        return None
    mean = math.fsum(held) / len(held)
    return math.fsum((each - mean) ** 2 for each in held) / (len(held) - less)


def _root(value: float | None) -> float | None:
    return None if value is None else math.sqrt(value)


def _mean_deviation(held: Sequence[Any]) -> float:
    mean = math.fsum(held) / len(held)
    return math.fsum(abs(each - mean) for each in held) / len(held)


_VALUES: dict[str, Callable[[list[Any]], Any]] = {
    "min": min,
    "max": max,
    "fmin": min,
    "fmax": max,
    "median": _median,
    "stddev": lambda held: _root(_variance(held, 1)),
    "stddevpa": lambda held: _root(_variance(held, 0)),
    "variance": lambda held: _variance(held, 1),
    "avedev": _mean_deviation,
}


class Ever(State):
    """Of all values but null that have ever entered."""

    def __init__(self, call: e.FunctionCall) -> None:
        super().__init__(call)
        self.values: list[Any] = []

    def _enter(self, scope: Scope) -> None:
        value = self._argument(scope)
        if value is not None:
            self.values.append(value)

    def value(self, scope: Scope) -> Any:
        if self.name in {"firstever", "lastever"}:
            return self.values[0 if self.name == "firstever" else -1] if self.values else None
        if self.name == "countever":
            return len(self.values)
        return (min if "min" in self.name else max)(self.values, default=None)


class Leaving(State):
    """Whether any event has left."""

    def __init__(self, call: e.FunctionCall) -> None:
        super().__init__(call)
        self.left = False

    def _enter(self, scope: Scope) -> None:
        pass

    def _leave(self, scope: Scope) -> None:
        self.left = True

    def value(self, scope: Scope) -> bool:
        return self.left


class RateOfClock(State):
    """Arrivals a second in so many seconds before the latest one; null until one is older than that."""

    def __init__(self, call: e.FunctionCall) -> None:
        super().__init__(call)
        self.times: list[int] = []
        self.is_full = False
        self.interval = 0

    def _enter(self, scope: Scope) -> None:
        self.interval = whole_milliseconds(evaluate(self.arguments[0], scope))
        now = scope.around.now
        self.times.append(now)
        while len(self.times) > 1 and now - self.times[0] >= self.interval:
            del self.times[0]
            self.is_full = True

    def value(self, scope: Scope) -> float | None:
        return len(self.times) * 1000 / self.interval if self.is_full else None


class RateOfStamps(State):
    """Arrivals, or a quantity of them, a second between the last one that has left and the latest one."""

    def __init__(self, call: e.FunctionCall) -> None:
        super().__init__(call)
        self.amount: Any = 0
        self.latest: int | None = None
        self.oldest: int | None = None

    def _quantity(self, scope: Scope) -> Any:
        return evaluate(self.arguments[1], scope) if len(self.arguments) > 1 else 1

    def _enter(self, scope: Scope) -> None:
        self.latest = evaluate(self.arguments[0], scope)
        self.amount += self._quantity(scope)

    def _leave(self, scope: Scope) -> None:
        self.oldest = evaluate(self.arguments[0], scope)
        self.amount -= self._quantity(scope)

    def value(self, scope: Scope) -> float | None:
        if self.oldest is None or self.latest is None:
            return None
        return divided(self.amount * 1000, self.latest - self.oldest)


class OfEvents(State):
    """First, last and all events of a stream, by their order of arrival, whatever their values are.

    In a join an event stands in several rows: it is there once, until the last of them has left.
    """

    def __init__(self, call: e.FunctionCall) -> None:
        super().__init__(call)
        self.held: list[Scope] = []
        self.rows: list[int] = []

    def _stream(self, scope: Scope) -> int:
        """The stream whose events these are."""
        names = [part.name for part in parts(tuple(self.arguments[:1])) if isinstance(part, e.Name)]
        found = (at for name in names for at in (scope.source_of(name), scope.source_called(name)) if at is not None)
        return next(found, 0)

    def _place(self, scope: Scope) -> int | None:
        event = scope.events[self._stream(scope)]
        return next((at for at, each in enumerate(self.held) if each.events[self._stream(each)] is event), None)

    def _enter(self, scope: Scope) -> None:
        if scope.events[self._stream(scope)] is None:
            return
        at = self._place(scope)
        if at is None:
            self.held.append(scope)
            self.rows.append(1)
        else:
            self.rows[at] += 1

    def _leave(self, scope: Scope) -> None:
        at = self._place(scope)
        if at is not None:
            self.rows[at] -= 1
            if not self.rows[at]:
                del self.held[at], self.rows[at]

    def _of(self, scope: Scope) -> Any:
        return evaluate(self.arguments[0] if self.arguments else e.Wildcard(), scope)

    def value(self, scope: Scope) -> Any:
        if self.name == "window":
            return [self._of(each) for each in self.held] or None
        at = evaluate(self.arguments[1], scope) if len(self.arguments) > 1 else 0
        if at is None or not 0 <= at < len(self.held):
            return None
        return self._of(self.held[at] if self.name == "first" else self.held[-1 - at])


class InOrder(OfEvents):
    """All events by keys, or the one with the greatest or the least of them: of equal ones the one that came first."""

    def value(self, scope: Scope) -> Any:
        keyed = sorted(((self._key(each), at) for at, each in enumerate(self.held)), key=lambda pair: pair[0])
        if not keyed:
            return None
        if self.name == "sorted":
            return [self._event(at) for _, at in keyed]
        best = keyed[-1 if self.name == "maxby" else 0][0]
        return self._event(next(at for key, at in keyed if key == best))

    def _key(self, scope: Scope) -> tuple[Any, ...]:
        return compare_keys(self.arguments, [evaluate(key, scope) for key in self.arguments])

    def _event(self, at: int) -> Any:
        return self.held[at].events[self._stream(self.held[at])]


class BestEver(InOrder):
    """The event with the greatest or the least keys of all that have ever come, of equal ones the first.

    Null is the least key. But a single key that is null gives way to any that comes after it.
    """

    def _leave(self, scope: Scope) -> None:
        pass

    def value(self, scope: Scope) -> Any:
        keys = [self._key(each) for each in self.held]
        best = 0
        for at, key in enumerate(keys):
            is_better = keys[best] < key if self.name == "maxbyever" else key < keys[best]
            if is_better or keys[best] == ((False,),):
                best = at
        return self._event(best) if keys else None


class Nth(State):
    """The value that came so many before the latest one; null does not count.

    As in Esper, it keeps only as many values as it needs. What has left is among them still, unless fewer events are
    there than values are kept.
    """

    def __init__(self, call: e.FunctionCall) -> None:
        super().__init__(call)
        if not isinstance(self.arguments[1], e.Constant) or not isinstance(self.arguments[1].value, int):
            raise NotImplementedError("nth of a place that is no number")
        self.size = self.arguments[1].value + 1
        self.kept: list[Any] = [None] * self.size
        self.next = self.count = 0

    def _enter(self, scope: Scope) -> None:
        value = self._argument(scope)
        if value is not None:
            self.count += 1
            self.kept[self.next] = value
            self.next = (self.next + 1) % self.size

    def _leave(self, scope: Scope) -> None:
        if self._argument(scope) is not None:
            if self.count < self.size:
                self.kept[(self.next + self.size - self.count - 1) % self.size] = None
            self.count -= 1

    def value(self, scope: Scope) -> Any:
        return self.kept[self.next]


def make_state(call: e.FunctionCall) -> State:
    """An aggregate of nothing yet."""
    if call.name in _OF_VALUES:
        return OfValues(call)
    if call.name in _EVER:
        return Ever(call)
    if call.name == "leaving":
        return Leaving(call)
    if call.name == "rate":
        return (RateOfClock if isinstance(call.arguments[0], e.Constant) else RateOfStamps)(call)
    if call.name == "nth":
        return Nth(call)
    if call.name in {"maxbyever", "minbyever"}:
        return BestEver(call)
    return (OfEvents if call.name in {"first", "last", "window"} else InOrder)(call)


@dataclass
class Group:
    """The aggregates of a group, and how many events it has."""

    states: dict[e.FunctionCall, State]
    size: int = 0


@dataclass
class Grouping:
    """Groups by some keys: those of the statement, a level of a rollup, or an aggregate's own.

    A group without events is forgotten as the next event enters any group, and with it what its aggregates have ever
    seen.
    """

    keys: tuple[Any, ...]
    calls: list[e.FunctionCall]
    groups: dict[Key, Group] = field(default_factory=dict)

    def group(self, key: Key) -> Group:
        """A group, which is there from now on."""
        return self.groups.setdefault(key, Group({call: make_state(call) for call in self.calls}))

    def forget_empty(self) -> None:
        """Forget the groups that all events have left."""
        if self.keys:
            self.groups = {key: group for key, group in self.groups.items() if group.size > 0}


class Aggregation:
    """The aggregates of a statement, by its groups and by their own ones.

    Attributes:
        calls: The aggregates.
        levels: The keys that the statement groups by: one tuple, or one for each level of a rollup.
    """

    def __init__(
        self,
        calls: Sequence[e.FunctionCall],
        levels: Sequence[tuple[Any, ...]],
        scope: MakeScope,
    ) -> None:
        self.calls = list(calls)
        self.levels = list(levels) or [()]
        self._scope = scope
        plain = [call for call in calls if local_keys(call) is None]
        self._by_level = [Grouping(keys, plain) for keys in self.levels]
        self._by_own = {
            call: Grouping(local_keys(call) or (), [call]) for call in calls if local_keys(call) is not None
        }

    def clear(self) -> None:
        """Forget all."""
        for grouping in (*self._by_level, *self._by_own.values()):
            grouping.groups.clear()

    def enter(self, events: Events) -> None:
        """A row enters."""
        self._apply(events, is_new=True)

    def leave(self, events: Events) -> None:
        """A row leaves."""
        self._apply(events, is_new=False)

    def _apply(self, events: Events, *, is_new: bool) -> None:
        scope = self._scope(events, is_new=is_new)
        for grouping in (*self._by_level, *self._by_own.values()):
            if is_new:
                grouping.forget_empty()
            group = grouping.group(keys_of(grouping.keys, scope))
            group.size += 1 if is_new else -1
            for call in grouping.calls:
                known = {other: group.states[other].value(scope) for other in aggregate_calls(*call.arguments)}
                within = replace(scope, fixed={**scope.fixed, **known}) if known else scope
                (group.states[call].enter if is_new else group.states[call].leave)(within)

    def value(self, call: e.FunctionCall, key: Key, scope: Scope, level: int = 0) -> Any:
        """What an aggregate says of a group; of a group without events as of nothing."""
        grouping = self._by_own.get(call)
        if grouping is None:
            grouping = self._by_level[level]
        else:
            # Its group is that of the row's event, whatever keys the row's own level leaves out.
            key = keys_of(grouping.keys, replace(scope, fixed={}))
        group = grouping.groups.get(key)
        state = make_state(call) if group is None else group.states[call]
        return state.value(scope)


def keys_of(keys: Sequence[Any], scope: Scope) -> Key:
    """The values of keys for a row."""
    return tuple(key_of(evaluate(key, scope)) for key in keys)
