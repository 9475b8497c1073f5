"""Answers in the kind of frame that came in."""

from __future__ import annotations

import importlib
import sys
import types
from typing import Any

import pyarrow as pa
import pytest

from gpu_ops.ingest import to_origin


def answer() -> pa.Table:
    return pa.table(
        {
            "start": pa.array([0, 253_402_300_799_999_999], pa.timestamp("us", "America/New_York")),
            "n": pa.array([2**62 + 1, None], pa.int64()),
            "b": pa.array([True, None]),
            "whole": pa.array([1, 2], pa.uint8()),
            "there": pa.array([1, 2], pa.uint8()),
            "text": pa.array(["a", None]),
            "kind": pa.array(["a", None]).dictionary_encode(),
        },
        schema=pa.schema(
            [
                pa.field("start", pa.timestamp("us", "America/New_York")),
                pa.field("n", pa.int64()),
                pa.field("b", pa.bool_()),
                pa.field("whole", pa.uint8()),
                pa.field("there", pa.uint8(), nullable=False),
                pa.field("text", pa.string()),
                pa.field("kind", pa.dictionary(pa.int32(), pa.string())),
            ]
        ),
    )


@pytest.mark.parametrize("origin", ["pyarrow", "path", "reader", "duckdb"])
def test_arrow_when_in_doubt(origin: str) -> None:
    assert to_origin(answer(), origin) is not None
    assert to_origin(answer(), origin).equals(answer())
    assert to_origin(answer().to_reader(), origin).equals(answer())


def test_pandas_keeps_every_value() -> None:
    frame = to_origin(answer(), "pandas")
    assert type(frame).__module__.startswith("pandas")
    assert [str(dtype) for dtype in frame.dtypes] == [
        "datetime64[us, America/New_York]",
        "Int64",
        "boolean",
        "UInt8",  # it may be null, though none is
        "uint8",
        "str",
        "str",  # nobody knows all its categories
    ]
    assert frame["n"].tolist()[0] == 2**62 + 1
    assert frame["start"].iloc[1].year == 9999
    assert list(frame.index) == [0, 1]
    assert pa.Table.from_pandas(frame, preserve_index=False)["n"].equals(answer()["n"])


def test_pandas_without_rows_or_columns() -> None:
    assert to_origin(answer().slice(0, 0), "pandas").shape == (0, 7)
    assert list(to_origin(answer().slice(0, 0), "pandas").columns) == answer().column_names
    assert to_origin(pa.table({}), "pandas").shape == (0, 0)


def test_polars_shares_what_came_in() -> None:
    frame = to_origin(answer().to_reader(), "polars")
    assert type(frame).__module__.startswith("polars")
    assert str(frame.schema["start"]) == "Datetime(time_unit='us', time_zone='America/New_York')"
    assert frame["n"].to_list() == [2**62 + 1, None]


def test_zones_that_polars_has_no_name_for_become_utc() -> None:
    table = pa.table({"start": pa.array([0], pa.timestamp("us", "+05:30"))})
    assert str(to_origin(table, "polars").schema["start"]) == "Datetime(time_unit='us', time_zone='UTC')"
    assert to_origin(table, "pandas")["start"].iloc[0].utcoffset().total_seconds() == 5.5 * 3600


def test_cudf_takes_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in: Any = types.ModuleType("cudf")
    stand_in.DataFrame = type("DataFrame", (), {"from_arrow": staticmethod(lambda table: ("cudf", table))})
    monkeypatch.setitem(sys.modules, "cudf", stand_in)
    assert to_origin(answer(), "cudf") == ("cudf", answer())


def test_polars_frames_come_back_as_they_went() -> None:
    polars = importlib.import_module("polars")
    frame = polars.DataFrame({"e": polars.Series(["x", None], dtype=polars.Enum(["y", "x"])), "l": [[1], None]})
    assert to_origin(pa.table(frame), "polars").equals(frame)
    assert to_origin(pa.table(frame), "polars").schema == frame.schema
