"""StreamCruncher's alerts: patterns of streams that have a value in common, as joins.

A cycle removes rows first and then adds others. So it has two ticks on the axis here: a row that comes in cycle 3 and
is expelled in cycle 5 lives for ``[7, 10)``, and a value that is gone at tick 10 and comes again at tick 11 was away.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import narwhals as nw
import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.rql_structure import Alert
from tests.conformance.streamcruncher_windows import NEVER, PLACE, instant, number
from tests.support.ticks import us

_VALUE, _BORN, _FROM, _TO = "$value", "$born", "$from", "$to"
_ONE = "1us"
_TYPES: Mapping[pa.DataType, Any] = {pa.int64(): g.Int64, pa.float64(): g.Float64, pa.string(): g.String}


def fired(alert: Alert, streams: Mapping[str, Stream]) -> Stream:
    """The rows of an alert, each in the cycle in which its pattern fires."""
    compared = dict(alert.on)
    sources = {}
    for alias, stream in streams.items():
        shown = {name: g.col(column) for of, column, name in alert.columns if of == alias}
        place = {PLACE: g.col(PLACE)} if PLACE in stream.schema.names else {}
        sources[alias] = _Rows(_halved(stream).select(**{_VALUE: g.col(compared[alias]), **shown, **place}))
    types = {name: streams[alias].schema.field(column).type for alias, column, name in alert.columns}
    first, *others = (_pattern(dict(pattern), sources, types) for pattern in alert.patterns)
    return first.union(*others)


class _Rows:
    """The rows of a stream by the value that is compared.

    Attributes:
        there: When each value is there: from its coming on until any row with it is expelled.
        came: A point when one comes.
        latest: The row with each value that came last.
    """

    def __init__(self, rows: Stream) -> None:
        names = [name for name in rows.schema.names if name != PLACE]
        order = PLACE if PLACE in rows.schema.names else None
        self.there = rows.clip_by(rows.point_at_end(), on=_VALUE).distinct(_VALUE)
        self.came = rows.to_point().select(_VALUE)
        self.latest = rows.unique(_VALUE, order=order).rows().select(*names)


def _pattern(pattern: Mapping[str, bool], sources: Mapping[str, _Rows], types: Mapping[str, pa.DataType]) -> Stream:
    """One pattern: the first time that it is complete since the value was in none of its streams."""
    wanted = [sources[alias] for alias, is_there in pattern.items() if is_there]
    absent = [sources[alias].there for alias, is_there in pattern.items() if not is_there]
    together = reduce(lambda left, right: left.join(right, on=_VALUE), (each.there for each in wanted))
    together = together.with_columns(**{_TO: number(g.col("end"))})
    came = wanted[0].came.union(*(each.came for each in wanted[1:])).distinct(_VALUE)
    first, *others = (sources[alias].there for alias in pattern)
    known = first.union(*others).distinct(_VALUE).with_columns(**{_BORN: number(g.col("start"))})
    complete = together.join(came, on=_VALUE).with_columns(**{_FROM: number(g.col("start"))}).join(known, on=_VALUE)
    for other in absent:
        complete = complete.join(other, on=_VALUE, how="anti")
    complete = complete.by(_VALUE, _BORN).first(1).rows()
    now, cycle = g.col(_FROM), g.col(_FROM) // 2
    if absent:
        # Nothing that is not to be there may come until one of the others leaves: that is when it fires.
        armed = complete.alter_lifetime(end=instant(g.col(_TO)))
        for other in absent:
            armed = armed.join(other, on=_VALUE, how="anti")
        whole = (number(g.col("start")) == g.col(_FROM)) & (number(g.col("end")) == g.col(_TO))
        complete = armed.filter(whole & (g.col(_TO) < 2 * NEVER))
        now, cycle = g.col(_TO) - 1, g.col(_TO) // 2
    complete = complete.alter_lifetime(start=instant(now), duration=us(_ONE))
    for each in wanted:
        complete = complete.join(each.latest, on=_VALUE)
    in_cycles = complete.alter_lifetime(start=instant(cycle), duration=us(_ONE))
    missing = {name: g.lit(None).cast(_TYPES[kind]) for name, kind in types.items()}
    return in_cycles.select(
        **{name: g.col(name) if name in in_cycles.schema.names else missing[name] for name in types}
    )


def _halved(stream: Stream) -> Stream:
    start, end = number(g.col("start")), number(g.col("end"))
    return stream.alter_lifetime(start=instant(start * 2 + 1), end=instant(_twice(end)))


def _twice(end: nw.Expr) -> nw.Expr:
    return g.when(end < NEVER).then(end * 2).otherwise(g.lit(2 * NEVER))
