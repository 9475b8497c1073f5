"""A walk over the events that change a named window: its rows as numbers, what events do as programs, and the result.

Whole numbers, floats, times and truth values are themselves. Texts that programs read are ranks among all texts of the
walk; other columns are copied alone, and are the number of the place from which they come.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import booleans, integers, to_arrow, validity
from gpu_ops.devices.cpu import row_changes as walk
from gpu_ops.epl.kept_rows import holding, key_codes
from gpu_ops.epl.planning.known_windows import Action, PlannedChange, WindowLimits
from gpu_ops.errors import IntegerOverflowError, PlanError
from gpu_ops.plan.row_changes import PairValue
from gpu_ops.plan.row_programs import Cell, Op, RowProgram, tables
from gpu_ops.texts.binding import types as t

_KINDS = {"delete": walk.DELETE, "update": walk.UPDATE, "insert": walk.INSERT}


@dataclass(frozen=True)
class WalkingEvents:
    """The events of a statement in a step.

    Attributes:
        rows: They, with the properties that are keys.
        computed: What is computed of them, a column each.
        places: int64 place of each.
        clocks: int64: what the clock shows as each comes, in ticks.
    """

    rows: pa.Table
    computed: pa.Table
    places: Any
    clocks: Any


@dataclass(frozen=True)
class WalkedRows:
    """What has become of rows.

    Attributes:
        rows: The rows that were there or came, then those that events have made, with the columns of the window.
        count: How many of them were there or came.
        events: int64 indices (statement, its event) of the event that has made each of the others.
        enter: int64: where each of the others comes.
        leave: int64: where each row goes; `row_changes.STAYS` while it does not.
        out_by: int64: the number of the statement that takes each out; 0 for none.
        known: int64 columns: the statement, its event, what is known (`row_changes.NEW`…), and of which row.
    """

    rows: pa.Table
    count: int
    events: tuple[Any, Any]
    enter: Any
    leave: Any
    out_by: Any
    known: tuple[Any, Any, Any, Any]


class RowWalk:
    """How the statements that change a window do it in a walk.

    Args:
        schema: The columns of the window.
        changes: The statements, in their order, with their numbers.
        limits: When rows leave by themselves.

    Raises:
        PlanError: A statement does what a walk does not.
    """

    def __init__(self, schema: pa.Schema, changes: Sequence[tuple[int, PlannedChange]], limits: WindowLimits) -> None:
        self._schema, self._changes, self._limits = schema, changes, limits
        self._programs: list[RowProgram] = []
        self._refs: list[tuple[int, str, str]] = []
        updated = {name for _, change in changes for name in self._updated(change)}
        self._sets: list[tuple[str, ...]] = []
        self._set_of: list[tuple[str, ...]] = []
        for _, change in changes:
            keys = tuple(sorted(key for _, key in change.on if key not in updated and self._is_known(key)))
            if change.into and len(keys) < len(change.on):
                raise PlanError("The keys of a table change.")
            self._set_of.append(keys)
        if any(key in updated or not self._is_known(key) for key in limits.unique):
            raise PlanError("The key of which there is one row each changes.")
        by_age = limits.most > 0 or limits.span >= 0
        sets = {*self._set_of, *([()] if by_age else []), *([limits.unique] if limits.unique else [])}
        self._sets = sorted(sets, reverse=True)
        self._ranked = self._texts_read()
        self._rules = self._written()

    def _updated(self, change: PlannedChange) -> set[str]:
        """The columns that a statement changes."""
        actions = [action for branch in change.branches for action in branch.actions if action.kind == "update"]
        return {
            each.name
            for action in actions
            for each, name in zip(self._schema, action.values, strict=True)
            if self._value(change, name).kept != each.name
        }

    @staticmethod
    def _value(change: PlannedChange, name: str) -> PairValue:
        if change.programs is None:
            raise PlanError(change.stepped)
        return change.programs.values[name]

    def _is_known(self, key: str) -> bool:
        """Whether rows that events bring in have a key that is known before the walk."""
        at = self._schema.names.index(key)
        return all(
            self._value(change, action.values[at]).event
            for _, change in self._changes
            for branch in change.branches
            for action in branch.actions
            if action.kind == "insert"
        )

    def _texts_read(self) -> frozenset[str]:
        """The columns of texts that are ranks: programs read them, make them, or copy them into such columns."""
        ranked, copies = set[str](), list[tuple[str, str]]()
        for number, (_, change) in enumerate(self._changes):
            programs = () if change.programs is None else change.programs.values.values()
            read = {name for each in programs if each.program is not None for name in each.cells}
            if len(self._set_of[number]) < len(change.on):
                read |= {other for _, other in change.on}
            ranked |= read & {*self._schema.names}
            for branch in change.branches:
                for action in branch.actions:
                    for each, name in zip(self._schema, action.values, strict=False):
                        value = self._value(change, name)
                        if value.program is not None:
                            ranked.add(each.name)
                        elif value.kept and value.kept != each.name:
                            copies.append((each.name, value.kept))
                            ranked |= {each.name, value.kept}
        for pair in copies:
            if any(not _is_number(self._schema.field(name).type) and not self._is_text(name) for name in pair):
                raise PlanError(f"A column of type {t.type_name(self._schema.field(pair[0]).type)} is another one's.")
        return frozenset(name for name in ranked if self._is_text(name))

    def _is_text(self, name: str) -> bool:
        return bool(self._schema.field(name).type == t.TEXT)

    # What is done, as arrays

    def _written(self) -> Mapping[str, Any]:
        """The rules of all statements; the places of cells are those of a step."""
        lists: dict[str, list[int]] = {name: [] for name in walk.ChangeRules._fields}
        lists["branches"], lists["cells"], lists["actions"] = [0], [0], [0]
        for at, (number, change) in enumerate(self._changes):
            lists["numbers"].append(number)
            lists["keys"].append(self._sets.index(self._set_of[at]))
            by_keys = len(self._set_of[at]) == len(change.on)
            lists["passes"].append(self._program(at, change.passes if by_keys else change.whole))
            for branch in change.branches:
                lists["matched"].append(
                    walk.ALWAYS if branch.always else walk.MATCHED if branch.matched else walk.NOT_MATCHED
                )
                lists["holds"].append(self._program(at, branch.where))
                for action in branch.actions:
                    lists["kinds"].append(_KINDS[action.kind])
                    lists["where"].append(self._program(at, action.where))
                    lists["setters"] += self._setters(at, action)
                lists["actions"].append(len(lists["kinds"]))
            lists["branches"].append(len(lists["matched"]))
            lists["cells"].append(len(self._refs))
        self._tables = tables(self._programs)
        lists["of_rows"] = [int(kind != "event") for _, kind, _ in self._refs]
        return {name: np.array(each, np.int64) for name, each in lists.items()} | {
            "code": self._tables.code,
            "bounds": self._tables.bounds,
            "constants": self._tables.constants,
        }

    def _setters(self, at: int, action: Action) -> list[int]:
        """The program of each column that an action sets."""
        if action.kind == "delete":
            return [walk.KEEPS] * len(self._schema)
        return [self._program(at, name, into=each.name) for each, name in zip(self._schema, action.values, strict=True)]

    def _program(self, at: int, name: str | None, into: str = "") -> int:
        """The number of a program; -1 for none, and for a column that stays as it is."""
        if name is None:
            return -1
        value = self._value(self._changes[at][1], name)
        if into and value.kept == into:
            return walk.KEEPS
        made, names = value.program, value.cells
        if made is None:
            column = value.event or value.kept
            cell = Cell("", None, pa.null(), None)  # type: ignore[arg-type]
            made, names = RowProgram(((int(Op.CELL), 0),), (), (cell,), "whole", column), (column,)
            kind = "row" if value.kept else "event"
            self._refs.append((at, kind, column if kind == "row" or self._is_read(into) else f"{into}\0{column}"))
        else:
            own = {*self._schema.names}
            self._refs += [(at, "row" if each in own else "event", each) for each in names]
        self._programs.append(made)
        return len(self._programs) - 1

    def _is_read(self, into: str) -> bool:
        """Whether values that go into a column are numbers or ranks; else they are places to copy from."""
        return not into or into in self._ranked or _is_number(self._schema.field(into).type)

    # A step

    def concerned(self, kept: pa.Table, came: Any, events: Sequence[WalkingEvents]) -> Any:
        """bool: the rows that something in a step may change; all others stay as they are.

        Args:
            kept: The rows that are there, and those that come.
            came: bool: which of them come in the step.
            events: The events of each statement.
        """
        if () in self._sets:
            return np.ones(len(kept), np.bool_)
        made = came.copy()
        for keys in self._sets:
            is_one_each = keys == self._limits.unique
            # The first column alone says which rows are not.
            asked = [own[0] for kind, _, own in self._asking(keys, events) if kind == "events" or is_one_each]
            if is_one_each:
                asked.append(kept[keys[0]].filter(pa.array(came)))
            made |= holding(kept[keys[0]], asked)
        return made

    def of(
        self,
        kept: pa.Table,
        enter: Any,
        clock: Any,
        events: Sequence[WalkingEvents],
        ticks: tuple[Any, Any],
    ) -> WalkedRows:
        """Have events change rows.

        Args:
            kept: The rows that are there, and those that come, in their order.
            enter: int64: where each of them comes.
            clock: int64: what the clock shows then, in ticks.
            events: The events of each statement.
            ticks: int64: where the clock moves, and what it shows behind that.

        Raises:
            IntegerOverflowError: A whole number does not fit its type.
        """
        number = np.repeat(np.arange(len(events)), [len(each.places) for each in events])
        at = np.concatenate([np.arange(len(each.places)) for each in events])
        places = np.concatenate([each.places for each in events])
        order = np.lexsort((at, number, places))
        number, at, places = number[order], at[order], places[order]
        clocks = np.concatenate([each.clocks for each in events])[order]
        encoded = _Encoded(self._schema, self._ranked, kept, events, self._refs)
        codes, sizes, rows, inserts, insert_codes = self._keyed(kept, events)
        given = walk.ChangingEvents(places, clocks, number, at, codes[order], inserts, insert_codes)
        limits = self._limits
        unique = self._sets.index(limits.unique) if limits.unique else -1
        moves = ticks if limits.span >= 0 else (np.zeros(0, np.int64),) * 2
        window = walk.WindowRule(limits.most, limits.span, unique, *moves)
        room = len(kept) + 2 * len(places) + 64
        while True:
            begins, columns, values, there = encoded.placed(room)
            rules = walk.ChangeRules(**{**self._rules, "begins": begins, "columns": columns})
            versions = walk.Versions(
                values,
                there,
                _roomy(enter, room),
                _roomy(clock, room),
                np.full(room, -1, np.int64),
                np.full(room, walk.STAYS, np.int64),
                np.zeros(room, np.int64),
                np.concatenate([np.zeros(0, np.int64), *(_roomy(each, room) for each in rows)]),
                np.empty(6 * room, np.int64),
            )
            ended, count, known, failed = walk.walk_changes(
                rules, given, versions, len(kept), sizes, self._tables.depth, window
            )
            if ended == walk.OVERFLOWS:
                raise IntegerOverflowError(
                    f"A whole number of a change does not fit its type: {self._programs[failed].said}.",
                    remedy="Cast to a wider type first.",
                )
            if ended == walk.DONE:
                break
            room *= 2
        log = versions.log[: 3 * known].reshape(-1, 3)
        by = versions.by[len(kept) : count]
        new = encoded.decoded(len(kept), count)
        return WalkedRows(
            pa.concat_tables([kept.select(self._schema.names), new]).combine_chunks(),
            len(kept),
            (number[by], at[by]),
            versions.enter[len(kept) : count],
            versions.leave[:count],
            versions.out_by[:count],
            (number[log[:, 0]], at[log[:, 0]], log[:, 1], log[:, 2]),
        )

    @property
    def _actions(self) -> list[tuple[int, Action]]:
        """All actions, with the places of their statements."""
        changes = enumerate(change for _, change in self._changes)
        return [(at, action) for at, change in changes for branch in change.branches for action in branch.actions]

    def _asking(self, keys: tuple[str, ...], events: Sequence[WalkingEvents]) -> list[tuple[str, int, list[Any]]]:
        """Whose keys are those of rows: ("events", the statement, columns), ("inserts", the action, columns)."""
        parts: list[tuple[str, int, list[Any]]] = []
        for at, (_, change) in enumerate(self._changes):
            if self._set_of[at] == keys:
                parts.append(("events", at, [events[at].rows[own] for own in _of_events(change, keys)]))
        for number, (at, action) in enumerate(self._actions):
            if action.kind == "insert":
                names = [action.values[self._schema.names.index(key)] for key in keys]
                values = (self._value(self._changes[at][1], name).event for name in names)
                parts.append(("inserts", number, [events[at].computed[value] for value in values]))
        return parts

    def _keyed(self, kept: pa.Table, events: Sequence[WalkingEvents]) -> tuple[Any, Any, list[Any], Any, Any]:
        """(the key of each event, how many keys there are, those of rows, and those of rows that actions make)."""
        codes = [np.zeros(0, np.int64)] * len(events)
        sizes, rows = [], []
        actions = self._actions
        inserts, made, begin = np.zeros(len(actions) * len(self._sets), np.int64), [np.zeros(0, np.int64)], 0
        for which, keys in enumerate(self._sets):
            parts = [("rows", 0, [kept[key] for key in keys]), *self._asking(keys, events)]
            counts = [
                len(kept) if kind == "rows" else len(events[at if kind == "events" else actions[at][0]].places)
                for kind, at, _ in parts
            ]
            columns = [
                pa.chunked_array([chunk for _, _, own in parts for chunk in own[key].chunks], own_type)
                for key, own_type in enumerate(self._schema.field(name).type for name in keys)
            ]
            found = key_codes(columns, sum(counts))
            sizes.append(int(found.max(initial=0)) + 1)
            for (kind, at, own), each in zip(parts, np.split(found, np.cumsum(counts)[:-1]), strict=True):
                if kind == "rows":
                    rows.append(each)
                elif kind == "events":
                    known = np.ones(len(each), np.bool_)
                    for column in () if self._changes[at][1].into else own:
                        known &= ~column.is_null().to_numpy()
                    codes[at] = np.where(known, each, -1)
                else:
                    inserts[at * len(self._sets) + which] = begin
                    made.append(each)
                    begin += len(each)
        return np.concatenate(codes), np.array(sizes, np.int64), rows, inserts, np.concatenate(made)


def _of_events(change: PlannedChange, keys: Sequence[str]) -> list[str]:
    """The columns of events that are equal to some keys of rows, of which two may be one column."""
    return [own for other, own in sorted((other, own) for own, other in change.on) if other in keys]


@dataclass
class _Encoded:
    """The values of rows and events as numbers.

    Attributes:
        schema: The columns of the window.
        ranked: Those whose texts are ranks.
        kept: The rows.
        events: The events of each statement.
        refs: What each cell is: the statement, "row" or "event", and the column.
    """

    schema: pa.Schema
    ranked: frozenset[str]
    kept: pa.Table
    events: Sequence[WalkingEvents]
    refs: Sequence[tuple[int, str, str]]
    _cells: dict[tuple[int, str], tuple[Any, Any]] = field(default_factory=dict)
    _rows: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _pools: dict[str, list[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        texts: dict[Any, Any] = {}
        for at, kind, name in self.refs:
            if kind != "event" or (at, name) in self._cells or (at, name) in texts:
                continue
            into, _, copied = name.rpartition("\0")
            column = self.events[at].computed[copied]
            if into:
                # A place among all values from which its column is copied.
                pool = self._pools.setdefault(into, [self.kept[into]])
                begin = sum(map(len, pool))
                pool.append(column.cast(self.schema.field(into).type))
                self._cells[at, name] = np.arange(begin, begin + len(column)), None
            elif column.type == t.TEXT:
                texts[at, name] = column
            else:
                self._cells[at, name] = _numbers(column)
        for each in self.schema:
            if each.name in self.ranked:
                texts[each.name] = self.kept[each.name]
            elif _is_number(each.type):
                self._rows[each.name] = _numbers(self.kept[each.name])
            else:
                self._pools.setdefault(each.name, [self.kept[each.name]])
                self._rows[each.name] = np.arange(len(self.kept)), None
        self._distinct = pa.chunked_array([], t.TEXT)
        if texts:
            every = pa.chunked_array([chunk for column in texts.values() for chunk in column.chunks], t.TEXT)
            distinct = pc.drop_null(pc.unique(every))
            # By their bytes in UTF-8, which is the order of code points.
            self._distinct = distinct.take(pc.sort_indices(distinct))
            for key, column in texts.items():
                found = pc.index_in(column, self._distinct)
                ranks = found.fill_null(0).to_numpy().astype(np.int64), found.is_valid().to_numpy()
                if isinstance(key, str):
                    self._rows[key] = ranks
                else:
                    self._cells[key] = ranks

    def placed(self, room: int) -> tuple[Any, Any, Any, Any]:
        """(where the values of each cell begin, where each column begins, values, which of them there are)."""
        at: dict[tuple[int, str], int] = {}
        begin = 0
        for key, (numbers, _) in self._cells.items():
            at[key] = begin
            begin += len(numbers)
        cells, columns = begin, begin + room * np.arange(len(self.schema), dtype=np.int64)
        values = np.zeros(cells + room * len(self.schema), np.int64)
        there = np.ones(len(values), np.bool_)
        of = dict(zip(self.schema.names, columns.tolist(), strict=True))
        parts = [(at[key], each) for key, each in self._cells.items()]
        parts += [(of[name], each) for name, each in self._rows.items()]
        for low, (numbers, valid) in parts:
            values[low : low + len(numbers)] = numbers
            if valid is not None:
                there[low : low + len(numbers)] = valid
        begins = [of[name] if kind == "row" else at[number, name] for number, kind, name in self.refs]
        self._columns, self._values, self._there = of, values, there
        return np.array([*begins, len(values)], np.int64), columns, values, there

    def decoded(self, first: int, last: int) -> pa.Table:
        """Some rows, with the columns of the window."""
        columns = []
        for each in self.schema:
            begin = self._columns[each.name]
            numbers, valid = self._values[begin + first : begin + last], self._there[begin + first : begin + last]
            if each.name in self.ranked:
                made = self._distinct.take(pa.array(numbers, mask=~valid))
            elif each.name in self._pools:
                pool = pa.chunked_array([chunk for part in self._pools[each.name] for chunk in part.chunks], each.type)
                made = pool.take(pa.array(numbers, mask=~valid))
            else:
                made = _typed(numbers, each.type, valid)
            columns.append(made)
        return pa.table(columns, self.schema)


def _roomy(values: Any, room: int) -> Any:
    made = np.zeros(room, np.int64)
    made[: len(values)] = values
    return made


def _is_number(dtype: pa.DataType) -> bool:
    """Whether a column's values are numbers of at most 64 bits, or stored as such."""
    signed = pa.types.is_signed_integer(dtype) or pa.types.is_temporal(dtype)
    return bool(signed or pa.types.is_boolean(dtype) or dtype in {pa.float32(), pa.float64()})


def _numbers(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.int64], Any]:
    """Values as whole numbers, or as the bits of floats; which of them are not null."""
    array = column.combine_chunks()
    array = pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
    valid = validity(array)
    if pa.types.is_boolean(array.type):
        return booleans(array.fill_null(False)).astype(np.int64), valid
    if pa.types.is_floating(array.type):
        return array.cast(pa.float64()).fill_null(0.0).to_numpy().view(np.int64), valid
    if not pa.types.is_integer(array.type) and not pa.types.is_temporal(array.type):
        raise PlanError(f"A walk has no values of type {array.type}.")
    return integers(array).astype(np.int64), valid


def _typed(numbers: Any, dtype: pa.DataType, valid: Any) -> pa.Array:
    """Whole numbers, or the bits of floats, as values of a type."""
    if pa.types.is_floating(dtype):
        values = numbers.view(np.float64).astype(np.dtype(f"f{dtype.bit_width // 8}"))
    else:
        values = numbers != 0 if pa.types.is_boolean(dtype) else numbers.astype(np.dtype(f"i{dtype.bit_width // 8}"))
    return to_arrow(values, dtype, None if valid.all() else valid)
