"""Check how many rows an operator would make before it makes them."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_ops.core.bounds import refuse_rows
from gpu_ops.devices import Device


def expanded(counts: Any, device: Device, *, what: str, remedy: str) -> tuple[Any, Any]:
    """The kernel `expand`: each index, repeated by its count, and 0, 1, … within each.

    Args:
        counts: The counts, none negative.
        device: Where they are.
        what: What makes rows, as the beginning of a sentence.
        remedy: What to do if there are too many rows.

    Raises:
        OutOfMemoryError: The rows would not fit into memory.
    """
    refuse_counts(counts, what=what, remedy=remedy)
    return device.kernels.expand(counts)


def refuse_counts(counts: Any, *, what: str, remedy: str, width: int = 16) -> None:
    """Refuse a sum of counts whose rows would not fit into memory.

    Raises:
        OutOfMemoryError: The rows would not fit.
    """
    # As floats: a sum that is too large for memory may be too large for an integer, too.
    refuse_rows(float(counts.sum(dtype=np.float64)), what=what, remedy=remedy, width=width)
