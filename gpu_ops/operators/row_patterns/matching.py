"""Matches of a node's pattern in rows of partitions, and the values of their measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.devices.cpu import row_matches as machines
from gpu_ops.devices.cpu.row_matches import FoundMatches, PlaceMachine, Programs, row_matches
from gpu_ops.errors import IntegerOverflowError, PlanError
from gpu_ops.operators.aggregates.block import Block, load_columns
from gpu_ops.operators.row_cells import cell_values
from gpu_ops.plan.expressions import bare_column
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

    @property
    def has_programs(self) -> bool:
        """Whether a condition reads several rows."""
        return bool(self._rules)

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

    def measures(self, frame: Any, begin: Any, end: Any, labels: Any, order: Any | None = None) -> Any | None:
        """A frame with the measures of matches; None if the node has none.

        Args:
            frame: The rows.
            begin: int64: the first row of each match.
            end: int64: its last row.
            labels: int64: the variable of each row of each match.
            order: int64: the index of each row in the frame; None if they stand there in order.
        """
        return _MeasuredRows(self._node, frame, begin, end, labels, order, self._device).frame


@dataclass
class _MeasuredRows:
    """The measures of matches; the attributes are the arguments of `Matching.measures`."""

    node: RowMatches
    rows: Any
    begin: Any
    end: Any
    labels: Any
    order: Any | None
    device: Device

    def __post_init__(self) -> None:
        self._of: dict[str, _VariableRows] = {}
        self._upto = np.cumsum(self.end - self.begin + 1)
        # By how much the number of a row is ahead of its place among the labels.
        self._ahead = self.end + 1 - self._upto

    @property
    def frame(self) -> Any | None:
        """The measures; None if there are none."""
        columns, node = self.device.columns, self.node
        parts = []
        for each in node.chosen:
            label, there = self._rows_of(each.variable).nth(each.index)
            row = label + self._ahead
            one = columns.rename(columns.select(self.rows, [each.column]), each.column, each.name)
            one = columns.take(one, self._index(row if there is None else np.where(there, row, 0)))
            parts.append(one if there is None else columns.null_where(one, there))
        if node.carries:
            parts.append(columns.take(columns.select(self.rows, list(node.carries)), self._index(self.begin)))
        parts += map(self._aggregated, dict.fromkeys(each.variable for each in node.aggregates))
        return None if not parts else parts[0] if len(parts) == 1 else columns.beside(*parts)

    def _index(self, row: Any) -> Any:
        return row if self.order is None else self.device.kernels.take(self.order, row)

    def _rows_of(self, variable: str) -> _VariableRows:
        if variable not in self._of:
            number = variables_of(self.node.pattern).index(variable)
            self._of[variable] = _VariableRows.of(self.labels == number, self._upto, self.device)
        return self._of[variable]

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
        match, _ = kernels.expand(found.counts)
        index = self._index(found.labels + kernels.take(self._ahead, match))
        read = list(dict.fromkeys(str(bare_column(read)) for each in aggregates for read in each.reads))
        content = columns.take(columns.select(self.rows, read), index) if read else None
        loaded = load_columns(aggregates, schema, content, self.device)
        block = Block(self.device, match, match + 1, len(self.begin), loaded, schema, slots)
        made = columns.select(block.results(aggregates), names)
        if len(slots) == len(self.begin):
            return made
        at = np.cumsum(there.astype(np.int64)) - 1
        return columns.null_where(columns.take(made, np.maximum(at, 0)), there)


@dataclass(frozen=True)
class _VariableRows:
    """The rows of one variable, in order of their matches.

    Attributes:
        labels: int64: the place of each row among the labels of all rows.
        counts: int64: how many each match has.
        upto: int64: how many each match and those before it have.
    """

    labels: Any
    counts: Any
    upto: Any
    device: Device

    @classmethod
    def of(cls, mine: Any, ends: Any, device: Device) -> _VariableRows:
        """Those of a variable.

        Args:
            mine: bool: which rows are the variable's.
            ends: int64: where the labels of each match end.
            device: Where arrays live.
        """
        labels = device.kernels.keep(mine)
        upto = device.kernels.take(np.cumsum(mine, dtype=np.int64), ends - 1)
        if len(labels) == len(ends) and bool((upto == np.arange(1, len(ends) + 1, like=upto)).all()):
            return cls(labels, np.ones_like(upto), upto, device)
        counts = upto.copy()
        counts[1:] -= upto[:-1]
        return cls(labels, counts, upto, device)

    def nth(self, index: int) -> tuple[Any, Any | None]:
        """(the place of each match's row among the labels, which matches have one; None for all)."""
        there = self.counts > (index if index >= 0 else -1 - index)
        at = self.upto + index if index < 0 else self.upto - self.counts + index
        if bool(there.all()):
            return self.device.kernels.take(self.labels, at), None
        labels = self.labels if len(self.labels) else np.zeros_like(self.upto, shape=1)
        return self.device.kernels.take(labels, np.where(there, at, 0)), there
