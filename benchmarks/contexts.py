"""Sessions by login and logout as contexts, with their clicks counted where they end; prints a line of JSON for each.

    python -m benchmarks.contexts --batch 250000 --repeats 3

"one session": each of 10,000 users logs in once, and all sessions are there at a time. "ten sessions": each logs in ten
times, and some of the sessions have no click. The answers are compared with figures that another engine gave (Esper, on
one thread, 1.2 million events per CPU second) before times are told. The clock stays: logins and logouts are events.
"EPL, live": a runtime, to which stretches of time are sent; "verbs, batch": `collect`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gpu_ops as g
from benchmarks.workloads import splitmix64
from gpu_ops import epl

USERS, CLICKS = 10_000, 1_000_000
TEXT = """
    create context S initiated by Login as l terminated by Logout(user = l.user);
    context S select context.l.user as u, count(*) as c, sum(v) as s from Click(user = context.l.user)
    output last when terminated
"""
TYPES = {"Login": {"user": "long"}, "Logout": {"user": "long"}, "Click": {"user": "long", "v": "long"}}
KNOWN = {
    "one session": ((1, 1_000_000_000, 900_000_000), (10_000, 899_734, 449_930_571, 2_248_415_824_225)),
    "ten sessions": ((10, 100_000_000, 60_000_000), (100_000, 581_634, 290_807_001, 1_426_708_758_123)),
}
"""(how many sessions a user has, the period, the length, in microseconds) and what comes of it: rows, sums."""


def _hashed(seed: int, size: int) -> Any:
    index = np.arange(CLICKS, dtype=np.uint64)
    return (splitmix64(seed, index) % np.uint64(size)).astype(np.int64)


def streams(count: int, period: int, length: int) -> dict[str, pa.Table]:
    """Logins, clicks and logouts; where they come together, in this order."""
    user = np.tile(np.arange(USERS, dtype=np.int64), count)
    login = np.repeat(np.arange(count, dtype=np.int64), USERS) * period + user * 10_000
    clicks = np.arange(CLICKS, dtype=np.int64) * 1000 + 1 + _hashed(60, 998)
    return {
        "Login": pa.table({"t": login, "user": user}),
        "Click": pa.table({"t": clicks, "user": _hashed(61, USERS), "v": _hashed(62, 1000)}),
        "Logout": pa.table({"t": login + length, "user": user}),
    }


def batches(events: dict[str, pa.Table], size: int) -> list[dict[str, pa.Table]]:
    """The events of some stretches of time, each of about a number of events."""
    every = np.sort(np.concatenate([each["t"].to_numpy() for each in events.values()]))
    edges = [*every[size::size].tolist(), int(every[-1]) + 1]
    made, low = [], 0
    for high in edges:
        some = {}
        for name, table in events.items():
            first, last = np.searchsorted(table["t"].to_numpy(), [low, high])
            some[name] = table.slice(first, last - first)
        made.append({name: table for name, table in some.items() if len(table)})
        low = high
    return made


def answer(found: pa.Table) -> tuple[int, ...]:
    """How many rows there are, and the sums of counts, of sums, and of users times sums."""
    sums = found["s"].fill_null(0)
    parts = (found["c"], sums, pc.multiply(found["u"], sums))
    return (len(found), *(pc.sum(each).as_py() for each in parts))


def in_epl(events: dict[str, pa.Table], size: int) -> tuple[float, float, pa.Table]:
    """(wall seconds, CPU seconds, rows) of a runtime."""
    given = batches(events, size)
    runtime = epl.Runtime(TYPES)
    statement = runtime.deploy(TEXT)[-1]
    statement.deliveries()
    wall, cpu = time.perf_counter(), time.process_time()
    for each in given:
        runtime.replay(each, time="t")
    found = statement.deliveries()
    return time.perf_counter() - wall, time.process_time() - cpu, found


def by_verbs(events: dict[str, pa.Table], size: int) -> tuple[float, float, pa.Table]:
    """The same of data at rest, by verbs."""
    del size
    wall, cpu = time.perf_counter(), time.process_time()
    told = [g.events(each, start="t", unit="us", name=name) for name, each in events.items()]
    logins, clicks, logouts = g.arrivals(*told)
    sessions = logins.until(logouts, on="user")
    ends = clicks.within(sessions, on="user").at_ends(c=g.count(), s=g.sum("v"))
    found = ends.collect(device="cpu")
    return time.perf_counter() - wall, time.process_time() - cpu, found.rename_columns({"user": "u"})


WAYS: dict[str, Callable[[dict[str, pa.Table], int], tuple[float, float, pa.Table]]] = {
    "EPL, live": in_epl,
    "verbs, batch": by_verbs,
}


def measured(name: str, way: str, size: int) -> dict[str, Any]:
    """One run: what it took, if its answer is right."""
    shape, known = KNOWN[name]
    events = streams(*shape)
    wall, cpu, found = WAYS[way](events, size)
    if answer(found) != known:
        raise AssertionError(f"{name}, {way}: {answer(found)}, not {known}")
    count, took = sum(map(len, events.values())), {"wall": round(wall, 2), "cpu": round(cpu, 2)}
    return {"question": name, "way": way, "events": count, **took, "rate": count / cpu / 1e6}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=250_000)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    for name in KNOWN:
        for way in WAYS:
            runs = [measured(name, way, asked.batch) for _ in range(asked.repeats)]
            print(json.dumps(min(runs, key=lambda run: run["cpu"])), flush=True)


if __name__ == "__main__":
    main()
