"""What a topic takes and gives, and the order in which partitions are read: without a broker."""

from __future__ import annotations

import importlib
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops.engines.live.topic_outlets import TopicOutlet
from gpu_ops.microbatches.contents import content_crc
from gpu_ops.topics.reading import PartitionQueue, due
from gpu_ops.topics.writing import Marker
from tests.support.messages import Message

SCHEMA = pa.schema([("n", pa.int64())])
BID = {"type": "record", "name": "Bid", "fields": [{"name": "n", "type": "long"}]}


def topic(**more: Any) -> g.Topic:
    return g.kafka("bids", **({"servers": "nowhere:9", "value": "json", "schema": SCHEMA} | more))


# Rows


def test_what_stands_beside_a_value_becomes_columns() -> None:
    made = topic(key="who", timestamp="when", headers="more", partition="p", offset="o")
    messages = [
        Message(b'{"n": 1}', at=7, where=2, when=1500, named="ä".encode(), more=[("a", b"1"), ("a", b"2")]),
        Message(b'{"n": 2}', at=8, where=2, when=1600),
    ]
    table = made.rows(messages).table
    assert table.schema == made.columns == made.as_source().schema
    assert table.drop_columns(["when"]).to_pylist() == [
        {"n": 1, "who": "ä", "more": [("a", b"1"), ("a", b"2")], "p": 2, "o": 7},
        {"n": 2, "who": None, "more": [], "p": 2, "o": 8},
    ]
    assert table["when"].cast(pa.int64()).to_pylist() == [1500, 1600]


def test_each_row_of_a_value_has_what_stands_beside_it() -> None:
    """One message in Arrow holds rows 0 and 1, the next is broken, the last holds row 2."""
    made = topic(value="arrow", offset="o", on_invalid="drop")
    values = [made.encode(pa.table({"n": each}, SCHEMA))[0][0] for each in ([10, 11], [12])]
    found = made.rows([Message(values[0], at=3), Message(b"broken", at=4), Message(values[1], at=5)])
    assert found.table.to_pylist() == [{"n": 10, "o": 3}, {"n": 11, "o": 3}, {"n": 12, "o": 5}]
    assert [found.places.of(row) for row in range(3)] == ["bids[0]@3", "bids[0]@3", "bids[0]@5"]


BROKEN = [
    Message(b'{"n": 1}', at=0, named=b"a"),
    Message(b'{"n": "x"}', at=1, where=3, named=b"\xff"),
    Message(None, at=2, named=b"c"),
    Message(b'{"n": 4}', at=3, named=b"\xff"),
    Message(b'{"n": 5}', at=4),
]


def test_messages_that_are_dropped_are_counted() -> None:
    found = topic(key="who", on_invalid="drop").rows(BROKEN)
    assert found.table.to_pylist() == [{"n": 1, "who": "a"}, {"n": 5, "who": None}]
    assert dict(found.skipped.invalid) == {"other_schema": 1, "no_value": 1, "undecodable_key": 1}
    assert found.skipped.first["other_schema"] == "bids[3]@1, column 'n': \"x\" is no int64"
    assert [found.places.of(row) for row in range(2)] == ["bids[0]@0", "bids[0]@4"]


def test_a_message_that_is_not_dropped_is_named() -> None:
    with pytest.raises(g.SourceError) as caught:
        topic(key="who").rows(BROKEN)
    assert 'bids[3]@1 breaks the rule other_schema: "x" is no int64 (3 of 5 messages read together)' in str(
        caught.value
    )
    assert caught.value.column == "n"


# Arguments


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"value": "xml"}, "value"),
        ({"schema": {"n": "int64"}}, "needs a pyarrow schema"),
        ({"schema": pa.schema([("b", pa.binary())])}, "A value in JSON holds no binary"),
        ({"servers": []}, "servers is"),
        ({"servers": 9092}, "servers is"),
        ({"key": "k", "offset": "k"}, "no name of a column of its own"),
        ({"key": 5}, "no name of a column of its own"),
        ({"on_invalid": "divert"}, "on_invalid"),
        ({"delivery": "never"}, "delivery"),
        ({"writer": 5}, "writer is 5, and no name"),
    ],
)
def test_a_wrong_argument_is_refused(more: dict[str, Any], said: str) -> None:
    with pytest.raises(g.PlanError, match=said):
        topic(**more)


def test_a_topic_without_a_schema_is_no_source() -> None:
    with pytest.raises(g.PlanError, match="needs a pyarrow schema of its columns, and has None"):
        g.events(topic(schema=None), start="n")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (topic(), "The results have int64, and the schema .* string|has no such column"),
        (topic(schema=None, key="item"), "which is the key of messages"),
        (topic(schema=None, offset="o"), "is read, and not written"),
        (topic(schema=None, value="avro"), "needs the Avro schema"),
        (topic(schema=None, value="arrow", key="n"), "has many rows, and one key"),
    ],
)
def test_a_sink_that_does_not_fit_is_refused(made: g.Topic, said: str) -> None:
    with pytest.raises(g.PlanError, match=said):
        made.check_sink(pa.schema([("n", pa.int64()), ("total", pa.int64())]))


def test_results_are_cast_to_the_schema_of_a_sink() -> None:
    wide = topic(schema=pa.schema([pa.field("n", pa.float64(), nullable=False)]))
    assert wide.encode(pa.table({"n": [1, 2]}))[0] == [b'{"n":1.0}', b'{"n":2.0}']
    with pytest.raises(g.ColumnError, match="has no null there"):
        wide.encode(pa.table({"n": [1, None]}))
    with pytest.raises(g.ColumnError, match="this column, and the results have none"):
        wide.encode(pa.table({}))


@pytest.mark.parametrize("package", ["confluent_kafka", "fastavro"])
def test_what_an_extra_brings_is_named(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    there = importlib.import_module

    def gone(name: str) -> Any:
        if name == package:
            raise ModuleNotFoundError(name)
        return there(name)

    monkeypatch.setattr(importlib, "import_module", gone)
    more: dict[str, Any] = {} if package == "confluent_kafka" else {"value": "avro", "schema": BID}
    with pytest.raises(g.SourceError, match=r"pip install 'gpu_ops\[kafka\]'"):
        next(topic(**more).as_source().read(["n"], 1))


# Partitions in the order of time

PARTITIONS = st.lists(
    st.tuples(st.lists(st.integers(0, 9), max_size=5), st.booleans()),
    min_size=1,
    max_size=3,
)


@given(PARTITIONS)
def test_the_earliest_of_all_partitions_comes_first(partitions: list[tuple[list[int], bool]]) -> None:
    """One by one: the head with the earliest time, unless a partition that goes on has none here.

    A message is as late as the latest before it in its partition, whose order stays:

        partition 0, goes on:   1  5  9        given: 1  2  2(0)  5  6
        partition 1, goes on:   2  0  6        9 waits: an 8 may come yet behind the 6
    """
    queues = [
        PartitionQueue(
            (None, number), topic(), 0, [Message(b"", at, number, time) for at, time in enumerate(times)], ended
        )
        for number, (times, ended) in enumerate(partitions)
    ]
    left = [
        [(max(times[: at + 1]), number, at) for at in range(len(times))] for number, (times, _) in enumerate(partitions)
    ]
    # The last that is here of a partition that goes on bounds the others.
    bound = min(
        (each[-1][0] if each else -1 for each, (_, ended) in zip(left, partitions, strict=True) if not ended),
        default=99,
    )
    expected = sorted(each for one in left for each in one if each[0] <= bound)
    found = due(queues).get(None, [])
    assert [(message.partition(), message.offset()) for message in found] == [
        (number, at) for _, number, at in expected
    ]
    for number, queue in enumerate(queues):
        given_out = sum(1 for _, of, _ in expected if of == number)
        assert queue.offset == given_out
        assert [message.offset() for message in queue.messages] == list(range(given_out, len(partitions[number][0])))


def test_what_a_topic_holds_of_a_store_is_compared_with_what_the_query_gives_again() -> None:
    """Two batches are there; the second is another one, or the last."""
    rows, writer = pa.table({"n": [1, 2]}), mock.Mock()
    again = f"{content_crc(rows):08x}"
    outlet = TopicOutlet("into", "identity", writer, "run", 0, Marker("run", 2, again))
    for _ in range(2):
        outlet.put(rows, None)
        outlet.put(rows.slice(2), None)
    outlet.finish()
    writer.deliver.assert_not_called()
    outlet.put(rows, None)
    writer.deliver.assert_called_once_with(Marker("run", 3, again), rows, {})
    other = TopicOutlet("into", "identity", writer, "run", 1, Marker("run", 2, "00000000"))
    with pytest.raises(g.SourceError, match="holds 2 batches of this run, and the query gives 1"):
        other.finish()
    with pytest.raises(g.SourceError, match="is not what the query gives again"):
        other.put(rows, None)
