"""Methods of lists over all lists of a piece at once: their functions on the device, all else on the host."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.errors import IntegerOverflowError
from gpu_ops.operators.events import Events
from gpu_ops.operators.filter_project import FilterProject
from gpu_ops.operators.list_picks import ranks
from gpu_ops.operators.operator import EachPiece
from gpu_ops.plan.list_methods import ELEMENT, INDEX, SIZE, VALUE, ListMethod


class ListMethodOperator(EachPiece, nodes=(ListMethod,)):
    """Each row with what a method makes of its list."""

    passes_open = True

    def each(self, events: Events) -> Events:
        """The same rows with one more column."""
        node, columns = self._node, self._device.columns
        names = list(dict.fromkeys([node.column, *([node.argument] if node.argument else []), *node.outer]))
        schema = pa.schema([node.input.schema.field(name) for name in names])
        rows = columns.to_arrow(columns.select(events.frame, names), schema)
        lists = Lists.of(rows[node.column])
        values = lists.flat if node.elements is None else self._valued(lists, rows, events)
        argument = rows[node.argument].combine_chunks() if node.argument else None
        made = made_of(node, lists, values, argument)
        frame = columns.from_arrow(pa.table([made], pa.schema([pa.field(node.name, node.type)])))
        return Events(events.start, events.end, columns.beside(events.frame, frame))

    def _valued(self, lists: Lists, rows: pa.Table, events: Events) -> pa.Array:
        """What the function gives for each element."""
        node, device = self._node, self._device
        schema = node.elements.input.schema
        some = rows.select(list(node.outer)).take(pa.array(lists.owner)) if node.outer else None
        given = {
            ELEMENT: lists.flat,
            INDEX: pa.array(lists.index),
            SIZE: pa.array(lists.sizes[lists.owner], pa.int32()),
        }
        table = pa.table(
            [given[each.name] if some is None or each.name in given else some[each.name] for each in schema], schema
        )
        owner = device.columns.array(lists.owner)
        elements = events.repeated(owner, device.columns.from_arrow(table), device)
        found = FilterProject([node.elements], device).each(elements)
        return device.columns.to_arrow(found.frame, node.elements.schema)[VALUE].combine_chunks()


@dataclass(frozen=True)
class Lists:
    """Lists and their elements, one behind the other.

    Attributes:
        flat: The elements.
        sizes: int64 number of elements of each list.
        known: Whether each list is there.
    """

    flat: pa.Array
    sizes: Any
    known: Any

    @classmethod
    def of(cls, column: Any) -> Lists:
        """The lists of a column."""
        lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        sizes = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(lists.flatten(), sizes, lists.is_valid().to_numpy(zero_copy_only=False))

    @cached_property
    def begins(self) -> Any:
        """Where each list begins."""
        return np.cumsum(self.sizes) - self.sizes

    @cached_property
    def owner(self) -> Any:
        """int64: the list of each element."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def index(self) -> Any:
        """int32: the place of each element in its list."""
        return (np.arange(len(self.owner)) - self.begins[self.owner]).astype(np.int32)

    def counted(self, chosen: Any) -> Any:
        """int64: how many elements of each list are chosen."""
        return np.bincount(self.owner[chosen], minlength=len(self.sizes)).astype(np.int64)

    def firsts(self, order: Any) -> tuple[Any, Any]:
        """(the lists that have any of some elements, the first of these of each), of elements in some order."""
        owners, at = np.unique(self.owner[order], return_index=True)
        return owners, order[at]


def made_of(node: ListMethod, lists: Lists, values: Any, argument: Any = None) -> pa.Array:
    """What a method makes of each list.

    Args:
        node: Says which.
        lists: The lists.
        values: What its function gives for each element; the elements if it has none.
        argument: The numbers or the other lists that it takes.

    Examples:
        >>> from gpu_ops.core.time import TICK
        >>> from gpu_ops.plan.nodes import Feed
        >>> rows = pa.table({"of": [[3, 1, 2], [], None]})
        >>> node = ListMethod(Feed(rows.schema, (), TICK), "of", "orderby", None, "", rows["of"].type, "made")
        >>> lists = Lists.of(rows["of"])
        >>> made_of(node, lists, lists.flat).to_pylist()
        [[1, 2, 3], [], None]
    """
    there = np.ones_like(lists.known) if node.absent else lists.known
    if node.method in _PICKED:
        at = _PICKED[node.method](lists, values)
        source = values if node.method in _OF_VALUES else lists.flat
        found = there & (at >= 0)
        return source.take(pa.array(np.where(found, at, 0), mask=~found)).cast(node.type)
    if node.method in _FOLDED:
        return _FOLDED[node.method](node, lists, values, there)
    other = Lists.of(argument) if argument is not None and pa.types.is_list(argument.type) else None
    if node.method == "sequenceequal":
        return pa.array(_equal(lists, other), mask=~there)
    if node.method in {"selectfrom", "arrayof"}:
        return _listed(node, values, lists.sizes, there)
    if node.method == "union":
        return _union(node, lists, other, there)
    if node.method in _ORDERED:
        return _listed(node, lists.flat.take(pa.array(_ORDERED[node.method](lists, values))), lists.sizes, there)
    if other is not None:
        kept = _kept_beside(node.method, lists, other)
    elif argument is not None:
        there = there & argument.is_valid().to_numpy(zero_copy_only=False)
        count = argument.fill_null(0).to_numpy(zero_copy_only=False)[lists.owner]
        kept = lists.index < count if node.method == "take" else lists.sizes[lists.owner] - lists.index <= count
    else:
        kept = _KEPT[node.method](lists, values)
    return _listed(node, lists.flat.filter(pa.array(kept)), lists.counted(kept), there)


def _listed(node: ListMethod, flat: Any, sizes: Any, there: Any) -> pa.Array:
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), flat, type=node.type, mask=pa.array(~there))


def _true(values: Any) -> Any:
    """bool: where a condition holds, which it does not where it is null."""
    return values.fill_null(False).to_numpy(zero_copy_only=False).astype(np.bool_)


def _codes(*columns: Any) -> list[Any]:
    """int64: values as numbers in their order; null is before all."""
    return ranks([each.cast(pa.int8()) if pa.types.is_boolean(each.type) else each for each in columns])


# One of the elements, or of their values


def _extreme(lists: Lists, values: Any, sign: int) -> Any:
    """The element with the least value; of several the first one. Null is none."""
    (codes,) = _codes(values)
    chosen = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
    order = chosen[np.lexsort((sign * codes[chosen], lists.owner[chosen]))]
    return _placed(lists, order)


def _first(lists: Lists, values: Any) -> Any:
    return _placed(lists, np.flatnonzero(_true(values)))


def _last(lists: Lists, values: Any) -> Any:
    return _placed(lists, np.flatnonzero(_true(values))[::-1])


def _frequent(lists: Lists, values: Any, sign: int) -> Any:
    """The value that occurs most often; of several the one that came first."""
    (codes,) = _codes(values)
    order = np.lexsort((codes, lists.owner))
    of, code = lists.owner[order], codes[order]
    begins = np.flatnonzero(np.append(True, (of[1:] != of[:-1]) | (code[1:] != code[:-1]))[: len(of)])
    counts, first = np.diff(np.append(begins, len(of))), order[begins]
    return _placed(lists, first[np.lexsort((first, sign * counts, of[begins]))])


def _placed(lists: Lists, order: Any) -> Any:
    """The first of some elements of each list; -1 where it has none."""
    made = np.full(len(lists.sizes), -1, np.int64)
    owners, at = lists.firsts(order)
    made[owners] = at
    return made


_PICKED: Mapping[str, Callable[[Lists, Any], Any]] = {
    "firstof": _first,
    "lastof": _last,
    "minby": lambda lists, values: _extreme(lists, values, 1),
    "maxby": lambda lists, values: _extreme(lists, values, -1),
    "min": lambda lists, values: _extreme(lists, values, 1),
    "max": lambda lists, values: _extreme(lists, values, -1),
    "mostfrequent": lambda lists, values: _frequent(lists, values, -1),
    "leastfrequent": lambda lists, values: _frequent(lists, values, 1),
}
_OF_VALUES = frozenset({"min", "max", "mostfrequent", "leastfrequent"})


# One value of all elements


def _all(node: ListMethod, lists: Lists, values: Any, there: Any) -> pa.Array:
    return pa.array(lists.counted(~_true(values)) == 0, mask=~there)


def _any(node: ListMethod, lists: Lists, values: Any, there: Any) -> pa.Array:
    return pa.array(lists.counted(_true(values)) > 0, mask=~there)


def _count(node: ListMethod, lists: Lists, values: Any, there: Any) -> pa.Array:
    count = lists.sizes if node.elements is None else lists.counted(_true(values))
    return pa.array(count, node.type, mask=~there)


def _sum(node: ListMethod, lists: Lists, values: Any, there: Any) -> pa.Array:
    """The sum, or the average, of what is there; null of nothing."""
    given = values.is_valid().to_numpy(zero_copy_only=False)
    count = lists.counted(given)
    numbers = values.fill_null(0).to_numpy(zero_copy_only=False)
    total = np.bincount(lists.owner, numbers.astype(np.float64), len(lists.sizes))
    absent = ~(there & (count > 0))
    if pa.types.is_integer(node.type):
        size = np.bincount(lists.owner, np.abs(numbers.astype(np.float64)), len(lists.sizes))
        if len(size) and float(size.max()) >= 2.0**63:
            raise IntegerOverflowError("A sum of a list's numbers does not fit 64 bits.", column=node.column)
        whole = np.concatenate([np.zeros(1, np.int64), np.cumsum(numbers.astype(np.int64))])
        total = whole[lists.begins + lists.sizes] - whole[lists.begins]
        low, high = (getattr(np.iinfo(node.type.to_pandas_dtype()), end) for end in ("min", "max"))
        if ((total < low) | (total > high)).any():
            raise IntegerOverflowError("A sum of a list's numbers does not fit its type.", column=node.column)
    if node.method == "average":
        total = total / np.maximum(count, 1)
    return pa.array(total, node.type, mask=absent)


_FOLDED: Mapping[str, Callable[[ListMethod, Lists, Any, Any], pa.Array]] = {
    "allof": _all,
    "anyof": _any,
    "countof": _count,
    "sumof": _sum,
    "average": _sum,
}


# Some of the elements, or all in another order


def _leading(lists: Lists, values: Any) -> Any:
    """The elements before the first for which a condition does not hold."""
    wrong = np.concatenate([np.zeros(1, np.int64), np.cumsum(~_true(values))])
    return wrong[1:] == wrong[lists.begins][lists.owner]


def _trailing(lists: Lists, values: Any) -> Any:
    """The elements behind the last for which it does not hold."""
    wrong = np.concatenate([np.zeros(1, np.int64), np.cumsum(~_true(values))])
    return wrong[:-1] == wrong[lists.begins + lists.sizes][lists.owner]


def _distinct(lists: Lists, values: Any) -> Any:
    """The first element of each value."""
    (codes,) = _codes(values)
    return _firsts(lists, codes)


def _firsts(lists: Lists, codes: Any) -> Any:
    order = np.lexsort((codes, lists.owner))
    of, code = lists.owner[order], codes[order]
    first = np.append(True, (of[1:] != of[:-1]) | (code[1:] != code[:-1]))[: len(of)]
    made = np.zeros(len(codes), np.bool_)
    made[order[first]] = True
    return made


def _kept_beside(method: str, lists: Lists, other: Lists) -> Any:
    """The distinct elements that another list has, or has not; all elements where there is no other list."""
    own, theirs = _codes(lists.flat, other.flat.cast(lists.flat.type))
    width = int(max([0, *own[-1:], own.max(initial=0), theirs.max(initial=0)])) + 1
    inside = np.isin(lists.owner * width + own, other.owner * width + theirs)
    kept = (inside if method == "intersect" else ~inside) & _firsts(lists, own)
    return kept | ~other.known[lists.owner]


_KEPT: Mapping[str, Callable[[Lists, Any], Any]] = {
    "where": lambda lists, values: _true(values),
    "takewhile": _leading,
    "takewhilelast": _trailing,
    "distinctof": _distinct,
}
_ORDERED: Mapping[str, Callable[[Lists, Any], Any]] = {
    "orderby": lambda lists, values: np.lexsort((_codes(values)[0], lists.owner)),
    "orderbydesc": lambda lists, values: np.lexsort((-_codes(values)[0], lists.owner)),
    "reverse": lambda lists, values: (lists.begins + lists.sizes - 1)[lists.owner] - lists.index,
}


def _equal(lists: Lists, other: Any) -> Any:
    """Whether two lists have the same elements in one order."""
    own, theirs = _codes(lists.flat, other.flat.cast(lists.flat.type))
    same = (lists.sizes == other.sizes) & other.known
    both = same[lists.owner]
    differs = own[both] != theirs[same[other.owner]]
    return same & (np.bincount(lists.owner[both][differs], minlength=len(same)) == 0)


def _union(node: ListMethod, lists: Lists, other: Any, there: Any) -> pa.Array:
    """The elements of one list, and behind them those of the other."""
    flat = pa.concat_arrays([lists.flat, other.flat.cast(lists.flat.type)])
    order = np.argsort(np.concatenate([lists.owner, other.owner]), kind="stable")
    return _listed(node, flat.take(pa.array(order)), lists.sizes + other.sizes, there)
