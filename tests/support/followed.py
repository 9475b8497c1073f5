"""Queries that the simulation follows, and what a follower that nothing ever stops would write of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

import gpu_ops as g
from gpu_ops.core.time import MAX_TIME, MIN_TIME
from tests.support.rows import rows
from tests.support.ticks import at_us

UTC = pa.timestamp("us", "UTC")

Policy = Literal["promised", "drop", "divert"]
"""Where CTIs come from: the store, or the events, and what becomes of those that are late."""

Row = tuple[int, int, int, int]
"""start, end, k, v"""


class Tripwire:
    """What a user's function meets when it is called: nothing, or an error at the n-th call."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: BaseException | None = None
        self.tripped = False

    def reset(self) -> None:
        self.error, self.tripped = None, False

    def set(self, error: BaseException, after: int) -> None:
        self.calls, self.error = after, error

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Who calls the function meanwhile meets nothing."""
        error, self.error = self.error, None
        try:
            yield
        finally:
            self.error = error

    def touch(self) -> None:
        if self.error is None:
            return
        self.calls -= 1
        if self.calls < 0:
            error, self.error, self.tripped = self.error, None, True
            raise error


TRIPWIRE = Tripwire()


def _spread(events: pa.Table) -> int:
    TRIPWIRE.touch()
    values = events["v"].to_pylist()
    return int(max(values) - min(values))


@dataclass(frozen=True)
class Question:
    """A query over one source or more.

    Attributes:
        name: What it is called in a trace.
        ask: From the streams to the query.
        inputs: The names of its sources; of the only one none.
        edges: Whether a row is a start edge or an end edge.
        sums: Whether it has a sum by `k`, which may overflow.
        policies: Where its CTIs may come from.
    """

    name: str
    ask: Callable[..., g.Stream]
    inputs: tuple[str | None, ...] = (None,)
    edges: bool = False
    sums: bool = False
    policies: tuple[Policy, ...] = ("promised", "drop", "divert")

    def entrances(self, sources: Mapping[str | None, Any], policy: Policy) -> list[g.Stream]:
        """The streams of sources, each a store or a table."""
        options: dict[str, Any] = {"start": "start", "end": "end"}
        if self.edges:
            options |= {"shape": "edge", "edge": "edge"}
        made = [g.events(sources[name], name=name, **options) for name in self.inputs]
        return made if policy == "promised" else [each.advance_time("5us", late=policy) for each in made]

    def over(self, sources: Mapping[str | None, Any], policy: Policy) -> g.Stream:
        """The query over sources."""
        return self.ask(*self.entrances(sources, policy))


_TWO = {"inputs": ("a", "b"), "policies": ("promised",)}

QUESTIONS = [
    Question("tumbling", lambda s: s.tumbling("12us").agg(n=g.count(), spread=_own())),
    Question("sum by key", lambda s: s.by("k").snapshot().agg(total=g.sum("v"), best=g.max("v")), sums=True),
    Question("session", lambda s: s.by("k").session("4us").agg(n=g.count(), total=g.sum("v")), sums=True),
    Question("stitch", lambda s: s.select("k").stitch()),
    Question(
        "edges", lambda s: s.by("k").snapshot().agg(n=g.count(), total=g.sum("v")), edges=True, policies=("divert",)
    ),
    Question("join", lambda a, b: a.join(b, on="k"), **_TWO),  # type: ignore[arg-type]
    Question("union", lambda a, b: a.union(b).by("k").tumbling("9us").agg(n=g.count(), spread=_own()), **_TWO),  # type: ignore[arg-type]
]


def _own() -> g.Aggregate:
    return g.window_function(_spread, returns=pa.int64(), of="v")


def batch(rows: list[Row], edges: list[str] | None = None) -> pa.Table:
    """Rows as a batch for a store."""
    start, end, k, v = (pa.array([row[at] for row in rows], pa.int64()) for at in range(4))
    columns = {"start": start.cast(UTC), "end": end.cast(UTC), "k": k, "v": v}
    return pa.table(columns if edges is None else columns | {"edge": pa.array(edges, pa.string())})


@dataclass
class Feed:
    """Draws what one source gets next.

    Attributes:
        question: For which query.
        policy: Where CTIs come from.
        now: About when the next event starts.
        open: Events whose end edge has not come.
    """

    question: Question
    policy: Policy
    now: int = 0
    open: list[Row] = field(default_factory=list)

    def draw(self, chance: random.Random, cti: int | None) -> tuple[pa.Table, int | None]:
        """A batch, and the CTI that is promised after it; None to promise nothing new."""
        rows: list[Row] = []
        edges: list[str] | None = [] if self.question.edges else None
        for _ in range(chance.choice([0, 1, 1, 2, 3, 4])):
            self.now += chance.randrange(4)
            back = chance.randrange(9) if self.policy != "promised" and chance.random() < 0.3 else 0
            start = max(self.now - back, 0 if cti is None else cti)
            row = (start, start + 1 + chance.randrange(12), chance.randrange(3), chance.randrange(100))
            if edges is not None:
                ends = [each for each in self.open if each[1] <= self.now]
                if ends:
                    row = chance.choice(ends)
                    self.open.remove(row)
                    edges.append("end")
                else:
                    self.open.append(row)
                    edges.append("start")
            rows.append(row)
        promised = None
        if self.policy == "promised" and chance.random() < 0.6:
            promised = max(self.now - chance.randrange(3), 0 if cti is None else cti)
        return batch(rows, edges), promised

    def draw_overflow(self) -> pa.Table:
        """A batch whose sum does not fit."""
        return batch([(self.now, self.now + 5, 0, 1 << 62)] * 2)


@dataclass(frozen=True)
class Written:
    """A batch of a store as it should be: its events, and the CTI after it."""

    events: pa.Table
    cti: int | None

    def is_like(self, events: pa.Table, cti: int | None) -> bool:
        if self.cti != cti:
            return False
        return bool(events.equals(self.events.cast(events.schema))) or rows(events) == rows(self.events)


class Uninterrupted:
    """A follower that nothing stops, without any store: what it would have written so far.

    Attributes:
        results: What it would have written, batch by batch.
        late: The batches of late rows.
        read: The events that it took in, by input.
        failed: The error that ended it.
    """

    def __init__(self, question: Question, policy: Policy, schemas: Mapping[str | None, pa.Schema]) -> None:
        self.results: list[Written] = []
        self.late: list[pa.Table] = []
        self.read: dict[str | None, list[pa.Table]] = {name: [schema.empty_table()] for name, schema in schemas.items()}
        self.failed: Exception | None = None
        self._taken = dict.fromkeys(schemas, 0)
        self._diverts = policy == "divert"
        self._promised = MIN_TIME
        self._live = question.over({name: schema.empty_table() for name, schema in schemas.items()}, policy).start(
            device="cpu"
        )

    def go_on(self, batches: Mapping[str | None, list[Written]]) -> None:
        """Take in what there is, the input that is the furthest behind first."""
        left = list(batches)
        while left and self.failed is None:
            ctis = self._live.input_ctis()
            name = left[0] if len(batches) == 1 else min(left, key=lambda each: (ctis[str(each)], each))
            if self._taken[name] == len(batches[name]):
                if name is None or ctis[name] != MAX_TIME:
                    return
                left.remove(name)
                continue
            try:
                with TRIPWIRE.at_rest():
                    self._take(name, batches[name][self._taken[name]])
            except g.GpuOpsError as error:
                self.failed = error

    def _take(self, name: str | None, given: Written) -> None:
        live = self._live
        self._taken[name] += 1
        self.read[name].append(given.events)
        if given.events.num_rows:
            live.push(given.events, input=name)
        if given.cti is not None:
            live.advance(at_us(given.cti), input=name)
        if all(cti == MAX_TIME for cti in live.input_ctis().values()):
            live.close()
        results, late, cti = live.results(), live.late(), live.cti
        if results.num_rows or cti > self._promised:
            self.results.append(Written(results, None if cti == MIN_TIME else cti))
        if self._diverts and late is not None and late.num_rows:
            self.late.append(late)
        self._promised = max(cti, self._promised)
