"""The CRC of a table's rows: equal rows have the same in any order and memory; rows that differ have another."""

from __future__ import annotations

import itertools
import random
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gpu_ops.microbatches.contents import content_crc
from tests.support.payload_table import SAMPLES

OTHERS = {
    "large list": pa.array([[1, None], None, [], [3]], pa.large_list(pa.int8())),
    "fixed list": pa.array([[1, None], None, [2, 3], [3, 3]], pa.list_(pa.int8(), 2)),
    "texts in a view": pa.array(["a", None, "a text too long to be inline", ""], pa.string_view()),
    "large text": pa.array(["a", None, "é", ""], pa.large_string()),
    "dictionary in a list": pa.array([["a"], None, ["b", None], []], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "struct in a struct": pa.array([{"a": {"b": 1}}, None, {"a": None}, {"a": {"b": None}}]),
    "null": pa.nulls(4),
    "decimal256": pa.array([1, None, 2, 3], pa.decimal256(50, 3)),
    "interval": pa.array([(1, 2, 3), None, (0, 0, 0), (1, 0, 0)], pa.month_day_nano_interval()),
    "half": pa.array(np.array([1, np.nan, np.inf, -0.0], np.float16)),
    "run ends": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3, 4], pa.int32()), pa.array(["a", None, "b"])),
    "union": pa.UnionArray.from_sparse(
        pa.array([0, 1, 0, 1], pa.int8()), [pa.array([1, 2, None, 4]), pa.array(["a", "b", "c", None])]
    ),
}
ALL = {" ".join(key): values for key, values in SAMPLES.items()} | OTHERS


@pytest.mark.parametrize("name", ALL)
def test_it_hangs_on_the_values_alone(name: str) -> None:
    values = ALL[name]
    if name == "union":
        repeated = pa.concat_arrays([values] * 3)
    else:
        repeated = pa.concat_arrays([values, values.slice(1), values])
    chance = random.Random(name)
    whole = content_crc(pa.table({"a": repeated}))
    for _ in range(20):
        cuts = sorted(chance.choices(range(len(repeated) + 1), k=3))
        pieces = [repeated.slice(a, b - a) for a, b in itertools.pairwise([0, *cuts, len(repeated)])]
        assert content_crc(pa.table({"a": pa.chunked_array(pieces, values.type)})) == whole
    slices = {content_crc(pa.table({"a": repeated.slice(0, size)})) for size in range(len(repeated) + 1)}
    assert len(slices) == len(repeated) + 1
    # A file gives back what was written, not the same memory.
    if name != "run ends":
        sink = pa.BufferOutputStream()
        table = pa.table({"a": repeated.slice(1)})
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        again = pa.ipc.open_file(sink.getvalue()).read_all()
        assert content_crc(again) == content_crc(table)


@pytest.mark.parametrize("name", [name for name in ALL if name != "null"])
def test_each_row_counts(name: str) -> None:
    values = ALL[name]
    rows = [values.slice(at, 1) for at in range(len(values))]
    distinct = {repr(row.to_pylist()) for row in rows}
    assert len({content_crc(pa.table({"a": row})) for row in rows}) == len(distinct)


def test_what_stands_under_a_null_does_not_count() -> None:
    valid = pa.py_buffer(b"\x05")
    one, other = (
        pa.Array.from_buffers(pa.int64(), 3, [valid, pa.py_buffer(np.array([1, under, 3]))]) for under in (0, 7)
    )
    assert content_crc(pa.table({"a": one})) == content_crc(pa.table({"a": other}))
    nested = [pa.StructArray.from_arrays([each], ["x"], mask=pa.array([True, False, False])) for each in (one, other)]
    assert len({content_crc(pa.table({"a": each})) for each in nested}) == 1
    under = [
        pa.StructArray.from_arrays([pa.array([n, 2, 3])], ["x"], mask=pa.array([True, False, False])) for n in (1, 7)
    ]
    assert len({content_crc(pa.table({"a": each})) for each in under}) == 1


def test_dictionaries_count_by_their_values() -> None:
    plain = pa.array(["b", None, "a", "b"])
    other = pa.DictionaryArray.from_arrays(pa.array([2, None, 0, 2], pa.int8()), pa.array(["a", "c", "b"]))
    assert content_crc(pa.table({"a": plain.dictionary_encode()})) == content_crc(pa.table({"a": other}))


def test_the_same_bytes_cut_in_another_way_differ() -> None:
    texts: list[list[Any]] = [["ab", "c"], ["a", "bc"], ["abc", ""]]
    lists: list[list[Any]] = [[[1, 2], [3]], [[1], [2, 3]], [[1, 2, 3], []]]
    within: list[list[Any]] = [
        [["ab", "c"]],
        [["a", "bc"]],
        [["abc", ""]],
        [["", "abc"]],
        [["c", "ab"]],
        [["ab"], ["c"]],
    ]
    for shapes in (texts, lists, within):
        assert len({content_crc(pa.table({"a": each})) for each in shapes}) == len(shapes)
    columns = [{"a": [1], "b": [None]}, {"a": [None], "b": [1]}]
    schema = pa.schema([("a", pa.int8()), ("b", pa.int8())])
    assert len({content_crc(pa.table(each, schema)) for each in columns}) == 2


@pytest.mark.parametrize("name", ALL)
def test_the_order_of_rows_does_not_count_and_what_is_in_a_row_does(name: str) -> None:
    values = ALL[name]
    numbers = pa.array(range(len(values)))
    table = pa.table({"a": values, "n": numbers})
    turned = pa.concat_tables([table.slice(at, 1) for at in reversed(range(len(values)))])
    assert content_crc(turned) == content_crc(table)
    doubled = pa.concat_tables([table, table.slice(1, 1)])
    assert content_crc(doubled) not in {content_crc(table), content_crc(pa.concat_tables([table, table.slice(2, 1)]))}
    if name != "null":
        assert content_crc(pa.table({"a": turned["a"], "n": numbers})) != content_crc(table)


def test_all_that_is_not_a_number_is_the_same() -> None:
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001], np.uint64).view(np.float64)
    assert len({content_crc(pa.table({"a": bits[at : at + 1]})) for at in range(3)}) == 1
    assert content_crc(pa.table({"a": [0.0]})) != content_crc(pa.table({"a": [-0.0]}))


def test_numbers_that_differ_in_one_bit_differ() -> None:
    bits = np.array([0, *(1 << at for at in range(64))], np.uint64)
    assert len({content_crc(pa.table({"a": bits[at : at + 1]})) for at in range(65)}) == 65
    wide = [pa.array([Decimal(1 << at)], pa.decimal256(60, 0)) for at in range(190)]
    assert len({content_crc(pa.table({"a": each})) for each in wide}) == 190


def test_more_rows_than_are_looked_at_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = pa.table({"a": range(1000), "b": [str(n) for n in range(1000)]})
    monkeypatch.setattr(sys.modules[content_crc.__module__], "ROW_GROUP_ROWS", 300)
    pieces = pa.concat_tables([table.slice(301), table.slice(0, 299), table.slice(299, 2)])
    assert content_crc(table) == content_crc(pieces)
    assert content_crc(table.slice(0, 999)) != content_crc(table)
