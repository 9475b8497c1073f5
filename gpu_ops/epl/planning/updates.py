"""`update istream`: what becomes of the events of a stream before any statement sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.turns import CLOCK, HELD, NEW, OLD, ORDER, PLACE, ROW
from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.planned import Ledger, PlannedStatement, known_type
from gpu_ops.epl.planning.scopes import EventScope
from gpu_ops.epl.planning.variables import VariableNames
from gpu_ops.plan.nodes import Node, Project, extended
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.bound import Bound, as_type
from gpu_ops.texts.binding.expressions import bind, bind_condition
from gpu_ops.texts.binding.scope import BoundStream, unknown
from gpu_ops.texts.placed_error import failure_at, unsupported


def planned_update(
    statement: s.Statement, update: s.UpdateStream, ledger: Ledger, names: VariableNames
) -> PlannedStatement:
    """The plan of a statement that changes events: each event as it becomes, and whether its condition holds.

    All values are those of the event as the statement finds it (Esper's reference, "Updating an insert stream").

    Raises:
        PlacedError: A name is unknown, a value is of another type, or gpu_ops does not have what it asks for.
    """
    if statement.context:
        raise unsupported(statement, "update istream within contexts")
    for said in statement.annotations:
        if said.name.lower() in {"priority", "drop"}:
            raise unsupported(said, f"@{said.name} of update istream", "They change events in the order of their text.")
    schema = known_type(EventFilter(update.type_name, place=update.place), ledger)
    names.among(q.StreamTerm(EventFilter(update.type_name, place=update.place), alias=update.alias))
    stream = BoundStream(update.alias, update.type_name, schema)
    scope = EventScope([stream])
    given: dict[str, Bound] = {}
    for each in update.assignments:
        name = _target(each, update, schema)
        assert each.value is not None  # noqa: S101  (_target saw to it)
        given[name] = _fitting(bind(names.once(each.value), scope), name, schema.field(name).type)
    passes = nw.lit(value=True)
    if update.where is not None:
        passes = bind_condition(names.once(update.where), scope, "'where'").value.fill_null(value=False)
    columns = [
        nw.when(passes).then(given[name].value).otherwise(nw.col(name)) if name in given else nw.col(name)
        for name in schema.names
    ]
    made = [column.alias(f"@column {at}") for at, column in enumerate(columns)]
    kind = nw.when(passes).then(nw.lit(NEW, nw.Int8())).otherwise(nw.lit(HELD, nw.Int8()))
    arrivals = ledger.arrivals[update.type_name]
    node = Project(arrivals, (*made, kind.alias(ROW), nw.lit(0, nw.Int64()).alias(ORDER)), keep=False)
    return PlannedStatement(
        node, schema, (update.type_name,), (NEW, OLD), variables=names.found, streams=0, updates=update.type_name
    )


def changed_arrivals(plan: PlannedStatement, arrivals: Node) -> Node:
    """The arrivals of a type as a statement changes them: with their own columns."""
    assert isinstance(plan.node, Project)  # noqa: S101  (planned_update made it)
    made: Mapping[str, nw.Expr] = {name: nw.col(f"@column {at}") for at, name in enumerate(plan.columns.names)}
    rows = extended(arrivals, plan.node.expressions[: len(made)])
    own = [each.alias(name) for name, each in made.items()]
    return Project(rows, (*own, nw.col(CLOCK), nw.col(PLACE)), keep=False)


def _target(node: q.Assignment, update: s.UpdateStream, schema: pa.Schema) -> str:
    """The property that is assigned."""
    target, names = node.target, schema.names
    own: Sequence[str] = (update.alias, update.type_name)
    if isinstance(target, e.Member) and isinstance(target.of, e.Name) and target.of.name in own:
        target = e.Name(target.name, place=target.place)
    if not isinstance(target, e.Name) or node.value is None:
        raise unsupported(node, "assignments but to properties of the event", "Write: set name = value.")
    if target.name not in names:
        raise unknown(target, f"{update.type_name!r} has no property {target.name!r}.", target.name, names, names)
    return target.name


def _fitting(bound: Bound, name: str, dtype: pa.DataType) -> Bound:
    if t.common_type([dtype, bound.type]) != dtype:
        raise failure_at(bound, f"{name} is of type {t.type_name(dtype)}, and {bound.typed}.", "Cast it.")
    return Bound(as_type(bound, dtype), dtype)
