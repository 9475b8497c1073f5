"""Avro's schemas as Arrow's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gpu_ops.core.arrow_types import fields_of
from gpu_ops.errors import ColumnError, PlanError, shown
from gpu_ops.topics.client import fastavro

_PRIMITIVE: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
}

_LOGICAL: Mapping[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time32("ms"),
    ("long", "time-micros"): pa.time64("us"),
    **{
        ("long", f"{local}timestamp-{name}"): pa.timestamp(unit, zone)
        for name, unit in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
        for local, zone in (("", "UTC"), ("local-", None))
    },
}


@dataclass(frozen=True)
class AvroSchema:
    """A schema of rows.

    Attributes:
        columns: The columns that rows have.
        plain: The schema for fastavro: times are the numbers that Arrow takes for them too.
    """

    columns: pa.Schema
    plain: Mapping[str, Any]


def avro_schema(given: object) -> AvroSchema:
    """The schema that a user gave, as a mapping or as a text of JSON.

    Raises:
        PlanError: It is no Avro schema, or none of a record with fields.
        ColumnError: A field has a type that Arrow has not: a union of two types beside null, or one within itself.
    """
    try:
        said = json.loads(given) if isinstance(given, str | bytes) else given
        parsed = fastavro().parse_schema(said)
    except (ValueError, TypeError, KeyError, RecursionError, fastavro().schema.SchemaParseException) as error:
        raise _no_schema(f"It is {shown(given)}: {error}") from error
    if not isinstance(parsed, dict) or parsed.get("type") != "record" or not parsed["fields"]:
        raise _no_schema(f"It is {shown(given)}")
    reading = _Reading({})
    kind, plain = reading.read(parsed, parsed["name"], ())
    return AvroSchema(pa.schema(fields_of(kind)), fastavro().parse_schema(plain))


def avro_columns(given: object) -> pa.Schema:
    """The columns of a schema that a user gave; as `avro_schema`."""
    return avro_schema(given).columns


def _no_schema(why: str) -> PlanError:
    return PlanError(
        f'A topic with value="avro" needs the Avro schema of a record. {why}.',
        remedy='Say schema={"type": "record", "name": "Bid", "fields": [{"name": "price", "type": "long"}]}, for '
        "instance, or the text of such a schema.",
    )


@dataclass
class _Reading:
    """Reads one schema.

    Attributes:
        named: The types that have names, as Arrow's.
    """

    named: dict[str, pa.DataType]

    def read(self, node: Any, column: str, within: tuple[str, ...]) -> tuple[pa.DataType, Any]:
        """A type as Arrow's, and as fastavro is to read it."""
        if isinstance(node, str):
            if node in within:
                raise _refused(column, f"{node}, which is within itself")
            if node not in self.named and node not in _PRIMITIVE:
                raise _refused(column, node)
            return self.named.get(node) or _PRIMITIVE[node], node
        kind, logical = node["type"], node.get("logicalType")
        if kind in ("bytes", "fixed") and logical == "decimal":
            made = pa.decimal128 if node["precision"] <= 38 else pa.decimal256
            return self._named(node, made(node["precision"], node.get("scale", 0))), dict(node)
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical], kind
        if kind == "record":
            return self._record(node, within)
        if kind in ("array", "map"):
            part = "items" if kind == "array" else "values"
            field, plain = self.field("item" if kind == "array" else "value", node[part], column, within)
            if kind == "array":
                # A block of items that have no bytes may claim any number of them.
                if not _takes_bytes(node[part]):
                    raise _refused(column, "an array of items without bytes")
                return pa.list_(field), {"type": kind, part: plain}
            return pa.map_(pa.string(), field), {"type": kind, part: plain}
        if kind == "fixed":
            return self._named(node, pa.binary(node["size"])), {k: v for k, v in node.items() if k != "logicalType"}
        if kind == "enum":
            return self._named(node, pa.string()), dict(node)
        return self.read(kind, column, within)

    def _record(self, node: Any, within: tuple[str, ...]) -> tuple[pa.DataType, Any]:
        fields, plain = [], []
        for each in node["fields"]:
            field, part = self.field(each["name"], each["type"], each["name"], (*within, node["name"]))
            fields.append(field)
            plain.append({"name": each["name"], "type": part})
        return self._named(node, pa.struct(fields)), {"type": "record", "name": node["name"], "fields": plain}

    def field(self, name: str, node: Any, column: str, within: tuple[str, ...]) -> tuple[pa.Field, Any]:
        """A field of a type, which may be null."""
        if isinstance(node, list):
            others = [each for each in node if each != "null"]
            if len(others) != 1:
                raise _refused(column, f"a union of {len(others)} types beside null")
            kind, plain = self.read(others[0], column, within)
            return pa.field(name, kind, nullable="null" in node), [plain if each != "null" else each for each in node]
        kind, plain = self.read(node, column, within)
        return pa.field(name, kind, nullable=False), plain

    def _named(self, node: Any, kind: pa.DataType) -> pa.DataType:
        if "name" in node:
            self.named[node["name"]] = kind
        return kind


def _takes_bytes(node: Any) -> bool:
    """Whether each value of a type takes a byte or more; a name of an earlier type is not looked up."""
    if isinstance(node, dict):
        if node["type"] == "record":
            return any(_takes_bytes(each["type"]) for each in node["fields"])
        return bool(node["type"] != "fixed" or node["size"] > 0)
    return isinstance(node, list) or node in _PRIMITIVE


def _refused(column: str, what: str) -> ColumnError:
    return ColumnError(
        f"Arrow has no type for {what}.", column=column, remedy="Read it as another type, or have it written as one."
    )
