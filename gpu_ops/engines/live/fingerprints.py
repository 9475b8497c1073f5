"""What the user's functions of a plan do, as one number each: a hash of their code, not of where it stands."""

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
"""What its ``repr`` tells all of."""


def functions_held(node: Node) -> dict[str, str]:
    """The user's functions in a plan: where each stands, and a hash of what it does.

    The hash covers bytecode, constants, functions within, defaults, and the values of closures; and of the globals that
    the code reads, functions of the same module and plain values. It does not cover line numbers, file names and the
    names of local variables. Of other objects the type's name counts, and of other modules' code its name.

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
    path: Path, facts: Mapping[str, Any], now: Mapping[str, str], if_functions_changed: IfFunctionsChanged
) -> None:
    """Refuse a checkpoint whose query had other functions of the user's.

    Args:
        path: The checkpoint.
        facts: What it says; one of an older version says nothing of functions.
        now: The functions that the query has now, as `functions_held` gives them.
        if_functions_changed: Whether a change is an error.

    Raises:
        SourceError: A function is another, and that is an error.
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
    """A hash of what a function does, as far as that can be told from its code.

    Examples:
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 1)
        True
        >>> fingerprint(lambda x: x + 1) == fingerprint(lambda x: x + 2)
        False
    """
    return hashlib.sha256(repr(_described(function, [])).encode()).hexdigest()[:16]


def _held(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The user's functions in a part of a plan, and where they stand."""
    # Expressions hold none: one that calls a function is refused, since it might look at other rows.
    if isinstance(value, Node | nw.Expr):  # other nodes are asked by themselves
        return
    parts = inside(value)
    if isinstance(value, types.FunctionType) and _ours(value):
        parts = dict(zip(value.__code__.co_freevars, _cells(value), strict=True))
    elif isinstance(value, functools.partial) and _ours(value):
        parts = {"args": value.args, **value.keywords}
    elif isinstance(value, Declaration):  # a kind of window is what its methods do, and a class has no other parts
        named = {name: getattr(type(value), name) for name in dir(type(value)) if name[:2] != "__"}
        methods = {name: each for name, each in named.items() if isinstance(each, types.FunctionType)}
        parts = dict(parts or {}) | methods
    elif parts is None and callable(value) and not _ours(value):
        yield path, value
    for name, each in (parts or {}).items():
        yield from _held(each, (*path, name))


_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"


def _ours(function: Any) -> bool:
    """Whether it is this package's. What users write in a module called so is not."""
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
        except ValueError:  # it is not filled yet
            found.append(None)
    return found


def _described(value: Any, above: list[Any]) -> Any:
    """What a value is, as tuples of texts whose ``repr`` is the same in each process.

    Args:
        value: Anything.
        above: What holds it: a function may hold itself.
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
    """What has a name, by that; of another object its type and, if it can be called, what it does then."""
    if isinstance(value, type | types.ModuleType | types.BuiltinFunctionType | np.ufunc):
        return _name(value)
    compiled = getattr(value, "py_func", None)  # Numba's, of what it compiles
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
    # A function of another module counts by its name alone: it is another's, and may change with any version.
    others = [(name, _name(each)) for name, each in read.items() if not _tells(each, function)]
    return "function", *(_described(each, above) for each in parts), others


def _tells(value: Any, function: types.FunctionType) -> bool:
    """Whether a global is described, and not only named."""
    if isinstance(value, types.FunctionType):
        return value.__module__ == function.__module__
    return isinstance(value, _BY_REPR)


def _code(code: types.CodeType, above: list[Any]) -> Any:
    arguments = code.co_argcount + code.co_kwonlyargcount
    facts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags, code.co_names)
    names = (code.co_varnames[:arguments], code.co_freevars, code.co_cellvars)
    return "code", code.co_code.hex(), facts, names, *(_described(each, above) for each in code.co_consts)


def _globals(code: types.CodeType) -> set[str]:
    """The globals that code reads and does not write: one that it writes is a state, not a part of what it does."""
    operations = [(each.opname, each.argval) for each in dis.get_instructions(code)]
    read = {name for operation, name in operations if operation in {"LOAD_GLOBAL", "LOAD_NAME"}}
    written = {name for operation, name in operations if operation in {"STORE_GLOBAL", "DELETE_GLOBAL"}}
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            read |= _globals(each)
    return read - written
