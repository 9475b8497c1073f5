"""Conformance vectors: reading their files, their events as tables, and when an answer is theirs."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.epl_recorded import with_types
from tests.support.reference import NEVER, Event, segments

_FIELDS = {"k": "int64", "v": "int64", "x": "float64", "id": "int64"}
NUMBER = "number"
"""The column with the order of rows."""

_NO_FIELDS = {"nothing": "int64"}
"""An event always has a payload here."""

_TYPES = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}

# .NET's last tick, floored to any grid of up to a thousand ticks: what Trill writes for "never".
TRILL_NEVER = 3_155_378_975_999_999_000


@dataclass(frozen=True)
class Vector:
    """One line of a file.

    Attributes:
        name: Its id.
        query: What is asked: the operators' name, or the area of the engine's own tests that it comes from.
        line: All that the line says.
    """

    name: str
    query: str
    line: Mapping[str, Any]

    @property
    def params(self) -> Mapping[str, Any] | None:
        """The numbers of a query that is named after its operators; None where the query is written out."""
        params: Mapping[str, Any] | None = self.line.get("params")
        return params

    @property
    def shape(self) -> str:
        """Equal for vectors that ask exactly the same of the same kind of events."""
        return self.name if self.params is None else f"{self.query} {json.dumps(self.params, sort_keys=True)}"

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of its inputs; where there are two named so, "left" and "right"."""
        return tuple(self.line["inputs"])

    @property
    def partitioned(self) -> bool:
        """Whether its events have a column ``partition``, and each partition a clock of its own."""
        return bool((self.line.get("settings") or {}).get("partitioned"))

    def payload(self, name: str | None = None) -> pa.Schema:
        """The payload of the events of an input, of the first or only one by default."""
        fields = _FIELDS if self.params is not None else self.line["inputs"][name or self.inputs[0]]["fields"]
        if not self.partitioned:
            return pa.schema([(name, _TYPES[kind]) for name, kind in (fields or _NO_FIELDS).items()])
        # Some of these vectors have texts where they say that they have numbers.
        found = pa.Table.from_pylist([_event(row).payload for row in self.rows(name) if row["kind"] != "cti"]).schema
        kinds = {each: pa.float64() if fields[each] == "float64" else found.field(each).type for each in fields}
        return pa.schema([*kinds.items(), found.field("partition")])

    def rows(self, name: str | None = None) -> list[Mapping[str, Any]]:
        """What an input says, row by row in its order, CTIs and edges among it."""
        given = self.line["inputs"][name or self.inputs[0]]
        rows: list[Mapping[str, Any]] = given if self.params is not None else given["events"]
        return rows

    def numbers(self, rows: int) -> dict[str, pa.Array]:
        """The column with the order of rows, where events of one time come in the order in which they stand."""
        settings = self.line.get("settings") or {}
        if not settings.get("assume_no_simultaneous_events"):
            return {}
        return {NUMBER: pa.array(range(rows), pa.int64())}

    def events(self, name: str | None = None) -> list[Event]:
        """The events of an input; a tick of theirs is a microsecond."""
        return [_event(row) for row in self.rows(name) if row["kind"] != "cti"]


def read(path: Path) -> list[Vector]:
    """The vectors of a ``.jsonl`` or ``.jsonl.gz`` file."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        lines: Sequence[Mapping[str, Any]] = [json.loads(line) for line in file if line.strip()]
    if lines and "epl" in lines[0]:
        lines = with_types(lines)
    return [Vector(line["id"], line["query"] if "params" in line else line["area"], line) for line in lines]


def table(vectors: Sequence[Vector], name: str | None = None) -> pa.Table:
    """The events of vectors under one another: ``vector`` (its name), ``start``, ``end`` (null: never), the payload."""
    events = [(vector.name, event) for vector in vectors for event in vector.events(name)]
    times = {
        "start": [event.start for _, event in events],
        "end": [None if event.end == NEVER else event.end for _, event in events],
    }
    columns = {"vector": pa.array([name for name, _ in events], pa.string())}
    columns |= {name: pa.array(time, pa.timestamp("us", "UTC")) for name, time in times.items()}
    for field in vectors[0].payload(name):
        columns[field.name] = pa.array([event.payload.get(field.name) for _, event in events], field.type)
    return pa.table(columns | vectors[0].numbers(len(events)))


def _event(row: Mapping[str, Any]) -> Event:
    end = row["end"]
    payload = row["payload"] if isinstance(row["payload"], dict) else {"value": row["payload"]}
    if "partition" in row:
        payload = {**payload, "partition": row["partition"]}
    return Event(row["start"], NEVER if end is None or end >= TRILL_NEVER else end, payload)


def _paired(rows: Iterable[Mapping[str, Any]]) -> list[Event]:
    """The events of rows among which there may be edges: an end edge ends a start edge of its start and payload."""
    events = [_event(row) for row in rows if row.get("kind") not in {"cti", "end"}]
    for ended in (_event(row) for row in rows if row.get("kind") == "end"):
        events.remove(Event(ended.start, NEVER, ended.payload))
        events.append(ended)
    return events


def _payload(event: Event) -> Mapping[str, Any]:
    """A payload of one value has no name in the vectors."""
    return event.payload if len(event.payload) != 1 else {"value": next(iter(event.payload.values()))}


def _frozen(value: Any, digits: int | None = None) -> Hashable:
    if isinstance(value, Mapping):
        return tuple(sorted((name, _frozen(item, digits)) for name, item in value.items()))
    if isinstance(value, list):
        return tuple(_frozen(item, digits) for item in value)
    return round(value, digits) if digits is not None and isinstance(value, float) else value


def _rows(events: Iterable[Event], digits: int | None) -> Counter[Hashable]:
    """Every row, as often as it comes. Whole numbers equal the floats that they are: 6 is Trill's way to print 6.0."""
    return Counter((event.start, event.end, _frozen(_payload(event), digits)) for event in events)


def _segments(events: Sequence[Event]) -> Counter[Hashable]:
    """The same for two answers that say the same at each instant."""
    named = [Event(event.start, event.end, _payload(event)) for event in events]
    return Counter((start, end, _frozen(payload), number) for start, end, payload, number in segments(named))


def difference(vector: Vector, answer: Sequence[Event]) -> str | None:
    """What is wrong with an answer; None when it is the vector's.

    Answers are compared as segments where the vector has them, and row by row. Not by row where the vector itself says
    that a brute force of the definition has other rows than the engine: Trill leaves out the first cut of an event that
    starts before chop's offset. (Of stitch it says so too, but there the engine's rows are the definition's.) Nor those
    of distinct, which Trill cuts wherever an event starts or ends, and we never.
    """
    found = None
    if "canonical" in vector.line:
        expected = Counter[Hashable](
            (event.start, event.end, _frozen(_payload(event)), row["count"])
            for row in vector.line["canonical"]
            for event in [_event(row)]
        )
        found = _compare("segments", _segments(answer), expected)
    literal = vector.line.get("checked", {}).get("brute_force_literal", True) and vector.query != "distinct_key"
    if found is None and (literal or vector.query == "stitch"):
        digits = 9 if vector.line.get("check", {}).get("float_tolerance") else None
        wanted = _paired(vector.line["expected"])
        # Trill hands on what Adjust left nothing of; a lifetime here is never empty.
        wanted = [event for event in wanted if event.start < event.end]
        if wanted and not any(event.payload for event in wanted):
            answer = [Event(event.start, event.end, {}) for event in answer]  # here an event always has one
        found = _compare("rows", _rows(answer, digits), _rows(wanted, digits))
    return found


def _compare(what: str, got: Counter[Hashable], expected: Counter[Hashable]) -> str | None:
    if got == expected:
        return None
    missing, extra = list((expected - got).elements()), list((got - expected).elements())
    return f"{what}: missing {missing[:3]} of {len(missing)}, not expected {extra[:3]} of {len(extra)}"
