"""The interpreter of statements gives what was recorded from Esper, and keeps rules that no record shows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.support.epl_interpreter import Interpreter
from tests.support.epl_recorded import difference, recorded


def test_recorded_cases(conformance: Path) -> None:
    outcomes: Counter[str] = Counter()
    wrong = []
    for case in recorded(conformance / "esper.jsonl.gz"):
        try:
            found = difference(case, Interpreter)
        except NotImplementedError as missing:
            outcomes[f"unsupported: {missing}"] += 1
            continue
        outcomes[f"passed, {case['tier']}" if found is None else "failed"] += 1
        if found is not None:
            wrong.append(f"{case['id']}: {found}")
    assert wrong == []
    assert outcomes == {
        "passed, core": 374,
        "passed, extended": 44,
        "passed, quirk": 3,
        "unsupported: pattern": 128,
        "unsupported: context": 67,
        "unsupported: match_recognize": 39,
        "unsupported: named window": 19,
        "unsupported: table": 7,
    }
