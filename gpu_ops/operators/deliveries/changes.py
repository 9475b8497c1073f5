"""The rows that enter and leave a window in a step, wherever they come from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.state_tables import OLDER
from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import IS_NEW, LEFT_FIRST, PLACE, of_stream
from gpu_ops.devices import Device
from gpu_ops.errors import SourceError
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import StepInput
from gpu_ops.operators.row_order import run_starts, stable_order

UNKNOWN = 1 << 62
"""The place at which a row leaves that has not left yet."""


@dataclass(frozen=True)
class Changes:
    """The rows that enter and leave in a part of a step.

    Attributes:
        frame: The rows.
        enter: int64 even place at which each enters.
        leave: int64 even place at which each leaves, where it does. A row may enter and leave at one place.
        enters: Which of them enter in the part.
        leaves: Which of them leave in it.
        came: int64 place at which each really entered, if `enter` is that of an output behind it; else None.
        went: int64 place at which each really left, likewise.
    """

    frame: Any
    enter: Any
    leave: Any
    enters: Any
    leaves: Any
    came: Any = None
    went: Any = None


@dataclass(frozen=True)
class Edges:
    """What enters and leaves, in order of place; at one place rows that enter before those that leave, as they came.

    Attributes:
        come: int64 indices of the rows that enter.
        go: int64 indices of the rows that leave.
        order: int64 order of both, those that enter before those that leave.
        place: int64 place of each.
        came: int64: when its row came, in the way in which edges of one place are ordered.
    """

    come: Any
    go: Any
    order: Any
    place: Any
    came: Any

    @classmethod
    def of(cls, changes: Changes, come: Any, go: Any, device: Device) -> Edges:
        """The edges of some changes: of the rows that enter, and of those that leave."""
        kernels, take = device.kernels, device.kernels.take
        arrived = arrived_in(changes.frame, device)
        place = take(changes.enter, come), take(changes.leave, go)
        came = take(arrived, come), take(arrived, go) + LEFT_FIRST
        really = place if changes.came is None else (take(changes.came, come), take(changes.went, go))
        if all(kernels.ascends(each) for each in (*really, *came)):
            order, placed = kernels.merged_order(*really)
        else:
            both = np.concatenate(really), np.concatenate(came)
            order = np.argsort(both[0], kind="stable")  # some ascending runs, mostly
            placed, when = (take(each, order) for each in both)
            if bool(((placed[1:] == placed[:-1]) & (when[1:] < when[:-1])).any()):
                order = stable_order(both, both[0], device)
                placed = take(both[0], order)
        if changes.came is not None:
            placed = take(np.concatenate(place), order)
        return cls(come, go, order, placed, take(np.concatenate(came), order))

    @cached_property
    def rows(self) -> Any:
        """int64 index of the row of each."""
        return np.concatenate([self.come, self.go])[self.order]

    @property
    def enters(self) -> Any:
        """Which of them enter."""
        return self.order < len(self.come)


def arrived_in(frame: Any, device: Device) -> Any:
    """int64: the order of rows of one place: that in which they came, of joined rows that of what they are made of.

    A row that has the newest event comes last, as that meets the others in their order.
    """
    columns = device.columns
    places: list[Any] = []
    if IS_NEW not in frame.columns:
        return columns.values(frame, PLACE)[0]
    while (name := of_stream(PLACE, len(places))) in frame.columns:
        values, valid = columns.values(frame, name)
        places.append(values if valid is None else np.where(valid, values, np.full_like(values, -1)))
    newest = places[0]
    for each in places[1:]:
        newest = np.maximum(newest, each)
    order = stable_order([newest, *places], newest, device)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order), like=order)
    return rank


def changes_of(given: StepInput, cti: int, device: Device) -> Changes | None:
    """The rows that enter and leave in a step; None where there are none.

    Args:
        given: Rows on turns; a row whose leave lies behind the step is an open one.
        cti: The CTI.
        device: Where arrays live.
    """
    pieces = [concat(each, device) for each in (given.events, given.opened, given.closed)]
    whole, opened, closed = pieces
    # Rows that are closed have come before all others: mostly both edges of the rows are then in order of their places.
    some = [each for each in (closed, whole, opened) if each is not None and len(each)]
    if not some:
        return None
    ends = [np.full_like(each.start, UNKNOWN) if each is opened else each.ends for each in some]
    enters = [np.full_like(each.start, each is not closed, dtype=np.bool_) for each in some]
    start, end, enters_now = (np.concatenate(each) for each in ([e.start for e in some], ends, enters))
    frame = some[0].frame if len(some) == 1 else device.columns.concat([each.frame for each in some])
    leaves = end < min(cti, MAX_TIME)
    later = ~leaves & (end < MAX_TIME)
    if whole is not None and bool(later.any()):
        # It would be an open row: only tables of a state that are damaged, and fit their declarations, make such.
        raise SourceError("The state of a window is damaged: a row leaves it behind the step.", remedy=OLDER)
    return Changes(frame, start & ~1, end & ~1, enters_now, leaves)


def moved(come: Any, go: Any, device: Device) -> tuple[Any, Any, Any]:
    """(places, how many rows enter at each, how many leave).

    Args:
        come: int64 place at which each row enters that does.
        go: int64 place at which each row leaves that does.
        device: Where arrays live.
    """
    kernels = device.kernels
    come, go = (each if kernels.ascends(each) else np.sort(each) for each in (come, go))
    return kernels.edge_counts(come, go)


def no_changes(schema: pa.Schema, device: Device) -> Changes:
    """None of rows with these columns."""
    none = device.columns.array(np.zeros(0, np.int64))
    frame = device.columns.from_arrow(empty_table(schema))
    return Changes(frame, none, none, none.astype(np.bool_), none.astype(np.bool_))


def between(changes: Changes | None, begin: int, limit: int) -> Changes | None:
    """The part of some changes from one place to another."""
    if changes is None:
        return None
    enters = changes.enters & (changes.enter >= begin) & (changes.enter < limit)
    leaves = changes.leaves & (changes.leave >= begin) & (changes.leave < limit)
    return Changes(changes.frame, changes.enter, changes.leave, enters, leaves)


def places_between(posts: Events | None, begin: int, limit: int) -> Any | None:
    """The places of some points from one place to another; None for no such points."""
    if posts is None:
        return None
    places = np.sort(posts.start[(posts.start >= begin) & (posts.start < limit)])
    return places[run_starts(places)] if len(places) else None
