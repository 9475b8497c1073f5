"""The columns of a device that is not there: Polars' frames, and arrays that are `DeviceArray` on the way in and out.

What `devices/cuda/columns.py` does with cuDF is not tried by it; what operators hand over and are given is: an array of
the host is refused, also where cuDF would copy it to the device unseen.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

import tests.support.device_functions  # noqa: F401  (it puts in what the array does)
from gpu_ops.devices.cpu import columns
from tests.support.device_array import DeviceArray, refuse, upload

P = ParamSpec("P")
R = TypeVar("R")

POLARS = columns.POLARS
array = upload


def host(values: Any) -> Any:
    """A device array on the host; what is there already stays."""
    return values.get() if isinstance(values, DeviceArray) else values


def _inside(value: Any) -> Any:
    if type(value) is DeviceArray:
        return np.ascontiguousarray(value._values)
    if isinstance(value, np.ndarray):
        refuse(TypeError, "Columns of the device are given an array of the host")
    if type(value) is tuple:
        return tuple(_inside(each) for each in value)
    if type(value) is dict:
        return {name: _inside(each) for name, each in value.items()}
    return value


def _outside(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return DeviceArray(value)
    return tuple(_outside(each) for each in value) if type(value) is tuple else value


def _on_device(function: Callable[P, R]) -> Callable[P, R]:
    @functools.wraps(function)
    def call(*arguments: P.args, **options: P.kwargs) -> R:
        made: R = _outside(function(*_inside(arguments), **_inside(options)))
        return made

    return call


answer = _on_device(columns.answer)
beside = columns.beside
build = _on_device(columns.build)
build_decimal = _on_device(columns.build_decimal)
concat = columns.concat
evaluate = _on_device(columns.evaluate)
extent = columns.extent
from_arrow = columns.from_arrow
key_codes = _on_device(columns.key_codes)
null_where = _on_device(columns.null_where)
nulls = columns.nulls
structs = columns.structs
ranks = _on_device(columns.ranks)
rename = columns.rename
rows = columns.rows
select = columns.select
take = _on_device(columns.take)
cut = _on_device(columns.cut)
to_arrow = columns.to_arrow
row_hashes = _on_device(columns.row_hashes)
tuples = columns.tuples
validity = _on_device(columns.validity)
values = _on_device(columns.values)
words = _on_device(columns.words)
