"""A runtime of statements: events are sent to it, its clock is advanced, and listeners are told what comes of it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from gpu_ops.core.bounds import Bounds
from gpu_ops.epl.binding.types import event_type
from gpu_ops.epl.checkpoints import read_runtime, write_runtime
from gpu_ops.epl.deployments import Deployments
from gpu_ops.epl.running import RunningStatement, SentDeliveries
from gpu_ops.epl.sent_rows import milliseconds
from gpu_ops.epl.service import Service
from gpu_ops.errors import PlanError


class Runtime:
    """Statements, their events, and a clock.

    Nothing happens by itself: `send` and `advance` say what happens, in its order.

    Args:
        types: The properties of each type of event: Esper's types (`"int"`, `"string"`, `"double[]"`) or Arrow's.
        start: What the clock shows first: milliseconds since 1970, or an aware datetime.
        default_selector: `"istream"`, or `"irstream"` for statements that say nothing of it to give old rows too.

    Examples:
        >>> from gpu_ops import epl
        >>> runtime = epl.Runtime({"Withdrawal": {"account": "string", "amount": "int"}})
        >>> (large,) = runtime.deploy("select account, sum(amount) as total from Withdrawal#length(2) group by account")
        >>> large.listen(lambda new, old, statement: print(new.to_pylist()))
        >>> _ = runtime.send("Withdrawal", [{"account": "a", "amount": 5}, {"account": "a", "amount": 6}])
        [{'account': 'a', 'total': 5}]
        [{'account': 'a', 'total': 11}]
    """

    def __init__(
        self,
        types: Mapping[str, Mapping[str, Any] | pa.Schema] | None = None,
        *,
        start: int | dt.datetime = 0,
        default_selector: str = "istream",
        device: str = "cpu",
    ) -> None:
        if default_selector not in {"istream", "irstream"}:
            raise PlanError(f"default_selector is {default_selector!r}.", remedy='Say "istream" or "irstream".')
        self.errors: list[tuple[str, Exception]] = []
        self._deployments = Deployments(irstream=default_selector == "irstream", device=device, errors=self.errors)
        self._service = Service(self._deployments, milliseconds(start))
        self._lock = threading.RLock()
        for name, fields in (types or {}).items():
            self._deployments.add_type(name, fields if isinstance(fields, pa.Schema) else event_type(fields))

    # Types and statements

    @property
    def clock(self) -> int:
        """What the clock shows, in milliseconds since 1970."""
        return self._service.clock

    @property
    def statements(self) -> tuple[RunningStatement, ...]:
        """The deployed statements, in the order in which they came."""
        return tuple(self._deployments.statements.values())

    def __getitem__(self, name: str) -> RunningStatement:
        """A statement by its name."""
        return self._deployments[name]

    def deploy(self, text: str) -> tuple[RunningStatement, ...]:
        """Add the statements of a text.

        Raises:
            TextError: A statement cannot be read, or asks for what there is not; then none is added.
        """
        if not isinstance(text, str):
            raise PlanError(f"deploy takes a text, not {type(text).__name__}.", remedy="Write select * from T.")
        with self._lock:
            return self._service.deploy(text)

    @property
    def active_filters(self) -> int:
        """How many streams of events the statements listen to."""
        return sum(len(each.plan.reads) for each in self._deployments.statements.values())

    def undeploy(self, name: str) -> None:
        """Take a statement away."""
        with self._lock:
            self._deployments.undeploy(name)

    # Events and time

    def send(self, type_name: str, rows: Any, *, at: Any = None) -> SentDeliveries:
        """Send events, in their order: each is a turn.

        Args:
            type_name: Their type.
            rows: A row as a mapping, a list of rows, an Arrow table or record batch, or a frame.
            at: When each event comes: int64 milliseconds since 1970, or Arrow timestamps, one for each row, none before
                the one above it or before the clock. The clock is advanced to it before the event is sent, if it is
                later than the clock. By default the clock stays.

        Returns:
            The deliveries that they made, in order; each is made when it is looked at.

        Raises:
            PlanError: There is no such type.
            ColumnError: A column is missing, a value is of another type, or a time is before the one above it; then
                nothing was sent.
            Exception: What made a statement fail. The others have taken the events, and their listeners were told.
        """
        with self._lock:
            return self._service.send(type_name, rows, at=at)

    def advance(self, now: int | dt.datetime) -> SentDeliveries:
        """Set the clock. What fell due in between happens now, once.

        Args:
            now: Milliseconds since 1970, or an aware datetime; not before what the clock shows.
        """
        with self._lock:
            return self._service.advance(now)

    def advance_span(self, now: int | dt.datetime, resolution: int | None = None) -> SentDeliveries:
        """Walk the clock to a time: what falls due on the way happens when it does.

        Args:
            now: As in `advance`.
            resolution: The length of a step, in milliseconds; by default 1.
        """
        with self._lock:
            return self._service.advance_span(now, resolution)

    def rows(self, name: str) -> pa.Table:
        """What a statement's iterator gives now: the content of its windows, through its select clause."""
        with self._lock:
            return self._service.rows(name)

    # Checkpoints

    def checkpoint(self, path: str | Path, *, keep: int | None = None) -> None:
        """Write all that the runtime holds to a file, atomically: a zip archive of Arrow IPC files and JSON.

        That is types, the clock, the statements with their texts and names, what their windows, aggregates and outputs
        hold, and deliveries that `RunningStatement.deliveries` has not given yet. Listeners and `errors` are not saved.

        Args:
            path: The file. An older checkpoint there is replaced.
            keep: How many checkpoints are kept: this one at the path, the one before it at ``path.1`` and so on. None
                replaces the last one and leaves older ones.

        Raises:
            SourceError: The file system refuses. Then an older checkpoint at the path is unchanged.

        Examples:
            >>> import pathlib, tempfile
            >>> from gpu_ops import epl
            >>> runtime = epl.Runtime({"Withdrawal": {"amount": "int"}})
            >>> _ = runtime.deploy("@name('last two') select sum(amount) as total from Withdrawal#length(2)")
            >>> _ = runtime.send("Withdrawal", [{"amount": 5}, {"amount": 6}])
            >>> path = pathlib.Path(tempfile.mkdtemp()) / "bank.checkpoint"
            >>> runtime.checkpoint(path)
            >>> again = epl.Runtime.restore(path)
            >>> [each.new.to_pylist() for each in again.send("Withdrawal", {"amount": 7})]
            [[{'total': 13}]]
        """
        with self._lock:
            write_runtime(Path(path), self._deployments, self._service, keep)

    @classmethod
    def restore(
        cls, path: str | Path, *, device: str = "cpu", trust: bool = False, max_bytes: int | None = None
    ) -> Self:
        """A runtime as a checkpoint found it: it goes on as the one that wrote it would have. Listeners come anew.

        Args:
            path: What `checkpoint` wrote.
            device: Where statements compute; it may be another device than before.
            trust: Whether the tables in the checkpoint are taken as they are; else they are checked.
            max_bytes: How many bytes they may unpack to.

        Raises:
            SourceError: There is no checkpoint, or it is damaged, or this version of gpu_ops plans a statement
                otherwise than the one that wrote it.
        """
        made = cls(device=device)
        made._service = read_runtime(Path(path), Bounds(trust, max_bytes), made._deployments)
        return made
