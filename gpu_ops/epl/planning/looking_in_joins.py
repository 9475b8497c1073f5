"""`prior` and `prev` in joins: what other rows of one of the streams have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw

from gpu_ops.core.turns import PLACE, of_stream
from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.aggregate_columns import AggregateColumns
from gpu_ops.epl.planning.looking_back import GROUPWIN, PREVIOUS, LookingBack
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.windows import StreamWindows
from gpu_ops.plan.lookups import Looked, Lookup
from gpu_ops.plan.nodes import Node, extended
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.placed_error import failure_at, unsupported


class LookingInJoin:
    """The calls of `prior` and of `prev` and its kin in a join.

    What came before a row is a column of it before it is joined. What its window holds is looked up for joined rows.

    Args:
        query: The query.
        streams: Its streams, under the names that they have before they are joined.

    Raises:
        PlacedError: A call is not about one of the streams.

    Attributes:
        priors: The calls of `prior` as columns of the joined rows.
        previous: The other calls, as columns of deliveries with what `over` looks up.
    """

    def __init__(self, query: q.Query, streams: Sequence[BoundStream]) -> None:
        self._streams = streams
        self.priors: dict[e.Expression, Bound] = {}
        self.previous: dict[e.Expression, Bound] = {}
        self._held: list[tuple[Node, tuple[Looked, ...]]] = []
        clauses = (query.items, query.where, query.having, query.order_by)
        self._calls = [(call, self._stream_of(call)) for call in dict.fromkeys(_looking(clauses))]

    @property
    def first(self) -> e.FunctionCall | None:
        """One of the calls; None if there is none."""
        return self._calls[0][0] if self._calls else None

    def rows(self, number: int, term: q.StreamTerm, windows: StreamWindows) -> tuple[Node, tuple[str, ...]]:
        """(the rows of a stream, the columns that they have for its calls)."""
        scope = StreamScope([self._streams[number]])
        looking = LookingBack(windows, term.views, scope, f"in {number} ")
        held = AggregateColumns(scope, named=f"in {number} ")
        there = ~nw.col(of_stream(PLACE, number)).is_null()
        for call in [call for call, stream in self._calls if stream == number]:
            prior = looking.prior(call)
            if prior is not None:
                self.priors[call] = prior
                continue
            for view in term.views:
                if view.name.lower() in GROUPWIN:
                    raise unsupported(call, f"{call.name} of groupwin in joins")
            bound = looking.previous(call, held)
            assert bound is not None  # noqa: S101  (there are no other calls)
            if looking.elements:
                raise unsupported(call, f"index of {call.name} in joins that is no constant")
            self.previous[call] = Bound(nw.when(there).then(bound.value), bound.type)
        if held.made:
            content = extended(windows.memberships, [value.alias(name) for name, value in held.columns.items()])
            self._held.append((content, tuple(Looked(each.aggregate) for each in held.made)))
        return looking.rows(windows.memberships), looking.looked

    def over(self, deliveries: Node) -> Node:
        """Deliveries with what the windows hold."""
        for content, looked in self._held:
            deliveries = Lookup(content, deliveries, looked)
        return deliveries

    def _stream_of(self, call: e.FunctionCall) -> int:
        """The number of the stream that a call is about."""
        paths = [part for part in parts(call.arguments) if isinstance(part, e.Name | e.Member)]
        found = [number for number, each in enumerate(self._streams) if any(_is_of(path, each) for path in paths)]
        if len(found) != 1:
            raise failure_at(call, f"{call} is about no stream of its own.", f"Write {call.name}(1, s.price).")
        return found[0]


def _looking(nodes: Any) -> Iterator[e.FunctionCall]:
    for part in parts(nodes, lambda node: not isinstance(node, q.Query)):
        if isinstance(part, e.FunctionCall) and part.of is None and part.name.lower() in {"prior", *PREVIOUS}:
            yield part


def _is_of(path: e.Name | e.Member, stream: BoundStream) -> bool:
    if isinstance(path, e.Member):
        return isinstance(path.of, e.Name) and path.of.name == stream.name
    return path.name in stream.schema.names
