"""Methods of lists that aggregates make: of events in an order (`sorted`), of a window's, and of any other list.

As Esper documents the aggregation methods of `sorted` and `window`: keys are what `sorted` sorts by, and events of one
key stand in the order in which they came; of several an event is the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import narwhals as nw
import pyarrow as pa

from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.known_windows import KnownWindow
from gpu_ops.plan.list_picks import Found, ListPick, Place
from gpu_ops.plan.nodes import Node, extended
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import BindingScope, unknown
from gpu_ops.texts.placed_error import failure_at, unsupported

_PLACES: tuple[Place, ...] = ("ceiling", "floor", "higher", "lower", "first", "last")
_FOUND: dict[str, Found] = {"event": "element", "events": "elements", "key": "key"}
_OF_SORTED: Mapping[str, tuple[Place, Found]] = {
    **{f"{place}{word}": (place, found) for place in _PLACES for word, found in _FOUND.items()},
    "minby": ("first", "element"),
    "maxby": ("last", "element"),
    "getevent": ("equal", "element"),
    "getevents": ("equal", "elements"),
    "containskey": ("equal", "there"),
    "countevents": ("first", "count"),
    "countkeys": ("first", "keys"),
    "eventsbetween": ("between", "elements"),
}
_OF_WINDOWS: Mapping[str, tuple[Place, Found]] = {
    "countevents": ("first", "count"),
    "first": ("at", "element"),
    "last": ("from end", "element"),
}
_OF_LISTS: Mapping[str, tuple[Place, Found]] = {"lastof": ("from end", "element")}
_WHOLE = "listreference"
_MAPS = frozenset({"submap", "navigablemapreference", "dictionaryreference"})
_NAMES = frozenset({*_OF_SORTED, *_OF_WINDOWS, *_OF_LISTS, _WHOLE, *_MAPS})
_BOUNDS = ("a key", "whether it counts", "a key", "whether it counts")


@dataclass(frozen=True)
class PlannedPick:
    """A pick without the rows that it is of.

    Attributes:
        lists: The lists.
        node: Makes it over rows that have these under a name, and the arguments under others.
        arguments: The arguments.
        name: The name of the column that it makes.
    """

    lists: nw.Expr
    node: Callable[[Node, str, tuple[str, ...]], ListPick]
    arguments: tuple[nw.Expr, ...]
    name: str

    def over(self, rows: Node) -> Node:
        """The rows with one more column."""
        lists, *given = names = [f"{self.name} {at}" for at in range(len(self.arguments) + 1)]
        values = zip(names, (self.lists, *self.arguments), strict=True)
        return self.node(extended(rows, [value.alias(name) for name, value in values]), lists, tuple(given))


def is_pick(node: e.Expression) -> bool:
    """Whether a node may be such a method."""
    if not isinstance(node, e.FunctionCall) or any(isinstance(each, e.LambdaFunction) for each in node.arguments):
        return False
    return node.of is not None and node.name.lower() in _NAMES


def planned_pick(
    call: e.FunctionCall, scope: BindingScope, windows: Mapping[str, KnownWindow], name: str
) -> tuple[PlannedPick | None, Bound] | None:
    """(the pick, its column); None for a method of something else.

    Args:
        call: The method.
        scope: What names stand for around it.
        windows: The named windows and tables.
        name: The name of the column that it makes.

    Raises:
        PlacedError: An argument is missing, or of another type.
    """
    of = call.of
    assert of is not None  # noqa: S101  (it is a method)
    if isinstance(of, e.Name) and scope_has_no(of, scope):
        return None
    bound = bind(of, scope)
    if not pa.types.is_list(bound.type):
        return None
    made = _aggregate(of, windows)
    kind = "" if made is None else made.name.lower()
    word = call.name.lower()
    known = _OF_SORTED if kind == "sorted" else {**_OF_WINDOWS, **_OF_LISTS} if kind == "window" else _OF_LISTS
    if word in _OF_LISTS:
        known = _OF_LISTS
    if word == _WHOLE and kind in {"sorted", "window"}:
        return None, bound
    if word in _MAPS and kind == "sorted":
        raise unsupported(call, f"maps of keys and events ({call.name})", "Ask for eventsBetween, or for keys.")
    if word not in known:
        if not kind:
            return None
        raise unknown(call, f"gpu_ops knows no method {call.name!r} of {kind}.", word, known, known, "Methods")
    place, found = known[word]
    keys, descending = ((), False) if known is not _OF_SORTED or made is None else _keys(call, made, bound)
    arguments = _arguments(call, place, keys, bound, scope)
    if len(keys) > 1 and (found == "key" or place not in {"first", "last"}):
        raise unsupported(call, f"{call.name} of several keys")

    def over(rows: Node, lists: str, given: tuple[str, ...]) -> ListPick:
        return ListPick(rows, lists, place, found, keys, descending, given, name)

    types: dict[str, pa.DataType] = {
        "element": bound.type.value_type,
        "elements": bound.type,
        "there": t.BOOLEAN,
    }
    dtype = bound.type.value_type.field(keys[0]).type if found == "key" else types.get(found, t.INT)
    return PlannedPick(bound.value, over, arguments, name), Bound(nw.col(name), dtype)


def scope_has_no(of: e.Name, scope: BindingScope) -> bool:
    """Whether a name is none of a property: it is a class then, or a stream."""
    streams = getattr(scope, "streams", None)
    return streams is not None and not any(of.name in stream.schema.names for stream in streams)


def _aggregate(of: e.Expression, windows: Mapping[str, KnownWindow]) -> e.FunctionCall | None:
    """The aggregate whose value a node is: itself, or that of a table's column."""
    match of:
        case e.FunctionCall(of=None):
            return of if of.name.lower() in {"sorted", "window"} else None
        case q.Subquery(q.Query(items=(q.SelectItem(expression=(e.Name(name) | e.Member(name=name))),), stream=stream)):
            table = windows.get(getattr(stream.source, "type_name", ""))
            return None if table is None else table.declared.get(name)
        case e.Name(name) | e.Member(name=name):
            found = [each.declared[name] for each in windows.values() if name in each.declared]
            return found[0] if len(found) == 1 else None
    return None


def _keys(call: e.FunctionCall, made: e.FunctionCall, bound: Bound) -> tuple[tuple[str, ...], bool]:
    """(the properties by which events are sorted, whether the greatest comes first)."""
    names, down = [], []
    for each in made.arguments:
        if isinstance(each, e.NamedArgument):
            continue
        node = each.expression if isinstance(each, e.SortKey) else each
        if not isinstance(node, e.Name | e.Member) or bound.type.value_type.get_field_index(node.name) < 0:
            raise unsupported(call, f"{call.name} of events that are sorted by what is no property of theirs")
        names.append(node.name)
        down.append(isinstance(each, e.SortKey) and each.descending)
    return tuple(names), down[0]


def _arguments(
    call: e.FunctionCall, place: Place, keys: tuple[str, ...], bound: Bound, scope: BindingScope
) -> tuple[nw.Expr, ...]:
    wanted = {"first": (), "last": (), "between": _BOUNDS, "at": ("an index",), "from end": ("an index",)}
    said = wanted.get(place, ("a key",))
    given = list(call.arguments)
    if not given and said == ("an index",):
        given = [e.Constant(0, "int", place=call.place)]
    if len(given) != len(said):
        what = ", ".join(said) or "nothing"
        raise failure_at(call, f"{call.name}(…) takes {what}, and there are {len(given)} arguments.")
    made = []
    for each, word in zip(given, said, strict=True):
        if not isinstance(each, e.Expression):
            raise failure_at(call, f"{call.name}(…) takes no {each}.")
        value = bind(each, scope)
        dtype = t.INT if word == "an index" else t.BOOLEAN
        if word == "a key":
            own = bound.type.value_type.field(keys[0]).type
            found = t.common_type([own, value.type])
            if found is None or found == t.NULL:
                raise failure_at(value, f"The keys are of type {t.type_name(own)}, and {value.typed}.", "Cast it.")
            dtype = own if t.common_type([own, value.type]) == own else found
        elif value.type != dtype:
            raise failure_at(value, f"{call.name}(…) takes {word} here, and {value.typed}.")
        made.append(as_type(value, dtype))
    return tuple(made)
