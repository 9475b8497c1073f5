"""Deliveries of each turn: new and old rows, the aggregates of their groups, and the content where it is asked for.

A step is cut at the places where content is asked for; each part is computed for all its turns at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts, StatePart, in_parts, whole
from gpu_ops.core.state_tables import Field, StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import (
    ASK,
    BATCH_DUE,
    CLOCK,
    DUE,
    EMPTY,
    ENTERED,
    HELD,
    IS_NEW,
    IS_OLD,
    LEFT,
    LEFT_FIRST,
    MARK,
    NEW,
    OLD,
    ORDER,
    PLACE,
)
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.changes import (
    UNKNOWN,
    Changes,
    Edges,
    arrived_in,
    between,
    changes_of,
    moved,
    no_changes,
    places_between,
)
from gpu_ops.operators.deliveries.firing import Firings, FiringTimes, TurnMarks
from gpu_ops.operators.deliveries.group_order import first_of_groups
from gpu_ops.operators.deliveries.held_changes import HeldChanges, Outputs
from gpu_ops.operators.deliveries.levels import GroupLevels
from gpu_ops.operators.deliveries.rows import of_kind
from gpu_ops.operators.deliveries.window_content import WindowContent
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, InParts, Operator, StepInput
from gpu_ops.operators.row_order import stable_order
from gpu_ops.plan.deliveries import Deliveries

_LEVEL = 2 * LEFT_FIRST
"""Rows of a coarser level come behind all of a finer one."""


class DeliveriesOperator(InParts, nodes=(Deliveries,)):
    """The deliveries of a statement.

    Args:
        node: The node.
        device: Where arrays live.
        at_once: Whether groups that nobody looks at until content is asked for are computed when it is, of the rows.
    """

    _node: Deliveries

    def __init__(self, node: Deliveries, device: Device, *, at_once: bool = True) -> None:
        super().__init__(node, device)
        schema = node.rows.schema
        self._levels = GroupLevels(node, device)
        self._values = self._levels.values
        self._times = None if node.snapshot is None else FiringTimes(node.snapshot, device)
        self._posts: Events | None = None  # those of the step
        asked = node.content or self._times is not None
        self._at_once = at_once and node.when_asked
        keeps = self._at_once or node.waiting is not None or (asked and node.per == "row")
        self._held = WindowContent(schema, device) if keeps else None
        self._since = HeldChanges(schema, device) if node.at_outputs else None
        self._clock, self._done = MIN_TIME, MIN_TIME
        others = node.aggregates or node.marks or node.snapshot or node.posts or DUE in node.schema.names
        self._one_by_one = node.per == "row" and not others

    def opens(self, at: int) -> bool:
        """It takes open rows, and whole ticks."""
        return at == 0 or (self._node.waiting is not None and at == len(self.inputs) - 1)

    def with_open(self) -> Operator | None:
        """Itself: it takes each row's enter and leave as they come."""
        return self

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The deliveries of all turns before the CTI."""
        cti, device = min(ctis), self._device
        ticks = concat(given[1].events, device)
        clocks = self._clocks(ticks)
        # Rows that are looked at one by one are not put together.
        fed = given[0]
        pieces = [fed] if not self._one_by_one else [StepInput(fed.events, fed.opened), StepInput(closed=fed.closed)]
        every = [changes_of(each, cti, device) for each in pieces]
        changes = every[0]
        posts = self._posts = concat(given[2].events, device) if self._node.posts is not None else None
        waiting = None if self._node.waiting is None else changes_of(given[-1], cti, device)
        made: list[Events] = []
        begin = self._done
        outputs = self._outputs(None if changes is None else self._passing(changes), ticks)
        by_output = [] if self._since is not None or outputs is None else _asks_of(outputs, device)
        for ask in [*sorted({*self._asked(ticks), *by_output}), None]:
            limit = cti if ask is None else ask.limit
            part = changes if ask is None and begin == self._done else between(changes, begin, limit)
            if waiting is not None and self._held is not None:
                waits = between(waiting, begin, limit)
                self._held.step(self._passing(waits if waits is not None else waiting))
            if self._one_by_one:
                made += self._single_rows([between(each, begin, limit) for each in every], clocks, ask)
            elif self._since is None:
                made += self._part(part, clocks, limit, ask, places_between(posts, begin, limit))
            else:
                made += self._output(part, clocks, outputs, begin, limit)
                made += [] if ask is None else self._looked(clocks, ask)
            begin = limit
        self._done = cti
        self._clock = int(clocks[1][-1])
        return StepInput(made), cti

    # What comes in

    def _clocks(self, ticks: Events | None) -> tuple[Any, Any]:
        """(int64 places, int64 clocks from there on), from the last step's clock on."""
        array = self._device.columns.array
        places, clocks = array(np.array([MIN_TIME])), array(np.array([self._clock]))
        if ticks is None or not len(ticks):
            return places, clocks
        values = self._device.columns.values(ticks.frame, CLOCK)[0]
        if CLOCK not in self._node.schema.names:
            last = int(ticks.start.argmax())
            return places, values[last : last + 1]
        order = np.argsort(ticks.start, kind="stable")
        return np.concatenate([places, ticks.start[order]]), np.concatenate([clocks, values[order]])

    def _asked(self, ticks: Events | None) -> list[_Ask]:
        """Where content is asked for, if it is given."""
        if ticks is None or not self._node.content:
            return []
        asks = self._device.columns.values(ticks.frame, ASK)[0].astype(np.bool_)
        places: list[int] = self._device.columns.host(ticks.start[asks]).tolist()
        return [_Ask(place + 1, place, HELD) for place in places]

    def _outputs(self, changes: Changes | None, ticks: Events | None) -> Outputs | None:
        """Where a rate outputs, with what happens there, unless that fell due later; None if no rate does."""
        if self._times is None:
            return None
        device = self._device
        none = device.columns.array(np.zeros(0, np.int64))
        at, clock = none, none
        if ticks is not None:
            moving = device.kernels.keep(device.columns.values(ticks.frame, ASK)[0] == 0)
            at, clock = ticks.start[moving], device.columns.values(ticks.frame, CLOCK)[0][moving]
            order = np.argsort(at, kind="stable")
            at, clock = at[order], clock[order]
        marks = TurnMarks(none, none, none)
        if changes is not None and self._times.reads_marks:
            marks = TurnMarks(*self._moved(changes, *self._delivered(changes)))
        firings = self._times.step(marks, (at, clock))
        place, limit = firings.place, firings.place + 1
        if changes is not None and len(place) and DUE in self._node.rows.schema.names:
            limit = limit - self._fell_later(changes, firings)
        return Outputs(place, limit)

    def _fell_later(self, changes: Changes, firings: Firings) -> Any:
        """bool: at which firings what enters or leaves there fell due later than the firing did."""
        columns = self._device.columns
        come, go = self._delivered(changes)
        due, valid = columns.values(self._due(firings.place, changes, come, go), DUE)
        return (due > firings.due) if valid is None else (due > firings.due) & valid

    def _passing(self, changes: Changes) -> Changes:
        """The changes of rows that pass."""
        if self._node.passes is None:
            return changes
        passes = self._device.columns.values(changes.frame, self._node.passes)[0] != 0
        return replace(changes, enters=changes.enters & passes, leaves=changes.leaves & passes)

    def _delivered(self, changes: Changes) -> tuple[Any, Any]:
        """int64 indices of the rows that are delivered as new ones, and of those delivered as old ones."""
        columns, keep = self._device.columns, self._device.kernels.keep
        if IS_NEW not in self._node.rows.schema.names:
            return keep(changes.enters), keep(changes.leaves)
        new, old = (columns.values(changes.frame, name)[0] != 0 for name in (IS_NEW, IS_OLD))
        return keep(changes.enters & new), keep(changes.leaves & old)

    # A part of a step

    def _part(
        self, changes: Changes | None, clocks: tuple[Any, Any], limit: int, ask: _Ask | None, posts: Any | None
    ) -> list[Events]:
        node = self._node
        if changes is None and ask is None and posts is None and limit != MAX_TIME:
            # At the end of time values of rows that are still in are dropped, though nothing comes.
            return []
        made: list[Events] = []
        whole = no_changes(self._node.rows.schema, self._device) if changes is None else changes
        changes = self._passing(whole)
        until = _until(limit) if ask is None else ask.until
        if self._held is not None and node.waiting is None:
            self._held.step(changes)
        if self._at_once:
            return [] if ask is None else self._asked_once(clocks, limit, ask)
        edges = self._step_values(whole, changes, until, forced=ask is not None or posts is not None)
        come, go = self._delivered(changes)
        if (len(come) or len(go)) and (node.new or node.old or node.marks) and self._times is None:
            if node.per == "group":
                made += self._by_group(changes, edges or Edges.of(changes, come, go, self._device))
            else:
                made += self._by_row(changes, come, go)
            if node.marks:
                made.append(self._marks(changes, come, go))
        if posts is not None and self._times is None:
            made += self._posted(posts, changes, come, go)
        if ask is not None:
            made += self._content(ask)
        for values in self._values:
            values.rest()
        return [self._finished(each, clocks, changes, come, go) for each in made]

    def _single_rows(self, pieces: Sequence[Changes | None], clocks: tuple[Any, Any], ask: _Ask | None) -> list[Events]:
        """A part of a step where each row stands for itself: piece by piece."""
        made = list[Events]()
        for each in pieces:
            if each is not None:
                changes = self._passing(each)
                if self._held is not None and self._node.waiting is None:
                    self._held.step(changes)
                come, go = self._delivered(changes)
                made += [self._finished(some, clocks, changes, come, go) for some in self._by_row(changes, come, go)]
        if ask is not None:
            none = no_changes(self._node.rows.schema, self._device)
            made += [self._finished(some, clocks, none, none.enter, none.enter) for some in self._content(ask)]
        return made

    def _output(
        self, changes: Changes | None, clocks: tuple[Any, Any], outputs: Outputs | None, begin: int, limit: int
    ) -> list[Events]:
        """What is output in a part: all groups with rows, or those that rows entered or left since the last output."""
        assert self._since is not None and outputs is not None  # noqa: S101, PT018  (the caller saw to it)
        node, device = self._node, self._device
        some = device.kernels.keep((outputs.place >= begin) & (outputs.place < limit))
        outputs = Outputs(outputs.place[some], outputs.limit[some])
        taken = self._since.step(changes, outputs)
        if not len(outputs):
            return []
        whole = no_changes(node.rows.schema, device) if taken is None else taken
        passing = self._passing(whole)
        edges = self._step_values(whole, passing, int(outputs.place[-1]) + 1, forced=not node.touched)
        come, go = self._delivered(passing)
        made = []
        if not node.touched:
            made = list(self._groups_at(NEW, outputs.place, outputs.place))
        elif len(come) or len(go):
            made = self._by_group(passing, edges or Edges.of(passing, come, go, self._device))
        if node.snapshot is not None and node.snapshot.posts_empty:
            # Behind it a condition may drop the rows of groups.
            had = [each.start for each in made] if node.touched else []
            without = ~np.isin(outputs.place, np.concatenate(had)) if had else outputs.place == outputs.place
            made.append(self._nothing_at(outputs.place[without]))
        for values in self._values:
            values.rest()
        return [self._finished(each, clocks, passing, come, go) for each in made]

    def _step_values(self, whole: Changes, passing: Changes, until: int, *, forced: bool) -> Edges | None:
        """Take in what enters and leaves a part of a step.

        Args:
            whole: All of it.
            passing: What passes.
            until: The odd place up to which values are given.
            forced: Whether every group has a value up to there.

        Returns:
            The edges of the rows that pass, if all of them are delivered; None if nobody has asked for them.
        """
        keep = self._device.kernels.keep
        known: dict[int, Edges] = {}
        remembered = {keys: memory.step(passing) for keys, memory in self._levels.memories.items()}
        for values in self._values:
            rows = whole if values.life == "window" else passing
            rows = remembered.get(values.keys, {}).get(values.life, rows)
            if values.reads_edges and id(rows) not in known:
                known[id(rows)] = Edges.of(rows, keep(rows.enters), keep(rows.leaves), self._device)
            edges = known.get(id(rows))
            values.step(rows, until, forced=forced, momentary=self._node.momentary, edges=edges, before=self._node.old)
        return None if IS_NEW in self._node.rows.schema.names else known.get(id(passing))

    def _groups_at(self, kind: int, values: Any, places: Any) -> Iterator[Events]:
        """A row at some places for each group that has rows where its values are taken."""
        take = self._device.kernels.take
        for level in self._levels.each:
            at, frame = self._levels.held(level, values)
            if len(at):
                number = np.arange(len(at), like=at) - np.searchsorted(at, at)
                yield self._rows(kind, take(places, at), frame, number + level.number * _LEVEL)

    def _looked(self, clocks: tuple[Any, Any], ask: _Ask) -> list[Events]:
        """The content at an ask between two outputs: what an operator with the same state would give there."""
        assert self._since is not None  # noqa: S101  (the caller saw to it)
        node = replace(self._node, snapshot=None, touched=False, new=False, old=False)
        other = DeliveriesOperator(node, self._device, at_once=False)
        other.restore(self.tables())
        return other._part(self._since.with_held(None), clocks, ask.limit, ask, None)

    def _asked_once(self, clocks: tuple[Any, Any], limit: int, ask: _Ask) -> list[Events]:
        """The content at an ask, of the rows that are in the window then."""
        assert self._held is not None  # noqa: S101  (the caller saw to it)
        frame = self._held.rows()
        place = self._device.columns.array(np.full(self._device.columns.rows(frame), ask.until - 1, np.int64))
        enters = np.ones_like(place, dtype=np.bool_)
        rows = Changes(frame, place, np.full_like(place, UNKNOWN), enters, ~enters)
        other = DeliveriesOperator(self._node, self._device, at_once=False)
        return other._part(rows, clocks, limit, ask, None)

    def _by_row(self, changes: Changes, come: Any, go: Any) -> list[Events]:
        """A new row for each row that enters, an old one for each that leaves, with the values after the turn."""
        made = []
        node, take = self._node, self._device.kernels.take
        sides = ((node.new, NEW, come, changes.enter), (node.old, OLD, go, changes.leave))
        for wanted, kind, at, places in sides:
            if wanted and len(at):
                # Of ascending indices as many as there are rows are all.
                is_all = len(at) == len(places)
                frame = changes.frame if is_all else self._device.columns.take(changes.frame, at)
                where = places if is_all else take(places, at)
                found = [values.at(values.codes(frame), where) for values in self._values]
                order = arrived_in(frame, self._device)
                made.append(self._rows(kind, where, self._beside(self._own(frame), *found), order))
        return made

    def _beside(self, *frames: Any) -> Any:
        """The columns of some frames; one without columns has no rows either."""
        some = [frame for frame in frames if len(frame.columns)]
        return some[0] if len(some) == 1 else self._device.columns.beside(*some) if some else frames[0]

    def _own(self, frame: Any) -> Any:
        return self._device.columns.select(frame, list(self._node.shown))

    def _by_group(self, changes: Changes, edges: Edges) -> list[Events]:
        """For each group that a turn touches a new row with the values after it, and an old one with those before."""
        made = []
        node, device = self._node, self._device
        columns, take = device.columns, device.kernels.take
        keys = columns.select(changes.frame, self._levels.read or [PLACE])
        for level in self._levels.each:
            touched = self._levels.touched(level, keys, edges)
            by_last = touched.by_last() if node.touched and node.new else None
            for wanted, kind in ((node.new, NEW), (node.old, OLD)):
                if wanted:
                    rows = by_last if kind == NEW else None
                    if rows is None:
                        at = touched.first
                        where, of, came = (touched.each(each, device) for each in (edges.place, edges.rows, edges.came))
                    else:
                        at = take(touched.last, rows)
                        where, of, came = (take(each, at) for each in (edges.place, edges.rows, edges.came))
                    if rows is None and self._levels.tells_by_last:
                        of = take(edges.rows, touched.last)
                    frame = columns.take(keys, of)
                    found = self._levels.at_edges(level, frame, edges, rows, where, old=kind == OLD)
                    if node.marks:
                        enters = edges.enters.astype(np.int64)
                        counts = (touched.sums(each, device) for each in (enters, 1 - enters))
                        found = columns.beside(found, self._counts(*counts))
                    order = at if node.touched else came
                    made.append(self._rows(kind, where, found, order + level.number * _LEVEL))
        return made

    def _posted(self, posts: Any, changes: Changes, come: Any, go: Any) -> list[Events]:
        """What the window posts where no row enters or leaves: nothing, or the row for all."""
        node = self._node
        turns, _, _ = self._moved(changes, come, go)
        if len(turns):
            at = np.minimum(np.searchsorted(turns, posts), len(turns) - 1)
            posts = posts[self._device.kernels.take(turns, at) != posts]
        if not len(posts):
            return []
        zeros = np.zeros_like(posts)
        # An output rate may begin with it.
        marks = [self._rows(MARK, posts, self._counts(zeros, zeros), zeros)] if node.marks else []
        if node.per == "row" or node.levels != ((),):
            return [self._nothing_at(posts), *marks]
        level, frame = self._levels.each[0], self._levels.none(len(posts))
        sides = ((node.new, NEW, posts), (node.old, OLD, posts - 2))
        return marks + [
            self._rows(kind, posts, self._levels.rows(level, frame, when), zeros)
            for wanted, kind, when in sides
            if wanted
        ]

    def _nothing_at(self, places: Any) -> Events:
        """Deliveries without rows."""
        order = self._device.columns.build({ORDER: (np.zeros_like(places), None, pa.int64())})
        return self._rows(EMPTY, places, order, None)

    def _counts(self, entered: Any, left: Any) -> Any:
        named = zip((ENTERED, LEFT), (entered, left), strict=True)
        return self._device.columns.build({name: (count, None, pa.int64()) for name, count in named})

    def _marks(self, changes: Changes, come: Any, go: Any) -> Events:
        """How many rows each turn moved."""
        turns, *counts = self._moved(changes, come, go)
        return self._rows(MARK, turns, self._counts(*counts), np.zeros_like(turns))

    def _moved(self, changes: Changes, come: Any, go: Any) -> tuple[Any, Any, Any]:
        """(places, how many rows enter at each, how many leave)."""
        take = self._device.kernels.take
        return moved(take(changes.enter, come), take(changes.leave, go), self._device)

    def _content(self, ask: _Ask) -> list[Events]:
        """What is in the window at an ask; an output has an empty row besides, in case nothing else is left of it."""
        columns, node = self._device.columns, self._node
        made = []
        if ask.kind == NEW and node.snapshot is not None and node.snapshot.posts_empty:
            made.append(self._nothing_at(columns.array(np.full(1, ask.place, np.int64))))
        if self._held is not None and node.per == "group":
            return [*made, *self._groups_of(self._held.rows(), ask)]
        if self._held is not None:
            frame = self._held.rows()
            count = columns.rows(frame)
            where = columns.array(np.full(count, ask.until - 1, np.int64))
            place = np.full_like(where, ask.place)
            found = [values.at(values.codes(frame), where) for values in self._values]
            order = arrived_in(frame, self._device)
            made.append(self._rows(ask.kind, place, self._beside(self._own(frame), *found), order))
            return made
        where = columns.array(np.full(1, ask.until - 1, np.int64))
        return [*made, *self._groups_at(ask.kind, where, np.full_like(where, ask.place))]

    def _groups_of(self, frame: Any, ask: _Ask) -> Iterator[Events]:
        """A row at an ask for each group of some rows, with the values of the rows in the window."""
        columns = self._device.columns
        for level in self._levels.each:
            some = frame
            if level.keys:
                codes, _, _ = columns.key_codes(frame, level.keys)
                some = columns.take(frame, first_of_groups(codes, self._device))
            elif len(self._levels.each) == 1:
                some = self._levels.none(1)
            else:
                some = columns.cut(frame, 0, min(columns.rows(frame), 1))
            where = columns.array(np.full(columns.rows(some), ask.until - 1, np.int64))
            number = np.arange(len(where), like=where) + level.number * _LEVEL
            yield self._rows(ask.kind, np.full_like(where, ask.place), self._levels.rows(level, some, where), number)

    # What goes out

    def _rows(self, kind: int, places: Any, frame: Any, order: Any) -> Events:
        columns = self._device.columns
        kinds = of_kind(kind, len(places), self._device)
        if order is None:
            return Events(places, TICK, self._beside(frame, kinds))
        placed = columns.build({ORDER: (order.astype(np.int64, copy=False), None, pa.int64())})
        return Events(places, TICK, self._beside(frame, kinds, placed))

    def _finished(self, made: Events, clocks: tuple[Any, Any], changes: Changes, come: Any, go: Any) -> Events:
        """The rows with all columns of the schema."""
        columns, schema, take = self._device.columns, self._node.schema, self._device.kernels.take
        parts = [made.frame]
        if CLOCK in schema.names:
            at = np.searchsorted(clocks[0], made.start, side="right") - 1
            parts.append(columns.build({CLOCK: (take(clocks[1], at), None, TIME_TYPE)}))
        if DUE in schema.names:
            parts.append(self._due(made.start, changes, come, go))
        known = set(made.frame.columns) | {CLOCK, DUE}
        missing = [field for field in schema if field.name not in known]
        if missing:
            none = columns.from_arrow(empty_table(pa.schema(missing)))
            parts.append(columns.nulls(none, len(made)))
        return Events(made.start, TICK, columns.select(columns.beside(*parts), schema.names))

    def _due(self, places: Any, changes: Changes, come: Any, go: Any) -> Any:
        """When what the clock makes enter or leave at some places fell due: the oldest of each place."""
        columns, take = self._device.columns, self._device.kernels.take
        found = []
        for name, at, when in ((BATCH_DUE, come, changes.enter), (DUE, go, changes.leave)):
            if name in changes.frame.columns:
                own, moved_at = take(columns.values(changes.frame, name)[0], at), take(when, at)
                number = np.searchsorted(places, moved_at)
                none = np.zeros_like(at, dtype=np.bool_)
                here = take(places, np.minimum(number, len(places) - 1)) == moved_at if len(places) else none
                valid = columns.values(changes.frame, name)[1]
                some = self._device.kernels.keep(here if valid is None else here & take(valid, at))
                found.append((take(own, some), take(moved_at, some)))
        if self._posts is not None:
            found.append((columns.values(self._posts.frame, DUE)[0], self._posts.start))
        due, left = (np.concatenate(each) for each in zip(*found, strict=True))
        order = stable_order([left, due], left, self._device)
        due, left = due[order], left[order]
        if not len(left):
            return columns.nulls(columns.build({DUE: (due, None, TIME_TYPE)}), len(places))
        at = np.minimum(np.searchsorted(left, places), len(left) - 1)
        return columns.build({DUE: (due[at], left[at] == places, TIME_TYPE)})

    # The state

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        kept = sum(len(each) for each in (self._held, self._since) if each is not None)
        return sum(values.alive for values in self._values) + sum(map(len, self._levels.memories.values())) + kept

    waiting = 0

    def state_parts(self) -> Parts:
        """The clock, the state of each group of aggregates, and the rows in the window where they are kept."""
        made = {"clock": pa.table({"clock": pa.array([self._clock]), "done": pa.array([self._done])})}
        for at, memory in enumerate(self._levels.memories.values()):
            made |= memory.tables(f"memory {at}/")
        if self._held is not None:
            made |= self._held.tables()
        if self._since is not None:
            made |= self._since.tables()
        if self._times is not None:
            made |= self._times.tables()
        parts: dict[str, Sequence[StatePart]] = {**in_parts(made)}
        for at, values in enumerate(self._values):
            parts |= values.state_parts(f"values {at}/")
        return parts

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """Those of the aggregates."""
        return tuple(name for at, each in enumerate(self._values) for name in each.entire_tables(f"values {at}/"))

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        one = Field(pa.int64(), least=MIN_TIME, most=MAX_TIME)
        yield StateTable("clock", {"clock": one, "done": one}, 1, required=True)
        for at, values in enumerate(self._values):
            yield from values.declared(tables, f"values {at}/")
        for at, memory in enumerate(self._levels.memories.values()):
            yield from memory.declared(tables, f"memory {at}/")
        if self._held is not None:
            yield from self._held.declared()
        if self._since is not None:
            yield from self._since.declared()
        if self._times is not None:
            yield from self._times.declared(tables)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        if not parts:
            return
        tables = whole({name: each for name, each in parts.items() if not name.startswith("values ")})
        self._clock, self._done = (tables["clock"][name][0].as_py() for name in ("clock", "done"))
        for at, values in enumerate(self._values):
            values.put_back(parts, f"values {at}/")
        for at, memory in enumerate(self._levels.memories.values()):
            memory.restore(tables, f"memory {at}/")
        if self._held is not None:
            self._held.restore(tables)
        if self._since is not None:
            self._since.restore(tables)
        if self._times is not None:
            self._times.restore(tables)


@dataclass(frozen=True, order=True)
class _Ask:
    """Where content is asked for.

    Attributes:
        limit: The place up to which rows have entered and left.
        place: The place that its rows get.
        kind: What they are: `HELD`, or `NEW` at an output.
    """

    limit: int
    place: int
    kind: int

    @property
    def until(self) -> int:
        """The odd place up to which values are given; the content is that of the even one before it."""
        return self.limit if self.limit & 1 else self.limit - 1


def _asks_of(outputs: Outputs, device: Device) -> list[_Ask]:
    """Outputs, each as a question for content."""
    both = (device.columns.host(each).tolist() for each in (outputs.limit, outputs.place))
    return [_Ask(limit, place, NEW) for limit, place in zip(*both, strict=True)]


def _until(limit: int) -> int:
    """The place before a CTI up to which values are given: behind all that happened, and before what comes next."""
    return limit if limit == MAX_TIME else limit - 2
