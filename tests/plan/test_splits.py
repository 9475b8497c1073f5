"""Which plans on turns can be split among tasks, by which columns, and what they need to see of the clock."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.api.arrivals import ArrivalStream
from gpu_ops.errors import PlanError
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.splits import Split

TABLE = pa.table({"at": [0], "seq": [1], "k": ["a"], "l": ["x"], "v": [5]})


def _split(node: Node) -> Split:
    known: dict[Node, Split] = {}
    for each in node.walk():
        # A source is below the ledger, which does not ask it.
        known[each] = each.split([known[below] for below in each.inputs]) if "@" in str(each.schema) else Split()
    return known[node]


def _arrivals() -> ArrivalStream:
    stream: ArrivalStream = g.arrivals(g.events(TABLE, start="at", unit="s"), order="seq")
    return stream


def _keys(split: Split) -> set[str] | None:
    """The keys as ``stream.column=stream.column``."""
    if split.keys is None:
        return None
    return {"=".join(f"{number}.{name}" for number, name in sorted(key)) for key in split.keys}


def _asked(stream: g.Stream) -> Split:
    (deliveries,) = stream._node.inputs
    return _split(deliveries)


def _told(text: str) -> Split:
    return _asked(epl.query(text, A=TABLE, B=TABLE, order="seq", time="at"))


@pytest.mark.parametrize(
    ("ask", "keys", "spans"),
    [
        (lambda a: a.deliveries("v"), None, set()),
        (lambda a: a.keep_all().deliveries("v", order_by="v"), None, set()),
        (lambda a: a.last_span("2s").deliveries("v"), None, {2_000_000}),
        (lambda a: a.by("k").last(2).deliveries("v"), {"0.k"}, set()),
        (lambda a: a.by("k").session("3s").deliveries("v"), {"0.k"}, {3_000_000}),
        (lambda a: a.by("k").time_batches("3s").deliveries("v"), {"0.k"}, None),
        (lambda a: a.unique("k", "l").deliveries("v"), {"0.k", "0.l"}, set()),
        (lambda a: a.by("k").unique("l").deliveries("k", n=g.count(), by=("k", "v")), {"0.k"}, set()),
        (lambda a: a.deliveries("k", "v", by="k").output("first", every="2s"), {"0.k"}, set()),
    ],
)
def test_verbs(ask: Callable[[ArrivalStream], g.Stream], keys: set[str] | None, spans: set[int] | None) -> None:
    split = _asked(ask(_arrivals()))
    assert (_keys(split), split.spans) == (keys, spans)


@pytest.mark.parametrize(
    ("text", "keys", "spans"),
    [
        ("select k as l from A(v > 1)", None, set()),
        ("select a.v from A#unique(k) as a, B#unique(l) as b where a.k = b.l", {"0.k=1.l"}, set()),
        ("select a.v from A#unique(k) as a full outer join B#unique(k) as b on a.k = b.k", {"0.k=1.k"}, set()),
        ("select v, (select max(v) from B#unique(l) as b where b.l = a.k) as m from A as a", {"0.k=1.l"}, set()),
        (
            "insert into C select k from A; insert into C select l as k from B; select k from C#unique(k)",
            {"0.k=1.l"},
            set(),
        ),
        ("insert into C select k, v from A; select v from C#time(1)", None, None),
        ("select k, sum(v) as s from A#time(1 month) group by k", {"0.k"}, None),
        ("select k, avg(count(*)) as m from A#groupwin(k)#length(2) group by k", {"0.k"}, set()),
    ],
)
def test_texts(text: str, keys: set[str] | None, spans: set[int] | None) -> None:
    split = _told(text)
    assert (_keys(split), split.spans) == (keys, spans)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("select sum(v) from A", "An aggregate over all events"),
        ("select v, sum(v) from A#unique(k)", "sum over all events"),
        ("select avg(count(*)) as m from A#unique(k)", ""),
        ("select v from A#length(3)", "The window last 3"),
        ("select k, sum(v) from A#length(3) group by k", "The window last 3"),
        ("select k, sum(v) from A#unique(l) group by k", "An aggregate of groups by which its windows are not"),
        ("select v from A#ext_timed(at, 1 sec)", "A window by stamps"),
        ("select v from A limit 2", "A limit of each delivery's rows"),
        ("select distinct v from A#unique(k)", "Leaving out equal rows"),
        ("select v from A output every 3 events", "The output rate every 3 rows"),
        ("select v from A output snapshot every 3 sec", "The output rate every 3s"),
        ("select k, count(*) from A group by k output last every 3 sec", "The output rate"),
        ("select prior(1, v) from A", "Looking back at rows of any key"),
        ("select a.v from A#unique(k) as a, B#unique(k) as b where a.v > b.v", "A join"),
        ("select a.v from A#unique(k) as a, B#unique(l) as b where a.k = b.k", "A join"),
        ("select (select max(v) from B#unique(k)) as m from A", "A sub-query"),
        ("insert into C select k || l as k from A; select k from C#unique(k)", "The window last 1"),
        (
            "insert into C select k from A; insert into C select l as k from A; select k from C#unique(k)",
            "The window last 1",
        ),
        ("select k, l, sum(v) from A group by rollup(k, l)", "An aggregate over all events"),
    ],
)
def test_what_needs_one_order_is_refused_by_name(text: str, said: str) -> None:
    with pytest.raises(PlanError, match=f"^{said}.* needs all events in one order"):
        _told(text)


def test_nulls_of_an_outer_join_are_no_key() -> None:
    """Rows without a match have the same null, and are in the tasks of their own keys."""
    stream = g.events(TABLE, start="at", unit="s")
    one, two = g.arrivals(stream, stream, order="seq")
    pairs = one.unique("k").join(two.unique("k"), on="k", how="left")
    assert _keys(_asked(pairs.deliveries("k", n=g.count(), by="k"))) == {"0.k=1.k"}
    with pytest.raises(PlanError, match="An aggregate of groups"):
        _asked(pairs.deliveries("k_right", n=g.count(), by="k_right"))
