"""Devices: where arrays live and which kernels act on them. An operator is handed one and never asks which it is."""

from __future__ import annotations

import importlib
import importlib.util
import os
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from gpu_ops.errors import DeviceError, PlanError, is_one_of, shown
from gpu_ops.forking import use_threads


@dataclass(frozen=True)
class Device:
    """Kernels over arrays, columns over frames, and how much of the input they are given at once.

    Attributes:
        name: ``"cpu"``, ``"gpu"`` or ``"array"``.
        why: How it came to be chosen, for `explain`.
        kernels: The module of kernels.
        columns: The module of frames.
        block_rows: About how many events a window operator works on at a time; None for all of them.
        threads: How many blocks are worked on at a time.
    """

    name: str
    why: str
    kernels: ModuleType
    columns: ModuleType
    block_rows: int | None
    threads: int


ARRAY_COLUMNS = "gpu_ops.devices.cpu.columns"
"""The columns of the device "array", which say what its arrays are: NumPy's. The tests put in stricter ones."""

_BLOCK_ROWS = 1 << 17
"""The temporary arrays of a block of so many events about fill a core's own cache; measured on W2, W3 and W6."""


def _threads() -> int:
    """Half the cores, at most eight: Polars and Arrow use them too; on two cores a second thread only cost memory."""
    return max(1, min(8, (os.cpu_count() or 1) // 2))


@cache
def gpu_refusal() -> str | None:
    """Why no GPU can be used here, or None when one can. The machine is asked once."""
    try:
        runtime = importlib.import_module("cuda.bindings.runtime")
        error, count = runtime.cudaGetDeviceCount()
    except ImportError:
        return "no CUDA bindings are installed (install gpu_ops[gpu-cu13] or gpu_ops[gpu-cu12])"
    except Exception as failure:  # noqa: BLE001  (a half-installed driver fails in many ways; each means: no GPU)
        return f"the CUDA runtime does not answer: {failure}"
    if int(error) != 0 or not count:
        return "no GPU was found"
    for name in ("cudf", "cupy"):
        if importlib.util.find_spec(name) is None:
            return f"a GPU was found, but {name} is not installed"
    return None


def choose(name: str = "auto") -> Device:
    """The device of a name; ``"auto"`` takes a GPU if one works.

    Raises:
        DeviceError: ``"gpu"`` was asked for and none can be used; or the process was forked from one that has used one.
        PlanError: There is no device of that name.

    Examples:
        >>> choose("cpu").name
        'cpu'
    """
    use_threads()
    if not is_one_of(name, ("auto", "cpu", "gpu", "array")):
        raise PlanError(f"There is no device {shown(name)}.", remedy='It is "auto", "cpu", "gpu" or "array".')
    return _chosen(name)


@cache
def _chosen(name: str) -> Device:
    refusal = gpu_refusal() if name in ("auto", "gpu") else None
    if name == "gpu" and refusal is not None:
        raise DeviceError(f"The query cannot run on a GPU: {refusal}.", remedy='Use device="auto" or "cpu".')
    if name == "gpu" or (name == "auto" and refusal is None):
        why = "asked for" if name == "gpu" else "auto: a GPU was found"
        return Device("gpu", why, _load("gpu.kernels"), _load("gpu.columns"), None, 1)
    if name == "array":
        return Device("array", "asked for", _load("gpu.kernels"), importlib.import_module(ARRAY_COLUMNS), None, 1)
    why = "asked for" if name == "cpu" else f"auto: {refusal}"
    return Device("cpu", why, _load("cpu.kernels"), _load("cpu.columns"), _BLOCK_ROWS, _threads())


def _load(module: str) -> ModuleType:
    return importlib.import_module(f"gpu_ops.devices.{module}")
