"""All kinds of aggregates of this package: each is declared in the module that computes it."""

from __future__ import annotations

from gpu_ops.operators import (  # noqa: F401
    choices,
    holistic,
    lasting,
    means,
    moments,
    own_functions,
    pairs,
    plain_aggregates,
)
from gpu_ops.plan.aggregate_kinds import all_of_package_declared

all_of_package_declared()
