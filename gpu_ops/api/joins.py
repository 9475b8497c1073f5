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
    """Verbs of a stream that take others beside it."""

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
        """Pairs of events that are alive at the same time; a pair lives as long as both do (StreamInsight: join).

        An outer join gives beside them the pieces of lifetimes that have no partner, with nulls in the other's columns
        (Trill: LeftOuterJoin, FullOuterJoin). ``"anti"`` gives the pieces of left events that have none (Trill:
        WhereNotExists), ``"semi"`` those that have at least one, both with left's columns alone. Pieces are as long
        as can be. Without a key every two events that overlap are a pair: a cross join.

        Args:
            other: The right stream; it may be this one.
            on: The key columns: a name, several, or a mapping of left names to right ones. As in SQL, null is no
                key's equal; all NaNs are one, and -0.0 equals 0.0. Key types must have one in common.
            how: ``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"semi"`` or ``"anti"``.
            condition: What must hold for two events to be partners besides: an expression over both payloads, under the
                names that pairs have. Null counts as no.
            suffix: What is put behind the name of a right column that left has too.
            strategy: How Spark does it: ``"kernel"`` by the local engine's join in Python workers, ``"sql"`` by a join
                of time buckets among Spark's own; ``"auto"`` chooses, and `explain` says why. Here there is one way.

        Returns:
            Left's columns, then right's without its keys. Where right events stand alone, the key columns have their
            keys.

        Raises:
            ColumnError: An unknown column, key types without one in common, or a name that is taken with the suffix.
            PlanError: The condition is none, or about lifetimes; or the streams are on different engines.

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

        Columns go together by name, in the order of this stream's; each gets a type that holds the values of all.

        Args:
            others: Streams with the same columns.

        Raises:
            ColumnError: Another set of columns, or types of one that have none in common.
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

        An event of the other stream that starts at the same time or earlier ends nothing, even if it is alive still.

        Args:
            other: Whose starts end events; it may be this stream, so that each event lasts until the next one.
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
    ) -> Stream:
        """Each event with the last matching event of another stream that started at or before its start.

        Lifetimes are those of this stream's events; how long the other's last plays no part. Of several that
        started at one time it is the one with the latest end, then with the greatest payload, compared column by column
        (null is the least, nested columns play no part): the order of rows never matters.

        Args:
            other: Where to look.
            on: As in `join`.
            tolerance: How long before at most.
            how: ``"left"`` keeps events that find none, with nulls; ``"inner"`` leaves them out.
            suffix: As in `join`.

        Raises:
            ColumnError: As `join`.
            PlanError: As `join`; or the tolerance is not positive.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> trades = g.events(pa.table({"at": [3, 8], "n": [1, 2]}), start="at", unit="s")
            >>> quotes = g.events(pa.table({"at": [1, 3, 7], "price": [10, 11, 12]}), start="at", unit="s")
            >>> trades.asof_join(quotes).collect()["price"].to_pylist()
            [11, 12]
        """
        left, right, keys = self._beside(other, on)
        limit = None if tolerance is None else positive_ticks(tolerance, name="tolerance")
        return self._with(AsOf(left, right, keys, how, limit, suffix))

    def distinct(self, *columns: str) -> Stream:
        """When each combination of these columns is there at all: each once at any time, as long as can be.

        Overlapping and touching lifetimes become one (Trill: Distinct, whose pieces are cut at every end point). They
        are not grouped any more.

        Args:
            columns: Names of payload columns; all if none is given.

        Raises:
            ColumnError: An unknown column, or one that is nested.

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
            # Each group beside itself.
            named = {name for name, _ in keys}
            keys = (*((name, name) for name in left.scope if name not in named), *keys)
        return *with_common_keys(left, right, keys), keys

    def _check_beside(self, other: object) -> None:
        if not isinstance(other, Joining):
            raise PlanError(
                f"The other stream is a {type(other).__name__}.", remedy="Make a stream of it first: g.events(…)."
            )
        if self._node.on_spark != other._node.on_spark:  # noqa: SLF001  (its own kind)
            raise PlanError(
                "One stream is on Spark and the other one is local.",
                remedy="Give both as DataFrames: spark.createDataFrame(table).",
            )
