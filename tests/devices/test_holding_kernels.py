"""Kernels of ranges that hold values: what each must give, by definition, run on every device as in `test_kernels`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import by_default
from tests.support.holding_contracts import CONTRACTS
from tests.support.kernel_contracts import PORTS, assert_same, port_of


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.parametrize("port", PORTS)
@by_default(12)
@given(data=st.data())
def test_kernel(name: str, port: str, data: st.DataObject) -> None:
    inputs = data.draw(CONTRACTS[name].inputs)
    assert_same(port_of(port).call(name, *inputs), CONTRACTS[name].reference(*inputs))
