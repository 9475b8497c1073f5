"""The auction's tables as streams of events: persons and bids are points, an auction is open until it expires.

A running query with several inputs calls each by its function's name: ``live.push(batch, input="bids")``.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from gpu_ops.api.events import events
from gpu_ops.api.stream import Stream
from gpu_ops.apps.nexmark.generator import SCHEMAS, side_input
from gpu_ops.microbatches.stores import Store


def persons(source: Any = None) -> Stream:
    """Registrations, at ``date_time``, each one tick long.

    Args:
        source: As `gpu_ops.events` takes it: a table of `gpu_ops.apps.nexmark.generate`, a file of it, a Spark
            DataFrame. Or a store, whose lifetimes are taken as they are. Nothing: a stream for live queries, without
            any rows.

    Examples:
        >>> persons().schema.names
        ['id', 'name', 'email_address', 'credit_card', 'city', 'state', 'extra']
    """
    return _stream("persons", source, SCHEMAS["persons"])


def auctions(source: Any = None) -> Stream:
    """Auctions, from ``date_time`` up to ``expires``.

    Args:
        source: As in `persons`.

    Examples:
        >>> auctions().schema.names
        ['id', 'item_name', 'description', 'initial_bid', 'reserve', 'seller', 'category', 'extra']
    """
    return _stream("auctions", source, SCHEMAS["auctions"], "expires")


def bids(source: Any = None) -> Stream:
    """Bids, at ``date_time``, each one tick long.

    Args:
        source: As in `persons`.

    Examples:
        >>> bids().schema.names
        ['auction', 'bidder', 'price', 'channel', 'url', 'extra']
    """
    return _stream("bids", source, SCHEMAS["bids"])


def side(source: Any = None) -> Stream:
    """What query 13 looks up, each row at the time from which it is known.

    Args:
        source: As in `persons`, but made by `gpu_ops.apps.nexmark.side_input`.

    Examples:
        >>> side().schema.names
        ['key', 'value']
    """
    return _stream("side", source, side_input(0).schema)


def _stream(name: str, source: Any, empty: pa.Schema, end: str | None = None) -> Stream:
    if isinstance(source, Store):
        return events(source, name=name)
    return events(empty.empty_table() if source is None else source, start="date_time", end=end, name=name)
