"""Reading as a user does: what is asked of a file, a store or a checkpoint, and what an answer has to be."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from typer.testing import CliRunner

import gpu_ops as g
from gpu_ops.apps.cli import app
from tests.fuzz.sound import EDGED, MORE, PLANS, TABLES, push
from tests.support.ticks import at_us, us

Query = Callable[[g.Stream], g.Stream]

QUERIES: dict[str, Query] = {
    "filtered": lambda s: s.filter(g.col("k") == "a"),
    "computed": lambda s: s.with_columns(m=g.col("v")),
    "counted": lambda s: s.by("k").tumbling(us(10)).agg(n=g.count(), v=g.count("v")),
    "greatest": lambda s: s.by("k").snapshot().agg(best=g.max("v"), least=g.min("v")),
    "by the value": lambda s: s.by("v").hopping(us(20), us(10)).agg(n=g.count()),
    "sliding": lambda s: s.by("k").sliding(us(9)).agg(each=g.count_distinct("v")),
    "joined": lambda s: s.join(s.to_point(), on="k"),
    "last": lambda s: s.by("k").last(2).rows(),
    "distinct": lambda s: s.distinct("v"),
    "shifted": lambda s: s.shift(us(5)).extend(us(3)),
    "union": lambda s: s.union(s.clip_duration(us(2))),
}

_OF_WHAT_HAS_AN_ORDER = {"greatest", "by the value", "sliding", "distinct"}


def query(name: str, chance: random.Random) -> Query:
    """One of the queries that a table allows, by what its values are."""
    kind = MORE[name][0].schema.field("v").type
    without_order = pa.types.is_nested(kind) or pa.types.is_null(kind)
    chosen = chance.choice([each for each in QUERIES if each not in _OF_WHAT_HAS_AN_ORDER or not without_order])
    # An event that never ends has endlessly many windows.
    return lambda events: QUERIES[chosen](events.clip_duration(us(50)))


COMMAND = """
import gpu_ops as g
def query(events):
    return g.events(events, **%r).by("k").snapshot().agg(n=g.count(), v=g.count("v"))
"""


class UnsoundError(AssertionError):
    """An answer that is no sound Arrow table, or a command that ended by a traceback."""


def look(answer: Any) -> None:
    """What a user does with an answer, who may look at each of its values."""
    if not isinstance(answer, pa.Table):
        return
    try:
        answer.validate(full=True)
    except Exception as error:
        raise UnsoundError(f"the answer is no sound table: {error}") from error
    with suppress(ValueError, OverflowError):  # Arrow's days and times go further than Python's
        answer.slice(0, 10_000).to_pylist()


def read_file(path: Path, name: str, chance: random.Random) -> None:
    """Ask a file that `gpu_ops.events` opens."""
    source = MORE[name][1]
    policy: dict[str, Any] = {"on_invalid": chance.choice(["raise", "drop", "divert"])}
    events = g.events(str(path), **source, **policy)
    how = chance.choice(["collect", "collect", "collect", "write", "reader", "live", "pushed", "command"])
    if how == "command":
        command(path, source)
        return
    if how == "pushed" and path.suffix == ".arrow":
        pushed(path, name)
        return
    look(events.collect(device="cpu"))
    stream = query(name, chance)(events)
    if how == "collect":
        look(stream.collect(device="cpu"))
    elif how == "write":
        out = path.parent / f"out{chance.choice(['.parquet', '.arrow'])}"
        stream.write(out, device="cpu", if_exists="replace")
    elif how == "reader":
        look(stream.to_reader(device="cpu").read_all())
    else:
        for table in stream.start(device="cpu").run():
            look(table)
    look(events.rejected() if policy["on_invalid"] == "divert" else None)
    events.report()


def pushed(path: Path, name: str) -> None:
    """Push what comes as a stream of Arrow, such as from a socket."""
    table, source = MORE[name]
    live = g.events(table.schema.empty_table(), **source).clip_duration(us(50)).start(device="cpu")
    try:
        reader = pa.ipc.open_stream(path.read_bytes())
    except (pa.ArrowException, OSError):
        return  # it never came so far as to us
    live.push(reader)
    live.close()
    look(live.results())


def command(path: Path, source: dict[str, Any]) -> None:
    """Run a query file over it by the command."""
    file = path.parent / "query.py"
    file.write_text(COMMAND % source, encoding="utf-8")
    arguments = ["run", str(file), "--input", f"events={path}", "--output", str(path.parent / "out.parquet")]
    ran = CliRunner().invoke(app, [*arguments, "--device", "cpu"])
    if ran.exception is not None and not isinstance(ran.exception, SystemExit):
        raise ran.exception
    if ran.exit_code not in (0, 1) or "Traceback" in ran.output:
        raise UnsoundError(f"the command ended with {ran.exit_code}: {ran.output[-500:]}")


def read_store(path: Path, name: str, chance: random.Random) -> None:
    """Ask a store, and write to it."""
    errors: list[g.GpuOpsError] = []
    asked: list[Callable[[], Any]] = [
        lambda: look(g.store(path).read()),
        lambda: look(g.store(path).read(at_us(10), at_us(40), columns=["v"])),
        lambda: deque(map(look, (batch.events for batch in g.store(path).batches(since=1)))),
        lambda: [repr(g.store(path)), len(g.store(path)), g.store(path).schema, g.store(path).files()],
        lambda: look(query(name, chance)(g.events(g.store(path))).collect(device="cpu")),
        lambda: _followed(path),
    ]
    writes: list[Callable[[], Any]] = [
        lambda: _append(path, name),
        lambda: g.store(path).compact(100),
        lambda: g.store(path).expire(at_us(40)),
    ]
    for ask in (*chance.sample(asked, 2), g.store(path).verify, *chance.sample(writes, 1), *chance.sample(asked, 1)):
        try:
            ask()
        except g.GpuOpsError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _append(path: Path, name: str) -> None:
    table = TABLES[name].slice(0, 3)
    with g.store(path).writer() as writer:
        writer.append(g.events(table, start="start", end="end").shift(us(10_000)).collect(device="cpu"))


def _followed(path: Path) -> None:
    live = (
        g.events(g.store(path))
        .clip_duration(us(50))
        .by("k")
        .tumbling(us(10))
        .agg(n=g.count(), v=g.count("v"))
        .start(device="cpu")
    )
    live.follow(g.store(path), timeout=0)
    live.close()
    look(live.results())


def read_checkpoint(path: Path, name: str, chance: random.Random) -> None:
    """Go on from a checkpoint with more events."""
    made, inputs = PLANS[name]
    live = g.restore(path, made(), device="cpu")
    for table in live.state().values():
        look(table)
    look(live.results())
    push(live, inputs, 12, 18)
    look(live.results())
    live.late()
    live.report()
    live.rejected()
    repr(live.status())
    if chance.random() < 0.3:
        again = path.with_name("again.checkpoint")
        live.checkpoint(again)
        live = g.restore(again, made(), device="cpu")
    push(live, inputs, 18, EDGED.num_rows)
    live.close()
    look(live.results())
