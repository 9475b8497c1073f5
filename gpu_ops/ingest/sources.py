"""Sources of events: a user's data as batches of ticks and payload, with valid lifetimes only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import in_one, table_copied, to_arrow
from gpu_ops.core.bounds import TRUSTLESS
from gpu_ops.core.soundness import sound
from gpu_ops.core.time import LIFETIME
from gpu_ops.errors import ColumnError, GpuOpsError, PlanError, SourceError, unknown_column
from gpu_ops.ingest.arrivals import Arrivals
from gpu_ops.ingest.counts import Counts
from gpu_ops.ingest.kinds import KindColumns, Kinds
from gpu_ops.ingest.raw_source import PIECE_ROWS, Piece, RawSource
from gpu_ops.ingest.rows import keep_rows
from gpu_ops.ingest.rules import IngestReport, NullEnd, OnInvalid
from gpu_ops.ingest.times import TimeColumn
from gpu_ops.ingest.validate import (
    BREACHES,
    Fine,
    RowPlace,
    fine,
    open_null_ends,
    read_ends,
    refuse,
    row_text,
    verdicts,
)


class EventSource:
    """A user's data, opened: its schema is known, no row is read yet. `open_source` makes it.

    Attributes:
        schema: The payload's columns, in the source's Arrow types.
        zone: The time zone that results carry.
        origin: What came in: "pyarrow", "pandas", "polars", "duckdb", "cudf", "path" or "reader".
        points: Whether events are points.
        marked: Whether rows have kinds: CTIs and edges are possible.
        edges: Whether edges are possible.
        says_ctis: Whether CTIs are possible.
        rows: The number of rows, if it is known without reading them.
        replayable: Whether the source can be read more than once.
        fed_by: What gives its rows to running queries, if it has none of its own.

    Examples:
        >>> from gpu_ops.ingest import open_source
        >>> rides = pa.table({"pickup": [0, 60], "dropoff": [120, 90], "zone": ["A", "B"]})
        >>> source = open_source(rides, start="pickup", end="dropoff", unit="s")
        >>> [batch.start.tolist() for batch in source.read()]
        [[0, 60000000]]
        >>> source
        <EventSource pyarrow Table, 2 rows x 3 columns>
    """

    def __init__(
        self,
        raw: RawSource,
        start: TimeColumn,
        end: TimeColumn | None,
        zone: str,
        null_end: NullEnd,
        on_invalid: OnInvalid,
        kinds: KindColumns | None = None,
    ) -> None:
        self._raw = raw
        self._kinds = kinds or KindColumns()
        self._start = start
        self._end = end
        self._null_end = null_end
        self._on_invalid = on_invalid
        self._times = [column.name for column in (start, end) if column is not None]
        words = {"kind": self._kinds.kind, "edge": self._kinds.edge}
        self._columns_of = {column.side: column.name for column in (start, end) if column is not None}
        self._columns_of |= {side: name for side, name in words.items() if name is not None}
        self._told_by = list(self._columns_of.values())
        self._columns = payload_columns(
            raw.schema.names, self._times, self._kinds.names, edges=self._kinds.edge is not None
        )
        self._done = Counts()
        self.schema = pa.schema([raw.schema.field(column).with_name(name) for name, column in self._columns.items()])
        self._has_sure_columns = not all(field.nullable for field in self.schema)
        self.zone = zone
        self.origin = raw.origin
        self.points = end is None
        self.marked = bool(self._kinds.names)
        self.edges = self._kinds.edge is not None
        self.says_ctis = self._kinds.kind is not None
        self.rows = raw.rows
        self.replayable = raw.replayable
        self.fed_by = raw.fed_by

    @property
    def fingerprint(self) -> str:
        """The source in a few words."""
        return self._raw.shape

    def __repr__(self) -> str:
        return f"<EventSource {self.fingerprint}>"

    def read(
        self, columns: Sequence[str] | None = None, batch_rows: int | None = None, *, point_ends: bool = False
    ) -> Iterator[Arrivals]:
        """The rows, batch by batch; at least one batch, which may be empty.

        A table in memory comes as one batch that shares its memory, unless ``batch_rows`` is given. Files are read
        lazily, and only the wanted columns; with ``on_invalid="divert"`` all columns.

        Args:
            columns: Payload columns to read, all by default.
            batch_rows: The largest number of events in a batch.
            point_ends: Whether to make the ends of points while they are checked.

        Raises:
            TimeError: A row breaks a rule and ``on_invalid`` is "raise".
            SourceError: The source cannot be read, or not again.
            ColumnError: There is no such column.

        Examples:
            >>> from gpu_ops.ingest import open_source
            >>> source = open_source(pa.table({"at": [1, 2, 3], "v": [7, 8, 9]}), start="at", unit="us")
            >>> [(batch.start.tolist(), batch.payload["v"].to_pylist()) for batch in source.read(batch_rows=2)]
            [([1, 2], [7, 8]), ([3], [9])]
        """
        names = list(self.schema.names if columns is None else columns)
        for name in names:
            if name not in self._columns:
                raise unknown_column(name, self._columns)
        if batch_rows is not None and batch_rows < 1:
            raise PlanError(
                "batch_rows must be at least 1.", remedy="Leave it out for batches of the source's own size."
            )
        return self._read(names, batch_rows, point_ends=point_ends)

    def _read(self, names: list[str], batch_rows: int | None, *, point_ends: bool) -> Iterator[Arrivals]:
        counts = Counts()
        wanted = self._raw.schema.names if self._on_invalid == "divert" else [self._columns[name] for name in names]
        columns = list(dict.fromkeys([*self._told_by, *wanted]))
        pieces = self._pieces(columns, batch_rows or PIECE_ROWS)
        nothing = True
        for piece in pieces:
            size = piece.table.num_rows
            step = min(batch_rows or size, size) or 1
            for first in range(0, size, step):
                place = RowPlace(counts.rows, piece.file, piece.file_row + first)
                table = piece.table.slice(first, step) if step < size else piece.table
                yield self._validated(table, names, place, counts, point_ends=point_ends)
                nothing = False
        if nothing:
            none = np.empty(0, np.int64)
            empty = pa.Table.from_batches([], pa.schema([self.schema.field(name) for name in names]))
            yield Arrivals(none, None if self.points else none, empty)
        self._done = counts

    def arrivals(self, batch: Any, row: int) -> tuple[Arrivals, Counts]:
        """Validate more data with the same columns, as it is pushed into a running query.

        Args:
            batch: A table, a record batch, a frame, a mapping of columns, or a list of rows as mappings.
            row: The index of its first row among all pushed rows.

        Returns:
            The valid rows, and the counts.

        Raises:
            ColumnError: A column is missing, or its values do not fit the source's type.
            TimeError: A row breaks a rule and ``on_invalid`` is "raise".
        """
        counts = Counts()
        table = _as_table(batch, self._raw.schema)
        return self._validated(table, list(self.schema.names), RowPlace(row), counts), counts

    def raw_tables(self) -> Iterator[pa.Table]:
        """The source's own rows, not validated, for `arrivals`."""
        for piece in self._pieces(list(self._raw.schema.names), PIECE_ROWS):
            yield piece.table

    def _pieces(self, columns: list[str], rows: int) -> Iterator[Piece]:
        try:
            yield from self._raw.read(columns, rows)
        except GpuOpsError:
            raise
        except Exception as error:
            raise SourceError(
                f"The {self.fingerprint} cannot be read: {error}", remedy="Check the data that it was made from."
            ) from error

    def _validated(
        self, table: pa.Table, names: list[str], place: RowPlace, counts: Counts, *, point_ends: bool = False
    ) -> Arrivals:
        start = self._start.read(in_one(table[self._start.name]))
        end = None
        kinds = self._kinds.read(table) if self.marked else None
        if self._end is not None:
            end = self._end.read(in_one(table[self._end.name]))
            if kinds is not None:
                end = read_ends(end, kinds)
            if self._null_end == "open":
                end = open_null_ends(end, kinds)
        payload = table.select([self._columns[name] for name in names])
        if payload.schema.metadata is not None:
            payload = payload.replace_schema_metadata(None)
        if payload.column_names != names:
            payload = payload.rename_columns(names)  # a table without columns would lose its rows
        if self._has_sure_columns:
            _refuse_nulls(payload, place, kinds)
        counts.rows += len(start.ticks)
        found = verdicts(start, end, kinds, make_ends=point_ends)
        told = found if isinstance(found, Fine) else Fine()
        arrivals = Arrivals(
            start.ticks,
            None if end is None else end.ticks,
            payload,
            None if kinds is None else kinds.kinds,
            place.row,
            extent=told.extent,
            point_ends=told.point_ends,
        )
        if isinstance(found, Fine):
            counts.valid += len(start.ticks)
            return arrivals
        if self._on_invalid == "raise":
            raise refuse(found, table.select(self._told_by), place, self._columns_of)
        return self._without_invalid(table, arrivals, found, place, counts)

    def _without_invalid(
        self,
        table: pa.Table,
        arrivals: Arrivals,
        found: np.ndarray,
        place: RowPlace,
        counts: Counts,
    ) -> Arrivals:
        good = fine(found)
        bad = np.flatnonzero(~good)
        counts.valid += len(good) - len(bad)
        for verdict in np.unique(found[bad]):
            name = BREACHES[verdict].name
            rows = np.flatnonzero(found == verdict)
            counts.invalid[name] += len(rows)
            row = int(rows[0])
            counts.first.setdefault(name, f"row {place.row + row}: {row_text(table.select(self._told_by), row)}")
        if self._on_invalid == "divert" and len(bad):
            broken = pa.array([BREACHES[verdict].name for verdict in found[bad]], pa.string())
            index = to_arrow(bad + place.row, pa.int64())
            diverted = keep_rows(table.select(self._raw.schema.names), ~good)
            diverted = diverted.append_column("rule", broken).append_column("row", index)
            counts.rejected.append(diverted.replace_schema_metadata(None))
        start, end, kinds = arrivals.start, arrivals.end, arrivals.kinds
        return Arrivals(
            start[good],
            None if end is None else end[good],
            keep_rows(arrivals.payload, good),
            None if kinds is None else kinds[good],
            place.row,
            np.flatnonzero(good) + place.row,
        )

    def count_late(self, late: Mapping[str, int]) -> None:
        """Record the number of late rows of the last read, by fate."""
        self._done.late = late

    def report(self) -> IngestReport:
        """The counts of the last complete read; zeros before the first.

        Examples:
            >>> from gpu_ops.ingest import open_source
            >>> rides = pa.table({"pickup": [0, 60], "dropoff": [120, 60], "zone": ["A", "B"]})
            >>> source = open_source(rides, start="pickup", end="dropoff", unit="s", on_invalid="drop")
            >>> for batch in source.read():
            ...     pass
            >>> source.report().first
            {'zero_length': 'row 1: pickup=60, dropoff=60'}
        """
        return self._done.report()

    def rejected(self) -> pa.Table:
        """The rows that the last complete read kept aside, with the broken rule (``rule``) and the index (``row``).

        They have all columns of the source. Only ``on_invalid="divert"`` keeps rows aside.
        """
        return self.kept_aside(self._done)

    def kept_aside(self, counts: Counts) -> pa.Table:
        """The rows kept aside in these counts, as `rejected` gives them."""
        schema = (
            self._raw.schema.remove_metadata().append(pa.field("rule", pa.string())).append(pa.field("row", pa.int64()))
        )
        return pa.concat_tables([pa.Table.from_batches([], schema), *counts.rejected])


def _refuse_nulls(payload: pa.Table, place: RowPlace, kinds: Kinds | None) -> None:
    """Refuse nulls in columns declared without nulls, except in CTIs: Arrow itself does not check."""
    for number, column in enumerate(payload.columns):
        declared = payload.field(number)
        if declared.nullable or not column.null_count:
            continue
        missing = column.is_null().to_numpy()
        wrong = np.flatnonzero(missing if kinds is None else missing & ~kinds.ctis)
        if not len(wrong):
            continue
        row = int(wrong[0])
        where = f" (in {place.file} row {place.file_row + row})" if place.file else ""
        raise SourceError(
            f"The column is declared without nulls, and has one{where}.",
            column=declared.name,
            row=place.row + row,
            remedy="Fill it or drop the row, or declare the column nullable in the source's schema.",
        )


def _as_table(batch: Any, schema: pa.Schema) -> pa.Table:
    """Pushed data as a table of a schema."""
    try:
        if isinstance(batch, pa.RecordBatch):
            batch = pa.Table.from_batches([batch])
        elif isinstance(batch, list):
            batch = pa.Table.from_pylist(batch, schema=schema)
        elif isinstance(batch, pa.RecordBatchReader):  # of bytes that came from anywhere
            batch = sound(batch.read_all(), TRUSTLESS.meter("What was pushed", 0))
        elif not isinstance(batch, pa.Table):
            # Its owner may write into its arrays again.
            batch = table_copied(pa.table(batch))
    except GpuOpsError:
        raise
    except Exception as error:
        raise SourceError(
            f"The pushed {type(batch).__name__} is no table of {', '.join(schema.names)}: {error}",
            remedy="Push a frame, a record batch, a mapping of columns, or a list of rows as mappings.",
        ) from error
    if batch.schema.equals(schema):
        return batch
    columns = []
    for column in schema:
        if column.name not in batch.column_names:
            raise unknown_column(column.name, batch.column_names, what="pushed batch")
        try:
            columns.append(batch[column.name].cast(column.type))
        except (pa.ArrowException, OverflowError) as error:
            raise ColumnError(
                f"The pushed batch has {batch[column.name].type} where the source has {column.type}: {error}",
                column=column.name,
                remedy="Push values of the source's type.",
            ) from error
    return pa.Table.from_arrays(columns, schema=schema)


def payload_columns(
    columns: Sequence[str], times: list[str], kinds: Sequence[str] = (), *, edges: bool = False
) -> dict[str, str]:
    """The source's column for each payload column."""
    others = [name for name in columns if name not in times and name not in kinds]
    if edges:
        # The two edges of an event have only its start in common.
        times = times[:1]
    return {name: name for name in others} or {f"{name}_time" if name in LIFETIME else name: name for name in times}
