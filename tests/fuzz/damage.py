"""Damage to bytes, to JSON and to tables: each is drawn, and says what it did."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

INTEGERS = (0, 1, -1, 255, (1 << 15) - 1, (1 << 31) - 1, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
"""What a length, an offset or a count is least prepared for."""

Drawn = tuple[str, bytes]
"""What was done, and what came of it."""


def packed(number: int, width: int) -> bytes:
    """The low bytes of a whole number."""
    return (number & ((1 << (8 * width)) - 1)).to_bytes(width, "little")


def place(chance: random.Random, data: bytes | bytearray, width: int = 1) -> int:
    """Somewhere in the bytes: in what describes a file, its first and its last ones, more often than elsewhere."""
    room = max(len(data) - width, 0)
    where = chance.random()
    if where < 0.5:
        return chance.randint(0, room)
    return chance.randint(0, room // 16) if where < 0.65 else chance.randint(room - room // 4, room)


def _span(chance: random.Random, data: bytes) -> tuple[int, int]:
    begin = place(chance, data)
    return begin, min(begin + chance.choice([1, 4, 8, 64, 512]), len(data))


def _flip(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    made, flipped = bytearray(data), []
    for _ in range(chance.choice([1, 1, 2, 8])):
        at, bit = place(chance, made), chance.randrange(8)
        made[at] ^= 1 << bit
        flipped.append(f"{at}.{bit}")
    return f"bits {', '.join(flipped)} flipped", bytes(made)


def _run(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    begin, stop = _span(chance, data)
    what = chance.choice([b"\x00", b"\xff", b"\x80", b'"', b"\n", None])
    run = chance.randbytes(stop - begin) if what is None else what * (stop - begin)
    return f"bytes {begin} to {stop} are {what or 'random'!r}", data[:begin] + run + data[stop:]


def _integer(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    width, number = chance.choice([1, 2, 4, 4, 8, 8]), chance.choice(INTEGERS)
    at = place(chance, data, width)
    at -= at % width if chance.random() < 0.7 else 0
    return f"{number} in the {width} bytes at {at}", data[:at] + packed(number, width) + data[at + width :]


def _cut(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    size = place(chance, data)
    return f"cut to {size} bytes of {len(data)}", data[:size]


def _double(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    begin, stop = _span(chance, data)
    return f"bytes {begin} to {stop} doubled", data[:stop] + data[begin:]


def _delete(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    begin, stop = _span(chance, data)
    return f"bytes {begin} to {stop} left out", data[:begin] + data[stop:]


def _swap(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    size = chance.choice([8, 64, 128])
    one, other = sorted(chance.randrange(max(len(data) // size, 1)) * size for _ in range(2))
    if other < one + size:
        return _run(chance, data, others)
    made = data[:one] + data[other : other + size] + data[one + size : other] + data[one : one + size]
    return f"{size} bytes at {one} and at {other} swapped", made + data[other + size :]


def _splice(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    number = chance.randrange(len(others))
    begin, stop = _span(chance, others[number])
    at = place(chance, data)
    piece = others[number][begin:stop]
    return f"bytes {begin} to {stop} of sound file {number} at {at}", data[:at] + piece + data[at + len(piece) :]


_BYTES: tuple[Callable[[random.Random, bytes, Sequence[bytes]], Drawn], ...] = (
    _flip, _run, _integer, _integer, _cut, _double, _delete, _swap, _splice,
)  # fmt: skip


def damage_bytes(chance: random.Random, data: bytes, others: Sequence[bytes]) -> Drawn:
    """Bytes with one or two damages.

    Args:
        chance: Draws them.
        data: What is damaged.
        others: Files that pieces are taken from.
    """
    said = []
    for _ in range(chance.choice([1, 1, 1, 2])):
        what, data = chance.choice(_BYTES)(chance, data or b"\x00", others)
        said.append(what)
    return "; ".join(said), data


_DEEP: Any = []
for _level in range(50):
    _DEEP = [_DEEP]

_HOSTILE: tuple[Any, ...] = (
    None, True, 0, 1, 3, -1, 1 << 31, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 200, 1.5, 1e308, float("nan"), "", "x",
    "\ud800", "\x00", "../../x", "x" * 5000, [], [[]], [None], [0, 0, 0], {}, {"x": 1}, {"": {}}, _DEEP,
)  # fmt: skip
"""Values that may stand in JSON where another is awaited."""


def damage_json(chance: random.Random, data: bytes) -> Drawn:
    """JSON that is JSON still, one value of which is another, is gone, or is there twice."""
    said = json.loads(data)
    holders: list[tuple[str, Any]] = []

    def visit(value: Any, path: str) -> None:
        if isinstance(value, dict | list) and value:
            holders.append((path, value))
        inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, each in list(inside):
            visit(each, f"{path}/{key}")

    visit(said, "")
    if not holders or chance.random() < 0.03:
        made = chance.choice(_HOSTILE)
        return f"all of it is {made!r:.40}", json.dumps(made).encode()
    path, holder = chance.choice(holders)
    key = chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    how = chance.random()
    if how < 0.6:
        holder[key] = chance.choice(_HOSTILE)
        what = f"{path}/{key} is {holder[key]!r:.40}"
    elif how < 0.75:
        del holder[key]
        what = f"{path}/{key} is left out"
    elif how < 0.9 and isinstance(holder, dict):
        other = chance.choice(list(holder))
        holder[key], holder[other] = holder[other], holder[key]
        what = f"{path}/{key} and {other} swapped"
    elif isinstance(holder, list):
        holder.insert(key, holder[key])
        what = f"{path}/{key} is there twice"
    else:
        holder[f"{key}x"] = holder.pop(key)
        what = f"{path}/{key} is called {key}x"
    return what, json.dumps(said).encode()


def damage_table(chance: random.Random, table: pa.Table) -> tuple[str, pa.Table]:
    """A table that is a sound one, and not what was written: other columns, other types, other rows, other values."""
    kind = chance.choice(["column", "column", "type", "rows", "value", "value", "value"])
    if not table.num_columns:
        return "a column more", table.append_column("x", pa.array([], pa.int64()))
    index = chance.randrange(table.num_columns)
    field = table.schema.field(index)
    if kind == "column":
        which = chance.choice(["without", "twice", "other name", "first", "more"])
        columns = list(range(table.num_columns))
        if which == "without":
            columns.remove(index)
        elif which == "twice":
            columns.append(index)
        elif which == "first":
            columns.insert(0, columns.pop(index))
        made = table.select(columns)
        if which == "other name":
            made = table.rename_columns([f"{name}x" if name == field.name else name for name in table.column_names])
        elif which == "more":
            made = table.append_column("x", pa.nulls(table.num_rows, pa.int64()))
        return f"column {field.name}: {which}", made
    if kind == "type":
        other = chance.choice(
            [pa.int8(), pa.float64(), pa.string(), pa.list_(pa.int64()), pa.timestamp("us"), pa.null()]
        )
        return f"column {field.name} is {other}", table.set_column(index, field.name, pa.nulls(table.num_rows, other))
    if kind == "rows" or not table.num_rows:
        rows = list(range(table.num_rows))
        which = chance.choice(["reversed", "doubled", "none", "shuffled", "fewer"])
        if which == "shuffled":
            chance.shuffle(rows)
        picked = {"reversed": rows[::-1], "doubled": rows * 2, "none": [], "shuffled": rows, "fewer": rows[1:]}[which]
        # Arrow takes no rows of views.
        return f"rows {which}", pa.concat_tables([table.slice(0, 0), *(table.slice(row, 1) for row in picked)])
    row = chance.randrange(table.num_rows)
    value = chance.choice([None, *INTEGERS])
    if value is not None and pa.types.is_boolean(field.type):
        value = bool(value)
    try:
        one = (
            pa.array([value], pa.int64()).cast(field.type, safe=False) if value is not None else pa.nulls(1, field.type)
        )
    except pa.ArrowException:
        one = pa.nulls(1, field.type)
    column = table.column(index)
    made = pa.chunked_array([*column.slice(0, row).chunks, one, *column.slice(row + 1).chunks], field.type)
    loose = pa.field(field.name, field.type, nullable=True, metadata=field.metadata)
    return f"{field.name}[{row}] is {value}", table.set_column(index, loose, made)
