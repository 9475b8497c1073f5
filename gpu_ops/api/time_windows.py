"""The verbs of windows over stretches of time. `gpu_ops.Stream` has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_ops.api.base import DataWindowed, Stream, Verbs, Windowed
from gpu_ops.core.arguments import word
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import MIN_TIME, Duration, Instant, instant, positive_ticks
from gpu_ops.errors import PlanError
from gpu_ops.plan.calendars import Calendar, calendar_span, local_time
from gpu_ops.plan.fills import FillValue, fill_values
from gpu_ops.plan.lifetimes import Lifetime, SetDuration
from gpu_ops.plan.window_kinds import Hopping, MembershipRule, WindowOutput
from gpu_ops.plan.windows import Snapshot


@of_methods
class Windowing(Verbs[Stream, Windowed, DataWindowed]):
    """Verbs of a stream that make windows over stretches of time."""

    def snapshot(self) -> Windowed:
        """Windows between neighbouring end points of lifetimes: the answer at every instant it changes (StreamInsight).

        Stretches without events give nothing. Results are clipped to their window.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> rides = g.events(pa.table({"a": [0, 60], "b": [120, 90], "zone": [1, 2]}), start="a", end="b", unit="s")
            >>> rides.snapshot().agg(n=g.count()).collect()["n"].to_pylist()
            [1, 2, 1]
        """
        return self._windows(self._node, Snapshot())

    def sliding(self, duration: Duration) -> Windowed:
        """At every instant of change, the events that started within the last ``duration``.

        It is ``set_duration(duration).snapshot()``; for intervals that keep their own length, use
        ``extend(duration).snapshot()``.

        Args:
            duration: A positive span.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 60], "v": [1, 2]}), start="at", unit="s")
            >>> s.sliding("3min").agg(m=g.mean("v")).collect()["m"].to_pylist()
            [1.0, 1.5, 2.0]
        """
        length = positive_ticks(duration, name="duration")
        return self._windows(Lifetime(self._node, SetDuration(length)), Snapshot())

    def hopping(
        self,
        size: Duration,
        every: Duration,
        *,
        align: Instant | None = None,
        membership: MembershipRule = "overlap",
        output: WindowOutput | None = None,
        until: Instant | None = None,
        zone: str | None = None,
        fill: FillValue | Mapping[str, FillValue] | None = None,
        span: tuple[Instant, Instant] | None = None,
    ) -> Windowed:
        """Windows ``[align + k * every, + size)``, each with every event that overlaps it (StreamInsight).

        Windows without events give nothing, unless ``fill`` says what.

        Args:
            size: How long a window is.
            every: From the start of one window to the next.
            align: A point of the grid; 0001-01-01T00:00Z, a Monday, when left out.
            membership: ``"overlap"``; or ``"start"``, Trill's repetitive hopping: at each grid point T, the events that
                started in ``(T - size, T]``.
            output: A result's lifetime: ``"window"`` the window, ``"point"`` one tick at its end, ``"hop"`` from the
                grid point to the next. Left out: ``"window"``, and ``"hop"`` with ``membership="start"``.
            until: Lifetimes are clipped there before windows are assigned; needed where events never end. An event that
                starts there or later is in none. What aggregates know of lifetimes ends there; windows stay whole.
            zone: Spans are of the calendar, as that zone's clocks show it: whole days, weeks, months, quarters or years
                (``"1d"``, ``"2w"``, ``"1mo"``, ``"1q"``, ``"1y"``). A day of a clock change has 23 or 25 hours there. A
                window that would start at a time that clocks skip starts when they go on; at one that comes twice, the
                first time. Membership is by overlap, and the output the window or a point.
            fill: What `agg` gives for windows without events: ``"null"``, ``"zero"``, or ``"last"`` for what the
                group's last window with events gave; or one of these by the aggregate's name (the others are null).
                Each group has its rows from its first window to its last.
            span: From when to when instead: every group with any window, or the whole stream where it has no key, has a
                row for each window that overlaps ``[start, end)``, and beyond it those with events.

        Raises:
            PlanError: A span is not positive, or none of the calendar; an option or a zone is unknown.
            TimeError: (when data is read) An event never ends and ``until`` is not given.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [3], "v": [7]}), start="at", unit="s")
            >>> r = s.hopping(size="10s", every="5s").agg(total=g.sum("v")).collect()
            >>> [str(t)[11:19] for t in r["start"]], r["total"].to_pylist()
            (['23:59:55', '00:00:00'], [7, 7])
            >>> months = s.hopping("1mo", "1mo", zone="Europe/Vienna").agg(n=g.count()).collect()
            >>> str(months["start"][0]), str(months["end"][0])  # Vienna was an hour ahead
            ('1969-12-31 23:00:00+00:00', '1970-01-31 23:00:00+00:00')
            >>> gaps = g.events(pa.table({"at": [0, 180]}), start="at", unit="s")
            >>> gaps.hopping("1min", "1min", fill="zero").agg(n=g.count()).collect().sort_by("start")["n"].to_pylist()
            [1, 0, 0, 1]
        """
        if span is not None and fill is None:
            raise PlanError("A span is given, and nothing to fill it with.", remedy='Say fill="null", for instance.')
        filling = None if fill is None else (fill_values(fill), None if span is None else _span(span))
        word(membership, ["overlap", "start"], name="membership")
        shape: WindowOutput = "window" if membership == "overlap" else "hop"
        if output is not None:
            word(output, ["window", "point", "hop"], name="output")
            shape = output
        if zone is not None:
            return self._windows(self._node, _calendar(size, every, zone, align, membership, shape, until), filling)
        return self._windows(
            self._node,
            Hopping(
                positive_ticks(size, name="size"),
                positive_ticks(every, name="every"),
                aligned(align),
                membership,
                shape,
                None if until is None else instant(until, name="until"),
            ),
            filling,
        )

    def tumbling(
        self,
        size: Duration,
        *,
        align: Instant | None = None,
        membership: MembershipRule = "overlap",
        output: WindowOutput | None = None,
        until: Instant | None = None,
        zone: str | None = None,
        fill: FillValue | Mapping[str, FillValue] | None = None,
        span: tuple[Instant, Instant] | None = None,
    ) -> Windowed:
        """Hopping windows whose hop is their size: they lie side by side.

        Args:
            size: How long a window is.
            align: As in `hopping`.
            membership: As in `hopping`.
            output: As in `hopping`.
            until: As in `hopping`.
            zone: As in `hopping`.
            fill: As in `hopping`.
            span: As in `hopping`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(pa.table({"at": [0, 59, 60], "v": [1, 2, 3]}), start="at", unit="s")
            >>> s.tumbling("1min").agg(total=g.sum("v")).collect()["total"].to_pylist()
            [3, 3]
        """
        options: dict[str, Any] = {"align": align, "membership": membership, "output": output, "until": until}
        return self.hopping(size, size, **options, zone=zone, fill=fill, span=span)


def aligned(align: Instant | None) -> int:
    """A point of a grid in ticks; 0001-01-01T00:00Z when left out."""
    return MIN_TIME if align is None else instant(align, name="align")


def _calendar(
    size: Duration,
    every: Duration,
    zone: str,
    align: Instant | None,
    membership: MembershipRule,
    output: WindowOutput,
    until: Instant | None,
) -> Calendar:
    if membership != "overlap" or output == "hop":
        raise PlanError(
            "Windows of the calendar hold what overlaps them.", remedy='Leave out membership="start" and output="hop".'
        )
    span, hop = calendar_span(size, name="size"), calendar_span(every, name="every")
    return Calendar(
        span,
        hop,
        zone,
        MIN_TIME if align is None else local_time(zone, instant(align, name="align"), hop),
        output,
        None if until is None else instant(until, name="until"),
    )


def _span(span: Any) -> tuple[int, int]:
    if not isinstance(span, tuple | list) or len(span) != 2:
        raise PlanError(f"span is {span!r}.", remedy="Give its start and its end: span=(start, end).")
    start, end = (instant(each, name="span") for each in span)
    if end <= start:
        raise PlanError("The span to fill is empty.", remedy="Its end comes after its start.")
    return start, end
