"""Topics as the command line writes them: ``kafka://BROKERS/TOPIC?value=json&columns=at:timestamp,item:string``."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pyarrow as pa

from gpu_ops.core.bounds import Bounds
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.errors import PlanError, SourceError
from gpu_ops.ingest.files import open_files
from gpu_ops.topics.topic import Topic, kafka

SCHEME = "kafka:"
"""What an address of a topic begins with."""

_SAID = ("value", "key", "timestamp", "headers", "partition", "offset", "on_invalid", "repeats", "since", "delivery")
_OPTIONS = (*_SAID, "writer", "columns", "schema", "config")

_EXAMPLE = "'kafka://localhost:9092/bids?value=json&columns=at:timestamp,item:string,price:int64'"
_QUOTED = f"Write it in quotes, since a shell ends it at &: {_EXAMPLE}."


def topic_at(address: str) -> Topic:
    """The topic of an address, as `gpu_ops.kafka` makes it; it asks nobody yet.

    Args:
        address: ``kafka://``, the brokers, the topic, and behind ``?`` the arguments of `gpu_ops.kafka`: ``value``,
            and any of ``key``, ``timestamp``, ``headers``, ``partition``, ``offset``, ``on_invalid``, ``repeats``,
            ``since``, ``delivery`` and ``writer``. The columns of values are in ``columns=NAME:TYPE,…``, by Arrow's
            words for types (``timestamp`` is one of microseconds, in UTC), or are those of a file: ``schema=PATH``, a
            Parquet or Arrow file, for Avro one with the schema of a record. ``config=PATH`` names a file of settings
            for Kafka's client, one ``name=value`` in a line.

    Raises:
        PlanError: The address is not of this form, or an argument is wrong.
        ColumnError: A column cannot be read.
        SourceError: A file cannot be read.

    Examples:
        >>> topic = topic_at("kafka://one:9092,two:9092/bids?value=json&columns=at:timestamp,item:string&key=item")
        >>> topic, topic.columns.names
        (<Topic bids at one:9092,two:9092: json>, ['at', 'item'])
    """
    parts = urlsplit(address)
    name = parts.path.removeprefix("/")
    if parts.scheme != SCHEME.removesuffix(":") or not parts.netloc or not name or "/" in name or parts.fragment:
        raise PlanError(f"{address!r} is no address of a topic: kafka://BROKERS/TOPIC?value=….", remedy=_QUOTED)
    try:
        said = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise PlanError(f"{address!r} has more behind ? than NAME=VALUE, with & between.", remedy=_QUOTED) from error
    options = dict(said)
    for option, _ in said:
        if option not in _OPTIONS:
            raise PlanError(
                f"The address of the topic {name} has an unknown option {option!r}.",
                remedy=f"It has: {', '.join(_OPTIONS)}.",
            )
    if len(options) < len(said):
        raise PlanError(f"The address of the topic {name} says something twice.", remedy="Say it once.")
    if "value" not in options:
        raise PlanError(f"The address of the topic {name} does not say value=json, avro or arrow.", remedy=_QUOTED)
    if "columns" in options and "schema" in options:
        raise PlanError(f"The address of the topic {name} says columns= and schema=.", remedy="Leave one of them out.")
    given: dict[str, Any] = {
        option: each for option, each in options.items() if option not in ("columns", "schema", "config")
    }
    if "columns" in options:
        given["schema"] = _columns(options["columns"])
    if "schema" in options:
        given["schema"] = _schema(options["schema"], options["value"])
    if "config" in options:
        given["config"] = _settings(options["config"])
    return kafka(name, servers=parts.netloc, **given)


def _columns(said: str) -> pa.Schema:
    """The columns of ``NAME:TYPE,…``."""
    fields = []
    for each in said.split(","):
        name, _, kind = each.partition(":")
        if not name or not kind:
            raise PlanError(f"columns= has {each!r}, which is not NAME:TYPE.", remedy=_QUOTED)
        fields.append(pa.field(name, _type(name, kind)))
    return pa.schema(fields)


def _type(name: str, kind: str) -> pa.DataType:
    if kind == "timestamp":
        return TIME_TYPE
    try:
        found = pa.type_for_alias(kind)
    except ValueError as error:
        raise PlanError(
            f"The column {name!r} has the type {kind!r}, which has no such name in Arrow.",
            remedy="Write string, int64, double, bool, timestamp (UTC), …; or name a file: schema=bids.parquet.",
        ) from error
    return pa.timestamp(found.unit, "UTC") if pa.types.is_timestamp(found) else found


def _schema(path: str, value: str) -> Any:
    if value == "avro":
        return _text(path)
    return open_files(path, (), None, None, Bounds()).schema


def _settings(path: str) -> dict[str, str]:
    """The settings in a file, as Kafka's own tools have them: ``name=value`` in lines, and comments behind ``#``."""
    made = {}
    for number, line in enumerate(_text(path).splitlines(), 1):
        name, separator, value = line.partition("=")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if not separator:
            raise PlanError(f"{path}, line {number}: {line!r} is not name=value.", remedy="Write one setting a line.")
        made[name.strip()] = value.strip()
    return made


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path} cannot be read: {error}", remedy="Give the path of a text file.") from error
