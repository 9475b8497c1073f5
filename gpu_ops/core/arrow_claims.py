"""What the messages of an Arrow file claim, looked at before Arrow believes it: sizes, and what would end the process.

Arrow's reader takes memory for whatever a compressed buffer says that it unpacks to, and some of its arrays end the
process when they are made of what cannot be. Layouts: Arrow's ``Message.fbs`` and ``File.fbs``, and the FlatBuffers
binary format.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.arrow_types import fields_of, is_offset, is_view

MAGIC = b"ARROW1"
"""What an Arrow file begins and ends with; a stream does not."""

_CONTINUES = 0xFFFFFFFF
_DICTIONARY, _RECORDS = 2, 3
_BLOCK = np.dtype([("at", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])
_NODE = np.dtype([("length", "<i8"), ("nulls", "<i8")])
_BUFFER = np.dtype([("at", "<i8"), ("size", "<i8")])
_NULL_BYTES = 8
"""What a row of nulls alone counts as: no byte in the file stands for it."""

_IS = pa.types


class _Table:
    """A table of a FlatBuffer. Nothing outside of the bytes is ever looked at: that is a ``ValueError``."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        self._fields = at - self._number("<i", at)
        self._end = self._number("<H", self._fields)

    def _number(self, kind: str, at: int) -> int:
        if not 0 <= at <= len(self._data) - struct.calcsize(kind):
            raise ValueError("its metadata points out of itself")
        return int(struct.unpack_from(kind, self._data, at)[0])

    def _place(self, field: int) -> int:
        slot = 4 + 2 * field
        offset = self._number("<H", self._fields + slot) if slot < self._end else 0
        return self._at + offset if offset else 0

    def number(self, field: int, kind: str) -> int:
        at = self._place(field)
        return self._number(kind, at) if at else 0

    def table(self, field: int) -> _Table | None:
        at = self._place(field)
        return _Table(self._data, at + self._number("<I", at)) if at else None

    def structs(self, field: int, kind: Any) -> npt.NDArray[Any]:
        at = self._place(field)
        if not at:
            return np.empty(0, kind)
        at += self._number("<I", at)
        count = self._number("<I", at)
        if count * np.dtype(kind).itemsize > len(self._data) - at - 4:
            raise ValueError("its metadata points out of itself")
        return np.frombuffer(self._data, kind, count, at + 4)


def _root(data: bytes) -> _Table:
    if len(data) < 4:
        raise ValueError("its metadata breaks off")
    return _Table(data, struct.unpack_from("<I", data)[0])


@dataclass(frozen=True)
class _Message:
    """A message: its kind, its header, and where its body is."""

    kind: int
    header: _Table
    body: int
    size: int


def _message(source: pa.NativeFile, at: int, size: int, metadata: int | None = None) -> _Message | None:
    """The message at a place of a source of known size; None at the end of a stream."""
    first = source.read_at(8, at)
    if len(first) < 4:
        return None
    (length,) = struct.unpack_from("<I", first)
    begin = at + 4
    if length == _CONTINUES:
        if len(first) < 8:
            raise ValueError("it breaks off in a message")
        (length,) = struct.unpack_from("<I", first, 4)
        begin = at + 8
    if not length:
        return None
    if length > size - begin:
        raise ValueError(f"a message claims {length:,} bytes of metadata, and there are {size - begin:,}")
    table = _root(source.read_at(length, begin))
    header = table.table(2)
    body = begin + length if metadata is None else at + metadata
    claimed = table.number(3, "<q")
    if header is None or not 0 <= claimed <= size - body:
        raise ValueError(f"a message claims {claimed:,} bytes, and there are {size - body:,}")
    return _Message(table.number(1, "<B"), header, body, claimed)


class Claim(NamedTuple):
    """What a batch claims.

    Attributes:
        size: How many bytes the wanted columns unpack to, and dictionaries before them.
        unasked: How many bytes of other columns Arrow keeps in memory as long as one of the wanted is there.
    """

    size: int
    unasked: int


@dataclass(frozen=True)
class Claims:
    """What the batches of an Arrow file or stream claim.

    Attributes:
        source: The source of the bytes.
        schema: Its columns.
        columns: The numbers of the wanted columns.
    """

    source: pa.NativeFile
    schema: pa.Schema
    columns: frozenset[int]

    def of_file(self) -> Iterator[Claim]:
        """What each batch of a file claims; the first is told together with all dictionaries.

        Raises:
            ValueError: It claims what is not there, or a column is of what Arrow cannot hold.
        """
        size = self.source.size()
        tail = self.source.read_at(10, max(size - 10, 0))
        (length,) = struct.unpack_from("<i", tail)
        if not 0 < length <= size - 10:
            raise ValueError(f"its footer claims {length:,} bytes of {size:,}")
        footer = _root(self.source.read_at(length, size - 10 - length))
        before = sum(self._block(block, size).size for block in footer.structs(2, _BLOCK))
        for block in footer.structs(3, _BLOCK):
            claim = self._block(block, size)
            yield claim._replace(size=before + claim.size)
            before = 0

    def _block(self, block: Any, size: int) -> Claim:
        at, metadata, body = int(block["at"]), int(block["metadata"]), int(block["body"])
        if min(at, metadata, body) < 0 or at + metadata + body > size:
            raise ValueError(f"its footer claims {metadata + body:,} bytes at {at:,} of {size:,}")
        message = _message(self.source, at, size, metadata)
        if message is None:
            raise ValueError("its footer points to what is no message")
        return self._unpacked(message)

    def of_stream(self) -> Iterator[Claim]:
        """The same of a stream, each with the dictionaries that come before it; its reader stands where it stood."""
        size, at, before = self.source.size(), 0, 0
        position = self.source.tell()
        while (message := _message(self.source, at, size)) is not None:
            at = message.body + message.size
            if message.kind == _RECORDS:
                claim = self._unpacked(message)
                self.source.seek(position)
                yield claim._replace(size=before + claim.size)
                position, before = self.source.tell(), 0
            elif message.kind == _DICTIONARY:
                before += self._unpacked(message).size

    def _unpacked(self, message: _Message) -> Claim:
        header: _Table | None = message.header
        if message.kind == _DICTIONARY:
            header = message.header.table(1)
        if header is None:
            raise ValueError("a message has no batch")
        nodes, buffers = header.structs(1, _NODE), header.structs(2, _BUFFER)
        if (nodes["length"] < 0).any() or (buffers["size"] < 0).any() or (buffers["at"] < 0).any():
            raise ValueError("a length is negative")
        if message.kind == _DICTIONARY:
            rows, wanted = sum(map(int, nodes["length"])), list(range(len(buffers)))
        else:
            rows, wanted = self._walk(nodes, len(buffers), header.structs(4, "<i8").tolist())
        compressed = header.table(3) is not None
        size = sum(self._buffer(message, buffers[each], compressed) for each in wanted)
        return Claim(rows + size, 0 if compressed else message.size - size)

    def _buffer(self, message: _Message, buffer: Any, compressed: bool) -> int:  # noqa: FBT001  (of each message)
        at, size = int(buffer["at"]), int(buffer["size"])
        if at + size > message.size:
            raise ValueError(f"a buffer claims {size:,} bytes at {at:,} of {message.size:,}")
        if not compressed or size < 8:
            return size
        (unpacked,) = struct.unpack("<q", self.source.read_at(8, message.body + at))
        if unpacked < -1:
            raise ValueError(f"a buffer claims {unpacked:,} bytes")
        return size if unpacked == -1 else int(unpacked)

    def _walk(self, nodes: npt.NDArray[Any], buffers: int, variadic: list[int]) -> tuple[int, list[int]]:
        """What the rows of the wanted columns count as, and which buffers these have."""
        wanted: list[int] = []
        rows = node = buffer = views = 0
        for number, kind in enumerate(self.schema.types):
            for part, said in _parts(kind):
                if node >= len(nodes):
                    raise ValueError("a batch has fewer columns than its schema")
                own = said
                if own < 0:
                    if views >= len(variadic) or variadic[views] < 0:
                        raise ValueError("a batch does not tell how many buffers its views have")
                    own = variadic[views] - own
                    views += 1
                if buffer + own > buffers:
                    raise ValueError("a batch has fewer buffers than its columns need")
                if number in self.columns:
                    # A node of a map's keys says its key: Arrow ends the process where a key is null.
                    if part == "key" and nodes["nulls"][node]:
                        raise ValueError(f"a key of a map in column {self.schema.names[number]!r} is null")
                    rows += int(nodes["length"][node]) * (1 if own else _NULL_BYTES)
                    wanted += range(buffer, buffer + own)
                node, buffer = node + 1, buffer + own
        return rows, wanted


def _parts(kind: pa.DataType, part: str = "") -> Iterator[tuple[str, int]]:
    """The nodes of a column and how many buffers each has; for views that number is negative, and there are more."""
    if isinstance(kind, pa.BaseExtensionType):
        yield from _parts(kind.storage_type, part)
        return
    if _IS.is_dictionary(kind):
        if _IS.is_nested(kind.value_type) or isinstance(kind.value_type, pa.BaseExtensionType):
            raise ValueError(f"a column is a {kind}, which is not read")
        yield part, 2
        return
    if _IS.is_union(kind) or _IS.is_run_end_encoded(kind):
        raise ValueError(f"a column is a {kind}, which is not read")
    if _IS.is_null(kind):
        yield part, 0
    elif _IS.is_struct(kind) or _IS.is_fixed_size_list(kind):
        yield part, 1
    elif is_view(kind):
        yield part, -2
    elif is_offset(kind) or _IS.is_list_view(kind) or _IS.is_large_list_view(kind):
        yield part, 3
    else:
        yield part, 2
    if _IS.is_map(kind):
        yield "key", 1
        yield from _parts(kind.key_type, "key")
        yield from _parts(kind.item_type)
    elif _IS.is_nested(kind):
        for field in fields_of(kind):
            yield from _parts(field.type)
