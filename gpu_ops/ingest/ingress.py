"""The entrance of time-aware input: arrivals in, events whose lifetime is known out, and how far time has come."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.polars_frames import empty_table, from_frame, to_frame
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE, format_time
from gpu_ops.devices.cpu import columns
from gpu_ops.errors import PlanError, TimeError
from gpu_ops.ingest import arrival_kernel as k
from gpu_ops.ingest import ingress_state as entrance_state
from gpu_ops.ingest.advance import Advance
from gpu_ops.ingest.arrivals import ArrivalKind, Arrivals
from gpu_ops.ingest.ingress_state import FATES, KINDS, State, spelled

if TYPE_CHECKING:
    from gpu_ops.ingest.sources import EventSource

Ints = npt.NDArray[np.int64]

_POLICIES = {"raise": k.RAISE, "drop": k.DROP, "adjust": k.ADJUST, "divert": k.DIVERT}
_NONE = np.empty(0, np.int64)
_NO_KINDS = np.empty(0, np.int8)
_CTI = np.array([ArrivalKind.CTI], np.int8)


@dataclass(frozen=True)
class Diverted:
    """Late events that are kept aside, as they came.

    Attributes:
        start: int64 ticks.
        end: int64 ticks.
        payload: Their payload, then ``cti`` (timestamp[us, UTC]), the CTI that each missed, and ``late_by``
            (duration[us]).
    """

    start: Ints
    end: Ints
    payload: pa.Table


@dataclass(frozen=True)
class Opened:
    """Start edges that are let in before their ends are known.

    Attributes:
        start: int64 ticks.
        payload: A row for each.
    """

    start: Ints
    payload: pa.Table


@dataclass(frozen=True)
class Admitted:
    """What a call lets in.

    Attributes:
        start: int64 ticks of events whose lifetime is known.
        end: int64 ticks.
        payload: A row for each.
        cti: What is promised from here on: no later call lets in an event that starts before. It never goes back, and
            is not above the start of any start edge whose end edge has not come, since that event is let in then.
        ctis: The CTIs of this call, ascending: those that came in and those that were made, held back by nothing.
        late: Rows that were not let in as they came, or None: ``start`` and ``end`` as they came, ``kind`` ("insert",
            "start", "end"), ``payload`` (a struct), ``cti`` and ``late_by`` (null where nothing was missed), ``fate``
            (one of `FATES`).
        diverted: Late events, or None.
        counts: How many rows met each fate in this call.
        opened: Start edges whose end edge has not come, if the entrance hands them out, or None.
        closes: Which of the events were handed out as start edges in an earlier call, or None if none was.
    """

    start: Ints
    end: Ints
    payload: pa.Table
    cti: int
    ctis: Ints
    late: pa.Table | None = None
    diverted: Diverted | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    opened: Opened | None = None
    closes: npt.NDArray[np.bool_] | None = None


class Ingress:
    """Where events come in: it judges what is late, puts in order, joins edges to events, and makes CTIs.

    What it lets in depends on the arrivals and their order, not on how they are cut into calls; only what is promised
    is known earlier in some cuts than in others. Of a call that ends in an error nothing is taken in.

    Args:
        settings: How time advances; None: by the CTIs that come in, and a late row is an error.
        schema: The payload's columns.
        hands_out_open: Whether start edges are handed out as soon as the CTI is past them, and do not hold it back; an
            event whose start edge was handed out comes again, whole, when its end is known.

    Examples:
        >>> entrance = Ingress(Advance(every=2, late="drop"), pa.schema([("v", pa.int64())]))
        >>> start, payload = np.array([4, 7, 5, 9]), pa.table({"v": [1, 2, 3, 4]})
        >>> let_in = entrance.push(Arrivals(start, None, payload))
        >>> let_in.payload["v"].to_pylist(), let_in.ctis.tolist(), let_in.late["start"].cast(pa.int64()).to_pylist()
        ([1, 2, 4], [7, 9], [5])
        >>> entrance.close().cti == MAX_TIME
        True
    """

    def __init__(self, settings: Advance | None, schema: pa.Schema, *, hands_out_open: bool = False) -> None:
        self.settings = settings or Advance()
        self.hands_out_open = hands_out_open
        self.schema = schema
        self._state = State(schema, hands_out_open=hands_out_open)
        self._closed = False
        self._nothing = empty_table(schema)

    @property
    def counts(self) -> Mapping[str, int]:
        """How many rows have met each fate."""
        return dict(self._state.counts)

    @property
    def cti(self) -> int:
        """What is promised, as the last call gave it."""
        return self._state.promised

    @property
    def waiting(self) -> int:
        """How many rows wait for their turn."""
        return int(self._state.clock[k.BUFFERED])

    @property
    def makes_ctis(self) -> bool:
        """Whether rows that come in make CTIs."""
        return self.settings.every is not None or self.settings.period is not None

    @property
    def handed_out(self) -> Ints:
        """The starts of the start edges that were handed out and have not ended, in no order."""
        starts: Ints = self._state.held[self._state.slots(k.IN_EDGES), k.LET_IN]
        out: Ints = starts[(starts != k.NONE) & (starts < self._state.promised)]
        return out

    @property
    def late_schema(self) -> pa.Schema:
        """The columns of `Admitted.late`."""
        return self._late(np.empty((0, k.LATE_FIELDS), np.int64), _Finder(self._nothing, None, self._state)).schema

    def push(self, arrivals: Arrivals) -> Admitted:
        """Let rows come in, in their order.

        Raises:
            TimeError: A row is late and the policy is "raise"; an end edge ends nothing, likewise.
            PlanError: The input was closed before.
        """
        self._check_open()
        state, settings = self._state, self.settings
        made = settings.every is not None or settings.period is not None
        if arrivals.kinds is None and settings.reorder is None and not made:
            # No row's fate depends on another's.
            starts = arrivals.start
            if not len(starts) or starts.min() >= state.clock[k.LIMIT]:
                state.arrived += len(starts)
                return Admitted(starts, _ends(arrivals), arrivals.payload, state.promised, _NONE)
        admitted = self._step(arrivals, k.OPEN_INPUT)
        state.arrived += len(arrivals.start)
        return admitted

    def advance(self, cti: int) -> Admitted:
        """A CTI from outside, or of another stream.

        Args:
            cti: Ticks; one that is not above the last says nothing.

        Raises:
            PlanError: It is no time, or the input was closed before.
        """
        self._check_open()
        if not MIN_TIME <= cti <= MAX_TIME:
            raise PlanError(
                f"The CTI {cti} is no time.", remedy="Give ticks between MIN_TIME and MAX_TIME, which is infinity."
            )
        clock = self._state.clock
        if not clock[k.HELD] and self.settings.reorder is None:
            # Nothing waits for it.
            news = cti > clock[k.LAST]
            if news:
                clock[k.LAST] = cti
                clock[k.LIMIT] = max(int(clock[k.LIMIT]), cti)
                self._state.promise()
            return Admitted(_NONE, _NONE, self._nothing, self._state.promised, np.array([cti]) if news else _NONE)
        # Its payload is never looked at.
        nothing = pa.Table.from_batches([], self.schema)
        return self._step(Arrivals(np.array([cti]), np.array([cti]), nothing, _CTI), k.OPEN_INPUT)

    def close(self) -> Admitted:
        """The end of the input: what waits for its turn goes on, and events without an end edge never end.

        Raises:
            PlanError: The input was closed before.
        """
        self._check_open()
        nothing = Arrivals(_NONE, _NONE, pa.Table.from_batches([], self.schema))
        admitted = self._step(nothing, k.CLOSE_AT_INFINITY if self.settings.final else k.CLOSE_HERE)
        self._closed = True
        return admitted

    def tables(self) -> dict[str, pa.Table]:
        """Its whole state, to be kept or read.

        Returns:
            ``clock`` (one row: the CTIs and the counters), ``buffer`` (rows that wait for their turn), ``open`` (start
            edges that were let in and wait for their end edge) and ``kept_out`` (start edges that were not, which take
            their end edge along). Rows carry ``arrival``, their number, and the payload as a struct.
        """
        return entrance_state.tables(self._state)

    @classmethod
    def restore(
        cls,
        settings: Advance | None,
        schema: pa.Schema,
        tables: Mapping[str, pa.Table],
        *,
        hands_out_open: bool = False,
    ) -> Ingress:
        """An entrance in the state that `tables` gave.

        Raises:
            SourceError: The tables are not such a state, or of another payload.

        Examples:
            >>> schema = pa.schema([("v", pa.int64())])
            >>> entrance = Ingress(None, schema)
            >>> entrance.advance(5).ctis.tolist()
            [5]
            >>> Ingress.restore(None, schema, entrance.tables()).cti
            5
        """
        entrance = cls(settings, schema, hands_out_open=hands_out_open)
        entrance._state = entrance_state.restored(schema, tables, hands_out_open=hands_out_open)
        return entrance

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError("The input has been closed.", remedy="Start anew for more events.")

    def _step(self, arrivals: Arrivals, close: int) -> Admitted:
        settings, state = self.settings, self._state
        kinds = _NO_KINDS if arrivals.kinds is None else arrivals.kinds
        starts, ends = arrivals.start, _ends(arrivals)
        rows = len(starts)
        edges = (
            _NONE
            if arrivals.kinds is None
            else np.flatnonzero((kinds == ArrivalKind.START) | (kinds == ArrivalKind.END))
        )
        hashes = (_NONE, _NONE)
        frame: pl.DataFrame | None = None
        if len(edges):
            ends = np.where(kinds == ArrivalKind.START, MAX_TIME, ends)
            frame = to_frame(arrivals.payload)
            hashes = entrance_state.identities(frame, rows, edges)
        state.make_room(rows if settings.reorder else int(np.count_nonzero(kinds == ArrivalKind.START)))
        numbers = [
            settings.every or 0,
            settings.period or 0,
            settings.delay,
            _POLICIES[settings.late],
            k.ADJUST if settings.late_ends == "adjust" else k.DROP,
            int(settings.snapped),
            -1 if settings.reorder is None else settings.reorder,
            close,
            int(state.hands_out_open),
            state.arrived,
        ]
        clock, before, promised = state.clock, state.clock.copy(), state.promised
        # What the call can give: its own rows, those that wait for their turn, and at infinity all that are open.
        infinite = close != k.OPEN_INPUT or bool(
            (starts[kinds == ArrivalKind.CTI] == MAX_TIME).any() if len(kinds) else 0
        )
        most = rows + int(clock[k.HELD] if infinite else clock[k.BUFFERED])
        out_start, out_end, out_number = (np.empty(most, np.int64) for _ in range(3))
        # An end edge that waited for its turn goes, and the start edge that it ends goes too.
        released = np.empty(most + int(clock[k.BUFFERED]), np.int64)
        ctis = np.empty(most + 1, np.int64)
        late, diverted = np.empty((most, k.LATE_FIELDS), np.int64), np.empty((most, k.DIVERTED_FIELDS), np.int64)
        kept = np.zeros(rows, np.int8)
        k.admit(
            kinds,
            starts,
            ends,
            *hashes,
            np.array(numbers, np.int64),
            clock,
            state.held,
            state.buckets,
            state.buffer,
            state.waiting,
            out_start,
            out_end,
            out_number,
            ctis,
            late,
            diverted,
            released,
            kept,
        )
        if clock[k.FAULT]:
            state.undo(before)
            raise self._fault(clock, arrivals)
        clock[k.CALL] += 1
        events, tail = int(clock[k.EVENTS]), int(clock[k.BEFORE_END])
        start, end, number = out_start[:events], out_end[:events], out_number[:events]
        if tail >= 0:
            # Those that never end lie as their slots happened to: by arrival, it shows nothing of earlier calls.
            order = np.concatenate([np.arange(tail), tail + np.argsort(number[tail:])])
            start, end, number = start[order], end[order], number[order]
        find = _Finder(arrivals.payload, frame, state)
        payload, opened = self._payloads(arrivals, number, find)
        rows_late, counts = None, dict[str, int]()
        if clock[k.LATES]:
            listed = late[: clock[k.LATES]]
            rows_late = self._late(listed, find)
            met = np.bincount(listed[:, k.LATE_FATE])
            counts = {FATES[fate]: int(count) for fate, count in enumerate(met) if count}
            state.counts.update(counts)
        kept_aside = self._diverted(diverted[: clock[k.DIVERTS]], find) if clock[k.DIVERTS] else None
        if clock[k.RELEASED]:
            state.rows.forget(released[: clock[k.RELEASED]])
        if kept.any():
            stay = np.flatnonzero(kept)
            state.rows.hold(stay + state.arrived, columns.take(find.frame, stay))
        state.promise()
        admitted = Admitted(start, end, payload, state.promised, ctis[: clock[k.CTIS]], rows_late, kept_aside, counts)
        if not self.hands_out_open:
            return admitted
        # No event that starts before what was promised is let in, but of those that were handed out.
        closes = start < promised
        return replace(admitted, opened=opened, closes=closes if closes.any() else None)

    def _payloads(self, arrivals: Arrivals, number: Ints, find: _Finder) -> tuple[pa.Table, Opened | None]:
        """The payload of the events that are let in, and the start edges that are handed out."""
        state = self._state
        slots = state.opened()
        edges = state.held[slots, k.NUMBER]
        if arrivals.kinds is None and self.settings.reorder is None and len(number) == len(arrivals.start):
            payload, opened = arrivals.payload, self._payload(edges, find)
        else:
            # They are looked for together, since a search costs as much as many rows do.
            both = self._payload(np.concatenate([number, edges]), find)
            payload, opened = both.slice(0, len(number)), both.slice(len(number))
        return payload, Opened(state.held[slots, k.LET_IN], opened) if len(slots) else None

    def _payload(self, number: Ints, find: _Finder) -> pa.Table:
        return from_frame(find(number), self.schema) if len(number) else self._nothing

    def _late(self, listed: Ints, find: _Finder) -> pa.Table:
        payload = from_frame(find(np.ascontiguousarray(listed[:, k.LATE_NUMBER])), self.schema)
        missed = listed[:, k.LATE_CTI]
        nulls = missed == k.NONE
        return pa.table(
            {
                "start": to_arrow(listed[:, k.LATE_FIRST], TIME_TYPE),
                "end": to_arrow(listed[:, k.LATE_STOP], TIME_TYPE),
                "kind": spelled(KINDS, listed[:, k.LATE_KIND]),
                "payload": entrance_state.as_struct(payload, len(listed)),
                "cti": _with_nulls(missed, nulls, TIME_TYPE),
                "late_by": _with_nulls(listed[:, k.LATE_BY], nulls, pa.duration("us")),
                "fate": spelled(FATES, listed[:, k.LATE_FATE]),
            }
        )

    def _diverted(self, listed: Ints, find: _Finder) -> Diverted:
        tail = int(self._state.clock[k.BEFORE_DIVERTED_END])
        if tail >= 0:
            listed = np.concatenate([listed[:tail], listed[tail + np.argsort(listed[tail:, 2])]])
        start, end, number, missed, late_by = (np.ascontiguousarray(column) for column in listed.T)
        payload = from_frame(find(number), self.schema)
        payload = payload.append_column("cti", to_arrow(missed, TIME_TYPE))
        return Diverted(start, end, payload.append_column("late_by", to_arrow(late_by, pa.duration("us"))))

    def _fault(self, clock: Ints, arrivals: Arrivals) -> TimeError:
        kind = ArrivalKind(clock[k.FAULT_KIND])
        at = int(clock[k.FAULT_NUMBER]) - self._state.arrived
        start, end = (format_time(int(clock[which])) for which in (k.FAULT_FIRST, k.FAULT_STOP))
        if clock[k.FAULT] == k.UNMATCHED_FAULT:
            problem = "The end edge ends an event that has not started: no open start edge has its start and payload"
            remedy = "Send the start edge first, once for each end edge"
        else:
            side = "ends" if kind == ArrivalKind.END else "starts"
            what = {ArrivalKind.INSERT: "event", ArrivalKind.START: "start edge", ArrivalKind.END: "end edge"}[kind]
            problem = f"The {what} {side} before the CTI {format_time(int(clock[k.FAULT_LIMIT]))} that came before it"
            if self.settings.reorder is not None:
                released = format_time(int(clock[k.FAULT_LIMIT]))
                problem = f"Late with reorder=: the {what} {side} before {released}, up to which rows were released"
            remedy = "Let CTIs come later, or be made with a longer delay"
        return TimeError(
            f"{problem}.",
            row=arrivals.source_row(at) if at >= 0 else None,
            values=f"start={start}" + ("" if kind == ArrivalKind.START else f", end={end}"),
            remedy=f'{remedy}; or say what becomes of such rows: .advance_time(…, late="drop"), "adjust" or "divert".',
        )


class _Finder:
    """Payload rows by their arrival's number: of the arrivals at hand, and of those that are held."""

    def __init__(self, payload: pa.Table, frame: pl.DataFrame | None, state: State) -> None:
        self._payload, self._frame, self._state = payload, frame, state

    @property
    def frame(self) -> pl.DataFrame:
        """The arrivals at hand."""
        if self._frame is None:
            self._frame = to_frame(self._payload)
        return self._frame

    def __call__(self, numbers: Ints) -> pl.DataFrame:
        base = self._state.arrived
        if len(numbers) and numbers.min() >= base:
            return columns.take(self.frame, numbers - base)
        return self._state.rows.find(numbers, (base, self.frame))


def let_in(
    source: EventSource, settings: Advance | None, names: Sequence[str], read: Callable[[int], None] | None = None
) -> Iterator[Admitted]:
    """The events of a source in the order of its rows, through an entrance of their own that closes behind them.

    Args:
        source: What is read; it counts what was late.
        settings: How time advances.
        names: The columns that are wanted. Edges are told apart by all their columns, so all are read where they are.
        read: Told how many rows were read, batch by batch.
    """
    wanted = source.schema.names if source.edges else list(names)
    entrance = Ingress(settings, pa.schema([source.schema.field(name) for name in wanted]))
    for batch in source.read(wanted):
        if read is not None:
            read(len(batch.start))
        yield entrance.push(batch)
    yield entrance.close()
    source.count_late(entrance.counts)


def _ends(arrivals: Arrivals) -> Ints:
    return arrivals.start + TICK if arrivals.end is None else arrivals.end


def _with_nulls(values: Ints, nulls: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    data = np.ascontiguousarray(np.where(nulls, 0, values))
    valid = pa.py_buffer(np.packbits(~nulls, bitorder="little")) if nulls.any() else None
    return pa.Array.from_buffers(kind, len(data), [valid, pa.py_buffer(data)])
