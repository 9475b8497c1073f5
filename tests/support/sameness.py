"""Events with values at the edges of each type, and examples for each row of the table of expressions."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

import gpu_ops as g

UTC = pa.timestamp("us", "UTC")
NAN, INF = math.nan, math.inf
LEAST, MOST = -(1 << 63), (1 << 63) - 1
_FLOATS = [0.0, -0.0, NAN, INF, -INF, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, None, 1e300, 5e-324, 0.1, 3.7, -3.7, 2.0]
_COUNT = len(_FLOATS)


def _again(values: list[Any]) -> list[Any]:
    return [values[at % len(values)] for at in range(_COUNT)]


EDGES = pa.table(
    {
        "s": pa.array(range(_COUNT), UTC),
        "e": pa.array([_COUNT] * _COUNT, UTC),
        "x": _FLOATS,
        "y": [1.0, *_FLOATS[:-1]],
        "i": pa.array(_again([0, 1, -1, 7, -7, None, 1 << 61, -(1 << 61), 5]), pa.int64()),
        "wide": pa.array(_again([LEAST, MOST, None, 0, -1]), pa.int64()),
        "j": pa.array(_again([3, -3, None, 2, 5, 0]), pa.int64()),
        "b": pa.array(_again([0, -127, 127, None, 5]), pa.int8()),
        "p": _again([True, False, None]),
        "q": _again([True, True, False, None, None, False]),
        "text": _again(
            ["abc", "", "Äöß", "ﬁ İi", "x y", "\u00a0pad ", "\tt\n", None, "e\u0301", "😀b", "ǆ", "ΑΣ", "42"]
        ),
        "u": _again(["a", "c", None, "b", "", "ä", "😀"]),
        "t": pa.array(
            _again([0, -1, 1_600_000_000_123_456, None, -86_400_000_001, 951_782_400_000_000, -2_208_988_800_000_001]),
            UTC,
        ),
        "d": pa.array(_again([0, -1, 18_321, None, -719_162, 11_016, 3]), pa.date32()),
        "z": pa.array(_again([0, 1, -1, 1_500_000, -1_500_000, None, 86_400_000_000_001]), pa.duration("us")),
        "m": pa.array(_again([Decimal("1.25"), Decimal("-2.50"), None, Decimal("0.35")]), pa.decimal128(10, 2)),
        "l": pa.array(_again([[1, 2, 3], [], None, [None, 5], [(1 << 53) + 1]]), pa.list_(pa.int64())),
        "f": pa.array(_again([{"h": 1}, {"h": None}, None]), pa.struct([("h", pa.int64())])),
        "c": pa.array(_again(["p", "q", None])).dictionary_encode(),
    }
)
"""Events, all alive together."""

c = g.col
_WHOLE_X = c("x").fill_nan(None)
_DAY = datetime.date(1970, 1, 1)
_NOON = datetime.datetime(1970, 1, 1, 12, tzinfo=datetime.UTC)

SAME: dict[str, list[Any]] = {
    "`col`, `lit`, `alias`, `name`": [c("x"), c("text").alias("again")],
    "`+ - *`, unary minus, `abs`": [
        c("x") + c("y"), c("x") - c("y"), c("x") * c("y"), -c("x"), c("x").abs(), c("i") + c("j"), c("i") * 2 - 1,
        c("j") * c("b"), -c("j"), c("j").abs(), c("i") + c("x"), c("m") + c("m"), c("m") * 2, c("m") - c("b"),
        c("t") - c("t"), c("t") + c("z"), c("z") + c("z"), c("z") * 2, -c("z"), c("d") - c("d"), 7 - c("j"),
        0.5 * c("x"),
    ],
    "`/`": [c("x") / c("y"), c("x") / 3, c("i") / c("j"), c("i") / 0, 7 / c("j"), c("x") / 0.0],
    "`// %`": [c("i") // c("j"), c("i") % c("j"), c("b") // 3, c("b") % -3, 7 // c("j")],
    "`**` of whole numbers": [c("j") ** 3, 2 ** c("j").abs()],
    "`sqrt`": [c("x").sqrt(), c("i").sqrt()],
    "`floor`, `ceil`; `round` of whole numbers": [c("x").floor(), c("x").ceil(), c("i").round(0), c("i").floor()],
    "comparisons, `is_between`, `is_in`": [
        c("y").fill_nan(None) < _WHOLE_X, _WHOLE_X == 0.0, c("i") > c("j"), c("i") < 3, c("i").cast(g.Float64) < 0.5,
        c("text") > c("u"), c("text") == "abc", c("t") > _NOON, c("d") > _DAY, c("z") > datetime.timedelta(0),
        c("p") == c("q"), c("m") > 1, c("i").is_in([1, 7]), c("text").is_in(["abc", "Äöß"]), c("i").is_between(-1, 1),
        c("j") != 3, c("i") >= c("j"), c("i") <= c("j"), c("x") > c("y"), c("x") >= c("y"), c("x") < c("y"),
        c("x") <= c("y"), c("x") == c("y"), c("x") != c("y"), c("x") == 0.5, c("x") > 0.5, c("x").is_in([0.5]),
    ],
    "`&`, `|`, `~`, `^`, `all_horizontal`, `any_horizontal`": [
        c("p") & c("q"), c("p") | c("q"), ~c("p"), c("p") ^ c("q"), g.all_horizontal("p", "q", ignore_nulls=False),
        g.any_horizontal("p", "q", ignore_nulls=True),
    ],
    "`is_null`, `is_nan`, `is_finite`": [c("x").is_null(), c("x").is_nan(), c("x").is_finite(), c("text").is_null()],
    "`fill_null`, `fill_nan`, `coalesce`, `when`": [
        c("i").fill_null(5), c("x").fill_null(c("y")), c("x").fill_nan(1.0), c("x").fill_nan(None),
        g.coalesce("x", "y"),
        g.when(c("p")).then(c("x")).otherwise(c("y")), g.when(c("p")).then(c("i")),
        g.when(c("p")).then(1).when(c("q")).then(2).otherwise(3),
    ],
    "`clip`, `max_horizontal`, `min_horizontal`": [
        c("i").clip(-1, 5), g.max_horizontal("i", "j"), g.min_horizontal("i", "j"), c("i").clip(lower_bound=0),
        g.max_horizontal("text", "u"),
    ],
    "`sum_horizontal`, `mean_horizontal`": [
        g.sum_horizontal("x", "y"), g.sum_horizontal("b", "j", "i"), c("wide") // 2 + 0 * c("j"),
    ],
    "casts between numbers, and of whole numbers, dates and conditions to text": [
        c("i").cast(g.Float64), c("i").cast(g.Float32), c("x").cast(g.Float32), c("wide").cast(g.String),
        c("p").cast(g.String), c("p").cast(g.Int64), c("i").cast(g.Boolean), c("x").cast(g.Boolean),
        c("d").cast(g.String),
        c("b").cast(g.Int64), c("m").cast(g.Float64), c("m").cast(g.Int64), c("wide").cast(g.Float64),
        g.when(_WHOLE_X.abs() < 100).then(c("x")).cast(g.Int64), c("b").cast(g.Decimal(10, 2)),
    ],
    "casts between times and whole numbers, times and dates": [
        c("t").cast(g.Date), c("d").cast(g.Datetime("us")), c("j").cast(g.Datetime("us", "UTC")), c("t").cast(g.Int64),
        c("z").cast(g.Int64), c("j").cast(g.Duration("us")),
    ],
    "casts of categories to text": [c("c").cast(g.String)],
    (
        "`str.len_chars`, `str.slice`, `str.head`, `str.tail`, `str.starts_with`, `str.ends_with`, `concat_str`, "
        "`str.zfill`, `str.pad_start`, `str.pad_end`, `str.split`"
    ): [
        c("text").str.len_chars(), c("text").str.slice(1, 2), c("text").str.slice(-2), c("text").str.slice(-2, 1),
        c("text").str.head(2), c("text").str.tail(2), c("text").str.starts_with("a"), c("text").str.ends_with("c"),
        g.concat_str("text", "u"), g.concat_str("text", "u", separator="-", ignore_nulls=True), c("text").str.zfill(5),
        c("text").str.pad_start(5, "*"), c("text").str.pad_end(5, "*"), c("text").str.split(" "),
    ],
    "`str.contains`, `str.replace`, `str.replace_all` with `literal=True`": [
        c("text").str.contains("b", literal=True), c("text").str.replace("b", "X", literal=True),
        c("text").str.replace_all("b", ".$0", literal=True),
    ],
    "`str.strip_chars`, … of given characters": [
        c("text").str.strip_chars("a "), c("text").str.strip_chars_start("a"), c("text").str.strip_chars_end("c "),
    ],
    "`dt.year` … `dt.nanosecond`, `dt.weekday`, `dt.ordinal_day`, `dt.date`": [
        c("t").dt.year(), c("t").dt.month(), c("t").dt.day(), c("t").dt.hour(), c("t").dt.minute(), c("t").dt.second(),
        c("t").dt.millisecond(), c("t").dt.microsecond(), c("t").dt.nanosecond(), c("t").dt.weekday(),
        c("t").dt.ordinal_day(), c("t").dt.date(), c("d").dt.year(), c("d").dt.weekday(), c("d").dt.day(),
    ],
    "`dt.timestamp`, `dt.total_minutes` … `dt.total_nanoseconds`": [
        c("t").dt.timestamp("us"), c("t").dt.timestamp("ms"), c("z").dt.total_seconds(), c("z").dt.total_milliseconds(),
        c("z").dt.total_microseconds(), c("z").dt.total_minutes(), c("z").dt.total_nanoseconds(),
    ],
    "`dt.truncate` to one unit": [
        c("t").dt.truncate("1d"), c("t").dt.truncate("1h"), c("t").dt.truncate("1mo"), c("t").dt.truncate("1y"),
        c("t").dt.truncate("1q"), c("t").dt.truncate("1s"),
    ],
    "`dt.offset_by` of days and less": [c("t").dt.offset_by("-1d"), c("t").dt.offset_by("3h")],
    "`list.len`; `list.contains`, `list.max`, `list.min`, `list.sum` of whole numbers": [
        c("l").list.len(), c("l").list.contains(5), c("l").list.max(), c("l").list.min(), c("l").list.sum(),
    ],
    "`struct.field`": [c("f").struct.field("h")],
    "`replace_strict`": [c("j").replace_strict([3], [1], default=0, return_dtype=g.Int64)],
}  # fmt: skip
"""For each row that says so, expressions that mean the same."""

OWN: dict[str, list[Any]] = {
    "`* /` of durations by floats": [c("z") * 1.5],
    "`/` of durations": [c("z") / 2],
    "dates `+ -` durations": [c("d") + datetime.timedelta(hours=1)],
    "`* /` of two decimals": [c("m") * c("m")],
    "`// %` of floats": [c("x") // c("y"), c("x") % 2.5],
    "`**` of floats": [c("x") ** 0.5, 2.0 ** c("x")],
    "`exp`, `log`, `sin`, `cos`": [c("x").exp(), c("j").log(), c("x").sin(), c("x").cos()],
    "`round` of floats": [c("x").round(1)],
    "`clip`, `max_horizontal`, `min_horizontal` of floats": [c("x").clip(0.0, 2.0), g.max_horizontal("x", "y")],
    "`sum_horizontal`, `mean_horizontal` of more than two floats": [g.sum_horizontal("x", "y", "x")],
    "casts of floats to text": [c("x").cast(g.String)],
    "casts of times to text": [c("t").cast(g.String)],
    "casts of text": [g.when(c("text") == "42").then(c("text")).cast(g.Int64)],
    "casts to decimals": [c("m").cast(g.Decimal(10, 1))],
    "`str.to_uppercase`, `str.to_lowercase`, `str.to_titlecase`": [
        c("text").str.to_titlecase(), c("text").str.to_uppercase(),
    ],
    "`str.contains`, `str.replace`, `str.replace_all` by regular expressions": [c("text").str.contains(r"^\w+$")],
    "`str.strip_chars`, … without characters": [c("text").str.strip_chars()],
    "`str.to_datetime`, `str.to_date`, `str.to_time`": [c("text").str.to_datetime(format="%Y")],
    "`dt.truncate` to several units": [c("t").dt.truncate("7m")],
    "`dt.offset_by` of months, quarters and years": [c("t").dt.offset_by("1mo")],
    "`dt.to_string`": [c("t").dt.to_string("%A")],
    "any other function": [c("l").list.get(0), c("l").list.sort(), c("t").dt.replace_time_zone(None)],
}  # fmt: skip
"""For each row that says so, expressions that are the backend's own."""

DIFFER = [
    "`* /` of durations by floats",
    "`**` of floats",
    "`exp`, `log`, `sin`, `cos`",
    "casts of floats to text",
    "casts of times to text",
    "`str.to_uppercase`, `str.to_lowercase`, `str.to_titlecase`",
    "`str.contains`, `str.replace`, `str.replace_all` by regular expressions",
    "`str.strip_chars`, … without characters",
]
"""The rows of which Polars and Spark show a difference. Of the others Spark leaves what differs to Polars."""
