"""Groups, windows and joins by arrays: they give what those by a text do, if each array stands for a text."""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpu_ops.epl.runtime import Runtime
from tests.support.examples import examples

TYPES = {"T": {"k": "string", "a": "double[]", "v": "int"}, "U": {"k": "string", "a": "double[]"}}
ARRAYS: dict[str | None, list[list[float | None] | None]] = {
    None: [None],
    "empty": [[]],
    "null in it": [[None]],
    "zero": [[0.0], [-0.0]],
    "nan": [[math.nan, 1.0]],
    "two": [[1.0, 2.0]],
}
"""The arrays of each text: those of one text are one key."""

TEXTS = (
    "select irstream {}, sum(v) as s from T#length(3) group by {}",
    "select {}, v, count(*) as n from T#keepall group by {} output last every 3 events",
    "select {}, sum(v) as s from T#length(2) group by {} output all every 2 events",
    "select {}, sum(v) as s from T group by {} output first every 2 events",
    "select {}, sum(v) as s from T#keepall group by {} output snapshot every 3 events",
    "select {}, sum(v) as s from T group by rollup({}, v)",
    "select irstream {}, v from T#unique({})",
    "select irstream {}, v from T#firstunique({})",
    "select irstream {}, v from T#groupwin({})#length(1)",
    "select irstream {}, v from T#unique({})#length(2)",
    "select irstream {}, v from T#rank({}, 2, v)",
    "select {}, sum(v, group_by: ({})) as s from T#length(3)",
    "select distinct {} as d, v + 0 as w from T#length_batch(4)",
    "select T.{} as d, v from T#length(3), U#length(2) where T.{} = U.{}",
    "select {}, (select sum(v) from T#keepall as t where t.{} = u.{}) as s from U as u",
)


def _same(value: Any) -> Any:
    """The text of an array."""
    if isinstance(value, str) or value is None:
        return value
    return next(text for text, arrays in ARRAYS.items() if repr(value) in map(repr, arrays))


def _rows(statement: Any, name: str) -> list[dict[str, Any]]:
    """What was delivered; of arrays their texts, in the order of values where Esper has none."""
    rows = statement.deliveries().to_pylist()
    made = [{at: _same(value) if at in {name, "d"} else value for at, value in row.items()} for row in rows]
    renamed = [{"k" if at == name else at: value for at, value in row.items()} for row in made]
    return sorted(renamed, key=lambda row: (row["turn"], row["row"], repr(sorted(row.items()))))


@examples(20, dear=True)
@given(
    text=st.sampled_from(TEXTS),
    sent=st.lists(st.tuples(st.sampled_from("TTU"), st.sampled_from(list(ARRAYS)), st.integers(0, 3)), max_size=9),
    draws=st.randoms(use_true_random=False),
    device=st.sampled_from(["cpu", "array"]),
    cut=st.integers(1, 4),
)
def test_an_array_is_a_key_as_a_text_is(
    text: str, sent: list[tuple[str, str | None, int]], draws: Any, device: str, cut: int, tmp_path_factory: Any
) -> None:
    events = [
        (name, {"k": key, "a": draws.choice(ARRAYS[key])} | ({"v": value} if name == "T" else {}))
        for name, key, value in sent
        if key not in {"nan", None} or ".{}" not in text  # these compare, and keys do not
    ]
    runtime = Runtime(TYPES, device=device)
    found: dict[str, list[dict[str, Any]]] = {"k": [], "a": []}
    for name in found:
        runtime.deploy(f"@name('{name}') {text.format(*[name] * text.count('{}'))}")[0].deliveries()
    for at in range(0, len(events), cut):
        for kind, some in groupby(events[at : at + cut], key=itemgetter(0)):
            runtime.send(kind, [row for _, row in some])
        for name, rows in found.items():
            rows.extend(_rows(runtime[name], name))
        if at == cut:
            path = tmp_path_factory.mktemp("runtime") / "checkpoint"
            runtime.checkpoint(path)
            runtime = Runtime.restore(path, device=device)
            for name in found:
                runtime[name].deliveries()
    assert found["a"] == found["k"]
