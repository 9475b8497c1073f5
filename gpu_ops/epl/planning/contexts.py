"""Contexts as plans: where instances start and end, and what statements see of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import TICK
from gpu_ops.core.turns import CLOCK, ENDED, INSTANCE, PLACE
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.arguments import clock_span
from gpu_ops.epl.planning.context_lives import ends_behind, is_life, is_of_several, life_of
from gpu_ops.epl.planning.context_patterns import (
    by_clock,
    is_inclusive,
    matches_of,
    read_before,
    single_event,
    with_tags,
)
from gpu_ops.epl.planning.events import event_of
from gpu_ops.epl.planning.joins import conjuncts
from gpu_ops.epl.planning.known_contexts import ContextLevel, Entering, KnownContext, Path
from gpu_ops.epl.planning.pattern_instances import StartedPoints
from gpu_ops.epl.planning.planned import Ledger, known_type
from gpu_ops.epl.planning.rates import crontab_times
from gpu_ops.plan.buckets import Bucket, HashFunction, is_hashed
from gpu_ops.plan.contexts import AtOnce, Instances
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.joins import Union
from gpu_ops.plan.lean import lean
from gpu_ops.plan.nodes import Feed, Filter, Node, Project, extended, selected
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.expressions import bind, bind_condition, period
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.placed_error import failure_at, unsupported

_HASHES: dict[str, HashFunction] = {"hash_code": "hash_code", "consistent_hash_crc32": "consistent_hash_crc32"}
_MOST_BUCKETS = 1 << 20

# Contexts as they are created


def planned_context(create: s.CreateContext, ledger: Ledger) -> KnownContext:
    """A context as it is created.

    Args:
        create: The statement.
        ledger: What it is planned over.

    Raises:
        PlacedError: A name is unknown, types do not fit, or gpu_ops does not have what it asks for.
    """
    kinds = create.context.contexts if isinstance(create.context, s.NestedContext) else ((create.name, create.context),)
    made: KnownContext | None = None
    for at, (name, kind) in enumerate(kinds):
        if any(name == other for other, _ in kinds[:at]):
            raise failure_at(create, f"Two contexts are called {name!r}.", "Give one of them another name.")
        made = _LevelPlanner(name, kind, ledger, made, nested=len(kinds) > 1).context(create.name)
    assert made is not None  # noqa: S101  (there is one at least)
    return made


class _LevelPlanner:
    """The plan of one context, within another one or none."""

    def __init__(
        self, called: str, kind: s.ContextKind, ledger: Ledger, outer: KnownContext | None, *, nested: bool
    ) -> None:
        self._called, self._kind, self._ledger, self._outer, self._nested = called, kind, ledger, outer, nested
        self._reads: list[str] = [] if outer is None else list(outer.reads)
        self._properties: dict[Path, Bound] = {} if outer is None else dict(outer.properties)
        self._ending: list[str] = []
        self._entering: dict[str, Entering] = {}
        self._keys: tuple[str, ...] = ()
        self._options: dict[str, Any] = {"called": called, "ticks": ledger.ticks}
        self._points: Node | None = None
        self._streams: list[BoundStream] = []
        self._listens, self._ends_by_atoms = 0, False
        self._before: set[str] = set() if outer is None else set(outer.before)
        if outer is not None:
            names = [name for name in outer.node.schema.names if name not in {INSTANCE, ENDED}]
            number = f"@{outer.node.called} instance"
            columns = [nw.col(INSTANCE).alias(number), *map(nw.col, names), nw.col(ENDED)]
            self._points = Project(outer.node, tuple(columns), keep=False)
            self._options |= {"outer": self._points, "outer_number": number, "outer_since": outer.node.since}

    def context(self, name: str) -> KnownContext:
        """The context, as statements see it that are in this one."""
        match self._kind:
            case s.KeyedContext():
                self._keyed(self._kind)
            case s.HashContext():
                self._hashed(self._kind)
            case s.CategoryContext():
                self._category(self._kind)
            case s.StartEndContext(None, end):
                self._overlapping(self._always(end))
            case s.StartEndContext() as kind if self._outer is None and is_life(kind):
                self._lived(kind)
            case s.StartEndContext(start, end) if start is not None:
                self._options["keys"] = self._number
                begins = by_clock(start)
                # A crontab starts an instance at once in whose time the context begins; a pattern does not.
                from_pattern = isinstance(begins, q.Crontab) and begins is not start
                self._started(start if from_pattern and isinstance(by_clock(end), q.Crontab) else begins or start, ())
                self._ended(end)
            case s.OverlappingContext():
                self._overlapping(self._kind)
        node = lean(Instances(**self._options))
        assert isinstance(node, Instances)  # noqa: S101  (it stays one)
        levels = () if self._outer is None else self._outer.levels
        own: dict[Path, Bound] = {
            ("id",): Bound(nw.col(INSTANCE).cast(nw.Int32()), t.INT, "id"),
            ("startTime",): _milliseconds(node.since),
            ("endTime",): _milliseconds(node.until),
        }
        named = {("name",): Bound(nw.lit(name), t.TEXT, "name"), ("id",): own["id",]}
        if self._nested:
            own[("name",)] = Bound(nw.lit(self._called), t.TEXT, "name")
            self._properties |= {(self._called, *path): bound for path, bound in own.items()}
        else:
            self._properties |= own
        ending = frozenset(self._ending)
        return KnownContext(
            name,
            node,
            Feed(node.schema, (), TICK) if self._ledger.asks else node,
            tuple(dict.fromkeys(self._reads)),
            (
                *levels,
                ContextLevel(
                    self._called,
                    self._keys,
                    self._entering,
                    bool(node.preset),
                    self._listens,
                    isinstance(self._kind, s.StartEndContext),
                    self._ends_by_atoms,
                ),
            ),
            self._properties | named,
            ending,
            frozenset(self._before),
        )

    def _property(self, *path: str, bound: Bound) -> None:
        self._properties[(self._called, *path) if self._nested else path] = bound

    @property
    def _number(self) -> tuple[str, ...]:
        """The column with the number of the instance around, if there is one."""
        return (self._options["outer_number"],) if self._outer is not None else ()

    # Points

    def _arrivals(self, source: EventFilter, alias: str = "") -> tuple[BoundStream, Node]:
        """The events of a type for which its filters hold."""
        schema = known_type(source, self._ledger)
        stream = BoundStream(alias, source.type_name, schema)
        node = self._ledger.arrivals[source.type_name]
        for each in source.filters:
            node = Filter(node, bind_condition(each, StreamScope([stream]), "the filter").value)
        self._reads.append(source.type_name)
        return stream, node

    def _within(self, node: Node, type_name: str, *, carries: bool) -> Node:
        """Events within the instances around."""
        if self._outer is None or self._points is None:
            return node
        schema = self._points.schema
        names = [name for name in schema.names if name not in {ENDED, self._number[0]}] if carries else []
        return self._outer.within(node, type_name, names, self._points, self._number[0])

    def _of_event(
        self, stream: BoundStream, alias: str, *, ending: bool = False, around: str = ""
    ) -> dict[str, nw.Expr]:
        """The properties of an event that starts or ends an instance, as its columns; statements see them.

        Args:
            stream: The event's stream.
            alias: What it is called.
            ending: Whether it ends one.
            around: What the match is called that it is the only event of.
        """
        word = "ended by" if ending else "of"
        columns = {name: f"@{self._called} {word} {alias} {name}" for name in stream.schema.names}
        if not alias and not ending:
            return {}
        known = replace(stream, alias=alias, columns=columns)
        if alias:
            self._ending += columns.values() if ending else ()
            self._of_columns(known, (around, alias) if around else (alias,))
        if around and alias:
            event = event_of(known)
            dtype = pa.struct([pa.field(alias, event.type)])
            self._property(around, bound=Bound(nw.struct(event.value.alias(alias)), dtype, around))
        self._streams.append(replace(known, alias=f"{around}.{alias}") if around else known)
        return {column: nw.col(name) for name, column in columns.items()}

    def _with_alias(self, condition: s.Condition | None) -> tuple[s.ContextCondition, EventFilter, str]:
        """(a condition that is an event, the event, what the match of a pattern is called that has no other)."""
        if isinstance(condition, s.ContextCondition):
            if isinstance(condition.source, EventFilter):
                return condition, condition.source, ""
            found = single_event(condition.source)
            if found is None:
                raise unsupported(condition.source, "ends of instances by patterns of several events")
            source, tag = found
            around = condition.alias if tag else ""
            return replace(condition, source=source, alias=tag or condition.alias), source, around
        raise unsupported(self._kind if condition is None else condition, "contexts whose keys wait for the clock")

    # Kinds

    def _keyed(self, kind: s.KeyedContext) -> None:
        bound: list[list[Bound]] = []
        sources: list[tuple[s.ContextKey, BoundStream, Node]] = []
        for each in kind.keys:
            stream, node = self._arrivals(each.events, each.alias)
            if len(each.keys) != len(kind.keys[0].keys):
                raise failure_at(each, "The types have different numbers of keys.", "Give each of them as many.")
            bound.append([self._key(key, stream) for key in each.keys])
            sources.append((each, stream, node))
        types = []
        for at, key_node in enumerate(kind.keys[0].keys):
            dtype = t.common_type([keys[at].type for keys in bound])
            if dtype is None:
                raise failure_at(key_node, f"Key {at + 1} is of different types.", "Cast it.")
            types.append(dtype)
        self._keys = tuple(f"@{self._called} key {at + 1}" for at in range(len(types)))
        for at, (key, dtype) in enumerate(zip(self._keys, types, strict=True)):
            self._property(f"key{at + 1}", bound=Bound(nw.col(key), dtype, f"key{at + 1}"))
        starts: list[Node] = []
        for (each, stream, node), keys in zip(sources, bound, strict=True):
            made = [as_type(key, dtype).alias(name) for key, dtype, name in zip(keys, types, self._keys, strict=True)]
            self._entering[stream.type_name] = _keyed_by(each.events, stream, made)
            starts.append(extended(node, made))
        own = [*self._keys]
        if kind.initiated is not None:
            start, source, around_it = self._with_alias(kind.initiated)
            if source.type_name not in self._entering:
                raise failure_at(source, f"{source.type_name!r} has no key here.", "Partition by a key of it too.")
            stream, node = self._arrivals(source, start.alias)
            entered = self._entering[source.type_name](node)
            columns = self._of_event(stream, start.alias, around=around_it)
            starts = [extended(entered, [value.alias(name) for name, value in columns.items()])]
            own += columns
        elif len(sources) == 1 and sources[0][0].alias:
            ((each, stream, _),) = sources
            columns = self._of_event(stream, each.alias)
            starts = [extended(starts[0], [value.alias(name) for name, value in columns.items()])]
            own += columns
        ready = []
        names = [source.type_name for _, source, _ in sources]
        if kind.initiated is not None:
            names = [source.type_name]
        for type_name, node in zip(names, starts, strict=True):
            whole = self._within(node, type_name, carries=True)
            around = [] if self._points is None else [name for name in self._points.schema.names if name != ENDED]
            ready.append(selected(whole, list(dict.fromkeys([*around, *own, CLOCK, PLACE]))))
        self._listens = len(ready)
        self._options["starts"] = ready[0] if len(ready) == 1 else Union(tuple(ready))
        self._options["keys"] = (*self._number, *self._keys)
        self._ended(kind.terminated)

    def _key(self, node: e.Expression, stream: BoundStream) -> Bound:
        """A key of instances."""
        return bind(node, StreamScope([stream]))

    def _category(self, kind: s.CategoryContext) -> None:
        stream, _ = self._arrivals(kind.events)
        key = f"@{self._called} category"
        conditions = [
            bind_condition(each.condition, StreamScope([stream]), "a category").value for each in kind.categories
        ]
        self._keys = (key,)

        def entering(node: Node) -> Node:
            some = _filtered(kind.events, stream, node)
            made = [
                extended(Filter(some, condition), [nw.lit(at, nw.Int32()).alias(key)])
                for at, condition in enumerate(conditions)
            ]
            return made[0] if len(made) == 1 else Union(tuple(made))

        self._entering[stream.type_name] = entering
        label: Any = nw.lit(kind.categories[-1].label)
        for at, each in reversed(list(enumerate(kind.categories[:-1]))):
            label = nw.when(nw.col(key) == at).then(nw.lit(each.label)).otherwise(label)
        if len(kind.categories) == 1:
            label = nw.when(nw.col(key) == 0).then(nw.lit(kind.categories[0].label))
        self._property("label", bound=Bound(label, t.TEXT, "label"))
        self._options |= {"keys": (*self._number, key), "preset": len(conditions), "number": key}

    def _hashed(self, kind: s.HashContext) -> None:
        """An instance for each bucket: from the first event in it on, or all from the beginning on."""
        key = f"@{self._called} bucket"
        self._keys = (key,)
        if not 0 < kind.granularity <= _MOST_BUCKETS:
            raise failure_at(kind, f"A granularity is a number from 1 to {_MOST_BUCKETS:,}.")
        starts: list[Node] = []
        for each in kind.hashes:
            stream, node = self._arrivals(each.events)
            entering = self._in_bucket(kind, each, stream, key)
            self._entering[stream.type_name] = entering
            whole = self._within(entering(node), stream.type_name, carries=True)
            around = [] if self._points is None else [name for name in self._points.schema.names if name != ENDED]
            starts.append(selected(whole, [*around, key, CLOCK, PLACE]))
        self._options["keys"] = (*self._number, key)
        if kind.preallocate:
            self._options |= {"preset": kind.granularity, "number": key}
            return
        self._listens = len(starts)
        self._options["starts"] = starts[0] if len(starts) == 1 else Union(tuple(starts))

    def _in_bucket(self, kind: s.HashContext, each: s.ContextHash, stream: BoundStream, key: str) -> Entering:
        """From the arrivals of a type to those in the context, with the number of their bucket."""
        function = _HASHES.get(each.function.name.lower())
        if function is None:
            said = f"the hash function {each.function.name}"
            raise unsupported(each.function, said, f"There are {' and '.join(_HASHES)}.")
        keys = [one for one in each.function.arguments if isinstance(one, e.Expression)]
        if not keys or len(keys) < len(each.function.arguments):
            raise failure_at(each.function, "A hash is one of values.", f"Write: {function}(k), for instance.")
        hashed = [self._key(one, stream) for one in keys]
        for one, bound in zip(keys, hashed, strict=True):
            if not is_hashed(bound.type):
                raise unsupported(one, f"hashes of {bound.type}")
        names = tuple(f"{key} of {at}" for at in range(len(hashed)))
        made = [bound.value.alias(name) for bound, name in zip(hashed, names, strict=True)]

        def entering(node: Node) -> Node:
            before = [name for name in node.schema.names if name != key]
            rows = extended(_filtered(each.events, stream, node), made)
            return selected(Bucket(rows, names, function, kind.granularity, key), [*before, key])

        return entering

    def _overlapping(self, kind: s.OverlappingContext) -> None:
        keys = kind.distinct
        self._options |= {"keys": None, "now": kind.now}
        if kind.initiated is not None:
            self._started(kind.initiated, keys)
        if keys:
            self._options["keys"] = (*self._number, *(f"@{self._called} distinct {at}" for at in range(len(keys))))
        ends, has_points = kind.terminated, self._outer is None and not keys and "starts" in self._options
        if has_points and not kind.now and isinstance(ends, s.ContextCondition) and is_of_several(ends):
            self._ended_by_pattern(ends)
            return
        self._ended(kind.terminated)

    @staticmethod
    def _always(end: s.Condition | None) -> s.OverlappingContext:
        """A context that starts anew as it ends: what ends an instance starts the next one."""
        clock = by_clock(end)
        if end is not None and not isinstance(clock, e.Period | q.Crontab):
            raise unsupported(
                end, "contexts that start @now and end by events", "Say: initiated @now and A terminated by A."
            )
        return s.OverlappingContext(clock, clock, now=True)

    # Conditions

    def _started(self, condition: s.Condition, distinct: Sequence[e.Expression]) -> None:
        """What starts an instance."""
        if not isinstance(condition, s.ContextCondition):
            if self._outer is not None or distinct:
                raise unsupported(condition, "starts by the clock within another context, or with distinct keys")
            self._options["begins"] = self._timing(condition)
            return
        if isinstance(condition.source, q.PatternSource):
            self._started_by_pattern(condition, condition.source, distinct)
            return
        start, source, _ = self._with_alias(condition)
        stream, node = self._arrivals(source, start.alias)
        columns = self._of_event(stream, start.alias)
        made = [value.alias(name) for name, value in columns.items()]
        for at, each in enumerate(distinct):
            bound = self._key(each, stream)
            made.append(bound.value.alias(f"@{self._called} distinct {at}"))
        whole = self._within(extended(node, made), source.type_name, carries=True)
        self._listens = 1
        self._options["starts"] = selected(
            whole, [name for name in whole.schema.names if name not in stream.schema.names]
        )

    def _started_by_pattern(
        self, condition: s.ContextCondition, source: q.PatternSource, distinct: Sequence[e.Expression]
    ) -> None:
        """What completes a pattern starts an instance; it is within it only if the condition says so."""
        if distinct:
            raise unsupported(condition, "distinct keys of patterns")
        one_by_one = isinstance(self._kind, s.StartEndContext)
        around = self._outer is not None and not all(level.preset for level in self._outer.levels)
        node, tags, reads = matches_of(source, self._ledger, remembers=not one_by_one and not around)
        if any(
            name in level.entering for level in (() if self._outer is None else self._outer.levels) for name in reads
        ):
            raise unsupported(source, "patterns over the events that have keys of the context around")
        self._reads += reads
        named = self._of_tags(tags, condition.alias)
        self._before |= read_before(source) if is_inclusive(condition) else set()
        starts = self._within(with_tags(node, tags, named), "", carries=True)
        self._options |= {"starts": starts, "inclusive": is_inclusive(condition)}

    def _of_tags(self, tags: Mapping[str, pa.DataType], alias: str, *, ending: bool = False) -> str:
        """Have statements see the events of a match; gives what the names of its columns begin with."""
        named = f"@{self._called} {'ended by' if ending else 'of'} {alias} "
        path = (alias,) if alias else ()
        whole = []
        for tag, dtype in tags.items():
            schema = pa.schema(list(dtype))
            columns = {name: f"{named}{tag} {name}" for name in schema.names}
            known = BoundStream(".".join((*path, tag)), "", schema, columns)
            self._ending += columns.values() if ending else ()
            self._streams.append(known)
            self._of_columns(known, (*path, tag))
            whole.append(event_of(known).value.alias(tag))
        if path and whole:
            types = pa.struct([pa.field(tag, dtype) for tag, dtype in tags.items()])
            self._property(*path, bound=Bound(nw.struct(*whole), types, alias))
        return named

    def _lived(self, kind: s.StartEndContext) -> None:
        """What starts one at a time and ends it, where one of these is a pattern of several events."""
        life = life_of(kind, self._ledger)
        self._reads += life.reads
        start, end = ((each if isinstance(each, s.ContextCondition) else None) for each in (kind.start, kind.end))
        is_event = start is not None and isinstance(start.source, EventFilter)
        named = self._of_tags(life.started, "" if start is None or is_event else start.alias)
        inclusive = is_event or (start is not None and is_inclusive(start))
        if start is not None and isinstance(start.source, q.PatternSource) and inclusive:
            self._before |= read_before(start.source)
        self._options |= {"keys": (), "starts": with_tags(life.starts, life.started, named), "inclusive": inclusive}
        if end is None:
            self._ended(kind.end)
            return
        alias = end.alias if isinstance(end.source, q.PatternSource) else ""
        shown = with_tags(life.ends, life.ended, self._of_tags(life.ended, alias, ending=True))
        shows = tuple(name for name in shown.schema.names if name not in {CLOCK, PLACE})
        self._options |= {"ends_at": shown, "shows": shows}
        self._ends_by_atoms = True

    def _of_columns(self, stream: BoundStream, path: Path) -> None:
        """Have statements see an event and its properties."""
        self._property(*path, bound=event_of(stream))
        for name in stream.schema.names:
            self._property(*path, name, bound=stream.bound(name))

    def _ended(self, condition: s.Condition | None) -> None:
        """What ends one."""
        condition = by_clock(condition)
        if condition is None:
            return
        if not isinstance(condition, s.ContextCondition):
            timing = self._timing(condition)
            if isinstance(timing, AtOnce):
                raise failure_at(
                    condition, "An instance lasts longer than no time.", "Write: after 1 sec, for instance."
                )
            self._options["lasts"] = timing
            return
        end, source, around = self._with_alias(condition)
        schema = known_type(source, self._ledger)
        self._reads.append(source.type_name)
        stream = BoundStream(end.alias, source.type_name, schema)
        node = self._ledger.arrivals[source.type_name]
        keyed = self._number
        if source.type_name in self._entering:
            node, keyed = self._entering[source.type_name](node), (*keyed, *self._keys)
        elif self._keys:
            raise failure_at(source, f"{source.type_name!r} has no key here.", "Partition by a key of it too.")
        started = list(self._streams)
        columns = self._of_event(stream, end.alias, ending=True, around=around)
        made = [value.alias(name) for name, value in columns.items()]
        node = extended(node, made)
        scope = _EndScope(self._streams[-1], started)
        on: list[tuple[str, str]] = []
        rest: list[nw.Expr] = []
        for each in (part for one in source.filters for part in conjuncts(one)):
            scope.reads = set()
            pair = scope.pair(each)
            if pair is not None:
                on.append(pair)
                continue
            value = bind_condition(each, scope, "the filter").value
            if "start" not in scope.reads:
                node = Filter(node, value)
            else:
                rest.append(value)
        whole = self._within(node, source.type_name, carries=False)
        kept = [*keyed, *columns, CLOCK, PLACE]
        self._options |= {
            "ends_at": selected(whole, list(dict.fromkeys(kept))),
            "keyed": keyed,
            "on": tuple(on),
            "shows": tuple(columns) if end.alias else (),
            "condition": None
            if not rest
            else rest[0]
            if len(rest) == 1
            else nw.all_horizontal(*rest, ignore_nulls=False),
        }

    def _ended_by_pattern(self, condition: s.ContextCondition) -> None:
        """What ends an instance is a pattern of its own, which begins as that starts."""
        number = f"@{self._called} start"
        self._options["starts"] = extended(self._options["starts"], [nw.col(PLACE).alias(number)])
        points = StartedPoints(self._options["starts"], list(self._streams), number)
        ends, tags, reads = ends_behind(condition, points, self._ledger)
        self._reads += reads
        shown = with_tags(ends, tags, self._of_tags(tags, condition.alias, ending=True), (number,))
        shows = tuple(name for name in shown.schema.names if name not in {number, CLOCK, PLACE})
        ended = f"{number} ended"
        at = selected(extended(shown, [nw.col(number).alias(ended)]), [*shows, ended, CLOCK, PLACE])
        self._options |= {"ends_at": at, "on": ((number, ended),), "shows": shows}
        self._ends_by_atoms = True

    def _timing(self, condition: q.Crontab | e.Period) -> Any:
        if isinstance(condition, q.Crontab):
            return crontab_times(condition.fields, condition)
        return AtOnce() if period(condition) == (0, 0) else clock_span(condition)


class _EndScope(StreamScope):
    """What names stand for in the filter of an event that ends an instance: its properties, and those of the start."""

    def __init__(self, end: BoundStream, started: Sequence[BoundStream]) -> None:
        super().__init__([end])
        self._started = {each.alias: each for each in started if each.alias}
        self.reads: set[str] = set()

    def property(self, node: e.Name | e.Member) -> Bound | None:
        """A property of the one or of the other."""
        if isinstance(node, e.Member) and isinstance(node.of, e.Name | e.Member):
            started = self._started.get(str(node.of))
            if started is not None:
                self.reads.add("start")
                alone = StreamScope([replace(started, alias="started")])
                return alone.property(replace(node, of=e.Name("started", place=node.place)))
        return super().property(node)

    def pair(self, node: e.Expression) -> tuple[str, str] | None:
        """(column of the start, column of the end), if a condition says that these are equal."""
        if not isinstance(node, e.Operation) or node.operator != "=":
            return None
        sides: dict[str, Bound] = {}
        for each in (node.left, node.right):
            if not isinstance(each, e.Name | e.Member):
                return None
            self.reads = set()
            bound = self.property(each)
            if bound is None or pa.types.is_nested(bound.type) or t.is_float(bound.type):
                return None
            sides["start" if self.reads else "end"] = bound
        if len(sides) < 2 or sides["start"].type != sides["end"].type:
            return None
        names = [bare_column(sides[side].value) for side in ("start", "end")]
        return None if None in names else (str(names[0]), str(names[1]))


def _keyed_by(source: EventFilter, stream: BoundStream, keys: Sequence[nw.Expr]) -> Entering:
    def entering(node: Node) -> Node:
        return extended(_filtered(source, stream, node), keys)

    return entering


def _filtered(source: EventFilter, stream: BoundStream, node: Node) -> Node:
    for each in source.filters:
        node = Filter(node, bind_condition(each, StreamScope([stream]), "the filter").value)
    return node


def _milliseconds(column: str) -> Bound:
    return Bound(nw.col(column).dt.timestamp("ms"), t.LONG)
