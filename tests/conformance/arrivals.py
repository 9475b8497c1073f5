"""Vectors whose rows have an order of arrival: edges and CTIs among them, and a policy for what comes late.

Trill's time starts at tick 0, ours in the year 1: a CTI at 0 in front of all rows says where time stands. Trill's
options have these names here: disorder ``throw``, ``drop``, ``adjust`` is ``late="raise"``, ``"drop"``, ``"adjust"``
with ``late_ends="adjust"``; reorder latency is ``reorder`` (Trill lets nothing go back, so 0 is not "left out"); a
period of punctuations is ``every`` with ``snapped``; no CTI at completion is ``final=False``. A partitioned stream is
``per="partition"``, and its low watermarks are CTIs without a partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pyarrow as pa

import gpu_ops as g
from gpu_ops import Stream
from gpu_ops.core.time import MAX_TIME
from gpu_ops.ingest.ingress import let_in
from gpu_ops.plan.advance import AdvanceTime
from gpu_ops.plan.nodes import Source
from tests.conformance.vectors import TRILL_NEVER, Vector

_TICK = timedelta(microseconds=1)
_EDGES = {"start": "start", "end": "end"}
_POLICIES: Mapping[str, Any] = {"throw": "raise", "drop": "drop", "adjust": "adjust"}
_ZERO = {"kind": "cti", "start": 0}


def has(vector: Vector) -> bool:
    """Whether the order of a vector's rows says anything."""
    if "inputs" not in vector.line:
        return False
    if vector.params is not None:
        return vector.query in {"ingress", "ingress_count"}
    rows = (row for name in vector.inputs for row in vector.rows(name))
    return vector.partitioned or _policy(vector) is not None or any(row["kind"] in {"end", "cti"} for row in rows)


def stream(vector: Vector, name: str) -> Stream:
    """The events of an input of a vector, as they arrive."""
    policy = _policy(vector)
    if policy is None:
        # Trill's default, and what its own tests that say nothing of it run under; their rows are in order.
        return _events(vector, name, vector.rows(name))
    rows = [_ZERO, *vector.rows(name)]
    if vector.params is None and vector.line["settings"].get("on_completed") == "cti_at_current_time":
        rows.append({"kind": "cti", "start": max(row["end" if row["kind"] == "end" else "start"] for row in rows)})
    return _events(vector, name, rows).advance_time(**policy)


def _policy(vector: Vector) -> dict[str, Any] | None:
    """What `Stream.advance_time` is told; None where nothing is."""
    own: dict[str, str] = {}
    if vector.params is not None:
        params = vector.params
        word, latency, period, final = params["policy"], params["latency"], params.get("punctuation_period"), True
    else:
        settings = vector.line["settings"]
        completed = settings.get("on_completed", "cti_infinity")
        if "disorder" not in settings and completed == "cti_infinity" and not vector.partitioned:
            return None
        word, latency = settings.get("disorder", "throw"), settings.get("reorder_latency", 0)
        if vector.partitioned:
            low = settings.get("low_watermark_generation") or {}
            own = {"per": "partition", "lag": f"{low.get('lag', 0)}us"}
            own |= {"low_watermark": f"{low['every_ticks']}us"} if low else {}
        period = (settings.get("cti_generation") or {}).get("every_ticks")
        final = completed == "cti_infinity"
    return own | {
        "every": None if period is None else f"{period}us",
        "snapped": period is not None,
        "late": _POLICIES[word],
        "late_ends": "adjust" if word == "adjust" else "drop",
        "reorder": f"{latency}us",
        "final": final,
    }


def _events(vector: Vector, name: str, rows: list[Mapping[str, Any]]) -> Stream:
    payloads = [{**(row.get("payload") or {}), "partition": row.get("partition")} for row in rows]
    times = {
        "start": [MAX_TIME if row["start"] is None else row["start"] for row in rows],
        "end": [row.get("end") for row in rows],
    }
    columns: dict[str, Any] = {name: pa.array(time, pa.timestamp("us", "UTC")) for name, time in times.items()}
    columns["arrival"] = ["CTI" if row["kind"] == "cti" else "Insert" for row in rows]
    columns["side"] = [_EDGES.get(row["kind"], "interval") for row in rows]
    columns |= {
        field.name: pa.array([load.get(field.name) for load in payloads], field.type) for field in vector.payload(name)
    }
    columns |= vector.numbers(len(rows))
    entrance: dict[str, Any] = {"null_end": "open", "kind": "arrival", "shape": "edge", "edge": "side"}
    return g.events(pa.table(columns), start="start", end="end", **entrance, name=name)


def difference(vector: Vector, events: Stream) -> str | None:
    """What is wrong at the entrance of a stream: its CTIs, and what was dropped or adjusted; None when nothing is."""
    nodes = list(events._node.walk())
    source = next(node for node in nodes if isinstance(node, Source))
    settings = next((node.settings for node in nodes if isinstance(node, AdvanceTime)), None)
    ctis: list[int | None] = []
    own: list[tuple[Any, int]] = []
    late: list[tuple[Any, ...]] = []
    for admitted in let_in(source.source, settings, source.schema.names):
        ctis += [None if cti == MAX_TIME else cti for cti in admitted.ctis.tolist()]
        if admitted.partitions is not None:
            times = admitted.partitions["cti"].cast(pa.int64()).to_pylist()
            own += zip(admitted.partitions["partition"].to_pylist(), times, strict=True)
        if admitted.late is not None:
            late += [_late(row) for row in admitted.late.to_pylist()]
    if settings is not None:
        assert ctis.pop(0) == 0
    expected = _expected_ctis(vector)
    if expected is not None and ctis != expected:
        return f"CTIs {ctis}, expected {expected}"
    if expected is not None and vector.partitioned:
        named = [(row["partition"], row["start"]) for row in vector.line["expected"] if _is_own(row)]
        if sorted(own) != sorted(named):
            return f"CTIs of partitions {own}, expected {named}"
    if "dropped_or_adjusted" not in vector.line:
        return None
    wanted = Counter(tuple(row) for row in vector.line["dropped_or_adjusted"] if _counts(row[4]))
    got = Counter(row for row in late if _counts(row[4]))
    return None if got == wanted else f"late: missing {list(wanted - got)[:3]}, not expected {list(got - wanted)[:3]}"


def _expected_ctis(vector: Vector) -> list[int | None] | None:
    if vector.params is not None:
        given = vector.line["ctis"]
    elif (
        _policy(vector) is None
        or vector.line["check"]["ctis"].startswith("not asserted")
        or (vector.partitioned and not vector.line["query"].startswith("identity"))
    ):
        # CTIs behind an operator are that operator's.
        return None
    else:
        given = [row["start"] for row in vector.line["expected"] if row["kind"] == "cti" and not _is_own(row)]
    return [None if cti is None or cti >= TRILL_NEVER else cti for cti in given]


def _is_own(row: Mapping[str, Any]) -> bool:
    """Whether a row is a CTI of one partition."""
    return row["kind"] == "cti" and "partition" in row


def _late(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """A late row as Trill reports it: an event that never ends is a start edge there, and dropped is moved by null."""
    start, end = (int(row[side].timestamp() * 1_000_000 + 0.5) for side in ("start", "end"))
    moved = row["late_by"] // _TICK if row["fate"] in {"adjusted", "emptied"} else None
    number = row["payload"].get("id")
    if row["kind"] == "end":
        return ("end", end, start, number, moved)
    return ("start", start, None, number, moved) if row["end"].year == 9999 else ("interval", start, end, number, moved)


def _counts(moved: int | None) -> bool:
    """Trill lists end edges of moved start edges that are on time as well, moved by nothing or less."""
    return moved is None or moved > 0
