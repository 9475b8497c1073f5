"""Enumeration methods (`window(*).where(v => …)`): the same as in the interpreter, on each device, in any cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl import Runtime
from gpu_ops.errors import TextError
from tests.support.epl_interpreter import Interpreter
from tests.support.epl_on_runtime import RuntimeEngine
from tests.support.epl_scripts import NAME, SCHEMA, Scenario, Step, played, same_traces, scripts
from tests.support.examples import examples

TYPES = {"T": {"k": "string", "v": "int"}, "Ask": {"k": "string", "v": "int"}}

_CONDITIONS = st.sampled_from(
    ["e => e.v > 1", "e => e.k = 'a'", "e => e.v < ts", "(e, i) => i > 0", "(e, i, s) => i = s - 2"]
)
_KEYS = st.sampled_from(["e => e.v", "e => e.k", "e => e.x", "e => e.v + e.ts"])
_METHODS = st.one_of(
    st.tuples(
        st.sampled_from(["allOf", "anyOf", "countOf", "firstOf", "lastOf", "where", "takeWhile", "takeWhileLast"]),
        _CONDITIONS,
    ),
    st.tuples(
        st.sampled_from(["selectFrom", "arrayOf", "orderBy", "orderByDesc", "minBy", "maxBy", "min", "max"]), _KEYS
    ),
    st.tuples(st.sampled_from(["distinctOf", "mostFrequent", "leastFrequent"]), _KEYS),
    st.tuples(st.sampled_from(["sumOf", "average"]), st.sampled_from(["e => e.v", "e => e.x", "e => e.ts - 250"])),
    st.tuples(st.sampled_from(["take", "takeLast"]), st.sampled_from(["0", "1", "2", "v"])),
).map(lambda pair: f".{pair[0]}({pair[1]})")
_CHAINS = st.builds(
    lambda methods, last: "".join([*methods, last]),
    st.lists(st.sampled_from([".reverse()", ".where(f => f.v > 0)"]), max_size=1),
    _METHODS,
)
_BESIDE = [".union({1, 7})", ".except({1, 2})", ".intersect({0, 1})", ".sequenceEqual({1})", ".where(e => e > v)"]
_PLAIN = ("min", "max", "sumOf", "average", "orderBy", "orderByDesc", "distinctOf", "mostFrequent", "reverse")
_OF_VALUES = st.sampled_from([*_BESIDE, *(f".{name}()" for name in _PLAIN)])
_LISTS = st.one_of(
    _CHAINS.map(lambda chain: f"window(*){chain}"),
    _OF_VALUES.map(lambda method: f"window(v){method}"),
    _CHAINS.map(lambda chain: f"(select * from A#length(2) as a){chain}"),
)
_STREAMS = st.sampled_from(["A#length(3)", "A#time(1 sec)", "A#keepall", "A#length_batch(2)"])


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "array"])
@examples(dear=True)
@given(_LISTS, _STREAMS, scripts(8))
def test_methods_are_those_of_the_interpreter(device: str, asked: str, stream: str, script: tuple[Step, ...]) -> None:
    scenario = Scenario(f"@name('{NAME}') select {asked} as m from {stream}", script, in_any_order=False)
    try:
        found = played(scenario, RuntimeEngine(SCHEMA, device=device))
    except TextError:
        return
    assert same_traces(found, played(scenario, Interpreter(SCHEMA)), scenario)


def _told(text: str, *, together: bool = False, kept: Path | None = None) -> list[Any]:
    runtime = Runtime(TYPES, device="array" if together else "cpu")
    name = runtime.deploy(text)[-1].name
    rows = [dict(zip("kv", each, strict=True)) for each in [("a", 1), ("b", 5), ("a", None), ("c", 5)]]
    found: list[Any] = []
    for at, each in enumerate([rows] if together else rows):
        if kept is not None and at == 2:
            runtime.checkpoint(kept)
            runtime = Runtime.restore(kept)
        for delivery in runtime.send("T", each):
            if delivery.statement == name:
                found += [] if delivery.new is None else delivery.new.to_pylist()
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        # events     (a, 1)  (b, 5)  (a, null)  (c, 5)
        # in window  a       a b     a b a      b a c
        ("select window(*).where(e => e.v > 1).countOf() as n from T#length(3)", [0, 1, 1, 2]),
        ("select window(*).orderBy(e => e.v).firstOf().k as n from T#length(3)", ["a", "a", "a", "a"]),
        ("select k as n from T where {'a', 'c'}.anyOf(e => e = k)", ["a", "a", "c"]),
        ("select k as n from T({'a', 'c'}.anyOf(e => e = k))", ["a", "a", "c"]),
        ("select k as n from T#length(3) having window(*).allOf(e => e.v > 0)", ["a", "b"]),
        ("select k as n from T#length(3) having window(*).anyOf(e => e.v > 4) output every 2 events", ["b", "a", "c"]),
        ("select sum({1, 2}.sumOf(e => e * v)) as n from T", [3, 18, 18, 33]),
        ("select prevwindow(k).countOf(e => e = 'a') as n from T#length(3)", [1, 1, 2, 1]),
        ("select window(*).where(e => e.v >= avg(v)).countOf() as n from T#length(3)", [1, 1, 1, 2]),
        ("select (select k from T#keepall where v > 1).countOf() as n from T as t", [0, 1, 1, 2]),
        ("select (select k from T#keepall where k = t.k).mostFrequent() as n from T as t", ["a", "b", "a", "c"]),
    ],
)  # fmt: skip
def test_in_clauses(tmp_path: Path, text: str, wanted: list[Any]) -> None:
    assert [each["n"] for each in _told(text)] == wanted
    assert _told(text, together=True) == _told(text) == _told(text, kept=tmp_path / "kept")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("window(*).groupBy(e => e.k)", "no method 'groupBy' of lists"),
        ("window(*).wheer(e => e.v > 1)", "Lists have no method 'wheer' with a function. .* Did you mean 'where'"),
        ("window(*).where()", "where(…) takes a function"),
        ("window(*).where(e => e.v)", "is of type int"),
        ("window(*).distinctOf()", "by values of type"),
        ("window(k).sumOf()", "is of numbers"),
        ("window(v).take(1.5)", "takes a number of elements"),
        ("window(v).except({'a'})", "takes a list of such elements"),
        ("window(*).where(e => window(v).anyOf(f => f = e.v))", "about an element of another list"),
        ("window(*).where((a, b, c, d) => a.v > 1)", "three parameters at most"),
        ("window(*).where(e => e.z > 1)", "no property 'z'"),
        ("window(*).reverse(e => e.v)", "takes no function"),
    ],
)
def test_wrong(asked: str, said: str) -> None:
    with pytest.raises(TextError, match=said.replace("(", r"\(").replace(")", r"\)")):
        Runtime(TYPES).deploy(f"select {asked} from T#keepall")
