"""The queries of Trill's own tests, which are written as pipelines of text, said in the public API."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import gpu_ops as g
from gpu_ops import Stream
from tests.conformance.unsupported import UnsupportedError, aggregate

_N = r"(-?\d+)"
_AGGREGATE = re.compile(r"(?:(\w+)=)?(\w+)\((\w*)\)")

_STEPS: tuple[tuple[str, Callable[..., Stream]], ...] = (
    (r"identity(?: \(ingress policy only\)|, output with matching .*)?", lambda s: s),
    ("point_at_end", lambda s: s.point_at_end()),
    ("stitch", lambda s: s.stitch()),
    (rf"alter_duration\({_N}\)", lambda s, length: s.set_duration(int(length))),
    (rf"extend\({_N}\)", lambda s, by: s.extend(int(by))),
    (rf"clip_const\((?:max_duration=)?{_N}\)", lambda s, limit: s.clip_duration(int(limit))),
    (rf"chop\(offset={_N}, period={_N}\)", lambda s, align, period: s.chop(int(period), align=int(align))),
    (rf"tumble_lifetime\({_N}\)", lambda s, size: s.hop_lifetime(int(size), align=0)),
    (rf"hop_lifetime\(size={_N}, hop={_N}\)", lambda s, size, hop: s.hop_lifetime(int(size), int(hop), align=0)),
    (
        rf"quantize\(size={_N}, hop={_N}, offset={_N}\)",
        lambda s, size, hop, align: s.quantize(int(size), int(hop), align=int(align)),
    ),
    (
        rf"quantize_progressive\(size={_N}, hop={_N}, progress={_N}, offset={_N}\)",
        lambda s, size, hop, finer, align: s.quantize(int(size), int(hop), align=int(align), progress=int(finer)),
    ),
    (rf"where\((\w+) mod {_N} = {_N}\)", lambda s, column, by, rest: s.filter(g.col(column) % int(by) == int(rest))),
    (r"where\((\w+) != '(\w*)'\)", lambda s, column, text: s.filter(g.col(column) != text)),
    (rf"where\(int\((\w+)\) > {_N}\)", lambda s, column, least: s.filter(g.col(column).cast(g.Int64) > int(least))),
    (
        r"select\((\w+) \+ start_time\)",
        lambda s, column: s.select((g.col(column) + g.col("start").dt.timestamp("us")).alias(column)),
    ),
    (r"group_apply\(key=(\w+), (.*)\) -> \(v=sum, k\)", lambda s, key, inner: pipeline(s.by(key), inner)),
    (
        rf"group_apply\(key=(\w+) mod {_N}, (.*)\)",
        lambda s, column, by, inner: (
            pipeline(s.with_columns(key=g.col(column) % int(by)).by("key"), inner).by().select("v")
        ),
    ),
)


def check(line: Mapping[str, Any]) -> None:
    """Refuse what is no question about one input, or has no whole events as its answer.

    Raises:
        UnsupportedError: With what it is.
    """
    settings, inputs = line["settings"], line["inputs"]
    for wrong, why in (
        (len(inputs) > 1, "two inputs"),
        (settings.get("partitioned"), "partitions with clocks of their own"),
        (settings.get("on_completed") == "cti_at_current_time", "a CTI at the last event when the input ends"),
        (settings.get("on_completed") == "none" and not _is_over(line), "an input that has not ended"),
    ):
        if wrong:
            raise UnsupportedError(f"no word for {why}")


def _is_over(line: Mapping[str, Any]) -> bool:
    """Whether all answers are final though no CTI at infinity is made."""
    rows = [event for given in line["inputs"].values() for event in given["events"]]
    said = any(event["kind"] == "cti" and event["start"] is None for event in rows)
    return said or line["query"].startswith("identity")


def pipeline(stream: Stream, notation: str) -> Stream:
    """The plan of a pipeline.

    Raises:
        UnsupportedError: The API has no word for one of its steps.
    """
    steps = _split(notation)
    while steps:
        step = steps.pop(0)
        if step == "snapshot" and steps:
            stream = stream.snapshot().agg(**_aggregates(steps.pop(0)))
            continue
        for pattern, apply in _STEPS:
            if match := re.fullmatch(pattern, step):
                stream = apply(stream, *match.groups())
                break
        else:
            raise UnsupportedError(f"no word for {re.split('[ (]', step)[0]}")
    return stream


def _aggregates(step: str) -> dict[str, g.Aggregate]:
    listed = re.fullmatch(r"aggregate\((.*)\)", step)
    parts = [_AGGREGATE.fullmatch(part) for part in (listed[1].split(", ") if listed else [step])]
    found = {}
    for part in parts:
        if part is None:
            raise UnsupportedError(f"no word for the aggregate {step}")
        kind = {"count_not_null": "count"}.get(part[2], part[2])
        found[part[1] or "v"] = aggregate(kind, part[3])
    return found


def _split(notation: str) -> list[str]:
    """The steps of a pipeline: what stands between bars that stand in no parentheses."""
    steps, depth = [""], 0
    for part in re.split(r"( \| |[()])", notation):
        depth += (part == "(") - (part == ")")
        if part == " | " and depth == 0:
            steps.append("")
        else:
            steps[-1] += part
    return steps
