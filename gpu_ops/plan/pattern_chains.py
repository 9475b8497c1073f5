"""Patterns that wait for something with each event of a stream: open starts do for them, and no tree is walked.

`every a=A -> X`, where X waits for at most one event, for no event of other streams, and for a time: A then B within
d, A and no B for d, or both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_ops.plan import patterns as p
from gpu_ops.plan.expressions import bare_column
from gpu_ops.plan.splits import one_order


@dataclass(frozen=True, eq=False)
class PatternChain:
    """What each start waits for. A match is there when `then` came and `after` is over.

    Attributes:
        start: The event that starts.
        then: The event that has to come; None for none.
        within: How long it may take until `then` comes; None for any time.
        after: The time that has to pass; None for none.
        absent: The events that must not come until then.
    """

    start: p.EventAtom
    then: p.EventAtom | None
    within: p.ElapsedTime | None
    after: p.ElapsedTime | None
    absent: tuple[p.EventAtom, ...]

    @property
    def awaited(self) -> tuple[p.EventAtom, ...]:
        """The events that a start waits for, `then` before the others."""
        return (*(() if self.then is None else (self.then,)), *self.absent)


def chain_of(tree: p.PatternPart, slots: Mapping[str, str]) -> PatternChain | str:
    """What each start of a pattern waits for; or why the pattern needs the machine.

    Args:
        tree: The pattern.
        slots: For each slot that programs read its tag.
    """
    if not isinstance(tree, p.FollowedBy) or len(tree.several) != 2 or tree.limits != (None,):
        return "it is not one event after another"
    begins, waits = tree.several
    if not isinstance(begins, p.EveryMatch) or not isinstance(begins.part, p.EventAtom):
        return "it does not begin with every event of a stream"
    chain = _waiting(begins.part, waits.several if isinstance(waits, p.AllOf) else (waits,))
    return chain if isinstance(chain, str) else _refused(chain, slots) or chain


def keyed_atoms(
    tree: p.PatternPart, slots: Mapping[str, str]
) -> tuple[p.EventAtom, list[tuple[p.EventAtom, str, str]]]:
    """(the event that starts, for each other atom its column that equals one of that event, and the event's column).

    So what a start waits for has its key, and starts of other keys change nothing for it.

    Args:
        tree: The pattern.
        slots: For each slot that programs read its tag.

    Raises:
        PlanError: The pattern does not begin with every event of a stream, or an atom has no such column.
    """
    begins, *rest = tree.several if isinstance(tree, p.FollowedBy) else (tree,)
    limited = isinstance(tree, p.FollowedBy) and any(each is not None for each in tree.limits)
    if not isinstance(begins, p.EveryMatch) or not isinstance(begins.part, p.EventAtom) or limited:
        raise one_order("A pattern that does not begin with every event of a stream")
    start, found = begins.part, []
    for part in (each for whole in rest for each in whole.walk()):
        if not isinstance(part, p.EventAtom):
            continue
        mine, theirs = (None, None) if part.equal is None else part.equal
        names = [None if each is None else bare_column(each.value) for each in (mine, theirs)]
        if theirs is None or slots.get(theirs.slot) != start.tag or None in names or part.level or start.level:
            raise one_order("A pattern with an event that has no key of the first one")
        found.append((part, str(names[0]), str(names[1])))
    return start, found


def _waiting(start: p.EventAtom, parts: tuple[p.PatternPart, ...]) -> PatternChain | str:
    then, within, after, absent = list[p.EventAtom](), None, list[p.ElapsedTime](), list[p.EventAtom]()
    for part in parts:
        match part:
            case p.EventAtom():
                then.append(part)
            case p.WithinGuard(p.EventAtom() as atom, p.ElapsedTime() as over, None):
                then.append(atom)
                within = over
            case p.NoMatch(p.EventAtom() as atom):
                absent.append(atom)
            case p.ClockTime(p.ElapsedTime() as due):
                after.append(due)
            case _:
                return f"a start waits for {part}"
    if len(then) > 1 or len(after) > 1 or not (then or after):
        return "a start waits for several events or times, or for none"
    return PatternChain(start, then[0] if then else None, within, after[0] if after else None, tuple(absent))


def _refused(chain: PatternChain, slots: Mapping[str, str]) -> str | None:
    """Why open starts do not do for a chain."""
    awaited = chain.awaited
    if any(each.level for each in (chain.start, *awaited)):
        return "events are consumed"
    if len({each.stream for each in awaited}) < len(awaited):
        return "a start waits for two things of one stream"
    if any(span is not None and not span.months and span.ticks <= 0 for span in (chain.within, chain.after)):
        return "a time is over at once"
    if chain.then is not None and chain.start.tag and chain.then.tag == chain.start.tag:
        return "two events have one name"
    for each in awaited:
        cells = [*(each.rest.cells if each.rest is not None else ()), *(each.equal[1:] if each.equal else ())]
        if any(slots.get(cell.slot, "") not in {"", chain.start.tag} for cell in cells):
            return "a condition is about another event than the first"
    return None
