"""The local engine: a plan over Arrow data in this process, on one device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from gpu_ops.buffers import integers, to_arrow
from gpu_ops.devices import Device, choose
from gpu_ops.engines.progress import Progress
from gpu_ops.engines.shapes import Shape, in_shape, shape_schema
from gpu_ops.errors import PlanError
from gpu_ops.ingest import to_origin
from gpu_ops.ingest.entrance import let_in
from gpu_ops.operators import lifetimes, relational, windows
from gpu_ops.operators.events import Events, concat
from gpu_ops.plan.advance import Advance, AdvanceTime, Late
from gpu_ops.plan.lifetimes import Chop, Lifetime, Stitch
from gpu_ops.plan.nodes import Feed, Filter, KeyBy, Node, Project, Source
from gpu_ops.plan.windows import WindowAggregate
from gpu_ops.store.files import WriteReport
from gpu_ops.store.files import write as write_file
from gpu_ops.time import TIME_TYPE


@dataclass(frozen=True)
class Run:
    """One run of a plan.

    Attributes:
        device: Where arrays live.
        progress: What counts rows.
        feeds: What the leaves give that another engine feeds.
    """

    device: Device
    progress: Progress
    feeds: dict[Node, Iterator[Events]] = field(default_factory=dict)


def collect(node: Node, device: str, shape: Shape = "interval") -> Any:
    """The answer in the kind of frame that came in."""
    shape_schema(output_schema(node), shape)  # refused before anything is read
    table = pa.concat_tables(tables(node, choose(device)))
    return to_origin(in_shape(table, shape), origin(node))


def reader(node: Node, device: str) -> pa.RecordBatchReader:
    """The answer as record batches, computed as they are read."""
    batches = (batch for table in tables(node, choose(device)) for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(output_schema(node), batches)


def write(
    node: Node, device: str, path: Path, if_exists: Literal["raise", "replace"], row_group_rows: int
) -> WriteReport:
    """The answer in a file, whole or not at all."""
    return write_file(
        tables(node, choose(device)),
        output_schema(node),
        path,
        if_exists=if_exists,
        row_group_rows=row_group_rows,
    )


def origin(node: Node) -> str:
    """The kind of frame that the first source came from."""
    return next((each.source.origin for each in node.walk() if isinstance(each, Source)), "pyarrow")


def output_schema(node: Node) -> pa.Schema:
    """The columns of an answer: the lifetime in the zone that came in, then the payload."""
    time = pa.timestamp("us", tz=node.zone)
    return pa.schema([pa.field("start", time), pa.field("end", time), *node.schema])


def run_fragment(node: Node, batches: Iterator[pa.RecordBatch], device: str) -> Iterator[pa.RecordBatch]:
    """Run a plan over batches that another engine hands in.

    Args:
        node: A plan whose only leaf is a `Feed`.
        batches: Columns ``start``, ``end`` (``timestamp[us]``; ``end`` may be missing when the feed's events all last
            as long) and the feed's payload.
        device: As in `Stream.collect`.

    Yields:
        Batches with ``start`` and ``end`` in UTC and the node's payload.
    """
    chosen = choose(device)
    feed = next(each for each in node.walk() if isinstance(each, Feed))
    handed = (_fed(feed, pa.Table.from_batches([batch]), chosen) for batch in batches if batch.num_rows)
    schema = output_schema(node)
    with Progress(None) as progress:
        for events in execute(node, Run(chosen, progress, {feed: handed}), tuple(node.schema.names)):
            yield from to_table(events, schema, chosen).to_batches()


def _fed(feed: Feed, table: pa.Table, device: Device) -> Events:
    start = _ticks(table["start"], device)
    end = feed.length if feed.length is not None else _ticks(table["end"], device)
    return Events(start, end, device.columns.from_arrow(table.select(feed.schema.names).cast(feed.schema)))


def _ticks(column: pa.ChunkedArray, device: Device) -> Any:
    return device.columns.array(integers(column.combine_chunks().cast(TIME_TYPE)))


def tables(node: Node, device: Device) -> Iterator[pa.Table]:
    """The answer in pieces; at least one, if an empty one."""
    schema = output_schema(node)
    sizes = [each.source.rows for each in node.walk() if isinstance(each, Source)]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    nothing = True
    with Progress(total) as progress:
        for table in _answers(node, schema, Run(device, progress)):
            nothing = False
            progress.gave(table.num_rows)
            yield table
    if nothing:
        yield pa.Table.from_batches([], schema)


def _answers(node: Node, schema: pa.Schema, run: Run) -> Iterator[pa.Table]:
    while isinstance(node, KeyBy):
        node = node.input
    if not isinstance(node, Filter | Project):
        yield from (to_table(events, schema, run.device) for events in execute(node, run, tuple(node.schema.names)))
        return
    # What columns alone compute goes out as it comes, without arrays of times in between.
    chain = _chain(node)
    for events in execute(chain[0].input, run, relational.wanted_below(chain, tuple(node.schema.names))):
        yield relational.answer(chain, events, schema, run.device)


def from_table(table: pa.Table, device: Device) -> Events:
    """Events of a table with ``start``, ``end`` and a payload."""
    start, end = (_ticks(table[name], device) for name in ("start", "end"))
    return Events(start, end, device.columns.from_arrow(table.drop_columns(["start", "end"])))


def to_table(events: Events, schema: pa.Schema, device: Device) -> pa.Table:
    """A table of events, of the schema of an answer."""
    payload = device.columns.to_arrow(events.frame, pa.schema(list(schema)[2:]))
    times = [
        to_arrow(device.columns.host(ticks), schema.field(name).type)
        for name, ticks in (("start", events.start), ("end", events.ends))
    ]
    return pa.Table.from_arrays([*times, *payload.columns], schema=schema)


def execute(node: Node, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    """The events that a node gives, in pieces.

    Args:
        node: The node.
        run: The run that it is part of.
        wanted: The columns that are asked of it; it may give more.
    """
    device = run.device
    if isinstance(node, Feed):
        yield from run.feeds[node]
    elif isinstance(node, Source):
        yield from _let_in(node, None, run, wanted) if node.source.marked else _read(node, run, wanted)
    elif isinstance(node, AdvanceTime):
        yield from _let_in(node.source, node.settings, run, wanted)
    elif isinstance(node, Late):
        yield from _late(node, run, wanted)
    elif isinstance(node, KeyBy):
        yield from execute(node.input, run, wanted)
    elif isinstance(node, Filter | Project):
        chain = _chain(node)
        for events in execute(chain[0].input, run, relational.wanted_below(chain, wanted)):
            yield relational.run(chain, events, device)
    elif isinstance(node, Lifetime):
        for events in execute(node.input, run, lifetimes.wanted_below(node, wanted)):
            yield lifetimes.change_lifetimes(node.exact, events, device)
    elif isinstance(node, Chop):
        for events in execute(node.input, run, wanted):
            yield lifetimes.chop(node, events, device)
    elif isinstance(node, Stitch):
        whole = concat(execute(node.input, run, tuple(node.schema.names)), device)
        if whole is not None:
            yield lifetimes.stitch(whole, node.schema.names, device)
    elif isinstance(node, WindowAggregate):
        lowered = node.lowered()
        # Without a projection below it, it needs no column at all: it counts.
        needed = () if lowered is node else tuple(lowered.input.schema.names)
        pieces = execute(lowered.input, run, needed)
        yield from windows.window_aggregate(lowered, pieces, device)
    else:
        raise PlanError(f"The local engine does not run {type(node).__name__}.", remedy="Collect it on its own engine.")


def _chain(node: Filter | Project) -> list[Filter | Project]:
    """The filters and projections that end in a node, the first of them first."""
    chain = [node]
    while isinstance(chain[0].input, Filter | Project):
        chain.insert(0, chain[0].input)
    return chain


def _read(node: Source, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    device = run.device
    for batch in node.source.read(_names(node, wanted)):
        run.progress.read(len(batch.start))
        end = 1 if batch.end is None else device.columns.array(batch.end)
        yield Events(device.columns.array(batch.start), end, device.columns.from_arrow(batch.payload))


def _names(node: Source, wanted: tuple[str, ...]) -> list[str]:
    # A frame without columns would not know its height; the narrowest column costs least.
    return [name for name in node.schema.names if name in wanted] or [min(node.schema, key=_width).name]


def _let_in(node: Source, settings: Advance | None, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    """What the entrance lets in of a source, its rows in their order; then the input ends."""
    columns, length = run.device.columns, node.duration
    for admitted in let_in(node.source, settings, _names(node, wanted), run.progress.read):
        end = columns.array(admitted.end) if length is None else length
        yield Events(columns.array(admitted.start), end, columns.from_arrow(admitted.payload))


def _late(node: Late, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    """What it does not let in, and keeps aside."""
    source, columns = node.advance.source, run.device.columns
    for admitted in let_in(source.source, node.advance.settings, _names(source, wanted), run.progress.read):
        aside = admitted.diverted
        if aside is not None:
            payload = aside.payload.cast(pa.schema([node.schema.field(name) for name in aside.payload.column_names]))
            yield Events(columns.array(aside.start), columns.array(aside.end), columns.from_arrow(payload))


def _width(column: pa.Field) -> int:
    try:
        return int(column.type.bit_width)
    except ValueError:  # of variable width
        return 1 << 10
