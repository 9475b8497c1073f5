"""Esper's vectors by the product. What a runtime refuses by name, the former harness still tries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpu_ops.errors import TextError
from tests.conformance import esper
from tests.conformance.esper_stays import Ask
from tests.conformance.unsupported import UnsupportedError
from tests.support import epl_recorded
from tests.support.epl_on_runtime import RuntimeEngine


def difference(line: Mapping[str, Any], ask: Ask) -> str | None:
    """What is wrong with the answers to a vector's statements; None when they are the engine's.

    Args:
        line: The vector.
        ask: How the former harness runs a query.

    Raises:
        UnsupportedError: A statement asks for what there is not.
    """
    try:
        return epl_recorded.difference(line, RuntimeEngine)
    except TextError as error:
        refused = error
    try:
        return esper.difference(line, ask)
    except UnsupportedError:
        raise UnsupportedError(f"EPL: no {refused.construct or refused}") from refused
