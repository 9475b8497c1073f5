"""The local engine: a plan over Arrow data in this process, on one device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, to_arrow
from gpu_ops.core.bounds import gathered
from gpu_ops.core.time import MAX_TIME, TIME_TYPE
from gpu_ops.devices import Device
from gpu_ops.engines.local.in_order import run_in_order
from gpu_ops.engines.local.placing import place
from gpu_ops.engines.local.shapes import Shape, in_shape, shape_schema
from gpu_ops.engines.progress import Progress
from gpu_ops.errors import PlanError
from gpu_ops.ingest import to_origin
from gpu_ops.ingest.ingress import let_in
from gpu_ops.microbatches.files import WriteReport
from gpu_ops.microbatches.files import write as write_file
from gpu_ops.operators import filter_project, lifetimes
from gpu_ops.operators.events import Events, concat
from gpu_ops.operators.joins import joins
from gpu_ops.operators.joins.stitch import stitch
from gpu_ops.operators.row_windows.incremental import RunningDataWindow
from gpu_ops.operators.unnest import several
from gpu_ops.operators.windows import windows
from gpu_ops.operators.windows.fills import RunningFill
from gpu_ops.plan.advance import Advance, AdvanceTime, Late
from gpu_ops.plan.data_windows import DataWindow
from gpu_ops.plan.fills import Fill
from gpu_ops.plan.joins import AsOf, Binary, ClipBy, Join, Union
from gpu_ops.plan.lifetimes import Chop, Lifetime, Stitch
from gpu_ops.plan.nodes import Expressions, Feed, KeyBy, Node, Source
from gpu_ops.plan.unnest import Repeat, Unnest
from gpu_ops.plan.windows import WindowAggregate


@dataclass(frozen=True)
class Run:
    """One run of a plan.

    Attributes:
        device: Where arrays live.
        progress: What counts rows.
        shared: The nodes that stand at several places of the plan, and what they give once that is known.
        feeds: What the leaves give that another engine feeds.
        gathered: The nodes all rows of which are in memory together at some time.
    """

    device: Device
    progress: Progress
    shared: dict[Node, list[Events] | None]
    feeds: dict[Node, Iterator[Events]] = field(default_factory=dict)
    gathered: frozenset[Node] = frozenset()


def collect(node: Node, device: str, shape: Shape = "interval") -> Any:
    """The answer in the kind of frame that came in."""
    shape_schema(output_schema(node), shape)  # refused before anything is read
    table = pa.concat_tables(gathered(tables(node, place(node, device), kept=True), "The answer"))
    return to_origin(in_shape(table, shape), origin(node))


def reader(node: Node, device: str) -> pa.RecordBatchReader:
    """The answer as record batches, computed as they are read."""
    batches = (batch for table in tables(node, place(node, device)) for batch in table.to_batches())
    return pa.RecordBatchReader.from_batches(output_schema(node), batches)


def write(
    node: Node, device: str, path: str | Path, if_exists: Literal["raise", "replace"], row_group_rows: int
) -> WriteReport:
    """The answer in a file, whole or not at all."""
    return write_file(
        tables(node, place(node, device)),
        output_schema(node),
        path,
        if_exists=if_exists,
        row_group_rows=row_group_rows,
    )


def origin(node: Node) -> str:
    """The kind of frame that the first source came from."""
    return next((each.source.origin for each in node.all(Source)), "pyarrow")


def output_schema(node: Node) -> pa.Schema:
    """The columns of an answer: the lifetime in the zone that came in, then the payload."""
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
        handed: For each of them batches of ``start``, ``end`` (``timestamp[us]``; not looked at when the feed's events
            all last as long) and those columns of the feed's payload that are needed.
        device: As in `Stream.collect`.
        wanted: The columns of the answer that are asked for; all by default.

    Yields:
        Batches with ``start`` and ``end`` in UTC and the wanted payload.
    """
    chosen = place(node, device)
    feeds: dict[Node, Iterator[Events]] = {feed: _fed(feed, rows, chosen) for feed, rows in handed.items()}
    names = tuple(node.schema.names if wanted is None else wanted)
    schema = pa.schema([*list(output_schema(node))[:2], *(node.schema.field(name) for name in names)])
    with Progress(None) as progress:
        for events in execute(node, Run(chosen, progress, shared(node), feeds), names):
            yield from to_table(events, schema, chosen).to_batches()


def run_fragment_in_order(
    node: Node,
    pieces: Iterable[tuple[Mapping[Feed, Iterable[pa.RecordBatch]], int]],
    device: str,
    wanted: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """`run_fragment` over batches that come in order of time, each with what is promised of all that come later.

    Args:
        node: As in `run_fragment`.
        pieces: (batches of each feed, CTI): no event of a later piece starts before it.
        device: As in `run_fragment`.
        wanted: Likewise.
    """
    chosen = place(node, device)
    schema = pa.schema([*list(output_schema(node))[:2], *(node.schema.field(name) for name in wanted)])

    def fed() -> Iterator[tuple[dict[Feed, list[Events]], int]]:
        for handed, cti in pieces:
            yield {feed: list(_fed(feed, batches, chosen)) for feed, batches in handed.items()}, cti

    for events in run_in_order(node, fed(), chosen):
        yield from to_table(events, schema, chosen).to_batches()


def _fed(feed: Feed, batches: Iterable[pa.RecordBatch], device: Device) -> Iterator[Events]:
    # A frame without columns would not know its height.
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
    """The answer in pieces; at least one, if an empty one. ``kept`` says that they are all kept."""
    schema = output_schema(node)
    sizes = [each.source.rows for each in node.all(Source)]
    total = None if None in sizes else sum(size for size in sizes if size is not None)
    nothing = True
    with Progress(total) as progress:
        for table in _answers(node, schema, Run(device, progress, shared(node), gathered=_gathered(node, kept=kept))):
            nothing = False
            progress.gave(table.num_rows)
            yield table
    if nothing:
        yield pa.Table.from_batches([], schema)


def _answers(node: Node, schema: pa.Schema, run: Run) -> Iterator[pa.Table]:
    node = node.unkeyed
    chain = node.chain(run.shared)
    if not chain:
        yield from (to_table(events, schema, run.device) for events in execute(node, run, tuple(node.schema.names)))
        return
    # What columns alone compute goes out as it comes, without arrays of times in between.
    for events in execute(chain[0].input, run, filter_project.wanted_below(chain, tuple(node.schema.names))):
        yield filter_project.answer(chain, events, schema, run.device)


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


def shared(node: Node) -> dict[Node, list[Events] | None]:
    """The nodes that stand at several places of a plan; what a shared one alone holds is not among them."""
    given = Counter(each for above in node.walk() for each in above.inputs)
    return {each: None for each, times in given.items() if times > 1}


def _gathered(node: Node, *, kept: bool) -> frozenset[Node]:
    """The nodes whose rows are all kept: by whom the answer is handed to, or by the node above."""
    found = {node} if kept else set()
    found |= {each for above in node.walk() if above.collects for each in above.inputs}
    waiting = [each for each in found if each.keeps_rows]
    while waiting:
        below = [each for each in waiting.pop().inputs if each not in found]
        found.update(below)
        waiting += [each for each in below if each.keeps_rows]
    return frozenset(found)


def execute(node: Node, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    """The events that a node gives, in pieces.

    Args:
        node: The node.
        run: The run that it is part of.
        wanted: The columns that are asked of it; it may give more.
    """
    if node not in run.shared:
        yield from _give(node, run, wanted)
        return
    if run.shared[node] is None:
        # It stands at several places of the plan, which may ask for different columns: computed once, with all of them.
        run.shared[node] = list(_give(node, run, tuple(node.schema.names)))
    yield from run.shared[node] or ()


@singledispatch
def _give(node: Node, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    raise PlanError(f"The local engine does not run {type(node).__name__}.", remedy="Collect it on its own engine.")


@_give.register
def _(node: Feed, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    yield from run.feeds[node]


@_give.register
def _(node: Source, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    yield from _let_in(node, None, run, wanted) if node.source.marked else _read(node, run, wanted)


@_give.register
def _(node: AdvanceTime, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    yield from _let_in(node.source, node.settings, run, wanted)


@_give.register
def _(node: Late, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    yield from _late(node, run, wanted)


@_give.register
def _(node: KeyBy, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    yield from execute(node.input, run, wanted)


@_give.register
def _(node: Expressions, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    chain = node.chain(run.shared)
    for events in execute(chain[0].input, run, filter_project.wanted_below(chain, wanted)):
        yield filter_project.run(chain, events, run.device)


@_give.register
def _(node: Lifetime, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    for events in execute(node.input, run, *node.needs(wanted)):
        yield lifetimes.changed(node, events, run.device)


@_give.register
def _(node: Chop, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    for events in execute(node.input, run, wanted):
        yield lifetimes.chop(node, events, run.device)


@_give.register
def _(node: Stitch, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    whole = concat(execute(node.input, run, tuple(node.schema.names)), run.device)
    if whole is not None:
        yield stitch(node, whole, run.device)


@_give.register
def _(node: WindowAggregate, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    lowered = node.lowered()
    # Without a projection below it, it needs no column at all: it counts.
    needed = () if lowered is node else tuple(lowered.input.schema.names)
    for given in _whole(lowered.input, lowered.group, run, needed):
        yield from windows.window_aggregate(lowered, [given], run.device)


@_give.register
def _(node: DataWindow, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    for given in _whole(node.input, node.group, run, node.needed(wanted)):
        yield from RunningDataWindow(node, run.device).batch(given)


def _whole(node: Node, group: Sequence[str], run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    """What a node gives, in pieces that each hold whole groups: as they come where they do, else all in one."""
    pieces = execute(node, run, wanted)
    key = node.whole
    if key is not None and set(key) <= set(group):
        yield from pieces
    elif (given := concat(pieces, run.device)) is not None:
        yield given


@_give.register
def _(node: Fill, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    given = concat(execute(node.input, run, tuple(node.schema.names)), run.device)
    yield from RunningFill(node, run.device).step(given, MAX_TIME)[0]


@_give.register(Unnest)
@_give.register(Repeat)
def _(node: Unnest | Repeat, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    for events in execute(node.input, run, tuple(node.input.schema.names)):
        made = several(node, events, run.device)
        yield Events(made.start, made.end, run.device.columns.select(made.frame, wanted)) if wanted else made


@_give.register
def _(node: Union, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    # A union of unions is one: a batch is not handed on from each to the next.
    parts = list(reversed(node.parts))
    while parts:
        part = parts.pop()
        if isinstance(part, Union) and part not in run.shared:
            parts.extend(reversed(part.parts))
            continue
        for events in execute(part, run, wanted or tuple(node.schema.names[:1])):
            # One at least: a frame without columns would not know its height.
            names = list(wanted or node.schema.names[:1])
            yield Events(events.start, events.end, run.device.columns.select(events.frame, names))


@_give.register
def _(node: Join, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    left, right = _sides(node, run, wanted)
    yield from joins.join(node, left, right, run.device, gathered=node in run.gathered)


@_give.register
def _(node: AsOf, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    left, right = _sides(node, run, wanted)
    yield from joins.as_of(node, left, right, run.device)


@_give.register
def _(node: ClipBy, run: Run, wanted: tuple[str, ...]) -> Iterator[Events]:
    left, right = _sides(node, run, wanted)
    clipped = joins.clip_by(node, left, right, run.device)
    if clipped is not None:
        yield clipped


def _sides(node: Binary, run: Run, wanted: tuple[str, ...]) -> tuple[Events | None, Events | None]:
    left, right = node.needs(wanted)
    return (
        concat(execute(node.left, run, left), run.device),
        concat(execute(node.right, run, right), run.device),
    )


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
