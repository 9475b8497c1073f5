"""What the clauses of a query mention: aggregates, properties, windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.parts import parts
from gpu_ops.plan.expressions import bare_column
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.scope import StreamScope, is_aggregate
from gpu_ops.texts.placed_error import PlacedError


def aggregate_calls(nodes: Sequence[Any]) -> Iterator[e.FunctionCall]:
    """The aggregates in some nodes, but for those of sub-queries."""
    for part in parts(nodes, lambda node: not isinstance(node, q.Query)):
        if isinstance(part, e.FunctionCall) and is_aggregate(part):
            yield part


def properties_of(node: Any, events: StreamScope, own: frozenset[str] = frozenset()) -> Iterator[str]:
    """The columns of properties that are in an expression, but for those that aggregates read.

    Args:
        node: The expression.
        events: The streams.
        own: Names that are something else in it: parameters of functions of elements.
    """

    def is_path(part: Any) -> bool:
        return isinstance(part, e.Name) or (isinstance(part, e.Member) and is_path(part.of))

    def into(part: Any) -> bool:
        if isinstance(part, q.Query | e.LambdaFunction) or (isinstance(part, e.FunctionCall) and is_aggregate(part)):
            return False
        return not is_path(part)

    def root(part: Any) -> str:
        return root(part.of) if isinstance(part, e.Member) else str(part.name)

    for part in parts(node, into):
        if isinstance(part, e.LambdaFunction):
            yield from properties_of(part.body, events, own | {*part.parameters})
        elif is_path(part) and root(part) not in own and str(part) != "current_timestamp":
            try:
                bound = events.property(part)
            except PlacedError:
                bound = None  # it is said where it is bound
            yield str(part) if bound is None else str(bare_column(bound.value) or part)


_IN_ORDER = frozenset(
    {"keepall", "length", "lastevent", "time", "length_batch", "time_batch", "time_length_batch", "time_accum"}
    | {"firstlength", "firstevent", "firsttime", "ext_timed", "ext_timed_batch"}
)


_KEEPS_ALL = frozenset({"keepall", "firstlength", "firstevent", "firstunique", "firsttime"})
STAYS_FILLED = frozenset({"length", "lastevent", "unique", "sort", *_KEEPS_ALL})
"""Windows that are never empty again."""


def may_drain(query: q.Query, by: Sequence[Any]) -> bool:
    """Whether all rows of a group by some keys can leave the windows, so that Esper forgets it."""
    for term in query.streams:
        names = [view.name.lower() for view in term.views]
        grouping = [str(key) for view in term.views for key in view.arguments if view.name.lower() in _GROUPWIN]
        rest = [name for name in names if name not in _GROUPWIN]
        if all(name in _KEEPS_ALL for name in rest) and term.views:
            continue
        by_window = set(map(str, by)) <= set(grouping) and len(rest) == 1 and rest[0] in STAYS_FILLED
        if query.joins or query.where is not None or not by_window:
            return True
    return False


_GROUPWIN = frozenset({"groupwin", "groupby"})


def drops_oldest(term: q.StreamTerm) -> bool:
    """Whether the first row to come is the first to leave."""
    return not term.views or (len(term.views) == 1 and term.views[0].name.lower() in _IN_ORDER)


def local_keys(call: e.FunctionCall) -> tuple[Any, ...] | None:
    """By what an aggregate groups itself."""
    found = [each.values for each in call.arguments if isinstance(each, e.NamedArgument) and each.name == "group_by"]
    return found[0] if found else None
