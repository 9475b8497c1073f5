"""Compiling kernels: each for one signature, at its first call, and cached on disk for the next process.

Loading a cached kernel takes some 5 ms, so a process loads only the kernels of its queries. Input arrays are declared
read-only, which fits Arrow's immutable buffers and writable arrays alike; all arrays are one-dimensional and
contiguous. Kernels release the interpreter's lock and use one thread: callers run them on blocks in parallel, or on
parts of the rows of which each writes to other places. They copy and fill arrays in loops, since Numba takes seconds to
compile an assignment to a part of an array.

Numba writes its cache beside the source or, where that is read-only, under the user's cache folder; ``NUMBA_CACHE_DIR``
names another place, for Spark's workers for instance. Where nothing can be written, each process compiles for itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt

P = ParamSpec("P")
R = TypeVar("R")

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

INT = numba.types.int64
FLOAT = numba.types.float64

# For an unsigned index Numba leaves out the test for negative indices, which count from the end.
unsigned = np.uint64


def _input(dtype: Any) -> Any:
    return numba.types.Array(dtype, 1, "C", readonly=True)


INTS = _input(numba.types.int64)
CODES = _input(numba.types.int32)
BOOLS = _input(numba.types.boolean)
INT_TABLE = numba.types.Array(numba.types.int64, 2, "C", readonly=True)


def output(dtype: Any) -> Any:
    """The type of an array that a kernel writes into."""
    return numba.types.Array(dtype, 1, "C")


def kernel(*signature: Any, allocates: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function of arrays for these argument types, at its first call.

    Args:
        signature: The types.
        allocates: Whether the function makes arrays. If not, it is compiled without reference counts: Numba counts
            each array that is handed to an inlined part or put into a tuple.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        compiled: Callable[P, R] | None = None

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            nonlocal compiled
            if compiled is None:
                compiled = _compile(function, signature, allocates=allocates)
            return compiled(*args, **kwargs)

        return call

    return decorate


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A helper that is compiled into kernels of the same file: the cache notices no changes in other files."""
    # Inlined by Numba and not by LLVM, so that passing an array does not touch its reference count.
    made: Callable[P, R] = numba.njit(nogil=True, error_model="numpy", inline="always")(function)
    return made


def called(function: Callable[P, R]) -> Callable[P, R]:
    """A helper that kernels call, where to inline it everywhere would make them too large.

    It makes no arrays, and is compiled without reference counts. The cache of a kernel in another file notices no
    change of it.
    """
    options: dict[str, Any] = {"_nrt": False}
    made: Callable[P, R] = numba.njit(nogil=True, error_model="numpy", **options)(function)
    return made


def _compile(function: Callable[P, R], signature: tuple[Any, ...], *, allocates: bool = True) -> Callable[P, R]:
    try:
        return _dispatcher(function, signature, cache=True, _nrt=allocates)
    except (RuntimeError, OSError):  # Numba found no place for its cache, or could not write there
        return _dispatcher(function, signature, cache=False, _nrt=allocates)


def _dispatcher(function: Callable[P, R], signature: tuple[Any, ...], **options: Any) -> Callable[P, R]:
    dispatcher = numba.njit(nogil=True, error_model="numpy", **options)(function)
    dispatcher.compile(signature)
    dispatcher.disable_compile()
    made: Callable[P, R] = dispatcher
    return made
