"""Kernels of exact numbers of any length and of logarithms: what each must give, run on every device."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.digit_contracts import (
    CONTRACTS,
    in_digits,
    some_numbers,
)
from tests.support.kernel_contracts import (
    PORTS,
    assert_same,
    ints,
    port_of,
)

NOT_STRICT = {
    "divide_digits": "array-api-strict has no ldexp",
    "round_digits": "array-api-strict has no frexp",
    "scaled": "array-api-strict has no ldexp",
    "exp_limbs": "array-api-strict has no ldexp",
    "log_limbs": "array-api-strict has no frexp",
}


@pytest.mark.parametrize("kernel", CONTRACTS)
@pytest.mark.parametrize("name", PORTS)
@given(data=st.data())
def test_a_kernel_does_what_its_definition_says(name: str, kernel: str, data: st.DataObject) -> None:
    if name == "strict" and kernel in NOT_STRICT:
        pytest.skip(NOT_STRICT[kernel])
    contract = CONTRACTS[kernel]
    arguments = data.draw(contract.inputs)
    assert_same(port_of(name).call(kernel, *arguments), contract.reference(*arguments))


@pytest.mark.parametrize("name", PORTS)
@given(inputs=some_numbers())
def test_a_square_is_a_product(name: str, inputs: tuple[list[int]]) -> None:
    digits = in_digits(inputs[0])
    port = port_of(name)
    given = tuple(map(port.to, digits))
    squared = tuple(map(port.back, port.kernels.multiply_digits(given, given)))
    assert_same(squared, in_digits([value * value for value in inputs[0]]))


# Logarithms: near what they are by definition, and the same on every device

POSITIVE = st.one_of(
    st.floats(0.5, 2),
    st.floats(5e-324, 1.7976931348623157e308),
    st.integers(1, 99).map(float),
    st.sampled_from([5e-324, 1.0, math.nextafter(1, 2), math.nextafter(1, 0), math.nextafter(2, 1), 1.5, 1 + 1 / 64]),
)
PORTS_OF_LOGARITHMS = [name for name in PORTS if name != "strict"]


@pytest.mark.parametrize("name", PORTS_OF_LOGARITHMS)
@given(values=st.lists(POSITIVE, min_size=1, max_size=20))
def test_logarithms_are_near(name: str, values: list[float]) -> None:
    limbs = port_of(name).call("log_limbs", np.array(values))
    assert_same(limbs, port_of("array").call("log_limbs", np.array(values)))
    for value, each in zip(values, zip(*limbs, strict=True), strict=True):
        with localcontext(prec=60):
            wanted = Decimal(value).ln() / Decimal(2).ln() * 2**96
            assert abs(sum(int(limb) << 32 * at for at, limb in enumerate(each)) - wanted) < 1


@pytest.mark.parametrize("name", PORTS_OF_LOGARITHMS)
@given(values=st.lists(POSITIVE, min_size=1, max_size=20), of=st.sampled_from(["product", "mean"]))
def test_powers_are_near(name: str, values: list[float], of: str) -> None:
    sums = tuple(limb.sum(keepdims=True) for limb in port_of("cpu").call("log_limbs", np.array(values)))
    divisor = ints([len(values) if of == "mean" else 1])
    answer = float(port_of(name).call("exp_limbs", sums, divisor)[0])
    assert answer == float(port_of("array").call("exp_limbs", sums, divisor)[0])
    with localcontext(prec=80):
        wanted = (sum((Decimal(value).ln() for value in values), start=Decimal(0)) / int(divisor[0])).exp()
        if wanted >= Decimal(2) ** 1024:
            assert answer == math.inf
        else:
            assert abs(Decimal(answer) - wanted) <= wanted / 2**53 * Decimal("1.001") + Decimal(2) ** -1075
