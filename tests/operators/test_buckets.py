"""Buckets by a hash: the same as value by value, on each device."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.core.time import TICK
from gpu_ops.devices import choose
from gpu_ops.errors import ColumnError
from gpu_ops.operators.contexts.buckets import BucketOperator, buckets
from gpu_ops.operators.events import Events
from gpu_ops.plan.buckets import Bucket
from gpu_ops.plan.nodes import Feed

_TEXTS = st.none() | st.text(alphabet="abß€", max_size=6)


def _bits(value: int, width: int) -> int:
    return (value + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))


def _java(value: Any) -> int:
    """The hash code that Java's documentation gives."""
    if isinstance(value, bool):
        return 1231 if value else 1237
    if isinstance(value, float):
        value = int(np.array([value]).view(np.int64)[0])
    if isinstance(value, str):
        total = 0
        for letter in value:
            total = _bits(31 * total + ord(letter), 32)
        return total
    return _bits(value ^ (value % (1 << 64) >> 32), 32)


@given(st.lists(_TEXTS, min_size=1))
def test_texts(texts: list[str | None]) -> None:
    keys = pa.table({"k": pa.array(texts, pa.string())})
    assert buckets(keys, "hash_code", 7).tolist() == [0 if one is None else abs(_java(one)) % 7 for one in texts]
    wanted = [zlib.crc32(b"" if one is None else one.encode()) % 7 for one in texts]
    assert buckets(keys, "consistent_hash_crc32", 7).tolist() == wanted


@pytest.mark.parametrize(
    "column",
    [pa.array([0, -1, 1 << 40, -(1 << 63)]), pa.array([0.5, -0.25, 1e300]), pa.array([True, False])],
    ids=lambda column: str(column.type),
)
def test_numbers(column: pa.Array) -> None:
    wanted = [abs(_java(each)) % 11 for each in column.to_pylist()]
    assert buckets(pa.table({"k": column}), "hash_code", 11).tolist() == wanted


def test_several_keys_and_nulls() -> None:
    """Nulls are left out; of bytes, the length of a text stands before it."""
    keys = pa.table({"k": ["a", None, "a"], "n": pa.array([3, 4, None], pa.int32())})
    one, two = _java("a"), abs(_bits(31 * _java("a") + 3, 32))
    assert buckets(keys, "hash_code", 5).tolist() == [two % 5, 4, one % 5]
    rows = [b"\x00\x01a\x00\x00\x00\x03", b"\x00\x00\x00\x00\x00\x04", b"\x00\x01a"]
    assert buckets(keys, "consistent_hash_crc32", 5).tolist() == [zlib.crc32(row) % 5 for row in rows]


@pytest.mark.parametrize("name", ["cpu", "array"])
def test_events_keep_their_columns(name: str) -> None:
    device = choose(name)
    table = pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3]})
    node = Bucket(Feed(table.schema, (), TICK), ("k",), "hash_code", 5, "number")
    events = Events(device.columns.array(np.arange(3)), TICK, device.columns.from_arrow(table))
    made = BucketOperator(node, device).each(events)
    found = device.columns.to_arrow(made.frame, node.schema)
    assert found.to_pydict() == {"k": ["a", "b", "a"], "v": [1, 2, 3], "number": [2, 3, 2]}


def test_there_is_no_hash_of_a_list() -> None:
    with pytest.raises(ColumnError, match="no hash of list"):
        Bucket(Feed(pa.schema([("k", pa.list_(pa.int64()))]), (), TICK), ("k",), "hash_code", 5, "number")
