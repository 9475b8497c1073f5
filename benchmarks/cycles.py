"""Queries in cycles over events in order of time; prints a line of JSON for each.

    python -m benchmarks.cycles --events 1000000 --repeats 3

Each event comes in a millisecond of its own. Rates are millions of events per second of CPU time, the median of the
repeats, from events in memory to the answer as an Arrow table. `rql` is the same query as a text, with the same rows in
its answer, and `ratio` its CPU time over that of the verbs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import gpu_ops as g
from benchmarks.workloads import splitmix64
from gpu_ops import rql

_GOALS = {"chain": 3.0, "alerts": 3.0, "denial": 5.0, "highest": 1.0}
"""Millions of events per CPU second."""


def events(count: int) -> pa.Table:
    """Events in order of time, one in each millisecond: an id, a stream, keys and a number, all int64."""
    index = np.arange(count, dtype=np.uint64)

    def hashed(seed: int, size: int) -> Any:
        return (splitmix64(seed, index) % np.uint64(size)).astype(np.int64)

    at = pa.array(np.arange(count, dtype=np.int64) * 1000).cast(pa.timestamp("us", "UTC"))
    pair = np.arange(count, dtype=np.int64) // 3
    return pa.table(
        {
            "at": at,
            "id": pair,
            "stream": hashed(5, 3),
            "country": hashed(1, 200),
            "ip": hashed(2, 5000),
            "v": hashed(3, 1000),
        }
    )


def chain(stream: g.Stream) -> g.Stream:
    """How many came by country in five seconds, and of these counts the ones between 10 and 30."""
    counts = g.cycles(stream).partition("country").last_span("5s").agg(n=g.count())
    some = counts.became("new").where(g.col("n") >= 10, g.col("n") <= 30)
    made: g.Stream = some.partition().last_span("5s").new()
    return made


def alerts(stream: g.Stream) -> g.Stream:
    """Orders of three stages, and which of these are missing after five seconds."""
    coming = g.cycles(stream)
    stages = {
        name: coming.where(g.col("stream") == at).partition().last_span("5s")
        for at, name in enumerate(("one", "two", "three"))
    }
    return g.alert(
        stages,
        on="id",
        when=[
            g.present("one", "two", absent="three"),
            g.present("one", "three", absent="two"),
            g.present("one", "two", "three"),
        ],
        columns={name: (name, "id") for name in stages},
    )


def denial(stream: g.Stream) -> g.Stream:
    """Requests of each address in thirty minutes and in all (the seed's denial-of-service query)."""
    windows = g.cycles(stream).partition("ip").last_span("30min")
    counters = windows.agg(recent=g.count(), total=g.count(), pinned=True, entrance="total")
    made: g.Stream = counters.new().filter(g.col("recent") > 75)
    return made


def highest(stream: g.Stream) -> g.Stream:
    """The five largest sums, each of which updates the one before."""
    sums = g.cycles(stream).partition("country").last_span("30s").agg(total=g.sum("v"))
    made: g.Stream = sums.became("new").partition().highest(5, "total", update="country").new()
    return made


QUERIES: dict[str, Callable[[g.Stream], g.Stream]] = {
    "chain": chain,
    "alerts": alerts,
    "denial": denial,
    "highest": highest,
}


_STAGE = "coming (partition store last 5 seconds where stream = {}) as {} correlate on id"

TEXTS = {
    "chain": """
        select country, n
        from coming (partition by country store last 5 seconds with count(id) as n)
             to (partition store last 5 seconds where $row_status is new and n >= 10 and n <= 30) as some
        where some.$row_status is new""",
    "alerts": f"""
        select first_id, second_id, third_id
        from alert one.id as first_id, two.id as second_id, three.id as third_id
        using {_STAGE.format(0, "one")}, {_STAGE.format(1, "two")}, {_STAGE.format(2, "three")}
        when present(one and two and not three) or present(one and three and not two)
             or present(one and two and three)""",
    "denial": """
        select ip, recent, total
        from coming (partition by ip store last 30 minutes
                     with pinned count(id) as recent, count(id) entrance only as total) as seen
        where seen.$row_status is new and recent > 75""",
    "highest": """
        select country, total
        from coming (partition by country store last 30 seconds with sum(v) as total)
             to (partition store highest 5 using total with update group country where $row_status is new) as best
        where best.$row_status is new""",
}
"""The same in RQL."""


def main() -> None:
    """Measure the queries that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queries", nargs="*", choices=[*QUERIES, []], help="which; all by default")
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warm, table = events(1000), events(options.events)
    for name in options.queries or QUERIES:
        asked: dict[str, Callable[..., g.Stream]] = {"verbs": QUERIES[name], "rql": partial(rql.query, TEXTS[name])}
        seconds: dict[str, list[float]] = {way: [] for way in asked}
        rows = {}
        for way, ask in asked.items():
            _answer(way, ask, warm)
        for _ in range(options.repeats):
            for way, ask in asked.items():
                begin = time.process_time()
                rows[way] = _answer(way, ask, table).num_rows
                seconds[way].append(time.process_time() - begin)
        assert rows["verbs"] == rows["rql"], rows
        verbs, text = (statistics.median(each) for each in seconds.values())
        rates = {
            way: round(options.events / took / 1e6, 3) for way, took in (("m_per_cpu_second", verbs), ("rql", text))
        }
        row = {"query": name, "events": options.events, "rows": rows["verbs"], **rates, "ratio": round(text / verbs, 2)}
        print(json.dumps({**row, "goal": _GOALS[name]}), flush=True)


def _answer(way: str, ask: Callable[..., g.Stream], table: pa.Table) -> pa.Table:
    made = ask(g.events(table, start="at")) if way == "verbs" else ask(coming=table, time="at")
    return made.collect(device="cpu")


if __name__ == "__main__":
    main()
