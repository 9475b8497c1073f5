"""When rows are output: at once, or at an output rate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from gpu_ops.epl import queries as q
from tests.support.epl_interpreter.clock import Clock, Slot, Span
from tests.support.epl_interpreter.crontab import Times
from tests.support.epl_interpreter.results import Change, Pair, Plain, Results
from tests.support.epl_interpreter.values import Events


class Deliver(Protocol):
    """What takes rows, even if there are none where it is forced to."""

    def __call__(self, pair: Pair, *, forced: bool) -> None:
        """Deliver them."""


class End(Protocol):
    """What is done at the end of an interval, where output is forced even if there is nothing to output."""

    def __call__(self, *, forced: bool) -> None:
        """It ends."""


Content = Callable[[], list[Events]]
"""What is there now."""


# The conditions of rates


@dataclass
class Setting:
    """What rates are made of.

    Attributes:
        clock: The clock.
        slot: Gives the next slot for callbacks.
        number: The value of an expression that is a number of events.
        span: The value of an expression that is a span of time.
        is_true: Whether a condition holds, given the names that it may use.
        assign: Sets variables, given the names that the values may use.
    """

    clock: Clock
    slot: Callable[[], Slot]
    number: Callable[[Any], int]
    span: Callable[[Any], Span]
    is_true: Callable[[Any, Mapping[str, Any]], bool]
    assign: Callable[[Any, Mapping[str, Any]], None]


class Condition:
    """Says when an interval ends: `end` is called then, and told whether output is due even if nothing is there."""

    def __init__(self, end: End) -> None:
        self.end = end

    def update(self, new: int, old: int) -> None:
        """So many rows have come to the output."""
        raise NotImplementedError

    def variables_changed(self) -> None:
        """The values of variables are others now."""


class EveryEvents(Condition):
    """After so many new ones, or so many old ones."""

    def __init__(self, end: End, setting: Setting, rate: q.EventCount) -> None:
        super().__init__(end)
        self._setting, self._count = setting, rate.count
        self._new = self._old = 0

    def update(self, new: int, old: int) -> None:
        self._new += new
        self._old += old
        rate = self._setting.number(self._count)
        if self._new >= rate or self._old >= rate:
            self._new = self._old = 0
            self.end(forced=False)


class EveryPeriod(Condition):
    """On a grid from the first rows on, for ever."""

    def __init__(self, end: End, setting: Setting, rate: Any) -> None:
        super().__init__(end)
        self._setting, self._period = setting, rate
        self._slot = setting.slot()
        self._reference: int | None = None
        self._is_waiting = False

    def update(self, new: int, old: int) -> None:
        if self._reference is None:
            self._reference = self._setting.clock.now
        if not self._is_waiting:
            self._wait()

    def _wait(self) -> None:
        assert self._reference is not None
        self._is_waiting = True
        clock = self._setting.clock
        due, self._reference = self._setting.span(self._period).next_on_grid(clock.now, self._reference)
        clock.after(due - clock.now, self._slot, self._ends)

    def _ends(self) -> None:
        self._is_waiting = False
        self.end(forced=True)
        self._wait()


class When(Condition):
    """When an expression holds, which is asked as rows come and as variables change."""

    def __init__(self, end: End, setting: Setting, rate: q.OutputWhen) -> None:
        super().__init__(end)
        self._setting, self._rate = setting, rate
        self._slot = setting.slot()
        self._counts = {"count_insert": 0, "count_remove": 0, "count_insert_total": 0, "count_remove_total": 0}
        self._since = setting.clock.now
        self._is_waiting = self._is_assigning = False

    def _known(self) -> dict[str, Any]:
        return {**self._counts, "last_output_timestamp": self._since}

    def update(self, new: int, old: int) -> None:
        for name, count in (("count_insert", new), ("count_remove", old)):
            self._counts[name] += count
            self._counts[f"{name}_total"] += count
        if self._setting.is_true(self._rate.condition, self._known()):
            self._assign()
            self._output()

    def _assign(self) -> None:
        self._is_assigning = True
        self._setting.assign(self._rate.assignments, self._known())
        self._is_assigning = False

    def _due(self) -> None:
        self._is_waiting = False
        self._output()

    def _output(self) -> None:
        """An output at rows leaves the one at the next advance to come, which no variable asks for again until then."""
        self.end(forced=True)
        self._counts |= {"count_insert": 0, "count_remove": 0}
        self._since = self._setting.clock.now

    def variables_changed(self) -> None:
        """Output is not at once, but with the next advance of the clock."""
        if self._is_assigning or self._is_waiting:
            return
        if self._setting.is_true(self._rate.condition, self._known()):
            self._is_waiting = True
            self._setting.clock.after(0, self._slot, self._due)
            self._assign()


class AtTimes(Condition):
    """At the times of a crontab, from the first rows on, for ever."""

    def __init__(self, end: End, setting: Setting, rate: q.Crontab) -> None:
        super().__init__(end)
        self._setting = setting
        self._times = Times(rate, setting.number)
        self._slot = setting.slot()
        self._is_waiting = False

    def update(self, new: int, old: int) -> None:
        if not self._is_waiting:
            self._wait()

    def _wait(self) -> None:
        self._is_waiting = True
        clock = self._setting.clock
        clock.after(self._times.next_after(clock.now) - clock.now, self._slot, self._ends)

    def _ends(self) -> None:
        self.end(forced=True)
        self._wait()


class AtOnce(Condition):
    """Every time."""

    def update(self, new: int, old: int) -> None:
        self.end(forced=False)


class Never(Condition):
    """Not before the instance of a context ends."""

    def update(self, new: int, old: int) -> None:
        pass


class AndAtEnd(Condition):
    """Another condition, and where the instance of a context ends."""

    def __init__(
        self, end: End, setting: Setting, terminated: q.OutputTerminated, make: Callable[[End], Condition]
    ) -> None:
        super().__init__(end)
        self._setting, self._terminated = setting, terminated
        self._new = self._old = 0
        self._other = make(self._output)

    def _output(self, *, forced: bool) -> None:
        self._new = self._old = 0
        self.end(forced=forced)

    def update(self, new: int, old: int) -> None:
        self._new, self._old = self._new + new, self._old + old
        self._other.update(new, old)

    def variables_changed(self) -> None:
        self._other.variables_changed()

    def holds_at_end(self) -> bool:
        """Whether there is output where the instance ends."""
        asked = self._terminated.condition
        return asked is None or self._setting.is_true(asked, {"count_insert": self._new, "count_remove": self._old})


def condition(output: q.Output, end: End, setting: Setting, *, is_first_of_groups: bool) -> Condition:
    """The condition of an output clause."""
    if output.terminated is not None:
        if output.terminated.assignments:
            raise NotImplementedError("output when terminated then set")
        rest = replace(output, terminated=None)

        def other(end: End) -> Condition:
            if rest.rate is None:
                return Never(end)
            return condition(rest, end, setting, is_first_of_groups=is_first_of_groups)

        return AndAtEnd(end, setting, output.terminated, other)
    if is_first_of_groups:
        return AtOnce(end)
    match output.rate:
        case q.EventCount():
            return EveryEvents(end, setting, output.rate)
        case q.OutputWhen():
            return When(end, setting, output.rate)
        case q.Crontab():
            return AtTimes(end, setting, output.rate)
    return EveryPeriod(end, setting, output.rate)


# First ones of groups


class PolledPeriod:
    """A group outputs when its latest output is a span ago."""

    def __init__(self, clock: Clock, span: Span) -> None:
        self._clock, self._span = clock, span
        self._last: int | None = None

    def passes(self, new: int, old: int) -> bool:
        now = self._clock.now
        if self._last is not None and now - self._last < self._span.after(now) - now:
            return False
        self._last = now
        return True


class PolledEvents:
    """A group outputs first, and then after so many new ones or so many old ones."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._new = self._old = 0
        self._is_first = True

    def passes(self, new: int, old: int) -> bool:
        self._new += new
        self._old += old
        if not self._is_first and self._new < self._rate and self._old < self._rate:
            return False
        self._is_first = False
        self._new = self._old = 0
        return True


# What stands between a query and its listeners


class Direct:
    """Every change is output at once. A change of nothing is forced: it is output even if it has no rows."""

    def __init__(self, results: Results, deliver: Deliver) -> None:
        self._results, self._deliver = results, deliver

    def update(self, new: list[Events], old: list[Events]) -> None:
        pair = self._results.pair(self._results.changed(new, old))
        self._deliver(pair, forced=not new and not old)

    def variables_changed(self) -> None:
        pass


class After:
    """Nothing is output before a span from the deployment has passed, or before so many events."""

    def __init__(self, output: q.Output | None, setting: Setting) -> None:
        after = None if output is None else output.after
        self._clock = setting.clock
        self._events = setting.number(after.count) if isinstance(after, q.EventCount) else None
        is_span = after is not None and not isinstance(after, q.EventCount)
        self._time = setting.span(after).after(setting.clock.now) if is_span else None
        self._found = 0
        self._is_over = after is None

    def is_over(self, new: int) -> bool:
        """Whether it has passed, now that so many events have come."""
        if self._is_over:
            return True
        if self._events is not None:
            self._found += new
            self._is_over = self._found > self._events
        elif self._time is not None:
            self._is_over = self._clock.now >= self._time
        return self._is_over


class DirectAfter(Direct):
    """Every change is output at once from a time on."""

    def __init__(self, results: Results, deliver: Deliver, after: After) -> None:
        super().__init__(results, deliver)
        self._after = after

    def update(self, new: list[Events], old: list[Events]) -> None:
        pair = self._results.pair(self._results.changed(new, old))
        if self._after.is_over(len(new)):
            self._deliver(pair, forced=not new and not old)


class _Limited:
    def __init__(self, results: Results, deliver: Deliver, after: After, make: Callable[[End], Condition]) -> None:
        self._results, self._deliver, self._after = results, deliver, after
        self._condition = make(self._end)

    def _end(self, *, forced: bool) -> None:
        raise NotImplementedError

    def variables_changed(self) -> None:
        self._condition.variables_changed()

    def terminate(self) -> None:
        """The instance ends."""
        if not isinstance(self._condition, AndAtEnd) or self._condition.holds_at_end():
            self._end(forced=True)


class Buffered(_Limited):
    """Changes wait for the end of the interval, aggregates too."""

    def __init__(
        self,
        results: Results,
        deliver: Deliver,
        after: After,
        make: Callable[[End], Condition],
        selection: str,
    ) -> None:
        self._changes: list[Change] = []
        self._selection = selection
        super().__init__(results, deliver, after, make)

    def update(self, new: list[Events], old: list[Events]) -> None:
        is_over = self._after.is_over(len(new))
        if is_over or not isinstance(self._results, Plain):
            self._changes.append((new, old))
        if is_over:
            self._condition.update(len(new), len(old))

    def _end(self, *, forced: bool) -> None:
        changes, self._changes = self._changes, []
        if self._selection == "first":
            rows: tuple[list[Any], list[Any]] = ([], [])
            for change in changes:
                made = self._results.first_of(*change)
                rows = (rows[0] + made[0], rows[1] + made[1])
        else:
            word = self._selection or "each"
            for change in changes:
                getattr(self._results, f"take_{word}")(*change)
            rows = getattr(self._results, f"end_{word}")()
        self._deliver(self._results.pair(rows), forced=forced)


class Collected(_Limited):
    """`last` and `all` without an order: aggregates and rows are up to date with each change."""

    def __init__(
        self,
        results: Results,
        deliver: Deliver,
        after: After,
        make: Callable[[End], Condition],
        selection: str,
    ) -> None:
        self._take = getattr(results, f"take_{selection}")
        self._finish = getattr(results, f"end_{selection}")
        super().__init__(results, deliver, after, make)

    def update(self, new: list[Events], old: list[Events]) -> None:
        self._take(new, old)
        if self._after.is_over(len(new)):
            self._condition.update(len(new), len(old))

    def _end(self, *, forced: bool) -> None:
        self._deliver(self._results.pair(self._finish()), forced=forced)


class First(_Limited):
    """The first change with rows is output at once, and then no other one until the interval ends.

    Changes without rows before it do not count as events.
    """

    def __init__(
        self,
        results: Results,
        deliver: Deliver,
        after: After,
        make: Callable[[End], Condition],
        asked: Callable[[Pair], bool],
    ) -> None:
        self._has_output = False
        self._asked = asked
        super().__init__(results, deliver, after, make)

    def update(self, new: list[Events], old: list[Events]) -> None:
        if not self._after.is_over(len(new)):
            return
        self._results.take_each(new, old)
        pair = self._results.pair(self._results.end_each())
        if not self._has_output:
            if not self._asked(pair):
                return
            self._has_output = True
            self._deliver(pair, forced=True)
        self._condition.update(len(new), len(old))

    def _end(self, *, forced: bool) -> None:
        self._has_output = False


class Snapshot(_Limited):
    """What is there at the end of the interval."""

    def __init__(
        self,
        results: Results,
        deliver: Deliver,
        after: After,
        make: Callable[[End], Condition],
        content: Content,
    ) -> None:
        self._content = content
        super().__init__(results, deliver, after, make)

    def update(self, new: list[Events], old: list[Events]) -> None:
        self._results.apply(new, old)
        if self._after.is_over(len(new)):
            self._condition.update(len(new), len(old))

    def _end(self, *, forced: bool) -> None:
        self._deliver((self._results.iterate(self._content()) or None, None), forced=forced)
