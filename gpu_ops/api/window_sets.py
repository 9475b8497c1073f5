"""The verbs that take data windows together: intersection and union. `gpu_ops.DataWindowed` has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import narwhals as nw

from gpu_ops.api.base import DataWindowed, Stream, Verbs, Windowed
from gpu_ops.core.own_errors import of_methods
from gpu_ops.errors import PlanError
from gpu_ops.plan.data_windows import Alive, DataWindow
from gpu_ops.plan.lifetimes import AlterLifetime, Lifetime, SetDuration
from gpu_ops.plan.nodes import Node, Project, extended
from gpu_ops.plan.together import Ends, Part, Together
from gpu_ops.plan.window_kinds import AsPart, DataWindowKind

_TAKEN = (
    "last, batches, last_span, until, first, first_span, keep_all, unique, first_unique, highest, lowest, "
    "time_batches, time_length_batches"
)
_MOST = 30
"""What each window knows of a row is two bits of one number."""


@of_methods
class Combining(Verbs[Stream, Windowed, DataWindowed]):
    """Verbs of a data window that take it together with others over the same stream."""

    _alive: DataWindow
    _names: tuple[str, ...]

    def intersect(self, *others: DataWindowed) -> DataWindowed:
        """What is in this window and in all others: an event leaves when any of them drops it (Esper: intersection).

        What one drops, or does not take, is dropped from the others too, and takes no place there any more. All windows
        see an event first, and then what it put out of each is dropped from the others.

        If one of them makes batches (`batches`, `time_batches`, `time_length_batches`), the others say what gathers: an
        event that they drop before its batch is complete is never in; one that is complete is in until the next, and
        the others forget its events. Where a time at which events leave is the end of a batch too, they leave before.

        Events are taken one by one, group by group, on the host, which costs some microseconds each.

        Args:
            others: Data windows made from the same stream.

        Returns:
            A data window.

        Raises:
            PlanError: A window over another stream; two that make batches, or have different ``order=``; a window of a
                kind that is not taken: `session`, `count_window`, `sample`, `keep_while`, `batches_until`, `last` with
                ``every=`` or ``partial=``, a union.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> ticks = pa.table({"at": [0, 1, 2, 3], "stock": ["a", "b", "b", "c"], "price": [1, 2, 4, 8]})
            >>> s = g.events(ticks, start="at", unit="s")
            >>> three_stocks = s.last(3).intersect(s.unique("stock"))
            >>> three_stocks.agg(total=g.sum("price")).collect().sort_by("start")["total"].to_pylist()
            [1, 3, 5, 13]
        """
        return self._data_windows(*_together("all", (self, *others), verb="intersect"))

    def unite(self, *others: DataWindowed) -> DataWindowed:
        """What is in this window or in any other: an event leaves when all have dropped it (Esper: retain-union).

        Each window is as it is alone. An event is in from when the first lets it in; one that gathers for a batch is
        held by the window that makes them. Events are taken one by one, as by `intersect`.

        Args:
            others: Data windows made from the same stream.

        Returns:
            A data window.

        Raises:
            PlanError: As `intersect`, but several may make batches; one of them by `time_length_batches`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> ticks = pa.table({"at": [0, 1, 2, 3], "stock": ["a", "b", "b", "c"], "price": [1, 2, 4, 8]})
            >>> s = g.events(ticks, start="at", unit="s")
            >>> r = s.last(2).unite(s.unique("stock")).agg(total=g.sum("price"))
            >>> r.collect().sort_by("start")["total"].to_pylist()
            [1, 3, 7, 13]
        """
        return self._data_windows(*_together("any", (self, *others), verb="unite"))


@dataclass(frozen=True)
class _Window:
    """A window as a part: its stream, the columns that it needs beside the payload, what it is, its order."""

    stream: Node
    hidden: Mapping[str, nw.Expr]
    parts: tuple[Part, ...]
    order: tuple[str, ...]


def _together(
    rule: Literal["all", "any"], windows: tuple[Any, ...], *, verb: str
) -> tuple[DataWindow, tuple[str, ...]]:
    for each in windows:
        if not isinstance(each, Combining):
            raise PlanError(
                f"{verb} takes data windows, and this is a {type(each).__name__}.",
                remedy=f'Give one, such as s.last(9).{verb}(s.unique("item")).',
            )
    if len(windows) < 2:
        raise PlanError(f"{verb} has nothing to take.", remedy=f'Give a window: s.last(9).{verb}(s.unique("item")).')
    taken = [_taken(each, rule, at, verb) for at, each in enumerate(windows)]
    stream = taken[0].stream
    if any(each.stream.identity != stream.identity for each in taken):
        raise PlanError(
            f"{verb} takes windows over one stream, and these are over different ones.",
            remedy=f'Name the stream, and make all of it: by = bids.by("item"); by.last(9).{verb}(by.unique("price")).',
        )
    parts = tuple(part for each in taken for part in each.parts)
    if len(parts) > _MOST:
        raise PlanError(f"{verb} of {len(parts)} windows.", remedy=f"Take at most {_MOST}.")
    roles = [(part, _role(part.window, verb)) for part in parts]
    batches = [part for part, role in roles if (role.timer if rule == "any" else role.batches)]
    if len(batches) > 1:
        raise PlanError(
            f"Two windows make batches: {batches[0]} and {batches[1]}.",
            remedy="Take one of them.",
        )
    orders = {each.order for each in taken if each.order}
    if len(orders) > 1:
        raise PlanError(
            f"{verb} of windows with different order=.",
            remedy="Events come in one order: give order= to one window, or the same columns to all.",
        )
    hidden = {name: expression for each in taken for name, expression in each.hidden.items()}
    below = extended(stream, (expression.alias(name) for name, expression in hidden.items()))
    return DataWindow(below, Together(rule, parts), (), next(iter(orders), ())), tuple(stream.schema.names)


def _taken(window: Combining[Any, Any, Any], rule: str, at: int, verb: str) -> _Window:
    """A window as the ``at``-th part, with the columns that it needs beside the payload under names of their own."""
    alive, names = window._alive, window._names  # noqa: SLF001  (its own kind)
    below, kind, order = alive.input, alive.window, alive.order
    if isinstance(kind, Alive):  # the verbs make it, over a change of lifetimes; another kind may be over anything
        assert isinstance(below, Lifetime)  # noqa: S101  (that is how last_span and until are made)
        ends, hidden = _ends(below.change, f"__{at}_until")
        return _Window(below.input, hidden, (Part(ends),), order)
    parts = kind.parts if isinstance(kind, Together) else (Part(kind, alive.within),)
    if isinstance(kind, Together) and kind.rule != rule:
        other = "an intersection" if kind.rule == "all" else "a union"
        raise PlanError(
            f"{verb} takes no window that is {other} itself.",
            remedy="Write its events as a stream, .rows(), or take all windows by one verb.",
        )
    for part in parts:
        _role(part.window, verb)
    if below.schema.names == list(names):
        return _Window(below, {}, parts, order)
    assert isinstance(below, Project)  # noqa: S101  (that is where the verbs put what they need beside the payload)
    made = dict(zip(below.schema.names[len(names) :], below.expressions, strict=True))
    renamed = {name: f"__{at}{name}" for name in made}
    return _Window(
        below.input,
        {renamed[name]: expression for name, expression in made.items()},
        tuple(replace(part, window=part.window.renamed(renamed)) for part in parts),
        tuple(renamed.get(name, name) for name in order),
    )


def _ends(change: Any, name: str) -> tuple[Ends, dict[str, nw.Expr]]:
    if isinstance(change, SetDuration):
        return Ends(span=change.duration), {}
    assert isinstance(change, AlterLifetime) and change.end is not None  # noqa: S101, PT018
    return Ends(column=name), {name: change.end.cast(nw.Datetime("us", "UTC"))}


def _role(window: DataWindowKind | Ends, verb: str) -> AsPart:
    if window.as_part is None:
        raise PlanError(f"{verb} does not take this window: {window}.", remedy=f"It takes {_TAKEN}.")
    return window.as_part
