"""What cuDF is given, and the way back, by Arrow alone: what goes in comes out, of any type and any slice."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given

from gpu_ops.core import types
from gpu_ops.core.types import carried
from gpu_ops.devices.cuda.lowering import device_type, lower, restore
from gpu_ops.errors import SourceError
from tests.support.any_array import arrays, comparable
from tests.support.examples import examples
from tests.support.payload_table import ROWS, Row

FACTS = json.loads((Path(__file__).parents[1] / "support" / "cudf_facts.json").read_text())
"""What the wheel answers; `record_cudf_facts.py` asked it."""


def held_by_cudf(kind: pa.DataType) -> bool:
    """Whether cuDF makes a column of a type that holds the very same values."""
    types = pa.types
    if types.is_struct(kind):
        return all(held_by_cudf(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        name = str(kind).partition("<")[0]
        return bool(FACTS["nested"][name] == "list") and held_by_cudf(kind.value_type)
    if types.is_decimal128(kind):
        return bool(FACTS["nested"]["decimal128"] == "decimal128")
    held = FACTS["leaves"][str(kind)]
    if held is None:
        return False
    if types.is_string(kind) or types.is_large_string(kind):
        return bool(held == "str")
    # Of what cuDF calls objects it makes text, of zones numbers without them, and of days seconds.
    return bool(held == str(np.dtype(kind.to_pandas_dtype())) != "object")


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64(), pa.time32("s"), pa.float16(), pa.null(), pa.binary()])
def test_cudf_has_no_such_column(kind: pa.DataType) -> None:
    assert not held_by_cudf(kind)


@examples(dear=True)
@given(arrays())
def test_any_array_comes_back_whole(array: pa.Array) -> None:
    assume(carried(array.type))
    column = pa.chunked_array([array, array.slice(len(array) // 2)])
    given_to = lower(column)
    given_to.validate()  # and no more: bytes that are called text need not be any
    assert given_to.type == device_type(array.type)
    assert held_by_cudf(given_to.type)
    back = restore(given_to, array.type)
    back.validate(full=True)
    assert back.type == array.type
    found, was = back.combine_chunks(), column.combine_chunks()
    if not found.equals(was):  # NaN is no equal of itself
        assert repr(comparable(found).to_pylist()) == repr(comparable(was).to_pylist())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_cudf_has_what_it_is_given(row: Row) -> None:
    assert held_by_cudf(device_type(row.dtype))


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.int32(), pa.int64()),
        pa.list_(pa.uuid()),
        pa.struct([("id", pa.uuid()), ("t", pa.timestamp("us", "America/New_York"))]),
        pa.map_(pa.string(), pa.binary(4)),
        pa.large_list(pa.binary()),
        *(pa.null(), pa.float16(), pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us")),
        *(pa.list_(kind) for kind in (pa.null(), pa.float16(), pa.date32(), pa.time64("ns"))),
        *(pa.list_(pa.int8(), 2), pa.large_list(pa.list_(pa.time32("s"), 3)), pa.map_(pa.date32(), pa.time32("ms"))),
        pa.struct([("n", pa.null()), ("f", pa.list_(pa.float16(), 2)), ("d", pa.large_list(pa.date64()))]),
    ],
    ids=str,
)
def test_types_that_are_made_of_others(kind: pa.DataType) -> None:
    column = pa.chunked_array([pa.nulls(2, kind)])
    assert held_by_cudf(lower(column).type)
    assert restore(lower(column), kind).equals(column)
    empty = pa.chunked_array([], kind)
    assert restore(lower(empty), kind).equals(empty)


@pytest.mark.parametrize(
    ("kind", "counted"),
    [
        (pa.date32(), [20_000, None, -1]),  # cuDF would make seconds of it, and 1970-01-21 of day 20000
        (pa.time32("s"), [86_399 * 10**9, None, 0]),
        (pa.time64("us"), [86_399_999_999_000, None, 1000]),
    ],
    ids=str,
)
def test_days_and_times_of_day_are_counted(kind: pa.DataType, counted: list[int | None]) -> None:
    unit = {"date32[day]": 1, "time32[s]": 10**9, "time64[us]": 1000}[str(kind)]
    plain = pa.int32() if kind.bit_width == 32 else pa.int64()
    numbers = [None if each is None else each // unit for each in counted]
    column = pa.chunked_array([pa.array(numbers, plain).view(kind)])
    assert lower(column).to_pylist() == counted
    assert restore(lower(column), kind).equals(column)
    # What is computed of such a column is built in this type, and goes back from it.
    assert device_type(types.counted(kind)) == device_type(kind)


def test_a_large_list_that_no_list_holds_is_an_error_that_says_so() -> None:
    offsets = pa.array([0, 2**31], pa.int64())
    column = pa.chunked_array([pa.LargeListArray.from_arrays(offsets, pa.nulls(2**31))])
    with pytest.raises(SourceError, match=r"does not fit list<item: int8>.* Use device="):
        lower(column)


def test_nothing_is_done_to_what_cudf_takes_as_it_is() -> None:
    column = pa.chunked_array([[1, None]])
    assert lower(column) is column


def test_bytes_are_the_same_memory() -> None:
    column = pa.chunked_array([pa.array([b"\xff\x00", None, b""])])
    assert lower(column).chunk(0).buffers()[2].address == column.chunk(0).buffers()[2].address
