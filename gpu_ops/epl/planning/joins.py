"""Joins of a from clause: the windows of its streams side by side, and which rows of them belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import MAX_TIME
from gpu_ops.core.turns import BATCH_DUE, CLOCK, DUE, PLACE, of_stream
from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.parts import parts
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.nodes import Filter, Node, Project, extended
from gpu_ops.plan.turn_joins import Further, TurnJoin, TurnJoinKind
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding.expressions import bind_condition
from gpu_ops.texts.binding.scope import BoundStream, StreamScope
from gpu_ops.texts.placed_error import failure_at

_OUTER = frozenset({"left", "right", "full"})


@dataclass(frozen=True)
class JoinedStream:
    """A stream of a join.

    Attributes:
        term: The stream as it is written.
        stream: What expressions call it.
        rows: Its rows while they are in its window, or as they come.
        looked: Columns with what earlier rows have.
    """

    term: q.StreamTerm
    stream: BoundStream
    rows: Node
    looked: tuple[str, ...] = ()


def joined_columns(query: q.Query, stream: BoundStream, number: int) -> BoundStream:
    """A stream with columns that no other stream of the join has."""
    there = of_stream(PLACE, number) if any(join.kind in _OUTER for join in query.joins) else ""
    return replace(stream, columns={name: f"@{number} {name}" for name in stream.schema.names}, there=there)


def join_of(
    query: q.Query, joined: Sequence[JoinedStream], around: Sequence[str] = ()
) -> tuple[Node, list[e.Expression]]:
    """(the rows of a join, the conditions of `where` that hold for all of them).

    Args:
        query: The query.
        joined: Its streams, with `joined_columns`.
        around: Columns of the context that rows of all streams have; rows belong together if the first one is equal.

    Raises:
        PlacedError: It asks for what there is not.
    """
    nodes = tuple(_own(each, number, around) for number, each in enumerate(joined))
    streams = [each.stream for each in joined]
    alone = tuple(number for number, each in enumerate(joined) if each.term.unidirectional)
    outer = any(join.kind in _OUTER for join in query.joins)
    if len(alone) > 1 and any(join.kind != "full" for join in query.joins):
        raise failure_at(query.joins[0], "Several streams are unidirectional.", "Join them by full outer joins.")
    wheres = [] if outer else conjuncts(query.where)
    further = []
    held = list[e.Expression]()
    for number, join in enumerate(query.joins, start=1):
        kind: TurnJoinKind = "inner" if join.kind == "cross" else join.kind
        conditions = conjuncts(join.on) + (wheres if kind == "inner" else [])
        on = [(of_stream(name, 0), of_stream(name, number)) for name in around[:1]]
        rest = []
        for condition in conditions:
            pair = _pair(condition, streams, number)
            if pair is not None and not any({*pair} & {*known} for known in on):
                on.append(pair)
                # NaN is a key like others, but equal to nothing.
                is_float = pa.types.is_floating(nodes[number].schema.field(pair[1]).type)
                held += [condition] if condition in wheres and not is_float else []
            elif condition not in wheres:
                rest.append(bind_condition(condition, StreamScope(streams[: number + 1]), "'on'").value)
        left = None if not rest else rest[0] if len(rest) == 1 else nw.all_horizontal(*rest, ignore_nulls=False)
        further.append(Further(kind, tuple(on), left))
    made: Node = TurnJoin(nodes, tuple(further), alone)
    if outer:
        for number in sorted(_required(query, streams)):
            made = Filter(made, ~nw.col(of_stream(PLACE, number)).is_null())
    # A join makes rows after all that falls due at a tick: whatever is output then does not have them.
    last = nw.lit(MAX_TIME).cast(nw.Datetime("us", "UTC"))
    known, kinds = [], [each.kind for each in further]
    # Every row of the join has a row of this stream; None if it may lack any.
    always = 0 if not {"right", "full"} & {*kinds} else 1 if kinds == ["right"] else None
    for name in around:
        value = nw.col(of_stream(name, always or 0))
        if always is None:
            value = nw.when(~nw.col(of_stream(PLACE, 0)).is_null()).then(value).otherwise(nw.col(of_stream(name, 1)))
        known.append(value.alias(name))
    return extended(made, [*known, last.alias(DUE), last.alias(BATCH_DUE)]), held


def _required(query: q.Query, streams: Sequence[BoundStream]) -> set[int]:
    """The streams that inner joins compare: each row of a join has an event of theirs, whatever outer joins keep."""
    inner = [join.on for join in query.joins if join.kind == "inner"]
    paths = [part for part in parts(inner) if isinstance(part, e.Name | e.Member)]
    bound = [StreamScope(streams).property(each) for each in paths if str(each) not in {s.name for s in streams}]
    names = {bare_column(each.value) for each in bound if each is not None}
    return {number for number, each in enumerate(streams) if names & set(each.columns.values())}


def without(condition: e.Expression | None, held: Sequence[e.Expression]) -> e.Expression | None:
    """What is left of a condition where some of its conjuncts hold."""
    rest = [each for each in conjuncts(condition) if not any(each is other for other in held)]
    if condition is None or not rest:
        return None
    return rest[0] if len(rest) == 1 else e.Logical("and", tuple(rest), place=condition.place)


def with_bounds_as_said(node: e.Expression) -> e.Expression:
    """A condition of a join, in which the bounds of `between` and of ranges are not turned round (as in Esper)."""
    changed: dict[str, object] = {}
    for each in fields(node):
        value = getattr(node, each.name)
        if isinstance(value, e.Expression):
            changed[each.name] = with_bounds_as_said(value)
        elif isinstance(value, tuple) and each.name != "place":
            changed[each.name] = tuple(with_bounds_as_said(v) if isinstance(v, e.Expression) else v for v in value)
    made = replace(node, **changed) if changed else node  # type: ignore[arg-type]
    if not isinstance(made, e.Between | e.RangeInclusion) or isinstance(made.low, e.Constant):
        return made
    signs = (
        (">=", "<=")
        if isinstance(made, e.Between)
        else (">=" if made.with_low else ">", "<=" if made.with_high else "<")
    )
    inside = e.Logical(
        "and",
        tuple(
            e.Operation(sign, made.value, bound, place=made.place)
            for sign, bound in zip(signs, (made.low, made.high), strict=True)
        ),
        place=made.place,
    )
    return e.Prefixed("not", inside, place=made.place) if made.negated else inside


def _own(joined: JoinedStream, number: int, around: Sequence[str]) -> Node:
    """A stream's rows under names of its own."""
    columns = [nw.col(name).alias(own) for name, own in joined.stream.columns.items()]
    special = [nw.col(name).alias(of_stream(name, number)) for name in (PLACE, CLOCK, *around)]
    special += [nw.col(name) for name in joined.looked]
    return Project(joined.rows, (*columns, *special), keep=False)


def conjuncts(node: e.Expression | None) -> list[e.Expression]:
    """The conditions of which a condition is the conjunction."""
    if node is None:
        return []
    return list(node.operands) if isinstance(node, e.Logical) and node.operator == "and" else [node]


def _pair(node: e.Expression, streams: Sequence[BoundStream], number: int) -> tuple[str, str] | None:
    """(column before, column of this stream), if a condition says that these are equal."""
    if not isinstance(node, e.Operation) or node.operator != "=":
        return None
    sides = []
    for side in (node.left, node.right):
        if not isinstance(side, e.Name | e.Member):
            return None
        bound = StreamScope(streams).property(side)
        name = None if bound is None else bare_column(bound.value)
        if bound is None or name is None:
            return None
        at = next(at for at, stream in enumerate(streams) if name in stream.columns.values())
        sides.append((at, name, bound.type))
    sides.sort(key=lambda side: side[0])
    (before, one, first), (at, other, second) = sides
    return (one, other) if before < at == number and first == second else None
