"""Two streams in a batch: pairs of events that are alive together, times without a partner, clipping, and as-of.

Both inputs are in order of key, then start. Pairs come in pieces of bounded size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.bounds import refuse_rows
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import TICK
from gpu_ops.devices import Device
from gpu_ops.operators.checked import holds
from gpu_ops.operators.events import Events, Payload
from gpu_ops.operators.joins.coverage import Matches, covered, covers_of, uncovered
from gpu_ops.operators.row_order import payload_keys, run_ends, stable_order, tied_rows
from gpu_ops.operators.state.rows import AxisRows
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.joins import AsOf, Binary, ClipBy, Join, On

PAIRS = 1 << 20
"""The most pairs that are handled at a time."""


def join(
    node: Join, left: Events | None, right: Events | None, device: Device, *, gathered: bool = False
) -> Iterator[Events]:
    """The results of a join over all events of both sides, in pieces; ``gathered`` says that the reader keeps all.

    A side is rows in order of key, then start. Null keys have numbers that the other side does not have.
    """
    one, other = sorted_sides(node, left, right, device)
    alone = node.alone
    matches: tuple[Matches, Matches] = ([], [])
    by_pair = node.condition is not None
    if node.pairs and not by_pair:
        yield from _pairs_without_condition(node, one, other, device, gathered=gathered)
    elif by_pair:
        for found in meetings(node, one, other, device):
            if node.pairs:
                yield pair_events(node, one, other, found, device)
            if alone[0] or not node.pairs:
                matches[0].append((found.rows, found.start, found.end))
            if alone[1]:
                matches[1].append((found.others, found.start, found.end))
    for at, (mine, partner) in enumerate(((one, other), (other, one))):
        if not (alone[at] or (at == 0 and node.how == "semi")):
            continue
        if by_pair:
            numbers = device.columns.array(np.arange(len(mine), dtype=np.int32))
            covers = covers_of(matches[at], device)
        else:
            numbers = mine.code
            covers = device.kernels.coverage(partner.code, partner.low, partner.high)
        cut = covered if node.how == "semi" else uncovered
        rows, start, end = cut(numbers, mine.low, mine.high, covers, device)
        if len(rows):
            frame = device.columns.take(mine.frame, rows)
            given = frame if node.how in {"semi", "anti"} else beside_nulls(node, at, frame, partner.frame, device)
            yield Events(start, end, given)


def sorted_sides(node: Binary, left: Events | None, right: Events | None, device: Device) -> tuple[AxisRows, AxisRows]:
    """Both inputs in order of key, then start."""
    schemas = node.left.schema, node.right.schema
    whole = [nothing(schemas[at], device) if each is None else each for at, each in enumerate((left, right))]
    codes, groups = shared_codes(node.on, whole[0].frame, whole[1].frame, device)
    frames = [events.frame for events in whole]
    if not node.alone[1]:
        # Left has the keys: the keys of right are not needed in results.
        names = [name for name in frames[1].columns if name in node.renamed]
        frames[1] = device.columns.select(frames[1], names) if names else frames[1]
    made = []
    for at, events in enumerate(whole):
        end = events.end if isinstance(node, AsOf) else events.ends
        made.append(_sorted_side(AxisRows(codes[at], events.start, end, {}, frames[at]), groups, schemas[at], device))
    return made[0], made[1]


def _sorted_side(side: AxisRows, groups: int, schema: pa.Schema, device: Device) -> AxisRows:
    """A side in order. Numbers are moved with the times; the rest of the payload is gathered afterwards."""
    if device.kernels.is_ordered(side.code, side.low):
        return side
    times = [side.low] if isinstance(side.high, int) else [side.low, side.high]
    payload = Payload.of(side.frame, schema, device)
    codes, _, moved = device.kernels.partition(side.code, groups, [*times, *payload.arrays])
    end = side.high if isinstance(side.high, int) else moved[1]
    return AxisRows(codes, moved[0], end, {}, payload.moved(moved[len(times) :], device))


def nothing(schema: pa.Schema, device: Device) -> Events:
    """No events, with all columns."""
    none = device.columns.array(np.zeros(0, np.int64))
    return Events(none, none, device.columns.from_arrow(empty_table(schema)))


def shared_codes(on: On, left: Any, right: Any, device: Device) -> tuple[tuple[Any, Any], int]:
    """(codes of both frames' rows, groups): equal keys have equal numbers; null equals no key."""
    columns = device.columns
    lefts, rights = columns.rows(left), columns.rows(right)
    if not on:
        return (columns.array(np.zeros(lefts, np.int32)), columns.array(np.zeros(rights, np.int32))), 1
    names = [name for name, _ in on]
    keys = columns.concat([columns.select(left, names), right_keys(on, right, device)])
    codes, groups, _ = columns.key_codes(keys, names)
    made = [codes[:lefts], codes[lefts:]]
    for at, frame in enumerate((left, right)):
        known = known_keys([each[at] for each in on], frame, device)
        if known is not None:
            made[at] = np.where(known, made[at], np.int32(groups + at)).astype(np.int32)
    return (made[0], made[1]), groups + 2


def right_keys(on: On, right: Any, device: Device) -> Any:
    """The key columns of the right rows, under left's names."""
    columns = device.columns
    keys = columns.select(right, [name for _, name in on])
    # In two steps: a new name may still be that of another key.
    others = {mine: other for mine, other in on if mine != other}
    keys = renamed(keys, {other: f"__{mine}" for mine, other in others.items()}, device)
    return renamed(keys, {f"__{mine}": mine for mine in others}, device)


def known_keys(names: Sequence[str], frame: Any, device: Device) -> Any | None:
    """Which rows have no null among their keys; None if all."""
    known = None
    for name in names:
        valid = device.columns.validity(frame, name)
        if valid is not None:
            known = valid if known is None else known & valid
    return known


# Pairs


def meetings(node: Join, left: AxisRows, right: AxisRows, device: Device) -> Iterator[OverlapPairs]:
    """All pairs that match, piece by piece."""
    for found in overlaps(left, right, device):
        yield from matched(node, left, right, found, device)


def overlaps(left: AxisRows, right: AxisRows, device: Device) -> Iterator[OverlapPairs]:
    """All pairs of equal keys that are alive together, piece by piece; both sides are in order of key and start."""
    first, offsets, other_first, other_offsets = _within(left, right, device)
    yield from pieces(first, offsets, left.high, right, device)
    for found in pieces(other_first, other_offsets, right.high, left, device):
        yield found.swapped()


def starting_within(rows: AxisRows, others: AxisRows, device: Device) -> tuple[Any, Any]:
    """(first, offsets) of the others that start within each row's lifetime; both are in order of key and start."""
    return _within(rows, others, device)[:2]


def starting_after(rows: AxisRows, others: AxisRows, device: Device) -> tuple[Any, Any]:
    """(first, offsets) of the rows that start within each of the others' lifetimes, after its start."""
    return _within(rows, others, device)[2:]


def _within(left: AxisRows, right: AxisRows, device: Device) -> tuple[Any, Any, Any, Any]:
    """The right starts within each left lifetime; and the left starts within each right one, after its start."""
    return device.kernels.starts_within(left.code, left.low, left.high, right.code, right.low, right.high)


def _pairs_without_condition(
    node: Join, left: AxisRows, right: AxisRows, device: Device, *, gathered: bool
) -> Iterator[Events]:
    """All pairs as events, without a condition: their payload is written together with their times."""
    wanted = [name for name in right.frame.columns if name in node.renamed]
    mine = Payload.of(left.frame, node.left.schema, device)
    partner = Payload.of(device.columns.select(right.frame, wanted), node.right.schema, device) if wanted else None
    theirs = [] if partner is None else partner.arrays
    first, offsets, other_first, other_offsets = _within(left, right, device)

    def event(start: Any, end: Any, moved: Any, beside: Any) -> Events:
        frame = mine.moved(moved, device)
        if partner is not None:
            frame = device.columns.beside(frame, renamed(partner.moved(beside, device), node.renamed, device))
        return Events(start, TICK if TICK in {node.left.duration, node.right.duration} else end, frame)

    count, other_count = int(offsets[-1]), int(other_offsets[-1])
    if gathered:
        refuse_rows(
            count + other_count,
            what=node.describe(),
            remedy="Join on more columns, filter both sides first, or stream the pairs to a file, piece by piece: "
            ".write(…).",
        )
    for low, upto in _pair_bounds(count):
        pair = first, offsets, left.high, right.low, right.high, mine.arrays, theirs
        yield event(*device.kernels.joined(*pair, low, upto))
    for low, upto in _pair_bounds(other_count):
        pair = other_first, other_offsets, right.high, left.low, left.high, theirs, mine.arrays
        start, end, beside, moved = device.kernels.joined(*pair, low, upto)
        yield event(start, end, moved, beside)


@dataclass(frozen=True)
class OverlapPairs:
    """Pairs of events that are alive at the same time.

    Attributes:
        rows: int64 index of each pair's left event.
        others: int64 index of its right event.
        start: int64 ticks from which both are alive.
        end: int64 ticks until which they are.
    """

    rows: Any
    others: Any
    start: Any
    end: Any

    def swapped(self) -> OverlapPairs:
        """Right and left exchanged."""
        return OverlapPairs(self.others, self.rows, self.start, self.end)

    def take(self, at: Any, device: Device) -> OverlapPairs:
        """The pairs at some indices."""
        return OverlapPairs(*(device.kernels.take(each, at) for each in vars(self).values()))


def no_pairs(device: Device) -> OverlapPairs:
    """None."""
    none = device.columns.array(np.zeros(0, np.int64))
    return OverlapPairs(none, none, none, none)


def all_pairs(pieces: Sequence[OverlapPairs], device: Device) -> OverlapPairs:
    """Several pieces as one."""
    some = [each for each in pieces if len(each.rows)]
    if len(some) < 2:
        return some[0] if some else no_pairs(device)
    return OverlapPairs(*map(np.concatenate, zip(*(vars(each).values() for each in some), strict=True)))


def pairs(first: Any, last: Any, end: Any, others: AxisRows, device: Device) -> Iterator[OverlapPairs]:
    """The pairs of events and ranges of others, in pieces."""
    return pieces(first, device.kernels.pair_offsets(first, last), end, others, device)


def pieces(first: Any, offsets: Any, end: Any, others: AxisRows, device: Device) -> Iterator[OverlapPairs]:
    """The pairs of events and others, of which each meets some from the first one on, in pieces."""
    for low, upto in _pair_bounds(int(offsets[-1])):
        yield OverlapPairs(*device.kernels.meetings(first, offsets, end, others.low, others.high, low, upto))


def _pair_bounds(total: int) -> Iterator[tuple[int, int]]:
    """(low, upto) of pieces of a number of pairs."""
    return ((low, min(low + PAIRS, total)) for low in range(0, total, PAIRS))


def matched(node: Join, left: AxisRows, right: AxisRows, found: OverlapPairs, device: Device) -> Iterator[OverlapPairs]:
    """The pairs for which the condition holds; none if there are none."""
    if node.exact:
        found = found.take(_matching(node, left.frame, right.frame, found, device), device)
    if len(found.rows):
        yield found


def pair_events(node: Join, left: AxisRows, right: AxisRows, found: OverlapPairs, device: Device) -> Events:
    """Pairs as events."""
    frame = paired(node, device.columns.take(left.frame, found.rows), right.frame, found.others, device)
    points = TICK in {node.left.duration, node.right.duration}
    return Events(found.start, TICK if points else found.end, frame)


def paired(node: Join | AsOf, left: Any, right: Any, others: Any, device: Device, *, valid: Any | None = None) -> Any:
    """Left payloads beside those of right rows; nulls if a right row is not ``valid``."""
    columns = device.columns
    wanted = [name for name in right.columns if name in node.renamed]
    if not wanted:
        return left
    partner = columns.null_where(columns.take(columns.select(right, wanted), others), valid)
    return columns.beside(left, renamed(partner, node.renamed, device))


def renamed(frame: Any, names: dict[str, str], device: Device) -> Any:
    """A frame, some of whose columns have other names."""
    for name in list(frame.columns):
        if names.get(name, name) != name:
            frame = device.columns.rename(frame, name, names[name])
    return frame


def _matching(node: Join, left: Any, right: Any, found: OverlapPairs, device: Device) -> Any:
    """The indices of the pairs for which the condition holds."""
    (condition,), columns = node.exact, device.columns
    read = column_names(condition, node.paired.names)
    before = {new: name for name, new in node.renamed.items()}
    parts = []
    mine = [name for name in read if name not in before]
    if mine:
        parts.append(columns.take(columns.select(left, mine), found.rows))
    others = [before[name] for name in read if name in before]
    if others:
        parts.append(renamed(columns.take(columns.select(right, others), found.others), node.renamed, device))
    if not parts:  # it reads no column
        parts.append(columns.take(columns.select(left, [left.columns[0]]), found.rows))

    together = Events(found.start, found.end, columns.beside(*parts))
    return device.kernels.keep(holds(condition, node.guards, together, device))


def beside_nulls(node: Join | AsOf, at: int, frame: Any, partner: Any, device: Device) -> Any:
    """The payload of one side's events without a partner: nulls for the other side, except for its keys.

    Args:
        node: The node.
        at: Which side: 0 for left.
        frame: Its payload.
        partner: A frame of the other side, whose columns are wanted.
        device: Where they are.
    """
    columns = device.columns
    schema, count = node.inputs[1 - at].schema, columns.rows(frame)
    keys = dict(node.on) if at == 1 else {}
    parts = []
    for name in partner.columns:
        if name in keys:
            part = columns.select(frame, [keys[name]])
            parts.append(part if keys[name] == name else columns.rename(part, keys[name], name))
        elif at == 1 or name in node.renamed:
            part = columns.nulls(columns.from_arrow(empty_table(pa.schema([schema.field(name)]))), count)
            parts.append(part if at == 1 else renamed(part, node.renamed, device))
    if at == 0:
        parts.insert(0, frame)
    elif wanted := [name for name in frame.columns if name in node.renamed]:
        parts.append(renamed(columns.select(frame, wanted), node.renamed, device))
    return columns.beside(*parts)


# Clip and as-of


def clip_by(node: ClipBy, left: Events | None, right: Events | None, device: Device) -> Events | None:
    """Each left event until the first matching right start after its own."""
    if left is None or not len(left) or right is None or not len(right):
        return left
    one, other = sorted_sides(node, left, right, device)
    return Events(one.low, clipped_ends(one, other, device), one.frame)


def clipped_ends(left: AxisRows, right: AxisRows, device: Device) -> Any:
    """The ends of left events, clipped at the first matching right start after their own start."""
    kernels = device.kernels
    if not len(right):
        return left.high
    after = kernels.search_pairs(right.code, right.low, left.code, left.low)
    at = np.minimum(after, len(right) - 1)
    begins = kernels.take(right.low, at)
    ended = (after == at) & (kernels.take(right.code, at) == left.code) & (begins < left.high)
    return np.where(ended, begins, left.high)


def as_of(node: AsOf, left: Events | None, right: Events | None, device: Device) -> Iterator[Events]:
    """Each left event with the matching right one that starts near it."""
    if left is None or not len(left):
        return
    one, other = sorted_sides(node, left, right, device)
    other = last_of_each_start(other, node.right.schema, device)
    find = first_started if node.direction == "forward" else last_started
    at = find(one, other, node.tolerance, device)
    if node.direction == "nearest" and len(other):
        following = first_started(one, other, node.tolerance, device)
        before, after = (device.kernels.take(other.low, np.maximum(each, 0)) for each in (at, following))
        at = np.where((following >= 0) & ((at < 0) | (after - one.low < one.low - before)), following, at)
    yield from with_last(node, one, other, at, device)


def last_started(left: AxisRows, right: AxisRows, tolerance: int | None, device: Device) -> Any:
    """The index of each left event's right one that started last by then; -1 for none."""
    at = device.kernels.last_started(left.code, left.low, right.code, right.low)
    if tolerance is None or not len(right):
        return at
    return np.where(left.low - device.kernels.take(right.low, np.maximum(at, 0)) <= tolerance, at, -1)


def first_started(left: AxisRows, right: AxisRows, tolerance: int | None, device: Device) -> Any:
    """The index of each left event's right one that starts first then or later; -1 for none."""
    if not len(right):
        return np.full_like(left.low, -1)
    kernels = device.kernels
    after = kernels.search_pairs(right.code, right.low, left.code, left.low - 1)
    at = np.minimum(after, len(right) - 1)
    found = (after == at) & (kernels.take(right.code, at) == left.code)
    if tolerance is not None:
        found = found & (kernels.take(right.low, at) - left.low <= tolerance)
    return np.where(found, at, -1)


def with_last(node: AsOf, left: AxisRows, right: AxisRows, at: Any, device: Device) -> Iterator[Events]:
    """Left events with the right events at some indices; left events without one too, if the join keeps them."""
    if node.how == "inner" and not bool((at >= 0).all()):
        rows = device.kernels.keep(at >= 0)
        left, at = left.take(rows, device), device.kernels.take(at, rows)
    if len(left):
        yield Events(left.low, left.high, beside_last(node, left.frame, right, at, device))


def beside_last(node: AsOf, frame: Any, right: AxisRows, at: Any, device: Device) -> Any:
    """Left payloads beside those of the right events at some indices, of which -1 stands for none."""
    found = at >= 0
    if bool(found.all()):
        return paired(node, frame, right.frame, at, device)
    if len(right):
        return paired(node, frame, right.frame, np.maximum(at, 0), device, valid=found)
    return beside_nulls(node, 0, frame, right.frame, device)


def last_of_each_start(side: AxisRows, schema: pa.Schema, device: Device) -> AxisRows:
    """The event that counts among events of one key and start: the one with the latest end, then the greatest payload.

    Values are compared column by column, null is the least; nested columns play no part.
    """
    rows = tied_rows(side.code, side.low, device)
    if rows is None:
        return side
    some = side.take(rows, device)
    ends = [] if isinstance(some.high, int) else [some.high]
    by_payload = payload_keys(some.frame, schema.names, schema, device)
    # The tied rows keep their places together, each run of them in its own order.
    order = np.arange(len(side), like=side.low)
    order[rows] = rows[stable_order([some.code, some.low, *ends, *by_payload], rows, device)]
    return side.take(order[device.kernels.keep(run_ends(side.code, side.low))], device)
