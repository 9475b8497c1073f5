"""What an entrance knows between two calls: as arrays that the kernel steps, and as tables that anyone can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import integers, nulls, to_arrow
from gpu_ops.core.polars_frames import from_frame, to_frame
from gpu_ops.core.state_tables import Field, RowRule, StateTable, Tables, check, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE
from gpu_ops.devices.cpu import columns
from gpu_ops.errors import ColumnError
from gpu_ops.ingest import arrival_kernel as k
from gpu_ops.ingest.arrivals import ArrivalKind
from gpu_ops.ingest.held import HeldRows

Ints = npt.NDArray[np.int64]

_SEEDS = (0x9E37, 0x79B9)
KINDS = ("insert", "start", "end")
FATES = ("dropped", "adjusted", "diverted", "unmatched", "emptied")
"""What is done with a row that is not let in as it came: left out; its time moved to the CTI; left out and kept aside;
an end edge whose start edge is not there, left out; an end edge that ends its moved start edge where that starts, so
that nothing is left of the event."""

_TABLES = ("buffer", "open", "kept_out")

_CLOCK = {"last_cti": k.LAST, "limit": k.LIMIT, "latest": k.HIGH}


class State:
    """The arrays; see `arrival_kernel` for what is in them.

    Args:
        schema: The payload's columns.
        hands_out_open: Whether start edges are handed out once the CTI is past them; then only others are waiting.
    """

    def __init__(self, schema: pa.Schema, *, hands_out_open: bool = False) -> None:
        self.schema = schema
        self.hands_out_open = hands_out_open
        self.clock = np.zeros(k.CLOCK, np.int64)
        self.clock[[k.LAST, k.LIMIT, k.HIGH, k.FREE]] = k.NONE, MIN_TIME, MIN_TIME, -1
        self.held = np.empty((1, k.SLOT), np.int64)
        self.buckets = np.full(1, -1, np.int64)
        self.buffer = np.empty((1, 3), np.int64)
        self.waiting = np.empty((1, 3), np.int64)
        self.rows = HeldRows(schema)
        self.arrived = 0
        self.promised = MIN_TIME
        self.counts: Counter[str] = Counter()

    def make_room(self, more: int) -> None:
        """Let the arrays hold as many rows more: they double, so that a row costs the same however many there are."""
        clock = self.clock
        if clock[k.WAITING] > 2 * clock[k.HELD] + 1024:
            self._clear_waiting()
        needed = int(clock[k.HELD]) + more
        if needed > len(self.held):
            size = 1 << (needed - 1).bit_length()
            self.held = _grown(self.held, size)
            self.buffer = _grown(self.buffer, size)
            self.buckets = np.full(size, -1, np.int64)
            k.index_edges(self.held, self._heads(), self.buckets)
        needed = int(clock[k.WAITING] + clock[k.BUFFERED]) + more
        if needed > len(self.waiting):
            self.waiting = _grown(self.waiting, 1 << (needed - 1).bit_length())

    def undo(self, clock: Ints) -> None:
        """Make everything as it was before a call that ended in a fault; it costs a pass over what is held.

        Args:
            clock: As it was then.
        """
        used = self.held[: self.clock[k.USED]]
        changed = used[:, k.CHANGED] == clock[k.CALL]
        used[changed, k.PLACE] = used[changed, k.FORMER]
        used[used[:, k.NUMBER] >= self.arrived, k.PLACE] = k.NOWHERE
        kept = used[used[:, k.PLACE] != k.NOWHERE]
        self.clock = clock
        self.refill(kept[np.argsort(kept[:, k.NUMBER])])

    def refill(self, slots: Ints) -> None:
        """Hold these rows, in the order of their numbers, and no others: only what links them is not known."""
        clock = self.clock
        clock[[k.USED, k.HELD]] = len(slots)
        clock[k.FREE] = -1
        slots[:, k.CHANGED] = -1
        self.held[: len(slots)] = slots
        _refill_heaps(self, slots)
        self.buckets[:] = -1
        _refill_queues(self, slots)

    def opened(self) -> Ints:
        """The slots of the start edges that the last call hands out, by number."""
        rows = self.waiting[self.clock[k.OPENED] : self.clock[k.OPENED_END]]
        slots: Ints = rows[np.argsort(rows[:, 1]), 2]
        return slots

    def promise(self) -> None:
        """Promise as much as the last CTI allows, and the oldest open start edge that is not handed out."""
        promised = max(int(self.clock[k.LAST]), MIN_TIME)
        if self.clock[k.WAITING]:
            promised = min(promised, int(self.waiting[0, 0]))
        self.promised = max(self.promised, promised)

    def slots(self, place: int) -> Ints:
        """The slots that are in use there, by number."""
        used = self.held[: self.clock[k.USED]]
        found = np.flatnonzero(used[:, k.PLACE] == place)
        return found[np.argsort(used[found, k.NUMBER])]

    def _heads(self) -> Ints:
        slots = self.slots(k.IN_EDGES)
        followers = self.held[slots, k.NEXT]
        return np.setdiff1d(slots, followers[followers >= 0])

    def _clear_waiting(self) -> None:
        """Leave out start edges that have ended: a heap drops them only once they are the oldest."""
        used = self.waiting[: self.clock[k.WAITING]]
        slots = self.held[used[:, 2]]
        here = used[(slots[:, k.NUMBER] == used[:, 1]) & (slots[:, k.PLACE] == k.IN_EDGES)]
        # A sorted table is a heap.
        self.waiting[: len(here)] = here[np.lexsort((here[:, 1], here[:, 0]))]
        self.clock[k.WAITING] = len(here)


def identities(frame: pl.DataFrame, rows: int, edges: npt.NDArray[np.intp]) -> tuple[Ints, Ints]:
    """128 bits of hash for the payloads of edges, anything elsewhere: two payloads that differ will not share them.

    Null equals null, all NaNs are one, -0.0 equals 0.0. Numbers as the device gives them to keys would have to be given
    anew with each call, to all start edges that are open.
    """
    for name, dtype in frame.schema.items():
        if dtype.is_nested():
            raise ColumnError(
                f"Edges are told apart by their payload, and {dtype} has no equality here.",
                column=name,
                remedy="Leave it out of the source, or give its fields as columns.",
            )
    if not frame.width:
        # Such a frame has no rows; all payloads are one.
        return np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    most = 2 * len(edges) >= rows
    told = frame if most else columns.take(frame, edges)
    # Categories are numbered by chance; floats that are one key are one to the hash already.
    categories = [name for name, dtype in frame.schema.items() if dtype == pl.Categorical or isinstance(dtype, pl.Enum)]
    if categories:
        told = told.with_columns(pl.col(categories).cast(pl.String))
    made = []
    for seed in _SEEDS:
        hashes = told.hash_rows(seed).to_numpy().view(np.int64)
        if not most:
            spread = np.zeros(rows, np.int64)
            spread[edges] = hashes
            hashes = spread
        made.append(hashes)
    return made[0], made[1]


def spelled(words: Sequence[str], codes: Ints) -> pa.ChunkedArray:
    """Words by their positions among some."""
    text = pl.Series("word", words, pl.String)[pl.Series(codes.astype(np.uint32))]
    return from_frame(text.to_frame(), pa.schema([("word", pa.string())]))["word"]


def as_struct(payload: pa.Table, rows: int) -> pa.Array:
    """A payload of a number of rows as one column, whose field names are in nobody's way."""
    if not payload.num_columns:
        return pa.Array.from_buffers(pa.struct([]), rows, [None])
    arrays = [column.chunk(0) if column.num_chunks == 1 else column.combine_chunks() for column in payload.columns]
    return pa.StructArray.from_arrays(arrays, fields=list(payload.schema))


def tables(state: State) -> dict[str, pa.Table]:
    """The state as tables; `Ingress.tables` says which."""
    clock = state.clock
    times = {name: _times(np.array([clock[at]])) for name, at in _CLOCK.items()}
    counters = {"promised_cti": _times(np.array([state.promised]))}
    numbers = {"events_since_cti": int(clock[k.COUNT]), "arrivals": state.arrived}
    numbers |= {fate: state.counts[fate] for fate in FATES}
    counters |= {name: to_arrow(np.array([number]), pa.int64()) for name, number in numbers.items()}
    edges = state.slots(k.IN_EDGES)
    inside = state.held[edges, k.LET_IN] != k.NONE
    return {
        "clock": pa.table(times | counters),
        "buffer": _rows(state, state.slots(k.IN_BUFFER), {"kind": k.KIND, "start": k.FIRST, "end": k.STOP}),
        "open": _rows(state, edges[inside], {"start": k.FIRST, "let_in": k.LET_IN, "cti": k.MISSED}),
        "kept_out": _rows(state, edges[~inside], {"start": k.FIRST, "cti": k.MISSED}),
    }


def _rows(state: State, slots: Ints, fields: Mapping[str, int]) -> pa.Table:
    used = state.held[slots]
    numbers = np.ascontiguousarray(used[:, k.NUMBER])
    made = {"arrival": to_arrow(numbers, pa.int64())}
    for name, at in fields.items():
        values = np.ascontiguousarray(used[:, at])
        made[name] = spelled(KINDS, values) if at == k.KIND else _times(values)
    payload = from_frame(state.rows.find(numbers), state.schema)
    return pa.table(made | {"payload": as_struct(payload, len(numbers))})


def declared(schema: pa.Schema, given: Tables) -> Iterator[StateTable]:
    """The tables that `tables` gives of a state with this payload, as `gpu_ops.core.state_tables.check` takes them."""
    time = Field(TIME_TYPE, least=MIN_TIME, most=MAX_TIME)
    maybe = replace(time, nullable=True)
    numbers = ("events_since_cti", "arrivals", *FATES)
    clock = {"last_cti": maybe, "limit": maybe, "latest": maybe, "promised_cti": time}
    yield StateTable("clock", clock | dict.fromkeys(numbers, counter()), rows=1, required=True)
    arrivals = int(given["clock"]["arrivals"][0].as_py())
    number = Field(pa.int64(), least=0, most=arrivals - 1, ascends=True)
    always = {"arrival": number, "start": time, "payload": Field(pa.struct(list(schema)))}
    buffer = {"kind": Field(pa.string(), words=KINDS), "end": replace(time, above="start")}
    edges = {"let_in": replace(time, from_="start"), "cti": maybe}
    for name, more in (("buffer", buffer), ("open", edges), ("kept_out", {"cti": maybe})):
        yield StateTable(name, always | more, required=True, rules=(RowRule("arrival", _TWICE, _not_in(name, given)),))


_TWICE = "is the number of a row of another table"


def _not_in(name: str, given: Tables) -> Callable[[pa.Table], npt.NDArray[np.bool_]]:
    """Which rows have numbers that none of the tables has that come before one."""
    others = [given[each] for each in _TABLES[: _TABLES.index(name)]]

    def holds(table: pa.Table) -> npt.NDArray[np.bool_]:
        known = [integers(other["arrival"].combine_chunks()) for other in others]
        here = integers(table["arrival"].combine_chunks())
        return np.asarray(~np.isin(here, np.concatenate([here[:0], *known])))

    return holds


def restored(schema: pa.Schema, given: Mapping[str, pa.Table], *, hands_out_open: bool = False) -> State:
    """The state of which `tables` made tables.

    Raises:
        SourceError: They are none.
    """
    mine = {name: table for name, table in given.items() if name in ("clock", *_TABLES)}
    check("The state of the entrance", mine, partial(declared, schema))
    state = State(schema, hands_out_open=hands_out_open)
    clock, counters = state.clock, given["clock"]
    for name, at in _CLOCK.items():
        clock[at] = _ticks(counters[name])[0]
    state.promised = int(_ticks(counters["promised_cti"])[0])
    clock[k.COUNT] = counters["events_since_cti"][0].as_py()
    state.arrived = counters["arrivals"][0].as_py()
    state.counts.update({fate: count for fate in FATES if (count := counters[fate][0].as_py())})
    _refill(state, given)
    return state


def _refill(state: State, given: Mapping[str, pa.Table]) -> None:
    parts = [(given["buffer"], k.IN_BUFFER), (given["open"], k.IN_EDGES), (given["kept_out"], k.IN_EDGES)]
    total = sum(table.num_rows for table, _ in parts)
    state.make_room(total)
    if not total:
        return
    slots = np.full((total, k.SLOT), -1, np.int64)
    slots[:, [k.KIND, k.STOP]] = ArrivalKind.START, MAX_TIME
    slots[:, [k.LET_IN, k.MISSED]] = k.NONE
    first = 0
    for table, place in parts:
        part = slots[first : first + table.num_rows]
        first += table.num_rows
        part[:, k.PLACE] = place
        part[:, k.NUMBER] = integers(table["arrival"].combine_chunks())
        part[:, k.FIRST] = _ticks(table["start"])
        if "end" in table.column_names:
            part[:, k.STOP] = _ticks(table["end"])
            part[:, k.KIND] = [KINDS.index(kind) for kind in table["kind"].to_pylist()]
        if "cti" in table.column_names:
            part[:, k.MISSED] = _ticks(table["cti"])
        if "let_in" in table.column_names:
            part[:, k.LET_IN] = _ticks(table["let_in"])
    payload = pa.concat_tables([pa.Table.from_struct_array(table["payload"].combine_chunks()) for table, _ in parts])
    order = np.argsort(slots[:, k.NUMBER])
    slots = slots[order]
    frame = columns.take(to_frame(payload.cast(state.schema)), order)
    edges = np.flatnonzero(slots[:, k.KIND] != ArrivalKind.INSERT)
    if len(edges):
        slots[:, k.HASH], slots[:, k.MORE_HASH] = identities(frame, total, edges)
    state.rows.hold(slots[:, k.NUMBER].copy(), frame)
    state.refill(slots)


def _refill_heaps(state: State, slots: Ints) -> None:
    time = np.where(slots[:, k.KIND] == ArrivalKind.END, slots[:, k.STOP], slots[:, k.FIRST])
    # What starts before what was promised was handed out; an entrance that hands nothing out promises no more.
    least = state.promised if state.hands_out_open else MIN_TIME
    for heap, key, used, mask in (
        (state.buffer, time, k.BUFFERED, slots[:, k.PLACE] == k.IN_BUFFER),
        (
            state.waiting,
            slots[:, k.LET_IN],
            k.WAITING,
            (slots[:, k.PLACE] == k.IN_EDGES) & (slots[:, k.LET_IN] >= least),
        ),
    ):
        which = np.flatnonzero(mask)
        which = which[np.lexsort((slots[which, k.NUMBER], key[which]))]
        heap[: len(which)] = np.stack([key[which], slots[which, k.NUMBER], which], axis=1)
        state.clock[used] = len(which)


def _refill_queues(state: State, slots: Ints) -> None:
    """Link start edges of one identity, those that came late first, and else in their order."""
    edges = np.flatnonzero(slots[:, k.PLACE] == k.IN_EDGES)
    if not len(edges):
        return
    held = state.held
    keys = slots[edges][:, [k.FIRST, k.HASH, k.MORE_HASH]]
    on_time = slots[edges, k.LET_IN] == slots[edges, k.FIRST]
    order = np.lexsort((slots[edges, k.NUMBER], on_time, keys[:, 2], keys[:, 1], keys[:, 0]))
    edges, keys, on_time = edges[order], keys[order], on_time[order]
    held[edges, k.NEXT] = -1
    same = np.flatnonzero((keys[1:] == keys[:-1]).all(axis=1))
    held[edges[same], k.NEXT] = edges[same + 1]
    first = np.ones(len(edges), np.bool_)
    first[same + 1] = False
    heads, at = edges[first], np.flatnonzero(first)
    held[heads, k.TAIL] = edges[np.append(at[1:], len(edges)) - 1]
    late = np.add.reduceat(~on_time, at, dtype=np.int64)
    held[heads, k.LATE_TAIL] = np.where(late > 0, edges[at + late - 1], -1)
    k.index_edges(held, np.ascontiguousarray(heads), state.buckets)


def _grown(table: Ints, size: int) -> Ints:
    grown = np.empty((size, table.shape[1]), np.int64)
    grown[: len(table)] = table
    return grown


def _times(values: Ints) -> pa.Array:
    """Times, null for none."""
    missing = values == k.NONE
    data = np.where(missing, 0, values)
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little")) if missing.any() else None
    return pa.Array.from_buffers(TIME_TYPE, len(data), [valid, pa.py_buffer(data)])


def _ticks(column: pa.ChunkedArray) -> Ints:
    array = column.combine_chunks()
    values = integers(array).astype(np.int64)
    return np.where(nulls(array), k.NONE, values) if array.null_count else values
