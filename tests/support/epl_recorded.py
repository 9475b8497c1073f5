"""Cases that were recorded from Esper: a script, and what listeners and iterators gave at each step of it."""

from __future__ import annotations

import gzip
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

Case = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]] | None


class Delivery(Protocol):
    """What a listener gets at once."""

    @property
    def statement(self) -> str:
        """Whose it is."""

    @property
    def new(self) -> Rows:
        """New rows, or None."""

    @property
    def old(self) -> Rows:
        """Old rows, or None."""


class Engine(Protocol):
    """What runs a script."""

    @property
    def active_filters(self) -> int:
        """How many streams statements listen to."""

    def deploy(self, text: str) -> Sequence[str]:
        """Add statements."""

    def undeploy(self, name: str) -> None:
        """Take a statement away."""

    def send(self, type_name: str, row: Any) -> Sequence[Delivery]:
        """An event comes, or several of them at once."""

    def advance(self, now: int) -> Sequence[Delivery]:
        """Set the clock."""

    def advance_span(self, now: int, resolution: int | None = None) -> Sequence[Delivery]:
        """Walk the clock."""

    def rows(self, name: str) -> Rows:
        """What an iterator gives."""

    def has_order(self, name: str) -> bool:
        """Whether it does so in an order."""


def recorded(path: Path) -> list[Case]:
    """The cases of a file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return with_types([json.loads(line) for line in lines if line.strip()])


def with_types(cases: Sequence[Case]) -> list[Case]:
    """Cases with the types that their statements name and that no event of theirs is of, as other cases have them."""
    said: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for case in cases:
        for name, fields in case["schema"].items():
            for field, kind in fields.items():
                said[name][field][json.dumps(kind)] += 1
    types = {
        name: {field: json.loads(kinds.most_common(1)[0][0]) for field, kinds in fields.items()}
        for name, fields in said.items()
    }
    made = []
    for case in cases:
        text = "\n".join([case["epl"], *(step["deploy"] for step in case["script"] if "deploy" in step)])
        own = {*case["schema"], *re.findall(r"(?i)\b(?:schema|into|window|table|variant)\s+(\w+)", text)}
        more = {name: types[name] for name in re.findall(r"\w+", text) if name in types and name not in own}
        made.append({**case, "schema": {**case["schema"], **more}} if more else case)
    return made


def difference(case: Case, make: Callable[[Mapping[str, Any], int], Engine], *, together: bool = False) -> str | None:
    """What is wrong with what an engine makes of a case; None if it is what was recorded.

    Args:
        case: The case.
        make: Makes an engine of types and the time of its clock.
        together: Whether neighbouring events of a type are sent as one batch, where nothing is asked between them.
    """
    engine = make(case["schema"], case["deploy_at_ms"])
    engine.deploy(case["epl"])
    wrong = _wrong(case, [-1], (), engine)
    for numbers in _runs(case, together=together):
        steps = [case["script"][number] for number in numbers]
        wrong = wrong or _wrong(case, numbers, _done(steps, engine), engine)
    return wrong


def _runs(case: Case, *, together: bool) -> Iterator[list[int]]:
    """The numbers of steps that are done at once."""
    asked = {entry["after_step"] for entry in case["expected"] if "new" not in entry}
    run: list[int] = []
    for number, step in enumerate(case["script"]):
        before = case["script"][run[-1]] if run else {}
        goes_on = together and "send" in step and step["send"] == before.get("send") and run[-1] not in asked
        if run and not goes_on:
            yield run
            run = []
        run.append(number)
    if run:
        yield run


def _done(steps: Sequence[Mapping[str, Any]], engine: Engine) -> Sequence[Delivery]:
    match steps[0]:
        case {"send": type_name}:
            rows = [{name: plain(value) for name, value in step["event"].items()} for step in steps]
            return engine.send(type_name, rows[0] if len(rows) == 1 else rows)
        case {"advance_to_ms": now}:
            return engine.advance(now)
        case {"advance_span_to_ms": now, **rest}:
            return engine.advance_span(now, rest.get("resolution_ms"))
        case {"deploy": text}:
            engine.deploy(text)
        case {"undeploy": names}:
            for name in names:
                engine.undeploy(name)
        case step:
            raise ValueError(f"no such step: {step}")
    return ()


def _wrong(case: Case, numbers: Sequence[int], deliveries: Sequence[Delivery], engine: Engine) -> str | None:
    """What listened statements deliver is recorded in full; of iterators there are samples."""
    entries = [entry for entry in case["expected"] if entry["after_step"] in numbers]
    in_any_order, number = case["any_order"], numbers[-1]
    for name in case["listen"]:
        wanted = [(each["new"], each["old"]) for each in entries if each.get("statement") == name and "new" in each]
        found = [(each.new, each.old) for each in deliveries if each.statement == name]
        alike = len(wanted) == len(found) and all(
            same(*rows, in_any_order=in_any_order)
            for pair in zip(found, wanted, strict=True)
            for rows in zip(*pair, strict=True)
        )
        if not alike:
            return f"step {number}, {name}: {found}, not {wanted}"
    for entry in entries:
        if "iterator" in entry:
            name = entry["statement"]
            rows = engine.rows(name)
            if not same(rows, entry["iterator"], in_any_order=in_any_order or not engine.has_order(name)):
                return f"step {number}, iterator of {name}: {rows}, not {entry['iterator']}"
        if "active_filters" in entry and engine.active_filters != entry["active_filters"]:
            return f"step {number}: {engine.active_filters} active filters, not {entry['active_filters']}"
    return None


def plain(value: Any) -> Any:
    """A value as it is meant: numbers that JSON does not know are texts there."""
    if isinstance(value, dict) and "$num" in value:
        return float(value["$num"].replace("Infinity", "inf"))
    return value


def same(found: Any, wanted: Any, *, in_any_order: bool = False) -> bool:
    """Whether values are equal: whole numbers to the digit, others nearly."""
    wanted = plain(wanted)
    match found, wanted:
        case dict(), dict():
            return found.keys() == wanted.keys() and all(same(found[name], each) for name, each in wanted.items())
        case dict(), list():  # an event whose properties are an array was recorded as that
            return same([*found.values()], wanted)
        case list(), list() if in_any_order:
            return len(found) == len(wanted) and not list(_unmatched(found, wanted))
        case list(), list():
            return len(found) == len(wanted) and all(same(*pair) for pair in zip(found, wanted, strict=True))
        case float(), float():
            both_nan = math.isnan(found) and math.isnan(wanted)
            return both_nan or math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-9)
    return type(found) is type(wanted) and bool(found == wanted)


def _unmatched(found: Sequence[Any], wanted: Sequence[Any]) -> Iterator[Any]:
    left = list(wanted)
    for row in found:
        at = next((at for at, other in enumerate(left) if same(row, other)), None)
        if at is None:
            yield row
        else:
            del left[at]
