"""Followers of topics in processes of their own, which end at a given point of an epoch."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa

import gpu_ops as g
from gpu_ops.engines.live.following_topics import _FollowedTopics
from gpu_ops.topics import reading
from gpu_ops.topics.writing import TopicWriter
from tests.support import followers

SCHEMA = pa.schema([("kind", pa.string()), ("at", pa.int64()), ("item", pa.string()), ("price", pa.int64())])
END = 253_402_300_799_999_999
"""A CTI there ends the input."""

MESSAGES = 40
"""The most messages of an epoch."""


def bids(count: int) -> list[bytes]:
    """Bids of one second each behind the other, a CTI behind each tenth, and one at infinity at the end."""
    rows: list[dict[str, Any]] = []
    for number in range(count):
        time = number * 1_000_000
        rows.append({"kind": "insert", "at": time, "item": "abc"[number % 3], "price": number * 7 % 11})
        if number % 10 == 9:
            rows.append({"kind": "cti", "at": time + 1})
    return [json.dumps(row).encode() for row in [*rows, {"kind": "cti", "at": END}]]


def query(source: g.Topic) -> g.Stream:
    """The query: the bids of each half minute."""
    stream = g.events(source, start="at", unit="us", kind="kind")
    return stream.by("item").tumbling("30s").agg(n=g.count(), total=g.sum("price"))


def die() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def _nothing(*args: Any) -> None:
    pass


def _around(
    kind: type, name: str, *, before: Callable[..., None] = _nothing, after: Callable[..., None] = _nothing
) -> None:
    """Have a method call functions before or after, with its arguments."""
    method = getattr(kind, name)

    def called(*args: Any, **options: Any) -> Any:
        before(*args)
        made = method(*args, **options)
        after(*args)
        return made

    setattr(kind, name, called)


class _DyingProducer:
    """A producer whose process ends while the commit is on its way."""

    def __init__(self, producer: Any, due: Callable[[], None]) -> None:
        self._producer, self._due = producer, due

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def commit_transaction(self, timeout: float) -> None:
        with ThreadPoolExecutor(1) as pool:
            commit = pool.submit(self._producer.commit_transaction, timeout)
            time.sleep(0.003)
            self._due()
            commit.result()


def _in_the_commit(due: Callable[[], None]) -> None:
    opened = TopicWriter.open

    def open_dying(self: TopicWriter) -> None:
        opened(self)
        self._producer = _DyingProducer(self._producer, due)

    TopicWriter.open = open_dying  # type: ignore[method-assign]


POINTS: dict[str, Callable[[Callable[..., None]], None]] = {
    "before the checkpoint": lambda due: _around(_FollowedTopics, "commit", before=due),
    "behind the checkpoint": lambda due: _around(_FollowedTopics, "_deliver", before=due),
    "in the transaction": lambda due: _around(TopicWriter, "_send", after=due),
    "in the commit": _in_the_commit,
    "behind the commit": lambda due: _around(
        TopicWriter, "deliver", after=lambda _, marker, table, offsets: due() if table.num_rows else None
    ),
}
"""Where a follower may end, and how it is made to."""


def follow(folder: Path, told: Connection) -> None:
    """Follow what the file `plan` in the folder says, and die at its point in its epoch."""
    plan = json.loads((folder / "plan").read_text())
    reading.MESSAGES = MESSAGES
    left = [plan["epoch"]]

    def due(*args: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            die()

    if plan["point"] is not None:
        POINTS[plan["point"]](due)
    source = g.kafka(plan["source"], servers=plan["servers"], value="json", schema=SCHEMA)
    into = g.kafka(plan["into"], servers=plan["servers"], value="json", key="item", delivery=plan["delivery"])
    path = folder / "check point"
    live = g.restore(path, query(source), device="cpu") if path.exists() else query(source).start(device="cpu")
    told.send("started")
    live.follow(source, into=into, checkpoint=path, every=1, timeout=0)


def run(folder: Path, point: str | None, epoch: int = 1, **plan: Any) -> int:
    """Follow in a process until it ends; its exit code."""
    said = {"delivery": "exactly_once", **plan, "point": point, "epoch": epoch}
    (folder / "plan").write_text(json.dumps(said))
    return followers.run(follow, folder)
