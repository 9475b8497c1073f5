"""What expressions mean on a GPU: the same, proved on what a GPU is given, or a refusal before anything runs."""

from __future__ import annotations

import datetime

import narwhals as nw
import polars as pl
import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.core.polars_frames import to_frame
from gpu_ops.core.types import storage
from gpu_ops.devices import Device, choose
from gpu_ops.devices.cuda.lowering import device_type, lower, restore
from gpu_ops.engines.local import placing
from gpu_ops.engines.local.placing import is_stood_for, misreading
from gpu_ops.operators.cudf_expressions import without_zones
from tests.support.payload_table import ROWS
from tests.support.sameness import EDGES

UTC = datetime.UTC
DAYS = [datetime.date(2020, 1, 1), datetime.date(1969, 12, 31), None, datetime.date(2024, 2, 29)]
TIMES = [datetime.datetime(2020, 1, 1, 23, 30, tzinfo=UTC), datetime.datetime(1969, 6, 1, tzinfo=UTC), None, None]
CLOCKS = [datetime.time(1, 2, 3), None, datetime.time(23), datetime.time(0)]
NUMBERS = [7, None, 9, 10]

A_DAY, AN_HOUR = datetime.date(2020, 1, 1), datetime.timedelta(hours=1)
A_TIME = datetime.datetime(2020, 1, 1, tzinfo=UTC)

TABLE = pa.table(
    {
        "at": pa.array([0, 5, 2, 7]),
        "v": pa.array(NUMBERS),
        "day": pa.array(DAYS, pa.date32()),
        "due": pa.array(DAYS[::-1], pa.date32()),
        "clock": pa.array(CLOCKS, pa.time32("s")),
        "fine": pa.array(CLOCKS[::-1], pa.time64("us")),
        "utc": pa.array(TIMES, pa.timestamp("us", "UTC")),
        "utc2": pa.array(TIMES[::-1], pa.timestamp("us", "UTC")),
        "here": pa.array(TIMES, pa.timestamp("us", "Europe/Vienna")),
        "there": pa.array(TIMES[::-1], pa.timestamp("us", "Europe/Vienna")),
        "plain": pa.array([None if each is None else each.replace(tzinfo=None) for each in TIMES], pa.timestamp("us")),
        "bytes": pa.array([b"a", None, b"b", b""]),
        "bytes2": pa.array([b"b", b"x", b"a", None]),
        "kind": pa.array(["x", "y", None, "x"]).dictionary_encode(),
        "text": pa.array(["x", "x", "x", None]),
        "half": pa.array([0.5, None, 2.0, -0.0], pa.float16()),
        "half2": pa.array([0.5, 1.0, 1.0, 0.0], pa.float16()),
        "both": pa.array([{"day": day, "v": v} for day, v in zip(DAYS, NUMBERS, strict=True)]),
        "days": pa.array([[day] for day in DAYS], pa.list_(pa.date32())),
        "none": pa.nulls(4),
    }
)
STREAM = g.events(TABLE, start="at", unit="s")
col = g.col

SAME = [
    col("day"),
    col("none"),
    col("both"),
    col("day") == col("due"),
    col("day") >= col("due"),
    col("clock") < col("fine"),
    col("here") != col("there"),
    col("utc").is_between(col("utc2"), col("utc")),
    col("start") > col("utc"),
    col("utc") > A_TIME,
    col("start") > A_TIME.astimezone(datetime.timezone(AN_HOUR)),
    nw.when(col("start") > A_TIME).then(nw.lit(A_TIME)).otherwise(col("start")),
    (col("start") + AN_HOUR).cast(nw.Datetime("us", "UTC")),
    col("none").cast(g.String),
    col("bytes") <= col("bytes2"),
    col("half") < col("half2"),
    col("kind") == col("text"),
    col("kind") == "x",
    col("kind").is_in(["x", "z"]),
    col("kind").cast(g.String),
    col("half").cast(g.Float64) * 3,
    col("day").is_null() & ~col("none").is_null(),
    nw.coalesce("day", "due"),
    col("bytes").fill_null(col("bytes2")),
    nw.when(col("v") > 8).then(col("day")).otherwise(col("due")),
    nw.when(col("day") == col("due")).then(col("here")),
    nw.when(col("v") > 8).then(col("both")),
    col("both").struct.field("day") == col("due"),
    col("both").struct.field("v") + 1,
    col("days").list.get(0),
    col("days").list.len(),
    col("utc") - col("utc2"),
    col("here") - col("there") > AN_HOUR,
    col("here") + AN_HOUR,
    col("start") + AN_HOUR,
    col("here").dt.timestamp("us"),
    col("utc").dt.hour(),
    col("start").dt.weekday(),
    col("utc").dt.truncate("1d"),
    col("utc").dt.truncate("1m"),
    col("day").cast(g.Int64),
    col("clock").cast(g.Int64),
    col("here").cast(g.Int64),
    col("plain").dt.hour(),
    col("plain") > datetime.datetime(2000, 1, 1),  # noqa: DTZ001  (a local time is what it is about)
    nw.lit(None),
]
"""Expressions that a GPU may have."""

OTHERWISE = [
    (col("day") == A_DAY, "day"),
    (col("day").is_in([A_DAY]), "day"),
    (col("day").dt.year(), "day"),
    (col("day") + datetime.timedelta(days=1), "day"),
    (col("day").cast(g.Float64), "day"),
    (col("v") + (col("due") - col("day")).dt.total_seconds(), "due"),
    (col("clock") > datetime.time(1), "clock"),
    (col("clock") == nw.when(col("v") > 1).then(nw.lit(datetime.time(1))), None),
    (col("here").dt.hour(), "here"),
    (col("utc").dt.convert_time_zone("Asia/Tokyo"), "utc"),
    (col("utc").dt.date(), "utc"),
    (col("utc").dt.to_string("%H"), "utc"),
    (col("plain").dt.date(), None),
    (col("plain").dt.replace_time_zone("UTC"), None),
    (col("bytes") == b"a", "bytes"),
    (col("kind") < col("kind"), "kind"),
    (col("half") * 3, "half"),
    (nw.when(col("day").dt.year() > 2000).then(col("v")), "day"),
    (nw.coalesce("day", nw.lit(A_DAY)), None),
    (nw.lit(A_DAY), None),
]
"""Expressions that are another question there, and the column that makes them so."""


CUDF_DIFFERS = [
    col("m") * 2,
    col("m") - col("b"),
    col("m") > 1,
    col("m") * col("m"),
    col("b").cast(g.Decimal(10, 2)),
    -col("z"),
    col("z") * 1.5,
    col("z") / 2,
    col("d") - col("d"),
    col("d") > A_DAY,
    col("d").cast(g.Datetime("us")),
    col("d").cast(g.String),
    col("t").cast(g.Date),
    col("x").sqrt(),
    col("x").floor(),
    col("i").floor(),
    col("x").exp(),
    col("i").is_finite(),
    g.max_horizontal("text", "u"),
    g.max_horizontal("x", "y"),
    g.sum_horizontal("x", "y"),
    col("p").cast(g.String),
    col("z").dt.total_nanoseconds(),
    col("t").dt.truncate("1mo"),
    col("t").dt.truncate("7m"),
    col("l").list.contains(5),
    col("l").list.sum(),
]
"""Expressions over values at the edges of types for which cuDF 26.10 gave something else on an H200, or an error."""


@pytest.mark.parametrize("expression", CUDF_DIFFERS, ids=repr)
def test_what_cudf_was_seen_to_compute_otherwise_is_refused(expression: nw.Expr) -> None:
    found = misreading(g.events(EDGES, start="s", end="e").select(made=expression)._node)
    assert found is not None
    assert "computed otherwise there, or not at all" in found or "which is there as" in found


@pytest.mark.parametrize("expression", SAME, ids=repr)
def test_what_is_allowed_is_the_same_over_what_a_gpu_is_given(expression: nw.Expr) -> None:
    stream = STREAM.select(made=expression)
    assert misreading(stream._node) is None
    expected = stream.collect(device="cpu")
    events = TABLE.append_column("start", expected["start"])
    given = to_frame(pa.table({name: lower(events[name]) for name in events.column_names}))
    # Beside a column, as a literal alone has one row.
    there = nw.from_native(given).select(without_zones(expression).alias("made"), nw.col("v")).to_native().to_arrow()
    assert restore(there["made"], expected.schema.field("made").type).to_pylist() == expected["made"].to_pylist()


@pytest.mark.parametrize(("expression", "column"), OTHERWISE, ids=repr)
def test_what_would_be_another_question_is_named(expression: nw.Expr, column: str | None) -> None:
    found = misreading(STREAM.select(made=expression)._node)
    assert found is not None
    if column is not None:
        assert f"reads {column!r}, a " in found
        assert "which is there as " in found


@pytest.mark.parametrize("kind", [*(row.dtype for row in ROWS), *(field.type for field in TABLE.schema)], ids=str)
def test_a_type_is_stood_for_if_a_gpu_is_given_another(kind: pa.DataType) -> None:
    dtype = nw.from_native(to_frame(pa.table({"v": pa.nulls(1, kind)}))).schema["v"]
    plain = nw.from_native(pl.DataFrame(pa.table({"v": pa.nulls(1, device_type(kind))}))).schema["v"]
    assert is_stood_for(dtype) == (dtype != plain), (dtype, plain, storage(kind))


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine with a GPU: which is asked for, and not used."""
    cpu = choose("cpu")

    def chosen(name: str) -> Device:
        why = "asked for" if name == "gpu" else "auto: a GPU was found"
        return cpu if name == "cpu" else Device("gpu", why, cpu.kernels, cpu.columns, None, parallel=False)

    monkeypatch.setattr(placing, "choose", chosen)


WITH_A_DATE = {
    "filter": STREAM.filter(col("day") == A_DAY),
    "aggregate": STREAM.snapshot().agg(n=g.sum(col("day").dt.year())),
    "aggregate's condition": STREAM.snapshot().agg(n=g.count(where=col("day") > A_DAY)),
    "lifetime": STREAM.alter_lifetime(end=nw.when(col("day") == A_DAY).then(col("start"))),
    "below": STREAM.filter(col("day") == A_DAY).tumbling("1min").agg(n=g.count()),
}


@pytest.mark.usefixtures("with_gpu")
@pytest.mark.parametrize("stream", WITH_A_DATE.values(), ids=WITH_A_DATE)
def test_a_gpu_that_is_asked_for_refuses_before_anything_is_read(stream: g.Stream) -> None:
    for ask in (stream.collect, stream.start, stream.explain, stream.to_reader):
        with pytest.raises(g.DeviceError, match=r'cannot run on a GPU: .* reads .* Use device="auto" or "cpu"'):
            ask(device="gpu")


@pytest.mark.usefixtures("with_gpu")
def test_auto_takes_the_cpu_and_says_why() -> None:
    stream = STREAM.filter(col("day") == A_DAY).select("v")
    said = stream.explain().splitlines()[-1]
    assert said.startswith("device cpu: auto: a GPU was found, but __eq__ in ")
    assert said.endswith("reads 'day', a date32[day], which is there as int32")
    assert stream.collect()["v"].to_pylist() == [7]
    live = stream.start()
    live.push(TABLE)
    live.close()
    assert live.results()["v"].to_pylist() == [7]


@pytest.mark.usefixtures("with_gpu")
def test_what_is_no_expression_stays_on_the_gpu() -> None:
    stream = STREAM.by("day").snapshot().agg(n=g.count("here"), first=g.min("due"), last=g.max("utc"))
    assert "device gpu: auto: a GPU was found" in stream.explain()
