"""Esper's event processing language: statements, and a runtime that runs them."""

from __future__ import annotations

from gpu_ops.epl.groups import StatementGroup
from gpu_ops.epl.isolated import IsolatedService
from gpu_ops.epl.parsing import parse
from gpu_ops.epl.query import query
from gpu_ops.epl.running import Delivery, RunningStatement
from gpu_ops.epl.runtime import Runtime
from gpu_ops.epl.statements import unparse

__all__ = ["Delivery", "IsolatedService", "RunningStatement", "Runtime", "StatementGroup", "parse", "query", "unparse"]
