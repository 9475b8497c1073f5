"""The stand-in for CuPy, on which the device "array" runs here: it refuses what CuPy refuses, and counts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from array_api_compat import array_namespace

from gpu_ops.devices import choose
from gpu_ops.devices.array.order import first_rows
from tests.support import device_columns
from tests.support.device_array import FACTS, tallied

HOST = np.arange(5)


def on_device(values: Any) -> Any:
    return device_columns.array(np.asarray(values))


@pytest.mark.services
def test_the_device_array_runs_on_it_in_the_suite_alone() -> None:
    assert choose("array").columns is device_columns
    code = "from gpu_ops.devices import choose; print(choose('array').columns.__name__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "gpu_ops.devices.cpu.columns"


@pytest.mark.services
def test_kernels_find_the_namespace_that_cupy_has_and_nothing_stays_in_its_place() -> None:
    assert array_namespace(on_device(HOST)).__name__ == "array_api_compat.cupy"
    code = """
import sys, tests.support.device_columns
from importlib.util import find_spec
assert "cupy" not in sys.modules and "array_api_compat.cupy" not in sys.modules, sys.modules
assert find_spec("cupy") is None or find_spec("cupy").origin
"""
    subprocess.run([sys.executable, "-c", code], check=True)


REFUSED: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a host array in arithmetic": (lambda a: a + HOST, TypeError, "Unsupported type"),
    "a host array before the operator": (lambda a: HOST * a, TypeError, "Unsupported type"),
    "a host array in where": (lambda a: np.where(a > 1, a, HOST), TypeError, "Unsupported type"),
    "a host array in concatenate": (lambda a: np.concatenate([a, HOST]), TypeError, "Only cupy arrays"),
    "a list in concatenate": (lambda a: np.concatenate([a, [5]]), TypeError, "Only cupy arrays"),
    "a list in stack": (lambda a: np.stack([a, [1, 2, 3, 4, 5]]), TypeError, "Only cupy arrays"),
    "a list in where": (lambda a: np.where(a > 1, a, [1, 2, 3, 4, 5]), TypeError, "Unsupported type"),
    "a host index": (lambda a: a[np.array([0])], TypeError, "index of the host"),
    "a list as index": (lambda a: a[[0, 1]], TypeError, "index of the host"),
    "a host array written": (lambda a: a.__setitem__(slice(None), HOST), TypeError, "Unsupported type"),
    "to NumPy by itself": (np.asarray, TypeError, "Implicit conversion"),
    "iteration": (list, TypeError, "Iteration"),
    "maximum.accumulate": (np.maximum.accumulate, NotImplementedError, "maximum.accumulate"),
    "logical_or.reduce": (np.logical_or.reduce, NotImplementedError, "logical_or.reduce"),
    "an unknown keyword": (lambda a: np.argsort(a, stable=True), TypeError, "takes"),
    "an unknown keyword of a method": (lambda a: a.max(initial=0), TypeError, "takes"),
    "an unstable sort": (lambda a: np.sort(a, kind="quicksort"), ValueError, "stable"),
    "lexsort of a tuple": (lambda a: np.lexsort((a, a)), AttributeError, "one array"),
    "a search in a host array": (lambda a: np.searchsorted(HOST, a), NotImplementedError, "Only ndarray"),
    "a search for a list": (lambda a: np.searchsorted(a, [1]), NotImplementedError, "python scalars"),
    "a search for another kind": (lambda a: np.searchsorted(a, a.astype(np.uint64)), TypeError, "as C does"),
    "a function that CuPy lacks": (lambda a: np.insert(a, 0, 1), TypeError, "no implementation found"),
    "a shift of floats": (lambda a: a.astype(np.float64) << 1, TypeError, "no loop"),
    # CuPy wraps what is out of range and says nothing.
    "take past the end": (lambda a: np.take(a, on_device([5])), IndexError, "out of bounds"),
    "an index past the end": (lambda a: a[on_device([5])], IndexError, "out of bounds"),
    # CuPy takes it for none.
    "a shape of 0": (lambda a: np.zeros_like(a, shape=0), ValueError, "has that of the array"),
    "a shape of nothing": (lambda a: np.full_like(a, 1, shape=()), ValueError, "has that of the array"),
    # CuPy keeps one or the other.
    "an index twice": (lambda a: a.__setitem__(on_device([1, 1]), on_device([2, 3])), ValueError, "occurs twice"),
    "columns of host arrays": (
        lambda a: device_columns.build({"x": (HOST, None, pa.int64())}),
        TypeError,
        "array of the host",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_refuses(case: str) -> None:
    do, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        do(on_device(HOST))


def test_it_does_what_numpy_does() -> None:
    a = on_device([3, 1, 2, 1])
    assert np.concatenate([a, a[:1]]).tolist() == [3, 1, 2, 1, 3]
    assert np.where(a > 1, a, 0).tolist() == [3, 0, 2, 0]
    assert np.add.accumulate(a).tolist() == np.cumsum(a).tolist() == [3, 4, 6, 7]
    assert [each.tolist() for each in np.unique(a, return_counts=True)] == [[1, 2, 3], [2, 1, 1]]
    assert np.arange(3, like=a).tolist() == [0, 1, 2]
    a[a > 2] = 0
    a += 1
    assert a.tolist() == [1, 2, 3, 2]
    a[on_device([0, 0])] = on_device([7, 7])  # twice the same value is no matter of chance
    assert (a.max().item(), int(a.sum()), bool((a > 1).all()), len(a)) == (7, 14, True, 4)


def test_what_is_read_only_stays_so() -> None:
    values = np.arange(3)
    values.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        device_columns.array(values)[0] = 1
    mine = np.arange(3)
    device_columns.array(mine)[0] = 5
    assert mine[0] == 0


@pytest.mark.parametrize(
    ("do", "counted"),
    [
        (lambda a: a + 1, (1, 1, 0, 0)),
        (lambda a: a[1:], (0, 0, 0, 0)),
        (len, (0, 0, 0, 0)),
        (lambda a: a[a > 1], (2, 6, 1, 0)),
        (lambda a: bool(a[0] > 1), (1, 1, 1, 0)),
        (lambda a: int(a[0]), (0, 0, 1, 0)),
        (lambda a: a.tolist(), (0, 0, 1, 0)),
        (np.flatnonzero, (1, 4, 1, 0)),
        (np.argsort, (1, 12, 0, 0)),
        (lambda a: np.concatenate([a, a, a]), (1, 3, 0, 0)),
        (lambda a: on_device([1]), (0, 0, 0, 1)),
    ],
)
def test_it_counts(do: Callable[[Any], Any], counted: tuple[int, int, int, int]) -> None:
    a = on_device(HOST)
    with tallied() as tally:
        do(a)
    assert (tally.calls, tally.launches, tally.synchronisations, tally.uploads) == counted


def test_what_it_knows_was_asked_of_the_wheel() -> None:
    assert FACTS["source"].startswith("the wheel cupy-cuda13x 14.")
    assert FACTS["ufuncs"]["maximum"]["methods"] == ["at"]
    assert "initial" not in FACTS["array"]["max"]


@pytest.mark.parametrize("groups", [1, 3])
def test_the_first_row_of_each_group(groups: int) -> None:
    # What stands at an index that is written twice is another row from run to run.
    codes = np.arange(20)[::-1] % groups
    wanted = [codes.tolist().index(group) for group in range(groups)]
    assert first_rows(codes, groups).tolist() == first_rows(on_device(codes), groups).tolist() == wanted
