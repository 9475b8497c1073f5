"""Aggregates that choose an event: order codes of several columns at once, so that the chosen one is an extreme."""

# ruff: noqa: SLF001  (these are results of a block, in a module of their own)

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.operators.aggregates import LOADERS, LOADS, RESULTS, Block, Column, column_form, column_name, order_codes
from gpu_ops.plan.aggregates import EXTREMES, Aggregate

GREATEST = "greatest"
"""The kind of the extreme that a choice is, of codes that are the greater the sooner an event is chosen; and the form
of their column."""


@dataclass(frozen=True)
class Key:
    """A column by which events are chosen.

    Attributes:
        column: Its name.
        form: "numbers" or "ranks".
        sign: 1 where the greater is chosen, -1 where the less.
        needed: Whether an event where it is null takes no part; else null is less than all values.
    """

    column: str
    form: str
    sign: int
    needed: bool


_SIGNS = {"first": (-1, -1), "last": (1, 1), "arg_min": (-1, -1), "arg_max": (1, -1)}
"""For each kind, the sign of its first key and that of all others."""


@dataclass(frozen=True)
class Choice:
    """Which event is chosen; the value is the last of the keys."""

    keys: tuple[Key, ...]

    @property
    def name(self) -> str:
        """The name of the column of its codes: all there is to know of it."""
        return json.dumps([[key.column, key.form, key.sign, key.needed] for key in self.keys])

    @staticmethod
    def of(name: str) -> Choice:
        """The choice of that name."""
        return Choice(tuple(Key(*each) for each in json.loads(name)))

    @property
    def columns(self) -> list[str]:
        """The columns that it reads, each once."""
        return list(dict.fromkeys(key.column for key in self.keys))


def choice(aggregate: Aggregate, schema: pa.Schema) -> Choice:
    """What an aggregate chooses by."""
    of_first, of_rest = _SIGNS[aggregate.kind]
    by_value = aggregate.kind.startswith("arg")
    keys = []
    for at, expression in enumerate((*aggregate.others, aggregate.expression)):
        name = column_name(expression)
        needed = at == len(aggregate.others) or (by_value and at == 0)
        keys.append(Key(name, column_form("min", schema.field(name).type), of_rest if at else of_first, needed))
    return Choice(tuple(keys))


def as_extreme(aggregate: Aggregate, schema: pa.Schema) -> Aggregate | None:
    """The extreme that an aggregate is, if it is one: of its own column, or of the codes of a choice."""
    if aggregate.kind not in EXTREMES:
        return None
    if aggregate.kind in {"min", "max"}:
        return aggregate
    return _extreme(aggregate, schema)


def _extreme(aggregate: Aggregate, schema: pa.Schema) -> Aggregate:
    return Aggregate(GREATEST, nw.col(choice(aggregate, schema).name), aggregate.filter, name=aggregate.name)


def form_of(extreme: Aggregate, schema: pa.Schema) -> str:
    """In which form an extreme takes its column."""
    if extreme.kind == GREATEST:
        return GREATEST
    return column_form(extreme.kind, schema.field(column_name(extreme.expression)).type)


def ranked_by(column: str, kind: str) -> list[str]:
    """The columns of a frame that say how an extreme's values are ranked."""
    return Choice.of(column).columns if kind == GREATEST else [column]


def ranked(frame: Any, column: str, kind: str, device: Device) -> Column:
    """Order codes of a frame's rows for an extreme."""
    if kind == GREATEST:
        return choice_codes(frame, column, device)
    codes, valid, distinct = device.columns.ranks(frame, column)
    return Column((codes,), valid, distinct)


def choice_codes(frame: Any, name: str, device: Device) -> Column:
    """Order codes of rows for a choice: ascending from the worst to the best, equal for rows of the same keys.

    Its ``distinct`` has the value that goes with each code, in a column of the choice's name.
    """
    columns = device.columns
    together: Any = None
    valid: Any = None
    bound = 1
    for key in Choice.of(name).keys:
        values = None
        if key.form == "ranks":
            codes, there, values = columns.ranks(frame, key.column)
        else:
            numbers, there = columns.values(frame, key.column)
            codes = order_codes(numbers, device)
        if key.needed and there is not None:
            valid = there if valid is None else valid & there
        dense = np.unique(codes, return_inverse=True)[1].astype(np.int64, copy=False)
        if there is not None and not key.needed:
            dense = np.where(there, dense + 1, 0)
        count = int(dense.max()) + 1 if len(dense) else 1
        dense = dense if key.sign > 0 else count - 1 - dense
        if together is not None and bound * count >= 1 << 62:
            together = np.unique(together, return_inverse=True)[1].astype(np.int64, copy=False)
            bound = len(together)
        together = dense if together is None else together * count + dense
        bound *= count
    if valid is not None:
        # What takes no part has a code of its own, so that a value there is goes with every other one.
        together = np.where(valid, together + 1, 0)
    _, example, together = np.unique(together, return_index=True, return_inverse=True)
    # The last key is the value.
    source = key.column
    if values is None:
        numbers, _ = columns.values(frame, source)
        values = columns.take(columns.select(frame, [source]), example)
        if numbers.dtype.kind == "f":
            # One zero and one NaN stand for all.
            made = device.kernels.unorder_float(device.kernels.take(codes, example))
            values = columns.build({source: (made, None, pa.from_numpy_dtype(numbers.dtype))})
    elif columns.rows(values):
        values = columns.take(values, device.kernels.take(codes, example))
    else:
        values = columns.nulls(values, len(example))
    return Column((together.astype(np.int64, copy=False),), valid, columns.rename(values, source, name))


def _chosen(block: Block, aggregate: Aggregate) -> Any:
    extreme = _extreme(aggregate, block.schema)
    name = column_name(extreme.expression)
    _, (codes,), first, last = block._picked(extreme, GREATEST)
    best = block._greatest(extreme, codes, first, last)
    valid = block._present(extreme, GREATEST)
    if valid is not None:
        best = np.where(valid, best, 0)
    return block._from_ranks(extreme, block.columns[name, GREATEST].distinct, best, valid)


def _loads(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    return [(choice(aggregate, schema).name, GREATEST)]


RESULTS.update(dict.fromkeys(_SIGNS, _chosen))
LOADS.update(dict.fromkeys(_SIGNS, _loads))
LOADERS[GREATEST] = choice_codes
