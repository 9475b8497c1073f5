"""Esper's vectors: statements over a script, and what a listener is handed in each step."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance.epl import Statement
from tests.conformance.epl_parser import parse
from tests.conformance.esper_derived import as_aggregates
from tests.conformance.esper_script import Arrival, Script
from tests.conformance.esper_shown import Shown
from tests.conformance.esper_stays import Ask
from tests.conformance.unsupported import UnsupportedError

_TOLERANCE = 1e-9


def difference(line: Mapping[str, Any], ask: Ask) -> str | None:
    """What is wrong with the answers to a vector's statements; None when they are the engine's.

    Args:
        line: The vector.
        ask: How a query is run.

    Raises:
        UnsupportedError: There is no translation of a statement.
    """
    scene = _Scene(line, ask)
    same = _same_in_any_order if line["any_order"] else _same
    for name in dict.fromkeys([*line["listen"], *(entry.get("statement") for entry in line["expected"])]):
        entries = [entry for entry in line["expected"] if entry.get("statement") == name]
        if name is None:
            counts = [(entry["after_step"], entry.get("active_filters")) for entry in entries]
            if wrong_counts := [(step, count) for step, count in counts if scene.filters(step) != count]:
                return f"filters: {scene.filters(wrong_counts[0][0])}, expected (step, count) {wrong_counts[0]}"
            continue
        parts = [scene.shown(each) for each in scene.deployed if each.statement.name == name]
        if not parts:
            raise UnsupportedError(f"EPL: no statement {name!r}")
        deliveries = [(entry["after_step"], entry["new"], entry["old"]) for entry in entries if "iterator" not in entry]
        found = [delivery for shown in parts for delivery in shown.deliveries()]
        if name in line["listen"] and (wrong := _compare(found, deliveries, same)):
            return f"{name}: {wrong}"
        for entry in entries:
            if "iterator" not in entry:
                continue
            shown = next(shown for shown in reversed(parts) if shown.script.holds(entry["after_step"]))
            in_place = _same_in_any_order if shown.content.is_hashed and not shown.statement.order else same
            if not in_place(rows := shown.iterator(entry["after_step"]), entry["iterator"]):
                return f"{name} after step {entry['after_step']}: iterator {rows}, expected {entry['iterator']}"
    return None


@dataclass(frozen=True, eq=False)
class _Deployed:
    """A statement, and for how long it is there."""

    statement: Statement
    script: Script


class _Scene:
    """All statements of a vector: some come and go, and some read what others insert."""

    def __init__(self, line: Mapping[str, Any], ask: Ask) -> None:
        self._line, self._ask = line, ask
        gone = {name: number for number, step in enumerate(line["script"]) for name in step.get("undeploy", ())}
        texts = {-1: line["epl"]} | {at: step["deploy"] for at, step in enumerate(line["script"]) if "deploy" in step}
        self.deployed: list[_Deployed] = []
        for since, text in texts.items():
            for statement in map(as_aggregates, parse(text)):
                until = [at for name, at in gone.items() if name == statement.name and at > since]
                self.deployed.append(_Deployed(statement, Script(line, since, min(until, default=None))))
        self._shown: dict[_Deployed, Shown] = {}

    def filters(self, step: int) -> int:
        """How many streams are read after a step."""
        return sum(each.script.holds(step) for each in self.deployed)

    def shown(self, deployed: _Deployed) -> Shown:
        """What a statement shows."""
        if deployed not in self._shown:
            statement, script = deployed.statement, deployed.script
            into = ((each, each.statement.into) for each in self.deployed)
            sources = [each for each, target in into if target is not None and target[0] == statement.event_type]
            sent = list(script.arrivals(statement.event_type))
            sent += self._inserted(statement, sources, script)
            self._shown[deployed] = Shown(statement, self._line, self._ask, script, sent)
        return self._shown[deployed]

    def _inserted(self, statement: Statement, sources: Sequence[_Deployed], script: Script) -> list[Arrival]:
        rows = [pair for source in sources for pair in self.shown(source).inserted() if script.holds(pair[0][0] - 1)]
        rows.sort(key=lambda pair: pair[0])
        if len({moment for moment, _ in rows}) < len(rows) and not statement.views:
            rows = [((*moment, at), row) for at, (moment, row) in enumerate(rows)]
        elif len({moment for moment, _ in rows}) < len(rows) and not statement.views[0].name.endswith("_batch"):
            raise UnsupportedError("EPL: no windows over events that are inserted several at once")
        names = dict.fromkeys(name for _, row in rows for name in row)
        return [Arrival(at, moment, {name: row.get(name) for name in names}) for at, (moment, row) in enumerate(rows)]


# Comparing


def _same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and "$num" in wanted:
        wanted = float(wanted["$num"].replace("Infinity", "inf"))
    if isinstance(wanted, dict):
        return (
            isinstance(found, Mapping)
            and found.keys() == wanted.keys()
            and all(_same(found[name], each) for name, each in wanted.items())
        )
    if isinstance(wanted, list):
        same_size = isinstance(found, list) and len(found) == len(wanted)
        return same_size and all(_same(*pair) for pair in zip(found, wanted, strict=True))
    if isinstance(wanted, float) and isinstance(found, float):
        alike = math.isclose(found, wanted, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)
        return alike or (math.isnan(found) and math.isnan(wanted))
    return type(found) is type(wanted) and bool(found == wanted)


def _same_in_any_order(found: Any, wanted: Any) -> bool:
    if not isinstance(wanted, list):
        return _same(found, wanted)
    if not isinstance(found, list) or len(found) != len(wanted):
        return False
    left = list(wanted)
    for row in found:
        at = next((at for at, other in enumerate(left) if _same(row, other)), None)
        if at is None:
            return False
        del left[at]
    return True


def _compare(
    found: Sequence[tuple[int, Any, Any]], wanted: Sequence[tuple[int, Any, Any]], same: Callable[[Any, Any], bool]
) -> str | None:
    for mine, theirs in zip(found, wanted, strict=False):
        if mine[0] != theirs[0] or not same(mine[1], theirs[1]) or not same(mine[2], theirs[2]):
            return "step {}: new {}, old {}; ".format(*mine) + "expected step {}: new {}, old {}".format(*theirs)
    if len(found) == len(wanted):
        return None
    longer, word = (found, "not expected") if len(found) > len(wanted) else (wanted, "missing")
    return f"{word} " + "step {}: new {}, old {}".format(*longer[min(len(found), len(wanted))])
