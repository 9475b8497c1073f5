"""Lookups step by step: the running aggregates of groups, at the places at which rows ask."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_parts import Parts, StatePart, in_parts, joined, whole
from gpu_ops.core.state_tables import StateTable, Tables
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.core.turns import PLACE
from gpu_ops.devices import Device
from gpu_ops.operators.deliveries.changes import Changes, changes_of, no_changes
from gpu_ops.operators.deliveries.group_totals import GroupTotals
from gpu_ops.operators.deliveries.group_values import GroupValues
from gpu_ops.operators.deliveries.window_content import WindowContent
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, EachPiece, InParts, Operator, StepInput
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.plan.deliveries import Delivered
from gpu_ops.plan.joins import On
from gpu_ops.plan.lookups import ASKING, Lookup, PairLookup
from gpu_ops.plan.nodes import Node

_MOMENT = 2
"""From one moment to the next: a change that waits for it is seen behind its place alone."""


class AnswersRows(InParts, family=True):
    """Rows that ask what is held at their places.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: Lookup

    def __init__(self, node: Lookup, device: Device) -> None:
        super().__init__(node, device)
        self._waiting: list[Events] = []

    def opens(self, at: int) -> bool:
        """What is held may be open; rows that ask are points."""
        return at == 0

    def with_open(self) -> Operator | None:
        """Itself: it takes each row's enter and leave as they come."""
        return self

    def batch(self, whole: BatchInput) -> Iterator[Events]:
        """One step to the end of time."""
        given, _ = self.step([StepInput(list(each)) for each in whole.inputs], [MAX_TIME] * len(whole.inputs))
        yield from given.events

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The rows before the CTI."""
        cti, device = min(ctis), self._device
        rows = self._before(given[1].events, cti)
        changes = changes_of(given[0], cti, device)
        if rows is None and changes is None:
            return StepInput(), cti
        found = self._asked(changes, rows, cti if cti == MAX_TIME or cti & 1 else cti - 1)
        if rows is None:
            return StepInput(), cti
        frame = device.columns.select(device.columns.beside(rows.frame, *found), self._node.schema.names)
        return StepInput([Events(rows.start, rows.end, frame)]), cti

    @abstractmethod
    def _asked(self, changes: Changes | None, rows: Events | None, limit: int) -> list[Any]:
        """Frames of aggregates, of rows that ask.

        Args:
            changes: What enters and leaves in the step.
            rows: The rows.
            limit: The odd place up to which all is known.
        """

    def _before(self, events: Sequence[Events], cti: int) -> Events | None:
        """The rows of this step; later ones wait."""
        every = concat([*self._waiting, *events], self._device)
        self._waiting = []
        if every is None or not len(every):
            return None
        early = every.start < cti
        if bool(early.all()):
            return every
        keep = self._device.kernels.keep
        self._waiting = [every.take(keep(~early), self._device)]
        now = keep(early)
        return every.take(now, self._device) if len(now) else None

    # The state

    @property
    def waiting(self) -> int:
        """How many rows have asked for what is not known yet."""
        return sum(map(len, self._waiting))

    def state_parts(self) -> Parts:
        """What is held, and the rows that wait."""
        made = dict(self._own_parts())
        waiting = concat(self._waiting, self._device)
        if waiting is not None:
            columns = self._device.columns
            table = columns.to_arrow(waiting.frame, self._node.rows.schema)
            made |= in_parts({"asking": table.append_column(_PLACE, pa.array(columns.host(waiting.start)))})
        return made

    def declared(self, tables: Tables) -> Iterator[StateTable]:
        """The tables that `tables` gives."""
        yield from self._own_declared(tables)
        if "asking" in tables:
            schema = self._node.rows.schema.append(pa.field(_PLACE, pa.int64()))
            yield StateTable("asking", nullable_columns(schema, ""))

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        if not parts:
            return
        self._own_restore(parts)
        if parts.get("asking"):
            columns, table = self._device.columns, joined([part.wanted() for part in parts["asking"]])
            start = columns.array(table[_PLACE].to_numpy().copy())
            self._waiting = [Events(start, TICK, columns.from_arrow(table.drop_columns(_PLACE)))]

    @abstractmethod
    def _own_parts(self) -> Parts:
        """What is held."""

    @abstractmethod
    def _own_declared(self, tables: Tables) -> Iterator[StateTable]:
        """Its tables."""

    @abstractmethod
    def _own_restore(self, parts: Parts) -> None:
        """What is held, from these parts."""


class LookupOperator(AnswersRows, nodes=(Lookup,)):
    """Aggregates of what is held, at the places of rows.

    A row that asks makes a boundary in the group that it asks for, so that a step costs its changes and its rows.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: Lookup, device: Device) -> None:
        super().__init__(node, device)
        self._values = _of_groups(node, device)

    def _asked(self, changes: Changes | None, rows: Events | None, limit: int) -> list[Any]:
        if changes is not None and self._node.before:
            changes = _later(changes)
        changes = changes or no_changes(self._node.content.schema, self._device)
        return [self._found(values, on, changes, rows, limit) for on, values in self._values]

    def _found(self, values: GroupValues, on: On, changes: Changes, rows: Events | None, limit: int) -> Any:
        """A frame of aggregates for each row."""
        device = self._device
        if isinstance(values, GroupTotals):
            places = changes.enter[:0] if rows is None else rows.start & ~1
            asked = places.astype(np.int32) if rows is None else values.codes(self._asking(on, rows))
            made = values.answered(changes, asked, places, limit)
            values.rest()
            return made
        if rows is None:
            values.step(changes, limit, forced=False)
            values.rest()
            return None
        asking = self._asking(on, rows)
        places = rows.start & ~1
        values.step(_with_asking(changes, asking, places, device), limit, forced=False)
        found = values.at(values.codes(asking), places)
        values.rest()
        return found

    def _asking(self, on: On, rows: Events) -> Any:
        """Rows as those that are held, with nothing but their keys."""
        columns, schema = self._device.columns, self._node.content.schema
        keys = {inner for _, inner in on}
        rest = [each for each in schema if each.name not in keys]
        parts = [_renamed(rows.frame, on, self._device)] if on else []
        if rest:
            parts.append(columns.nulls(columns.from_arrow(empty_table(pa.schema(rest))), len(rows)))
        return columns.select(columns.beside(*parts), schema.names)

    # The state

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return sum(values.alive for _, values in self._values) + self.waiting

    def _own_parts(self) -> Parts:
        made: dict[str, Sequence[StatePart]] = {}
        for at, (_, values) in enumerate(self._values):
            made |= values.state_parts(f"values {at}/")
        return made

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """Those of what is held."""
        return tuple(name for at, (_, each) in enumerate(self._values) for name in each.entire_tables(f"values {at}/"))

    def _own_declared(self, tables: Tables) -> Iterator[StateTable]:
        for at, (_, values) in enumerate(self._values):
            yield from values.declared(tables, f"values {at}/")

    def _own_restore(self, parts: Parts) -> None:
        for at, (_, values) in enumerate(self._values):
            values.put_back(parts, f"values {at}/")


class PairLookupOperator(AnswersRows, nodes=(PairLookup,)):
    """Aggregates of the pairs of each row with those that are held at its place and meet its condition.

    A step makes its pairs in pieces. It costs what is held, where a row asks, and all pairs with equal keys.

    Args:
        node: The node.
        device: Where arrays live.
    """

    _node: PairLookup

    def __init__(self, node: PairLookup, device: Device) -> None:
        super().__init__(node, device)
        self._content = WindowContent(node.content.schema, device)
        self._each = _each_over(node.pairs, device)
        self._each_group = [] if node.of_groups is None else _each_over(node.of_groups, device)
        self._aggregates = [Delivered(each.aggregate, (ASKING,)) for each in node.looked]

    def _asked(self, changes: Changes | None, rows: Events | None, limit: int) -> list[Any]:
        changes = changes or no_changes(self._node.content.schema, self._device)
        made = [] if rows is None else [self._of_pairs(self._known(changes), rows)]
        self._content.step(changes)
        return made

    def _known(self, changes: Changes) -> Changes:
        """All rows that are there at any time of the step."""
        device = self._device
        keep, take, columns = device.kernels.keep, device.kernels.take, device.columns
        kept = self._content.rows()
        go = keep(changes.leaves & ~changes.enters)
        places, left = columns.values(columns.take(changes.frame, go), PLACE)[0], take(changes.leave, go)
        order = np.argsort(places, kind="stable")
        places, left = take(places, order), take(left, order)
        own = columns.values(kept, PLACE)[0]
        leave = np.full_like(own, MAX_TIME)
        if len(places):
            at = np.minimum(np.searchsorted(places, own), len(places) - 1)
            leave = np.where(take(places, at) == own, take(left, at), leave)
        come = keep(changes.enters)
        frame = columns.concat([kept, columns.take(changes.frame, come)])
        ends = take(np.where(changes.leaves, changes.leave, MAX_TIME), come)
        enter = np.concatenate([np.full_like(own, MIN_TIME), take(changes.enter, come)])
        leave = np.concatenate([leave, ends])
        always = np.ones_like(enter, dtype=np.bool_)
        return Changes(frame, enter, leave, always, always)

    def _of_pairs(self, known: Changes, rows: Events) -> Any:
        """A frame of aggregates for each row."""
        device, count = self._device, len(rows)
        kernels, columns = device.kernels, device.columns
        inner = columns.rows(known.frame)
        asking = _renamed(rows.frame, self._node.on, device)
        names = [name for _, name in self._node.on]
        if names:
            both = columns.concat([asking, columns.select(known.frame, names)])
            codes, groups, _ = columns.key_codes(both, names)
        else:
            codes, groups = columns.array(np.zeros(count + inner, np.int32)), 1
        order = np.argsort(codes[count:], kind="stable")
        bounds = np.searchsorted(kernels.take(codes[count:], order), np.arange(groups + 1, like=codes))
        mine = codes[:count]
        first = kernels.take(bounds, mine)
        many = kernels.take(bounds, mine + 1) - first
        upto = device.columns.host(np.cumsum(many))
        made, begin = [], 0
        while begin < count:
            before = int(upto[begin - 1]) if begin else 0
            end = max(int(np.searchsorted(upto, before + _MOST_PAIRS, side="right")), begin + 1)
            source, offset = kernels.expand(many[begin:end])
            source = source + begin
            other = kernels.take(order, kernels.take(first, source) + offset)
            made.append(self._folded(known, rows, source, other, begin, end))
            begin = end
        return made[0] if len(made) == 1 else columns.concat(made)

    def _folded(self, known: Changes, rows: Events, source: Any, other: Any, begin: int, end: int) -> Any:
        """The aggregates of some rows, from the pairs that may be theirs."""
        device, node = self._device, self._node
        kernels, columns = device.kernels, device.columns
        place = kernels.take(rows.start & ~1, source) - (_MOMENT if node.before else 0)
        alive = (kernels.take(known.enter, other) <= place) & (kernels.take(known.leave, other) > place)
        some = kernels.keep(alive)
        source, other = kernels.take(source, some), kernels.take(other, some)
        numbers = columns.build({ASKING: (source.astype(np.int64), None, pa.int64())})
        outer = columns.take(columns.select(rows.frame, list(node.paired)), source)
        frame = columns.beside(outer, columns.take(known.frame, other), numbers)
        pairs = Events(np.zeros_like(source, dtype=np.int64), TICK, frame)
        for each in self._each:
            pairs = each.each(pairs)
        values = _of_points(
            self._aggregates, node.folded, pairs if node.groups is None else self._groups(pairs, rows), device
        )
        which = columns.array(np.arange(begin, end, dtype=np.int64))
        asked = columns.build({ASKING: (which, None, pa.int64())})
        return values.at(values.codes(asked), np.zeros_like(which))

    def _groups(self, pairs: Events, rows: Events) -> Events:
        """The groups of pairs, each with the columns of the row that asks."""
        device, node = self._device, self._node
        columns, groups = device.columns, node.groups
        assert groups is not None  # noqa: S101  (the caller saw to it)
        keys = (ASKING, *groups.keys)
        values = _of_points([Delivered(each, keys) for each in groups.aggregates], node.pairs.schema, pairs, device)
        codes = values.codes(pairs.frame)
        numbers = columns.array(np.arange(int(codes.max()) + 1 if len(codes) else 0, dtype=np.int64))
        frame = columns.select(pairs.frame, keys) if not len(codes) else values.keys_of(numbers)
        outer = columns.select(rows.frame, list(node.paired))
        outer = columns.take(outer, columns.values(frame, ASKING)[0])
        made = Events(
            np.zeros_like(numbers),
            TICK,
            columns.beside(frame, outer, values.at(numbers.astype(np.int32), np.zeros_like(numbers))),
        )
        for each in self._each_group:
            made = each.each(made)
        return made

    # The state

    @property
    def alive(self) -> int:
        """How many rows it keeps."""
        return len(self._content) + self.waiting

    def _own_parts(self) -> Parts:
        return in_parts(self._content.tables())

    def _own_declared(self, tables: Tables) -> Iterator[StateTable]:
        yield from self._content.declared()

    def _own_restore(self, parts: Parts) -> None:
        self._content.restore(whole(parts))


_PLACE = "@asked at"
_MOST_PAIRS = 1 << 20


def _each_over(node: Node, device: Device) -> list[EachPiece]:
    """The operators from a leaf up to a node."""
    made: list[EachPiece] = []
    while node.inputs:
        kind = Operator.registered(node)
        assert kind is not None  # noqa: S101  (filters and projections have operators)
        own = kind.of(node, device)
        assert isinstance(own, EachPiece)  # noqa: S101  (so they are)
        made.insert(0, own)
        (node,) = own.inputs
    return made


def _of_points(aggregates: Sequence[Delivered], schema: pa.Schema, points: Events, device: Device) -> GroupValues:
    """The aggregates of points that are all at place 0."""
    values = GroupValues(aggregates, schema, device)
    always = np.ones_like(points.start, dtype=np.bool_)
    if len(points):
        values.step(Changes(points.frame, points.start, points.start, always, ~always), 1, forced=False)
    return values


def _renamed(frame: Any, on: On, device: Device) -> Any:
    """The columns of rows by which they ask, under the names of those that are held."""
    columns = device.columns
    parts = [columns.rename(columns.select(frame, [outer]), outer, inner) for outer, inner in on]
    return columns.beside(*parts) if parts else None


def _of_groups(node: Lookup, device: Device) -> list[tuple[On, GroupValues]]:
    """The running aggregates by each list of keys."""
    found: dict[On, list[Delivered]] = {}
    for each in node.looked:
        keys = tuple(inner for _, inner in each.on)
        found.setdefault(each.on, []).append(Delivered(each.aggregate, keys))
    schema = node.content.schema
    return [
        (on, (GroupTotals if GroupTotals.takes(some, schema) else GroupValues)(some, schema, device))
        for on, some in found.items()
    ]


def _later(changes: Changes) -> Changes:
    """The same changes one moment later."""
    return Changes(
        changes.frame, changes.enter + _MOMENT, _after(changes.leave, changes.leaves), changes.enters, changes.leaves
    )


def _after(leave: Any, leaves: Any) -> Any:
    return np.where(leaves, leave + _MOMENT, leave)


def _with_asking(changes: Changes, asking: Any, places: Any, device: Device) -> Changes:
    """Changes and rows that are there for no time."""
    frame = device.columns.concat([changes.frame, asking])
    enter, leave = (np.concatenate([each, places]) for each in (changes.enter, changes.leave))
    always = np.ones_like(places, dtype=np.bool_)
    enters, leaves = (np.concatenate([each, always]) for each in (changes.enters, changes.leaves))
    return Changes(frame, enter, leave, enters, leaves)
