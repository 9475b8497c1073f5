"""The node that gives the matches of an event pattern."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import ASK, CLOCK, PLACE, SINCE
from gpu_ops.plan import patterns as p
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Node, selected
from gpu_ops.plan.pattern_chains import PatternChain, chain_of, keyed_atoms
from gpu_ops.plan.patterns import EventAtom, PatternPart
from gpu_ops.plan.splits import Split, matched, one_order


@dataclass(frozen=True)
class PatternTag:
    """A column of matches.

    Attributes:
        name: What it is called.
        stream: The number of the stream whose event it is.
        repeated: Whether it is a list of events.
        properties: The columns of the stream that belong to its events.
    """

    name: str
    stream: int
    repeated: bool
    properties: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Pattern(Node):
    """The matches of a pattern: points at the places of the turns that completed them, in the order in which they did.

    A match has a column for each tag: a record of the event's properties, or a list of such; null where the match has
    no such event; ``@clock``, and its number ``@place``. An atom does not see the event with which it starts. All atoms
    that an event fulfils are determined before one is told: first those with a condition, in the order in which they
    started, then those without. Due times are told in their order, then in that in which they were set.

    Attributes:
        streams: The streams; each has ``@place`` and ``@clock``, and the columns that atoms and programs name.
        ticks: The ticks.
        tree: What matches.
        tags: The columns.
        slots: For each slot that programs read its tag, and the element of its list or None.
        discards: Whether what shares an event with a match of a turn ends with that turn.
        suppresses: Whether of matches of one turn that share an event only the first counts.
        flat: Whether an event has a column for each property, ``a.id``: in place of a record, or beside it. Lists have
            none.
        drops: The columns that nobody reads.
        unseen: The streams whose events are none: what starts and ends instances of a context.
        spans: Whether matches have `SINCE`: what the clock showed at the first event that they name.
        sure: For each stream the condition that all of its rows fulfil, and none for the others.
    """

    streams: tuple[Node, ...]
    ticks: Node
    tree: PatternPart
    tags: tuple[PatternTag, ...]
    slots: tuple[tuple[str, str, int | None], ...] = ()
    discards: bool = False
    suppresses: bool = False
    flat: Literal["", "alone", "beside"] = ""
    drops: frozenset[str] = frozenset()
    unseen: tuple[int, ...] = ()
    spans: bool = False
    sure: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[Node, ...]:
        return (*self.streams, self.ticks)

    def over(self, *inputs: Node) -> Node:
        return replace(self, streams=inputs[:-1], ticks=inputs[-1])

    @cached_property
    def schema(self) -> pa.Schema:
        fields = []
        for tag in self.tags:
            schema = self.streams[tag.stream].schema
            fields += [schema.field(name).with_name(called) for called, name in self.columns_of(tag)]
            if self.has_record(tag):
                record = pa.struct([schema.field(name) for name in tag.properties])
                fields.append(pa.field(tag.name, pa.list_(record) if tag.repeated else record))
        fields = [each.with_nullable(True) for each in fields]
        fields += [pa.field(SINCE, TIME_TYPE)] if self.has_since else []
        return pa.schema([*fields, (CLOCK, TIME_TYPE), (PLACE, pa.int64())])

    @property
    def has_since(self) -> bool:
        """Whether matches have `SINCE`, as somebody reads it."""
        return self.spans and SINCE not in self.drops

    def has_record(self, tag: PatternTag) -> bool:
        """Whether the events of a tag are a column of records, or of lists of such."""
        return tag.name not in self.drops and (tag.repeated or self.flat != "alone")

    def columns_of(self, tag: PatternTag) -> list[tuple[str, str]]:
        """The columns that properties of a tag have, and their names."""
        every = [(f"{tag.name}.{name}", name) for name in tag.properties] if self.flat and not tag.repeated else []
        return [each for each in every if each[0] not in self.drops]

    @cached_property
    def starts(self) -> PatternChain | str:
        """What each start waits for; or why the pattern needs the machine."""
        if self.discards or self.suppresses:
            return "matches that share events end others"
        return chain_of(self.tree, {slot: tag for slot, tag, _ in self.slots})

    def split(self, below: Sequence[Split]) -> Split:
        start, atoms = keyed_atoms(self.tree, {slot: tag for slot, tag, _ in self.slots})
        if self.discards or self.suppresses:
            raise one_order("A pattern whose matches end others")
        made = below[start.stream]
        for span in self._spans:
            made = made.seeing(span)
        columns = {theirs for _, _, theirs in atoms}
        for atom, mine, theirs in atoms:
            made = matched(made, below[atom.stream], [(theirs, mine)], "A pattern", (columns, ()))
        return made.picked({f"{start.tag}.{name}": name for name in columns} if self.flat else {}).made()

    @property
    def _spans(self) -> list[int | None]:
        """The spans after events that start at which it is due; None if others are."""
        chain, timed = self.starts, (p.WithinGuard, p.ClockTime, p.DistinctMatches)
        if not isinstance(chain, str):
            dues = [each for each in (chain.within, chain.after) if each is not None]
            return [None if each.months else each.ticks for each in dues]
        return [None] if any(isinstance(each, timed) for each in self.tree.walk()) else []

    duration: ClassVar[int | None] = TICK
    stateless = False
    gathers = True
    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    time_rule = "CTI T leaves as the place of its turn"

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        # It gives all columns that it has, wanted or not: `lighter` leaves out some.
        read = [{CLOCK, PLACE, *self._read} for _ in self.streams]
        for tag in self.tags:
            whole = {*tag.properties} if self.has_record(tag) else set()
            read[tag.stream] |= {name for _, name in self.columns_of(tag)} | whole
        own = [
            tuple(name for name in each.schema.names if name in names or name.startswith("@"))
            for each, names in zip(self.streams, read, strict=True)
        ]
        return [*own, (CLOCK, ASK)]

    def mask_of(self, atom: EventAtom) -> str:
        """The column of its stream that says which rows an atom may take; none for all."""
        return "" if self.sure and atom.holds == self.sure[atom.stream] else atom.holds

    @cached_property
    def _read(self) -> set[str]:
        """The properties that conditions read."""
        found = set()
        for part in self.tree.walk():
            cells = [cell for each in part.programs if each is not None for cell in each.cells]
            if isinstance(part, EventAtom):
                cells += part.equal or ()
                found.add(self.mask_of(part))
            found |= {bare_column(cell.value) or "" for cell in cells}
        return found

    def lighter(self, wanted: Collection[str]) -> Node:
        made = replace(self, drops=frozenset(self.schema.names) - {*wanted, CLOCK, PLACE})
        *streams, _ = made.needs(())
        return replace(made, streams=tuple(map(selected, self.streams, streams)))

    def describe(self) -> str:
        said = "".join(f" {word}" for word in ("discards", "suppresses") if getattr(self, word))
        starts = self.starts
        how = f"by the machine on the host: {starts}" if isinstance(starts, str) else "by open starts on the host"
        return f"Pattern {self.tree}{said}, {how}"
