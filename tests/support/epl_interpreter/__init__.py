"""Statements of EPL, interpreted one event and one advance of the clock at a time: a brute force for tests.

Everything here is plain Python over lists and dicts, and follows the processing model of Esper 9 step by step. It is
slow, and meant to be read.
"""

from __future__ import annotations

from tests.support.epl_interpreter.interpreter import Delivery, Interpreter

__all__ = ["Delivery", "Interpreter"]
