"""Choosing a device."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gpu_ops as g
from gpu_ops.devices import choose, gpu_refusal


def test_auto_says_what_it_took_and_why() -> None:
    device = choose("auto")
    if gpu_refusal() is None:
        assert device.name == "gpu"
    else:
        assert device.name == "cpu"
        assert str(gpu_refusal()) in device.why


@pytest.mark.skipif(gpu_refusal() is None, reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_an_error_that_says_why() -> None:
    with pytest.raises(g.DeviceError, match=r"cannot run on a GPU: .+ Use device="):
        choose("gpu")


@pytest.mark.services
def test_importing_loads_nothing_heavy() -> None:
    heavy = {"pandas", "pyspark", "numba", "cupy", "cudf", "matplotlib", "duckdb", "rich", "typer", "lark"}
    code = f"import sys, gpu_ops; print(sorted({heavy!r} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
