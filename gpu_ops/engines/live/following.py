"""Following: a running query reads stores and appends its results to stores, exactly once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from gpu_ops.core.arguments import callback
from gpu_ops.core.own_errors import theirs
from gpu_ops.core.time import MAX_TIME, MIN_TIME, Duration, Instant, utc
from gpu_ops.engines.live.calls import Calls
from gpu_ops.engines.live.pace import Pace, stopping
from gpu_ops.engines.live.places import SINKS, Following, IfOtherStore, Inlet, Outlet, begin
from gpu_ops.engines.live.topic_outlets import GivesResults, TopicOutlet, check_topics, topic_outlets
from gpu_ops.errors import PlanError, QueryFailedError, shown
from gpu_ops.microbatches.reports import StoredBatch
from gpu_ops.microbatches.stores import Store
from gpu_ops.topics.topic import Topic

_LOG = logging.getLogger("gpu_ops")
T = TypeVar("T")


class Followable(GivesResults, Protocol):
    """The part of `RunningQuery` that following needs."""

    positions: dict[str, int]
    following: Following

    @property
    def closed(self) -> bool:
        """Whether the input has ended."""

    @property
    def cti(self) -> int:
        """The CTI of the results, in ticks."""

    @property
    def imports(self) -> bool:
        """Whether an input imports the CTIs of another."""

    def input_ctis(self) -> dict[str, int]:
        """The CTI of each input, in ticks."""

    def push(self, batch: Any, *, input: str | None = None) -> None:  # noqa: A002  (the word for it)
        """As in `RunningQuery`."""

    def advance(self, cti: Instant, *, input: str | None = None) -> None:  # noqa: A002  (the word for it)
        """As in `RunningQuery`."""

    def close(self) -> None:
        """As in `RunningQuery`."""

    def results(self) -> pa.Table:
        """As in `RunningQuery`."""

    def late(self) -> pa.Table | None:
        """As in `RunningQuery`."""

    def keep_at(self, path: Path, keep: int, *, again: bool) -> None:
        """As in `RunningQuery`."""


def follow(
    live: Followable,
    calls: Calls,
    store: Store | Mapping[str, Store],
    into: Store | Topic | None,
    late_into: Store | Topic | None,
    checkpoint: Path | None,
    every: int | Duration,
    timeout: Duration | None,
    on_step: Callable[[Any], None] | None,
    keep: int,
    stop_on: Iterable[int],
    if_other_store: IfOtherStore,
) -> None:
    """`RunningQuery.follow`: each batch of input leads to a batch of results, if there are any or their CTI has moved.

    So batch k of the results depends only on the store and the query, and a restored query knows which it has written.
    """
    callback(on_step, name="on_step", takes="the running query")
    pace = Pace(every)
    stores = _by_input(live, store)
    for sink, target in zip(SINKS, (into, late_into), strict=True):
        if not isinstance(target, Store | Topic | None):
            raise PlanError(
                f"{sink} is {shown(target)}, and results go into a store or a topic.",
                remedy='Write g.store("results"), or g.kafka("results", …).',
            )
    targets = {name: each for name, each in zip(SINKS, (into, late_into), strict=True) if each is not None}
    check_topics(live, targets)
    with stopping(tuple(stop_on)) as stopped, ExitStack() as stack:
        sinks = {
            name: (target, stack.enter_context(target.writer()))
            for name, target in targets.items()
            if isinstance(target, Store)
        }
        topics = {name: target for name, target in targets.items() if isinstance(target, Topic)}
        sources = {_position(name): each for name, each in stores.items()}
        known = {name: at for name, at in live.positions.items() if name not in topics}
        inlets, written = begin(live.following, known, sources, sinks, if_other_store)
        outlets: dict[str, Outlet | TopicOutlet] = {**written}
        outlets |= topic_outlets(live.following, live.positions, topics, if_other_store, stack)
        live.following.places = [*inlets.values(), *outlets.values()]
        run = _FollowedQuery(live, calls, stores, inlets, outlets, checkpoint, keep, pace, stopped)
        # Saved first: after a kill before the next checkpoint, the query must know its own results in the store.
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
        # The exit status that shells give to a process that a signal has ended.
        raise SystemExit(128 + number)


def retrying(
    calls: Calls, checkpoint: Path | None, restore: Callable[[Path], None], attempt: Callable[[], None]
) -> None:
    """Make attempts: after a failed step, restore the query, log a warning, and try again.

    Results that the store already holds come out the same and are not written again. Ctrl-C is not retried, nor is an
    error from outside a step, such as a full disk or an error in `on_step`.

    Args:
        calls: The query's calls.
        checkpoint: The checkpoint to restore; without one nothing is retried.
        restore: Restores the query from it.
        attempt: Follows the store from where the query is.

    Raises:
        QueryFailedError: The same batch failed again with the same type of error.
    """
    known: set[tuple[str | None, type[Exception]]] = set()
    while True:
        try:
            attempt()
        except BaseException as error:
            if calls.failure is None and calls.unsettled:
                # The query has taken in a batch whose results were not all written.
                calls.fail(error)
                raise
            if checkpoint is None or calls.failure is not error or not isinstance(error, Exception):
                raise
            if (calls.batch, type(error)) in known:
                raise QueryFailedError(
                    f"The query was restored from {checkpoint}, and has failed again {calls.what}",
                    remedy="Mend the query or what it reads, then restore it again.",
                ) from error
            known.add((calls.batch, type(error)))
            _LOG.warning("A running query has failed %s; it goes on from %s", calls.what, checkpoint)
            restore(checkpoint)
        else:
            return


@dataclass
class _FollowedQuery:
    """A query while it follows stores.

    Attributes:
        live: The query.
        calls: Its calls.
        stores: The store of each input; the name of a query's only input is None.
        inlets: The places where it reads, by their names among the positions.
        outlets: The places where it writes, likewise.
        checkpoint: The file for its checkpoints, if any.
        keep: How many checkpoints are kept.
        pace: When the next checkpoint is due.
        stopped: Gives the signal that asked it to stop, or None.
    """

    live: Followable
    calls: Calls
    stores: Mapping[str | None, Store]
    inlets: Mapping[str, Inlet]
    outlets: Mapping[str, Outlet | TopicOutlet]
    checkpoint: Path | None
    keep: int
    pace: Pace
    stopped: Callable[[], int | None]

    def take(self, name: str | None, batch: StoredBatch) -> None:
        """Push a batch, and write the results that it makes final."""
        live, inlet = self.live, self.inlets[_position(name)]
        inlet.admit(batch)
        self.calls.at(f"batch {batch.sequence}" + ("" if name is None else f" of the input {name!r}"))
        if batch.events.num_rows:
            live.push(batch.events, input=name)
        if batch.cti is not None:
            live.advance(utc(batch.cti), input=name)
        if all(cti == MAX_TIME for cti in live.input_ctis().values()):
            live.close()
        promised = _append_results(live, self.outlets, live.positions["cti"])
        inlet.took(batch)
        self.note(promised)
        self.calls.at(None)
        self.pace.step()
        if self.pace.due():
            self.save()

    def note(self, promised: int | None = None) -> None:
        """Copy the places to `RunningQuery.positions`."""
        cti = self.live.positions.get("cti", MIN_TIME) if promised is None else promised
        places = (*self.inlets.values(), *self.outlets.values())
        self.live.positions = {"cti": cti, **{place.name: place.sequence for place in places}}

    def save(self, *, again: bool = False) -> None:
        """Write a checkpoint.

        Args:
            again: Whether nothing was taken in since the last checkpoint. Then the new one replaces it, and removes no
                older one, however often the process is restarted.
        """
        following = self.live.following
        if self.checkpoint is not None:
            same = again and following.kept_at == self.checkpoint
            self.live.keep_at(self.checkpoint, self.keep, again=same)
            following.kept_at = self.checkpoint
        self.pace.begin()

    def waits(self) -> bool:
        """Write a checkpoint if one is due while no batch comes; return whether to stop waiting."""
        for inlet in self.inlets.values():
            inlet.waited = True
        if self.pace.due():
            self.save()
        return self.stopped() is not None


def _by_input(live: Followable, store: Store | Mapping[str, Store]) -> dict[str | None, Store]:
    """The store of each input; the name of a query's only input is None."""
    return {None: store} if isinstance(store, Store) else for_each_input(live, store, "store")


def for_each_input(live: Followable, given: Mapping[str, T], what: str) -> dict[str | None, T]:
    """What is given for each input of a query.

    Args:
        live: The query.
        given: A store or a topic for each input, by its name.
        what: "store" or "topic".

    Raises:
        PlanError: An input has none, or there is one for no input; or an input imports the CTIs of another one.
    """
    if live.imports:
        raise PlanError(
            f"Cannot follow several {what}s while one input imports another's CTIs: the read order would be ambiguous.",
            remedy="Leave advance_with= out, or push the batches yourself.",
        )
    if set(given) != set(live.input_ctis()):
        raise PlanError(
            f"The query has the inputs {', '.join(map(repr, live.input_ctis()))}, and there are {what}s for "
            f"{', '.join(map(repr, given)) or 'none'}.",
            remedy=f"Give a {what} for each input.",
        )
    named: dict[str | None, T] = {}
    named.update(given)
    return named


def _position(name: str | None) -> str:
    return "store" if name is None else f"store {name}"


def _batches(run: _FollowedQuery, timeout: Duration | None) -> Iterator[tuple[str | None, StoredBatch]]:
    """The batches in the order of their inputs' CTIs: that order depends on nothing but the stores."""
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
                return  # the timeout has passed
            del left[name]
        else:
            yield name, batch


def _append_results(live: Followable, outlets: Mapping[str, Outlet | TopicOutlet], promised: int) -> int:
    cti = live.cti
    if "into" in outlets:
        results = live.results()
        if results.num_rows or cti > promised:
            outlets["into"].put(results, None if cti == MIN_TIME else cti)
    # Taken in any case: while the query follows, nobody else takes late rows, and they would pile up.
    late = live.late()
    if "late_into" in outlets and late is not None and late.num_rows:
        outlets["late_into"].put(late, None)
    return max(cti, promised)
