"""The array of a device that is not there: NumPy underneath, and refusing what CuPy refuses. It counts what it does.

A GPU's memory is not the host's: what is here goes nowhere by itself. `DeviceArray` is no NumPy array, is turned into
none implicitly, meets none in arithmetic, and whoever looks at a value of it waits for the device, which is counted.
`device_functions.py` has the functions; both take and refuse by `cupy_facts.json`, which is recorded from the wheel.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

FACTS = json.loads(Path(__file__).with_name("cupy_facts.json").read_text())

FUNCTIONS: dict[str, Any] = {}
"""CuPy's functions and ufuncs by name; `device_functions.py` puts them in."""


@dataclass(slots=True)
class Tally:
    """What was asked of the device.

    Attributes:
        calls: Functions, operators, gathers and writes by index.
        launches: How many kernels these would launch, by the estimates of `device_functions.py`.
        synchronisations: How often the host waits: a value is looked at, or a result's length depends on values.
        uploads: Arrays that were copied from the host.
    """

    calls: int = 0
    launches: int = 0
    synchronisations: int = 0
    uploads: int = 0

    def add(self, *, launches: int = 1, synchronisations: int = 0) -> None:
        self.calls += 1
        self.launches += launches
        self.synchronisations += synchronisations


TALLY = Tally()


@contextmanager
def tallied() -> Iterator[Tally]:
    """What is asked within, alone; known at the end.

    Examples:
        >>> with tallied() as tally:
        ...     bool(upload(np.arange(3))[0] == 0)
        True
        >>> tally
        Tally(calls=1, launches=1, synchronisations=1, uploads=1)
    """
    before, within = astuple(TALLY), Tally()
    yield within
    within.calls, within.launches, within.synchronisations, within.uploads = (
        now - then for now, then in zip(astuple(TALLY), before, strict=True)
    )


def refuse(kind: type[Exception], message: str) -> NoReturn:
    raise kind(f"{message} ({FACTS['source']}).")


def upload(values: Any, dtype: Any = None) -> DeviceArray:
    """What ``cupy.asarray`` makes of host values.

    It is a copy, as on a GPU; only what is read-only is shared, and stays so: who writes into an input is caught.
    """
    if isinstance(values, DeviceArray):
        return values if dtype is None else values.astype(dtype, copy=False)
    TALLY.uploads += 1
    made = np.asarray(values, dtype=dtype)
    if made.dtype.kind not in "biufc":
        refuse(ValueError, f"Unsupported dtype {made.dtype}")
    return DeviceArray(made.copy() if made.flags.writeable and made is values else made)


def device(result: Any) -> Any:
    """What NumPy gave as what CuPy would have given: a single number is an array without axes."""
    if isinstance(result, np.ndarray):
        return DeviceArray(result)
    if isinstance(result, np.generic):
        return DeviceArray(np.asarray(result))
    if isinstance(result, (tuple, list)):
        return tuple(device(each) for each in result)
    return result


def plain(value: Any) -> Any:
    """An argument as NumPy takes it: a device's array, a number, a type, or a shape; nothing of the host's."""
    if type(value) is DeviceArray:
        return value._values
    if isinstance(value, np.ndarray):
        refuse(TypeError, "Unsupported type <class 'numpy.ndarray'>: an array of the host meets the device")
    if isinstance(value, list) or (isinstance(value, tuple) and any(isinstance(each, DeviceArray) for each in value)):
        refuse(TypeError, f"Unsupported type {type(value)}")
    return value


def _operator(name: str) -> Callable[[Any, Any], Any]:
    def apply(self: DeviceArray, other: Any) -> Any:
        return FUNCTIONS[name].of_two(self, other)

    return apply


def _reflected(name: str) -> Callable[[Any, Any], Any]:
    def apply(self: DeviceArray, other: Any) -> Any:
        return FUNCTIONS[name].of_two(other, self)

    return apply


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    def apply(self: DeviceArray, other: Any) -> Any:
        return FUNCTIONS[name](self, other, out=self)

    return apply


def _method(name: str) -> Callable[..., Any]:
    names = FACTS["array"][name].split(", ")

    def apply(self: DeviceArray, *arguments: Any, **options: Any) -> Any:
        if len(arguments) > len(names) or not options.keys() <= set(names):
            refuse(TypeError, f"cupy.ndarray.{name} takes ({', '.join(names)}), not {list(options)}")
        return FUNCTIONS[name](self, **dict(zip(names, arguments, strict=False)), **options)

    return apply


def _unary(name: str) -> Callable[[Any], Any]:
    def apply(self: DeviceArray) -> Any:
        return FUNCTIONS[name](self)

    return apply


class DeviceArray:
    """An array on the device.

    Args:
        values: Its values, which nobody else may reach.
    """

    __slots__ = ("_values",)
    __array_priority__ = 100
    __hash__ = None  # type: ignore[assignment]  # as no array has one

    _values: np.ndarray[Any, Any]

    def __init__(self, values: Any) -> None:
        self._values = values

    # What is known without looking at a value

    @property
    def dtype(self) -> Any:
        return self._values.dtype

    @property
    def shape(self) -> Any:
        return self._values.shape

    @property
    def ndim(self) -> int:
        return self._values.ndim

    @property
    def size(self) -> int:
        return self._values.size

    @property
    def nbytes(self) -> int:
        return self._values.nbytes

    @property
    def itemsize(self) -> int:
        return self._values.itemsize

    @property
    def device(self) -> str:
        return "device 0"

    @property
    def T(self) -> DeviceArray:  # noqa: N802  (CuPy's name)
        return DeviceArray(self._values.T)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"device {self._values!r}"

    # How NumPy's functions and array_api_compat find the device's

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        found = FUNCTIONS.get(ufunc.__name__)
        if found is None:
            return NotImplemented
        if "out" in options:
            (options["out"],) = options["out"]
        return found(*inputs, **options) if method == "__call__" else getattr(found, method)(*inputs, **options)

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        found = FUNCTIONS.get(function.__name__) if function.__module__ == "numpy" else None
        if found is None or any(kind not in (DeviceArray, np.ndarray) for kind in types):
            return NotImplemented
        return found(*arguments, **options)

    def __array_namespace__(self, api_version: str | None = None) -> Any:
        from tests.support.device_functions import NAMESPACE

        return NAMESPACE

    # To the host: each waits for the device

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        refuse(TypeError, "Implicit conversion to a NumPy array is not allowed")

    def __iter__(self) -> Any:
        refuse(TypeError, "Iteration over an array of the device would launch a kernel for each value")

    def get(self) -> Any:
        TALLY.synchronisations += 1
        return self._values.copy()

    def to_device(self, where: Any, /, *, stream: Any = None) -> Any:
        """CuPy has none; ``array_api_compat.to_device`` is one for it, by `get`."""
        return self.get() if where == "cpu" else self

    def _looked_at(self) -> Any:
        TALLY.synchronisations += 1
        return self._values

    def item(self) -> Any:
        return self._looked_at().item()

    def tolist(self) -> Any:
        return self._looked_at().tolist()

    def __bool__(self) -> bool:
        return bool(self._looked_at())

    def __int__(self) -> int:
        return int(self._looked_at())

    def __float__(self) -> float:
        return float(self._looked_at())

    def __index__(self) -> int:
        if self.ndim or self.dtype.kind not in "iu":
            refuse(TypeError, "Only integer scalar arrays can be converted to a scalar index")
        return int(self._looked_at())

    # Views and copies

    def astype(self, dtype: Any, order: str = "K", casting: Any = None, subok: Any = None, copy: Any = True) -> Any:  # noqa: FBT002
        if not copy and self.dtype == dtype:
            return self
        TALLY.add()
        return DeviceArray(self._values.astype(dtype))

    def view(self, dtype: Any = None) -> DeviceArray:
        return DeviceArray(self._values.view() if dtype is None else self._values.view(dtype))

    def copy(self, order: str = "C") -> DeviceArray:
        TALLY.add()
        return DeviceArray(self._values.copy())

    def reshape(self, *shape: Any) -> DeviceArray:
        return DeviceArray(self._values.reshape(*shape))

    # By index

    def __getitem__(self, index: Any) -> DeviceArray:
        where, launches, waits = _index(index)
        if launches:
            TALLY.add(launches=launches, synchronisations=waits)
        # With an ellipsis NumPy gives an array of what it would give a number for.
        whole = where if isinstance(where, tuple) else (where,)
        return DeviceArray(self._values[where] if launches or Ellipsis in whole else self._values[(*whole, ...)])

    def __setitem__(self, index: Any, value: Any) -> None:
        where, launches, waits = _index(index)
        new = plain(value)
        # Under a mask a single value is written by one kernel; several are counted out to their places first.
        several = isinstance(new, np.ndarray) and new.ndim > 0
        TALLY.add(launches=launches + 1 if several else 1, synchronisations=waits if several else 0)
        self._values[where] = new
        if launches and several and not _same(self._values[where], new):
            refuse(ValueError, "An index occurs twice with different values: which one a GPU keeps is left to chance")


def _index(index: Any) -> tuple[Any, int, int]:
    """(index, launches, synchronisations), for NumPy; nothing is launched for a view."""
    if isinstance(index, tuple):
        parts = [_index(each) for each in index]
        return tuple(part[0] for part in parts), sum(part[1] for part in parts), sum(part[2] for part in parts)
    if type(index) is DeviceArray:
        # A mask becomes indices: a scan, its total on the host, and two more passes.
        return (index._values, 5, 1) if index.dtype == np.bool_ else (index._values, 1, 0)
    if isinstance(index, slice):
        bounds = (index.start, index.stop, index.step)
        return slice(*(each if each is None else operator.index(each) for each in bounds)), 0, 0
    if isinstance(index, (np.ndarray, list)):
        refuse(TypeError, f"An index of the host ({type(index).__name__}) would be copied to the device unseen")
    return index, 0, 0


def _same(held: Any, given: Any) -> bool:
    equal = held == given
    return bool(np.all(equal | (held != held) if held.dtype.kind == "f" else equal))  # noqa: PLR0124  (NaN)


_OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "true_divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "pow": "power",
    "lshift": "left_shift",
    "rshift": "right_shift",
    "and": "bitwise_and",
    "or": "bitwise_or",
    "xor": "bitwise_xor",
}
_COMPARISONS = {"lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal", "eq": "equal"}
_REDUCTIONS = ("all", "any", "argmax", "argmin", "max", "mean", "min", "prod", "sum")

for _short, _name in _OPERATORS.items():
    setattr(DeviceArray, f"__{_short}__", _operator(_name))
    setattr(DeviceArray, f"__r{_short}__", _reflected(_name))
    setattr(DeviceArray, f"__i{_short}__", _in_place(_name))
for _short, _name in (_COMPARISONS | {"ne": "not_equal"}).items():
    setattr(DeviceArray, f"__{_short}__", _operator(_name))
for _short, _name in {"neg": "negative", "invert": "invert", "abs": "absolute"}.items():
    setattr(DeviceArray, f"__{_short}__", _unary(_name))
for _name in (*_REDUCTIONS, "argsort", "cumsum", "nonzero", "ravel", "repeat", "take"):
    setattr(DeviceArray, _name, _method(_name))
