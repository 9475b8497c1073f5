"""Folders of results that epochs are committed to: Parquet files, and a manifest for each epoch that names its own."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from gpu_ops.core.own_errors import of_methods, own_errors
from gpu_ops.core.polars_frames import empty_table
from gpu_ops.errors import PlanError, SourceError, shown
from gpu_ops.ingest.raw_source import Piece, RawSource, shown_shape

ASIDE = "_epochs"
"""The subfolder with the manifests; Spark and Arrow take no file of it for data."""

SCHEMA = "schema.arrow"
"""The file in it with the columns."""


@own_errors
def epochs(path: str | Path) -> Epochs:
    """The committed results in a folder that a live query on Spark writes (`Stream.start_on_spark`).

    An epoch is there whole, or not at all: what no manifest names is not read. Other programs read the same Parquet
    files, and may find an epoch of which only some files have their names yet.

    Args:
        path: The folder.

    Raises:
        SourceError: No live query has written there.

    Examples:
        >>> import gpu_ops as g
        >>> import pathlib, tempfile
        >>> g.epochs(pathlib.Path(tempfile.mkdtemp()))
        Traceback (most recent call last):
        gpu_ops.errors.SourceError: ... has no epochs. It is a folder that start_on_spark(into=…) writes.
    """
    given: object = path
    if not isinstance(given, str | Path):
        raise PlanError(f"Epochs are in a folder, not in {shown(path)}.", remedy='Write g.epochs("totals").')
    return Epochs(Path(path))


@of_methods
class Epochs:
    """The committed results in a folder; `gpu_ops.epochs` opens one. Each call looks at what is committed by then.

    ``g.events(g.epochs(path))`` is a stream of them, with the lifetimes that they have.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not (path / ASIDE / SCHEMA).is_file():
            raise SourceError(f"{path} has no epochs.", remedy="It is a folder that start_on_spark(into=…) writes.")

    def __repr__(self) -> str:
        return f"<Epochs {self.path}: the last one is {self.last}>"

    @property
    def schema(self) -> pa.Schema:
        """The columns: ``start``, ``end`` and the payload."""
        return pa.ipc.read_schema(pa.py_buffer((self.path / ASIDE / SCHEMA).read_bytes()))

    @property
    def last(self) -> int | None:
        """The number of the last committed epoch; None before the first, which has number 0."""
        return max(self._numbers(), default=None)

    def files(self, epoch: int | None = None, *, since: int = -1) -> list[Path]:
        """The files of the epochs up to one.

        Args:
            epoch: The last epoch to take; the last committed one by default.
            since: Take only epochs after this one.

        Raises:
            PlanError: That epoch is not committed; the error says which are.
        """
        numbers = sorted(self._numbers())
        if epoch is not None and epoch not in numbers:
            there = f"it has epochs {numbers[0]} to {numbers[-1]}" if numbers else "it has none yet"
            raise PlanError(f"{self.path} has no epoch {epoch}: {there}.", remedy="Take one that it has.")
        wanted = [number for number in numbers if since < number and (epoch is None or number <= epoch)]
        return [self.path / each["name"] for number in wanted for each in self._said(number)["files"]]

    def read(self, epoch: int | None = None, *, since: int = -1) -> pa.Table:
        """The results as of an epoch: of all epochs up to it. The arguments are those of `files`."""
        schema = self.schema
        return pa.concat_tables([empty_table(schema), *_tables(self.files(epoch, since=since), schema)])

    def as_source(self) -> RawSource:
        """What is committed now, as a source."""
        files, schema = self.files(), self.schema
        rows = sum(pq.read_metadata(each).num_rows for each in files)

        def read(columns: Sequence[str], _: int) -> Iterator[Piece]:
            return map(Piece, _tables(files, schema, list(columns)))

        return RawSource(schema, read, "pyarrow", shown_shape("folder of epochs", rows, len(schema)), rows)

    def _numbers(self) -> list[int]:
        return [int(each.stem) for each in (self.path / ASIDE).glob("*.json") if each.stem.isdecimal()]

    def _said(self, epoch: int) -> Any:
        name = self.path / ASIDE / manifest_name(epoch)
        try:
            return json.loads(name.read_bytes())
        except (OSError, ValueError) as error:
            raise SourceError(f"{name} cannot be read: {error}", remedy="Put back what was there.") from error


def manifest_name(epoch: int) -> str:
    """The name of an epoch's manifest."""
    return f"{epoch:012d}.json"


def _tables(files: Sequence[Path], schema: pa.Schema, columns: list[str] | None = None) -> Iterator[pa.Table]:
    """The tables of some files, with the columns as they were written."""
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    for each in files:
        try:
            yield pq.read_table(each, columns=columns, partitioning=None).cast(wanted)
        except (OSError, pa.ArrowException) as error:
            raise SourceError(f"{each} cannot be read: {error}", remedy="Put back what was there.") from error
