"""The auction: persons, auctions and bids as Arrow tables. Each event depends only on the seed and its number.

Of every 50 events, the first is a person, the next three are auctions and the other 46 are bids. Any range of event
numbers can be generated alone: ranges made in any order and place together give the rows of the whole auction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from gpu_ops.apps.nexmark import draws
from gpu_ops.apps.nexmark.draws import Integers
from gpu_ops.core.arguments import whole
from gpu_ops.core.splitmix import Numbers
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE, Instant, format_time, instant
from gpu_ops.errors import PlanError

Kind = Literal["persons", "auctions", "bids"]

KINDS: tuple[Kind, ...] = get_args(Kind)
"""The three streams."""

FIRST_ID = 1000
"""The id of the first person and of the first auction."""

FIRST_CATEGORY, CATEGORIES = 10, 5
"""Auctions are in categories 10 to 14."""

HOT_AUCTION, HOT_BIDDER, HOT_SELLER = 2, 4, 4
"""1 - 1/2 of bids are for the hot auction, 1 - 1/4 are by the hot bidder; 1 - 1/4 of auctions are by the hot seller."""

HOT_EVERY = 100
"""Of each hundred, the first auction is hot, the first person is the hot seller and the second the hot bidder."""

RECENT_AUCTIONS, ACTIVE_PERSONS = 100, 1000
"""A bid or auction that is not hot takes one of the last 100 auctions or 1000 persons, each equally likely."""

BASE_TIME = "2015-07-15T00:00:00Z"
"""The default time of the first event: Beam's base time."""

DEFAULT_RATE = 10_000

_EVERY = 50
_SHARES: dict[Kind, tuple[int, int]] = {"persons": (0, 1), "auctions": (1, 3), "bids": (4, 46)}
_MOST_EVENTS = 9_000_000_000_000  # microseconds at one a second fit into 64 bits
_BATCH_EVENTS = 1 << 16

SCHEMAS: dict[Kind, pa.Schema] = {
    "persons": pa.schema(
        [
            ("id", pa.int64()),
            *((name, pa.string()) for name in ("name", "email_address", "credit_card", "city", "state")),
            ("date_time", TIME_TYPE),
            ("extra", pa.string()),
        ]
    ),
    "auctions": pa.schema(
        [
            ("id", pa.int64()),
            *((name, pa.string()) for name in ("item_name", "description")),
            *((name, pa.int64()) for name in ("initial_bid", "reserve")),
            *((name, TIME_TYPE) for name in ("date_time", "expires")),
            *((name, pa.int64()) for name in ("seller", "category")),
            ("extra", pa.string()),
        ]
    ),
    "bids": pa.schema(
        [
            *((name, pa.int64()) for name in ("auction", "bidder", "price")),
            *((name, pa.string()) for name in ("channel", "url")),
            ("date_time", TIME_TYPE),
            ("extra", pa.string()),
        ]
    ),
}
"""The columns of each stream."""


class Tables(NamedTuple):
    """The three streams over the same range of event numbers.

    Attributes:
        persons: The registrations.
        auctions: The items put up for auction.
        bids: The offers.
        cti: No later event starts before this time (ticks).
    """

    persons: pa.Table
    auctions: pa.Table
    bids: pa.Table
    cti: int


@dataclass(frozen=True)
class Generator:
    """An auction of a number of events; any part of it can be generated alone.

    Attributes:
        events: The number of events of all three kinds.
        rate: Events per second of event time. Event n is ``n / rate`` seconds after the start, rounded down to a
            microsecond.
        seed: From 0 to 2^64 - 1. The same seed gives the same rows on every machine.
        start: The time of the first event.

    Raises:
        PlanError: A number is out of range, or the last events would be after the year 9999.

    Examples:
        >>> auction = Generator(events=1_000_000, seed=7)
        >>> auction.batch("bids", 999_990, 1_000_000).num_rows
        10
        >>> sum(batch.num_rows for batch in auction.batches("persons"))
        20000
    """

    events: int
    rate: int = DEFAULT_RATE
    seed: int = 0
    start: Instant = BASE_TIME

    def __post_init__(self) -> None:
        whole(self.events, name="events", least=0, most=_MOST_EVENTS)
        whole(self.rate, name="rate", least=1, most=10**12)
        whole(self.seed, name="seed", least=0, most=2**64 - 1)
        last = self.time(self.events) + 2 * _horizon(self.rate)
        if not MIN_TIME <= instant(self.start, name="start") <= last < MAX_TIME:
            raise PlanError(
                f"{self.events:,} events from {format_time(self.time(0))} on at {self.rate:,} a second leave the years "
                "1 to 9999.",
                remedy="Choose an earlier start, a higher rate or fewer events.",
            )

    def time(self, event: int) -> int:
        """The time of an event, in ticks.

        Examples:
            >>> Generator(events=10, rate=2, start="1970-01-01T00:00Z").time(3)
            1500000
        """
        return instant(self.start, name="start") + event * 1_000_000 // self.rate

    def batch(self, kind: Kind, first: int = 0, last: int | None = None) -> pa.RecordBatch:
        """The events of one kind with numbers from ``first`` up to ``last``, in order.

        Args:
            kind: ``"persons"``, ``"auctions"`` or ``"bids"``.
            first: The first event's number, counted over all kinds from zero.
            last: The number after the last event's; by default ``events``.

        Raises:
            PlanError: There is no such kind, or a number is out of range.

        Examples:
            >>> Generator(events=100).batch("auctions", 50).column("id").to_pylist()
            [1003, 1004, 1005]
        """
        first, last = self._range(kind, first, last)
        offset, share = _SHARES[kind]
        ordinals = np.arange(_before(first, offset, share), _before(last, offset, share))
        numbers = ordinals // share * _EVERY + offset + ordinals % share
        columns = _MAKERS[kind](self, draws.key(self.seed), numbers)
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMAS[kind])

    def batches(
        self, kind: Kind, first: int = 0, last: int | None = None, *, size: int = _BATCH_EVENTS
    ) -> Iterator[pa.RecordBatch]:
        """As `batch`, in several batches: one for every ``size`` events, without empty ones.

        Args:
            kind: As in `batch`.
            first: Likewise.
            last: Likewise.
            size: The number of events of all kinds from which a batch takes its own.

        Examples:
            >>> [batch.num_rows for batch in Generator(events=120).batches("bids", size=50)]
            [46, 46, 16]
        """
        first, last = self._range(kind, first, last)
        whole(size, name="size", least=1, most=_MOST_EVENTS)
        made = (self.batch(kind, at, min(at + size, last)) for at in range(first, last, size))
        return (batch for batch in made if batch.num_rows)

    def table(self, kind: Kind, first: int = 0, last: int | None = None) -> pa.Table:
        """As `batch`, but a table.

        Examples:
            >>> Generator(events=100).table("persons")["id"].to_pylist()
            [1000, 1001]
        """
        return pa.Table.from_batches(self.batches(kind, first, last), SCHEMAS[kind])

    def tables(self, first: int = 0, last: int | None = None) -> Tables:
        """All three streams over a range of event numbers.

        Examples:
            >>> part = Generator(events=100).tables(0, 50)
            >>> part.bids.num_rows, part.cti == Generator(events=100).time(50)
            (46, True)
        """
        _, end = self._range("bids", first, last)
        persons, auctions, bids = (self.table(kind, first, last) for kind in KINDS)
        return Tables(persons, auctions, bids, self.time(end))

    def micro_batches(self, size: int) -> Iterator[Tables]:
        """All three streams in order of time, in parts of ``size`` events of all kinds.

        Examples:
            >>> [part.bids.num_rows for part in Generator(events=120).micro_batches(50)]
            [46, 46, 16]
        """
        whole(size, name="size", least=1, most=_MOST_EVENTS)
        return (self.tables(at, min(at + size, self.events)) for at in range(0, self.events, size))

    def _range(self, kind: Kind, first: int, last: int | None) -> tuple[int, int]:
        if kind not in KINDS:
            raise PlanError(f"NEXMark has no {kind!r}.", remedy=f"It has {', '.join(KINDS)}.")
        last = self.events if last is None else last
        whole(last, name="last", least=0, most=self.events)
        whole(first, name="first", least=0, most=last)
        return first, last


def generate(events: int, *, rate: int = DEFAULT_RATE, seed: int = 0, start: Instant = BASE_TIME) -> Tables:
    """The whole auction as Arrow tables.

    Args:
        events: The number of events of all three kinds.
        rate: Events per second of event time.
        seed: From 0 to 2^64 - 1.
        start: The time of the first event.

    Raises:
        PlanError: As `Generator`.

    Examples:
        >>> import gpu_ops as g
        >>> from gpu_ops.apps import nexmark
        >>> bids = nexmark.generate(events=1000, rate=10).bids
        >>> g.events(bids, start="date_time").tumbling("1min").agg(best=g.max("price")).collect().num_rows
        2
    """
    return Generator(events, rate, seed, start).tables()


def batches(
    events: int, *, size: int, rate: int = DEFAULT_RATE, seed: int = 0, start: Instant = BASE_TIME
) -> Iterator[Tables]:
    """The auction in micro-batches, in order of time, each with the CTI after it.

    Args:
        events: As in `generate`.
        size: The number of events of all kinds in a micro-batch.
        rate: As in `generate`.
        seed: Likewise.
        start: Likewise.

    Raises:
        PlanError: As `Generator`.

    Examples:
        >>> import gpu_ops as g
        >>> import numpy as np
        >>> from gpu_ops.apps import nexmark
        >>> bids = g.events(nexmark.generate(events=0).bids, start="date_time")
        >>> live = bids.tumbling("1min").agg(n=g.count()).start(device="cpu")
        >>> for part in nexmark.batches(events=1000, size=100, rate=10):
        ...     live.push(part.bids)
        ...     live.advance(np.datetime64(part.cti, "us"))
        >>> live.results()["n"].to_pylist()
        [552]
    """
    return Generator(events, rate, seed, start).micro_batches(size)


def side_input(rows: int = 10_000, *, start: Instant = BASE_TIME) -> pa.Table:
    """The lookup table of query 13: a value for each key from 0 on, known from the start.

    Examples:
        >>> side_input(2).select(["key", "value"]).to_pylist()
        [{'key': 0, 'value': 'value 0'}, {'key': 1, 'value': 'value 1'}]
    """
    whole(rows, name="rows", least=0, most=_MOST_EVENTS)
    since = pa.repeat(pa.scalar(instant(start, name="start")).cast(TIME_TYPE), rows)
    values = pa.array([f"value {key}" for key in range(rows)], pa.string())
    return pa.table({"key": pa.array(range(rows), pa.int64()), "value": values, "date_time": since})


def _before(event: int, offset: int, share: int) -> int:
    """The number of events of a kind before an event."""
    return event // _EVERY * share + min(max(event % _EVERY - offset, 0), share)


def _horizon(rate: int) -> int:
    """The time in which as many auctions arrive as are open at once, in ticks."""
    return max(RECENT_AUCTIONS * _EVERY * 1_000_000 // (_SHARES["auctions"][1] * rate), 1)


# Columns. Each draw of an event has a number; a text takes several draws.

_FIRST_NAMES = ("Ada", "Bruno", "Clara", "David", "Emil", "Frida", "Gustav", "Hanna", "Ida", "Jonas", "Klara", "Leo")
_LAST_NAMES = ("Adler", "Berger", "Conrad", "Dorn", "Egger", "Fuchs", "Gruber", "Huber", "Jung", "Kern", "Lang")
_NAMES = tuple(f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES)
_PLACES = (
    *(("AZ", city) for city in ("Mesa", "Phoenix", "Tucson")),
    *(("CA", city) for city in ("Fresno", "Los Angeles", "San Francisco")),
    *(("ID", city) for city in ("Boise", "Moscow", "Nampa")),
    *(("OR", city) for city in ("Bend", "Portland", "Salem")),
    *(("WA", city) for city in ("Kent", "Redmond", "Seattle")),
    *(("WY", city) for city in ("Casper", "Cheyenne", "Laramie")),
)

_CHANNELS = 10_000
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

_EMAIL = np.frombuffer(b"       @     .com", np.uint8)


def _times(generator: Generator, numbers: Integers) -> Integers:
    return numbers * 1_000_000 // generator.rate + instant(generator.start)


def _timestamps(ticks: Integers) -> Any:
    return pa.array(ticks).view(TIME_TYPE)


def _recent(drawn: Numbers, newest: Integers, many: int) -> Integers:
    """One of the latest ones; of all while there are few."""
    return newest - draws.below(drawn, np.minimum(newest + 1, many))


def _hot(drawn: Numbers, ratio: int) -> Any:
    """True for the hot one: all but one in ``ratio``. It uses the bits that `draws.below` ignores."""
    return (drawn & np.uint64(0xFFFFFFFF)) % np.uint64(ratio) != 0


def _persons(generator: Generator, key: np.uint64, numbers: Integers) -> list[Any]:
    email = np.tile(_EMAIL, (len(numbers), 1))
    email[:, ord(" ") == _EMAIL] = draws.letters(key, numbers, 2, 12)
    card = np.full((len(numbers), 19), ord(" "), np.uint8)
    card[:, [at for at in range(19) if at % 5 != 4]] = draws.digits(key, numbers, 3, 16)
    place = pa.array(draws.below(draws.numbers(key, numbers, 1), len(_PLACES)))
    states, cities = zip(*_PLACES, strict=True)
    return [
        pa.array(numbers // _EVERY + FIRST_ID),
        pa.array(_NAMES).take(pa.array(draws.below(draws.numbers(key, numbers, 0), len(_NAMES)))),
        draws.texts(email),
        draws.texts(card),
        pa.array(cities).take(place),
        pa.array(states).take(place),
        _timestamps(_times(generator, numbers)),
        draws.texts(draws.letters(key, numbers, 5, 128)),
    ]


def _auctions(generator: Generator, key: np.uint64, numbers: Integers) -> list[Any]:
    newest = numbers // _EVERY
    drawn = draws.numbers(key, numbers, 0)
    hot = newest // HOT_EVERY * HOT_EVERY
    seller = np.where(_hot(drawn, HOT_SELLER), hot, _recent(drawn, newest, ACTIVE_PERSONS))
    initial = draws.prices(draws.numbers(key, numbers, 1))
    opened = _times(generator, numbers)
    lasts = draws.below(draws.numbers(key, numbers, 3), 2 * _horizon(generator.rate)) + 1
    return [
        pa.array(newest * _SHARES["auctions"][1] + numbers % _EVERY - 1 + FIRST_ID),
        draws.texts(draws.letters(key, numbers, 5, 16)),
        draws.texts(draws.letters(key, numbers, 6, 64)),
        pa.array(initial),
        pa.array(initial + draws.prices(draws.numbers(key, numbers, 2))),
        _timestamps(opened),
        _timestamps(opened + lasts),
        pa.array(seller + FIRST_ID),
        pa.array(draws.below(draws.numbers(key, numbers, 4), CATEGORIES) + FIRST_CATEGORY),
        draws.texts(draws.letters(key, numbers, 10, 368)),
    ]


def _bids(generator: Generator, key: np.uint64, numbers: Integers) -> list[Any]:
    epoch = numbers // _EVERY
    newest = (epoch + 1) * _SHARES["auctions"][1] - 1
    drawn = draws.numbers(key, numbers, 0)
    hot = newest // HOT_EVERY * HOT_EVERY
    auction = np.where(_hot(drawn, HOT_AUCTION), hot, _recent(drawn, newest, RECENT_AUCTIONS))
    drawn = draws.numbers(key, numbers, 1)
    # The second of each hundred, so that the hot bidder is not the hot seller; before it arrives, the previous person.
    hot = np.maximum((epoch - 1) // HOT_EVERY * HOT_EVERY + 1, 0)
    bidder = np.where(_hot(drawn, HOT_BIDDER), hot, _recent(drawn, epoch, ACTIVE_PERSONS))
    names, urls = _channels()
    drawn = draws.numbers(key, numbers, 3)
    cold = draws.below(drawn, _CHANNELS) + len(_HOT_CHANNELS)
    channel = pa.array(np.where(_hot(drawn, 2), draws.below(drawn, len(_HOT_CHANNELS)), cold))
    return [
        pa.array(auction + FIRST_ID),
        pa.array(bidder + FIRST_ID),
        pa.array(draws.prices(draws.numbers(key, numbers, 2))),
        names.take(channel),
        urls.take(channel),
        _timestamps(_times(generator, numbers)),
        draws.texts(draws.letters(key, numbers, 4, 64)),
    ]


@lru_cache(maxsize=1)
def _channels() -> tuple[Any, Any]:
    """Names and URLs of channels, hot channels first. Nine in ten of the others have their number in the URL."""
    names = [*_HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))]
    folders = draws.letters(draws.key(0), np.arange(len(names)), 0, 15)
    urls = []
    for number, row in enumerate(folders):
        folder = bytes(row).decode()
        own = number - len(_HOT_CHANNELS)
        said = f"&channel_id={own * 7_919_993 % 2**31}" if own >= 0 and own % 10 else ""
        urls.append(f"https://auction.example/{folder[:5]}/{folder[5:10]}/{folder[10:]}/item.htm?query=1{said}")
    return pa.array(names), pa.array(urls)


_MAKERS = {"persons": _persons, "auctions": _auctions, "bids": _bids}
