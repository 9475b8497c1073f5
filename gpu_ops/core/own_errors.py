"""The net around public functions: another library's error reaches the user as an error of ours, with its cause.

A user's mistake is refused where it is made, and never gets here: an error that the net turns into a `DefectError`
shows a missing check. A call without an error costs nothing.
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
    # Ours too: methods that `dataclasses` writes for our classes are in no file.
    *("gpu_ops", "cloudpickle", "confluent_kafka", "cudf", "cupy", "duckdb", "fastavro", "fsspec", "llvmlite"),
    "matplotlib",
    "narwhals",
    *("numba", "numpy", "pandas", "polars", "py4j", "pyarrow", "pylibcudf", "pyspark", "rich", "rmm", "tqdm", "typer"),
}
"""Libraries whose functions are not the user's."""
_PASS = (GpuOpsError, KeyboardInterrupt, SystemExit, GeneratorExit, StopIteration, StopAsyncIteration)


defects: Counter[str] = Counter()
"""The number of defects by function; tests check that there are none."""


def _never(first: object) -> bool:
    return False


def own_errors(function: F, unless: Callable[[Any], bool] = _never) -> F:
    """A public function that turns other libraries' errors into ours.

    Errors of the user's own functions pass unchanged, and so do Ctrl-C and the like.

    Args:
        function: The function.
        unless: From the first argument to whether an error passes: a call within another call leaves it to that one.

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

    # It needs the globals of the function's own module, by which doctest knows that the module defines it.
    made: Any = FunctionType(called.__code__, function.__globals__, function.__name__, None, called.__closure__)
    for name in ("__module__", "__qualname__", "__doc__", "__annotations__"):
        setattr(made, name, getattr(function, name))
    made.__wrapped__ = function
    result: F = made
    return result


def theirs(function: Callable[..., R], *args: Any) -> R:
    """Call a function of the user's: its errors pass unchanged, whoever wrote it.

    A bare ``queue.put_nowait`` has no line of the user's code in its traceback.

    Examples:
        >>> theirs("{:d}".format, 3)
        '3'
    """
    return function(*args)


def of_methods(kind: C) -> C:
    """A class with `own_errors` around each of its own public methods."""
    for name, each in list(vars(kind).items()):
        if isinstance(each, FunctionType) and (not name.startswith("_") or name in {"__iter__", "__arrow_c_stream__"}):
            setattr(kind, name, own_errors(each))
    return kind


def translated(error: BaseException, function: Callable[..., Any], name: str | None = None) -> GpuOpsError | None:
    """The error of ours for another error that a public function raised, with its notes; None if that error passes."""
    made = _translated(error, function, name)
    if made is not None:
        for note in getattr(error, "__notes__", []):
            if note not in notes(error):  # places are in the text
                made.add_note(note)
    return made


def _translated(error: BaseException, function: Callable[..., Any], name: str | None) -> GpuOpsError | None:
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
    if type(error).__module__ in {"polars.exceptions", "narwhals.exceptions"} and type(error).__name__ in {
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
    """Whether a function of the user's raised it, and not our code or another library."""
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
    """Whether the arguments did not fit the signature, so that the function never began."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    # Each of our decorators calls what it decorates in a function of this name.
    code = None if trace is None else trace.tb_frame.f_code
    return code is not None and code.co_name == "called" and code.co_filename.startswith(_OURS)
