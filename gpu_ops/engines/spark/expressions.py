"""Which expressions Spark would compute with another result than the local engine, so that this one computes them."""

from __future__ import annotations

from collections.abc import Sequence

import narwhals as nw
import pyarrow as pa

from gpu_ops.plan.expressions import function_names, values

_FLOOR = "Spark's floor is a LONG, 0 for NaN"
_DIVIDED = "Spark's quotient goes through DOUBLE, which does not hold every LONG, and is 0 for NaN"
_REST = "Spark's remainder by 0 is an error"
_POWER = "Spark's power is a DOUBLE"
OTHERWISE = {
    "floor": _FLOOR,
    "ceil": _FLOOR.replace("floor", "ceil"),
    "round": "Spark rounds halves away from zero",
    "__floordiv__": _DIVIDED,
    "__rfloordiv__": _DIVIDED,
    "__mod__": _REST,
    "__rmod__": _REST,
}
"""What Narwhals would let Spark compute with another result than the local engine's (seen with Narwhals 2.29)."""


def computed_otherwise(expressions: Sequence[nw.Expr], schema: pa.Schema) -> str:
    """Why expressions are not left to Spark; empty where they are.

    Args:
        expressions: Row-wise expressions.
        schema: The payload that they read, beside ``start`` and ``end``.

    Examples:
        >>> schema = pa.schema([("v", pa.int64()), ("x", pa.float64())])
        >>> computed_otherwise([nw.col("v") ** 2, nw.col("x") ** 2, nw.col("x") * 2], schema)
        "Spark's power is a DOUBLE"
        >>> computed_otherwise([nw.col("x") ** 2], schema)
        ''
    """
    found = {OTHERWISE[name] for each in expressions for name in function_names(each) if name in OTHERWISE}
    powers = [each for each in expressions if not function_names(each).isdisjoint({"__pow__", "__rpow__"})]
    terms = (term for value in values(powers, schema).values() for term in value.walk())
    if any(term.name == "__pow__" and term.holds is not None for term in terms):
        found.add(_POWER)
    return "; ".join(sorted(found))
