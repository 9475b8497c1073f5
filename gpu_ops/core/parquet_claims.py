"""What a Parquet file claims, read from its footer and the headers of its pages before Arrow takes memory for it.

pyarrow cannot be asked: it ends the process where a column chunk's metadata are not what they should be. A few
kilobytes may unpack to terabytes, by a page that is compressed, by a long text in a dictionary to which every row
points, or by texts each of which begins as the one before. Layouts: ``parquet.thrift``, and Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_ops.core.bounds import Meter

_DICTIONARY_PAGE = 2
_DELTA_BYTE_ARRAY = 7
"""An encoding: of each text it is said how much of it is the beginning of the one before."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT96": 12, "BYTE_ARRAY": 4}
_HEADER = 256
"""Bytes in which most headers of pages fit."""

_AT_LEAST = 1024
"""So many values Arrow makes room for, however few are asked for."""

_DEEPEST = 32


class _Thrift:
    """Reads values of the compact protocol. A missing value is an ``IndexError``."""

    def __init__(self, data: bytes) -> None:
        self._data, self.at = data, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """A structure: values by the numbers of their fields."""
        if depth > _DEEPEST:
            raise ValueError("its metadata nest too deep")
        found: dict[int, Any] = {}
        field = 0
        while head := self._byte():
            field = field + (head >> 4) if head >> 4 else self._number()
            found[field] = self._value(head & 15, depth)
        return found

    def _byte(self) -> int:
        self.at += 1
        return self._data[self.at - 1]

    def _varint(self) -> int:
        number = shift = 0
        while (byte := self._byte()) & 0x80 and shift < 64:
            number |= (byte & 0x7F) << shift
            shift += 7
        return number | byte << shift

    def _number(self) -> int:
        number = self._varint()
        return number >> 1 ^ -(number & 1)

    def _skip(self, size: int) -> None:
        if size > len(self._data) - self.at:
            raise IndexError("its metadata break off")
        self.at += size

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):
            return kind == 1
        if kind in (4, 5, 6):
            return self._number()
        if kind in (3, 7, 8):
            self._skip({3: 1, 7: 8}.get(kind) or self._varint())
            return None
        if kind in (9, 10):
            head = self._byte()
            count = self._varint() if head >> 4 == 15 else head >> 4
            # Of a structure a boolean is the head, in a list it is a byte.
            within = 3 if head & 15 in (1, 2) else head & 15
            return [self._value(within, depth + 1) for _ in range(count)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"its metadata have a value of the kind {kind}")


class _Page(NamedTuple):
    """A page: how many values it has, how many bytes it unpacks to, and whether its texts may be longer than these."""

    values: int
    size: int
    kind: int
    encoding: int

    @property
    def expands(self) -> bool:
        return self.kind == _DICTIONARY_PAGE or self.encoding == _DELTA_BYTE_ARRAY


class GroupClaim(NamedTuple):
    """How a row group is to be read.

    Attributes:
        rows: How many rows at a time.
        coded: The paths of columns to be read as dictionaries, since their texts may be too many.
    """

    rows: int
    coded: list[str]


def row_groups(
    source: pa.NativeFile, footer: pq.FileMetaData, wanted: Sequence[int], rows: int, meter: Meter
) -> Iterator[GroupClaim]:
    """How each row group of a file is to be read, so that no batch takes more than a meter lets through.

    Args:
        source: The file.
        footer: What pyarrow made of its footer.
        wanted: The numbers of the columns' leaves.
        rows: How many rows are read at a time where they are small.
        meter: What knows how large a piece may be.

    Raises:
        SourceError: A piece would be too large.
        Exception: The metadata are none (`gpu_ops.core.bounds.naming` makes it ours).
    """
    size = source.size()
    length = int.from_bytes(source.read_at(4, size - 8), "little")
    groups = _Thrift(source.read_at(min(length, size), size - 8 - length)).struct().get(4, [])
    leaves = [footer.schema.column(number) for number in wanted]
    for group in groups:
        pages = [list(_pages(source, group[1][number][3], size)) for number in wanted]
        yield _claim(leaves, pages, rows, meter)


def _claim(leaves: Sequence[Any], pages: Sequence[Sequence[_Page]], rows: int, meter: Meter) -> GroupClaim:
    a_row, whole, coded = 0, 0, []
    for leaf, found in zip(leaves, pages, strict=True):
        meter.check(max((page.size for page in found), default=0))
        text = leaf.physical_type == "BYTE_ARRAY"
        width = leaf.length if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY" else _WIDTHS.get(leaf.physical_type, 8)
        longest = max((page.size for page in found if text and page.expands), default=0)
        values = sum(page.values for page in found)
        if not leaf.max_repetition_level:
            a_row += width + longest
            meter.check(width * min(values, _AT_LEAST))
            continue
        # A single row may hold all values of the group.
        whole += values * width + text * sum(page.size for page in found)
        if values * longest > meter.piece:
            meter.check(values * max((page.size for page in found if page.encoding == _DELTA_BYTE_ARRAY), default=0))
            coded.append(leaf.path)
    rows = max(min(rows, meter.piece // max(a_row, 1)), 1)
    for leaf, found in zip(leaves, pages, strict=True):
        if leaf.physical_type == "BYTE_ARRAY" and not leaf.max_repetition_level:
            whole += _most(found, rows)
    meter.check(whole)
    return GroupClaim(rows, coded)


def _most(pages: Sequence[_Page], rows: int) -> int:
    """The most bytes of the pages that hold a number of consecutive rows."""
    values, sizes = (np.cumsum([0, *each]) for each in ([p.values for p in pages], [p.size for p in pages]))
    stop = np.minimum(np.searchsorted(values, values[:-1] + rows) + 1, len(pages))
    return int((sizes[stop] - sizes[:-1]).max(initial=0))


def _pages(source: pa.NativeFile, chunk: Any, size: int) -> Iterator[_Page]:
    """The pages of a column chunk, as Arrow goes through them."""
    at = min(place for place in (chunk[9], chunk.get(11)) if place) if chunk[5] else size
    left = chunk[5]
    while left > 0 and 0 <= at < size:
        header, used = _header(source, at, size)
        kind, unpacked, packed = header[1], header[2], header[3]
        said = header.get(5) or header.get(8) or header.get(7) or {}
        values = 0 if kind == _DICTIONARY_PAGE else said.get(1, 0)
        if min(unpacked, packed, values) < 0:
            raise ValueError("a page claims less than nothing")
        yield _Page(values, unpacked, kind, said.get(4 if 8 in header else 2, 0))
        left -= values
        at += used + packed


def _header(source: pa.NativeFile, at: int, size: int) -> tuple[dict[int, Any], int]:
    """The header of the page at a place, and how long it is."""
    there = _HEADER
    while True:
        thrift = _Thrift(source.read_at(min(there, size - at), at))
        try:
            return thrift.struct(), thrift.at
        except IndexError:
            if there >= size - at:
                raise ValueError("it breaks off in the header of a page") from None
            there *= 16
