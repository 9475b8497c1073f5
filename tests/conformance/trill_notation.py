"""The queries of Trill's own tests, which are written as pipelines of text, said in the public API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import narwhals as nw

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.trill_formulas import aggregates, formula, names
from tests.conformance.trill_pairs import PAIRS, N, condition, split
from tests.conformance.trill_patterns import Detected, detected
from tests.conformance.unsupported import UnsupportedError
from tests.conformance.vectors import NUMBER
from tests.support.ticks import at_us, us

NEVER = datetime.max.replace(tzinfo=UTC)
"""The end of an event that never ends."""

_EPOCH = datetime.fromtimestamp(0, UTC)
_TOP = re.compile(r"(?:aggregate\()?topk\((\w+) desc, ?(\d+)\)(?:, count\(\)\))? -> (.*)")


def _session(events: Stream, gap: str, **limits: Any) -> Stream:
    """In Trill a session changes lifetimes alone, and what was grouped is so behind it."""
    return events.session(us(int(gap)), **limits, running=True).rows().by(*events.key)


def _detected(events: Stream, pattern: str, longest: str | None = None, key: str = "", register: str = "") -> Stream:
    """A pattern's longest duration is that of the events, if all have one."""
    asked = Detected.of(pattern, register, None if longest is None else int(longest))
    together = NUMBER not in events.schema.names
    found = detected(events, asked, simultaneous=together, key=(key,) if key else ())
    return found.select(*((key,) if key else ()), **{events.schema.names[0] if key else "v": g.col("v")})


_STEPS: tuple[tuple[str, Callable[..., Stream]], ...] = (
    (r"detect\((.*)\)", _detected),
    (rf"alter_duration\({N}\) > detect\((.*)\)", lambda s, longest, pattern: _detected(s, pattern, longest)),
    (
        rf"(?:alter_duration\({N}\) > )?group_apply\(key=(\w+), detect\((.*?)\)(?:; register = (.*))?\)",
        lambda s, longest, key, pattern, register: _detected(s, pattern, longest, key, register or ""),
    ),
    (r"identity(?: \(ingress policy only\)|, output with matching .*)?", lambda s: s),
    ("point_at_end", lambda s: s.point_at_end()),
    ("stitch", lambda s: s.stitch()),
    (rf"alter_duration\({N}\)", lambda s, length: s.set_duration(us(int(length)))),
    (r"alter_duration\(inf(?:inity)?\)", lambda s: s.alter_lifetime(end=g.lit(NEVER))),
    (rf"extend\({N}\)", lambda s, by: s.extend(us(int(by)))),
    (rf"clip_const\((?:max_duration=)?{N}\)", lambda s, limit: s.clip_duration(us(int(limit)))),
    (rf"chop\(offset={N}, period={N}\)", lambda s, align, period: s.chop(us(int(period)), align=at_us(int(align)))),
    (rf"session\(timeout={N}, max_duration=none\)", _session),
    (
        rf"session\(timeout={N}, max_duration={N}\)",
        lambda s, gap, cap: _session(s, gap, grid_cap=us(int(cap)), align=at_us(0)),
    ),
    (rf"tumble_lifetime\({N}\)", lambda s, size: s.hop_lifetime(us(int(size)), align=at_us(0))),
    (
        rf"hop_lifetime\(size={N}, hop={N}\)",
        lambda s, size, hop: s.hop_lifetime(us(int(size)), us(int(hop)), align=at_us(0)),
    ),
    (
        rf"quantize\(size={N}, hop={N}, offset={N}\)",
        lambda s, size, hop, align: s.quantize(us(int(size)), us(int(hop)), align=at_us(int(align))),
    ),
    (
        rf"quantize_progressive\(size={N}, hop={N}, progress={N}, offset={N}\)",
        lambda s, size, hop, finer, align: s.quantize(
            us(int(size)), us(int(hop)), align=at_us(int(align)), progress=us(int(finer))
        ),
    ),
    (r"where\((.*)\)", lambda s, text: s.filter(_condition(s, text))),
    (r"select\((.*)\)", lambda s, listed: s.select(**_columns(s, listed))),
    (rf"shift\({N}\)", lambda s, by: s.shift(us(int(by)))),
    (r"shift\((?:by ?= ?|start ?-> ?)(.*)\)", lambda s, by: _shifted(s, by)),  # noqa: PLW0108  (it is defined below)
    (
        rf"alter_lifetime\(start ?-> ?(.*), ?(?:dur(?:ation)? ?=? ?)?{N}\)",
        lambda s, start, length: _moved(s, start, length),  # noqa: PLW0108  (likewise)
    ),
    (
        r"group_apply\(key=(\w+), group_apply\(key=(\w+), (.*)\) -> \(name, reading\)\) -> \(group, name, reading\)",
        lambda s, outer, key, inner: (
            s.by(outer)
            .apply(lambda each: each.by(key).apply(lambda one: pipeline(one, inner)))
            .select(outer, key, reading=g.col("v"))
        ),
    ),
    (
        r"group_apply\(key=(\w+), (.*)\) -> \((.*)\)",
        lambda s, key, inner, shown: _shown(pipeline(s.by(key), inner), shown),
    ),
    (
        r"group_apply\(key=(.*?), (.*)\)",
        lambda s, key, inner: (
            pipeline(s.with_columns(key=formula(key, s.schema)).by("key"), inner).by().select(s.schema.names[0])
        ),
    ),
    (
        r"group_aggregate\(key=(.*?), (\w+\(.*)\) -> (.*)",
        lambda s, key, listed, shown: _by_key(s, key, split(listed, ","), shown),
    ),
    (r"selectmany\(repeat (.*?),? (\w+)( times)?\)", lambda s, shown, times, _: _repeated(s, shown, times)),
    (
        r"stitch with a payload equality under which '(\w+)' and '(\w+)' are equal",
        lambda s, one, other: _stitched_alike(s, one, other),  # noqa: PLW0108  (likewise)
    ),
)

_TIMES = {"once": 1, "twice": 2, "thrice": 3}


def check(line: Mapping[str, Any]) -> None:
    """Refuse what is a question about other streams than ours, or has no whole events as its answer.

    Raises:
        UnsupportedError: With what it is.
    """


def is_open(line: Mapping[str, Any]) -> bool:
    """Whether its answer is what is final of an input that has not ended."""
    rows = [event for given in line["inputs"].values() for event in given["events"]]
    over = any(event["kind"] == "cti" and event["start"] is None for event in rows)
    whole = line["settings"].get("on_completed", "cti_infinity") == "cti_infinity"
    return not whole and not over and not line["query"].startswith("identity")


def query(inputs: Mapping[str, Stream], notation: str) -> Stream:
    """The plan of a question: pipelines with names, and one that is the answer, parted by semicolons.

    Raises:
        UnsupportedError: The API has no word for one of its steps.
    """
    if notation == _CHANGES:
        return _changes(inputs["s"])
    plain = re.sub(r"\s{2,}\(.*\)$", "", notation)  # what is said beside a question
    *named, answer = split(_FIGURES.get(plain, plain), "; ")
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
        if step.startswith("alter_duration") and steps and "detect(" in steps[0]:
            step = f"{step} > {steps.pop(0)}"
        if step == "snapshot" and steps and (best := _TOP.fullmatch(steps[0])):
            steps.pop(0)
            ranked = stream.snapshot().top(int(best[2]), by=best[1])
            stream = ranked.select(best[1]) if best[3] == "keep only the topk rows" else ranked
            continue
        if step == "snapshot" and steps:
            stream = stream.snapshot().agg(**_aggregates(stream, steps.pop(0)))
            continue
        for pattern, apply in _STEPS:
            if match := re.fullmatch(pattern, step):
                stream = apply(stream, *match.groups())
                break
        else:
            raise UnsupportedError(f"no word for {re.split('[ (]', step)[0]}")
    return stream


def _condition(stream: Stream, text: str) -> nw.Expr:
    try:
        return formula(text, stream.schema)
    except UnsupportedError:
        return condition(text, g.col)


def _columns(stream: Stream, listed: str) -> dict[str, nw.Expr]:
    """Columns by their new names: ``pid, at=start_time``; one that is computed has the name that it is computed of."""
    found = {}
    for part in split(listed, ","):
        named = re.fullmatch(r"(\w+) ?=(?!=) ?(.*)", part)
        name, text = (named[1], named[2]) if named else (names(part)[0] if names(part) else "v", part)
        found[name] = formula(text, stream.schema)
    return found


def _shown(stream: Stream, listed: str) -> Stream:
    """The columns of each group's result: ``v=sum`` is the one that an aggregate made."""
    parts = [re.fullmatch(r"(\w+)(?: ?= ?(\w+))?", part) for part in split(listed, ",")]
    if None in parts:
        raise UnsupportedError(f"no word for -> ({listed})")
    pairs = [(part[1], part[2] or part[1]) for part in parts if part is not None]
    known = stream.schema.names
    return stream.by().select(**{name: g.col(value if value in known else "v") for name, value in pairs})


def _by_key(stream: Stream, key: str, parts: list[str], shown: str) -> Stream:
    made = aggregates(parts, stream.schema)
    if len(made) == 1:
        made = {split(parts[0], "(")[0].partition("(")[0]: next(iter(made.values()))}
    totals = stream.with_columns(key=formula(key, stream.schema)).by("key").snapshot().agg(**made)
    return totals.by().select(v=formula(shown, totals.schema))


def _repeated(stream: Stream, shown: str, times: str) -> Stream:
    """An event as often as a number or one of its values says."""
    name = next(iter(names(shown)), "v")
    count = g.lit(_TIMES.get(times) or int(times)) if times in _TIMES or times.isdigit() else g.col(times)
    return stream.repeat(count).with_columns(**{name: formula(shown, stream.schema)})


def _stitched_alike(stream: Stream, one: str, other: str) -> Stream:
    name = stream.schema.names[0]
    same = g.when(g.col(name) == other).then(g.lit(one)).otherwise(g.col(name))
    return stream.with_columns(alike=same).stitch(on="alike").select(name)


_MICROSECOND = timedelta(microseconds=1)


def _instant(text: str, stream: Stream) -> nw.Expr:
    """A time that is computed of the start, in ticks."""
    ticks = formula(re.sub(r"\bstart\b", "start_time", text), stream.schema)
    return g.lit(_EPOCH) + (ticks * 1).cast(g.Duration("us"))


def _shifted(stream: Stream, by: str) -> Stream:
    """Moved by what a function of the start gives."""
    amount = _instant(by, stream) - g.lit(_EPOCH)
    return stream.alter_lifetime(start=g.col("start") + amount, end=g.col("end") + amount)


def _moved(stream: Stream, start: str, length: str) -> Stream:
    return stream.alter_lifetime(start=_instant(start, stream), duration=us(int(length) * _MICROSECOND))


def _aggregates(stream: Stream, step: str) -> dict[str, Any]:
    if step == "aggregate(a=sum(v and 7 bitwise), b=sum(v)+count(), c=sum(v), d=count())":
        # No value is negative.
        return {"a": g.sum(g.col("v") % 8), "b": g.sum("v") + g.count(), "c": g.sum("v"), "d": g.count()}
    listed = re.fullmatch(r"aggregate\((.*)\)", step)
    return aggregates(split(listed[1], ",") if listed else [step], stream.schema)


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
    pairs = moved.join(total.set_duration("1us"), on=["game", "user"])
    return pairs.select(**{"from": g.col("v"), "to": g.col("v_right")})
