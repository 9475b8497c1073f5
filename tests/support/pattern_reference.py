"""Event patterns by the letter: each started part is an object, and each event is told to those that wait for it.

Source of the semantics: Esper's, where a part starts with the events found so far, tells its parent that it turned true
(and whether that was its last word) or false, and is quit with all below it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

Row = Mapping[str, Any]
Found = Mapping[str, Any]
"""The event of each tag, or a list of events."""


@dataclass(frozen=True)
class Part:
    """A part of a pattern: what it is, what it says beside that, and what is below it."""

    kind: str
    parts: tuple[Part, ...] = ()
    said: Mapping[str, Any] = field(default_factory=dict)


class PatternReference:
    """A pattern that runs.

    Args:
        part: The pattern.
        now: What the clock shows, in milliseconds.
        discards: Whether what shares an event with a match ends.
        suppresses: Whether of matches of one turn that share an event only the first counts.
    """

    def __init__(self, part: Part, now: int, *, discards: bool = False, suppresses: bool = False) -> None:
        self.now, self.count, self.before = now, 0, 0
        self.atoms: list[Started] = []
        self.timers: list[tuple[int, int, Started]] = []
        self.found: list[Found] = []
        self.all: list[Started] = []
        self._discards, self._suppresses = discards, suppresses
        Started(self, part, None, {}).start()

    def send(self, type_name: str, event: Row) -> list[Found]:
        """An event comes: the matches that it completes."""
        told = [each for each in self.atoms if each.takes(type_name, event)]
        level = max((each.part.said["level"] for each in told), default=0)
        told = [each for each in told if each.part.said["level"] == level]
        for each in sorted(told, key=lambda each: (each.part.said["holds"] is None, each.number)):
            self.before = self.count
            if each.alive:
                tag = each.part.said["tag"]
                each.tell_true({**each.begin, tag: event} if tag else each.begin, last=True)
        return self._turn()

    def advance(self, now: int) -> list[Found]:
        """The clock is set: the matches that this completes."""
        self.now = now
        due = sorted((each for each in self.timers if each[0] <= now), key=lambda each: each[:2])
        self.timers = [each for each in self.timers if each[0] > now]
        for _, _, each in due:
            self.before = self.count
            if each.alive and each.part.kind == "interval":
                each.tell_true(each.begin, last=True)
            elif each.alive:
                each.tell_false()
        return self._turn()

    def schedule(self, due: int, who: Started) -> None:
        """Have something told at a time."""
        self.count += 1
        self.timers.append((due, self.count, who))

    def _turn(self) -> list[Found]:
        found, self.found = self.found, []
        if self._suppresses:
            kept: list[Found] = []
            for each in found:
                if not any(_shares(each, other) for other in kept):
                    kept.append(each)
            found = kept
        if self._discards and found:
            for part in [part for part in self.all if any(part.holds(match) for match in found)]:
                self.before = self.count
                if part.alive:
                    part.tell_false()
        self.all = [each for each in self.all if each.alive]
        return found


def _events(found: Found) -> list[Row]:
    return [row for value in found.values() for row in (value if isinstance(value, list) else [value])]


def _shares(one: Found, other: Found) -> bool:
    return any(mine is theirs for mine in _events(one) for theirs in _events(other))


class Started:
    """A part that has started."""

    def __init__(self, machine: PatternReference, part: Part, parent: Started | None, begin: Found) -> None:
        self.machine, self.part, self.parent, self.begin = machine, part, parent, begin
        self.alive, self.number = True, 0
        self.children: list[tuple[int, Started]] = []
        self.results: list[list[Found]] = [[] for _ in part.parts]
        self.times, self.lists = 0, dict[str, list[Row]]()
        self.keys: list[tuple[float, Any]] = []
        self.starting: Started | None = None
        self.at_once = False

    def start(self) -> None:
        """Begin."""
        machine, said = self.machine, self.part.said
        machine.count += 1
        self.number = machine.count
        machine.all.append(self)
        match self.part.kind:
            case "atom":
                machine.atoms.append(self)
            case "interval" if said["ms"] <= 0:
                self.tell_true(self.begin, last=True)
            case "interval":
                machine.schedule(machine.now + said["ms"], self)
            case "every" | "distinct":
                self._again([])
            case "not":
                self._begin(0, self.begin)
                if self.alive:
                    self.tell_true(self.begin, last=False)
            case "and" | "or":
                for at in range(len(self.part.parts)):
                    if self.alive:
                        self._begin(at, self.begin)
            case "until":
                for at in reversed(range(len(self.part.parts))):
                    if self.alive:
                        self._begin(at, self.begin)
            case "within" | "withinmax":
                machine.schedule(machine.now + said["ms"], self)
                self._begin(0, self.begin)
            case "while" | "then":
                self._begin(0, self.begin)

    def _begin(self, at: int, begin: Found) -> Started:
        child = Started(self.machine, self.part.parts[at], self, begin)
        self.children.append((at, child))
        child.start()
        return child

    def _again(self, keys: list[tuple[float, Any]]) -> None:
        """Start what `every` repeats; if it turns true at once, it is quit and never started again."""
        child = Started(self.machine, self.part.parts[0], self, self.begin)
        child.keys = keys
        self.children.append((0, child))
        self.starting, self.at_once = child, False
        child.start()
        self.starting = None
        if self.at_once and child.alive:
            self._drop(child)

    def quit(self) -> None:
        """End, with all below."""
        self.alive = False
        self.machine.atoms = [each for each in self.machine.atoms if each is not self]
        for _, child in self.children:
            child.quit()

    def _drop(self, child: Started) -> None:
        child.quit()
        self.children = [(at, each) for at, each in self.children if each is not child]

    def takes(self, type_name: str, event: Row) -> bool:
        """Whether an atom waits for an event."""
        holds = self.part.said["holds"]
        return bool(self.part.said["type"] == type_name and (holds is None or holds(event, self.begin)))

    def holds(self, match: Found) -> bool:
        """Whether it has an event of a match."""
        mine = [self.begin, self.lists, *(each for results in self.results for each in results)]
        return any(_shares(each, match) for each in mine)

    def tell_true(self, match: Found, *, last: bool) -> None:
        """Tell the parent of a match."""
        parent = self.parent
        if parent is None:
            self.machine.found.append(match)
            if last:
                self.quit()
            return
        if last and self.part.kind == "atom" and parent.part.kind in {"every", "distinct"}:
            last = False  # it would be started again at once
        at = next(at for at, each in parent.children if each is self)
        if last:
            parent._drop(self)
        parent._is_true(self, at, match, last=last)

    def tell_false(self) -> None:
        """Tell the parent that there will be no match."""
        parent = self.parent
        self.quit()
        if parent is not None:
            at = next(at for at, each in parent.children if each is self)
            parent._drop(self)
            parent._is_false(self, at)

    def _is_false(self, child: Started, at: int) -> None:
        match self.part.kind:
            case "every" | "distinct":
                if child is not self.starting:
                    self._again([])
            case "not":
                pass
            case "or" | "then":
                if not self.children:
                    self.tell_false()
            case _:
                self.tell_false()

    def _is_true(self, child: Started, at: int, match: Found, *, last: bool) -> None:
        said = self.part.said
        match self.part.kind:
            case "every" | "distinct":
                self._repeats(child, match)
            case "not":
                self.tell_false()
            case "or":
                self.tell_true(match, last=last)
            case "then" if at + 1 == len(self.part.parts):
                self.tell_true(match, last=not self.children)
            case "then":
                limit = said["limits"][at]
                if limit is None or sum(each == at + 1 for each, _ in self.children) < limit:
                    self._begin(at + 1, match)
            case "and":
                self._combines(child, at, match)
            case "until":
                self._counts(child, at, match, last=last)
            case "within":
                self.tell_true(match, last=last)
            case "withinmax":
                self.times += 1
                self.tell_true(match, last=last) if self.times <= said["most"] else self.tell_false()
            case "while":
                self.tell_true(match, last=last) if said["holds"](match) else self.tell_false()

    def _repeats(self, child: Started, match: Found) -> None:
        if child is self.starting:
            self.at_once = True
            return
        keys, new = child.keys, True
        if self.part.kind == "distinct":
            key, now = self.part.said["key"](match), self.machine.now
            new = not any(until > now and key == other for until, other in keys)
            forgets = self.part.said["ms"]
            if new:
                keys = [*keys, (now + forgets if forgets else float("inf"), key)]
        if child.alive and child.part.kind == "atom":
            child.keys = keys
        else:
            self._again(keys)
        if new and self.alive:
            self.tell_true(match, last=False)

    def _combines(self, child: Started, at: int, match: Found) -> None:
        self.results[at].append(match)
        if not all(self.results):
            return
        over = all(each.part.kind == "not" for _, each in self.children)
        others = [[match] if each == at else list(results) for each, results in enumerate(self.results)]
        combinations = list(product(*others))
        for number, each in enumerate(combinations):
            if not self.alive:
                return
            made = dict(self.begin)
            for result in each:
                made |= {tag: row for tag, row in result.items() if self.begin.get(tag) is not row}
            self.tell_true(made, last=over and number + 1 == len(combinations))

    def _counts(self, child: Started, at: int, match: Found, *, last: bool) -> None:
        low, high = self.part.said["low"], self.part.said["high"]
        if at == 1:
            if low is not None and self.times < low:
                self.tell_false()
            else:
                self.tell_true({**match, **self.lists}, last=True)
            return
        self.times += 1
        for tag, row in match.items():
            if self.begin.get(tag) is not row:
                self.lists[tag] = [*self.lists.get(tag, []), row]
        if low == high == self.times:
            self.tell_true({**self.begin, **self.lists}, last=True)
        elif last and high is None and child.number > self.machine.before:
            pass  # it turns true as it starts: it would never end
        elif last and (high is None or self.times < high):
            self._begin(0, self.begin)
        elif not last and high is not None and self.times >= high:
            self._drop(child)
