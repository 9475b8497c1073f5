"""Event patterns by verbs and in EPL, over data at rest and live; prints a line of JSON for each way.

    python -m benchmarks.patterns --patterns P1a P2 --batch 10000 --repeats 3

P1a and P1b: the first greater bid of a key within 10 seconds, with 1,000 and 100,000 keys. P2: orders without a payment
for 30 seconds. P7a and P7b: events of three streams, with and without filters. What comes of them is compared with the
figures of another engine (Esper, on one thread) before any time is told. "batch": `collect`; "live": stretches of
time of about as many events as ``--batch`` says.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import gpu_ops as g
from benchmarks.workloads import splitmix64
from gpu_ops import epl

Streams = Mapping[str, pa.Table]
"""The events of each type, in the order in which events of one time come."""


def _hashed(seed: int, count: int, size: int) -> Any:
    return (splitmix64(seed, np.arange(count, dtype=np.uint64)) % np.uint64(size)).astype(np.int64)


def _timed(columns: Mapping[str, Any]) -> pa.Table:
    """The columns, with t once more: as times of events it is no property."""
    return pa.table({"at": columns["t"], **columns})


def _in_order(**columns: Any) -> pa.Table:
    order = np.argsort(columns["t"], kind="stable")
    return _timed({name: values[order] for name, values in columns.items()})


def bids(keys: int, count: int = 1_000_000) -> Streams:
    """Bids: t in microseconds, k and v."""
    times = np.arange(count, dtype=np.int64) * 1000 + _hashed(1, count, 1000)
    return {
        "Bid": _timed({"t": times, "id": np.arange(count), "k": _hashed(2, count, keys), "v": _hashed(3, count, 1000)})
    }


def orders(count: int = 500_000) -> Streams:
    """Orders, and payments of 99 in 100 of them within 30 seconds."""
    at, number = np.arange(count, dtype=np.int64) * 2000 + _hashed(41, count, 2000), np.arange(count)
    paid = _hashed(42, count, 100) != 0
    later = at + 1 + _hashed(43, count, 29_999_999)
    return {"Placed": _timed({"t": at, "id": number}), "Payment": _in_order(t=later[paid], id=number[paid])}


def stages(count: int = 400_000) -> Streams:
    """Three stages of things with a priority; some have no second one, and some no third one."""
    at = np.arange(count, dtype=np.int64) * 2500 + _hashed(71, count, 2500)
    number, priority = np.arange(count), _hashed(74, count, 10)
    made = {"One": _timed({"t": at, "id": number, "priority": priority})}
    for name, chosen, seed, least in (("Two", 75, 72, 9), ("Three", 76, 73, 6)):
        there = _hashed(chosen, count, 10) < least
        later = at + 1 + _hashed(seed, count, 7_000_000)
        made[name] = _in_order(t=later[there], id=number[there], priority=priority[there])
    return made


@dataclass(frozen=True)
class Question:
    """A pattern.

    Attributes:
        streams: Its events.
        text: It in EPL, with a span of seconds as ``{}``.
        spans: The spans, in seconds.
        verbs: It by verbs.
        adds: The columns whose sums are compared.
        known: The number of matches, and the sums.
        after: How long the clock goes on behind the last event, in seconds.
        goal: Million events per CPU second.
        esper: What Esper did elsewhere.
    """

    streams: Callable[[], Streams]
    text: str
    spans: tuple[int, ...]
    verbs: Callable[..., g.Stream]
    adds: tuple[str, ...]
    known: tuple[int, ...]
    after: int
    goal: float
    esper: float


_V = g.col
_GREATER = """select b.v - a.v as dv, b.t - a.t as dt
    from pattern [every a=Bid -> (b=Bid(k = a.k and v > a.v) where timer:within({} sec))]"""
_STAGES = """select a.id as id, b.t as t2 from pattern [every a=One{filters} -> (timer:interval({{}} sec)
    and (b=Two(id = a.id{more}) where timer:within({{}} sec)) and not Three(id = a.id{more}))]{where}"""


def _greater(bid: g.ArrivalStream) -> g.Stream:
    later = g.one("b", bid, _V("v") > _V("a.v"), on="k").within("10s")
    return g.pattern(g.every("a", bid) >> later).deliveries(dv=_V("b.v") - _V("a.v"), dt=_V("b.t") - _V("a.t"))


def _unpaid(placed: g.ArrivalStream, payment: g.ArrivalStream) -> g.Stream:
    late = g.pattern(g.every("a", placed) >> g.none("", payment, on="id").within("30s"))
    return late.deliveries(id=_V("a.id"))


def _staged(*conditions: Any) -> Callable[..., g.Stream]:
    def asked(one: g.ArrivalStream, two: g.ArrivalStream, three: g.ArrivalStream) -> g.Stream:
        second = g.one("b", two, *conditions, on="id").within("5s")
        waits = g.after("5s") & second & g.none("", three, *conditions, on="id")
        found = g.pattern(g.every("a", one, *conditions) >> waits)
        if conditions:
            found = found.filter(_V("a.priority") < 7.5)
        return found.deliveries(id=_V("a.id"), t2=_V("b.t"))

    return asked


QUESTIONS = {
    "P1a": Question(
        lambda: bids(1000),
        _GREATER,
        (10,),
        _greater,
        ("dv", "dt"),
        (897_792, 244_889_416, 1_873_783_105_381),
        0,
        4,
        0.41,
    ),
    "P1b": Question(
        lambda: bids(100_000),
        _GREATER,
        (10,),
        _greater,
        ("dv", "dt"),
        (48_010, 15_875_085, 236_365_543_896),
        0,
        4,
        0.39,
    ),
    "P2": Question(
        orders,
        "select a.id as id from pattern [every a=Placed -> (timer:interval({} sec) and not Payment(id = a.id))]",
        (30,),
        _unpaid,
        ("id",),
        (4847, 1_217_565_568),
        31,
        6,
        0.90,
    ),
    "P7a": Question(
        stages,
        _STAGES.format(filters="(priority > 5)", more=", priority > 5", where=" where a.priority < 7.5"),
        (5, 5),
        _staged(_V("priority") > 5),
        ("id", "t2"),
        (29_413, 5_887_850_381, 14_793_609_090_701),
        10,
        8,
        2.2,
    ),
    "P7b": Question(
        stages,
        _STAGES.format(filters="", more="", where=""),
        (5, 5),
        _staged(),
        ("id", "t2"),
        (147_255, 29_415_698_878, 73_907_680_848_506),
        10,
        8,
        1.0,
    ),
}
"""A question for each workload."""

Answer = tuple[int, ...]


def _answer(question: Question, rows: Any) -> Answer:
    return (len(rows), *(int(pc.sum(rows[name]).as_py() or 0) for name in question.adds))


def _end(question: Question, streams: Streams) -> int:
    """What the clock shows last, in microseconds."""
    return max(int(each["at"][-1].as_py()) for each in streams.values()) + question.after * 1_000_000


def stretches(streams: Streams, size: int) -> Iterator[tuple[dict[str, pa.Table], int]]:
    """(the events of a stretch of time, its end): each stretch has about a number of events."""
    every = np.sort(np.concatenate([each["at"].to_numpy() for each in streams.values()]))
    edges = [*every[size::size].tolist(), int(every[-1]) + 1]
    low = 0
    for high in edges:
        some = {}
        for name, table in streams.items():
            first, last = np.searchsorted(table["at"].to_numpy(), [low, high])
            some[name] = table.slice(first, last - first)
        yield some, high
        low = high


def by_verbs(question: Question, streams: Streams, device: str) -> tuple[float, Answer]:
    """(CPU seconds, the answer) of a batch by verbs; the clock goes on to the end."""
    until = np.datetime64(_end(question, streams), "us")
    begun = time.process_time()
    sources = [g.events(each, start="at", unit="us", name=name) for name, each in streams.items()]
    arrivals = g.arrivals(*sources, order="id", until=until)
    rows = question.verbs(*(arrivals if len(sources) > 1 else (arrivals,))).collect(device=device)
    return time.process_time() - begun, _answer(question, rows)


def in_epl(question: Question, streams: Streams, device: str) -> tuple[float, Answer]:
    """The same of a batch in EPL."""
    until = -(-_end(question, streams) // 1000)
    begun = time.process_time()
    sources = {name: g.events(each, start="at", unit="us", name=name) for name, each in streams.items()}
    rows = epl.query(question.text.format(*question.spans), sources, order="id", until=until).collect(device=device)
    return time.process_time() - begun, _answer(question, rows)


def live_by_verbs(question: Question, streams: Streams, batch: int, device: str) -> tuple[float, Answer]:
    """The same of a running query by verbs."""
    until = np.datetime64(_end(question, streams), "us")
    sources = [g.events(each.slice(0, 0), start="at", unit="us", name=name) for name, each in streams.items()]
    arrivals = g.arrivals(*sources, order="id", until=until)
    live = question.verbs(*(arrivals if len(sources) > 1 else (arrivals,))).start(device=device)
    cpu, found = 0.0, np.zeros(1 + len(question.adds), np.int64)
    given = list(stretches(streams, batch))
    for number, (some, high) in enumerate(given, 1):
        begun = time.process_time()
        for name, each in some.items():
            live.push(each, input=name)
        if number < len(given):
            live.advance(np.datetime64(high, "us"))
        else:
            live.close()
        rows = live.results()
        cpu += time.process_time() - begun
        found += _answer(question, rows)
    return cpu, tuple(found.tolist())


def live_in_epl(question: Question, streams: Streams, batch: int, device: str) -> tuple[float, Answer]:
    """The same of a runtime, whose clock shows a millisecond for each microsecond of the events."""
    types = {name: dict.fromkeys(each.column_names, "long") for name, each in streams.items()}
    runtime = epl.Runtime(types, device=device)
    statement = runtime.deploy(question.text.format(*(1000 * each for each in question.spans)))[-1]
    statement.deliveries()
    cpu, found = 0.0, np.zeros(1 + len(question.adds), np.int64)
    given = list(stretches(streams, batch))
    for number, (some, _) in enumerate(given, 1):
        begun = time.process_time()
        runtime.replay(some, time="at")
        if number == len(given):
            runtime.advance(_end(question, streams))
        rows = statement.deliveries()
        cpu += time.process_time() - begun
        found += _answer(question, rows)
    return cpu, tuple(found.tolist())


WAYS: dict[str, Callable[[Question, Streams, argparse.Namespace], tuple[float, Answer]]] = {
    "verbs, batch": lambda question, streams, asked: by_verbs(question, streams, asked.device),
    "EPL, batch": lambda question, streams, asked: in_epl(question, streams, asked.device),
    "verbs, live": lambda question, streams, asked: live_by_verbs(question, streams, asked.batch, asked.device),
    "EPL, live": lambda question, streams, asked: live_in_epl(question, streams, asked.batch, asked.device),
}


def measure(name: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One pattern in all ways.

    Raises:
        ValueError: An answer is wrong.
    """
    question = QUESTIONS[name]
    streams = question.streams()
    events = sum(map(len, streams.values()))
    for way in options.ways:
        runs = []
        for _ in range(options.repeats + 1):
            cpu, found = WAYS[way](question, streams, options)
            if found != question.known:
                raise ValueError(f"{name}, {way}: {found}, not {question.known}.")
            runs.append(cpu)
        # The first one loads what is loaded late.
        cpu = statistics.median(runs[1:] or runs)
        made = {"pattern": name, "way": way, "events": events, "batch": options.batch, "cpu_s": round(cpu, 3)}
        yield made | {"meps": round(events / cpu / 1e6, 3), "goal": question.goal, "esper": question.esper}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patterns", nargs="*", default=list(QUESTIONS), choices=list(QUESTIONS), metavar="NAME")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS), metavar="WAY")
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    g.set_threads(1)
    pa.set_cpu_count(1)
    for name in options.patterns:
        for line in measure(name, options):
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
