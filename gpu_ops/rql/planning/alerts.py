"""Alerts of a from clause: patterns of rows in several partitions that have a value in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from gpu_ops.plan.alerts import MOST_SOURCES, Alerts, Present, ShownColumn
from gpu_ops.plan.nodes import Node
from gpu_ops.rql.queries import AlertSource, PresentPattern
from gpu_ops.texts.binding import types as t
from gpu_ops.texts.binding.scope import unknown
from gpu_ops.texts.expressions import Syntax
from gpu_ops.texts.placed_error import failure_at


def alert_of(source: AlertSource, rows: Mapping[Any, Node], schemas: Mapping[Any, pa.Schema]) -> Alerts:
    """The node of an alert.

    Args:
        source: What the text says.
        rows: The rows of each partition, by its place in the text.
        schemas: Their columns.

    Raises:
        PlacedError: A name is unknown or taken, types differ, or a pattern is none.
    """
    tables = [each.table for each in source.streams]
    aliases = [each.alias for each in tables]
    for at, table in enumerate(tables):
        if table.alias in aliases[:at]:
            raise failure_at(table, f"Two partitions are called {table.alias!r}.", "Name one of them otherwise.")
    if not 2 <= len(tables) <= MOST_SOURCES:
        raise failure_at(
            source, f"An alert is about 2 to {MOST_SOURCES} partitions, not {len(tables)}.", "Name them behind 'using'."
        )
    own = [schemas[table.place] for table in tables]
    for at, (stream, schema) in enumerate(zip(source.streams, own, strict=True)):
        _check_column(stream, schema, stream.column)
        first, mine = own[0].field(source.streams[0].column).type, schema.field(stream.column).type
        if mine != first:
            raise failure_at(
                stream,
                f"{aliases[at]}.{stream.column} is of type {t.type_name(mine)}, and {aliases[0]}."
                f"{source.streams[0].column} of type {t.type_name(first)}: they are compared.",
                "Correlate on columns of one type.",
            )
    columns: list[ShownColumn] = []
    for each in source.columns:
        at = _number(each, each.alias, aliases)
        _check_column(each, own[at], each.column)
        if any(each.name == other.name for other in columns):
            raise failure_at(each, f"Two columns of the alert are called {each.name!r}.", "Rename one.")
        columns.append(ShownColumn(each.name, at, each.column))
    patterns = tuple(_pattern(each, aliases) for each in source.patterns)
    return Alerts(
        tuple(rows[table.place] for table in tables),
        tuple(aliases),
        tuple(each.column for each in source.streams),
        patterns,
        tuple(columns),
    )


def _pattern(pattern: PresentPattern, aliases: Sequence[str]) -> Present:
    numbers = [_number(each, each.alias, aliases) for each in pattern.terms]
    for at, term in enumerate(pattern.terms):
        if numbers[at] in numbers[:at]:
            raise failure_at(term, f"The pattern names {term.alias!r} twice.", "Name it once.")
    if len(numbers) < 2:
        raise failure_at(pattern, "A pattern is about two partitions at least.", "Write: present(a and b)")
    if not pattern.terms[0].present:
        raise failure_at(
            pattern.terms[0], "A pattern first names a partition that has a row.", "Write 'not' behind another one."
        )
    wanted = tuple(number for number, term in zip(numbers, pattern.terms, strict=True) if term.present)
    return Present(wanted, tuple(number for number in numbers if number not in wanted))


def _number(node: Syntax, alias: str, aliases: Sequence[str]) -> int:
    if alias not in aliases:
        raise unknown(node, f"There is no partition {alias!r}.", alias, aliases, aliases, "There are")
    return aliases.index(alias)


def _check_column(node: Syntax, schema: pa.Schema, name: str) -> None:
    if name not in schema.names:
        raise unknown(node, f"There is no column {name!r}.", name, schema.names, schema.names, "There are")
