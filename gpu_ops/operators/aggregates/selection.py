"""Aggregates that select one event's value: extremes, and choices, which are extremes of codes of several columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.errors import PlanError
from gpu_ops.operators.aggregates.block import Block
from gpu_ops.operators.aggregates.forms import FORMS, GREATEST, Choice, Key, PartName, column_name, ranked_by
from gpu_ops.plan.aggregate_kinds import AggregateKind, Extreme, kind_named, order_form, ordered_type
from gpu_ops.plan.aggregates import Aggregate


@dataclass(frozen=True)
class Extremum:
    """The column of which an aggregate selects the greatest or the least value.

    Attributes:
        aggregate: The aggregate, over the column whose order codes decide.
        form: The form in which that column is loaded.
        least: Whether it is the least.
    """

    aggregate: Aggregate
    form: str
    least: bool

    @staticmethod
    def of(aggregate: Aggregate, schema: pa.Schema) -> Extremum:
        """The extremum of an aggregate that is an extreme, or that is computed as the extreme of another column.

        Raises:
            PlanError: The aggregate is neither.
        """
        way = aggregate.kind.incremental
        if isinstance(way, Extreme) and way.of is not None:
            aggregate = way.of(aggregate, schema)
            way = aggregate.kind.incremental
        if not isinstance(way, Extreme):
            raise PlanError(
                f"Results of {aggregate.kind} are an extreme, and it does not say of what.",
                remedy="Declare it incremental=Extreme(), or Extreme(least=True) (docs/extending.md).",
            )
        return Extremum(
            aggregate, way.form or order_form(schema.field(column_name(aggregate.expression)).type), way.least
        )

    @property
    def column(self) -> str:
        """The name of that column; for a choice it encodes the keys."""
        return column_name(self.aggregate.expression)

    @property
    def name(self) -> PartName:
        """The name of its state."""
        where = None if self.aggregate.filter is None else column_name(self.aggregate.filter)
        return self.aggregate.kind.name, self.column, where

    @property
    def by_rank(self) -> bool:
        """Whether values are ranked, since no order codes are the same in every step."""
        return self.form != "numbers"

    @property
    def framed(self) -> list[str]:
        """The columns of a frame by which values are ranked; none if they are not ranked."""
        return ranked_by(self.column, self.form) if self.by_rank else []

    def turned(self, codes: Any) -> Any:
        """Order codes of values: the greater, the nearer to the extreme; and back again."""
        return ~codes if self.least else codes

    def ranked(self, frame: Any, device: Device) -> Any:
        """Such codes of a frame's rows, ranked among themselves."""
        (codes,) = FORMS[self.form](frame, self.column, device).arrays
        return self.turned(codes)


def extreme(block: Block, aggregate: Aggregate) -> Any:
    """The results of an extreme."""
    found = Extremum.of(aggregate, block.schema)
    _, (values,), first, last = block.picked(found.aggregate, found.form)
    best = found.turned(block.greatest(found.aggregate, found.turned(block.order_codes(values)), first, last))
    valid = block.present(found.aggregate, found.form)
    if valid is not None:
        best = np.where(valid, best, 0)
    return block.of_codes(found.aggregate, found.form, best, valid)


def extreme_columns(aggregate: Aggregate, schema: pa.Schema) -> list[tuple[str, str]]:
    """The column whose order codes decide."""
    found = Extremum.of(aggregate, schema)
    return [(found.column, found.form)]


def _choice(sign: int, least: bool, by_value: bool, aggregate: Aggregate, schema: pa.Schema) -> Aggregate:  # noqa: FBT001
    """A choice as an extreme of the codes of several columns.

    Args:
        sign: The sign of all keys but the first, which has 1: codes ascend with a key, or descend with it if it is -1.
        least: Whether the event with the least code is chosen, not the one with the greatest.
        by_value: Whether an event takes no part if its first key is null.
        aggregate: The choice.
        schema: The types of its columns.
    """
    keys = []
    for at, expression in enumerate((*aggregate.others, aggregate.expression)):
        name = column_name(expression)
        needed = at == len(aggregate.others) or (by_value and at == 0)
        keys.append(Key(name, order_form(schema.field(name).type), sign if at else 1, needed))
    codes = nw.col(Choice(tuple(keys)).name)
    kind = kind_named("least" if least else "greatest")
    return Aggregate(kind, codes, aggregate.filter, name=aggregate.name)


for _name, _way in {
    "min": Extreme(least=True),
    "max": Extreme(),
    "greatest": Extreme(form=GREATEST),
    "least": Extreme(form=GREATEST, least=True),
    # The first event has the least of the codes of which the last one has the greatest.
    "first": Extreme(of=partial(_choice, 1, True, False)),
    "last": Extreme(of=partial(_choice, 1, False, False)),
    "arg_min": Extreme(of=partial(_choice, 1, True, True)),
    "arg_max": Extreme(of=partial(_choice, -1, False, True)),
}.items():
    AggregateKind(name=_name, types=ordered_type, columns=extreme_columns, result=extreme, incremental=_way)
