"""The NEXMark queries that join streams, or a stream with itself.

`gpu_ops.apps.nexmark.queries` lists them with the other queries; its conventions hold here. If a result has another
lifetime than its auction, the columns ``opened`` and ``expires`` hold the auction's.

If a query of the benchmark forgets nothing, neither does ours: live state keeps such rows for ever, and the query's
docstring names them. Auctions are kept only while they are open.
"""

from __future__ import annotations

import datetime

import gpu_ops as g
from gpu_ops.core.time import Duration

_INFINITY = datetime.datetime.max.replace(tzinfo=datetime.UTC)

RANKS = {
    "total": g.lit(True),
    "rank1": g.col("price") < 10_000,
    "rank2": (g.col("price") >= 10_000) & (g.col("price") < 1_000_000),
    "rank3": g.col("price") >= 1_000_000,
}
"""The bids that count in the columns of each rank, in `q15`, `q16` and `gpu_ops.apps.nexmark.queries.q17`."""


def _known(stream: g.Stream) -> g.Stream:
    """Events that last for ever from their start on."""
    return stream.alter_lifetime(end=g.lit(_INFINITY))


def _while_open(auctions: g.Stream, bids: g.Stream) -> g.Stream:
    """Each bid beside its open auction, from the bid's time until the auction expires."""
    open_ones = auctions.with_columns(expires=g.col("end"))
    return bids.join(open_ones, on={"auction": "id"}).alter_lifetime(end=g.col("expires"))


def _at_its_end(running: g.Stream, end: str) -> g.Stream:
    """The last of several changing results: the one that lasts until the time in a column."""
    return running.filter(g.col("end") == g.col(end))


def q3(auctions: g.Stream, persons: g.Stream) -> g.Stream:
    """Local item suggestion: who sells in Oregon, Idaho or California, in category 10?

    In event time: a pair lasts from the later of both starts until the auction expires. Difference: NEXMark's pairs
    last for ever. Live state keeps the persons of these states for ever, and auctions while they are open.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> auction = nexmark.generate(events=10_000)
        >>> sellers = q3(streams.auctions(auction.auctions), streams.persons(auction.persons)).collect()
        >>> sorted(set(sellers["state"].to_pylist()))
        ['CA', 'ID', 'OR']
    """
    near = _known(persons.filter(g.col("state").is_in(["OR", "ID", "CA"])).select("id", "name", "city", "state"))
    asked = auctions.filter(g.col("category") == 10).select("id", "seller")
    return asked.join(near, on={"seller": "id"}).select("name", "city", "state", "id")


def q4(auctions: g.Stream, bids: g.Stream) -> g.Stream:
    """Average price for a category: what did its auctions go for, on average?

    In event time: an auction takes bids while it is open, and its highest bid is final when it expires. The average is
    over all expired auctions of a category, and lasts until the next one expires. Differences: an auction without bids
    has no price; Flink's ``BETWEEN`` also takes a bid at ``expires``. Live state keeps auctions and their bids while
    they are open, and the sum and count of final prices.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> auction = nexmark.generate(events=10_000)
        >>> averages = q4(streams.auctions(auction.auctions), streams.bids(auction.bids)).collect()
        >>> sorted(set(averages["category"].to_pylist()))
        [10, 11, 12, 13, 14]
    """
    taken = _while_open(auctions.select("id", "category"), bids.select("auction", "price"))
    highest = taken.by("auction", "category", "expires").snapshot().agg(final=g.max("price"))
    sold = _known(_at_its_end(highest, "expires").point_at_end())
    return sold.by("category").snapshot().agg(final=g.mean("final"))


def q5(bids: g.Stream, *, size: Duration = "10s", every: Duration = "2s") -> g.Stream:
    """Hot items: which auctions had the most bids in the last ten seconds, every two seconds?

    In event time: hopping windows; the lifetime is the window. All auctions with the most bids are returned. The only
    difference: Tucker et al. ask about an hour, every minute.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> bids = streams.bids(nexmark.generate(events=1000, rate=100).bids)
        >>> set(q5(bids).collect()["auction"].to_pylist())
        {1000}
    """
    counted = bids.by("auction").hopping(size, every).agg(num=g.count()).with_columns(window=g.col("start"))
    most = counted.by("window").snapshot().agg(num=g.max("num"))
    return counted.join(most, on=["window", "num"]).select("auction", "num")


def q7(bids: g.Stream, *, size: Duration = "10s") -> g.Stream:
    """Highest bid: which bids were the highest of their ten seconds?

    In event time: tumbling windows; the lifetime is the bid's. All highest bids are returned. Difference: in
    nexmark-flink, a bid at the very end of a window is part of it; here it belongs to the next window.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> bids = streams.bids(nexmark.generate(events=1000, rate=50).bids)
        >>> q7(bids).collect().num_rows
        2
    """
    highest = bids.tumbling(size).agg(price=g.max("price"))
    return bids.select("auction", "bidder", "price", "extra").join(highest, on="price")


def q8(auctions: g.Stream, persons: g.Stream, *, size: Duration = "10s") -> g.Stream:
    """Monitor new users: who put something up for auction in the ten seconds in which they registered?

    In event time: tumbling windows; the lifetime is the window. Differences: Tucker et al. ask about the twelve hours
    after each registration, and Beam returns each auction.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> auction = nexmark.generate(events=1000, rate=50)
        >>> q8(streams.auctions(auction.auctions), streams.persons(auction.persons)).schema.names
        ['id', 'name']
    """
    came = persons.by("id", "name").tumbling(size).agg(times=g.count()).select("id", "name")
    sold = auctions.to_point().by("seller").tumbling(size).agg(times=g.count()).select("seller")
    return came.join(sold, on={"id": "seller"})


def q9(auctions: g.Stream, bids: g.Stream) -> g.Stream:
    """Winning bids: which bid had the highest price when its auction expired? Of equal prices, the first bid wins.

    In event time: an auction takes bids as in `q4`; a result is one tick long, when the auction expires. Bids with the
    same price and time all win.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> auction = nexmark.generate(events=10_000, rate=1000)
        >>> won = q9(streams.auctions(auction.auctions), streams.bids(auction.bids)).collect()
        >>> sorted(won["auction"].to_pylist())[:3], len(set(won["auction"].to_pylist())) == won.num_rows
        ([1000, 1001, 1002], True)
    """
    made = bids.select("auction", "bidder", "price", bid_time=g.col("start"), bid_extra=g.col("extra"))
    taken = _while_open(auctions.select("id"), made)
    price = _at_its_end(taken.by("auction", "expires").snapshot().agg(price=g.max("price")), "expires")
    highest = taken.join(price.select("auction", "price"), on=["auction", "price"])
    first = highest.by("auction").snapshot().agg(bid_time=g.min("bid_time"))
    won = highest.join(first, on=["auction", "bid_time"]).select(*made.schema.names)
    described = won.join(auctions.with_columns(opened=g.col("start")), on={"auction": "id"}).point_at_end()
    return described.with_columns(id=g.col("auction"))


def q11(bids: g.Stream, *, gap: Duration = "10s") -> g.Stream:
    """User sessions: how many bids did each bidder make without a pause of more than ten seconds?

    In event time: each bid keeps its bidder active for the length of the gap, and a session is a maximal interval of
    activity. The number of bids is known with the last bid, so the result lasts from there until the session ends;
    ``began`` is the time of the first bid. Bids exactly one gap apart are in one session, as in nexmark-flink but not
    in Beam. Difference: the lifetime is not the whole session. A live result cannot start before its last bid, since
    ``alter_lifetime(start=…)`` would hold back all CTIs. Over a batch, write
    ``q11(bids).alter_lifetime(start=g.col("began"))``. Live state keeps the bids since the start of the oldest open
    session, and results wait for that session.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> bids = streams.bids(nexmark.generate(events=100, rate=1).bids)
        >>> sorted(q11(bids).collect()["bid_count"].to_pylist())
        [1, 1, 1, 43, 46]
    """
    active = bids.by("bidder").sliding(gap).agg(bid_count=g.count()).select("bidder").stitch()
    sessions = active.with_columns(began=g.col("start"), over=g.col("end"))
    made = bids.select("bidder").join(sessions, on="bidder").alter_lifetime(end=g.col("over"))
    so_far = made.by("bidder", "began", "over").snapshot().agg(bid_count=g.count())
    return _at_its_end(so_far, "over").select("bidder", "bid_count", "began")


def q13(bids: g.Stream, side: g.Stream) -> g.Stream:
    """Bounded side input: which value does a table hold for the auction of each bid?

    In event time: the bid's lifetime, if the table's row was known by then; rows stay known for ever. The table has
    10,000 keys, and an auction's key is its id modulo 10,000.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> bids = streams.bids(nexmark.generate(events=100).bids)
        >>> sorted(set(q13(bids, streams.side(nexmark.side_input())).collect()["value"].to_pylist()))
        ['value 1000', 'value 1001', 'value 1002', 'value 1003', 'value 1004', 'value 1005']
    """
    keyed = bids.select("auction", "bidder", "price", key=g.col("auction") % 10_000)
    return keyed.join(_known(side), on="key").select("auction", "bidder", "price", "value")


def _distinct(bids: g.Stream, column: str, *keys: str) -> g.Stream:
    """The number of bids of each day by rank, and of the distinct values of a column among them."""
    names = {rank: f"{rank}_bids" for rank in RANKS}
    each = bids.by(*keys, column).tumbling("1d")
    counted = each.agg(**{name: g.count(where=RANKS[rank]) for rank, name in names.items()}, last=g.max("minute"))
    return (
        counted.by(*keys)
        .tumbling("1d")
        .agg(
            minute=g.max("last"),
            **{name: g.sum(name) for name in names.values()},
            **{f"{rank}_{column}s": g.count(where=g.col(name) > 0) for rank, name in names.items()},
        )
    )


def _statistics(bids: g.Stream, *keys: str) -> g.Stream:
    minutes = bids.with_columns(minute=g.col("start").dt.truncate("1m").cast(g.Datetime("us", "UTC")))
    auctions = _distinct(minutes, "auction", *keys)
    counts = auctions.select(*keys, *(f"{rank}_auctions" for rank in RANKS))
    return _distinct(minutes, "bidder", *keys).join(counts, on=keys)


def q15(bids: g.Stream) -> g.Stream:
    """Bidding statistics: the number of bids, bidders and auctions of each day, in total and by three ranks of price.

    In event time: tumbling windows of a day (UTC), returned once, when the day is over. Bidders and auctions are
    counted exactly: first the bids of each, then those with any bid. Difference: nexmark-flink returns the day again
    with each bid.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> bids = streams.bids(nexmark.generate(events=1000).bids)
        >>> q15(bids).collect().select(["total_bids", "total_bidders", "total_auctions"]).to_pylist()
        [{'total_bids': 920, 'total_bidders': 18, 'total_auctions': 57}]
    """
    statistics = _statistics(bids)
    return statistics.select(*(name for name in statistics.schema.names if name != "minute"))


def q16(bids: g.Stream) -> g.Stream:
    """Channel statistics: as `q15`, for each channel, and the minute of its last bid of the day.

    In event time: as `q15`. Another difference: the minute is a time, not a text.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> bids = streams.bids(nexmark.generate(events=1000).bids)
        >>> counts = q16(bids).filter(g.col("channel") == "Baidu").collect()
        >>> counts["total_bids"].to_pylist(), str(counts["minute"][0])
        ([116], '2015-07-15 00:00:00+00:00')
    """
    return _statistics(bids, "channel")


def q18(bids: g.Stream) -> g.Stream:
    """Find last bid: which is the last bid of each bidder for each auction?

    In event time: a bid is the last one until the same bidder's next bid for that auction. No difference. NEXMark does
    not ask whether the auction is open: live state keeps the last bid of each bidder for each auction for ever, and
    returns it with the next bid or at the end of the input.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> bids = streams.bids(nexmark.generate(events=100).bids)
        >>> last = q18(bids).filter(g.col("end") == g.lit(_INFINITY)).collect()
        >>> last.num_rows == len(set(zip(last["bidder"].to_pylist(), last["auction"].to_pylist())))
        True
    """
    return _known(bids).clip_by(bids, on=["bidder", "auction"])


def q19(bids: g.Stream, *, top: int = 10) -> g.Stream:
    """Auction top 10: which bids had the ten highest prices of each auction, on each day?

    In event time: the lifetime is the day (UTC), as in `gpu_ops.apps.nexmark.queries.q17`, and ``bid_time`` is the time
    of the bid. Differences: bids of one price share a rank, so there may be more than ten, where nexmark-flink numbers
    them in any order; and nexmark-flink has no days. Each rank takes one round: the highest price below the last one.

    Args:
        bids: Bids of `gpu_ops.apps.nexmark.streams.bids`.
        top: The number of ranks.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> bids = streams.bids(nexmark.generate(events=100).bids)
        >>> sorted(q19(bids.filter(g.col("auction") == 1000), top=3).collect()["rank_number"].to_pylist())
        [1, 2, 3]
    """
    daily = bids.with_columns(bid_time=g.col("start")).quantize("1d")
    prices = daily.select("auction", "price").by("auction", "price").tumbling("1d").agg(times=g.count())
    left, ranks = prices, []
    for rank in range(1, top + 1):
        highest = left.by("auction").tumbling("1d").agg(highest=g.max("price"))
        ranks.append(highest.select("auction", price=g.col("highest"), rank_number=g.lit(rank, dtype=g.Int64)))
        left = prices.join(highest, on="auction", condition=g.col("price") < g.col("highest"))
    return daily.join(ranks[0].union(*ranks[1:]), on=["auction", "price"])


def q20(auctions: g.Stream, bids: g.Stream) -> g.Stream:
    """Expand bid with auction: the bids for auctions in category 10, beside these auctions.

    In event time: the bid's lifetime; the auction must be open then. Difference: nexmark-flink joins at any time, and
    so keeps all auctions and all bids.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> auction = nexmark.generate(events=10_000)
        >>> set(q20(streams.auctions(auction.auctions), streams.bids(auction.bids)).collect()["category"].to_pylist())
        {10}
    """
    asked = auctions.filter(g.col("category") == 10).with_columns(opened=g.col("start"), expires=g.col("end"))
    made = bids.select("auction", "bidder", "price", "channel", "url", bid_extra=g.col("extra"))
    return made.join(asked, on={"auction": "id"})


def q23(auctions: g.Stream, bids: g.Stream, persons: g.Stream) -> g.Stream:
    """Expand bid with bidder and auction: the bidder of each bid, and the auctions that the bidder sells.

    In event time: the bid's lifetime; the bidder has registered by then, and the auctions are open. Difference:
    nexmark-flink joins at any time, as in `q20`. Live state keeps persons for ever, and auctions while they are open.

    Examples:
        >>> from gpu_ops.apps import nexmark
        >>> from gpu_ops.apps.nexmark import streams
        >>> auction = nexmark.generate(events=10_000)
        >>> sources = streams.auctions(auction.auctions), streams.bids(auction.bids), streams.persons(auction.persons)
        >>> q23(*sources).collect().num_rows > 0
        True
    """
    who = _known(persons.select("id", "name", "email_address", "credit_card", "city", "state"))
    what = auctions.select(
        *("seller", "item_name", "description", "initial_bid", "reserve", "category"),
        opened=g.col("start"),
        expires=g.col("end"),
    )
    made = bids.select("bidder", "price", "channel", "url")
    named = made.join(who, on={"bidder": "id"}).join(what, on={"bidder": "seller"})
    return named.with_columns(seller=g.col("bidder"))
