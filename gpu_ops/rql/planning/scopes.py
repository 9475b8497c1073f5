"""What names in a query stand for, and what SQL means where Esper's language means something else.

A quotient of whole numbers is whole, toward zero. `||` joins texts and numbers. What compares with null is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.cycles import DEAD, INSTANT, NEW, OLD, STATUS, Schedule
from gpu_ops.rql.queries import InnerQuery, QueryHasRows, RowStatus
from gpu_ops.texts.binding import functions
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import BoundStream, StreamScope, unknown
from gpu_ops.texts.expressions import Expression, FunctionCall, Member, Name, Operation
from gpu_ops.texts.placed_error import failure_at, unsupported

SHOWN = {"new": frozenset({NEW}), "dead": frozenset({DEAD}), "not dead": frozenset({NEW, OLD})}
"""The rows that a condition on the row status shows."""

ALL = frozenset({NEW, OLD, DEAD})

AGGREGATES = frozenset({"avg", "count", "max", "min", "sum"})
"""The aggregates of a query with groups."""


@dataclass(frozen=True)
class BoundTable:
    """A table of a from clause.

    Attributes:
        alias: What expressions call it.
        schema: Its columns.
        prefix: What the plan's columns that hold them begin with.
        is_partition: Whether its rows have a status.
        stated: Whether the plan has a column with it.
    """

    alias: str
    schema: pa.Schema
    prefix: str
    is_partition: bool = False
    stated: bool = False

    @property
    def stream(self) -> BoundStream:
        """It as the binder knows it."""
        return BoundStream(self.alias, self.alias, self.schema, {name: self.column(name) for name in self.schema.names})

    def column(self, name: str) -> str:
        """The plan's column that holds one of its columns."""
        return f"{self.prefix}{name}"


def clock_of(schedule: Schedule) -> nw.Expr:
    """The milliseconds that the clock shows at the places of rows in cycles."""
    return nw.col("start").dt.timestamp("us") // INSTANT + schedule.since


class TableScope(StreamScope):
    """Expressions about rows of tables.

    Args:
        tables: The tables.
        clock: What computes `current_timestamp`; None where nothing does.
        outer: The scope of the query around, for names that are in none of the tables.
    """

    def __init__(self, tables: Sequence[BoundTable], clock: nw.Expr | None, outer: TableScope | None = None) -> None:
        super().__init__([each.stream for each in tables])
        self.tables, self.clock, self.outer = tuple(tables), clock, outer

    def special(self, node: Expression) -> Bound | None:
        """The row status, what SQL has otherwise than Esper's language, and functions."""
        match node:
            case RowStatus():
                return self.status(node)
            case InnerQuery() | QueryHasRows():
                raise unsupported(
                    node,
                    "query in this place",
                    "A query stands behind 'in' or 'exists', or gives one aggregate that is compared, in a condition "
                    "that is joined by 'and'.",
                )
            case Name(name) if name.lower() == "current_timestamp" and not self.holds(node):
                return self._now(node)
            case Operation("/", left, right):
                return self._quotient(bind(left, self), bind(right, self))
            case Operation("||", left, right):
                return self._joined(bind(left, self), bind(right, self))
            case FunctionCall():
                return self._called(node)
        return None

    def holds(self, node: Name | Member) -> bool:
        """Whether a name is that of a column of one of these tables."""
        if isinstance(node, Member):
            return isinstance(node.of, Name) and any(
                each.alias == node.of.name and node.name in each.schema.names for each in self.tables
            )
        return any(node.name in each.schema.names for each in self.tables)

    def property(self, node: Name | Member) -> Bound | None:
        """A column of a table; of the query around, where no table here has it."""
        if self.outer is not None and not self.holds(node) and self.outer.holds(node):
            return self.outer.property(node)
        of = node.of.name if isinstance(node, Member) and isinstance(node.of, Name) else ""
        aliases = [each.alias for each in self.tables]
        if of and of not in aliases:
            raise unknown(node, f"There is no table {of!r} here.", of, aliases, aliases, "There are")
        tables = [each for each in self.tables if not of or each.alias == of]
        found = [each for each in tables if node.name in each.schema.names]
        if not found and isinstance(node, Name) and node.name in aliases:
            raise failure_at(node, f"{node.name!r} is a table, not a value.", f"Write {node.name}. and a column.")
        if not found:
            known = [name for each in tables for name in each.schema.names]
            raise unknown(node, f"There is no column {node.name!r}.", node.name, known, known, "There are")
        if len(found) > 1:
            one, other = (each.alias for each in found[:2])
            problem = f"{node.name!r} is a column of {one!r} and of {other!r}."
            raise failure_at(node, problem, f"Write {one}.{node.name} or {other}.{node.name}.")
        return super().property(node)

    def status(self, node: RowStatus) -> Bound:
        """Whether a row of a partition is in a state."""
        if not node.alias:
            raise failure_at(
                node,
                "Whose row status this is has to be said.",
                f"Write {self.tables[0].alias}.$row_status is {node.status}.",
            )
        table = next((each for each in self.tables if each.alias == node.alias), None)
        if table is None:
            if self.outer is not None:
                return self.outer.status(node)
            known = [each.alias for each in self.tables]
            raise unknown(node, f"There is no table {node.alias!r} here.", node.alias, known, known, "There are")
        if not table.is_partition:
            raise failure_at(node, f"{node.alias!r} is no partition: its rows have no status.")
        shown = sorted(SHOWN[node.status])
        return Bound(nw.col(table.column(STATUS)).is_in(shown), t.BOOLEAN)

    def _quotient(self, left: Bound, right: Bound) -> Bound | None:
        if not (t.is_integer(left.type) and t.is_integer(right.type)):
            return None
        dtype = t.arithmetic_type("*", left.type, right.type)
        assert dtype is not None  # noqa: S101  (whole numbers have one)
        one, other = as_type(left, dtype), as_type(right, dtype)
        divisor = nw.when(other != 0).then(other)
        size = one.abs() // divisor.abs()
        return Bound(nw.when((one < 0) == (divisor < 0)).then(size).otherwise(-size), dtype)

    def _now(self, node: Expression) -> Bound:
        if self.clock is None:
            raise unsupported(node, "'current_timestamp' in a query that is read with its tables", "Write a number.")
        return Bound(self.clock, t.LONG)

    def _joined(self, left: Bound, right: Bound) -> Bound:
        texts = []
        for each in (left, right):
            if each.type not in {t.TEXT, t.NULL} and not t.is_integer(each.type):
                raise failure_at(each, f"'||' joins texts and whole numbers, and {each.typed}.")
            texts.append(as_type(each, t.TEXT) if each.type in {t.TEXT, t.NULL} else each.value.cast(nw.String()))
        return Bound(nw.concat_str(*texts, ignore_nulls=False), t.TEXT)

    def _called(self, node: FunctionCall) -> Bound:
        name = node.name.lower()
        if name in AGGREGATES:
            return self.aggregate(node)
        if name == "current_timestamp" and not node.arguments:
            return self._now(node)
        if name not in _FUNCTIONS:
            known = [*_FUNCTIONS, "current_timestamp", *sorted(AGGREGATES)]
            raise unknown(node, f"gpu_ops knows no function {node.name!r}.", node.name, known, known, "Functions")
        if node.quantity:
            raise failure_at(node, f"{node.quantity!r} can stand in an aggregate alone.")
        return _FUNCTIONS[name](node, [bind(each, self) for each in node.arguments])


class ColumnScope(TableScope):
    """Expressions over what has been computed: groups, aggregates, columns of the answer.

    Args:
        computed: The columns by the expressions that they hold, and their types.
        inner: What the expressions of aggregates and of rows are over.
        problem: What is wrong with a column that is none of them.
    """

    def __init__(
        self, computed: Mapping[Expression, tuple[str, pa.DataType]], inner: TableScope, problem: str = ""
    ) -> None:
        super().__init__(inner.tables, inner.clock, inner.outer)
        self._computed, self._problem = computed, problem

    def special(self, node: Expression) -> Bound | None:
        """A column that holds this very expression."""
        if node in self._computed:
            name, dtype = self._computed[node]
            return Bound(nw.col(name), dtype)
        if isinstance(node, Name | Member) and self._problem and not _is_clock(node):
            super().property(node)
            raise failure_at(node, f"{node} {self._problem}.", "Group by it too, or take an aggregate of it.")
        return super().special(node)


def _is_clock(node: Name | Member) -> bool:
    return isinstance(node, Name) and node.name.lower() == "current_timestamp"


def _of_text(method: str) -> Callable[[FunctionCall, Sequence[Bound]], Bound]:
    def apply(node: FunctionCall, given: Sequence[Bound]) -> Bound:
        if len(given) != 1 or given[0].type != t.TEXT:
            raise failure_at(node, f"{node.name}(…) takes a text.")
        return functions.method(FunctionCall(method, place=node.place), given[0], [])

    return apply


_FUNCTIONS: Mapping[str, Callable[[FunctionCall, Sequence[Bound]], Bound]] = {
    "abs": functions.STATIC["Math.abs"],
    "ceiling": functions.STATIC["Math.ceil"],
    "coalesce": functions.FUNCTIONS["coalesce"],
    "floor": functions.STATIC["Math.floor"],
    "length": _of_text("length"),
    "lower": _of_text("toLowerCase"),
    "sqrt": functions.STATIC["Math.sqrt"],
    "trim": _of_text("trim"),
    "upper": _of_text("toUpperCase"),
}
"""Functions of a row's values."""
