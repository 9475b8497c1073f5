"""Runtimes of EPL whose checkpoints are damaged: what they hold, and what is asked of them afterwards."""

from __future__ import annotations

import random
import tempfile
import zipfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import gpu_ops as g
from gpu_ops import epl
from gpu_ops.epl.calls import ServiceCalls
from tests.fuzz.readers import look
from tests.fuzz.sound import the_same_names

TEXTS: dict[str, str] = {
    "length": "select irstream k, v, prev(1, v) as p from A#length(3)",
    "time": "select k, sum(v) as s, median(x) as m from A#time(5 sec) group by k",
    "batch": "select irstream * from A#time_batch(3 sec)",
    "sorted": "select irstream k, maxby(v).x as x from A#sort(3, v desc)",
    "unique": "select k, count(distinct v) as n from A#unique(k) group by rollup(k)",
    "condition": "select window(v) as w from A#expr(current_count < 4)",
    "several": "select irstream k from A#groupwin(k)#length(2)#unique(v) retain-union",
    "rate": "select k, v from A output last every 2 sec",
    "groups": "select k, sum(v) as s from A#keepall group by k output all every 3 events",
    "first": "select k, v from A group by k output first every 2 sec",
    "snapshot": "select k, sum(v) as s from A#time(4 sec) group by k output snapshot every 2 sec",
    "join": "select a.k as k, sum(b.w) as s from A#length(4) as a, B#time(6 sec) as b where a.k = b.k",
    "pairs": "select irstream a.v as v, b.w as w from A#time(3 sec) as a, B#time(6 sec) as b where a.k = b.k",
    "outer": "select a.v as v, b.w as w from A#lastevent as a full outer join B#keepall as b on a.k = b.k",
    "asking": "select v, (select sum(w) from B#length(2) as b where b.k = a.k) as s from A as a",
    "looking": "select v, prior(2, v) as p from A#time_accum(2 sec)",
    "variable": "create variable int least = 1; on B set least = w % 4; select v from A(v >= least)#length(3)",
    "alike": "select k, v * 2 as w from A(k = 'a' and v > 1)",
    "pattern": """select * from pattern [every a=A -> ([2:3] b=B(w > a.v) until c=A(k = a.k)) and
        (every-distinct(d.w, 4 sec) d=B where timer:withinmax(3 sec, 2))]""",
    "row pattern": """select * from A match_recognize (partition by k measures X.v as v, count(Y.v) as n
        pattern (X Y* Z) interval 2 sec define Y as Y.v > prev(Y.v), Z as Z.v + sum(Y.v) > X.v)""",
    "derived": "insert into C select k, v from A(v > 1); select irstream v from C#length_batch(2)",
}
"""Statements by what they are about."""

_TYPES = {"A": {"k": "string", "v": "int", "x": "double"}, "B": {"k": "string", "w": "int"}}


def _play(runtime: ServiceCalls, first: int, stop: int) -> None:
    for at in range(first, stop):
        runtime.send("A", {"k": None if at % 7 == 5 else "abc"[at % 3], "v": at % 5, "x": at / 4})
        runtime.send("B", {"k": "abc"[at % 2], "w": at})
        runtime.advance(at * 500)


@cache
def parts(name: str) -> dict[str, bytes]:
    """The members of the checkpoint of a runtime that has taken some events."""
    with tempfile.TemporaryDirectory() as folder, the_same_names():
        path = Path(folder, "runtime.checkpoint")
        runtime = epl.Runtime(_TYPES)
        for each in runtime.deploy(TEXTS[name]):
            each.deliveries()
        if name == "alike":
            for constant in ("'b'", "'c'"):
                runtime.deploy(TEXTS[name].replace("'a'", constant))
            runtime.groups[0].deliveries()
        runtime.deploy("create expression twice {x => x * 2}")
        _play(runtime, 0, 11)
        runtime.isolated("aside", start=7).deploy("@name('aside') select twice(sum(v)) as s from A#time(2 sec)")
        runtime.checkpoint(path)
        with zipfile.ZipFile(path) as archive:
            return {each: archive.read(each) for each in archive.namelist()}


def read(path: Path, chance: random.Random) -> None:
    """Go on from a checkpoint with more events. An error names the file."""
    try:
        runtime = epl.Runtime.restore(path)
    except g.GpuOpsError as error:
        if str(path) not in str(error):
            raise AssertionError("the error does not name the file") from error
        raise
    runtime.statements[0].listen(lambda new, old, statement: look(old if new is None else new))
    _play(runtime, 11, 24)
    _play(runtime.isolated("aside"), 1, 5)
    for statement in runtime.statements:
        assert statement.text
        look(statement.deliveries())
        with suppress(g.GpuOpsError):
            look(runtime.rows(statement.name))
    for group in runtime.groups:
        look(group.deliveries())
    if chance.random() < 0.3:
        runtime.checkpoint(path)
        epl.Runtime.restore(path)
