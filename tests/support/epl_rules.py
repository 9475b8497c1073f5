"""Statements that differ in constants, and each of them in a runtime of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from gpu_ops import epl
from tests.support.epl_on_runtime import rows_of

TYPES = {"Tick": {"symbol": "string", "price": "int", "weight": "double", "open": "boolean"}}

FILTERS = [
    "symbol = {s} and price > {i}",
    "symbol = {s}, price <= {i}",
    "symbol in ({s}, {s})",
    "price between {i} and {i}",
    "price in ({i}:{i}]",
    "price not between {i} and {i}",
    "{i} < price and weight >= {d}",
    "weight = {d}",
    "weight < {d} or symbol = {s}",
    "not (symbol = {s} and price != {i})",
    "price * 2 > {i} and price in ({i}, {i}, {i}) and symbol in ({s}, {s})",
    "price > {i} and price < {i} and weight > {d}",
    "open and price >= -{i}",
    "price = {l}",
    "symbol like 'a%' and weight != {d}",
]
SINGLE = [
    f"select {selected} from Tick({{}}) where price is null or price < 100"
    for selected in ("*", "symbol, price + 1 as next", "'x' as x, weight")
]
"""Statements over single events."""

WINDOWED = [
    "select symbol, sum(price) as s from Tick({})#length(2)",
    "select irstream count(*) as n from Tick({})#time(3 sec)",
    "select symbol, max(weight) as m from Tick({}) group by symbol output last every 2 events",
    "select price, prior(1, price) as before from Tick({})",
    "select price from Tick({}) where price > 0 order by price limit 1",
]
"""Statements that remember events."""
NUMBER = st.integers(0, 4)
LITERALS = {
    "{s}": st.sampled_from(["'a'", "'b'", '"ab"', r"'\u0061'", "''"]),
    "{i}": NUMBER.map(str),
    "{d}": st.sampled_from(["0.0", "1.5", "2d", "1e300"]),
    "{l}": NUMBER.map(lambda number: f"{number}L"),
}


@st.composite
def texts(draw: st.DrawFn, queries: Sequence[str]) -> list[str]:
    """Statements of a few templates."""
    shapes = draw(st.lists(st.tuples(st.sampled_from(queries), st.sampled_from(FILTERS)), min_size=1, max_size=3))
    made = []
    for query, condition in draw(st.lists(st.sampled_from(shapes), min_size=2, max_size=8)):
        text = query.format(condition)
        for mark, literals in LITERALS.items():
            while mark in text:
                text = text.replace(mark, draw(literals), 1)
        made.append(text)
    return made


TICK = st.fixed_dictionaries(
    {
        "symbol": st.sampled_from(["a", "b", "ab", "", None]),
        "price": st.integers(-4, 9) | st.none(),
        "weight": st.sampled_from([0.0, -0.0, 1.5, 2.0, float("nan"), float("inf"), None]),
        "open": st.booleans() | st.none(),
    }
)


def delivered(sent: Sequence[Any]) -> list[tuple[str, str]]:
    return [(each.statement, repr((rows_of(each.new), rows_of(each.old)))) for each in sent]


class Alone:
    """Each statement in a runtime of its own, events one by one."""

    def __init__(self) -> None:
        self.runtimes: dict[str, epl.Runtime] = {}

    def deploy(self, name: str, text: str) -> None:
        self.runtimes[name] = epl.Runtime(TYPES)
        self.runtimes[name].deploy(f"@name('{name}') {text}")

    def send(self, ticks: Sequence[Any]) -> list[tuple[str, str]]:
        return [
            each
            for tick in ticks
            for runtime in self.runtimes.values()
            for each in delivered(runtime.send("Tick", tick))
        ]

    def advance(self, now: int) -> list[tuple[str, str]]:
        return [each for runtime in self.runtimes.values() for each in delivered(runtime.advance(now))]
