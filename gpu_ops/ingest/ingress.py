"""The ingress of a running input: arrivals in; events with known lifetimes and CTIs out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.polars_frames import empty_table, from_frame, to_frame
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK, TIME_TYPE, format_time
from gpu_ops.devices.cpu import frames
from gpu_ops.errors import PlanError, TimeError, shown
from gpu_ops.ingest import arrival_kernel as k
from gpu_ops.ingest import ingress_state
from gpu_ops.ingest.advance import Advance
from gpu_ops.ingest.arrival_kernel import Aside, ClockField, LateField, PartField, Place, Policy, Setting, Slot
from gpu_ops.ingest.arrivals import ArrivalKind, Arrivals
from gpu_ops.ingest.ingress_state import FATES, KINDS, State, as_struct, identities, spelled, with_nulls

if TYPE_CHECKING:
    from gpu_ops.ingest.sources import EventSource

Ints = npt.NDArray[np.int64]

_NONE = np.empty(0, np.int64)
_NO_KINDS = np.empty(0, np.int8)
_CTI = np.array([ArrivalKind.CTI], np.int8)


@dataclass(frozen=True)
class Diverted:
    """Late events kept aside, as they came.

    Attributes:
        start: int64 ticks.
        end: int64 ticks.
        payload: Their payload, then ``cti`` (timestamp[us, UTC]), the CTI that each event missed, and ``late_by``
            (duration[us]).
    """

    start: Ints
    end: Ints
    payload: pa.Table


@dataclass(frozen=True)
class Opened:
    """Start edges that are handed out before their ends are known.

    Attributes:
        start: int64 ticks.
        payload: A row for each.
    """

    start: Ints
    payload: pa.Table


@dataclass(frozen=True)
class Admitted:
    """What a call admits.

    Attributes:
        start: int64 ticks of events whose lifetime is known.
        end: int64 ticks.
        payload: A row for each.
        cti: The output CTI: no later call admits an event that starts before it. It never goes back. Open start edges
            hold it at the oldest of their starts, since their events are admitted when they end.
        ctis: The imported and generated CTIs of this call, ascending; open start edges do not hold them back.
        late: Rows that were not admitted as they came, or None: ``start`` and ``end`` as they came, ``kind`` ("insert",
            "start", "end"), ``payload`` (a struct), ``cti`` and ``late_by`` (null if the row missed no CTI), ``fate``
            (one of `FATES`).
        diverted: Late events kept aside, or None.
        counts: The number of rows by fate in this call.
        opened: Open start edges that this call hands out, or None.
        closes: Which events were handed out as start edges by an earlier call; None if none was.
        partitions: The CTIs of single partitions in this call, in their order: the partition's columns, then ``cti``;
            None if partitions have no clocks of their own. ``ctis`` are then the low watermarks.
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
    partitions: pa.Table | None = None


class Ingress:
    """The ingress of an input: it handles late rows, reorders rows, joins edges to events, and generates CTIs.

    The admitted events depend on the arrivals and their order, not on how they are cut into calls; only the output CTI
    may come earlier in some cuts than in others. A call that fails takes in nothing.

    Args:
        settings: How time advances; None: only imported CTIs count, and a late row is an error.
        schema: The payload's columns.
        hands_out_open: Whether start edges are handed out as soon as the CTI has passed them, and do not hold back the
            output CTI. Such an event comes again, whole, when its end is known.

    Examples:
        >>> ingress = Ingress(Advance(every=2, late="drop"), pa.schema([("v", pa.int64())]))
        >>> start, payload = np.array([4, 7, 5, 9]), pa.table({"v": [1, 2, 3, 4]})
        >>> let_in = ingress.push(Arrivals(start, None, payload))
        >>> let_in.payload["v"].to_pylist(), let_in.ctis.tolist(), let_in.late["start"].cast(pa.int64()).to_pylist()
        ([1, 2, 4], [7, 9], [5])
        >>> ingress.close().cti == MAX_TIME
        True
    """

    def __init__(self, settings: Advance | None, schema: pa.Schema, *, hands_out_open: bool = False) -> None:
        self.settings = settings or Advance()
        self.hands_out_open = hands_out_open
        self.schema = schema
        self._state = State(schema, self.settings.per, hands_out_open=hands_out_open)
        self._closed = False
        self._nothing = empty_table(schema)
        self._numbers = _numbers(self.settings, hands_out_open=hands_out_open)

    @property
    def counts(self) -> Mapping[str, int]:
        """The number of rows by fate."""
        return dict(self._state.counts)

    @property
    def cti(self) -> int:
        """The output CTI after the last call."""
        return self._state.promised

    @property
    def waiting(self) -> int:
        """The number of rows in the reorder buffer."""
        return int(self._state.clock[ClockField.BUFFERED])

    @property
    def makes_ctis(self) -> bool:
        """Whether rows generate CTIs for all that comes in."""
        own = self.settings.every is not None or self.settings.period is not None
        return self.settings.low_watermark is not None if self.settings.per else own

    @property
    def handed_out(self) -> Ints:
        """The starts of open start edges that were handed out, in no order."""
        starts: Ints = self._state.held[self._state.slots(Place.OPEN), Slot.ADMITTED]
        out: Ints = starts[(starts != k.NONE) & (starts < self._state.promised)]
        return out

    @property
    def late_schema(self) -> pa.Schema:
        """The columns of `Admitted.late`."""
        return self._late(np.empty((0, len(LateField)), np.int64), _Finder(self._nothing, None, self._state)).schema

    def push(self, arrivals: Arrivals) -> Admitted:
        """Take rows in, in their order.

        Raises:
            TimeError: The policy is "raise", and a row is late or an end edge has no open start edge.
            PlanError: The input was closed before.
        """
        self._check_open()
        state, settings = self._state, self.settings
        if arrivals.kinds is None and settings.reorder is None and not self.makes_ctis and not settings.per:
            # No row's fate depends on another's.
            starts = arrivals.start
            least = MAX_TIME if not len(starts) else starts.min() if arrivals.extent is None else arrivals.extent.first
            if least >= state.clock[ClockField.LIMIT]:
                state.arrived += len(starts)
                return Admitted(starts, _ends(arrivals), arrivals.payload, state.promised, _NONE)
        admitted = self._step(arrivals, k.OPEN_INPUT)
        state.arrived += len(arrivals.start)
        return admitted

    def advance(self, cti: int, partition: Mapping[str, Any] | None = None) -> Admitted:
        """Import a CTI.

        Args:
            cti: Ticks. A CTI at or below the previous one is ignored.
            partition: The values of the columns of ``per=``: the CTI is that partition's. Without them it is one of
                all; with ``per=`` it is a low watermark.

        Raises:
            PlanError: The CTI is no time, the partition is none, or the input was closed before.
        """
        self._check_open()
        if not MIN_TIME <= cti <= MAX_TIME:
            raise PlanError(
                f"The CTI {cti} is no time.", remedy="Give ticks between MIN_TIME and MAX_TIME, which is infinity."
            )
        if partition is not None:
            return self._step(Arrivals(np.array([cti]), np.array([cti]), self._named(partition), _CTI), k.OPEN_INPUT)
        clock = self._state.clock
        if not clock[ClockField.HELD] and self.settings.reorder is None:
            # No row waits for the CTI.
            news = cti > clock[ClockField.LAST]
            if news:
                clock[ClockField.LAST] = cti
                clock[ClockField.LIMIT] = max(int(clock[ClockField.LIMIT]), cti)
                self._state.promise()
            return Admitted(_NONE, _NONE, self._nothing, self._state.promised, np.array([cti]) if news else _NONE)
        # Its payload is never looked at, but for the partition: that of a low watermark is null.
        nothing = pa.table({each.name: pa.nulls(1, each.type) for each in self.schema if self.settings.per})
        return self._step(Arrivals(np.array([cti]), np.array([cti]), nothing, _CTI), k.OPEN_INPUT)

    def _named(self, partition: Mapping[str, Any]) -> pa.Table:
        """A row that names a partition and is null else."""
        per = self.settings.per
        if set(partition) != set(per) or all(value is None for value in partition.values()):
            raise PlanError(
                f"The CTI names the partition {shown(dict(partition))}, and partitions are told apart by "
                f"{', '.join(per) or 'nothing'}.",
                remedy="Name the values of these columns; say none for a low watermark."
                if per
                else 'Give partitions clocks of their own: .advance_time(…, per="device").',
            )
        columns = {}
        for each in self.schema:
            value = [partition.get(each.name)]
            try:
                columns[each.name] = pa.array(value, each.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError) as error:
                raise PlanError(
                    f"{shown(value[0])} is no value of the column {each.name!r}, which is {each.type}.",
                    remedy="Name a partition by a value of that type.",
                ) from error
        return pa.table(columns)

    def close(self) -> Admitted:
        """End the input: buffered rows are released, and events without an end edge never end.

        Raises:
            PlanError: The input was closed before.
        """
        self._check_open()
        nothing = Arrivals(_NONE, _NONE, pa.Table.from_batches([], self.schema))
        admitted = self._step(nothing, k.CLOSE_AT_INFINITY if self.settings.final else k.CLOSE_HERE)
        self._closed = True
        return admitted

    def tables(self) -> dict[str, pa.Table]:
        """The whole state, as tables.

        Returns:
            ``clock`` (one row: the CTIs and the counters), ``buffer`` (rows in the reorder buffer), ``open`` (admitted
            start edges without their end edge), with ``per=`` ``partitions`` (the clock of each; the CTI of ``clock``
            is then the low watermark), and ``kept_out`` (open start edges that were dropped or diverted; their
            end edges share that fate). Rows carry ``arrival``, their number, and the payload as a struct.
        """
        return ingress_state.tables(self._state)

    @classmethod
    def restore(
        cls,
        settings: Advance | None,
        schema: pa.Schema,
        tables: Mapping[str, pa.Table],
        *,
        hands_out_open: bool = False,
    ) -> Ingress:
        """An ingress in the state that `tables` gave.

        Raises:
            SourceError: The tables are no state of an ingress, or have another payload.

        Examples:
            >>> schema = pa.schema([("v", pa.int64())])
            >>> ingress = Ingress(None, schema)
            >>> ingress.advance(5).ctis.tolist()
            [5]
            >>> Ingress.restore(None, schema, ingress.tables()).cti
            5
        """
        ingress = cls(settings, schema, hands_out_open=hands_out_open)
        per = ingress.settings.per
        ingress._state = ingress_state.restored(schema, per, tables, hands_out_open=hands_out_open)
        return ingress

    def _check_open(self) -> None:
        if self._closed:
            raise PlanError("The input has been closed.", remedy="Start anew for more events.")

    def _step(self, arrivals: Arrivals, close: int) -> Admitted:
        """Step the state over arrivals. A fault takes in nothing."""
        state, clock = self._state, self._state.clock
        given, frame = _given(arrivals, self.settings.per)
        state.make_room(
            len(given.starts) if self.settings.reorder else int(np.count_nonzero(given.kinds == ArrivalKind.START))
        )
        if self.settings.per:
            turns = len(given.starts) + int(clock[ClockField.BUFFERED])
            state.make_room_for_parts(partial(_count, given), len(given.starts), turns)
        out = _room(given, clock, to_infinity=close != k.OPEN_INPUT or _reaches_infinity(given))
        before, promised = clock.copy(), state.promised
        numbers = self._numbers.copy()
        numbers[Setting.CLOSE], numbers[Setting.BASE] = close, state.arrived
        arguments = (*given, numbers, clock, state.held, state.buckets, state.waiting)
        k.admit(*arguments, state.parts, state.part_buckets, state.journal, *out)
        if clock[ClockField.FAULT]:
            state.undo(before)
            raise self._fault(clock, arrivals)
        clock[ClockField.CALL] += 1
        find = _Finder(arrivals.payload, frame, state)
        start, end, number = _events(out, clock)
        payload, opened = self._payloads(arrivals, number, find)
        late, counts = None, dict[str, int]()
        if clock[ClockField.LATES]:
            listed = out.late[: clock[ClockField.LATES]]
            late = self._late(listed, find)
            met = np.bincount(listed[:, LateField.FATE])
            counts = {FATES[fate]: int(count) for fate, count in enumerate(met) if count}
            state.counts.update(counts)
        diverted = (
            self._diverted(out.diverted[: clock[ClockField.DIVERTS]], find) if clock[ClockField.DIVERTS] else None
        )
        self._keep(out, find)
        state.promise()
        ctis, partitions = out.ctis[: clock[ClockField.CTIS]], None
        if self.settings.per:
            self._meet(int(before[ClockField.PARTS]), find)
            of = out.cti_parts[: len(ctis)]
            partitions, ctis = self._of_partitions(of[of >= 0], ctis[of >= 0]), ctis[of < 0]
        admitted = Admitted(start, end, payload, state.promised, ctis, late, diverted, counts, partitions=partitions)
        if not self.hands_out_open:
            return admitted
        # An event that starts before the earlier promise was handed out as a start edge: no other may start there.
        closes = start < promised
        return replace(admitted, opened=opened, closes=closes if closes.any() else None)

    def _keep(self, out: k.Out, find: _Finder) -> None:
        """Forget the payloads of rows that are held no longer, and keep those of arrivals that now wait."""
        state = self._state
        if state.clock[ClockField.RELEASED]:
            state.rows.forget(out.released[: state.clock[ClockField.RELEASED]])
        if out.kept.any():
            stay = np.flatnonzero(out.kept)
            state.rows.hold(stay + state.arrived, frames.rows_at(find.frame, stay))

    def _meet(self, known: int, find: _Finder) -> None:
        """Keep the names of partitions that are new."""
        state = self._state
        count = int(state.clock[ClockField.PARTS])
        if count > known:
            seen = np.ascontiguousarray(state.parts[known:count, PartField.SEEN])
            state.owners.hold(np.arange(known, count), frames.rows_at(find.frame.select(self.settings.per), seen))

    def _of_partitions(self, parts: Ints, ctis: Ints) -> pa.Table:
        state = self._state
        named, at = np.unique(parts, return_inverse=True)
        names = from_frame(frames.rows_at(state.owners.find(named), at), state.keys)
        return names.append_column("cti", to_arrow(ctis, TIME_TYPE))

    def _payloads(self, arrivals: Arrivals, number: Ints, find: _Finder) -> tuple[pa.Table, Opened | None]:
        """The payload of the admitted events, and the start edges that are handed out."""
        state = self._state
        slots = state.opened()
        edges = state.held[slots, Slot.NUMBER]
        if arrivals.kinds is None and self.settings.reorder is None and len(number) == len(arrivals.start):
            payload, opened = arrivals.payload, self._payload(edges, find)
        else:
            # One search for both: a search costs as much as many rows.
            both = self._payload(np.concatenate([number, edges]), find)
            payload, opened = both.slice(0, len(number)), both.slice(len(number))
        return payload, Opened(state.held[slots, Slot.ADMITTED], opened) if len(slots) else None

    def _payload(self, number: Ints, find: _Finder) -> pa.Table:
        return from_frame(find(number), self.schema) if len(number) else self._nothing

    def _late(self, listed: Ints, find: _Finder) -> pa.Table:
        payload = from_frame(find(np.ascontiguousarray(listed[:, LateField.NUMBER])), self.schema)
        missed = listed[:, LateField.CTI]
        nulls = missed == k.NONE
        return pa.table(
            {
                "start": to_arrow(listed[:, LateField.START], TIME_TYPE),
                "end": to_arrow(listed[:, LateField.END], TIME_TYPE),
                "kind": spelled(KINDS, listed[:, LateField.KIND]),
                "payload": as_struct(payload, len(listed)),
                "cti": with_nulls(missed, nulls, TIME_TYPE),
                "late_by": with_nulls(listed[:, LateField.LATE_BY], nulls, pa.duration("us")),
                "fate": spelled(FATES, listed[:, LateField.FATE]),
            }
        )

    def _diverted(self, listed: Ints, find: _Finder) -> Diverted:
        tail = int(self._state.clock[ClockField.BEFORE_DIVERTED_END])
        if tail >= 0:
            listed = np.concatenate([listed[:tail], listed[tail + np.argsort(listed[tail:, Aside.NUMBER])]])
        start, end, number, missed, late_by = (np.ascontiguousarray(column) for column in listed.T)
        payload = from_frame(find(number), self.schema)
        payload = payload.append_column("cti", to_arrow(missed, TIME_TYPE))
        return Diverted(start, end, payload.append_column("late_by", to_arrow(late_by, pa.duration("us"))))

    def _fault(self, clock: Ints, arrivals: Arrivals) -> TimeError:
        kind = ArrivalKind(clock[ClockField.FAULT_KIND])
        at = int(clock[ClockField.FAULT_NUMBER]) - self._state.arrived
        start, end = (format_time(int(clock[which])) for which in (ClockField.FAULT_START, ClockField.FAULT_END))
        if clock[ClockField.FAULT] == k.UNMATCHED_FAULT:
            problem = "The end edge ends an event that has not started: no open start edge has its start and payload"
            remedy = "Send the start edge first, once for each end edge"
        else:
            side = "ends" if kind == ArrivalKind.END else "starts"
            what = {ArrivalKind.INSERT: "event", ArrivalKind.START: "start edge", ArrivalKind.END: "end edge"}[kind]
            limit = format_time(int(clock[ClockField.FAULT_LIMIT]))
            problem = f"The {what} {side} before the CTI {limit} that came before it"
            if self.settings.reorder is not None:
                problem = f"Late with reorder=: the {what} {side} before {limit}, up to which rows were released"
            remedy = "Send CTIs later, or generate them with a longer delay"
        return TimeError(
            f"{problem}.",
            row=arrivals.source_row(at) if at >= 0 else None,
            values=f"start={start}" + ("" if kind == ArrivalKind.START else f", end={end}") + self._whose(arrivals, at),
            remedy=f'{remedy}; or set a policy for late rows: .advance_time(…, late="drop"), "adjust" or "divert".',
        )

    def _whose(self, arrivals: Arrivals, at: int) -> str:
        """The partition of a row of this call; nothing if there are none."""
        named = arrivals.payload.select(self.settings.per).slice(at, 1).to_pylist() if at >= 0 else []
        return "".join(f", {name}={shown(value)}" for row in named for name, value in row.items())


class _Finder:
    """Payloads by the number of the arrival: this call's arrivals, and held rows."""

    def __init__(self, payload: pa.Table, frame: pl.DataFrame | None, state: State) -> None:
        self._payload, self._frame, self._state = payload, frame, state

    @property
    def frame(self) -> pl.DataFrame:
        """This call's arrivals."""
        if self._frame is None:
            self._frame = to_frame(self._payload)
        return self._frame

    def __call__(self, numbers: Ints) -> pl.DataFrame:
        base = self._state.arrived
        if len(numbers) and numbers.min() >= base:
            return frames.rows_at(self.frame, numbers - base)
        return self._state.rows.find(numbers, (base, self.frame))


def let_in(
    source: EventSource, settings: Advance | None, names: Sequence[str], read: Callable[[int], None] | None = None
) -> Iterator[Admitted]:
    """Read a source through an ingress of its own, which closes at the end.

    Args:
        source: The source; it counts late rows.
        settings: How time advances.
        names: The wanted columns. A source with edges is read with all columns, since they identify edges.
        read: Called with the number of rows of each batch.
    """
    per = () if settings is None else settings.per
    wanted = source.schema.names if source.edges else list(dict.fromkeys([*names, *per]))
    ingress = Ingress(settings, pa.schema([source.schema.field(name) for name in wanted]))
    for batch in source.read(wanted):
        if read is not None:
            read(len(batch.start))
        yield ingress.push(batch)
    yield ingress.close()
    source.count_late(ingress.counts)


def _numbers(settings: Advance, *, hands_out_open: bool) -> Ints:
    """Settings as the kernel takes them. Each call fills in CLOSE and BASE."""
    numbers = np.zeros(len(Setting), np.int64)
    numbers[Setting.EVERY] = settings.every or 0
    numbers[Setting.PERIOD] = settings.period or 0
    numbers[Setting.DELAY] = settings.delay
    numbers[Setting.LATE] = Policy[settings.late.upper()]
    numbers[Setting.LATE_ENDS] = Policy[settings.late_ends.upper()]
    numbers[Setting.SNAPPED] = settings.snapped
    numbers[Setting.REORDER] = -1 if settings.reorder is None else settings.reorder
    numbers[Setting.HANDS_OUT] = hands_out_open
    numbers[Setting.PER] = bool(settings.per)
    numbers[Setting.WATERMARK], numbers[Setting.LAG] = settings.low_watermark or 0, settings.lag
    return numbers


def _given(arrivals: Arrivals, per: Sequence[str]) -> tuple[k.Given, pl.DataFrame | None]:
    """Arrivals as the kernel takes them; and their payload, if edges or partitions were told apart by it."""
    starts, ends, kinds = arrivals.start, _ends(arrivals), arrivals.kinds
    edges = np.flatnonzero((kinds == ArrivalKind.START) | (kinds == ArrivalKind.END)) if kinds is not None else _NONE
    frame = to_frame(arrivals.payload) if len(edges) or (per and len(starts)) else None
    whose = (_NONE, _NONE) if frame is None or not per else ingress_state.owners(frame, per, len(starts))
    if kinds is None:
        return k.Given(_NO_KINDS, starts, ends, _NONE, _NONE, *whose), frame
    if frame is not None and per:
        unnamed = frame.select(pl.all_horizontal(pl.col(per).is_null())).to_series().to_numpy()
        kinds = np.where((kinds == ArrivalKind.CTI) & unnamed, np.int8(k.WATERMARK), kinds)
    if frame is None or not len(edges):
        return k.Given(kinds, starts, ends, _NONE, _NONE, *whose), frame
    hashes = identities(frame, len(starts), edges)
    return k.Given(kinds, starts, np.where(kinds == ArrivalKind.START, MAX_TIME, ends), *hashes, *whose), frame


def _count(given: k.Given) -> int:
    """How many partitions arrivals have."""
    return pl.DataFrame([given.owners, given.more_owners]).n_unique()


def _reaches_infinity(given: k.Given) -> bool:
    return len(given.kinds) > 0 and bool((given.starts[given.kinds >= ArrivalKind.CTI] == MAX_TIME).any())


def _room(given: k.Given, clock: Ints, *, to_infinity: bool) -> k.Out:
    """Room for all that a call can give: its own rows, those in the buffer, and at infinity every open edge."""
    rows, buffered = len(given.starts), int(clock[ClockField.BUFFERED])
    most = rows + (int(clock[ClockField.HELD]) if to_infinity else buffered)
    return k.Out(
        start=np.empty(most, np.int64),
        end=np.empty(most, np.int64),
        number=np.empty(most, np.int64),
        # An arrival may make a low watermark and, as a CTI or a row, a CTI of its own.
        ctis=np.empty(most + rows + 1, np.int64),
        cti_parts=np.empty(most + rows + 1, np.int64),
        late=np.empty((most, len(LateField)), np.int64),
        diverted=np.empty((most, len(Aside)), np.int64),
        # A buffered end edge goes, and with it the start edge that it ends.
        released=np.empty(most + buffered, np.int64),
        kept=np.zeros(rows, np.int8),
    )


def _events(out: k.Out, clock: Ints) -> tuple[Ints, Ints, Ints]:
    """The start, end and number of the admitted events."""
    events, tail = int(clock[ClockField.EVENTS]), int(clock[ClockField.BEFORE_END])
    start, end, number = out.start[:events], out.end[:events], out.number[:events]
    if tail < 0:
        return start, end, number
    # Events that never end came in the order of their slots, which depends on earlier calls: put them by arrival.
    order = np.concatenate([np.arange(tail), tail + np.argsort(number[tail:])])
    return start[order], end[order], number[order]


def _ends(arrivals: Arrivals) -> Ints:
    return arrivals.start + TICK if arrivals.end is None else arrivals.end
