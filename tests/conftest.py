"""What the tests share: the devices that are here, the data beside the repository, how hard Hypothesis tries.

The device "array" is more strict here than elsewhere: its arrays are no NumPy arrays, and refuse what CuPy refuses.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from gpu_ops.apps.broker import Broker, broker, check_here
from gpu_ops.devices import DEVICES, Device, DeviceKind, Modules, choose
from gpu_ops.errors import SourceError
from tests.support.devices import HERE


def _strict() -> Modules:
    from gpu_ops.devices.array import kernels
    from tests.support import device_columns

    return Modules(kernels, device_columns)


# Before the first device is chosen: each is made once.
DEVICES["array"] = DeviceKind(_strict)

SHARED = Path(__file__).parents[2] / "shared"

# No deadline: a kernel is compiled in its first call. CI tries the same examples each time, so that it judges nothing
# but the change; runs elsewhere try new ones.
settings.register_profile("default", deadline=None, max_examples=25, derandomize=bool(os.environ.get("CI")))
settings.register_profile("fast", deadline=None, max_examples=3)
settings.register_profile("deep", deadline=None, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what takes `device` or `device_name` on every device that is here."""
    if "device_name" in metafunc.fixturenames:
        here = [pytest.param(name, marks=[pytest.mark.gpu] if name == "gpu" else []) for name in HERE]
        metafunc.parametrize("device_name", here, scope="session")


@pytest.fixture(scope="module", autouse=True)
def _quick_collections() -> None:
    """What is there already is no garbage: a collection need not look at ten thousand tests and all kernels."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let what was frozen be collected at the end, or libraries say that it leaked."""
    gc.unfreeze()


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """What is synced outlives a loss of power, which no test brings about; waiting for it takes seconds.

    Tests of the syncs themselves put their own function in this one's place.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker, in a folder whose name has a space. A test is skipped where none can start."""
    try:
        check_here()
    except SourceError as error:
        pytest.skip(str(error))
    with broker(tmp_path_factory.mktemp("kafka") / "the broker") as made:
        yield made


@pytest.fixture(scope="session")
def device(device_name: str) -> Device:
    """A device, with its `kernels` and `columns`; a test that wants the name alone takes `device_name`.

    "cpu", "array" (the GPU's kernels on a strict stand-in for CuPy), and "gpu" where there is one.
    """
    return choose(device_name)


def _folder(path: Path) -> Path:
    if not path.is_dir():
        pytest.skip(f"no folder {path.name} in {path.parent.name}/ beside the repository")
    return path


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real event data (flights, taxis, earthquakes)."""
    return _folder(SHARED / "data")


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of conformance vectors."""
    return _folder(SHARED / "conformance")
