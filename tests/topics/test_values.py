"""Values of messages: what is encoded is decoded again, and what is no value is named."""

from __future__ import annotations

import decimal
import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.core.bounds import Bounds
from gpu_ops.topics.avro_schemas import avro_schema
from gpu_ops.topics.values import FORMATS
from tests.support.examples import examples

UTC = pa.timestamp("us", "UTC")

SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64(), nullable=False),
        ("small", pa.int32()),
        ("f", pa.float64()),
        ("single", pa.float32()),
        ("is", pa.bool_()),
        ("who", pa.string()),
        ("at", UTC),
        ("local", pa.timestamp("ms")),
        ("day", pa.date32()),
        ("clock", pa.time64("us")),
        ("price", pa.decimal128(12, 2)),
        ("tags", pa.list_(pa.string())),
        ("inner", pa.struct([("x", pa.int64()), ("when", UTC)])),
    ]
)

AVRO = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "small", "type": ["null", "int"]},
        {"name": "f", "type": ["null", "double"]},
        {"name": "single", "type": ["null", "float"]},
        {"name": "is", "type": ["null", "boolean"]},
        {"name": "who", "type": ["null", "string"]},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": ["null", {"type": "long", "logicalType": "local-timestamp-millis"}]},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "clock", "type": ["null", {"type": "long", "logicalType": "time-micros"}]},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}]},
        {"name": "tags", "type": ["null", {"type": "array", "items": ["null", "string"]}]},
        {
            "name": "inner",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "Inner",
                    "fields": [
                        {"name": "x", "type": ["null", "long"]},
                        {"name": "when", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
                    ],
                },
            ],
        },
    ],
}

GIVEN: dict[str, Any] = {"json": SCHEMA, "arrow": SCHEMA, "avro": AVRO}

_DAY = 86_400_000_000
_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=4)
_MICROSECONDS = st.integers(-20_000 * _DAY, 20_000 * _DAY)
_COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "n": st.integers(-(2**63), 2**63 - 1),
    "small": st.integers(-(2**31), 2**31 - 1),
    "f": st.floats(allow_nan=False, allow_infinity=False),
    "single": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "is": st.booleans(),
    "who": _TEXTS,
    "at": _MICROSECONDS,
    "local": st.integers(-20_000 * 86_400_000, 20_000 * 86_400_000),
    "day": st.integers(-20_000, 20_000),
    "clock": st.integers(0, _DAY - 1),
    "price": st.decimals(-(10**9), 10**9, places=2).map(lambda each: each.quantize(decimal.Decimal("0.01"))),
    "tags": st.lists(st.none() | _TEXTS, max_size=2),
    "inner": st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5), "when": st.none() | _MICROSECONDS}),
}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    size = draw(st.integers(0, 4))
    columns = []
    for field in SCHEMA:
        values = _COLUMNS[field.name]
        each = st.none() | values if field.nullable else values
        columns.append(pa.array(draw(st.lists(each, min_size=size, max_size=size)), field.type))
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def encoded(name: str, table: pa.Table) -> list[bytes]:
    return list(FORMATS[name].encode(table, GIVEN[name])[0])


def decoded(name: str, values: list[bytes]) -> Any:
    return FORMATS[name].decode(values, GIVEN[name], Bounds())


@pytest.mark.parametrize("name", FORMATS)
@examples(dear=True)
@given(table=tables(), broken=st.lists(st.sampled_from([b"", b"\xff", b"null", b"{}"]), max_size=2))
def test_what_is_encoded_is_decoded_again(name: str, table: pa.Table, broken: list[bytes]) -> None:
    """Whatever stands beside it."""
    values = encoded(name, table)
    found = decoded(name, [*broken, *values, *broken])
    assert found.table.schema == FORMATS[name].columns(GIVEN[name]) == SCHEMA
    assert [fault.value for fault in found.faults][: len(broken)] == list(range(len(broken)))
    assert len(found.faults) == 2 * len(broken)
    assert found.table.to_pylist() == table.to_pylist()
    assert found.rows.sum() == table.num_rows


@given(
    st.lists(
        st.binary(max_size=12) | st.sampled_from([b'{"n":1}', b'{"n":1}} {"number":1,"value":{"n":2}']), max_size=6
    )
)
def test_each_value_in_json_is_a_row_or_a_fault(values: list[bytes]) -> None:
    """So that no row gets another message's key, however values are cut."""
    schema = pa.schema([("n", pa.int64())])
    found = FORMATS["json"].decode(values, schema, Bounds())
    expected = []
    for value in values:
        try:
            said = json.loads(value)
            expected.append(isinstance(said, dict) and isinstance(said.get("n"), int | None))
        except ValueError:
            expected.append(False)
    assert found.rows.tolist() == [int(each) for each in expected]


@pytest.mark.parametrize(
    ("value", "rule", "column", "said"),
    [
        (b"[1]", "undecodable", None, "it is no object, but a list"),
        (b'{"n": 1} {"n": 2}', "undecodable", None, "Extra data"),
        (b'{"n": 1, "m": "a\nb"}', "undecodable", None, "control character"),
        (b'{"n": 1.5, "m": "x"}', "other_schema", "n", "1.5 is no int64"),
        (b'{"n": "1"}', "other_schema", "n", '"1" is no int64'),
        (b'{"n": 1, "m": 2}', "other_schema", "m", "2 is no string"),
        (b'{"m": "x"}', "other_schema", "n", "null is no int64 without nulls"),
        (b'{"n": 9223372036854775808}', "other_schema", "n", "9223372036854775808 is no int64"),
    ],
)
def test_a_value_in_json_that_does_not_fit(value: bytes, rule: str, column: str | None, said: str) -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("m", pa.string())])
    found = FORMATS["json"].decode([b'{"n": 1, "m": null, "more": {}}', value], schema, Bounds())
    assert found.table.to_pylist() == [{"n": 1, "m": None}]
    (fault,) = found.faults
    assert (fault.value, fault.rule, fault.column) == (1, rule, column)
    assert said in fault.problem


def test_a_value_in_json_may_have_several_lines() -> None:
    found = FORMATS["json"].decode([b'{\n  "n":\r\n 1\n}\n'], pa.schema([("n", pa.int64())]), Bounds())
    assert found.table["n"].to_pylist() == [1]


def test_json_has_no_nan() -> None:
    with pytest.raises(g.ColumnError, match="JSON has no NaN"):
        FORMATS["json"].encode(pa.table({"inner": [{"x": [float("nan")]}]}), None)
    with pytest.raises(g.ColumnError, match="holds no binary"):
        FORMATS["json"].encode(pa.table({"b": [b"x"]}), None)


def test_a_schema_of_avro_becomes_arrows() -> None:
    node = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
            {"name": "again", "type": ["Kind", "null"]},
            {"name": "by", "type": {"type": "map", "values": "long"}},
            {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        ],
    }
    schema = avro_schema(json.dumps(node))
    item = pa.field("value", pa.int64(), nullable=False)
    assert schema.columns.types == [pa.string(), pa.string(), pa.map_(pa.string(), item), pa.binary(4)]
    table = pa.table({"kind": ["A"], "again": [None], "by": [[("x", 1)]], "hash": [b"1234"]}, schema.columns)
    values, _ = FORMATS["avro"].encode(table, node)
    found = FORMATS["avro"].decode([*values, values[0][:-1], b"\x04" + values[0][1:]], node, Bounds())
    assert found.table.to_pylist() == table.to_pylist()
    assert [fault.value for fault in found.faults] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (["long", "string"], "a union of 2 types beside null"),
        ({"type": "array", "items": "null"}, "no type for null"),
        ({"type": "array", "items": {"type": "fixed", "name": "N", "size": 0}}, "items without bytes"),
        (["null", "R"], "R, which is within itself"),
    ],
)
def test_what_arrow_has_not_is_refused(kind: Any, said: str) -> None:
    with pytest.raises(g.ColumnError, match=said):
        avro_schema({"type": "record", "name": "R", "fields": [{"name": "x", "type": kind}]})


@pytest.mark.parametrize(
    "wrong", [None, 5, "{", '"long"', {"type": "record", "name": "R", "fields": []}, {"type": "x"}]
)
def test_what_is_no_schema_of_avro_is_refused(wrong: object) -> None:
    with pytest.raises(g.PlanError, match="needs the Avro schema of a record"):
        avro_schema(wrong)


def test_many_rows_in_arrow_are_several_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_ops.topics.arrow_values._BYTES", 2000)
    table = pa.table({"n": range(1000)})
    values, counts = FORMATS["arrow"].encode(table, None)
    assert max(map(len, values)) <= 2000
    assert sum(counts) == 1000
    assert FORMATS["arrow"].decode(values, table.schema, Bounds()).table.equals(table)


def test_a_value_in_arrow_of_other_columns_is_named() -> None:
    schema = pa.schema([("n", pa.int64())])
    values = [FORMATS["arrow"].encode(pa.table({"n": each}), None)[0][0] for each in ([1], ["a"], [[1]])]
    found = FORMATS["arrow"].decode([*values, values[0][:100], b"x"], schema, Bounds())
    assert found.table["n"].to_pylist() == [1]
    assert [(fault.rule, fault.column) for fault in found.faults] == [
        ("other_schema", "n"),
        ("other_schema", "n"),
        ("undecodable", None),
        ("undecodable", None),
    ]
