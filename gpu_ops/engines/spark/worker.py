"""What a Python worker of Spark does with a fragment of a plan: Arrow batches in, Arrow batches out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pyarrow as pa

from gpu_ops.engines.spark.carriers import carried_schema, flattened_arrays, restored_arrays
from gpu_ops.plan.nodes import Feed, Node
from gpu_ops.time import TIME_TYPE

BATCH_ROWS = 1 << 18
"""Rows of a batch that goes back: Spark copies each batch as a whole."""

Batches = Iterable[pa.RecordBatch]


def worker_device(asked: str) -> str:
    """The device of a worker.

    ``"auto"`` takes a GPU only where the RAPIDS plugin has given the worker its share of one: it says so in the
    environment (``spark.rapids.sql.python.gpu.enabled``). Workers that each took what they find would share no memory.
    """
    if asked != "auto":
        return asked
    return "auto" if os.environ.get("RAPIDS_PYTHON_ENABLED", "").lower() == "true" else "cpu"


def work(plan: Node, device: str) -> Callable[[Batches], Batches]:
    """The function that mapInArrow takes.

    Args:
        plan: A plan whose only leaf is a `Feed`.
        device: As in `Stream.collect`; it is chosen in the worker.
    """

    def run(batches: Batches) -> Batches:
        from gpu_ops.engines.spark.worker import run_fragment

        yield from run_fragment(plan, device, batches)

    return run


def run_fragment(plan: Node, device: str, batches: Batches) -> Batches:
    """Run a plan over the lowered columns of a task's events.

    Args:
        plan: A plan whose only leaf is a `Feed`.
        device: As in `Stream.collect`.
        batches: ``start``, ``end`` where the feed's events do not all last as long, and the payload as lowered.

    Yields:
        ``start``, ``end`` and the plan's payload as lowered.
    """
    from gpu_ops.engines import local

    feed = next(node for node in plan.walk() if isinstance(node, Feed))
    results = local.run_fragment(plan, (_restored(feed, batch) for batch in batches), worker_device(device))
    for result in results:
        for first in range(0, result.num_rows, BATCH_ROWS):
            yield _flattened(plan, result.slice(first, BATCH_ROWS))


def _restored(feed: Feed, batch: pa.RecordBatch) -> pa.RecordBatch:
    times = ["start"] if feed.length is not None else ["start", "end"]
    arrays = [batch.column(name).cast(TIME_TYPE) for name in times]
    payload = restored_arrays(feed.schema, [batch.column(name) for name in carried_schema(feed.schema).names])
    schema = pa.schema([*((name, TIME_TYPE) for name in times), *feed.schema])
    return pa.RecordBatch.from_arrays([*arrays, *payload], schema=schema)


def _flattened(plan: Node, batch: pa.RecordBatch) -> pa.RecordBatch:
    payload = flattened_arrays(plan.schema, batch.columns[2:])
    schema = pa.schema([("start", TIME_TYPE), ("end", TIME_TYPE), *carried_schema(plan.schema)])
    return pa.RecordBatch.from_arrays([*batch.columns[:2], *payload], schema=schema)
