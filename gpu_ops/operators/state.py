"""What a running query remembers between steps: rows in order of time, and the numbers of its groups.

State is arrays on the device while a query runs and Arrow tables whenever somebody looks: `Rows.to_arrow`. Rows are
kept as a few sorted runs, each more than twice as long as the next, so that a row is moved as often as the logarithm of
how many there are, and taking what is due costs what is due.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from gpu_ops.buffers import booleans, integers, to_arrow
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates import Column, Columns
from gpu_ops.time import TIME_TYPE

_CROWD = 1 << 12
"""From how many groups on it pays to look for those that can be forgotten."""

_TABLE = 1 << 16
"""Up to how wide a range of integers has a table from each to its number, however few there are."""

_CODE, _LOW, _HIGH = "group", "low", "high"


@dataclass(frozen=True)
class Rows:
    """Events of a window's axis.

    Attributes:
        code: int32 number of each event's group.
        low: int64 place on the axis where it begins.
        high: int64 place where it ends.
        columns: What aggregates need of it as arrays.
        frame: What they need as a frame, since it is ordered or compared as values are; None if nothing.
    """

    code: Any
    low: Any
    high: Any
    columns: Columns
    frame: Any | None = None

    def __len__(self) -> int:
        return len(self.code)

    def take(self, indices: Any, device: Device) -> Rows:
        """The rows at these indices."""
        take = device.kernels.take
        columns = {
            name: column.with_parts([take(part, indices) for part in column.parts()])
            for name, column in self.columns.items()
        }
        frame = None if self.frame is None else device.columns.take(self.frame, indices)
        return Rows(take(self.code, indices), take(self.low, indices), take(self.high, indices), columns, frame)

    def cut(self, low: int, high: int, device: Device) -> Rows:
        """The rows from ``low`` to ``high``, without copying an array."""
        columns = {
            name: column.with_parts([part[low:high] for part in column.parts()])
            for name, column in self.columns.items()
        }
        frame = None
        if self.frame is not None:
            frame = device.columns.take(self.frame, device.columns.array(np.arange(low, high)))
        return Rows(self.code[low:high], self.low[low:high], self.high[low:high], columns, frame)

    def to_arrow(self, schema: pa.Schema, device: Device, axis: Callable[[Any], Any]) -> pa.Table:
        """A table with a row for each: the group's number, where it begins and ends, and the columns as stored.

        Args:
            schema: Arrow types of the frame's columns.
            device: Where the arrays are.
            axis: From places on the axis to what is shown of them: an Arrow array.
        """
        host = device.columns.host
        made = {_CODE: _array(host(self.code)), _LOW: axis(host(self.low)), _HIGH: axis(host(self.high))}
        for (name, form), column in self.columns.items():
            for at, part in enumerate(column.parts()):
                made[f"{name}.{form}.{'valid' if at == len(column.arrays) else at}"] = _array(host(part))
        if self.frame is not None:
            held = pa.schema([schema.field(name) for name in self.frame.columns])
            frame = device.columns.to_arrow(self.frame, held)
            made |= {f"{name}.frame": frame[name] for name in frame.column_names}
        return pa.table(made)


def rows_table(runs: Runs, schema: pa.Schema, device: Device, axis: Callable[[Any], pa.Array]) -> pa.Table:
    """`Rows.to_arrow` of all runs."""
    return concat_rows(runs.runs(), device).to_arrow(schema, device, axis)


def shown_time(ticks: Any) -> pa.Array:
    """Ticks as timestamps."""
    return to_arrow(ticks, TIME_TYPE)


def rows_from_arrow(table: pa.Table, device: Device) -> Rows:
    """What `Rows.to_arrow` was made from."""
    arrays: dict[str, Any] = {}
    frame: dict[str, Any] = {}
    columns: dict[tuple[str, str], list[Any]] = {}
    valid: dict[tuple[str, str], Any] = {}
    for name in table.column_names:
        whole = table[name].combine_chunks()
        if name in {_CODE, _LOW, _HIGH}:
            arrays[name] = device.columns.array(integers(whole).copy())
            continue
        column, form, *at = name.rsplit(".", 2) if not name.endswith(".frame") else (name[: -len(".frame")], "frame")
        if form == "frame":
            frame[column] = whole
            continue
        part = device.columns.array(_values(whole))
        columns.setdefault((column, form), [])
        if at == ["valid"]:
            valid[column, form] = part
        else:
            columns[column, form].append(part)
    made = {name: Column(tuple(parts), valid.get(name)) for name, parts in columns.items()}
    kept = device.columns.from_arrow(pa.table(frame)) if frame else None
    return Rows(arrays[_CODE].astype(np.int32, copy=False), arrays[_LOW], arrays[_HIGH], made, kept)


def _array(values: Any) -> pa.Array:
    return to_arrow(values, pa.bool_() if values.dtype == np.bool_ else pa.from_numpy_dtype(values.dtype))


def _values(array: pa.Array) -> Any:
    if pa.types.is_boolean(array.type):
        return booleans(array)
    whole = integers(array)
    wanted = np.dtype(array.type.to_pandas_dtype())
    return whole.view(wanted).copy()


def concat_rows(pieces: Sequence[Rows], device: Device) -> Rows:
    """All rows in one; there is at least one piece, and all have the same columns."""
    if len(pieces) == 1:
        return pieces[0]
    columns: Columns = {}
    for name, first in pieces[0].columns.items():
        parts = [piece.columns[name] for piece in pieces]
        arrays = tuple(np.concatenate([part.arrays[at] for part in parts]) for at in range(len(first.arrays)))
        valid = None
        if any(part.valid is not None for part in parts):
            known = zip(pieces, parts, strict=True)
            valid = np.concatenate([all_of(piece.code) if part.valid is None else part.valid for piece, part in known])
        columns[name] = replace(first, arrays=arrays, valid=valid)
    frames = [piece.frame for piece in pieces]
    return Rows(
        np.concatenate([piece.code for piece in pieces]),
        np.concatenate([piece.low for piece in pieces]),
        np.concatenate([piece.high for piece in pieces]),
        columns,
        None if frames[0] is None else device.columns.concat(frames),
    )


def all_of(array: Any) -> Any:
    """As many bools, all true."""
    return np.ones_like(array, dtype=np.bool_)


class Runs:
    """Rows in order of one of their places."""

    def __init__(self, place: Literal["low", "high"], device: Device) -> None:
        self._place = place
        self._device = device
        self._runs: list[Rows] = []

    def __len__(self) -> int:
        return sum(len(run) for run in self._runs)

    def add(self, rows: Rows) -> None:
        """More rows, in any order."""
        if not len(rows):
            return
        self._runs.append(self._ordered(rows))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            late = self._runs.pop()
            self._runs[-1] = self._ordered(concat_rows([self._runs[-1], late], self._device))

    def _ordered(self, rows: Rows) -> Rows:
        places = getattr(rows, self._place)
        if self._device.kernels.ascends(places):
            return rows
        # Two runs one after the other: a sort that knows ascending stretches only merges them.
        return rows.take(np.argsort(places, kind="stable"), self._device)

    def due(self, limit: int) -> list[Rows]:
        """Take the rows out whose place is at most ``limit``."""
        taken = []
        for at, run in enumerate(self._runs):
            count = int(np.searchsorted(getattr(run, self._place), limit, side="right"))
            if count:
                taken.append(run.cut(0, count, self._device))
                self._runs[at] = run.cut(count, len(run), self._device)
        self._runs = [run for run in self._runs if len(run)]
        return taken

    def runs(self) -> list[Rows]:
        """The rows, still there."""
        return list(self._runs)

    def renumber(self, numbers: Any) -> None:
        """Give each group ``g`` the number ``numbers[g]``."""
        self._runs = [replace(run, code=numbers[run.code]) for run in self._runs]


class GroupNumbers:
    """A number for each group that was ever seen, the same in every step.

    Attributes:
        keys: A frame with row g for group g; None without a key.
    """

    def __init__(self, names: tuple[str, ...], schema: pa.Schema, device: Device) -> None:
        self._names = names
        self._device = device
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.keys: Any | None = None
        self._seen = False
        plain = [schema.field(name).type for name in names]
        self._is_integer = len(plain) == 1 and (pa.types.is_integer(plain[0]) or pa.types.is_temporal(plain[0]))
        self._known: tuple[Any | None, Any, int] | None = None
        self._missed = 0
        self._look_at = _CROWD

    def __len__(self) -> int:
        return len(self._numbers) if self._names else 1

    @property
    def seen(self) -> bool:
        """Whether there was any row."""
        return self._seen

    def codes(self, frame: Any) -> Any:
        """int32 number of each row's group; groups that are new get the next ones."""
        self._seen = self._seen or self._device.columns.rows(frame) > 0
        found = self._by_value(frame) if self._is_integer else None
        return self._by_key(frame) if found is None else found

    def _by_value(self, frame: Any) -> Any | None:
        """Numbers of integers that are all known, looked up in a table or in their order; None if one is not."""
        if self._known is None:
            return None
        values, valid = self._device.columns.values(frame, self._names[0])
        if valid is not None or not len(values):
            return None
        known, numbers, least = self._known
        take = self._device.kernels.take
        if known is None:
            if int(values.min()) < least or int(values.max()) - least >= len(numbers):
                return None
            found = take(numbers, (values - values.dtype.type(least)).astype(np.int64, copy=False))
            return found if int(found.min()) >= 0 else None
        at = np.minimum(np.searchsorted(known, values), len(known) - 1)
        return take(numbers, at) if bool((take(known, at) == values).all()) else None

    def _learn(self) -> None:
        """Bring the table of known integers up to date, which costs no more than what was looked up since."""
        self._missed = 0
        values, valid = self._device.columns.values(self.keys, self._names[0])
        order = np.argsort(values, kind="stable")
        if valid is not None:
            order = order[valid[order]]
        if not len(order):
            return
        known = self._device.kernels.take(values, order)
        least, most = int(known[0]), int(known[-1])
        if most - least < max(_TABLE, 4 * len(known)):
            numbers = self._device.columns.array(np.full(most - least + 1, -1, np.int32))
            numbers[(known - known.dtype.type(least)).astype(np.int64)] = order
            self._known = None, numbers, least
        else:
            self._known = known, order.astype(np.int32), least

    def _by_key(self, frame: Any) -> Any:
        columns = self._device.columns
        local, count, keys = columns.key_codes(frame, self._names)
        if not self._names or not len(local):
            return local
        here = np.zeros(count, np.bool_)
        here[columns.host(local)] = True
        used = np.flatnonzero(here)
        present = columns.take(keys, columns.array(used))
        numbers = np.empty(count, np.int32)
        found = np.empty(len(used), np.int32)
        fresh = []
        for at, key in enumerate(columns.tuples(present)):
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = len(self._numbers)
                fresh.append(at)
            found[at] = number
        numbers[used] = found
        if fresh:
            more = columns.take(present, columns.array(np.array(fresh)))
            self.keys = more if self.keys is None else columns.concat([self.keys, more])
        self._missed += len(used)
        if self._is_integer and self._missed >= len(self._numbers):
            self._learn()
        return self._device.kernels.take(columns.array(numbers), local.astype(np.int64, copy=False))

    @property
    def crowded(self) -> bool:
        """Whether it is time to look for groups that nothing is left of: each time there are twice as many."""
        return bool(self._names) and len(self._numbers) >= self._look_at

    def forget(self, used: Any) -> Any | None:
        """Forget the groups that are not used, if they are most.

        Args:
            used: Host bools, one for each group.

        Returns:
            int32 new number of each group that is left; None if nothing is forgotten.
        """
        left = np.flatnonzero(used)
        self._look_at = max(_CROWD, 2 * len(self._numbers))
        if 2 * len(left) > len(used):
            return None
        columns = self._device.columns
        self.restore(columns.take(self.keys, columns.array(left)))
        self._look_at = max(_CROWD, 2 * len(left))
        numbers = np.zeros(len(used), np.int32)
        numbers[left] = np.arange(len(left), dtype=np.int32)
        return columns.array(numbers)

    def restore(self, keys: Any | None) -> None:
        """Groups as they were numbered; of a window without a key, that there was any row."""
        self._seen = True
        self._known = None
        if self._names:
            self.keys = keys
            self._numbers = {key: at for at, key in enumerate(self._device.columns.tuples(keys))}
