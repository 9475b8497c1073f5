"""What a running plan holds of instances that have ended, and how it becomes rid of it.

An operator's state is tables: without the rows of instances that have ended, they are the state of an operator that has
never seen these, and it is restored from them. That is done where as many instances have ended as there are, and less
often where it frees little: so it costs an instance no more than its rows have cost. Where few instances have many
rows, it is done as soon as there are twice as many rows as were left the last time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers
from gpu_ops.core.turns import INSTANCE
from gpu_ops.devices import Device
from gpu_ops.operators.contexts.within import WithInstances
from gpu_ops.operators.runtime.steps import RunningNode, running

FEW = 1 << 8
"""So many instances may have ended before anything is released, ..."""
MANY = 1 << 16
"""... unless so many rows have come since."""

_GROUPS, _KEYS = "groups", "keys "
"""What tables of groups are called, behind a prefix; and those of a join's keys, before the number of the stream."""
_WALKED, _SIDES = "keys", ("left", "right")
"""The keys of a join in one walk, and the rows in its windows: those that wait have no key yet."""


class EndedInstances:
    """The instances of a plan that have ended since it released what it held of them.

    Args:
        plan: The last node of the plan.
        device: Where arrays live.
    """

    def __init__(self, plan: RunningNode, device: Device) -> None:
        self._plan, self._device, self._after, self._left = plan, device, FEW, 0
        nodes = plan.walk()
        within = [each for each in nodes if isinstance(each.own, WithInstances) and each.own.number == INSTANCE]
        sources = {_instances_of(each) for each in within}
        below = {node for each in sources for node in each.walk()}
        self._within = within[0] if within else None
        # Nobody tells rows of instances of several contexts apart.
        is_one = len(sources) == 1
        self._holding = [each for each in nodes if each not in below and each not in within] if is_one else []

    def release(self) -> None:
        """Forget what is held of them, if they are many."""
        if self._within is None or not self._holding:
            return
        known = self._within.own
        assert isinstance(known, WithInstances)  # noqa: S101  (it was chosen as one)
        are_many = known.ended >= max(self._after, len(known.lasting))
        if not are_many and not (known.ended and self._held > 2 * self._left + MANY):
            return
        known.ended = 0
        before, after, changed = 0, 0, dict[RunningNode, dict[str, pa.Table]]()
        lasting = self._device.columns.host(known.lasting)
        for node in self._holding:
            if node.own is None or node.node.stateless:
                continue
            tables = node.own.tables()
            left = without_ended(tables, lasting, node.own.own_numbers)
            before, after = before + _rows(tables), after + _rows(left)
            if _rows(left) < _rows(tables):
                changed[node] = left
        if changed:
            fresh = running(self._plan.node, self._device)
            for node, new in zip(self._plan.walk(), fresh.walk(), strict=True):
                if node in changed and new.own is not None:
                    new.own.restore(changed[node])
                    node.own = new.own
        # Where little is forgotten, it is tried less often.
        self._after = FEW if 2 * after <= before else 2 * self._after
        self._left = max(self._held, after)

    @property
    def _held(self) -> int:
        """How many rows are held."""
        return sum(each.own.alive for each in self._holding if each.own is not None)


def _instances_of(node: RunningNode) -> RunningNode:
    """The node that gives the instances that a node reads."""
    assert isinstance(node.own, WithInstances)  # noqa: S101  (it was chosen as one)
    return node.below[node.own.side]


def _rows(tables: Mapping[str, pa.Table]) -> int:
    return sum(map(len, tables.values()))


def without_ended(tables: Mapping[str, pa.Table], lasting: Any, own: int = 0) -> dict[str, pa.Table]:
    """The tables of an operator without rows and groups of instances that have ended.

    Args:
        tables: The tables.
        lasting: int64 numbers of the instances that are there, ascending.
        own: `Operator.own_numbers`.

    Examples:
        >>> rows = pa.table({"group": pa.array([0, 1, 1], pa.int32()), "low": [5, 6, 7]})
        >>> left = without_ended({"groups": pa.table({"key/@instance": [3, 4]}), "kept": rows}, np.array([4]))
        >>> left["groups"].to_pydict(), left["kept"].to_pydict()
        ({'key/@instance': [4]}, {'group': [0, 0], 'low': [6, 7]})
    """
    numbers = {name: _numbers(table, lasting) for name, table in tables.items() if _is_of_groups(name)}
    made = {}
    for name, table in tables.items():
        lasts, of = _lasts(table, lasting), _groups_of(name, numbers)
        if of is not None and "group" in table.column_names:
            group = integers(table["group"].combine_chunks()).astype(np.int64)
            is_null = group < own
            number = np.where(is_null, group, own + numbers[of][np.maximum(group - own, 0)])
            lasts = is_null | (number >= own) if lasts is None else lasts & (is_null | (number >= own))
            at = table.column_names.index("group")
            table = table.set_column(at, table.schema.field(at), pa.array(number.astype(np.int32)))  # noqa: PLW2901
        made[name] = table if lasts is None or lasts.all() else table.take(np.flatnonzero(lasts))
    return made


def _is_of_groups(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last in {_GROUPS, _WALKED} or last.startswith(_KEYS)


def _groups_of(name: str, known: Mapping[str, Any]) -> str | None:
    """The table of the groups that a table's rows are of: the one with the longest beginning in common."""
    keys = f"{_KEYS}{name.rpartition(' ')[2]}"
    if keys in known:
        return keys
    if _WALKED in known:
        return _WALKED if name in _SIDES else None
    found = [each for each in known if each.endswith(_GROUPS) and name.startswith(each.removesuffix(_GROUPS))]
    return max(found, key=len, default=None)


def _lasts(table: pa.Table, lasting: Any) -> Any | None:
    """bool: which rows are of instances that last, or of none; None if rows are of no instances."""
    names = [name for name in table.column_names if _is_instance(name)]
    kept: Any = None
    for name in names:
        column = table[name].combine_chunks()
        lasts = np.isin(integers(column), lasting) | column.is_null().to_numpy(zero_copy_only=False)
        kept = lasts if kept is None else kept & lasts
    return kept


def _is_instance(name: str) -> bool:
    """Whether a column has numbers of instances: of rows, of groups, of one side of a join, of who asks."""
    return INSTANCE in name.rpartition("/")[2].removesuffix(".frame").split()


def _numbers(table: pa.Table, lasting: Any) -> Any:
    """int64 new number of each group; -1 for one that is gone."""
    lasts = _lasts(table, lasting)
    if lasts is None:
        return np.arange(len(table))
    return np.where(lasts, np.cumsum(lasts) - 1, -1)
