"""Devices: where arrays live and which kernels act on them. Operators take one and never ask which it is."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from gpu_ops.core.forking import use_threads
from gpu_ops.core.threads import threads
from gpu_ops.devices.columns import Columns
from gpu_ops.devices.kernels import Kernels
from gpu_ops.errors import DeviceError, PlanError, is_one_of, shown


@dataclass(frozen=True)
class Device:
    """Kernels over arrays, columns over frames, and the size of their work.

    Attributes:
        name: One of `DEVICES`.
        why: Why it was chosen, for `explain`.
        kernels: Its functions of arrays.
        columns: Its functions of frames.
        block_rows: About how many events a window operator handles at a time; None for all of them.
        parallel: Whether blocks may run on several threads of this process.
    """

    name: str
    why: str
    kernels: Kernels
    columns: Columns
    block_rows: int | None
    parallel: bool

    @property
    def threads(self) -> int:
        """How many blocks run at a time."""
        return threads() if self.parallel else 1


class Modules(NamedTuple):
    """The two modules of a device. Where they are put together, mypy reports what one of them lacks."""

    kernels: Kernels
    columns: Columns


@dataclass(frozen=True)
class DeviceKind:
    """A device before it is chosen.

    Attributes:
        modules: Its kernels and its columns, imported when the device is chosen.
        block_rows: As in `Device`.
        parallel: As in `Device`.
    """

    modules: Callable[[], Modules]
    block_rows: int | None = None
    parallel: bool = False


_BLOCK_ROWS = 1 << 17
"""The number of events whose temporary arrays fill a core's own cache; measured on W2, W3 and W6."""


@cache
def gpu_refusal() -> str | None:
    """Why no GPU can be used here, or None if one can. The answer is kept."""
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
        DeviceError: ``"gpu"`` was requested and no GPU can be used; or the process was forked from one that used a GPU.
        PlanError: There is no device of that name, or ``GPU_OPS_THREADS`` is no number of threads.

    Examples:
        >>> choose("cpu").name
        'cpu'
    """
    use_threads()
    threads()  # which refuses a number that cannot be, before anything is read
    check_name(name)
    return _chosen(name)


def check_name(name: str) -> None:
    """Refuse an unknown name, without choosing a device.

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
    return Device(name, why, *kind.modules(), kind.block_rows, kind.parallel)


def _cpu() -> Modules:
    from gpu_ops.devices.cpu import columns, kernels

    return Modules(kernels, columns)


def _gpu() -> Modules:
    from gpu_ops.devices.array import kernels
    from gpu_ops.devices.cuda import columns

    return Modules(kernels, columns)


def _array() -> Modules:
    """The GPU's kernels on NumPy's arrays, for tests, which pass in a stricter array."""
    from gpu_ops.devices.array import kernels
    from gpu_ops.devices.cpu import columns

    return Modules(kernels, columns)


DEVICES = {
    "cpu": DeviceKind(_cpu, _BLOCK_ROWS, parallel=True),
    "array": DeviceKind(_array),
    "gpu": DeviceKind(_gpu),
}
"""The devices by name. A new one is a line here, a module of `Kernels` and a module of `Columns`."""

NAMES = ("auto", *DEVICES)
"""The names that users may give; ``"auto"`` is the GPU if one works."""
