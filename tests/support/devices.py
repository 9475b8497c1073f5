"""The devices that are here: all, but for a GPU where none works."""

from __future__ import annotations

from gpu_ops.devices import DEVICES, gpu_refusal

HERE = [name for name in DEVICES if name != "gpu" or gpu_refusal() is None]
