"""The local engine: a plan over Arrow data in this process, on one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, later, to_arrow
from gpu_ops.core.bounds import gathered
from gpu_ops.core.own_errors import own_errors
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.devices import Device
from gpu_ops.engines.local.in_order import run_in_order
from gpu_ops.engines.local.pieces import pieces, read_of, runs_in_pieces
from gpu_ops.engines.local.placing import place
from gpu_ops.engines.local.shapes import Shape, in_shape, shape_schema
from gpu_ops.engines.progress import Progress, known_rows
from gpu_ops.errors import PlanError
from gpu_ops.ingest import to_origin
from gpu_ops.ingest.ingress import let_in
from gpu_ops.microbatches.files import WriteReport
from gpu_ops.microbatches.files import write as write_file
from gpu_ops.operators import filter_project
from gpu_ops.operators.events import Events, TimeOrder, concat
from gpu_ops.operators.operator import BatchInput, Operator
from gpu_ops.operators.runtime.families import registered
from gpu_ops.plan.advance import Advance, AdvanceTime, Late
from gpu_ops.plan.lean import lean
from gpu_ops.plan.nodes import Feed, Node, Source


@dataclass(frozen=True)
class BatchRun:
    """One run of a plan.

    Attributes:
        device: Where arrays live.
        progress: Counts rows.
        shared: Nodes with several parents, and their events once they were computed.
        feeds: The events of the leaves that another engine feeds.
        gathered: The nodes whose rows are all in memory at the same time.
        shown: The nodes whose events are passed on as they are, to the answer.
    """

    device: Device
    progress: Progress
    shared: dict[Node, list[Events] | None]
    feeds: dict[Node, Iterator[Events]] = field(default_factory=dict)
    gathered: frozenset[Node] = frozenset()
    shown: frozenset[Node] = frozenset()


def collect(node: Node, device: str, shape: Shape = "interval") -> Any:
    """The answer in the kind of frame that came in."""
    shape_schema(output_schema(node), shape)  # refused before anything is read
    table = pa.concat_tables(gathered(tables(node, place(node, device), kept=True), "The answer"))
    return to_origin(in_shape(table, shape), origin(node))


def reader(node: Node, device: str) -> pa.RecordBatchReader:
    """The answer as record batches, computed as they are read."""
    return pa.RecordBatchReader.from_batches(output_schema(node), answer_batches(tables(node, place(node, device))))


@own_errors
def answer_batches(answer: Iterator[pa.Table]) -> Iterator[pa.RecordBatch]:
    """The record batches of an answer, computed as they are read, after the user's verb has returned."""
    return (batch for table in answer for batch in table.to_batches())


def write(
    node: Node, device: str, path: str | Path, if_exists: Literal["raise", "replace"], row_group_rows: int
) -> WriteReport:
    """The answer in a file, written atomically."""
    return write_file(
        tables(node, place(node, device)),
        output_schema(node),
        path,
        if_exists=if_exists,
        row_group_rows=row_group_rows,
    )


def origin(node: Node) -> str:
    """The kind of frame that the first source was made from."""
    return next((each.source.origin for each in node.all(Source)), "pyarrow")


def output_schema(node: Node) -> pa.Schema:
    """The columns of an answer: the lifetime in the sources' time zone, then the payload."""
    time = pa.timestamp("us", tz=node.zone)
    return pa.schema([pa.field("start", time), pa.field("end", time), *node.schema])


def run_fragment(
    node: Node,
    handed: Mapping[Feed, Iterable[pa.RecordBatch]],
    device: str,
    wanted: Sequence[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Run a plan over batches that another engine hands in.

    Args:
        node: A plan whose leaves are each a `Feed`.
        handed: For each feed, batches of ``start``, ``end`` (``timestamp[us]``; ignored if the feed's events all have
            the same length) and the payload columns that the plan needs.
        device: As in `Stream.collect`.
        wanted: The columns of the answer to compute; all by default.

    Yields:
        Batches with ``start`` and ``end`` in UTC and the wanted payload.
    """
    chosen = place(node, device)
    feeds: dict[Node, Iterator[Events]] = {feed: _fed(feed, rows, chosen) for feed, rows in handed.items()}
    names = tuple(node.schema.names if wanted is None else wanted)
    schema = pa.schema([*list(output_schema(node))[:2], *(node.schema.field(name) for name in names)])
    with Progress(None) as progress:
        for events in execute(node, BatchRun(chosen, progress, shared(node), feeds), names):
            yield from to_table(events, schema, chosen).to_batches()


def run_fragment_in_order(
    node: Node,
    pieces: Iterable[tuple[Mapping[Feed, Iterable[pa.RecordBatch]], int]],
    device: str,
    wanted: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """`run_fragment` over batches in order of time, each with a CTI.

    Args:
        node: As in `run_fragment`.
        pieces: (batches of each feed, CTI): no event of a later piece starts before the CTI.
        device: As in `run_fragment`.
        wanted: As in `run_fragment`.
    """
    chosen = place(node, device)
    schema = pa.schema([*list(output_schema(node))[:2], *(node.schema.field(name) for name in wanted)])

    def fed() -> Iterator[tuple[dict[Feed, list[Events]], int]]:
        for handed, cti in pieces:
            yield {feed: list(_fed(feed, batches, chosen)) for feed, batches in handed.items()}, cti

    for events in run_in_order(node, fed(), chosen):
        yield from to_table(events, schema, chosen).to_batches()


def _fed(feed: Feed, batches: Iterable[pa.RecordBatch], device: Device) -> Iterator[Events]:
    # A frame without columns has no height: the narrowest column stands in.
    height = min(feed.schema, key=_width)
    for batch in batches:
        if not batch.num_rows:
            continue
        fields = [field for field in feed.schema if field.name in batch.schema.names]
        columns = [batch[field.name].cast(field.type) for field in fields] or [pa.nulls(len(batch), height.type)]
        payload = pa.Table.from_arrays(columns, schema=pa.schema(fields or [height.with_nullable(True)]))
        end = feed.length if feed.length is not None else _ticks(batch["end"], device)
        yield Events(_ticks(batch["start"], device), end, device.columns.from_arrow(payload))


def _ticks(column: pa.Array | pa.ChunkedArray, device: Device) -> Any:
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return device.columns.array(integers(whole.cast(TIME_TYPE)))


def tables(node: Node, device: Device, *, kept: bool = False) -> Iterator[pa.Table]:
    """The answer in one or more tables. ``kept`` says that the caller keeps them all."""
    schema = output_schema(node)
    nothing = True
    with Progress(known_rows(each.source for each in node.all(Source))) as progress:
        gathered, shown = _gathered(node, kept=kept), _shown(node)
        for table in _answers(node, schema, BatchRun(device, progress, shared(node), gathered=gathered, shown=shown)):
            nothing = False
            progress.gave(table.num_rows)
            yield table
    if nothing:
        yield pa.Table.from_batches([], schema)


def _answers(node: Node, schema: pa.Schema, run: BatchRun) -> Iterator[pa.Table]:
    node, names = node.unkeyed, tuple(schema.names[2:])
    if runs_in_pieces(node):
        ready = lean(node)
        leaves = {each: _leaf(each, run, columns) for each, columns in read_of(ready).items()}
        for events in run_in_order(ready, pieces(leaves, run.device), run.device):
            yield to_table(events, schema, run.device)
        return
    if not node.chain():
        yield from (to_table(events, schema, run.device) for events in execute(node, run, names, cut=True))
        return
    # The answer of filters and projections keeps the chunks that it was computed in.
    columns = filter_project.FilterProject.of(node, run.device, run.shared)
    yield from columns.answers(_inputs(columns, run, names, cut=True)[0], schema)


def _leaf(node: Node, run: BatchRun, names: tuple[str, ...]) -> Events:
    """All events of a leaf, in order of start."""
    events = concat(_come_in(node, run, names), run.device)
    assert events is not None  # noqa: S101  (a source gives a batch, which may be empty)
    if not run.device.kernels.ascends(events.start):
        events = events.take(np.argsort(events.start, kind="stable"), run.device)
    return replace(events, order=TimeOrder.ASCENDS)


def from_table(table: pa.Table, device: Device) -> Events:
    """Events from a table with ``start``, ``end`` and a payload."""
    start, end = (_ticks(table[name], device) for name in ("start", "end"))
    return Events(start, end, device.columns.from_arrow(table.drop_columns(["start", "end"])))


def to_table(events: Events, schema: pa.Schema, device: Device) -> pa.Table:
    """A table of events, with the schema of an answer."""
    payload = device.columns.to_arrow(events.frame, pa.schema(list(schema)[2:]))
    start, end = device.columns.host(events.start), events.host_ends
    if end is None:
        end = later([start], events.end) if isinstance(events.end, int) else device.columns.host(events.end)
    times = [to_arrow(ticks, schema.field(name).type) for name, ticks in (("start", start), ("end", end))]
    return pa.Table.from_arrays([*times, *payload.columns], schema=schema)


def shared(node: Node) -> dict[Node, list[Events] | None]:
    """Nodes with several parents. The descendants of a shared node are not shared themselves."""
    given = Counter(each for above in node.walk() for each in above.inputs)
    return {each: None for each, times in given.items() if times > 1}


def _gathered(node: Node, *, kept: bool) -> frozenset[Node]:
    """The nodes whose rows are all kept, by the caller or by the node above."""
    found = {node} if kept else set()
    found |= {each for above in node.walk() if above.collects for each in above.inputs}
    waiting = [each for each in found if each.keeps_rows]
    while waiting:
        below = [each for each in waiting.pop().inputs if each not in found]
        found.update(below)
        waiting += [each for each in below if each.keeps_rows]
    return frozenset(found)


def _shown(node: Node) -> frozenset[Node]:
    """A node and those below it whose events it passes on as they are."""
    found, waiting = {node}, [node]
    while waiting:
        each = waiting.pop()
        if each.keeps_rows and not each.chain():
            waiting += [below for below in each.inputs if below not in found]
            found.update(each.inputs)
    return frozenset(found)


def execute(node: Node, run: BatchRun, wanted: tuple[str, ...], *, cut: bool = False) -> Iterator[Events]:
    """The events of a node, in pieces.

    Args:
        node: The node.
        run: The run that it is part of.
        wanted: The columns that its parent needs; it may give more.
        cut: As in `BatchInput`.
    """
    if node not in run.shared:
        yield from _give(node, run, wanted, cut=cut)
        return
    if run.shared[node] is None:
        # Its parents may need different columns, so it is computed once with all of them.
        run.shared[node] = list(_give(node, run, tuple(node.schema.names)))
    yield from run.shared[node] or ()


def _give(node: Node, run: BatchRun, wanted: tuple[str, ...], *, cut: bool = False) -> Iterator[Events]:
    if node.comes_in:
        return _come_in(node, run, wanted)
    family = registered(node)
    if family is None:
        raise PlanError(f"The local engine does not run {type(node).__name__}.", remedy="Collect it on its own engine.")
    operator = family.of(node, run.device, run.shared)
    inputs = _inputs(operator, run, wanted)
    return operator.batch(BatchInput(inputs, wanted, gathered=node in run.gathered, cut=cut))


def _inputs(operator: Operator, run: BatchRun, wanted: tuple[str, ...], *, cut: bool = False) -> list[Iterator[Events]]:
    needed = zip(operator.inputs, operator.needs(wanted), strict=True)
    return [execute(each, run, names, cut=cut) for each, names in needed]


@singledispatch
def _come_in(node: Node, run: BatchRun, wanted: tuple[str, ...]) -> Iterator[Events]:
    """The events of a leaf."""
    raise TypeError(f"no rule for {node}")


@_come_in.register
def _(node: Feed, run: BatchRun, wanted: tuple[str, ...]) -> Iterator[Events]:
    return run.feeds[node]


@_come_in.register
def _(node: Source, run: BatchRun, wanted: tuple[str, ...]) -> Iterator[Events]:
    if node.source.marked:
        yield from _let_in(node, None, run, wanted)
        return
    columns = run.device.columns
    for batch in node.source.read(_names(node, wanted), point_ends=node in run.shown - run.shared.keys()):
        run.progress.read(len(batch.start))
        end = 1 if batch.end is None else columns.array(batch.end)
        payload = columns.from_arrow(batch.payload)
        yield Events(columns.array(batch.start), end, payload, batch.extent, batch.point_ends)


@_come_in.register
def _(node: AdvanceTime, run: BatchRun, wanted: tuple[str, ...]) -> Iterator[Events]:
    return _let_in(node.source, node.settings, run, wanted)


@_come_in.register
def _(node: Late, run: BatchRun, wanted: tuple[str, ...]) -> Iterator[Events]:
    """The events that an ingress diverts."""
    source, columns = node.advance.source, run.device.columns
    for admitted in let_in(source.source, node.advance.settings, _names(source, wanted), run.progress.read):
        aside = admitted.diverted
        if aside is not None:
            payload = aside.payload.cast(pa.schema([node.schema.field(name) for name in aside.payload.column_names]))
            yield Events(columns.array(aside.start), columns.array(aside.end), columns.from_arrow(payload))


def _names(node: Source, wanted: tuple[str, ...]) -> list[str]:
    # A frame without columns has no height: the narrowest column stands in.
    asked = set(wanted)
    return [name for name in node.schema.names if name in asked] or [min(node.schema, key=_width).name]


def _let_in(node: Source, settings: Advance | None, run: BatchRun, wanted: tuple[str, ...]) -> Iterator[Events]:
    """The events that an ingress admits from a source, whose rows are read in their order."""
    columns, length = run.device.columns, node.duration
    for admitted in let_in(node.source, settings, _names(node, wanted), run.progress.read):
        end = columns.array(admitted.end) if length is None else length
        yield Events(columns.array(admitted.start), end, columns.from_arrow(admitted.payload))


def _width(column: pa.Field) -> int:
    try:
        return int(column.type.bit_width)
    except ValueError:  # its values have variable width
        return 1 << 10
