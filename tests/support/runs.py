"""A follower's sink, late rows and checkpoint, from a start afresh to the next, and what they should hold."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME
from tests.support.followed import Policy, Question, Uninterrupted, Written, batch
from tests.support.rows import rows
from tests.support.ticks import at_us
from tests.support.witness import Seen, Witness, demand

Witnesses = Mapping[str | None, Witness]


@dataclass
class _Candidate:
    """A follower that nothing stops, and where it began.

    Attributes:
        shown: What its sources showed then, where what had expired is one batch without events.
        known: How many of the sources' batches these were.
        follower: What it would have written.
    """

    shown: dict[str | None, list[Written]]
    known: dict[str | None, int]
    follower: Uninterrupted

    def go_on(self, sources: Witnesses) -> None:
        self.follower.go_on(
            {name: self.shown[name] + each.batches[self.known[name] :] for name, each in sources.items()}
        )

    def why_not(self, into: Sequence[g.StoredBatch], late: Sequence[g.StoredBatch]) -> str | None:
        """In what stores differ from the beginning of what it would have written."""
        should_be_late = [Written(each, None) for each in self.follower.late]
        for name, found, should in (("into", into, self.follower.results), ("late_into", late, should_be_late)):
            if len(found) > len(should):
                return f"{name} has {len(found)} batches of {len(should)}"
            for number, (there, wanted) in enumerate(zip(found, should, strict=False), 1):
                if not wanted.is_like(there.events, there.cti):
                    return (
                        f"batch {number} of {name} is {_shown(there.events)} with CTI {there.cti} "
                        f"instead of {_shown(wanted.events)} with CTI {wanted.cti}"
                    )
        return None


def _shown(table: pa.Table) -> list[Any]:
    return rows(table) if table.num_rows < 9 else [f"{table.num_rows} rows"]


def _given(sources: Mapping[str | None, g.Store]) -> g.Store | dict[str, g.Store]:
    """Sources as `follow` takes them."""
    return sources[None] if None in sources else {str(name): each for name, each in sources.items()}


class Run:
    """What a follower writes to, and its process's memory.

    Attributes:
        live: The running query, while its process lives.
        failed: Whether an error came out of it, so that it may refuse to go on.
        spoilt: Whether somebody else wrote to the sink.
    """

    def __init__(self, question: Question, policy: Policy, folder: Path, every: int | str, keep: int) -> None:
        self.folder, self.every, self.keep = folder, every, keep
        self.into, self.late_into, self.checkpoint = folder / "out", folder / "late", folder / "checkpoint"
        self.live: Any = None
        self.failed = False
        self.spoilt = False
        self._question, self._policy = question, policy
        self._seen, self._late = Seen(self.into), Seen(self.late_into)
        self._candidates: list[_Candidate] = []
        self._starts: set[Any] = set()

    @property
    def begun(self) -> bool:
        """Whether anything is written."""
        return bool(self._seen.look() or self._late.look())

    def another_start(self, sources: Witnesses) -> None:
        """Where nothing is written yet, a follower may also begin with what has not expired by now."""
        gone = tuple(each.gone for each in sources.values())
        if gone in self._starts or self.begun:
            return
        self._starts.add(gone)
        schema = batch([], [] if self._question.edges else None).schema
        follower = Uninterrupted(self._question, self._policy, dict.fromkeys(sources, schema))
        views = {name: each.view() for name, each in sources.items()}
        shown = {name: batches for name, (batches, _) in views.items()}
        known = {name: last for name, (_, last) in views.items()}
        self._candidates.append(_Candidate(shown, known, follower))

    def query(self, sources: Mapping[str | None, g.Store]) -> g.Stream:
        return self._question.over(sources, self._policy)

    def follow(self, witnesses: Witnesses, on_step: Callable[[Any], None] | None) -> None:
        """Start, or restore, or go on, until there is nothing more to read."""
        sources = {name: g.store(each.path) for name, each in witnesses.items()}
        if self.live is None:
            query = self.query(sources)
            self.live = g.restore(self.checkpoint, query, device="cpu") if self.kept else query.start(device="cpu")
            self.failed = False
        self.live.follow(
            _given(sources),
            into=g.store(self.into),
            late_into=g.store(self.late_into) if self._policy == "divert" else None,
            checkpoint=self.checkpoint,
            every=self.every,
            keep=self.keep,
            timeout=0,
            on_step=on_step,
            stop_on=(signal.SIGTERM,),
        )

    @property
    def kept(self) -> bool:
        """Whether there is a checkpoint, in a file or in a folder."""
        return self.checkpoint.is_file() or any(self.checkpoint.glob("*.manifest"))

    @property
    def older(self) -> list[Path]:
        """The checkpoints before the last."""
        return [self.checkpoint.with_name(f"{self.checkpoint.name}.{number}") for number in (1, 2)]

    def follow_apart(self, paths: Mapping[str | None, Path], checkpoint: Path | None) -> None:
        """Follow sources into the same sink in a process of its own, from a checkpoint or from the beginning."""
        sources = {name: g.store(path) for name, path in paths.items()}
        query = self.query(sources)
        live = query.start(device="cpu") if checkpoint is None else g.restore(checkpoint, query, device="cpu")
        live.follow(
            _given(sources),
            into=g.store(self.into),
            late_into=g.store(self.late_into) if self._policy == "divert" else None,
            timeout=0,
        )

    def write_foreign(self) -> bool:
        """Append to the sink what the query does not give; whether it can be."""
        store = g.store(self.into)
        if not store.sequence or store.cti == MAX_TIME:
            return False
        self.spoilt = True
        store.append(store.schema.empty_table(), at_us(MAX_TIME - 1))
        return True

    def go_on(self, sources: Witnesses) -> None:
        for each in self._candidates:
            each.go_on(sources)

    def look(self) -> None:
        """Hold what is written against what should be."""
        seen = self._seen.look(), self._late.look()
        if (len(seen[0]), len(seen[1])) != (self._seen.compared, self._late.compared):
            self.compare(*seen)
            self._seen.compared, self._late.compared = len(seen[0]), len(seen[1])

    def compare(self, into: Sequence[g.StoredBatch], late: Sequence[g.StoredBatch] = ()) -> None:
        if self.spoilt:
            return
        reasons = [each.why_not(into, late) for each in self._candidates]
        demand(None in reasons, reasons[0] or "")
        if into or late:
            pairs = zip(self._candidates, reasons, strict=True)
            self._candidates = [each for each, reason in pairs if reason is None]

    def finish(self, *, overflows: bool) -> None:
        """Everything is written: it is what `collect` gives for all that was read, or what came before an overflow."""
        into, late = self._seen.look(), self._late.look()
        done = [
            each.follower
            for each in self._candidates
            if (len(into), len(late)) == (len(each.follower.results), len(each.follower.late))
        ]
        demand(done, f"into ends with batch {len(into)} of {len(self._candidates[0].follower.results)}")
        if overflows:
            demand(done[0].failed is not None, "only a follower that was stopped overflows")
            return
        demand(self.live.closed, "the follower has not come to the end")
        tables = {name: pa.concat_tables(read) for name, read in done[0].read.items()}
        expected = self._question.over(tables, self._policy).collect(device="cpu")
        store = g.store(self.into)
        found = store.read() if into else expected.slice(0, 0)
        demand(rows(found) == rows(expected), f"into is {_shown(found)}, and collect() gives {_shown(expected)}")
        demand(not into or store.cti == MAX_TIME, "the sink is not closed")
        if self._policy == "divert" and not self._question.edges:  # of late edges `late` shows the events
            diverted = self._question.entrances(tables, self._policy)[0].late().collect(device="cpu")
            kept = g.store(self.late_into).read() if late else diverted.slice(0, 0)
            columns = [name for name in kept.column_names if name in diverted.column_names]
            demand(
                rows(kept.select(columns)) == rows(diverted.select(columns)),
                f"late_into is {_shown(kept)}, not {_shown(diverted)}",
            )
