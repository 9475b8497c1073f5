"""Kernels of values in runs: what each must give, by definition, run on every device as in `test_kernels`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.kernel_contracts import PORTS, assert_same, port_of
from tests.support.run_contracts import CONTRACTS


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.parametrize("port", PORTS)
@examples(kinds=True)
@given(data=st.data())
def test_kernel(name: str, port: str, data: st.DataObject) -> None:
    inputs = data.draw(CONTRACTS[name].inputs)
    assert_same(port_of(port).call(name, *inputs), CONTRACTS[name].reference(*inputs))
