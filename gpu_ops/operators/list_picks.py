"""What methods of lists find in the list of each row: searches over all lists of a piece at once, on the host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.operators.events import Events
from gpu_ops.operators.operator import EachPiece
from gpu_ops.plan.list_picks import ListPick


class ListPickOperator(EachPiece, nodes=(ListPick,)):
    """Each row with what is found in its list."""

    passes_open = True

    def each(self, events: Events) -> Events:
        """The same rows with one more column."""
        node, columns = self._node, self._device.columns
        names = list(dict.fromkeys([node.column, *node.arguments]))
        schema = pa.schema([node.input.schema.field(name) for name in names])
        found = picked(columns.to_arrow(columns.select(events.frame, names), schema), node)
        made = columns.from_arrow(pa.table({node.name: found}))
        return Events(events.start, events.end, columns.beside(events.frame, made))


def picked(rows: pa.Table, node: ListPick) -> pa.Array:
    """What is found in the list of each row.

    Args:
        rows: The lists, and the arguments.
        node: What is looked for, and where.

    Examples:
        >>> import pyarrow as pa
        >>> from gpu_ops.core.time import TICK
        >>> from gpu_ops.plan.nodes import Feed
        >>> rows = pa.table({"of": [[{"k": 1}, {"k": 4}, {"k": 4}], None], "at": [2, 2]})
        >>> feed = Feed(rows.schema, (), TICK)
        >>> picked(rows, ListPick(feed, "of", "ceiling", "elements", ("k",), False, ("at",), "found")).to_pylist()
        [[{'k': 4}, {'k': 4}], None]
        >>> picked(rows, ListPick(feed, "of", "first", "keys", ("k",), False, (), "found")).to_pylist()
        [2, 0]
    """
    lists = rows[node.column].combine_chunks()
    lists = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    flat = lists.flatten()
    begins = np.cumsum(sizes) - sizes
    given = [rows[name].combine_chunks() for name in node.arguments]
    known = np.ones(len(lists), np.bool_)
    for each in given:
        known &= each.is_valid().to_numpy(zero_copy_only=False)
    low, high = _range(node, flat, begins, sizes, given)
    there = known & (low < high)
    if node.found == "count":
        return pa.array(np.where(there, high - low, 0).astype(np.int32))
    if node.found == "there":
        return pa.array(there)
    if node.found == "keys":
        starts = _starts(node, flat, begins, sizes)
        of = np.repeat(np.arange(len(lists)), sizes)
        return pa.array(np.bincount(of[starts], minlength=len(lists)).astype(np.int32))
    if node.found == "elements":
        count = np.where(there, high - low, 0)
        ends = np.cumsum(count)
        at = np.repeat(low - (ends - count), count) + np.arange(int(ends[-1]) if len(ends) else 0)
        offsets = np.concatenate([np.zeros(1, np.int64), ends]).astype(np.int32)
        absent = pa.array(np.zeros(len(lists), np.bool_) if node.place == "between" else ~there)
        values = flat.take(pa.array(at))
        return pa.ListArray.from_arrays(pa.array(offsets), values, type=lists.type, mask=absent)
    values = flat if node.found == "element" else flat.field(node.keys[0])
    return values.take(pa.array(np.where(there, low, 0), mask=~there))


def _range(node: ListPick, flat: Any, begins: Any, sizes: Any, given: Sequence[Any]) -> tuple[Any, Any]:
    """(the first element of each row that is found, that behind the last one), counted over all lists."""
    ends = begins + sizes
    if node.place in {"at", "from end"}:
        index = given[0].fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        at = begins + index if node.place == "at" else ends - 1 - index
        inside = (index >= 0) & (at >= begins) & (at < ends)
        return np.where(inside, at, ends), np.where(inside, at + 1, ends)
    if not node.keys:
        if node.found in {"elements", "count", "there"}:
            return begins, ends
        return (begins, ends) if node.place == "first" else (np.maximum(ends - 1, begins), ends)
    if node.place == "first" and node.found in {"count", "there", "keys"}:
        return begins, ends
    of = np.repeat(np.arange(len(sizes)), sizes)
    starts = _starts(node, flat, begins, sizes)
    if node.place in {"first", "last"}:
        at = begins if node.place == "first" else np.maximum(ends - 1, begins)
    elif node.place == "between":
        codes = _codes(node, flat, [given[0], given[2]])
        counts = []
        for side, closed in ((1, given[1]), (2, given[3])):
            with_it = closed.fill_null(False).to_numpy(zero_copy_only=False)
            before, up_to = _before(node, codes[0], codes[side], of, len(sizes))
            counts.append(np.where(with_it, before, up_to) if side == 1 else np.where(with_it, up_to, before))
        return begins + counts[0], np.maximum(begins + counts[1], begins + counts[0])
    else:
        codes = _codes(node, flat, given[:1])
        before, up_to = _before(node, codes[0], codes[1], of, len(sizes))
        if node.place == "equal":
            return begins + before, begins + up_to
        at = begins + {"ceiling": before, "higher": up_to, "floor": up_to - 1, "lower": before - 1}[node.place]
    inside = (at >= begins) & (at < ends)
    if not len(flat):
        return ends, ends
    # An element is found with all that have its key.
    group = np.cumsum(starts) - 1
    firsts = np.flatnonzero(starts)
    behind = np.append(firsts[1:], len(starts))
    safe = np.where(inside, at, 0)
    return np.where(inside, firsts[group[safe]], ends), np.where(inside, behind[group[safe]], ends)


def _starts(node: ListPick, flat: Any, begins: Any, sizes: Any) -> Any:
    """Whether each element is the first one of its key in its list."""
    starts = np.zeros(len(flat), np.bool_)
    starts[begins[sizes > 0]] = True
    for key in node.keys:
        (codes,) = ranks([flat.field(key)])
        starts[1:] |= codes[1:] != codes[:-1]
    return starts


def _codes(node: ListPick, flat: Any, given: Sequence[Any]) -> list[Any]:
    """Whole numbers in the order of keys: those of elements, and of each argument."""
    own = flat.field(node.keys[0])
    codes = ranks([own, *(each.cast(own.type) if each.type != own.type else each for each in given)])
    return [-each for each in codes] if node.descending else codes


def ranks(columns: Sequence[Any]) -> list[Any]:
    """int64: where each value stands in the order of all; null is before the first one."""
    whole = pa.concat_arrays([each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in columns])
    known = whole.is_valid().to_numpy(zero_copy_only=False)
    ranks = pc.rank(whole, tiebreaker="dense")
    codes = np.where(known, ranks.to_numpy(zero_copy_only=False).astype(np.int64), 0)
    return np.split(codes, np.cumsum([len(each) for each in columns])[:-1])


def _before(node: ListPick, own: Any, keys: Any, of: Any, count: int) -> tuple[Any, Any]:
    """(how many elements of each row stand before its key, how many before it or have it)."""
    asked = keys[of]
    return (
        np.bincount(of[own < asked], minlength=count).astype(np.int64),
        np.bincount(of[own <= asked], minlength=count).astype(np.int64),
    )
