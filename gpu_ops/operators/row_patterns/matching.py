"""Matches of a node's pattern in rows of partitions, and the values of their measures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.devices.cpu import row_matches as machines
from gpu_ops.devices.cpu.row_matches import FoundMatches, PlaceMachine, Programs, row_matches
from gpu_ops.errors import IntegerOverflowError, PlanError
from gpu_ops.operators.aggregates.block import Block, load_columns
from gpu_ops.operators.row_cells import cell_values
from gpu_ops.plan.row_matches import RowMatches
from gpu_ops.plan.row_patterns import variables_of
from gpu_ops.plan.row_programs import tables

UNKNOWN = 1 << 62
"""The place of what has not happened yet."""

_KINDS = {"last": machines.LAST, "nth": machines.NTH, "sum": machines.SUM, "count": machines.COUNT}
_SKIPS = {"past last row": 0, "to next row": 1, "to current row": 2}


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
        machine = node.machine
        follow = [0, *np.cumsum([len(each) for each in machine.following])]
        following = [place for each in machine.following for place in each]
        signs = [sign for sign in machine.sign if sign]
        lists = (machine.variable, machine.first, follow, following, machine.last, machine.counted, signs)
        self._machine = PlaceMachine(*(np.array(each, np.int64) for each in lists))
        self._rules = [rule for rule in node.rules if rule.program is not None]
        self._tables = tables([rule.program for rule in self._rules if rule.program is not None])
        self._notes = list(dict.fromkeys(note for rule in self._rules for note in rule.notes if note is not None))

    def mask(self, frame: Any) -> Any:
        """int64: for each row the variables whose conditions hold, as far as they are about it alone."""
        columns = self._device.columns
        found = np.zeros_like(columns.array(np.zeros(0, np.int64)), shape=columns.rows(frame))
        for at, rule in enumerate(self._node.rules):
            if rule.alone is None:
                found = found | (1 << at)
                continue
            holds, valid = columns.values(frame, rule.alone)
            holds = holds != 0 if valid is None else (holds != 0) & valid
            found = found | (holds.astype(np.int64) << at)
        return found

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
        alone = held == 0 and not together and not node.windowed and not self._rules
        if keep and alone and node.skip == "past last row":
            keep = 2
        # From each row to the next: that is computed on the host, whatever the device.
        found = row_matches(
            host(rows.begins),
            host(rows.place),
            host(rows.mask),
            host(rows.leave),
            host(rows.due),
            self._machine,
            self._programs(rows.frame) if self._rules else None,
            _SKIPS[node.skip],
            node.every,
            held,
            keep,
            node.most,
        )
        if found.overflow >= 0:
            said = self._rules[found.overflow].program
            raise IntegerOverflowError(
                f"A whole number of a condition does not fit its type: {said.said if said is not None else ''}.",
                remedy="Cast to a wider type first.",
            )
        if found.failed >= 0:
            raise PlanError(
                f"More than {node.most:,} ways to match the pattern {node.pattern} are open in one partition.",
                remedy="Write conditions that fewer rows fulfil, bound the repetitions, or allow more ways (most=…).",
            )
        return found

    def _programs(self, frame: Any) -> Programs:
        """The programs with the values of their cells."""
        arrays, notes = self._tables, self._notes
        names = [name for rule in self._rules for name in rule.cells]
        cells = cell_values(arrays.cells, [(frame, name) for name in names], self._device)
        of = np.full(len(self._variables), -1, np.int64)
        wanted = [at for at, rule in enumerate(self._node.rules) if rule.program is not None]
        of[wanted] = np.arange(len(wanted))
        noted = [note for rule in self._rules for note in rule.notes]
        is_float = [note.kind == "sum" and arrays.cells[noted.index(note)].kind == "float" for note in notes]
        kinds = [machines.SUM_FLOAT if f else _KINDS[note.kind] for note, f in zip(notes, is_float, strict=True)]
        which = [noted.index(note) if note.kind == "sum" else note.index for note in notes]
        return Programs(
            of,
            arrays.code,
            arrays.bounds,
            arrays.constants,
            cells.begins,
            cells.values,
            cells.there,
            np.array([-1 if note is None else notes.index(note) for note in noted], np.int64),
            np.array([self._variables[note.variable] for note in notes], np.int64),
            np.array(kinds, np.int64),
            np.array(which, np.int64),
            arrays.depth,
        )

    # Measures

    def measures(self, frame: Any, begin: Any, end: Any, labels: Any) -> Any | None:
        """A frame with the measures of matches; None if the node has none.

        Args:
            frame: The rows.
            begin: int64: the first row of each match.
            end: int64: its last row.
            labels: int64: the variable of each row of each match.
        """
        return _MeasuredRows(self._node, frame, begin, end, labels, self._device).frame


@dataclass
class _MeasuredRows:
    node: RowMatches
    rows: Any
    begin: Any
    end: Any
    labels: Any
    device: Device

    def __post_init__(self) -> None:
        self._of: dict[str, _VariableRows] = {}

    @property
    def frame(self) -> Any | None:
        columns, node = self.device.columns, self.node
        parts = []
        for each in node.chosen:
            at, there = self._rows_of(each.variable).nth(each.index)
            one = columns.rename(columns.select(self.rows, [each.column]), each.column, each.name)
            one = columns.take(one, at)
            parts.append(one if there is None else columns.null_where(one, there))
        if node.carries:
            parts.append(columns.take(columns.select(self.rows, list(node.carries)), self.begin))
        parts += map(self._aggregated, dict.fromkeys(each.variable for each in node.aggregates))
        return None if not parts else parts[0] if len(parts) == 1 else columns.beside(*parts)

    def _rows_of(self, variable: str) -> _VariableRows:
        if variable not in self._of:
            take, kernels = self.device.kernels.take, self.device.kernels
            at = variables_of(self.node.pattern).index(variable)
            some = kernels.keep(self.labels == at)
            self._of[variable] = _VariableRows(
                take(self._match, some), take(self._row, some), len(self.begin), self.device
            )
        return self._of[variable]

    @cached_property
    def _expanded(self) -> tuple[Any, Any]:
        return self.device.kernels.expand(self.end - self.begin + 1)

    @cached_property
    def _match(self) -> Any:
        return self._expanded[0]

    @cached_property
    def _row(self) -> Any:
        return self.device.kernels.take(self.begin, self._match) + self._expanded[1]

    def _aggregated(self, variable: str) -> Any:
        columns, kernels = self.device.columns, self.device.kernels
        aggregates = [each.aggregate for each in self.node.aggregates if each.variable == variable]
        found = self._rows_of(variable)
        names = [each.name for each in aggregates]
        there = found.counts > 0
        slots = kernels.keep(there)
        if not len(slots):
            schema = pa.schema([self.node.schema.field(name) for name in names])
            return columns.nulls(columns.from_arrow(schema.empty_table()), len(self.begin))
        schema = self.node.rows.schema
        content = columns.take(self.rows, found.row)
        loaded = load_columns(aggregates, schema, content, self.device)
        block = Block(self.device, found.match, found.match + 1, len(self.begin), loaded, schema, slots)
        made = columns.select(block.results(aggregates), names)
        if len(slots) == len(self.begin):
            return made
        at = np.cumsum(there.astype(np.int64)) - 1
        return columns.null_where(columns.take(made, np.maximum(at, 0)), there)


@dataclass
class _VariableRows:
    """The rows of one variable, in order of their matches.

    Attributes:
        match: int64: the number of each row's match.
        row: int64: the row.
        matches: How many matches there are.
    """

    match: Any
    row: Any
    matches: int
    device: Device

    @cached_property
    def counts(self) -> Any:
        """int64: how many rows each match has."""
        slots = np.arange(self.matches, like=self.match)
        return self.device.kernels.range_count(self.match, self.match + 1, self.matches, slots)

    @cached_property
    def _upto(self) -> Any:
        return np.cumsum(self.counts)

    def nth(self, index: int) -> tuple[Any, Any | None]:
        """(the row of each match, which matches have one; None for all)."""
        there = self.counts > (index if index >= 0 else -1 - index)
        at = self._upto + index if index < 0 else self._upto - self.counts + index
        if bool(there.all()):
            return self.device.kernels.take(self.row, at), None
        rows = self.row if len(self.row) else np.zeros_like(self.match, shape=1)
        return self.device.kernels.take(rows, np.where(there, at, 0)), there
