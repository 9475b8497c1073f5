"""The brute force agrees with the recorded engines: what the other tests compare with is itself compared."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import reference
from tests.conformance.queries import QUERIES
from tests.conformance.vectors import difference, read
from tests.reference import Aggregate, Event

Events = list[Event]
Params = Mapping[str, Any]


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
    "distinct_key": lambda e, _: reference.select(
        reference.snapshot(e, {"n": Aggregate("count")}, ("k",)), _payload("k")
    ),
}


def answer(query: str, events: Events, params: Params) -> Events:
    """What the brute force says."""
    if query in _ANSWERS:
        return _ANSWERS[query](events, params)
    key = ("k",) if query.endswith("_by_key") else ()
    return _WINDOWED[query.removesuffix("_by_key")](events, params, key)


@pytest.mark.parametrize("file", ["trill_oracle", "streaminsight"])
def test_the_brute_force_agrees_with_the_recorded_engines(conformance: Path, file: str) -> None:
    names = {*_ANSWERS, *_WINDOWED, *(f"{name}_by_key" for name in _WINDOWED)}
    vectors = [vector for vector in read(conformance / f"{file}.jsonl.gz") if vector.query in names]
    wrong = {
        vector.name: difference(vector, answer(vector.query, vector.events(), vector.params or {}))
        for vector in vectors
    }
    assert vectors
    assert not {name: found for name, found in wrong.items() if found}


def test_every_query_of_the_brute_force_can_be_asked() -> None:
    assert {*_ANSWERS, *_WINDOWED} <= set(QUERIES)
