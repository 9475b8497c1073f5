"""Random statements in contexts, and scripts for them."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.support.epl_scripts import NAME, Advance, Scenario, Step, scripts, statements

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

_OUTPUTS = ("", "", "", " output snapshot when terminated", " output last when terminated", " output when terminated")


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
    # When a batch falls due, rows that enter with it do not say.
    return Scenario(text, tuple(map(_walking, steps)) if "batch" in text else steps, in_any_order=True)


def _walking(step: Step) -> Step:
    return Advance(step.now, walks=True) if isinstance(step, Advance) else step
