"""Variables in statements: which of them are columns of values at each place, and which are read as they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import CHANGED, ENTERED, INSTANCE, LEFT, MARK, ORDER, ROW
from gpu_ops.epl import queries as q
from gpu_ops.epl.inlining import Change, rebuilt
from gpu_ops.epl.patterns import EventFilter, PatternEvents
from gpu_ops.epl.planning.derived import is_derived
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.statements import Trigger
from gpu_ops.plan.joins import AsOf, Union, cast_to
from gpu_ops.plan.nodes import Feed, Filter, Node, extended, selected
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.bound import Bound, literal
from gpu_ops.texts.binding.scope import is_aggregate
from gpu_ops.texts.binding.types import type_name
from gpu_ops.texts.placed_error import failure_at, unsupported

_OF_OTHER_ROWS = frozenset({"prev", "prior", "prevtail", "prevcount", "prevwindow"})
_WHILE = frozenset({"expr", "expr_batch"})


@dataclass(frozen=True)
class KnownVariable:
    """A variable.

    Attributes:
        type: The type of its values.
        value: Its value now, as Python has it.
        constant: Whether it keeps that value.
        context: The context whose instances have a value each, which begins as `value`; nothing for none.
    """

    type: pa.DataType
    value: Any = None
    constant: bool = False
    context: str = ""


def column_of(name: str) -> str:
    """The column with the values of a variable."""
    return f"@variable {name}"


def was(name: str) -> str:
    """The column with what a variable of a context was before."""
    return f"@was {name}"


def is_set(name: str) -> str:
    """The column that is null where a variable of a context has not been set."""
    return f"@set {name}"


def feed_of(name: str, known: KnownVariable) -> Feed:
    """A leaf of the values of a variable of a context: a row where it is set, in an instance."""
    fields = [
        (column_of(name), known.type),
        (was(name), known.type),
        (is_set(name), pa.bool_()),
        (INSTANCE, pa.int64()),
    ]
    return Feed(pa.schema(fields), (), TICK)


class VariableColumns:
    """The variables of a statement as columns: each row has the values that stood at its place.

    Args:
        known: The variables.
        names: Those that the statement reads, and that may change.

    Attributes:
        history: The leaf of their values as the statement sees them; None if it reads none that changes.
        before: That of their values before anything is set at a place, as filters see them.
        own: Likewise the leaves of variables of the statement's context: (history, before).
    """

    def __init__(self, known: Mapping[str, KnownVariable], names: Sequence[str]) -> None:
        self._known = known
        self.own = {
            name: (feed_of(name, known[name]), feed_of(name, known[name])) for name in names if known[name].context
        }
        names = [name for name in names if name not in self.own]
        schema = pa.schema([*((column_of(name), known[name].type) for name in names), (CHANGED, pa.bool_())])
        self.history = Feed(schema, (), TICK) if names else None
        self.before = Feed(schema, (), TICK) if names else None

    def in_instances(self, node: Any) -> bool:
        """Whether an expression reads a variable of the context."""
        return any(isinstance(part, e.Variable) and part.name in self.own for part in parts(node))

    def read(self, node: e.Expression) -> Bound | None:
        """A variable; None for any other node."""
        if not isinstance(node, e.Variable):
            return None
        return Bound(nw.col(column_of(node.name)), self._known[node.name].type)

    def beside(self, rows: Node, *, before: bool = False) -> Node:
        """Rows with the values of the variables.

        Args:
            rows: The rows, at their places.
            before: Whether they are those before anything is set at these places.
        """
        for name, feeds in self.own.items():
            known, column = self._known[name], column_of(name)
            rows = AsOf(rows, feeds[before], ((INSTANCE, INSTANCE),), "left")
            otherwise = literal(known.value, known.type)
            value = nw.when(~nw.col(is_set(name)).is_null()).then(nw.col(column)).otherwise(otherwise)
            rows = extended(rows, [value.alias(column)])
            rows = selected(rows, [each for each in rows.schema.names if each not in {was(name), is_set(name)}])
        feed = self.before if before else self.history
        if feed is None:
            return rows
        return extended(AsOf(rows, feed, (), "left"), [nw.lit(value=False).alias(CHANGED)])

    def marked(self, rows: Node) -> Node:
        """Deliveries with the values of the variables, and among them marks where one has changed."""
        assert self.history is not None  # noqa: S101  (a variable is read)
        rows = self.beside(rows)
        sources = {name: name for name in self.history.schema.names}
        own = {
            ENTERED: nw.lit(0, nw.Int64()),
            LEFT: nw.lit(0, nw.Int64()),
            ORDER: nw.lit(0, nw.Int64()),
            ROW: nw.lit(MARK, nw.Int8()),
        }
        marks = cast_to(Filter(self.history, nw.col(CHANGED)), rows.schema, sources, ())
        marks = extended(marks, [value.alias(name) for name, value in own.items()])
        return Union((marks, rows))


def reads(node: Any) -> bool:
    """Whether a variable that may change is in an expression."""
    return any(isinstance(part, e.Variable) for part in parts(node))


@dataclass(frozen=True)
class ReadVariables:
    """The variables of a statement.

    Attributes:
        changing: Those that it reads at each place.
        frozen: Those that it has read once, and that must not change while it runs.
        waking: Those whose changes it is told at once: the condition of its output reads them.
    """

    changing: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    waking: frozenset[str] = frozenset()


class VariableNames:
    """The names in a statement that are variables.

    Where a statement cannot read another value at each place, it reads a variable once: `ReadVariables.frozen`.

    Args:
        known: The variables.
        types: The properties of each type of event.
    """

    def __init__(self, known: Mapping[str, KnownVariable], types: Mapping[str, pa.Schema]) -> None:
        self._known, self._types = known, types
        self._changing: dict[str, None] = {}
        self._frozen: dict[str, None] = {}
        self._properties: dict[str, str] = {}
        self._hidden: set[str] = set()
        self._waking: frozenset[str] = frozenset()

    @property
    def found(self) -> ReadVariables:
        """The variables that were found."""
        return ReadVariables(tuple(self._changing), tuple(self._frozen), self._waking)

    def query(self, query: q.Query) -> q.Query:
        """A query in which variables are nodes of their own, or constants.

        Raises:
            PlacedError: A name is that of a variable and of a property, or the type of a variable cannot be read here.
        """
        if not self._known:
            return query
        self.among(query)
        output, always, once = query.output, self._always, self._once
        derived = bool(query.stream.views) and is_derived(query.stream.views[-1])
        at_once = not derived and (output is None or output.rate is None or output.selection in {"first", "snapshot"})
        folded = bool(query.group_by) or any(
            isinstance(part, e.FunctionCall) and is_aggregate(part) for part in parts((query.items, query.having))
        )
        shown = always if at_once else once
        in_windows = bool(query.joins) or bool(query.stream.views)
        terms = [self._term(each) for each in query.streams]
        aliases = {item.alias for item in query.items if item.alias}
        joins = tuple(
            replace(join, stream=term, on=rebuilt(join.on, once))
            for join, term in zip(query.joins, terms[1:], strict=True)
        )
        made = replace(
            query,
            items=rebuilt(query.items, shown),
            stream=terms[0],
            joins=joins,
            where=rebuilt(query.where, once if query.joins or derived or (in_windows and folded) else always),
            group_by=rebuilt(query.group_by, once),
            having=rebuilt(query.having, shown),
            output=self._output(output, live=not derived),
            limit=rebuilt(query.limit, once),
        )
        self._hidden |= aliases
        return replace(made, order_by=rebuilt(query.order_by, shown))

    def _output(self, output: q.Output | None, *, live: bool) -> q.Output | None:
        """An output clause; a condition is asked again when its variables change."""
        rate = None if output is None else output.rate
        if (
            output is None
            or not isinstance(rate, q.OutputWhen)
            or not live
            or output.selection in {"first", "snapshot"}
        ):
            return rebuilt(output, self._once)
        condition = rebuilt(rate.condition, self._always)
        self._waking = frozenset(part.name for part in parts(condition) if isinstance(part, e.Variable))
        return replace(rebuilt(replace(output, rate=None), self._once), rate=replace(rate, condition=condition))

    def among(self, statement: Any) -> None:
        """Note the streams of a statement, whose properties are no variables."""
        for part in parts(statement):
            if isinstance(part, EventFilter):
                self._hidden.add(part.type_name)
                for name in self._types.get(part.type_name, pa.schema([])).names:
                    self._properties.setdefault(name, part.type_name)
            if isinstance(part, PatternEvents):
                self._hidden.add(part.tag)
            if isinstance(part, q.StreamTerm | Trigger) and part.alias:
                self._hidden.add(part.alias)

    def as_now(self, node: Any) -> Any:
        """A part of a statement in which variables are the values that they have now."""
        return rebuilt(node, self._now)

    def each_time(self, node: Any) -> Any:
        """A part of a statement in which variables have the values that stand at each place."""
        return rebuilt(node, self._always)

    def once(self, node: Any) -> Any:
        """A part of a statement in which variables are read once: nothing may set them while it runs."""
        return rebuilt(node, self._once)

    def _term(self, term: q.StreamTerm) -> q.StreamTerm:
        views = tuple(rebuilt(each, self._once if each.name.lower() in _WHILE else self._now) for each in term.views)
        in_pattern = isinstance(term.source, q.PatternSource)
        source = rebuilt(term.source, self._in_pattern if in_pattern else self._always)
        return replace(term, source=source, views=views)

    def _in_pattern(self, node: Any) -> Any:
        """Filters of a pattern read a variable at each place, all else once."""
        return rebuilt(node, self._always) if isinstance(node, EventFilter) else self._once(node)

    # What becomes of a node

    def _is_variable(self, node: Any) -> bool:
        if not isinstance(node, e.Name) or node.name not in self._known or node.name in self._hidden:
            return False
        if node.name in self._properties:
            raise failure_at(
                node,
                f"{node.name!r} is a variable, and a property of {self._properties[node.name]!r}.",
                "Write the stream before it, if that is meant, or rename the variable.",
            )
        return True

    def _always(self, node: Any) -> Any:
        if isinstance(node, q.Query) or (isinstance(node, e.FunctionCall) and _is_of_rows(node)):
            return rebuilt(node, self._parts_of(node, self._once))
        if isinstance(node, e.Member) and isinstance(node.of, e.Name):
            return node if node.of.name not in self._known else None
        if not self._is_variable(node):
            return None
        if self._known[node.name].constant:
            return self._constant(node)
        self._changing[node.name] = None
        return e.Variable(node.name, place=node.place)

    def _once(self, node: Any) -> Any:
        if self._is_variable(node) and self._known[node.name].context:
            raise unsupported(
                node, "variables of contexts in aggregates, groups, joins, sub-queries, windows and rates"
            )
        if self._is_variable(node) and not self._known[node.name].constant:
            self._frozen[node.name] = None
        return self._now(node)

    def _now(self, node: Any) -> Any:
        if self._is_variable(node) and self._known[node.name].context:
            raise unsupported(node, "variables of contexts here")
        return self._constant(node) if self._is_variable(node) else None

    def _parts_of(self, node: Any, change: Change) -> Change:
        """What changes the parts of a node, and leaves the node itself."""

        def inner(part: Any) -> Any:
            return None if part is node else change(part)

        return inner

    def _constant(self, node: e.Name) -> e.Expression:
        """The value of a variable as it is written."""
        known = self._known[node.name]
        return written(known.value, known.type, node)


_WORDS: dict[pa.DataType, Any] = {
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
}


def written(value: Any, dtype: pa.DataType, node: e.Expression) -> e.Expression:
    """A value as a constant that stands where a node does."""
    if value is None:
        null = e.Constant(None, "null", place=node.place)
        return e.Cast(null, e.TypeName(type_name(dtype), place=node.place), place=node.place)
    if pa.types.is_list(dtype):
        return e.ArrayOf(tuple(written(each, dtype.value_type, node) for each in value), place=node.place)
    if dtype not in _WORDS:
        raise unsupported(node, f"variable of type {type_name(dtype)} here")
    return e.Constant(value, _WORDS[dtype], place=node.place)


def _is_of_rows(call: e.FunctionCall) -> bool:
    return is_aggregate(call) or (call.of is None and call.name.lower() in _OF_OTHER_ROWS)
