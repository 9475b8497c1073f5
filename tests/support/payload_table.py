"""The table of `docs/types.md`, as the tests read it, with values of each type that go to its limits."""

from __future__ import annotations

import re
import uuid
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

DOCUMENT = Path(__file__).parents[2] / "docs" / "types.md"


class Row(NamedTuple):
    """A row of the table: its cells, in their order.

    Attributes:
        seed: The type's name in StreamInsight.
        declared: How to declare the Arrow type.
        polars: The type of the column that the CPU holds.
        ordered: Whether it may be a key and an extreme.
        spark: The SQL type; "none" where Spark has none.
        parquet: What Spark makes of the column in a file that Arrow wrote.
        scan: Where the RAPIDS plugin plans reading, filtering and projecting it; empty where Spark has no such column.
        union: Where it plans a union.
        shuffle: Where it plans a hash partitioning by it.
        passes: The columns that pass mapInArrow in its place.
        python: Where it plans all that a Python stage with this column needs.
        cudf: The Arrow type that cuDF is given.
    """

    seed: str
    declared: str
    polars: str
    ordered: str
    spark: str
    parquet: str
    scan: str
    union: str
    shuffle: str
    passes: str
    python: str
    cudf: str

    @property
    def name(self) -> str:
        """A name for the row's column."""
        return re.sub(r"\W+", "_", f"{self.seed} {self.declared[3:]}").strip("_")

    @property
    def dtype(self) -> pa.DataType:
        """The Arrow type."""
        made = eval(self.declared, {"pa": pa})  # noqa: S307  (our own document)
        assert isinstance(made, pa.DataType)
        return made

    @property
    def values(self) -> pa.Array:
        """Four values: the least, null, the greatest, and one between them."""
        return SAMPLES[self.seed, self.declared]


def _rows() -> list[Row]:
    _, table = DOCUMENT.read_text(encoding="utf-8").split("| StreamInsight | Arrow |", maxsplit=1)
    lines = table.split("\n\n", maxsplit=1)[0].splitlines()[2:]
    return [Row(*(cell.strip().strip("`") for cell in line.strip("|").split("|"))) for line in lines]


def _ticks(least: int, greatest: int, dtype: pa.DataType) -> pa.Array:
    # One tick from the least: what rounds it tells them apart no more.
    return pa.array([least, None, greatest, least + 1], pa.int64()).view(dtype)


def _decimals(dtype: pa.DataType, *values: str) -> pa.Array:
    return pa.array([None if value == "null" else Decimal(value) for value in values], dtype)


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # years 1 and 9999, as DateTime has them
_LEAST, _GREATEST = -(2**63), 2**63 - 1
_GUIDS = [uuid.UUID(int=0), None, uuid.UUID(int=2**128 - 1), uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")]
_BYTES = [None if guid is None else guid.bytes for guid in _GUIDS]
_STRUCTS = [
    {"x": _LEAST, "price": Decimal("-99999999999999.9999")},
    None,
    {"x": None, "price": None},
    {"x": 1, "price": Decimal(0)},
]
_TEXTS = ["", None, "\U0010ffff", "a\x00é"]

SAMPLES: dict[tuple[str, str], pa.Array] = {
    ("byte", "pa.uint8()"): pa.array([0, None, 255, 1], pa.uint8()),
    ("sbyte", "pa.int8()"): pa.array([-128, None, 127, 1], pa.int8()),
    ("byte[]", "pa.binary()"): pa.array([b"", None, b"\xff" * 512, b"\x00\x80a"]),
    ("int", "pa.int32()"): pa.array([-(2**31), None, 2**31 - 1, 1], pa.int32()),
    ("uint", "pa.uint32()"): pa.array([0, None, 2**32 - 1, 1], pa.uint32()),
    ("short", "pa.int16()"): pa.array([-(2**15), None, 2**15 - 1, 1], pa.int16()),
    ("ushort", "pa.uint16()"): pa.array([0, None, 2**16 - 1, 1], pa.uint16()),
    ("long", "pa.int64()"): pa.array([_LEAST, None, _GREATEST, 1]),
    ("ulong", "pa.uint64()"): pa.array([0, None, 2**64 - 1, 1], pa.uint64()),
    ("float", "pa.float32()"): pa.array([-3.4028234663852886e38, None, 3.4028234663852886e38, 1e-45], pa.float32()),
    ("double", "pa.float64()"): pa.array([-1.7976931348623157e308, None, 1.7976931348623157e308, 5e-324]),
    ("decimal", "pa.decimal128(38, 9)"): _decimals(
        pa.decimal128(38, 9), f"-{2**96 - 1}", "null", f"{2**96 - 1}", "1E-9"
    ),
    ("decimal", "pa.decimal128(38, 28)"): _decimals(
        pa.decimal128(38, 28), "-7.9228162514264337593543950335", "null", "7.9228162514264337593543950335", "1E-28"
    ),
    ("decimal", "pa.decimal128(18, 4)"): _decimals(
        pa.decimal128(18, 4), "-99999999999999.9999", "null", "99999999999999.9999", "0.0001"
    ),
    ("bool", "pa.bool_()"): pa.array([False, None, True, True]),
    ("datetime", 'pa.timestamp("us", "UTC")'): _ticks(_FIRST, _LAST, pa.timestamp("us", "UTC")),
    ("datetime", 'pa.timestamp("us")'): _ticks(_FIRST, _LAST, pa.timestamp("us")),
    ("datetime", 'pa.timestamp("ns", "UTC")'): _ticks(_LEAST, _GREATEST, pa.timestamp("ns", "UTC")),
    ("timespan", 'pa.duration("us")'): _ticks(_LEAST, _GREATEST, pa.duration("us")),
    ("timespan", 'pa.duration("ns")'): _ticks(_LEAST, _GREATEST, pa.duration("ns")),
    ("timespan", "pa.int64()"): pa.array([_LEAST, None, _GREATEST, 10]),
    ("guid", "pa.uuid()"): pa.ExtensionArray.from_storage(pa.uuid(), pa.array(_BYTES, pa.binary(16))),
    ("guid", "pa.binary(16)"): pa.array(_BYTES, pa.binary(16)),
    ("guid", "pa.string()"): pa.array([None if guid is None else str(guid) for guid in _GUIDS]),
    ("char", "pa.uint16()"): pa.array([0, None, 0xFFFF, 0xD800], pa.uint16()),
    ("char", "pa.string()"): pa.array(["\x00", None, "\uffff", "a"]),
    ("string", "pa.string()"): pa.array(_TEXTS),
    ("nested", 'pa.struct([("x", pa.int64()), ("price", pa.decimal128(18, 4))])'): pa.array(
        _STRUCTS, pa.struct([("x", pa.int64()), ("price", pa.decimal128(18, 4))])
    ),
    ("nested", 'pa.struct([("id", pa.binary())])'): pa.array(
        [{"id": b"\xff"}, None, {"id": None}, {"id": b""}], pa.struct([("id", pa.binary())])
    ),
    ("nested", "pa.list_(pa.int64())"): pa.array([[_LEAST, None], None, [], [1]], pa.list_(pa.int64())),
    ("nested", "pa.list_(pa.decimal128(18, 4))"): pa.array(
        [[Decimal("-99999999999999.9999"), None], None, [], [Decimal(1)]], pa.list_(pa.decimal128(18, 4))
    ),
    ("nested", 'pa.list_(pa.struct([("x", pa.int64())]))'): pa.array(
        [[{"x": _LEAST}, None], None, [], [{"x": None}]], pa.list_(pa.struct([("x", pa.int64())]))
    ),
    ("nested", "pa.map_(pa.string(), pa.int64())"): pa.array(
        [[("a", _LEAST), ("b", None)], None, [], [("", 1)]], pa.map_(pa.string(), pa.int64())
    ),
}

ROWS = _rows()
