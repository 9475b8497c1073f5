"""A running query from store to store, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gpu_ops.errors import PlanError, SourceError
from gpu_ops.store.stores import Store
from gpu_ops.store.writer import Writer
from gpu_ops.time import MAX_TIME, MIN_TIME

if TYPE_CHECKING:
    from gpu_ops.engines.live import RunningQuery


@dataclass
class _Outlet:
    """Where tables go, one batch after the other, but for those that are there already.

    Attributes:
        name: Its name among the positions.
        writer: The store's.
        position: The sequence number that the last batch has, or had when it was written before.
    """

    name: str
    writer: Writer
    position: int

    def put(self, table: pa.Table, cti: int | None) -> None:
        """Write a batch, unless it was written before the query was restored."""
        self.position += 1
        if self.position > self.writer.sequence:
            self.writer.append(table, cti)


def follow(
    live: RunningQuery,
    store: Store | Mapping[str, Store],
    into: Store | None,
    late_into: Store | None,
    checkpoint: Path | None,
    every: int,
    timeout: float | None,
    on_step: Callable[[Any], None] | None,
) -> None:
    """`RunningQuery.follow`: after each batch of the store one of results, if there is any or their CTI has moved.

    So the k-th batch of results depends on the store and the query alone, and a restored query knows which are written.
    """
    if every < 1:
        raise PlanError("A checkpoint is made after one batch or more.", remedy="Give every=1 or more.")
    stores = _by_input(live, store)
    with ExitStack() as stack:
        outlets = {
            name: _outlet(name, stack.enter_context(target.writer()), live.positions.get(name), target)
            for name, target in (("into", into), ("late_into", late_into))
            if target is not None
        }
        promised = live.positions.get("cti", MIN_TIME)
        since = {name: live.positions.get(_position(name), 0) for name in stores}
        made = 0

        def keep() -> None:
            written = {name: outlet.position for name, outlet in outlets.items()}
            read = {_position(name): sequence for name, sequence in since.items()}
            live.positions = {**read, "cti": promised, **written}

        if checkpoint is not None:
            # Killed before the next one, it must not take what it has written for somebody else's.
            keep()
            live.checkpoint(checkpoint)
        for name, batch in () if live.closed else _batches(live, stores, since, timeout):
            if batch.expired and since[name]:
                raise SourceError(
                    f"Batches of {stores[name]!r} after number {since[name]}, which the query had come to, have "
                    "expired.",
                    remedy="Start the query afresh from what is left, or keep batches for longer.",
                )
            if batch.events.num_rows:
                live.push(batch.events, input=name)
            if batch.cti is not None:
                live.advance(batch.cti, input=name)
            if all(cti == MAX_TIME for cti in live.input_ctis().values()):
                live.close()
            promised = _hand_out(live, outlets, promised)
            since[name] = batch.sequence
            keep()
            made += 1
            if checkpoint is not None and made % every == 0:
                live.checkpoint(checkpoint)
            if on_step is not None:
                on_step(live)
        if checkpoint is not None and made % every:
            live.checkpoint(checkpoint)


def _by_input(live: RunningQuery, store: Store | Mapping[str, Store]) -> dict[str | None, Store]:
    """The store of each input; of the only one by no name."""
    if isinstance(store, Store):
        return {None: store}
    if live.imports:
        raise PlanError(
            "Which of two stores is read next hangs on their CTIs, and one input takes in those of another.",
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


def _batches(
    live: RunningQuery, stores: Mapping[str | None, Store], since: Mapping[str | None, int], timeout: float | None
) -> Iterator[tuple[str | None, Any]]:
    """The next batch, always of the input that is the furthest behind: which one that is the stores alone say."""
    left = {name: store.follow(since[name], timeout=timeout) for name, store in stores.items()}
    while left:
        ctis = live.input_ctis()
        name = min(left, key=lambda each: (MIN_TIME if each is None else ctis[each], each or ""))
        batch = next(left[name], None)
        if batch is None:
            if name is None or ctis[name] != MAX_TIME:
                return  # it has waited for long enough
            del left[name]
        else:
            yield name, batch


def _outlet(name: str, writer: Writer, position: int | None, target: Store) -> _Outlet:
    if position is None:
        return _Outlet(name, writer, writer.sequence)
    if writer.sequence < position:
        raise SourceError(
            f"{target!r} ends with batch {writer.sequence}, and the checkpoint was made after batch {position} of it.",
            remedy="Give the store that the query wrote to, or start the query afresh with an empty one.",
        )
    return _Outlet(name, writer, position)


def _hand_out(live: RunningQuery, outlets: dict[str, _Outlet], promised: int) -> int:
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
