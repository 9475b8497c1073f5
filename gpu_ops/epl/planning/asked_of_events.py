"""Sub-queries in what an event does to a named window: they are asked of the event, before it changes any row.

What holds for some rows, `w.k in (select …)` and `exists (select … where k = w.k)`, is asked of the event as a list,
and of each pair of the event and a row whether the row is in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeGuard

import narwhals as nw
import pyarrow as pa

from gpu_ops.epl import queries as q
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.joins import conjuncts
from gpu_ops.epl.planning.known_contexts import ContextNames
from gpu_ops.epl.planning.known_windows import EVENT
from gpu_ops.epl.planning.list_functions import PlannedMethod, is_list_method, planned_list_method
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.planned import Ledger
from gpu_ops.epl.planning.scopes import EventScope
from gpu_ops.epl.planning.subqueries import Asked, Subqueries
from gpu_ops.plan.nodes import Node, extended
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import BindingScope, BoundStream
from gpu_ops.texts.placed_error import unsupported

_EACH = "@each"
"""The name of an element of a list."""


@dataclass
class AskedOfEvents:
    """The sub-queries of a change, as columns of the events that trigger it.

    Attributes:
        ledger: What they are planned over.
        event: The events, under the names of their properties.
        around: The context.
        columns: The columns of events, and their types.
        methods: What is asked of pairs, over their columns.
    """

    ledger: Ledger
    event: BoundStream
    around: ContextNames
    columns: dict[str, pa.DataType] = field(default_factory=dict)
    methods: list[PlannedMethod] = field(default_factory=list)
    _values: list[nw.Expr] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._all = Subqueries(self.ledger, self.around)
        self._asked: Asked = self._all.asked()

    @property
    def reads(self) -> list[str]:
        """The types of events that they read."""
        return self._all.reads

    def special(self, node: e.Expression, scope: BindingScope, row: BoundStream | None) -> Bound | None:
        """A sub-query, or a method of a list, in a scope of an event and maybe a row; None for any other node.

        Raises:
            PlacedError: It is about the row in another way, or about a named window.
        """
        match node:
            case e.Prefixed("not", e.Inclusion(options=(q.Subquery(),)) as inside):
                return bind(self._is_in(replace(inside, negated=not inside.negated)), scope)
            case e.Inclusion(options=(q.Subquery(),)):
                return bind(self._is_in(node), scope)
            case q.Exists(query) if row is not None and self._is_about(query, row, query):
                return bind(self._exists(node, row), scope)
            case q.Subquery(query) | q.Exists(query):
                if row is not None and self._is_about(query, row, query):
                    raise unsupported(node, "values of sub-queries about the row in changes of named windows")
                return self._column(node)
        if not is_list_method(node):
            return None
        assert isinstance(node, e.FunctionCall)  # noqa: S101  (it is a method)
        found = planned_list_method(node, scope, f"@picked of pairs {len(self.methods)}")
        if found is None:
            return None
        self.methods.append(found)
        return found.made

    def over(self, rows: Node) -> Node:
        """The events with the columns."""
        return extended(self._asked.over(rows), self._values) if self.columns else rows

    def of_pairs(self, pairs: Node) -> Node:
        """Pairs of an event and a row, with what is asked of them."""
        for each in self.methods:
            pairs = each.over(pairs)
        return pairs

    def _column(self, node: e.Expression) -> Bound:
        for part in parts(node):
            if isinstance(part, EventFilter) and part.type_name in self.ledger.windows:
                raise unsupported(part, "sub-queries of named windows and tables in changes of named windows")
        bound = bind(node, EventScope([self.event], asked=self._asked, context=self.around))
        name = f"@asked of event {len(self.columns)}"
        self.columns[name] = bound.type
        self._values.append(bound.value.alias(name))
        return Bound(nw.col(EVENT + name), bound.type, bound.text)

    # Sub-queries about rows

    def _is_in(self, node: e.Inclusion) -> e.Expression:
        """Whether a value is one of those that a sub-query finds: null is none of them, and is not absent either."""
        (found,) = node.options
        compared = e.Operation("!=" if node.negated else "=", e.Name(_EACH), node.value, place=node.place)
        function = e.LambdaFunction((_EACH,), compared, place=node.place)
        return e.FunctionCall("allOf" if node.negated else "anyOf", (function,), found, place=node.place)

    def _exists(self, node: q.Exists, row: BoundStream) -> e.Expression:
        """Whether a sub-query finds a row: one whose value compares so with that of the named window's row."""
        query, terms = node.query, conjuncts(node.query.where)
        mine = [each for each in terms if self._is_about(each, row, query)]
        rest = [each for each in terms if each not in mine]
        on = mine[0] if len(mine) == 1 else None
        sides = [each for each in (on.left, on.right) if self._is_about(each, row, query)] if _compares(on) else []
        if not _compares(on) or len(sides) != 1:
            hint = "Compare one value: exists (select * from A#keepall where k = w.k)."
            raise unsupported(node, "sub-queries about the row but for one comparison", hint)
        each = e.Name(_EACH, place=node.place)
        inner, compared = (
            (on.right, replace(on, right=each)) if sides[0] is on.left else (on.left, replace(on, left=each))
        )
        where = None if not rest else rest[0] if len(rest) == 1 else e.logical("and", rest)
        asked = replace(query, items=(q.SelectItem(inner, place=inner.place),), where=where)
        found = q.Subquery(asked, place=node.place)
        function = e.LambdaFunction((_EACH,), compared, place=node.place)
        return e.FunctionCall("anyOf", (function,), found, place=node.place)

    def _is_about(self, node: e.Syntax, row: BoundStream, query: q.Query) -> bool:
        """Whether a part of a sub-query reads the row: by its name, or a column that nothing else has."""
        source = query.stream.source
        own = self.ledger.types.get(source.type_name) if isinstance(source, EventFilter) else None
        hidden = {*self.event.schema.names, *(() if own is None else own.names)}
        found = [*parts(node)]
        roots = {id(each.of) for each in found if isinstance(each, e.Member) and isinstance(each.of, e.Name)}
        named = any(id(each) in roots and each.name == row.name for each in found if isinstance(each, e.Name))
        plain = (each.name for each in found if isinstance(each, e.Name) and id(each) not in roots)
        return named or any(name in row.schema.names and name not in hidden for name in plain)


def _compares(node: e.Expression | None) -> TypeGuard[e.Operation]:
    return isinstance(node, e.Operation) and node.operator in {"=", "!=", "<", "<=", ">", ">="}
