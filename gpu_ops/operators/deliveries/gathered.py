"""Which of the rows that an output rate holds back are shown when it fires.

Rows stand in order of place, kind and number. Each has the number of the firing that takes it; those that no firing
takes yet have the number of firings, and what is needed of them is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu_ops.core.turns import GROUPING, NEW, OLD
from gpu_ops.devices import Device
from gpu_ops.operators.row_order import run_ends, run_starts
from gpu_ops.plan.rates import OutputRate


@dataclass(frozen=True)
class Gathered:
    """Rows that were held back, in order of place, kind and number.

    Attributes:
        frame: The payload of the rows, and of others.
        at: int64: the index of each row in it.
        place: int64: where each row was delivered.
        kind: int64: `NEW` or `OLD`.
        passes: bool: which rows pass `having`.
        firing: int64: the number of the firing that takes each; ascending.
        firings: How many there are.
        group: int32: the group of each row.
        groups: How many groups there are; some may be empty.

    What is known from before are new rows of firing -1, and the first ones.
    """

    frame: Any
    at: Any
    place: Any
    kind: Any
    passes: Any
    firing: Any
    firings: int
    group: Any
    groups: int

    def __len__(self) -> int:
        return len(self.kind)


@dataclass(frozen=True)
class ShownRows:
    """Rows to show.

    Attributes:
        rows: int64 indices of the rows whose payload they have.
        firing: int64: the firing at which each is shown; ascending.
        kind: What the rows are then: `NEW` or `OLD`.
        values: int64 indices of the rows whose group's values they have; None for their own.
    """

    rows: Any
    firing: Any
    kind: int
    values: Any = None


@dataclass(frozen=True)
class Chosen:
    """What a selection makes of the rows.

    Attributes:
        shown: The rows to show.
        kept: int64 indices of the rows that are still needed, ascending.
        known: What is known of groups (or of the query) from now on; None if it does not change.
    """

    shown: tuple[ShownRows, ...]
    kept: Any
    known: ShownRows | None = None


Selecting = Callable[[OutputRate, Gathered, Device], Chosen]


def selecting(node: OutputRate) -> Selecting:
    """How a node selects rows, other than the first ones."""
    if node.kind == "row for all":
        return _current if node.selection == "last" else _every_or_current
    if node.kind == "row per group" and node.selection in {"all", "last"}:
        return _current_of_groups
    if node.kind == "aggregated and grouped" and node.selection == "all":
        return _every_and_other_groups
    return _last if node.selection == "last" else _every


def reads_known(node: OutputRate) -> bool:
    """Whether what is known from before is shown again."""
    return node.kind == "row for all" or (node.by_group and node.selection == "all")


def _every(node: OutputRate, rows: Gathered, device: Device) -> Chosen:
    """All rows that pass."""
    keep, take = device.kernels.keep, device.kernels.take
    shown = tuple(
        ShownRows(at, take(rows.firing, at), kind)
        for kind in _shown_kinds(node)
        for at in [keep((rows.kind == kind) & rows.passes & _released(rows))]
    )
    return Chosen(shown, keep((rows.firing == rows.firings) & rows.passes))


def _last(node: OutputRate, rows: Gathered, device: Device) -> Chosen:
    """The last new and the last old row that pass, of each group."""
    keep, take = device.kernels.keep, device.kernels.take
    shown, kept = [], []
    for kind in _shown_kinds(node):
        _, last = _ends(rows, keep((rows.kind == kind) & rows.passes), device)
        at = _in_order(last, len(rows), device)
        firing = take(rows.firing, at)
        shown.append(_show(firing < rows.firings, at, firing, kind, device))
        kept.append(take(at, keep(firing == rows.firings)))
    return Chosen(tuple(shown), _in_order(np.concatenate(kept), len(rows), device))


def _every_or_current(node: OutputRate, rows: Gathered, device: Device) -> Chosen:
    """All rows that pass; the current one, as new and as old, where there was no delivery.

    With ``output all`` it is the new row also where no new row passed, and the old row where no old one did.
    """
    keep, take = device.kernels.keep, device.kernels.take
    chosen = _every(node, rows, device)
    new, firing, current = _latest(rows, device)
    more: list[ShownRows] = []
    for shown in chosen.shown:
        had = np.zeros_like(firing, shape=(rows.firings,), dtype=np.bool_)
        taken = shown.firing if node.selection == "all" else take(rows.firing, new)
        had[taken[keep((taken >= 0) & (taken < rows.firings))]] = True
        again, at = _where(~take(had, firing) & take(rows.passes, current), device, current, firing)
        more.append(ShownRows(again, at, shown.kind))
    # A query without groups has one current row, which is the last one that came, whether a firing took it or not.
    kept = _in_order(np.concatenate([chosen.kept, _waiting(rows, new)]), len(rows), device)
    return Chosen((*chosen.shown, *more), kept, _known(rows, _latest_released(rows, new, device), device))


def _current(node: OutputRate, rows: Gathered, device: Device) -> Chosen:
    """The current row, if it passes; the first old row that passes, or the current one where there was none."""
    keep, take = device.kernels.keep, device.kernels.take
    new, firing, current = _latest(rows, device)
    at, here = _where(take(rows.passes, current), device, current, firing)
    old = keep((rows.kind == OLD) & rows.passes)
    old = take(old, keep(run_starts(take(rows.firing, old)))) if len(old) else old
    shown = [ShownRows(at, here, NEW)] if NEW in node.shows else []
    if OLD in node.shows:
        shown.append(_show(take(rows.firing, old) < rows.firings, old, take(rows.firing, old), OLD, device))
        had = np.zeros_like(firing, shape=(rows.firings + 1,), dtype=np.bool_)
        had[take(rows.firing, old)] = True
        shown.append(_show(~take(had, firing) & take(rows.passes, current), current, firing, OLD, device))
    waiting = take(old, keep(take(rows.firing, old) == rows.firings))
    waiting = _in_order(np.concatenate([waiting, _waiting(rows, new)]), len(rows), device)
    return Chosen(tuple(shown), waiting, _known(rows, _latest_released(rows, new, device), device))


def _current_of_groups(node: OutputRate, rows: Gathered, device: Device) -> Chosen:
    """Each group's current row; as old rows their first ones, or the current ones of groups that did not change."""
    keep, take = device.kernels.keep, device.kernels.take
    every = node.selection == "all"
    # Esper looks again for an old row that passes: with "all" where there is one level, with "last" where several are.
    again = not node.waits and every != (GROUPING in node.group)
    first, _ = _ends(rows, keep((rows.kind == OLD) & (rows.passes | (not again))), device)
    _, last = _ends(rows, keep(rows.kind == NEW), device)  # by group, then by firing
    taken = take(rows.firing, last)
    at, firing = _lasting(rows, last, device) if every else _where(taken < rows.firings, device, last, taken)
    order = by_firing(firing, at, rows.firings, device)
    at, firing = take(at, order), take(firing, order)
    shown = [_show(take(rows.passes, at), at, firing, NEW, device)] if NEW in node.shows else []
    if OLD in node.shows:
        early = take(first, keep((take(rows.firing, first) < rows.firings) & take(rows.passes, first)))
        early = _in_order(early, len(rows), device)
        shown.append(ShownRows(early, take(rows.firing, early), OLD))
        quiet = (take(rows.firing, at) < firing) & take(rows.passes, at)
        shown.append(_show(quiet, at, firing, OLD, device))
    both = np.concatenate([last, first])
    kept = _in_order(take(both, keep(take(rows.firing, both) == rows.firings)), len(rows), device)
    known = _known(rows, _last_released(rows, last, device), device) if every else None
    return Chosen(tuple(shown), kept, known)


def _every_and_other_groups(node: OutputRate, rows: Gathered, device: Device) -> Chosen:
    """All rows that pass, a new one for the old ones of each delivery, and the last rows of groups that did not change.

    The new row of old ones of a group is its last new row with the group's values. Where the output has an order, Esper
    has none for old rows, and takes a group for one that did not change if nothing new came to it.
    """
    keep, take = device.kernels.keep, device.kernels.take
    order = _by_group(rows, device)
    code, kind = take(rows.group, order), take(rows.kind, order)
    place = np.arange(len(order), like=order)
    begins = keep(run_starts(code))
    begin = take(begins, np.cumsum(run_starts(code)) - 1)
    newest = device.kernels.running_max(np.where(kind == NEW, place, -1))
    known = newest >= begin
    face = np.empty_like(order)
    face[order] = np.where(known, take(order, np.maximum(newest, 0)), -1)
    once = np.empty_like(order, dtype=np.bool_)
    once[order] = (kind == NEW) | run_starts(code, take(rows.place, order), kind)
    made = (face >= 0) & once if not node.waits else rows.kind == NEW
    here = keep(_released(rows) & (rows.firing >= 0) & rows.passes & made)
    _, last = _ends(rows, keep(face >= 0), device)
    at, firing = _lasting(rows, last, device)
    changed = take(rows.firing, take(face, at) if node.waits else at)
    at, firing = _where((changed < firing) & take(rows.passes, at), device, at, firing)
    order = by_firing(firing, at, rows.firings, device)
    at, firing = take(at, order), take(firing, order)
    among = np.concatenate([here, at])
    when = np.concatenate([take(rows.firing, here), firing])
    placed = np.argsort(when, kind="stable")
    among, when = take(among, placed), take(when, placed)
    shown = [ShownRows(take(face, among), when, NEW, among)] if NEW in node.shows else []
    if OLD in node.shows:
        old = keep((rows.kind == OLD) & rows.passes & _released(rows))
        shown.append(ShownRows(old, take(rows.firing, old), OLD))
    released = _last_released(rows, last, device)
    return Chosen(
        tuple(shown),
        keep(rows.firing == rows.firings),
        ShownRows(take(face, released), take(rows.firing, released), NEW, released),
    )


# What they share


def _shown_kinds(node: OutputRate) -> list[int]:
    return [kind for kind in (NEW, OLD) if kind in node.shows]


def _released(rows: Gathered) -> Any:
    """bool: which rows a firing takes."""
    return (rows.firing < rows.firings) & (rows.firing >= 0)


def _where(mask: Any, device: Device, *arrays: Any) -> tuple[Any, ...]:
    """Arrays where a mask holds."""
    at = device.kernels.keep(mask)
    return tuple(device.kernels.take(each, at) for each in arrays)


def _show(mask: Any, at: Any, firing: Any, kind: int, device: Device) -> ShownRows:
    """The rows for which a mask holds."""
    at, firing = _where(mask, device, at, firing)
    return ShownRows(at, firing, kind)


def _in_order(some: Any, count: int, device: Device) -> Any:
    """Indices below a number, ascending, each once."""
    found = np.zeros_like(some, shape=(count,), dtype=np.bool_)
    found[some] = True
    return device.kernels.keep(found)


def _waiting(rows: Gathered, new: Any) -> Any:
    """The last of the new rows, if no firing takes it yet."""
    return new[-1:] if len(new) and int(rows.firing[new[-1]]) == rows.firings else new[:0]


def _by_group(rows: Gathered, device: Device, some: Any = None) -> Any:
    """Indices of rows, or of some of them, in order of their groups; those of a group stay in order."""
    some = np.arange(len(rows), like=rows.kind) if some is None else some
    if rows.groups == 1:
        return some
    kernels = device.kernels
    codes = kernels.take(rows.group, some)
    return kernels.take(some, kernels.group_order(codes, rows.groups, some))


def _ends(rows: Gathered, some: Any, device: Device) -> tuple[Any, Any]:
    """(first, last): of some rows the first and the last of each group and firing, by group, then by firing."""
    keep, take = device.kernels.keep, device.kernels.take
    if not len(some):
        return some, some
    order = _by_group(rows, device, some)
    code, firing = take(rows.group, order), take(rows.firing, order)
    return take(order, keep(run_starts(code, firing))), take(order, keep(run_ends(code, firing)))


def _lasting(rows: Gathered, last: Any, device: Device) -> tuple[Any, Any]:
    """(rows, firings): each group's last row at each firing from its own on.

    Args:
        rows: The rows.
        last: The last row of each group and firing, by group, then by firing.
        device: Where they are.
    """
    take = device.kernels.take
    if not len(last):
        return last, last
    code, firing = take(rows.group, last), take(rows.firing, last)
    following = np.concatenate([firing[1:], np.full_like(firing, rows.firings, shape=(1,))])
    until = np.where(run_ends(code), rows.firings, following)
    begin = np.maximum(firing, 0)
    source, offset = device.kernels.expand(np.maximum(np.minimum(until, rows.firings) - begin, 0))
    return take(last, source), take(begin, source) + offset


def _last_released(rows: Gathered, last: Any, device: Device) -> Any:
    """Each group's last row that a firing takes, in order; ``last`` as in `_lasting`."""
    take, keep = device.kernels.take, device.kernels.keep
    last = take(last, keep(take(rows.firing, last) < rows.firings))
    last = take(last, keep(run_ends(take(rows.group, last)))) if len(last) else last
    return _in_order(last, len(rows), device)


def by_firing(firing: Any, at: Any, firings: int, device: Device) -> Any:
    """The order of rows by firing, then as they stand."""
    return device.kernels.group_order(firing.astype(np.int32), firings, at)


def _latest(rows: Gathered, device: Device) -> tuple[Any, Any, Any]:
    """(new rows, firings, rows): the firings at which there is a current row, and that row."""
    new = device.kernels.keep(rows.kind == NEW)
    firing = np.arange(rows.firings, like=new)
    if not len(new):
        return new, firing[:0], new
    at = np.searchsorted(device.kernels.take(rows.firing, new), firing, side="right") - 1
    some = device.kernels.keep(at >= 0)
    at, firing = device.kernels.take(at, some), device.kernels.take(firing, some)
    return new, firing, device.kernels.take(new, at)


def _latest_released(rows: Gathered, new: Any, device: Device) -> Any:
    """The last new row that a firing takes, or that was known before."""
    taken = device.kernels.keep(device.kernels.take(rows.firing, new) < rows.firings)
    return device.kernels.take(new, taken[-1:])


def _known(rows: Gathered, at: Any, device: Device) -> ShownRows:
    return ShownRows(at, device.kernels.take(rows.firing, at), NEW)


def built(rows: Gathered, shown: ShownRows, values: tuple[str, ...], device: Device) -> Any:
    """The frame of rows to show, with the values of their groups in some columns."""
    columns, take = device.columns, device.kernels.take
    own = take(rows.at, shown.rows)
    if shown.values is None or not values:
        return columns.take(rows.frame, own)
    rest = [name for name in rows.frame.columns if name not in values]
    parts = [columns.take(columns.select(rows.frame, rest), own)] if rest else []
    parts.append(columns.take(columns.select(rows.frame, list(values)), take(rows.at, shown.values)))
    return columns.select(columns.beside(*parts), list(rows.frame.columns))
