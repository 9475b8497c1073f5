"""All kinds of aggregates of this package: each is declared in the module that computes it."""

from __future__ import annotations

from gpu_ops.operators.aggregates import (
    holistic,  # noqa: F401
    means,  # noqa: F401
    moments,  # noqa: F401
    pairs,  # noqa: F401
    plain,  # noqa: F401
    selection,  # noqa: F401
    time_weighted,  # noqa: F401
    user_functions,  # noqa: F401
)
from gpu_ops.plan.aggregate_kinds import all_of_package_declared

all_of_package_declared()
