"""The queries of Trill's own tests, which are written as pipelines of text, said in the public API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import narwhals as nw

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.trill_pairs import PAIRS, N, condition, split
from tests.conformance.unsupported import UnsupportedError, aggregate

NEVER = datetime.max.replace(tzinfo=UTC)
"""The end of an event that never ends."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_AGGREGATE = re.compile(r"(?:(\w+)=)?(\w+)\((\w*)\)")

_TOP = re.compile(r"(?:aggregate\()?topk\((\w+) desc, ?(\d+)\)(?:, count\(\)\))? -> (.*)")

_VALUES: Mapping[str, nw.Expr] = {
    "start_time": g.col("start").dt.timestamp("us"),
    "duration": (g.col("end") - g.col("start")).dt.total_microseconds(),
}

_STEPS: tuple[tuple[str, Callable[..., Stream]], ...] = (
    (r"identity(?: \(ingress policy only\)|, output with matching .*)?", lambda s: s),
    ("point_at_end", lambda s: s.point_at_end()),
    ("stitch", lambda s: s.stitch()),
    (rf"alter_duration\({N}\)", lambda s, length: s.set_duration(int(length))),
    (r"alter_duration\(inf(?:inity)?\)", lambda s: s.alter_lifetime(end=g.lit(NEVER))),
    (rf"extend\({N}\)", lambda s, by: s.extend(int(by))),
    (rf"clip_const\((?:max_duration=)?{N}\)", lambda s, limit: s.clip_duration(int(limit))),
    (rf"chop\(offset={N}, period={N}\)", lambda s, align, period: s.chop(int(period), align=int(align))),
    (rf"session\(timeout={N}, max_duration=none\)", lambda s, gap: s.session(int(gap), running=True).rows()),
    (
        rf"session\(timeout={N}, max_duration={N}\)",
        lambda s, gap, cap: s.session(int(gap), grid_cap=int(cap), align=0, running=True).rows(),
    ),
    (rf"tumble_lifetime\({N}\)", lambda s, size: s.hop_lifetime(int(size), align=0)),
    (rf"hop_lifetime\(size={N}, hop={N}\)", lambda s, size, hop: s.hop_lifetime(int(size), int(hop), align=0)),
    (
        rf"quantize\(size={N}, hop={N}, offset={N}\)",
        lambda s, size, hop, align: s.quantize(int(size), int(hop), align=int(align)),
    ),
    (
        rf"quantize_progressive\(size={N}, hop={N}, progress={N}, offset={N}\)",
        lambda s, size, hop, finer, align: s.quantize(int(size), int(hop), align=int(align), progress=int(finer)),
    ),
    (rf"where\((\w+) mod {N} = {N}\)", lambda s, column, by, rest: s.filter(g.col(column) % int(by) == int(rest))),
    (rf"where\(int\((\w+)\) > {N}\)", lambda s, column, least: s.filter(g.col(column).cast(g.Int64) > int(least))),
    (r"where\((.*)\)", lambda s, text: s.filter(condition(text, g.col))),
    (
        r"select\((\w+) \+ start_time\)",
        lambda s, column: s.select((g.col(column) + _VALUES["start_time"]).alias(column)),
    ),
    (r"select\((\w+(?:=\w+)?(?:, ?\w+(?:=\w+)?)*)\)", lambda s, listed: s.select(**_columns(listed))),
    (r"group_apply\(key=(\w+), (.*)\) -> \(v=sum, k\)", lambda s, key, inner: pipeline(s.by(key), inner)),
    (
        r"group_apply\(key=(\w+), group_apply\(key=(\w+), (.*)\) -> \(name, reading\)\) -> \(group, name, reading\)",
        lambda s, outer, key, inner: (
            s.by(outer)
            .apply(lambda each: each.by(key).apply(lambda one: pipeline(one, inner)))
            .select(outer, key, reading=g.col("v"))
        ),
    ),
    (
        r"group_aggregate\(key=v/100 \(integer division\), count\(\), sum\(v mod 100\)\) -> key\*100\+count\*10\+sum",
        lambda s: _by_hundreds(s, g.count() * 10 + g.sum(g.col("v") % 100)),
    ),
    (r"group_aggregate\(key=v/100, sum\(v\)\) -> key\*100\+sum\*10", lambda s: _by_hundreds(s, g.sum("v") * 10)),
    (r"selectmany\(repeat v twice\)", lambda s: s.union(s)),
    (
        rf"group_apply\(key=(\w+) mod {N}, (.*)\)",
        lambda s, column, by, inner: (
            pipeline(s.with_columns(key=g.col(column) % int(by)).by("key"), inner).by().select("v")
        ),
    ),
)


def check(line: Mapping[str, Any]) -> None:
    """Refuse what is a question about other streams than ours, or has no whole events as its answer.

    Raises:
        UnsupportedError: With what it is.
    """
    settings = line["settings"]
    for wrong, why in (
        (settings.get("partitioned"), "partitions with clocks of their own"),
        (settings.get("on_completed") == "cti_at_current_time", "a CTI at the last event when the input ends"),
        (settings.get("on_completed") == "none" and not _is_over(line), "an input that has not ended"),
    ):
        if wrong:
            raise UnsupportedError(f"no word for {why}")


def _is_over(line: Mapping[str, Any]) -> bool:
    """Whether all answers are final though no CTI at infinity is made."""
    rows = [event for given in line["inputs"].values() for event in given["events"]]
    said = any(event["kind"] == "cti" and event["start"] is None for event in rows)
    return said or line["query"].startswith("identity")


def query(inputs: Mapping[str, Stream], notation: str) -> Stream:
    """The plan of a question: pipelines with names, and one that is the answer, parted by semicolons.

    Raises:
        UnsupportedError: The API has no word for one of its steps.
    """
    if notation == _CHANGES:
        return _changes(inputs["s"])
    *named, answer = split(_FIGURES.get(notation, notation), "; ")
    known = dict(inputs)
    for statement in named:
        name, text = re.split(" ?= ?", statement, maxsplit=1)
        known[name] = _expression(known, text)
    return _expression(known, answer)


def pipeline(stream: Stream, notation: str) -> Stream:
    """The plan of a pipeline behind a stream.

    Raises:
        UnsupportedError: As `query`.
    """
    return _behind(stream, split(notation, " | "))


def _expression(known: Mapping[str, Stream], text: str) -> Stream:
    """A pipeline; its first step is a stream, or is taken behind the first input."""
    first, *steps = split(text, " | ")
    stream = _term(known, first)
    return _behind(next(iter(known.values())), [first, *steps]) if stream is None else _behind(stream, steps)


def _term(known: Mapping[str, Stream], text: str) -> Stream | None:
    """A stream by its name, a call of two streams, or a step that names the stream it is taken behind."""
    if text in known:
        return known[text]
    if text in _FIGURES:
        return query(known, _FIGURES[text])
    called, *shown = split(text, " -> ")
    call = re.fullmatch(r"(\w+)\((.*)\)", called)
    if call is None:
        return None
    verb, given = call[1], split(call[2], ",")
    if verb in PAIRS:
        left, right, *options = given
        return PAIRS[verb](_expression(known, left), _expression(known, right), options, *shown)
    if given[0] in known:
        return pipeline(known[given[0]], f"{verb}({', '.join(given[1:])})")
    return None


def _behind(stream: Stream, steps: list[str]) -> Stream:
    while steps:
        step, *steps = steps
        if step == "snapshot" and steps and (best := _TOP.fullmatch(steps[0])):
            steps.pop(0)
            ranked = stream.snapshot().top(int(best[2]), by=best[1])
            stream = ranked.select(best[1]) if best[3] == "keep only the topk rows" else ranked
            continue
        if step == "snapshot" and steps:
            stream = stream.snapshot().agg(**_aggregates(steps.pop(0)))
            continue
        for pattern, apply in _STEPS:
            if match := re.fullmatch(pattern, step):
                stream = apply(stream, *match.groups())
                break
        else:
            raise UnsupportedError(f"no word for {re.split('[ (]', step)[0]}")
    return stream


def _columns(listed: str) -> dict[str, nw.Expr]:
    """Columns by their new names: ``pid, at=start_time``."""
    parts = [part.partition("=") for part in split(listed, ",")]
    return {name: _VALUES.get(value, g.col(value or name)) for name, _, value in parts}


def _by_hundreds(stream: Stream, total: Any) -> Stream:
    totals = stream.with_columns(key=g.col("v") // 100).by("key").snapshot().agg(total=total)
    return totals.select(v=g.col("key") * 100 + g.col("total"))


def _aggregates(step: str) -> dict[str, Any]:
    if step == "aggregate(a=sum(v and 7 bitwise), b=sum(v)+count(), c=sum(v), d=count())":
        # No value is negative.
        return {"a": g.sum(g.col("v") % 8), "b": g.sum("v") + g.count(), "c": g.sum("v"), "d": g.count()}
    listed = re.fullmatch(r"aggregate\((.*)\)", step)
    parts = [_AGGREGATE.fullmatch(part) for part in (listed[1].split(", ") if listed else [step])]
    found = {}
    for part in parts:
        if part is None:
            raise UnsupportedError(f"no word for the aggregate {step}")
        kind = {"count_not_null": "count"}.get(part[2], part[2])
        found[part[1] or "v"] = aggregate(kind, part[3])
    return found


# Questions that the notation does not spell out

_FIGURE_24 = "w = where(cpu in (1,2)) | select(tick,pid,cpu); join(w, names, pid=pid) -> (tick,pid,cpu,name)"
_FIGURES = {
    "Figure 24 stream": _FIGURE_24,
    # How long each process had run when another took its place.
    "as Figure 36 on the alternative input": (
        "x = Figure 24 stream | alter_duration(inf); "
        "clip(x, x, key=cpu) | select(pid, cpu, name, slice=duration) | point_at_end"
    ),
}

_CHANGES = (
    "c = clip(where(type<2), where(type=2), key=game); group_apply(key=(game,user), t = snapshot|sum(kills); "
    "join(shift(t, by = start+1), alter_duration(t,1), no key) -> (from,to)) on c"
)


def _changes(events: Stream) -> Stream:
    """Trill's shift by a function moves an event by what it gives: here that is its start, and a tick."""
    game = events.filter(g.col("type") < 2).clip_by(events.filter(g.col("type") == 2), on="game")
    total = game.by("game", "user").snapshot().agg(v=g.sum("kills"))
    by = g.col("start") - g.lit(_EPOCH) + g.lit(timedelta(microseconds=1))
    moved = total.alter_lifetime(start=g.col("start") + by, end=g.col("end") + by)
    pairs = moved.join(total.set_duration(1), on=["game", "user"])
    return pairs.select(**{"from": g.col("v"), "to": g.col("v_right")})
