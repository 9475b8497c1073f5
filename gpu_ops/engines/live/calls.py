"""The calls of a running query: one at a time, none within another, and none after a failure."""

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
    """The state of a running query's calls.

    Ctrl-C may come between any two lines, so each function resets what it has set.

    Attributes:
        lock: Held by each call that reads or changes the query.
        inside: The name of the call that is changing the query.
        offers: Whether that call is in `on_results`: its own changes are complete.
        touches: Whether its changes are half done.
        failure: The error of the call that failed.
        follower: The thread in which the query follows a store.
        batch: The batch that the follower is at; None before and after.
        changes: How many calls have changed the query.
        kept: The checkpoint that was last written or read.

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
        self.kept: Path | str | None = None
        self._what = ""

    def begin(self, name: str) -> None:
        """Admit a call that changes the query.

        Raises:
            PlanError: It was made within another such call, for example from `on_results`; or the query follows a store
                in another thread.
            QueryFailedError: An earlier call has failed.
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
        """Admit a call that follows a store.

        Raises:
            PlanError: As `begin`; or the query already follows a store.
            QueryFailedError: As `begin`.
        """
        self.begin("follow")
        if self.follower is not None:
            raise PlanError("The query follows a store already.", remedy="Call follow when it has returned.")

    def look(self, name: str) -> None:
        """Admit a call that reads the query, between two changes or from `on_results`.

        Raises:
            PlanError: A user's function made it during a step.
        """
        if self.inside is not None and not self.offers:
            raise PlanError(
                f"{name} was called from within {self.inside} of the same query, whose step is not over.",
                remedy=f"Call it when {self.inside} has returned, or from on_results.",
            )

    def at(self, batch: str | None) -> None:
        """Note the batch that the follower comes to; None when it is done."""
        self.batch, self._changes_before = batch, self.changes

    @property
    def unsettled(self) -> bool:
        """Whether the follower has changed the query at its batch, and the batch is not done."""
        return self.batch is not None and self.changes > self._changes_before

    def fail(self, error: BaseException) -> None:
        """Mark the query as failed: its state can no longer be used."""
        self.failure = error
        where = [self.inside or "follow", *([] if self.batch is None else [self.batch])]
        said = "; ".join(filter(None, [f"{type(error).__name__}: {error}".removesuffix(": "), *notes(error)]))
        self._what = f"in {', at '.join(where)}: {said}"

    @property
    def what(self) -> str | None:
        """What failed and where; None if nothing did."""
        self._note_interrupt()
        return None if self.failure is None else self._what

    def _note_interrupt(self) -> None:
        if self.failure is None and self.touches and self.inside is None:
            # Ctrl-C came after the step, or while another error was being noted.
            self.fail(KeyboardInterrupt("a call was interrupted"))

    def check(self) -> None:
        """Refuse calls of a query that has failed.

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
        """Forget a failure, because the query starts anew."""
        self.failure, self.touches, self._what = None, False, ""


class _HasCalls(Protocol):
    _calls: Calls


Q = TypeVar("Q", bound=_HasCalls)


def _follows(query: _HasCalls) -> bool:
    """Whether `follow` makes the call: it translates errors itself, and needs the original one to retry a step."""
    return query._calls.follower == threading.get_ident()  # noqa: SLF001


def changes(method: Callable[Concatenate[Q, P], R]) -> Callable[Concatenate[Q, P], R]:
    """A method that changes a query; other threads wait until it returns.

    A forked process is refused before the lock is taken: another thread may have held it at the fork.
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
    """A method that reads a query, failed or not."""

    @wraps(method)
    def called(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> R:
        use_threads()
        with self._calls.lock:
            self._calls.look(method.__name__)
            return method(self, *args, **kwargs)

    return own_errors(called, unless=_follows)


def reads(method: Callable[Concatenate[Q, P], R]) -> Callable[Concatenate[Q, P], R]:
    """A method that reads a query, and is refused once the query has failed."""

    @wraps(method)
    def called(self: Q, /, *args: P.args, **kwargs: P.kwargs) -> R:
        self._calls.check()
        return method(self, *args, **kwargs)

    return looks(called)
