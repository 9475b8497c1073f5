"""Esper's `prior` and `prev`: values of other rows that came out of a stream's windows, or that are in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import NEW, OLD, PLACE, ROW
from gpu_ops.epl.planning.aggregate_columns import AggregateColumns
from gpu_ops.epl.planning.chosen_events import listed, placed
from gpu_ops.epl.planning.events import bind_shown
from gpu_ops.epl.planning.windows import StreamWindows
from gpu_ops.epl.queries import View
from gpu_ops.plan.aggregates import count
from gpu_ops.plan.aggregates import min as smallest
from gpu_ops.plan.look_back import Earlier, LookBack
from gpu_ops.plan.lookups import Looked, Lookup
from gpu_ops.plan.nodes import Node, extended
from gpu_ops.plan.unnest import ElementOf
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind, constant
from gpu_ops.texts.binding.scope import StreamScope
from gpu_ops.texts.placed_error import failure_at, unsupported

PREVIOUS = ("prev", "prevtail", "prevcount", "prevwindow")
GROUPWIN = frozenset({"groupwin", "groupby"})
ARRIVED = "@arrived"
"""The column of deliveries with the place at which their row arrived."""


@dataclass
class LookingBack:
    """What a statement asks of rows other than its own.

    Attributes:
        windows: The windows of its stream.
        views: How they are written.
        events: What names stand for in expressions of a single event.
        named: What the names of its columns begin with, behind the `@`.
        within: Columns of whose values each combination is looked at by itself.
        elements: Columns of deliveries that `with_elements` makes: each of which list, and which element of it.
        later: The columns of what is looked up where rows are output, which may be later than they are delivered; None
            if they see the window as they are delivered.
    """

    windows: StreamWindows
    views: Sequence[View]
    events: StreamScope
    named: str = ""
    within: tuple[str, ...] = ()
    has_previous: bool = False
    later: AggregateColumns | None = None
    elements: dict[str, tuple[str, nw.Expr]] = field(default_factory=dict)
    _columns: dict[str, nw.Expr] = field(default_factory=dict)
    _named: dict[str, str] = field(default_factory=dict)
    _earlier: dict[tuple[str, int, bool], Earlier] = field(default_factory=dict)
    _types: dict[str, pa.DataType] = field(default_factory=dict)
    _groups: tuple[str, ...] = ()
    _by_group: tuple[str, ...] = ()
    places: bool = False

    @property
    def has_prior(self) -> bool:
        """Whether an earlier row was asked for, by prior or in a batch."""
        return bool(self._earlier)

    # What is asked

    def prior(self, node: e.Expression) -> Bound | None:
        """`prior(…)` as a column; None for other nodes."""
        call = _call(node, ("prior",))
        if call is None:
            return None
        index, shown = _parts(call, 1)
        return self._looked(_whole(call, index), shown, together=False)

    def previous(self, node: e.Expression, aggregates: AggregateColumns) -> Bound | None:
        """`prev(…)`, `prevtail(…)`, `prevcount(…)`, `prevwindow(…)` as columns of deliveries; None for other nodes."""
        call = _call(node, PREVIOUS)
        if call is None:
            return None
        if not self.views:
            raise failure_at(call, f"{call.name} needs a window, and the stream has none.", "Write one: #length(100).")
        made = self.in_window(call, aggregates if self.later is None else self.later)
        if self.later is not None:
            self._by_group = tuple(aggregates.column(bound, "key") for bound in self._grouping())
        self.has_previous = True
        # What leaves sees nothing; nor do rows that wait for their batch.
        sees = (nw.col(ROW) == NEW) if self.windows.in_batches else (nw.col(ROW) != OLD)
        return Bound(nw.when(sees).then(made.value), made.type)

    def in_window(self, call: e.FunctionCall, aggregates: AggregateColumns) -> Bound:
        """The same for a row that sees the window, whether it is in or not."""
        name = call.name.lower()
        if name in {"prevcount", "prevwindow"}:
            if len(call.arguments) != 1:
                raise failure_at(call, f"{call.name} takes one argument.", f"Write: {call.name}(price).")
            keys = self._keys(aggregates)
            if name == "prevcount":
                _ = bind_shown(call.arguments[0], self.events)
                return Bound(nw.col(aggregates.add(count(), keys, "window")).fill_null(0), t.LONG)
            shown = bind_shown(call.arguments[0], self.events)
            column = aggregates.column(shown)
            made = listed(column, *self._order)
            return Bound(nw.col(aggregates.add(made, keys, "window")), pa.list_(shown.type))
        index, value = _parts(call, 0 if name == "prevtail" else 1)
        if not _is_constant(index):
            return self._computed(call, index, value, aggregates)
        at = _whole(call, index)
        if name == "prev" and self.windows.in_batches:
            self._groups = self._group_columns()
            looked = self._looked(at, value, together=True)
            return looked if self.later is None else self._if_posted_last(looked)
        shown = bind_shown(value, self.events)
        made = placed(aggregates.column(shown), at if name == "prev" else -1 - at, *self._order)
        return Bound(nw.col(aggregates.add(made, self._keys(aggregates), "window")), shown.type)

    def _computed(self, call: e.FunctionCall, index: e.Syntax, value: e.Syntax, aggregates: AggregateColumns) -> Bound:
        """What stands where the row itself says: an element of all that is in the window."""
        if self.windows.in_batches:
            raise unsupported(index, f"index of {call.name} in batches that is no constant")
        place, shown = bind_shown(index, self.events), bind_shown(value, self.events)
        if not t.is_integer(place.type):
            raise failure_at(index, f"The index of {call.name} is a whole number, and {place.typed}.", "Cast it.")
        made = listed(aggregates.column(shown), *self._order)
        column = aggregates.add(made, self._keys(aggregates), "window")
        at = place.value.cast(nw.Int64)
        if call.name.lower() == "prevtail":
            at = nw.col(column).list.len().cast(nw.Int64) - 1 - at
        name = f"@{self.named}element {len(self.elements)}"
        self.elements[name] = (column, at)
        return Bound(nw.col(name), shown.type)

    def _if_posted_last(self, looked: Bound) -> Bound:
        """What a row sees of its own batch, if that is the one that was posted last when it is output."""
        assert self.later is not None  # noqa: S101  (the caller saw to it)
        self.places = True
        first = nw.col(self.later.add(smallest(PLACE), self._keys(self.later), "window"))
        return Bound(nw.when(nw.col(ARRIVED) >= first).then(looked.value), looked.type)

    def _looked(self, back: int, shown: e.Syntax, *, together: bool) -> Bound:
        """A column of the row so many before."""
        bound = bind_shown(shown, self.events)
        name = self._below(bound)
        key = (name, back, together)
        if key not in self._earlier:
            self._earlier[key] = Earlier(f"@{self.named}looked {len(self._earlier)}", name, back, together)
        return Bound(nw.col(self._earlier[key].name), bound.type)

    def _below(self, bound: Bound) -> str:
        """The column of an expression below where rows look back."""
        name = self._named.setdefault(f"{bound.text}: {bound.type}", f"@{self.named}earlier {len(self._named)}")
        self._columns.setdefault(name, bound.value)
        self._types[name] = bound.type
        return name

    # The order of the window

    def _keys(self, aggregates: AggregateColumns) -> tuple[str, ...]:
        """The columns by which `groupwin` groups."""
        return (*self.within, *(aggregates.column(bound, "key") for bound in self._grouping()))

    def _grouping(self) -> list[Bound]:
        views = [each for each in self.views if each.name.lower() in GROUPWIN]
        return [bind(key, self.events) for each in views for key in each.arguments]

    def _group_columns(self) -> tuple[str, ...]:
        """The same below all else, where rows look back."""
        return (*self.within, *(self._below(bound) for bound in self._grouping()))

    @property
    def _order(self) -> tuple[tuple[str, ...], tuple[bool, ...]]:
        """(columns, whether each descends): the order in which `prev` counts."""
        if not self.windows.order:
            return (PLACE,), (True,)
        columns, down = zip(*self.windows.order, strict=True)
        # Of equal rows the newest stands first in a sorted window, the oldest in others.
        return (*columns, PLACE), (*down, self.views[-1].name.lower() == "sort")

    # The plan

    @property
    def looked(self) -> tuple[str, ...]:
        """The columns of earlier rows."""
        return tuple(each.name for each in self._earlier.values())

    def rows(self, memberships: Node) -> Node:
        """Rows in the windows, with what they see of earlier ones."""
        memberships = extended(memberships, [nw.col(PLACE).alias(ARRIVED)] if self.places else [])
        if not self._earlier:
            return memberships
        below = extended(memberships, [value.alias(name) for name, value in self._columns.items()])
        return LookBack(below, tuple(self._earlier.values()), self._groups, self.within)

    def with_elements(self, deliveries: Node) -> Node:
        """Deliveries with what `prev` sees where rows say themselves how far it looks."""
        places = {name: f"{name} at" for name in self.elements}
        node = extended(deliveries, [at.alias(places[name]) for name, (_, at) in self.elements.items()])
        for name, (column, _) in self.elements.items():
            node = ElementOf(node, column, places[name], name)
        return node

    def looked_up(self, output: Node) -> Node:
        """Rows as they are output, with what is in the window then."""
        if self.later is None or not self.later.made:
            return output
        content = extended(self.windows.memberships, [each.alias(name) for name, each in self.later.columns.items()])
        keys = self._keys(self.later)
        on = tuple(zip(self._by_group, keys, strict=True))
        return Lookup(content, output, tuple(Looked(each.aggregate, on) for each in self.later.made))

    def waiting(self, content: Node) -> Node:
        """Rows that wait for their batch: they have not come out of the windows, and see nothing."""
        columns = [value.alias(name) for name, value in self._columns.items()]
        none = [
            nw.lit(None, t.narwhals_type(self._types[each.column])).alias(each.name) for each in self._earlier.values()
        ]
        return extended(content, [*columns, *none, *([nw.col(PLACE).alias(ARRIVED)] if self.places else [])])


def looks_into_window(node: e.Syntax) -> bool:
    """Whether a node is a call of `prev` or one of its kin."""
    return isinstance(node, e.Expression) and _call(node, PREVIOUS) is not None


def looks_to_arrivals(node: e.Syntax) -> bool:
    """Whether a node is a call of `prior`."""
    return isinstance(node, e.Expression) and _call(node, ("prior",)) is not None


def _call(node: e.Expression, names: Sequence[str]) -> e.FunctionCall | None:
    """A call of one of some functions."""
    if isinstance(node, e.FunctionCall) and node.of is None and node.name.lower() in names:
        return node
    return None


def _parts(call: e.FunctionCall, usual: int) -> tuple[e.Syntax, e.Syntax]:
    """(the index, what is shown): a constant is the index wherever it stands."""
    if len(call.arguments) == 1 and call.name.lower() != "prior":
        return e.Constant(usual, "int"), call.arguments[0]
    if len(call.arguments) != 2:
        raise failure_at(call, f"{call.name} takes an index and an expression.", f"Write: {call.name}(1, price).")
    first, second = call.arguments
    is_swapped = isinstance(second, e.Constant) and not isinstance(first, e.Constant)
    return (second, first) if is_swapped else (first, second)


def _is_constant(node: e.Syntax) -> bool:
    return isinstance(node, e.Constant) or (isinstance(node, e.Prefixed) and isinstance(node.operand, e.Constant))


def _whole(call: e.FunctionCall, node: e.Syntax) -> int:
    if not _is_constant(node):
        raise unsupported(node, f"index of {call.name} that is no constant")
    value = constant(node)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise failure_at(node, f"The index of {call.name} is a whole number from 0 on, not {node}.")
    return value
