"""One stream of a from clause: which events it takes, its views, and what `prev` and `prior` see of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gpu_ops.epl import patterns as p
from gpu_ops.epl import queries as q
from gpu_ops.texts import expressions as e
from tests.support.epl_interpreter.chains import Grouped, chain
from tests.support.epl_interpreter.values import Event, Scope, evaluate, holds
from tests.support.epl_interpreter.windows import Listed, Place, View

Take = Callable[[list[Event], list[Event]], None]
"""What gets what enters and leaves a stream's windows."""


class Stream:
    """A stream.

    Attributes:
        source: What expressions know of it, behind its views.
        view: Its views.
        has_window: Whether anything is held.
    """

    def __init__(self, term: q.StreamTerm, place: Place, take: Take, *, keeps_last: bool = False) -> None:
        if not isinstance(term.source, p.EventFilter):
            raise NotImplementedError("pattern")
        self.type_name = term.source.type_name
        self._filters = term.source.filters
        self._place = place
        self._take = take
        self._arrived: list[Event] = []
        self._keeps_last = keeps_last
        self.has_window = bool(term.views)
        self.view, behind = chain(term.views, term.retain, place)
        self.view.target = self
        self.source = behind.source

    def takes(self, event: Event) -> bool:
        """Whether an event is one of the stream's."""
        return event.type_name == self.type_name and all(
            holds(each, self._place.scope(event)) for each in self._filters
        )

    def arrive(self, event: Event) -> None:
        """An event comes."""
        self.view.update([event], [])

    def update(self, new: Listed, old: Listed) -> None:
        """What enters and what leaves."""
        self._arrived += new
        self._take(list(new), list(old))

    def content(self) -> list[Event]:
        """What an iterator sees."""
        if self.has_window:
            return self.view.content()
        return self._arrived[-1:] if self._keeps_last else []

    def kept(self) -> list[Event]:
        """What a sub-query sees: without a window all that has come."""
        return self.view.content() if self.has_window else list(self._arrived)

    def special(self, call: e.FunctionCall, scope: Scope, at: int) -> tuple[Any] | None:
        """The value of what looks at other events of the stream, which is the one at this place of a row."""
        if call.of is not None:
            return None
        if call.name == "prior":
            return (self._prior(call, scope, at),)
        if call.name in {"prev", "prevtail", "prevcount", "prevwindow"}:
            if not self.has_window:
                raise NotImplementedError(f"{call.name} without a window")
            return (self._previous(call, scope, at),)
        return None

    def _prior(self, call: e.FunctionCall, scope: Scope, at: int) -> Any:
        """So many before this one among all that has come out of the windows, wherever they are now."""
        index, shown = _index_first(call.arguments, 1)
        event = scope.events[at]
        if event is None:
            return None
        places = [place for place, each in enumerate(self._arrived) if each is event]
        place = places[0] - evaluate(index, scope) if places else -1  # an open batch has not come out yet
        return None if place < 0 else evaluate(shown, _with(scope, at, self._arrived[place]))

    def _previous(self, call: e.FunctionCall, scope: Scope, at: int) -> Any:
        """Among what is in the window now, or in the batch that is posted. Rows that leave see nothing."""
        event = scope.events[at]
        if not scope.is_new or event is None:
            return None
        view: View = self.view.view_of(event) if isinstance(self.view, Grouped) else self.view
        held = view.window_of(event)
        newest_first = held if view.is_ordered else held[::-1]
        if call.name == "prevcount":
            return len(held)
        if call.name == "prevwindow":
            return [evaluate(call.arguments[-1], _with(scope, at, each)) for each in newest_first] or None
        index, shown = _index_first(call.arguments, 0 if call.name == "prevtail" else 1)
        place = evaluate(index, scope)
        if place is None:
            return None
        ordered = newest_first[::-1] if call.name == "prevtail" else newest_first
        if view.is_batch and call.name == "prev":
            own = next((own for own, each in enumerate(ordered) if each is event), len(ordered))
            place += own
        return evaluate(shown, _with(scope, at, ordered[place])) if 0 <= place < len(ordered) else None


def _with(scope: Scope, at: int, event: Event) -> Scope:
    return replace(scope, events=tuple(event if place == at else each for place, each in enumerate(scope.events)))


def _index_first(arguments: Sequence[Any], usual: int) -> tuple[Any, Any]:
    """The index and what is shown: a constant is the index wherever it stands."""
    if len(arguments) == 1:
        return e.Constant(usual, "int"), arguments[0]
    first, second = arguments
    return (second, first) if isinstance(second, e.Constant) and not isinstance(first, e.Constant) else (first, second)
