"""Devices: where arrays live and which kernels act on them. An operator is handed one and never asks which it is."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from gpu_ops.core.forking import use_threads
from gpu_ops.devices.columns import Columns
from gpu_ops.devices.kernels import Kernels
from gpu_ops.errors import DeviceError, PlanError, is_one_of, shown


@dataclass(frozen=True)
class Device:
    """Kernels over arrays, columns over frames, and how much of the input they are given at once.

    Attributes:
        name: One of `DEVICES`.
        why: How it came to be chosen, for `explain`.
        kernels: What it computes.
        columns: What it holds.
        block_rows: About how many events a window operator works on at a time; None for all of them.
        threads: How many blocks are worked on at a time.
    """

    name: str
    why: str
    kernels: Kernels
    columns: Columns
    block_rows: int | None
    threads: int


class Modules(NamedTuple):
    """The two modules that make a device; mypy says what one lacks where they are put together."""

    kernels: Kernels
    columns: Columns


@dataclass(frozen=True)
class DeviceKind:
    """What is known of a device before it is chosen.

    Attributes:
        modules: Its kernels and its columns, imported when first asked for.
        block_rows: As in `Device`.
        threads: Likewise.
    """

    modules: Callable[[], Modules]
    block_rows: int | None = None
    threads: int = 1


_BLOCK_ROWS = 1 << 17
"""Events whose temporary arrays about fill a core's own cache; measured on W2, W3 and W6."""


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
    check_name(name)
    return _chosen(name)


def check_name(name: str) -> None:
    """Refuse what is no device's name, without choosing one.

    Raises:
        PlanError: There is no device of that name.
    """
    if not is_one_of(name, NAMES):
        raise PlanError(f"There is no device {shown(name)}.", remedy=f"It is one of {', '.join(NAMES)}.")


@cache
def _chosen(name: str) -> Device:
    refusal = gpu_refusal() if name in ("auto", "gpu") else None
    if name == "gpu" and refusal is not None:
        raise DeviceError(f"The query cannot run on a GPU: {refusal}.", remedy='Use device="auto" or "cpu".')
    why = "asked for"
    if name == "auto":
        name, why = ("gpu", "auto: a GPU was found") if refusal is None else ("cpu", f"auto: {refusal}")
    kind = DEVICES[name]
    return Device(name, why, *kind.modules(), kind.block_rows, kind.threads)


def _cpu() -> Modules:
    from gpu_ops.devices.cpu import columns, kernels

    return Modules(kernels, columns)


def _gpu() -> Modules:
    from gpu_ops.devices.array import kernels
    from gpu_ops.devices.cuda import columns

    return Modules(kernels, columns)


def _array() -> Modules:
    """The GPU's kernels on NumPy's arrays, for tests: theirs put in a stricter array."""
    from gpu_ops.devices.array import kernels
    from gpu_ops.devices.cpu import columns

    return Modules(kernels, columns)


DEVICES = {
    "cpu": DeviceKind(_cpu, _BLOCK_ROWS, _threads()),
    "array": DeviceKind(_array),
    "gpu": DeviceKind(_gpu),
}
"""The devices there are, by name. A device is one line here, after a module of `Kernels` and one of `Columns`."""

NAMES = ("auto", *DEVICES)
"""What may be asked for; ``"auto"`` is the GPU if one works."""
