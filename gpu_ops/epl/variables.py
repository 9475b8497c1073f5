"""Variables that run: their values, and in some turns what they were from place to place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.turns import CHANGED, INSTANCE, PLACE
from gpu_ops.devices import Device
from gpu_ops.epl.context_variables import ContextVariables, SetInInstances
from gpu_ops.epl.planning.settings import VariableSetting
from gpu_ops.epl.planning.variables import KnownVariable, ReadVariables, column_of
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import EachPiece, Operator
from gpu_ops.operators.runtime.steps import FirstFailure
from gpu_ops.plan.nodes import Node
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.feeding import PlacedRows
from gpu_ops.texts.sent_rows import table_of

_NEXT = 2
"""From a place to the next at which there may be an event."""

_FEW, _MANY = 64, 1 << 16


@dataclass(frozen=True)
class _SetValues:
    """What a statement has set: int64 places, and the values of each variable there."""

    number: int
    places: Any
    values: Mapping[str, pa.Array]


class Variables:
    """The variables of a runtime.

    A statement that sets a variable does so at a place. Those behind it, in the order in which they were deployed, see
    the value there; those before it see it from the next event on.

    Attributes:
        known: The variables, by their names.
        of_contexts: Those of contexts.
    """

    def __init__(self) -> None:
        self.known: dict[str, KnownVariable] = {}
        self.of_contexts = ContextVariables()
        self._changes: list[_SetValues] = []
        self._given: set[str] = set()

    def set(self, name: str, value: Any) -> None:
        """Give a variable a value, from the next turn on.

        Raises:
            PlanError: There is no such variable, or it is a constant.
            ColumnError: The value is of another type.
        """
        if name not in self.known:
            raise _missing(name, self.known)
        known = self.known[name]
        if known.constant:
            raise PlanError(f"The variable {name!r} is a constant.", remedy="Create it without the word.")
        self.known[name] = replace(known, value=typed(name, value, known.type))
        self._given.add(name)

    def table(self, names: Sequence[str]) -> pa.Table:
        """The values of some variables now: a row."""
        columns = [pa.array([self.known[name].value], self.known[name].type) for name in names]
        return pa.table(columns, names=list(names))

    # From place to place

    def wakes(self, names: frozenset[str]) -> bool:
        """Whether any of some variables has been set in these turns, or before them from outside."""
        if self.of_contexts.wakes(names):
            return True
        return not self._given.isdisjoint(names) or any(not names.isdisjoint(each.values) for each in self._changes)

    def history(self, reads: ReadVariables, number: int, begin: int) -> PlacedRows:
        """The values of some variables as a statement sees them: a row for each place at which one becomes another.

        Args:
            reads: The variables.
            number: The number of the statement.
            begin: The first place.
        """
        names = [name for name in reads.changing if name in self.known]
        made = [self._seen(name, number, begin) for name in names]
        places = np.unique(np.concatenate([each for each, _ in made]))
        columns = [
            values.take(pa.array(np.maximum(np.searchsorted(at, places, side="right") - 1, 0))) for at, values in made
        ]
        changed = np.zeros(len(places), np.bool_)
        for name, (at, _) in zip(names, made, strict=True):
            if name in reads.waking:
                set_at = at if self._has_set_first(name, number, at) else at[1:]
                changed[np.searchsorted(places, set_at)] = True
        return PlacedRows(places, pa.table([*columns, changed], names=[*map(column_of, names), CHANGED]))

    def _has_set_first(self, name: str, number: int, at: Any) -> bool:
        """Whether the first value of those that a statement sees is one that was set, and not the one before."""
        firsts = [
            int(each.places[0]) + (0 if each.number < number else _NEXT)
            for each in self._changes
            if name in each.values
        ]
        return name in self._given or int(at[0]) in firsts

    def _seen(self, name: str, number: int, begin: int, *, but: int = -1) -> tuple[Any, pa.Array]:
        """(places, ascending, and the values from each on); of several at a place the last one counts."""
        known = self.known[name]
        mine = sorted(
            (each for each in self._changes if name in each.values and each.number != but), key=lambda each: each.number
        )
        parts = [each.places + (0 if each.number < number else _NEXT) for each in mine]
        begin = min([begin, *(int(each[0]) for each in parts)])
        places = np.concatenate([np.array([begin], np.int64), *parts])
        values = pa.concat_arrays([pa.array([known.value], known.type), *(each.values[name] for each in mine)])
        order = np.lexsort((np.repeat(np.arange(len(parts) + 1), [1, *map(len, parts)]), places))
        order = order[np.append(places[order][1:] != places[order][:-1], True)]
        return places[order], values.take(pa.array(order))

    def changed(self, number: int, setting: VariableSetting, rows: pa.Table, failure: FirstFailure) -> pa.Table:
        """What a statement sets, at the rows that trigger it; those behind it see it.

        Args:
            number: The number of the statement.
            setting: What it sets.
            rows: The rows, with their places.
            failure: Where it computes; told of the first row for which that fails. What the rows before it set stands.

        Returns:
            The variables at each row, as columns of deliveries.
        """
        read = [name for name in setting.rows.schema.names if name in rows.column_names]
        made = rows.drop_columns(read)
        values = pa.schema(setting.values.schema).empty_table()
        places = rows[PLACE].to_numpy()

        instances = rows[INSTANCE].to_numpy() if setting.context else np.zeros(len(rows), np.int64)
        apart = np.argsort(instances, kind="stable")

        def valued(count: int) -> pa.Table:
            # Each instance has values of its own: one comes behind the other.
            order = apart[apart < count]
            at, of = places[order], instances[order]
            before = {name: self._before(name, number, at, of) for name in setting.reads}
            firsts = np.append(True, of[1:] != of[:-1])
            some = rows.select(read).take(pa.array(order))
            found = _Scan(setting, some, at, before, failure.device, firsts).values()
            return found.take(pa.array(np.argsort(order)))

        try:
            values = valued(len(rows)) if len(rows) else values
        except Exception as failed:  # noqa: BLE001  (whatever it is, it is that of a row)
            low, high, error = 0, len(rows), failed
            while high - low > 1:
                middle = (low + high) // 2
                try:
                    values, low = valued(middle), middle
                except Exception as earlier:  # noqa: BLE001  (likewise)
                    high, error = middle, earlier
            failure.place, failure.error = int(places[low]), error
            made, places = made.slice(0, low), places[:low]
        if not len(made):
            return pa.schema([*made.schema, *setting.values.schema]).empty_table()
        columns = {name: values[f"@column {at}"].combine_chunks() for at, name in enumerate(setting.names)}
        if setting.context:
            self.of_contexts.add(SetInInstances(number, places, instances[: len(places)], columns))
        else:
            self._changes.append(_SetValues(number, places, columns))
        for name in values.column_names:
            made = made.append_column(name, values[name])
        return made

    def _before(self, name: str, number: int, places: Any, instances: Any) -> tuple[pa.Array, Any]:
        """(a variable's values at some places but for what this statement sets, where they have begun)."""
        if name in self.of_contexts.known:
            return self.of_contexts.before(name, number, places, instances)
        if len(places) and (places[1:] < places[:-1]).any():
            order = np.argsort(places, kind="stable")
            values, since = self._before(name, number, places[order], instances[order])
            back = np.argsort(order)
            return values.take(pa.array(back)), since[back]
        at, values = self._seen(name, number, int(places[0]), but=number)
        found = np.searchsorted(at, places, side="right") - 1
        return values.take(pa.array(found)), at[found]

    def settle(self) -> None:
        """Have the last values of the turns, of which nobody asks any more."""
        last: dict[str, tuple[int, int, Any]] = {}
        for each in self._changes:
            for name, values in each.values.items():
                at = (int(each.places[-1]), each.number, values[-1].as_py())
                last[name] = max(last.get(name, at), at, key=lambda found: found[:2])
        for name, (_, _, value) in last.items():
            self.known[name] = replace(self.known[name], value=value)
        self._changes, self._given = [], set()


class _Scan:
    """The values that a statement sets, row by row, each depending on the one before if it reads what it sets.

    Args:
        setting: What it sets.
        rows: The rows that trigger it.
        places: Their places.
        before: For each variable that it reads: its values at the rows but for its own, and since where.
        device: Where it computes.
        firsts: Which rows are the first ones of their instances.
    """

    def __init__(
        self,
        setting: VariableSetting,
        rows: pa.Table,
        places: Any,
        before: Mapping[str, tuple[pa.Array, Any]],
        device: Device,
        firsts: Any,
    ) -> None:
        self._setting, self._device, self._count, self._rows = setting, device, len(rows), rows
        self._before = {name: values for name, (values, _) in before.items()}
        # Where another has set it since the row before, that counts.
        earlier = np.append(np.int64(-1), places[:-1])
        self._fresh = {name: (since > earlier) | firsts for name, (_, since) in before.items()}

    def values(self) -> pa.Table:
        """A row for each row."""
        waiting = []
        for name in self._setting.own:
            summed = self._summed(name)
            if summed is None:
                waiting.append(name)
            else:
                self._before[name] = summed
        return self._settled(waiting) if waiting else self._computed(self._setting.values, 0, self._count)

    def _summed(self, name: str) -> pa.Array | None:
        """The values before each row of a variable that grows by something; None if that is no sum of numbers."""
        if name not in self._setting.added:
            return None
        start, fresh = self._before[name], np.flatnonzero(self._fresh[name])
        grown = self._computed(self._setting.added[name], 0, self._count)["@added"].combine_chunks()
        if grown.null_count or start.null_count or not (t.is_integer(start.type) or t.is_float(start.type)):
            return None
        if t.is_integer(start.type):
            # Sums of 64 bits that do not fit are found by their size.
            steps, first = grown.cast(pa.int64()).to_numpy(), start.cast(pa.int64()).to_numpy()
            sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(steps)])
            size = float(np.abs(steps.astype(np.float64)).sum()) + float(np.abs(first.astype(np.float64)).max())
            if size >= 2.0 ** (start.type.bit_width - 1):
                return None
            owner = np.repeat(fresh, np.diff(np.append(fresh, self._count)))
            return pa.array(first[owner] + sums[:-1] - sums[owner]).cast(start.type)
        steps, made = grown.to_numpy(), start.to_numpy().copy()
        for begin, end in zip(fresh, np.append(fresh[1:], self._count), strict=True):
            made[begin:end] = np.add.accumulate(np.append(made[begin], steps[begin : end - 1]), dtype=made.dtype)
        return pa.array(made, start.type)

    def _settled(self, names: Sequence[str]) -> pa.Table:
        """All rows of a stretch at once, again and again until no value is another: as many rows as are right are kept.

        A row whose values are right makes those of the next right, so each time at least one more is.
        """
        done, size, made = 0, _FEW, list[pa.Table]()
        at = {name: self._setting.names.index(name) for name in names}
        last: dict[str, Any] = {}
        while done < self._count:
            end = min(done + size, self._count)
            guess = {name: self._guessed(name, done, end, last) for name in names}
            try:
                found, right = self._stretch(done, end, guess, last, at)
            except Exception:
                if end - done == 1:
                    raise
                size = max(1, (end - done) // 8)
                continue
            made.append(found.slice(0, right))
            last = {name: found[f"@column {at[name]}"][right - 1] for name in names}
            size = min(2 * size, _MANY) if right == end - done else max(2 * right, 1)
            done += right
        return pa.concat_tables(made)

    def _stretch(
        self, begin: int, end: int, guess: dict[str, pa.Array], last: Mapping[str, Any], at: Mapping[str, int]
    ) -> tuple[pa.Table, int]:
        """(the values of some rows, how many of them are right)."""
        for _ in range(_FEW):
            before = {name: self._one_later(name, begin, end, guess[name], last) for name in guess}
            found = self._computed(self._setting.values, begin, end, before)
            new = {name: found[f"@column {at[name]}"].combine_chunks() for name in guess}
            right = min(_same(guess[name], new[name]) for name in guess)
            if right >= end - begin - 1:
                return found, end - begin
            guess = new
        return found, right + 1

    def _guessed(self, name: str, begin: int, end: int, last: Mapping[str, Any]) -> pa.Array:
        """What the values behind some rows may be: that behind the row before them, or what another has set."""
        before = self._before[name][begin:end]
        if name not in last:
            return before
        return pc.if_else(pa.array(self._fresh[name][begin:end]), before, last[name].cast(before.type))

    def _one_later(self, name: str, begin: int, end: int, values: pa.Array, last: Mapping[str, Any]) -> pa.Array:
        """The values before each row, from those behind it."""
        own = pa.concat_arrays([pa.array([last.get(name)], values.type), values[:-1]])
        fresh = self._fresh[name][begin:end]
        return pc.if_else(pa.array(fresh), self._before[name][begin:end], own)

    def _computed(self, node: Node, begin: int, end: int, before: Mapping[str, pa.Array] | None = None) -> pa.Table:
        """The columns of a node over some rows."""
        device = self._device
        operator = Operator.registered(node)
        assert operator is not None  # noqa: S101  (it is a projection)
        own = operator.of(node, device)
        assert isinstance(own, EachPiece)  # noqa: S101  (so it is)
        table = self._rows.slice(begin, end - begin)
        for name in self._setting.reads:
            values = self._before[name][begin:end] if before is None or name not in before else before[name]
            table = table.append_column(column_of(name), values)
        start = device.columns.array(np.arange(end - begin, dtype=np.int64))
        done = own.each(Events(start, 1, device.columns.from_arrow(table)))
        return device.columns.to_arrow(done.frame, node.schema)


def _same(one: pa.Array, other: pa.Array) -> int:
    """How many values are the same from the first on."""
    table = pa.table([one, other], names=["one", "other"])
    equal = pc.equal(table["one"], table["other"]).combine_chunks().fill_null(False)
    equal = pc.or_(equal, pc.and_(one.is_null(), other.is_null()))
    if t.is_float(one.type):
        nans = pc.and_(pc.is_nan(one), pc.is_nan(other)).fill_null(False)
        equal = pc.or_(equal, nans)
    differ = np.flatnonzero(~equal.to_numpy(zero_copy_only=False))
    return int(differ[0]) if len(differ) else len(one)


def typed(name: str, value: Any, dtype: pa.DataType) -> Any:
    """A value as one of a variable's type.

    Raises:
        ColumnError: It is none.
    """
    try:
        return table_of([{name: value}], pa.schema([(name, dtype)]))[name][0].as_py()
    except ColumnError:
        raise ColumnError(
            f"{shown(value)} is no {t.type_name(dtype)}.", column=name, remedy="Give the variable a value of its type."
        ) from None


def _missing(name: str, known: Mapping[str, Any]) -> PlanError:
    return PlanError(f"There is no variable {name!r}.", remedy=f"There are: {', '.join(known) or 'none'}.")


class VariableValues(Mapping[str, Any]):
    """The values of a runtime's variables. `Runtime.variables` makes it.

    Args:
        variables: The variables.
        give: Gives one a value.
    """

    def __init__(self, variables: Variables, give: Callable[[str, Any], None]) -> None:
        self._variables, self._give = variables, give

    def __getitem__(self, name: str) -> Any:
        if name not in self._variables.known:
            raise _missing(name, self._variables.known)
        return self._variables.known[name].value

    def __setitem__(self, name: str, value: Any) -> None:
        self._give(name, value)

    def __contains__(self, name: object) -> bool:
        return name in self._variables.known

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._variables.known))

    def __len__(self) -> int:
        return len(self._variables.known)

    def __repr__(self) -> str:
        return repr(dict(self))
