"""The base of operators that keep rows by group from one step to the next."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.state_parts import Parts, in_parts, whole
from gpu_ops.core.state_tables import Field, RowRule, StateTable, Tables
from gpu_ops.core.table_runs import TableRuns
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.devices import Device
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.operator import BatchInput, Operator, StepInput
from gpu_ops.operators.state.fields import nullable_columns
from gpu_ops.operators.state.row_runs import RowRuns
from gpu_ops.operators.state.rows import AxisRows, GroupInterner, rows_from_arrow, shown_time


class IncrementalOperator(Operator, family=True):
    """Numbered groups, rows in runs, the place up to which results are given; all of it as tables.

    | operator | rows | known of a group | a group is kept while | clock | output CTI |
    |---|---|---|---|---|---|
    | `IncrementalWindow` | waiting, ending, those of extremes | its last boundary, totals, orders | it has rows | place | the oldest group's last boundary; of a grid its last window |
    | `RecomputingWindow` | waiting, alive | its last boundary, how many rows it has | it has rows | place | as above |
    | `IncrementalBinary` | waiting and kept ones of either side; null keys have two numbers of their own | of `ClipBy` the last right start | it has rows | time | the oldest piece that is open |
    | `IncrementalStitch` | waiting pieces, chains | nothing | it has rows | none | the oldest chain |
    | `IncrementalDataWindow` | waiting, kept | rows so far, and when it wakes | its window is not at rest | none | the oldest row that may enter yet |
    | `IncrementalClockedWindow` | waiting, kept, ticks that wait | the same; it wakes by the clock | its window is not at rest | none | as above |
    | `IncrementalFill` | none: it remembers each group's last result | its last window | always | none | the oldest group's next window |

    The last three have states of their own.

    Args:
        node: The node.
        names: The columns that tell groups apart.
        schema: The types of these and of what rows have.
        device: Where arrays live.
        runs: The rows, by the names of their tables. Rows of a table whose name begins with "waiting" wait.
        done: The place up to which results are given before the first row.
    """  # noqa: E501

    _group_table, _key_prefix = "groups", "key/"

    own_numbers = 0
    """The numbers below this one belong to no group."""

    _has_clock = True

    def __init__(
        self,
        node: Any,
        names: tuple[str, ...],
        schema: pa.Schema,
        device: Device,
        runs: dict[str, RowRuns],
        done: int = MIN_TIME,
    ) -> None:
        super().__init__(node, device)
        self._groups = GroupInterner(names, schema, device)
        self._keys = pa.schema([schema.field(name) for name in names])
        self._runs, self._schema, self._done = runs, schema, done
        self._group_runs = TableRuns(self._key_prefix)

    def step(self, given: Sequence[StepInput], ctis: Sequence[int]) -> tuple[StepInput, int]:
        """The results that became final, and the output CTI. If the first step is also the last, it is a batch."""
        cti, events = min(ctis), [concat(fed.events, self._device) for fed in given]
        edges = any(fed.opened or fed.closed for fed in given)
        if self._may_batch and cti == MAX_TIME and not self._groups.seen and not edges:
            pieces = [iter([] if each is None else [each]) for each in events]
            return StepInput(list(self.batch(BatchInput(pieces, tuple(self._node.schema.names))))), cti
        return self._moved(events, given, cti)

    _may_batch = True
    """Whether a step that is the first and the last may be computed as a batch, which keeps no state."""

    @abstractmethod
    def _moved(self, events: Sequence[Events | None], given: Sequence[StepInput], cti: int) -> tuple[StepInput, int]:
        """A step that is not the whole input.

        Args:
            events: For each input the events with known lifetimes, in one piece.
            given: The whole input of the step, edges included.
            cti: The oldest CTI of the inputs.
        """

    @property
    def waiting(self) -> int:
        """How many events wait for a CTI to pass their start."""
        return sum(len(runs) for name, runs in self._runs.items() if name.startswith("waiting"))

    @property
    def alive(self) -> int:
        """How many events are kept."""
        return sum(map(len, self._runs.values()))

    def tables(self) -> dict[str, pa.Table]:
        """The state: groups, the place up to which results are given, and rows; no table before the first row."""
        return whole(self.state_parts())

    def state_parts(self) -> Parts:
        """The same, with rows in their runs."""
        made = in_parts(self._plain_tables())
        if self._groups.seen:
            nothing = self._group_rows(np.zeros(0, np.int64))
            if nothing.num_columns:
                made[self._group_table] = self._group_runs.parts(len(self._groups), self._group_rows, nothing)
            for name, runs in self._runs.items():
                made[name] = runs.parts(partial(self._row_table, name))
        return made

    def _group_rows(self, at: Any) -> pa.Table:
        """The table of groups, of some groups by their int64 numbers, which ascend."""
        numbers = self._device.columns.array(at)
        made = self._group_columns(numbers)
        if self._keys.names:
            known = self._groups.keys_of(numbers)
            # Of groups that were there, all may be gone.
            keys = self._keys.empty_table() if known is None else self._device.columns.to_arrow(known, self._keys)
            made |= {f"{self._key_prefix}{name}": keys[name] for name in keys.column_names}
        return pa.table(made)

    def _changed(self, groups: Any) -> None:
        """What is known of some groups has changed; int64 numbers."""
        self._group_runs.note(self._device.columns.host(groups))

    @property
    def entire_tables(self) -> tuple[str, ...]:
        """The table of groups: others tell of groups by their numbers."""
        return (self._group_table,)

    def _row_table(self, name: str, rows: AxisRows) -> pa.Table:
        return rows.to_arrow(self._frame(name), self._device, self._shown)

    def _plain_tables(self) -> dict[str, pa.Table]:
        """The tables but those of groups and rows."""
        return {"clock": pa.table({"done": pa.array([self._done], pa.int64())})} if self._remembers_clock else {}

    @property
    def _remembers_clock(self) -> bool:
        return self._has_clock and self._groups.seen

    def _groups_declared(self, columns: Mapping[str, Field], rules: tuple[RowRule, ...] = ()) -> Iterator[StateTable]:
        """The table of groups, with these columns beside their keys; none if it has no column."""
        keys = nullable_columns(self._keys, self._key_prefix)
        if columns or keys:
            rows = None if keys else 1
            declared = {**columns, **keys}
            yield StateTable(self._group_table, declared, rows, required=True, unique=tuple(keys), rules=rules)

    def _group_count(self, tables: Tables) -> int:
        """How many groups a checked table of groups has; one if there is no key."""
        return tables[self._group_table].num_rows if self._keys.names else 1

    def restore(self, tables: Mapping[str, pa.Table]) -> None:
        """The state that `tables` gave."""
        if not tables:
            return
        groups = tables[self._group_table].combine_chunks() if self._group_table in tables else pa.table({})
        keys = {name: groups[f"{self._key_prefix}{name}"] for name in self._keys.names}
        self._groups.restore(self._device.columns.from_arrow(pa.table(keys)) if keys else None)
        if self._has_clock:
            self._done = tables["clock"]["done"][0].as_py()
        self._restore_groups(groups)
        for name, runs in self._runs.items():
            if name in tables:
                rows = self._completed(name, rows_from_arrow(tables[name], self._device))
                runs.put_back(rows)
                self._again(name, rows)

    def put_back(self, parts: Parts) -> None:
        """The state that `state_parts` gave."""
        self._group_runs.restore(parts.get(self._group_table, ()))
        named = {name: parts[name] for name in self._runs if name in parts}
        named = {name: each for name, each in named.items() if each and all(part.name for part in each)}
        none = {name: each[0].rows().slice(0, 0) for name, each in named.items()}
        self.restore(whole({name: each for name, each in parts.items() if name not in named}) | none)
        groups = len(self._groups) + self.own_numbers
        for name, each in named.items():
            for part in each:
                rows = self._completed(name, rows_from_arrow(part.rows(), self._device))
                self._again(name, self._runs[name].put_run_back(part, rows, groups))

    def _forget(self) -> None:
        """Forget groups that have nothing left, once most groups have nothing left."""
        if not self._groups.crowded:
            return
        host, own = self._device.columns.host, self.own_numbers
        used = np.zeros(len(self._groups) + own, np.bool_)
        for runs in self._runs.values():
            for rows in runs.pieces():
                used[host(rows.code)] = True
        self._note_used(used)
        numbers = self._groups.forget(used[own:])
        if numbers is None:
            return
        if own:
            mine = self._device.columns.array(np.arange(own, dtype=np.int32))
            numbers = np.concatenate([mine, numbers + np.int32(own)])
            used[:own] = True
        self._group_runs.forget()
        for runs in self._runs.values():
            runs.renumber(numbers)
        self._renumber(numbers, self._device.columns.array(np.flatnonzero(used)))

    # What an operator adds

    def _shown(self, places: Any) -> pa.Array:
        """Places on the axis as tables show them."""
        return shown_time(places)

    def _frame(self, name: str) -> pa.Schema:
        """The types of the payload of a table's rows."""
        del name
        return self._schema

    def _completed(self, name: str, rows: AxisRows) -> AxisRows:
        """Restored rows, with the columns that the table lacks."""
        del name
        return rows

    def _group_columns(self, numbers: Any) -> dict[str, Any]:
        """What is known of some groups, by int64 numbers, as columns beside their keys. See `_changed`."""
        del numbers
        return {}

    def _restore_groups(self, groups: pa.Table) -> None:
        """Restore what `_group_columns` gave."""

    def _again(self, name: str, rows: AxisRows) -> None:
        """Restore what is derived from rows of a table, which come in one piece or in several."""

    def _note_used(self, used: Any) -> None:
        """Mark groups that are needed although they have no rows, in host bools."""

    def _renumber(self, numbers: Any, left: Any) -> None:
        """Groups have new numbers; ``left`` has the old numbers of the remaining groups, in order."""
