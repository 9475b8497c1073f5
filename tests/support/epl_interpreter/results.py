"""From what enters and leaves to rows: the kinds of queries, and what each of them outputs at an output rate.

There are five kinds (and rollups, which are groups on several levels). All of them get the rows of their input, each of
which is a tuple of events, and make rows of output of it: new ones of what enters, old ones of what leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gpu_ops.epl import queries as q
from tests.support.epl_interpreter.aggregates import Aggregation, Key, keys_of
from tests.support.epl_interpreter.values import Events, MakeScope, Scope, holds

Change = tuple[list[Events], list[Events]]
"""What enters and what leaves at once."""


@dataclass(eq=False)
class Row:
    """A row of output, and what it is sorted by."""

    values: dict[str, Any]
    order: tuple[Any, ...]


Rows = tuple[list[Row], list[Row]]
"""New rows and old rows."""

Pair = tuple[list[Row] | None, list[Row] | None]
"""New rows and old rows; None where there are none."""


class Polled(Protocol):
    """When a group outputs its first row again."""

    def passes(self, new: int, old: int) -> bool:
        """Whether it does now, when so many of its events enter and leave."""


@dataclass
class Selection:
    """What a statement makes of rows.

    Attributes:
        scope: What the expressions of a row are about: its events, whether it is new, its group and the level of that.
        row: Makes a row of output.
        having: The condition for rows.
        sort: Puts rows in the order of a delivery, and cuts them off there.
        aggregation: The aggregates.
        selects_old: Whether old rows are asked for.
        is_unidirectional: Whether aggregates begin anew with each change.
        sorted: Whether there is an order.
        polled: Makes what tells when a group outputs again.
    """

    scope: MakeScope
    row: Callable[[Scope], Row]
    having: Any
    sort: Callable[[list[Row]], list[Row]]
    aggregation: Aggregation
    selects_old: bool
    is_unidirectional: bool
    sorted: bool
    polled: Callable[[], Polled]


class Results:
    """One kind of query.

    At an output rate, changes come one after another by `take_each`, `take_last` or `take_all`, and at the end of an
    interval the method `end_` of the same name gives its rows. They come as they happen, or at the end of the interval
    only: then iterators see aggregates as they were at the end of the one before.
    """

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self._new: list[Row] = []
        self._old: list[Row] = []
        self._is_idle = True

    # What each kind says

    def changed(self, new: list[Events], old: list[Events]) -> Rows:
        """The rows of one change, and aggregates up to date."""
        raise NotImplementedError

    def held(self, content: list[Events]) -> list[Row]:
        """The rows of what is there."""
        raise NotImplementedError

    def take_each(self, new: list[Events], old: list[Events]) -> None:
        """A change, whose rows are all output."""
        entering, leaving = self.changed(new, old)
        self._new += entering
        self._old += leaving
        self._is_idle = False

    def end_each(self) -> Rows:
        """The rows of all changes, one after another."""
        rows, self._new, self._old, self._is_idle = (self._new, self._old), [], [], True
        return rows

    def take_last(self, new: list[Events], old: list[Events]) -> None:
        """A change, of which the last row may be output."""
        self.take_each(new, old)

    def end_last(self) -> Rows:
        """The last row that is new, and the last old one."""
        new, old = self.end_each()
        return new[-1:], old[-1:]

    def take_all(self, new: list[Events], old: list[Events]) -> None:
        """A change, whose rows are output, and those of other groups."""
        self.take_each(new, old)

    def end_all(self) -> Rows:
        """The rows of all changes, and what else belongs to all."""
        return self.end_each()

    def first_of(self, new: list[Events], old: list[Events]) -> Rows:
        """The rows that are output of one change, where each group outputs its first one."""
        raise NotImplementedError("output first of such a query")

    # What all kinds share

    def pair(self, rows: Rows) -> Pair:
        """Rows as they are delivered: sorted, and None for none."""
        new, old = (self.selection.sort(each) or None for each in rows)
        return new, old

    def iterate(self, content: list[Events]) -> list[Row]:
        """The rows of what is there, as they are delivered."""
        return self.selection.sort(self.held(content))

    def apply(self, new: list[Events], old: list[Events]) -> None:
        """Bring aggregates up to date."""
        self._begin()
        self._apply_begun(new, old)

    def _begin(self) -> None:
        if self.selection.is_unidirectional:
            self.selection.aggregation.clear()

    def _apply_begun(self, new: list[Events], old: list[Events]) -> None:
        for events in new:
            self.selection.aggregation.enter(events)
        for events in old:
            self.selection.aggregation.leave(events)

    def _rows(self, inputs: Sequence[Events], *, is_new: bool) -> list[Row]:
        """A row of each of these that the having clause lets through."""
        rows = (self._row(events, is_new=is_new) for events in inputs)
        return [row for row in rows if row is not None]

    def _row(self, events: Events, *, is_new: bool, group: Key | None = None, level: int = 0) -> Row | None:
        scope = self.selection.scope(events, is_new=is_new, group=group, level=level)
        return self.selection.row(scope) if holds(self.selection.having, scope) else None

    def _if_asked(self, make: Callable[[], list[Row]]) -> list[Row]:
        """Old rows, if there are any to be."""
        return make() if self.selection.selects_old else []


class Plain(Results):
    """No aggregates and no groups: a row of each event. At an output rate rows are made at the end of the interval."""

    def __init__(self, selection: Selection) -> None:
        super().__init__(selection)
        self._changes: list[Change] = []

    def changed(self, new: list[Events], old: list[Events]) -> Rows:
        return self._rows(new, is_new=True), self._if_asked(lambda: self._rows(old, is_new=False))

    def held(self, content: list[Events]) -> list[Row]:
        return self._rows(content, is_new=True)

    def take_each(self, new: list[Events], old: list[Events]) -> None:
        self._changes.append((new, old))

    def end_each(self) -> Rows:
        for change in self._changes:
            super().take_each(*change)
        self._changes = []
        return super().end_each()


class RowForAll(Results):
    """Only aggregates, no groups: one row for all."""

    def __init__(self, selection: Selection) -> None:
        super().__init__(selection)
        self._before: list[Row] = []

    def _one(self, *, is_new: bool) -> list[Row]:
        row = self._row((), is_new=is_new)
        return [] if row is None else [row]

    def _one_before(self) -> list[Row]:
        return self._if_asked(lambda: self._one(is_new=False))

    def changed(self, new: list[Events], old: list[Events]) -> Rows:
        self._begin()
        before = self._one_before()
        self._apply_begun(new, old)
        return self._one(is_new=True), before

    def held(self, content: list[Events]) -> list[Row]:
        return self._one(is_new=True)

    def end_each(self) -> Rows:
        """An interval without changes has the row as it is, as new and as old one."""
        if self._is_idle:
            return self._one(is_new=True), self._one_before()
        return super().end_each()

    def end_all(self) -> Rows:
        """Where the having clause let no row through, the row as it is counts, if it passes now."""
        new, old = super().end_each()
        return new or self._one(is_new=True), old or self._one_before()

    def take_last(self, new: list[Events], old: list[Events]) -> None:
        self._begin()
        self._before = self._before or self._one_before()
        self._apply_begun(new, old)

    def end_last(self) -> Rows:
        """The row at the end, and the first one before a change that the having clause let through."""
        before, self._before = self._before or self._one_before(), []
        return self._one(is_new=True), before


class RowPerEvent(Results):
    """Aggregates and others, no groups: a row of each event, with what the aggregates say when all is done."""

    def changed(self, new: list[Events], old: list[Events]) -> Rows:
        self.apply(new, old)
        return self._rows(new, is_new=True), self._if_asked(lambda: self._rows(old, is_new=False))

    def held(self, content: list[Events]) -> list[Row]:
        return self._rows(content, is_new=True)


GroupName = tuple[int, Key]
"""A group: the number of its level, and its key."""


class _Grouped(Results):
    """Groups by keys, on one level or, for a rollup, on several."""

    def __init__(self, selection: Selection) -> None:
        super().__init__(selection)
        self._states: dict[GroupName, Polled] = {}

    def _groups_of(self, events: Events, *, is_new: bool) -> Iterator[GroupName]:
        """The groups of an event: one on each level."""
        scope = self.selection.scope(events, is_new=is_new)
        for level, keys in enumerate(self.selection.aggregation.levels):
            yield level, keys_of(keys, scope)

    def _polled(self, group: GroupName) -> Polled:
        if group not in self._states:
            self._states[group] = self.selection.polled()
        return self._states[group]

    def _group_row(self, group: GroupName, events: Events, *, is_new: bool) -> list[Row]:
        row = self._row(events, is_new=is_new, group=group[1], level=group[0])
        return [] if row is None else [row]

    def _group_rows(self, groups: dict[GroupName, Events], *, is_new: bool) -> list[Row]:
        """A row of each group, of the finest level first."""
        by_level = sorted(groups.items(), key=lambda pair: pair[0][0])
        return [row for group, events in by_level for row in self._group_row(group, events, is_new=is_new)]

    def _passes(self, group: GroupName, events: Events, *, is_new: bool) -> bool:
        return holds(self.selection.having, self.selection.scope(events, is_new=is_new, group=group[1], level=group[0]))


class RowPerGroup(_Grouped):
    """Keys and aggregates: a row of each group that an event enters or leaves, and its row before."""

    def __init__(self, selection: Selection, *, keeps_groups: bool) -> None:
        super().__init__(selection)
        self._keeps_groups = keeps_groups
        self._is_rollup = len(selection.aggregation.levels) > 1
        self._ever: dict[GroupName, Events] = {}
        self._touched: dict[GroupName, Events] = {}
        self._before: dict[GroupName, list[Row]] = {}
        self._begins = True

    def _groups_in(self, new: Sequence[Events], old: Sequence[Events]) -> dict[GroupName, Events]:
        found: dict[GroupName, Events] = {}
        for is_new, inputs in ((True, new), (False, old)):
            for events in inputs:
                for group in self._groups_of(events, is_new=is_new):
                    found[group] = events
        return found

    def _apply_begun(self, new: list[Events], old: list[Events]) -> None:
        self._ever |= self._groups_in(new, [])
        super()._apply_begun(new, old)

    def changed(self, new: list[Events], old: list[Events]) -> Rows:
        self._begin()
        groups = self._groups_in(new, old)
        before = self._if_asked(lambda: self._group_rows(groups, is_new=False))
        self._apply_begun(new, old)
        return self._group_rows(groups, is_new=True), before

    def held(self, content: list[Events]) -> list[Row]:
        """Without a window, all groups that there have been, if the statement keeps them."""
        if self._keeps_groups:
            return self._group_rows(self._ever, is_new=True)
        found: dict[GroupName, Events] = {}
        for events in content:
            for group in self._groups_of(events, is_new=True):
                found.setdefault(group, events)
        return self._group_rows(found, is_new=True)

    def _keep_before(self, group: GroupName, events: Events, *, again: bool = False) -> None:
        """The row of a group before the first event of an interval.

        If it is to be looked at again, and the having clause did not let it through, it is the row before this event.
        """
        if group not in self._before or (again and not self._before[group]):
            self._before[group] = self._if_asked(lambda: self._group_row(group, events, is_new=False))

    def _old_rows(self) -> list[Row]:
        by_level = sorted(self._before.items(), key=lambda pair: pair[0][0])
        self._before = {}
        return [row for _, rows in by_level for row in rows]

    def _apply_one(self, events: Events, *, is_new: bool) -> None:
        aggregation = self.selection.aggregation
        (aggregation.enter if is_new else aggregation.leave)(events)

    def take_last(self, new: list[Events], old: list[Events]) -> None:
        # Esper's rollups look again, its plain groups do not; where all groups are output it is the other way round.
        self._take(new, old, again=self._is_rollup and not self.selection.sorted)

    def _take(self, new: list[Events], old: list[Events], *, again: bool) -> None:
        self._begin()
        for is_new, inputs in ((True, new), (False, old)):
            for events in inputs:
                for group in self._groups_of(events, is_new=is_new):
                    self._keep_before(group, events, again=again)
                    self._touched[group] = events
                self._apply_one(events, is_new=is_new)

    def end_last(self) -> Rows:
        """A row of each group that has changed, and its row before the first change."""
        touched, self._touched = self._touched, {}
        return self._group_rows(touched, is_new=True), self._old_rows()

    def take_all(self, new: list[Events], old: list[Events]) -> None:
        self._keep_all_before()
        self._take(new, old, again=not self._is_rollup and not self.selection.sorted)
        self._ever |= self._touched
        self._touched = {}

    def end_all(self) -> Rows:
        """A row of every group that there has ever been, and its row before the first change."""
        self._keep_all_before()
        self._begins = True
        return self._group_rows(self._ever, is_new=True), self._old_rows()

    def _keep_all_before(self) -> None:
        if self._begins:
            for group, events in self._ever.items():
                self._keep_before(group, events)
        self._begins = False

    def first_of(self, new: list[Events], old: list[Events]) -> Rows:
        """Each group outputs by itself. Where there is a having clause its row before is as it is afterwards."""
        has_having = self.selection.having is not None
        if has_having:
            self.apply(new, old)
        for is_new, inputs in ((True, new), (False, old)):
            for events in inputs:
                for group in self._groups_of(events, is_new=is_new):
                    if has_having and not self._passes(group, events, is_new=is_new):
                        continue
                    counts_as_new = is_new or self._is_rollup
                    if self._polled(group).passes(int(counts_as_new), int(not counts_as_new)):
                        self._keep_before(group, events)
                        self._touched[group] = events
                if not has_having:
                    self._apply_one(events, is_new=is_new)
        return self.end_last()


class AggregatedPerEvent(_Grouped):
    """Groups, and others beside keys and aggregates: a row of each event, with what its group's aggregates then say."""

    def __init__(self, selection: Selection) -> None:
        super().__init__(selection)
        self._ever: dict[GroupName, Events] = {}
        self._seen: set[GroupName] = set()
        self._last_new: dict[GroupName, list[Row]] = {}
        self._last_old: dict[GroupName, list[Row]] = {}

    def _group(self, events: Events, *, is_new: bool) -> GroupName:
        return next(self._groups_of(events, is_new=is_new))

    def _event_rows(self, inputs: Sequence[Events], *, is_new: bool) -> list[Row]:
        return [
            row
            for events in inputs
            for row in self._group_row(self._group(events, is_new=is_new), events, is_new=is_new)
        ]

    def changed(self, new: list[Events], old: list[Events]) -> Rows:
        self.apply(new, old)
        return self._event_rows(new, is_new=True), self._if_asked(lambda: self._event_rows(old, is_new=False))

    def held(self, content: list[Events]) -> list[Row]:
        return self._event_rows(content, is_new=True)

    def take_last(self, new: list[Events], old: list[Events]) -> None:
        self.apply(new, old)
        for is_new, inputs, last in ((True, new, self._last_new), (False, old, self._last_old)):
            for events in inputs if is_new or self.selection.selects_old else ():
                group = self._group(events, is_new=is_new)
                if rows := self._group_row(group, events, is_new=is_new):
                    last[group] = rows

    def end_last(self) -> Rows:
        """The last new row of each group, and its last old one."""
        new, old = ([row for rows in last.values() for row in rows] for last in (self._last_new, self._last_old))
        self._last_new, self._last_old = {}, {}
        return new, old

    def take_all(self, new: list[Events], old: list[Events]) -> None:
        """Without an order, a change also has a new row of each group that an event leaves."""
        self.take_each(new, old)
        for events in new:
            self._ever[self._group(events, is_new=True)] = events
            self._seen.add(self._group(events, is_new=True))
        left = dict.fromkeys(self._group(events, is_new=False) for events in old)
        if not self.selection.sorted:
            self._seen |= left.keys()
            for group in left:
                self._new += self._group_row(group, self._ever[group], is_new=True)

    def end_all(self) -> Rows:
        """The rows of all changes, and one of each group that had none."""
        for group, events in self._ever.items():
            if group not in self._seen:
                self._new += self._group_row(group, events, is_new=True)
        self._seen = set()
        return self.end_each()

    def first_of(self, new: list[Events], old: list[Events]) -> Rows:
        """What leaves a group may be its first row, and is a new one nevertheless. There are no old ones."""
        chosen: dict[GroupName, Events] = {}
        has_having = self.selection.having is not None
        if has_having:
            self.apply(new, old)
        for is_new, inputs in ((True, new), (False, old)):
            for events in inputs:
                group = self._group(events, is_new=is_new)
                if has_having and not self._passes(group, events, is_new=is_new):
                    continue
                if self._polled(group).passes(int(is_new), int(not is_new)):
                    chosen[group] = events
                if not has_having:
                    aggregation = self.selection.aggregation
                    (aggregation.enter if is_new else aggregation.leave)(events)
        return self._group_rows(chosen, is_new=False), []


def levels_of(groups: Sequence[q.Grouping]) -> list[tuple[Any, ...]]:
    """The keys of each level that a group by clause has, the finest first; one level only without a rollup."""
    levels: list[tuple[Any, ...]] = [()]
    for each in groups:
        levels = [_joined(before, more) for before in levels for more in _levels(each)]
    return levels


def _levels(each: q.Grouping) -> list[tuple[Any, ...]]:
    if isinstance(each, q.GroupingKeys):
        return [each.keys]
    if not isinstance(each, q.GroupingSets):
        return [(each,)]
    if each.kind == "grouping sets":
        return [level for item in each.items for level in _levels(item)]
    keys = [item.keys if isinstance(item, q.GroupingKeys) else (item,) for item in each.items]
    if each.kind == "rollup":
        return [sum(keys[:count], ()) for count in range(len(keys), -1, -1)]
    return [
        sum((key for at, key in enumerate(keys) if not left_out >> (len(keys) - 1 - at) & 1), ())
        for left_out in range(2 ** len(keys))
    ]


def _joined(before: tuple[Any, ...], more: tuple[Any, ...]) -> tuple[Any, ...]:
    return before + tuple(key for key in more if key not in before)
