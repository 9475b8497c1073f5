"""A named window, literally: its rows as a list, changed by one event after the other, as Esper's rules say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
Delivered = tuple[list[Row], list[Row]]

SPAN = 5


@dataclass
class Kept:
    """A row, and when it came."""

    row: Row
    came: int


@dataclass
class NamedWindow:
    """A named window with the columns k and v.

    Attributes:
        view: `keepall`, `length(3)`, `time(5 msec)`, `unique(k)`, `firstunique(k)`, `firstlength(3)`, `sort(3, v)` or
            `length_batch(3)`.
        rows: Its rows; of batches those that wait.
        posted: The batch before.
        new: What entered in this turn.
        old: What left in it.
    """

    view: str
    rows: list[Kept] = field(default_factory=list)
    posted: list[Row] = field(default_factory=list)
    new: list[Row] = field(default_factory=list)
    old: list[Row] = field(default_factory=list)

    def taken(self) -> Delivered:
        """What entered and left since the last call."""
        made = self.new, self.old
        self.new, self.old = [], []
        return made

    def expire(self, now: int) -> None:
        """The clock shows a time."""
        if self.view.startswith("time("):
            gone = [each for each in self.rows if each.came + SPAN <= now]
            self.rows = [each for each in self.rows if each.came + SPAN > now]
            self.old += [each.row for each in gone]

    def insert(self, row: Row, now: int) -> None:
        """A row comes."""
        there, view = [each.row for each in self.rows], self.view
        if view == "firstlength(3)" and len(there) == 3:
            return
        if view == "firstunique(k)" and row["k"] in [each["k"] for each in there]:
            return
        self.rows.append(Kept(row, now))
        if view == "length_batch(3)":
            if len(self.rows) == 3:
                self.new += [each.row for each in self.rows]
                self.old += self.posted
                self.posted, self.rows = [each.row for each in self.rows], []
            return
        self.new.append(row)
        if view == "length(3)" and len(self.rows) > 3:
            self.old.append(self.rows.pop(0).row)
        if view == "unique(k)":
            same = [each for each in self.rows[:-1] if each.row["k"] == row["k"]]
            # Not by equality: the row that comes may be equal to one that goes.
            self.rows = [*(each for each in self.rows[:-1] if each.row["k"] != row["k"]), self.rows[-1]]
            self.old += [each.row for each in same]
        if view == "sort(3, v)" and len(self.rows) > 3:
            most = max(each.row["v"] for each in self.rows)
            worst = next(each for each in self.rows if each.row["v"] == most)
            self.rows.remove(worst)
            self.old.append(worst.row)

    def change(self, new: Sequence[Row], old: Sequence[Kept], now: int) -> None:
        """An event takes rows out, then brings others in."""
        ids = {id(each) for each in old}
        self.rows = [each for each in self.rows if id(each) not in ids]
        if self.view != "length_batch(3)":
            self.old += [each.row for each in old]
        for row in new:
            self.insert(row, now)


Changer = Callable[[NamedWindow, Row, int], Delivered]


def deletes(window: NamedWindow, event: Row, now: int) -> Delivered:
    """`delete from W where W.k = D.k and W.v >= D.m`."""
    hit = [each for each in window.rows if each.row["k"] == event["k"] and each.row["v"] >= event["m"]]
    window.change([], hit, now)
    return [each.row for each in hit], []


def deletes_below(window: NamedWindow, event: Row, now: int) -> Delivered:
    """`delete from W where W.v < D.m`."""
    hit = [each for each in window.rows if each.row["v"] < event["m"]]
    window.change([], hit, now)
    return [each.row for each in hit], []


def updates(window: NamedWindow, event: Row, now: int) -> Delivered:
    """`update W set v = v + x where W.k = U.k`."""
    hit = [each for each in window.rows if each.row["k"] == event["k"]]
    new = [{"k": each.row["k"], "v": each.row["v"] + event["x"]} for each in hit]
    window.change(new, hit, now)
    return new, [each.row for each in hit]


def merges(window: NamedWindow, event: Row, now: int) -> Delivered:
    """A merge: rows of the key above 5 go, others get the value; where there is none a value above 1 comes."""
    hit = [each for each in window.rows if each.row["k"] == event["k"]]
    new = [{"k": each.row["k"], "v": event["x"]} for each in hit if each.row["v"] <= 5]
    if not hit and event["x"] > 1:
        new = [{"k": event["k"], "v": event["x"]}]
    window.change(new, hit, now)
    return new, [each.row for each in hit]


_MERGED = """
    when matched and w.v > 5 then delete
    when matched then update set v = u.x
    when not matched and u.x > 1 then insert select u.k as k, u.x as v
"""

CHANGES: Mapping[str, tuple[str, str, Changer]] = {
    "deletes": ("D", "on D as d delete from W as w where w.k = d.k and w.v >= d.m", deletes),
    "deletes_below": ("D", "on D as d delete from W as w where w.v < d.m", deletes_below),
    "updates": ("U", "on U as u update W as w set v = w.v + u.x where w.k = u.k", updates),
    "merges": (
        "U",
        f"on U as u merge W as w where w.k = u.k {_MERGED}",
        merges,
    ),
}
"""What changes a window, by name: the type that triggers it, its text, and what it does."""

VIEWS = ("keepall", "length(3)", "time(5 msec)", "unique(k)", "firstunique(k)", "firstlength(3)", "sort(3, v)")
BATCHES = ("length_batch(3)",)


def answers(
    view: str, changes: Sequence[str], events: Sequence[tuple[str, int, Row]]
) -> tuple[dict[str, list[Delivered]], list[Row]]:
    """(what each statement delivers at each turn at which it does, the rows at the end).

    Args:
        view: The view of the window, `w`.
        changes: The statements that change it, in their order.
        events: Type, time and properties of each event.
    """
    window = NamedWindow(view)
    made: dict[str, list[Delivered]] = {"w": [], "q": [], **{name: [] for name in changes}}

    def note(name: str, delivered: Delivered) -> None:
        if delivered[0] or delivered[1]:
            made[name].append(delivered)

    for kind, now, event in events:
        window.expire(now)
        note("w", window.taken())
        if kind == "A":
            window.insert(event, now)
        for name in changes:
            trigger, _, change = CHANGES[name]
            if trigger == kind:
                note(name, change(window, event, now))
        if kind == "U":
            note("q", ([{"x": event["x"], **each.row} for each in window.rows], []))
        note("w", window.taken())
    return made, [each.row for each in window.rows]
