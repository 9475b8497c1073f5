"""Patterns that wait for something with each event of a stream: open starts do for them, and no tree is walked.

`every a=A -> X`, where X waits for at most one event, for no event of other streams, and for a time: A then B within
d, A and no B for d, or both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpu_ops.plan import patterns as p


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
