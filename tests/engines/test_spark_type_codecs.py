"""Columns through mapInArrow, the worker's side: what is encoded and decoded is what it was, of any slice."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from gpu_ops.engines.spark.type_codecs import codec, decoded_arrays, encoded_arrays, encoded_fields
from gpu_ops.engines.spark.types import plain_type, spark_type
from gpu_ops.errors import ColumnError

POINT = pa.struct([("x", pa.int64()), ("raw", pa.binary()), ("inner", pa.struct([("d", pa.decimal128(5, 1))]))])
COLUMNS: dict[str, pa.Array] = {
    "int8": pa.array([1, None, -128, 127], pa.int8()),
    "float64": pa.array([math.inf, None, -0.0, 5e-324]),
    "string": pa.array(["é", None, "", "b"]),
    "timestamp": pa.array([0, None, -1, 1 << 57], pa.timestamp("us", "UTC")),
    "list": pa.array([[1, None], None, [], [2]], pa.list_(pa.int64())),
    "decimal": pa.array([Decimal("-1.5"), None, 0, Decimal("99999999.99")], pa.decimal128(10, 2)),
    "decimal, 18 digits": pa.array([Decimal(f"-0.{'9' * 18}"), None, 0, Decimal("1E-18")], pa.decimal128(18, 18)),
    "decimal, wide": pa.array([-(10**37), None, 0, Decimal(10**37)], pa.decimal128(38, 0)),
    "decimal, many places": pa.array([Decimal("-1E-38"), None, 0, Decimal("1E-10")], pa.decimal128(38, 38)),
    "binary": pa.array([b"", None, b"\x00\xff", b"abc"]),
    "duration": pa.array([1 << 62, None, -(1 << 62), 0], pa.duration("us")),
    "null": pa.nulls(4),
    "struct": pa.array(
        [
            {"x": 1, "raw": b"\x01", "inner": {"d": Decimal("1.5")}},
            None,
            {"x": None, "raw": None, "inner": None},
            {"x": 2, "raw": b"", "inner": {"d": None}},
        ],
        POINT,
    ),
    "map": pa.array([[("a", 1), ("b", None)], None, [], [("c", 3)]], pa.map_(pa.string(), pa.int64())),
    "uint8": pa.array([0, None, 255, 1], pa.uint8()),
    "uint32": pa.array([0, None, (1 << 32) - 1, 1], pa.uint32()),
    "uint64": pa.array([0, None, (1 << 64) - 1, 1], pa.uint64()),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "milliseconds": pa.array([1, None, -1, 0], pa.duration("ms")),
    "fixed": pa.array([b"ab", None, b"cd", b"\x00\x00"], pa.binary(2)),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("part", [(0, 4), (0, 0), (1, 1), (1, 3), (2, 2), (0, 1)])
def test_what_passes_comes_back(name: str, part: tuple[int, int]) -> None:
    column = COLUMNS[name].slice(*part)
    schema = pa.schema([("price in €", column.type)])
    passed = encoded_arrays(schema, [column])
    assert [array.type for array in passed] == [field.type for field in encoded_fields(schema)["price in €"]]
    back = decoded_arrays(schema, passed)[0]
    back.validate(full=True)
    assert back.type == column.type
    assert back.to_pylist() == column.to_pylist()


def test_hexadecimal_digits_are_ordered_as_their_bytes() -> None:
    values = [bytes([first, second]) for first in (0, 9, 10, 99, 255) for second in (0, 160)] + [b"", b"\x09"]
    digits = codec(pa.binary()).encode_array(pa.array(values))[0].to_pylist()
    assert [value for _, value in sorted(zip(digits, values, strict=True))] == sorted(values)


PLANNED = ["int8", "string", "list", "decimal", "decimal, wide", "duration", "null", "map", "uint64", "dictionary"]


@pytest.mark.parametrize("name", PLANNED)
def test_what_the_plugin_passes(name: str) -> None:
    assert codec(COLUMNS[name].type).refusal is None


@pytest.mark.parametrize(
    ("dtype", "why"),
    [
        (pa.binary(), "unhex"),
        (POINT, "unhex"),
        (pa.timestamp("us"), "no type that the RAPIDS plugin passes"),
        (pa.list_(pa.decimal128(5, 1)), "no type that the RAPIDS plugin passes"),
        (pa.map_(pa.string(), pa.binary()), "no type that the RAPIDS plugin passes"),
    ],
)
def test_what_it_does_not_pass(dtype: pa.DataType, why: str) -> None:
    refusal = codec(dtype).refusal
    assert refusal is not None
    assert why in refusal


def test_types_that_spark_does_not_have() -> None:
    for dtype in (pa.time64("us"), pa.month_day_nano_interval(), pa.list_(pa.time32("s"))):
        with pytest.raises(ColumnError, match="Spark has no type for"):
            plain_type(dtype)
    assert spark_type(pa.list_(pa.uint16())).simpleString() == "array<int>"
    assert spark_type(pa.timestamp("ns")).simpleString() == "timestamp_ntz"
