"""Every Arrow type that a payload may have goes to Polars and comes back whole; the others are refused by name."""

from __future__ import annotations

import datetime
import decimal
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pytest
from hypothesis import assume, given
from pyarrow import compute as pc

import gpu_ops as g
from gpu_ops.core.types import _pointed, carried, lower, refusal, restore, storage
from gpu_ops.errors import ColumnError, SourceError
from tests.support.any_array import LEAVES, arrays, comparable
from tests.support.examples import examples


def round_trip(column: pa.Array | pa.ChunkedArray) -> pa.ChunkedArray:
    frame = pl.DataFrame(pa.table({"x": lower(column)}))
    assert isinstance(frame, pl.DataFrame)
    return restore(frame.to_arrow()["x"], column.type)


def assert_same(column: pa.Array | pa.ChunkedArray) -> None:
    whole = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    back = round_trip(column)
    back.validate(full=True)
    assert back.type == whole.type
    assert [bits(value) for value in back.to_pylist()] == [bits(value) for value in whole.to_pylist()]


def bits(value: Any) -> Any:
    """A Python value that equals another only if no bit of either differs."""
    if isinstance(value, float):
        return np.float64(value).tobytes()
    if isinstance(value, list | tuple):
        return [bits(each) for each in value]
    if isinstance(value, dict):
        return {name: bits(each) for name, each in value.items()}
    return value


@examples(dear=True)
@given(arrays())
def test_any_array_comes_back_whole(array: pa.Array) -> None:
    assume(carried(array.type))
    back = round_trip(array)
    back.validate(full=True)
    assert back.type == array.type
    whole = back.combine_chunks()
    if not whole.equals(pa.concat_arrays([array])):  # NaN is no equal of itself
        assert repr(comparable(whole).to_pylist()) == repr(comparable(array).to_pylist())


@pytest.mark.parametrize(
    ("kind", "values"), LEAVES, ids=lambda each: str(each) if isinstance(each, pa.DataType) else ""
)
def test_a_type_without_rows_comes_back(kind: pa.DataType, values: object) -> None:
    del values
    assert_same(pa.array([], kind))
    assert_same(pa.array([None, None], kind))


@pytest.mark.parametrize("bits_of", [np.float16, np.float32, np.float64])
def test_every_bit_of_a_float_comes_back(bits_of: type[np.floating[Any]]) -> None:
    width = np.dtype(bits_of).itemsize
    patterns = np.array([1 << (8 * width - 1), (1 << (8 * width - 1)) - 1, (1 << (8 * width)) - 2], f"u{width}")
    back = round_trip(pa.array(patterns.view(bits_of)))
    assert back.chunk(0).to_numpy().view(patterns.dtype).tolist() == patterns.tolist()


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.int64(), pa.uint32(), pa.float64(), pa.timestamp("us", "+02:00"), pa.duration("ns"), pa.date32()],
    ids=str,
)
def test_the_memory_of_plain_types_is_shared(kind: pa.DataType) -> None:
    numbers = pa.array(range(100), pa.int64()).cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    array = numbers.view(kind) if pa.types.is_temporal(kind) else numbers.cast(kind)
    back = round_trip(array).chunk(0)
    assert back.buffers()[1].address == array.buffers()[1].address


def test_nothing_is_done_to_what_polars_takes_as_it_is() -> None:
    column = pa.chunked_array([["a"], ["b", None]])
    assert lower(column) is column
    assert restore(column, pa.string()) is column


# One by one, what has a way of its own


def test_dates_with_a_time_of_day_keep_it() -> None:
    column = pa.array([5, -1, None], pa.int64()).view(pa.date64())
    assert round_trip(column).combine_chunks().view(pa.int64()).to_pylist() == [5, -1, None]


@pytest.mark.parametrize("index", [pa.int8(), pa.uint8(), pa.int32(), pa.uint64()], ids=str)
@pytest.mark.parametrize(
    "values",
    [
        pa.array(["x", "y"]),
        pa.array(["x", "y"], pa.large_string()),
        pa.array(["x", "y"], pa.string_view()),
        pa.array([1, 2]),
        pa.array([b"xy", b"zz"], pa.binary(2)),
        pa.array([1, 2], pa.timestamp("s")),
        pa.array([decimal.Decimal("1.5"), decimal.Decimal(2)]),
    ],
    ids=lambda values: str(values.type),
)
def test_dictionaries_keep_their_types(index: pa.DataType, values: pa.Array) -> None:
    assert_same(pa.DictionaryArray.from_arrays(pa.array([1, None, 0, 1], index), values))


class Unpointed:
    """Views as casts of pyarrow before 25 leave them, which newer ones refuse to make: who hands them on dies."""

    def __init__(self, array: pa.Array) -> None:
        self.array, self.type, self.offset = array, array.type, array.offset

    def __len__(self) -> int:
        return len(self.array)

    def buffers(self) -> list[pa.Buffer | None]:
        return [*self.array.buffers()[:2], None]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()], ids=str)
def test_views_lose_memory_that_is_none(kind: pa.DataType) -> None:
    array = pa.array([b"ab", None, b"", b"c"]).cast(kind).slice(1)
    made = _pointed(Unpointed(array))
    assert all(each is not None for each in made.buffers()[2:])
    made.validate(full=True)
    assert made.equals(array)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.string_view(), pa.binary_view(), pa.dictionary(pa.int8(), pa.string_view())),
        *(
            pa.list_(pa.string_view()),
            pa.struct([("x", pa.string_view())]),
            pa.map_(pa.string_view(), pa.binary_view()),
        ),
    ],
    ids=str,
)
def test_short_texts_in_views_go_to_polars_and_back(kind: pa.DataType) -> None:
    values = pa.array([b"ab", b"", b"c"]) if pa.types.is_binary_view(kind) else pa.array(["ab", "", "c"])
    if pa.types.is_dictionary(kind):
        array = pa.DictionaryArray.from_arrays(pa.array([2, 0, 1], pa.int8()), values.cast(pa.string_view()))
    elif pa.types.is_struct(kind):
        array = pa.StructArray.from_arrays([values], names=["x"]).cast(kind)
    elif pa.types.is_map(kind):
        array = pa.MapArray.from_arrays(pa.array([0, 1, 3], pa.int32()), values, values.cast(pa.binary())).cast(kind)
    elif pa.types.is_list(kind):
        array = pa.ListArray.from_arrays(pa.array([0, 1, 3], pa.int32()), values).cast(kind)
    else:
        array = values.cast(kind)
    assert_same(array)
    assert_same(array.slice(1))


def test_dictionaries_may_hold_null_among_their_values() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a", None]))
    assert round_trip(column).to_pylist() == ["a", None, None]


def test_chunks_may_have_dictionaries_that_are_too_many_together() -> None:
    kind = pa.dictionary(pa.int8(), pa.string())
    chunks = [
        pa.array([f"{letter}{number}" for number in range(100)]).dictionary_encode().cast(kind) for letter in "ab"
    ]
    column = pa.chunked_array(chunks)
    assert_same(column)
    one = pl.DataFrame(pa.table({"x": column})).rechunk()
    back = restore(one.to_arrow()["x"], kind)
    assert back.type == kind
    assert back.to_pylist() == column.to_pylist()


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("x", pa.list_(pa.int64()))])])
def test_lists_without_values_can_be_written(kind: pa.DataType) -> None:
    # Gathered from several chunks, they begin past the end of no values at all.
    lists = pl.concat([pl.Series([[1, 2, 3], []])[1:]] * 2).gather([0, 1, 0])
    column = lists if pa.types.is_list(kind) else pl.DataFrame({"x": lists}).to_struct()
    back = pa.table({"x": restore(pl.DataFrame({"x": column}).to_arrow()["x"], kind)})
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, back.schema) as writer:
        writer.write_table(back)
    assert pa.ipc.open_file(sink.getvalue()).read_all().to_pylist() == back.to_pylist()
    assert back.to_pylist() == [{"x": [] if pa.types.is_list(kind) else {"x": []}}] * 3


def test_a_polars_enum_keeps_its_order() -> None:
    frame = pl.DataFrame({"x": pl.Series(["low", "high", None], dtype=pl.Enum(["low", "high"]))})
    table = pa.table(frame)
    field = table.schema.field("x")
    assert field.type.ordered
    assert refusal(field) is None
    assert pl.DataFrame(table).schema == frame.schema
    assert restore(pl.DataFrame(table).to_arrow()["x"], field.type).type == field.type
    assert refusal(pa.field("x", pa.list_(pa.field("item", field.type, metadata=field.metadata)))) is None


@pytest.mark.parametrize(
    ("extension", "stored"),
    [
        (pa.uuid(), pa.array([b"0123456789abcdef", None], pa.binary(16))),
        (pa.json_(), pa.array(["{}", None])),
        (pa.bool8(), pa.array([1, None], pa.int8())),
        (pa.opaque(pa.timestamp("s"), "time", "elsewhere"), pa.array([1, None], pa.timestamp("s"))),
    ],
    ids=str,
)
def test_extension_types_are_carried_as_what_they_are_stored_as(extension: pa.DataType, stored: pa.Array) -> None:
    column = pa.ExtensionArray.from_storage(extension, stored)
    assert_same(column)
    nested = pa.ListArray.from_arrays(pa.array([0, 2]), column)
    assert round_trip(nested).combine_chunks().equals(nested)


def test_fields_that_are_never_null_may_stand_under_a_null() -> None:
    struct = pa.struct([pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.date64())])
    rows = [{"a": 1, "b": None}, None, {"a": 2, "b": datetime.date(2020, 1, 1)}]
    assert_same(pa.array(rows, struct))
    assert_same(pa.array(rows, struct).slice(1))
    for kind in (pa.list_(struct), pa.large_list(struct)):
        assert_same(pa.array([rows, None, [], rows[1:]], kind).slice(1))
    assert_same(pa.array([rows[:2], None, rows[1:]], pa.list_(struct, 2)).slice(1))
    assert_same(
        pa.array([[("k", rows[0])], None, [], [("k", None), ("l", rows[2])]], pa.map_(pa.string(), struct)).slice(1)
    )


def test_names_of_inner_fields_come_back() -> None:
    for kind in (
        pa.list_(pa.field("element", pa.int32(), nullable=False)),
        pa.list_(pa.field("element", pa.date64())),
        pa.map_(pa.string(), pa.date64(), keys_sorted=True),
    ):
        assert round_trip(pa.array([None, []], kind)).type.equals(kind)


def test_text_beyond_32_bit_offsets_comes_back_in_pieces() -> None:
    base = 2**31
    text = np.zeros(base + 9, np.uint8)  # pages that are never touched
    text[base:] = ord("x")
    offsets = np.array([base, base + 5, base + 5, base + 9])
    column = pa.Array.from_buffers(pa.large_string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    back = restore(pa.chunked_array([column]), pa.string())
    assert back.type == pa.string()
    assert back.to_pylist() == ["xxxxx", "", "xxxx"]


# What is refused


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (pa.decimal256(40, 2), "decimal256"),
        (pa.decimal128(10, -2), "decimal128(10, -2)"),
        (pa.decimal128(5, 7), "decimal128(5, 7)"),
        (pa.month_day_nano_interval(), "interval"),
        (pa.dense_union([pa.field("a", pa.int32())]), "union"),
        (pa.sparse_union([pa.field("a", pa.int32())]), "union"),
        (pa.run_end_encoded(pa.int32(), pa.string()), "run_end_encoded"),
        (pa.dictionary(pa.int8(), pa.string(), ordered=True), "as_unordered"),
        (pa.dictionary(pa.int8(), pa.list_(pa.int8())), "Decode"),
        (pa.list_view(pa.int8()), "list_view"),
        (pa.large_list_view(pa.int8()), "list_view"),
        (pa.binary(0), "fixed_size_binary[0]"),
        (pa.list_(pa.int8(), 0), "[0]"),
        (pa.list_(pa.struct([("a", pa.null())]), 2), "Arrow's casts"),
        (pa.timestamp("us", "+05:30"), "+05:30"),
        (pa.timestamp("us", "Nowhere/Land"), "Nowhere/Land"),
        (pa.timestamp("us", "../etc"), "../etc"),
    ],
    ids=str,
)
def test_what_would_be_lost_is_refused_by_name(kind: pa.DataType, word: str) -> None:
    for outer in (
        kind,
        pa.list_(kind),
        pa.struct([("ok", pa.int8()), ("not", kind)]),
        pa.map_(pa.string(), kind),
    ):
        reason = refusal(outer)
        assert reason is not None
        assert word in reason
        assert not carried(outer)


def test_seconds_beyond_milliseconds_are_refused_not_wrapped() -> None:
    with pytest.raises(SourceError, match=r"timestamp\[ms\]"):
        lower(pa.array([2**62], pa.timestamp("s")))
    with pytest.raises(SourceError, match=r"duration\[ms\]"):
        lower(pa.chunked_array([pa.array([2**62], pa.duration("s"))]))


def test_storage_changes_only_what_polars_would_lose() -> None:
    assert storage(pa.timestamp("s", "UTC")) == pa.timestamp("ms", "UTC")
    assert storage(pa.duration("s")) == pa.duration("ms")
    assert storage(pa.date64()) == pa.timestamp("ms")
    assert storage(pa.uuid()) == pa.binary(16)
    assert storage(pa.dictionary(pa.int8(), pa.int64())) == pa.int64()
    assert storage(pa.decimal64(9, 2)) == pa.decimal128(9, 2)
    for kind in (
        pa.string(),
        pa.time32("s"),
        pa.binary(4),
        pa.dictionary(pa.int8(), pa.string()),
        pa.map_(pa.int8(), pa.int8()),
    ):
        assert storage(kind) == kind
        assert lower(pa.array([], kind)).type == kind


def test_polars_holds_each_type_as_its_own() -> None:
    for kind, held in [
        (pa.int8(), "Int8"),
        (pa.float16(), "Float16"),
        (pa.time32("s"), "Time"),
        (pa.date64(), "Datetime(time_unit='ms'"),
        (pa.binary(4), "Binary"),
        (pa.decimal64(9, 2), "Decimal"),
        (pa.dictionary(pa.int8(), pa.string()), "Categorical"),
        (pa.list_(pa.int8(), 2), "Array"),
        (pa.map_(pa.string(), pa.int8()), "Map"),
    ]:
        assert carried(kind)
        dtype = str(pl.DataFrame(pa.table({"x": lower(pa.array([], kind))})).dtypes[0])
        assert dtype.startswith(held)
    assert pc.sum(pa.array([1])).as_py() == 1


WRAPPED = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8()))
TENSORS = pa.ExtensionArray.from_storage(
    pa.fixed_shape_tensor(pa.int32(), [2]), pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2))
)
NO_KEYS: list[Callable[[g.Stream], object]] = [
    lambda s: s.by("x"),
    lambda s: s.stitch(),
    lambda s: s.unique("x").rows(),
    lambda s: s.join(s, on="x"),
]


@pytest.mark.parametrize("sums", [g.sum, g.mean, g.median, g.variance])
def test_what_an_extension_type_stores_is_no_number(sums: Callable[[str], Any]) -> None:
    events = g.events(pa.table({"at": [0, 1], "x": WRAPPED}), start="at", unit="s")
    with pytest.raises(ColumnError, match=r"does not take extension<arrow.bool8>"):
        events.snapshot().agg(y=sums("x"))


@pytest.mark.parametrize("verb", NO_KEYS)
def test_what_is_nested_within_an_extension_type_is_no_key(verb: Callable[[g.Stream], object]) -> None:
    with pytest.raises(ColumnError, match=r"fixed_shape_tensor.* (is no key|has no equality|has no order)"):
        verb(g.events(pa.table({"at": [0, 1], "x": TENSORS}), start="at", unit="s"))


def test_a_dictionary_of_binary_views_is_refused_by_name() -> None:
    with pytest.raises(SourceError, match="cannot be carried: Arrow cannot make such a dictionary again"):
        g.events(
            pa.table({"at": [0], "x": pa.array([b"x"], pa.binary_view()).dictionary_encode()}), start="at", unit="s"
        )
