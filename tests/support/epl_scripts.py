"""Random statements over one stream, and scripts for them: events with few values, so that ties happen, and a clock.

Statements are texts, put together of parts that fit each other in Esper. What Esper leaves open is left out or marked:
rows that have no order are to be compared in any order, and nothing is cut off from such rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.epl_recorded import Engine, same

SCHEMA: Mapping[str, Mapping[str, str]] = {
    "A": {"k": "string", "v": "int", "x": "double", "ts": "long"},
    "B": {"k": "string", "w": "int"},
}
"""The types of events: statements are about A, and B is there so that not all events are theirs."""

NAME = "s"
"""What the statement is called."""


class Send(NamedTuple):
    """An event comes."""

    type_name: str
    row: Mapping[str, Any]


class Advance(NamedTuple):
    """The clock is set, or walks there: by steps of a resolution, else to each time at which something is due."""

    now: int
    walks: bool = False
    resolution: int | None = None


Step = Send | Advance


@dataclass(frozen=True)
class Scenario:
    """A statement and what happens to it.

    Attributes:
        text: The statement.
        steps: What happens, from clock 0 on.
        in_any_order: Whether the rows of a delivery have no order that Esper promises.
    """

    text: str
    steps: tuple[Step, ...]
    in_any_order: bool


# Scripts

_KEYS = st.sampled_from(["a", "b", "c", None])
_NUMBERS = st.sampled_from([0, 1, 2, 3, None])
_FRACTIONS = st.sampled_from([-0.5, 0.0, 0.25, 2.0, None])
_STAMPS = st.integers(0, 24).map(lambda quarters: quarters * 250)
_EVENTS = st.builds(
    Send, st.just("A"), st.fixed_dictionaries({"k": _KEYS, "v": _NUMBERS, "x": _FRACTIONS, "ts": _STAMPS})
)
_OTHERS = st.builds(Send, st.just("B"), st.fixed_dictionaries({"k": _KEYS, "w": _NUMBERS}))
_WAITS = st.tuples(
    st.sampled_from([1, 249, 250, 500, 500, 1000, 1000, 1500, 2500, 6000]),
    st.sampled_from([(False, None), (False, None), (False, None), (True, None), (True, 500)]),
)


@st.composite
def scripts(draw: st.DrawFn, most: int = 16, least: int = 1) -> tuple[Step, ...]:
    """From so few to so many steps; the clock begins at 0 and does not go back."""
    now = 0
    steps: list[Step] = []
    for step in draw(st.lists(_EVENTS | _EVENTS | _OTHERS | _WAITS, min_size=least, max_size=most)):
        if isinstance(step, Send):
            steps.append(step)
        else:
            wait, (walks, resolution) = step
            now += wait
            steps.append(Advance(now, walks, resolution))
    return tuple(steps)


# Windows

_SPAN = st.sampled_from(["500 msec", "1 sec", "2 sec"])
_SIZE = st.sampled_from(["1", "2", "3"])
_KEY = st.sampled_from(["k", "v", "k, v"])
_SORTED = st.sampled_from(["v", "v desc", "k, v desc", "x, ts"])


def _view(name: str, *parameters: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parameters).map(lambda given: f"#{name}({', '.join(given)})")


_SLIDING = (
    st.sampled_from(["#keepall", "#firsttime(2 sec)"])
    | _view("length", _SIZE)
    | _view("time", _SPAN)
    | _view("time_accum", _SPAN)
    | _view("ext_timed", st.just("ts"), _SPAN)
)
_IN_ORDER = (
    _view("sort", _SIZE, _SORTED)
    | _view("rank", st.just("k"), _SIZE, _SORTED)
    | _view("time_order", st.just("ts"), _SPAN)
    | st.just("#timetolive(ts)")
)
_OF_CONDITIONS = st.sampled_from(
    [
        "#expr(current_count <= 2)",
        "#expr(oldest_timestamp > newest_timestamp - 1000)",
        "#expr(sum(v) < 4 or count(*) = 1)",
        "#expr_batch(current_count > 2)",
        "#expr_batch(newest_event.k = 'a', false)",
        "#expr_batch(sum(v) >= 4)",
    ]
)
_BATCHES = (
    _view("length_batch", _SIZE)
    | _view("time_batch", _SPAN)
    | st.sampled_from(["#time_batch(1 sec, 200L)", "#time_batch(1 sec, 'START_EAGER,FORCE_UPDATE')"])
    | _view("time_length_batch", _SPAN, _SIZE)
    | st.just("#time_length_batch(1 sec, 2, 'FORCE_UPDATE')")
    | _view("ext_timed_batch", st.just("ts"), _SPAN)
)
_OF_KEYS = _view("unique", _KEY) | _view("firstunique", _KEY)
_FIRST_AND_LAST = st.sampled_from(["#lastevent", "#firstevent"]) | _view("firstlength", _SIZE)

_WITH_PREVIOUS = _SLIDING.filter(lambda view: "firsttime" not in view) | _IN_ORDER | _OF_CONDITIONS | _BATCHES
"""Windows that `prev` can look into."""


class Windows(NamedTuple):
    """The views of a stream.

    Attributes:
        text: What stands behind the type.
        has_order: Whether what leaves at once, and what is held, has an order.
        has_previous: Whether `prev` can look into it.
        is_alone: Whether it is one window, and none of groups.
    """

    text: str
    has_order: bool = True
    has_previous: bool = False
    is_alone: bool = True


_PLAIN = (
    st.just(Windows(""))
    | _WITH_PREVIOUS.map(lambda text: Windows(text, has_previous=True))
    | _FIRST_AND_LAST.map(Windows)
    | _OF_KEYS.map(lambda text: Windows(text, has_order=False))
)
_GROUPED = st.tuples(_KEY, _WITH_PREVIOUS | _FIRST_AND_LAST).map(
    lambda pair: Windows(f"#groupwin({pair[0]}){pair[1]}", has_order=False, is_alone=False)
)
_TOGETHER = st.lists(
    (_SLIDING | _OF_KEYS | _FIRST_AND_LAST | _view("sort", _SIZE, _SORTED)).filter(
        lambda view: "firsttime" not in view
    ),
    min_size=2,
    max_size=3,
)
_SEVERAL = st.tuples(_TOGETHER, st.sampled_from([" retain-union", ""])).map(
    lambda pair: Windows("".join(pair[0]) + pair[1], has_order=False, is_alone=False)
)
windows: st.SearchStrategy[Windows] = _PLAIN | _PLAIN | _GROUPED | _SEVERAL


# What is selected

AGGREGATES = (
    "sum(v)",
    "sum(x)",
    "avg(v)",
    "count(*)",
    "count(v)",
    "count(distinct v)",
    "sum(distinct v)",
    "min(v)",
    "max(x)",
    "median(v)",
    "stddev(v)",
    "avedev(x)",
    "sum(v, v > 1)",
    "count(*, filter: k = 'a')",
    "fmin(v, v > 1)",
    "first(v)",
    "last(v)",
    "first(ts, 1)",
    "last(ts, 1)",
    "window(ts)",
    "nth(v, 1)",
    "minever(v)",
    "maxever(x)",
    "firstever(v)",
    "lastever(v)",
    "countever(*)",
    "leaving()",
    "maxby(v).ts",
    "minby(x).ts",
    "maxbyever(v).ts",
    "coalesce(sum(v), 0) + count(*)",
)
"""Aggregates, and what is made of them."""

_COLUMNS = ("k", "v", "x", "ts", "v * 2", "coalesce(v, -1)", "prior(1, v)", "current_timestamp()")
_PREVIOUS = ("prev(1, ts)", "prevtail(0, ts)", "prevcount(ts)", "prevwindow(ts)")
_GROUPS = (("k",), ("k", "v"), ("v",))
_ROLLUPS = ("rollup(k)", "rollup(k, v)", "cube(k, v)", "grouping sets((k, v), v, ())", "k, rollup(v)")

_CONDITIONS = ("v > 1", "k = 'a'", "v in (0, 2)", "k is not null and v < 3", "v between 3 and 1", "not x > 0.0")
_RATES = ("every 1 sec", "every 500 msec", "every 2 events", "every 3 events", "when count_insert >= 2")

KINDS = ("plain", "all", "event", "group", "event of group", "rollup")


@st.composite
def statements(draw: st.DrawFn, kinds: Sequence[str] = KINDS, *, limited: bool = True) -> tuple[str, bool]:
    """The text of a statement of one of these kinds, and whether its rows are to be compared in any order.

    Args:
        draw: Draws.
        kinds: The kinds.
        limited: Whether it may have an output rate, an order and a limit.
    """
    kind = draw(st.sampled_from(list(kinds)))
    window = draw(windows)
    keys, grouping = _grouping(draw, kind)
    items = _items(draw, kind, keys, window)
    selector = draw(st.sampled_from(["", "irstream ", "irstream ", "rstream "]))
    is_grouped = kind in {"group", "event of group", "rollup"}
    distinct = "distinct " if kind in {"plain", "event"} and draw(_seldom) else ""
    where = f" where {draw(st.sampled_from(_CONDITIONS))}" if draw(_sometimes) else ""
    filters = f"({draw(st.sampled_from(_CONDITIONS))})" if draw(_seldom) else ""
    having = _having(draw, kind) if draw(_seldom) else ""
    output = _output(draw, kind, window) if limited and draw(_sometimes) else ""
    order = _order(draw, kind, keys) if limited and kind != "all" and draw(_seldom) else ""
    total = window.is_alone and window.has_order and kind in {"plain", "event"}
    total = total and not any(word in output for word in (" all ", " last ", " first "))
    limit = draw(st.sampled_from([" limit 1", " limit 2", " limit 2 offset 1"])) if total and draw(_seldom) else ""
    text = (
        f"@name('{NAME}') select {selector}{distinct}{', '.join(items)} from A{filters}{window.text}"
        f"{where}{grouping}{having}{output}{order}{limit}"
    )
    return text, is_grouped or not window.has_order


_sometimes = st.booleans()
_seldom = st.sampled_from([False, False, False, True])


def _grouping(draw: st.DrawFn, kind: str) -> tuple[tuple[str, ...], str]:
    if kind == "rollup":
        rollup = draw(st.sampled_from(_ROLLUPS))
        return ("k", "v") if "v" in rollup else ("k",), f" group by {rollup}"
    if kind in {"group", "event of group"}:
        keys = draw(st.sampled_from(_GROUPS))
        return keys, f" group by {', '.join(keys)}"
    return (), ""


def _items(draw: st.DrawFn, kind: str, keys: Sequence[str], window: Windows) -> list[str]:
    several = st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3, unique=True)
    columns = [*_COLUMNS, *(_PREVIOUS if window.has_previous else ())]
    plain = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
    if kind == "plain":
        return ["*"] if draw(_seldom) else plain
    if kind == "all":
        return draw(several)
    if kind == "event":
        return [*plain, *draw(several)]
    if kind == "event of group":
        return [*keys, "ts", *draw(several)]
    return [*keys, *draw(several)]


def _having(draw: st.DrawFn, kind: str) -> str:
    plain, aggregated = ["v > 0", "x is null"], ["sum(v) > 2", "count(*) >= 2", "max(v) > min(v)"]
    return f" having {draw(st.sampled_from(plain if kind == 'plain' else aggregated))}"


def _output(draw: st.DrawFn, kind: str, window: Windows) -> str:
    selections = ["", "all ", "snapshot ", "first "]
    if window.is_alone or kind in {"all", "group", "rollup"}:  # else it is open which of several rows is the last
        selections.append("last ")
    selection = draw(st.sampled_from(selections))
    is_first_of_groups = selection == "first " and kind in {"group", "event of group", "rollup"}
    after = "" if is_first_of_groups else draw(st.sampled_from(["", "", "", "after 1 sec ", "after 2 events "]))
    rate = draw(st.sampled_from([each for each in _RATES if not (is_first_of_groups and each.startswith("when"))]))
    return f" output {after}{selection}{rate}"


def _order(draw: st.DrawFn, kind: str, keys: Sequence[str]) -> str:
    """Groups are put in an order by all of their keys, so that there are no ties."""
    if kind in {"group", "rollup"}:
        return f" order by {', '.join(key + draw(st.sampled_from(['', ' desc'])) for key in keys)}"
    return f" order by {draw(st.sampled_from(['v', 'k desc, v', 'x', 'ts desc']))}"


@st.composite
def scenarios(
    draw: st.DrawFn, kinds: Sequence[str] = KINDS, script: st.SearchStrategy[tuple[Step, ...]] | None = None
) -> Scenario:
    """A statement of one of these kinds, and a script."""
    text, in_any_order = draw(statements(kinds))
    return Scenario(text, draw(scripts() if script is None else script), in_any_order)


# Two streams

_OTHER_WINDOWS = st.sampled_from(
    ["#keepall", "#length(1)", "#length(2)", "#time(1 sec)", "#lastevent", "#unique(k)", "#length_batch(2)"]
)
_MATCHES = st.sampled_from(["a.k = b.k", "a.v = b.w", "a.k = b.k and a.v > b.w", "a.v < b.w"])


@st.composite
def joins(draw: st.DrawFn, script: st.SearchStrategy[tuple[Step, ...]] | None = None) -> Scenario:
    """A join of A and B, and a script. Its rows have no order."""
    kind = draw(st.sampled_from([",", "inner join", "left outer join", "right outer join", "full outer join"]))
    if draw(_seldom):
        first, second, kind = (
            "A as a unidirectional",
            f"B{draw(_OTHER_WINDOWS)} as b",
            draw(st.sampled_from([",", kind])),
        )
    else:
        first, second = f"A{draw(_OTHER_WINDOWS)} as a", f"B{draw(_OTHER_WINDOWS)} as b"
    match = draw(_MATCHES)
    condition = f" where {match}" if kind == "," else f" on {match}{' where a.v > 0' if draw(_seldom) else ''}"
    items, grouping = draw(
        st.sampled_from(
            [
                ("a.k as k, a.v as v, b.w as w", ""),
                ("sum(b.w) as s, count(*) as n", ""),
                ("a.v as v, sum(b.w) as s", ""),
                ("a.k as k, sum(b.w) as s, count(*) as n", " group by a.k"),
                ("a.k as k, b.w as w, max(a.v) as m", " group by a.k"),
            ]
        )
    )
    output = draw(
        st.sampled_from(["", "", " output every 1 sec", " output snapshot every 1 sec", " output every 2 events"])
    )
    selector = draw(st.sampled_from(["", "irstream ", "rstream "]))
    between = ", " if kind == "," else f" {kind} "
    text = f"@name('{NAME}') select {selector}{items} from {first}{between}{second}{condition}{grouping}{output}"
    return Scenario(text, draw(scripts() if script is None else script), in_any_order=True)


_ASKING = (
    "v, (select sum(w) from B#length(2)) as s",
    "v, (select w from B#lastevent) as w",
    "v, (select count(*) from B#keepall where k = a.k) as n",
    "v, exists (select * from B#time(1 sec) as b where b.k = a.k) as e",
    "v, v in (select w from B#length(3)) as i",
    "v, v > all (select w from B#unique(k)) as g",
    "v, (select count(*) from A#length(2)) as n",
)


@st.composite
def asking(draw: st.DrawFn) -> Scenario:
    """A statement over A that asks sub-queries, and a script."""
    items = draw(st.sampled_from(_ASKING))
    window = draw(st.sampled_from(["", "#length(2)", "#time(1 sec)"]))
    where = draw(
        st.sampled_from(["", " where exists (select * from B#length(1) as b where b.w = a.v)", " where v > 0"])
    )
    text = f"@name('{NAME}') select irstream {items} from A{window} as a{where}"
    return Scenario(text, draw(scripts()), in_any_order=False)


# Running them

Rows = Sequence[Mapping[str, Any]] | None
Trace = list[list[tuple[Rows, Rows]]]
"""What the statement delivers at each step."""


def done(step: Step, engine: Engine) -> list[tuple[Rows, Rows]]:
    """Do a step; what the statement delivers at it."""
    match step:
        case Send(type_name, row):
            deliveries = engine.send(type_name, row)
        case Advance(now, False):
            deliveries = engine.advance(now)
        case Advance(now, True, resolution):
            deliveries = engine.advance_span(now, resolution)
    return [(each.new, each.old) for each in deliveries if each.statement == NAME]


def played(scenario: Scenario, engine: Engine) -> Trace:
    """What an engine that has no statements yet makes of a scenario."""
    engine.deploy(scenario.text)
    return [done(step, engine) for step in scenario.steps]


def same_traces(found: Trace, wanted: Trace, scenario: Scenario) -> bool:
    """Whether two engines delivered the same."""
    return len(found) == len(wanted) and all(
        len(mine) == len(theirs)
        and all(
            same(rows, other, in_any_order=scenario.in_any_order)
            for pair in zip(mine, theirs, strict=True)
            for rows, other in zip(*pair, strict=True)
        )
        for mine, theirs in zip(found, wanted, strict=True)
    )
