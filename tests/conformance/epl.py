"""Esper's vectors: their scripts sent to a runtime of statements."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from gpu_ops.errors import TextError
from tests.conformance.unsupported import UnsupportedError
from tests.support import epl_recorded
from tests.support.epl_on_runtime import RuntimeEngine


def difference(line: Mapping[str, Any], device: str, *, together: bool) -> str | None:
    """What is wrong with what a runtime makes of a vector; None if it is what the engine gave.

    Args:
        line: The vector.
        device: Where it computes.
        together: Whether events that follow one another are sent as one batch, else one by one.

    Raises:
        UnsupportedError: A statement asks for what there is not.
    """
    try:
        return epl_recorded.difference(line, partial(RuntimeEngine, device=device), together=together)
    except TextError as error:
        raise UnsupportedError(f"EPL: no {error.construct or error}") from error
