"""What holds for the tables of a pattern's machine: the kernels follow every number in them, and check none.

Instances are a tree by themselves, as a node stands behind its parent among the nodes. Entries link back, to such as
were made before them; what children of `and` found links on, and each is in one list. So nothing goes in circles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_tables import MANY, RowRule
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices.cpu import patterns as m
from gpu_ops.operators.patterns.tables import PatternTables
from gpu_ops.plan import patterns as p

ENTRIES = ("what", "a", "b", "link")
INSTANCES = ("node", "sequence", "parent", "begin", "p", "q", "r", "s", "seen")

ENDED = (0, 0, -1, -1, -1, -1, 0, 0, -1)
"""What is written of an instance that has ended; the next one takes its place."""

_NOTHING = -1
_MATCH = (_NOTHING, m.ROW, m.ROWS)
"""The kinds of the first entry of a match; it may have none."""

# For each kind of entry those that it may link to, and those that `b` may name.
_LINKS = {m.ROW: _MATCH, m.ROWS: _MATCH, m.ELEMENT: (_NOTHING, m.ELEMENT), m.FOUND: (_NOTHING, m.FOUND)}
_LINKS[m.KEY] = (_NOTHING, m.KEY)
_NAMES = {m.ROWS: (m.ELEMENT,), m.FOUND: _MATCH, m.KEY: _MATCH}

_ANY = (-(1 << 63), (1 << 63) - 1)
_NONE = (0, 0)


def columns_of(table: pa.Table, names: Sequence[str]) -> list[Any]:
    """Some columns, int64."""
    return [table[name].to_numpy().astype(np.int64, copy=False) for name in names]


class SoundEntries:
    """The rules of entries.

    Args:
        static: The static tables.
        repeated: For each tag, whether it is a list.
        rows: For each stream how many rows there are.
    """

    def __init__(self, static: PatternTables, repeated: Sequence[bool], rows: Sequence[int]) -> None:
        # One more of each stands for what is no tag: it has no rows.
        self._streams = np.append(static.tag_streams, len(rows))
        self._repeated, self._rows = np.array([*repeated, False]), np.array([*rows, 0])

    @property
    def rules(self) -> tuple[RowRule, ...]:
        """Each relies on those before it."""
        return (
            RowRule("link", "is no entry that it may be linked to", self._is_linked),
            RowRule("b", "is no entry that it may name", self._names_entry),
            RowRule("a", "is no such tag or number", self._is_numbered),
            RowRule("b", "is no row of its stream", self._names_row),
        )

    def _is_linked(self, table: pa.Table) -> Any:
        what, link = columns_of(table, ("what", "link"))
        own = np.arange(len(what))
        in_order = np.where(what == m.FOUND, (link < 0) | (link > own), link < own)
        return in_order & _fits(what, _kinds_at(what, link), _LINKS)

    def _names_entry(self, table: pa.Table) -> Any:
        what, b = columns_of(table, ("what", "b"))
        names = np.isin(what, list(_NAMES))
        inside = (b >= -1) & (b < np.arange(len(what)))
        return ~names | (inside & _fits(what, _kinds_at(what, np.where(inside, b, -1)), _NAMES))

    def _is_numbered(self, table: pa.Table) -> Any:
        what, a, link = columns_of(table, ("what", "a", "link"))
        tag, before = self._tags(a), np.append(a, -1)[link]
        return np.select(
            [what == m.ROW, what == m.ROWS, what == m.ELEMENT, what == m.FOUND],
            [tag == a, self._repeated[tag], (a >= 0) & (before == a - 1), (a >= 0) & (a < p.MOST_CHILDREN)],
            True,
        )

    def _tags(self, a: Any) -> Any:
        none = len(self._streams) - 1
        return np.where((a >= 0) & (a < none), a, none)

    def _names_row(self, table: pa.Table) -> Any:
        """All elements of a list are rows of its tag's stream, and a list is one tag's."""
        what, a, b, link = columns_of(table, ENTRIES)
        first, _ = last_links(np.where(what == m.ELEMENT, link, -1))
        lists, none = what == m.ROWS, np.full(len(what), -1)
        least, most = none + len(self._streams) + 1, none.copy()
        np.minimum.at(least, first[b[lists]], a[lists])
        np.maximum.at(most, first[b[lists]], a[lists])
        is_row, is_element = what == m.ROW, what == m.ELEMENT
        tag = self._tags(np.where(is_row, a, np.where(least == most, most, -1)[first]))
        inside = (b >= 0) & (b < self._rows[self._streams[tag]])
        return ~(is_row | is_element) | inside


class SoundInstances:
    """The rules of instances.

    Args:
        static: The static tables.
        entries: The entries, which are sound.
        counter: How many instances and due times there were.
    """

    def __init__(self, static: PatternTables, entries: pa.Table, counter: int) -> None:
        self._nodes = static.nodes
        self._what, self._a, _, self._link = columns_of(entries, ENTRIES)
        bounds = [self._node_bounds(static, row, counter) for row in static.nodes]
        self._bounds = np.array(bounds, np.int64).reshape(-1, 4, 2)
        self._tags = np.diff(static.tag_bounds)

    def _node_bounds(self, static: PatternTables, row: Any, counter: int) -> Sequence[tuple[int, int]]:
        """The least and the greatest number in the four columns whose meaning is a node's own."""
        entry = (-1, len(self._what) - 1)
        match int(row[m.KIND]):
            case m.ATOM:
                waits_for_key = static.atoms[row[m.ARGUMENT], m.THEIRS] >= 0
                # Chains are made anew.
                return _ANY if waits_for_key else _NONE, _ANY, _ANY, (0, 1)
            case m.EVERY | m.DISTINCT:
                return (0, counter), (0, 1), _NONE, _NONE
            case m.BOTH:
                return entry, entry, (0, (1 << int(row[m.CHILDREN])) - 1), _NONE
            case m.EITHER:
                return (-1, -1), (-1, -1), _NONE, _NONE
            case m.UNTIL:
                low, high = ((-1, _ANY[1] if row[column] >= 0 else -1) for column in (m.ARGUMENT, m.OTHER))
                return (0, MANY), entry, low, high
            case m.WITHIN_MAX:
                return (0, MANY), _ANY, _NONE, _NONE
            case m.TIMER:
                return (MIN_TIME, MAX_TIME), _NONE, _NONE, _NONE
        return _NONE, _NONE, _NONE, _NONE

    @property
    def rules(self) -> tuple[RowRule, ...]:
        """Each relies on those before it."""
        own = (RowRule(name, "is nothing that its node keeps", self._is_kept(at)) for at, name in enumerate("pqrs"))
        lasting = (
            RowRule("sequence", "is that of another instance too", _is_one),
            RowRule("parent", "is no instance of the parent of its node", self._has_parent),
            *own,
            RowRule("begin", "is no match", lambda table: self._is("begin", table, _MATCH)),
            RowRule("seen", "is no key", lambda table: self._is("seen", table, (_NOTHING, m.KEY))),
            RowRule("q", "is no list of the lists of a repeat", self._has_lists),
            RowRule("p", "is no list of what children found", self._has_found),
        )
        ended = RowRule("node", "is one of an instance that has ended, and keeps something", _keeps_nothing)
        return (ended, *(replace(each, holds=unless(_has_ended, each.holds)) for each in lasting))

    def _has_parent(self, table: pa.Table) -> Any:
        node, parent, sequence = columns_of(table, ("node", "parent", "sequence"))
        lasts = (parent < 0) | (sequence[parent] > 0)
        return lasts & (self._nodes[node, m.UP] == np.append(node, -1)[parent])

    def _is_kept(self, at: int) -> Any:
        def holds(table: pa.Table) -> Any:
            node, value = columns_of(table, ("node", "pqrs"[at]))
            return (value >= self._bounds[node, at, 0]) & (value <= self._bounds[node, at, 1])

        return holds

    def _is(self, name: str, table: pa.Table, kinds: Sequence[int]) -> Any:
        return np.isin(_kinds_at(self._what, columns_of(table, (name,))[0]), kinds)

    def _of(self, table: pa.Table, kind: int) -> Any:
        """The rows of the instances of nodes of a kind."""
        return np.flatnonzero(self._nodes[columns_of(table, ("node",))[0], m.KIND] == kind)

    def _has_lists(self, table: pa.Table) -> Any:
        """They are lists alone, and no more than the tags that are repeated: what copies them has room for those."""
        node, q = columns_of(table, ("node", "q"))
        mine = self._of(table, m.UNTIL)
        mine = mine[q[mine] >= 0]
        last, count = last_links(
            np.where((self._what == m.ROWS) & (_kinds_at(self._what, self._link) == m.ROWS), self._link, -1)
        )
        head = q[mine]
        good = (self._what[head] == m.ROWS) & (self._link[last[head]] < 0)
        good &= count[head] <= self._tags[self._nodes[node[mine], m.CHILD]]
        return _only(mine, good, len(node))

    def _has_found(self, table: pa.Table) -> Any:
        """Nothing that was found is in two lists; `q` is its last one, and `r` says which children found some."""
        node, first, end, bits = columns_of(table, ("node", "p", "q", "r"))
        mine = self._of(table, m.BOTH)
        some = mine[(first[mine] >= 0) & (end[mine] >= 0)]
        found = np.flatnonzero(self._what == m.FOUND)
        links = np.where(self._what == m.FOUND, self._link, -1)
        last, _ = last_links(links)
        children = np.zeros(len(links), np.int64)
        np.bitwise_or.at(children, last[found], np.int64(1) << self._a[found])
        good = np.ones(len(node), np.bool_)
        good[mine] = (first[mine] < 0) & (end[mine] < 0) & (bits[mine] == 0)
        good[some] = (self._what[first[some]] == m.FOUND) & (last[first[some]] == end[some])
        good[some] &= children[end[some]] == bits[some]
        named = np.bincount(np.concatenate([links[links >= 0], first[some]]), minlength=len(links))
        return good & bool((named[found] <= 1).all())


def _has_ended(table: pa.Table) -> Any:
    return columns_of(table, ("sequence",))[0] == 0


def _keeps_nothing(table: pa.Table) -> Any:
    own = np.stack(columns_of(table, INSTANCES), axis=1)
    return ~_has_ended(table) | (own == ENDED).all(axis=1)


def unless(excused: Callable[[pa.Table], Any], holds: Callable[[pa.Table], Any]) -> Callable[[pa.Table], Any]:
    """A rule that some rows need not follow."""
    return lambda table: excused(table) | holds(table)


def _is_one(table: pa.Table) -> Any:
    (sequence,) = columns_of(table, ("sequence",))
    _, first, times = np.unique(sequence, return_inverse=True, return_counts=True)
    return times[first] == 1


def last_links(links: Any) -> tuple[Any, Any]:
    """Where chains end.

    Args:
        links: int64: what each is linked to, or -1; they have no circles.

    Returns:
        (int64: the last one of the chain that begins with each; how many that chain has).

    Examples:
        >>> [each.tolist() for each in last_links(np.array([-1, 0, -1, 1]))]
        [[0, 0, 2, 0], [1, 2, 1, 3]]
    """
    own = np.arange(len(links))
    last, passed = np.where(links >= 0, links, own), (links >= 0).astype(np.int64)
    # Each round is twice as far.
    while (last[last] != last).any():
        passed, last = passed + passed[last], last[last]
    return last, passed + 1


def _kinds_at(what: Any, index: Any) -> Any:
    """The kinds of some entries; `_NOTHING` for -1."""
    return np.append(what, _NOTHING)[index]


def _fits(what: Any, others: Any, allowed: dict[int, tuple[int, ...]]) -> Any:
    """Whether the kinds of others are allowed for each kind."""
    fits = np.zeros((m.KEY + 1, m.KEY + 2), np.bool_)
    for kind, some in allowed.items():
        fits[kind, list(some)] = True
    return fits[what, others]


def _only(rows: Any, good: Any, count: int) -> Any:
    """True for all rows but some."""
    made = np.ones(count, np.bool_)
    made[rows] = good
    return made
