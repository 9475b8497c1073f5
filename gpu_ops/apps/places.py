"""Where commands read and write: files, stores and topics, as their options name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import narwhals as nw
import pyarrow as pa

from gpu_ops.api.events import events
from gpu_ops.api.stream import Stream
from gpu_ops.apps.queries import parse_inputs
from gpu_ops.core.time import Duration
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.microbatches.stores import Store, store
from gpu_ops.topics.addresses import SCHEME, topic_at
from gpu_ops.topics.topic import Topic


def sources_at(texts: Iterable[str]) -> dict[str, str | Topic]:
    """What is read as far as it goes now, by name: paths, and topics.

    Raises:
        PlanError: A text is not NAME=PLACE, or a topic's address is wrong.

    Examples:
        >>> sources_at(["bids=bids.parquet", "asks=kafka://one:9092/asks?value=json&columns=at:timestamp"])
        {'bids': 'bids.parquet', 'asks': <Topic asks at one:9092: json>}
    """
    return {name: topic_at(each) if _is_topic(each) else each for name, each in parse_inputs(texts).items()}


def followed_at(texts: Iterable[str]) -> dict[str, Store | Topic]:
    """What is followed, by name: stores, or topics.

    Raises:
        PlanError: As `sources_at`.
    """
    return {name: kept_at(each) for name, each in parse_inputs(texts, "--follow").items()}


def kept_at(text: str) -> Store | Topic:
    """Where live results go, or come from: a topic, or the store in a folder.

    Raises:
        PlanError: As `sources_at`.
    """
    return topic_at(text) if _is_topic(text) else store(text)


def refuse_topic(text: str) -> None:
    """Refuse a topic for an answer that is computed once.

    Raises:
        PlanError: It is one.
    """
    if _is_topic(text):
        raise PlanError(
            "Into a topic go the results of a query that runs live.",
            remedy="Add --follow NAME=kafka://…; or write a file.",
        )


def arriving(
    sources: Mapping[str, Store | Topic], *, time: str | None, delay: Duration, diverts: bool
) -> dict[str, Stream]:
    """The events of stores, which have times and CTIs, and of topics, for a text that is asked of them live.

    A topic has no CTIs: each event makes one, that lies behind its time.

    Args:
        sources: The stores and topics, by name.
        time: The column of topics that says when an event comes: a time, or milliseconds since 1970. It stays a column.
        delay: How far a topic's CTI lies behind each event's time.
        diverts: Whether events that come later are kept aside, or an error.

    Raises:
        PlanError: There is a topic and no such column, or such a column and no topic.
        ColumnError: A topic has no such column.
    """
    return {
        name: _arriving(name if len(sources) > 1 else None, each, time, delay, diverts=diverts)
        for name, each in sources.items()
    }


def _arriving(name: str | None, source: Store | Topic, time: str | None, delay: Duration, *, diverts: bool) -> Stream:
    if isinstance(source, Store):
        if time is not None:
            raise PlanError(
                "--time needs data at rest, or topics: the events of a store have times.", remedy="Leave --time out."
            )
        return events(source, name=name)
    if time is None:
        raise PlanError("The events of a topic have no times yet.", remedy="Name the column that has them: --time at.")
    if time not in source.columns.names:
        raise ColumnError(
            f"The topic {source.name} has no such column.",
            column=time,
            remedy=f"It has: {', '.join(source.columns.names)}.",
        )
    counted = pa.types.is_integer(source.columns.field(time).type)
    rows = events(source, start=time, unit="ms" if counted else None, name=name)
    timely = rows.advance_time(1, delay=delay, late="divert" if diverts else "raise")
    said = nw.col("start").dt.timestamp("ms") if counted else nw.col("start")
    return timely.with_columns(**{time: said})


def _is_topic(text: str) -> bool:
    return text.startswith(SCHEME)
