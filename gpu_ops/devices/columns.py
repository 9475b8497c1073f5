"""What a device holds: the frames of columns that operators carry, described once for all devices.

Each device has a module with these functions, and mypy checks its names, arguments and results against this protocol;
cuDF publishes no types, so only tests check what it returns. Frames and arrays belong to the device: operators carry
them and never look into them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from gpu_ops.devices.kernels import Array, Bools, Codes, Ints

Frame = Any
"""Columns of one length, by name, in the device's memory."""

Step = Callable[[Any], Any]
"""From a frame with Narwhals's verbs `filter`, `select` and `with_columns` to one."""


class Columns(Protocol):
    """Arrow in and out, expressions, gathering and key codes."""

    POLARS: bool
    """Whether Polars evaluates expressions. Elsewhere they need another form to mean the same."""

    # There and back

    def array(self, values: Any) -> Array:
        """A host array on this device."""

    def host(self, values: Array) -> Any:
        """A device array on the host."""

    def from_arrow(self, table: pa.Table) -> Frame:
        """A table's columns on this device, over the table's memory if possible."""

    def to_arrow(self, frame: Frame, schema: pa.Schema) -> pa.Table:
        """A table with this schema in host memory; the frame may hold its columns in another order."""

    def tuples(self, frame: Frame) -> list[tuple[Any, ...]]:
        """Each row as a tuple; tuples are equal if and only if the keys are.

        Floats become their bits, as no NaN equals another; times become numbers, as Python's have no nanoseconds.
        """

    def row_hashes(self, frame: Frame, schema: pa.Schema) -> Ints | None:
        """int64: a hash of each row, the same for equal rows; None if the device has none for columns of these types.

        Args:
            frame: The rows.
            schema: The columns of which it is made.
        """

    # Frames

    def rows(self, frame: Frame) -> int:
        """How many rows."""

    def take(self, frame: Frame, indices: Ints) -> Frame:
        """The rows at these indices, in their order."""

    def cut(self, frame: Frame, low: int, high: int) -> Frame:
        """The rows from ``low`` to ``high``."""

    def select(self, frame: Frame, names: Sequence[str]) -> Frame:
        """These columns."""

    def rename(self, frame: Frame, before: str, after: str) -> Frame:
        """The frame with one column's name changed."""

    def concat(self, frames: Sequence[Frame]) -> Frame:
        """All rows in one frame. The frames have the same columns in any order; the result has the first one's."""

    def beside(self, *frames: Frame) -> Frame:
        """The columns of all frames in one frame; the frames have equally many rows."""

    def null_where(self, frame: Frame, valid: Bools | None) -> Frame:
        """The frame with null in all columns of rows that are not valid."""

    def nulls(self, frame: Frame, count: int) -> Frame:
        """A frame of ``count`` rows of nulls, with the frame's columns."""

    def structs(self, frame: Frame, name: str) -> Frame:
        """A frame of one column of structs, none of them null, whose fields are the frame's columns."""

    # Expressions

    def evaluate(
        self, start: Ints, end: Ints | int, frame: Frame, steps: Sequence[Step]
    ) -> tuple[Ints, Ints | int, Frame]:
        """Run Narwhals steps over events; ``start`` and ``end`` are columns there.

        Args:
            start: int64 ticks.
            end: int64 ticks, or the number of ticks that every event lasts.
            frame: The payload.
            steps: Functions from a frame with Narwhals's verbs to one, which keep the columns ``start`` and ``end``.

        Returns:
            The three after the steps; a duration stays a duration.
        """

    def answer(self, start: Ints, end: Ints | int, frame: Frame, steps: Sequence[Step], schema: pa.Schema) -> pa.Table:
        """The events of `evaluate` as a table, in the chunks that it was computed in.

        Args:
            start: As in `evaluate`.
            end: As in `evaluate`.
            frame: As in `evaluate`.
            steps: As in `evaluate`.
            schema: The answer's columns: ``start``, ``end`` and the payload.
        """

    # From columns to arrays

    def values(self, frame: Frame, name: str) -> tuple[Array, Bools | None]:
        """A column's stored values, and which of them are not null.

        Returns:
            (numbers, valid): integers, floats, or the integers behind bools, dates, times and durations, in their own
            width. ``valid`` is None if no value is null; the number of a null is 0.
        """

    def validity(self, frame: Frame, name: str) -> Bools | None:
        """Which values of a column are not null; None if all are."""

    def extent(self, frame: Frame, name: str) -> tuple[int, int]:
        """The least and the greatest stored value of a column of integers or times; zeros if it has no value."""

    def words(self, frame: Frame, name: str) -> tuple[Ints, Ints, Bools | None]:
        """A decimal column's unscaled 128-bit values as (low 64 bits, high 64 bits, valid); both int64, 0 for null."""

    def ranks(self, frame: Frame, name: str) -> tuple[Ints, Bools | None, Frame]:
        """Order codes for a column of any ordered type.

        Returns:
            (codes int64, valid, distinct): ``distinct`` has one column ``name``, ascending; its row ``codes[i]`` is the
            value of row i. The code of a null is 0.
        """

    def key_codes(self, frame: Frame, names: Sequence[str]) -> tuple[Codes, int, Frame | None]:
        """Group numbers of rows by the values of some columns.

        Null is a value, all NaNs are one, -0.0 equals 0.0.

        Returns:
            (codes int32, groups, keys): each row's group in ``0 … groups - 1``, of which some may be empty; ``keys``
            has these columns and a row for each group, or is None without names.
        """

    # From arrays to columns

    def build(self, columns: dict[str, tuple[Array, Bools | None, pa.DataType]]) -> Frame:
        """A frame from arrays.

        Args:
            columns: For each name the numbers, which of them are valid (None: all), and their Arrow type: a fixed-width
                type other than decimal.
        """

    def build_decimal(self, name: str, low: Ints, high: Ints, valid: Bools | None, dtype: pa.DataType) -> Frame:
        """A frame of one decimal column from the words of its unscaled values."""
