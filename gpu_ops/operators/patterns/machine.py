"""The machine of a pattern between its runs: its tables, and the entries and rows that they still need."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.numbered_runs import PlacedRuns
from gpu_ops.core.state_parts import Parts, StatePart, whole
from gpu_ops.core.state_tables import MANY, Field, RowRule, StateTable
from gpu_ops.devices.cpu import patterns as m
from gpu_ops.operators.patterns.soundness import ENDED, ENTRIES, INSTANCES, SoundEntries, SoundInstances, columns_of
from gpu_ops.operators.patterns.tables import PatternTables
from gpu_ops.operators.patterns.turns import PatternTurns
from gpu_ops.operators.row_cells import CellValues
from gpu_ops.plan import patterns as p
from gpu_ops.plan.pattern_matches import Pattern
from gpu_ops.plan.row_programs import ProgramTables

_CHAINS = 1 << 8
_SMALL = 1 << 12
"""So many entries are kept before anybody looks which of them are needed."""
_ROWS = 1 << 14
"""Likewise rows."""

_COLUMNS = (m.NODE, m.SEQUENCE, m.PARENT, m.BEGIN, m.P, m.Q, m.R, m.S, m.SEEN)
"""What is written of instances: the lists of children and chains follow from it."""
_DUES = ("due", "order", "who", "sequence")
_NO_DUE = np.array([[0, 1, -1, -1]], np.int64)
"""What is written of a place that has no due time."""
_WRITTEN = {"entries": ENTRIES, "instances": INSTANCES, "dues": _DUES}
_NODE, _SEQUENCE = (INSTANCES.index(name) for name in ("node", "sequence"))
_TIMED = (m.WITHIN, m.WITHIN_MAX, m.TIMER)
_LEAST = -(1 << 63)


class _Room:
    """Room in which programs are evaluated."""

    def __init__(self, cells: int, programs: ProgramTables) -> None:
        self.rows, self.stack = np.zeros(cells, np.int64), np.zeros(programs.depth + 1, np.int64)
        self.known = np.zeros(programs.depth + 1, np.bool_)
        self.keys = np.zeros((2, len(programs.bounds)), np.int64)


class PatternMachine:
    """The dynamic tables of a pattern.

    Args:
        tables: The static ones.
        pattern: The pattern.
    """

    def __init__(self, tables: PatternTables, pattern: Pattern) -> None:
        self._static, self._pattern = tables, pattern
        self._timers = np.array([each.row for each in tables.timers], np.int64).reshape(-1, m.TIMER_COLUMNS)
        self._asked = np.zeros((2, max(1, *(int(each) for each in self._timers[:, m.TIMES] if each < 16), 0)), np.int64)
        self._room = _Room(len(tables.cell_slots), tables.programs)
        self._runs = {name: PlacedRuns(names) for name, names in _WRITTEN.items()}
        self._has_keys = bool((tables.nodes[:, m.KIND] == m.DISTINCT).any())
        self._reset()

    def _reset(self) -> None:
        self._numbers = np.zeros(m.NUMBERS, np.int64)
        self._numbers[m.FREE] = -1
        self._instances, self._entries, self._dues, self._stack, self._output = (
            np.zeros((0, columns), np.int64)
            for columns in (m.INSTANCE_COLUMNS, m.ENTRY_COLUMNS, m.DUE_COLUMNS, m.OPERATION_COLUMNS, 2)
        )
        self._listed, self._matched = np.zeros((0, 3), np.int64), np.zeros((0, 2), np.int64)
        self._heads, self._tails = np.full(_CHAINS, -1), np.full(_CHAINS, -1)
        self._known_keys, self._key_heads = np.zeros((0, m.KNOWN_COLUMNS), np.int64), np.full(_CHAINS, -1)
        self._knows_keys = True
        self._looked_at, self._rows_then = _SMALL, 0

    @property
    def active_atoms(self) -> int:
        """How many atoms wait for an event (Esper: how many filters are active)."""
        found = int(self._numbers[m.ATOMS_ACTIVE])
        if not self._pattern.unseen:
            return found
        nodes, mine = self._static.nodes, self._instances[: self._numbers[m.INSTANCES]]
        atoms = nodes[mine[mine[:, m.SEQUENCE] != 0, m.NODE]]
        streams = self._static.atoms[atoms[atoms[:, m.KIND] == m.ATOM, m.ARGUMENT], 1]
        return found - int(np.isin(streams, self._pattern.unseen).sum())

    def has_grown(self, rows: int) -> bool:
        """Whether there are twice as many entries, or far more rows, than were needed when somebody looked last."""
        return int(self._numbers[m.ENTRIES]) > 2 * self._looked_at or rows > 2 * self._rows_then + _ROWS

    def run(self, turns: PatternTurns, masks: tuple[Any, Any], cells: CellValues) -> tuple[Any, Any, Any]:
        """Take some turns.

        Args:
            turns: The turns.
            masks: Which rows each atom may take, and where those of each atom are for a row 0.
            cells: The values that programs read.

        Returns:
            (places, clocks, matches): int64: for each match where it is, what the clock shows then, and its entry.

        Raises:
            IntegerOverflowError: A whole number does not fit its type.
        """
        merged, clocks = turns.merged(), turns.clocks
        static, numbers = self._static, self._numbers
        numbers[[m.TURN, m.OUTPUT]] = 0
        if static.by_text and cells.renumbered:
            m.rekey(
                self._instances, self._in_order(), static.nodes, static.atoms, cells.begins, cells.values,
                cells.there, static.cell_slots, self._entries, self._heads, self._tails,
            )  # fmt: skip
        dues = np.array([each.dues(clocks) for each in static.timers], np.int64).reshape(-1, len(clocks))
        programs = static.programs
        room = self._room
        if self._has_keys and (not self._knows_keys or (static.has_texts and cells.renumbered)):
            self._know_keys(cells)
        while True:
            why = m.run(
                merged, clocks, dues, *masks, static.nodes, static.node_tags, static.tag_bounds, static.atoms,
                static.stream_atoms, static.stream_bounds, self._timers, static.tag_streams, programs.code,
                programs.bounds, programs.constants, static.cell_slots, cells.begins, cells.values, cells.there,
                room.rows, room.stack, room.stack.view(np.float64), room.known, room.keys, self._matched,
                int(self._pattern.discards), int(self._pattern.suppresses), self._asked, numbers, self._instances,
                self._entries, self._dues, self._stack, self._listed, self._output, self._heads, self._tails,
                self._known_keys, self._key_heads,
            )  # fmt: skip
            if why == m.GROW:
                self._grow()
                continue
            if why == m.DONE:
                found = self._output[: numbers[m.OUTPUT]]
                at = merged[found[:, 0]]
                return turns.places_of(at), clocks[at[:, 2]], found[:, 1].copy()
            if why == m.OVERFLOWED:
                raise static.overflow(int(numbers[m.ERROR]) - 1)
            numbers[m.ANSWER], numbers[m.ANSWERED] = self._answer(int(clocks[merged[numbers[m.TURN], 2]])), 1

    def _grow(self) -> None:
        """Have room for whatever one operation makes, and for as much again as there is."""
        numbers, nodes = self._numbers, len(self._static.nodes)
        needed = len(self._static.node_tags) + nodes + 8
        for name, count in (("_entries", m.ENTRIES), ("_dues", m.DUES), ("_stack", m.STACK), ("_output", m.OUTPUT)):
            setattr(self, name, _wider(getattr(self, name), int(numbers[count]) + needed))
        if numbers[m.FREE] < 0:
            self._instances = _wider(self._instances, int(numbers[m.INSTANCES]) + 1)
        # A turn concerns each instance once, and each due time.
        self._listed = _wider(self._listed, len(self._instances) + len(self._dues))
        self._matched = _wider(self._matched, int(numbers[m.ROOM]))
        if numbers[m.ATOMS_ACTIVE] > len(self._heads):
            self._heads, self._tails = (np.full(4 * len(self._heads), -1) for _ in range(2))
            self._chain()
        if self._has_keys:
            self._known_keys = _as_long(self._known_keys, len(self._entries))
            if numbers[m.KEYS_KNOWN] > len(self._key_heads):
                self._key_heads = np.full(4 * len(self._key_heads), -1)
                m.rechain_keys(self._entries, int(numbers[m.ENTRIES]), self._known_keys, self._key_heads)

    def _know_keys(self, cells: CellValues) -> None:
        """Note the keys of `every-distinct` by the values that they have now."""
        static, room, programs = self._static, self._room, self._static.programs
        self._known_keys = _as_long(self._known_keys, len(self._entries))
        keys = np.count_nonzero(self._entries[: self._numbers[m.ENTRIES], m.WHAT] == m.KEY)
        while keys > len(self._key_heads):
            self._key_heads = np.full(4 * len(self._key_heads), -1)
        m.know_keys(
            self._instances, int(self._numbers[m.INSTANCES]), self._entries, int(self._numbers[m.ENTRIES]),
            static.nodes, programs.code, programs.bounds, programs.constants, static.cell_slots, cells.begins,
            cells.values, cells.there, room.rows, room.stack, room.stack.view(np.float64), room.known, room.keys,
            self._numbers, self._known_keys, self._key_heads,
        )  # fmt: skip
        self._knows_keys = True

    def _list_children(self) -> None:
        """Put all instances into the lists of their parents, in the order in which they started."""
        mine = self._instances[: self._numbers[m.INSTANCES]]
        mine[:, [m.FIRST, m.LAST, m.NEXT, m.BEFORE]] = -1
        order = self._in_order()
        order = order[np.argsort(mine[order, m.PARENT], kind="stable")]
        order = order[mine[order, m.PARENT] >= 0]
        parents, changes = mine[order, m.PARENT], np.diff(mine[order, m.PARENT], prepend=-1, append=-1) != 0
        begins, ends = changes[:-1], changes[1:]
        mine[parents[begins], m.FIRST], mine[parents[ends], m.LAST] = order[begins], order[ends]
        one, other = order[:-1][~ends[:-1]], order[1:][~begins[1:]]
        mine[one, m.NEXT], mine[other, m.BEFORE] = other, one

    def _chain(self) -> None:
        """Put all instances of atoms that are in a chain into theirs."""
        m.rechain(self._instances, self._in_order(), self._static.nodes, self._heads, self._tails)

    def _in_order(self) -> Any:
        """The numbers of instances in the order in which they started."""
        return np.argsort(self._instances[: self._numbers[m.INSTANCES], m.SEQUENCE], kind="stable")

    def _answer(self, clock: int) -> int:
        """The due time of a crontab that events say."""
        due = self._static.timers[int(self._numbers[m.ASKED])].due
        assert isinstance(due, p.ComputedTimesOfDay)  # noqa: S101  (nothing else asks)
        return due.after(clock, [None if how else int(value) for how, value in zip(*self._asked, strict=True)])

    def members(self, matches: Any) -> list[Any]:
        """For each tag the rows of matches: int64, -1 for none; of a list (offsets, rows, whether there is one)."""
        entries = self._entries
        rows = m.tag_entries(entries, matches, np.array([tag.repeated for tag in self._pattern.tags], np.bool_))
        found: list[Any] = []
        for number, tag in enumerate(self._pattern.tags):
            column = np.ascontiguousarray(rows[:, number])
            found.append((*m.list_rows(entries, column), column >= 0) if tag.repeated else column)
        return found

    # What is still needed

    def compact(self, counts: Sequence[int], clock: int) -> list[Any]:
        """Drop what no instance can reach, and keys that are forgotten.

        Args:
            counts: How many rows of each stream there are.
            clock: What the clock shows.

        Returns:
            For each stream the rows that are needed, int64 ascending: they are numbered so from now on.
        """
        del counts
        numbers = self._numbers
        self._renumber_instances()
        count = int(numbers[m.INSTANCES])
        new, streams, entries = m.compacted(
            self._instances, count, self._entries[: numbers[m.ENTRIES]], clock, self._static.tag_streams,
            np.ascontiguousarray(self._static.nodes[:, m.KIND]),
        )  # fmt: skip
        kinds = self._static.nodes[self._instances[:count, m.NODE], m.KIND]
        for column, mine in ((m.BEGIN, None), (m.SEEN, None), (m.P, m.BOTH), (m.Q, m.BOTH), (m.Q, m.UNTIL)):
            old = self._instances[:count, column]
            moved = (old >= 0) & (True if mine is None else kinds == mine)
            old[moved] = new[old[moved]]
        kept = []
        for stream in range(len(self._pattern.streams)):
            mine = streams == stream
            rows, places = np.unique(entries[mine, m.B], return_inverse=True)
            entries[mine, m.B] = places
            kept.append(rows)
        self._entries, numbers[m.ENTRIES], self._knows_keys = entries, len(entries), False
        self._looked_at, self._rows_then = max(_SMALL, len(entries)), sum(map(len, kept))
        for each in self._runs.values():
            each.forget()
        return kept

    def _renumber_instances(self) -> None:
        """Drop the instances that have ended, and the due times of such."""
        numbers, old = self._numbers, self._instances[: self._numbers[m.INSTANCES]]
        live = np.flatnonzero(old[:, m.SEQUENCE] > 0)
        live = live[np.argsort(old[live, m.SEQUENCE])]
        new = np.full(len(old) + 1, -1, np.int64)  # the last one stands for none
        new[live] = np.arange(len(live))
        dues = self._dues[: numbers[m.DUES]]
        dues = dues[old[dues[:, m.WHO], m.SEQUENCE] == dues[:, m.WHO_SEQUENCE]]
        dues = dues[np.lexsort((dues[:, m.ORDER], dues[:, m.DUE]))]
        dues[:, m.WHO] = new[dues[:, m.WHO]]
        self._dues, numbers[m.DUES] = dues, len(dues)
        self._instances = old[live]
        self._instances[:, m.PARENT] = new[self._instances[:, m.PARENT]]
        numbers[m.INSTANCES], numbers[m.FREE] = len(live), -1
        self._list_children()
        self._chain()

    # Tables

    entire_tables = tuple(_WRITTEN)

    def state_parts(self, rows: Sequence[Any]) -> dict[str, Sequence[StatePart]]:
        """The tables, in which there may be what is no longer needed.

        Args:
            rows: For each stream the numbers of its rows.
        """
        del rows
        numbers, nodes = self._numbers, self._static.nodes
        instances = self._instances[: numbers[m.INSTANCES], _COLUMNS]
        instances[instances[:, _SEQUENCE] == 0] = ENDED
        # Chains are made anew. So are the numbers of texts: what an atom waits for follows from its row.
        follows = [INSTANCES.index(name) for name in ("pqr" if self._static.by_text else "qr")]
        instances[np.ix_(nodes[instances[:, _NODE], m.KIND] == m.ATOM, follows)] = 0
        dues = self._dues[: numbers[m.DUES]].copy()
        dues[self._instances[dues[:, m.WHO], m.SEQUENCE] != dues[:, m.WHO_SEQUENCE], m.WHO :] = -1
        # Places behind the heap keep nothing until it grows again.
        behind = np.tile(_NO_DUE, (max(0, len(self._runs["dues"]) - len(dues)), 1))
        now = {
            "entries": self._entries[: numbers[m.ENTRIES]],
            "instances": instances,
            "dues": np.concatenate([dues, behind]),
        }
        known = {"counter": numbers[m.COUNTER], "begun": numbers[m.BEGUN], "dues": numbers[m.DUES]}
        machine = pa.table({name: pa.array([int(each)]) for name, each in known.items()})
        parts: dict[str, Sequence[StatePart]] = {name: each.parts(now[name]) for name, each in self._runs.items()}
        return {"machine": [StatePart.of(machine)], **parts}

    @staticmethod
    def needed(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Tables of what is needed alone: `compact` came before."""
        return dict(tables)

    def declared(self, tables: Mapping[str, pa.Table], rows: Sequence[Any]) -> Iterator[StateTable]:
        """Their declarations.

        Args:
            tables: The tables.
            rows: For each stream the numbers of its rows.
        """
        count, entries = (tables[name].num_rows if name in tables else 0 for name in ("instances", "entries"))
        number, any_number = Field(pa.int64(), least=0, most=MANY), Field(pa.int64())
        begun = Field(pa.int64(), least=int(_some_last(tables.get("instances"))), most=1)
        dues = Field(pa.int64(), least=0, most=tables["dues"].num_rows if "dues" in tables else 0, optional=True)
        yield StateTable("machine", {"counter": number, "begun": begun, "dues": dues}, rows=1, required=True)
        counter = int(tables["machine"]["counter"][0].as_py())
        entry = Field(pa.int64(), least=-1, most=entries - 1)
        what = Field(pa.int64(), least=m.ROW, most=m.KEY)
        rules = SoundEntries(self._static, [tag.repeated for tag in self._pattern.tags], [*map(len, rows)]).rules
        columns = {"what": what, "a": any_number, "b": any_number, "link": entry}
        yield StateTable("entries", columns, required=True, rules=rules)
        once = Field(pa.int64(), least=0, most=counter)
        node = Field(pa.int64(), least=0, most=len(self._static.nodes) - 1)
        columns = {"node": node, "sequence": once, "parent": Field(pa.int64(), least=-1, most=count - 1)}
        columns |= {"begin": entry, **dict.fromkeys("pqrs", any_number), "seen": entry}
        rules = SoundInstances(self._static, tables["entries"], counter).rules
        yield StateTable("instances", columns, required=True, rules=rules)
        who, order = (Field(pa.int64(), least=least, most=most) for least, most in ((-1, count - 1), (1, counter)))
        columns = {"due": any_number, "order": order, "who": who, "sequence": replace(order, least=-1)}
        nodes, sequences = columns_of(tables["instances"], ("node", "sequence"))

        def waits(dues: pa.Table) -> Any:
            who, sequence = columns_of(dues, ("who", "sequence"))
            # Nobody waits for the due times of instances that have ended.
            kinds = self._static.nodes[np.append(nodes, 0)[who], m.KIND]
            return (np.append(sequences, -1)[who] == sequence) & (np.isin(kinds, _TIMED) | (who < 0))

        rule = RowRule("who", "is no instance that waits for a time", waits)
        yield StateTable("dues", columns, required=True, rules=(rule,))

    def put_back(self, parts: Parts, rows: Sequence[Any]) -> None:
        """What `state_parts` gave."""
        tables = whole({name: parts[name] for name in ("machine", *_WRITTEN)})
        self._reset()
        numbers, machine = self._numbers, tables["machine"]
        numbers[[m.COUNTER, m.BEGUN]] = [machine[name][0].as_py() for name in ("counter", "begun")]
        arrays = {name: _array(tables[name], columns) for name, columns in _WRITTEN.items()}
        for name, each in self._runs.items():
            each.restore(parts[name], arrays[name])
        self._instances = np.zeros((len(arrays["instances"]), m.INSTANCE_COLUMNS), np.int64)
        self._instances[:, _COLUMNS] = arrays["instances"]
        self._entries, dues = arrays["entries"], arrays["dues"]
        if "dues" in machine.column_names:
            dues = dues[: machine["dues"][0].as_py()]
        # Nobody waits for those of instances that have ended.
        dues[dues[:, m.WHO] < 0, m.WHO] = 0
        dues = dues[: len(self._instances) and len(dues)]
        # What is in order is a heap.
        self._dues = dues if _is_heap(dues) else dues[np.lexsort((dues[:, m.ORDER], dues[:, m.DUE]))]
        numbers[[m.INSTANCES, m.ENTRIES, m.DUES]] = [len(self._instances), len(self._entries), len(dues)]
        lasts = self._instances[:, m.SEQUENCE] > 0
        numbers[m.ATOMS_ACTIVE] = np.count_nonzero(
            lasts & (self._static.nodes[self._instances[:, m.NODE], m.KIND] == m.ATOM)
        )
        self._looked_at, self._rows_then = max(_SMALL, len(self._entries)), sum(map(len, rows))
        self._knows_keys = False
        self._list_children()
        self._chain()
        ended = np.flatnonzero(~lasts)
        self._instances[ended, m.NEXT] = np.append(ended[1:], -1)[: len(ended)]
        numbers[m.FREE] = ended[0] if len(ended) else -1


def _some_last(instances: pa.Table | None) -> bool:
    """Whether instances, which nobody has looked at yet, are there."""
    known = instances is not None and pa.field("sequence", pa.int64()) in [*instances.schema]
    return instances is not None and known and bool(pc.any(pc.greater(instances["sequence"], 0)).as_py())


def _is_heap(dues: Any) -> bool:
    """Whether none of some due times is due before the one above it."""
    above = dues[(np.arange(1, len(dues)) - 1) // 2]
    due, order = (above[:, at] <= dues[1:, at] for at in (m.DUE, m.ORDER))
    return bool(((above[:, m.DUE] < dues[1:, m.DUE]) | (due & order)).all())


def _wider(table: Any, least: int) -> Any:
    """A table with room for some rows, and then for twice as many."""
    if len(table) >= least:
        return table
    return _as_long(table, 2 * least)


def _as_long(table: Any, rows: int) -> Any:
    """A table that is at least as long."""
    if len(table) >= rows:
        return table
    made = np.zeros((rows, table.shape[1]), np.int64)
    made[: len(table)] = table
    return made


def _array(table: pa.Table, names: tuple[str, ...]) -> Any:
    return np.stack(columns_of(table, names), axis=1)
