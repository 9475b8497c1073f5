"""The progress of a running query, for people to read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpu_ops.core.time import MAX_TIME, MIN_TIME, format_time


@dataclass(frozen=True)
class Status:
    """The progress of a running query.

    Attributes:
        events_in: Rows pushed, late and invalid ones included.
        events_out: Results given.
        alive: Events in the query's state: they wait for a CTI, or later rows may meet them.
        late: How many rows met each fate (dropped, adjusted, diverted …).
        cti_in: The CTI of the input that is furthest behind.
        cti_out: The CTI of the results: no later result starts before it.
        state_bytes: The size of the tables of `RunningQuery.state`.
        waiting: Events among those alive that a CTI has yet to pass; with several inputs, the CTI of the one furthest
            behind. An event that waits at several nodes counts at each.
        invalid: How many rows broke each rule and were dropped or diverted (``on_invalid="drop"`` or ``"divert"``).
        failed: What went wrong, if the query has failed. Then the other fields tell how far it was before, and
            `alive`, `waiting` and `state_bytes` are 0.

    Examples:
        >>> Status(5, 2, 3, {"dropped": 1}, MAX_TIME, 0, 100)
        <Status 5 events in, 2 results out, 3 alive, late: 1 dropped; CTI in infinity, out 1970-01-01T00:00:00Z>
        >>> Status(9, 0, 7, {}, MIN_TIME, MIN_TIME, 100, waiting=4, invalid={"null_start": 2})
        <Status 9 events in, 0 results out, 7 alive, 4 waiting, late: none, invalid: 2 null_start; CTI in none yet, out none yet>
    """  # noqa: E501  (a status is one line)

    events_in: int
    events_out: int
    alive: int
    late: Mapping[str, int]
    cti_in: int
    cti_out: int
    state_bytes: int
    waiting: int = 0
    invalid: Mapping[str, int] = field(default_factory=dict)
    failed: str | None = None

    def __repr__(self) -> str:
        counts = [f"{self.events_in:,} events in", f"{self.events_out:,} results out", f"{self.alive:,} alive"]
        counts += [f"{self.waiting:,} waiting"] * bool(self.waiting) + [f"late: {_listed(self.late)}"]
        counts += [f"invalid: {_listed(self.invalid)}"] * bool(self.invalid)
        failed = "" if self.failed is None else f"; failed: {self.failed}"
        return f"<Status {', '.join(counts)}; CTI in {shown_cti(self.cti_in)}, out {shown_cti(self.cti_out)}{failed}>"


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count) or "none"


def shown_cti(cti: int) -> str:
    """A CTI as users read it."""
    return "none yet" if cti == MIN_TIME else "infinity" if cti == MAX_TIME else format_time(cti)
