"""Esper's aggregates of aggregates: ``avg(count(*))`` is an average of what the count was as each event came.

As an event comes, the inner aggregate's value is added; as it goes, its value then is taken off, which is another one.
So the outer one is a sum of both over all that ever came and went, each event by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import gpu_ops as g
from tests.conformance.epl import Call, Expression, parts
from tests.conformance.epl_values import value
from tests.conformance.esper_script import column, instants
from tests.conformance.esper_stays import Ask, EventScope
from tests.conformance.unsupported import UnsupportedError

if TYPE_CHECKING:
    from tests.conformance.esper_aggregates import Aggregates, Member


@dataclass(frozen=True)
class _Moment:
    """What an event is worth as it comes or goes."""

    event: Mapping[str, Any]
    known_then: Callable[[Call], Any]
    inner: frozenset[Call]

    def known(self, expression: Expression) -> tuple[Any] | None:
        """The inner aggregates as they are then."""
        return (self.known_then(expression),) if expression in self.inner else None


class Nested:
    """The values of one aggregate of others, for each group at each delivery."""

    def __init__(
        self, call: Call, inner: Sequence[Call], members: Sequence[Member], keys: tuple[Expression, ...], ask: Ask
    ) -> None:
        from tests.conformance.esper_aggregates import Aggregates

        if call.name not in {"avg", "sum"} or call.options or call.distinct or len(call.arguments) != 1:
            raise UnsupportedError("EPL: no aggregates of aggregates but avg and sum")
        self._call, self._inner = call, frozenset(inner)
        singly = _one_by_one(members)
        within = Aggregates(list(inner), singly, ask)
        starts: list[int] = []
        values: list[Any] = []
        groups: list[tuple[Any, ...]] = []
        for member, single in zip(members, singly, strict=True):
            group = tuple(value(key, EventScope(member.event)) for key in keys)
            for sign, at, step in ((1, member.enter, single.enter), (-1, member.leave, single.leave)):
                if at is not None and step is not None:
                    found = self._worth(within, member, keys, group, step)
                    starts.append(at)
                    values.append(None if found is None else sign * found)
                    groups.append(group)
        signs = [0 if each is None else 1 if sign else -1 for each, sign in zip(values, _comes(members), strict=True)]
        table = pa.table(
            {
                "start": instants(starts),
                "end": instants([None for _ in starts]),
                "value": column(values),
                "sign": pa.array(signs, pa.int64()),
                **{f"key {at}": column([group[at] for group in groups]) for at in range(len(keys))},
            }
        )
        names = [f"key {at}" for at in range(len(keys))]
        totals = g.events(table, start="start", end="end", null_end="open").by(*names).snapshot()
        answer = ask(totals.agg(total=g.sum("value"), n=g.sum("sign")))
        self._found: dict[tuple[Any, ...], list[tuple[int, Any, int]]] = {}
        times = answer["start"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
        for start, row in sorted(zip(times, answer.to_pylist(), strict=True), key=lambda pair: pair[0]):
            key = tuple(row[name] for name in names)
            self._found.setdefault(key, []).append((start, row["total"], row["n"]))

    def _worth(
        self, within: Aggregates, member: Member, keys: tuple[Expression, ...], group: tuple[Any, ...], step: int
    ) -> Any:
        scope = _Moment(member.event, lambda inner: within.at(inner, keys, group, step), self._inner)
        return value(self._call.arguments[0], scope)

    def at(self, group: tuple[Any, ...], delivery: int) -> Any:
        """The value for a group after a delivery."""
        found = [(total, count) for start, total, count in self._found.get(group, []) if start <= delivery]
        if not found or not found[-1][1]:
            return None
        total, count = found[-1]
        return total / count if self._call.name == "avg" else total


def inner_aggregates(call: Call, is_aggregate: Callable[[Expression], bool]) -> list[Call]:
    """The aggregates that an aggregate is of."""
    found = (part for argument in call.arguments for part in parts(argument))
    return list(dict.fromkeys(part for part in found if isinstance(part, Call) and is_aggregate(part)))


def _one_by_one(members: Sequence[Member]) -> list[Member]:
    """The same, where each comes and goes by itself: of a delivery first those that come, in their order."""
    moves = [(each.enter, 0, at) for at, each in enumerate(members)]
    moves += [(each.leave, 1, at) for at, each in enumerate(members) if each.leave is not None]
    step = {(kind, at): number for number, (_, kind, at) in enumerate(sorted(moves))}
    return [replace(each, enter=step[0, at], leave=step.get((1, at))) for at, each in enumerate(members)]


def _comes(members: Sequence[Member]) -> list[bool]:
    return [comes for each in members for comes in ((True,) if each.leave is None else (True, False))]
