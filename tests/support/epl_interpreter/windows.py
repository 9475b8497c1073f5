"""The data windows: what of a stream each of them holds, and what it tells the next one of what enters and leaves.

A view gets events from before it by `update` and posts what enters and what leaves by `post`. One that stands beside
others may be told to give events back: they come as old ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter.aggregates import Aggregation, aggregate_calls
from tests.support.epl_interpreter.clock import Callback, Clock, Slot
from tests.support.epl_interpreter.values import (
    Event,
    Events,
    Scope,
    Source,
    Surroundings,
    compare_keys,
    evaluate,
    holds,
    key_of,
    parts,
    span_of,
)

Listed = Sequence[Event]

_AT_ONCE, _ONE, _YES = e.Constant(0, "int"), e.Constant(1, "int"), e.Constant(value=True, type="boolean")


class Target(Protocol):
    """What gets what a view posts."""

    def update(self, new: Listed, old: Listed) -> None:
        """What enters and what leaves at once. Neither: an update that is forced, though nothing has changed."""


@dataclass(frozen=True)
class Place:
    """Where views are made: in a stream of a statement.

    Attributes:
        source: The stream.
        around: The statement.
        clock: The clock.
        slot: Gives the next slot for callbacks.
    """

    source: Source
    around: Surroundings
    clock: Clock
    slot: Callable[[], Slot]

    def scope(self, event: Event | None) -> Scope:
        """What expressions of a view are about."""
        return self.scope_of((event,), is_new=True)

    def scope_of(self, events: Events, *, is_new: bool, group: tuple[Any, ...] | None = None, level: int = 0) -> Scope:
        """The same for events of one stream."""
        return Scope((self.source,), events, self.around, is_new, group=group, level=level)

    def value(self, node: Any, event: Event | None = None) -> Any:
        """The value of a parameter, or of an expression of an event."""
        return evaluate(node, self.scope(event))

    def keys(self, nodes: Sequence[Any], event: Event) -> tuple[Any, ...]:
        """The values of key expressions of an event."""
        return tuple(key_of(self.value(node, event)) for node in nodes)


class View:
    """A view, which holds nothing and passes everything on.

    Attributes:
        target: What is behind it.
        posted: The rows of its latest post that were new: a batch window's batch.
    """

    is_batch = False
    """Whether events wait until their batch is complete."""

    is_ordered = False
    """Whether its content has an order that is not that of arrival."""

    refuses = False
    """Whether it does not take every event."""

    is_hashed = False
    """Whether Esper keeps its content in a hash map, so that an iterator has no order."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.target: Target = Nowhere()
        self.posted: list[Event] = []

    def update(self, new: Listed, old: Listed) -> None:
        self.post(new, old)

    def post(self, new: Listed, old: Listed) -> None:
        """Tell what is behind."""
        if new:
            self.posted = list(new)
        self.target.update(list(new), list(old))

    def content(self) -> list[Event]:
        """What an iterator over it gives: of batches the open one."""
        return []

    def variables_changed(self) -> None:
        """The values of variables are others now."""

    def window_of(self, event: Event) -> list[Event]:
        """The events, oldest first or in the window's own order, among which `prev` looks from an event."""
        return self.posted if self.is_batch else self.content()

    @property
    def _now(self) -> int:
        return self.place.clock.now


class Nowhere:
    """Nobody is there."""

    def update(self, new: Listed, old: Listed) -> None:
        pass


def without(held: list[Event], gone: Listed) -> list[Event]:
    """The events of a window that are not among others; equal events are two."""
    return [each for each in held if not any(each is other for other in gone)]


def among(event: Event, others: Listed) -> bool:
    """Whether an event is one of these."""
    return any(event is other for other in others)


class _Held(View):
    """A view that holds a list of events, the first of which came first."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._held: list[Event] = []

    def content(self) -> list[Event]:
        return list(self._held)

    def _give_back(self, old: Listed) -> list[Event]:
        given = [each for each in old if among(each, self._held)]
        self._held = without(self._held, given)
        return given


# Windows that count


class KeepAll(_Held):
    def update(self, new: Listed, old: Listed) -> None:
        self._held += new
        self.post(new, self._give_back(old))


class Length(_Held):
    def __init__(self, place: Place, size: Any) -> None:
        super().__init__(place)
        self._size = place.value(size)

    def update(self, new: Listed, old: Listed) -> None:
        gone = self._give_back(old)
        self._held += new
        while len(self._held) > self._size:
            gone.append(self._held.pop(0))
        self.post(new, gone)


class LastEvent(_Held):
    def update(self, new: Listed, old: Listed) -> None:
        gone: list[Event] = []
        if new:
            gone += [*self._held, *new[:-1]]
            self._held = [new[-1]]
        gone += self._give_back(old)
        self.post(new, gone)


class FirstLength(_Held):
    refuses = True

    def __init__(self, place: Place, size: Any = _ONE) -> None:
        super().__init__(place)
        self._size = place.value(size)

    def update(self, new: Listed, old: Listed) -> None:
        gone = self._give_back(old)
        taken = list(new[: max(0, self._size - len(self._held))])
        self._held += taken
        if taken or gone:
            self.post(taken, gone)


class LengthBatch(_Held):
    is_batch = True

    def __init__(self, place: Place, size: Any) -> None:
        super().__init__(place)
        self._size = place.value(size)
        self._last: list[Event] = []

    def update(self, new: Listed, old: Listed) -> None:
        self._give_back(old)
        self._held += new
        if new and len(self._held) >= self._size:
            batch, self._last, self._held = (self._held, self._last), self._held, []
            self.post(*batch)


# Windows by keys


class Unique(View):
    """Holds the last event of each key. A key keeps its place."""

    is_hashed = True

    def __init__(self, place: Place, *keys: Any) -> None:
        super().__init__(place)
        self._keys = keys
        self._last: dict[tuple[Any, ...], Event] = {}

    def update(self, new: Listed, old: Listed) -> None:
        gone: list[Event] = []
        for event in new:
            key = self.place.keys(self._keys, event)
            if key in self._last:
                gone.append(self._last[key])
            self._last[key] = event
        for event in old:
            key = self.place.keys(self._keys, event)
            if self._last.get(key) is event:
                gone.append(self._last.pop(key))
        self.post(new, gone)

    def content(self) -> list[Event]:
        return list(self._last.values())


class FirstUnique(View):
    refuses = True
    is_hashed = True

    def __init__(self, place: Place, *keys: Any) -> None:
        super().__init__(place)
        self._keys = keys
        self._first: dict[tuple[Any, ...], Event] = {}

    def update(self, new: Listed, old: Listed) -> None:
        taken: list[Event] = []
        gone: list[Event] = []
        for event in new:
            key = self.place.keys(self._keys, event)
            if key not in self._first:
                self._first[key] = event
                taken.append(event)
        for event in old:
            key = self.place.keys(self._keys, event)
            if self._first.get(key) is event:
                gone.append(self._first.pop(key))
        if taken or gone:
            self.post(taken, gone)

    def content(self) -> list[Event]:
        return list(self._first.values())


# Windows with an order


class Sort(View):
    """The best so many. Of equal ones the newest stands first, and so the oldest of the worst leaves."""

    is_ordered = True

    def __init__(self, place: Place, size: Any, *keys: Any) -> None:
        super().__init__(place)
        self._size = place.value(size)
        self._keys = keys
        self._held: list[tuple[tuple[Any, ...], Event]] = []

    def update(self, new: Listed, old: Listed) -> None:
        gone = [event for _, event in self._held if among(event, old)]
        self._held = [pair for pair in self._held if not among(pair[1], gone)]
        for event in new:
            key = compare_keys(self._keys, [self.place.value(node, event) for node in self._keys])
            self._held.insert(0, (key, event))
        self._held.sort(key=lambda pair: pair[0])
        while len(self._held) > self._size:
            gone.append(self._held.pop()[1])
        self.post(new, gone)

    def content(self) -> list[Event]:
        return [event for _, event in self._held]


class Rank(View):
    """The best so many, one of each unique key. Of equal ones the oldest stands first, and leaves first."""

    is_ordered = True

    def __init__(self, place: Place, *arguments: Any) -> None:
        super().__init__(place)
        at = next(at for at, argument in enumerate(arguments) if isinstance(argument, e.Constant))
        self._unique, self._sorted = arguments[:at], arguments[at + 1 :]
        self._size = place.value(arguments[at])
        self._held: list[tuple[tuple[Any, ...], tuple[Any, ...], Event]] = []

    def update(self, new: Listed, old: Listed) -> None:
        gone: list[Event] = []
        for event in old:
            gone += self._drop(self.place.keys(self._unique, event))
        for event in new:
            unique = self.place.keys(self._unique, event)
            rank = compare_keys(self._sorted, [self.place.value(node, event) for node in self._sorted])
            gone += self._drop(unique)
            if len(self._held) >= self._size and self._held[-1][0] < rank:
                gone.append(event)
                continue
            self._held.append((rank, unique, event))
            self._held.sort(key=lambda entry: entry[0])
        while len(self._held) > self._size:
            worst = next(entry for entry in self._held if not entry[0] < self._held[-1][0])
            gone.append(worst[2])
            self._held = [entry for entry in self._held if entry is not worst]
        self.post(new, gone)

    def _drop(self, unique: tuple[Any, ...]) -> list[Event]:
        gone = [entry[2] for entry in self._held if entry[1] == unique]
        self._held = [entry for entry in self._held if entry[1] != unique]
        return gone

    def content(self) -> list[Event]:
        return [event for _, _, event in self._held]


# Windows of the clock


class Time(_Held):
    def __init__(self, place: Place, span: Any) -> None:
        super().__init__(place)
        self._span = span_of(span, place.scope(None))
        self._times: dict[int, int] = {}
        self._slot = place.slot()
        self._callback: Callback | None = None

    def update(self, new: Listed, old: Listed) -> None:
        gone = self._give_back(old)
        if new and not self._held:
            # One that waits for events that another window has dropped since gives way.
            self.place.clock.cancel(self._callback)
            self._callback = self.place.clock.after(self._span.after(self._now) - self._now, self._slot, self._expire)
        self._held += new
        self._times |= {id(event): self._now for event in new}
        self.post(new, gone)

    def _expire(self) -> None:
        until = self._span.before(self._now)
        gone: list[Event] = []
        while self._held and self._times[id(self._held[0])] <= until:
            gone.append(self._held.pop(0))
        if gone:
            self.post([], gone)
        if self._held:
            oldest = self._times[id(self._held[0])]
            self._callback = self.place.clock.after(self._span.after(oldest) - self._now, self._slot, self._expire)


class FirstTime(_Held):
    """What comes within a span from the deployment on."""

    refuses = True

    def __init__(self, place: Place, span: Any) -> None:
        super().__init__(place)
        self._is_closed = False
        length = span_of(span, place.scope(None))
        place.clock.after(length.after(self._now) - self._now, place.slot(), self._close)

    def update(self, new: Listed, old: Listed) -> None:
        gone = self._give_back(old)
        taken = [] if self._is_closed else list(new)
        self._held += taken
        if taken or gone:
            self.post(taken, gone)

    def _close(self) -> None:
        self._is_closed = True


class TimeAccum(_Held):
    """All of it leaves when nothing has come for a span."""

    def __init__(self, place: Place, span: Any) -> None:
        super().__init__(place)
        self._span = span_of(span, place.scope(None))
        self._slot = place.slot()
        self._callback: Callback | None = None

    def update(self, new: Listed, old: Listed) -> None:
        gone = self._give_back(old)
        if new:
            self.place.clock.cancel(self._callback)
            self._callback = self.place.clock.after(self._span.after(self._now) - self._now, self._slot, self._leave)
            self._held += new
        if not self._held:
            self.place.clock.cancel(self._callback)
        if new or gone:
            self.post(new, gone)

    def _leave(self) -> None:
        gone, self._held = self._held, []
        if gone:
            self.post([], gone)


class TimeBatch(_Held):
    """Batches of a grid. After two intervals without events the timer rests until an event comes."""

    is_batch = True

    def __init__(self, place: Place, span: Any, *options: Any) -> None:
        super().__init__(place)
        self._span = span_of(span, place.scope(None))
        given = [place.value(option) for option in options]
        self._flags = flags(given)
        self._reference: int | None = next((each for each in given if isinstance(each, int)), None)
        self._last: list[Event] = []
        self._slot = place.slot()
        self._is_waiting = False
        if "START_EAGER" in self._flags:
            self._reference = self._now
            self._wait()

    def update(self, new: Listed, old: Listed) -> None:
        self._give_back(old)
        if new and not self._held and not self._is_waiting:
            self._wait()
        self._held += new

    def _wait(self) -> None:
        reference = self._now if self._reference is None else self._reference
        end, self._reference = self._span.next_on_grid(self._now, reference)
        self._is_waiting = True
        self.place.clock.after(end - self._now, self._slot, self._complete)

    def _complete(self) -> None:
        self._is_waiting = False
        forced = "FORCE_UPDATE" in self._flags
        if self._held or self._last or forced:
            self.post(self._held, self._last)
            self._wait()
        self._last, self._held = self._held, []


def flags(given: Sequence[Any]) -> set[str]:
    """The words in the texts among parameters."""
    return {word.strip().upper() for text in given if isinstance(text, str) for word in text.split(",")}


class TimeLengthBatch(_Held):
    """A batch is complete when it has so many events, or a span after the first one or after the batch before."""

    is_batch = True

    def __init__(self, place: Place, span: Any, size: Any, *options: Any) -> None:
        super().__init__(place)
        self._span = span_of(span, place.scope(None))
        self._size = place.value(size)
        given = flags([place.value(option) for option in options])
        self._forced = bool(given & {"FORCE_UPDATE", "START_EAGER"})
        self._last: list[Event] = []
        self._slot = place.slot()
        self._callback: Callback | None = None
        if "START_EAGER" in given:
            self._wait()

    def update(self, new: Listed, old: Listed) -> None:
        self._give_back(old)
        if not new:
            return
        if self._callback is None:
            self._wait()
        self._held += new
        if len(self._held) >= self._size:
            self.place.clock.cancel(self._callback)
            self._complete()

    def _wait(self) -> None:
        self._callback = self.place.clock.after(self._span.after(self._now) - self._now, self._slot, self._complete)

    def _complete(self) -> None:
        self._callback = None
        if self._held or self._last or self._forced:
            self.post(self._held, self._last)
            self._wait()
        self._last, self._held = self._held, []


class TimeOrder(View):
    """In the order of stamps; an event leaves when the clock is a span after its stamp."""

    is_ordered = True

    def __init__(self, place: Place, stamp: Any, span: Any = _AT_ONCE) -> None:
        super().__init__(place)
        self._stamp = stamp
        self._span = span_of(span, place.scope(None))
        self._held: list[tuple[int, Event]] = []
        self._slot = place.slot()
        self._callback: Callback | None = None

    def update(self, new: Listed, old: Listed) -> None:
        gone = [event for _, event in self._held if among(event, old)]
        self._held = [pair for pair in self._held if not among(pair[1], gone)]
        oldest = self._held[:1]
        length = self._span.after(self._now) - self._now
        for event in new:
            stamp = self.place.value(self._stamp, event)
            if stamp <= self._now - length:
                gone.append(event)
            else:
                self._held.append((stamp, event))
        self._held.sort(key=lambda pair: pair[0])
        if new and (self._callback is None or self._held[:1] != oldest):
            self._wait(length)
        self.post(new, gone)

    def _wait(self, length: int) -> None:
        """A span of months is as long as it is now."""
        self.place.clock.cancel(self._callback)
        self._callback = None
        if self._held:
            due = self._held[0][0] + length
            self._callback = self.place.clock.after(due - self._now, self._slot, self._expire)

    def _expire(self) -> None:
        self._callback = None
        until = self._span.before(self._now)
        gone = [event for stamp, event in self._held if stamp <= until]
        self._held = [pair for pair in self._held if pair[0] > until]
        if gone:
            self.post([], gone)
        self._wait(self._now - until)

    def content(self) -> list[Event]:
        return [event for _, event in self._held]


class TimeToLive(TimeOrder):
    """An event leaves when the clock comes to its stamp."""


# Windows of stamps


class ExtTimed(_Held):
    """What is not a span before the stamp of the latest arrival.

    Only the oldest arrivals leave: behind one of a later stamp the others wait.
    """

    def __init__(self, place: Place, stamp: Any, span: Any) -> None:
        super().__init__(place)
        self._stamp = stamp
        self._span = span_of(span, place.scope(None))

    def update(self, new: Listed, old: Listed) -> None:
        gone = self._give_back(old)
        self._held += new
        if new:
            until = self._span.before(self.place.value(self._stamp, new[-1]))
            while self._held and self.place.value(self._stamp, self._held[0]) <= until:
                gone.append(self._held.pop(0))
        self.post(new, gone)


class ExtTimedBatch(_Held):
    """Batches of a grid of stamps: an event behind the interval of the oldest one completes the batch before it."""

    is_batch = True

    def __init__(self, place: Place, stamp: Any, span: Any, reference: Any = None) -> None:
        super().__init__(place)
        self._stamp = stamp
        self._span = span_of(span, place.scope(None))
        self._reference: int | None = None if reference is None else place.value(reference)
        self._last: list[Event] = []

    def update(self, new: Listed, old: Listed) -> None:
        gone = self._give_back(old)
        batch: list[Event] = []
        for event in new:
            stamp = self.place.value(self._stamp, event)
            if self._reference is None:
                self._reference = stamp
            if self._held:
                oldest = self.place.value(self._stamp, self._held[0])
                end, self._reference = self._span.next_on_grid(oldest, self._reference)
                if stamp >= end:
                    batch, self._held = batch + self._held, []
            self._held.append(event)
        if batch:
            last, self._last = self._last, batch
            self.post(batch, last)
        if gone:
            self.post([], gone)


# Windows by an expression


class _ByExpression(_Held):
    """Asks its condition as events come, and, by the next advance of the clock, when a variable of it changes."""

    def __init__(self, place: Place, condition: Any) -> None:
        super().__init__(place)
        self._condition = condition
        self._slot = place.slot()
        self._callback: Callback | None = None
        names = {part.name for part in parts(condition) if isinstance(part, e.Name)}
        self._has_variable = bool(names & place.around.variables.keys())
        calls = aggregate_calls(condition)
        self._aggregation = Aggregation(calls, (), place.scope_of)
        self._times: dict[int, int] = {}

    def variables_changed(self) -> None:
        if self._has_variable and self._callback is None:
            self._callback = self.place.clock.after(0, self._slot, self._ask_again)

    def _ask_again(self) -> None:
        self._callback = None
        self._ask()

    def _ask(self) -> None:
        raise NotImplementedError

    def _is_true(self, event: Event | None, oldest: Event, newest: Event, expired: int) -> bool:
        local = {
            "current_count": len(self._held),
            "expired_count": expired,
            "oldest_timestamp": self._times[id(oldest)],
            "newest_timestamp": self._times[id(newest)],
            "oldest_event": oldest,
            "newest_event": newest,
        }
        aggregates = {
            call: self._aggregation.value(call, (), self.place.scope(event)) for call in self._aggregation.calls
        }
        return holds(self._condition, replace(self.place.scope(event), local=local, fixed=aggregates))

    def _enter(self, event: Event) -> None:
        self._held.append(event)
        self._times[id(event)] = self._now
        self._aggregation.enter((event,))

    def _leave(self, events: Listed) -> None:
        for event in events:
            self._aggregation.leave((event,))


class Expr(_ByExpression):
    """The oldest events leave until the condition holds of the oldest one."""

    def update(self, new: Listed, old: Listed) -> None:
        for event in new:
            self._enter(event)
        gone = self._give_back(old)
        self._leave(gone)
        self.post(new, gone + self._expired())

    def _expired(self) -> list[Event]:
        gone: list[Event] = []
        while self._held and not self._is_true(self._held[0], self._held[0], self._held[-1], len(gone)):
            gone.append(self._held.pop(0))
            self._leave(gone[-1:])
        return gone

    def _ask(self) -> None:
        """Asked by itself it posts even if nothing has left."""
        self.post([], self._expired())


class ExprBatch(_ByExpression):
    """A batch is complete when the condition holds of an arrival, with it or before it."""

    is_batch = True

    def __init__(self, place: Place, condition: Any, include: Any = _YES) -> None:
        super().__init__(place, condition)
        self._includes = place.value(include)
        self._last: list[Event] = []

    def update(self, new: Listed, old: Listed) -> None:
        self._leave(self._give_back(old))
        complete: int | None = None
        for event in new:
            self._enter(event)
            if complete is None and self._is_true(event, self._held[0], event, 0):
                complete = len(self._held) if self._includes else len(self._held) - 1
        if complete is not None:
            self._complete(len(self._held) if self._includes else complete)

    def _complete(self, count: int) -> None:
        batch, self._held = self._held[:count], self._held[count:]
        last, self._last = self._last, batch
        self._leave(batch)
        if batch or last:  # else the first event of all was to begin the second batch
            self.post(batch, last)

    def _ask(self) -> None:
        if self._held and self._is_true(None, self._held[0], self._held[-1], 0):
            self._complete(len(self._held))


WINDOWS: dict[str, Callable[..., View]] = {
    "keepall": KeepAll,
    "length": Length,
    "lastevent": LastEvent,
    "firstevent": FirstLength,
    "firstlength": FirstLength,
    "length_batch": LengthBatch,
    "unique": Unique,
    "firstunique": FirstUnique,
    "sort": Sort,
    "rank": Rank,
    "time": Time,
    "firsttime": FirstTime,
    "time_accum": TimeAccum,
    "time_batch": TimeBatch,
    "time_length_batch": TimeLengthBatch,
    "time_order": TimeOrder,
    "timetolive": TimeToLive,
    "ext_timed": ExtTimed,
    "ext_timed_batch": ExtTimedBatch,
    "expr": Expr,
    "expr_batch": ExprBatch,
}
