"""What a device holds: the columns that operators are handed, described once for all devices.

A device has a module with these functions, and mypy holds each module to the names, the arguments and the results said
here; what a library without types (cuDF) gives them, the tests alone can compare. Frames and arrays are the device's
own: an operator carries them and looks into none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import pyarrow as pa

from gpu_ops.devices.kernels import Array, Bools, Codes, Ints

Frame = Any
"""Columns of one length, by name, in the device's memory."""

Step = Callable[[Any], Any]
"""From a Narwhals lazy frame to one."""


class Columns(Protocol):
    """Arrow in and out, expressions, gathering and key codes."""

    # There and back

    def array(self, values: Any) -> Array:
        """A host array on this device."""

    def host(self, values: Array) -> Any:
        """A device array on the host."""

    def from_arrow(self, table: pa.Table) -> Frame:
        """A table's columns on this device; over the table's memory where that can be."""

    def to_arrow(self, frame: Frame, schema: pa.Schema) -> pa.Table:
        """A table of the given schema in host memory; its columns may stand in another order in the frame."""

    def tuples(self, frame: Frame) -> list[tuple[Any, ...]]:
        """Each row as a tuple that is equal for equal keys alone.

        A float is its bits, as no NaN equals another; a time is its number, as Python's own have no nanoseconds.
        """

    # Frames

    def rows(self, frame: Frame) -> int:
        """How many rows."""

    def take(self, frame: Frame, indices: Ints) -> Frame:
        """The rows at these indices, in their order."""

    def select(self, frame: Frame, names: Sequence[str]) -> Frame:
        """These columns."""

    def rename(self, frame: Frame, before: str, after: str) -> Frame:
        """The frame with one column's name changed."""

    def concat(self, frames: Sequence[Frame]) -> Frame:
        """One frame of all rows; the frames have the same columns, in any order: it has the first one's."""

    def beside(self, *frames: Frame) -> Frame:
        """The columns of one frame or several, row by row."""

    def null_where(self, frame: Frame, valid: Bools | None) -> Frame:
        """The frame with null in all columns where ``valid`` does not hold."""

    def nulls(self, frame: Frame, count: int) -> Frame:
        """A number of rows of null, in the frame's columns."""

    # Expressions

    def evaluate(
        self, start: Ints, end: Ints | int, frame: Frame, steps: Sequence[Step]
    ) -> tuple[Ints, Ints | int, Frame]:
        """Run Narwhals steps over events; ``start`` and ``end`` are columns there.

        Args:
            start: int64 ticks.
            end: int64 ticks, or how many ticks every event lasts.
            frame: The payload.
            steps: Functions from a Narwhals lazy frame to one, which keep the columns ``start`` and ``end``.

        Returns:
            The three after the steps; a duration stays a duration.
        """

    def answer(self, start: Ints, end: Ints | int, frame: Frame, steps: Sequence[Step], schema: pa.Schema) -> pa.Table:
        """The table that `evaluate` leads to, in as many chunks as it was computed in: nothing is put together.

        Args:
            start: As in `evaluate`, and so the next three.
            end: Likewise.
            frame: Likewise.
            steps: Likewise.
            schema: The answer's columns: ``start``, ``end`` and the payload.
        """

    # From columns to arrays

    def values(self, frame: Frame, name: str) -> tuple[Array, Bools | None]:
        """A column's values as they are stored, and which of them are there.

        Returns:
            (numbers, valid): integers, floats, and the integers behind bools, dates, times and durations, in their own
            width; valid is None when no value is null, and where a value is null the number is 0.
        """

    def validity(self, frame: Frame, name: str) -> Bools | None:
        """Which values of a column are there; None when all are."""

    def extent(self, frame: Frame, name: str) -> tuple[int, int]:
        """The least and the greatest value of a column of integers or times, as they are stored; zeros of no value."""

    def words(self, frame: Frame, name: str) -> tuple[Ints, Ints, Bools | None]:
        """A decimal column's unscaled 128-bit values as (low 64 bits, high 64 bits, valid), int64 both; 0 for null."""

    def ranks(self, frame: Frame, name: str) -> tuple[Ints, Bools | None, Frame]:
        """Order codes for a column of any ordered type.

        Returns:
            (codes int64, valid, distinct): ``distinct`` has one column ``name``, ascending, and row ``codes[i]`` of it
            is the value of row i; codes of nulls are 0.
        """

    def key_codes(self, frame: Frame, names: Sequence[str]) -> tuple[Codes, int, Frame | None]:
        """Group numbers of rows by the values of some columns.

        Null is a value, all NaNs are one, -0.0 equals 0.0.

        Returns:
            (codes int32, groups, keys): each row's group in ``0 … groups - 1``, some of which may hold no row; ``keys``
            has these columns and row g for group g, None without names.
        """

    # From arrays to columns

    def build(self, columns: dict[str, tuple[Array, Bools | None, pa.DataType]]) -> Frame:
        """A frame from arrays.

        Args:
            columns: Per name the numbers, which of them are there (None: all), and the Arrow type that they stand for:
                a fixed-width type other than decimal.
        """

    def build_decimal(self, name: str, low: Ints, high: Ints, valid: Bools | None, dtype: pa.DataType) -> Frame:
        """A frame of one decimal column from the words of its unscaled values."""
