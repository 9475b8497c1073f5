"""The verbs that take several streams. `gpu_ops.Stream` has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpu_ops.api.base import DataWindowed, Stream, Verbs, Windowed
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import Duration, positive_ticks
from gpu_ops.errors import PlanError
from gpu_ops.plan.arguments import names
from gpu_ops.plan.expressions import Expression, as_expression
from gpu_ops.plan.joins import (
    AsOf,
    AsofDirection,
    AsofHow,
    ClipBy,
    How,
    Join,
    On,
    Strategy,
    Union,
    distinct,
    named_keys,
    with_common_columns,
    with_common_keys,
)
from gpu_ops.plan.nodes import KeyBy, Node

Keys = str | Sequence[str] | Mapping[str, str]


@of_methods
class Joining(Verbs[Stream, Windowed, DataWindowed]):
    """Verbs that combine a stream with others."""

    def join(
        self,
        other: Stream,
        *,
        on: Keys | None = None,
        how: How = "inner",
        condition: Expression | None = None,
        suffix: str = "_right",
        strategy: Strategy = "auto",
    ) -> Stream:
        """Pairs of events that are alive at the same time; a pair lives while both events do (StreamInsight: join).

        An outer join also gives the pieces of lifetimes without a partner, with nulls in the other's columns (Trill:
        LeftOuterJoin, FullOuterJoin). ``"anti"`` gives the pieces of left events without a partner (Trill:
        WhereNotExists), ``"semi"`` the pieces with at least one; both have left's columns alone. Pieces are as long as
        possible. Without a key any two events that overlap are a pair: a cross join.

        Args:
            other: The right stream; it may be this one.
            on: The key columns: a name, several, or a mapping from left names to right ones. As in SQL, null equals no
                key; NaN equals NaN, and -0.0 equals 0.0. Key types must have a common type.
            how: ``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"semi"`` or ``"anti"``.
            condition: Another condition for two events to be partners: an expression over both payloads, under the
                names that pairs have. Null counts as no.
            suffix: The suffix for the name of a right column that left has too.
            strategy: How Spark joins: ``"kernel"`` with the local engine's join in Python workers, ``"sql"`` with
                Spark's own join of time buckets; ``"auto"`` chooses, and `explain` says why. The local engine ignores
                it.

        Returns:
            Left's columns, then right's without its keys. For right events without a partner, the key columns have the
            right keys.

        Raises:
            ColumnError: A column is unknown, key types have no common type, or a name is taken with the suffix too.
            PlanError: The condition is no condition or reads lifetimes; or the streams are on different engines.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> contract = pa.table({"a": [0, 2], "b": [9, 4], "line": [1, 2]})
            >>> outage = pa.table({"a": [3], "b": [6], "line": [1], "why": ["storm"]})
            >>> contracts, outages = (g.events(t, start="a", end="b", unit="s") for t in (contract, outage))
            >>> contracts.join(outages, on="line").collect().select(["line", "why"]).to_pylist()
            [{'line': 1, 'why': 'storm'}]
            >>> calm = contracts.join(outages, on="line", how="anti").collect()
            >>> sorted(zip(calm["line"].to_pylist(), (t.second for t in calm["start"].to_pylist())))
            [(1, 0), (1, 6), (2, 2)]
        """
        left, right, keys = self._beside(other, on)
        where = None if condition is None else as_expression(condition, where="join(condition=…)")
        return self._with(Join(left, right, keys, how, where, suffix, strategy))

    def union(self, *others: Stream) -> Stream:
        """All events of this stream and of others.

        Columns match by name, in the order of this stream's; each gets a type that holds the values of all.

        Args:
            others: Streams with the same columns.

        Raises:
            ColumnError: A stream has other columns, or a column's types have no common type.
            PlanError: The streams are on different engines.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> tables = [pa.table({"at": [0, 5], "v": [1, 2]}), pa.table({"at": [3], "v": [9]})]
            >>> one, two = (g.events(table, start="at", unit="s") for table in tables)
            >>> sorted(one.union(two).collect()["v"].to_pylist())
            [1, 2, 9]
        """
        for other in others:
            self._check_beside(other)
        nodes = [self._node, *(other._node for other in others)]  # noqa: SLF001  (a stream's own kind)
        return self._with(Union(with_common_columns(nodes))) if others else self._with(self._node)

    def clip_by(self, other: Stream, *, on: Keys | None = None) -> Stream:
        """Each event until the first matching event of another stream starts after it (Trill: ClipEventDuration).

        An event of the other stream that starts at the same time or earlier ends nothing, even if it is still alive.

        Args:
            other: The stream whose starts end events; it may be this stream, so that each event lasts until the next.
            on: As in `join`; without a key every later start ends an event.

        Raises:
            ColumnError: As `join`.
            PlanError: The streams are on different engines.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> readings = g.events(pa.table({"at": [0, 60], "v": [7, 8]}), start="at", unit="s").extend("1h")
            >>> readings.clip_by(readings).collect()["end"].to_pylist()[0].minute
            1
        """
        left, right, keys = self._beside(other, on)
        return self._with(ClipBy(left, right, keys))

    def asof_join(
        self,
        other: Stream,
        *,
        on: Keys | None = None,
        tolerance: Duration | None = None,
        how: AsofHow = "left",
        suffix: str = "_right",
        direction: AsofDirection = "backward",
    ) -> Stream:
        """Each event with the last matching event of another stream that started at or before its start.

        Lifetimes are those of this stream's events; the ends of the other's do not limit a match. Of several events
        that started at one time the one with the latest end is chosen, then the one with the greatest payload, compared
        column by column (null is least, nested columns do not count): the order of rows never matters.

        Args:
            other: The stream that is searched.
            on: As in `join`.
            tolerance: The longest time between the two starts.
            how: ``"left"`` keeps events without a match, with nulls; ``"inner"`` drops them.
            suffix: As in `join`.
            direction: ``"forward"``: the first matching event that starts at its start or later. ``"nearest"``: that or
                the last one by then, whichever starts nearer; the earlier one if both are as near (as in pandas'
                ``merge_asof``). A running query then waits for what starts later; a ``tolerance`` bounds the wait.

        Raises:
            ColumnError: As `join`.
            PlanError: As `join`; or the tolerance is not positive, or there is no such direction.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> trades = g.events(pa.table({"at": [3, 8], "n": [1, 2]}), start="at", unit="s")
            >>> quotes = g.events(pa.table({"at": [1, 3, 7], "price": [10, 11, 12]}), start="at", unit="s")
            >>> trades.asof_join(quotes).collect()["price"].to_pylist()
            [11, 12]
            >>> trades.asof_join(quotes, direction="forward").collect()["price"].to_pylist()
            [11, None]
            >>> quotes.asof_join(trades, direction="nearest").collect()["n"].to_pylist()
            [1, 1, 2]
        """
        left, right, keys = self._beside(other, on)
        limit = None if tolerance is None else positive_ticks(tolerance, name="tolerance")
        return self._with(AsOf(left, right, keys, how, limit, suffix, direction))

    def distinct(self, *columns: str) -> Stream:
        """The times at which each combination of these columns exists: one event for each longest stretch.

        Overlapping and touching lifetimes become one (Trill: Distinct, whose pieces are cut at every end point). The
        result is not grouped.

        Args:
            columns: Names of payload columns; by default all.

        Raises:
            ColumnError: A column is unknown or nested.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> s = g.events(
            ...     pa.table({"a": [0, 3, 9], "b": [5, 7, 12], "zone": [1, 1, 1]}), start="a", end="b", unit="s"
            ... )
            >>> [(t.second) for t in s.distinct("zone").collect()["start"].to_pylist()]
            [0, 9]
        """
        scope, columns = self._node.scope, names(columns, where="distinct")
        compared = tuple(dict.fromkeys((*scope, *columns) if columns else self._node.schema.names))
        node = distinct(self._node, compared)
        return self._with(KeyBy(node, scope) if scope else node)

    def _beside(self, other: Stream, on: Keys | None) -> tuple[Node, Node, On]:
        self._check_beside(other)
        left, right = self._node, other._node  # noqa: SLF001
        keys = named_keys(on, left, right)
        if left.scope and right.scope == left.scope:
            # Each group is joined with itself.
            named = {name for name, _ in keys}
            keys = (*((name, name) for name in left.scope if name not in named), *keys)
        return *with_common_keys(left, right, keys), keys

    def _check_beside(self, other: object) -> None:
        if not isinstance(other, Joining):
            raise PlanError(
                f"The other stream is a {type(other).__name__}, not a stream.",
                remedy="Make a stream of it first: g.events(…).",
            )
        if self._node.on_spark != other._node.on_spark:  # noqa: SLF001  (its own kind)
            raise PlanError(
                "One stream is on Spark and the other one is local.",
                remedy="Give both as DataFrames: spark.createDataFrame(table).",
            )
