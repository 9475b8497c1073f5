"""Variables of contexts that run: a value for each instance, and in some turns what it was from place to place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.turns import INSTANCE
from gpu_ops.epl.planning.variables import KnownVariable, column_of, is_set, was
from gpu_ops.texts.feeding import PlacedRows

NEXT = 2
"""From a place to the next at which there may be an event."""


@dataclass(frozen=True)
class SetInInstances:
    """What a statement has set: int64 places and instances, and the values of each variable there."""

    number: int
    places: Any
    instances: Any
    values: Mapping[str, pa.Array]


@dataclass(frozen=True)
class _ValuesSoFar:
    """Values of a variable: int64 places and instances, in the order of instances and then of places."""

    places: Any
    instances: Any
    values: pa.Array

    def before(self, places: Any, instances: Any) -> Any:
        """The number of the last entry of each instance at or before a place; -1 for none."""
        count = len(self.places)
        of = np.concatenate([self.instances, instances])
        at = np.concatenate([self.places, places])
        asks = np.concatenate([np.zeros(count, np.bool_), np.ones(len(places), np.bool_)])
        order = np.lexsort((asks, at, of))
        number = np.where(asks[order], -1, order)
        last = np.maximum.accumulate(np.where(number >= 0, np.arange(len(order)), -1))
        found = np.where(last >= 0, number[last], -1)
        found = np.where((last >= 0) & (of[order][last] == of[order]), found, -1)
        made = np.empty(len(order), np.int64)
        made[order] = found
        return made[count:]


@dataclass
class ContextVariables:
    """The variables of contexts.

    Attributes:
        known: The variables, by their names: the value is that of an instance in which nothing has been set.
        now: For each variable: the instances in which it has been set, ascending, and its values there.
    """

    known: dict[str, KnownVariable] = field(default_factory=dict)
    now: dict[str, tuple[Any, pa.Array]] = field(default_factory=dict)
    _changes: list[SetInInstances] = field(default_factory=list)

    def wakes(self, names: frozenset[str]) -> bool:
        """Whether any of some variables has been set in these turns."""
        return any(not names.isdisjoint(each.values) for each in self._changes)

    def add(self, change: SetInInstances) -> None:
        """Have what a statement has set."""
        self._changes.append(change)

    def values(self, name: str, instances: Any) -> pa.Array:
        """The values of a variable in some instances now."""
        known = self.known[name]
        own, values = self._now(name)
        at = np.searchsorted(own, instances)
        there = (at < len(own)) & (np.append(own, -1)[np.minimum(at, len(own))] == instances)
        return self._at(values, np.where(there, at, -1), known)

    def history(self, name: str, number: int, begin: int, *, whole: bool) -> PlacedRows:
        """Where a variable is set, as a statement sees it; with `whole` also what it is where that begins.

        Args:
            name: The variable.
            number: The number of the statement.
            begin: The first place.
            whole: Whether the statement does not know yet what was set before.
        """
        known, entries = self.known[name], self._entries(name, number)
        fresh = np.ones(len(entries.places), np.bool_) if whole else entries.places > _LONG_AGO
        order = np.flatnonzero(fresh)
        order = order[np.argsort(np.maximum(entries.places, begin)[order], kind="stable")]
        same = np.append(np.int64(-1), entries.instances[:-1]) == entries.instances
        before = np.where(same, np.arange(-1, len(entries.places) - 1), -1)
        columns = {
            column_of(name): entries.values.take(pa.array(order)),
            was(name): self._at(entries.values, before[order], known),
            is_set(name): pa.array(np.ones(len(order), np.bool_)),
            INSTANCE: pa.array(entries.instances[order]),
        }
        return PlacedRows(np.maximum(entries.places, begin)[order], pa.table(columns))

    def before(self, name: str, number: int, places: Any, instances: Any) -> tuple[pa.Array, Any]:
        """(a variable's values at some places of instances but for what a statement sets, since when they are that)."""
        entries = self._entries(name, number, but=number)
        found = entries.before(places, instances)
        since = np.where(found >= 0, np.append(entries.places, _LONG_AGO)[found], _LONG_AGO)
        return self._at(entries.values, found, self.known[name]), since

    def settle(self, alive: Mapping[str, Any]) -> None:
        """Have the last values of the turns, of the instances that are there.

        Args:
            alive: The instances of each context.
        """
        for name, known in self.known.items():
            if any(name in each.values for each in self._changes):
                entries = self._entries(name, 0)
                last = np.append(
                    entries.instances[1:] != entries.instances[:-1], np.ones(min(len(entries.places), 1), np.bool_)
                )
                keep = np.flatnonzero(last & np.isin(entries.instances, alive[known.context]))
                self.now[name] = entries.instances[keep], entries.values.take(pa.array(keep))
        self._changes = []

    def _now(self, name: str) -> tuple[Any, pa.Array]:
        return self.now.get(name, (np.zeros(0, np.int64), pa.array([], self.known[name].type)))

    def _entries(self, name: str, number: int, *, but: int = -1) -> _ValuesSoFar:
        """All that is known of a variable; of several values at a place the last one counts."""
        own, values = self._now(name)
        mine = sorted((each for each in self._changes if name in each.values and each.number != but), key=_number)
        places = [each.places + (0 if each.number < number else NEXT) for each in mine]
        at = np.concatenate([np.full(len(own), _LONG_AGO), *places])
        of = np.concatenate([own, *(each.instances for each in mine)])
        whole = pa.concat_arrays([values, *(each.values[name] for each in mine)])
        rank = np.repeat(np.arange(len(mine) + 1), [len(own), *map(len, places)])
        order = np.lexsort((np.arange(len(at)), rank, at, of))
        last = np.append(
            (at[order][1:] != at[order][:-1]) | (of[order][1:] != of[order][:-1]), np.ones(min(len(at), 1), np.bool_)
        )
        order = order[last]
        return _ValuesSoFar(at[order], of[order], whole.take(pa.array(order)))

    @staticmethod
    def _at(values: pa.Array, found: Any, known: KnownVariable) -> pa.Array:
        """Values by their numbers; -1 is the value of an instance in which nothing has been set."""
        whole = pa.concat_arrays([values, pa.array([known.value], known.type)])
        return whole.take(pa.array(np.where(found >= 0, found, len(values))))

    def tables(self) -> dict[str, pa.Table]:
        """The values now, by the names of variables."""
        made = {name: self._now(name) for name in self.known}
        return {name: pa.table({INSTANCE: of, "value": values}) for name, (of, values) in made.items()}

    def restored(self, name: str, table: pa.Table) -> None:
        """Have what `tables` gave of a variable."""
        self.now[name] = table[INSTANCE].to_numpy(), table["value"].combine_chunks()


_LONG_AGO = -(1 << 62)


def _number(change: SetInInstances) -> int:
    return change.number
