"""The node of row patterns: matches in the rows of each partition, in the order in which they come."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import pyarrow as pa

from gpu_ops.core.time import TIME_TYPE
from gpu_ops.core.turns import CLOCK, PLACE
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.plan.aggregates import Aggregate
from gpu_ops.plan.clock_windows import ClockSpan, check_ticks
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Ends, Node, selected
from gpu_ops.plan.row_patterns import RowMachine, RowPattern, Skip, variables_of
from gpu_ops.plan.row_programs import RowProgram
from gpu_ops.plan.splits import Split

MOST_WAYS = 10_000
"""How many ways a partition's open matches may have together, unless a query says another number."""


@dataclass(frozen=True)
class ChosenRow:
    """A value of one of the rows of a variable, null where a match has no such row.

    Attributes:
        name: What it is called.
        column: The column of the rows.
        variable: The variable; empty for the rows of the match, of which there are the first and the last.
        index: Which of its rows: 0 the first, -1 the last.
    """

    name: str
    column: str
    variable: str
    index: int

    def __str__(self) -> str:
        return f"{self.name}={self.column} of {self.variable}[{self.index}]"


@dataclass(frozen=True)
class OverRows:
    """An aggregate over the rows of variables, null where a match has none; its name is that of the column."""

    aggregate: Aggregate
    variables: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.aggregate} of {', '.join(self.variables)}"


@dataclass(frozen=True)
class Register:
    """A number that each way to a match carries from row to row; rows change it (Trill: the register of an automaton).

    Attributes:
        name: What it is called, as a column of matches too.
        begins: What it is before the first row.
    """

    name: str
    begins: int | float

    @property
    def type(self) -> pa.DataType:
        """int64, or float64 if it begins with a float."""
        return pa.float64() if isinstance(self.begins, float) else pa.int64()

    def __str__(self) -> str:
        return f"{self.name} from {self.begins}"


NoteKind = Literal["last", "nth", "sum", "count", "register"]


@dataclass(frozen=True)
class NotedRows:
    """What conditions of later rows read of a variable's rows.

    Attributes:
        variable: The variable.
        kind: Its last row, its n-th row, the sum of a column over its rows, or their number; a register is of no
            variable.
        index: Which row the n-th is, from 0 on; the number of the register.
    """

    variable: str
    kind: NoteKind
    index: int = 0


@dataclass(frozen=True, eq=False)
class NotedProgram:
    """What is computed of a row and of those before it in a match.

    Attributes:
        program: What computes it.
        cells: The columns of its cells.
        notes: For each cell what it is of; None for the row that comes.
    """

    program: RowProgram
    cells: tuple[str, ...] = ()
    notes: tuple[NotedRows | None, ...] = ()


@dataclass(frozen=True, eq=False)
class VariableRule:
    """The condition of a variable: all of its parts hold.

    Attributes:
        alone: The boolean column of what is about the row alone; None for nothing.
        rest: What reads other rows too; None for nothing.
        sets: What its rows change registers to, by their numbers. All are computed of what registers were before.
    """

    alone: str | None = None
    rest: NotedProgram | None = None
    sets: tuple[tuple[int, NotedProgram], ...] = ()

    @property
    def programs(self) -> tuple[NotedProgram, ...]:
        """All of its programs."""
        return (*(() if self.rest is None else (self.rest,)), *(each for _, each in self.sets))


@dataclass(frozen=True, eq=False)
class RowMatches(Node):
    """Matches of a row pattern, each a row where it is delivered (Esper: match_recognize).

    The rows of a match stand one behind the other in their partition. Without an interval a match is delivered as it
    ends. Matches that are delivered together and have the same first row are one: the best of them, as
    `gpu_ops.plan.row_patterns.RowMachine` has it; of equally good ones the one with more rows.

    - skip "past last row": of matches delivered together the one whose first row is the oldest comes first, and others
      that have one of its rows are left out; no later match has a row up to its last one. "to next row": no later
      match begins at its first row, or before it. "to current row": all later ones are matches too.
    - With an interval a match is delivered at the first tick at which its first row is that old, and later rows are no
      part of it; or before, where the next row does not go on with it (``or_terminated``): then nothing is skipped.
    - "while open": all are matches, and none begins at a row with which another one goes on (Trill: no overlapping
      instances).
    - A match of which a row has left the window is none.

    Attributes:
        rows: Rows on turns, with the columns of conditions.
        ticks: The ticks.
        pattern: The pattern.
        rules: The condition of each variable, in the order of `variables_of`.
        partition: The columns by which rows are partitioned.
        chosen: Values of single rows.
        aggregates: Aggregates, over plain columns.
        skip: Where later matches may begin.
        every: Whether all matches are delivered, and not the best of each first row.
        interval: For how long a match waits; None for not at all.
        or_terminated: Whether a match waits only as long as rows may go on with it.
        most: How many ways may be open in a partition.
        windowed: Whether rows leave where they end; else they stay for ever.
        content: Whether it gives the matches in the rows that are in the window, where content is asked for, as rows
            that are in it at that place; without interval, as if all rows had come together.
        carries: Columns that matches have of their first rows.
        registers: Numbers that ways carry, as columns of matches; null where a change gave null.
    """

    rows: Node
    ticks: Node
    pattern: RowPattern
    rules: tuple[VariableRule, ...]
    partition: tuple[str, ...] = ()
    chosen: tuple[ChosenRow, ...] = ()
    aggregates: tuple[OverRows, ...] = ()
    skip: Skip = "past last row"
    every: bool = False
    interval: ClockSpan | None = None
    or_terminated: bool = False
    most: int = MOST_WAYS
    windowed: bool = False
    content: bool = False
    carries: tuple[str, ...] = ()
    registers: tuple[Register, ...] = ()

    def __post_init__(self) -> None:
        check_ticks(self.ticks)
        schema = self.rows.schema
        for name in (CLOCK, PLACE):
            if name not in schema.names:
                raise ColumnError("Row patterns need rows on turns.", column=name, remedy="Make them on turns.")
        names = variables_of(self.pattern)
        _ = self.machine  # which refuses a pattern that is too large
        if len(self.rules) != len(names):
            raise PlanError(f"The pattern has {len(names)} variables.", remedy="Give a condition for each.")
        for rule in self.rules:
            if rule.alone is not None and schema.field(rule.alone).type != pa.bool_():
                raise ColumnError("A condition of a row pattern is a bool.", column=rule.alone, remedy="Compare.")
        read = [name for each in self.aggregates for name in each.variables]
        for variable in [*(each.variable for each in self.chosen if each.variable), *read]:
            if variable not in names:
                raise PlanError(f"The pattern has no variable {variable!r}.", remedy=f"It has: {', '.join(names)}.")
        if self.or_terminated and self.interval is None:
            raise PlanError("Matches that end sooner wait for an interval.", remedy="Give the interval.")

    @cached_property
    def machine(self) -> RowMachine:
        """The pattern's places."""
        return RowMachine.of(self.pattern)

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.rows, self.ticks

    def over(self, *inputs: Node) -> Node:
        rows, ticks = inputs
        return replace(self, rows=rows, ticks=ticks)

    @cached_property
    def schema(self) -> pa.Schema:
        before = self.rows.schema
        fields = [before.field(each.column).with_name(each.name).with_nullable(True) for each in self.chosen]
        fields += [each.aggregate.field(before).with_nullable(True) for each in self.aggregates]
        fields += [before.field(name) for name in self.carries]
        fields += [pa.field(each.name, each.type) for each in self.registers]
        return pa.schema([*fields, (CLOCK, TIME_TYPE), (PLACE, pa.int64())])

    stateless = False
    gathers = True
    collects = True

    @property
    def together(self) -> tuple[str, ...]:
        return ()

    def split(self, below: Sequence[Split]) -> Split:
        made = below[0].by(self.partition, "A row pattern")
        if self.interval is not None:
            made = made.seeing(None if self.interval.months else self.interval.ticks)
        # Each task numbers the matches of a turn that it has.
        return made.picked({name: name for name in self.carries}).made()

    def ends(self, at: int) -> Ends:
        return "needed" if at else "later" if self.windowed else "unread"

    takes_ends: ClassVar[Ends] = "later"
    time_rule = "CTI T leaves as T"
    held = "rows of open matches"

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The columns of rows that are kept with them: those that measures read, and those of cells."""
        found = [*self.carries, *(each.column for each in self.chosen)] + [
            name for rule in self.rules for each in rule.programs for name in each.cells
        ]
        for each in self.aggregates:
            found += [str(bare_column(read)) for read in each.aggregate.reads]
        return tuple(dict.fromkeys(found))

    def needs(self, wanted: Sequence[str]) -> Sequence[tuple[str, ...]]:
        conditions = (rule.alone for rule in self.rules if rule.alone is not None)
        names = dict.fromkeys((CLOCK, PLACE, *self.partition, *conditions, *self.read))
        return [tuple(names), tuple(self.ticks.schema.names)]

    def lighter(self, wanted: Collection[str]) -> Node:
        made = replace(
            self,
            chosen=tuple(each for each in self.chosen if each.name in wanted),
            aggregates=tuple(each for each in self.aggregates if each.aggregate.name in wanted),
            carries=tuple(name for name in self.carries if name in wanted),
        )
        return replace(made, rows=selected(made.rows, made.needs(())[0]))

    def describe(self) -> str:
        by = f" for each {', '.join(self.partition)}" if self.partition else ""
        wait = "" if self.interval is None else f" after {self.interval}{' or terminated' * self.or_terminated}"
        measures = ", ".join(map(str, (*self.chosen, *self.aggregates)))
        registers = f" with {', '.join(map(str, self.registers))}" if self.registers else ""
        return (
            f"RowMatches {self.pattern}{registers}{by}{' all' * self.every} skip {self.skip}{wait}"
            f"{' of content' * self.content}{f' gives {measures}' if measures else ''}"
        )
