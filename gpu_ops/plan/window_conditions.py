"""Conditions on the events in a window: their number, the oldest and the newest event, sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.other_names import OtherNames
from gpu_ops.core.time import TIME_TYPE
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.plan.expression_text import line_text
from gpu_ops.plan.expressions import Expression, as_expression, check_boolean, column_names
from gpu_ops.plan.window_kinds import Assigned

COUNT = "window count"
OLDEST, NEWEST, SUM = "oldest ", "newest ", "sum of "


class WindowExpressions(OtherNames):
    """What a condition of `Stream.keep_while` and `Stream.batches_until` can read (Esper: expr and expr_batch).

    Examples:
        >>> import gpu_ops as g
        >>> import pyarrow as pa
        >>> s = g.events(pa.table({"at": [0, 1, 2], "v": [5, 6, 7]}), start="at", unit="s")
        >>> small = s.keep_while(g.window.sum("v") < 13).agg(n=g.count())
        >>> small.collect().sort_by("start")["n"].to_pylist()
        [1, 2, 1]
    """

    _known_as = "condition"

    @property
    def count(self) -> nw.Expr:
        """The number of events in the window, with the newest (Esper: current_count); int64."""
        return nw.col(COUNT)

    @property
    def oldest_start(self) -> nw.Expr:
        """The start of the oldest event (Esper: oldest_timestamp)."""
        return nw.col(f"{OLDEST}start")

    @property
    def newest_start(self) -> nw.Expr:
        """The start of the newest event (Esper: newest_timestamp)."""
        return nw.col(f"{NEWEST}start")

    def oldest(self, name: str) -> nw.Expr:
        """A payload column of the oldest event (Esper: oldest_event)."""
        return nw.col(f"{OLDEST}{name}")

    def newest(self, name: str) -> nw.Expr:
        """A payload column of the newest event (Esper: newest_event)."""
        return nw.col(f"{NEWEST}{name}")

    def sum(self, name: str) -> nw.Expr:
        """The exact sum of an integer or float column over the events in the window; null if there is no value."""
        return nw.col(f"{SUM}{name}")


class _Conditioned(Assigned, family=True):
    """A window that a condition on its rows decides."""

    condition: nw.Expr

    leaves = "at once"
    ties = "by payload"
    remains = "nothing"
    halo = "what the condition leaves in the window depends on all earlier events"

    def computed(self, fields: Callable[[], pa.Schema]) -> tuple[tuple[nw.Expr, pa.Schema], ...]:
        return ((self.condition, fields()),)


@dataclass(frozen=True, eq=False)
class While(_Conditioned):
    """As each row comes, the oldest rows leave until a condition holds or no row is left (Esper: expr).

    ``refused`` is as in `gpu_ops.plan.data_windows.Sorted`.
    """

    condition: nw.Expr
    refused: Literal["dropped", "shown"] = "dropped"

    enters = "at its start"

    def __str__(self) -> str:
        return f"while {line_text(self.condition)}{'' if self.refused == 'dropped' else ' refused=shown'}"


@dataclass(frozen=True, eq=False)
class Until(_Conditioned):
    """Rows gather until a new row makes a condition hold; then they are a batch (Esper: expr_batch).

    Without ``include_trigger`` the new row is the first of the next batch.
    """

    condition: nw.Expr
    include_trigger: bool = True

    enters = "later"

    def __str__(self) -> str:
        return f"batches until {line_text(self.condition)}{'' if self.include_trigger else ' include_trigger=False'}"


def spoken(schema: pa.Schema, condition: nw.Expr) -> dict[str, tuple[str, str]]:
    """What a condition reads: for each of its columns (which part of the window, which payload column)."""
    found: dict[str, tuple[str, str]] = {}
    known = ["start", *schema.names]
    every = [COUNT, *(f"{part}{name}" for part in (OLDEST, NEWEST, SUM) for name in known)]
    for name in column_names(condition, every):
        part = next((each for each in (OLDEST, NEWEST, SUM) if name.startswith(each)), "")
        found[name] = (part or COUNT, name.removeprefix(part) if part else "")
    return found


def condition_fields(schema: pa.Schema) -> pa.Schema:
    """The columns that conditions on windows of such events can read."""
    fields = {COUNT: pa.int64(), f"{OLDEST}start": TIME_TYPE, f"{NEWEST}start": TIME_TYPE}
    for field in schema:
        fields |= {f"{OLDEST}{field.name}": field.type, f"{NEWEST}{field.name}": field.type}
        if pa.types.is_integer(field.type) and field.type != pa.uint64():
            fields[f"{SUM}{field.name}"] = pa.int64()
        elif pa.types.is_floating(field.type):
            fields[f"{SUM}{field.name}"] = pa.float64()
    return pa.schema(list(fields.items()))


def window_condition(schema: pa.Schema, condition: Expression, *, where: str) -> nw.Expr:
    """A condition on windows, after checks.

    Raises:
        ColumnError: It reads an unknown column, or sums one that is neither integer nor float.
        PlanError: It is no condition, or reads nothing of a window.
    """
    made = as_expression(condition, where=where)
    fields = condition_fields(schema)
    read = spoken(schema, made)
    for name, (_, column) in read.items():
        if name not in fields.names:
            dtype = schema.field(column).type if column in schema.names else TIME_TYPE
            raise ColumnError(f"There is no sum of {dtype}.", column=column, remedy="Cast it first.")
    try:
        check_boolean(fields, made, where=where)
    except ColumnError as error:
        for part in (OLDEST, NEWEST, SUM):
            name = str(error.column or "")
            if name.startswith(part):
                raise unknown_column(name.removeprefix(part), schema.names) from None
        raise PlanError(
            f"{where} reads a column that no window has: {error.column!r}.",
            remedy='Say of which event: g.window.newest("price"), g.window.oldest("price"), g.window.sum("price"), '
            "g.window.count.",
        ) from None
    if not read:
        raise PlanError(f"{where} reads nothing of a window.", remedy="Say for instance g.window.count <= 10.")
    return made
