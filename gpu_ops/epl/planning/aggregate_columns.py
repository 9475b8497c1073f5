"""The columns that a statement's aggregates read, and the columns that they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import narwhals as nw

from gpu_ops.core.time import LIFETIME
from gpu_ops.core.turns import PLACE, of_stream
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.deliveries import Delivered, Life
from gpu_ops.plan.expressions import bare_column, column_names
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.scope import StreamScope

_NEWEST, _ENTERED = "@newest", "@entered at"


@dataclass
class AggregateColumns:
    """Aggregates, and the columns that they read.

    Attributes:
        events: What names stand for in expressions of single events.
        columns: Expressions of single events, by the names of their columns.
        made: The aggregates.
        named: What the names of its columns begin with, behind the `@`.
        joined: Whether the events are rows of a join, of an event of each stream.
        in_other_order: Whether events may enter in another order than they came.
    """

    events: StreamScope
    columns: dict[str, nw.Expr] = field(default_factory=dict)
    made: list[Delivered] = field(default_factory=list)
    named: str = ""
    joined: bool = False
    in_other_order: bool = False
    _named: dict[str, str] = field(default_factory=dict)

    def column(self, bound: Bound, hint: str = "read") -> str:
        """The column of an expression of single events."""
        key = f"{bound.text}: {bound.type}"
        if not bound.text or key not in self._named:
            self._named[key] = f"@{self.named}{hint} {len(self.columns)}"
            self.columns[self._named[key]] = bound.value
        return self._named[key]

    def stream_of(self, value: nw.Expr) -> int | None:
        """The number of the only stream of a join that an expression reads; None for others, and without a join."""
        streams = self.events.streams if self.joined else ()
        names = [{each.columns.get(name, name) for name in each.schema.names} for each in streams]
        read = {*column_names(value, [name for own in names for name in own])}
        found = [number for number, own in enumerate(names) if own & read]
        return found[0] if len(found) == 1 else None

    def arrival(self, stream: int | None = None) -> tuple[str, ...]:
        """The columns that tell in which order events entered; of a join, when those of a stream met others first."""
        if not self.joined:
            if not self.in_other_order:
                return (PLACE,)
            self.columns.setdefault(_ENTERED, nw.col("start"))
            return (_ENTERED, PLACE)
        places = [of_stream(PLACE, number) for number in range(len(self.events.streams))]
        self.columns.setdefault(_NEWEST, nw.max_horizontal(*map(nw.col, places)))
        return (_NEWEST, *(places if stream is None else places[stream : stream + 1]))

    @property
    def words(self) -> dict[str, str]:
        """How its columns are written, as `gpu_ops.plan.integers.Guard` asks for it."""
        return {f"={name}": key.rpartition(": ")[0] for key, name in self._named.items() if not key.startswith(": ")}

    def add(self, aggregate: Aggregate, keys: tuple[str, ...] | None, life: Life) -> str:
        """The column of an aggregate."""
        name = f"@{self.named}value {len(self.made)}"
        self.made.append(Delivered(replace(aggregate.over(self._in_turns), name=name), keys, life))
        return name

    def only(self, aggregate: Aggregate, held: Sequence[nw.Expr]) -> Aggregate:
        """An aggregate over the events for which conditions hold."""
        if not held:
            return aggregate
        condition = held[0] if len(held) == 1 else nw.all_horizontal(*held, ignore_nulls=False)
        name = f"@{self.named}read {len(self.columns)}"
        self.columns[name] = condition
        return replace(aggregate, filter=nw.col(name))

    def _in_turns(self, expression: nw.Expr) -> str:
        """The column of a plain one; the order in which events entered stands for that of time."""
        if column_names(expression, LIFETIME):
            return PLACE if self.joined else self.arrival()[0]
        return str(bare_column(expression))
