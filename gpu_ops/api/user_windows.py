"""The verbs of `gpu_ops.Stream` that take a window kind as an object; `gpu_ops.extend` has the base classes."""

from __future__ import annotations

from gpu_ops.api.base import DataWindowed, Stream, Windowed
from gpu_ops.api.row_windows import DataWindowing
from gpu_ops.core.own_errors import of_methods
from gpu_ops.errors import PlanError
from gpu_ops.plan.arguments import Names, OrderBy, names
from gpu_ops.plan.window_kinds import DataWindowKind, GridKind


@of_methods
class OwnWindowing(DataWindowing[Stream, Windowed, DataWindowed]):
    """Verbs of a stream that take a kind of window as an object."""

    def data_window(self, kind: DataWindowKind, *, within: Names = (), order: OrderBy = None) -> DataWindowed:
        """A data window of any kind, as `last` and `session` make theirs (docs/extending_windows.md).

        Args:
            kind: The kind, with its parameters.
            within: Payload columns besides the key: there is a window for each combination of their values.
            order: As in `last`.

        Raises:
            PlanError: It is no kind of data window.
            ColumnError: The kind or ``within`` names an unknown column.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> from gpu_ops.plan.data_windows import Last
            >>> s = g.events(pa.table({"at": [0, 1, 2], "v": [1, 2, 4]}), start="at", unit="s")
            >>> s.data_window(Last(2)).agg(total=g.sum("v")).collect().sort_by("start")["total"].to_pylist()
            [1, 3, 6]
        """
        _check(kind, DataWindowKind, verb="data_window")
        return self._data_window(kind, within=names(within, where="data_window(…, within=…)"), order=order)

    def time_window(self, kind: GridKind) -> Windowed:
        """Windows of any grid, as `hopping` makes its own (docs/extending_windows.md).

        Args:
            kind: The grid, with its parameters. An event is in each window that it overlaps.

        Raises:
            PlanError: It is no kind of grid.
            TimeError: (when data is read) An event never ends.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> from gpu_ops.plan.window_kinds import Hopping
            >>> s = g.events(pa.table({"at": [0, 1, 2], "v": [1, 2, 4]}), start="at", unit="us")
            >>> s.time_window(Hopping(2, 2, align=0)).agg(total=g.sum("v")).collect().sort_by("start")[
            ...     "total"
            ... ].to_pylist()
            [3, 4]
        """
        _check(kind, GridKind, verb="time_window")
        return self._windows(self._node, kind)


def _check(given: object, family: type, *, verb: str) -> None:
    if not isinstance(given, family):
        said = '.last_span("1min")' if family is DataWindowKind else '.tumbling("1min")'
        raise PlanError(
            f"{verb} takes a kind of window, not {type(given).__name__}.",
            remedy=f"Write {said} for a span of time; or derive a class from gpu_ops.extend.{family.__name__} "
            "(docs/extending_windows.md).",
        )
