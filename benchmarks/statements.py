"""EPL statements over a stream of bids, events pushed into a runtime in batches; prints a line of JSON for each.

    python -m benchmarks.statements --events 1000000 --batch 250000 --repeats 3

A bid comes each millisecond of the runtime's clock. "each": the clock moves before each bid; "10,000": before each
ten-thousandth. Statements about a minute say 60,000 seconds, as their events are told in microseconds.

Peers answer the same question over the same table, where they have it: Polars on one thread, and the same by verbs
(`g.arrivals`), as a running query that gets the same batches; "by_verbs" is how many times its CPU time the statement
takes. "of_a_tenth" is how many times what an event takes of a tenth of the events each takes, where these are ten
batches at least. "deploy_ms" is CPU time. Answers are compared before times are told. Those of "snapshot" and "last" at
a million bids are compared with figures that another engine gave, the clock stopping at each output; in the timed runs
it goes from bid to bid, and rows that fell due between an output and the next bid are gone before it, as Esper has it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("POLARS_MAX_THREADS", "1")

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import gpu_ops as g
from benchmarks.workloads import splitmix64
from gpu_ops import epl
from gpu_ops.api.deliveries import DeliveredStream

SECOND = 1_000_000
_BEGIN = np.datetime64(0, "ms")
Answer = dict[str, int]


def bids(events: int, keys: int) -> pa.Table:
    """Bids in order of time: t in microseconds, k and v (int64); the first one at 0."""
    index = np.arange(events, dtype=np.uint64)

    def hashed(seed: int, size: int) -> Any:
        return (splitmix64(seed, index) % np.uint64(size)).astype(np.int64)

    times = np.arange(events, dtype=np.int64) * 1000 + hashed(1, 1000)
    times[0] = 0
    return pa.table({"t": times, "k": hashed(2, keys), "v": hashed(3, 1000)})


@dataclass(frozen=True)
class Question:
    """What a runtime is asked.

    Attributes:
        text: The statements; the last one answers.
        adds: The columns of the answer whose sums are compared.
        peer: The same by Polars, if it has it.
        verbs: The same by verbs.
        known: The answer at a million bids over a thousand keys, if another engine gave it.
        grid: Milliseconds between outputs, if the clock has to stop at them for that answer.
        goal: Million events per CPU second.
        esper: What Esper did elsewhere, on one thread.
    """

    text: str
    adds: tuple[str, ...]
    goal: float
    esper: float
    peer: Callable[[pl.DataFrame], pl.DataFrame] | None = None
    verbs: Callable[[g.ArrivalStream], g.Stream] | None = None
    known: Answer | None = None
    grid: int | None = None


def _filtered(bids: pl.DataFrame) -> pl.DataFrame:
    return bids.lazy().filter(pl.col("v") < 500).select("k", w=pl.col("v") * 2 + 1).collect()


def _snapshots(bids: pl.DataFrame) -> pl.DataFrame:
    """Sums of each key over 60 s before each 5 s, the end excluded, as is the begin."""
    hopping = bids.lazy().group_by_dynamic(
        "t", every="5000000i", period="60000000i", offset="-55000000i", closed="none", label="right", group_by="k"
    )
    in_time = pl.col("t").is_between(SECOND, len(bids) * 1000)
    return hopping.agg(s=pl.col("v").sum()).filter(in_time).select("k", "s").collect()


def _tumbling(bids: pl.DataFrame) -> pl.DataFrame:
    grouped = bids.lazy().group_by(pl.col("t") // (60 * SECOND), "k").agg(n=pl.len().cast(pl.Int64))
    over = len(bids) * 1000 // (60 * SECOND)
    return grouped.filter(pl.col("t") < over).select("k", "n").collect()


def _counted(bids: g.ArrivalStream) -> DeliveredStream:
    return bids.last_span("180000s").deliveries("k", n=g.count(), m=g.mean("v"), by="k")


def _totals(bids: g.ArrivalStream) -> DeliveredStream:
    return bids.last_span("60000s").deliveries("k", s=g.sum("v"), by="k")


QUESTIONS = {
    "filter": Question(
        "select k, v * 2 + 1 as w from Bid(v < 500)",
        ("k", "w"),
        100,
        4.0,
        _filtered,
        lambda bids: bids.filter(g.col("v") < 500).deliveries("k", w=g.col("v") * 2 + 1),
    ),
    "time": Question(
        "select k, count(*) as n, avg(v) as m from Bid#time(180000 sec) group by k",
        ("k", "n"),
        6,
        1.6,
        None,
        _counted,
    ),
    "time, by 10,000": Question(
        "select k, count(*) as n, avg(v) as m from Bid#time(180000 sec) group by k output last every 10000 events",
        ("k", "n"),
        10,
        2.3,
        None,
        lambda bids: _counted(bids).output("last", every=10_000),
    ),
    "snapshot": Question(
        "select k, sum(v) as s from Bid#time(60000 sec) group by k output snapshot every 5000 sec",
        ("s",),
        8,
        0.36,
        _snapshots,
        lambda bids: _totals(bids).output("snapshot", every="5000s"),
        {"rows": 199_992, "s": 5_833_120_016},
        5000,
    ),
    "last": Question(
        "select k, sum(v) as s from Bid#time(60000 sec) group by k output last every 1000 sec",
        ("s",),
        8,
        2.0,
        None,
        lambda bids: _totals(bids).output("last", every="1000s"),
        {"rows": 851_358, "s": 25_045_518_446},
        1000,
    ),
    "tumbling": Question(
        "select k, count(*) as n from Bid#time_batch(60000 sec, 0) group by k having count(*) > 0",
        ("k", "n"),
        30,
        4.6,
        _tumbling,
        lambda bids: bids.time_batches("60000s", align=_BEGIN).deliveries(
            "k", n=g.count(), by="k", having=g.col("n") > 0
        ),
    ),
    "join": Question(
        """insert into Even select k, v from Bid(t % 2000 < 1000);
        insert into Odd select k, v from Bid(t % 2000 >= 1000);
        select a.k as k, a.v as v, b.v as w from Even#time(10000 sec) as a, Odd#time(10000 sec) as b where a.k = b.k""",
        ("k", "v", "w"),
        5,
        0.64,
        None,
        lambda bids: (
            bids.filter(g.col("t") % 2000 < 1000)
            .last_span("10000s")
            .join(bids.filter(g.col("t") % 2000 >= 1000).last_span("10000s"), on="k")
            .deliveries("k", "v", w=g.col("v_right"))
        ),
    ),
}


def summed(rows: Any, adds: tuple[str, ...]) -> Answer:
    """The number of rows, and the sums of some columns."""
    return {"rows": len(rows), **{name: int(pc.sum(rows[name]).as_py() or 0) for name in adds}}


def pushed(
    question: Question, events: pa.Table, at: Any, batch: int, device: str, *, stops: bool = False
) -> tuple[float, float, Answer]:
    """(CPU seconds, CPU seconds to deploy, the answer) of a runtime; the clock shows the end behind the last batch.

    With ``stops`` it shows a batch's end behind each batch.
    """
    runtime = epl.Runtime({"Bid": {"t": "long", "k": "long", "v": "long"}}, device=device)
    begun = time.process_time()
    *_, statement = runtime.deploy(question.text)
    deployed = time.process_time() - begun
    statement.deliveries()
    found: Answer = dict.fromkeys(("rows", *question.adds), 0)
    cpu = 0.0
    for first in range(0, len(events), batch):
        some, times = events.slice(first, batch), at[first : first + batch]
        begun = time.process_time()
        runtime.send("Bid", some, at=times)
        if stops or first + batch >= len(events):
            runtime.advance(min(first + batch, len(events)) * 1000)
        rows = statement.deliveries()
        cpu += time.process_time() - begun
        for name, value in summed(rows, question.adds).items():
            found[name] += value
    return cpu, deployed, found


def by_verbs(question: Question, events: pa.Table, at: Any, batch: int, device: str) -> tuple[float, Answer]:
    """(CPU seconds, the answer) of the same by verbs, as a running query."""
    assert question.verbs is not None
    timed = events.append_column("at", pa.array(at, pa.int64()))
    stream = g.events(timed.slice(0, 0), start="at", unit="ms")
    until = np.datetime64(len(events) * 1000, "ms")
    live = question.verbs(g.arrivals(stream, order="t", start=_BEGIN, until=until)).start(device=device)
    found: Answer = dict.fromkeys(("rows", *question.adds), 0)
    cpu = 0.0
    for first in range(0, len(events), batch):
        some = timed.slice(first, batch)
        begun = time.process_time()
        live.push(some)
        if first + batch < len(events):
            live.advance(np.datetime64(int(at[first + batch]), "ms"))
        else:
            live.close()
        rows = live.results()
        cpu += time.process_time() - begun
        for name, value in summed(rows, question.adds).items():
            found[name] += value
    return cpu, found


def asked(ask: Callable[[pl.DataFrame], pl.DataFrame], events: pa.Table, adds: tuple[str, ...]) -> tuple[float, Answer]:
    """(CPU seconds, the answer) of a peer."""
    frame = pl.DataFrame(pl.from_arrow(events))
    begun = time.process_time()
    made = ask(frame)
    return time.process_time() - begun, summed(made.to_arrow(), adds)


def check(name: str, device: str) -> None:
    """Compare the answer at a million bids with what is known of it, and with the peer's.

    Raises:
        ValueError: They differ.
    """
    question, events = QUESTIONS[name], bids(1_000_000, 1000)
    assert question.grid is not None
    _, _, found = pushed(question, events, events["t"].to_numpy(), question.grid, device, stops=True)
    if found != question.known:
        raise ValueError(f"{name}: {found}, not {question.known}.")
    if question.peer is not None and (peers := asked(question.peer, events, question.adds)[1]) != found:
        raise ValueError(f"{name}: {found}, but Polars gives {peers}.")


def measure(name: str, clock: str, options: argparse.Namespace) -> dict[str, Any]:
    """One question; see the module's text.

    Raises:
        ValueError: An answer is wrong.
    """
    question, events = QUESTIONS[name], bids(options.events, options.keys)
    at = events["t"].to_numpy()
    if clock != "each":
        at = at[np.arange(len(at)) // 10_000 * 10_000]
    pushed(question, events.slice(0, 20_000), at[:20_000], 10_000, options.device)  # loads what is loaded late
    if question.known is not None:
        check(name, options.device)
    runs, peers, answers, verbs, deploys, tenths = [], [], [], [], [], []
    tenth = len(events) // 10 if len(events) >= 10 * options.batch else 0
    for _ in range(options.repeats):
        if tenth:
            tenths.append(pushed(question, events.slice(0, tenth), at[:tenth], options.batch, options.device)[0])
        cpu, deployed, found = pushed(question, events, at, options.batch, options.device)
        runs.append(cpu)
        deploys.append(deployed)
        answers.append(found)
        if question.verbs is not None:
            seconds, wanted = by_verbs(question, events, at, options.batch, options.device)
            verbs.append(seconds)
            if found != wanted:
                raise ValueError(f"{name}: {found}, but by verbs it is {wanted}.")
        if question.peer is not None:
            seconds, wanted = asked(question.peer, events, question.adds)
            peers.append(seconds)
            if clock == "each" and question.grid is None and found != wanted:
                raise ValueError(f"{name}: {found}, but Polars gives {wanted}.")
    if any(each != found for each in answers):
        raise ValueError(f"{name}: {answers} differ.")
    cpu = statistics.median(runs)
    return {
        "statement": name,
        "clock": clock,
        "events": options.events,
        "batch": options.batch,
        "deploy_ms": round(statistics.median(deploys) * 1000, 1),
        "cpu_s": round(cpu, 3),
        "meps": round(options.events / cpu / 1e6, 3),
        "goal": question.goal,
        "esper": question.esper,
        "of_a_tenth": round(cpu / statistics.median(tenths) / 10, 2) if tenths else None,
        "by_verbs": round(cpu / statistics.median(verbs), 2) if verbs else None,
        "polars_meps": round(options.events / statistics.median(peers) / 1e6, 3) if peers else None,
        "answer": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--statements", nargs="*", default=list(QUESTIONS), choices=list(QUESTIONS), metavar="NAME")
    parser.add_argument("--clock", nargs="*", default=["each", "10,000"], choices=["each", "10,000"])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=250_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    g.set_threads(1)
    for name in options.statements:
        for clock in options.clock:
            print(json.dumps(measure(name, clock, options)), flush=True)


if __name__ == "__main__":
    main()
