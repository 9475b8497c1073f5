"""What becomes of a query that follows a store when a step fails: it goes back to its checkpoint and tries again."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from gpu_ops.engines.live.calls import Calls
from gpu_ops.errors import QueryFailedError

_LOG = logging.getLogger("gpu_ops")


def again(calls: Calls, checkpoint: Path | None, restore: Callable[[Path], None], attempt: Callable[[], None]) -> None:
    """Make an attempt; after a step that failed restore the query, say so in the log of ``gpu_ops``, and make another.

    What was written to a store already is the same again, and is not written again. Ctrl-C ends it, and so does an
    error that no step made: of a store that is full, or of `on_step`.

    Args:
        calls: The query's.
        checkpoint: Where it is restored from; without one nothing is made again.
        restore: Restores it.
        attempt: Follows the store from where the query is.

    Raises:
        QueryFailedError: The same error came up again at the same batch.
    """
    known: set[tuple[str | None, type[Exception]]] = set()
    while True:
        try:
            attempt()
        except BaseException as error:
            if calls.failure is None and calls.unsettled:
                # The query has taken a batch in, and what that led to has not reached where it was to go.
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
