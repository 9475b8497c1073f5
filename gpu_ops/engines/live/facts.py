"""What ``checkpoint.json`` may hold: a declaration, which the file is checked against before anything else reads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpu_ops.core.json_kinds import ANY, CRC, TEXT, TIME, TRUTH, Kind, Many, Maybe, Object, Whole, defect
from gpu_ops.core.state_tables import OLDER
from gpu_ops.errors import SourceError

FACTS = "checkpoint.json"


_COUNTS = Object(others=Whole())
_TEXTS = Object(others=TEXT)

_MARK = Object({"store": Maybe(TEXT), "sequence": Whole(), "rows": Maybe(Whole()), "crc": Maybe(CRC)})

HEAD = Object({"format": Whole(), "tables": _TEXTS}, {"version": TEXT}, ANY)
"""How the rest is to be read."""

PLAN = Object({"plan": Many(TEXT)}, others=ANY)
"""Whose checkpoint it is."""


def of_query(facts: Mapping[str, Any], inputs: int, nodes: int) -> Object:
    """The facts that a checkpoint of a query has to hold.

    Args:
        facts: The checkpoint's facts; format 1 has fewer.
        inputs: How many inputs the query has.
        nodes: How many nodes run.
    """
    counted = Object({"rows": Whole(), "valid": Whole(), "invalid": _COUNTS, "first": _TEXTS})
    gone = Object(others=Many(Many(Whole(), 2)))
    following = Object({"follower": Maybe(TEXT), "stores": Object(others=_MARK), "gone": gone})
    promised: Kind = Many(Many(TIME, 2), inputs)
    if isinstance(facts.get("promised"), list) and all(isinstance(each, int) for each in facts["promised"]):
        # An older checkpoint has one promise for each input.
        promised = Many(TIME, inputs)
    needed: dict[str, Kind] = {
        "rows_in": Many(Whole(), inputs),
        "promised": promised,
        "late": _COUNTS,
        "ctis": Many(TIME, nodes),
        "given": Many(Whole(), nodes),
        "closed": TRUTH,
        "positions": Object({}, {"cti": TIME}, Whole()),
    }
    newer: dict[str, Kind] = {"functions": _TEXTS, "version": TEXT, "python": TEXT, "following": following}
    optional: dict[str, Kind] = {"ingest": Many(counted, inputs), "given_before": _COUNTS}
    if facts.get("format") == 1:
        return Object(needed, optional | newer, ANY)
    return Object(needed | newer, optional, ANY)


def check_facts(path: Path | str, facts: Any, kind: Kind) -> None:
    """Check the facts of a checkpoint.

    Raises:
        SourceError: A value is missing, of another type, or out of range; the error names its place.

    Examples:
        >>> check_facts(Path("c"), {"late": {"dropped": -5}}, Object({"late": Object(others=Whole())}))
        Traceback (most recent call last):
        gpu_ops.errors.SourceError: The checkpoint c is damaged: in checkpoint.json 'late.dropped' is -5, and should be
        a whole number from 0 to 4611686018427387903. Restore an older one: ...
    """
    wrong = defect(facts, kind)
    if wrong is not None:
        raise SourceError(f"The checkpoint {path} is damaged: in {FACTS} {wrong}.", remedy=OLDER)
