"""The state of an ingress between calls: as arrays for the kernel, and as tables for checkpoints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, integers, nulls, to_arrow
from gpu_ops.core.polars_frames import empty_table, from_frame, to_frame
from gpu_ops.core.state_tables import Field, RowRule, StateTable, Tables, check, counter
from gpu_ops.core.time import MAX_TIME, MIN_TIME, TIME_TYPE
from gpu_ops.devices.cpu import frames
from gpu_ops.errors import ColumnError
from gpu_ops.ingest.arrival_kernel import (
    NONE,
    PART_WIDTH,
    ClockField,
    Fate,
    PartField,
    Place,
    Slot,
    index_edges,
    index_parts,
)
from gpu_ops.ingest.arrivals import ArrivalKind
from gpu_ops.ingest.held import HeldRows

Ints = npt.NDArray[np.int64]

_SEEDS = (0x9E37, 0x79B9)
_MOST_WORDS = 1 << 24
"""How many words an array is told: their bytes are counted in 32 bits."""
KINDS = tuple(kind.name.lower() for kind in (ArrivalKind.INSERT, ArrivalKind.START, ArrivalKind.END))
FATES = tuple(fate.name.lower() for fate in Fate)

_TABLES = ("buffer", "open", "kept_out")

_CLOCK = {"last_cti": ClockField.LAST, "limit": ClockField.LIMIT, "latest": ClockField.LATEST}
_PARTITION = {"last_cti": PartField.LAST, "limit": PartField.LIMIT, "latest": PartField.LATEST}


class State:
    """The arrays; `arrival_kernel` describes them.

    Args:
        schema: The payload's columns.
        per: The columns whose values have clocks of their own.
        hands_out_open: Whether start edges are handed out once the CTI has passed them; ``waiting`` then has the rest.
    """

    def __init__(self, schema: pa.Schema, per: Sequence[str] = (), *, hands_out_open: bool = False) -> None:
        self.schema = schema
        self.keys = pa.schema([schema.field(name) for name in per])
        self.hands_out_open = hands_out_open
        self.clock = np.zeros(len(ClockField), np.int64)
        self.clock[[ClockField.LAST, ClockField.LIMIT, ClockField.LATEST]] = NONE, MIN_TIME, MIN_TIME
        self.clock[[ClockField.FREE, ClockField.ROOT, ClockField.PART]] = -1
        self.held = np.empty((1, len(Slot)), np.int64)
        self.buckets = np.full(1, -1, np.int64)
        self.waiting = np.empty((1, 3), np.int64)
        self.parts = np.empty((1, PART_WIDTH), np.int64)
        self.part_buckets = np.full(1, -1, np.int64)
        self.journal = np.empty((0, PART_WIDTH + 1), np.int64)
        self.rows = HeldRows(schema)
        self.owners = HeldRows(self.keys)
        self.arrived = 0
        self.promised = MIN_TIME
        self.counts: Counter[str] = Counter()

    def make_room(self, more: int) -> None:
        """Make room for more held rows. The arrays double, so that the cost per row does not depend on their number."""
        clock = self.clock
        if clock[ClockField.WAITING] > 2 * clock[ClockField.HELD] + 1024:
            self._clear_waiting()
        needed = int(clock[ClockField.HELD]) + more
        if needed > len(self.held):
            size = 1 << (needed - 1).bit_length()
            self.held = _grown(self.held, size)
            self.buckets = np.full(size, -1, np.int64)
            index_edges(self.held, self._heads(), self.buckets)
        needed = int(clock[ClockField.WAITING] + clock[ClockField.BUFFERED]) + more
        if needed > len(self.waiting):
            self.waiting = _grown(self.waiting, 1 << (needed - 1).bit_length())

    def make_room_for_parts(self, count: Callable[[], int], rows: int, turns: int) -> None:
        """Make room for partitions, once those are forgotten that know nothing which the low watermark does not say.

        Args:
            count: How many partitions come in a call.
            rows: In how many rows.
            turns: How many turns partitions have in it at most.
        """
        if int(self.clock[ClockField.PARTS]) + rows > len(self.parts):
            self._forget_parts()
            needed = int(self.clock[ClockField.PARTS]) + count()
            if needed > len(self.parts):
                # Twice as many as are left, so that the next look at all of them comes after as many new ones.
                self.parts = _grown(self.parts[: self.clock[ClockField.PARTS]], 1 << (2 * needed - 1).bit_length())
            self._index_parts()
        turns = min(turns, int(self.clock[ClockField.PARTS]))
        if turns > len(self.journal):
            self.journal = np.empty((1 << (turns - 1).bit_length(), PART_WIDTH + 1), np.int64)

    def _forget_parts(self) -> None:
        known = self.parts[: self.clock[ClockField.PARTS]]
        last = self.clock[ClockField.LAST]
        spent = (known[:, [PartField.LAST, PartField.LIMIT, PartField.LATEST]] <= last).all(axis=1)
        spent &= (known[:, PartField.ROOT] < 0) & (known[:, PartField.COUNT] == 0)
        if not spent.any():
            return
        kept = np.flatnonzero(~spent)
        numbers = np.cumsum(~spent) - 1
        frame = self.owners.find(kept)
        self.owners = HeldRows(self.keys)
        if len(kept):
            self.owners.hold(np.arange(len(kept)), frame)
        self.parts[: len(kept)] = known[kept]
        self.clock[ClockField.PARTS] = len(kept)
        slots = self.slots(Place.BUFFER)
        self.held[slots, Slot.PARTITION] = numbers[self.held[slots, Slot.PARTITION]]

    def _index_parts(self) -> None:
        self.part_buckets = np.full(len(self.parts), -1, np.int64)
        index_parts(self.parts, int(self.clock[ClockField.PARTS]), self.part_buckets)

    def undo(self, clock: Ints) -> None:
        """Restore the state before a call that failed; this costs a pass over the held rows.

        Args:
            clock: The clock before that call.
        """
        used = self.held[: self.clock[ClockField.USED]]
        changed = used[:, Slot.CHANGED] == clock[ClockField.CALL]
        used[changed, Slot.PLACE] = used[changed, Slot.FORMER]
        used[used[:, Slot.NUMBER] >= self.arrived, Slot.PLACE] = Place.FREE
        kept = used[used[:, Slot.PLACE] != Place.FREE]
        noted = self.journal[: self.clock[ClockField.JOURNALED]]
        self.parts[noted[:, 0]] = noted[:, 1:]
        self.clock = clock
        self._index_parts()
        self.refill(kept[np.argsort(kept[:, Slot.NUMBER])])

    def refill(self, slots: Ints) -> None:
        """Hold exactly these rows, given in the order of their numbers, and link them anew."""
        clock = self.clock
        clock[[ClockField.USED, ClockField.HELD]] = len(slots)
        clock[ClockField.FREE] = -1
        slots[:, Slot.CHANGED] = -1
        self.held[: len(slots)] = slots
        _refill_heaps(self, slots)
        self.buckets[:] = -1
        _refill_queues(self, slots)

    def opened(self) -> Ints:
        """The slots of the start edges that the last call hands out, ordered by number."""
        rows = self.waiting[self.clock[ClockField.OPENED] : self.clock[ClockField.OPENED_END]]
        slots: Ints = rows[np.argsort(rows[:, 1]), 2]
        return slots

    def promise(self) -> None:
        """Raise the output CTI to the last CTI, or to the oldest open start edge that is not handed out."""
        promised = max(int(self.clock[ClockField.LAST]), MIN_TIME)
        if self.clock[ClockField.WAITING]:
            promised = min(promised, int(self.waiting[0, 0]))
        self.promised = max(self.promised, promised)

    def slots(self, place: int) -> Ints:
        """The slots in a place, ordered by number."""
        used = self.held[: self.clock[ClockField.USED]]
        found = np.flatnonzero(used[:, Slot.PLACE] == place)
        return found[np.argsort(used[found, Slot.NUMBER])]

    def _heads(self) -> Ints:
        slots = self.slots(Place.OPEN)
        followers = self.held[slots, Slot.NEXT]
        return np.setdiff1d(slots, followers[followers >= 0])

    def _clear_waiting(self) -> None:
        """Drop start edges that have ended; the kernel drops them only from the top of the heap."""
        used = self.waiting[: self.clock[ClockField.WAITING]]
        slots = self.held[used[:, 2]]
        here = used[(slots[:, Slot.NUMBER] == used[:, 1]) & (slots[:, Slot.PLACE] == Place.OPEN)]
        # A sorted table is a heap.
        self.waiting[: len(here)] = here[np.lexsort((here[:, 1], here[:, 0]))]
        self.clock[ClockField.WAITING] = len(here)


def identities(frame: pl.DataFrame, rows: int, edges: npt.NDArray[np.intp]) -> tuple[Ints, Ints]:
    """128 bits of hash for the payload of each edge, which differ for different payloads; other rows get any value.

    Null equals null, all NaNs are one, -0.0 equals 0.0. Group numbers, as keys have, would have to be made anew for
    all open start edges at each call.
    """
    for name, dtype in frame.schema.items():
        if dtype.is_nested():
            raise ColumnError(
                f"Edges are told apart by their payload, and {dtype} has no equality here.",
                column=name,
                remedy="Leave it out of the source, or give its fields as columns.",
            )
    if not frame.width:
        # A frame without columns has no rows; all payloads are equal.
        return np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    most = 2 * len(edges) >= rows
    told = frame if most else frames.rows_at(frame, edges)
    # The codes of categories depend on the frame. Equal floats have equal hashes already.
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
    """The words at some positions."""
    text, parts = pa.array(words, pa.string()), range(0, len(codes), _MOST_WORDS)
    return pa.chunked_array([text.take(pa.array(codes[at : at + _MOST_WORDS])) for at in parts], pa.string())


def as_struct(payload: pa.Table, rows: int) -> pa.Array:
    """A payload as one struct column, so that its field names cannot collide."""
    if not payload.num_columns:
        return pa.Array.from_buffers(pa.struct([]), rows, [None])
    return pa.StructArray.from_arrays([in_one(column) for column in payload.columns], fields=list(payload.schema))


def tables(state: State) -> dict[str, pa.Table]:
    """The state as tables; see `Ingress.tables`."""
    clock = state.clock
    times = {name: _times(np.array([clock[at]])) for name, at in _CLOCK.items()}
    counters = {"promised_cti": _times(np.array([state.promised]))}
    numbers = {"events_since_cti": int(clock[ClockField.COUNT]), "arrivals": state.arrived}
    numbers |= {fate: state.counts[fate] for fate in FATES}
    counters |= {name: to_arrow(np.array([number]), pa.int64()) for name, number in numbers.items()}
    edges = state.slots(Place.OPEN)
    inside = state.held[edges, Slot.ADMITTED] != NONE
    return {
        "clock": pa.table(times | counters),
        **_partitions(state),
        "buffer": _rows(state, state.slots(Place.BUFFER), {"kind": Slot.KIND, "start": Slot.START, "end": Slot.END}),
        "open": _rows(state, edges[inside], {"start": Slot.START, "let_in": Slot.ADMITTED, "cti": Slot.MISSED}),
        "kept_out": _rows(state, edges[~inside], {"start": Slot.START, "cti": Slot.MISSED}),
    }


def _partitions(state: State) -> dict[str, pa.Table]:
    """What each partition knows beside the low watermark; no table if there is one clock."""
    if not state.keys.names:
        return {}
    known = state.parts[: state.clock[ClockField.PARTS]]
    made = {name: _times(np.ascontiguousarray(known[:, at])) for name, at in _PARTITION.items()}
    made["events_since_cti"] = to_arrow(np.ascontiguousarray(known[:, PartField.COUNT]), pa.int64())
    owners = from_frame(state.owners.find(np.arange(len(known))), state.keys)
    return {"partitions": pa.table(made | {"partition": as_struct(owners, len(known))})}


def _rows(state: State, slots: Ints, fields: Mapping[str, int]) -> pa.Table:
    used = state.held[slots]
    numbers = np.ascontiguousarray(used[:, Slot.NUMBER])
    made = {"arrival": to_arrow(numbers, pa.int64())}
    for name, at in fields.items():
        values = np.ascontiguousarray(used[:, at])
        made[name] = spelled(KINDS, values) if at == Slot.KIND else _times(values)
    payload = from_frame(state.rows.find(numbers), state.schema) if len(numbers) else empty_table(state.schema)
    return pa.table(made | {"payload": as_struct(payload, len(numbers))})


def declared(schema: pa.Schema, per: Sequence[str], given: Tables) -> Iterator[StateTable]:
    """The tables of a state with this payload, declared for `gpu_ops.core.state_tables.check`."""
    time = Field(TIME_TYPE, least=MIN_TIME, most=MAX_TIME)
    maybe = replace(time, nullable=True)
    numbers = ("events_since_cti", "arrivals", *FATES)
    clock = {"last_cti": maybe, "limit": maybe, "latest": maybe, "promised_cti": time}
    yield StateTable("clock", clock | dict.fromkeys(numbers, counter()), rows=1, required=True)
    if per:
        owner = Field(pa.struct([schema.field(name) for name in per]))
        partition = {"last_cti": maybe, "limit": time, "latest": time, "events_since_cti": counter()}
        yield StateTable("partitions", partition | {"partition": owner}, required=True)
    arrivals = int(given["clock"]["arrivals"][0].as_py())
    number = Field(pa.int64(), least=0, most=arrivals - 1, ascends=True)
    always = {"arrival": number, "start": time, "payload": Field(pa.struct(list(schema)))}
    buffer = {"kind": Field(pa.string(), words=KINDS), "end": replace(time, above="start")}
    edges = {"let_in": replace(time, from_="start"), "cti": maybe}
    for name, more in (("buffer", buffer), ("open", edges), ("kept_out", {"cti": maybe})):
        yield StateTable(name, always | more, required=True, rules=(RowRule("arrival", _TWICE, _not_in(name, given)),))


_TWICE = "is the number of a row of another table"


def _not_in(name: str, given: Tables) -> Callable[[pa.Table], npt.NDArray[np.bool_]]:
    """Which rows of a table have numbers that no earlier table has."""
    others = [given[each] for each in _TABLES[: _TABLES.index(name)]]

    def holds(table: pa.Table) -> npt.NDArray[np.bool_]:
        known = [integers(other["arrival"].combine_chunks()) for other in others]
        here = integers(table["arrival"].combine_chunks())
        return np.asarray(~np.isin(here, np.concatenate([here[:0], *known])))

    return holds


def restored(
    schema: pa.Schema, per: Sequence[str], given: Mapping[str, pa.Table], *, hands_out_open: bool = False
) -> State:
    """The state from its `tables`.

    Raises:
        SourceError: The tables are no state of an ingress.
    """
    mine = {name: table for name, table in given.items() if name in ("clock", "partitions", *_TABLES)}
    check("The state of the entrance", mine, partial(declared, schema, per))
    state = State(schema, per, hands_out_open=hands_out_open)
    clock, counters = state.clock, given["clock"]
    for name, at in _CLOCK.items():
        clock[at] = _ticks(counters[name])[0]
    state.promised = int(_ticks(counters["promised_cti"])[0])
    clock[ClockField.COUNT] = counters["events_since_cti"][0].as_py()
    state.arrived = counters["arrivals"][0].as_py()
    state.counts.update({fate: count for fate in FATES if (count := counters[fate][0].as_py())})
    if per:
        _refill_parts(state, given["partitions"])
    _refill(state, given)
    return state


def _refill_parts(state: State, table: pa.Table) -> None:
    count = table.num_rows
    state.make_room_for_parts(lambda: count, count, 0)
    state.clock[ClockField.PARTS] = count
    if not count:
        return
    known = state.parts[:count]
    for name, at in _PARTITION.items():
        known[:, at] = _ticks(table[name])
    known[:, PartField.COUNT] = integers(table["events_since_cti"].combine_chunks())
    known[:, [PartField.ROOT, PartField.SEEN, PartField.CHANGED]] = -1
    frame = to_frame(pa.Table.from_struct_array(table["partition"].combine_chunks()).cast(state.keys))
    known[:, PartField.HASH], known[:, PartField.MORE_HASH] = identities(frame, count, np.arange(count))
    state.owners.hold(np.arange(count), frame)
    state._index_parts()  # noqa: SLF001


def _refill(state: State, given: Mapping[str, pa.Table]) -> None:
    parts = [(given["buffer"], Place.BUFFER), (given["open"], Place.OPEN), (given["kept_out"], Place.OPEN)]
    total = sum(table.num_rows for table, _ in parts)
    state.make_room(total)
    if not total:
        return
    slots = np.full((total, len(Slot)), -1, np.int64)
    slots[:, [Slot.KIND, Slot.END]] = ArrivalKind.START, MAX_TIME
    slots[:, [Slot.ADMITTED, Slot.MISSED]] = NONE
    first = 0
    for table, place in parts:
        part = slots[first : first + table.num_rows]
        first += table.num_rows
        part[:, Slot.PLACE] = place
        part[:, Slot.NUMBER] = integers(table["arrival"].combine_chunks())
        part[:, Slot.START] = _ticks(table["start"])
        if "end" in table.column_names:
            part[:, Slot.END] = _ticks(table["end"])
            part[:, Slot.KIND] = [KINDS.index(kind) for kind in table["kind"].to_pylist()]
        if "cti" in table.column_names:
            part[:, Slot.MISSED] = _ticks(table["cti"])
        if "let_in" in table.column_names:
            part[:, Slot.ADMITTED] = _ticks(table["let_in"])
    payload = pa.concat_tables([pa.Table.from_struct_array(table["payload"].combine_chunks()) for table, _ in parts])
    order = np.argsort(slots[:, Slot.NUMBER])
    slots = slots[order]
    frame = frames.rows_at(to_frame(payload.cast(state.schema)), order)
    edges = np.flatnonzero(slots[:, Slot.KIND] != ArrivalKind.INSERT)
    if len(edges):
        slots[:, Slot.HASH], slots[:, Slot.MORE_HASH] = identities(frame, total, edges)
    slots[:, Slot.PARTITION] = _parts_of(state, frame, total)
    state.rows.hold(slots[:, Slot.NUMBER].copy(), frame)
    state.refill(slots)


def _parts_of(state: State, frame: pl.DataFrame, rows: int) -> Ints:
    """The partitions of rows, -1 where there are none; none of these rows is a partition's first."""
    if not state.keys.names:
        return np.full(rows, -1, np.int64)
    known = state.parts[: state.clock[ClockField.PARTS]]
    names = ["first", "second"]
    here = pl.DataFrame(dict(zip(names, owners(frame, state.keys.names, rows), strict=True)))
    there = pl.DataFrame(
        {"first": known[:, PartField.HASH], "second": known[:, PartField.MORE_HASH], "at": np.arange(len(known))}
    )
    found = here.join(there, on=names, how="left", maintain_order="left")["at"].fill_null(-1)
    return found.to_numpy().astype(np.int64)


def owners(frame: pl.DataFrame, per: Sequence[str], rows: int) -> tuple[Ints, Ints]:
    """128 bits of hash for the partition of each row."""
    return identities(frame.select(per), rows, np.arange(rows))


def _refill_heaps(state: State, slots: Ints) -> None:
    time = np.where(slots[:, Slot.KIND] == ArrivalKind.END, slots[:, Slot.END], slots[:, Slot.START])
    _refill_buffer(state, slots, time)
    # A start before the output CTI was handed out; without handing out, open edges hold the output CTI back.
    least, admitted = state.promised if state.hands_out_open else MIN_TIME, slots[:, Slot.ADMITTED]
    which = np.flatnonzero((slots[:, Slot.PLACE] == Place.OPEN) & (admitted >= least))
    which = which[np.lexsort((slots[which, Slot.NUMBER], admitted[which]))]
    state.waiting[: len(which)] = np.stack([admitted[which], slots[which, Slot.NUMBER], which], axis=1)
    state.clock[ClockField.WAITING] = len(which)


def _refill_buffer(state: State, slots: Ints, time: Ints) -> None:
    """Link the buffered rows of each clock in their order, which makes a heap."""
    which = np.flatnonzero(slots[:, Slot.PLACE] == Place.BUFFER)
    parts = slots[which, Slot.PARTITION]
    order = np.lexsort((slots[which, Slot.NUMBER], time[which], parts))
    which, parts = which[order], parts[order]
    state.clock[ClockField.BUFFERED], state.clock[ClockField.ROOT] = len(which), -1
    state.parts[: state.clock[ClockField.PARTS], PartField.ROOT] = -1
    if not len(which):
        return
    state.held[which, Slot.RIGHT] = -1
    state.held[which, Slot.LEFT] = np.append(np.where(parts[1:] == parts[:-1], which[1:], -1), -1)
    first = np.append(True, parts[1:] != parts[:-1])
    if parts[0] < 0:
        state.clock[ClockField.ROOT] = which[0]
    else:
        state.parts[parts[first], PartField.ROOT] = which[first]


def _refill_queues(state: State, slots: Ints) -> None:
    """Link open edges with equal start and payload: late ones first, then by number."""
    edges = np.flatnonzero(slots[:, Slot.PLACE] == Place.OPEN)
    if not len(edges):
        return
    held = state.held
    keys = slots[edges][:, [Slot.START, Slot.HASH, Slot.MORE_HASH]]
    on_time = slots[edges, Slot.ADMITTED] == slots[edges, Slot.START]
    order = np.lexsort((slots[edges, Slot.NUMBER], on_time, keys[:, 2], keys[:, 1], keys[:, 0]))
    edges, keys, on_time = edges[order], keys[order], on_time[order]
    held[edges, Slot.NEXT] = -1
    same = np.flatnonzero((keys[1:] == keys[:-1]).all(axis=1))
    held[edges[same], Slot.NEXT] = edges[same + 1]
    first = np.ones(len(edges), np.bool_)
    first[same + 1] = False
    heads, at = edges[first], np.flatnonzero(first)
    held[heads, Slot.TAIL] = edges[np.append(at[1:], len(edges)) - 1]
    late = np.add.reduceat(~on_time, at, dtype=np.int64)
    held[heads, Slot.LATE_TAIL] = np.where(late > 0, edges[at + late - 1], -1)
    index_edges(held, np.ascontiguousarray(heads), state.buckets)


def _grown(table: Ints, size: int) -> Ints:
    grown = np.empty((size, table.shape[1]), np.int64)
    grown[: len(table)] = table
    return grown


def _times(values: Ints) -> pa.Array:
    """Times; NONE becomes null."""
    return with_nulls(values, values == NONE, TIME_TYPE)


def with_nulls(values: Ints, missing: npt.NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    """Numbers as an Arrow array, null where they are missing."""
    return to_arrow(np.where(missing, 0, values), kind, ~missing if missing.any() else None)


def _ticks(column: pa.ChunkedArray) -> Ints:
    array = column.combine_chunks()
    values = integers(array).astype(np.int64)
    return np.where(nulls(array), NONE, values) if array.null_count else values
