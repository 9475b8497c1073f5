"""Which calls a running query takes: one at a time, none inside of another, and none after one that has failed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from gpu_ops.core.forking import use_threads
from gpu_ops.core.own_errors import own_errors
from gpu_ops.errors import PlanError, QueryFailedError, notes

P = ParamSpec("P")
R = TypeVar("R")


class Calls:
    """What is known of the calls of a running query.

    Ctrl-C may come between any two lines. So what a call sets, the same function that sets it puts back.

    Attributes:
        lock: Whoever looks at the query or changes it holds it.
        inside: The call that changes the query at the moment.
        offers: Whether that call hands results over, and has changed all it will.
        touches: Whether it is half done.
        failure: The error of the call that has failed.
        follower: The thread in which the query follows a store.
        batch: Which batch it is at; None before and after.
        changes: How many calls have changed the query.
        kept: The checkpoint that was written or read last.

    Examples:
        >>> calls = Calls()
        >>> calls.inside = "push"
        >>> calls.begin("close")
        Traceback (most recent call last):
        gpu_ops.errors.PlanError: close was called from within push of the same query. Call it when push has returned.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.inside: str | None = None
        self.offers = self.touches = False
        self.failure: BaseException | None = None
        self.follower: int | None = None
        self.batch: str | None = None
        self.changes = self._changes_before = 0
        self.kept: Path | None = None
        self._what = ""

    def begin(self, name: str) -> None:
        """A call that changes the query.

        Raises:
            PlanError: It was made from within such a call, from `on_results` for instance; or another thread has the
                query follow a store.
            QueryFailedError: An earlier one has failed.
        """
        if self.inside is not None:
            inside = f"on_results, in {self.inside}" if self.offers else self.inside
            raise PlanError(
                f"{name} was called from within {inside} of the same query.",
                remedy=f"Call it when {self.inside} has returned.",
            )
        if self.follower is not None and self.follower != threading.get_ident():
            raise PlanError(
                f"{name} was called while the query follows a store in another thread.",
                remedy="Append to the store instead, or call it when follow has returned.",
            )
        self.check()

    def begin_to_follow(self) -> None:
        """A call that follows a store.

        Raises:
            PlanError: As `begin`; or the query follows a store already.
            QueryFailedError: As `begin`.
        """
        self.begin("follow")
        if self.follower is not None:
            raise PlanError("The query follows a store already.", remedy="Call follow when it has returned.")

    def look(self, name: str) -> None:
        """A call that looks at the query between two changes, or from `on_results`.

        Raises:
            PlanError: It was made in the midst of a change, by a function of the user's in a window.
        """
        if self.inside is not None and not self.offers:
            raise PlanError(
                f"{name} was called from within {self.inside} of the same query, whose step is not over.",
                remedy=f"Call it when {self.inside} has returned, or from on_results.",
            )

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
        where = [self.inside or "follow", *([] if self.batch is None else [self.batch])]
        said = "; ".join(filter(None, [f"{type(error).__name__}: {error}".removesuffix(": "), *notes(error)]))
        self._what = f"in {', at '.join(where)}: {said}"

    @property
    def what(self) -> str | None:
        """What failed, and where; None if nothing did."""
        self._note_interrupt()
        return None if self.failure is None else self._what

    def _note_interrupt(self) -> None:
        if self.failure is None and self.touches and self.inside is None:
            # Ctrl-C behind the step, or while another error was being noted.
            self.fail(KeyboardInterrupt("a call was interrupted"))

    def check(self) -> None:
        """Refuse to go on with a query that has failed.

        Raises:
            QueryFailedError: It has; the first error is the cause.
        """
        self._note_interrupt()
        if self.failure is None:
            return
        remedy = (
            "Start the query anew: it has made no checkpoint."
            if self.kept is None
            else f"Restore it from its last checkpoint: g.restore({str(self.kept)!r}, query)."
        )
        raise QueryFailedError(f"The running query has failed {self._what}", remedy=remedy) from self.failure

    def forgive(self) -> None:
        """Nothing has failed, since the query begins anew."""
        self.failure, self.touches, self._what = None, False, ""


class _HasCalls(Protocol):
    _calls: Calls


Q = TypeVar("Q", bound=_HasCalls)


def _follows(query: _HasCalls) -> bool:
    """Whether `follow` makes the call: its own net is further out, and what has failed it restores by the cause."""
    return query._calls.follower == threading.get_ident()  # noqa: SLF001


def changes(method: Callable[Concatenate[Q, P], R]) -> Callable[Concatenate[Q, P], R]:
    """A method that changes a query; other threads wait until it is over.

    A forked process is refused first: another thread may have had the lock when it was forked.
    """

    @wraps(method)
    def called(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> R:
        use_threads()
        calls = self._calls
        with calls.lock:
            calls.begin(method.__name__)
            try:
                calls.inside = method.__name__
                made = method(self, *args, **kwargs)
                calls.touches = False
                return made
            finally:
                calls.inside = None

    return own_errors(called, unless=_follows)


def looks(method: Callable[Concatenate[Q, P], R]) -> Callable[Concatenate[Q, P], R]:
    """A method that looks at a query, whether it has failed or not."""

    @wraps(method)
    def called(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> R:
        use_threads()
        with self._calls.lock:
            self._calls.look(method.__name__)
            return method(self, *args, **kwargs)

    return own_errors(called, unless=_follows)


def reads(method: Callable[Concatenate[Q, P], R]) -> Callable[Concatenate[Q, P], R]:
    """A method that looks at a query that has not failed."""

    @wraps(method)
    def called(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._calls.check()
        return method(self, *args, **kwargs)

    return looks(called)
