"""What a simulated store should hold, told from what its writers were told; and a look at what it does hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import gpu_ops as g
from tests.support.followed import Written


class ViolationError(Exception):
    """Something that must hold does not."""


def demand(holds: object, what: str) -> None:
    if not holds:
        raise ViolationError(what)


@dataclass
class Seen:
    """What a reader finds in a store, read again only where files have changed.

    Attributes:
        path: Where it is.
        names: The files.
        batches: What is in them.
        compared: How many of the batches have been compared with what should be there.
    """

    path: Path
    names: tuple[str, ...] = ()
    batches: list[g.StoredBatch] = field(default_factory=list)
    compared: int = 0

    def look(self) -> list[g.StoredBatch]:
        store = g.store(self.path)
        names = tuple(file.name for file in store.log().files)
        if names[: len(self.names)] != self.names:
            self.batches, self.compared = [], 0
        if names != self.names:
            since = self.batches[-1].sequence if self.batches else 0
            self.batches = [*self.batches, *store.batches(since)]
            self.names = names
        return self.batches


class Witness:
    """A source, as those who write to it know it.

    Attributes:
        path: Where it is.
        batches: What was appended, whether its writer was told so or was killed before.
        acknowledged: How many of these a writer was told of: no power cut takes them.
        tried: The commit that a writer is at; it is there whole or not at all.
        expired: Up to when events may have expired.
        vanished: Whether a power cut took batches that others may have read; their writer had not been told of them.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.batches: list[Written] = []
        self.acknowledged = 0
        self.tried: list[Written] = []
        self.expired = -1
        self.vanished = False
        self._commits = {0}
        self._seen = Seen(path)

    @property
    def cti(self) -> int | None:
        return self.batches[-1].cti if self.batches else None

    def commit(self) -> None:
        """The writer was told that what it tried is on the disk; so is what came before it."""
        if not self.tried:
            return
        self.batches += self.tried
        self.tried = []
        self._commits.add(len(self.batches))
        self.acknowledged = len(self.batches)

    def look(self, *, power_was_cut: bool = False) -> None:
        """Hold what the store shows against what it should show, and learn what became of the commit that was tried."""
        seen = self._seen.look()
        found = seen[-1].sequence if seen else 0
        whole = len(self.batches)
        if self.tried and found == whole + len(self.tried):
            self.batches += self.tried
            self._commits.add(found)
        self.tried = []
        if power_was_cut and self.acknowledged <= found < len(self.batches):
            demand(
                found in self._commits, f"{self.path.name}: a power cut left a part of a commit, up to batch {found}"
            )
            self._commits = {each for each in self._commits if each <= found}
            self.batches = self.batches[:found]
            self.vanished = True
        demand(
            found == len(self.batches),
            f"{self.path.name} ends with batch {found}, and {len(self.batches)} were written, "
            f"{self.acknowledged} of them acknowledged",
        )
        self._compare(seen, self._seen.compared)
        self._seen.compared = len(seen)

    def glance(self) -> None:
        """What another process finds in the middle of a write: all of the commit or nothing."""
        before = len(self.batches)
        store = g.store(self.path)
        seen = list(store.batches())
        found = seen[-1].sequence if seen else 0
        allowed = self._commits | {len(self.batches), len(self.batches) + len(self.tried)}
        demand(
            before <= found and found in allowed,
            f"{self.path.name} shows {found} batches amid a write, {before} or more are there",
        )
        self._compare(seen)

    @property
    def gone(self) -> tuple[tuple[int, int], ...]:
        """The batches that have expired by now, from one number to another."""
        seen = self._seen.look()
        numbers = [0, *(each.sequence for each in seen)]
        return tuple((last + 1, each.sequence) for last, each in zip(numbers, seen, strict=False) if each.expired)

    def view(self) -> tuple[list[Written], int]:
        """What one finds who begins to read now, where what has expired is one batch; and the number of the last."""
        seen = self._seen.look()
        return [Written(each.events, each.cti) for each in seen], seen[-1].sequence if seen else 0

    def finish(self) -> None:
        """All is sound, and the next writer leaves nothing of the earlier ones' behind."""
        store = g.store(self.path)
        store.writer().close()
        report = store.verify()
        demand(report.sound and not report.foreign and not report.leftovers, f"{self.path.name}: {report}")

    def _compare(self, seen: Sequence[g.StoredBatch], since: int = 0) -> None:
        should = [*self.batches, *self.tried]
        before = seen[since - 1].sequence if since else 0
        for each in seen[since:]:
            covered = should[before : each.sequence]
            demand(each.expired or len(covered) == 1, f"{self.path.name} lacks a batch before {each.sequence}")
            before = each.sequence
            if each.expired:
                demand(
                    each.cti == covered[-1].cti, f"{self.path.name}: the CTI of expired batch {each.sequence} changed"
                )
                for written in covered:
                    ends = pc.max(written.events["end"]).cast(pa.int64()).as_py()
                    demand(
                        ends is None or ends <= self.expired,
                        f"{self.path.name}: batch {each.sequence} expired too early",
                    )
            else:
                demand(covered[0].is_like(each.events, each.cti), f"{self.path.name}: batch {each.sequence} is another")
