"""`output when … then set x = …`: what an output rate does to variables where its condition holds.

As Esper has it: the assignments are made before the output, with the counts that made the condition hold; where the
change of a variable makes it hold they are made at once, and the output comes with the next move of the clock.
"""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from gpu_ops.epl import queries as q
from gpu_ops.epl.planning.known_contexts import ContextNames
from gpu_ops.epl.planning.parts import parts
from gpu_ops.epl.planning.planned import Ledger
from gpu_ops.epl.planning.settings import VariableSetting, setting
from gpu_ops.epl.planning.variables import VariableNames
from gpu_ops.plan.joins import Union, cast_to
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.rates import COUNTS, LAST_OUTPUT, OutputRate, RateCounts
from gpu_ops.texts import expressions as e
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.scope import BoundStream
from gpu_ops.texts.placed_error import unsupported

_TYPES = {**dict.fromkeys(COUNTS, t.INT), LAST_OUTPUT: t.LONG}


def with_assignments(query: q.Query, names: VariableNames) -> q.Query:
    """A query in whose assignments at outputs variables are nodes of their own.

    Raises:
        PlacedError: It is an output of first rows or of the content.
    """
    output = query.output
    if output is None or not isinstance(output.rate, q.OutputWhen) or not output.rate.assignments:
        return query
    if output.selection in {"first", "snapshot"}:
        raise unsupported(output, f"output {output.selection} … then set")
    given = tuple(replace(each, value=names.each_time(each.value)) for each in output.rate.assignments)
    return replace(query, output=replace(output, rate=replace(output.rate, assignments=given)))


def set_at_outputs(query: q.Query, ledger: Ledger, around: ContextNames) -> VariableSetting | None:
    """What a query sets where its condition of output holds; None if it sets nothing.

    Raises:
        PlacedError: As `setting`.
    """
    rate = None if query.output is None else query.output.rate
    if not isinstance(rate, q.OutputWhen) or not rate.assignments:
        return None
    counts = BoundStream("", "output", pa.schema([*_TYPES.items()]))
    # A count that nobody reads may be greater than what fits its type.
    read = {part.name for part in parts(rate.assignments) if isinstance(part, e.Name)} | {LAST_OUTPUT}
    rows = pa.schema([(name, dtype) for name, dtype in _TYPES.items() if name in read])
    return replace(setting(rate.assignments, counts, rows, ledger.variables, around), at_outputs=True)


def beside_counts(node: Node, rate: OutputRate, setting: VariableSetting) -> Node:
    """What a query delivers, and what its output rate has counted where its condition holds."""
    counts = [setting.rows.schema.field(name) for name in setting.triggers]
    schema = pa.schema([*node.schema, *counts])
    both = (node, RateCounts(rate))
    return Union(tuple(cast_to(each, schema, {name: name for name in each.schema.names}, ()) for each in both))
