"""Contexts: instances that start and end one by one, each with its own copy of every statement."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.inlining import rebuilt
from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter.clock import Callback, Clock
from tests.support.epl_interpreter.crontab import Times
from tests.support.epl_interpreter.statements import Engine, QueryStatement
from tests.support.epl_interpreter.streams import Stream
from tests.support.epl_interpreter.values import Event, Scope, evaluate, holds, key_of, span_of


class Statements(Engine, Protocol):
    """What contexts need of an interpreter."""

    def numbered(self) -> int:
        """The next number of a statement."""

    def around(self, type_name: str, alias: str = "", event: Event | None = None) -> Scope:
        """What expressions know of one event."""


@dataclass(eq=False)
class Instance:
    """One instance of a context.

    Attributes:
        known: What `context.` and the rest of a path stands for.
        keys: Its keys, as values that can be compared.
        members: For each type of events with keys the test whether an event is one of its own.
        started: The event that started it, by the name that conditions have for it.
        id: Its number, where it is one of the innermost context.
        inner: The instances within it.
        outer: The one that it is within.
        timer: What ends it by the clock.
    """

    known: dict[str, Any]
    keys: tuple[Any, ...] = ()
    members: dict[str, Callable[[Event], bool]] = field(default_factory=dict)
    started: dict[str, Event] = field(default_factory=dict)
    id: int = -1
    inner: Level | None = None
    outer: Instance | None = None
    timer: Callback | None = None


class Context:
    """A context: it begins with its first statement, and is over with its last one.

    Attributes:
        name: Its name.
        number: That of the statement that created it: its callbacks run before those of statements in it.
    """

    def __init__(self, create: s.CreateContext, number: int, engine: Statements) -> None:
        self.name, self.number, self.engine = create.name, number, engine
        kinds = (
            create.context.contexts if isinstance(create.context, s.NestedContext) else ((create.name, create.context),)
        )
        self.kinds, self.is_nested = kinds, len(kinds) > 1
        self.statements: list[ContextStatement] = []
        self.level: Level | None = None
        self._count = self._slots = 0

    def slot(self) -> tuple[int, int]:
        """The slot of the next callback."""
        self._slots += 1
        return self.number, self._slots

    def add(self, statement: ContextStatement) -> None:
        """A statement comes: it joins the instances that are there."""
        self.statements.append(statement)
        if self.level is None:
            self._count = 0
            self.level = Level(self, 0, None)
            self.level.begin()
        else:
            for each in self.level.leaves():
                statement.start(each)

    def remove(self, statement: ContextStatement) -> None:
        """A statement goes."""
        self.statements.remove(statement)
        if not self.statements:
            self.engine.clock.cancel_all_of(self.number)
            self.level = None

    def settle(self) -> None:
        """Its callbacks have run."""

    def start(self, instance: Instance) -> None:
        """An instance of the innermost context starts."""
        instance.id = self._count
        self._count += 1
        instance.known |= {"id": instance.id, "name": self.name}
        for each in self.statements:
            each.start(instance)

    def end(self, instance: Instance) -> None:
        """It ends."""
        for each in self.statements:
            each.end(instance)

    def handle(self, event: Event) -> None:
        """An event ends the instances that it ends, and then starts others."""
        if self.level is not None:
            self.level.start_by(event, self.level.end_by(event))


class Level:
    """The instances of one of the contexts that are nested, within one of the context around."""

    def __init__(self, context: Context, depth: int, around: Instance | None) -> None:
        self._context, self._depth, self._around = context, depth, around
        self.called, self._kind = context.kinds[depth]
        self._engine, self._clock = context.engine, context.engine.clock
        self.alive: list[Instance] = []

    def begin(self) -> None:
        """What starts by itself does."""
        kind = self._kind
        if isinstance(kind, s.HashContext) and kind.preallocate:
            for number in range(kind.granularity):
                self._make({}, (number,), self._in_bucket(kind, number))
        if isinstance(kind, s.CategoryContext):
            for at, each in enumerate(kind.categories):
                self._make(
                    {"label": each.label}, (at,), {kind.events.type_name: self._in_category(kind, each.condition)}
                )
        if isinstance(kind, s.StartEndContext) and not isinstance(kind.start, s.ContextCondition):
            self._wait_to_start(kind.start, is_first=True)
        if isinstance(kind, s.OverlappingContext):
            if kind.now:
                self._make({}, ())
            if kind.initiated is not None and not isinstance(kind.initiated, s.ContextCondition):
                self._wait_to_start(kind.initiated, is_first=True)

    def leaves(self) -> Iterator[Instance]:
        """The instances of the innermost context."""
        for each in self.alive:
            if each.inner is None:
                yield each
            else:
                yield from each.inner.leaves()

    # What is within an instance

    def _in_category(self, kind: s.CategoryContext, condition: e.Expression) -> Callable[[Event], bool]:
        return lambda event: self._matches(kind.events, event) and holds(condition, self._scope(event))

    def _in_bucket(self, kind: s.HashContext, number: int) -> dict[str, Callable[[Event], bool]]:
        def test(each: s.ContextHash) -> Callable[[Event], bool]:
            return lambda event: self._matches(each.events, event) and self._bucket(kind, each, event) == number

        return {each.events.type_name: test(each) for each in kind.hashes}

    def _bucket(self, kind: s.HashContext, each: s.ContextHash, event: Event) -> int:
        values = [evaluate(one, self._scope(event)) for one in each.function.arguments]
        return bucket_of(each.function.name, values, kind.granularity)

    def _keys_of(self, key: s.ContextKey, event: Event) -> tuple[Any, ...]:
        return tuple(key_of(evaluate(each, self._scope(event, key.alias))) for each in key.keys)

    def _with_key(self, key: s.ContextKey, keys: tuple[Any, ...]) -> Callable[[Event], bool]:
        return lambda event: self._matches(key.events, event) and self._keys_of(key, event) == keys

    def _is_within(self, event: Event) -> bool:
        """Whether an event is in the instance around."""
        return self._around is None or is_member(self._around, event)

    # Starts

    def start_by(self, event: Event, ended: list[tuple[Any, ...]]) -> None:
        """What an event starts: nothing that it has ended just now, where there is one at a time.

        Args:
            event: The event.
            ended: Pairs (level, keys) of instances that it has ended.
        """
        if self._is_within(event):
            self._start_by(event, {keys for level, keys in ended if level is self})
        for each in self.alive:
            if each.inner is not None:
                each.inner.start_by(event, ended)

    def _start_by(self, event: Event, ended: set[tuple[Any, ...]]) -> None:
        match self._kind:
            case s.KeyedContext(keys, initiated):
                self._start_keyed(event, keys, initiated, ended)
            case s.HashContext() as kind:
                for each in kind.hashes:
                    if self._matches(each.events, event):
                        number = self._bucket(kind, each, event)
                        if all(one.keys != (number,) for one in self.alive):
                            self._make({}, (number,), self._in_bucket(kind, number))
            case s.StartEndContext(s.ContextCondition() as start) if not self.alive and () not in ended:
                self._start_one(event, start, ())
            case s.OverlappingContext(s.ContextCondition() as start, distinct=distinct):
                if not self._is_start(start, event):
                    return
                keys = tuple(key_of(evaluate(each, self._scope(event, start.alias))) for each in distinct)
                if not distinct or (keys not in ended and all(each.keys != keys for each in self.alive)):
                    self._start_one(event, start, keys)

    def _start_keyed(
        self, event: Event, keys: Sequence[s.ContextKey], initiated: Any, ended: set[tuple[Any, ...]]
    ) -> None:
        for key in keys:
            is_start = initiated is None or self._is_start(initiated, event)
            if not is_start or not self._matches(key.events, event):
                continue
            found = self._keys_of(key, event)
            if found in ended or any(each.keys == found for each in self.alive):
                return
            known = {f"key{at + 1}": evaluate(each, self._scope(event, key.alias)) for at, each in enumerate(key.keys)}
            alias = key.alias if initiated is None else initiated.alias
            members = {each.events.type_name: self._with_key(each, found) for each in keys}
            self._make(known, found, members, {alias: event} if alias else {})
            return

    def _is_start(self, start: s.ContextCondition, event: Event) -> bool:
        if not isinstance(start.source, p.EventFilter):
            raise NotImplementedError("pattern")
        return self._matches(start.source, event, start.alias)

    def _start_one(self, event: Event, start: s.ContextCondition, keys: tuple[Any, ...]) -> None:
        if self._is_start(start, event):
            self._make({}, keys, {}, {start.alias: event} if start.alias else {})

    def _wait_to_start(self, condition: Any, *, is_first: bool = False) -> None:
        """Have the clock start the next one."""
        delay = self._delay(condition)
        if is_first and isinstance(condition, q.Crontab):
            end = getattr(self._kind, "end", None)
            if isinstance(end, q.Crontab) and self._delay(end) < delay:
                delay = 0
        if is_first and delay == 0:
            self._start_by_clock(condition)
        else:
            self._clock.after(delay, self._context.slot(), lambda: self._start_by_clock(condition))

    def _start_by_clock(self, condition: Any) -> None:
        self._make({}, ())
        if isinstance(self._kind, s.OverlappingContext):
            self._wait_to_start(condition)

    def _make(
        self,
        known: Mapping[str, Any],
        keys: tuple[Any, ...],
        members: Mapping[str, Callable[[Event], bool]] | None = None,
        started: Mapping[str, Event] | None = None,
    ) -> None:
        """An instance starts."""
        around = self._around
        lasts = self._lasts
        delay = None if lasts is None else self._delay(lasts)
        own: dict[str, Any] = {
            "startTime": self._clock.now,
            "endTime": None if delay is None else self._clock.now + delay,
        }
        own |= known
        named = {f"{self._prefix}{name}": value for name, value in own.items()}
        for alias, event in (started or {}).items():
            self._name(named, alias, event)
        end = self._ends
        if isinstance(end, s.ContextCondition) and end.alias and isinstance(end.source, p.EventFilter):
            named[f"{self._prefix}{end.alias}"] = None
            for name in self._engine.types[end.source.type_name]:
                named[f"{self._prefix}{end.alias}.{name}"] = None
        instance = Instance(
            {**({} if around is None else around.known), **named},
            keys,
            dict(members or {}),
            {**({} if around is None else around.started), **(started or {})},
        )
        instance.outer = around
        self.alive.append(instance)
        if delay is not None:
            instance.timer = self._clock.after(delay, self._context.slot(), lambda: self._end(instance))
        if self._depth + 1 < len(self._context.kinds):
            instance.inner = Level(self._context, self._depth + 1, instance)
            instance.inner.begin()
        else:
            self._context.start(instance)

    @property
    def _prefix(self) -> str:
        """What stands before the names of its properties."""
        return f"{self.called}." if self._context.is_nested else ""

    def _name(self, known: dict[str, Any], alias: str, event: Event) -> None:
        """Have names for an event and its properties."""
        if alias:
            known[f"{self._prefix}{alias}"] = event
            known |= {f"{self._prefix}{alias}.{name}": value for name, value in event.properties.items()}

    # Ends

    @property
    def _ends(self) -> Any:
        kind = self._kind
        return kind.end if isinstance(kind, s.StartEndContext) else getattr(kind, "terminated", None)

    @property
    def _lasts(self) -> Any:
        return None if isinstance(self._ends, s.ContextCondition) else self._ends

    def end_by(self, event: Event) -> list[tuple[Any, ...]]:
        """End what an event ends: pairs (level, keys)."""
        found: list[tuple[Any, ...]] = []
        for each in list(self.alive):
            if self._is_ended_by(each, event):
                found.append((self, each.keys))
                self._name(each.known, getattr(self._ends, "alias", ""), event)
                self._end(each)
            elif each.inner is not None:
                found += each.inner.end_by(event)
        return found

    def _is_ended_by(self, instance: Instance, event: Event) -> bool:
        end = self._ends
        if not isinstance(end, s.ContextCondition):
            return False
        if not isinstance(end.source, p.EventFilter):
            raise NotImplementedError("pattern")
        if event.type_name != end.source.type_name or not is_member(instance, event):
            return False
        scope = self._scope(event, end.alias)
        named = {
            f"{alias}.{name}": value
            for alias, one in instance.started.items()
            for name, value in one.properties.items()
        }
        around = _Known(scope.around, named)
        return all(
            holds(_with_dots(each, instance.started), replace(scope, around=around)) for each in end.source.filters
        )

    def _end(self, instance: Instance) -> None:
        """An instance ends, and those within it."""
        if instance not in self.alive:
            return
        for each in list(instance.inner.alive) if instance.inner is not None else ():
            assert instance.inner is not None
            instance.inner._end(each)
        self.alive.remove(instance)
        self._clock.cancel(instance.timer)
        if instance.inner is None:
            self._context.end(instance)
        if isinstance(self._kind, s.StartEndContext) and not isinstance(self._kind.start, s.ContextCondition):
            self._wait_to_start(self._kind.start)

    # What conditions say

    def _matches(self, source: p.EventFilter, event: Event, alias: str = "") -> bool:
        scope = self._scope(event, alias)
        return source.type_name == event.type_name and all(holds(each, scope) for each in source.filters)

    def _scope(self, event: Event, alias: str = "") -> Scope:
        return self._engine.around(event.type_name, alias, event)

    def _delay(self, condition: Any) -> int:
        """Milliseconds until the clock starts or ends an instance."""
        now = self._clock.now
        if isinstance(condition, q.Crontab):
            return Times(condition, lambda node: evaluate(node, self._engine.around(""))).next_after(now) - now
        return span_of(condition, self._engine.around("")).after(now) - now


def is_member(instance: Instance, event: Event) -> bool:
    """Whether an event is within an instance: it has the keys of all contexts that have some of its type."""
    each: Instance | None = instance
    while each is not None:
        test = each.members.get(event.type_name)
        if test is not None and not test(event):
            return False
        each = each.outer
    return True


def bucket_of(function: str, values: Sequence[Any], count: int) -> int:
    """The bucket of texts, whole numbers and nulls: by Java's hash codes, or by the CRC-32 of their bytes."""
    if function == "hash_code":
        total = 0
        for each in values:
            if each is not None:
                total = _bits_32(31 * total + _java_hash(each))
        return abs(total) % count
    (text,) = values
    return zlib.crc32(b"" if text is None else text.encode()) % count


def _java_hash(value: Any) -> int:
    if isinstance(value, str):
        total = 0
        for unit in value:
            total = _bits_32(31 * total + ord(unit))
        return total
    return _bits_32(value)


def _bits_32(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


class _Known:
    """What expressions know, and more names."""

    def __init__(self, around: Any, names: Mapping[str, Any]) -> None:
        self._around, self._names = around, names

    @property
    def variables(self) -> Mapping[str, Any]:
        return {**self._around.variables, **self._names}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._around, name)


def _path(node: Any) -> tuple[str, ...] | None:
    names: list[str] = []
    while isinstance(node, e.Member):
        names.append(node.name)
        node = node.of
    return (node.name, *reversed(names)) if names and isinstance(node, e.Name) else None


def _with_dots(node: Any, aliases: Mapping[str, Any]) -> Any:
    """An expression in which properties of events by these names are variables."""

    def change(part: Any) -> Any:
        path = _path(part)
        return e.Name(".".join(path)) if path is not None and path[0] in aliases else None

    return rebuilt(node, change)


class _InstanceEngine:
    """What a statement of one instance shares with all others."""

    def __init__(self, engine: Statements, known: dict[str, Any]) -> None:
        self._engine, self._known = engine, known
        self.clock: Clock = engine.clock
        self.types, self.declarations = engine.types, engine.declarations

    @property
    def variables(self) -> dict[str, Any]:
        return {**self._engine.variables, **{f"context.{name}": value for name, value in self._known.items()}}

    def insert(self, type_name: str, row: dict[str, Any]) -> None:
        self._engine.insert(type_name, row)

    def assign(self, assignments: Sequence[q.Assignment], scope: Scope) -> None:
        self._engine.assign(assignments, scope)


class ContextStatement:
    """A query in a context: a statement for each instance.

    Attributes:
        name: What it is called.
        number: Its number.
    """

    def __init__(self, statement: s.Statement, name: str, number: int, context: Context) -> None:
        self.name, self.number, self.context = name, number, context
        body = rebuilt(statement.body, _around)
        self._statement = replace(statement, body=body, context="")
        self._ended: list[QueryStatement] = []
        self.each: dict[int, tuple[Instance, QueryStatement]] = {}
        self._probe = QueryStatement(self._statement, name, -1, _InstanceEngine(context.engine, {}))
        self.columns = self._probe.columns
        context.add(self)

    def start(self, instance: Instance) -> None:
        """An instance starts."""
        number = self.context.engine.numbered()
        engine = _InstanceEngine(self.context.engine, instance.known)
        self.each[instance.id] = (instance, QueryStatement(self._statement, self.name, number, engine))

    def end(self, instance: Instance) -> None:
        """It ends: what is output then is, and nothing else."""
        _, statement = self.each.pop(instance.id)
        self.context.engine.clock.cancel_all_of(statement.number)
        statement.terminate()
        self._ended.append(statement)

    def statement_of(self, number: int) -> QueryStatement | None:
        """The statement of a number, if there is one."""
        return next((each for _, each in self.each.values() if each.number == number), None)

    def matches(self, event: Event) -> list[tuple[QueryStatement, list[Stream]]]:
        """The streams of its instances that take an event."""
        found = [(each, each.matches(event)) for instance, each in self.each.values() if is_member(instance, event)]
        return [(each, streams) for each, streams in found if streams]

    def arrive(self, matched: list[tuple[QueryStatement, list[Stream]]], event: Event) -> None:
        """An event comes to these."""
        for statement, streams in matched:
            statement.arrive(streams, event)

    def variables_changed(self, names: Container[str]) -> None:
        """The values of these variables are others now."""
        for _, each in self.each.values():
            each.variables_changed(names)

    def delivered(self) -> Any:
        """What listeners get of all instances together."""
        found = [each.delivered() for each in [*self._ended, *(each for _, each in self.each.values())]]
        self._ended = []
        some = [pair for pair in found if pair is not None]
        if not some:
            return None
        new, old = ([row for pair in some for row in pair[side] or ()] for side in (0, 1))
        return new or None, old or None

    def rows(self) -> list[dict[str, Any]]:
        """What an iterator gives."""
        return [row for _, each in self.each.values() for row in each.rows()]

    @property
    def has_order(self) -> bool:
        return self._probe.has_order

    @property
    def filters(self) -> int:
        return sum(each.filters for _, each in self.each.values())


def _around(part: Any) -> Any:
    path = _path(part)
    return e.Name(".".join(path)) if path is not None and path[0] == "context" else None
