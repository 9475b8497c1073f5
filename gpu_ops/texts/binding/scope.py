"""What the names in an expression stand for.

A scope is the answer of whoever plans a clause to three questions of the binder: whether a node means something of its
own there, which column a property is, and what an aggregate is. `StreamScope` answers for the streams of a from clause.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import narwhals as nw
import pyarrow as pa

from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.expressions import Expression, FunctionCall, Member, Name, NamedArgument
from gpu_ops.texts.placed_error import HasPlace, PlacedError, failure_at

_NAMES = """
    sum avg count median stddev avedev fmin fmax minever maxever fminever fmaxever first last window nth firstever
    lastever countever rate leaving maxby minby maxbyever minbyever sorted countminsketch countminsketchadd
"""
_AGGREGATES = frozenset(_NAMES.split())


def is_aggregate(call: FunctionCall) -> bool:
    """Whether a function is one of many rows; `min` and `max` of several values are of one.

    Examples:
        >>> from gpu_ops.epl import parse
        >>> (statement,) = parse("select sum(a), max(a), max(a, b), abs(a) from T")
        >>> [is_aggregate(item.expression) for item in statement.body.items]
        [True, True, False, False]
    """
    name = call.name.lower()
    if call.of is not None:
        return False
    if name in {"min", "max"}:
        return sum(not isinstance(each, NamedArgument) for each in call.arguments) == 1
    return name in _AGGREGATES


class BindingScope(Protocol):
    """What the names of a clause stand for."""

    def special(self, node: Expression) -> Bound | None:
        """What a node means here of its own, asked before anything else: a key of groups, a variable, a sub-query."""

    def property(self, node: Name | Member) -> Bound | None:
        """The column of a property, or of a stream's property; None if a member is one of neither.

        Raises:
            PlacedError: A name is unknown, or is that of several streams' properties.
        """

    def aggregate(self, call: FunctionCall) -> Bound:
        """An aggregate.

        Raises:
            PlacedError: There is none here.
        """


@dataclass(frozen=True)
class BoundStream:
    """A stream of a from clause.

    Attributes:
        alias: What expressions call it; nothing if the text does not say.
        type_name: The name of its event type, which they call it then.
        schema: Its properties.
        columns: The columns of the plan that hold them, by the names of the properties; the same names by default.
            Where a property is a record, those of its fields by their names, ``a.id``, if there are such columns.
        there: A column that is null where a row has no event of the stream, as in outer joins; none if each has one.
    """

    alias: str
    type_name: str
    schema: pa.Schema
    columns: Mapping[str, str] = field(default_factory=dict)
    there: str = ""

    @property
    def name(self) -> str:
        """What expressions call it."""
        return self.alias or self.type_name

    def bound(self, name: str) -> Bound:
        """One of its properties."""
        return Bound(nw.col(self.columns.get(name, name)), self.schema.field(name).type, name)

    def part(self, of: str, name: str) -> Bound | None:
        """A field of a property that is a record, if it has a column of its own."""
        column = self.columns.get(f"{of}.{name}")
        if column is None or of not in self.schema.names:
            return None
        return Bound(nw.col(column), self.schema.field(of).type.field(name).type)


class StreamScope:
    """Expressions about single rows of streams. There are no aggregates.

    Examples:
        >>> from gpu_ops.texts.binding.types import event_type
        >>> amounts = BoundStream("w", "Withdrawal", event_type({"amount": "int"}), {"amount": "w.amount"})
        >>> StreamScope([amounts]).property(Member(Name("w"), "amount")).type
        DataType(int32)
    """

    def __init__(self, streams: Sequence[BoundStream]) -> None:
        self.streams = tuple(streams)

    def special(self, node: Expression) -> Bound | None:
        """Nothing has a meaning of its own."""
        return None

    def property(self, node: Name | Member) -> Bound | None:
        """The column of a property of a stream."""
        if isinstance(node, Name):
            return self._by_name(node)
        if not isinstance(node.of, Name):
            return None
        for stream in self.streams:
            if stream.name == node.of.name and (node.name in stream.schema.names or not self._holds(node.of.name)):
                return _property(stream, node, node.name)
        found = [stream.part(node.of.name, node.name) for stream in self.streams]
        return found[0] if len(found) == 1 else None

    def aggregate(self, call: FunctionCall) -> Bound:
        """There is none."""
        raise failure_at(
            call,
            f"{call.name}(…) is an aggregate, and there are none here: this is about single events.",
            "Write a condition on it behind 'having'." if len(self.streams) else "",
        )

    def _holds(self, name: str) -> bool:
        return any(name in stream.schema.names for stream in self.streams)

    def _by_name(self, node: Name) -> Bound:
        found = [stream for stream in self.streams if node.name in stream.schema.names]
        if len(found) > 1:
            first, second = (f"{stream.name}.{node.name}" for stream in found[:2])
            raise failure_at(
                node,
                f"{node.name!r} is a property of the streams {found[0].name!r} and {found[1].name!r}.",
                f"Write {first} or {second}.",
            )
        if found:
            return found[0].bound(node.name)
        if len(self.streams) == 1:
            return _property(self.streams[0], node, node.name)
        if node.dynamic:
            return Bound(nw.lit(None), t.NULL)
        if any(stream.name == node.name for stream in self.streams):
            raise failure_at(node, f"{node.name!r} is a stream, not a value.", f"Write {node.name}. and a property.")
        known = {f"{stream.name}.{name}": name for stream in self.streams for name in stream.schema.names}
        raise unknown(node, f"No stream has a property {node.name!r}.", node.name, known.values(), known, "They have")


def _property(stream: BoundStream, node: Name | Member, name: str) -> Bound:
    if name in stream.schema.names:
        return stream.bound(name)
    if node.dynamic:
        return Bound(nw.lit(None), t.NULL)
    if isinstance(node, Name) and name == stream.name:
        raise failure_at(node, f"{name!r} is a stream, not a value.", f"Write {name}. and a property.")
    known = stream.schema.names
    raise unknown(node, f"{stream.type_name!r} has no property {name!r}.", name, known, known)


def unknown(
    node: HasPlace, problem: str, name: str, near: Iterable[str], known: Iterable[str], have: str = "It has"
) -> PlacedError:
    """The error for a name that is not there, with one that is almost like it, and all that are."""
    near = list(near)
    same = [each for each in near if each.casefold() == name.casefold()]
    close = same or difflib.get_close_matches(name[:200], near, 1)
    mean = f"Did you mean {close[0]!r}?" if close else ""
    shown = [*known]
    listed = ", ".join(shown[:20]) + (", and others" if len(shown) > 20 else "") or "none"
    return failure_at(node, problem, f"{mean} {have}: {listed}.".strip())
