"""A topic: where it is, what its messages hold, and how often a result may stand in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from gpu_ops.core.arguments import word
from gpu_ops.core.bounds import Bounds
from gpu_ops.core.own_errors import own_errors
from gpu_ops.errors import ColumnError, PlanError, SourceError, shown
from gpu_ops.ingest.counts import Counts
from gpu_ops.ingest.raw_source import Piece, RawSource, shown_shape
from gpu_ops.topics.decoded import Decoded, Fault
from gpu_ops.topics.reading import read_to_end
from gpu_ops.topics.repeats import Repeats
from gpu_ops.topics.values import FORMATS, ValueFormat

Delivery = Literal["exactly_once", "at_least_once"]
Since = Literal["oldest", "newest"]

_READ: Mapping[str, pa.DataType] = {
    "key": pa.string(),
    "timestamp": pa.timestamp("ms", "UTC"),
    "headers": pa.map_(pa.string(), pa.binary()),
    "partition": pa.int32(),
    "offset": pa.int64(),
}
"""What a message has beside its value, and its type as a column."""


@own_errors
def kafka(
    topic: str,
    *,
    servers: str | Sequence[str],
    value: Literal["json", "avro", "arrow"],
    schema: Any = None,
    key: str | None = None,
    timestamp: str | None = None,
    headers: str | None = None,
    partition: str | None = None,
    offset: str | None = None,
    on_invalid: Literal["raise", "drop"] = "raise",
    repeats: Literal["keep", "drop"] = "keep",
    since: Since = "oldest",
    delivery: Delivery = "exactly_once",
    writer: str | None = None,
    config: Mapping[str, Any] | None = None,
    trust: bool = False,
    max_bytes: int | None = None,
) -> Topic:
    """A topic of Kafka: a source of `gpu_ops.events` and `RunningQuery.follow`, or a sink of it. It asks nobody yet.

    Needs ``pip install 'gpu_ops[kafka]'``. `docs/live.md` has how results are delivered exactly once.

    Args:
        topic: Its name. It is there already: none is made.
        servers: Brokers to begin with: ``"host:9092"``, several separated by commas or in a list.
        value: What a message's value is: a JSON object or a row in Avro (without a container, and without the number of
            a schema before it), which is a row; or an Arrow IPC stream or file, which is any number of rows.
        schema: The columns of values: a pyarrow schema, for Avro the Avro schema of a record, as a mapping or as JSON.
            A source needs it. Results are written with their own columns if there is none (Avro needs one).
        key: The column for the message's key, a text in UTF-8. Of results: the column whose values are the keys.
        timestamp: The column for the message's timestamp, in milliseconds. Of results: the column whose times are the
            timestamps; without it they get the time at which they are written.
        headers: The column for a message's headers: a map of text to bytes. Only a source has it.
        partition: The column for the number of a message's partition. Only a source has it.
        offset: The column for a message's place in its partition. Only a source has it.
        on_invalid: What happens to a message that cannot be decoded: an error that names topic, partition, offset,
            column and rule; or it is dropped, and counted in `RunningQuery.report`.
        repeats: Whether results that a writer with ``delivery="at_least_once"`` has written again are dropped, by their
            headers, and counted as ``repeated``. A topic must not be given more partitions while it is written so.
        since: Where a query that begins afresh starts to read: at the oldest message that is there, or behind the
            newest. One that is restored goes on from its checkpoint.
        delivery: Whether each result stands once in the topic, for those that read it with
            ``isolation.level=read_committed``; or once or more, with its epoch and row in its headers.
        writer: The name of the one follower that writes (Kafka: ``transactional.id``), by default
            ``"gpu_ops-<topic>"``: a second one of this name fences the first.
        config: Settings for Kafka's client, such as ``{"security.protocol": "SASL_SSL", …}`` (librdkafka's names).
        trust: Whether Arrow's values are taken as they are, as in `gpu_ops.events`.
        max_bytes: How many bytes a value may unpack to, as there.

    Raises:
        PlanError: An argument is wrong, or what is needed is missing.
        ColumnError: A column of the schema cannot be read.
        SourceError: The extra is not installed.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bid = pa.schema([("at", pa.timestamp("us", "UTC")), ("item", pa.string()), ("price", pa.int64())])
        >>> bids = g.kafka("bids", servers="localhost:9092", value="json", schema=bid)
        >>> g.events(bids, start="at").by("item").tumbling("1min").agg(best=g.max("price"))
        <Stream [item: string, best: int64]>
    """
    given: dict[str, object] = {"topic": topic, "writer": topic if writer is None else writer}
    for name, said in given.items():
        if not isinstance(said, str) or not said:
            raise PlanError(f"{name} is {shown(said)}, and no name.", remedy=f'Write {name}="bids", for instance.')
    several: object = [servers] if isinstance(servers, str) else servers
    if (
        not isinstance(several, list | tuple)
        or not several
        or not all(isinstance(each, str) and each for each in several)
    ):
        raise PlanError(f"servers is {shown(servers)}.", remedy='Write servers="localhost:9092".')
    word(value, list(FORMATS), name="value")
    word(on_invalid, ["raise", "drop"], name="on_invalid")
    word(repeats, ["keep", "drop"], name="repeats")
    word(since, ["oldest", "newest"], name="since")
    word(delivery, ["exactly_once", "at_least_once"], name="delivery")
    beside = {"key": key, "timestamp": timestamp, "headers": headers, "partition": partition, "offset": offset}
    named = {what: name for what, name in beside.items() if name is not None}
    for what, name in named.items():
        column: object = name
        if not isinstance(column, str) or list(named.values()).count(name) > 1:
            raise PlanError(f"{what}={shown(name)} is no name of a column of its own.", remedy=f'Say {what}="{what}".')
    made = Topic(
        topic,
        ",".join(several),
        value,
        schema,
        named,
        on_invalid,
        repeats,
        since,
        delivery,
        writer or f"gpu_ops-{topic}",
        dict(config or {}),
        Bounds(trust, max_bytes),
    )
    if schema is not None:
        _ = made.columns  # refused here, and not when it is read
    return made


class MessageRows(NamedTuple):
    """The rows of some messages.

    Attributes:
        table: The rows.
        places: Where each row's message is.
        skipped: Counts of the messages that were dropped.
    """

    table: pa.Table
    places: MessagePlaces
    skipped: Counts


@dataclass(frozen=True)
class MessagePlaces:
    """Where rows come from.

    Attributes:
        topic: The topic.
        messages: The messages.
        ends: How many rows there are up to each of them.
    """

    topic: str
    messages: Sequence[Any]
    ends: np.ndarray

    def of(self, row: int) -> str:
        """Where a row's message is."""
        return place(self.topic, self.messages[int(np.searchsorted(self.ends, row, side="right"))])


def place(topic: str, message: Any) -> str:
    """Where a message is, as it is often written: topic, partition, offset."""
    return f"{topic}[{message.partition()}]@{message.offset()}"


@dataclass(frozen=True, repr=False)
class Topic:
    """A topic; `gpu_ops.kafka` makes one.

    Attributes:
        name: Its name.
        servers: The brokers, separated by commas.
        value: The format of its values.
        schema: What was given as their schema.
        beside: The columns beside the value, by what they are.
        on_invalid: What happens to a message that cannot be decoded.
        repeats: Whether repeated results are dropped.
        since: Where a fresh query begins to read.
        delivery: How often a result may stand there.
        writer: The name of its writer.
        config: The user's settings of the client.
        bounds: How far values are trusted.
    """

    name: str
    servers: str
    value: str
    schema: Any
    beside: Mapping[str, str]
    on_invalid: str
    repeats: str
    since: Since
    delivery: Delivery
    writer: str
    config: Mapping[str, Any] = field(hash=False)
    bounds: Bounds

    def __repr__(self) -> str:
        return f"<Topic {self.name} at {self.servers}: {self.value}>"

    @property
    def format(self) -> ValueFormat:
        """The format of its values."""
        return FORMATS[self.value]

    @cached_property
    def values(self) -> pa.Schema:
        """The columns of its values.

        Raises:
            PlanError: No schema was given.
        """
        return self.format.columns(self.schema)

    @cached_property
    def columns(self) -> pa.Schema:
        """The columns of its rows: those of values, then those beside them. A name that values have is theirs."""
        found = self.values
        for what, name in self.beside.items():
            if name not in found.names:
                found = found.append(pa.field(name, _READ[what]))
        return found

    # As a source

    def as_source(self) -> RawSource:
        """What it holds now, as a source.

        Raises:
            PlanError: No schema was given.
        """
        shape = shown_shape(f"Kafka topic {self.name}", None, len(self.columns))
        return RawSource(self.columns, self._pieces, "kafka", shape)

    def _pieces(self, columns: Sequence[str], _: int) -> Iterator[Piece]:
        repeats = Repeats({})
        for messages in read_to_end(self):
            fresh = repeats.dropped(messages)[0] if self.repeats == "drop" else messages
            yield Piece(self.rows(fresh).table.select(list(columns)))

    def rows(self, messages: Sequence[Any]) -> MessageRows:
        """The rows of messages.

        Raises:
            SourceError: A message cannot be decoded, and such are not dropped.
        """
        values = [message.value() for message in messages]
        there = [value for value in values if value is not None]
        decoded = self.format.decode(there, self.schema, self.bounds)
        faults = list(decoded.faults)
        if len(there) < len(values):
            decoded, faults = _with_nulls(values, decoded)
        table = decoded.table
        kept = np.repeat(np.arange(len(messages)), decoded.rows)
        for what, name in self.beside.items():
            if name not in table.column_names:
                column, wrong = _BESIDE[what](messages)
                faults += wrong
                table = table.append_column(pa.field(name, _READ[what]), column.take(pa.array(kept)))
        if not faults:
            return MessageRows(table, MessagePlaces(self.name, messages, np.cumsum(decoded.rows)), Counts())
        # A message counts under the first rule that it breaks, its value's before its key's.
        faults = sorted({fault.value: fault for fault in reversed(faults)}.values(), key=lambda each: each.value)
        if self.on_invalid == "raise":
            first = faults[0]
            others = "" if len(faults) == 1 else f" ({len(faults):,} of {len(messages):,} messages read together)"
            raise SourceError(
                f"The message {place(self.name, messages[first.value])} breaks the rule {first.rule}: {first.problem}"
                f"{others}.",
                column=first.column,
                remedy='Mend what writes it; or drop and count such messages: g.kafka(…, on_invalid="drop").',
            )
        bad = np.zeros(len(messages), bool)
        bad[[fault.value for fault in faults]] = True
        table = table.filter(pa.array(~bad[kept]))
        rows = np.where(bad, 0, decoded.rows)
        return MessageRows(table, MessagePlaces(self.name, messages, np.cumsum(rows)), self._counted(faults, messages))

    def _counted(self, faults: Sequence[Fault], messages: Sequence[Any]) -> Counts:
        counts = Counts(rows=len(faults), invalid=Counter(fault.rule for fault in faults))
        for fault in faults:
            column = "" if fault.column is None else f", column {fault.column!r}"
            said = f"{place(self.name, messages[fault.value])}{column}: {fault.problem}"
            counts.first.setdefault(fault.rule, said)
        return counts

    # As a sink

    def check_sink(self, columns: pa.Schema) -> None:
        """Refuse results that it cannot hold.

        Raises:
            ColumnError: A column is missing, is one too many, or has a type that the format does not hold.
            PlanError: The topic cannot be written.
        """
        only_read = [what for what in ("headers", "partition", "offset") if what in self.beside]
        if only_read:
            raise PlanError(
                f"{only_read[0]}= of the topic {self.name} is read, and not written.", remedy="Leave it out of a sink."
            )
        if self.schema is None and not self.format.writes_any:
            self.format.columns(None)
        if not self.format.one_row and self.beside:
            raise PlanError(
                f'A message with value="{self.value}" has many rows, and one {next(iter(self.beside))}.',
                remedy='Leave it out, or say value="json" or "avro".',
            )
        for what, name in self.beside.items():
            if name not in columns.names:
                raise ColumnError(
                    f"The results have no such column, which is the {what} of messages.",
                    column=name,
                    remedy=f"They have: {', '.join(columns.names)}.",
                )
        self.encode(columns.empty_table())

    def encode(self, table: pa.Table) -> tuple[Sequence[bytes], Sequence[int]]:
        """MessageRows as values, and the number of rows in each.

        Raises:
            ColumnError: As `check_sink`; or a value does not fit.
        """
        if self.schema is None:
            return self.format.encode(table, None)
        wanted = self.values
        for name in table.column_names:
            if name not in wanted.names:
                raise ColumnError(
                    f"The schema of the topic {self.name} has no such column, and the results have.",
                    column=name,
                    remedy=f"It has: {', '.join(wanted.names)}. Add it there, or leave it out of the query.",
                )
        columns = []
        for each in wanted:
            if each.name not in table.column_names:
                raise ColumnError(
                    f"The schema of the topic {self.name} has this column, and the results have none.",
                    column=each.name,
                    remedy=f"They have: {', '.join(table.column_names)}.",
                )
            found = table[each.name]
            try:
                columns.append(found if found.type == each.type else found.cast(each.type))
            except pa.ArrowException as error:
                raise ColumnError(
                    f"The results have {found.type}, and the schema of the topic {self.name} {each.type}: {error}.",
                    column=each.name,
                    remedy="Cast it in the query, or give the topic another schema.",
                ) from error
            if not each.nullable and found.null_count:
                raise ColumnError(
                    f"The schema of the topic {self.name} has no null there, and a result has one.",
                    column=each.name,
                    remedy="Fill it in the query, or let the schema have nulls.",
                )
        return self.format.encode(pa.Table.from_arrays(columns, schema=wanted), self.schema)


def _with_nulls(values: Sequence[bytes | None], decoded: Decoded) -> tuple[Decoded, list[Fault]]:
    """What was decoded of the values that are there, numbered among all of them; each other has a fault."""
    there = np.flatnonzero([value is not None for value in values])
    rows = np.zeros(len(values), np.int64)
    rows[there] = decoded.rows
    gone = [
        Fault(number, "no_value", "it has no value (Kafka: a tombstone)")
        for number, value in enumerate(values)
        if value is None
    ]
    moved = [Fault(int(there[each.value]), each.rule, each.problem, each.column) for each in decoded.faults]
    return Decoded(decoded.table, rows), [*moved, *gone]


def _keys(messages: Sequence[Any]) -> tuple[pa.Array, list[Fault]]:
    keys = [message.key() for message in messages]
    try:
        return pa.array([None if key is None else key.decode() for key in keys], pa.string()), []
    except UnicodeDecodeError:
        texts: list[str | None] = []
        faults = []
        for number, key in enumerate(keys):
            try:
                texts.append(None if key is None else key.decode())
            except UnicodeDecodeError as error:
                texts.append(None)
                faults.append(Fault(number, "undecodable_key", f"its key is no text: {error}"))
        return pa.array(texts, pa.string()), faults


def _timestamps(messages: Sequence[Any]) -> tuple[pa.Array, list[Fault]]:
    said = [message.timestamp() for message in messages]
    return pa.array([time if kind else None for kind, time in said], pa.int64()).cast(_READ["timestamp"]), []


def _headers(messages: Sequence[Any]) -> tuple[pa.Array, list[Fault]]:
    return pa.array([message.headers() or [] for message in messages], _READ["headers"]), []


def _partitions(messages: Sequence[Any]) -> tuple[pa.Array, list[Fault]]:
    return pa.array([message.partition() for message in messages], _READ["partition"]), []


def _offsets(messages: Sequence[Any]) -> tuple[pa.Array, list[Fault]]:
    return pa.array([message.offset() for message in messages], _READ["offset"]), []


_BESIDE = {
    "key": _keys,
    "timestamp": _timestamps,
    "headers": _headers,
    "partition": _partitions,
    "offset": _offsets,
}
