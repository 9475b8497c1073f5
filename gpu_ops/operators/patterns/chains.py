"""The open starts of a pattern between the runs of their kernel, where starts by key do for the machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gpu_ops.core.state_parts import Parts, StatePart, whole
from gpu_ops.core.state_tables import Field, RowRule, StateTable
from gpu_ops.core.table_runs import TableRuns
from gpu_ops.devices.cpu import pattern_chains as m
from gpu_ops.devices.cpu import patterns as machine
from gpu_ops.operators.patterns.soundness import columns_of, unless
from gpu_ops.operators.patterns.tables import PatternTables
from gpu_ops.operators.patterns.turns import PatternTurns
from gpu_ops.operators.row_cells import CellValues
from gpu_ops.plan import patterns as p
from gpu_ops.plan.pattern_chains import PatternChain
from gpu_ops.plan.pattern_matches import Pattern
from gpu_ops.plan.row_programs import Op

_SMALL = 1 << 10
"""So many starts there is always room for."""

_ROWS = 1 << 14
"""So many rows are kept before anybody looks which of them are needed: to look costs more than to keep them."""

_COLUMNS = ("row", "within", "after", "found", "state")

_ENDED = (-1, 0, 0, m.MISSING, m.ENDED)
"""What is written of a start that has ended; where it is in a file, its row stays."""


class PatternChains:
    """The open starts of a pattern.

    Args:
        tables: The static tables of the pattern.
        pattern: The pattern.
        chain: What each start waits for.
    """

    def __init__(self, tables: PatternTables, pattern: Pattern, chain: PatternChain) -> None:
        self._static, self._pattern, self._chain = tables, pattern, chain
        every = [part for part in pattern.tree.walk() if isinstance(part, p.EventAtom)]
        self._atoms = [every.index(each) for each in chain.awaited]
        self._timers = [
            next((each for each in tables.timers if each.due is span), None) for span in (chain.within, chain.after)
        ]
        programs = tables.programs
        self._of_start = tables.cell_slots[:, 0] >= 0
        self._at = np.zeros(len(tables.cell_slots), np.int64)
        self._work, self._known = np.zeros(programs.depth + 1, np.int64), np.zeros(programs.depth + 1, np.bool_)
        self._runs = TableRuns("row")
        self._begun, self._numbers = False, np.zeros(m.NUMBERS, np.int64)
        self._starts: Any = np.zeros((0, m.START_COLUMNS), np.int64)
        # Which of them are other than they were saved; from how many rows on somebody looks which are needed.
        self._changed, self._looks_at = np.zeros(0, np.bool_), _ROWS
        self._have_room(_SMALL)

    def _have_room(self, starts: int) -> None:
        """Have room for so many starts, and for what they wait for; they are in no chain then."""
        kept, waiting = self._starts[: self._count], starts * max(1, len(self._atoms))
        self._starts = np.zeros((starts, m.START_COLUMNS), np.int64)
        self._starts[: len(kept)] = kept
        self._changed = np.append(self._changed[: len(kept)], np.zeros(starts - len(kept), np.bool_))
        self._awaited = np.zeros((waiting, m.AWAITED_COLUMNS), np.int64)
        self._heads, self._tails = (np.zeros(1 << (waiting // 4).bit_length(), np.int64) for _ in range(2))
        self._is_linked = False

    @property
    def _count(self) -> int:
        """How many starts there are, some of which may have ended."""
        return int(self._numbers[m.STARTS])

    @property
    def _open_count(self) -> int:
        return int(np.count_nonzero(self._starts[: self._count, m.STATE] != m.ENDED))

    @property
    def _open(self) -> Any:
        """The starts that have not ended."""
        starts = self._starts[: self._count]
        return starts[starts[:, m.STATE] != m.ENDED]

    @property
    def active_atoms(self) -> int:
        """How many atoms wait for an event (Esper: how many filters are active)."""
        found = self._open[:, m.FOUND]
        missing = int(np.count_nonzero(found == m.MISSING))
        # Where an instance of a context is a start, neither that nor its end is a filter.
        seen = [each for each in self._chain.absent if each.stream not in self._pattern.unseen]
        return missing + len(seen) * len(found) + int(self._begun and not self._pattern.unseen)

    def has_grown(self, rows: int) -> bool:
        """Whether so many rows are far more than are needed."""
        if rows <= self._looks_at:
            return False
        needed = 2 * self._open_count + _ROWS
        self._looks_at = max(needed, rows if rows > needed else 0)
        return rows > needed

    def run(self, turns: PatternTurns, masks: tuple[Any, Any], cells: CellValues) -> tuple[Any, Any, Any]:
        """Take some turns; see `PatternMachine.run`."""
        static, programs, numbers = self._static, self._static.programs, self._numbers
        values, mask_begins = masks
        clocks = turns.clocks
        within, after = (np.zeros(0, np.int64) if each is None else each.dues(clocks) for each in self._timers)
        atoms = self._awaited_atoms(mask_begins)
        stream = static.atoms[0, machine.STREAM]
        begun = np.array([stream, mask_begins[0]], np.int64)
        ahead = turns.begins[:-1].copy()
        # Each start ends with its match.
        most = self._count + int(turns.begins[stream + 1] - turns.begins[stream])
        found = np.empty((m.MATCH_ROWS, most), np.int64)
        numbers[[m.TICK, m.FOUND_MATCHES]] = 0
        self._begun = True
        self._is_linked = self._is_linked and not (static.by_text and cells.renumbered)
        if not self._is_linked:
            self._link(atoms, cells, drops=self._count == len(self._starts))
        while True:
            why = m.chained(
                turns.ticks, turns.places, turns.begins, turns.bases, clocks, within, after, values, begun, atoms,
                int(self._chain.then is not None), programs.code, programs.bounds, programs.constants, self._of_start,
                cells.begins, cells.values, cells.there, self._at, self._work, self._work.view(np.float64),
                self._known, ahead, numbers, self._starts, self._awaited, self._heads, self._tails, found,
                self._changed,
            )  # fmt: skip
            if why == m.GROW:
                self._link(atoms, cells, drops=True)
            if why == m.OVERFLOWED:
                raise static.overflow(int(numbers[m.ERROR]))
            if why == m.DONE:
                break
        self._found = found[:, : numbers[m.FOUND_MATCHES]]
        return self._found[m.AT_PLACE], self._found[m.AT_CLOCK], np.arange(self._found.shape[1])

    def _link(self, atoms: Any, cells: CellValues, *, drops: bool) -> None:
        """Chain what starts wait for; ``drops`` says that those which have ended go, and more have room."""
        if drops:
            open_starts = self._open_count
            if 4 * open_starts > len(self._starts):
                self._have_room(8 * open_starts)
            self._runs.forget()
            self._changed[:] = False
        m.relinked(
            self._starts, self._awaited, self._heads, self._tails, atoms, cells.begins, cells.values, cells.there,
            self._numbers, int(drops),
        )  # fmt: skip
        self._is_linked = True

    def _awaited_atoms(self, mask_begins: Any) -> Any:
        """The events that starts wait for, as the kernel takes them."""
        static = self._static
        rows = []
        for number in self._atoms:
            atom, program = static.atoms[number], int(static.atoms[number, machine.REST])
            cells = (0, 0) if program < 0 else static.cells_of(program)
            own = [atom[machine.STREAM], mask_begins[number], atom[machine.MINE], atom[machine.THEIRS]]
            rows.append([*own, program, *cells, *self._comparison(program)])
        return np.array(rows, np.int64).reshape(-1, m.ATOM_COLUMNS)

    def _comparison(self, program: int) -> tuple[int, int, int]:
        """(what a program does to two cells, if it does nothing else; the cells)."""
        match self._static.instructions(program) if program >= 0 else ():
            case ((Op.CELL, left), (Op.CELL, right), (Op.LESS, equal)):
                return m.IS_AT_MOST if equal else m.IS_LESS, left, right
            case ((Op.CELL, left), (Op.CELL, right), (Op.EQUAL, _)):
                return m.IS_EQUAL, left, right
        return m.MUCH, 0, 0

    def members(self, matches: Any) -> list[Any]:
        """For each tag the rows of matches; see `PatternMachine.members`."""
        first, then = self._found[m.FIRST_ROW], self._found[m.THEN_ROW]
        of, none = {self._chain.start.tag: first}, np.full(len(matches), -1)
        if self._chain.then is not None:
            of[self._chain.then.tag] = then
        return [of.get(tag.name, none) for tag in self._pattern.tags]

    def compact(self, counts: Sequence[int], clock: int) -> list[Any]:
        """Number the rows that are needed anew; see `PatternMachine.compact`. What starts wait for stays linked."""
        del clock
        kept = []
        for stream, rows in enumerate(counts):
            columns = np.zeros(m.START_COLUMNS, np.bool_)
            columns[m.ROW] = stream == self._chain.start.stream
            columns[m.FOUND] = self._chain.then is not None and stream == self._chain.then.stream
            numbers, places = np.empty((2, rows if columns.any() else 0), np.int64)
            kept.append(places[: m.renumbered(self._starts, self._count, columns, numbers, places)])
        return kept

    # Tables

    entire_tables = ("starts",)

    def state_parts(self, numbers: Sequence[Any]) -> dict[str, Sequence[StatePart]]:
        """The tables.

        Args:
            numbers: For each stream the numbers of its rows, by which the tables name them.
        """
        changed = np.flatnonzero(self._changed[: self._count])
        self._changed[changed] = False
        self._runs.note(changed)
        starts = self._runs.parts(self._count, partial(self._saved, numbers))
        return {"chains": [StatePart.of(pa.table({"begun": [self._begun]}))], "starts": starts}

    def _saved(self, numbers: Sequence[Any], at: Any) -> pa.Table:
        """Some starts, with the numbers of their rows."""
        starts = self._starts[at]
        starts[starts[:, m.STATE] == m.ENDED] = _ENDED
        for column, event in ((m.ROW, self._chain.start), (m.FOUND, self._chain.then)):
            named = starts[:, column] >= 0
            if event is not None:
                starts[named, column] = numbers[event.stream][starts[named, column]]
        return pa.table({name: pa.array(np.ascontiguousarray(starts[:, c])) for c, name in enumerate(_COLUMNS)})

    @staticmethod
    def needed(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        """Tables without the starts that have ended."""
        starts = tables["starts"]
        return {**tables, "starts": starts.filter(pc.not_equal(starts["state"], m.ENDED))}

    def declared(self, tables: Mapping[str, pa.Table], numbers: Sequence[Any]) -> Iterator[StateTable]:
        """Their declarations; see `PatternMachine.declared`."""
        del tables
        chain, number = self._chain, Field(pa.int64())
        yield StateTable("chains", {"begun": Field(pa.bool_())}, rows=1, required=True)
        rules = [
            RowRule("state", "is that of a start that has ended, and keeps something", _keeps_nothing),
            RowRule("row", "is no row of its stream", unless(_has_ended, _names("row", numbers[chain.start.stream]))),
            RowRule("row", "is not above the one before", _ascends),
        ]
        found = Field(pa.int64(), least=m.NEEDS_NONE, most=m.NEEDS_NONE, besides=(m.MISSING,))
        if chain.then is None:
            rules.append(RowRule("found", "is no event that it waits for", unless(_has_ended, _needs_none)))
        else:
            found = Field(pa.int64(), least=m.MISSING)
            rules.append(RowRule("found", "is no row of its stream", _names("found", numbers[chain.then.stream])))
        begins = m.PASSED if chain.after is None else m.WAITS
        state = Field(pa.int64(), least=begins, most=m.PASSED, besides=(m.ENDED,))
        columns = {
            "row": Field(pa.int64(), least=-1),
            "within": number,
            "after": number,
            "found": found,
            "state": state,
        }
        rules.append(RowRule("state", "is that of a start that has ended", unless(_has_ended, _is_open)))
        yield StateTable("starts", columns, required=True, rules=tuple(rules))

    def put_back(self, parts: Parts, numbers: Sequence[Any]) -> None:
        """What `state_parts` gave."""
        tables = whole({name: parts[name] for name in ("chains", "starts")})
        self._begun = bool(tables["chains"]["begun"][0].as_py())
        starts = np.stack(columns_of(tables["starts"], _COLUMNS), axis=1)
        begun = starts[:, m.STATE] != m.ENDED
        starts[~begun, m.ROW] = 0
        starts[begun, m.ROW] = np.searchsorted(numbers[self._chain.start.stream], starts[begun, m.ROW])
        if self._chain.then is not None:
            found = starts[:, m.FOUND] >= 0
            starts[found, m.FOUND] = np.searchsorted(numbers[self._chain.then.stream], starts[found, m.FOUND])
        self._runs.restore(parts["starts"])
        self._numbers[:] = 0
        self._have_room(max(_SMALL, 8 * int(np.count_nonzero(begun)), len(starts)))
        self._changed[:] = False
        self._starts[: len(starts)], self._numbers[m.STARTS] = starts, len(starts)


def _is_open(table: pa.Table) -> Any:
    """A start for which the time has passed waits for an event."""
    found, state = columns_of(table, ("found", "state"))
    return (state == m.WAITS) | (found == m.MISSING)


def _has_ended(table: pa.Table) -> Any:
    return columns_of(table, ("state",))[0] == m.ENDED


def _keeps_nothing(table: pa.Table) -> Any:
    own = np.stack(columns_of(table, _COLUMNS[1:]), axis=1)
    return ~_has_ended(table) | (own == _ENDED[1:]).all(axis=1)


def _needs_none(table: pa.Table) -> Any:
    return columns_of(table, ("found",))[0] == m.NEEDS_NONE


def _ascends(table: pa.Table) -> Any:
    """Each is above all before it."""
    (row,) = columns_of(table, ("row",))
    row = np.where(_has_ended(table), -1, row)
    before = np.maximum.accumulate(np.append(-1, row))[:-1]
    return (row < 0) | (row > before)


def _names(column: str, numbers: Any) -> Callable[[pa.Table], Any]:
    """Whether a column names rows by their numbers; or none, where it may."""

    def holds(table: pa.Table) -> Any:
        (named,) = columns_of(table, (column,))
        at = np.searchsorted(numbers, named)
        return (named < 0) & (column != "row") | (np.append(numbers, -1)[at] == named) & (named >= 0)

    return holds
