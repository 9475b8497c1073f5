"""Isolated services: statements that see events and a clock of their own, and go back with what they hold."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from gpu_ops.core.own_errors import of_methods
from gpu_ops.epl.calls import ServiceCalls
from gpu_ops.epl.deployments import Deployments
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.queries import Crontab, View
from gpu_ops.epl.running import RunningStatement
from gpu_ops.epl.service import Service
from gpu_ops.errors import PlanError
from gpu_ops.texts import expressions as e

_MILLISECOND = 1000
_SHOWN = {"current_timestamp", "newest_timestamp", "oldest_timestamp", "last_output_timestamp"}
_AT_TIMES = {"timetolive", "time_order"}
_CALENDAR = {"month", "year"}


@of_methods
class IsolatedService(ServiceCalls):
    """An isolated service of a runtime; `Runtime.isolated` makes it.

    Events that are sent to it reach its own statements alone, and so do those that its statements insert. Its clock is
    its own. Statements move in and out with all that they hold. What waits for a span of time waits for what is left of
    it: a row that was to leave in five seconds leaves when the new clock has moved by five seconds (Esper's reference,
    "Service Isolation"). A statement that names times of the clock, such as `current_timestamp`, moves only while both
    clocks show the same.

    Args:
        service: The service.
        other: The runtime's own.
        deployments: The statements of both.
        lock: As in `ServiceCalls`.

    Examples:
        >>> from gpu_ops import epl
        >>> runtime = epl.Runtime({"Withdrawal": {"amount": "int"}})
        >>> (total,) = runtime.deploy("@name('total') select sum(amount) as s from Withdrawal#time(10 sec)")
        >>> _ = runtime.send("Withdrawal", {"amount": 5})
        >>> aside = runtime.isolated()
        >>> aside.add("total")
        >>> len(runtime.send("Withdrawal", {"amount": 100})), len(runtime.advance(60_000))
        (0, 0)
        >>> aside.remove("total")
        >>> [each.new.to_pylist() for each in runtime.send("Withdrawal", {"amount": 1})]
        [[{'s': 6}]]
        >>> [each.new.to_pylist() for each in runtime.advance(70_000)]
        [[{'s': None}]]
    """

    def __init__(self, service: Service, other: Service, deployments: Deployments, lock: threading.RLock) -> None:
        super().__init__(service, lock)
        self._other, self._deployments = other, deployments

    @property
    def service(self) -> Service:
        """What its calls go to."""
        return self._service

    @property
    def name(self) -> str:
        """Its name."""
        return self._service.name

    def add(self, *names: str) -> None:
        """Move statements of the runtime into this service, all of them or none.

        Args:
            names: What they are called.

        Raises:
            PlanError: There is no such statement, it is in another isolated service, or it names times of the clock
                and the clocks differ.
        """
        with self._lock:
            self._move(names, self._other, self._service)

    def remove(self, *names: str) -> None:
        """Move statements of this service back to the runtime, all of them or none.

        Args:
            names: What they are called.

        Raises:
            PlanError: There is no such statement in this service, or it names times of the clock and the clocks
                differ.
        """
        with self._lock:
            self._move(names, self._service, self._other)

    def _move(self, names: tuple[str, ...], left: Service, entered: Service) -> None:
        moved = dict[str, RunningStatement]()
        for name in names:
            moved[name] = statement = self._deployments[name]
            moved |= {each.name: each for each in self._deployments.beside(statement)}
        ahead = (left.clock - entered.clock) * _MILLISECOND
        for each in moved.values():
            if each.home != left.name:
                raise PlanError(
                    f"The statement {each.name!r} is in {_called(each.home)}, and not in {_called(left.name)}.",
                    remedy="Move it from there.",
                )
            if window := next(iter(self._deployments.named_by(each)), None):
                raise PlanError(
                    f"The statement {each.name!r} is about the named window {window!r}.",
                    remedy="Leave it where the window is.",
                )
            named = next(_times_of_the_clock(each), None) if each.offset + ahead else None
            if named is not None:
                raise PlanError(
                    f"The statement {each.name!r} names times of the clock ({named}), and the clocks show {left.clock} "
                    f"and {entered.clock}.",
                    remedy="Move it when both show the same time.",
                )
        for each in moved.values():
            self._deployments.set_apart(each)
            each.home, each.offset = entered.name, each.offset + ahead
        self._deployments.changes += 1


def _called(home: str) -> str:
    return f"the isolated service {home!r}" if home else "the runtime's own service"


def _times_of_the_clock(statement: RunningStatement) -> Iterator[str]:
    """What in a statement is a time of the clock, and no span: it would be another time by another clock."""
    for part in parts(parse(statement.text)):
        match part:
            case e.Name(name=name) | e.FunctionCall(name=name) if name.lower() in _SHOWN:
                yield name
            case View(name=name, arguments=arguments):
                points = [each for each in arguments[1:] if not isinstance(getattr(each, "value", None), str)]
                short = name.lower().rpartition(":")[2]
                if short in _AT_TIMES or (short == "time_batch" and points):
                    yield name
            case Crontab():
                yield f"at {part}"
            case e.Period(parts=amounts) if any(unit in _CALENDAR for _, unit in amounts):
                yield str(part)
