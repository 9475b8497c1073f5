"""The NEXMark queries without a join, and a table of all queries by name.

Each function takes streams of `gpu_ops.apps.nexmark.streams` and returns a stream, to which more verbs can be added.
Columns have nexmark-flink's names. No column repeats a lifetime, which is a window's or the time of a bid.
``docs/nexmark.md`` lists all queries of the benchmark, with the missing ones and the reasons. The queries that join
streams are defined in `gpu_ops.apps.nexmark.joined`, and can be imported from here.

This file is a query file: its `query` answers all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import gpu_ops as g
from gpu_ops.apps.nexmark import streams
from gpu_ops.apps.nexmark.joined import RANKS, q3, q4, q5, q7, q8, q9, q11, q13, q15, q16, q18, q19, q20, q23
from gpu_ops.core.time import Duration

__all__ = ["INPUTS", "QUERIES", "query"]
__all__ += ["q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8", "q9", "q11", "q12", "q13"]
__all__ += ["q14", "q15", "q16", "q17", "q18", "q19", "q20", "q21", "q22", "q23"]

_EURO = 0.908

_HOT_CHANNELS = ("apple", "google", "facebook", "baidu")


def q0(bids: g.Stream) -> g.Stream:
    """Pass through: the cost of reading bids and returning them.

    No difference to the benchmark.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> bids = streams.bids(nexmark.generate(events=100).bids)
        >>> q0(bids).collect().num_rows
        92
    """
    return bids.select("auction", "bidder", "price", "extra")


def q1(bids: g.Stream) -> g.Stream:
    """Currency conversion: the price of each bid in euros, at 0.908 for a dollar.

    Difference: the product is a float64; in nexmark-flink it is a decimal of three digits.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> bids = streams.bids(nexmark.generate(events=100).bids)
        >>> str(q1(bids).schema.field("price").type)
        'double'
    """
    return bids.select("auction", "bidder", "extra", price=g.col("price") * _EURO)


def q2(bids: g.Stream, *, every: int = 123) -> g.Stream:
    """Selection: which bids are for certain auctions, and at what price?

    As in Beam and nexmark-flink, the query selects every 123rd auction, so that any number of events has some; Tucker
    et al. name five auctions.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> bids = streams.bids(nexmark.generate(events=10_000).bids)
        >>> sorted(set(q2(bids).collect()["auction"].to_pylist()))
        [1107, 1230, 1353, 1476]
    """
    return bids.filter(g.col("auction") % every == 0).select("auction", "price")


def q12(bids: g.Stream, *, size: Duration = "10s") -> g.Stream:
    """Windowed counts: how many bids did each bidder make in each ten seconds?

    Difference: windows are in event time. NEXMark uses processing time, which gives another answer in each run.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> bids = streams.bids(nexmark.generate(events=100, rate=10).bids)
        >>> sorted(q12(bids).collect()["bid_count"].to_pylist())
        [43, 49]
    """
    return bids.by("bidder").tumbling(size).agg(bid_count=g.count())


def q14(bids: g.Stream) -> g.Stream:
    """Calculation: which bids are between one and fifty million euros, at what time of day, with how many letters c?

    Hours are in UTC. Difference: the price is a float64, as in `q1`.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> bids = streams.bids(nexmark.generate(events=100, start="2026-01-01T19:30Z").bids)
        >>> set(q14(bids).collect()["bid_time_type"].to_pylist())
        {'otherTime'}
    """
    price = g.col("price") * _EURO
    hour = g.col("start").dt.hour()
    night = g.when((hour <= 6) | (hour >= 20)).then(g.lit("nightTime")).otherwise(g.lit("otherTime"))
    extra = g.col("extra").str
    return bids.filter((price > 1_000_000) & (price < 50_000_000)).select(
        "auction",
        "bidder",
        "extra",
        price=price,
        bid_time_type=g.when((hour >= 8) & (hour <= 18)).then(g.lit("dayTime")).otherwise(night),
        c_counts=(extra.len_chars() - extra.replace_all("c", "", literal=True).str.len_chars()).cast(g.Int64),
    )


def q17(bids: g.Stream) -> g.Stream:
    """Auction statistics: how many bids were made on each auction on each day, and at what prices?

    In event time: tumbling windows of a day (UTC); the lifetime is the day, and its statistics are returned once, when
    the day is over. Differences: nexmark-flink returns them again with each bid, and rounds the average.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> bids = streams.bids(nexmark.generate(events=100).bids)
        >>> q17(bids).collect().column_names[3:7]
        ['total_bids', 'rank1_bids', 'rank2_bids', 'rank3_bids']
    """
    return (
        bids.by("auction")
        .tumbling("1d")
        .agg(
            **{f"{rank}_bids": g.count(where=holds) for rank, holds in RANKS.items()},
            min_price=g.min("price"),
            max_price=g.max("price"),
            avg_price=g.mean("price"),
            sum_price=g.sum("price"),
        )
    )


def q21(bids: g.Stream) -> g.Stream:
    """Channel ids: the number of each bid's channel, from its name or its URL.

    Bids without a number are left out. No difference to the benchmark.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> bids = streams.bids(nexmark.generate(events=100).bids)
        >>> q21(bids.filter(g.col("channel") == "Baidu")).collect()["channel_id"][0].as_py()
        '3'
    """
    name = g.col("channel").str.to_lowercase()
    url = g.col("url").str
    channel_id = url.replace_all("^.*?&channel_id=", "").str.replace_all("&.*$", "")
    for number, hot in enumerate(_HOT_CHANNELS):
        channel_id = g.when(name == hot).then(g.lit(str(number))).otherwise(channel_id)
    return bids.filter(name.is_in(_HOT_CHANNELS) | url.contains("&channel_id=", literal=True)).select(
        "auction", "bidder", "price", "channel", channel_id=channel_id
    )


def q22(bids: g.Stream) -> g.Stream:
    """URL directories: the first three directories of each bid's URL.

    Difference: a missing directory is an empty text, as with SQL's ``split_part``; with Flink's ``SPLIT_INDEX`` it is
    null.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> bids = streams.bids(nexmark.generate(events=100).bids)
        >>> q22(bids).schema.names
        ['auction', 'bidder', 'price', 'channel', 'dir1', 'dir2', 'dir3']
    """
    # The added slashes make enough parts: to get a part beyond the last one is an error.
    parts = g.concat_str(g.col("url"), g.lit("//////")).str.split("/").list
    return bids.select("auction", "bidder", "price", "channel", dir1=parts.get(3), dir2=parts.get(4), dir3=parts.get(5))


_ALL: tuple[Callable[..., g.Stream], ...] = (
    *(q0, q1, q2, q3, q4, q5, q7, q8, q9, q11, q12, q13, q14),
    *(q15, q16, q17, q18, q19, q20, q21, q22, q23),
)

QUERIES: dict[str, Callable[..., g.Stream]] = {ask.__name__: ask for ask in _ALL}
"""All queries by name."""

INPUTS: dict[str, tuple[str, ...]] = {
    name: tuple(each.name for each in signature(ask).parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD)
    for name, ask in QUERIES.items()
}
"""The streams that each query takes."""


def query(bids: Any, auctions: Any = None, persons: Any = None, side: Any = None) -> dict[str, g.Stream]:
    """All queries that the given inputs can answer, for ``gpu_ops run`` and for Spark.

    Args:
        bids: The source of `gpu_ops.apps.nexmark.streams.bids`.
        auctions: Likewise; without it, queries over auctions are left out.
        persons: Likewise.
        side: Likewise, from `gpu_ops.apps.nexmark.side_input`.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> auction = nexmark.generate(events=100)
        >>> list(query(auction.bids))[:4], list(query(auction.bids, auction.auctions))[:4]
        (['q0', 'q1', 'q2', 'q5'], ['q0', 'q1', 'q2', 'q4'])
    """
    sources = {"bids": bids, "auctions": auctions, "persons": persons, "side": side}
    given = {name: getattr(streams, name)(source) for name, source in sources.items() if source is not None}
    return {
        name: ask(**{each: given[each] for each in INPUTS[name]})
        for name, ask in QUERIES.items()
        if given.keys() >= set(INPUTS[name])
    }
