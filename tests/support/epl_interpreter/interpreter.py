"""The interpreter: statements that come and go, events and advances of the clock one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpu_ops.epl import parse
from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.column_names import column_name
from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter.clock import Clock
from tests.support.epl_interpreter.contexts import Context, ContextStatement
from tests.support.epl_interpreter.statements import QueryStatement
from tests.support.epl_interpreter.values import Event, Scope, Source, evaluate, holds

Rows = list[dict[str, Any]]


class Delivery(NamedTuple):
    """What a listener of a statement gets at once: rows that are new and old ones, None where there are none."""

    statement: str
    new: Rows | None
    old: Rows | None


class Interpreter:
    """Runs statements.

    Args:
        schema: The types of events: for each the names of its properties and their types, as EPL calls them.
        now: What the clock says in milliseconds until it is advanced.

    Attributes:
        clock: The clock; `clock.now` is what it says.
    """

    def __init__(self, schema: Mapping[str, Mapping[str, Any]], now: int = 0) -> None:
        self.clock = Clock(now)
        self.types: dict[str, dict[str, str]] = {name: dict(properties) for name, properties in schema.items()}
        self.variables: dict[str, Any] = {}
        self.declarations: dict[str, e.Expression | e.LambdaFunction] = {}
        self._constants: set[str] = set()
        self._queries: list[QueryStatement | ContextStatement] = []
        self._contexts: dict[str, Context] = {}
        self._setters: list[tuple[int, str, s.OnSet]] = []
        self._splits: list[tuple[int, str, s.OnSplit]] = []
        self._updates: list[tuple[str, s.UpdateStream]] = []
        self._inserted: list[Event] = []
        self._count = 0

    # What one does with it

    def deploy(self, text: str) -> list[str]:
        """Add statements.

        Returns:
            Their names.

        Raises:
            NotImplementedError: There is no meaning here for a part of a statement, which the message names.
        """
        return [self._add(statement) for statement in parse(text)]

    def undeploy(self, name: str) -> None:
        """Take a statement away."""
        for statement in [each for each in self._queries if each.name == name]:
            self.clock.cancel_all_of(statement.number)
            self._queries.remove(statement)
            if isinstance(statement, ContextStatement):
                for _, each in statement.each.values():
                    self.clock.cancel_all_of(each.number)
                statement.context.remove(statement)
        self._setters = [each for each in self._setters if each[1] != name]
        self._splits = [each for each in self._splits if each[1] != name]
        self._updates = [each for each in self._updates if each[0] != name]

    def send(self, type_name: str, row: Mapping[str, Any]) -> list[Delivery]:
        """An event comes; properties that it does not say are null."""
        return self._handle(self._event(type_name, row))

    def advance(self, now: int) -> list[Delivery]:
        """Set the clock. What has been due meanwhile happens once, in the order in which it was due."""
        due: dict[Any, list[Any]] = {}
        contexts = {each.number for each in self._contexts.values()}
        for callback in self.clock.move_to(now):
            # A statement does at once what it does; each start and end of an instance has its own time.
            whose = callback if callback.slot[0] in contexts else callback.slot[0]
            due.setdefault(whose, []).append(callback)
        for callbacks in due.values():
            statement = self._owner(callbacks[0].slot[0])
            if statement is None:
                continue  # its instance has ended
            for callback in callbacks:
                callback.run()
            statement.settle()
        return self._delivered() + self._handle_inserted()

    def _owner(self, number: int) -> QueryStatement | Context | None:
        """Whose callbacks have this number."""
        for context in self._contexts.values():
            if context.number == number:
                return context
        for each in self._queries:
            found = each.statement_of(number) if isinstance(each, ContextStatement) else each
            if found is not None and found.number == number:
                return found
        return None

    def numbered(self) -> int:
        """The next number of a statement."""
        self._count += 1
        return self._count

    def advance_span(self, now: int, resolution: int | None = None) -> list[Delivery]:
        """Walk the clock: to each time at which something is due, or by steps of a resolution."""
        deliveries: list[Delivery] = []
        while self.clock.now < now:
            step = self.clock.next_due() if resolution is None else self.clock.now + resolution
            deliveries += self.advance(now if step is None else min(max(step, self.clock.now), now))
        return deliveries

    def rows(self, name: str) -> Rows:
        """What an iterator over a statement gives now."""
        return next(each for each in self._queries if each.name == name).rows()

    @property
    def active_filters(self) -> int:
        """How many streams statements listen to."""
        return len(self._setters) + sum(each.filters for each in self._queries)

    def has_order(self, name: str) -> bool:
        """Whether those rows have an order: what Esper keeps in hash maps has none."""
        return next(each for each in self._queries if each.name == name).has_order

    # What statements do with it

    def insert(self, type_name: str, row: dict[str, Any]) -> None:
        """Make an event of a row, which comes when what happens now is over."""
        self._inserted.append(self._event(type_name, row))

    def assign(self, assignments: Sequence[q.Assignment], scope: Scope) -> None:
        """Set variables, one after another."""
        for each in assignments:
            if not isinstance(each.target, e.Name) or each.value is None:
                raise NotImplementedError(f"assignment {each}")
            if each.target.name not in self.variables or each.target.name in self._constants:
                raise NotImplementedError(f"assignment to {each.target.name}")
            self.variables[each.target.name] = evaluate(each.value, scope)
        names = {each.target.name for each in assignments if isinstance(each.target, e.Name)}
        for statement in self._queries if assignments else ():
            statement.variables_changed(names)

    # How

    def _add(self, statement: s.Statement) -> str:
        self._count += 1
        name = statement.name or f"statement {self._count}"
        for annotation in statement.annotations:
            if annotation.name.lower() in {"priority", "drop", "hint"}:
                raise NotImplementedError(f"annotation {annotation.name}")
        body = statement.body
        match body:
            case q.Query():
                self._add_query(statement, name)
            case s.CreateSchema():
                if body.options or body.types or body.columns is None:
                    raise NotImplementedError("schema of other types")
                self.types[body.name] = {column.name: str(column.type) for column in body.columns}
            case s.CreateContext():
                self._contexts[body.name] = Context(body, self._count, self)
            case s.CreateVariable() | s.OnSet() if statement.context:
                raise NotImplementedError("variable of a context")
            case s.CreateVariable():
                around = self.around("")
                self.variables[body.name] = None if body.value is None else evaluate(body.value, around)
                if body.constant:
                    self._constants.add(body.name)
            case s.CreateExpression():
                self.declarations[body.declaration.name] = body.declaration.body
            case s.OnSet():
                if not isinstance(body.trigger.source, p.EventFilter):
                    raise NotImplementedError("pattern")
                self._setters.append((self._count, name, body))
            case s.OnSplit():
                self._add_split(body, name)
            case s.UpdateStream():
                self._updates.append((name, body))
            case _:
                raise NotImplementedError(_WORDS.get(type(body).__name__, type(body).__name__))
        return name

    def _add_query(self, statement: s.Statement, name: str) -> None:
        assert isinstance(statement.body, q.Query)
        made: QueryStatement | ContextStatement
        if statement.context:
            made = ContextStatement(statement, name, self._count, self._contexts[statement.context])
        else:
            made = QueryStatement(statement, name, self._count, self)
        if statement.body.insert is not None:
            known = self.types.setdefault(statement.body.insert.target, {})
            for column, kind in made.columns.items():
                known.setdefault(column, kind)
        self._queries.append(made)

    def _add_split(self, body: s.OnSplit, name: str) -> None:
        source = q.StreamTerm(body.trigger.source, alias=body.trigger.alias)
        for branch in body.branches:
            query = s.Statement(q.Query(branch.items, source))
            known = self.types.setdefault(branch.insert.target, {})
            columns = QueryStatement(query, name, self._count, self).columns
            for column, kind in zip(branch.insert.columns or columns, columns.values(), strict=True):
                known.setdefault(column, kind)
        self._splits.append((self._count, name, body))

    def _event(self, type_name: str, row: Mapping[str, Any]) -> Event:
        properties = self.types[type_name]
        return Event(type_name, {name: _typed(row.get(name), kind) for name, kind in properties.items()})

    def _handle(self, event: Event) -> list[Delivery]:
        """An event comes, and then those that statements insert, one after another."""
        return self._handle_updated(event) + self._handle_inserted()

    def _handle_inserted(self) -> list[Delivery]:
        deliveries: list[Delivery] = []
        while self._inserted:
            deliveries += self._handle_updated(self._inserted.pop(0))
        return deliveries

    def _handle_updated(self, event: Event) -> list[Delivery]:
        """An event comes, as statements change it, one after another."""
        deliveries: list[Delivery] = []
        for name, update in self._updates:
            around = self.around(event.type_name, update.alias, event)
            if update.type_name != event.type_name or (update.where is not None and not holds(update.where, around)):
                continue
            old, new = event.properties, dict(event.properties)
            for each in update.assignments:
                assert each.value is not None
                new[str(each.target)] = evaluate(each.value, around)
            event = self._event(event.type_name, new)
            deliveries.append(Delivery(name, [dict(event.properties)], [dict(old)]))
        return deliveries + self._handle_one(event)

    def _handle_one(self, event: Event) -> list[Delivery]:
        """Which statements an event comes to is known before any of them does anything."""
        for context in self._contexts.values():
            context.handle(event)
        matches: list[tuple[int, Any, Any]] = [(each.number, each, each.matches(event)) for each in self._queries]
        triggered: list[tuple[int, str, s.OnSet | s.OnSplit]] = [*self._setters, *self._splits]
        matches += [(number, (name, each), self._triggers(each, event)) for number, name, each in triggered]
        deliveries: list[Delivery] = []
        for _, statement, matched in sorted(matches, key=lambda match: match[0]):
            if not matched:
                continue
            if isinstance(statement, QueryStatement | ContextStatement):
                statement.arrive(matched, event)
                continue
            name, setter = statement
            if isinstance(setter, s.OnSplit):
                if not self._split(setter, matched, event):
                    deliveries.append(Delivery(name, [dict(event.properties)], None))
                continue
            self.assign(setter.assignments, matched)
            found = {str(each.target): self.variables[str(each.target)] for each in setter.assignments}
            deliveries.append(Delivery(name, [found], None))
        return deliveries + self._delivered()

    def _split(self, body: s.OnSplit, around: Scope, event: Event) -> bool:
        """Have an event where it belongs; whether it belongs anywhere."""
        taken = False
        for branch in body.branches:
            if (taken and not body.all_branches) or (branch.where is not None and not holds(branch.where, around)):
                continue
            taken, row = True, dict[str, Any]()
            for item in branch.items:
                if isinstance(item.expression, e.Wildcard):
                    row |= event.properties
                else:
                    row[item.alias or column_name(item.expression)] = evaluate(item.expression, around)
            self.insert(branch.insert.target, dict(zip(branch.insert.columns or row, row.values(), strict=True)))
        return taken

    def _triggers(self, setter: s.OnSet | s.OnSplit, event: Event) -> Scope | None:
        """What a statement that sets variables sees of an event that triggers it; None if it does not."""
        source = setter.trigger.source
        assert isinstance(source, p.EventFilter)
        around = self.around(event.type_name, setter.trigger.alias, event)
        is_one = source.type_name == event.type_name and all(holds(each, around) for each in source.filters)
        return around if is_one else None

    def around(self, type_name: str, alias: str = "", event: Event | None = None) -> Scope:
        """What expressions know of one event."""
        source = Source(alias or type_name, type_name, self.types.get(type_name, {}))
        return Scope((source,), (event,), _Outside(self))

    def _delivered(self) -> list[Delivery]:
        made = [(each.name, each.delivered()) for each in self._queries]
        return [Delivery(name, *delivery) for name, delivery in made if delivery is not None]


class _Outside:
    """What expressions know that stand in no query."""

    def __init__(self, interpreter: Interpreter) -> None:
        self._interpreter = interpreter

    @property
    def now(self) -> int:
        return self._interpreter.clock.now

    @property
    def variables(self) -> Mapping[str, Any]:
        return self._interpreter.variables

    @property
    def declarations(self) -> Mapping[str, e.Expression | e.LambdaFunction]:
        return self._interpreter.declarations

    def special(self, call: e.FunctionCall, scope: Scope) -> tuple[Any] | None:
        return None

    def rows_of(self, query: q.Query, scope: Scope) -> list[Any]:
        raise NotImplementedError("sub-query outside of a query")


_WORDS = {
    "CreateWindow": "named window",
    "CreateTable": "table",
    "CreateIndex": "index",
    **dict.fromkeys(("OnQuery", "OnDelete", "OnUpdate", "OnMerge"), "on trigger"),
}


def _typed(value: Any, kind: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and kind in {"double", "float"}:
        return float(value)
    return value
