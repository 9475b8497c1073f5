"""The product as an engine of recorded cases and of random scripts: rows as dictionaries, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from gpu_ops.epl.runtime import Runtime


@dataclass(frozen=True)
class RowsDelivered:
    """What a listener gets at once."""

    statement: str
    new: Sequence[Mapping[str, Any]] | None
    old: Sequence[Mapping[str, Any]] | None


def rows_of(table: pa.Table | None) -> Sequence[Mapping[str, Any]] | None:
    """A table's rows."""
    if table is None:
        return None
    return table.to_pylist() if table.num_columns else [{} for _ in range(table.num_rows)]


class RuntimeEngine:
    """A runtime that takes events one by one, or several of them at once.

    Args:
        schema: The properties of each type of event.
        now: What the clock shows first.
        device: Where it computes.
    """

    def __init__(self, schema: Mapping[str, Mapping[str, Any]], now: int = 0, device: str = "cpu") -> None:
        self.runtime = Runtime(schema, start=now, device=device)
        # Esper's names are unique within a deployment alone: those of later ones have a number here.
        self._called: dict[str, list[str]] = {}

    @property
    def active_filters(self) -> int:
        """How many streams statements listen to."""
        return self.runtime.active_filters()

    def deploy(self, text: str) -> Sequence[str]:
        """Add statements."""
        for name in re.findall(r"(?i)@name\('([^']*)'\)", text):
            mine = self._called.setdefault(name, [])
            own = f"{name} {len(mine)}" if mine else name
            mine.append(own)
            text = re.sub(rf"(?i)@name\('{re.escape(name)}'\)", f"@name('{own}')", text)
        return [statement.name for statement in self.runtime.deploy(text)]

    def undeploy(self, name: str) -> None:
        """Take a statement away."""
        for own in self._called.pop(name, [name]):
            self.runtime.undeploy(own)

    def send(self, type_name: str, row: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Sequence[RowsDelivered]:
        """An event comes, or several."""
        return self._told(self.runtime.send(type_name, row))

    def advance(self, now: int) -> Sequence[RowsDelivered]:
        """Set the clock."""
        return self._told(self.runtime.advance(now))

    def advance_span(self, now: int, resolution: int | None = None) -> Sequence[RowsDelivered]:
        """Walk the clock."""
        return self._told(self.runtime.advance_span(now, resolution))

    def rows(self, name: str) -> Sequence[Mapping[str, Any]]:
        """What an iterator gives."""
        return rows_of(self.runtime.rows(self._called.get(name, [name])[-1])) or []

    def has_order(self, name: str) -> bool:
        """Whether it does so in an order: what it is, is not asked here."""
        del name
        return False

    def _told(self, deliveries: Sequence[Any]) -> Sequence[RowsDelivered]:
        names = {own: name for name, mine in self._called.items() for own in mine}
        return [
            RowsDelivered(names.get(each.statement, each.statement), rows_of(each.new), rows_of(each.old))
            for each in deliveries
        ]
