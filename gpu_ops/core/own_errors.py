"""Translating errors at the public functions: another library's error reaches the user as ours, with its cause.

Mistakes of the user are refused where they are made and never get here, so each `DefectError` made here is a missing
check of ours. A call that raises nothing pays nothing.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, GeneratorType
from typing import Any, TypeVar

from gpu_ops.errors import ColumnError, DefectError, GpuOpsError, OutOfMemoryError, PlanError, SourceError, notes

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R")

_OURS = f"{Path(__file__).parents[1]}{os.sep}"
_LIBRARIES = sys.stdlib_module_names | {
    # gpu_ops too: methods that `dataclasses` writes for its classes are in no file.
    *("gpu_ops", "cloudpickle", "cudf", "cupy", "duckdb", "fsspec", "llvmlite", "matplotlib", "narwhals"),
    *("numba", "numpy", "pandas", "polars", "py4j", "pyarrow", "pylibcudf", "pyspark", "rich", "rmm", "tqdm", "typer"),
}
"""Modules whose functions are not the user's."""
_PASS = (GpuOpsError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, StopAsyncIteration)


defects: Counter[str] = Counter()
"""How many defects were met, by public function: tests assert that there are none."""


def _never(first: object) -> bool:
    return False


def own_errors(function: F, unless: Callable[[Any], bool] = _never) -> F:
    """A public function that raises only our errors.

    Errors of the user's own functions pass unchanged, and so do Ctrl-C and the like.

    Args:
        function: The function.
        unless: Whether errors pass unchanged, by the first argument: true within a call that translates them itself.

    Examples:
        >>> from gpu_ops.core.time import ticks
        >>> own_errors(ticks)("1s", unit="s")
        Traceback (most recent call last):
        gpu_ops.errors.PlanError: ticks was called otherwise than it is written: ... It is ticks(duration, *, name=...).
    """
    translate, kind = translated, GeneratorType

    def netted(made: Any) -> Any:
        try:
            return (yield from made)
        except BaseException as error:
            ours = translate(error, function)
            if ours is None:
                raise
            raise ours from error

    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            made = function(*args, **kwargs)
        except BaseException as error:
            ours = translate(error, function)
            if ours is None or (args and unless(args[0])):
                raise
            raise ours from error
        return netted(made) if isinstance(made, kind) else made

    # It has the globals of the function's own module, by which doctest finds a module's own functions.
    made: Any = FunctionType(called.__code__, function.__globals__, function.__name__, None, called.__closure__)
    for name in ("__module__", "__qualname__", "__doc__", "__annotations__"):
        setattr(made, name, getattr(function, name))
    made.__wrapped__ = function
    result: F = made
    return result


def theirs(function: Callable[..., R], *args: Any) -> R:
    """Call a function that the user passed in: its errors pass unchanged, whoever wrote it.

    This frame marks the call: the traceback of a bare ``queue.put_nowait`` has no line of the user's own.

    Examples:
        >>> theirs("{:d}".format, 3)
        '3'
    """
    return function(*args)


def of_methods(kind: C) -> C:
    """A class with `own_errors` on all its own public methods."""
    for name, each in list(vars(kind).items()):
        if isinstance(each, FunctionType) and (not name.startswith("_") or name in {"__iter__", "__arrow_c_stream__"}):
            setattr(kind, name, own_errors(each))
    return kind


def translated(error: BaseException, function: Callable[..., Any], name: str | None = None) -> GpuOpsError | None:
    """Our error for one that a public function raised; None if the error passes unchanged."""
    if isinstance(error, _PASS) or _is_users(error):
        return None
    name = name or function.__qualname__
    said = f"{type(error).__name__}: {error}".removesuffix(": ").rstrip(".")
    if isinstance(error, TypeError) and _never_began(error):
        return PlanError(
            f"{name} was called otherwise than it is written: {error}.",
            remedy=f"It is {function.__name__}({_signature(function)}).",
        )
    if isinstance(error, MemoryError) or type(error).__name__ in {"ArrowMemoryError", "OutOfMemoryError"}:
        return OutOfMemoryError(
            f"{name} ran out of memory{_place(error)} ({said}).",
            remedy="Ask for fewer or shorter pieces: coarser windows, fewer columns, a filter before the join; "
            "or give it more memory.",
        )
    if isinstance(error, OSError) or (isinstance(error, ValueError) and "embedded null" in said):
        return SourceError(
            f"The operating system refuses what {name} asks for ({said}).",
            remedy="See that the path is there, that its permissions allow it, and that the disk is not full.",
        )
    if isinstance(error, RecursionError):
        return PlanError(
            f"The query nests too deeply for {name}.",
            remedy="Write fewer steps with more in each, or allow more: sys.setrecursionlimit(10_000).",
        )
    if type(error).__module__ == "polars.exceptions" and type(error).__name__ in {
        "InvalidOperationError",
        "ComputeError",
    }:
        return ColumnError(
            f"A value cannot become what an expression or the frame asks for ({said.splitlines()[0]}){_place(error)}.",
            remedy="Filter such rows out before, or let the expression give null for them.",
        )
    defects[name] += 1
    return DefectError(
        f"{name} did not expect an {said}{_place(error)}.",
        remedy="This is a defect of gpu_ops: please report it with the query, the schema of its data, and all of this "
        "traceback.",
    )


def _signature(function: Callable[..., Any]) -> str:
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != "self"]
    plain = [each.replace(annotation=inspect.Parameter.empty) for each in parameters]
    return str(inspect.Signature(plain)).strip("()")


def _place(error: BaseException) -> str:
    return "".join(f", {note}" for note in notes(error))


def _is_users(error: BaseException) -> bool:
    """Whether an error comes from a function of the user's, and not from ours or another library's."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code is theirs.__code__:
            return True
        module = str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0]
        if not trace.tb_frame.f_code.co_filename.startswith(_OURS) and module not in _LIBRARIES:
            return True
        trace = trace.tb_next
    return False


def _never_began(error: BaseException) -> bool:
    """Whether the arguments did not fit the signature, so that the function was never entered."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # Each of our decorators calls the decorated function from a function of this name.
    code = None if trace is None else trace.tb_frame.f_code
    return code is not None and code.co_name == "called" and code.co_filename.startswith(_OURS)
