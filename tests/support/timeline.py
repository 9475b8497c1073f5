"""Events drawn as pictures.

A row is a label and a line. A character is a tick; the first tick stands a blank after the longest label's colon::

    a:   [===|==)    *    v=1
    bus:    [======>      v=2

``[`` starts an event, ``)`` is its end, which is no part of it; ``|`` ends one and starts the next; ``>`` says that
the event never ends; ``*`` is a point event. ``=``, ``-`` and blanks fill. ``name=value`` after the line is payload, of
each event of the row. Results are drawn the same way.
"""

from __future__ import annotations

import ast
import re
from textwrap import dedent
from typing import Any

from tests.support.reference import NEVER, Event

_ROW = re.compile(r"(?P<label>[^:\s]+):(?P<line>[-= \[)|>*]*)(?P<payload>(?:\b\w+=\S+\s*)*)$")


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def timeline(picture: str, *, label: str = "name", zero: int = 0, tick: int = 1) -> list[Event]:
    """The events of a picture.

    Args:
        picture: Rows as the module says; empty ones are skipped.
        label: The payload column that the labels become; they and the values are Python literals, else texts.
        zero: The time of the first column, in microseconds.
        tick: How many microseconds a column is.
    """
    rows = [row for row in dedent(picture).splitlines() if row.strip()]
    first = max((row.index(":") + 2 for row in rows), default=0)
    events = []
    for row in rows:
        parts = _ROW.match(row)
        assert parts is not None, f"no row of a timeline: {row!r}"
        payload = {label: _value(parts["label"])}
        for item in parts["payload"].split():
            name, _, text = item.partition("=")
            payload[name] = _value(text)
        events += _line(row[first : parts.end("line")], payload, zero, tick)
    return events


def _line(line: str, payload: dict[str, Any], zero: int, tick: int) -> list[Event]:
    events = []
    start: int | None = None
    for column, mark in enumerate(line):
        time = zero + column * tick
        if mark in ")|>":
            assert start is not None, f"nothing to end: {line!r}"
            events.append(Event(start, NEVER if mark == ">" else time, payload))
            start = None
        if mark in "[|":
            assert start is None, f"an event starts within another: {line!r}"
            start = time
        if mark == "*":
            events.append(Event(time, time + 1, payload))
    assert start is None, f"an event without an end: {line!r}"
    return events
