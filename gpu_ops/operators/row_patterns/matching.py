"""Matches of a node's pattern in rows of partitions, and the values of their measures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.polars_frames import empty_table
from gpu_ops.devices import Device
from gpu_ops.devices.cpu import row_matches as machines
from gpu_ops.devices.cpu.row_matches import FoundMatches, Programs, row_matches
from gpu_ops.devices.cpu.row_streams import (
    Automaton,
    PlaceMachine,
    StreamMatches,
    automaton_matches,
    stream_matches,
    variable_rows,
)
from gpu_ops.errors import IntegerOverflowError, PlanError
from gpu_ops.operators.aggregates.block import Block, load_columns
from gpu_ops.operators.row_cells import cell_values
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.row_automata import RowAutomaton
from gpu_ops.plan.row_matches import ChosenRow, NotedRows, Register, RowMatches
from gpu_ops.plan.row_patterns import RowMachine, variables_of
from gpu_ops.plan.row_programs import tables

UNKNOWN = 1 << 62
"""The place of what has not happened yet."""

_KINDS = {
    "last": machines.LAST,
    "nth": machines.NTH,
    "sum": machines.SUM,
    "count": machines.COUNT,
    "register": machines.REGISTER,
}
_SKIPS = {"past last row": 0, "to next row": 1, "to current row": 2, "while open": 3}


@dataclass(frozen=True)
class PartitionRows:
    """Rows in order of partition, then of place.

    Attributes:
        frame: The columns that a node reads.
        begins: int64: where each partition begins, and where the last one ends.
        place: int64: the place at which each row comes; those of one place come together.
        mask: int64: a bit for each variable whose condition holds, as far as it is about the row alone.
        leave: int64: the place at which each leaves; `UNKNOWN` if it has not.
        due: int64: the place at which a match that begins with it is delivered; `UNKNOWN` if that is not known yet.
    """

    frame: Any
    begins: Any
    place: Any
    mask: Any
    leave: Any
    due: Any


class Matching:
    """Finds matches, and computes their measures.

    Args:
        node: The node.
        device: Where arrays live.
    """

    def __init__(self, node: RowMatches, device: Device) -> None:
        self._node, self._device = node, device
        self._variables = {name: at for at, name in enumerate(variables_of(node.pattern))}
        self._programs = [each for rule in node.rules for each in rule.programs]
        self._tables = tables([each.program for each in self._programs])
        registers = [NotedRows("", "register", at) for at in range(len(node.registers))]
        noted = [note for each in self._programs for note in each.notes if note is not None]
        self._notes = list(dict.fromkeys([*registers, *noted]))
        machine = node.machine
        self._machine = machine_arrays(machine)
        automaton = RowAutomaton.of(machine) if self.streams else None
        self._automaton = None if automaton is None else automaton_arrays(automaton)

    @property
    def has_programs(self) -> bool:
        """Whether a condition reads several rows, or a register."""
        return bool(self._programs or self._node.registers)

    @property
    def streams(self) -> bool:
        """Whether a match ends all other ways, so that rows are matched as they come, whatever their partitions."""
        node = self._node
        waits = node.interval is not None or node.windowed or self.has_programs
        return node.skip == "past last row" and not (node.every or waits)

    def mask(self, frame: Any) -> Any:
        """int64: for each row the variables whose conditions hold, as far as they are about it alone."""
        columns, rules = self._device.columns, self._node.rules
        always = sum(1 << at for at, rule in enumerate(rules) if rule.alone is None)
        # In as many bits as there are variables, for there are as many passes.
        dtype = next(each for each in (np.uint8, np.uint16, np.uint32, np.uint64) if len(rules) <= 8 * each().itemsize)
        found = np.full_like(columns.array(np.zeros(0, dtype)), always, shape=(columns.rows(frame),))
        for at, rule in enumerate(rules):
            if rule.alone is not None:
                holds, valid = columns.values(frame, rule.alone)
                holds = holds != 0 if valid is None else (holds != 0) & valid
                found |= holds.astype(dtype) << dtype(at)
        return found.astype(np.int64)

    def streamed(self, codes: Any, mask: Any, partitions: int) -> StreamMatches:
        """Matches in the rows of partitions as they come, where the node `streams`.

        Args:
            codes: int32: the partition of each row.
            mask: As of `PartitionRows`.
            partitions: How many partitions there are.
        """
        host = self._device.columns.host
        if self._automaton is not None:
            return automaton_matches(host(codes), host(mask), partitions, self._automaton)
        return stream_matches(host(codes), host(mask), partitions, self._machine)

    def found(self, rows: PartitionRows, *, together: bool = False) -> FoundMatches:
        """Matches in partitions.

        Args:
            rows: The rows.
            together: Whether matches are delivered as they end, whatever the node says.

        Raises:
            PlanError: Too many ways are open.
            IntegerOverflowError: A whole number of a condition does not fit its type.
        """
        node, host = self._node, self._device.columns.host
        held = 0 if node.interval is None or together else 2 if node.or_terminated else 1
        keep = 0 if node.every or held == 2 else 1
        # From each row to the next: that is computed on the host, whatever the device.
        found = row_matches(
            host(rows.begins),
            host(rows.place),
            host(rows.mask),
            host(rows.leave),
            host(rows.due),
            self._machine,
            self._loaded(rows.frame) if self.has_programs else None,
            _SKIPS[node.skip],
            node.every,
            held,
            keep,
            node.most,
        )
        if found.overflow >= 0:
            said = self._programs[found.overflow].program.said
            raise IntegerOverflowError(
                f"A whole number of a condition does not fit its type: {said}.",
                remedy="Cast to a wider type first.",
            )
        if found.failed >= 0:
            raise PlanError(
                f"More than {node.most:,} ways to match the pattern {node.pattern} are open in one partition.",
                remedy="Write conditions that fewer rows fulfil, bound the repetitions, or allow more ways (most=…).",
            )
        return found

    def _loaded(self, frame: Any) -> Programs:
        """The programs with the values of their cells."""
        arrays, notes, node = self._tables, self._notes, self._node
        names = [name for each in self._programs for name in each.cells]
        cells = cell_values(arrays.cells, [(frame, name) for name in names], self._device)
        numbers = {id(each): at for at, each in enumerate(self._programs)}
        of = [-1 if rule.rest is None else numbers[id(rule.rest)] for rule in node.rules]
        sets = np.full((len(node.rules), len(node.registers)), -1, np.int64)
        for at, rule in enumerate(node.rules):
            for register, change in rule.sets:
                sets[at, register] = numbers[id(change)]
        noted = [note for each in self._programs for note in each.notes]
        is_float = [note.kind == "sum" and arrays.cells[noted.index(note)].kind == "float" for note in notes]
        kinds = [machines.SUM_FLOAT if f else _KINDS[note.kind] for note, f in zip(notes, is_float, strict=True)]
        which = [noted.index(note) if note.kind == "sum" else note.index for note in notes]
        initial = [np.array([each.begins]).view(np.int64) for each in node.registers]
        return Programs(
            np.array(of, np.int64),
            sets.reshape(-1),
            np.concatenate([np.zeros(0, np.int64), *initial]),
            arrays.code,
            arrays.bounds,
            arrays.constants,
            cells.begins,
            cells.values,
            cells.there,
            np.array([-1 if note is None else notes.index(note) for note in noted], np.int64),
            np.array([self._variables.get(note.variable, -1) for note in notes], np.int64),
            np.array(kinds, np.int64),
            np.array(which, np.int64),
            arrays.depth,
        )

    # Measures

    def measures(self, frame: Any, upto: Any, labels: Any, rows: Any, registers: Any | None) -> Any | None:
        """A frame with the measures of matches; None if the node has none.

        Args:
            frame: The rows.
            upto: int64: where the labels of each match end; on the host, as are the labels.
            labels: int8: the variable of each row of each match.
            rows: int64: the indices of these rows in the frame.
            registers: As in `FoundMatches`; None if the node has none.
        """
        return _MeasuredRows(self._node, frame, upto, labels, rows, registers, self._device).frame


def machine_arrays(machine: RowMachine) -> PlaceMachine:
    """A machine in arrays."""
    follow = [0, *np.cumsum([len(each) for each in machine.following])]
    following = [place for each in machine.following for place in each]
    signs = [sign for sign in machine.sign if sign]
    lists = (machine.variable, machine.first, follow, following, machine.last, machine.counted, signs)
    return PlaceMachine(*(np.array(each, np.int64) for each in lists))


def automaton_arrays(automaton: RowAutomaton) -> Automaton:
    """An automaton in arrays."""
    moves, most = [move for moves in automaton.moves for move in moves], max(automaton.most, 1)
    ways = np.zeros((len(moves), most), np.int64)
    for at, move in enumerate(moves):
        ways[at, : len(move.ways)] = [_way(each) for each in move.ways]
    after = [2 * move.after + (move.match is not None) for move in moves]
    match = [0 if move.match is None else _way(move.match) for move in moves]
    return Automaton(np.array(after), ways.reshape(-1), np.array(match), len(automaton.moves[0]), most)


def _way(way: tuple[int, int]) -> int:
    variable, before = way
    return before << 6 | variable


@dataclass
class _MeasuredRows:
    """The measures of matches; the attributes are the arguments of `Matching.measures`."""

    node: RowMatches
    rows: Any
    upto: Any
    labels: Any
    members: Any
    registers: Any | None
    device: Device

    def __post_init__(self) -> None:
        self._variables = variables_of(self.node.pattern)
        first, last, counts = np.empty((3, len(self._variables), len(self.upto)), np.int64)
        variable_rows(self.labels, self.upto, len(self._variables), first, last, counts)
        self._ends, self._counts = {0: first, -1: last}, counts

    @property
    def frame(self) -> Any | None:
        """The measures; None if there are none."""
        columns, node = self.device.columns, self.node
        parts = []
        for each in node.chosen:
            label, there = self._chosen(each)
            one = columns.rename(columns.select(self.rows, [each.column]), each.column, each.name)
            one = columns.take(one, self._row(label))
            parts.append(one if there is None else columns.null_where(one, there))
        if node.carries:
            parts.append(columns.take(columns.select(self.rows, list(node.carries)), self._row(self._first)))
        parts += map(self._aggregated, dict.fromkeys(each.variables for each in node.aggregates))
        if self.registers is not None and node.registers:
            parts.append(columns.build(dict(map(self._register, range(len(node.registers)), node.registers))))
        return None if not parts else parts[0] if len(parts) == 1 else columns.beside(*parts)

    @cached_property
    def _first(self) -> Any:
        """The label of each match's first row."""
        return np.concatenate([np.zeros_like(self.upto, shape=(1,)), self.upto[:-1]])

    def _chosen(self, each: ChosenRow) -> tuple[Any, Any | None]:
        """As `_nth`; of all rows of a match the first or the last."""
        if each.variable:
            return self._nth(self._variables.index(each.variable), each.index)
        return self.upto - 1 if each.index else self._first, None

    def _row(self, label: Any) -> Any:
        """The row of each of some labels."""
        return self.device.kernels.take(self.members, self.device.columns.array(label))

    def _nth(self, variable: int, index: int) -> tuple[Any, Any | None]:
        """(the label of each match's n-th row of a variable, which matches have one; None for all)."""
        counts = self._counts[variable]
        there = counts > (index if index >= 0 else -1 - index)
        if index in self._ends:
            label = self._ends[index][variable]
        else:
            labels = np.concatenate([self._labels(variable), np.zeros(1, np.int64)])
            label = np.where(there, labels[np.where(there, np.cumsum(counts) - counts + index, -1)], 0)
        return label, None if there.all() else self.device.columns.array(there)

    def _labels(self, *variables: int) -> Any:
        """The labels that are one of some variables, of all matches."""
        if len(variables) == 1:
            return np.flatnonzero(self.labels == variables[0])
        return np.flatnonzero(np.isin(self.labels, variables))

    def _register(self, number: int, register: Register) -> tuple[str, tuple[Any, Any, pa.DataType]]:
        """A register of each match, as a column."""
        array = self.device.columns.array
        bits, there = (np.ascontiguousarray(self.registers[:, 2 * number + at]) for at in range(2))  # type: ignore[index]
        values = bits.view(np.float64) if register.type == pa.float64() else bits
        return register.name, (array(values), None if there.all() else array(there != 0), register.type)

    def _aggregated(self, variables: tuple[str, ...]) -> Any:
        columns, schema = self.device.columns, self.node.rows.schema
        numbers = [self._variables.index(each) for each in variables]
        counts = columns.array(self._counts[numbers].sum(axis=0))
        aggregates = [each.aggregate for each in self.node.aggregates if each.variables == variables]
        there = counts > 0
        every = bool(there.all())
        counted = [each for each in aggregates if self._counts_rows(each)]
        made = [columns.build({each.name: (counts, None if every else there, pa.int64())}) for each in counted]
        others = [each for each in aggregates if each not in counted]
        if others:
            made.append(self._over(numbers, others, counts, there, schema))
        whole = made[0] if len(made) == 1 else columns.beside(*made)
        return columns.select(whole, [each.name for each in aggregates])

    def _counts_rows(self, aggregate: Aggregate) -> bool:
        """Whether an aggregate is the number of rows: it counts them, or values of which none is null."""
        columns = self.device.columns
        if aggregate.kind.name != "count" or aggregate.filter is not None or aggregate.distinct:
            return False
        return all(columns.validity(self.rows, str(bare_column(read))) is None for read in aggregate.reads)

    def _over(
        self, variables: list[int], aggregates: list[Aggregate], counts: Any, there: Any, schema: pa.Schema
    ) -> Any:
        """Aggregates over the rows of variables."""
        columns, kernels = self.device.columns, self.device.kernels
        names = [each.name for each in aggregates]
        slots = kernels.keep(there)
        if not len(slots):
            schema = pa.schema([self.node.schema.field(name) for name in names])
            return columns.nulls(columns.from_arrow(empty_table(schema)), len(counts))
        match, _ = kernels.expand(counts)
        read = list(dict.fromkeys(str(bare_column(read)) for each in aggregates for read in each.reads))
        rows = self._row(self._labels(*variables))
        content = columns.take(columns.select(self.rows, read), rows) if read else None
        loaded = load_columns(aggregates, schema, content, self.device)
        block = Block(self.device, match, match + 1, len(counts), loaded, schema, slots)
        made = columns.select(block.results(aggregates), names)
        if len(slots) == len(counts):
            return made
        at = np.cumsum(there.astype(np.int64)) - 1
        return columns.null_where(columns.take(made, np.maximum(at, 0)), there)
