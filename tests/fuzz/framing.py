"""Arrow files whose framing is whole, and something within is not: offsets, indices, views, lengths, validity."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from tests.fuzz.damage import INTEGERS, Drawn, damage_bytes, packed

_CONTINUATION = b"\xff\xff\xff\xff"


class Place(NamedTuple):
    """A buffer of an uncompressed Arrow file: what it holds, where it begins, how long it is, how wide a number is."""

    role: str
    begin: int
    size: int
    width: int
    column: str


def open_any(data: bytes | pa.Buffer) -> Any:
    """A reader of an Arrow file or stream."""
    buffer = pa.py_buffer(data)
    is_file = buffer.to_pybytes()[:6] == b"ARROW1"
    return pa.ipc.open_file(buffer) if is_file else pa.ipc.open_stream(buffer)


def batches(reader: Any) -> Iterator[pa.RecordBatch]:
    """The batches of such a reader."""
    if hasattr(reader, "num_record_batches"):
        yield from (reader.get_batch(number) for number in range(reader.num_record_batches))
    else:
        yield from reader


def places(data: bytes) -> list[Place]:
    """The buffers of a sound Arrow file that is not compressed."""
    buffer = pa.py_buffer(data)
    found = [
        Place(role, each.address - buffer.address, each.size, width, name)
        for batch in batches(open_any(buffer))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
        for role, each, width in _buffers(column)
        if each is not None and each.size and 0 <= each.address - buffer.address < buffer.size
    ]
    return sorted(set(found))


def _buffers(array: pa.Array) -> Iterator[tuple[str, pa.Buffer | None, int]]:
    """The buffers of an array and of what is in it: role, buffer, width of a number in it."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        yield from _buffers(array.storage)
        return
    own = array.buffers()
    if pa.types.is_null(kind):
        return
    if pa.types.is_run_end_encoded(kind):
        parts = [array.run_ends, array.values]
    elif pa.types.is_union(kind):
        yield from zip(("types", "offsets"), own[1:], (1, 4), strict=False)
        parts = [array.field(number) for number in range(kind.num_fields)]
    else:
        yield "validity", own[0], 1
        yield from _of_rows(array, own)
        return
    for part in parts:
        yield from _buffers(part)


def _of_rows(array: pa.Array, own: list[pa.Buffer | None]) -> Iterator[tuple[str, pa.Buffer | None, int]]:
    """Those of an array that has a validity, without it."""
    kind = array.type
    if pa.types.is_struct(kind):
        for number in range(kind.num_fields):
            yield from _buffers(array.field(number))
    elif pa.types.is_map(kind):
        yield "offsets", own[1], 4
        yield from _buffers(array.keys)
        yield from _buffers(array.items)
    elif pa.types.is_fixed_size_list(kind):
        yield from _buffers(array.values)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield "offsets", own[1], 8 if pa.types.is_large_list(kind) else 4
        yield from _buffers(array.values)
    elif pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind):
        width = 8 if pa.types.is_large_list_view(kind) else 4
        yield from (("offsets", own[1], width), ("sizes", own[2], width))
        yield from _buffers(array.values)
    elif pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        yield "views", own[1], 4
        yield from (("text", each, 1) for each in own[2:])
    elif pa.types.is_dictionary(kind):
        yield "indices", own[1], kind.index_type.bit_width // 8
        yield from _buffers(array.dictionary)
    elif any(test(kind) for test in (pa.types.is_string, pa.types.is_binary)):
        yield from (("offsets", own[1], 4), ("text", own[2], 1))
    elif any(test(kind) for test in (pa.types.is_large_string, pa.types.is_large_binary)):
        yield from (("offsets", own[1], 8), ("text", own[2], 1))
    else:
        yield "values", own[1], max(min(kind.bit_width // 8, 8), 1)


def messages(data: bytes) -> list[tuple[int, int]]:
    """Where the metadata of the messages of an Arrow file begin and end."""
    found = []
    for at in range(0, len(data) - 8, 8):
        if data[at : at + 4] == _CONTINUATION:
            size = int.from_bytes(data[at + 4 : at + 8], "little", signed=True)
            if 0 < size <= len(data) - at - 8:
                found.append((at + 8, at + 8 + size))
    return found


def long(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little", signed=True)


def lengths(data: bytes) -> list[int]:
    """Where a metadata holds what may be a length, an offset or a count of 64 bits."""
    return [
        at
        for begin, stop in messages(data)
        for at in range(begin + (-begin) % 8, stop - 7, 8)
        if 0 <= long(data, at) < 1 << 24
    ]


def bodies(data: bytes) -> list[tuple[int, int]]:
    """Where what may be a buffer of a body begins and ends, as the metadata before it tell."""
    return [
        (stop + long(data, at), stop + long(data, at) + long(data, at + 8))
        for begin, stop in messages(data)
        for at in range(begin + (-begin) % 8, stop - 15, 8)
        if long(data, at) >= 0 and long(data, at + 8) > 8 and stop + long(data, at) + long(data, at + 8) <= len(data)
    ]


def damage_framed(chance: random.Random, data: bytes) -> Drawn:
    """An Arrow file in which one number is another: in a buffer, in metadata, or before a compressed buffer."""
    where = chance.random()
    counts, parts = lengths(data), bodies(data)
    if where < 0.25 and counts:
        return _damage_length(chance, data, counts)
    if where < 0.35 and parts:
        begin, _ = chance.choice(parts)
        number = chance.choice([*INTEGERS, 1 << 33])
        return f"{number} before the buffer at {begin}", data[:begin] + packed(number, 8) + data[begin + 8 :]
    if where < 0.45 and len(parts) > 1:
        (one, one_stop), (other, other_stop) = (chance.choice(parts) for _ in range(2))
        size = min(one_stop - one, other_stop - other)
        made = bytearray(data)
        made[one : one + size], made[other : other + size] = data[other : other + size], data[one : one + size]
        return f"{size} bytes of the buffers at {one} and {other} swapped", bytes(made)
    found = places(data)
    if found:
        return _damage_buffer(chance, data, found)
    return _damage_length(chance, data, counts) if counts else damage_bytes(chance, data, [data])


def _damage_length(chance: random.Random, data: bytes, counts: list[int]) -> Drawn:
    at = chance.choice(counts)
    was = long(data, at)
    number = chance.choice([*INTEGERS, was + 1, was - 1, was * 2, was + 8, long(data, chance.choice(counts))])
    return f"{number} instead of {was} in the metadata at {at}", data[:at] + packed(number, 8) + data[at + 8 :]


def _damage_buffer(chance: random.Random, data: bytes, found: list[Place]) -> Drawn:
    roles = sorted({each.role for each in found})
    role = chance.choice(roles)
    role, begin, size, width, _ = chance.choice([each for each in found if each.role == role])
    at = begin + width * chance.randrange(max(size // width, 1))
    was = int.from_bytes(data[at : at + width], "little", signed=True)
    number = chance.choice([*INTEGERS, was + 1, was - 1, was + 100, chance.getrandbits(8 * width)])
    if role == "validity" and chance.random() < 0.5:
        byte = chance.choice([b"\x00", b"\xff"])
        return f"validity at {begin} is {byte[0]}", data[:begin] + byte * size + data[begin + size :]
    made = data[:at] + packed(number, width) + data[at + width :]
    return f"{number} instead of {was} in the {role} at {at} ({width} bytes wide)", made
