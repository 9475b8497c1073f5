"""What a running query remembers between steps: rows of events, the oldest groups, and the numbers of its groups.

While a query runs, state is arrays on the device; `AxisRows.to_arrow` makes Arrow tables of it. Rows are kept in sorted
runs (`gpu_ops.operators.state.row_runs`), so that taking out due rows costs no more than these rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.arrow_buffers import booleans, in_one, integers, nulls, to_arrow
from gpu_ops.core.sorted_runs import SortedRuns
from gpu_ops.core.time import MAX_TIME, TIME_TYPE
from gpu_ops.devices import Device
from gpu_ops.operators.aggregates.forms import Column, Columns, changed
from gpu_ops.operators.events import present, stretch_of
from gpu_ops.operators.state.integer_numbers import IntegerNumbers
from gpu_ops.operators.state.key_numbers import KeyNumbers

_CROWD = 1 << 12
"""The least number of groups from which on a search for forgettable groups pays."""

_UNKNOWN = 1 << 62
"""The end of an event that is open: past all times."""

_CODE, _LOW, _HIGH = "group", "low", "high"


@dataclass(frozen=True)
class AxisRows:
    """Events of a window's axis.

    Attributes:
        code: int32 number of each event's group.
        low: int64 place on the axis where it begins.
        high: int64 place where it ends; within a batch also as in `Events`.
        columns: What aggregates need of it as arrays.
        frame: What they need as a frame, to order or compare values; None if nothing.
    """

    code: Any
    low: Any
    high: Any
    columns: Columns
    frame: Any = None

    def __len__(self) -> int:
        return len(self.code)

    def with_ends(self) -> AxisRows:
        """The rows with the end of each in an array."""
        return replace(self, high=self.low + self.high) if isinstance(self.high, int) else self

    def take(self, indices: Any, device: Device) -> AxisRows:
        """The rows at these indices."""
        take = device.kernels.take
        columns = changed(self.columns, lambda values: take(values, indices))
        frame = None if self.frame is None else device.columns.take(self.frame, indices)
        low = take(self.low, indices)
        high = self.high
        if not isinstance(high, int):
            high = low if high is self.low else take(high, indices)
        return AxisRows(take(self.code, indices), low, high, columns, frame)

    def some(self, at: Any, device: Device) -> AxisRows:
        """The rows at ascending indices: a stretch is not copied."""
        found = stretch_of(at)
        return self.take(at, device) if found is None else self.cut(*found, device)

    def cut(self, low: int, high: int, device: Device) -> AxisRows:
        """The rows from ``low`` to ``high``, without copying an array."""
        columns = changed(self.columns, lambda values: values[low:high])
        frame = None if self.frame is None else device.columns.cut(self.frame, low, high)
        end = self.high if isinstance(self.high, int) else self.high[low:high]
        return AxisRows(self.code[low:high], self.low[low:high], end, columns, frame)

    def to_arrow(self, schema: pa.Schema, device: Device, axis: Callable[[Any], Any]) -> pa.Table:
        """A table of the rows: the group's number, the two places, and the columns as stored.

        Args:
            schema: Arrow types of the frame's columns.
            device: Where the arrays are.
            axis: Makes an Arrow array of places on the axis.
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


def shown_time(ticks: Any) -> pa.Array:
    """Ticks as timestamps; null for a time that is not known yet."""
    unknown = ticks > MAX_TIME
    shown = to_arrow(np.where(unknown, 0, ticks), TIME_TYPE)
    return pc.if_else(to_arrow(unknown, pa.bool_()), None, shown) if unknown.any() else shown


def rows_from_arrow(table: pa.Table, device: Device) -> AxisRows:
    """The rows of which `AxisRows.to_arrow` made a table: on the CPU over its memory, which may be a mapped file."""
    arrays: dict[str, Any] = {}
    frame: dict[str, Any] = {}
    columns: dict[tuple[str, str], list[Any]] = {}
    valid: dict[tuple[str, str], Any] = {}
    for name in table.column_names:
        whole = in_one(table[name])
        if name in {_CODE, _LOW, _HIGH}:
            places = np.where(nulls(whole), _UNKNOWN, integers(whole)) if whole.null_count else integers(whole)
            arrays[name] = device.columns.array(places)
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
    return AxisRows(arrays[_CODE].astype(np.int32, copy=False), arrays[_LOW], arrays[_HIGH], made, kept)


def _array(values: Any) -> pa.Array:
    return to_arrow(values, pa.bool_() if values.dtype == np.bool_ else pa.from_numpy_dtype(values.dtype))


def _values(array: pa.Array) -> Any:
    if pa.types.is_boolean(array.type):
        return booleans(array)
    whole = integers(array)
    wanted = np.dtype(array.type.to_pandas_dtype())
    return whole.view(wanted)


def concat_rows(pieces: Sequence[AxisRows], device: Device) -> AxisRows:
    """All pieces as one; there is at least one, and all have the same columns."""
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
    low = np.concatenate([piece.low for piece in pieces])
    one = all(piece.high is piece.low for piece in pieces)
    return AxisRows(
        np.concatenate([piece.code for piece in pieces]),
        low,
        low if one else np.concatenate([piece.high for piece in pieces]),
        columns,
        None if frames[0] is None else device.columns.concat(frames),
    )


def all_of(array: Any) -> Any:
    """Bools of the same length, all true."""
    return np.ones_like(array, dtype=np.bool_)


def grown(values: Any, groups: int) -> Any:
    """A longer array with zeros at its end, if it is too short: by half at least, so that growing costs little."""
    if len(values) >= groups:
        return values
    more = np.zeros_like(values, shape=(max(groups - len(values), len(values) // 2),))
    return np.concatenate([values, more])


def known_at(values: Any, places: Any, device: Device) -> Any:
    """Values at some places; 0 where the array does not reach yet."""
    if not len(values):
        return np.zeros_like(places)
    return np.where(places < len(values), device.kernels.take(values, np.minimum(places, len(values) - 1)), 0)


class Oldest:
    """The group that has waited longest for its next boundary: a queue that is cleaned when it is read.

    A step moves boundaries past all that earlier steps moved, so entries are in order of their places. An entry is out
    of date if its group has moved again or has no rows left. Each entry is read when it comes and when it goes.

    Args:
        device: Where arrays live.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._queue: deque[tuple[Any, Any]] | None = None
        self._count = 0

    def moved(self, groups: Any, last: Any) -> None:
        """Some groups have a new last boundary.

        Args:
            groups: Their int64 numbers; none is empty.
            last: int64 place of every group's last boundary.
        """
        if self._queue is None or not len(groups):
            return
        take = self._device.kernels.take
        groups = take(groups, np.argsort(take(last, groups), kind="stable"))
        places = take(last, groups)
        if self._queue and int(self._queue[-1][1][-1]) > int(places[0]):
            self.forget()
            return
        self._queue.append((groups, places))
        self._count += len(groups)

    def forget(self) -> None:
        """Look at all groups at the next question."""
        self._queue = None

    def place(self, last: Any, rows: Any) -> int | None:
        """The least of all last boundaries; None if all groups are empty.

        Args:
            last: int64 place of every group's last boundary.
            rows: How many rows each has.
        """
        if len(rows) <= _CROWD:
            # With few groups a look at all of them takes less time than a queue.
            least = int(np.where(rows > 0, last, MAX_TIME).min()) if len(rows) else MAX_TIME
            return None if least == MAX_TIME else least
        if self._queue is None or self._count > 2 * len(rows) + _CROWD:
            self._queue, self._count = deque(), 0
            self.moved(self._device.kernels.keep(rows > 0), last)
        take, stride = self._device.kernels.take, 1
        while self._queue:
            groups, places = self._queue.popleft()
            here = groups[:stride]
            holds = (take(last, here) == places[:stride]) & (take(rows, here) > 0)
            passed = int(holds.argmax()) if bool(holds.any()) else len(here)
            self._count -= passed
            if passed < len(groups):
                self._queue.appendleft((groups[passed:], places[passed:]))
            if passed < len(here):
                return int(places[passed])
            stride *= 2
        return None


class _GroupKeys(SortedRuns[Any]):
    """Keys as frames, in the order of their groups' numbers."""

    _factor, _least = 4, _CROWD

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device

    def _merged(self, pieces: Sequence[Any]) -> Any:
        whole = self._device.columns.concat(pieces)
        # This copies it into one piece of memory.
        return self._device.columns.take(whole, self._device.columns.array(np.arange(len(whole))))


class GroupInterner:
    """A number for each group, the same in every step.

    Keys are kept in runs: growing one frame in each step would be slow.
    """

    def __init__(self, names: tuple[str, ...], schema: pa.Schema, device: Device) -> None:
        self._names = names
        self._device = device
        self._keys = _GroupKeys(device)
        self._seen = False
        plain = [schema.field(name).type for name in names]
        is_integer = len(plain) == 1 and (pa.types.is_integer(plain[0]) or pa.types.is_temporal(plain[0]))
        self._integers = IntegerNumbers(device) if is_integer else None
        self._schema = pa.schema([schema.field(name) for name in names])
        self._others = KeyNumbers(self._schema, device)
        self._null = -1
        self._count = 0
        self._look_at = _CROWD

    def __len__(self) -> int:
        return self._count if self._names else 1

    @property
    def seen(self) -> bool:
        """Whether there was any row."""
        return self._seen

    def see(self) -> None:
        """There is a state, be there no row yet."""
        self._seen = True

    @property
    def keys(self) -> Any | None:
        """A frame with row g for group g; None without a key."""
        pieces = [run.rows for run in self._keys.runs]
        return self._device.columns.concat(pieces) if pieces else None

    def keys_of(self, codes: Any) -> Any | None:
        """A frame with the keys of some groups, by int64 numbers; None without a key."""
        device, pieces = self._device, [run.rows for run in self._keys.runs]
        if len(pieces) < 2:
            return device.columns.take(pieces[0], codes) if pieces else None
        if not device.kernels.ascends(codes):
            order = np.argsort(codes, kind="stable")
            back = np.empty_like(codes)
            back[order] = device.columns.array(np.arange(len(codes)))
            return device.columns.take(self.keys_of(device.kernels.take(codes, order)), back)
        begins = np.cumsum([0, *map(device.columns.rows, pieces)])
        cuts = device.columns.host(np.searchsorted(codes, device.columns.array(begins))).tolist()
        found = [
            device.columns.take(piece, codes[low:high] - int(begin))
            for piece, begin, low, high in zip(pieces, begins[:-1], cuts[:-1], cuts[1:], strict=True)
            if low < high
        ]
        return device.columns.concat(found) if found else device.columns.take(pieces[0], codes)

    def codes(self, frame: Any) -> Any:
        """int32 number of each row's group; new groups get the next numbers."""
        rows = self._device.columns.rows(frame)
        self._seen = self._seen or rows > 0
        if self._integers is None or not rows:
            return self._by_key(frame)
        columns, (name,) = self._device.columns, self._names
        values, valid = columns.values(frame, name)
        found = self._integers.find(values)
        if valid is not None:
            found = np.where(valid, found, np.int32(self._null))
        if int(found.min()) < 0:
            new = self._device.kernels.keep(found < 0)
            found[new] = self._new(columns.take(columns.select(frame, [name]), new))
        return found

    def known(self, frame: Any) -> Any:
        """int32 number of each row's group; -1 for groups that have none. They get none."""
        columns = self._device.columns
        if self._integers is None:
            local, _, keys = columns.key_codes(frame, self._names)
            return self._device.kernels.take(self._others.find(keys, self.keys_of), local.astype(np.int64))
        values, valid = columns.values(frame, self._names[0])
        found = self._integers.find(values)
        return found if valid is None else np.where(valid, found, np.int32(self._null))

    def _new(self, frame: Any) -> Any:
        """int32 numbers of rows by an integer key; none of their keys has one yet."""
        array = self._device.columns.array
        local, count, keys = self._device.columns.key_codes(frame, self._names)
        used = present(local, count, self._device)
        numbers = array(np.zeros(count, np.int32))
        numbers[used] = array(np.arange(self._count, self._count + len(used), dtype=np.int32))
        self._add(self._device.columns.take(keys, used))
        return self._device.kernels.take(numbers, local.astype(np.int64, copy=False))

    def _add(self, keys: Any) -> None:
        """Give some groups by an integer key the next numbers."""
        columns, kernels = self._device.columns, self._device.kernels
        values, valid = columns.values(keys, self._names[0])
        numbers = columns.array(np.arange(self._count, self._count + len(values), dtype=np.int32))
        if valid is not None:
            self._null = int(numbers[kernels.keep(~valid)][0])
            some = kernels.keep(valid)
            values, numbers = kernels.take(values, some), kernels.take(numbers, some)
        if self._integers is not None:
            self._integers.add(values, numbers)
        self._keys.add(keys)
        self._count = len(self._keys)

    def _by_key(self, frame: Any) -> Any:
        columns = self._device.columns
        local, count, keys = columns.key_codes(frame, self._names)
        if not self._names or not len(local):
            return local
        kernels, used = self._device.kernels, present(local, count, self._device)
        distinct = columns.take(keys, used)
        found = self._others.find(distinct, self.keys_of)
        fresh = kernels.keep(found < 0)
        if len(fresh):
            new = columns.take(distinct, fresh)
            found[fresh] = columns.array(np.arange(self._count, self._count + len(fresh), dtype=np.int32))
            self._others.add(new, kernels.take(found, fresh))
            self._keys.add(new)
            self._count += len(fresh)
        numbers = np.zeros_like(found, shape=(count,))
        numbers[used] = found
        return kernels.take(numbers, local.astype(np.int64, copy=False))

    @property
    def crowded(self) -> bool:
        """Whether to look for forgettable groups now: each time the number of groups has doubled."""
        return bool(self._names) and self._count >= self._look_at

    def forget(self, used: Any) -> Any | None:
        """Forget unused groups, if most groups are unused.

        Args:
            used: Host bools, one for each group.

        Returns:
            int32 new number of each remaining group; None if no group is forgotten.
        """
        left = np.flatnonzero(used)
        self._look_at = max(_CROWD, 2 * self._count)
        if 2 * len(left) > len(used):
            return None
        columns = self._device.columns
        self.restore(columns.take(self.keys, columns.array(left)))
        self._look_at = max(_CROWD, 2 * len(left))
        numbers = np.zeros(len(used), np.int32)
        numbers[left] = np.arange(len(left), dtype=np.int32)
        return columns.array(numbers)

    def restore(self, keys: Any | None) -> None:
        """Restore the groups with their numbers; without a key, only that there was a row."""
        self._seen, self._null, self._count = True, -1, 0
        if not self._names:
            return
        if self._integers is None:
            self._keys.replace([keys])
            self._others = KeyNumbers(self._schema, self._device)
            self._count = self._device.columns.rows(keys)
            self._others.add(keys, self._device.columns.array(np.arange(self._count, dtype=np.int32)))
        else:
            self._integers = IntegerNumbers(self._device)
            self._keys.replace([])
            self._add(keys)
