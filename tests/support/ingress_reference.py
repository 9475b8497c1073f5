"""The entrance of time-aware input, row by row: slow, literal, and written from the rules alone.

What `gpu_ops.ingest.ingress.Ingress` does in one kernel is said here once more, as plainly as it can be said: lists,
dictionaries, a sorted list for a heap. Nothing of the package is used but its settings and the ends of time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gpu_ops.core.time import MAX_TIME, MIN_TIME, TICK
from gpu_ops.ingest.advance import Advance

NONE = MIN_TIME - 1


class Row(NamedTuple):
    """An arrival; ``end`` of a point and of a start edge is not looked at, of a CTI neither."""

    kind: str
    start: int
    end: int = 0
    payload: str = ""


class LateRow(NamedTuple):
    """A row that was not let in as it came."""

    kind: str
    start: int
    end: int
    payload: str
    cti: int | None
    late_by: int | None
    fate: str


@dataclass
class Given:
    """What a call gives."""

    events: list[tuple[int, int, str]] = field(default_factory=list)
    ctis: list[int] = field(default_factory=list)
    late: list[LateRow] = field(default_factory=list)
    diverted: list[tuple[int, int, str, int]] = field(default_factory=list)
    cti: int = MIN_TIME


@dataclass
class Open:
    """A start edge whose end edge has not come: let in at ``start``, or kept out (None)."""

    number: int
    start: int | None
    missed: int | None = None


class Violation(Exception):  # noqa: N818  (the rule's own name)
    """A row came too late and the policy is to refuse it, or an end edge ends nothing."""


class EntranceReference:
    """The rules as a state machine over single rows."""

    def __init__(self, settings: Advance | None) -> None:
        self.settings = settings or Advance()
        self.generates = settings is not None
        self.last = NONE  # the last CTI
        self.limit = MIN_TIME  # what comes with an earlier time is late
        self.high = MIN_TIME  # the latest time that was seen
        self.count = 0
        self.number = 0
        self.buffer: list[tuple[int, int, Row]] = []
        self.open: dict[tuple[int, str], list[Open]] = {}
        self.promised = MIN_TIME
        self.given = Given()

    # Calls

    def push(self, rows: list[Row]) -> Given:
        """Rows in their order of arrival."""
        for row in rows:
            self._arrive(row)
            self.number += 1
        return self._give()

    def advance(self, cti: int) -> Given:
        """A CTI from elsewhere."""
        self._cti(cti)
        return self._give()

    def close(self) -> Given:
        """The end of the input."""
        self._release(MAX_TIME)
        if self.settings.final:
            self._cti(MAX_TIME)
        else:
            self._end_open()
        return self._give()

    def _give(self) -> Given:
        given, self.given = self.given, Given()
        starts = [each.start for queue in self.open.values() for each in queue if each.start is not None]
        self.promised = max(self.promised, min([max(self.last, MIN_TIME), *starts]))
        given.cti = self.promised
        return given

    # Rows

    def _arrive(self, row: Row) -> None:
        if row.kind == "cti":
            self._cti(row.start)
            return
        time = row.end if row.kind == "end" else row.start
        reorder = self.settings.reorder
        if not reorder or time <= self.limit:
            self._process(row, self.number)
            return
        if time > self.high:
            self.high = time
            self._release(max(time - reorder, MIN_TIME))
        self.buffer.append((time, self.number, row))

    def _release(self, until: int) -> None:
        due = sorted((each for each in self.buffer if each[0] <= until), key=lambda each: each[:2])
        self.buffer = [each for each in self.buffer if each[0] > until]
        for _, number, row in due:
            self._process(row, number)
        if self.settings.reorder is not None and until < MAX_TIME:
            self.limit = max(self.limit, until)

    def _cti(self, time: int) -> None:
        if time <= self.last:
            return
        self._release(time)
        if self.settings.reorder is not None:
            time = max(time, min(self.limit, MAX_TIME - TICK))  # lifted to what has gone out
        self._emit(time)

    def _emit(self, time: int) -> None:
        if time <= self.last:
            return
        self.last = time
        self.limit = max(self.limit, time)
        self.given.ctis.append(time)
        if time == MAX_TIME:
            self._end_open()

    def _end_open(self) -> None:
        left = [(each, key) for key, queue in self.open.items() for each in queue]
        for each, (start, payload) in sorted(left, key=lambda pair: pair[0].number):
            if each.start is not None:
                self.given.events.append((each.start, MAX_TIME, payload))
            elif each.missed is not None and self.settings.late == "divert":
                self.given.diverted.append((start, MAX_TIME, payload, each.missed))
        self.open = {}

    def _process(self, row: Row, number: int) -> None:
        settings = self.settings
        let_in = self._end(row) if row.kind == "end" else self._start(row, number)
        if settings.reorder is not None:
            self.limit = max(self.limit, row.end if row.kind == "end" else row.start)
        if settings.period is not None and let_in is not None and (row.kind != "end" or settings.snapped):
            last = self._floor(self.last) if settings.snapped else self.last
            if self.last == NONE or let_in - last >= settings.period:
                time = let_in - settings.delay
                self._emit(self._bounded(self._floor(time) if settings.snapped else time))
        if settings.every is not None and row.kind != "end":
            self.count += 1
            if self.count == settings.every:
                self.count = 0
                if let_in is not None:
                    self._emit(self._bounded(let_in - settings.delay))

    def _floor(self, time: int) -> int:
        assert self.settings.period is not None
        return time - (time - MIN_TIME) % self.settings.period

    @staticmethod
    def _bounded(time: int) -> int:
        return min(max(time, MIN_TIME), MAX_TIME - TICK)

    def _start(self, row: Row, number: int) -> int | None:
        limit, late = self.limit, self.settings.late
        end = {"point": row.start + TICK, "start": MAX_TIME}.get(row.kind, row.end)
        let_in: int | None = row.start
        if row.start < limit:
            if late == "raise":
                raise Violation(row)
            let_in = limit if late == "adjust" and end > limit else None
            fate = "adjusted" if let_in is not None else "diverted" if late == "divert" else "dropped"
            self.given.late.append(LateRow(row.kind, row.start, end, row.payload, limit, limit - row.start, fate))
        if row.kind == "start":
            missed = limit if let_in != row.start else None
            queue = self.open.setdefault((row.start, row.payload), [])
            late_ones = sum(each.missed is not None for each in queue)
            queue.insert(len(queue) if missed is None else late_ones, Open(number, let_in, missed))
        elif let_in is not None:
            self.given.events.append((let_in, end, row.payload))
        elif late == "divert":
            self.given.diverted.append((row.start, end, row.payload, limit))
        return let_in

    def _end(self, row: Row) -> int | None:
        limit, late = self.limit, self.settings.late
        queue = self.open.get((row.start, row.payload), [])
        if queue and queue[0].start is None:
            missed = queue.pop(0).missed
            assert missed is not None
            self._note_end(row, missed, missed - row.start, "diverted" if late == "divert" else "dropped")
            return None
        if not queue:
            if late == "raise":
                raise Violation(row)
            self._note_end(row, None, None, "unmatched")
            return None
        end = row.end
        if end < limit:
            if late == "raise":
                raise Violation(row)
            if late != "adjust" or self.settings.late_ends == "drop":
                self._note_end(row, limit, limit - end, "diverted" if late == "divert" else "dropped")
                return None
            end = limit
        start = queue.pop(0).start
        assert start is not None
        if start < end:
            self.given.events.append((start, end, row.payload))
        if start == end or end != row.end:
            self._note_end(row, limit, limit - row.end, "adjusted" if start < end else "emptied")
        return end

    def _note_end(self, row: Row, cti: int | None, late_by: int | None, fate: str) -> None:
        self.given.late.append(LateRow("end", row.start, row.end, row.payload, cti, late_by, fate))
        if fate == "diverted":
            assert cti is not None
            self.given.diverted.append((row.start, row.end, row.payload, cti))
