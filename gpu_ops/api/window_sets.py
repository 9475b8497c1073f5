"""The verbs that take data windows together: intersection and union. `gpu_ops.DataWindowed` has them."""

from __future__ import annotations

from gpu_ops.api.base import DataWindowed, Stream, Verbs, Windowed
from gpu_ops.core.own_errors import of_methods
from gpu_ops.errors import PlanError
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.window_sets import SetRule, taken_together


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
        return self._together("all", others, verb="intersect")

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
        return self._together("any", others, verb="unite")

    def _together(self, rule: SetRule, others: tuple[object, ...], *, verb: str) -> DataWindowed:
        windows = [self]
        for each in others:
            if not isinstance(each, Combining):
                raise PlanError(
                    f"{verb} takes data windows, and this is a {type(each).__name__}.",
                    remedy=f'Give one, such as s.last(9).{verb}(s.unique("item")).',
                )
            windows.append(each)
        made = taken_together(rule, [(each._alive, each._names) for each in windows], verb=verb)  # noqa: SLF001
        return self._data_windows(made, self._names)
