"""What the RAPIDS planner says of a plan, and events of every type to ask it about."""

from __future__ import annotations

import datetime
import re
from decimal import Decimal
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Line(NamedTuple):
    """A line of the planner's report.

    Attributes:
        flag: ``*`` on the GPU, ``#`` left out there, ``!`` not on the GPU, ``@`` below something that is not, ``$`` not
            worth it, ``^`` on the CPU by the bridge.
        kind: Exec, Expression, Partitioning …; empty where the plugin has no rule at all.
        name: Spark's class.
        text: The rest.
    """

    flag: str
    kind: str
    name: str
    text: str


LINE = re.compile(r"\s*([*#!@$^])(\w*) <([^>]+)>\s?(.*)")


def report(frame: DataFrame) -> list[Line]:
    """The planner's report; a line that cannot be read is an error, so that none is overlooked."""
    planner = frame.sparkSession.sparkContext._jvm.com.nvidia.spark.rapids.ExplainPlan  # type: ignore[union-attr]
    lines = []
    for text in planner.explainPotentialGpuPlan(frame._jdf, "ALL").splitlines():
        # Spark names a subquery again in each further place of it, and the plugin has a rule for the first alone.
        if text.strip() and not text.startswith("! <ReusedSubqueryExec>"):
            found = LINE.fullmatch(text)
            assert found, f"the planner says what we cannot read: {text!r}"
            lines.append(Line(*found.groups()))
    assert lines, "the planner says nothing"
    return lines


def refused(frame: DataFrame) -> set[str]:
    """The classes that would not run on the GPU, without those that merely stand around them."""
    return {line.name for line in report(frame) if line.flag in "!$^"} | {
        line.name for line in report(frame) if line.flag == "@" and line.kind == "Exec"
    }


def planned(frame: DataFrame, *needed: str) -> None:
    """Nothing leaves the GPU, and these nodes are there."""
    lines = report(frame)
    away = [line for line in lines if line.flag not in "*#@" or (line.flag == "@" and line.kind == "Exec")]
    assert not away, "\n".join(f"{line.flag}{line.kind} {line.name}: {line.text}" for line in away)
    assert set(needed) <= {line.name for line in lines if line.flag == "*"}


UTC = pa.timestamp("us", "UTC")

DAY = datetime.date(2020, 1, 1)

EVENTS = pa.table(
    {
        "s": pa.array([0, 5, 9], UTC),
        "e": pa.array([7, 8, 20], UTC),
        "long": pa.array([1, None, 3], pa.int64()),
        "short": pa.array([1, None, 3], pa.int16()),
        "bool": pa.array([True, None, False]),
        "double": pa.array([0.5, None, 2.5]),
        "text": pa.array(["a", None, "c"]),
        "date": pa.array([DAY, None, DAY]),
        "time": pa.array([1, None, 3], UTC),
        "price": pa.array([Decimal("1.25"), None, Decimal(3)], pa.decimal128(10, 2)),
        "wide": pa.array([Decimal("1.25"), None, Decimal(3)], pa.decimal128(38, 6)),
        "raw": pa.array([b"a", None, b"c"]),
        "list": pa.array([[1], None, []], pa.list_(pa.int64())),
        "place": pa.array([{"x": 1, "y": Decimal(2)}, None, {"x": None, "y": None}],
                          pa.struct([("x", pa.int64()), ("y", pa.decimal128(5, 1))])),
        "tags": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "seconds": pa.array([1, 2, 3], pa.int64()),
    }
)  # fmt: skip

PLAIN = ["long", "short", "bool", "double", "text", "date", "time", "price", "wide"]

PAYLOAD = [name for name in EVENTS.column_names if name not in {"s", "e", "raw"}]
"""Columns of every type but binary."""
