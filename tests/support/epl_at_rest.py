"""Texts over data at rest, beside a runtime that is told the same."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

import gpu_ops as g
from gpu_ops import epl
from tests.support.ticks import at_us


def told(text: str, frames: Mapping[str, pa.Table], until: int) -> list[Mapping[str, Any]]:
    """What the last statement of a text delivers in a runtime, event by event."""
    runtime = epl.Runtime({name: table.schema for name, table in frames.items()})
    last = runtime.deploy(text)[-1]
    last.deliveries()
    turns = runtime._turns.next - 1  # each deployment is one
    events = [(row["seq"], row["at"], name, row) for name, table in frames.items() for row in table.to_pylist()]
    for _, time, name, row in sorted(events, key=lambda each: (each[1], each[0])):
        if time > runtime.clock:
            runtime.advance(time)
        runtime.send(name, row)
    if until > runtime.clock:
        runtime.advance(until)
    return [{**row, "turn": row["turn"] - turns} for row in last.deliveries().to_pylist()]


def rows(answer: pa.Table) -> list[Mapping[str, Any]]:
    """An answer's rows, without their lifetimes."""
    found: list[Mapping[str, Any]] = answer.drop_columns(["start", "end"]).to_pylist()
    return found


def live(query: g.Stream, frames: Mapping[str, pa.Table], device: str, chance: random.Random, folder: Path) -> pa.Table:
    """The same query live: the rows of each input in any cut, in any order that the CTIs allow."""
    running, found = query.start(device=device), list[pa.Table]()
    left = {name: table.sort_by("at") for name, table in frames.items() if name in running.input_ctis()}
    while any(table.num_rows for table in left.values()):
        name = chance.choice([name for name, table in left.items() if table.num_rows])
        table, size = left[name], chance.randrange(1, 5)
        some = table.slice(0, size)
        shuffled = chance.sample(range(some.num_rows), some.num_rows)
        running.push(some.take(pa.array(shuffled, pa.int64())), input=name)
        left[name] = table.slice(size)
        if chance.random() < 0.6:
            rest = left[name]["at"].to_pylist()
            running.advance(at_us(min(rest, default=50_000) * 1000), input=name)
        if chance.random() < 0.5:
            found.append(running.results())
        if chance.random() < 0.2:
            running.checkpoint(folder / "checkpoint")  # with the results that nobody has taken yet
            running = g.restore(folder / "checkpoint", query, device=device)
    running.close()
    return pa.concat_tables([*found, running.results()])


def in_turns(found: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Rows by their turns: those of one delivery have no order."""
    return sorted((row["turn"], row["row"], repr(row)) for row in found)
