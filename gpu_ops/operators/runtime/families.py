"""All operators of this package: each is declared in the module that computes it."""

from __future__ import annotations

from gpu_ops.operators import (
    filter_project,  # noqa: F401
    lifetimes,  # noqa: F401
    union,  # noqa: F401
    unnest,  # noqa: F401
)
from gpu_ops.operators.joins import (
    incremental as _joins,  # noqa: F401
)
from gpu_ops.operators.joins import (
    incremental_stitch,  # noqa: F401
)
from gpu_ops.operators.row_windows import incremental as _row_windows  # noqa: F401
from gpu_ops.operators.runtime.operator import Operator
from gpu_ops.operators.windows import (
    fills,  # noqa: F401
    incremental_window,  # noqa: F401
)

registered = Operator.registered
"""The class that computes a node; None if there is none."""
