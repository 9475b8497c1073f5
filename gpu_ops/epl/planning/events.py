"""Whole events as values: a struct of their properties."""

from __future__ import annotations

import narwhals as nw
import pyarrow as pa

from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.bound import Bound
from gpu_ops.texts.binding.expressions import bind
from gpu_ops.texts.binding.scope import BindingScope, BoundStream, StreamScope


def event_of(stream: BoundStream) -> Bound:
    """An event of a stream, null where a row has none."""
    columns = [nw.col(stream.columns.get(name, name)).alias(name) for name in stream.schema.names]
    event = nw.struct(*columns)
    if stream.there:
        event = nw.when(~nw.col(stream.there).is_null()).then(event)
    return Bound(event, pa.struct(list(stream.schema)), f"{stream.name}.*")


def stream_meant(node: e.Syntax, scope: StreamScope) -> BoundStream | None:
    """The stream of which a node is a whole event: `*` of the only one, its name, or `name.*`; None for other nodes."""
    if isinstance(node, e.Wildcard):
        if node.of is None:
            return scope.streams[0] if len(scope.streams) == 1 else None
        node = node.of
    if not isinstance(node, e.Name) or any(node.name in stream.schema.names for stream in scope.streams):
        return None
    return next((stream for stream in scope.streams if stream.name == node.name), None)


def bind_shown(node: e.Syntax, scope: BindingScope) -> Bound:
    """What is shown of an event: the event itself, or an expression of it.

    Raises:
        PlacedError: As `gpu_ops.texts.binding.expressions.bind`.
    """
    stream = stream_meant(node, scope) if isinstance(scope, StreamScope) else None
    return bind(node, scope) if stream is None else event_of(stream)
