"""By which columns a plan on turns can be split among tasks, each of which sees the rows of its own keys alone.

A turn has its number wherever it is computed: what a task needs to know of other tasks' rows is when the clock moved.
Each node says of itself what it needs together, given what the nodes below it need.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

from gpu_ops.errors import PlanError

Key = frozenset[tuple[int, str]]
"""A column of each of some streams of a ledger, by their numbers: rows in which these are equal are in one task."""


_BY_KEY = "Give it a key (by, groupwin, group by), or collect the frame first: g.events(frame.toArrow(), …)."


def one_order(what: str, remedy: str = _BY_KEY) -> PlanError:
    """The error for what no task can compute without the rows of all others.

    Args:
        what: What that is, as the subject of a sentence.
        remedy: What helps.
    """
    return PlanError(
        f"{what} needs all events in one order, and Spark shares them out among tasks by keys.",
        remedy=remedy,
    )


@dataclass(frozen=True)
class Split:
    """How a node's rows may be split among tasks, such that each task makes its part of them.

    Attributes:
        streams: The numbers of the streams that the rows come from.
        columns: For each column that is a column of these streams, unchanged, the keys that it is.
        keys: The keys by which rows may be split, by one or by several; None for any way, as no row needs another.
        spans: A task must see the first moves of the clock to these many ticks, or more, after what it showed at each
            of the task's arrivals; None for all moves.
        arrive: Whether rows come as they arrive, and not when something makes them.
    """

    streams: frozenset[int] = frozenset()
    columns: Mapping[str, frozenset[Key]] = field(default_factory=dict)
    keys: frozenset[Key] | None = None
    spans: frozenset[int] | None = frozenset()
    arrive: bool = False

    @classmethod
    def of_stream(cls, number: int, names: Iterable[str]) -> Split:
        """Events as they arrive.

        Examples:
            >>> events = Split.of_stream(0, ["account", "amount"])
            >>> [sorted(key) for key in events.by(["account"], "The window").keys]
            [[(0, 'account')]]
        """
        columns = {name: frozenset({Key({(number, name)})}) for name in names}
        return cls(frozenset({number}), columns, arrive=True)

    def by(self, names: Iterable[str], what: str) -> Split:
        """The same where rows that are equal in some columns are needed together.

        Args:
            names: The columns.
            what: What needs them, for an error.

        Raises:
            PlanError: None of them is a key of all that is below.
        """
        found = frozenset(key for name in names for key in self.columns.get(name, ()))
        keys = found if self.keys is None else found & self.keys
        if not keys:
            raise one_order(what)
        return replace(self, keys=keys)

    def seeing(self, span: int | None) -> Split:
        """The same where tasks see moves of the clock: those past a span after arrivals; None for all."""
        spans = None if span is None or self.spans is None or not self.arrive else self.spans | {span}
        return replace(self, spans=spans)

    def picked(self, names: Mapping[str, str]) -> Split:
        """The same rows with some columns, given from new names to old ones."""
        known = self.columns
        return replace(self, columns={new: known[old] for new, old in names.items() if old in known})

    def made(self) -> Split:
        """Rows that are made of these, at any time."""
        return replace(self, arrive=False)

    def _takes(self, key: Key) -> bool:
        """Whether rows may be split by the part of a key that is about their streams."""
        own = Key((number, name) for number, name in key if number in self.streams)
        return {number for number, _ in own} == self.streams and (self.keys is None or own in self.keys)


def _one_each(key: Key) -> bool:
    """Whether a key has no two columns of a stream."""
    return len({number for number, _ in key}) == len(key)


def _seen(splits: Sequence[Split]) -> frozenset[int] | None:
    """The moves of the clock that any of some nodes needs."""
    found: frozenset[int] = frozenset()
    for each in splits:
        if each.spans is None:
            return None
        found |= each.spans
    return found


def united(parts: Sequence[Split], what: str) -> Split:
    """Rows of several nodes that have the same columns.

    Raises:
        PlanError: They share no key.
    """
    streams = frozenset(number for each in parts for number in each.streams)
    columns = {}
    for name in parts[0].columns:
        ways = product(*(each.columns.get(name, ()) for each in parts))
        columns[name] = frozenset(key for way in ways if _one_each(key := Key(pair for part in way for pair in part)))
    keys = None
    if any(each.keys is not None for each in parts):
        known = [key for found in (*columns.values(), *(each.keys or () for each in parts)) for key in found]
        keys = frozenset(key for key in known if all(each._takes(key) for each in parts))  # noqa: SLF001  (its own kind)
        if not keys:
            raise one_order(what)
    return Split(streams, columns, keys, _seen(parts), all(each.arrive for each in parts))


def matched(
    one: Split,
    other: Split,
    pairs: Iterable[tuple[str, str]],
    what: str,
    known: tuple[Collection[str], Collection[str]],
) -> Split:
    """Rows of two nodes that meet where pairs of columns are equal.

    Args:
        one: The first node.
        other: The second one.
        pairs: The pairs, a column of each.
        what: What matches them, for an error.
        known: The columns of each that are never null in place of what a row has.

    Raises:
        PlanError: No pair is a key of both.
    """
    found = (a | b for left, right in pairs for a in one.columns.get(left, ()) for b in other.columns.get(right, ()))
    keys = frozenset(
        key
        for key in found
        if _one_each(key) and one._takes(key) and other._takes(key)  # noqa: SLF001  (its own kind)
    )
    if not keys:
        raise one_order(what)
    columns = {}
    for side, names in zip((one, other), known, strict=True):
        for name in names:
            wider = frozenset(key for key in keys if any(part <= key for part in side.columns.get(name, ())))
            if wider:
                columns[name] = wider
    return Split(one.streams | other.streams, columns, keys, _seen([one, other]))
