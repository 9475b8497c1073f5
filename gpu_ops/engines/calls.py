"""Which calls a running query takes: one at a time, none inside of another, and none after one that has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from gpu_ops.errors import PlanError, QueryFailedError, notes
from gpu_ops.forking import use_threads


class Calls:
    """The lock of a running query, and what became of the calls.

    Attributes:
        failure: The error of the call that has failed.
        batch: Which batch a query that follows a store is at; None before and after.
        changes: How many calls have changed the query.
        kept: The checkpoint that was written or read last.

    Examples:
        >>> calls = Calls()
        >>> with calls.changing("push"), calls.changing("close"):
        ...     pass
        Traceback (most recent call last):
        gpu_ops.errors.PlanError: close was called from within push of the same query. Call it when push has returned.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._inside: str | None = None
        self._follower: int | None = None
        self.offers = False
        self.failure: BaseException | None = None
        self.batch: str | None = None
        self.changes = self._changes_before = 0
        self.kept: Path | None = None
        self._what = ""

    @contextmanager
    def changing(self, name: str) -> Iterator[None]:
        """A call that changes the query; other threads wait until it is over.

        Raises:
            PlanError: It was made from within such a call, from `on_results` for instance; or another thread has the
                query follow a store.
            QueryFailedError: An earlier one has failed.
        """
        use_threads()
        with self._lock:
            if self._inside is not None:
                inside = f"on_results, in {self._inside}" if self.offers else self._inside
                raise PlanError(
                    f"{name} was called from within {inside} of the same query.",
                    remedy=f"Call it when {self._inside} has returned.",
                )
            if self._follower not in {None, threading.get_ident()}:
                raise PlanError(
                    f"{name} was called while the query follows a store in another thread.",
                    remedy="Append to the store instead, or call it when follow has returned.",
                )
            self.check()
            self._inside = name
            try:
                yield
            finally:
                self._inside = None

    @contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """A call that looks at the query between two changes, or from `on_results`.

        Raises:
            PlanError: It was made in the midst of a change, by a function of the user's in a window.
        """
        use_threads()
        with self._lock:
            if self._inside is not None and not self.offers:
                raise PlanError(
                    f"{name} was called from within {self._inside} of the same query, whose step is not over.",
                    remedy=f"Call it when {self._inside} has returned, or from on_results.",
                )
            yield

    @contextmanager
    def following(self) -> Iterator[None]:
        """While it lasts, this thread alone changes the query.

        Raises:
            PlanError: The query follows a store already.
        """
        with self.changing("follow"):
            if self._follower is not None:
                raise PlanError("The query follows a store already.", remedy="Follow each store once.")
            self._follower = threading.get_ident()
        try:
            yield
        finally:
            self._follower = None

    def at(self, batch: str | None) -> None:
        """A query that follows a store comes to a batch; or all of it is done."""
        self.batch, self._changes_before = batch, self.changes

    @property
    def unsettled(self) -> bool:
        """Whether the query has taken something of a batch in, and the batch is not done."""
        return self.batch is not None and self.changes > self._changes_before

    def fail(self, error: BaseException) -> None:
        """The call that is being made has failed: what the query remembers is of no use any more."""
        self.failure = error
        where = [self._inside or "follow", *([] if self.batch is None else [self.batch])]
        said = "; ".join(filter(None, [f"{type(error).__name__}: {error}".removesuffix(": "), *notes(error)]))
        self._what = f"in {', at '.join(where)}: {said}"

    @property
    def what(self) -> str | None:
        """What failed, and where; None if nothing did."""
        return None if self.failure is None else self._what

    def check(self) -> None:
        """Refuse to go on with a query that has failed.

        Raises:
            QueryFailedError: It has; the first error is the cause.
        """
        if self.failure is None:
            return
        remedy = (
            "Start the query anew: it has made no checkpoint."
            if self.kept is None
            else f"Restore it from its last checkpoint: g.restore({str(self.kept)!r}, query)."
        )
        raise QueryFailedError(f"The running query has failed {self._what}", remedy=remedy) from self.failure

    def begin(self) -> None:
        """Nothing has failed, since the query has begun anew."""
        self.failure, self._what = None, ""


P = ParamSpec("P")
R = TypeVar("R")


class _HasCalls(Protocol):
    _calls: Calls


Q = TypeVar("Q", bound=_HasCalls)


def reads(method: Callable[Concatenate[Q, P], R]) -> Callable[Concatenate[Q, P], R]:
    """A method that looks at a query that has not failed."""

    @wraps(method)
    def called(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self._calls.reading(method.__name__):
            self._calls.check()
            return method(self, *args, **kwargs)

    return called
