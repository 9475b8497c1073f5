"""Random statements in contexts, and scripts for them."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.epl_scripts import NAME, Advance, Scenario, Send, Step, scripts, statements

_OF_KEYS = (
    "partition by k from A",
    "partition by k, v from A",
    "partition by k from A, k from B",
    "partition by k from A terminated by A(v = 3)",
    "partition by k from A, k from B terminated by B(w > 1)",
    "partition by k from A as s terminated by A(x = s.x, v > s.v)",
    "partition by k from A initiated by A(v > 0) as s terminated by A(v = 0)",
    "partition by k from A terminated after 1 sec",
    "group v < 2 as low, group v > 0 as high from A",
    "coalesce by hash_code(k) from A granularity 2",
    "coalesce by hash_code(k, v) from A(v > 0) granularity 3",
    "coalesce by consistent_hash_crc32(k) from A, consistent_hash_crc32(k) from B granularity 3 preallocate",
)
_BY_EVENTS = (
    "initiated by B as s terminated by B(k = s.k)",
    "initiated by B as s terminated by A(v > s.w)",
    "initiated by B(w > 0) as s terminated by A(k = s.k, v = 0)",
    "initiated by B as s terminated after 1 sec",
    "initiated by distinct(k) B as s terminated by A(k = s.k, v = 0)",
    "initiated by distinct(w) B as s terminated after 1500 msec",
    "initiated by @now and B as s terminated by A(v = 3)",
    "start B as s end A(v = s.w)",
    "start B as s end B(w >= s.w)",
    "start B(w > 0) as s end after 1 sec",
)
_BY_CLOCK = (
    "start after 500 msec end after 1 sec",
    "start after 0 sec end A(v = 2)",
    "start after 1 sec end A(v = 2)",
    "start (*, *, *, *, *, */2) end (*, *, *, *, *, */3)",
    "initiated after 1 sec terminated after 1500 msec",
    "initiated by @now terminated after 2 sec",
)
_WITHIN = (
    "partition by k from A",
    "coalesce by hash_code(k) from A granularity 2",
    "group v < 2 as low, group v > 0 as high from A",
    "initiated by B as s terminated by B(k = s.k)",
    "initiated by @now terminated by A(v = 3)",
    "start B as s end after 1 sec",
)

_PLAIN = st.sampled_from([*_OF_KEYS, *_OF_KEYS, *_BY_EVENTS, *_BY_EVENTS, *_BY_CLOCK])
_OUTER = st.sampled_from([*_OF_KEYS, *_BY_EVENTS, *_BY_CLOCK])

CONTEXTS: st.SearchStrategy[str] = _PLAIN | st.tuples(_OUTER, st.sampled_from(_WITHIN)).map(
    lambda pair: f"context Outer {pair[0]}, context Inner {pair[1]}"
)
"""What stands behind `create context C`."""

_OUTPUTS = (
    *("",) * 5,
    " output snapshot when terminated",
    " output last when terminated",
    " output when terminated",
    " output every 2 events",
    " output last every 3 events and when terminated",
    " output when count_insert > 1 and when terminated and count_insert > 0",
)


@st.composite
def in_contexts(draw: st.DrawFn) -> Scenario:
    """A context, a statement in it, and a script."""
    context = draw(CONTEXTS)
    text, _ = draw(statements(limited=False))
    shown = ["", "context.id as cid, "]
    if " as s " in context and "Outer" not in context:
        shown.append("context.s.k as sk, ")
    select, rest = text.split(" from A", 1)
    head = f"@name('{NAME}') select "
    words = select.removeprefix(head)
    selector = next((word for word in ("irstream ", "rstream ") if words.startswith(word)), "")
    words = words.removeprefix(selector)
    distinct = "distinct " if words.startswith("distinct ") else ""
    items = words.removeprefix(distinct)
    more = "" if items == "*" else draw(st.sampled_from(shown))
    if more == "context.s.k as sk, " and not rest.startswith("(") and draw(st.booleans()):
        rest = f"(k = context.s.k){rest}"
    text = (
        f"create context C {context}; @name('{NAME}') context C select {selector}{distinct}{more}{items} "
        f"from A{rest}{draw(st.sampled_from(_OUTPUTS))}"
    )
    steps = draw(scripts(20))
    # When a batch falls due, rows that enter with it do not say; groups fall due each by itself; in several windows
    # together a timer goes on without its row; and crontabs of the interpreter keep the milliseconds of the clock.
    walks = "batch" in text or "groupwin" in text or "(*" in context or rest.count("#") > 1
    return Scenario(text, tuple(map(_walking, steps)) if walks else steps, in_any_order=True)


def _walking(step: Step) -> Step:
    return Advance(step.now, walks=True) if isinstance(step, Advance) else step


_TIMED_CONTEXTS = (
    "initiated by B as l terminated after 1 sec",
    "initiated by B as l terminated by A(k = l.k, v = 0)",
    "start B as l end after 1 sec",
    "start after 500 msec end after 1 sec",
    "initiated after 1 sec terminated after 1500 msec",
    "partition by k from A terminated after 1 sec",
    "initiated by distinct(k) B as l terminated after 1500 msec",
    "context O initiated by B as l terminated after 1 sec, context I partition by k from A",
    "context O start B as l end after 2 sec, context I initiated by A(v = 1) as a terminated after 700 msec",
)
_TIMED_WINDOWS = ("", "#length(2)", "#timetolive(ts)", "#time_accum(700 msec)")
_SPANS = (400, 900, 1000, 1500)
_TIMED_QUERIES = (
    *(("irstream v", ""), ("rstream v", ""), ("v, sum(v) as s", ""), ("irstream sum(v) as s", "")),
    *(("irstream k, count(*) as c", "group by k"), ("irstream k, v, sum(v) as s", "group by k")),
)
_RATES = (
    " output every 2 events",
    " output last every 2 events and when terminated",
    " output every 3 events and when terminated",
    " output when count_insert > 1 and when terminated and count_insert > 0",
    " output when terminated and count_insert >= 2",
)


@st.composite
def over_jumps(draw: st.DrawFn) -> Scenario:
    """A statement over windows of time in instances that the clock ends: it jumps over what falls due."""
    select, groups = draw(st.sampled_from(_TIMED_QUERIES))
    window = draw(st.sampled_from(_TIMED_WINDOWS) | st.sampled_from(_SPANS).map(lambda span: f"#time({span} msec)"))
    is_plain = not groups and "irstream sum" not in select
    output = draw(st.sampled_from([*_OUTPUTS[:8], *(_RATES if is_plain else ())]))
    steps, now = list[Step](), 0
    for letter in draw(st.lists(st.sampled_from("AAABBT"), min_size=8, max_size=24)):
        if letter == "T":
            now += draw(st.sampled_from([100, 400, 600, 900, 1500, 3000]))
            steps.append(Advance(now))
        elif letter == "B":
            steps.append(Send("B", {"k": draw(st.sampled_from("ab")), "w": 1}))
        else:
            key, v = draw(st.sampled_from("ab")), draw(st.integers(0, 2))
            stamp = now + draw(st.sampled_from([-500, 0, 300, 900]))
            steps.append(Send("A", {"k": key, "v": v, "x": 1.0, "ts": stamp}))
    return Scenario(
        f"create context C {draw(st.sampled_from(_TIMED_CONTEXTS))}; "
        f"@name('{NAME}') context C select {select} from A{window} {groups}{output}",
        tuple(steps),
        in_any_order=True,
    )
