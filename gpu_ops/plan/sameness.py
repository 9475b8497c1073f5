"""Expressions whose values may depend on where they are computed: `explain` marks and ``exact=True`` refuses them."""

from __future__ import annotations

from dataclasses import dataclass

import narwhals as nw
import pyarrow as pa

from gpu_ops.errors import PlanError
from gpu_ops.plan.expression_text import text_of
from gpu_ops.plan.expressions import values
from gpu_ops.plan.meanings import UNKNOWN, Meaning, meaning
from gpu_ops.plan.nodes import Node


@dataclass(frozen=True)
class Own:
    """A part of an expression whose result depends on the backend.

    Attributes:
        expression: The expression.
        function: Narwhals' name of the part's function.
        row: Its row in the table.
    """

    expression: nw.Expr
    function: str
    row: Meaning

    def __str__(self) -> str:
        why = self.row.why
        return f"{self.function} in {text_of(self.expression)} is the backend's own: {why[0].lower()}{why[1:]}"


def own_parts(expression: nw.Expr, schema: pa.Schema) -> list[Own]:
    """The parts of an expression whose results depend on the backend.

    Args:
        expression: A row-wise expression.
        schema: The payload that it reads, beside ``start`` and ``end``.
    """
    try:
        found = values([expression], schema)
    except Exception:  # noqa: BLE001  (any failure means that we cannot look into the tree)
        return [Own(expression, "what cannot be looked into", UNKNOWN)]
    rows = [(term.name, meaning(term)) for value in found.values() for term in value.walk()]
    return [Own(expression, name, row) for name, row in dict.fromkeys(rows) if not row.same]


def owned(node: Node) -> list[Own]:
    """The same for all expressions of a node of a plan."""
    return [each for expression, schema in node.computed for each in own_parts(expression, schema)]


def check_same(plan: Node) -> None:
    """Refuse a plan whose answer may depend on where it runs.

    Raises:
        PlanError: An expression is the backend's own.
    """
    for each in (each for node in plan.walk() for each in owned(node)):
        remedy = f"{each.row.remedy[0].upper()}{each.row.remedy[1:]}"
        raise PlanError(
            f"exact=True, but {each}.", remedy=f"{remedy}; or leave out exact=True. docs/expressions.md has the table."
        )
