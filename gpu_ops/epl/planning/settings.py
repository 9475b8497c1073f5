"""`on T set x = …`: what an event does to variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.epl.planning.known_contexts import ContextNames
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.variables import KnownVariable, column_of
from gpu_ops.epl.queries import Assignment
from gpu_ops.plan.nodes import Feed, Node, Project
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import BoundStream, StreamScope, unknown
from gpu_ops.texts.placed_error import failure_at, unsupported


@dataclass(frozen=True)
class VariableSetting:
    """The values that a statement gives to variables, as columns of the rows that trigger it.

    Attributes:
        names: The variables that it sets.
        reads: Those that it reads as they stood before it.
        rows: The leaf: triggering rows, with a column for each variable that it reads.
        values: Their new values: the columns `@column 0` and so on.
        context: The context whose instances have these variables each for itself; nothing for none.
        added: For each variable that only grows by something: that, as the column `@added`. It may be computed for all
            rows at once, and summed.
        at_outputs: Whether the rows that trigger it are the firings of the statement's own output rate.
    """

    names: tuple[str, ...]
    reads: tuple[str, ...]
    rows: Feed
    values: Node
    added: Mapping[str, Node]
    context: str = ""
    at_outputs: bool = False

    @property
    def triggers(self) -> list[str]:
        """The columns of the rows that trigger it."""
        variables = {column_of(name) for name in self.reads}
        return [name for name in self.rows.schema.names if name not in variables]

    @property
    def own(self) -> tuple[str, ...]:
        """The variables of which it reads what it may have set before."""
        return tuple(name for name in self.reads if name in self.names)


class _SettingScope(StreamScope):
    """What names stand for in an assignment: properties of the event, and variables as they stand by then."""

    def __init__(
        self, streams: Sequence[BoundStream], known: Mapping[str, KnownVariable], context: ContextNames
    ) -> None:
        super().__init__(streams)
        self._known, self._context = known, context
        self.given: dict[str, Bound] = {}
        self.reads: dict[str, None] = {}

    def special(self, node: e.Expression) -> Bound | None:
        """A variable, or a property of the context."""
        if not isinstance(node, e.Variable):
            return self._context.special(node)
        if node.name in self.given:
            return self.given[node.name]
        self.reads[node.name] = None
        return Bound(nw.col(column_of(node.name)), self._known[node.name].type)


def setting(
    assignments: Sequence[Assignment],
    stream: BoundStream,
    rows: pa.Schema,
    known: Mapping[str, KnownVariable],
    context: ContextNames,
) -> VariableSetting:
    """The assignments of a statement.

    Args:
        assignments: What is assigned, in order; a later one sees what an earlier one has set.
        stream: The events that trigger it.
        rows: The columns of the rows that trigger it.
        known: The variables.
        context: The context of the statement.

    Raises:
        PlacedError: There is no such variable, it is a constant, or the value is of another type.
    """
    scope = _SettingScope([stream], known, context)
    for each in assignments:
        name = _target(each, known)
        assert each.value is not None  # noqa: S101  (_target saw to it)
        bound, dtype = bind(each.value, scope), known[name].type
        if t.common_type([dtype, bound.type]) != dtype:
            raise failure_at(
                bound, f"The variable {name!r} is of type {t.type_name(dtype)}, and {bound.typed}.", "Cast it."
            )
        scope.given[name] = Bound(as_type(bound, dtype), dtype)
    names, reads = tuple(scope.given), tuple(scope.reads)
    around = {known[name].context for name in names}
    if len(around) > 1:
        raise unsupported(assignments[0], "variables of a context that are set beside others", "Set them apart.")
    fields = [pa.field(column_of(name), known[name].type) for name in reads]
    feed = Feed(pa.schema([*rows, *fields]), (), TICK)
    columns = [scope.given[name].value.alias(f"@column {at}") for at, name in enumerate(names)]
    values = Project(feed, tuple(columns), keep=False)
    own = {name for name in reads if name in names}
    added = {}
    for each in assignments:
        name = _target(each, known)
        if name in own and sum(_target(other, known) == name for other in assignments) == 1:
            term = _added(each.value, name, own)
            if term is not None:
                value = as_type(bind(term, _SettingScope([stream], known, context)), known[name].type)
                sign = -1 if isinstance(each.value, e.Operation) and each.value.operator == "-" else 1
                column = (value if sign > 0 else -value).alias("@added")
                added[name] = Project(feed, (column,), keep=False)
    return VariableSetting(names, reads, feed, values, added, "".join(around))


def _target(assignment: Assignment, known: Mapping[str, KnownVariable]) -> str:
    """The variable that is set."""
    target = assignment.target
    if isinstance(target, e.Name) and assignment.value is not None:
        if target.name not in known:
            raise unknown(target, f"There is no variable {target.name!r}.", target.name, known, known, "Known")
        if known[target.name].constant:
            raise failure_at(target, f"The variable {target.name!r} is a constant.", "Create it without the word.")
        return target.name
    raise unsupported(assignment, "assignments but to variables", "Write: set name = value.")


def _added(value: e.Expression | None, name: str, own: set[str]) -> e.Expression | None:
    """What is added to a variable, or taken from it, if that is all and depends on no other that is set."""
    if not isinstance(value, e.Operation) or value.operator not in {"+", "-"}:
        return None
    left, right = value.left, value.right
    if value.operator == "+" and right == e.Variable(name):
        left, right = right, left
    if left != e.Variable(name) or any(isinstance(part, e.Variable) and part.name in own for part in parts(right)):
        return None
    return right
