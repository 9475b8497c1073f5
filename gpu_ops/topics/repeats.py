"""Messages that were written again: a writer that delivers at least once says in its headers which result each one is.

Within a partition such a writer's results are in their order. So one that is no later than another one of the same run
there is a repetition, and a reader needs to remember one place for each run and partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gpu_ops.ingest.counts import Counts

RUN, EPOCH, ROW = "gpu_ops-run", "gpu_ops-epoch", "gpu_ops-row"
"""The headers of a result: the run that wrote it, its epoch, and its row there."""

Result = tuple[int, str]
"""The number of a partition, and the name of a run."""

_EPOCH = 1 << 32


def result_headers(run: str, epoch: int, row: int) -> list[tuple[str, bytes]]:
    """The headers of a result, which tell a reader whether it has had it already."""
    return [(RUN, run.encode()), (EPOCH, str(epoch).encode()), (ROW, str(row).encode())]


class Repeats:
    """Finds the messages of a topic that repeat earlier ones.

    Args:
        places: How far each run had come in each partition, as `places` gave it.

    Examples:
        >>> from types import SimpleNamespace
        >>> def message(epoch, row):
        ...     headers = result_headers("a", epoch, row)
        ...     return SimpleNamespace(headers=lambda: headers, partition=lambda: 0)
        >>> written = [message(1, 0), message(1, 1), message(1, 0), message(1, 1), message(2, 0)]
        >>> fresh, skipped = Repeats({}).dropped(written)
        >>> [written.index(each) for each in fresh], skipped.invalid
        ([0, 1, 4], Counter({'repeated': 2}))
    """

    def __init__(self, places: Mapping[Result, int]) -> None:
        self.places = dict(places)

    def dropped(self, messages: Sequence[Any]) -> tuple[list[Any], Counts]:
        """The messages that repeat no earlier one, and the count of the others."""
        kept = [message for message in messages if self._is_new(message)]
        gone = len(messages) - len(kept)
        return kept, Counts(rows=gone, invalid=Counter(repeated=gone)) if gone else Counts()

    def _is_new(self, message: Any) -> bool:
        said = dict(message.headers() or ())
        try:
            run, epoch, row = said[RUN].decode(), int(said[EPOCH]), int(said[ROW])
        except (KeyError, ValueError, AttributeError):  # no result of such a writer
            return True
        result, place = (message.partition(), run), epoch * _EPOCH + row
        if place <= self.places.get(result, -1):
            return False
        self.places[result] = place
        return True
