"""A running query from store to store, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from gpu_ops.core.arguments import callback
from gpu_ops.core.own_errors import theirs
from gpu_ops.core.time import MAX_TIME, MIN_TIME, Duration, Instant, utc
from gpu_ops.engines.live.feeding import Feedable
from gpu_ops.engines.live.pace import Pace, stopping
from gpu_ops.engines.live.places import SINKS, Following, IfOtherStore, Inlet, Outlet, begin
from gpu_ops.errors import PlanError
from gpu_ops.microbatches.reports import StoredBatch
from gpu_ops.microbatches.stores import Store


class Followable(Feedable, Protocol):
    """What is asked of a `RunningQuery` that follows stores."""

    positions: dict[str, int]
    following: Following

    @property
    def closed(self) -> bool:
        """Whether the input has ended."""

    @property
    def cti(self) -> int:
        """What the results promise, in ticks."""

    @property
    def imports(self) -> bool:
        """Whether an input takes in CTIs of another."""

    def input_ctis(self) -> dict[str, int]:
        """What each input promises, in ticks."""

    def advance(self, cti: Instant, *, input: str | None = None) -> None:  # noqa: A002  (the word for it)
        """As there."""

    def late(self) -> pa.Table | None:
        """As there."""

    def at_batch(self, batch: str | None) -> None:
        """As there."""

    def checkpoint(self, path: str | Path, *, keep: int | None = None) -> None:
        """As there."""


def follow(
    live: Followable,
    store: Store | Mapping[str, Store],
    into: Store | None,
    late_into: Store | None,
    checkpoint: Path | None,
    every: int | Duration,
    timeout: Duration | None,
    on_step: Callable[[Any], None] | None,
    keep: int,
    stop_on: Iterable[int],
    if_other_store: IfOtherStore,
) -> None:
    """`RunningQuery.follow`: after each batch of the store one of results, if there is any or their CTI has moved.

    So the k-th batch of results depends on the store and the query alone, and a restored query knows which are written.
    """
    callback(on_step, name="on_step", takes="the running query")
    pace = Pace(every)
    stores = _by_input(live, store)
    with stopping(tuple(stop_on)) as stopped, ExitStack() as stack:
        sinks = {
            name: (target, stack.enter_context(target.writer()))
            for name, target in zip(SINKS, (into, late_into), strict=True)
            if target is not None
        }
        sources = {_position(name): each for name, each in stores.items()}
        inlets, outlets = begin(live.following, live.positions, sources, sinks, if_other_store)
        run = _FollowedQuery(live, stores, inlets, outlets, checkpoint, keep, pace, stopped)
        # Killed before the next checkpoint, it must not take what it has written for somebody else's.
        run.note()
        run.save(again=True)
        for outlet in outlets.values():
            outlet.claim(live.following.follower or "")
        for name, batch in () if live.closed else _batches(run, timeout):
            if stopped() is not None:
                break
            run.take(name, batch)
            if on_step is not None:
                theirs(on_step, live)
        number = stopped()
        if number is None:
            for outlet in outlets.values():
                outlet.finish()
        if pace.waiting:
            run.save()
    if number is not None:
        # As a shell says it of a process that a signal has ended.
        raise SystemExit(128 + number)


@dataclass
class _FollowedQuery:
    """A query while it follows stores.

    Attributes:
        live: The query.
        stores: The store of each input; of the only one by no name.
        inlets: Where it reads, by the positions' names.
        outlets: Where it writes, likewise.
        checkpoint: The file for its checkpoints, if there is one.
        keep: How many of them are kept.
        pace: When the next one is due.
        stopped: Gives the signal at which it is to stop, if there was one.
    """

    live: Followable
    stores: Mapping[str | None, Store]
    inlets: Mapping[str, Inlet]
    outlets: Mapping[str, Outlet]
    checkpoint: Path | None
    keep: int
    pace: Pace
    stopped: Callable[[], int | None]

    def take(self, name: str | None, batch: StoredBatch) -> None:
        """Take in a batch, and hand out what it makes final."""
        live, inlet = self.live, self.inlets[_position(name)]
        inlet.admit(batch)
        live.at_batch(f"batch {batch.sequence}" + ("" if name is None else f" of the input {name!r}"))
        if batch.events.num_rows:
            live.push(batch.events, input=name)
        if batch.cti is not None:
            live.advance(utc(batch.cti), input=name)
        if all(cti == MAX_TIME for cti in live.input_ctis().values()):
            live.close()
        promised = _hand_out(live, self.outlets, live.positions["cti"])
        inlet.took(batch)
        self.note(promised)
        live.at_batch(None)
        self.pace.step()
        if self.pace.due():
            self.save()

    def note(self, promised: int | None = None) -> None:
        """Write the places down in the query."""
        cti = self.live.positions.get("cti", MIN_TIME) if promised is None else promised
        places = (*self.inlets.values(), *self.outlets.values())
        self.live.positions = {"cti": cti, **{place.name: place.sequence for place in places}}

    def save(self, *, again: bool = False) -> None:
        """Write a checkpoint.

        Args:
            again: Whether nothing was taken in since the last one. Then it takes that one's place, and pushes no older
                one out, however often the process is started.
        """
        following = self.live.following
        if self.checkpoint is not None:
            same = again and following.kept_at == self.checkpoint
            self.live.checkpoint(self.checkpoint, keep=None if same else self.keep)
            following.kept_at = self.checkpoint
        self.pace.begin()

    def waits(self) -> bool:
        """What is done while no batch comes; whether to wait no longer."""
        for inlet in self.inlets.values():
            inlet.waited = True
        if self.pace.due():
            self.save()
        return self.stopped() is not None


def _by_input(live: Followable, store: Store | Mapping[str, Store]) -> dict[str | None, Store]:
    """The store of each input; of the only one by no name."""
    if isinstance(store, Store):
        return {None: store}
    if live.imports:
        raise PlanError(
            "Cannot follow several stores while one input imports another's CTIs: the read order would be ambiguous.",
            remedy="Leave advance_with= out, or push the batches yourself.",
        )
    if set(store) != set(live.input_ctis()):
        raise PlanError(
            f"The query has the inputs {', '.join(map(repr, live.input_ctis()))}, and there are stores for "
            f"{', '.join(map(repr, store)) or 'none'}.",
            remedy="Give a store for each input.",
        )
    named: dict[str | None, Store] = {}
    named.update(store)
    return named


def _position(name: str | None) -> str:
    return "store" if name is None else f"store {name}"


def _batches(run: _FollowedQuery, timeout: Duration | None) -> Iterator[tuple[str | None, StoredBatch]]:
    """The next batch, always of the input that is the furthest behind: which one that is the stores alone say."""
    left = {
        name: store.follow(run.inlets[_position(name)].sequence, timeout=timeout, on_wait=run.waits)
        for name, store in run.stores.items()
    }
    while left:
        ctis = run.live.input_ctis()
        name = min(left, key=lambda each: (MIN_TIME if each is None else ctis[each], each or ""))
        batch = next(left[name], None)
        if batch is None:
            if name is None or ctis[name] != MAX_TIME:
                return  # it has waited for long enough
            del left[name]
        else:
            yield name, batch


def _hand_out(live: Followable, outlets: Mapping[str, Outlet], promised: int) -> int:
    cti = live.cti
    if "into" in outlets:
        results = live.results()
        if results.num_rows or cti > promised:
            outlets["into"].put(results, None if cti == MIN_TIME else cti)
    # Taken in any case: nobody else asks for them meanwhile, and they would pile up.
    late = live.late()
    if "late_into" in outlets and late is not None and late.num_rows:
        outlets["late_into"].put(late, None)
    return max(cti, promised)
