"""Random numbers by their place: each depends only on the seed and its place, and is the same on every machine.

They are the numbers of SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", 2014): the
n-th is a hash of n. Each event owns `PER_EVENT` of them. No result depends on a platform's rounding of floats.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from gpu_ops.core.splitmix import STEP, Numbers, mixed

PER_EVENT = 64
"""The random numbers of one event."""

LETTERS = 16
"""The letters from one number: half a byte for each, a to p."""

Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_BLOCK = 1 << 13  # a block of numbers stays in the fastest cache while it is mixed
_LOW_HALVES = np.uint64(0x0F0F0F0F0F0F0F0F)
_EIGHT_A = np.uint64(0x6161616161616161)


def key(seed: int) -> np.uint64:
    """The start of a seed's sequence; neighbouring seeds start far from each other."""
    return np.uint64(mixed(np.array([seed], np.uint64) + STEP)[0])


def numbers(start: np.uint64, events: Integers, draw: int) -> Numbers:
    """Each event's random number of one draw, from 0 to `PER_EVENT` - 1.

    Examples:
        >>> numbers(np.uint64(0), np.array([0]), 0).tolist() == [0xE220A8397B1DCDAF]
        True
    """
    places = events.astype(np.uint64)
    made = np.empty(len(places), np.uint64)
    for first in range(0, len(places), _BLOCK):
        block = places[first : first + _BLOCK] * np.uint64(PER_EVENT)
        block += np.uint64(draw + 1)
        block *= STEP
        block += start
        made[first : first + _BLOCK] = mixed(block)
    return made


def below(drawn: Numbers, limit: int | Integers) -> Integers:
    """Whole numbers from 0 up to a limit of at most 2^32, equally probable to within limit / 2^32.

    Examples:
        >>> below(np.array([0, 1 << 63, (1 << 64) - 1], np.uint64), 10).tolist()
        [0, 5, 9]
    """
    return ((drawn >> np.uint64(32)) * np.asarray(limit, np.uint64) >> np.uint64(32)).astype(np.int64)


def prices(drawn: Numbers) -> Integers:
    """Prices from 100 to 100 million whose logarithms are uniform, as NEXMark's are.

    The power of ten lies on straight lines between 4096 points of a table, so that every machine has the same prices.

    Examples:
        >>> prices(np.array([0, 1 << 63, (1 << 64) - 1], np.uint64)).tolist()
        [100, 100000, 99999995]
    """
    table = _powers()
    at = (drawn >> np.uint64(52)).astype(np.int64)
    within = (drawn >> np.uint64(36) & np.uint64(0xFFFF)).astype(np.int64)
    low = table[at]
    return low + ((table[at + 1] - low) * within >> 16) + 512 >> 10


@lru_cache(maxsize=1)
def _powers() -> Integers:
    """100 to 100 million in 4096 equal ratios, in 1024ths."""
    return np.array([round(102_400 * 10 ** (6 * at / 4096)) for at in range(4097)])


def letters(start: np.uint64, events: Integers, draw: int, count: int) -> Bytes:
    """Rows of random letters, a to p; each row takes a draw for every `LETTERS`.

    Examples:
        >>> bytes(letters(np.uint64(0), np.array([0]), 0, 5)[0])
        b'pnnlj'
    """
    words = -(-count // LETTERS)
    made = np.empty((len(events), 2 * words), "<u8")
    for word in range(words):
        drawn = numbers(start, events, draw + word)
        made[:, 2 * word] = (drawn & _LOW_HALVES) + _EIGHT_A
        made[:, 2 * word + 1] = (drawn >> np.uint64(4) & _LOW_HALVES) + _EIGHT_A
    return made.view(np.uint8)[:, :count]


def digits(start: np.uint64, events: Integers, draw: int, count: int) -> Bytes:
    """Rows of random digits; each row takes a draw for every eight.

    Examples:
        >>> bytes(digits(np.uint64(0), np.array([0]), 0, 5)[0])
        b'68142'
    """
    words = -(-count // 8)
    drawn = np.empty((len(events), words), "<u8")
    for word in range(words):
        drawn[:, word] = numbers(start, events, draw + word)
    return (drawn.view(np.uint8)[:, :count].astype(np.uint16) * 10 >> 8).astype(np.uint8) + np.uint8(ord("0"))


def texts(rows: Bytes) -> Any:
    """An Arrow array of strings from rows of ASCII, all of one length.

    Examples:
        >>> texts(np.frombuffer(b"onetwo", np.uint8).reshape(2, 3)).to_pylist()
        ['one', 'two']
    """
    count, width = rows.shape
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(width)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows)))
