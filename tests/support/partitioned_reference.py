"""The entrance of input whose partitions have clocks of their own, row by row, from the rules alone.

Each partition is an entrance of its own (`tests.support.ingress_reference`); a low watermark is told to all of them.
The first letter of a row's payload is its partition; a CTI without a payload is a low watermark.
"""

from __future__ import annotations

from gpu_ops.core.time import MAX_TIME, MIN_TIME
from gpu_ops.ingest.advance import Advance
from tests.support.ingress_reference import NONE, EntranceReference, Given, Row


class PartitionedReference:
    """The rules of Trill's partitioned ingress as a state machine over single rows."""

    def __init__(self, settings: Advance) -> None:
        self.settings = settings
        self.watermark = NONE
        self.watermarks: list[int] = []
        self.parts: dict[str, EntranceReference] = {}
        self.promised = MIN_TIME
        self.own: dict[str, list[int]] = {}

    def push(self, rows: list[Row]) -> Given:
        """Rows in their order of arrival."""
        for row in rows:
            self._arrive(row)
        return self._give()

    def close(self) -> Given:
        """The end of the input: of each partition, and of all that are yet to come."""
        if self.settings.final:
            self._low(MAX_TIME)
        for part in self.parts.values():
            part._release(MAX_TIME)
            part._end_open()
        return self._give()

    def _arrive(self, row: Row) -> None:
        if row.kind == "cti" and not row.payload:
            self._low(row.start)
            return
        period = self.settings.low_watermark
        if period is not None and row.kind != "cti":
            time = max((row.end if row.kind == "end" else row.start) - self.settings.lag, MIN_TIME)
            before = self.watermark - (self.watermark - MIN_TIME) % period
            if self.watermark == NONE or time - before >= period:
                self._low(time - (time - MIN_TIME) % period)
        owner = row.payload[0]
        if owner not in self.parts:
            new = self.parts[owner] = EntranceReference(self.settings)
            new.last, new.limit = self.watermark, max(self.watermark, MIN_TIME)
        self.parts[owner]._arrive(row)
        self.parts[owner].number += 1

    def _low(self, time: int) -> None:
        if time <= self.watermark:
            return
        for part in self.parts.values():
            part._release(time)
            part.last, part.limit = max(part.last, time), max(part.limit, time)
        self.watermark = time
        self.watermarks.append(time)

    def _give(self) -> Given:
        """What all partitions give together, in no order; ``own`` has their CTIs."""
        whole = Given(ctis=self.watermarks)
        self.watermarks, self.own = [], {}
        for owner, part in self.parts.items():
            given, part.given = part.given, Given()
            whole.events += given.events
            whole.late += given.late
            whole.diverted += given.diverted
            if given.ctis:
                self.own[owner] = given.ctis
        starts = [
            each.start
            for part in self.parts.values()
            for queue in part.open.values()
            for each in queue
            if each.start is not None
        ]
        self.promised = max(self.promised, min([max(self.watermark, MIN_TIME), *starts]))
        whole.cti = self.promised
        return whole
