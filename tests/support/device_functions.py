"""CuPy's functions over `DeviceArray`: they take what the wheel's take, refuse the rest, and estimate their launches.

How launches are estimated: one for each pass over memory that CuPy's sources make on an array of any size, nothing for
a view. A radix sort is one pass for each byte of the values, a histogram and its sum; an argsort writes the positions
and a copy of the values before. What depends on the size (a comparison sort) is counted as on a million rows.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Self
from unittest import mock

import array_api_compat
import numpy as np

from tests.support.device_array import FACTS, FUNCTIONS, TALLY, DeviceArray, device, plain, refuse, upload

LAUNCHES = {
    "any": 1,
    "argwhere": 4,
    "bincount": 3,
    "cumprod": 2,
    "cumsum": 2,
    "diff": 2,
    "flatnonzero": 4,
    "isin": 40,
    "lexsort": 40,
    "nonzero": 4,
    "repeat": 4,
    "searchsorted": 2,
    "union1d": 30,
    "unique": 20,
}
"""Kernels of one call, where it is not one; `Function` has sorts and `concatenate`."""

VIEWS = {"broadcast_to", "ndim", "ravel", "reshape", "shape", "size", "squeeze", "transpose", "empty", "empty_like"}
"""What launches nothing."""

WAITS = {"argwhere", "bincount", "flatnonzero", "nonzero", "union1d", "unique"}
"""What has a result whose length only the device knows; so has `repeat` by an array."""

OF_SHAPES = {"broadcast_shapes", "can_cast", "ndim", "result_type", "shape", "size"}
"""What asks the device nothing."""


class Ufunc:
    """A ufunc: it has the loops and methods that CuPy's has.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self._numpy = getattr(np, name)
        self._loops = [each.split("->") for each in FACTS["ufuncs"][name]["loops"].split()]
        self._methods = FACTS["ufuncs"][name]["methods"]
        self._expected = functools.cache(self._found)

    def __call__(self, *inputs: Any, out: Any = None, dtype: Any = None, **options: Any) -> Any:
        if len(inputs) == 2 and self._numpy.nout == 1 and out is None and dtype is None and not options:
            return self.of_two(*inputs)
        if options.keys() - {"casting"}:
            refuse(TypeError, f"cupy.{self.__name__} takes no {sorted(options.keys() - {'casting'})}")
        values = [plain(each) for each in inputs]
        expected = self._expected(tuple(getattr(each, "dtype", type(each)) for each in values))
        if out is not None:
            options["out"] = plain(out)
        made = self._numpy(*values, dtype=dtype, **options) if dtype is not None else self._numpy(*values, **options)
        if dtype is None and out is None:
            given = [each.dtype for each in made] if isinstance(made, tuple) else [made.dtype]
            if given != expected:
                refuse(TypeError, f"cupy.{self.__name__} gives {expected} where NumPy gives {given}")
        TALLY.add()
        return out if out is not None else device(made)

    def of_two(self, one: Any, other: Any) -> Any:
        """A call of two arguments and no options: most are such, so it is made in few steps."""
        left = one._values if type(one) is DeviceArray else plain(one)
        right = other._values if type(other) is DeviceArray else plain(other)
        expected = self._expected((getattr(left, "dtype", type(left)), getattr(right, "dtype", type(right))))
        made = self._numpy(left, right)
        if made.dtype != expected[0]:
            refuse(TypeError, f"cupy.{self.__name__} gives {expected} where NumPy gives {made.dtype}")
        TALLY.calls += 1
        TALLY.launches += 1
        return DeviceArray(made if isinstance(made, np.ndarray) else np.asarray(made))

    def _found(self, kinds: tuple[Any, ...]) -> list[np.dtype[Any]]:
        """The types of the first loop that takes arguments of some types; a number of Python's has but a kind."""
        for needs, gives in self._loops:
            if len(needs) == len(kinds) and all(map(_fits, kinds, needs)):
                return [np.dtype(each) for each in gives]
        return refuse(TypeError, f"cupy.{self.__name__} has no loop for {kinds}")

    def __getattr__(self, method: str) -> Any:
        if method not in self.__dict__.get("_methods", ()):
            refuse(NotImplementedError, f"cupy.{self.__name__}.{method} is not supported")
        return lambda *arguments, **options: self._by(method, arguments, options)

    def _by(self, method: str, arguments: Any, options: Any) -> Any:
        TALLY.add(launches=LAUNCHES.get("cumsum", 1) if method == "accumulate" else 1)
        values = [plain(each) for each in arguments]
        return device(getattr(self._numpy, method)(*values, **{name: plain(each) for name, each in options.items()}))


def _fits(kind: Any, needed: str) -> bool:
    into = np.dtype(needed)
    if isinstance(kind, np.dtype):
        return np.can_cast(kind, into)
    return bool(kind is bool or (kind is int and into.kind in "iufc") or (kind is float and into.kind in "fc"))


class Function:
    """A function: it has the parameters that CuPy's has.

    Args:
        name: Its name.
        rule: What it refuses beside that, given its arguments.
    """

    def __init__(self, name: str, rule: Callable[..., None] | None = None) -> None:
        self.__name__ = self.__qualname__ = name
        self._numpy = getattr(np, name)
        self._rule = rule
        positional, _, keyword = FACTS["functions"][name].partition("*")
        self._positional = [each for each in positional.split(", ") if each not in ("", "/")]
        self._names = {*self._positional, *keyword.split(", ")}
        self._most = 99 if keyword.startswith("args") else len(self._positional)
        self._of_several = name in ("concatenate", "stack")
        self._asks_the_device, self._waits = name not in OF_SHAPES, int(name in WAITS)
        self._fixed_launches = None if self._of_several or name in ("sort", "argsort") else self._launches([])

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if len(arguments) > self._most or (options and not options.keys() <= self._names):
            name = self.__name__
            refuse(TypeError, f"cupy.{name} takes ({FACTS['functions'][name]}), not {len(arguments)}, {list(options)}")
        if self._rule is not None:
            self._rule(*arguments, **options)
        if self._of_several:
            values = [[each._values for each in arguments[0]], *arguments[1:]]
        else:
            values = [each._values if type(each) is DeviceArray else plain(each) for each in arguments]
        if options:
            options = {key: plain(each) for key, each in options.items() if each is not None}
        if self._asks_the_device:
            TALLY.calls += 1
            TALLY.launches += self._launches(values) if self._fixed_launches is None else self._fixed_launches
            TALLY.synchronisations += self._waits
        made = self._numpy(*values, **options)
        return DeviceArray(made) if type(made) is np.ndarray else device(made)

    def _launches(self, values: list[Any]) -> int:
        name = self.__name__
        if name in ("sort", "argsort"):
            return int(values[0].itemsize) + (2 if name == "sort" else 4)
        if name in ("concatenate", "stack"):
            return len(values[0])
        return 0 if name in VIEWS else LAUNCHES.get(name, 1)


# What single functions refuse


def _arrays_alone(arrays: Any, *rest: Any, **options: Any) -> None:
    for each in arrays:
        if not isinstance(each, DeviceArray):
            refuse(TypeError, f"Only cupy arrays can be concatenated, not {type(each)}")


def _stable(a: Any, axis: Any = -1, kind: Any = None) -> None:
    if kind not in (None, "stable"):
        refuse(ValueError, "kind can only be None or 'stable'")


def _two_axes(keys: Any) -> None:
    if not isinstance(keys, DeviceArray):
        refuse(AttributeError, f"lexsort takes one array of keys, not {type(keys)}")
    if keys.ndim != 2:
        refuse(NotImplementedError, "Keys with other than two axes are not supported in lexsort")


def _in_an_array(a: Any, v: Any, side: str = "left", sorter: Any = None) -> None:
    if not isinstance(a, DeviceArray):
        refuse(NotImplementedError, "Only ndarray are supported for a")
    if not isinstance(v, (DeviceArray, int, float)):
        refuse(NotImplementedError, f"Only python scalars or ndarrays are supported for v, not {type(v)}")
    if isinstance(v, DeviceArray) and {a.dtype.kind, v.dtype.kind} in ({"i", "u"}, {"i", "f"}, {"u", "f"}):
        refuse(TypeError, f"The kernel compares {a.dtype} with {v.dtype} as C does")


def _of_the_device(a: Any, indices: Any, *rest: Any, **options: Any) -> None:
    if not isinstance(a, DeviceArray):
        refuse(TypeError, f"take from {type(a)}")
    if isinstance(indices, DeviceArray) and indices.dtype.kind not in "iu":
        refuse(TypeError, f"take by {indices.dtype}")


def _counted(a: Any, repeats: Any, axis: Any = None) -> None:
    if isinstance(repeats, DeviceArray):
        TALLY.synchronisations += 1


def _of_some_shape(a: Any, *rest: Any, **options: Any) -> None:
    shape = options.get("shape")
    if shape is not None and not shape:
        refuse(ValueError, f"A shape of {shape} is taken for none, so the result has that of the array: say (0,)")


RULES: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("empty_like", "full_like", "ones_like", "zeros_like"), _of_some_shape),
    "argsort": _stable,
    "concatenate": _arrays_alone,
    "lexsort": _two_axes,
    "repeat": _counted,
    "searchsorted": _in_an_array,
    "sort": _stable,
    "stack": _arrays_alone,
    "take": _of_the_device,
}


def _array(obj: Any, dtype: Any = None, copy: Any = True, **options: Any) -> DeviceArray:  # noqa: FBT002
    made = upload(obj, dtype)
    return made.copy() if copy and made is obj else made


def _asarray(a: Any, dtype: Any = None, **options: Any) -> DeviceArray:
    return upload(a, dtype)


def _asnumpy(a: Any) -> Any:
    return a.get() if isinstance(a, DeviceArray) else np.asarray(a)


FUNCTIONS.update({name: Ufunc(name) for name in FACTS["ufuncs"]})
FUNCTIONS.update({name: Function(name, RULES.get(name)) for name in FACTS["functions"] if name in dir(np)})
FUNCTIONS.update(array=_array, asarray=_asarray, ascontiguousarray=_asarray)


# The namespace that kernels find


class _Device:
    """The one device."""

    def __init__(self, number: int | None = None) -> None:
        self.id = number or 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        return


NAMES = (
    *("bool_", "intp", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128", "dtype", "integer", "unsignedinteger"),
    *("e", "inf", "nan", "newaxis", "pi", "finfo", "iinfo", "isdtype", "issubdtype", "result_type"),
)
"""Types and what is asked of them: NumPy's own in CuPy too."""


def _modules() -> dict[str, types.ModuleType]:
    """The modules of which array_api_compat makes its namespace for CuPy."""
    names = ("cupy", "cupy.cuda", "cupy.cuda.device", "cupy.fft", "cupy.linalg")
    made = {name: types.ModuleType(name) for name in names}
    cupy = made["cupy"]
    for name, module in made.items():
        parent, _, child = name.rpartition(".")
        module.__path__ = []
        if parent:
            setattr(made[parent], child, module)
    vars(cupy).update(FUNCTIONS)
    vars(cupy).update({name: getattr(np, name) for name in NAMES})
    vars(cupy).update(ndarray=DeviceArray, asnumpy=_asnumpy, bool=np.bool_)
    vars(made["cupy.cuda"])["Device"] = vars(made["cupy.cuda.device"])["Device"] = _Device
    vars(made["cupy.linalg"])["lstsq"] = None
    return made


@contextlib.contextmanager
def _instead_of_cupy() -> Iterator[None]:
    """Within, ``import cupy`` finds the stand-in; after it nothing is left of it, and CuPy itself can be imported."""
    ours = ("cupy", "array_api_compat.cupy")
    real = {name: module for name, module in sys.modules.items() if name.startswith(ours)}
    others = {name: module for name, module in sys.modules.items() if name not in real}
    attribute = vars(array_api_compat).get("cupy")
    with mock.patch.dict(sys.modules, others | _modules(), clear=True):
        yield
    if attribute is None:
        vars(array_api_compat).pop("cupy", None)
    else:
        vars(array_api_compat)["cupy"] = attribute


with _instead_of_cupy():
    NAMESPACE = importlib.import_module("array_api_compat.cupy")
