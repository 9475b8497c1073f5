"""A runtime of statements: events are sent to it, its clock is advanced, and listeners are told what comes of it."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pyarrow as pa

from gpu_ops.core.arguments import by_names, path_like, word
from gpu_ops.core.bounds import Bounds
from gpu_ops.core.own_errors import of_methods, own_errors
from gpu_ops.core.time import Duration
from gpu_ops.epl.calls import ServiceCalls
from gpu_ops.epl.checkpoints import read_runtime, write_runtime
from gpu_ops.epl.deployments import Deployments, StateListener
from gpu_ops.epl.groups import StatementGroup
from gpu_ops.epl.isolated import IsolatedService
from gpu_ops.epl.running import RunningStatement, SentDeliveries
from gpu_ops.epl.service import Service, Turns
from gpu_ops.epl.variables import VariableValues
from gpu_ops.errors import PlanError, shown
from gpu_ops.texts.binding.types import event_type
from gpu_ops.texts.sent_rows import milliseconds, system_time
from gpu_ops.texts.timer import Timer


@of_methods
class Runtime(ServiceCalls):
    """Statements, their events, and a clock.

    Nothing happens by itself: `send` and `advance` say what happens, in its order. Only a timer moves the clock by
    itself, where the clock is the system's.

    Args:
        types: The properties of each type of event: Esper's types (`"int"`, `"string"`, `"double[]"`) or Arrow's.
        start: What the clock shows first: milliseconds since 1970, or an aware datetime; by default 0.
        clock: `"manual"`, or `"system"` for the system's clock: then `tick` or a timer moves it, and nothing else.
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

    @own_errors
    def __init__(
        self,
        types: Mapping[str, Mapping[str, Any] | pa.Schema] | None = None,
        *,
        start: int | dt.datetime | None = None,
        clock: str = "manual",
        default_selector: str = "istream",
        device: str = "cpu",
    ) -> None:
        word(default_selector, ["istream", "irstream"], name="default_selector")
        word(clock, ["manual", "system"], name="clock")
        given = by_names(types, name="types", holds="the properties of each type of event")
        if clock == "system" and start is not None:
            raise PlanError("The system's clock has no start.", remedy="Leave start= out.")
        self.errors: list[tuple[str, Exception]] = []
        self._deployments = Deployments(irstream=default_selector == "irstream", device=device, errors=self.errors)
        self._turns = Turns()
        first = system_time() if clock == "system" else milliseconds(0 if start is None else start)
        super().__init__(Service(self._deployments, self._turns, first, system=clock == "system"), threading.RLock())
        self._isolated: dict[str, IsolatedService] = {}
        self._timer: Timer | None = None
        for name, fields in given.items():
            self._deployments.add_type(name, fields if isinstance(fields, pa.Schema) else event_type(fields))

    # Statements

    def __repr__(self) -> str:
        return f"<Runtime, statements: {len(self.statements)}>"

    @property
    def statements(self) -> tuple[RunningStatement, ...]:
        """The deployed statements, in the order in which they came, those of isolated services too."""
        return tuple(self._deployments.statements.values())

    def __getitem__(self, name: str) -> RunningStatement:
        """A statement by its name."""
        return self._deployments[name]

    def active_filters(self) -> int:
        """How many filters over events are active: one for each stream that a statement listens to.

        The streams are those of from clauses, of the statement and of its sub-queries, whether they have a condition
        or not (Esper: the entries of the filter service, of which it counts each that a statement has made). A
        statement in a context has its own for each instance, and a context those that start and end instances.

        Examples:
            >>> from gpu_ops import epl
            >>> runtime = epl.Runtime({"Withdrawal": {"account": "string", "amount": "int"}})
            >>> _ = runtime.deploy("select * from Withdrawal(amount > 100); select * from Withdrawal(account = 'a')")
            >>> runtime.active_filters()
            2
        """
        with self._lock:
            return self._deployments.active_filters()

    @property
    def groups(self) -> tuple[StatementGroup, ...]:
        """The groups of statements that differ in constants: `deploy_each` makes them, and texts that are alike."""
        return tuple(self._deployments.groups.values())

    def undeploy(self, name: str | StatementGroup) -> None:
        """Take a statement away, or all of a group.

        Args:
            name: What it is called; or the group.

        Raises:
            PlanError: There is no such statement, or no such group any more.
        """
        with self._lock:
            if isinstance(name, StatementGroup):
                if name not in self.groups:
                    raise PlanError("The group has no statements.", remedy="Leave it as it is.")
                self._deployments.undeploy_each(name)
            else:
                self._deployments.undeploy(name)

    @property
    def variables(self) -> VariableValues:
        """The variables that texts have created, by their names: their values now, as Python has them.

        A value that is set here stands from the next turn on.

        Examples:
            >>> from gpu_ops import epl
            >>> runtime = epl.Runtime({"Withdrawal": {"amount": "int"}})
            >>> (large,) = runtime.deploy(
            ...     "create variable int least = 5; select amount from Withdrawal(amount >= least)"
            ... )
            >>> large.listen(lambda new, old, statement: print(new.to_pylist()))
            >>> _ = runtime.send("Withdrawal", {"amount": 4})
            >>> runtime.variables["least"] = 4
            >>> _ = runtime.send("Withdrawal", {"amount": 4})
            [{'amount': 4}]
            >>> runtime.variables["least"] = "much"
            Traceback (most recent call last):
            gpu_ops.errors.ColumnError: 'much' is no int. [column 'least'] Give the variable a value of its type.
        """

        def give(name: str, value: Any) -> None:
            with self._lock:
                self._deployments.set_variable(name, value)

        return VariableValues(self._deployments.variables, give)

    def listen_states(self, listener: StateListener) -> None:
        """Have a function called when statements come and go. If it raises, that is noted in `errors`.

        Args:
            listener: Takes a statement and what became of it: `"deployed"`, `"undeployed"`, or `"failed"`. It may call
                the runtime itself. Of a text that is refused it hears nothing.

        Examples:
            >>> from gpu_ops import epl
            >>> runtime = epl.Runtime({"Withdrawal": {"amount": "int"}})
            >>> runtime.listen_states(lambda statement, state: print(statement.name, state))
            >>> _ = runtime.deploy("@name('large') select * from Withdrawal(amount > 100)")
            large deployed
            >>> runtime.undeploy("large")
            large undeployed
        """
        if not callable(listener):
            raise PlanError(f"listener is {shown(listener)}.", remedy="It is a function of two: statement, state.")
        self._deployments.listeners.append(listener)

    def rows(self, name: str) -> pa.Table:
        """What a statement's iterator gives now: the content of its windows, through its select clause.

        Raises:
            PlanError: There is no such statement.
            QueryFailedError: The statement has failed.
        """
        with self._lock:
            home = self[name].home
            return self._isolated[home].rows(name) if home else super().rows(name)

    # The system's clock

    def tick(self) -> SentDeliveries:
        """Set the clock to the system's. What fell due since the last time happens now, once.

        The clock never goes back: where the system's does, it waits.

        Raises:
            PlanError: The clock is not the system's.
        """
        with self._lock:
            return self._service.tick()

    def start_timer(self, every: Duration = "100ms") -> None:
        """Have a thread call `tick` every so often, until `stop_timer` or the end of the process.

        Listeners are then called in that thread. What makes a statement fail there is noted in `errors`.

        Args:
            every: The time from one tick to the next (``"100ms"``), at least a millisecond.

        Raises:
            PlanError: The clock is not the system's, there is a timer already, or this is no such time.
        """
        with self._lock:
            if not self._service.system:
                raise PlanError("The clock is not the system's.", remedy='Say Runtime(clock="system").')
            if self._timer is not None:
                raise PlanError("There is a timer already.", remedy="Call stop_timer() first.")
            self._timer = Timer(self.tick, self._lock, every, self.errors)

    def stop_timer(self) -> None:
        """Stop the timer: when this returns, it does not tick any more. Without a timer nothing happens."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.stop()

    # Isolated services

    def isolated(self, name: str = "isolated", *, start: int | dt.datetime | None = None) -> IsolatedService:
        """The isolated service of a name: events that are sent to it and a clock that reach its statements alone.

        Args:
            name: Its name. If there is none, it is made.
            start: What its clock shows first, if it is made; by default what the runtime's shows.

        Raises:
            PlanError: There is such a service already, and `start` is given.
        """
        if not isinstance(name, str):
            raise PlanError(f"The name of an isolated service is {shown(name)}.", remedy="Give a text.")
        with self._lock:
            if name in self._isolated and start is not None:
                raise PlanError(f"There is an isolated service {name!r} already.", remedy="Advance its clock.")
            if name not in self._isolated:
                self._add_isolated(name, self.clock if start is None else milliseconds(start))
            return self._isolated[name]

    def _add_isolated(self, name: str, clock: int) -> None:
        made = Service(self._deployments, self._turns, clock, name)
        self._isolated[name] = IsolatedService(made, self._service, self._deployments, self._lock)

    # Checkpoints

    def checkpoint(self, path: str | Path, *, keep: int | None = None) -> None:
        """Write all that the runtime holds to a file, atomically: a zip archive of Arrow IPC files and JSON.

        That is types, the clock, the statements with their texts and names, what their windows, aggregates and outputs
        hold, and deliveries that `RunningStatement.deliveries` has not given yet; isolated services too. Listeners and
        `errors` are not saved, and a timer does not run in what is restored.

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
        path_like(path, name="path")
        with self._lock:
            services = [self._service, *(each.service for each in self._isolated.values())]
            write_runtime(Path(path), self._deployments, self._turns, services, keep)

    @classmethod
    @own_errors
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
        path_like(path, name="path")
        made = cls(device=device)
        facts = read_runtime(Path(path), Bounds(trust, max_bytes), made._deployments)
        made._turns.next = facts.turn
        made._service.clock, made._service.system = facts.clock, facts.system
        for name, clock in facts.isolated.items():
            made._add_isolated(name, clock)
        return made
