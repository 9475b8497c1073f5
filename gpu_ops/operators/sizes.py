"""How many rows an operator would make, looked at before it makes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.core.bounds import refuse_rows
from gpu_ops.devices import Device


def expanded(counts: Any, device: Device, *, what: str, remedy: str) -> tuple[Any, Any]:
    """The kernel `expand`: each index as often as its count says, and 0, 1, … within each.

    Args:
        counts: How often, none negative.
        device: Where they are.
        what: What makes rows, as the beginning of a sentence.
        remedy: What to do if they are too many.

    Raises:
        OutOfMemoryError: They would not fit into memory.
    """
    refuse_counts(counts, what=what, remedy=remedy)
    return device.kernels.expand(counts)


def refuse_counts(counts: Any, *, what: str, remedy: str, width: int = 16) -> None:
    """Refuse to make as many rows as counts come to, if they would not fit into memory.

    Raises:
        OutOfMemoryError: They would not.
    """
    # As floats: what does not fit into memory may not fit into an integer either.
    refuse_rows(float(counts.sum(dtype=np.float64)), what=what, remedy=remedy, width=width)
