"""Statements of EPL, interpreted one event and one advance of the clock at a time: a brute force for tests.

Everything here is plain Python over lists and dicts, and follows the processing model of Esper 9 step by step. It is
slow, and meant to be read.

`interpreter` hands events and the clock to statements; `statements` is a query from its streams to its listeners:
`streams`, `chains`, `windows` and `derived` are what its from clause says, `joins` and `subqueries` what they are put
together to, `aggregates` and `results` make rows of it, and `output` says when. `values` evaluates expressions.

    >>> interpreter = Interpreter({"T": {"v": "int"}})
    >>> interpreter.deploy("@name('sums') select sum(v) as s from T#length(2) output last every 1 sec")
    ['sums']
    >>> interpreter.send("T", {"v": 1}), interpreter.send("T", {"v": 2})
    ([], [])
    >>> interpreter.advance(1000)
    [Delivery(statement='sums', new=[{'s': 3}], old=None)]
    >>> interpreter.rows("sums")
    [{'s': 3}]
"""

from __future__ import annotations

from tests.support.epl_interpreter.interpreter import Delivery, Interpreter

__all__ = ["Delivery", "Interpreter"]
