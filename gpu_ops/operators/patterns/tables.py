"""The tree of a pattern as the tables that the machine of `gpu_ops.devices.cpu.patterns` takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpu_ops.core.time import MAX_TIME
from gpu_ops.devices.cpu import patterns as m
from gpu_ops.errors import IntegerOverflowError
from gpu_ops.plan import patterns as p
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.pattern_matches import Pattern
from gpu_ops.plan.row_programs import Cell, Op, ProgramTables, RowProgram, tables

_KINDS: dict[type[p.PatternPart], int] = {
    p.EventAtom: m.ATOM,
    p.EveryMatch: m.EVERY,
    p.DistinctMatches: m.DISTINCT,
    p.FollowedBy: m.FOLLOWED,
    p.AllOf: m.BOTH,
    p.AnyOf: m.EITHER,
    p.NoMatch: m.NOT,
    p.RepeatedMatch: m.UNTIL,
    p.WithinGuard: m.WITHIN,
    p.WhileGuard: m.WHILE,
    p.ClockTime: m.TIMER,
}


@dataclass(frozen=True)
class TimerTable:
    """What the times of a timer are.

    Attributes:
        due: What says them.
        row: Its row for the machine.
    """

    due: p.Due
    row: tuple[int, ...]

    def dues(self, clocks: Any) -> Any:
        """int64: the due time of what starts at each time of the clock, if the clock alone says it."""
        match self.due:
            case p.ElapsedTime() as span:
                return np.minimum(span.dues(clocks), MAX_TIME)
            case p.TimesOfDay(times):
                found, due = np.empty_like(clocks), -MAX_TIME
                distinct, places = np.unique(clocks, return_inverse=True)
                for at, clock in enumerate(distinct):
                    # One search for all ticks up to the next named time.
                    due = due if clock < due else times.next_after(int(clock))
                    found[at] = due
                return np.where(found == MAX_TIME, m.NEVER, found)[places]
        return np.zeros_like(clocks)


@dataclass(frozen=True, eq=False)
class PatternTables:
    """The static tables of a pattern.

    Attributes:
        nodes: int64[nodes, …]: as the machine has them, like the others.
        atoms: The atoms.
        holds: For each atom the column of its stream that says which rows it may take; none for all.
        timers: The timers.
        node_tags: The tags that each node's subtree sets.
        tag_bounds: Where those of each node begin.
        stream_atoms: The atoms of each stream.
        stream_bounds: Where those of each stream begin.
        tag_streams: The stream of each tag.
        programs: The programs, with the cells of equalities behind their own.
        said: How errors show each program.
        cell_slots: The tag of each cell and the element of its list.
        cell_columns: The stream of each cell, and its column.
        by_text: Whether an atom waits for a text.
    """

    nodes: Any
    atoms: Any
    holds: tuple[str, ...]
    timers: tuple[TimerTable, ...]
    node_tags: Any
    tag_bounds: Any
    stream_atoms: Any
    stream_bounds: Any
    tag_streams: Any
    programs: ProgramTables
    said: tuple[str, ...]
    cell_slots: Any
    cell_columns: tuple[tuple[int, str], ...]
    by_text: bool

    def cells_of(self, program: int) -> tuple[int, int]:
        """(the first cell of a program, the one behind its last)."""
        cells = [argument for op, argument in self.instructions(program) if op == Op.CELL]
        return (min(cells), max(cells) + 1) if cells else (0, 0)

    def instructions(self, program: int) -> tuple[tuple[int, int], ...]:
        """The instructions of a program, and their arguments."""
        begin, end = self.programs.bounds[program : program + 2]
        return tuple((int(op), int(argument)) for op, argument in self.programs.code[begin:end].reshape(-1, 2))

    @property
    def has_texts(self) -> bool:
        """Whether a program or an atom reads texts."""
        return any(each.kind == "text" for each in self.programs.cells)

    @property
    def ranks_texts(self) -> bool:
        """Whether a program asks more of a text than which one it is, as keys do."""
        for program in range(len(self.programs.bounds) - 1):
            steps = self.instructions(program)
            cells = [argument for op, argument in steps if op == Op.CELL]
            if len(steps) > 1 and any(self.programs.cells[cell].kind == "text" for cell in cells):
                return True
        return False

    def overflow(self, program: int) -> IntegerOverflowError:
        """The error where a whole number of a program does not fit."""
        return IntegerOverflowError(
            f"A whole number in a condition of a pattern does not fit its type: {self.said[program]}.",
            remedy="Cast to a wider type or to float64 first.",
        )


class _TableWriter:
    def __init__(self, node: Pattern) -> None:
        self._node = node
        self.tags = {tag.name: number for number, tag in enumerate(node.tags)}
        self._slots = {slot: (self.tags[tag], element) for slot, tag, element in node.slots}
        self.rows: list[list[int]] = []
        self.atoms: list[list[int]] = []
        self.holds: list[str] = []
        self.timers: list[TimerTable] = []
        self.programs: list[RowProgram] = []
        self.streams: list[int] = []
        self.pairs: list[tuple[Cell, Cell, int]] = []
        self.set_below: list[list[int]] = []

    def write(self, part: p.PatternPart, up: int = -1, index: int = 0) -> int:
        """Write a part and all below it; gives its number."""
        number = len(self.rows)
        row = [0] * m.NODE_COLUMNS
        self.rows.append(row)
        row[m.KIND], row[m.UP], row[m.INDEX], row[m.CHILD], row[m.SIBLING] = _KINDS[type(part)], up, index, -1, -1
        row[m.CHILDREN], row[m.LIMIT], row[m.EXPIRY] = len(part.parts), -1, -1
        self.set_below.append([self.tags[tag] for tag in p.tags_below(part)])
        _WRITE[type(part)](self, part, row, number)
        before = -1
        for at, each in enumerate(part.parts):
            below = self.write(each, number, at)
            if before < 0:
                row[m.CHILD] = below
            else:
                self.rows[before][m.SIBLING] = below
            before = below
            if isinstance(part, p.FollowedBy) and at:
                self.rows[below][m.LIMIT] = self._program(part.limits[at - 1])
        return number

    def _program(self, program: RowProgram | None) -> int:
        if program is None:
            return -1
        self.programs.append(program)
        return len(self.programs) - 1

    def _timer(self, due: p.Due) -> int:
        row = {m.HOW: m.BY_TABLE, m.PROGRAM: -1, m.FIRST_TIME: 0, m.DISTANCE: 0, m.TIMES: 0}
        match due:
            case p.ComputedSpan(program):
                row |= {m.HOW: m.BY_PROGRAM, m.PROGRAM: self._program(program)}
            case p.ComputedTimesOfDay(_, fields):
                row |= {m.HOW: m.BY_QUESTION, m.PROGRAM: len(self.programs), m.TIMES: len(fields)}
                for _, program in fields:
                    self._program(program)
            case p.ScheduledTimes(first, every, count):
                row |= {m.HOW: m.BY_SCHEDULE, m.FIRST_TIME: m.NEVER if first is None else first}
                row |= {m.DISTANCE: every, m.TIMES: m.NEVER if count is None else count}
        self.timers.append(TimerTable(due, tuple(row.values())))
        return len(self.timers) - 1

    def atom(self, part: p.EventAtom, row: list[int], number: int) -> None:
        row[m.ARGUMENT] = len(self.atoms)
        atom = [0] * m.ATOM_COLUMNS
        atom[m.AT_NODE], atom[m.STREAM], atom[m.LEVEL] = number, part.stream, part.level
        atom[m.TAG] = self.tags[part.tag] if part.tag else -1
        atom[m.MINE] = atom[m.THEIRS] = -1
        atom[m.REST], atom[m.PLAIN] = self._program(part.rest), int(not part.has_condition)
        if part.equal is not None:
            self.pairs.append((*part.equal, len(self.atoms)))
        self.streams.append(part.stream)
        self.atoms.append(atom)
        self.holds.append(self._node.mask_of(part))

    def distinct(self, part: p.DistinctMatches, row: list[int], number: int) -> None:
        del number
        row[m.ARGUMENT], row[m.OTHER] = len(self.programs), len(part.keys)
        self.programs += part.keys
        row[m.EXPIRY] = -1 if part.forgets is None else self._timer(part.forgets)

    def repeat(self, part: p.RepeatedMatch, row: list[int], number: int) -> None:
        del number
        row[m.ARGUMENT], row[m.OTHER] = self._program(part.low), self._program(part.high)

    def within(self, part: p.WithinGuard, row: list[int], number: int) -> None:
        del number
        row[m.ARGUMENT], row[m.OTHER] = self._timer(part.over), self._program(part.most)
        row[m.KIND] = m.WITHIN if part.most is None else m.WITHIN_MAX

    def whiles(self, part: p.WhileGuard, row: list[int], number: int) -> None:
        del number
        row[m.OTHER] = self._program(part.condition)

    def clock(self, part: p.ClockTime, row: list[int], number: int) -> None:
        del number
        row[m.ARGUMENT] = self._timer(part.due)

    def nothing(self, part: p.PatternPart, row: list[int], number: int) -> None:
        """What has no arguments."""

    def cells(self) -> tuple[ProgramTables, Any, tuple[tuple[int, str], ...], bool]:
        """(programs with all cells, their slots, their columns, whether an atom waits for a text)."""
        made, by_text = tables(self.programs), False
        cells, current = list(made.cells), self._currents()
        for mine, theirs, atom in self.pairs:
            self.atoms[atom][m.MINE], self.atoms[atom][m.THEIRS] = len(cells), len(cells) + 1
            cells += [mine, theirs]
            current += [self.streams[atom]] * 2
            by_text |= mine.kind == "text"
        slots, columns = [], []
        for cell, stream in zip(cells, current, strict=True):
            tag, element = self._slots.get(cell.slot, (-1, None))
            slots.append((tag, -1 if element is None else element))
            column = bare_column(cell.value)
            assert column is not None  # noqa: S101  (streams have the values of cells as columns)
            columns.append((self._node.tags[tag].stream if tag >= 0 else stream, column))
        whole = replace(made, cells=tuple(cells))
        return whole, np.array(slots, np.int64).reshape(-1, 2), tuple(columns), by_text

    def _currents(self) -> list[int]:
        """For each cell of a program the stream of the row that comes where it is evaluated."""
        owners = {program: self.streams[at] for at, row in enumerate(self.atoms) if (program := row[m.REST]) >= 0}
        return [owners.get(at, 0) for at, each in enumerate(self.programs) for _ in each.cells]


_Write = Callable[[_TableWriter, Any, list[int], int], None]
_WRITE: dict[type[p.PatternPart], _Write] = {
    **dict.fromkeys(_KINDS, _TableWriter.nothing),
    p.EventAtom: _TableWriter.atom,
    p.DistinctMatches: _TableWriter.distinct,
    p.RepeatedMatch: _TableWriter.repeat,
    p.WithinGuard: _TableWriter.within,
    p.WhileGuard: _TableWriter.whiles,
    p.ClockTime: _TableWriter.clock,
}


def pattern_tables(node: Pattern) -> PatternTables:
    """The static tables of a pattern."""
    writer = _TableWriter(node)
    writer.write(node.tree)
    programs, cell_slots, cell_columns, by_text = writer.cells()
    count = len(node.streams)
    of_stream = [[at for at, stream in enumerate(writer.streams) if stream == number] for number in range(count)]
    return PatternTables(
        _table(writer.rows, m.NODE_COLUMNS),
        _table(writer.atoms, m.ATOM_COLUMNS),
        tuple(writer.holds),
        tuple(writer.timers),
        *_flat(writer.set_below),
        *_flat(of_stream),
        np.array([tag.stream for tag in node.tags], np.int64),
        programs,
        tuple(each.said for each in writer.programs),
        cell_slots,
        cell_columns,
        by_text,
    )


def _table(rows: list[list[int]], columns: int) -> Any:
    return np.array(rows, np.int64).reshape(-1, columns)


def _flat(lists: list[list[int]]) -> tuple[Any, Any]:
    """(all items, where those of each list begin)."""
    flat = [each for items in lists for each in items]
    return np.array(flat, np.int64), np.cumsum([0, *map(len, lists)]).astype(np.int64)
