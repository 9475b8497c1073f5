"""Statements that change rows, literally: random ones, each as a text and as what it does to a row and an event.

The rows are those of `tests.support.named_window_reference`, which says what enters and leaves a window. An event finds
all rows first; then each of them is taken out or replaced, in their order; what comes in comes behind all that goes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support.named_window_reference import Delivered, Kept, NamedWindow, Row

Value = Callable[[Row, Row, Row], Any]
"""A value of the row as it is set so far, of the event, and of the row as it was."""

COLUMNS = {"k": "string", "v": "int", "d": "double", "s": "string"}


def _of(operate: Callable[..., Any], *operands: Any) -> Any:
    """A result that is null where an operand is."""
    return None if any(each is None for each in operands) else operate(*operands)


def _and(*parts: Any) -> Any:
    return False if any(each is False for each in parts) else None if None in parts else True


CONDITIONS: Mapping[str, Value] = {
    "w.k = e.k": lambda w, e, _: _of(lambda a, b: a == b, w["k"], e["k"]),
    "w.v < e.m": lambda w, e, _: _of(lambda a, b: a < b, w["v"], e["m"]),
    "w.v >= e.m": lambda w, e, _: _of(lambda a, b: a >= b, w["v"], e["m"]),
    "w.s = e.s": lambda w, e, _: _of(lambda a, b: a == b, w["s"], e["s"]),
    "w.s = 'x'": lambda w, _, __: _of(lambda a: a == "x", w["s"]),
    "w.s in ('x', 'z')": lambda w, _, __: _of(lambda a: a in {"x", "z"}, w["s"]),
    "w.s is null": lambda w, _, __: w["s"] is None,
    "w.s like 'x%'": lambda w, _, __: _of(lambda a: a.startswith("x"), w["s"]),
    "w.v between 1 and e.m": lambda w, e, _: _of(lambda v, m: min(1, m) <= v <= max(1, m), w["v"], e["m"]),
    "not (w.v = e.m)": lambda w, e, _: _of(lambda a, b: a != b, w["v"], e["m"]),
    "w.d > w.v": lambda w, _, __: _of(lambda a, b: a > b, w["d"], w["v"]),
    "e.m > 3": lambda _, e, __: _of(lambda a: a > 3, e["m"]),
}
"""Conditions on a row and an event. That with `like` has no program."""

_ABOUT_EVENTS = ("e.m > 3",)

VALUES: Mapping[str, Mapping[str, Value]] = {
    "v": {
        "w.v + e.m": lambda w, e, _: _of(lambda a, b: a + b, w["v"], e["m"]),
        "w.v + 1": lambda w, _, __: _of(lambda a: a + 1, w["v"]),
        "e.m": lambda _, e, __: e["m"],
        "case when w.v > e.m then w.v else e.m end": lambda w, e, _: (
            w["v"] if _of(lambda a, b: a > b, w["v"], e["m"]) else e["m"]
        ),
        "coalesce(w.v, 0) - e.m": lambda w, e, _: _of(lambda b: (w["v"] or 0) - b, e["m"]),
        "initial.v * 2": lambda _, __, i: _of(lambda a: a * 2, i["v"]),
    },
    "d": {
        "w.d / 2": lambda w, _, __: _of(lambda a: a / 2, w["d"]),
        "w.d + e.m": lambda w, e, _: _of(lambda a, b: a + b, w["d"], e["m"]),
        "w.v * 0.5": lambda w, _, __: _of(lambda a: a * 0.5, w["v"]),
        "e.m * 1.5": lambda _, e, __: _of(lambda a: a * 1.5, e["m"]),
    },
    "s": {
        "e.s": lambda _, e, __: e["s"],
        "'z'": lambda _, __, ___: "z",
        "w.k": lambda w, _, __: w["k"],
        "case when w.v > 3 then 'big' else w.s end": lambda w, _, __: "big" if _of(lambda a: a > 3, w["v"]) else w["s"],
    },
    "k": {"e.k": lambda _, e, __: e["k"]},
}
"""Values of columns."""


@dataclass(frozen=True)
class Branch:
    """What is done with a row, or with an event that finds none.

    Attributes:
        kind: "delete", "update" or "insert".
        condition: On which condition.
        values: The columns that are set, and to what.
    """

    kind: str
    condition: str = ""
    values: tuple[tuple[str, str], ...] = ()

    def fits(self, row: Row, event: Row) -> bool:
        """Whether it is taken."""
        return not self.condition or CONDITIONS[self.condition](row, event, row) is True

    def made(self, row: Row, event: Row) -> Row:
        """The row that it makes of another one."""
        made = {**row}
        for column, value in self.values:
            made[column] = VALUES[column][value](made, event, row)
        return made

    @property
    def text(self) -> str:
        """What it says behind `then`."""
        if self.kind == "insert":
            return "insert select " + ", ".join(f"{value} as {column}" for column, value in self.values)
        return "delete" if self.kind == "delete" else "update set " + self.sets

    @property
    def sets(self) -> str:
        """Its assignments."""
        return ", ".join(f"{column} = {value}" for column, value in self.values)


@dataclass(frozen=True)
class Changing:
    """A statement that changes rows.

    Attributes:
        kind: "delete", "update" or "merge".
        trigger: The type of its events.
        where: Which rows it finds: all of these conditions hold.
        matched: What it does with a row: the first that fits.
        others: What it does with an event that finds no row, likewise.
    """

    kind: str
    trigger: str
    where: tuple[str, ...]
    matched: tuple[Branch, ...]
    others: tuple[Branch, ...] = ()

    @property
    def text(self) -> str:
        """The statement."""
        where = f" where {' and '.join(self.where)}" if self.where else ""
        if self.kind == "delete":
            return f"on {self.trigger} as e delete from W as w{where}"
        if self.kind == "update":
            return f"on {self.trigger} as e update W as w set {self.matched[0].sets}{where}"
        parts = [f"on {self.trigger} as e merge W as w{where}"]
        for word, branches in (("matched", self.matched), ("not matched", self.others)):
            for each in branches:
                condition = f" and {each.condition}" if each.condition else ""
                parts.append(f"when {word}{condition} then {each.text}")
        return " ".join(parts)

    def change(self, window: NamedWindow, event: Row, now: int) -> Delivered:
        """What it does at an event; what it delivers."""
        found = [
            each for each in window.rows if _and(*(CONDITIONS[one](each.row, event, each.row) for one in self.where))
        ]
        new, old, gone, out = list[Row](), list[Row](), list[Row](), list[Kept]()
        for each in found:
            branch = next((one for one in self.matched if one.fits(each.row, event)), None)
            if branch is None:
                continue
            out.append(each)
            if branch.kind == "delete":
                gone.append(each.row)
            else:
                new.append(branch.made(each.row, event))
                old.append(each.row)
        if not found:
            empty: Row = dict.fromkeys(COLUMNS)
            branch = next((one for one in self.others if one.fits(empty, event)), None)
            new += [] if branch is None else [branch.made(empty, event)]
        window.change(new, out, now)
        # A delete gives what it takes out as new rows, as Esper has it; a merge as old ones.
        return (gone, []) if self.kind == "delete" else (new, [*old, *gone])


@st.composite
def changing(draw: st.DrawFn, *, table: bool, keys: bool) -> Changing:
    """A statement; one of a table finds rows by their key where it brings some in.

    Args:
        draw: As of Hypothesis.
        table: Whether rows are those of a table.
        keys: Whether keys may change.
    """
    kind = draw(st.sampled_from(["delete", "update", "update", "merge", "merge"]))
    condition = st.sampled_from(sorted(CONDITIONS))
    where = tuple(draw(st.lists(condition, max_size=2, unique=True)))
    if table and kind == "merge":
        where = ("w.k = e.k",)
    elif draw(st.booleans()):
        where = ("w.k = e.k", *(each for each in where if each != "w.k = e.k"))
    columns = ["v", "d", "s", *(["k"] if keys and not table else [])]

    def update(condition: str = "") -> Branch:
        names = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
        return Branch("update", condition, tuple((each, draw(st.sampled_from(sorted(VALUES[each])))) for each in names))

    trigger = draw(st.sampled_from("DU"))
    if kind == "delete":
        return Changing(kind, trigger, where, (Branch("delete"),))
    if kind == "update":
        return Changing(kind, trigger, where, (update(),))
    matched = []
    for _ in range(draw(st.integers(0, 2))):
        on = draw(st.sampled_from(["", *sorted(CONDITIONS)]))
        matched.append(Branch("delete", on) if draw(st.booleans()) else update(on))
    given = (("k", "e.k"), ("v", "e.m"), ("d", "e.m * 1.5"), ("s", draw(st.sampled_from(["e.s", "'z'"]))))
    on = draw(st.sampled_from(["", *_ABOUT_EVENTS]))
    others = (Branch("insert", on, given),) if draw(st.booleans()) or not matched else ()
    return Changing(kind, trigger, where, tuple(matched), others)


def answers(
    view: str, statements: Sequence[Changing], events: Sequence[tuple[str, int, Row]]
) -> tuple[dict[str, list[Delivered]], list[Row]]:
    """(what `w` and each statement, `c0`…, deliver at each turn at which they do, the rows at the end).

    Args:
        view: The view of the window; none for a table.
        statements: What changes it, in their order.
        events: Type, time and properties of each event; those of A are inserted.
    """
    window = NamedWindow(view or "keepall")
    names = [f"c{at}" for at in range(len(statements))]
    made: dict[str, list[Delivered]] = {name: [] for name in (["w"] if view else []) + names}

    def note(name: str, delivered: Delivered) -> None:
        if name in made and (delivered[0] or delivered[1]):
            made[name].append(delivered)

    for kind, now, event in events:
        window.expire(now)
        note("w", window.taken())
        if kind == "A" and view:
            row = {"k": event["k"], "v": event["m"], "d": None, "s": event["s"]}
            row["d"] = None if event["m"] is None else event["m"] * 0.5
            window.insert(row, now)
        for name, each in zip(names, statements, strict=True):
            if each.trigger == kind:
                note(name, each.change(window, event, now))
        note("w", window.taken())
    return made, [each.row for each in window.rows]
