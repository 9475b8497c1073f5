"""Texts of contexts by key over streams A and B, with columns k and v: the order of a key decides in all of them."""

from __future__ import annotations

KEYED = "create context C partition by k from A, k from B"
BEGUN = f"{KEYED} initiated by A(v > 1) as s"
OF_TWO = {
    "an aggregate": f"{KEYED}; context C select context.key1 as k, sum(v) as s, count(*) as n from B#length(2)",
    "a window of time": f"{KEYED}; context C select irstream k, v from A#time(3)",
    "a join": (
        f"{KEYED}; context C select irstream a.k as k, a.v as v, b.v as w from A#time(9) as a, B#length(2) as b"
    ),
    "an outer join": (
        f"{KEYED}; context C select a.k as k, a.v as v, b.v as w from A#time(9) as a left outer join B#length(2) as b"
        " on a.v = b.v"
    ),
    "an outer join to the right": (
        f"{KEYED}; context C select b.k as k, a.v as v, b.v as w from A#time(9) as a right outer join B#length(2) as b"
        " on a.v = b.v"
    ),
    "a sub-query": f"{KEYED}; context C select k, v, (select max(v) from B#keepall) as m from A",
    "a sub-query with a condition": (
        f"{KEYED}; context C select k, v, (select count(*) from B#keepall as b where b.v < a.v) as m from A as a"
    ),
    "a pattern": f"{KEYED}; context C select a.k as k, a.v as v, b.v as w from pattern [every a=A -> b=B(v >= a.v)]",
    "a pattern in time": (
        f"{KEYED}; context C select a.k as k, a.v as v from pattern [every a=A -> (timer:interval(3 sec) and not B)]"
    ),
    "started by one, the other only moves the clock": f"{BEGUN}; context C select k, sum(v) as s from A",
    "started by one and ended by the other": (
        f"{BEGUN} terminated by B(v > 1); context C select context.s.v as w, k, sum(v) as s from A"
        " output last when terminated"
    ),
    "ended by a pattern": (
        f"{BEGUN} terminated by pattern [B(v > 1)]; context C select k, count(*) as n from A"
        " output snapshot when terminated"
    ),
    "ended by the clock": (
        f"{KEYED} terminated after 4 sec; context C select k, sum(v) as s from B output last every 2 sec"
    ),
    "one at a time of a value": (
        "create context C initiated by distinct(k) A as s terminated by B(k = s.k);"
        " context C select context.s.k as k, sum(v) as s from A(k = context.s.k) output last when terminated"
    ),
    "one for each event": (
        "create context C initiated by A as s terminated by B(k = s.k and v >= s.v);"
        " context C select context.s.k as k, context.s.v as w, sum(v) as s from B(k = context.s.k)"
    ),
    "one for each event, ended by the clock": (
        "create context C initiated by A as s terminated after 4 sec;"
        " context C select context.s.k as k, context.s.v as w, count(*) as n from B(k = context.s.k)"
        " output last when terminated"
    ),
    "nested": (
        "create context O context P partition by k from A, k from B, context I initiated by A(v > 1) terminated by"
        " B(v > 1); context O select context.P.key1 as k, sum(v) as s from A output last when terminated"
    ),
    "nested keys": (
        "create context O context P partition by k from A, k from B, context I partition by v from A, v from B;"
        " context O select context.P.key1 as k, context.I.key1 as v, count(*) as n from A"
    ),
}
"""In none of them does a delivery show what counts the events of several keys."""
