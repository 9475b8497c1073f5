"""StreamCruncher's vectors: their scripts sent to a runtime of queries in cycles."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gpu_ops import rql
from gpu_ops.errors import TextError
from tests.conformance.unsupported import UnsupportedError

Batch = tuple[int, list[list[Any]]]
"""The time of a cycle, and its rows."""

_HOUR = 3_600_000
_SIZES = r"((?:\w+ '[^']*'(?: and )?)+) -> (?:(\d+) ?(s|ms|min)\w*)? ?(?:max )?(\d+)?(?: rows)?"
_LONG = {"ms": 1, "s": 1_000, "min": 60_000}


def difference(line: Mapping[str, Any], device: str = "cpu", *, together: bool = False) -> str | None:
    """What is wrong with what a runtime makes of a vector; None if it is what the engine gave.

    Raises:
        UnsupportedError: The query asks for what there is not.
    """
    expected = line["expected"]
    if expected["kind"] != "batches":
        raise UnsupportedError(f"RQL: no {expected['kind']} of an answer yet")
    try:
        found = batches(line, expected["columns"], device, together=together)
    except TextError as error:
        raise UnsupportedError(f"RQL: no {error.construct or error}") from error
    wanted = [(batch["at_ms"], batch["rows"]) for batch in expected["batches"]]
    for (at, rows), (time, others) in zip(found, wanted, strict=False):
        if at != time or not _same(rows, others, ordered=expected["ordered"]):
            return f"at {at} {rows}, expected at {time} {others}"
    if len(found) != len(wanted):
        return f"{len(found)} batches, expected {len(wanted)}: {(found + wanted)[min(len(found), len(wanted)) :][:1]}"
    return None


def batches(
    line: Mapping[str, Any], columns: Sequence[str] | None, device: str = "cpu", *, together: bool = False
) -> list[Batch]:
    """What each cycle gives that gives a row: these columns of it, or all."""
    config, tables = line.get("config") or {}, line.get("tables") or {}
    script = sorted(line["script"], key=lambda step: int(step["at_ms"]))
    stamps = {name: keys["ts"] for name, keys in line["keys"].items() if keys.get("ts")}
    runtime = rql.Runtime(
        line["schema"],
        times=stamps,
        tables={name: table["columns"] for name, table in tables.items()},
        refresh=f"{config.get('cache_refresh_ms', _HOUR)}ms",
        device=device,
    )
    for name, table in tables.items():
        runtime.insert(name, [_row(table, row) for row in table["rows"]])
    fixed = (config.get("schedule") or {}).get("policy") == "FIXED"
    sizes, baselines = _provided(line.get("providers") or {})
    query = runtime.register(
        "query",
        line["rql"],
        weights=config.get("weights"),
        waiting=config.get("allowed_pending"),
        every=f"{config['schedule']['interval_ms']}ms" if fixed else None,
        pauses=_pauses(script),
        sizes=sizes,
        baselines=baselines,
    )
    found: list[Batch] = []
    places = [query.schema.names.index(column) for column in columns or query.schema.names]

    def listen(result: rql.CycleResult) -> None:
        found.append((result.at, [[*row] for row in zip(*(result.rows[at].to_pylist() for at in places), strict=True)]))

    query.listen(listen)
    for (kind, name), group in groupby(script, key=_target):
        steps = list(group)
        for some in [steps] if together else [[step] for step in steps]:
            if kind == "send":
                runtime.send(name, [dict(step["event"]) for step in some], at=[step["at_ms"] for step in some])
            elif kind == "table_insert":
                rows = [(step["at_ms"], row) for step in some for row in _inserted(tables[name], step)]
                runtime.insert(name, [row for _, row in rows], at=[at for at, _ in rows])
    horizon = line.get("horizon_ms", math.inf)
    runtime.advance(1 << 40 if math.isinf(horizon) else max(horizon + 1, runtime.clock))
    return [batch for batch in found if batch[0] <= horizon]


def _target(step: Mapping[str, Any]) -> tuple[str, Any]:
    return step.get("op", "send"), step.get("send") or step.get("table")


def _row(table: Mapping[str, Any], row: Any) -> dict[str, Any]:
    return dict(row) if isinstance(row, Mapping) else dict(zip(table["columns"], row, strict=True))


def _inserted(table: Mapping[str, Any], step: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = next(step[name] for name in ("rows", "row", "values") if name in step)
    many = isinstance(given, list) and bool(given) and isinstance(given[0], list | dict)
    return [_row(table, row) for row in (given if many else [given])]


def _pauses(script: Sequence[Mapping[str, Any]]) -> list[tuple[int, int]]:
    found = [(step["op"], step["at_ms"]) for step in script if step.get("op") in {"pause", "resume"}]
    times = [next(group)[1] for _, group in groupby(found, key=lambda each: each[0])]
    return list(zip(times[::2], [*times[1::2], 1 << 40], strict=False))


def _provided(words: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, float]]:
    """Sizes of windows and baselines, as the vectors' words say them."""
    sizes: dict[str, Any] = {}
    baselines: dict[str, float] = {}
    for name, said in words.items():
        if always := re.fullmatch(r"baseline always ([\d.]+)", said):
            baselines[name] = float(always[1])
            continue
        *cases, others = re.split(r"\s*;\s*", said.removeprefix("per-partition size:").strip())
        matches = [re.fullmatch(_SIZES, case) for case in cases]
        if not all(matches) or not others.startswith("others -> the declared"):
            raise UnsupportedError("RQL: no such providers")
        sizes[name] = {
            tuple(re.findall(r"'([^']*)'", case[1])): rql.WindowSize(
                None if case[4] is None else int(case[4]), None if case[2] is None else int(case[2]) * _LONG[case[3]]
            )
            for case in matches
            if case is not None
        }
    return sizes, baselines


def _same(rows: Sequence[Sequence[Any]], others: Sequence[Sequence[Any]], *, ordered: bool) -> bool:
    if len(rows) != len(others):
        return False
    if not ordered:
        rows, others = sorted(rows, key=_sortable), sorted(others, key=_sortable)
    return all(len(row) == len(other) and all(map(_equal, row, other)) for row, other in zip(rows, others, strict=True))


def _sortable(row: Sequence[Any]) -> list[tuple[str, float]]:
    return [("", float(f"{each:.9g}")) if isinstance(each, int | float) else (str(each), 0) for each in row]


def _equal(left: Any, right: Any) -> bool:
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return math.isclose(left, right, rel_tol=1e-9, abs_tol=1e-12) if numbers else bool(left == right)
