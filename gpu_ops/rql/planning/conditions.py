"""Conditions of a query taken apart: what each is about, and which columns it says are equal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import pyarrow as pa

from gpu_ops.rql import queries as q
from gpu_ops.rql.planning.scopes import AGGREGATES, ALL, SHOWN, BoundTable
from gpu_ops.texts.expressions import (
    Expression,
    FunctionCall,
    Inclusion,
    Logical,
    Member,
    Name,
    Operation,
    Prefixed,
    Syntax,
)


def walked(node: Syntax) -> Iterator[Syntax]:
    """A node and all below it, without those of queries within."""
    yield node
    if isinstance(node, q.InnerQuery | q.QueryHasRows):
        return
    for field in fields(node):
        value = getattr(node, field.name)
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, tuple) and not hasattr(each, "_fields"):
                waiting.extend(each)
            elif isinstance(each, Syntax):
                yield from walked(each)


def aggregate_calls(node: Expression) -> list[FunctionCall]:
    """The aggregates in an expression."""
    return [each for each in walked(node) if isinstance(each, FunctionCall) and each.name.lower() in AGGREGATES]


def shown_expressions(select: q.OneSelect) -> Iterator[Expression]:
    """The expressions of a select, but for those of its where clause."""
    yield from (item.expression for item in select.items if item.expression is not None)
    yield from select.group_by
    yield from () if select.having is None else (select.having,)
    if isinstance(select.source, q.JoinedTables):
        yield from (join.on for join in select.source.joins if join.on is not None)


def conjuncts(condition: Expression | None) -> Iterator[Expression]:
    """The conditions that all have to hold."""
    if isinstance(condition, Logical) and condition.operator == "and":
        for each in condition.operands:
            yield from conjuncts(each)
    elif condition is not None:
        yield condition


def status_of(condition: Expression) -> tuple[str, frozenset[int]] | None:
    """The alias and the rows that a condition shows, if it is about the row status alone."""
    match condition:
        case q.RowStatus(alias, status) if alias:
            return alias, SHOWN[status]
        case Prefixed("not", operand):
            found = status_of(operand)
            return None if found is None else (found[0], ALL - found[1])
        case Logical("or", operands):
            each = [status_of(operand) for operand in operands]
            aliases = {one[0] for one in each if one is not None}
            if None not in each and len(aliases) == 1:
                return aliases.pop(), frozenset().union(*(one[1] for one in each if one is not None))
    return None


@dataclass(frozen=True)
class InnerCondition:
    """A condition about the rows of a query within another one.

    Attributes:
        query: The query.
        value: What is compared with the values of its only column; None where it is asked whether it has rows.
        operator: How it is compared.
        negated: Whether the condition is turned around.
    """

    query: q.CycleQuery
    value: Expression | None = None
    operator: str = "="
    negated: bool = False


_TURNED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def inner_condition(condition: Expression) -> InnerCondition | None:
    """A condition that is about a query within as a whole; None if it is another one."""
    match condition:
        case q.QueryHasRows(query):
            return InnerCondition(query)
        case Inclusion(value, (q.InnerQuery(query),), negated):
            return InnerCondition(query, value, negated=negated)
        case Operation(operator, value, q.InnerQuery(query)) if operator in _TURNED and _gives_one_row(query):
            return InnerCondition(query, value, operator)
        case Operation(operator, q.InnerQuery(query), value) if operator in _TURNED and _gives_one_row(query):
            return InnerCondition(query, value, _TURNED[operator])
        case Prefixed("not", operand):
            found = inner_condition(operand)
            return None if found is None else replace(found, negated=not found.negated)
    return None


def _gives_one_row(query: q.CycleQuery) -> bool:
    """Whether a query gives an aggregate of all its rows."""
    items, plain = query.select.items, not (query.further or query.limit is not None or query.select.group_by)
    return plain and len(items) == 1 and items[0].expression is not None and bool(aggregate_calls(items[0].expression))


def kept_sides(source: q.JoinedTables) -> set[str]:
    """The tables whose rows are all there, whatever outer joins find: a condition on them may be answered first."""
    kept: set[str] = {source.first.alias}
    for join in source.joins:
        if join.kind in {"right", "full"}:
            kept = set()
        if join.kind not in {"left", "full"}:
            kept.add(join.table.alias)
    return kept


def equal_pairs(
    conditions: Sequence[Expression], left: Sequence[BoundTable], right: Sequence[BoundTable]
) -> tuple[list[tuple[str, str]], list[Expression]]:
    """Columns of the plan that are equal in each pair, and the conditions that say something else."""
    pairs: list[tuple[str, str]] = []
    others: list[Expression] = []
    for each in conditions:
        found = None
        if isinstance(each, Operation) and each.operator == "=":
            for one, other in ((each.left, each.right), (each.right, each.left)):
                mine, theirs = _held_by(one, left, right), _held_by(other, right, left)
                if mine is not None and theirs is not None and mine[1] == theirs[1]:
                    found = mine[0], theirs[0]
        if found is None or any(found[1] == theirs for _, theirs in pairs):
            others.append(each)
        else:
            pairs.append(found)
    return pairs, others


def _held_by(
    node: Expression, tables: Sequence[BoundTable], others: Sequence[BoundTable]
) -> tuple[str, pa.DataType] | None:
    """The plan's column of a table's column, and its type, if the node is one."""
    match node:
        case Member(Name(alias), name):
            found = [each for each in tables if each.alias == alias and name in each.schema.names]
        case Name(name):
            found = [each for each in tables if name in each.schema.names]
            if any(name in each.schema.names for each in others):
                return None
        case _:
            return None
    if len(found) != 1:
        return None
    return found[0].column(name), found[0].schema.field(name).type
