"""Several views of one stream: for each group its own, windows that hold together, and statistics behind them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from gpu_ops.epl import queries as q
from tests.support.epl_interpreter.clock import Callback, Clock, Slot
from tests.support.epl_interpreter.derived import DERIVED
from tests.support.epl_interpreter.values import Event
from tests.support.epl_interpreter.windows import WINDOWS, Listed, Place, View, among, without


def chain(views: Sequence[q.View], retain: str, place: Place) -> tuple[View, Place]:
    """The views of a stream as one.

    Returns:
        The view, and where expressions of its rows are: behind statistics, rows are not the stream's events any more.
    """
    windows, statistics = list(views), list[q.View]()
    while windows and windows[-1].name in DERIVED:
        statistics.insert(0, windows.pop())
    keys: tuple[Any, ...] | None = None
    shared = SharedClock(place.clock, place.slot)
    outer = place
    if windows and windows[0].name == "groupwin":
        keys = windows.pop(0).arguments
        place = replace(place, clock=shared, slot=shared.slot)
    for view in windows:
        if view.name not in WINDOWS:
            raise NotImplementedError(f"view {view.name}")
    if len(statistics) > 1:
        raise NotImplementedError("statistics of statistics")

    def windowed() -> View:
        return _together([WINDOWS[view.name](place, *view.arguments) for view in windows], retain, place)

    def made() -> View:
        if not statistics:
            return windowed()
        behind = DERIVED[statistics[0].name](place, keys or (), *statistics[0].arguments)
        return behind if not windows else Behind(place, windowed(), behind)

    whole = made() if keys is None else Grouped(outer, keys, made, shared)
    if not statistics:
        return whole, place
    columns = DERIVED[statistics[0].name](place, keys or (), *statistics[0].arguments).columns()
    return whole, replace(place, source=replace(place.source, properties=columns))


def _together(windows: Sequence[View], retain: str, place: Place) -> View:
    if len(windows) == 1:
        return windows[0]
    if not windows:
        return View(place)
    if retain == "union":
        return Union(place, windows)
    if any(window.is_batch for window in windows):
        return BatchIntersection(place, windows)
    return Intersection(place, windows)


class Behind(View):
    """A view behind another one."""

    def __init__(self, place: Place, front: View, back: View) -> None:
        super().__init__(place)
        self._front, self._back = front, back
        front.target = back
        back.target = _Outlet(self.post)

    def update(self, new: Listed, old: Listed) -> None:
        self._front.update(new, old)

    def variables_changed(self) -> None:
        self._front.variables_changed()

    def content(self) -> list[Event]:
        return self._back.content()


class _Outlet:
    """Hands what a view posts to a function."""

    def __init__(self, take: Callable[[Listed, Listed], None]) -> None:
        self._take = take

    def update(self, new: Listed, old: Listed) -> None:
        self._take(new, old)


class SharedClock(Clock):
    """The clock of the windows of groups: what is due for any of them at one move is due for all, at the first to post.

    Esper has callbacks of each group's, and makes deliveries of each that are handed on together. Here it is one
    delivery, as that of a window without groups.
    """

    def __init__(self, clock: Clock, slot: Callable[[], Slot]) -> None:
        self._clock, self._make = clock, slot
        self._own: Slot | None = None
        self._waits: list[tuple[Callback, Callable[[], None]]] = []
        self.whole: Callable[[Sequence[Callable[[], None]]], int] = lambda runs: len([run() for run in runs])

    @property
    def now(self) -> int:  # type: ignore[override]
        return self._clock.now

    def slot(self) -> Slot:
        """The one slot of all of them."""
        self._own = self._own or self._make()
        return self._own

    def after(self, delay: int, slot: Slot, run: Callable[[], None]) -> Callback:
        callback = self._clock.after(delay, slot, lambda: self._come(callback))
        self._waits.append((callback, run))
        return callback

    def cancel(self, callback: Callback | None) -> None:
        self._clock.cancel(callback)
        self._waits = [each for each in self._waits if each[0] is not callback]

    def _come(self, callback: Callback) -> None:
        if not any(each is callback for each, _ in self._waits):
            return  # it has come with an earlier one
        due = sorted((each for each in self._waits if each[0].due <= self.now), key=lambda each: each[0].due)
        self._waits = [each for each in self._waits if each[0].due > self.now]
        count = self.whole([run for _, run in due])
        self._waits += due[count:]


class Grouped(View):
    """`groupwin`: views of its own for each key, which are made as its first event comes."""

    is_hashed = True

    def __init__(self, place: Place, keys: tuple[Any, ...], make: Callable[[], View], clock: SharedClock) -> None:
        super().__init__(place)
        self._keys, self._make = keys, make
        self._groups: dict[tuple[Any, ...], View] = {}
        self._gathered: list[tuple[Listed, Listed]] | None = None
        clock.slot()
        clock.whole = self._together

    def _together(self, runs: Sequence[Callable[[], None]]) -> int:
        """What groups post at one move of the clock, as one; how many have run: one alone, if that posts nothing."""
        self._gathered, count = [], 0
        for run in runs:
            run()
            count += 1
            if not self._gathered:
                break
        gathered, self._gathered = self._gathered, None
        if gathered:
            self.post(*([event for pair in gathered for event in pair[side]] for side in (0, 1)))
        return count

    def _hear(self, new: Listed, old: Listed) -> None:
        if self._gathered is None:
            self.post(new, old)
        else:
            self._gathered.append((new, old))

    def update(self, new: Listed, old: Listed) -> None:
        changes: dict[tuple[Any, ...], tuple[list[Event], list[Event]]] = {}
        for at, events in enumerate((new, old)):
            for event in events:
                changes.setdefault(self.place.keys(self._keys, event), ([], []))[at].append(event)
        for key, (entering, leaving) in changes.items():
            self._group(key).update(entering, leaving)

    def _group(self, key: tuple[Any, ...]) -> View:
        if key not in self._groups:
            made = self._groups[key] = self._make()
            made.target = _Outlet(self._hear)
        return self._groups[key]

    def content(self) -> list[Event]:
        return [event for view in self._groups.values() for event in view.content()]

    def window_of(self, event: Event) -> list[Event]:
        return self._group(self.place.keys(self._keys, event)).window_of(event)

    def variables_changed(self) -> None:
        for view in self._groups.values():
            view.variables_changed()

    def view_of(self, event: Event) -> View:
        """The views of the group of an event."""
        return self._group(self.place.keys(self._keys, event))


class _Several(View):
    """Windows side by side, which all get the same events, and what they post."""

    def __init__(self, place: Place, windows: Sequence[View]) -> None:
        super().__init__(place)
        self._windows = list(windows)
        self._deaf = False
        self._caught: list[tuple[list[Event], list[Event]]] | None = None
        for at, window in enumerate(self._windows):
            window.target = _Outlet(partial(self._hear, at))

    def variables_changed(self) -> None:
        for window in self._windows:
            window.variables_changed()

    def _hear(self, at: int, new: Listed, old: Listed) -> None:
        """A window posts: while an event is handed in, that is kept; else its time has come."""
        if self._deaf:
            return
        if self._caught is not None:
            self._caught[at][0].extend(new)
            self._caught[at][1].extend(old)
            return
        self._by_itself(at, new, old)

    def _by_itself(self, at: int, new: Listed, old: Listed) -> None:
        raise NotImplementedError

    def _tell(self, windows: Sequence[View], new: Listed, old: Listed) -> None:
        """Change windows without heeding what they post."""
        was, self._deaf = self._deaf, True
        for window in windows:
            window.update(new, old)
        self._deaf = was

    def _others(self, at: int) -> list[View]:
        return [window for other, window in enumerate(self._windows) if other != at]

    def _offer(self, windows: Sequence[View], new: Listed) -> list[tuple[list[Event], list[Event]]]:
        """Hand events in, and catch what each window posts."""
        self._caught = [([], []) for _ in self._windows]
        for window in windows:
            window.update(new, [])
        caught, self._caught = self._caught, None
        return caught


def distinct(events: Listed) -> list[Event]:
    """Each event once."""
    found: list[Event] = []
    for event in events:
        if not among(event, found):
            found.append(event)
    return found


class Intersection(_Several):
    """Holds what all windows hold: what one of them drops or refuses, the others give back."""

    def update(self, new: Listed, old: Listed) -> None:
        gone = list(old)
        self._tell(self._windows, [], old)
        refused: list[Event] = []
        if new:
            caught = self._offer(self._windows, new)
            for window, (taken, _) in zip(self._windows, caught, strict=True):
                if window.refuses:
                    refused += without(list(new), taken)
            refused = distinct(refused)
            if refused:
                self._tell(self._windows, [], refused)
            dropped: list[Event] = []
            for at, (_, left) in enumerate(caught):
                if left:
                    self._tell(self._others(at), [], left)
                    dropped += left
            gone += dropped
        gone = distinct(gone)
        # An event that a window refuses and another one drops at once has not been there.
        gone = without(gone, refused)
        taken = without(list(new), refused)
        if taken or gone:
            self.post(taken, gone)

    def _by_itself(self, at: int, new: Listed, old: Listed) -> None:
        if old:
            self._tell(self._others(at), [], old)
            self.post([], old)

    def content(self) -> list[Event]:
        return self._windows[0].content()


class BatchIntersection(_Several):
    """Windows of which one makes batches: it alone posts, and a batch that is posted leaves the other windows."""

    is_batch = True

    def __init__(self, place: Place, windows: Sequence[View]) -> None:
        super().__init__(place, windows)
        batches = [at for at, window in enumerate(windows) if window.is_batch]
        if len(batches) > 1:
            raise NotImplementedError("several batch windows")
        self._batch = batches[0]

    def update(self, new: Listed, old: Listed) -> None:
        if old:
            self._tell(self._windows, [], old)
        others = self._others(self._batch)
        caught = self._offer(others, new)
        removed: list[Event] = []
        refused: list[Event] = []
        for at, (taken, left) in enumerate(caught):
            if left:
                self._tell(self._others(at), [], left)
                removed += left
            if at != self._batch and self._windows[at].refuses:
                refused += without(list(new), taken)
        rest = without(without(list(new), removed), refused)
        if rest:
            self._windows[self._batch].update(rest, [])

    def _by_itself(self, at: int, new: Listed, old: Listed) -> None:
        if at == self._batch:
            self.post(new, old)
            if new:
                self._tell(self._others(at), [], new)
        elif old:
            self._tell(self._others(at), [], old)

    def content(self) -> list[Event]:
        return self._windows[self._batch].content()


class Union(_Several):
    """Holds what any window holds: what one of them drops leaves when the last one drops it."""

    is_hashed = True

    def __init__(self, place: Place, windows: Sequence[View]) -> None:
        super().__init__(place, windows)
        self._held: list[tuple[Event, int]] = []

    def update(self, new: Listed, old: Listed) -> None:
        gone = list(old)
        self._tell(self._windows, [], old)
        self._held = [pair for pair in self._held if not among(pair[0], old)]
        taken: list[Event] = []
        if new:
            self._held += [(event, len(self._windows)) for event in new]
            caught = self._offer(self._windows, new)
            for window, (entered, _) in zip(self._windows, caught, strict=True):
                if window.refuses:
                    self._drop(without(list(new), entered))
            taken = [event for event in new if among(event, self.content())]
            for _, left in caught:
                gone += self._drop(left)
        if taken or gone:
            self.post(taken, gone)

    def _drop(self, events: Listed) -> list[Event]:
        """A window holds these no longer; those that none holds."""
        gone = []
        for event in events:
            for at, (held, count) in enumerate(self._held):
                if held is event:
                    self._held[at] = (held, count - 1)
                    if count == 1:
                        gone.append(event)
                        del self._held[at]
                    break
        return gone

    def _by_itself(self, at: int, new: Listed, old: Listed) -> None:
        gone = self._drop(old)
        if gone:
            self.post([], gone)

    def content(self) -> list[Event]:
        return [event for event, _ in self._held]
