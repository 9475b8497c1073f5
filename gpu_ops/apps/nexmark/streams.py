"""The auction's tables as streams of events: persons and bids are points, an auction lasts until it expires.

In a running query, an input has the name of its function: ``live.push(batch, input="bids")``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gpu_ops.api.events import events
from gpu_ops.api.stream import Stream
from gpu_ops.apps.nexmark.generator import SCHEMAS, side_input
from gpu_ops.microbatches.stores import Store


def persons(source: Any = None, *, spark: Any = None) -> Stream:
    """Registrations, at ``date_time``, each one tick long.

    Args:
        source: A source for `gpu_ops.events`: a table of `gpu_ops.apps.nexmark.generate`, its file, or a Spark
            DataFrame. Or a store, whose lifetimes are kept. By default, a stream without rows for live queries.
        spark: As in `gpu_ops.events`, for a topic.

    Examples:
        >>> persons().schema.names
        ['id', 'name', 'email_address', 'credit_card', 'city', 'state', 'extra']
    """
    return _stream("persons", source, SCHEMAS["persons"], spark=spark)


def auctions(source: Any = None, *, spark: Any = None) -> Stream:
    """Auctions, from ``date_time`` up to ``expires``.

    Args:
        source: As in `persons`.
        spark: Likewise.

    Examples:
        >>> auctions().schema.names
        ['id', 'item_name', 'description', 'initial_bid', 'reserve', 'seller', 'category', 'extra']
    """
    return _stream("auctions", source, SCHEMAS["auctions"], "expires", spark=spark)


def bids(source: Any = None, *, spark: Any = None) -> Stream:
    """Bids, at ``date_time``, each one tick long.

    Args:
        source: As in `persons`.
        spark: Likewise.

    Examples:
        >>> bids().schema.names
        ['auction', 'bidder', 'price', 'channel', 'url', 'extra']
    """
    return _stream("bids", source, SCHEMAS["bids"], spark=spark)


def side(source: Any = None) -> Stream:
    """The lookup table of query 13: each row at the time from which it is known.

    Args:
        source: As in `persons`, but made by `gpu_ops.apps.nexmark.side_input`.

    Examples:
        >>> side().schema.names
        ['key', 'value']
    """
    return _stream("side", source, side_input(0).schema)


def _stream(name: str, source: Any, empty: pa.Schema, end: str | None = None, *, spark: Any = None) -> Stream:
    if isinstance(source, Store):
        return events(source, name=name)
    return events(empty.empty_table() if source is None else source, start="date_time", end=end, name=name, spark=spark)
