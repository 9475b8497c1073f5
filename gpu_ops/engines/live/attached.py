"""Queries that are attached to a running one: each takes in what that one gives, from where it was attached on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from gpu_ops.core.time import MAX_TIME, Instant, utc


class Attachable(Protocol):
    """What `Attached` calls of a running query."""

    @property
    def closed(self) -> bool:
        """Whether its input has ended."""

    @property
    def failed(self) -> bool:
        """Whether a call of it has failed."""

    @property
    def rows_in(self) -> int:
        """How many rows it has taken in."""

    def push(self, batch: pa.Table, *, input: str | None = None) -> None:  # noqa: A002  (the word for it)
        """Take in events."""

    def advance(self, cti: Instant, *, input: str | None = None) -> None:  # noqa: A002
        """Take in a CTI."""

    def close(self) -> None:
        """End its input."""

    def input_ctis(self) -> dict[str, int]:
        """The CTI of each of its inputs, in ticks."""


@dataclass
class Attached:
    """A query that takes in the results of another one.

    Attributes:
        query: The query.
        into: The name of its input.
        seen: How many results the other one had given when it last gave some. One that goes back to a checkpoint gives
            those behind it again, and they are not handed on twice.
        waiting: What is to be handed on: tables of results, each with the CTI behind it.
        is_over: Whether it needs to be told nothing more.
    """

    query: Attachable
    into: str
    seen: int
    waiting: list[tuple[pa.Table | None, int]] = field(default_factory=list)
    is_over: bool = False

    def give(self, results: pa.Table | None, given: int, cti: int) -> None:
        """Have some results wait for `hand_on`.

        Args:
            results: The results of a step, if it gave any.
            given: How many the query has given now, these among them.
            cti: The CTI of its results.
        """
        if results is not None:
            results = results.slice(max(0, results.num_rows - (given - self.seen)))
        self.seen = max(self.seen, given)
        self.waiting.append((results, cti))

    def hand_on(self, *, ends: bool) -> None:
        """Push what waits. What the query refuses goes on waiting; what it has taken in before an error does not.

        Args:
            ends: Whether no results will follow: then its input ends, and with the last of its inputs it is closed.
        """
        try:
            if not (self.query.closed or self.query.failed):
                self._push()
                if ends:
                    self._end()
                    self.is_over = True
        finally:
            self.is_over |= self.query.closed or self.query.failed

    def _push(self) -> None:
        while self.waiting:
            results, cti = self.waiting[0]
            if results is not None and len(results):
                before = self.query.rows_in
                try:
                    self.query.push(results, input=self.into)
                finally:
                    if self.query.rows_in > before:
                        self.waiting[0] = (None, cti)
            self.query.advance(utc(cti), input=self.into)
            del self.waiting[0]

    def _end(self) -> None:
        self.query.advance("infinity", input=self.into)
        if all(cti == MAX_TIME for cti in self.query.input_ctis().values()):
            self.query.close()
