"""What is deployed: types of events, and the statements over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.time import MIN_TIME, TICK, TIME_TYPE
from gpu_ops.core.turns import CLOCK, INSTANCE, LEVEL, PLACE, TURN
from gpu_ops.engines.local.placing import place
from gpu_ops.epl.contexts import RunningContext
from gpu_ops.epl.groups import OWNER, STATE, StatementGroup
from gpu_ops.epl.inlining import DeclaredExpression, inlined
from gpu_ops.epl.named_windows import RunningWindow
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.planning.contexts import planned_context
from gpu_ops.epl.planning.instances import context_of
from gpu_ops.epl.planning.named_windows import known_window, window_schema
from gpu_ops.epl.planning.planned import Ledger, PlannedStatement
from gpu_ops.epl.planning.standing import kind_of, named_parameters, numbered, opened, planned_group, planned_sieve
from gpu_ops.epl.planning.statements import body_of, planned
from gpu_ops.epl.planning.tables import known_table, table_schema
from gpu_ops.epl.planning.variables import KnownVariable, VariableNames
from gpu_ops.epl.planning.written_out import written_out
from gpu_ops.epl.queries import Query, StreamTerm
from gpu_ops.epl.running import Listening, RunningStatement
from gpu_ops.epl.schemas import schema_of
from gpu_ops.epl.sieves import Sieve
from gpu_ops.epl.statements import (
    CreateContext,
    CreateExpression,
    CreateIndex,
    CreateSchema,
    CreateTable,
    CreateVariable,
    CreateWindow,
    Statement,
)
from gpu_ops.epl.templates import CutText, Template, Templates, cut
from gpu_ops.epl.variables import Variables, typed
from gpu_ops.errors import ColumnError, PlanError, QueryFailedError, is_one_of, shown
from gpu_ops.operators.runtime.steps import FirstFailure, running
from gpu_ops.plan.nodes import Feed
from gpu_ops.texts.binding.expressions import constant
from gpu_ops.texts.binding.types import NULL, common_type, type_name, type_of
from gpu_ops.texts.feeding import TICKS
from gpu_ops.texts.placed_error import HasPlace, failure_at, shown_in, unsupported
from gpu_ops.texts.sent_rows import constants_given, names_given, table_of

StateListener = Callable[[RunningStatement, str], None]

_DEPTH = TURN // LEVEL


class Deployments:
    """Types of events, and the statements over them, in the order in which they came.

    Args:
        irstream: Whether a statement that says nothing of it gives old rows too.
        device: Where statements compute.
        errors: Where it is noted what listeners raise.
        asks: Whether content may be asked for.

    Attributes:
        types: The properties of each type of event.
        feeds: The leaf of each type's arrivals.
        depths: How many statements are between what is sent and events of a type, at most.
        ticks: The leaf of ticks.
        declared: The expressions that texts create.
        variables: The variables.
        contexts: The contexts, by their names.
        windows: The named windows, by their names.
        statements: The statements, by their names.
        alone: Those that are computed by themselves.
        groups: Those that are computed together, by what they say without constants, and the service that they are in.
        sieves: The filters of those that are computed by themselves, by what they say without constants.
        count: How many were deployed so far.
        changes: How often statements came, went, or moved to another service.
        irstream: Whether a statement that says nothing of it gives old rows too.
        device: Where statements compute.
        listeners: Who is told of statements that come, fail and go.
    """

    def __init__(self, *, irstream: bool, device: str, errors: list[tuple[str, Exception]], asks: bool = True) -> None:
        self.types: dict[str, pa.Schema] = {}
        self.feeds: dict[str, Feed] = {}
        self.depths: dict[str, int] = {}
        self.ticks = Feed(TICKS, (), TICK)
        self.statements: dict[str, RunningStatement] = {}
        self.alone: dict[str, RunningStatement] = {}
        self.groups: dict[tuple[int, Statement, str], StatementGroup] = {}
        self.sieves: dict[tuple[int, str, StreamTerm], Sieve] = {}
        self.declared: dict[str, DeclaredExpression] = {}
        self.variables = Variables()
        self.contexts: dict[str, RunningContext] = {}
        self.windows: dict[str, RunningWindow] = {}
        self.listeners: list[StateListener] = []
        self.count, self.changes = 0, 0
        self._number, self._epoch = 0, 0
        self._templates, self._listening = Templates(), Listening(errors)
        self.irstream, self.device, self._asks = irstream, device, asks

    def __getitem__(self, name: str) -> RunningStatement:
        """A statement by its name."""
        if not is_one_of(name, self.statements):
            known = ", ".join(self.statements) or "none"
            raise PlanError(f"There is no statement {shown(name)}.", remedy=f"Deployed: {known}.")
        return self.statements[name]

    def add_type(self, name: str, schema: pa.Schema) -> None:
        """Have a type of events."""
        for each in schema.names:
            if each.startswith("@"):
                raise ColumnError("A property has no name that begins with @.", column=each, remedy="Rename it.")
        self.types[name] = schema
        self.depths[name] = 0
        own = [pa.field(CLOCK, TIME_TYPE), pa.field(PLACE, pa.int64())]
        self.feeds[name] = Feed(pa.schema([*schema, *own]), (), TICK)

    def deploy(
        self, text: str, clock: int, begin: Callable[[RunningStatement], None], home: str = ""
    ) -> tuple[RunningStatement, ...]:
        """Add the statements of a text, or none of them.

        Args:
            text: The statements.
            clock: What the clock shows, in ticks.
            begin: Has a statement begin.
            home: The name of the service that they are in.
        """
        given = cut(text) if self._asks else None
        member = self._member_of(text, given, clock, begin, home)
        if member is not None:
            return (member,)
        before = self.types.copy(), self.feeds.copy(), self.depths.copy(), self.count
        running = len(self.statements)
        declared, variables, contexts = self.declared.copy(), self.variables.known.copy(), self.contexts.copy()
        own_variables = self.variables.of_contexts.known.copy()
        windows = self.windows.copy()
        try:
            statements = parse(text)
            with shown_in(text):
                known = None if given is None or len(statements) > 1 else self._template(given, statements[0], text)
                if known is not None and (member := self._member_of(text, given, clock, begin, home)) is not None:
                    return (member,)
                made = [
                    self._deployed(inlined(each, self.declared, text), clock, begin)
                    for each in statements
                    if not self._created(each, text, clock)
                ]
        except BaseException:
            self.types, self.feeds, self.depths, self.count = before
            while len(self.statements) > running:
                _, gone = self.statements.popitem()
                self._forget(gone)
            for each in [each for each in self.alone.values() if each.part_of and each.part_of not in self.statements]:
                self._forget(each)
            self.changes += 1
            self.declared, self.variables.known, self.contexts = declared, variables, contexts
            self.windows, self.variables.of_contexts.known = windows, own_variables
            self._rest()
            raise
        if known is not None and given is not None and made:
            known.begin(given, made[0])
        for each in made:
            self.tell(each, "deployed")
        return tuple(made)

    # Sieves and groups

    def _sift(self, made: RunningStatement, statement: Statement) -> None:
        """Have a statement given those rows alone that the filter of its one stream takes."""
        query, plan = statement.body, made.plan
        if not isinstance(query, Query) or plan.streams > 1 or len(plan.reads) > 1 or statement.context:
            return
        if not self._asks or query.joins or not getattr(query.stream.source, "filters", ()):
            return
        if getattr(query.stream.source, "type_name", "") in self.windows:
            return
        template, constants = opened(statement)
        stream = replace(template.body.stream, views=(), retain="")  # type: ignore[union-attr]
        key = (self._epoch, made.device.name, stream)
        sieve = self.sieves.get(key)
        if sieve is None:
            asked = planned_sieve(stream, self._ledger(MIN_TIME))
            if asked is None:
                return
            sieve = self.sieves[key] = Sieve(asked, made.device)
        made.sieve = sieve, sieve.add([each.value if sign > 0 else -each.value for each, sign in constants])  # type: ignore[operator]

    def _unsift(self, statement: RunningStatement) -> None:
        """Have a statement go, or give it all rows again."""
        if statement.sieve is not None:
            sieve, number = statement.sieve
            statement.sieve = None
            sieve.remove(number)
            if not len(sieve):
                self.sieves = {key: each for key, each in self.sieves.items() if each is not sieve}

    def _template(self, given: CutText, statement: Statement, text: str) -> Template | None:
        """The template of a statement that is all of a text; None if declared expressions stand in it."""
        says_itself = inlined(statement, self.declared, text).body is statement.body
        return self._templates.learn(given, statement) if says_itself else None

    def _member_of(
        self, text: str, given: CutText | None, clock: int, begin: Callable[[RunningStatement], None], home: str
    ) -> RunningStatement | None:
        """The statement of a text in a group; None if it is not known that there is one."""
        known = None if given is None else self._templates.of(given)
        if known is None or given is None:
            return None
        name = known.name_in(given) or f"statement {self.count + 1}"
        group = self._group_of(text, given, known, home)
        if group is None or name in self.statements:
            return None
        made = self._joined(group, name, known.values(given), clock, begin)
        if self.listeners:
            self.tell(made, "deployed")
        return made

    def deploy_each(
        self,
        text: str,
        constants: Any,
        names: str | None,
        clock: int,
        begin: Callable[[Sequence[RunningStatement]], None],
        home: str,
    ) -> StatementGroup:
        """Add a statement for each row of constants, or none of them. See `Runtime.deploy_each`."""
        table = constants_given(constants)
        with shown_in(text):
            group, values = self._template_group(text, table, home)
        called = [f"statement {self.count + at + 1}" for at in range(len(table))]
        if names is not None:
            called = names_given(table, names)
        known = next((at for at, name in enumerate(called) if name in self.statements), None)
        if known is not None:
            raise PlanError(
                f"There is a statement {called[known]!r} already.", remedy=f"Give row {known} another name."
            )
        group = group if len(group) else self._have(group)
        made = [self._member(group, name, clock) for name in called]
        group.add_each(made, values)
        begin(made)
        for each in made if self.listeners else ():
            self.tell(each, "deployed")
        return group

    def _template_group(self, text: str, table: pa.Table, home: str) -> tuple[StatementGroup, pa.Table]:
        """(the group of a text with parameters, their constants)."""
        statements = parse(text)
        if len(statements) != 1:
            raise failure_at(statements[1], "A text with parameters is one statement.", "Deploy the others by deploy.")
        statement = inlined(statements[0], self.declared, text)
        for each in statement.annotations:
            if each.name.lower() == "name":
                raise failure_at(
                    each, "Each of the statements has a name of its own.", "Leave it out, and give names=."
                )
        given = named_parameters(statement)
        kinds, columns = [], []
        for parameter in given:
            if parameter.name not in table.column_names:
                raise ColumnError(
                    "The constants lack a column.",
                    column=parameter.name,
                    remedy=f"They have: {', '.join(table.column_names)}.",
                )
            kind = parameter.type or kind_of(table.schema.field(parameter.name).type)
            if kind is None:
                raise ColumnError(
                    f"It is {table.schema.field(parameter.name).type}, and constants are numbers or texts.",
                    column=parameter.name,
                    remedy="Cast it.",
                )
            kinds.append(kind)
        group = self.group(numbered(statement, kinds), home)
        if group is None:
            raise unsupported(
                statement,
                "templates of statements that do not deliver single events as they come",
                "Deploy a text for each of them.",
            )
        for parameter, field in zip(given, group.asked.constants, strict=True):
            columns.append(table_of(table, pa.schema([(parameter.name, field.type)]))[parameter.name])
        return group, pa.table(columns, group.asked.constants)

    def _group_of(self, text: str, given: CutText, known: Template, home: str) -> StatementGroup | None:
        """The group that a text's statement belongs to; None if it is computed by itself."""
        if not known.has_group(given, home):
            template, _ = opened(parse(text)[0])
            first = known.first(given)
            statement = None if first is None else self.alone.get(first.name)
            if (self._epoch, template, home) in self.groups:
                known.join(given, home, self.groups[self._epoch, template, home])
            elif first is None or statement is None or (statement.number, statement.home) != (first.number, home):
                return None  # it is the first one
            else:
                group = self.group(template, home)
                known.join(given, home, group)
                if group is not None:
                    self._unsift(statement)
                    del self.alone[statement.name]
                    group.add(statement, first.constants)
                    self._have(group)
        return known.group(given, home)

    def group(self, template: Statement, home: str = "") -> StatementGroup | None:
        """The group of a template, which may be new; None if its statements are computed by themselves.

        Raises:
            PlacedError: As `gpu_ops.epl.planning.standing.planned_group`.
        """
        if (self._epoch, template, home) in self.groups:
            return self.groups[self._epoch, template, home]
        plan = planned_group(template, self._ledger(MIN_TIME))
        if plan is None:
            return None
        devices = [place(node, self.device) for node in (plan.plan.node, *plan.asked.computed)]
        if any(each is not devices[0] for each in devices):
            return None
        return StatementGroup(template, plan, devices[0], self._listening, self.ticks, home)

    def _joined(
        self,
        group: StatementGroup,
        name: str,
        constants: tuple[Any, ...],
        clock: int,
        begin: Callable[[RunningStatement], None],
    ) -> RunningStatement:
        """Have a statement in a group."""
        if not len(group):
            group = self._have(group)
        made = self._member(group, name, clock)
        group.add(made, constants)
        begin(made)
        return made

    def restore_group(self, group: StatementGroup, table: pa.Table, kept: pa.Table | None) -> None:
        """Have the statements of a group as a checkpoint has them.

        Args:
            group: The group, without statements.
            table: A row for each (`gpu_ops.epl.groups.STATE`), with their constants.
            kept: What they keep, by their places in the table.
        """
        made = []
        for name, number, since, keeps, failed in zip(*(table[each].to_pylist() for each in STATE.names), strict=True):
            each = self._member(group, name, since)
            each.number, each.kept = number, [] if keeps else None
            each.failed = (
                None if failed is None else QueryFailedError(failed, remedy="Undeploy it, and deploy it again.")
            )
            made.append(each)
        if kept is not None:
            owners = kept[OWNER].to_numpy()
            for at in np.unique(owners).tolist():
                made[at].keep(kept.take(np.flatnonzero(owners == at)).drop_columns([OWNER]))
        group.add_each(made, table.drop_columns(STATE.names))
        self._have(group)

    def renumber(self) -> None:
        """Put the statements in the order of their numbers."""
        self.statements = dict(sorted(self.statements.items(), key=lambda item: item[1].number))
        numbers = (each.number for each in (*self.statements.values(), *self.alone.values()))
        self._number = max(numbers, default=0)
        self.changes += 1

    def _have(self, group: StatementGroup) -> StatementGroup:
        """Have a group, or the one that there is instead."""
        self.changes += 1
        return self.groups.setdefault((self._epoch, group.template, group.home), group)

    def _leave(self, statements: Sequence[RunningStatement]) -> None:
        """Take statements out of their group."""
        group = statements[0].group
        assert isinstance(group, StatementGroup)  # noqa: S101  (there is no other kind)
        group.remove(statements)
        if not len(group):
            self.groups = {key: each for key, each in self.groups.items() if each is not group}
            self.changes += 1

    def set_apart(self, statement: RunningStatement) -> None:
        """Have a statement computed by itself: it holds nothing that a group would have to give."""
        if statement.group is None:
            return
        text = statement.text
        with shown_in(text):
            plan = self.planned(parse(text)[0], statement.since)
        self._leave([statement])
        own = running(plan.node, statement.device, FirstFailure(statement.device))
        statement.become(text, plan, own)
        self._sift(statement, parse(text)[0])
        self.alone[statement.name] = statement
        self.changes += 1

    def _member(self, group: StatementGroup, name: str, clock: int) -> RunningStatement:
        self.count += 1
        self._number += 1
        made = RunningStatement(name, "", group.plan, "", (), clock, group.device, None, self._listening)
        made.home, made.number = group.home, self._number
        self.statements[name] = made
        return made

    def create(self, text: str, clock: int = 0) -> None:
        """Have what a text creates, which has no other statements."""
        with shown_in(text):
            for each in parse(text):
                self._created(each, text, clock)

    def undeploy(self, name: str) -> None:
        """Take a statement away."""
        statement = self[name]
        self._remove_window(statement)
        del self.statements[name]
        if statement.group is None:
            self._forget(statement)
            self.changes += 1
            self._rest()
        else:
            self._leave([statement])
        self.tell(statement, "undeployed")

    def beside(self, statement: RunningStatement) -> list[RunningStatement]:
        """The statements that run beside one (`gpu_ops.epl.planning.written_out`)."""
        return [each for each in self.alone.values() if each.part_of == statement.name]

    def _forget(self, statement: RunningStatement) -> None:
        """Have a statement that is computed by itself no more, nor those that run beside it."""
        for each in [*self.beside(statement), statement]:
            self._unsift(each)
            self.alone.pop(each.name, None)

    def _remove_window(self, statement: RunningStatement) -> None:
        """Have the named window of a statement no more, if it made one.

        Raises:
            PlanError: Others read it.
        """
        if statement.plan.variable is not None:
            self._remove_variable(statement, statement.plan.variable[0])
        window = statement.plan.creates
        if not window:
            return
        others = [each for each in self.alone.values() if each is not statement]
        users = [each.name for each in others if window in self.named_by(each)]
        if users:
            raise PlanError(f"{users[0]!r} is about the named window {window!r}.", remedy="Undeploy that one first.")
        del self.windows[window], self.types[window], self.feeds[window], self.depths[window]
        self._templates.clear()
        self._epoch += 1

    def _remove_variable(self, statement: RunningStatement, name: str) -> None:
        """Have the variable of a context no more that a statement made.

        Raises:
            PlanError: Others read it.
        """
        for each in self.alone.values():
            setting = () if each.plan.setting is None else each.plan.setting.names
            if each is not statement and name in (*each.plan.own, *setting):
                raise PlanError(f"{each.name!r} is about the variable {name!r}.", remedy="Undeploy that one first.")
        own = self.variables.of_contexts
        del own.known[name]
        own.now.pop(name, None)
        self._templates.clear()
        self._epoch += 1

    def undeploy_each(self, group: StatementGroup) -> None:
        """Take all statements of a group away."""
        gone = group.statements
        for each in gone:
            del self.statements[each.name]
        self._leave(gone)
        for each in gone if self.listeners else ():
            self.tell(each, "undeployed")

    def _rest(self) -> None:
        """End the contexts in which there is no statement."""
        used = {each.plan.context.name for each in self.alone.values() if each.plan.context is not None}
        for name, each in self.contexts.items():
            if name not in used:
                each.end()

    def active_filters(self) -> int:
        """How many filters over events are active."""
        together = sum(len(each) * each.plan.filters for each in self.groups.values())
        own = sum(each.active_filters for each in self.contexts.values() if each.is_on)
        for each in self.alone.values():
            if each.part_of:
                continue  # the statement that it runs beside counts
            context = each.plan.context
            own += each.active_filters(1 if context is None else len(self.contexts[context.name].table()))
        return together + own

    def tell(self, statement: RunningStatement, state: str) -> None:
        """Tell those who listen to states of a statement."""
        for listener in tuple(self.listeners):
            try:
                listener(statement, state)
            except Exception as error:  # noqa: BLE001  (a listener that raises stops nothing)
                self._listening.errors.append((statement.name, error))

    def _created(self, statement: Statement, text: str, clock: int) -> bool:
        """Whether a statement only makes a type of events, or an expression; then there is one."""
        for each in statement.annotations:
            if each.name.lower() == "name" and not isinstance(each.value, str):
                raise failure_at(each, "@name takes a text.", "Write: @name('large').")
        match statement.body:
            case CreateSchema() as schema:
                self._add_schema(schema)
            case CreateVariable() as variable if not statement.context:
                self._add_variable(variable)
            case CreateContext() as context:
                self._add_context(context, clock)
            case CreateIndex() as index:
                self._check_index(index)
            case CreateExpression(declaration):
                if declaration.name in self.declared:
                    raise failure_at(
                        declaration,
                        f"There is an expression {declaration.name!r} already.",
                        "Give this one another name.",
                    )
                self.declared[declaration.name] = DeclaredExpression(declaration, text)
            case _:
                return False
        # Names in texts may mean something else from now on: what is deployed stays as it is.
        self._templates.clear()
        self._epoch += 1
        return True

    def _check_index(self, index: CreateIndex) -> None:
        """An index of a named window: events find rows by keys without one, so that it changes nothing."""
        if index.target not in self.windows:
            raise failure_at(index, f"There is no named window {index.target!r}.", "Create it first.")
        window = self.windows[index.target].known
        alone = {*(window.keys if window.limits is None else window.keys or window.limits.unique)} - {INSTANCE}
        if index.unique and not (alone and alone <= {name for name, _ in index.columns}):
            hint = "Have one row for each key: #unique(k), or a table's primary key."
            raise unsupported(index, "unique indexes of columns that several rows may share", hint)
        for name, _ in index.columns:
            if name not in self.types[index.target].names:
                known = ", ".join(self.types[index.target].names)
                raise failure_at(index, f"{index.target!r} has no column {name!r}.", f"It has: {known}.")

    def _add_schema(self, schema: CreateSchema) -> None:
        """Have the type of events that a text creates."""
        fields = schema_of(schema, self.types)
        known = self.types.get(schema.name)
        used = {name for each in self.alone.values() for name in (each.target, *each.plan.reads)}
        used |= {name for each in self.groups.values() for name in each.plan.reads}
        is_used = schema.name in used
        if known is None or not is_used:
            self._add_type_at(schema, schema.name, fields)
        elif not known.equals(fields):
            raise failure_at(
                schema, f"There is another type of events {schema.name!r} already.", "Give this one another name."
            )

    def _add_variable(self, node: CreateVariable, context: str = "") -> None:
        """Have a variable, which may be one of a context."""
        name, known = node.name, self.variables.known
        if name in known or name in self.variables.of_contexts.known:
            raise failure_at(node, f"There is a variable {name!r} already.", "Give this one another name.")
        dtype = type_of(str(node.type))
        if dtype is None or dtype == NULL:
            raise unsupported(node.type, f"variables of type {node.type}", "Write int, double or string, for instance.")
        value = None
        if node.value is not None:
            given = constant(VariableNames(known, {}).as_now(node.value))
            try:
                value = typed(name, given, dtype)
            except ColumnError:
                raise failure_at(node.value, f"'{node.value}' is no {type_name(dtype)}.", "Cast it.") from None
        if context:
            # Names in texts may mean something else from now on.
            self._templates.clear()
            self._epoch += 1
            known = self.variables.of_contexts.known
        known[name] = KnownVariable(dtype, value, node.constant, context)

    def settle(self) -> None:
        """Have the values that variables have behind some turns."""
        own = self.variables.of_contexts
        names = {each.context for each in own.known.values()}
        on = {name: self.contexts[name] for name in names if name in self.contexts and self.contexts[name].is_on}
        self.variables.settle()
        own.settle({name: on[name].table()[INSTANCE].to_numpy() if name in on else () for name in names})

    def _add_context(self, node: CreateContext, clock: int) -> None:
        """Have a context."""
        if node.name in self.contexts:
            raise failure_at(node, f"There is a context {node.name!r} already.", "Give this one another name.")
        names = VariableNames(self.variables.known, self.types)
        node = names.as_now(node)
        known = planned_context(node, self._ledger(clock))
        device = place(known.node, self.device)
        self.contexts[node.name] = RunningContext(known, str(node), clock, device)

    def set_variable(self, name: str, value: Any) -> None:
        """Give a variable a value.

        Raises:
            PlanError: There is none, it is a constant, or a statement has read it once and for all.
            ColumnError: The value is of another type.
        """
        for each in self.alone.values():
            if name in each.plan.variables.frozen:
                raise PlanError(_read_once(name, each.name), remedy="Undeploy that statement first.")
        self.variables.set(name, value)

    def _keep_apart(self, node: Statement, name: str, plan: PlannedStatement) -> None:
        """Refuse that one statement sets what another has read once and for all."""
        if not plan.variables.frozen and plan.setting is None:
            return
        others = [(each.name, each.plan) for each in self.alone.values()]
        for one in (plan, *(each for _, each in others)):
            if (
                one.setting is not None
                and one.setting.at_outputs
                and _is_set_beside(one, [plan, *(x for _, x in others)])
            ):
                what = "outputs that set variables which others set at the same events, or several others set"
                raise unsupported(node, what, "Set what an output waits for in one statement, on events of its own.")
        pairs = [(name, plan, each) for _, each in others] + [(other, each, plan) for other, each in others]
        for reader, read, setter in pairs:
            both = set(read.variables.frozen) & set(() if setter.setting is None else setter.setting.names)
            if both:
                raise failure_at(node, _read_once(min(both), reader), construct="changes of such a variable")
            if _set_in_turn(read, setter):
                what = f"outputs that set what {reader!r} reads, beside changes by that of what they read"
                raise unsupported(node, what, "Have one of the two set both.")

    def _add_type_at(self, node: HasPlace, name: str, schema: pa.Schema) -> None:
        """Have a type of events that a text asks for."""
        twice = [each for at, each in enumerate(schema.names) if each in schema.names[:at]]
        if twice:
            raise failure_at(node, f"Two properties of {name!r} are called {twice[0]!r}.", "Rename one of them.")
        try:
            self.add_type(name, schema)
        except ColumnError as error:
            raise failure_at(node, str(error)) from None

    def _deployed(
        self, statement: Statement, clock: int, begin: Callable[[RunningStatement], None]
    ) -> RunningStatement:
        self.count += 1
        name = statement.name or f"statement {self.count}"
        if name in self.statements or name in self.alone:
            raise failure_at(statement, f"There is a statement {name!r} already.", "Give it another name.")
        written = written_out(statement)
        beside = [*written.before, *written.behind]
        called = {id(each): f"{name} ({number})" for number, each in enumerate(beside, 2)}
        for own in called.values():
            if own in self.alone:
                raise failure_at(statement, f"There is a statement {own!r} already.", "Give this one another name.")
        main: list[RunningStatement] = []
        for each in (*written.before, statement, *written.behind):
            plan = self.planned(each, clock)
            self._keep_apart(each, name, plan)
            own = called.get(id(each), name)
            made = self.add(own, each, plan, clock, part_of="" if each is statement else name)
            if each is statement:
                main.append(made)
            begin(made)
        return main[0]

    def planned(self, statement: Statement, clock: int) -> PlannedStatement:
        """What a statement computes that begins when the clock shows some ticks; a named window is there then.

        Raises:
            PlacedError: As `gpu_ops.epl.planning.statements.planned`; or it cannot insert what it says.
        """
        try:
            if isinstance(statement.body, CreateWindow | CreateTable):
                self._add_window(statement, statement.body, clock)
            elif isinstance(statement.body, CreateVariable):
                self._add_variable(statement.body, statement.context)
            return planned(written_out(statement).main, self._ledger(clock))
        except PlanError as error:
            # What a node refuses is said where the statement stands.
            raise failure_at(statement, error.problem, error.remedy or "") from error

    def _add_window(self, statement: Statement, create: CreateWindow | CreateTable, clock: int) -> None:
        """Have a named window or a table, and the type of what is inserted into it."""
        name = create.name
        if name in self.types:
            raise failure_at(
                create, f"There is a type of events {name!r} already.", "Give the named window another name."
            )
        if statement.context and isinstance(create, CreateTable):
            raise unsupported(create, "tables within contexts")
        names = VariableNames(self.variables.known, self.types)
        create = names.as_now(create)
        ledger = self._ledger(clock)
        if isinstance(create, CreateTable):
            self._add_type_at(create, name, table_schema(create, ledger))
            known = known_table(create, self.types[name])
        else:
            self._add_type_at(create, name, window_schema(create, ledger))
            context_of(statement, ledger)
            known = known_window(create, self.types[name], ledger, statement.context)
        nodes = [each for each in (known.moves, known.waiting) if each is not None]
        device = place(nodes[0], self.device) if nodes else place(known.content, self.device)
        self.windows[name] = RunningWindow(known, device, self.ticks)
        self._templates.clear()
        self._epoch += 1

    def named_by(self, statement: RunningStatement) -> list[str]:
        """The named windows that a statement makes, reads, changes or inserts into."""
        names = (*statement.plan.reads, statement.target, _changed(statement), statement.plan.creates)
        return [name for name in dict.fromkeys(names) if name in self.windows]

    def changing(self, window: str, home: str) -> list[RunningStatement]:
        """The statements that change a named window, in their order."""
        alone = (each for each in self.alone.values() if each.home == home and each.failed is None)
        return sorted((each for each in alone if _changed(each) == window), key=lambda each: each.number)

    def _ledger(self, clock: int) -> Ledger:
        """What is planned over."""
        known = self.variables.known
        if not self._asks:
            # Over data at rest nobody sets them.
            known = {name: replace(each, constant=True) for name, each in known.items()}
        known = {**known, **self.variables.of_contexts.known}
        contexts = {name: each.known for name, each in self.contexts.items()}
        windows = {name: each.known for name, each in self.windows.items()}
        return Ledger(self.types, self.feeds, self.ticks, clock, self.irstream, self._asks, known, contexts, windows)

    def add(
        self, name: str, statement: Statement, plan: PlannedStatement, clock: int, *, part_of: str = ""
    ) -> RunningStatement:
        """Have a statement of some name, whose plan is known.

        Args:
            name: Its name.
            statement: What it says.
            plan: What it computes.
            clock: What the clock shows, in ticks.
            part_of: The name of the statement that it runs beside: then nobody is told what it delivers.
        """
        if part_of:
            plan = replace(plan, shows=(None, None))
        target, names = self._inserted(statement, plan)
        if target:
            # Listeners see the names that the columns have in the stream.
            fields = [each.with_name(name) for each, name in zip(plan.columns, names, strict=True)]
            plan = replace(plan, columns=pa.schema(fields))
        device = place(plan.node, self.device)
        own = running(plan.node, device, FirstFailure(device))
        made = RunningStatement(name, str(statement), plan, target, names, clock, device, own, self._listening)
        self._number += 1
        made.number = self._number
        made.part_of = part_of
        self.alone[name] = made
        if not part_of:
            self.statements[name] = made
        self._sift(made, statement)
        self.changes += 1
        if target or plan.change is not None or isinstance(statement.body, CreateWindow | CreateTable):
            self._deepen(statement)
        return made

    def _deepen(self, statement: Statement) -> None:
        """Have each type deeper than those that the statements read which insert into it."""
        inserting = [(each, each.target or _changed(each)) for each in self.alone.values()]
        while found := [
            (target, deeper)
            for each, target in inserting
            if target and (deeper := self._below(each)) > self.depths[target]
        ]:
            self.depths |= dict(found)
            if max(self.depths.values()) >= _DEPTH - 1:
                raise unsupported(statement, f"streams in a circle, and more than {_DEPTH - 2} one into another")

    def _below(self, statement: RunningStatement) -> int:
        return 1 + max((self.depths[name] for name in statement.plan.reads), default=0)

    def _inserted(self, statement: Statement, plan: PlannedStatement) -> tuple[str, tuple[str, ...]]:
        """(the type that its rows are events of, its columns' names there); a new type if there is none."""
        query = body_of(statement.body)
        if not isinstance(query, Query) or query.insert is None:
            return "", ()
        names = tuple(query.insert.columns or plan.columns.names)
        if len(names) != len(plan.columns):
            raise failure_at(
                query.insert, f"There are {len(names)} names for {len(plan.columns)} columns.", "Name each of them."
            )
        target = query.insert.target
        fields = [each.with_name(name) for each, name in zip(plan.columns, names, strict=True)]
        if target not in self.types:
            self._add_type_at(query.insert, target, pa.schema(fields))
        elif target in plan.reads:
            raise unsupported(query.insert, "statements that insert into what they read")
        elif target in self.windows and self.windows[target].known.aggregates:
            hint = "Merge: on T merge Table … then insert select …."
            raise unsupported(query.insert, "inserts into tables with aggregates", hint)
        else:
            known = self.types[target]
            for each in fields:
                if each.name not in known.names:
                    raise failure_at(
                        query.insert, f"{target!r} has no property {each.name!r}.", f"It has: {', '.join(known.names)}."
                    )
                there = known.field(each.name).type
                if common_type([there, each.type]) != there:
                    types = f"{type_name(there)}, and what is inserted of type {type_name(each.type)}"
                    raise failure_at(query.insert, f"{target}.{each.name} is of type {types}.", "Cast it.")
        return target, names


def _changed(statement: RunningStatement) -> str:
    return "" if statement.plan.change is None else statement.plan.change.window


def _is_set_beside(one: PlannedStatement, every: Sequence[PlannedStatement]) -> bool:
    """Whether what an output waits for, and sets, is set by events that reach it too, or by several statements."""
    setters = [each for each in every if each is not one and each.setting and one.filtering & {*each.setting.names}]
    return len(setters) > 1 or any({*one.reads} & {*each.reads} for each in setters)


def _set_in_turn(one: PlannedStatement, other: PlannedStatement) -> bool:
    """Whether two statements, of which an output of one sets variables, both set what the other reads."""
    if one.setting is None or other.setting is None or not (one.setting.at_outputs or other.setting.at_outputs):
        return False
    pairs = ((one.setting.names, other), (other.setting.names, one))
    return all(set(names) & set(reader.variables.changing) for names, reader in pairs)


def _read_once(name: str, reader: str) -> str:
    return (
        f"The statement {reader!r} has read the variable {name!r} once, where gpu_ops sees no changes: in aggregates, "
        "groups, joins, sub-queries, windows, limits and rates."
    )
