"""The micro-batch store: a folder of Arrow files that is a log of batches and CTIs, read while it is written."""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa

from gpu_ops.core.arguments import whole
from gpu_ops.core.bounds import Bounds
from gpu_ops.core.other_names import OtherNames
from gpu_ops.core.own_errors import of_methods, own_errors
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.core.time import LIFETIME, MAX_TIME, Duration, Instant, format_time, instant, positive_ticks, ticks
from gpu_ops.errors import PlanError, SourceError, shown, unknown_column
from gpu_ops.ingest.raw_source import Piece, RawSource, shown_shape
from gpu_ops.microbatches.batch_files import Compression, DamageError, Staged, damaged, load, split, stage
from gpu_ops.microbatches.files import WriteReport, regrouped
from gpu_ops.microbatches.folders import open_folder, writing
from gpu_ops.microbatches.identity import StoreIdentity, read_identity, write_identity
from gpu_ops.microbatches.listing import listed
from gpu_ops.microbatches.names import Log, Sealed
from gpu_ops.microbatches.reports import StoredBatch, StoreReport, alive
from gpu_ops.microbatches.writer import MERGED_ROWS, Writer, conform

STAGING = ".staging-"
"""The prefix of folders in which other processes stage files for a writer."""


@own_errors
def store(
    path: str | os.PathLike[str],
    *,
    filesystem: Any = None,
    compression: Compression = "zstd",
    trust: bool = False,
    max_bytes: int | None = None,
) -> Store:
    """A store of micro-batches: a folder of Arrow files, one for each batch, whose listing is the log.

    Nothing is read or made yet; the first write makes the folder.

    Args:
        path: A folder, or its URL on a file system that fsspec knows (``s3://bucket/bids``).
        filesystem: The path's fsspec file system, if it needs options.
        compression: How this store's writers compress: ``"zstd"`` or ``"lz4"``.
        trust: Whether the files are trusted, as in `gpu_ops.events`: a file's CRC detects accidental changes, not
            malicious files.
        max_bytes: The most bytes that a file may unpack to, as there.

    Raises:
        SourceError: The path is a file, or fsspec is needed and not installed.
        PlanError: The compression is unknown.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa, tempfile
        >>> store = g.store(tempfile.mkdtemp())
        >>> bids = pa.table({"at": [0, 1], "price": [3, 9]})
        >>> store.append(g.events(bids, start="at", unit="s").collect(), cti="1970-01-01T00:00:02Z")
        1
        >>> store.read()["price"].to_pylist()
        [3, 9]
    """
    given: tuple[object, ...] = (path, compression)
    if not isinstance(given[0], str | os.PathLike):
        raise PlanError(f"A store is in a folder, not in {shown(path)}.", remedy='Write g.store("bids.store").')
    if not isinstance(given[1], str) or compression not in get_args(Compression):
        raise PlanError(f"compression={shown(compression)} is unknown.", remedy='It is "zstd" or "lz4".')
    return Store(path, filesystem, compression, Bounds(trust, max_bytes))


@of_methods
class Store(OtherNames):
    """A store of micro-batches; `gpu_ops.store` opens one.

    One process may write while others read. A reader sees a batch with its CTI, or not at all.

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa, tempfile
        >>> store = g.store(tempfile.mkdtemp())
        >>> for at in range(3):
        ...     row = pa.table({"at": [at], "price": [at * 10]})
        ...     store.append(g.events(row, start="at", unit="s").collect())
        1
        2
        3
        >>> store.compact()
        2
        >>> [(batch.sequence, batch.events["price"].to_pylist()) for batch in store.batches(since=1)]
        [(2, [10]), (3, [20])]
        >>> g.events(store).tumbling("1min").agg(n=g.count()).collect()["n"].to_pylist()
        [3]
    """

    _known_as = "store"

    def __init__(self, path: str | os.PathLike[str], filesystem: Any, compression: Compression, bounds: Bounds) -> None:
        self._folder = open_folder(path, filesystem)
        self._compression = compression
        self._bounds = bounds

    # What it is

    @property
    def path(self) -> str:
        """The path or URL."""
        return self._folder.path

    @property
    def identity(self) -> str | None:
        """A random name from its first writer, which a copy of the folder keeps.

        It is None before the first write, and in a store of an older version until the next write.

        Raises:
            SourceError: The file ``store.json`` is damaged, or cannot be read.

        Examples:
            >>> import gpu_ops as g
            >>> import tempfile
            >>> store = g.store(tempfile.mkdtemp())
            >>> store.identity is None
            True
            >>> store.writer().close()
            >>> len(store.identity)
            32
        """
        found = read_identity(self._folder)
        return None if found is None else found.name

    @property
    def schema(self) -> pa.Schema:
        """The columns: ``start``, ``end`` and the payload, as in the first batch.

        Raises:
            SourceError: The store has no batch yet.
        """
        found = self._schema(self.log())
        if found is None:
            raise SourceError(f"{self.path} holds no batch yet.", remedy="Append one; it decides the columns.")
        return found

    @property
    def cti(self) -> int | None:
        """The CTI after the last batch in ticks; None before there was any."""
        return self.log().cti

    @property
    def sequence(self) -> int:
        """The number of the last batch; 0 without one."""
        return self.log().sequence

    def __len__(self) -> int:
        """The number of events, from the names of the files. An empty store is true nevertheless."""
        return sum(file.rows for file in self.log().files)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        log = self.log()
        cti = "no CTI" if log.cti is None else f"CTI {format_time(log.cti)}"
        rows = sum(file.rows for file in log.files)
        return f"<Store {self.path}: {rows:,} events, {log.sequence:,} batches in {len(log.files):,} files, {cti}>"

    def files(self) -> list[str]:
        """The current files with the batches, for other programs that read Arrow files.

        A plain listing of the folder may also show files that a writer is about to remove.

        Examples:
            >>> import gpu_ops as g
            >>> import polars, pyarrow as pa, tempfile
            >>> store = g.store(tempfile.mkdtemp())
            >>> store.append(g.events(pa.table({"at": [0], "price": [3]}), start="at", unit="s").collect())
            1
            >>> polars.scan_ipc(store.files()).select("price").collect().item()
            3
        """
        return [self._folder.address(file.name) for file in self.log().files]

    # What it holds

    def read(
        self,
        start: Instant | None = None,
        end: Instant | None = None,
        *,
        since: int = 0,
        until: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The events alive within ``[start, end)``. Files without such events are not opened.

        Args:
            start: Skip events that end at or before this time.
            end: Skip events that start at or after this time.
            since: Read only batches after this one.
            until: Read only batches up to this one: what the store had when that was the last one, but for what has
                expired since. A live query on Spark writes its epoch 5 as batch 6.
            columns: Payload columns; all by default.

        Returns:
            ``start``, ``end`` (``timestamp[us, UTC]``) and the payload columns, in the order of the batches.

        Raises:
            SourceError: The store has no batch yet, or a file is damaged or lost.
            ColumnError: A column is unknown.
            PlanError: The store has no batch of the number ``until``.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa, tempfile
            >>> store = g.store(tempfile.mkdtemp())
            >>> for price in (3, 5):
            ...     _ = store.append(
            ...         g.events(pa.table({"at": [price], "price": [price]}), start="at", unit="s").collect()
            ...     )
            >>> store.read()["price"].to_pylist(), store.read(until=1)["price"].to_pylist()
            ([3, 5], [3])
            >>> store.read(until=3)
            Traceback (most recent call last):
            gpu_ops.errors.PlanError: ... has no batch 3 yet: the last one is 2. Take one that it has.
        """
        schema = self.schema
        if until is not None and whole(until, name="until", least=1) > (last := self.sequence):
            raise PlanError(
                f"{self.path} has no batch {until} yet: the last one is {last}.", remedy="Take one that it has."
            )
        names = list(LIFETIME)
        for name in schema.names if columns is None else columns:
            if name not in schema.names:
                raise unknown_column(name, schema.names, what="store")
            names += [] if name in LIFETIME else [name]
        bounds = [
            None if bound is None else instant(bound, name=name) for name, bound in (("start", start), ("end", end))
        ]
        tables = self.tables(names, since=since, until=until, start=bounds[0], end=bounds[1], schema=schema)
        return pa.concat_tables([empty_table(pa.schema(map(schema.field, names))), *tables])

    def tables(
        self,
        columns: Sequence[str],
        *,
        since: int = 0,
        until: int | None = None,
        start: int | None = None,
        end: int | None = None,
        schema: pa.Schema | None = None,
    ) -> Iterator[pa.Table]:
        """As `read`, with one table for each file.

        Args:
            columns: Names, ``start`` and ``end`` too.
            since: Read only batches after this one.
            until: Read only batches up to this one.
            start: Ticks, as in `read`.
            end: Ticks, as in `read`.
            schema: The store's columns if known, else those of the first file; each file must have them.
        """
        wanted = list(dict.fromkeys([*columns, *(LIFETIME if (start, end) != (None, None) else ())]))
        known = None if schema is None else pa.schema(map(schema.field, wanted))
        for held in self._pieces(since, until, wanted, start, end, known):
            if held:
                table = pa.concat_tables([batch.events for batch in held])
                yield alive(table, start, end).select(list(columns))

    def batches(self, since: int = 0, until: int | None = None) -> Iterator[StoredBatch]:
        """The current batches, one by one; merging files does not change them.

        Args:
            since: Read only batches after this one.
            until: Read only batches up to this one. Of expired batches that count as one, those up to it have its
                number, and no CTI of theirs is known.

        Raises:
            SourceError: A file is damaged or lost.
        """
        for held in self._pieces(since, until):
            yield from held

    def follow(
        self,
        since: int = 0,
        *,
        timeout: Duration | None = None,
        poll: Duration = "100ms",
        on_wait: Callable[[], object] | None = None,
    ) -> Iterator[StoredBatch]:
        """The current batches, then new ones as they come, until the CTI is infinity.

        Only the wait for the next batch uses a clock; events have their own time.

        Args:
            since: Read only batches after this one.
            timeout: Stop after this long without a new batch (``"10s"``, or 0); by default, wait for ever.
            poll: How long to wait between two listings of the folder.
            on_wait: Called after each listing without a new batch; a true result stops.

        Raises:
            SourceError: A file is damaged or lost, or the store has fewer batches than were read.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa, tempfile
            >>> store = g.store(tempfile.mkdtemp())
            >>> store.append(g.events(pa.table({"at": [0], "price": [3]}), start="at", unit="s").collect())
            1
            >>> [batch.sequence for batch in store.follow(timeout=0)]
            [1]
        """
        heard = time.monotonic()
        patience = None if timeout is None else ticks(timeout, name="timeout") / 1_000_000
        pause = positive_ticks(poll, name="poll") / 1_000_000
        read = 0
        while True:
            for batch in self.batches(since):
                since = read = batch.sequence
                yield batch
                heard = time.monotonic()
            log = self.log()
            if log.sequence < read:
                raise SourceError(
                    f"{self.path} ends with batch {log.sequence}, and batch {read} of it was read.",
                    remedy="It was made anew or lost files: put it back, or start what follows it afresh.",
                )
            if log.cti == MAX_TIME and log.sequence <= since:
                return
            if patience is not None and time.monotonic() - heard >= patience:
                return
            if on_wait is not None and on_wait():
                return
            time.sleep(pause)

    def verify(self) -> StoreReport:
        """Read every file, and report damage; nothing is changed.

        Raises:
            SourceError: A file is lost, or two files claim one batch.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa, tempfile
            >>> store = g.store(tempfile.mkdtemp())
            >>> store.append(g.events(pa.table({"at": [0], "price": [3]}), start="at", unit="s").collect())
            1
            >>> store.verify().sound
            True
        """
        log = self.log()
        wrong = []
        unread = []
        for file in log.files:
            try:
                load(self._folder, file, None, self._bounds)
            except DamageError as error:
                wrong.append(str(error))
            except SourceError as error:
                unread.append(str(error))
            except FileNotFoundError:
                if file in self.log().files:
                    wrong.append(str(damaged(self._folder, file, "it is gone")))
        try:
            read_identity(self._folder)
        except DamageError as error:
            wrong.append(str(error))
        except SourceError as error:
            unread.append(str(error))
        staging = tuple(name for name in self._folder.folders() if name.startswith(STAGING))
        rows = sum(file.rows for file in log.files)
        found = (tuple(wrong), log.foreign, (*log.leftovers, *staging), tuple(unread))
        return StoreReport(len(log.files), rows, log.sequence, log.cti, *found)

    # How it is written

    def writer(self, *, take_over: str | None = None) -> Writer:
        """Become the store's one writer, until the writer is closed.

        On this machine's file systems it takes a lock of the operating system, which ends with the process. On others
        the lock is an object in the store, which names its owner and stays when the owner is killed.

        Args:
            take_over: The owner that the error named, if you know that it is dead. No other lock is taken over.

        Raises:
            SourceError: The store has a writer, a file is lost, or the file system refuses.
        """
        with writing(self._folder):
            self._folder.make()
            lock = self._folder.lock(take_over)
        try:
            log = self.log()
            made = Writer(self._folder, lock, self._compression, self.log, self._schema(log), self._identified())
            made.recover()
        except BaseException:
            lock.release()
            raise
        return made

    def _identified(self) -> StoreIdentity:
        """The store's identity; a store without one gets it now, so only a writer may ask."""
        found = read_identity(self._folder)
        if found is None:
            found = StoreIdentity.new()
            write_identity(self._folder, found)
        return found

    def append(self, events: Any, cti: Instant | None = None) -> int:
        """`Writer.append` by a writer of its own."""
        with self.writer() as writer:
            return writer.append(events, cti)

    def advance(self, cti: Instant) -> int:
        """`Writer.advance` by a writer of its own."""
        with self.writer() as writer:
            return writer.advance(cti)

    def compact(self, rows: int = MERGED_ROWS) -> int:
        """`Writer.compact` by a writer of its own."""
        with self.writer() as writer:
            return writer.compact(rows)

    def expire(self, before: Instant) -> int:
        """`Writer.expire` by a writer of its own."""
        with self.writer() as writer:
            return writer.expire(before)

    def write(self, answer: pa.RecordBatchReader) -> WriteReport:
        """Append a whole result and close the store, atomically: the last batch has a CTI at infinity.

        Args:
            answer: Columns ``start`` and ``end`` and a payload.

        Raises:
            GpuOpsError: As `Writer.append`.
        """
        if isinstance(answer, pa.Table):
            answer = answer.to_reader()
        if not isinstance(answer, pa.RecordBatchReader):
            raise PlanError(
                f"A store takes an Arrow table or reader, not {shown(answer)}.",
                remedy="Write store.write(query.to_reader()), or query.write(store).",
            )
        with self.writer() as writer:
            before = writer.sequence
            tables = regrouped(answer, answer.schema, MERGED_ROWS)
            writer.extend(chain([next(tables, empty_table(answer.schema))], tables), "infinity")
            written = [file for file in self.log().files if file.first > before]
        rows, size = sum(file.rows for file in written), sum(file.size for file in written)
        return WriteReport(Path(self.path), rows, len(written), size)

    def staging(self, job: str) -> None:
        """Make the folder for a job's staged files, until `unstage`. A late task finds no folder and leaves no file."""
        with writing(self._folder):
            self._folder.make()
            self._folder.make(STAGING + job)

    def stage(self, events: Any, job: str) -> Staged:
        """Write a file of events that `Writer.adopt` can commit later, in another process too; no lock is needed.

        Args:
            events: As in `Writer.append`.
            job: The name for all files of one commit, as in `staging`.

        Raises:
            GpuOpsError: As `Writer.append`.
        """
        log = self.log()
        table = conform(events, self._schema(log), log.cti)
        parts = [(table.num_rows, None)]
        return stage(self._folder, table, parts=parts, compression=self._compression, within=STAGING + job)

    def unstage(self, job: str) -> None:
        """Remove a job's staged files that were not adopted."""
        with writing(self._folder):
            self._folder.remove_folder(STAGING + job)

    # How it is read

    def as_source(self) -> RawSource:
        """The current content, as a source.

        Raises:
            SourceError: The store has no batch yet, or as `log`.
        """
        schema, rows, until = self.schema, len(self), self.sequence
        return RawSource(
            schema,
            lambda columns, _: map(Piece, self.tables(columns, until=until, schema=schema)),
            "store",
            shown_shape("micro-batch store", rows, len(schema)),
            rows,
        )

    def log(self) -> Log:
        """The log, from the names of the files; no file is opened.

        Raises:
            SourceError: A file is lost, or two files claim one batch.
        """
        return listed(self._folder)

    def _schema(self, log: Log) -> pa.Schema | None:
        """The store's columns, from its smallest undamaged file; None without a batch."""
        while log.files:
            failed: SourceError | None = None
            for file in sorted(log.files, key=lambda file: file.size):
                try:
                    return load(self._folder, file, None, self._bounds).table.schema
                except SourceError as error:
                    failed = failed or error
                except FileNotFoundError:
                    break
            else:
                if failed is not None:
                    raise failed
            log = self._without(file, log)
        return None

    def _without(self, file: Sealed, log: Log) -> Log:
        """A new log after a file was missing: it was merged, has expired, or was lost."""
        again = self.log()
        if file in again.files and again == log:
            raise damaged(self._folder, file, "it is gone")
        return again

    def _pieces(
        self,
        since: int,
        until: int | None = None,
        columns: Sequence[str] | None = None,
        start: int | None = None,
        end: int | None = None,
        schema: pa.Schema | None = None,
    ) -> Iterator[list[StoredBatch]]:
        """The batches of each file that may hold an event within a time, after one batch and up to another."""
        log = self.log()
        last = log.sequence if until is None else until
        while since < min(last, log.sequence):
            for file in log.files[bisect_right(log.files, since, key=lambda file: file.last) :]:
                if since >= last:
                    return
                if (start, end) == (None, None) or file.overlaps(start, end):
                    try:
                        loaded = load(self._folder, file, columns, self._bounds)
                    except FileNotFoundError:
                        log = self._without(file, log)
                        break
                    schema = schema or loaded.table.schema
                    if loaded.table.schema != schema:
                        raise damaged(self._folder, file, "it has other columns than another file of the store")
                    if loaded.lost is not None and file.last > last:
                        yield [StoredBatch(last, loaded.table, None, file.expired, min(loaded.lost, last))]
                        return
                    held = (piece for piece in split(loaded, file) if since < piece[0] <= last)
                    yield [StoredBatch(*piece, file.expired, loaded.lost) for piece in held]
                since = file.last
