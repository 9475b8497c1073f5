"""The vectors' queries, said in the public API. What the API has no word for is unsupported, and by that word."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance import trill_notation
from tests.conformance.trill_notation import NEVER
from tests.conformance.trill_pairs import How
from tests.conformance.unsupported import UnsupportedError, aggregate
from tests.conformance.vectors import Vector
from tests.support.ticks import at_us, us

Params = Mapping[str, Any]
Query = Callable[[Stream, tuple[str, ...], Params], Stream]
"""(events, by what they are grouped where the query names no key, numbers) -> answer."""
PairQuery = Callable[[Stream, Stream, tuple[str, ...]], Stream]
"""(left, right, by what both are grouped where the query names no key) -> answer."""


def _aggregate(params: Params) -> g.Aggregate:
    kind, column = re.fullmatch(r"([a-z]+)[:_]?(\w*)", params["agg"]).groups()  # type: ignore[union-attr]
    return aggregate(kind, column)


def _grid(params: Params) -> dict[str, Any]:
    return {"size": us(params["size"]), "every": us(params["hop"]), "align": at_us(params["offset"])}


def _hop_lifetime(events: Stream, params: Params) -> Stream:
    return events.hop_lifetime(**_grid({"hop": params["size"], **params}))


def _repetitive_hopping(events: Stream, params: Params) -> Stream:
    if params["hop"] > params["size"]:
        # Trill's lifetimes are then shorter than the hop, and so are its results.
        chopped = _hop_lifetime(events, params).chop(us(params["hop"]), align=at_us(params["offset"]))
        return chopped.snapshot().agg(r=_aggregate(params))
    return events.hopping(**_grid(params), membership="start").agg(r=_aggregate(params))


def _hopping(events: Stream, params: Params) -> Stream:
    windows = events.hopping(
        us(params["size"]), us(params["hop"]), align=at_us(params["align"]), output=params["output"]
    )
    return windows.agg(r=_aggregate(params))


def _tumbling(events: Stream, params: Params) -> Stream:
    assert params["size"] == params["hop"]
    windows = events.tumbling(us(params["size"]), align=at_us(params["align"]), output=params["output"])
    return windows.agg(r=_aggregate(params))


def _endless(events: Stream) -> Stream:
    return events.alter_lifetime(end=g.lit(NEVER))


def _snapshot(events: Stream, params: Params) -> Stream:
    return events.snapshot().agg(r=_aggregate(params))


def _topk(events: Stream, key: tuple[str, ...], params: Params) -> Stream:
    """Trill's list of ranked rows: the rows of one result have one lifetime, so a snapshot of them is that result."""
    row = pa.struct([(name, pa.int64()) for name in ("rank", "v", "id")])
    listed = g.window_function(
        lambda rows: sorted(rows.to_pylist(), key=lambda each: (each["rank"], each["id"])),
        returns=pa.list_(row),
        of=["rank", "v", "id"],
    )
    ranked = events.by(*key).snapshot().top(params["n"], by="v")
    return ranked.by(*key).snapshot().agg(value=listed)


def _session(events: Stream, params: Params) -> g.DataWindowed:
    return events.session(us(params["timeout"]), running=True)


def _count_window(events: Stream, params: Params) -> Stream:
    assert params["output"] == "point"
    return events.count_window(params["n"]).agg(r=_aggregate(params))


_WINDOWED: dict[str, Callable[[Stream, Params], Stream]] = {
    "snapshot": _snapshot,
    "alter_duration_snapshot": lambda s, p: _snapshot(s.set_duration(us(p["duration"])), p),
    "sliding": lambda s, p: s.sliding(us(p["size"])).agg(r=_aggregate(p)),
    "tumbling": lambda s, p: _snapshot(_hop_lifetime(s, p), p),
    "hopping": lambda s, p: _snapshot(_hop_lifetime(s, p), p),
    "repetitive_hopping": _repetitive_hopping,
    "quantize_snapshot": lambda s, p: _snapshot(s.quantize(**_grid(p)), p),
    "si_snapshot": _snapshot,
    "si_hopping": _hopping,
    "si_tumbling": _tumbling,
    "si_count": _count_window,
    "session": lambda s, p: _session(s, p).rows(),
}
"""Each is there by key too, under its name and ``_by_key``."""


def _whole(query: Callable[[Stream, Params], Stream]) -> Query:
    return lambda events, whole, params: query(events.by(*whole), params)


def _by_key(query: Callable[[Stream, Params], Stream]) -> Query:
    return lambda events, whole, params: query(events.by(*whole, "k"), params)


QUERIES: dict[str, Query] = {
    "where_select": lambda s, w, p: s.filter(g.col("v") >= p["min_v"]).select(*w, "k", r=g.col("v") * 2 + 1),
    "alter_duration": lambda s, _, p: s.set_duration(us(p["duration"])),
    "extend": lambda s, _, p: s.extend(us(p["by"])),
    "shift": lambda s, _, p: s.shift(us(p["by"])),
    "clip_const": lambda s, _, p: s.clip_duration(us(p["limit"])),
    "point_at_end": lambda s, _, p: s.point_at_end(),
    "chop": lambda s, _, p: s.chop(us(p["period"]), align=at_us(p["offset"])),
    "stitch": lambda s, w, p: s.select(*w, "k").stitch(),
    "hopping_lifetime": lambda s, _, p: _hop_lifetime(s, p),
    "quantize": lambda s, _, p: s.quantize(**_grid(p)),
    "progressive_quantize": lambda s, _, p: s.quantize(**_grid(p), progress=us(p["progress"])),
    "distinct_key": lambda s, w, _: s.distinct(*w, "k"),
    "clip_self_key": lambda s, w, _: _endless(s).clip_by(s, on=[*w, "k"]),
    "topk": _topk,
    "ingress": lambda s, _, p: s,
    "ingress_count": lambda s, _, p: s.snapshot().agg(r=g.count()),
    **{name: _whole(query) for name, query in _WINDOWED.items()},
    **{f"{name}_by_key": _by_key(query) for name, query in _WINDOWED.items()},
    "session_by_key_agg": _by_key(lambda s, p: _session(s, p).agg(r=_aggregate(p))),
}


def _joined(left: Stream, right: Stream, key: tuple[str, ...], how: How = "inner") -> Stream:
    sides = {"lid": "id", "lv": "v", "rid": "id_right", "rv": "v_right"}
    both = left.join(right, on=key or None, how=how)
    return both.select(*dict.fromkeys((*key, "k")), **{name: g.col(column) for name, column in sides.items()})


PAIRS: dict[str, PairQuery] = {
    "join_key": lambda a, b, w: _joined(a, b, (*w, "k")),
    "join_cross": _joined,
    "left_outer_join_key": lambda a, b, w: _joined(a, b, (*w, "k"), "left"),
    "full_outer_join_key": lambda a, b, w: _joined(a, b, (*w, "k"), "full"),
    "where_not_exists_key": lambda a, b, w: a.join(b, on=(*w, "k"), how="anti"),
    "left_anti_semi_join": lambda a, b, w: a.join(b, on=w or None, how="anti"),
    "union": lambda a, b, _: a.union(b),
    "clip_by": lambda a, b, w: a.clip_by(b, on=w or None),
    "clip_by_key": lambda a, b, w: a.clip_by(b, on=(*w, "k")),
}


def check(vector: Vector) -> None:
    """Refuse what the API has no word for, as far as that is seen without a stream.

    Raises:
        UnsupportedError: With the word.
    """
    if "epl" in vector.line or "rql" in vector.line:
        # One vector is several queries, and its windows are small: the local engine is asked.
        raise UnsupportedError(f"{'EPL' if 'epl' in vector.line else 'RQL'} is asked of the local engine alone")
    if vector.params is None or vector.query in {*QUERIES, *PAIRS}:
        return
    known = hasattr(Stream, vector.query)
    raise UnsupportedError(
        f"Stream.{vector.query} has no translation yet" if known else f"Stream has no verb {vector.query!r}"
    )


def is_open(vector: Vector) -> bool:
    """Whether a vector asks what is final of an input that has not ended."""
    return vector.params is None and trill_notation.is_open(vector.line)


def build(inputs: Mapping[str, Stream], vector: Vector, whole: tuple[str, ...] = ()) -> Stream:
    """The plan of a vector's query.

    Args:
        inputs: Its events, or those of several vectors, by the names of the inputs.
        vector: One of them.
        whole: By what events are grouped where the query names no key.

    Raises:
        UnsupportedError: The API has no word for it.
    """
    if vector.params is None:
        return trill_notation.query(inputs, vector.line["query"])
    if vector.query in PAIRS:
        return PAIRS[vector.query](inputs["left"], inputs["right"], whole)
    return QUERIES[vector.query](inputs["left"], whole, vector.params)
