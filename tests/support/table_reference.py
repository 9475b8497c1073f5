"""A table, literally: a row for each key, changed by one event after the other, as Esper's rules say it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

TEXT = """
    @name('t') create table T (k string primary key, total sum(int), n count(*), note int);
    @name('early') select T[A.k].total as total from A;
    into table T select sum(v) as total from A#length(3) group by k;
    @name('late') select T[A.k].total as total, T['a'].n as n from A;
    into table T select count(*) as n from A group by k;
    @name('q') on U as u select t.k as k, t.total as total from T as t where t.n >= u.x;
"""
MERGE = """
    @name('m') on D as d merge T as t where t.k = d.k
        when matched then update set note = d.m
        when not matched and d.m > 1 then insert select d.k as k, d.m as note;
"""


def answers(events: Sequence[tuple[str, Row]], *, merges: bool) -> tuple[dict[str, list[list[Row]]], dict[str, Row]]:
    """(what `early`, `late` and `q` deliver at each event, the rows at the end).

    Args:
        events: Type and properties of each event.
        merges: Whether `MERGE` is deployed.
    """
    table: dict[str, Row] = {}
    window: list[Row] = []
    made: dict[str, list[list[Row]]] = {"early": [], "late": [], "q": []}

    def row(key: str) -> Row:
        return table.setdefault(key, {"k": key, "total": None, "n": None, "note": None})

    def seen(key: str, column: str) -> Any:
        return table[key][column] if key in table else None

    for kind, event in events:
        if kind == "A":
            made["early"].append([{"total": seen(event["k"], "total")}])
            window.append(event)
            gone = [window.pop(0)] if len(window) > 3 else []
            for key in {each["k"] for each in [event, *gone]}:
                values = [each["v"] for each in window if each["k"] == key]
                row(key)["total"] = sum(values) if values else None
            made["late"].append([{"total": seen(event["k"], "total"), "n": seen("a", "n")}])
            row(event["k"])["n"] = (row(event["k"])["n"] or 0) + 1
        if kind == "U":
            found = [each for each in table.values() if each["n"] is not None and each["n"] >= event["x"]]
            if found:
                made["q"].append([{"k": each["k"], "total": each["total"]} for each in found])
        if kind == "D" and merges and (event["k"] in table or event["m"] > 1):
            row(event["k"])["note"] = event["m"]
    return made, table
