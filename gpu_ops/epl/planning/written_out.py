"""Statements that do several things, written out as one that is deployed and others that run beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpu_ops.epl import queries as q
from gpu_ops.epl import statements as s
from gpu_ops.epl.patterns import EventFilter
from gpu_ops.epl.planning.parts import parts
from gpu_ops.texts import expressions as e
from gpu_ops.texts.placed_error import failure_at, unsupported

_TRIGGER = "@event"
"""What the event of a trigger is called that has no name."""


@dataclass(frozen=True)
class StatementParts:
    """A statement and those that run beside it, in the order in which an event reaches them.

    Attributes:
        before: Those that come before it: they see a named window as the event finds it.
        main: What its listeners are told.
        behind: Those that come behind it.
    """

    before: tuple[s.Statement, ...]
    main: s.Statement
    behind: tuple[s.Statement, ...]


def written_out(statement: s.Statement) -> StatementParts:
    """A statement as several, where it does several things.

    - `on A insert into X select … insert into Y select …` is a query for each; its listeners get what none takes.
    - `on A select and delete …` asks, and then deletes.
    - `on A merge W … then insert into X select …` asks for the rows that it inserts elsewhere before it changes `W`.

    Raises:
        PlacedError: It inserts elsewhere what it has changed before.
    """
    match statement.body:
        case s.OnSplit():
            return _split(statement, statement.body)
        case s.OnQuery() if statement.body.query.deleting:
            return _selected_and_deleted(statement, statement.body)
        case s.OnMerge() if any(True for _ in _elsewhere(statement.body)):
            return _merged(statement, statement.body)
        case _:
            return StatementParts((), statement, ())


def _beside(statement: s.Statement, bodies: Sequence[s.Body]) -> tuple[s.Statement, ...]:
    """Statements that run beside another: it alone has a name."""
    return tuple(replace(statement, body=each, annotations=()) for each in bodies)


def _split(statement: s.Statement, on: s.OnSplit) -> StatementParts:
    source = q.StreamTerm(on.trigger.source, alias=on.trigger.alias, place=on.trigger.place)
    made: list[s.Body] = []
    taken: list[e.Expression] = []
    for branch in on.branches:
        where = branch.where
        for other in () if on.all_branches else taken:
            where = _both(where, _fails(other))
        made.append(q.Query(branch.items, source, where=where, insert=branch.insert, place=branch.place))
        taken.append(branch.where or e.Constant(True, "boolean", place=branch.place))
    rest = e.logical("and", list(map(_fails, taken)), on.place) if len(taken) > 1 else _fails(taken[0])
    every = (q.SelectItem(e.Wildcard(place=on.place), place=on.place),)
    main = q.Query(every, source, where=rest, place=on.place)
    return StatementParts((), replace(statement, body=main), _beside(statement, made))


def _selected_and_deleted(statement: s.Statement, on: s.OnQuery) -> StatementParts:
    query = on.query
    if query.joins:
        raise unsupported(query.joins[0], "select and delete of joins", "Select from one named window.")
    source = query.stream.source
    if not isinstance(source, EventFilter):
        raise failure_at(source, "There is nothing to delete in a pattern.", "Select from a named window.")
    where = query.where
    for each in source.filters:
        where = _both(where, each)
    deleting = s.OnDelete(on.trigger, source.type_name, query.stream.alias, where, place=on.place)
    main = replace(statement, body=replace(on, query=replace(query, deleting=False)))
    return StatementParts((), main, _beside(statement, [deleting]))


def _elsewhere(on: s.OnMerge) -> Iterator[s.MergeInsert]:
    """What a merge inserts into other streams."""
    for branch in on.branches:
        for action in branch.actions:
            if isinstance(action, s.MergeInsert) and action.target not in {"", on.target}:
                yield action


def _merged(statement: s.Statement, on: s.OnMerge) -> StatementParts:
    elsewhere = {id(each) for each in _elsewhere(on)}
    trigger = on.trigger if on.trigger.alias else replace(on.trigger, alias=_TRIGGER)
    made: list[s.Body] = []
    taken: dict[bool, list[e.Expression]] = {True: [], False: []}
    branches: list[s.MergeBranch] = []
    for branch in on.branches:
        where = branch.condition
        for other in taken.get(bool(branch.matched), ()) if branch.matched is not None else ():
            where = _both(where, _fails(other))
        for at, action in enumerate(branch.actions):
            if id(action) in elsewhere:
                assert isinstance(action, s.MergeInsert)  # noqa: S101  (nothing else is)
                _check_unchanged(on, action, branch.actions[:at])
                made.append(_inserting(on, trigger, branch, _both(where, action.where), action))
        if branch.matched is not None:
            taken[branch.matched].append(branch.condition or e.Constant(True, "boolean", place=branch.place))
        left = tuple(action for action in branch.actions if id(action) not in elsewhere)
        if left or branch.matched is not None:
            branches.append(replace(branch, actions=left))
    main = replace(statement, body=replace(on, branches=tuple(branches)))
    return StatementParts(_beside(statement, made), main, ())


def _check_unchanged(on: s.OnMerge, insert: s.MergeInsert, before: Sequence[e.Syntax]) -> None:
    """Refuse an insert of what an action before it has changed."""
    if not any(isinstance(each, s.MergeUpdate) for each in before):
        return
    for part in parts(insert.items):
        mine = isinstance(part, e.Member) and isinstance(part.of, e.Name) and part.of.name == on.trigger.alias
        if isinstance(part, e.Name) and part.name == (on.alias or on.target) and not mine:
            hint = "Insert before the update, or select properties of the event."
            raise unsupported(insert, "merges that insert a row elsewhere behind its update", hint)


def _inserting(
    on: s.OnMerge, trigger: s.Trigger, branch: s.MergeBranch, where: e.Expression | None, insert: s.MergeInsert
) -> s.Body:
    """What a merge inserts into another stream, as a query."""
    into = q.InsertInto(insert.target, columns=insert.columns, place=insert.place)
    whole = e.Wildcard(e.Name(trigger.alias, place=insert.place), place=insert.place)
    items = tuple(
        replace(item, expression=whole)
        if isinstance(item.expression, e.Wildcard) and item.expression.of is None
        else item
        for item in insert.items
    )
    kept = q.StreamTerm(EventFilter(on.target, place=on.place), alias=on.alias, place=on.place)
    if branch.matched:
        query = q.Query(items, kept, where=_both(on.where, where), insert=into, place=insert.place)
        return s.OnQuery(trigger, query, place=insert.place)
    event = q.StreamTerm(trigger.source, alias=trigger.alias, place=trigger.place)
    if branch.matched is None:
        return q.Query(items, event, where=where, insert=into, place=insert.place)
    every = (q.SelectItem(e.Wildcard(place=on.place), place=on.place),)
    there = q.Exists(q.Query(every, kept, where=on.where, place=on.place), place=on.place)
    return q.Query(items, event, where=_both(_not(there), where), insert=into, place=insert.place)


def _both(left: e.Expression | None, right: e.Expression | None) -> e.Expression | None:
    if left is None or right is None:
        return right if left is None else left
    return e.logical("and", [left, right], right.place)


def _not(node: e.Expression) -> e.Expression:
    return e.Prefixed("not", node, place=node.place)


def _fails(node: e.Expression) -> e.Expression:
    """That a condition does not hold: it is false, or null."""
    no = e.Constant(False, "boolean", place=node.place)
    return _not(e.FunctionCall("coalesce", (node, no), place=node.place))
