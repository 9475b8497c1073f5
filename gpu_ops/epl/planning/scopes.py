"""What the names in the clauses of a statement stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import narwhals as nw

from gpu_ops.core.turns import GROUPING, OLD, ROW
from gpu_ops.epl.planning.aggregates import PlannedAggregates
from gpu_ops.epl.planning.chosen_events import last_of
from gpu_ops.epl.planning.known_contexts import ContextNames
from gpu_ops.epl.planning.looking_back import LookingBack
from gpu_ops.epl.planning.looking_in_joins import LookingInJoin
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.subqueries import Asked
from gpu_ops.epl.planning.variables import VariableColumns
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.rates import COUNTS
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.scope import BoundStream, StreamScope, unknown
from gpu_ops.texts.placed_error import failure_at, unsupported


@dataclass(frozen=True)
class WindowedStream(BoundStream):
    """A stream, and whether it has a window."""

    windowed: bool = False


class EventScope(StreamScope):
    """Expressions about single events on turns, about those that came before them, and what sub-queries hold."""

    def __init__(
        self,
        streams: Sequence[BoundStream],
        looking: LookingBack | None = None,
        asked: Asked | None = None,
        in_join: LookingInJoin | None = None,
        variables: VariableColumns | None = None,
        context: ContextNames | None = None,
    ) -> None:
        super().__init__(streams)
        self._context = context
        self.looking, self._asked, self.in_join, self._variables = looking, asked, in_join, variables

    def special(self, node: e.Expression) -> Bound | None:
        """What an earlier row has, a variable, a property of the context, or a sub-query."""
        around = None if self._context is None else self._context.special(node)
        if around is not None:
            return around
        variable = None if self._variables is None else self._variables.read(node)
        if variable is not None:
            return variable
        found = None if self.looking is None else self.looking.prior(node)
        found = found if self.in_join is None else self.in_join.priors.get(node)
        return found if found is not None or self._asked is None else self._asked.special(node, self)


class CountScope:
    """What names stand for in a condition for output.

    Args:
        variables: The variables of the statement.
    """

    def __init__(self, variables: VariableColumns) -> None:
        self._variables = variables

    def special(self, node: e.Expression) -> Bound | None:
        """The counts, the time of the last output, and variables."""
        if isinstance(node, e.Name) and node.name in {*COUNTS, "last_output_timestamp"}:
            return Bound(nw.col(node.name), t.LONG)
        return self._variables.read(node)

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """Nothing else has a name there."""
        if isinstance(node, e.Member):
            return None
        known = [*COUNTS, "last_output_timestamp"]
        raise unknown(node, f"There is no {node.name!r} in a condition for output.", node.name, known, known, "Known")

    def aggregate(self, call: e.FunctionCall) -> Bound:
        """There is none."""
        raise failure_at(call, "There are no aggregates in a condition for output.")


class DeliveredScope:
    """What names stand for in a select clause: properties, keys of groups, and aggregates."""

    def __init__(
        self,
        events: EventScope,
        aggregates: PlannedAggregates,
        keys: Mapping[e.Expression, Bound],
        asked: Asked,
        levels: Sequence[tuple[str, ...]] = ((),),
    ) -> None:
        self._events, self._aggregates, self._keys, self._asked = events, aggregates, keys, asked
        self._levels = levels
        self.of_groups: Literal["", "refused", "last"] = ""
        """What properties beside the keys are where each row is that of a group: refused, or the last event's."""

    def special(self, node: e.Expression) -> Bound | None:
        """A key of the groups, what another row has, a sub-query, or whether the row is a new one."""
        if isinstance(node, e.FunctionCall) and node.of is None:
            name = node.name.lower()
            if name == "istream" and not node.arguments:
                return Bound(nw.col(ROW) != OLD, t.BOOLEAN)
            if name in {"grouping", "grouping_id"}:
                return self._grouping(node)
        looking = self._events.looking
        previous = None if looking is None else looking.previous(node, self._aggregates)
        if self._events.in_join is not None:
            previous = self._events.in_join.previous.get(node)
        return previous or self._keys.get(node) or self._asked.special(node, self) or self._events.special(node)

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """A property, or the key that is this property."""
        made = self._events.property(node)
        key = None if made is None else self._key(node, made)
        if made is None or key is not None or not self.of_groups:
            return key or made
        if self.of_groups == "refused":
            hint = "Group by it, or aggregate it: last(…)."
            raise unsupported(node, f"{node} beside the keys of groups in windows, of outputs or of old rows", hint)
        value = last_of(self._aggregates, made, "ever")
        for at, level in enumerate(self._levels if len(self._levels) > 1 else ()):
            keys = [key for key, bound in self._keys.items() if bare_column(bound.value) in level]
            if not any(each == node for each in parts(keys)):
                value = nw.when(nw.col(GROUPING) != at).then(value)
        return Bound(value, made.type)

    def _key(self, node: e.Expression, made: Bound) -> Bound | None:
        """The key that is a property."""
        for key, bound in self._keys.items():
            if key == node or (isinstance(key, e.Name | e.Member) and _same(self._events.property(key), made)):
                return bound
        return None

    def _grouping(self, call: e.FunctionCall) -> Bound:
        """Whether keys are not among those of the row's level: a bit for each, that of the last one is 1."""
        if len(self._levels) == 1:
            raise failure_at(call, f"{call.name} needs levels of groups.", "Write: group by rollup(account).")
        names = []
        for node in call.arguments:
            is_path = isinstance(node, e.Name | e.Member)
            made = self._events.property(node) if is_path else None  # type: ignore[arg-type]
            key = self._keys.get(node) if made is None else self._key(node, made)  # type: ignore[arg-type]
            if key is None:
                raise failure_at(node, f"{node} is no key of the groups.", "Name one that stands in 'group by'.")
            names.append(bare_column(key.value))
        if not names or (call.name.lower() == "grouping" and len(names) > 1):
            raise failure_at(call, f"{call.name} takes keys of the groups.", "Write: grouping_id(account, branch).")
        value = nw.lit(0, nw.Int32)
        for at, level in enumerate(self._levels):
            bits = sum((name not in level) << place for place, name in enumerate(reversed(names)))
            value = nw.when(nw.col(GROUPING) == at).then(nw.lit(bits, nw.Int32)).otherwise(value)
        return Bound(value, t.INT)

    def aggregate(self, call: e.FunctionCall) -> Bound:
        """An aggregate."""
        return self._aggregates.aggregate(call)


def _same(one: Bound | None, other: Bound) -> bool:
    names = [None if each is None else bare_column(each.value) for each in (one, other)]
    return names[0] is not None and names[0] == names[1]
