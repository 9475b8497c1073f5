"""Esper's event processing language: what its statements say."""

from __future__ import annotations

from gpu_ops.epl.parsing import parse
from gpu_ops.epl.statements import unparse

__all__ = ["parse", "unparse"]
