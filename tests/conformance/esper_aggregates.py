"""Esper's aggregate functions in the public API: snapshots over the time that events are in their window.

Time is the number of the delivery here, so that a result holds from one delivery to another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

import gpu_ops as g
from tests.conformance.epl import Call, Expression, Literal, Ordered, Star
from tests.conformance.epl_values import value
from tests.conformance.esper_feed import ranks
from tests.conformance.esper_nested import Nested, inner_aggregates
from tests.conformance.esper_script import column, instants
from tests.conformance.esper_stays import Ask, EventScope
from tests.conformance.unsupported import UnsupportedError


@dataclass(frozen=True)
class Member:
    """An event that is aggregated.

    Attributes:
        event: Its properties.
        clock: The engine's time when it came.
        enter: The number of the delivery from which on it is in the window.
        leave: That of the one from which on it is not any more; None for never.
        place: Where it stands in its window.
    """

    event: Mapping[str, Any]
    clock: int
    enter: int
    leave: int | None
    place: tuple[Any, ...]


_VALUES = {
    "count": "count",
    "sum": "sum",
    "avg": "mean",
    "min": "min",
    "max": "max",
    "fmin": "min",
    "fmax": "max",
    "median": "median",
    "stddev": "standard_deviation",
    "avedev": "mean_absolute_deviation",
    "minever": "min",
    "maxever": "max",
    "fminever": "min",
    "fmaxever": "max",
    "countever": "count",
    "variance": "variance",
    "stddevpa": "standard_deviation",
}
"""Those of values, and what they are called here."""

_PAIRS = {"weighted_avg": "weighted_mean", "correlation": "correlation", "slope": "slope", "intercept": "intercept"}
"""Those of two values, which derived-value views have."""

_ROWS = {"first", "last", "nth", "window", "firstever", "lastever", "lastleft"}
_BY = {"sorted", "maxby", "minby", "maxbyever", "minbyever"}
"""Those that give events of the window, by their order of arrival and by another one."""

CONTENT = Call("content")
"""All events of a window in its own order."""

_EMPTY = {"count": 0, "countever": 0, "leaving": False}


def is_aggregate(expression: Expression) -> bool:
    """Whether an expression is a call of an aggregate function."""
    if not isinstance(expression, Call) or expression.of is not None:
        return False
    if expression.name in {"min", "max"}:
        return len(expression.arguments) == 1  # else they are of the values of one row
    return expression.name in {*_VALUES, *_PAIRS, *_ROWS, *_BY, "rate", "leaving"}


def local_keys(call: Call) -> tuple[Expression, ...] | None:
    """By what an aggregate is grouped, where it says so itself."""
    return dict(call.options).get("group_by")


class Aggregates:
    """The values of aggregates at each delivery."""

    def __init__(self, calls: Sequence[Call], members: Sequence[Member], ask: Ask) -> None:
        self._calls = calls
        self._members = list(members)
        self._ask = ask
        self._nested: dict[tuple[Call, tuple[Expression, ...]], Nested] = {}
        self._found: dict[Hashable, dict[tuple[Any, ...], _History]] = {}

    def at(self, call: Call, keys: tuple[Expression, ...], values: tuple[Any, ...], delivery: int) -> Any:
        """The value of an aggregate for a group after a delivery."""
        if call.name == "rate":
            return self._rate(call, keys, values, delivery)
        if inner := inner_aggregates(call, is_aggregate):
            if (call, keys) not in self._nested:
                self._nested[call, keys] = Nested(call, inner, self._members, keys, self._ask)
            return self._nested[call, keys].at(values, delivery)
        found = self._value(call, _life(call), keys, values, delivery)
        return _EMPTY.get(call.name) if found is None else found

    def _rate(self, call: Call, keys: tuple[Expression, ...], values: tuple[Any, ...], delivery: int) -> Any:
        aged, young = (self._value(call, life, keys, values, delivery) for life in _lives(call))
        return (young or 0) / value(call.arguments[0], EventScope({})) if aged else None

    def _value(
        self, call: Call, life: Hashable, keys: tuple[Expression, ...], values: tuple[Any, ...], delivery: int
    ) -> Any:
        if (keys, life) not in self._found:
            plain = (each for each in self._calls if not inner_aggregates(each, is_aggregate))
            calls = [each for each in plain if life in _lives(each) and local_keys(each) in {None, keys}]
            self._found[keys, life] = self._compute(calls, life, keys)
        history = self._found[keys, life].get(_key(values))
        return None if history is None else history.at(delivery).get(call)

    def _compute(
        self, calls: Sequence[Call], life: Hashable, keys: tuple[Expression, ...]
    ) -> dict[tuple[Any, ...], _History]:
        """One query for all aggregates over the same events and groups."""
        groups = [tuple(value(key, EventScope(each.event)) for key in keys) for each in self._members]
        lives = self._lifetimes(life, groups)
        chosen = [at for at, (start, end) in enumerate(lives) if start is not None and start != end]
        if not chosen:
            return {}
        members = [self._members[at] for at in chosen]
        columns: dict[str, Any] = {
            "start": instants([lives[at][0] for at in chosen]),
            "end": instants([lives[at][1] for at in chosen]),
            "row": pa.array(range(len(members)), pa.int64()),
        }
        columns |= {f"key {at}": column([groups[row][at] for row in chosen]) for at in range(len(keys))}
        named = {f"result {at}": call for at, call in enumerate(calls)}
        parts = {name: _part(call, name, members, columns) for name, call in named.items()}
        stream = g.events(pa.table(columns), start="start", end="end", null_end="open")
        grouped = stream.by(*(f"key {at}" for at in range(len(keys)))).snapshot()
        answer = self._ask(grouped.agg(**{name: aggregate for name, (aggregate, _) in parts.items()}))
        # Nested keys are numbers in the answer: a group is known by any of its rows.
        known = {
            tuple(columns[f"key {at}"][row].as_py() for at in range(len(keys))): _key(groups[chosen[row]])
            for row in range(len(members))
        }
        found: dict[tuple[Any, ...], list[tuple[int, int, dict[Call, Any]]]] = defaultdict(list)
        times = [answer[side].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist() for side in ("start", "end")]
        for start, end, result in zip(*times, answer.to_pylist(), strict=True):
            shown = {call: parts[name][1](result[name]) for name, call in named.items()}
            key = known[tuple(result[f"key {at}"] for at in range(len(keys)))]
            found[key].append((start, end, shown))
        return {key: _History(results) for key, results in found.items()}

    def _lifetimes(self, life: Any, groups: Sequence[tuple[Any, ...]]) -> list[tuple[int | None, int | None]]:
        """From which delivery to which each member counts."""
        match life:
            case "alive":
                return [(each.enter, each.leave) for each in self._members]
            case "ever":
                return [(each.enter, None) for each in self._members]
            case "left":
                return [(each.leave, None) for each in self._members]
            case (("aged" | "young") as kind, Literal(int() | float() as seconds), conditions):
                lives = [self._young(at, groups, round(seconds * 1000), conditions) for at in range(len(groups))]
                return lives if kind == "young" else [(end, None) for _, end in lives]
        raise UnsupportedError("EPL: no rate(…) but of seconds yet")

    def _young(
        self, at: int, groups: Sequence[tuple[Any, ...]], span: int, conditions: tuple[Expression, ...]
    ) -> tuple[int | None, int | None]:
        """A rate is counted anew when one of its events comes: which is the first that comes a span later."""
        its_own = [
            (each.enter, each.clock)
            for each, group in zip(self._members[at:], groups[at:], strict=True)
            if group == groups[at] and all(value(one, EventScope(each.event)) is True for one in conditions)
        ]
        member = self._members[at]
        if not its_own or its_own[0][0] != member.enter:
            return (None, None)
        return member.enter, next((enter for enter, clock in its_own if clock >= member.clock + span), None)


class _History:
    """What holds from one delivery to another."""

    def __init__(self, results: Sequence[tuple[int, int, dict[Call, Any]]]) -> None:
        self._results = sorted(results, key=lambda result: result[0])
        self._starts = [start for start, _, _ in self._results]

    def at(self, delivery: int) -> dict[Call, Any]:
        at = bisect_right(self._starts, delivery) - 1
        return self._results[at][2] if at >= 0 and delivery < self._results[at][1] else {}


def _lives(call: Call) -> list[Hashable]:
    """The times that an aggregate is computed over."""
    if call.name != "rate":
        return [_life(call)]
    return [(kind, call.arguments[0], dict(call.options).get("filter", ())) for kind in ("aged", "young")]


def _life(call: Call) -> str:
    return "left" if call.name in {"leaving", "lastleft"} else "ever" if call.name.endswith("ever") else "alive"


def _key(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(repr(each) if isinstance(each, list | dict) else each for each in values)


def _part(
    call: Call, name: str, members: Sequence[Member], columns: dict[str, Any]
) -> tuple[g.Aggregate, Callable[[Any], Any]]:
    """The aggregate for a call, its inputs put among the columns; and what its result is shown as."""

    def each(expression: Expression) -> list[Any]:
        return [value(expression, EventScope(member.event)) for member in members]

    conditions = list(dict(call.options).get("filter", ()))
    if len(call.arguments) == 2 and call.name in {*_VALUES, "firstever", "lastever"}:
        conditions.append(call.arguments[1])
    options: dict[str, Any] = {}
    if conditions:
        held = [each(condition) for condition in conditions]
        columns[f"{name} where"] = pa.array([all(row) for row in zip(*held, strict=True)], pa.bool_())
        options["where"] = g.col(f"{name} where")
    if call.name in {"leaving", "rate"}:
        shown = (lambda count: count > 0) if call.name == "leaving" else _as_is
        return g.count(**options), shown
    if call.name in _VALUES:
        return _of_values(call, name, each, columns, options), _as_is
    if call.name in _PAIRS:
        columns |= {f"{name} {at}": column(each(argument)) for at, argument in enumerate(call.arguments)}
        return _word(_PAIRS[call.name])(f"{name} 0", f"{name} 1", **options), _as_is
    if call == CONTENT:
        return _in_order([member.place for member in members], name, members, columns, options)
    if call.name in _BY:
        return _by(call, name, members, columns, options)
    return _of_rows(call, members, options)


def _of_rows(
    call: Call, members: Sequence[Member], options: dict[str, Any]
) -> tuple[g.Aggregate, Callable[[Any], Any]]:
    shown = partial(_shown, call.arguments[0] if call.arguments else Star(), members)
    match call.name, call.arguments[1:]:
        case "window", ():
            word = _word("collect_list")("row", order="row", **options)
            return word, lambda rows: [shown(row) for row in rows] if rows else None
        case ("nth", (Literal(int(back)),)):
            return _word("nth")("row", -1 - back, order="row", **options), shown
        case ("first", (Literal(int(place)),)):
            return _word("nth")("row", place, order="row", **options), shown
        case ("last", (Literal(int(back)),)):
            return _word("nth")("row", -1 - back, order="row", **options), shown
        case "lastleft", ():
            return _word("last")("row", order="row", **options), shown
        case ("first" | "last" | "firstever" | "lastever", ()) | ("firstever" | "lastever", (_,)):
            return _word(call.name.removesuffix("ever"))("row", order="row", **options), shown
    raise UnsupportedError(f"EPL: no {call.name} with these parameters yet")


def _word(name: str) -> Any:
    made = getattr(g, name, None)
    if made is None:
        raise UnsupportedError(f"gpu_ops has no aggregate {name!r}")
    return made


def _as_is(result: Any) -> Any:
    return result


def _shown(expression: Expression, members: Sequence[Member], row: int | None) -> Any:
    return None if row is None else value(expression, EventScope(members[row].event))


def _of_values(
    call: Call,
    name: str,
    each: Callable[[Expression], list[Any]],
    columns: dict[str, Any],
    options: dict[str, Any],
) -> g.Aggregate:
    word = _word(_VALUES[call.name])
    if call.distinct and word not in {g.min, g.max}:  # these are of the distinct values anyway
        options = {**options, "distinct": True}
    if call.name == "stddevpa":
        options = {**options, "of": "population"}
    if not call.arguments or isinstance(call.arguments[0], Star):
        return word(**options)  # type: ignore[no-any-return]
    columns[name] = column(each(call.arguments[0]))
    return word(name, **options)  # type: ignore[no-any-return]


def _by(
    call: Call, name: str, members: Sequence[Member], columns: dict[str, Any], options: dict[str, Any]
) -> tuple[g.Aggregate, Callable[[Any], Any]]:
    keys = call.arguments
    rows = [[value(key, EventScope(member.event)) for key in keys] for member in members]
    places = ranks(rows, [isinstance(key, Ordered) and key.descending for key in keys])
    if call.name == "sorted":
        return _in_order(places, name, members, columns, options)
    columns[f"{name} rank"] = pa.array(places, pa.int64())
    word = _word("arg_max" if call.name.startswith("max") else "arg_min")
    return word("row", by=f"{name} rank", **options), partial(_shown, Star(), members)


def _in_order(
    places: Sequence[Any],
    name: str,
    members: Sequence[Member],
    columns: dict[str, Any],
    options: dict[str, Any],
) -> tuple[g.Aggregate, Callable[[Any], Any]]:
    """The events by an order of their own: the set of their places in it, which is ordered."""
    order = sorted(range(len(members)), key=lambda row: (places[row], row))
    place_of = {row: place for place, row in enumerate(order)}
    columns[f"{name} place"] = pa.array([place_of[row] for row in range(len(members))], pa.int64())
    aggregate = _word("collect_set")(f"{name} place", **options)
    return aggregate, lambda found: [members[order[place]].event for place in found] if found else None
