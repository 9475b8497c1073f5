"""The streams that a pattern reads: their rows with the columns that atoms and programs name, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Filter, Node, extended, selected
from gpu_ops.plan.pattern_matches import Pattern, PatternTag
from gpu_ops.plan.patterns import EventAtom, PatternPart, slot_of
from gpu_ops.plan.row_programs import Cell, RowProgram, RowSlots, condition, program


@dataclass(frozen=True)
class SetTag:
    """A tag that an earlier part sets.

    Attributes:
        stream: The number of its stream.
        repeated: Whether it is a list.
    """

    stream: int
    repeated: bool = False


@dataclass
class _PatternRows:
    node: Node
    properties: pa.Schema
    columns: dict[str, nw.Expr] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    masks: list[str] = field(default_factory=list)

    @property
    def only_mask(self) -> str:
        """The condition that all atoms of the stream have, if it is a column made for them: rows are those with it."""
        masks = dict.fromkeys(self.masks)
        return next((each for each in masks if len(masks) == 1 and each in self.columns), "")


@dataclass
class PatternStreams:
    """The streams of a pattern, while its tree is made.

    Attributes:
        tags: The tags of the pattern in the order in which they are set, and what they are behind it.
    """

    tags: dict[str, SetTag] = field(default_factory=dict)
    _streams: list[_PatternRows] = field(default_factory=list)
    _slots: dict[str, tuple[str, int | None]] = field(default_factory=dict)

    def stream(self, node: Node, properties: pa.Schema) -> int:
        """Add a stream; gives its number."""
        self._streams.append(_PatternRows(node, properties))
        return len(self._streams) - 1

    def properties(self, stream: int) -> pa.Schema:
        """The columns of a stream that belong to its events."""
        return self._streams[stream].properties

    def node(self, stream: int) -> Node:
        """The rows of a stream, before the columns of atoms."""
        return self._streams[stream].node

    def change(self, stream: int, change: Callable[[Node], Node]) -> None:
        """Have the rows of a stream be others, with more columns."""
        own = self._streams[stream]
        own.node = change(own.node)

    def atom(self, stream: int, tag: str, holds: nw.Expr | None, scope: PatternColumns, level: int = 0) -> EventAtom:
        """An atom.

        Args:
            stream: The number of its stream.
            tag: What its event is called.
            holds: A condition over the event and earlier tags; None for all events.
            scope: The columns that it may name.
            level: As in `EventAtom`.

        Raises:
            PlanError: The condition combines events by what row programs do not have.
        """
        own = self._streams[stream]
        if holds is None:
            own.masks.append("")
            return EventAtom(stream, tag, level=level)
        made = condition(holds, scope.slots, most=1)
        name = "" if made.alone is None else self._column(stream, made.alone.fill_null(False), "holds")
        own.masks.append(name)
        equal = None
        for mine, theirs in made.equal:
            equal = self._cell(mine, stream), self._cell(theirs, stream)
        return EventAtom(stream, tag, name, equal, self._placed(made.rest, stream), level)

    def program(self, value: nw.Expr, scope: PatternColumns) -> RowProgram:
        """What computes a value of earlier tags.

        Raises:
            PlanError: As `atom`.
        """
        made = self._placed(program(value, scope.slots), 0)
        assert made is not None  # noqa: S101  (it was one)
        return made

    def pattern(
        self,
        tree: PatternPart,
        ticks: Node,
        *,
        discards: bool = False,
        suppresses: bool = False,
        flat: Literal["", "alone", "beside"] = "",
        unseen: tuple[int, ...] = (),
        spans: bool = False,
    ) -> Pattern:
        """The node."""
        tags = tuple(
            PatternTag(name, tag.stream, tag.repeated, tuple(self.properties(tag.stream).names))
            for name, tag in self.tags.items()
        )
        slots = tuple((slot, *found) for slot, found in self._slots.items())
        return Pattern(
            tuple(map(_rows, self._streams)),
            ticks,
            tree,
            tags,
            slots,
            discards,
            suppresses,
            flat,
            unseen=unseen,
            spans=spans,
            sure=tuple(each.only_mask for each in self._streams),
        )

    def _column(self, stream: int, value: nw.Expr, what: str) -> str:
        """The column of a stream that holds a value."""
        own = self._streams[stream]
        bare = bare_column(value)
        if bare is not None and bare in own.properties.names:
            return bare
        text = repr(value)
        if text not in own.names:
            own.names[text] = f"@{what} {len(own.columns)}"
            own.columns[own.names[text]] = value.alias(own.names[text])
        return own.names[text]

    def _cell(self, cell: Cell, current: int) -> Cell:
        tag, _ = self._slots.get(cell.slot, ("", None))
        stream = self.tags[tag].stream if tag else current
        return replace(cell, value=nw.col(self._column(stream, cell.value, "cell")))

    def _placed(self, made: RowProgram | None, current: int) -> RowProgram | None:
        if made is None:
            return None
        return replace(made, cells=tuple(self._cell(each, current) for each in made.cells))

    def columns(self, current: int | None, tags: Mapping[str, SetTag]) -> PatternColumns:
        """The columns that a condition may name.

        Args:
            current: The stream of the event that comes; None where there is none.
            tags: The earlier tags.
        """
        return PatternColumns(self, current, dict(tags))

    def note(self, slot: str, tag: str, element: int | None) -> None:
        """Note a slot that a program reads."""
        self._slots[slot] = tag, element


@dataclass
class PatternColumns:
    """The columns that a condition of a pattern may name, as far as it did.

    Those of the event that comes have their own names, those of earlier events stand behind the name of their slot.

    Attributes:
        streams: The streams.
        current: The stream of the event that comes.
        tags: The earlier tags.
    """

    streams: PatternStreams
    current: int | None
    tags: Mapping[str, SetTag]
    _fields: dict[str, pa.Field] = field(default_factory=dict)
    _places: dict[str, tuple[str, str]] = field(default_factory=dict)

    def of_tag(self, tag: str, name: str, element: int | None = None) -> str:
        """The column of a property of a tag."""
        slot = slot_of(tag, element)
        column = f"@{slot}.{name}"
        self._fields[column] = self.streams.properties(self.tags[tag].stream).field(name).with_name(column)
        self._places[column] = slot, name
        self.streams.note(slot, tag, element)
        return column

    def own(self, field: pa.Field) -> None:
        """A column of the event that comes that is no property: one that its rows have been given."""
        self._fields[field.name] = field
        self._places[field.name] = "", field.name

    @property
    def slots(self) -> RowSlots:
        """The columns."""
        own = pa.schema([]) if self.current is None else self.streams.properties(self.current)
        places = {name: ("", name) for name in own.names}
        fields = [each for each in own if each.name not in self._fields]
        return RowSlots(pa.schema([*fields, *self._fields.values()]), {**places, **self._places})


def _rows(stream: _PatternRows) -> Node:
    """The rows of a stream that an atom may take."""
    only = stream.only_mask
    rows = extended(stream.node, [each for name, each in stream.columns.items() if name != only])
    if only in stream.columns:
        rows = Filter(rows, stream.columns[only])
    elif stream.masks and all(stream.masks):
        masks = [nw.col(name) for name in dict.fromkeys(stream.masks)]
        rows = Filter(rows, masks[0] if len(masks) == 1 else nw.any_horizontal(*masks, ignore_nulls=False))
    kept = [name for name in stream.columns if name != only]
    return selected(rows, [*stream.properties.names, CLOCK, PLACE, *kept])
