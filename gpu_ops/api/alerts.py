"""The verb of alerts: patterns of rows in several partitions that have a value in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_ops.api.cycles import CyclePartition
from gpu_ops.api.stream import Stream
from gpu_ops.core.own_errors import own_errors
from gpu_ops.errors import PlanError, unknown_column
from gpu_ops.errors import shown as said
from gpu_ops.plan.alerts import Alerts, Present, ShownColumn
from gpu_ops.plan.arguments import Names, names
from gpu_ops.plan.cycle_chains import rows_of
from gpu_ops.plan.cycles import NumberedCycles


@dataclass(frozen=True)
class AlertPattern:
    """Which partitions have a row with a value, and which have none. Made by `gpu_ops.present`.

    Attributes:
        wanted: The names of the first ones.
        absent: Those of the others.
    """

    wanted: tuple[str, ...]
    absent: tuple[str, ...] = ()


@own_errors
def present(*wanted: str, absent: Names = ()) -> AlertPattern:
    """A pattern of an alert (StreamCruncher: ``present(a and b and not c)``).

    Args:
        wanted: The names of partitions that have a row with the value. At least one.
        absent: Those of partitions that have none.

    Raises:
        PlanError: No partition is wanted.
    """
    if not wanted:
        raise PlanError("present wants a partition.", remedy='Name one: g.present("orders", absent="shipped").')
    return AlertPattern(names(wanted, where="present"), names(absent, where="absent=") if absent else ())


@own_errors
def alert(
    partitions: Mapping[str, CyclePartition],
    *,
    on: str | Mapping[str, str],
    when: AlertPattern | Sequence[AlertPattern],
    columns: Mapping[str, tuple[str, str]],
) -> Stream:
    """Rows where patterns of several partitions fire (StreamCruncher: ``alert … correlate on … when present(…)``).

    In a cycle rows leave first, and then rows come. A pattern without absent partitions fires for a value in the cycle in
    which the last of its partitions gets a row with it. One with absent partitions is armed in the cycle in which a row
    comes and all wanted partitions have one, and no other; it fires when one of these rows leaves, unless a row of an
    absent partition has come before. A pattern that has fired for a value fires again when none of its partitions has had a
    row with the value in between.

    Args:
        partitions: The partitions, of one `gpu_ops.cycles`, by names.
        on: The column whose values are compared, of all, or of each by its name. Null equals nothing. A value is there
            once in a partition at a time: with several rows the latest is shown, and the first that leaves takes it away.
        when: The pattern, or several: each fires by itself.
        columns: The columns of the alert by their names: a partition, and a column of it. They are null where the pattern
            does not want the partition.

    Returns:
        A stream of ``cycle`` and the columns; each row at the time that the clock showed.

    Raises:
        ColumnError: A column is unknown, or columns that are compared differ in type.
        PlanError: A pattern is about one partition, or about one twice; or partitions are not of one `cycles`.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> def told(at, order):
        ...     return g.events(pa.table({"at": at, "order": order}), start="at", unit="s")
        >>> ordered, shipped = g.cycles(told([0, 1], [7, 8]), told([2], [7]))
        >>> late = g.alert(
        ...     {"ordered": ordered.partition().last_span("5s"), "shipped": shipped.partition().last_span("9s")},
        ...     on="order",
        ...     when=g.present("ordered", absent="shipped"),
        ...     columns={"order": ("ordered", "order")},
        ... )
        >>> [(str(row["start"].time()), row["order"]) for row in late.collect().to_pylist()]
        [('00:00:06', 8)]
    """  # noqa: E501
    given: Any = partitions
    if not isinstance(given, Mapping) or not all(isinstance(each, CyclePartition) for each in given.values()):
        raise PlanError("alert takes partitions by names.", remedy='Write {"ordered": ordered.partition().last(9), …}.')
    called, every = tuple(partitions), tuple(partitions.values())
    chains = [each._chain for each in every]  # noqa: SLF001  (the nodes of verbs)
    if len({each.schedule for each in chains}) > 1:
        raise PlanError("The partitions are not of one g.cycles(…).", remedy="Make all of the streams of one.")
    compared = dict.fromkeys(called, on) if isinstance(on, str) else dict(on)
    patterns = [when] if isinstance(when, AlertPattern) else list(when)
    for name in (*compared, *(name for each in patterns for name in (*each.wanted, *each.absent))):
        if name not in called:
            raise PlanError(f"There is no partition {said(name)} here.", remedy=f"There are {', '.join(called)}.")
    missing = next((name for name in called if name not in compared), None)
    if missing is not None:
        raise PlanError(f"Nothing says which column of {missing!r} is compared.", remedy="Name it in on=.")
    number = {name: at for at, name in enumerate(called)}
    shown = []
    for name, (of, column) in columns.items():
        if of not in number:
            raise PlanError(f"There is no partition {said(of)} here.", remedy=f"There are {', '.join(called)}.")
        if column not in partitions[of].schema.names:
            raise unknown_column(column, partitions[of].schema.names, what=of)
        shown.append(ShownColumn(name, number[of], column))
    rows, beats = rows_of(chains, every[0]._until)  # noqa: SLF001  (likewise)
    made = Alerts(
        rows,
        called,
        tuple(compared[name] for name in called),
        tuple(
            Present(tuple(number[name] for name in each.wanted), tuple(number[name] for name in each.absent))
            for each in patterns
        ),
        tuple(shown),
    )
    return Stream(NumberedCycles(made, beats, chains[0].schedule, every[0]._until))  # noqa: SLF001
