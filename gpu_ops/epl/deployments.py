"""What is deployed: types of events, and the statements over them."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from gpu_ops.core.time import TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, LEVEL, PLACE, TURN
from gpu_ops.engines.local.placing import place
from gpu_ops.epl.binding.types import event_type
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.placed_error import failure_at, shown_in, unsupported
from gpu_ops.epl.planning.statements import Ledger, PlannedStatement, planned
from gpu_ops.epl.queries import Query
from gpu_ops.epl.running import TICKS, RunningStatement
from gpu_ops.epl.statements import CreateSchema, Statement
from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.operators.runtime.steps import running
from gpu_ops.plan.nodes import Feed

_DEPTH = TURN // LEVEL


class Deployments:
    """Types of events, and the statements over them, in the order in which they came.

    Args:
        irstream: Whether a statement that says nothing of it gives old rows too.
        device: Where statements compute.
        errors: Where it is noted what listeners raise.

    Attributes:
        types: The properties of each type of event.
        feeds: The leaf of each type's arrivals.
        depths: How many statements are between what is sent and events of a type, at most.
        ticks: The leaf of ticks.
        statements: The statements, by their names.
    """

    def __init__(self, *, irstream: bool, device: str, errors: list[tuple[str, Exception]]) -> None:
        self.types: dict[str, pa.Schema] = {}
        self.feeds: dict[str, Feed] = {}
        self.depths: dict[str, int] = {}
        self.ticks = Feed(TICKS, (), TICK)
        self.statements: dict[str, RunningStatement] = {}
        self._count = 0
        self._irstream, self._device, self._errors = irstream, device, errors

    def __getitem__(self, name: str) -> RunningStatement:
        """A statement by its name."""
        if name not in self.statements:
            known = ", ".join(self.statements) or "none"
            raise PlanError(f"There is no statement {name!r}.", remedy=f"Deployed: {known}.")
        return self.statements[name]

    def add_type(self, name: str, schema: pa.Schema, depth: int = 0) -> None:
        """Have a type of events."""
        for each in schema.names:
            if each.startswith("@"):
                raise ColumnError("A property has no name that begins with @.", column=each, remedy="Rename it.")
        self.types[name] = schema
        self.depths[name] = depth
        own = [pa.field(CLOCK, TIME_TYPE), pa.field(PLACE, pa.int64())]
        self.feeds[name] = Feed(pa.schema([*schema, *own]), (), TICK)

    def deploy(self, text: str, clock: int, begin: Callable[[RunningStatement], None]) -> tuple[RunningStatement, ...]:
        """Add the statements of a text, or none of them.

        Args:
            text: The statements.
            clock: What the clock shows, in ticks.
            begin: Has a statement begin.
        """
        before = self.types.copy(), self.feeds.copy(), self.depths.copy(), self.statements.copy(), self._count
        try:
            statements = parse(text)
            with shown_in(text):
                made = [self._deployed(each, clock, begin) for each in statements if not self._created(each)]
            return tuple(made)
        except BaseException:
            self.types, self.feeds, self.depths, self.statements, self._count = before
            raise

    def undeploy(self, name: str) -> None:
        """Take a statement away."""
        del self.statements[self[name].name]

    def _created(self, statement: Statement) -> bool:
        """Whether a statement only makes a type of events; then there is one."""
        schema = statement.body
        if not isinstance(schema, CreateSchema):
            return False
        if schema.columns is None or schema.options:
            raise unsupported(schema, "schemas of other types", "Name the columns: create schema T (a int).")
        for each in schema.columns:
            if each.type.name in self.types:
                raise unsupported(each, "columns that are events of a type")
        try:
            fields = event_type({each.name: str(each.type) for each in schema.columns})
        except ColumnError as error:
            raise failure_at(schema, str(error)) from None
        known = self.types.get(schema.name)
        is_read = any(schema.name in each.plan.reads for each in self.statements.values())
        if known is None or not is_read:
            self.add_type(schema.name, fields)
        elif not known.equals(fields):
            raise failure_at(
                schema, f"There is another type of events {schema.name!r} already.", "Give this one another name."
            )
        return True

    def _deployed(
        self, statement: Statement, clock: int, begin: Callable[[RunningStatement], None]
    ) -> RunningStatement:
        ledger = Ledger(self.types, self.feeds, self.ticks, clock, self._irstream)
        plan = planned(statement, ledger)
        self._count += 1
        name = statement.name or f"statement {self._count}"
        if name in self.statements:
            raise failure_at(statement, f"There is a statement {name!r} already.", "Give it another name.")
        target, names = self._inserted(statement, plan)
        device = place(plan.node, self._device)
        made = RunningStatement(
            name, str(statement), plan, target, names, device, running(plan.node, device), self._errors
        )
        self.statements[name] = made
        begin(made)
        return made

    def _inserted(self, statement: Statement, plan: PlannedStatement) -> tuple[str, tuple[str, ...]]:
        """(the type that its rows are events of, its columns' names there); a new type if there is none."""
        query = statement.body
        if not isinstance(query, Query) or query.insert is None:
            return "", ()
        names = tuple(query.insert.columns or plan.columns.names)
        if len(names) != len(plan.columns):
            raise failure_at(
                query.insert, f"There are {len(names)} names for {len(plan.columns)} columns.", "Name each of them."
            )
        target = query.insert.target
        depth = 1 + max(self.depths[name] for name in plan.reads)
        fields = [each.with_name(name) for each, name in zip(plan.columns, names, strict=True)]
        if target not in self.types:
            self.add_type(target, pa.schema(fields), depth)
        elif target in plan.reads:
            raise unsupported(query.insert, "statements that insert into what they read")
        else:
            self.depths[target] = max(depth, self.depths[target])
            known = self.types[target]
            for each in fields:
                if each.name not in known.names:
                    raise failure_at(
                        query.insert, f"{target!r} has no property {each.name!r}.", f"It has: {', '.join(known.names)}."
                    )
        if self.depths[target] >= _DEPTH - 1:
            raise unsupported(query.insert, f"more than {_DEPTH - 2} streams one into another")
        return target, names
