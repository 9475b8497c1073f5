"""A store's writer: it appends, advances, merges and removes, each atomically."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from gpu_ops.core.arrow_buffers import to_arrow
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import LIFETIME, MAX_TIME, MIN_TIME, TIME_TYPE, Instant, format_time, instant, utc
from gpu_ops.errors import ColumnError, PlanError, SourceError, TimeError
from gpu_ops.ingest import open_source
from gpu_ops.microbatches.batch_files import (
    Compression,
    Part,
    Staged,
    damaged,
    load,
    read_schema,
    split,
    stage,
    store_schema,
)
from gpu_ops.microbatches.folders import Folder, Lock, writing
from gpu_ops.microbatches.identity import StoreIdentity, write_identity
from gpu_ops.microbatches.names import Log, Sealed

MERGED_ROWS = 1 << 20
"""The default size of merged files in rows."""

_MERGED_BATCHES = 1 << 14
"""The most batches in one file, since its metadata lists each."""


@of_methods
class Writer:
    """A store's writer. There is one at a time; close it, or use it in a ``with`` block.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa, tempfile
        >>> store = g.store(tempfile.mkdtemp())
        >>> time = pa.timestamp("us", "UTC")
        >>> with store.writer() as writer:
        ...     writer.append(pa.table({"start": pa.array([0], time), "end": pa.array([9], time), "n": [1]}))
        ...     writer.advance("1970-01-01T00:01Z")
        1
        2
    """

    def __init__(
        self,
        folder: Folder,
        lock: Lock,
        compression: Compression,
        log: Callable[[], Log],
        schema: pa.Schema | None,
        identity: StoreIdentity,
    ) -> None:
        self._folder = folder
        self._lock = lock
        # A writer that is dropped gives its lock back, as one that is closed does.
        self._released = weakref.finalize(self, lock.release)
        self._identity = identity
        self._compression = compression
        self._log = log
        self._schema = schema
        self._files: list[Sealed] = []
        self._open = True
        self._settled = True

    # Writing

    @property
    def sequence(self) -> int:
        """The sequence number of the last batch; 0 without one."""
        return self._files[-1].last if self._files else 0

    @property
    def cti(self) -> int | None:
        """The store's CTI in ticks; None before there was any."""
        return self._files[-1].cti if self._files else None

    @property
    def schema(self) -> pa.Schema | None:
        """The store's columns; None before there is a batch, which decides them."""
        return self._schema

    @property
    def identity(self) -> StoreIdentity:
        """The store's identity, and the follower that writes there."""
        return self._identity

    def claim(self, follower: str, base: int) -> None:
        """Record the follower that writes here.

        Args:
            follower: The follower's name.
            base: The number of the last batch before the follower's first.

        Raises:
            SourceError: The file system refuses.
        """
        self._check()
        claimed = self._identity.claimed(follower, base)
        write_identity(self._folder, claimed)
        self._identity = claimed

    def append(self, events: Any, cti: Instant | None = None) -> int:
        """Append a batch; when this returns, the batch is on disk.

        Args:
            events: A frame with columns ``start`` and ``end`` and the payload. The first batch decides the store's
                columns; later ones have the same, in any order.
            cti: The CTI after the batch: no later event starts before it.

        Returns:
            The batch's sequence number.

        Raises:
            ColumnError: A column is missing, unknown, or has another type.
            TimeError: A lifetime is invalid, a start is before the store's CTI, or the CTI would go backwards.
            SourceError: The file system refuses (the disk is full, for instance). The store is unchanged.
        """
        promised = self._output_cti(_given(cti))
        table = conform(events, self._schema, self.cti)
        return self._seal([self._staged(table, [(table.num_rows, promised)])], [promised], table.schema)

    def extend(self, batches: Iterable[Any], cti: Instant | None = None) -> int:
        """Append several batches in one commit: all become visible, or none.

        Args:
            batches: As in `append`.
            cti: The CTI after the last batch.

        Returns:
            The sequence number of the last batch.

        Raises:
            GpuOpsError: As `append`.
        """
        promised = self._output_cti(_given(cti))
        staged: list[Staged] = []
        schema = self._schema
        try:
            for batch in batches:
                table = conform(batch, schema, self.cti)
                schema = table.schema
                staged.append(self._staged(table, [(table.num_rows, None)]))
            return self.adopt(staged, promised)
        except BaseException:
            with suppress(OSError):
                self._folder.remove(each.name for each in staged)
            raise

    def advance(self, cti: Instant) -> int:
        """Promise that no later event starts before an instant; ``"infinity"`` closes the store.

        Args:
            cti: The instant.

        Returns:
            The sequence number of the batch with the CTI.

        Raises:
            TimeError: The instant is before the store's CTI.
            SourceError: The store has no batch yet that decided its columns.
        """
        promised = self._output_cti(instant(cti, name="cti"))
        columns = self._columns()
        return self._seal([self._staged(empty_table(columns), [(0, promised)])], [promised], columns)

    def adopt(self, staged: Sequence[Staged], cti: int | None) -> int:
        """Commit staged files, from any process, with a CTI after them.

        Args:
            staged: The files, with the store's columns and without late events.
            cti: The CTI in ticks; None keeps the current one.

        Returns:
            The last sequence number.

        Raises:
            TimeError: An event starts before the store's CTI.
            ColumnError: A file has other columns than the store.
        """
        promised = self._output_cti(cti)
        schema = self._schema
        for each in staged:
            found = read_schema(self._folder, each.name)
            schema = schema or found
            if found != schema:
                _check_columns(found, schema)
                raise ColumnError("The columns are in another order than the store's.", remedy="Write it again.")
            if self.cti is not None and each.start is not None and each.start < self.cti:
                raise _late(each.start, self.cti)
        if schema is None or not staged:
            return self.sequence if promised is None or promised == self.cti else self.advance(utc(promised))
        return self._seal(staged, [*[self.cti] * (len(staged) - 1), promised], schema)

    # Tidying up

    def compact(self, rows: int = MERGED_ROWS) -> int:
        """Merge small neighbouring files into larger ones. Readers see the same batches before, during and after.

        A file is merged only with at least as many rows as it has itself, so that a row is rewritten only as often as
        its file can double.

        Args:
            rows: The most rows of a merged file.

        Returns:
            How many fewer files the store has.

        Raises:
            PlanError: The bound is less than one row.
            SourceError: A file cannot be read, or the file system refuses. The store is unchanged.
        """
        if rows < 1:
            raise PlanError("A file holds at least one row.", remedy="Give rows=1 or more.")
        self._check()
        before = len(self._files)
        for run in list(_runs(self._files, rows)):
            loaded = [(file, load(self._folder, file)) for file in run]
            for file, held in loaded:
                if held.table.schema != self._schema:
                    raise damaged(self._folder, file, "it has other columns than the store")
            parts: list[Part] = [(table.num_rows, cti) for file, held in loaded for _, table, cti in split(held, file)]
            try:
                merged = self._staged(pa.concat_tables([held.table for _, held in loaded]), parts)
            except SourceError as error:
                if isinstance(error.__cause__, OSError):
                    raise
                continue  # their dictionaries do not fit into one
            self._replace(run, merged)
        return before - len(self._files)

    def expire(self, before: Instant) -> int:
        """Remove files whose events all end at or before an instant. The CTI and the batches' numbers remain.

        Args:
            before: The instant.

        Returns:
            The number of removed events.

        Raises:
            SourceError: The file system refuses.
        """
        bound = instant(before, name="before")
        return self._empty(lambda file: file.end is not None and file.end <= bound)

    def discard(self, sequence: int) -> int:
        """Remove the file with a batch, for instance a damaged one. The CTI and the batches' numbers remain.

        Args:
            sequence: A batch's number; batches in the same file are removed too.

        Returns:
            The number of removed events.

        Raises:
            PlanError: The batch does not exist.
            SourceError: The file system refuses.
        """
        if not 1 <= sequence <= self.sequence:
            raise PlanError(f"There is no batch {sequence}.", remedy=f"There are 1 to {self.sequence}.")
        return self._empty(lambda file: file.first <= sequence <= file.last)

    def recover(self) -> None:
        """Read the folder's log, and remove the leftovers of an earlier writer."""
        log = self._log()
        with writing(self._folder):
            # A killed writer may not have synced its renames. From here on these files count, files that they hide
            # are removed, and checkpoints may rely on them: a loss of power must not undo the renames then.
            self._folder.sync()
            self._folder.remove(log.leftovers)
            if log.leftovers:
                self._folder.sync()
        self._files = list(log.files)
        self._settled = True

    # How it ends

    def close(self) -> None:
        """Release the store for another writer."""
        if self._open:
            self._open = False
            with writing(self._folder):
                self._released()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # How it is done

    def _columns(self) -> pa.Schema:
        if self._schema is None:
            raise SourceError(
                "A store's first batch decides its columns, and there is none yet.",
                remedy="Append a table first; it may be one without rows.",
            )
        return self._schema

    def _output_cti(self, promised: int | None) -> int | None:
        self._check()
        if promised is None:
            return self.cti
        if self.cti is not None and promised < self.cti:
            raise TimeError(
                "A CTI never goes backwards.",
                values=f"cti={format_time(promised)}",
                remedy=f"The store's is {format_time(self.cti)}: give this one or a later.",
            )
        return promised

    def _check(self) -> None:
        if not self._open:
            raise SourceError("The writer is closed.", remedy="Open another: store.writer().")
        with writing(self._folder):
            self._lock.check()
        if not self._settled:
            self.recover()

    def _staged(self, table: pa.Table, parts: Sequence[Part] | None, lost: int | None = None) -> Staged:
        return stage(self._folder, table, parts=parts, compression=self._compression, lost=lost)

    def _seal(self, staged: Sequence[Staged], ctis: Sequence[int | None], schema: pa.Schema) -> int:
        """Rename staged files. The last file's name makes the whole commit count."""
        self._check()
        first, last = self.sequence + 1, self.sequence + len(staged)
        files = [
            each.sealed(number, number, last, cti)
            for number, each, cti in zip(range(first, last + 1), staged, ctis, strict=True)
        ]
        with self._tidy(each.name for each in staged), writing(self._folder):
            for each, file in zip(staged, files, strict=True):
                if file.last == last and len(files) > 1:
                    self._folder.sync()
                self._folder.rename(each.name, file.name)
            self._folder.sync()
        self._files += files
        self._schema = schema
        return last

    @contextmanager
    def _tidy(self, names: Iterable[str]) -> Iterator[None]:
        """After an error, remove files and read the log again: the commit may have counted or not."""
        try:
            yield
        except BaseException:
            # The rest of a commit must be gone before other batches take its numbers.
            self._settled = False
            with suppress(OSError, SourceError):
                self._folder.remove(names)
                self.recover()
            raise

    def _replace(self, run: Sequence[Sealed], staged: Staged) -> None:
        """Replace neighbouring files by one: it hides them, then they are removed."""
        made = staged.sealed(run[0].first, run[-1].last, run[-1].last, run[-1].cti)
        self._check()
        with self._tidy([staged.name]), writing(self._folder):
            self._folder.rename(staged.name, made.name)
            # Keep the old files until the new name is durable.
            self._folder.sync()
            at = self._files.index(run[0])
            self._files[at : at + len(run)] = [made]
            self._folder.remove(file.name for file in run if file.name != made.name)
            self._folder.sync()

    def _empty(self, gone: Callable[[Sealed], bool]) -> int:
        """Replace files by files without events; neighbours without events are merged in."""
        self._check()
        removed = 0
        run: list[Sealed] = []
        for file in [*self._files, None]:
            if file is not None and (file.rows == 0 or gone(file)):
                run.append(file)
                continue
            if any(gone(each) for each in run):
                removed += sum(each.rows for each in run)
                lost = max(each.last for each in run if each.expired or gone(each))
                self._replace(run, self._staged(empty_table(self._columns()), None, lost))
            run = []
        return removed


def _runs(files: Sequence[Sealed], rows: int) -> Iterator[Sequence[Sealed]]:
    """The runs of neighbouring files to merge."""
    run: list[Sealed] = []
    total = 0
    for file in files:
        if file.expired or total + file.rows > rows or (run and file.last - run[0].first >= _MERGED_BATCHES):
            yield from _worthwhile(run)
            run, total = [], 0
        if not file.expired:
            run.append(file)
            total += file.rows
    yield from _worthwhile(run)


def _worthwhile(run: Sequence[Sealed]) -> Iterator[Sequence[Sealed]]:
    """The parts of a run worth merging: each file with at least as many rows as it has itself."""
    if len(run) < 2:
        return
    largest = max(range(len(run)), key=lambda at: run[at].rows)
    if 2 * run[largest].rows > sum(each.rows for each in run):
        yield from _worthwhile(run[:largest])
        yield from _worthwhile(run[largest + 1 :])
    else:
        yield run


def conform(events: Any, schema: pa.Schema | None, cti: int | None) -> pa.Table:
    """A frame as a table with a store's columns and valid lifetimes.

    Args:
        events: A frame with columns ``start`` and ``end``.
        schema: The store's columns; None if this frame decides them.
        cti: The store's CTI in ticks.

    Raises:
        ColumnError: A column is missing, unknown, or has another type.
        TimeError: A lifetime is invalid, or starts before the CTI.
    """
    if isinstance(events, pa.RecordBatch):
        events = pa.Table.from_batches([events])
    elif not isinstance(events, pa.Table):
        if not hasattr(events, "__arrow_c_stream__"):
            raise SourceError(
                f"A {type(events).__name__} is no table of events.", remedy="Give a pyarrow, pandas or Polars frame."
            )
        events = pa.table(events)
    source = open_source(events, start="start", end="end")
    if schema is not None:
        _check_columns(events.schema, schema)
    read = list(source.read())
    ticks = {
        name: np.concatenate([np.empty(0, np.int64), *(getattr(batch, name) for batch in read)]) for name in LIFETIME
    }
    _refuse_late(ticks["start"], cti)
    payload = [each for each in events.schema if each.name not in LIFETIME]
    wanted = store_schema(payload) if schema is None else schema
    times = {name: to_arrow(ticks[name], TIME_TYPE) for name in LIFETIME}
    columns = [times[each.name] if each.name in times else events[each.name] for each in wanted]
    return pa.Table.from_arrays(columns, schema=wanted)


def _check_columns(given: pa.Schema, schema: pa.Schema) -> None:
    for name in given.names:
        if name not in schema.names:
            raise ColumnError(
                "The store has no such column.",
                column=name,
                remedy=f"It has: {', '.join(schema.names)}. Its first batch decided that; drop the column first.",
            )
    for each in schema:
        if each.name not in given.names:
            raise ColumnError(
                "The batch lacks a column of the store.", column=each.name, remedy="Add it; its values may be null."
            )
        found = given.field(each.name).type
        if each.name not in LIFETIME and found != each.type:
            raise ColumnError(
                f"The column is {found}, and in the store {each.type}.", column=each.name, remedy="Cast it first."
            )


def _given(cti: Instant | None) -> int | None:
    return None if cti is None else instant(cti, name="cti")


def _refuse_late(starts: np.ndarray, cti: int | None) -> None:
    late = np.flatnonzero(starts < (MIN_TIME if cti is None else cti))
    if len(late) and cti is not None:
        raise _late(int(starts[late[0]]), cti, int(late[0]))


def _late(start: int, cti: int, row: int | None = None) -> TimeError:
    if cti == MAX_TIME:
        return TimeError("The store is closed: its CTI is infinity.", remedy="Append to another store.")
    return TimeError(
        "The event starts before the store's CTI, which promised that none does.",
        column="start",
        row=row,
        values=f"start={format_time(start)}, CTI={format_time(cti)}",
        remedy="Drop or adjust late events first, or promise less.",
    )
