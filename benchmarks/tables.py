"""Named windows and tables whose rows events change: events per second of one core's time, by kind of change.

    python -m benchmarks.tables [--events N] [--keys N] [--stepped N] [--parts N] [--device cpu|array] [--only WORDS]

A fifth of the events (all of them with ``into table``) is about a key among as many; the rest is inserted. Beside each
figure is that of the same text without the walk, with fewer events: one event after the other, but for deletes from
windows whose rows leave by themselves and tables that queries alone keep, which are columns then too. Kernels are
compiled before.
"""

from __future__ import annotations

import argparse
import time
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from gpu_ops import epl
from gpu_ops.epl import named_windows

TYPES = {
    "A": {"k": "long", "v": "int", "s": "string", "t": "long"},
    "D": {"k": "long", "x": "int", "s": "string", "t": "long"},
}
WINDOW = "create window W#{} as (k long, v int, s string); insert into W select k, v, s from A;"
TABLE = "create table T (k long primary key, n int, s string);"
COUNTED = """on A as a merge T as t where t.k = a.k
    when matched then update set n = t.n + a.v when not matched then insert select a.k as k, a.v as n, a.s as s;"""
KEPT = WINDOW.format("keepall")
KINDS = {
    "delete by key": KEPT + "on D as d delete from W as w where w.k = d.k",
    "delete by key and a condition": KEPT + "on D as d delete from W as w where w.k = d.k and w.v < d.x",
    "update by key": KEPT + "on D as d update W as w set v = w.v + d.x where w.k = d.k",
    "update with a condition": KEPT + "on D as d update W as w set v = w.v * 2 where w.k = d.k and w.v < d.x",
    "merge": TABLE + COUNTED,
    "merge that deletes": TABLE + "on A as a merge T as t where t.k = a.k when matched and t.n > 20 then delete "
    "when matched then update set n = t.n + a.v, s = a.s "
    "when not matched then insert select a.k as k, a.v as n, a.s as s",
    "merge, and deletes by another key": TABLE + COUNTED + "on D as d delete from T as t where t.n = d.x and t.k = d.k",
    "update and delete": KEPT + "on D as d update W as w set v = w.v + 1 where w.k = d.k;"
    "on D as d delete from W as w where w.k = d.k and w.v > 9",
    "select": KEPT + "on D as d select w.v as v, d.x as x from W as w where w.k = d.k",
    "select what is merged": TABLE + COUNTED + "on D as d select t.n as n from T as t where t.k = d.k",
    "into table": "create table T (k long primary key, n count(*), total sum(int));"
    "into table T select count(*) as n, sum(v) as total from A group by k",
    "length(1000), delete": WINDOW.format("length(1000)") + "on D as d delete from W as w where w.k = d.k",
    "length(1000), update": WINDOW.format("length(1000)") + "on D as d update W as w set v = w.v + 1 where w.k = d.k",
    "time(1 sec), update": WINDOW.format("time(1 sec)") + "on D as d update W as w set v = w.v + 1 where w.k = d.k",
    "time(1 sec), delete": WINDOW.format("time(1 sec)") + "on D as d delete from W as w where w.k = d.k",
}


def _events(count: int, keys: int) -> dict[str, pa.Table]:
    rng = np.random.default_rng(1)
    times, asks = np.arange(count) + 1, rng.random(count) < 0.2
    made = {}
    for name, column, own in (("A", "v", ~asks), ("D", "x", asks)):
        size = int(own.sum())
        texts = np.array(["pen", "ink", "paper"])[rng.integers(0, 3, size)]
        numbers = rng.integers(0, 9, size).astype(np.int32)
        made[name] = pa.table({"k": rng.integers(0, keys, size), column: numbers, "s": texts, "t": times[own]})
    return made


def _rate(text: str, count: int, keys: int, device: str, parts: int) -> float:
    """Millions of events per second of this process's time."""
    runtime = epl.Runtime(TYPES, start=0, device=device)
    runtime.deploy(text)
    events = _events(count, keys)
    begin = time.process_time()
    for low, high in pairwise(np.linspace(1, count + 1, parts + 1).astype(int)):
        some = {}
        for name, rows in events.items():
            first, last = np.searchsorted(rows["t"].to_numpy(), [low, high]).tolist()
            some[name] = rows.slice(first, last - first)
        runtime.replay(some, time="t")
    return count / (time.process_time() - begin) / 1e6


def main() -> None:
    """Print a line for each kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--stepped", type=int, default=2_000, help="events of the way event by event; 0 for none")
    parser.add_argument("--parts", type=int, default=1, help="batches")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    print(f"{'M events per second of CPU':34} as it is  without a walk")
    for name, text in KINDS.items():
        if args.only not in name:
            continue
        _rate(text, 2_000, 500, args.device, 1)
        walked = sorted(_rate(text, args.events, args.keys, args.device, args.parts) for _ in range(3))[1]
        stepped = ""
        if args.stepped:
            with (
                patch.object(named_windows.RunningWindow, "_walk_of", lambda *_: None),
                patch.object(named_windows, "_share_keys", lambda *_: False),
            ):
                stepped = f"{_rate(text, args.stepped, args.keys, args.device, 1):10.4f}"
        print(f"{name:34} {walked:9.3f}  {stepped}", flush=True)


if __name__ == "__main__":
    main()
