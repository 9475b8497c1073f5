"""Arguments that cannot be meant: an error of ours that teaches, when the plan is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import PlanError, TimeError
from tests.support.ticks import at_us

ROWS = pa.schema([("n", pa.int64())])

ours: Any = g
"""What mypy looks at no more."""

WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an expression for a word": (lambda s: s.tumbling("5us", membership=g.col("v")), 'It is "overlap" or "start"'),
    "a word that is empty": (lambda s: s.tumbling("5us", output=""), '"window", "point" or "hop"'),
    "a span that is a time": (lambda s: s.tumbling("5us", fill="null", span=7), "its start and its end"),
    "a time after all times": (lambda s: s.tumbling("5us", align=at_us(1 << 62)), "outside the years 1 to 9999"),
    "fill for a number": (lambda s: s.tumbling("5us", fill={7: "null"}).agg(n=g.count()), "no such column"),
    "an order that is a number": (lambda s: s.last(2, order=7), "columns, one or a list of them"),
    "unique in a number": (lambda s: s.highest(2, "v", unique=[1]), "column names, not int"),
    "more rows than there are": (lambda s: s.last(1 << 63), "up to 2\\*\\*40"),
    "running that is a word": (lambda s: s.session("5us", running="no"), "True or False"),
    "until nothing": (lambda s: s.until(None), "until takes expressions"),
    "an end that is a number": (lambda s: s.alter_lifetime(end=7), "alter_lifetime takes expressions"),
    "a column before that is none": (lambda s: s.with_prior(b=g.col("v")), "no such column"),
    "apply to no function": (lambda s: s.by("w").apply(7), "a function of a stream"),
    "rows of a function of a number": (lambda s: s.last(2).apply(len, schema=ROWS, of=7), "columns, one or a list"),
    "two columns of one name": (
        lambda s: s.last(2).apply(len, schema=pa.schema([*ROWS, *ROWS])),
        "two columns of one name",
    ),
    "clip that is a word": (lambda s: s.last(2).apply(len, schema=ROWS, clip="yes"), "True or False"),
    "the top by two": (lambda s: s.tumbling("5us").top(2, by=["v", "w"]), "expressions and column names, not list"),
    "descending that is a word": (lambda s: s.tumbling("5us").top(2, by="v", descending="no"), "True or False"),
    "a variance of some kind": (lambda s: ours.variance("v", of="all"), '"sample" or "population"'),
    "distinct that is a word": (lambda s: ours.sum("v", distinct="yes"), "True or False"),
    "a sum of nothing": (lambda s: ours.sum(None), "expressions and column names, not NoneType"),
    "a mode of nothing": (lambda s: ours.mode([]), "expressions and column names, not list"),
    "a list in some order": (lambda s: ours.collect_list("v", order=7), "columns, one or a list"),
    "the first in some order": (lambda s: ours.first("v", order=7), "columns, one or a list"),
    "a share that is a truth": (lambda s: ours.quantile("v", True), "a share from 0 to 1"),
    "more than a number holds": (lambda s: g.sum("v") + (1 << 64), "64 bits"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_refused_with_a_rule_and_a_remedy(name: str) -> None:
    ask, says = WRONG[name]
    table = pa.table({"at": [0, 1], "v": [1, 2], "w": ["a", "b"]})
    with pytest.raises((PlanError, TimeError), match=says):
        ask(g.events(table, start="at", unit="s"))


def test_columns_may_have_the_names_that_a_plan_makes_up(device_name: str) -> None:
    table = pa.table({"at": [0, 1], "__0": [1, 2], "__1": [5, 6], "__2": [7, 7]})
    windows = g.events(table, start="at", unit="s").last(2)
    asked = {"a": g.sum("__1"), "b": g.sum(g.col("__0") * 2), "c": g.max("end")}
    for made in (windows.agg(**asked), windows.each(**asked)):
        (*_, last) = made.collect(device=device_name).sort_by("start").to_pylist()
        assert (last["a"], last["b"], last["c"].second) == (11, 6, 1)
