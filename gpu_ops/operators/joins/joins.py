"""Two streams: pairs of events that are alive together, the times without a partner, clipping, and as-of.

Both inputs stand in order of key, then start. Pairs come in pieces of bounded size, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.core.bounds import refuse_rows
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import TICK
from gpu_ops.devices import Device
from gpu_ops.operators.checked import checked
from gpu_ops.operators.events import Events
from gpu_ops.operators.joins.coverage import Matches, covered, covers_of, uncovered
from gpu_ops.plan.expressions import column_names
from gpu_ops.plan.joins import AsOf, Binary, ClipBy, Join, On

PAIRS = 1 << 20
"""Pairs that are looked at together."""


@dataclass(frozen=True)
class JoinSide:
    """One input, in order of key, then start.

    Attributes:
        codes: int32 number of each event's key; null keys have numbers that the other side has not.
        start: int64 ticks.
        end: int64 ticks; for an as-of join as in `Events`.
        frame: The payload.
    """

    codes: Any
    start: Any
    end: Any
    frame: Any

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, indices: Any, device: Device) -> JoinSide:
        """The events at these indices."""
        take = device.kernels.take
        end = self.end if isinstance(self.end, int) else take(self.end, indices)
        frame = device.columns.take(self.frame, indices)
        return JoinSide(take(self.codes, indices), take(self.start, indices), end, frame)


def join(
    node: Join, left: Events | None, right: Events | None, device: Device, *, gathered: bool = False
) -> Iterator[Events]:
    """The answer of a join over all events of both sides, in pieces; ``gathered`` says that all of them are kept."""
    one, other = sorted_sides(node, left, right, device)
    alone = node.alone
    matches: tuple[Matches, Matches] = ([], [])
    by_pair = node.condition is not None
    if node.pairs and not by_pair:
        yield from _joined(node, one, other, device, gathered=gathered)
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
            numbers = mine.codes
            covers = device.kernels.coverage(partner.codes, partner.start, partner.end)
        cut = covered if node.how == "semi" else uncovered
        rows, start, end = cut(numbers, mine.start, mine.end, covers, device)
        if len(rows):
            frame = device.columns.take(mine.frame, rows)
            given = frame if node.how in {"semi", "anti"} else beside_nulls(node, at, frame, partner.frame, device)
            yield Events(start, end, given)


def sorted_sides(node: Binary, left: Events | None, right: Events | None, device: Device) -> tuple[JoinSide, JoinSide]:
    """Both inputs in order of key, then start."""
    schemas = node.left.schema, node.right.schema
    whole = [nothing(schemas[at], device) if each is None else each for at, each in enumerate((left, right))]
    codes, groups = shared_codes(node.on, whole[0].frame, whole[1].frame, device)
    frames = [events.frame for events in whole]
    if not node.alone[1]:
        # Left has the keys: right's are not asked for again.
        names = [name for name in frames[1].columns if name in node.renamed]
        frames[1] = device.columns.select(frames[1], names) if names else frames[1]
    made = []
    for at, events in enumerate(whole):
        end = events.end if isinstance(node, AsOf) else events.ends
        made.append(_in_order(JoinSide(codes[at], events.start, end, frames[at]), groups, schemas[at], device))
    return made[0], made[1]


def _in_order(side: JoinSide, groups: int, schema: pa.Schema, device: Device) -> JoinSide:
    """A side in order. Numbers move along with the times; what else there is in the payload is gathered afterwards."""
    if device.kernels.is_ordered(side.codes, side.start):
        return side
    times = [side.start] if isinstance(side.end, int) else [side.start, side.end]
    payload = Payload.of(side.frame, schema, device)
    codes, _, moved = device.kernels.partition(side.codes, groups, [*times, *payload.arrays])
    end = side.end if isinstance(side.end, int) else moved[1]
    return JoinSide(codes, moved[0], end, payload.moved(moved[len(times) :], device))


@dataclass(frozen=True)
class Payload:
    """A frame as arrays that kernels move.

    Attributes:
        frame: The frame.
        types: Its columns of numbers without null.
        arrays: Their values; then each row's index, by which other columns are gathered, where there are any.
    """

    frame: Any
    types: dict[str, pa.DataType]
    arrays: list[Any]

    @classmethod
    def of(cls, frame: Any, schema: pa.Schema, device: Device) -> Payload:
        """A frame whose columns have these types."""
        columns, types, arrays = device.columns, {}, []
        for name in frame.columns:
            dtype = schema.field(name).type
            if pa.types.is_integer(dtype) or pa.types.is_float32(dtype) or pa.types.is_float64(dtype):
                values, valid = columns.values(frame, name)
                if valid is None:
                    types[name] = dtype
                    arrays.append(values)
        if len(types) < len(frame.columns):
            arrays.append(columns.array(np.arange(columns.rows(frame))))
        return cls(frame, types, arrays)

    def moved(self, arrays: Sequence[Any], device: Device) -> Any:
        """The frame that its arrays make, moved."""
        columns, names = device.columns, list(self.frame.columns)
        rest = [name for name in names if name not in self.types]
        parts = [columns.take(columns.select(self.frame, rest), arrays[-1])] if rest else []
        if self.types:
            placed = zip(self.types.items(), arrays, strict=False)
            parts.append(columns.build({name: (values, None, dtype) for (name, dtype), values in placed}))
        return parts[0] if len(parts) == 1 else columns.select(columns.beside(*parts), names)


def nothing(schema: pa.Schema, device: Device) -> Events:
    """No events, with all columns."""
    none = device.columns.array(np.zeros(0, np.int64))
    return Events(none, none, device.columns.from_arrow(empty_table(schema)))


def shared_codes(on: On, left: Any, right: Any, device: Device) -> tuple[tuple[Any, Any], int]:
    """(codes of both frames' rows, groups): the same number for the same key; null is like no other."""
    columns = device.columns
    lefts, rights = columns.rows(left), columns.rows(right)
    if not on:
        return (columns.array(np.zeros(lefts, np.int32)), columns.array(np.zeros(rights, np.int32))), 1
    codes, groups, _ = columns.key_codes(key_frame(on, left, right, device), [name for name, _ in on])
    made = [codes[:lefts], codes[lefts:]]
    for at, frame in enumerate((left, right)):
        known = known_keys([each[at] for each in on], frame, device)
        if known is not None:
            made[at] = np.where(known, made[at], np.int32(groups + at)).astype(np.int32)
    return (made[0], made[1]), groups + 2


def key_frame(on: On, left: Any, right: Any, device: Device) -> Any:
    """The key columns of the left rows and of the right ones below them, under left's names."""
    columns = device.columns
    below = columns.select(right, [name for _, name in on])
    held = columns.select(left, [name for name, _ in on])
    for mine, other in on:
        if mine != other:
            below = columns.rename(below, other, f"__{mine}")
    for mine, other in on:
        if mine != other:
            below = columns.rename(below, f"__{mine}", mine)
    return columns.concat([held, below])


def known_keys(names: Sequence[str], frame: Any, device: Device) -> Any | None:
    """Which rows have no null among their keys; None if all."""
    known = None
    for name in names:
        valid = device.columns.validity(frame, name)
        if valid is not None:
            known = valid if known is None else known & valid
    return known


# Pairs


def meetings(node: Join, left: JoinSide, right: JoinSide, device: Device) -> Iterator[OverlapPairs]:
    """All pairs that match, piece by piece."""
    first, offsets, other_first, other_offsets = _within(left, right, device)
    for found in _pieces(first, offsets, left.end, right, device):
        yield from matched(node, left, right, found, device)
    for found in _pieces(other_first, other_offsets, right.end, left, device):
        yield from matched(node, left, right, found.swapped(), device)


def _within(left: JoinSide, right: JoinSide, device: Device) -> tuple[Any, Any, Any, Any]:
    """The right starts within each left lifetime; and the left starts within each right one, after its start."""
    return device.kernels.starts_within(left.codes, left.start, left.end, right.codes, right.start, right.end)


def _joined(node: Join, left: JoinSide, right: JoinSide, device: Device, *, gathered: bool) -> Iterator[Events]:
    """All pairs as events, where no condition chooses among them: their payload is written along with their times."""
    wanted = [name for name in right.frame.columns if name in node.renamed]
    mine = Payload.of(left.frame, node.left.schema, device)
    partner = Payload.of(device.columns.select(right.frame, wanted), node.right.schema, device) if wanted else None
    theirs = [] if partner is None else partner.arrays
    first, offsets, other_first, other_offsets = _within(left, right, device)

    def event(start: Any, end: Any, moved: Any, beside: Any) -> Events:
        frame = mine.moved(moved, device)
        if partner is not None:
            frame = device.columns.beside(frame, _renamed(partner.moved(beside, device), node.renamed, device))
        return Events(start, TICK if TICK in {node.left.duration, node.right.duration} else end, frame)

    count, other_count = int(offsets[-1]), int(other_offsets[-1])
    if gathered:
        refuse_rows(
            count + other_count,
            what=node.describe(),
            remedy="Join on more columns, filter both sides first, or stream the pairs to a file, piece by piece: "
            ".write(…).",
        )
    for low, upto in _parts(count):
        pair = first, offsets, left.end, right.start, right.end, mine.arrays, theirs
        yield event(*device.kernels.joined(*pair, low, upto))
    for low, upto in _parts(other_count):
        pair = other_first, other_offsets, right.end, left.start, left.end, theirs, mine.arrays
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


def pairs(first: Any, last: Any, end: Any, others: JoinSide, device: Device) -> Iterator[OverlapPairs]:
    """The pairs of events and ranges of others, in pieces."""
    return _pieces(first, device.kernels.pair_offsets(first, last), end, others, device)


def _pieces(first: Any, offsets: Any, end: Any, others: JoinSide, device: Device) -> Iterator[OverlapPairs]:
    for low, upto in _parts(int(offsets[-1])):
        yield OverlapPairs(*device.kernels.meetings(first, offsets, end, others.start, others.end, low, upto))


def _parts(total: int) -> Iterator[tuple[int, int]]:
    return ((low, min(low + PAIRS, total)) for low in range(0, total, PAIRS))


def matched(node: Join, left: JoinSide, right: JoinSide, found: OverlapPairs, device: Device) -> Iterator[OverlapPairs]:
    """Of pairs that are alive together those for which the condition holds, if there are any."""
    if node.exact is not None:
        holds = _holds(node, left.frame, right.frame, found, device)
        take = device.kernels.take
        found = OverlapPairs(*(take(each, holds) for each in (found.rows, found.others, found.start, found.end)))
    if len(found.rows):
        yield found


def pair_events(node: Join, left: JoinSide, right: JoinSide, found: OverlapPairs, device: Device) -> Events:
    """Pairs as events."""
    frame = paired(node, device.columns.take(left.frame, found.rows), right.frame, found.others, device)
    points = TICK in {node.left.duration, node.right.duration}
    return Events(found.start, TICK if points else found.end, frame)


def paired(node: Join | AsOf, left: Any, right: Any, others: Any, device: Device, *, valid: Any | None = None) -> Any:
    """Left payloads with those of other rows beside them, or nulls where they are not ``valid``."""
    columns = device.columns
    wanted = [name for name in right.columns if name in node.renamed]
    if not wanted:
        return left
    partner = columns.null_where(columns.take(columns.select(right, wanted), others), valid)
    return columns.beside(left, _renamed(partner, node.renamed, device))


def _renamed(frame: Any, names: dict[str, str], device: Device) -> Any:
    for name in list(frame.columns):
        if names[name] != name:
            frame = device.columns.rename(frame, name, names[name])
    return frame


def _holds(node: Join, left: Any, right: Any, found: OverlapPairs, device: Device) -> Any:
    """The indices of the pairs for which the condition holds."""
    condition, columns = node.exact, device.columns
    assert condition is not None  # noqa: S101  (looked at by the caller)
    read = column_names(condition, node.paired.names)
    before = {new: name for name, new in node.renamed.items()}
    parts = []
    mine = [name for name in read if name not in before]
    if mine:
        parts.append(columns.take(columns.select(left, mine), found.rows))
    others = [before[name] for name in read if name in before]
    if others:
        parts.append(_renamed(columns.take(columns.select(right, others), found.others), node.renamed, device))
    if not parts:  # it reads no column
        parts.append(columns.take(columns.select(left, [left.columns[0]]), found.rows))

    together = Events(found.start, found.end, columns.beside(*parts))
    (condition,) = checked(node.guards, [condition], together, device)

    def step(lazy: Any) -> Any:
        return lazy.select(nw.col("start"), nw.col("end"), __holds=condition)

    _, _, made = columns.evaluate(found.start, TICK, together.frame, [step])
    holds, _ = columns.values(made, "__holds")
    return device.kernels.keep(holds != 0)


def beside_nulls(node: Join | AsOf, at: int, frame: Any, partner: Any, device: Device) -> Any:
    """The payload of events of one side that have no partner: nulls on the other, but for the keys.

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
            parts.append(part if at == 1 else _renamed(part, node.renamed, device))
    if at == 0:
        parts.insert(0, frame)
    elif wanted := [name for name in frame.columns if name in node.renamed]:
        parts.append(_renamed(columns.select(frame, wanted), node.renamed, device))
    return columns.beside(*parts)


# Clip and as-of


def clip_by(node: ClipBy, left: Events | None, right: Events | None, device: Device) -> Events | None:
    """Each left event until the first matching right start after its own."""
    if left is None or not len(left) or right is None or not len(right):
        return left
    one, other = sorted_sides(node, left, right, device)
    return Events(one.start, clipped_ends(one, other, device), one.frame)


def clipped_ends(left: JoinSide, right: JoinSide, device: Device) -> Any:
    """Where left events end once right starts end them."""
    kernels = device.kernels
    if not len(right):
        return left.end
    after = kernels.search_pairs(right.codes, right.start, left.codes, left.start)
    at = np.minimum(after, len(right) - 1)
    begins = kernels.take(right.start, at)
    ended = (after == at) & (kernels.take(right.codes, at) == left.codes) & (begins < left.end)
    return np.where(ended, begins, left.end)


def as_of(node: AsOf, left: Events | None, right: Events | None, device: Device) -> Iterator[Events]:
    """Each left event with the last matching right one that started by then."""
    if left is None or not len(left):
        return
    one, other = sorted_sides(node, left, right, device)
    other = last_of_each_start(other, node.right.schema, device)
    at = last_started(one, other, node.tolerance, device)
    yield from with_last(node, one, other, at, device)


def last_started(left: JoinSide, right: JoinSide, tolerance: int | None, device: Device) -> Any:
    """The index of each left event's right one; -1 for none."""
    at = device.kernels.last_started(left.codes, left.start, right.codes, right.start)
    if tolerance is None or not len(right):
        return at
    return np.where(left.start - device.kernels.take(right.start, np.maximum(at, 0)) <= tolerance, at, -1)


def with_last(node: AsOf, left: JoinSide, right: JoinSide, at: Any, device: Device) -> Iterator[Events]:
    """Left events with the right ones at these indices, and those that have none, if they are kept."""
    found = at >= 0
    if bool(found.all()):
        frame = paired(node, left.frame, right.frame, at, device)
    elif node.how == "inner":
        rows = device.kernels.keep(found)
        left = left.take(rows, device)
        frame = paired(node, left.frame, right.frame, device.kernels.take(at, rows), device)
    elif len(right):
        frame = paired(node, left.frame, right.frame, np.maximum(at, 0), device, valid=found)
    else:
        frame = beside_nulls(node, 0, left.frame, right.frame, device)
    if len(left):
        yield Events(left.start, left.end, frame)


def last_of_each_start(side: JoinSide, schema: pa.Schema, device: Device) -> JoinSide:
    """Of events with one key and one start the one that counts: with the latest end, then the greatest payload.

    Values are compared column by column, null as the least; nested columns play no part.
    """
    codes, start = side.codes, side.start
    if len(side) < 2:
        return side
    same = (codes[1:] == codes[:-1]) & (start[1:] == start[:-1])
    if not bool(same.any()):
        return side
    last = np.concatenate([~same, np.ones_like(same, shape=1)])
    tied = np.concatenate([same, np.zeros_like(same, shape=1)]) | np.concatenate([np.zeros_like(same, shape=1), same])
    rows = device.kernels.keep(tied)
    some = side.take(rows, device)
    order = device.columns.array(np.arange(len(some)))
    keys = [] if isinstance(some.end, int) else [some.end]
    for field in schema:
        if field.name not in some.frame.columns:
            continue  # a key
        if not pa.types.is_nested(field.type):
            keys.append(_ranks(some.frame, field.name, device))
        if pa.types.is_floating(field.type):  # 0.0 and -0.0 are of one rank
            floats, _ = device.columns.values(some.frame, field.name)
            keys.append(floats.view(f"i{floats.itemsize}"))
    for key in reversed([some.codes, some.start, *keys]):
        order = order[np.argsort(key[order], kind="stable")]
    # The tied rows stay where they stood together, each run of them in its own order.
    whole = device.columns.array(np.arange(len(side)))
    whole[rows] = rows[order]
    return side.take(whole[device.kernels.keep(last)], device)


def _ranks(frame: Any, name: str, device: Device) -> Any:
    codes, valid, _ = device.columns.ranks(frame, name)
    return codes if valid is None else np.where(valid, codes, -1)
