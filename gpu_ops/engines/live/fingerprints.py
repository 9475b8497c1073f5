"""Fingerprints of the user's functions in a plan: hashes of their code, wherever it stands."""

from __future__ import annotations

import datetime
import decimal
import dis
import enum
import fractions
import functools
import hashlib
import os
import re
import types
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np

from gpu_ops.engines.live.checkpoints import made_by
from gpu_ops.errors import SourceError
from gpu_ops.ingest.rules import check_choice
from gpu_ops.plan.identity import inside
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.window_kinds import Declaration

IfFunctionsChanged = Literal["raise", "accept"]

_BY_REPR = (
    *(type(None), bool, int, float, complex, str, bytes, range, slice, type(...), enum.Enum, uuid.UUID, re.Pattern),
    *(datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, fractions.Fraction),
    np.generic,
)
"""Types whose ``repr`` tells the whole value."""


def functions_held(node: Node) -> dict[str, str]:
    """The user's functions in a plan: the place of each, and its fingerprint.

    A fingerprint covers bytecode, constants, inner functions, defaults and the values of closures. Of the globals that
    the code reads, it covers functions of the same module and plain values. It ignores line numbers, file names and
    the names of local variables. Other objects count by the names of their types, other modules' code by its name.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> bids = g.events(pa.table({"at": [1], "price": [2]}), start="at", unit="s")
        >>> rows = g.window_function(lambda table: table.num_rows, returns=pa.int64(), of="price")
        >>> list(functions_held(bids.tumbling("1min").agg(n=rows)._node))
        ['1 WindowAggregate aggregates.0.options.function']
    """
    return {
        f"{number} {type(each).__name__} {'.'.join(path)}": fingerprint(function)
        for number, each in enumerate(node.walk())
        for path, function in _held(inside(each), ())
    }


def check_functions(
    path: Path | str, facts: Mapping[str, Any], now: Mapping[str, str], if_functions_changed: IfFunctionsChanged
) -> None:
    """Refuse a checkpoint whose query had other user functions.

    Args:
        path: The checkpoint.
        facts: Its facts; those of an older version name no functions.
        now: The query's functions now, from `functions_held`.
        if_functions_changed: Whether a change is an error.

    Raises:
        SourceError: A function has changed, and that is an error.
        PlanError: The policy is unknown.
    """
    check_choice("if_functions_changed", if_functions_changed, IfFunctionsChanged)
    then = facts.get("functions", now)
    changed = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    if changed and if_functions_changed == "raise":
        here = made_by()
        versions = "".join(
            f" It was made by {name} {facts[key]}, and this is {here[key]}."
            for key, name in (("version", "gpu_ops"), ("python", "Python"))
            if facts[key] != here[key]
        )
        raise SourceError(
            f"The checkpoint {path} was made with other functions: {', '.join(changed)} changed.{versions}",
            remedy="Restore it with the functions as they were. If the new ones go with the state, say "
            'if_functions_changed="accept" (gpu_ops run --accept-changes).',
        )


def fingerprint(function: Any) -> str:
    """A hash of what a function does, as far as its code shows.

    Examples:
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1)
        True
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
        False
    """
    return hashlib.sha256(repr(_described(function, [])).encode()).hexdigest()[:16]


def _held(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The user's functions in a part of a plan, with their paths."""
    # Expressions hold none: plans refuse expressions that call a function, which might read other rows.
    if isinstance(value, Node | nw.Expr):  # other nodes are visited by themselves
        return
    parts = inside(value)
    if isinstance(value, types.FunctionType) and _ours(value):
        parts = dict(zip(value.__code__.co_freevars, _cells(value), strict=True))
    elif isinstance(value, functools.partial) and _ours(value):
        parts = {"args": value.args, **value.keywords}
    elif isinstance(value, Declaration):  # a window kind is its methods
        named = {name: getattr(type(value), name) for name in dir(type(value)) if name[:2] != "__"}
        methods = {name: each for name, each in named.items() if isinstance(each, types.FunctionType)}
        parts = dict(parts or {}) | methods
    elif parts is None and callable(value) and not _ours(value):
        yield path, value
    for name, each in (parts or {}).items():
        yield from _held(each, (*path, name))


_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"


def _ours(function: Any) -> bool:
    """Whether a function is this package's own, by its file: a user's module may have the same name."""
    if isinstance(function, functools.partial):
        return _ours(function.func)
    if isinstance(function, types.FunctionType):
        return function.__code__.co_filename.startswith(_PACKAGE)
    return str(getattr(function, "__module__", "")).partition(".")[0] == "gpu_ops"


def _cells(function: types.FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # the cell is empty
            found.append(None)
    return found


def _described(value: Any, above: list[Any]) -> Any:
    """A value as nested tuples of texts, whose ``repr`` is the same in each process.

    Args:
        value: Any value.
        above: The values that hold it: a function may hold itself.
    """
    if isinstance(value, _BY_REPR):
        return type(value).__qualname__, repr(value)
    if any(value is each for each in above):
        return "above", len(above)
    above = [*above, value]
    if isinstance(value, list | tuple):
        return type(value).__qualname__, *(_described(each, above) for each in value)
    if isinstance(value, set | frozenset):
        return "set", *sorted(repr(_described(each, above)) for each in value)
    if isinstance(value, dict):
        return "dict", *((_described(key, above), _described(each, above)) for key, each in value.items())
    if isinstance(value, types.CodeType):
        return _code(value, above)
    if isinstance(value, types.FunctionType):
        return _function(value, above)
    if isinstance(value, types.MethodType):
        return "method", _described(value.__func__, above), _described(value.__self__, above)
    if isinstance(value, functools.partial):
        return "partial", *(_described(each, above) for each in (value.func, value.args, value.keywords))
    if isinstance(value, np.ndarray):
        content = value.tolist() if value.dtype.hasobject else hashlib.sha256(value.tobytes()).hexdigest()
        return "array", str(value.dtype), value.shape, _described(content, above)
    return _object(value, above)


def _object(value: Any, above: list[Any]) -> Any:
    """A named object by its name; another by its type and, if it can be called, by what that does."""
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType | np.ufunc):
        return _name(value)
    compiled = getattr(value, "py_func", None)  # set by Numba on what it compiles
    if isinstance(compiled, types.FunctionType):
        return "compiled", _described(compiled, above)
    called = type(value).__call__ if callable(value) else None
    if isinstance(called, types.FunctionType):
        return "object", _name(type(value)), _described(called, above), _described(vars(value), above)
    return "object", _name(type(value))


def _name(value: Any) -> tuple[str, str]:
    return str(getattr(value, "__module__", "")), getattr(value, "__qualname__", getattr(value, "__name__", ""))


def _function(function: types.FunctionType, above: list[Any]) -> Any:
    read = {
        name: function.__globals__[name] for name in sorted(_globals(function.__code__)) if name in function.__globals__
    }
    parts = (
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        _cells(function),
        {name: each for name, each in read.items() if _tells(each, function)},
    )
    # A function of another module counts by its name alone: a new version of a library may change its code.
    others = [(name, _name(each)) for name, each in read.items() if not _tells(each, function)]
    return "function", *(_described(each, above) for each in parts), others


def _tells(value: Any, function: types.FunctionType) -> bool:
    """Whether a global counts by its value, and not by its name alone."""
    if isinstance(value, types.FunctionType):
        return value.__module__ == function.__module__
    return isinstance(value, _BY_REPR)


def _code(code: types.CodeType, above: list[Any]) -> Any:
    arguments = code.co_argcount + code.co_kwonlyargcount
    facts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_names)
    names = (code.co_varnames[:arguments], code.co_freevars, code.co_cellvars)
    return "code", code.co_code.hex(), facts, names, *(_described(each, above) for each in code.co_consts)


def _globals(code: types.CodeType) -> set[str]:
    """The globals that code reads and does not write: a global that it writes is its state, not its behaviour."""
    operations = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    read = {name for operation, name in operations if operation in {"LOAD_GLOBAL", "LOAD_NAME"}}
    written = {name for operation, name in operations if operation in {"STORE_GLOBAL", "DELETE_GLOBAL"}}
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            read |= _globals(each)
    return read - written
