"""StreamCruncher's partitions in the public API: windows and aggregates on the axis of the query's cycles.

A cycle is a microsecond there: a row that comes in cycle 3 and is expelled in cycle 5 lives for ``[3, 5)``. What is
done here by hand is to say in which cycle a window lets an event in that waits before it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce
from operator import and_
from typing import Any

import narwhals as nw
import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.rql_structure import AggregateCall, Part, Pick
from tests.conformance.streamcruncher_script import Cycle, Cycles, Script
from tests.conformance.unsupported import UnsupportedError
from tests.support.ticks import instants, us

Ask = Callable[[Stream], pa.Table]
"""How a query is run."""

TYPES = {
    "int": pa.int64(),
    "long": pa.int64(),
    "timestamp": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "string": pa.string(),
}

PLACE = "$place"
"""The column with a row's place among those that come; it is not shown."""

GROUP = "$group"
"""The column with the number of a row's window, by which rows go together also where keys are null; nor is it shown."""

NEVER = 1 << 40
"""Behind all cycles."""

_RANK, _TURN = "$rank", "$turn"
_UPDATES = 8
"""So many updates of a group may come in one cycle."""

_ONE = "1us"


@dataclass(frozen=True)
class Fed:
    """A row that comes to a window.

    Attributes:
        row: Its columns.
        at: The cycle in which it comes.
        stamp: Its own time in milliseconds; None if it has none.
    """

    row: Mapping[str, Any]
    at: Cycle
    stamp: int | None


@dataclass(frozen=True)
class Window:
    """What a partition shows.

    Attributes:
        stream: Its rows on the axis of cycles.
        asked: The cycles that it asks for.
        cycles: Those that the axis has.
    """

    stream: Stream
    asked: set[Cycle]
    cycles: Cycles


def number(time: nw.Expr) -> nw.Expr:
    """The place of a time on the axis of cycles."""
    return time.dt.timestamp("us")


def instant(place: nw.Expr) -> nw.Expr:
    """The time at a place on that axis."""
    return place.cast(g.Datetime("us", "UTC"))


def window(
    name: str,
    part: Part,
    fed: Sequence[Fed],
    schema: pa.Schema,
    cycles: Cycles,
    script: Script,
    pending: int | None,
    ask: Ask,
) -> Window:
    """A partition over the rows that come to it.

    Args:
        name: What a running query calls its input.
        part: The partition.
        fed: The rows, as they come.
        schema: Their columns.
        cycles: The cycles that are known to run.
        script: What decides when others do.
        pending: How many rows may wait.
        ask: How a query is run.

    Raises:
        UnsupportedError: There is no translation.
    """
    pick = part.pick
    if pick.provider is not None:
        return _provided(name, part, fed, schema, cycles, script, pending, ask)
    if pick.kind == "random":
        raise UnsupportedError("RQL: no random windows: they toss a coin for each event")
    enters = _admitted(part, fed, script, pending)
    kept = [place for place in range(len(fed)) if enters[place] is not None]
    rows = {place: fed[place] for place in kept}
    keys = [tuple(each.row[name] for name in part.by) for each in rows.values()]
    groups = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    numbers = [groups[key] for key in keys]
    entered: dict[int, Cycle] = {place: cycle for place in kept if (cycle := enters[place]) is not None}
    # Not those in which a row comes anyway: what comes because of a cycle is no reason for it.
    asked = {cycle for place, cycle in entered.items() if cycle != rows[place].at}
    if not asked <= set(cycles.number):
        cycles = Cycles({*cycles.all, *asked})  # until the others know of them
    starts = {place: cycles.number[entered[place]] for place in kept}
    if pick.kind == "time":
        leaves = _expired(part, rows, entered, script, ask)
        asked |= set(leaves.values())
        ends = {place: cycles.first(leave) for place, leave in leaves.items()}
        stream = _stream(name, rows, schema, numbers, starts, ends)
        if pick.size is not None:
            _check_order(part, rows)
            newest = (
                _stream(f"{name} newest", rows, schema, numbers, starts).by(GROUP).last(pick.size, order=PLACE).rows()
            )
            stream = stream.join(newest.by().select(PLACE), on=PLACE)
    else:
        hidden = _updates(part, rows, entered) if pick.update else {}
        stream = _of_rows(pick, _stream(name, rows, schema, numbers, starts, hidden=hidden))
    shown = _aggregated(part, stream, script.line.get("providers") or {}) if part.aggregates else stream
    return Window(shown, asked, cycles)


def _provided(
    name: str,
    part: Part,
    fed: Sequence[Fed],
    schema: pa.Schema,
    cycles: Cycles,
    script: Script,
    pending: int | None,
    ask: Ask,
) -> Window:
    """Windows whose sizes a program says for each key: all keys of one size are a partition by themselves."""
    sizes = _sizes(part.pick, (script.line.get("providers") or {}).get(part.pick.provider, ""))
    of_size: dict[Pick, list[Fed]] = {size: [] for _, size in sizes}
    for each in fed:
        own = (size for keys, size in sizes if all(each.row.get(key) == value for key, value in keys))
        of_size[next(own)].append(each)
    turns = len(of_size)
    made = [
        window(f"{name} {at}", replace(part, pick=pick), rows, schema, cycles, script, pending, ask)
        for at, (pick, rows) in enumerate(of_size.items())
    ]
    first, *others = (
        each.stream.with_columns(
            **{column: g.col(column) * turns + at for column in (PLACE, GROUP) if column in each.stream.schema.names}
        )
        for at, each in enumerate(made)
    )
    every = max((each.cycles for each in made), key=lambda each: len(each.all))
    return Window(first.union(*others), set().union(*(each.asked for each in made)), every)


def _sizes(pick: Pick, words: str) -> list[tuple[list[tuple[str, str]], Pick]]:
    """What a provider of sizes says, as the vectors say it: for which values of the key it has another size."""
    found = []
    *cases, others = re.split(r"\s*;\s*", words.removeprefix("per-partition size:").strip())
    for case in cases:
        said = re.fullmatch(_SIZE, case)
        if said is None:
            break
        keys = re.findall(r"(\w+) '([^']*)'", said[1])
        span = pick.span if said[2] is None else int(said[2]) * {"s": 1000, "ms": 1, "min": 60_000}[said[3]]
        size = pick.size if said[4] is None else int(said[4])
        found.append((keys, replace(pick, span=span, size=size, provider=None)))
    if len(found) < len(cases) or not others.startswith("others -> the declared"):
        raise UnsupportedError("RQL: no such providers of sizes")
    return [*found, ([], replace(pick, provider=None))]


_SIZE = r"((?:\w+ '[^']*'(?: and )?)+) -> (?:(\d+) ?(s|ms|min)\w*)? ?(?:max )?(\d+)?(?: rows)?"


def _of_rows(pick: Pick, stream: Stream) -> Stream:
    """The windows that look at rows alone."""
    if pick.kind == "sliding":
        return stream.by(GROUP).last(pick.size or 0, order=PLACE).rows()
    if pick.kind == "tumbling":
        return stream.by(GROUP).last_span(us(_ONE)).rows()
    if pick.update:
        return _updated(pick, stream)
    best = stream.by(GROUP).highest if pick.kind == "highest" else stream.by(GROUP).lowest
    return best(pick.size or 0, pick.column, order=PLACE).rows()


def _updates(part: Part, rows: Mapping[int, Fed], entered: Mapping[int, Cycle]) -> dict[str, pa.Array]:
    """Each row's rank, and its number among those of its group in one cycle, which do not update each other."""
    values = {place: each.row[part.pick.column] for place, each in rows.items()}
    ranks = {value: at for at, value in enumerate(sorted({each for each in values.values() if each is not None}))}
    turns: dict[tuple[Any, ...], int] = defaultdict(int)
    found = []
    for place, each in rows.items():
        key = (*(each.row[name] for name in (*part.by, *part.pick.update)), entered[place])
        found.append(turns[key])
        turns[key] += values[place] is not None
    if max(found, default=0) >= _UPDATES:
        raise UnsupportedError(f"RQL: no more than {_UPDATES} updates of a group in one cycle")
    ranked = [None if value is None else float(ranks[value]) for value in values.values()]
    return {_RANK: pa.array(ranked, pa.float64()), _TURN: pa.array(found, pa.int64())}


def _updated(pick: Pick, stream: Stream) -> Stream:
    """The best rows, where those that are updated are expelled before others come.

    A cycle has two ticks for that: in the first one the worst row that can be takes the place of each that is updated.
    """
    known = stream.filter(~g.col(_RANK).is_null())
    start = number(g.col("start")) * 2
    worst = g.lit(float("-inf" if pick.kind == "highest" else "inf"))
    first = (
        known.filter(g.col(_TURN) == 0)
        .with_columns(**{_RANK: worst})
        .alter_lifetime(start=instant(start), duration=us(_ONE))
    )
    places = [first.with_columns(**{_TURN: g.lit(turn)}) for turn in range(_UPDATES)]
    both = known.alter_lifetime(start=instant(start + 1), duration=us(_ONE)).union(*places).by(GROUP)
    best = both.highest if pick.kind == "highest" else both.lowest
    found = best(pick.size or 0, _RANK, unique=(*pick.update, _TURN), order=PLACE).rows()
    end = number(g.col("end"))
    in_cycles = found.filter(g.col(_RANK).is_finite()).alter_lifetime(
        start=instant(number(g.col("start")) // 2),
        end=instant(g.when(end < NEVER).then(end // 2).otherwise(g.lit(NEVER))),
    )
    return in_cycles.select(*(name for name in stream.schema.names if name not in {_RANK, _TURN}))


def _stream(
    name: str,
    rows: Mapping[int, Fed],
    schema: pa.Schema,
    groups: Sequence[int],
    starts: Mapping[int, int],
    ends: Mapping[int, int | None] | None = None,
    hidden: Mapping[str, pa.Array] | None = None,
) -> Stream:
    columns = {field.name: pa.array([rows[place].row[field.name] for place in rows], field.type) for field in schema}
    times = {"start": instants([starts[place] for place in rows])}
    if ends is not None:
        times["end"] = instants([ends[place] for place in rows])
    own = {PLACE: pa.array(list(rows), pa.int64()), GROUP: pa.array(groups, pa.int64()), **(hidden or {})}
    table = pa.table({**times, **columns, **own})
    return g.events(table, start="start", end=None if ends is None else "end", null_end="open", name=name)


# When rows come in


def _admitted(part: Part, fed: Sequence[Fed], script: Script, pending: int | None) -> list[Cycle | None]:
    """The cycle in which each row comes in; None for rows that are dropped while they wait."""
    queues: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for place, each in enumerate(fed):
        queues[tuple(each.row[name] for name in part.by)].append(place)
    found: list[Cycle | None] = [None] * len(fed)
    for places in queues.values():
        _let_in(part.pick, [(place, fed[place].at) for place in places], found, script, pending)
    return found


def _let_in(
    pick: Pick, coming: list[tuple[int, Cycle]], found: list[Cycle | None], script: Script, pending: int | None
) -> None:
    """A full sliding window takes a row in each cycle, others as many as they hold, and windows of time all."""
    size = pick.size or 0
    held = 0
    waiting: list[int] = []
    coming.reverse()
    now: Cycle = (0, 0)
    while coming or waiting:
        now = script.follows(now) if waiting else coming[-1][1]
        buffered = len(waiting)
        while coming and coming[-1][1] <= now:
            waiting.append(coming.pop()[0])
        if pick.kind in {"highest", "lowest"} or (pick.kind == "time" and pick.size is None):
            room = len(waiting)
        elif pick.kind == "sliding":
            room = max(1, size - held)
            if pending is not None and held + buffered - pending - size > 1:
                # The window jumps, and what finds no place behind it is dropped.
                room = min(size, buffered - pending)
                waiting = waiting[max(0, buffered - pending - size) :]
        else:
            room = size
        for place in waiting[:room]:
            found[place] = now
        held = min(size, held + len(waiting[:room]))
        waiting = waiting[room:]


def _check_order(part: Part, rows: Mapping[int, Fed]) -> None:
    latest: dict[tuple[Any, ...], int] = {}
    for each in rows.values():
        key = tuple(each.row[name] for name in part.by)
        if each.stamp is not None and each.stamp < latest.get(key, each.stamp):
            raise UnsupportedError("RQL: no late events in windows of time with max")
        latest[key] = max(each.stamp or 0, latest.get(key, 0))


def _expired(
    part: Part, rows: Mapping[int, Fed], entered: Mapping[int, Cycle], script: Script, ask: Ask
) -> dict[int, Cycle]:
    """The cycle that each row's time runs out for; a row that came too late is there for one cycle."""
    if any(each.stamp is None for each in rows.values()):
        raise UnsupportedError("RQL: a window of time needs a timestamp column")
    times = instants([(each.stamp or 0) * 1000 for each in rows.values()])
    table = pa.table({"start": times, PLACE: pa.array(list(rows), pa.int64())})
    answer = ask(g.events(table, start="start").last_span(timedelta(milliseconds=part.pick.span)).rows())
    ends = answer["end"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    found = {}
    for place, end in zip(answer[PLACE].to_pylist(), ends, strict=True):
        cycle = (script.runs(end // 1000), 0)
        found[place] = cycle if cycle > entered[place] else script.follows(entered[place])
    return found


# Aggregates

_FUNCTIONS: Mapping[str, Callable[..., g.Aggregate]] = {
    "avg": g.mean,
    "geomean": g.geometric_mean,
    "kurtosis": g.kurtosis,
    "max": g.max,
    "median": g.median,
    "min": g.min,
    "skewness": g.skewness,
    "stddev": g.standard_deviation,
    "sum": g.sum,
    "sumsq": lambda column, **options: g.sum(_real(g.col(column)) * _real(g.col(column)), **options),
    "variance": g.variance,
}

_IN, _CAME, _THERE = "in", "came", "there"
"""Rows that are in the window, rows that came since it was made, and that a pinned window is there."""


def _real(column: nw.Expr) -> nw.Expr:
    return column.cast(g.Float64)


def _aggregated(part: Part, stream: Stream, baselines: Mapping[str, str]) -> Stream:
    """A row for each stretch in which no aggregate changes; null is another null each time."""
    calls = part.aggregates
    for call in calls:
        if call.function != "count" and call.function not in _FUNCTIONS:
            raise UnsupportedError(f"RQL: no aggregate {call.function}")
    lives = [_as(stream, _IN)]
    if any(call.entrance_only for call in calls):
        lives.append(_as(_since(part, stream), _CAME))
    if part.pinned:
        lives.append(_as(stream.by(GROUP).first(1, order=PLACE).rows(), _THERE))
    first, *others = lives
    made = first.union(*others).by(*part.by, GROUP).snapshot().agg(**_parts(calls))
    results = {call.name: _result(call, f"part {at}") for at, call in enumerate(calls)}
    shown = made.select(*part.by, GROUP, **results)
    if any(call.diff for call in calls):
        shown = _differences(calls, shown, baselines)
    known = reduce(and_, (~g.col(call.name).is_null() for call in calls))
    return shown.filter(known).stitch().union(shown.filter(~known))


def _differences(calls: Sequence[AggregateCall], shown: Stream, baselines: Mapping[str, str]) -> Stream:
    """Each value less the one before, of the same window as long as it is not dropped; null counts as 0."""
    before = shown.point_at_end().select(GROUP, **{f"{call.name} before": g.col(call.name) for call in calls})
    both = shown.with_columns(**{"$end": g.col("end")}).to_point().join(before, on=GROUP, how="left")
    both = both.alter_lifetime(end=g.col("$end"))
    results = {}
    for call in calls:
        if call.diff and call.function not in {"min", "max"}:
            known = 0 if call.function == "count" else 0.0
            baseline = g.coalesce(g.col(f"{call.name} before"), g.lit(known))
            if call.baseline is not None:
                always = re.fullmatch(r"baseline always ([\d.]+)", baselines.get(call.baseline, ""))
                if always is None:
                    raise UnsupportedError("RQL: no providers of baselines but constant ones")
                baseline = g.lit(type(known)(float(always[1])))
            results[call.name] = g.coalesce(g.col(call.name), g.lit(known)) - baseline
    return (both.with_columns(**results) if results else both).select(*shown.schema.names)


def _as(stream: Stream, life: str) -> Stream:
    return stream.with_columns(**{"$life": g.lit(life)})


def _since(part: Part, stream: Stream) -> Stream:
    """Rows from their coming until the window is empty; in a pinned one for good."""
    if part.pinned:
        return stream.keep_all().rows()
    there = stream.distinct(GROUP).with_columns(**{"$end": g.col("end")})
    entering = stream.to_point().join(there, on=GROUP)
    return entering.alter_lifetime(end=g.col("$end")).select(*stream.schema.names)


def _parts(calls: Sequence[AggregateCall]) -> dict[str, g.Aggregate]:
    """The aggregates, and beside those that need it how many values they are of."""
    found: dict[str, g.Aggregate] = {}
    for at, call in enumerate(calls):
        where = g.col("$life") == (_CAME if call.entrance_only else _IN)
        if call.function == "count":
            found[f"part {at}"] = g.count(where=where)
        else:
            found[f"part {at}"] = _FUNCTIONS[call.function](call.column, where=where)
            found[f"part {at} values"] = g.count(call.column, where=where)
    return found


def _result(call: AggregateCall, part: str) -> nw.Expr:
    found = g.col(part)
    if call.function in {"count", "min", "max"}:
        return found
    real = _real(found)
    if call.function in {"variance", "stddev"}:
        real = g.when(g.col(f"{part} values") == 1).then(g.lit(0.0)).otherwise(real)
    return g.when(real.is_finite()).then(real)
