"""SplitMix64 (Steele et al., 2014): a hash that makes random-looking numbers of any numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.uint64]

STEP = np.uint64(0x9E3779B97F4A7C15)
"""From one number of a sequence to the next."""

_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)


def mixed(numbers: Numbers) -> Numbers:
    """The same array, hashed in place: each bit of a result depends on all bits of its number."""
    numbers ^= numbers >> np.uint64(30)
    numbers *= _FIRST
    numbers ^= numbers >> np.uint64(27)
    numbers *= _SECOND
    numbers ^= numbers >> np.uint64(31)
    return numbers
