"""`prior` in joins: what earlier rows of one of the streams have, as columns of its rows before they are joined."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import narwhals as nw

from gpu_ops.core.turns import of_stream
from gpu_ops.epl import expressions as e
from gpu_ops.epl import queries as q
from gpu_ops.epl.binding.bound import Bound
from gpu_ops.epl.binding.scope import BoundStream, StreamScope
from gpu_ops.epl.placed_error import failure_at
from gpu_ops.epl.planning.looking_back import LookingBack
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.windows import StreamWindows
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Node


class JoinedPriors:
    """The calls of `prior` in a join.

    Args:
        query: The query.
        streams: Its streams, under the names that they have before they are joined.

    Raises:
        PlacedError: A call is not about one of the streams.

    Attributes:
        known: The calls as columns of the joined rows.
    """

    def __init__(self, query: q.Query, streams: Sequence[BoundStream]) -> None:
        self._streams = streams
        self.known: dict[e.Expression, Bound] = {}
        clauses = (query.items, query.where, query.having, query.order_by)
        self._calls = [(call, self._stream_of(call)) for call in dict.fromkeys(_priors(clauses))]

    def over(self, number: int, term: q.StreamTerm, windows: StreamWindows) -> tuple[Node, tuple[str, ...]]:
        """(the rows of a stream, the columns that they have for its calls)."""
        looking = LookingBack(windows, term.views, StreamScope([self._streams[number]]))
        names = []
        for call, stream in self._calls:
            bound = looking.prior(call) if stream == number else None
            if bound is not None:
                name = str(bare_column(bound.value))
                self.known[call] = Bound(nw.col(of_stream(name, number)), bound.type)
                names.append(name)
        return looking.rows(windows.memberships), tuple(dict.fromkeys(names))

    def _stream_of(self, call: e.FunctionCall) -> int:
        """The number of the stream that a call is about."""
        paths = [part for part in parts(call.arguments) if isinstance(part, e.Name | e.Member)]
        found = [number for number, each in enumerate(self._streams) if any(_is_of(path, each) for path in paths)]
        if len(found) != 1:
            raise failure_at(call, f"{call} is about no stream of its own.", "Write prior(1, s.price), s the stream.")
        return found[0]


def _priors(nodes: Any) -> Iterator[e.FunctionCall]:
    for part in parts(nodes, lambda node: not isinstance(node, q.Query)):
        if isinstance(part, e.FunctionCall) and part.of is None and part.name.lower() == "prior":
            yield part


def _is_of(path: e.Name | e.Member, stream: BoundStream) -> bool:
    if isinstance(path, e.Member):
        return isinstance(path.of, e.Name) and path.of.name == stream.name
    return path.name in stream.schema.names
