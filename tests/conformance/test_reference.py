"""The brute force agrees with the recorded engines: what the other tests compare with is itself compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.queries import PAIRS, QUERIES
from tests.conformance.vectors import Vector, difference, read
from tests.support import join_reference, reference
from tests.support.reference import Aggregate, Event

Events = list[Event]
Params = Mapping[str, Any]

K = {"k": "k"}
_COLUMNS = (["k", "v", "x", "id"], ["k", "v", "x", "id"])


def _aggregates(params: Params) -> dict[str, Aggregate]:
    kind, _, column = re.sub("[:_]", " ", params["agg"]).partition(" ")
    return {"r": Aggregate("mean" if kind == "avg" else kind, column or None)}  # type: ignore[arg-type]


def _hop(events: Events, params: Params) -> Events:
    return reference.hop_lifetime(events, params["size"], params.get("hop", params["size"]), params["offset"])


def _quantize(events: Events, params: Params) -> Events:
    return reference.quantize(events, params["size"], params["hop"], params["offset"], params.get("progress"))


def _window(events: Events, params: Params, key: tuple[str, ...]) -> Events:
    grid = {"size": params["size"], "hop": params["hop"], "align": params["align"], "output": params["output"]}
    return reference.hopping(events, _aggregates(params), key, **grid)


def _repetitive(events: Events, params: Params, key: tuple[str, ...]) -> Events:
    chopped = reference.chop(_hop(events, params), params["hop"], params["offset"])
    answer = reference.snapshot(chopped, _aggregates(params), key)
    if params["hop"] <= params["size"]:
        grid = {"size": params["size"], "hop": params["hop"], "align": params["offset"]}
        windows = reference.hopping(events, _aggregates(params), key, membership="start", **grid)
        assert Counter(map(repr, answer)) == Counter(map(repr, windows))
    return answer


def _payload(*names: str) -> Callable[[Event], dict[str, Any]]:
    return lambda event: {name: event.payload[name] for name in names}


def _snapshot(events: Events, params: Params, key: tuple[str, ...]) -> Events:
    return reference.snapshot(events, _aggregates(params), key)


_WINDOWED: dict[str, Callable[[Events, Params, tuple[str, ...]], Events]] = {
    "snapshot": _snapshot,
    "alter_duration_snapshot": lambda e, p, k: _snapshot(reference.set_duration(e, p["duration"]), p, k),
    "sliding": lambda e, p, k: _snapshot(reference.set_duration(e, p["size"]), p, k),
    "tumbling": lambda e, p, k: _snapshot(_hop(e, p), p, k),
    "hopping": lambda e, p, k: _snapshot(_hop(e, p), p, k),
    "repetitive_hopping": _repetitive,
    "quantize_snapshot": lambda e, p, k: _snapshot(_quantize(e, p), p, k),
    "si_snapshot": _snapshot,
    "si_hopping": _window,
    "si_tumbling": _window,
}

_ANSWERS: dict[str, Callable[[Events, Params], Events]] = {
    "where_select": lambda e, p: reference.select(
        reference.where(e, lambda event: event.payload["v"] >= p["min_v"]),
        lambda event: {"k": event.payload["k"], "r": event.payload["v"] * 2 + 1},
    ),
    "alter_duration": lambda e, p: reference.set_duration(e, p["duration"]),
    "extend": lambda e, p: reference.extend(e, p["by"]),
    "shift": lambda e, p: reference.shift(e, p["by"]),
    "clip_const": lambda e, p: reference.clip_duration(e, p["limit"]),
    "point_at_end": lambda e, _: reference.point_at_end(e),
    "chop": lambda e, p: reference.chop(e, p["period"], p["offset"]),
    "stitch": lambda e, _: reference.stitch(reference.select(e, _payload("k"))),
    "hopping_lifetime": _hop,
    "quantize": _quantize,
    "progressive_quantize": _quantize,
    "distinct_key": lambda e, _: join_reference.distinct(e, ["k"]),
    "clip_self_key": lambda e, _: join_reference.clip_by(
        reference.alter_lifetime(e, end=lambda _: reference.NEVER), e, K
    ),
}


def _join(left: Events, right: Events, on: Mapping[str, str], how: join_reference.How = "inner") -> Events:
    sides = {"lid": "id", "lv": "v", "rid": "id_right", "rv": "v_right", "k": "k"}
    both = join_reference.join(left, right, on, how, columns=_COLUMNS)
    return reference.select(both, lambda event: {name: event.payload[column] for name, column in sides.items()})


_PAIR_ANSWERS: dict[str, Callable[[Events, Events], Events]] = {
    "join_key": lambda a, b: _join(a, b, K),
    "join_cross": lambda a, b: _join(a, b, {}),
    "left_outer_join_key": lambda a, b: _join(a, b, K, "left"),
    "full_outer_join_key": lambda a, b: _join(a, b, K, "full"),
    "where_not_exists_key": lambda a, b: join_reference.join(a, b, K, "anti", columns=_COLUMNS),
    "left_anti_semi_join": lambda a, b: join_reference.join(a, b, {}, "anti", columns=_COLUMNS),
    "union": join_reference.union,
    "clip_by": lambda a, b: join_reference.clip_by(a, b, {}),
    "clip_by_key": lambda a, b: join_reference.clip_by(a, b, K),
}


def answer(vector: Vector) -> Events:
    """What the brute force says."""
    query, params, events = vector.query, vector.params or {}, vector.events()
    if query in _PAIR_ANSWERS:
        return _PAIR_ANSWERS[query](events, vector.events("right"))
    if query in _ANSWERS:
        return _ANSWERS[query](events, params)
    key = ("k",) if query.endswith("_by_key") else ()
    return _WINDOWED[query.removesuffix("_by_key")](events, params, key)


@pytest.mark.slow
@pytest.mark.parametrize("file", ["trill_oracle", "streaminsight"])
def test_the_brute_force_agrees_with_the_recorded_engines(conformance: Path, file: str) -> None:
    names = {*_ANSWERS, *_PAIR_ANSWERS, *_WINDOWED, *(f"{name}_by_key" for name in _WINDOWED)}
    vectors = [vector for vector in read(conformance / f"{file}.jsonl.gz") if vector.query in names]
    wrong = {vector.name: difference(vector, answer(vector)) for vector in vectors}
    assert vectors
    assert not {name: found for name, found in wrong.items() if found}


def test_every_query_of_the_brute_force_can_be_asked() -> None:
    assert {*_ANSWERS, *_WINDOWED} <= set(QUERIES)
    assert set(_PAIR_ANSWERS) == set(PAIRS)
