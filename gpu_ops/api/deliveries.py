"""What windows on turns deliver, and when: `deliveries`, `at_ends`, joins of windows, and rates of output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import narwhals as nw
import pyarrow as pa

from gpu_ops.api.contexts import NUMBER, ArrivalContext, at_ends
from gpu_ops.api.stream import Stream
from gpu_ops.core.arguments import flag, whole, word
from gpu_ops.core.own_errors import of_methods
from gpu_ops.core.time import MAX_TIME, Duration, positive_ticks
from gpu_ops.core.turns import BATCH_DUE, CLOCK, DUE, INSTANCE, PLACE, of_stream
from gpu_ops.errors import ColumnError, PlanError, refuse_names, shown, unknown_column
from gpu_ops.plan.aggregates import count
from gpu_ops.plan.arguments import Names, names
from gpu_ops.plan.clock_windows import (
    ClockSpan,
)
from gpu_ops.plan.combinations import Combinable
from gpu_ops.plan.deliveries import Delivered
from gpu_ops.plan.expression_text import text_of
from gpu_ops.plan.expressions import Expression, as_expression, bare_column, check_boolean, column_names
from gpu_ops.plan.joins import named_keys
from gpu_ops.plan.nodes import Filter, Node, Project, check_known, extended
from gpu_ops.plan.per_delivery import RowKey
from gpu_ops.plan.questions import Question, Shown, Which, aggregated_rows, refuse_lifetimes
from gpu_ops.plan.rates import EveryPeriod, EveryRows, Rate
from gpu_ops.plan.turn_joins import Further, TurnJoin, TurnJoinKind


@of_methods
class Delivering:
    """Rows on turns.

    Args:
        rows: The rows: as they come, or while they are in a window.
        ticks: The ticks.
        start: What the clock shows first, if that was said.
        key: The columns that the next window groups by.
        in_batches: Whether rows enter together.
        context: The instances that rows are within, if they are.
        reach: How many ticks before they are told matches may begin; None if nobody knows.
    """

    def __init__(
        self,
        rows: Node,
        ticks: Node,
        *,
        start: int | None = None,
        key: tuple[str, ...] = (),
        in_batches: bool = False,
        context: ArrivalContext | None = None,
        reach: int | None = None,
    ) -> None:
        self._rows, self._ticks, self._start, self._key, self._in_batches = rows, ticks, start, key, in_batches
        self._context, self._reach = context, reach

    @property
    def schema(self) -> pa.Schema:
        """The columns of the events."""
        return pa.schema([each for each in self._rows.schema if not each.name.startswith("@")])

    def deliveries(
        self,
        *columns: Expression,
        by: Names = (),
        where: Expression | None = None,
        having: Expression | None = None,
        shown: Shown = "new",
        distinct: bool = False,
        order_by: Names = (),
        descending: bool | Sequence[bool] = False,
        limit: int | None = None,
        offset: int = 0,
        **named: Any,
    ) -> DeliveredStream:
        """What a listener is handed at each turn at which rows enter or leave (Esper: a select clause).

        | columns and aggregates | new rows of a turn | old rows |
        |---|---|---|
        | columns alone | one for each row that enters | one for each that leaves |
        | aggregates alone | one, with the values after the turn | one, with those before it |
        | both | one for each row that enters, with the values after the turn | one for each that leaves, likewise |
        | ``by=``, and no other columns than these | one for each group that changed, with the values after the turn | one, with those before it |
        | ``by=``, and other columns | one for each row that enters, with its group's values after the turn | one for each that leaves, likewise |

        Args:
            columns: Names, and expressions of each row by itself. Without any, and without aggregates, all columns.
            by: The columns of groups.
            where: A condition on rows: others are in the window, but neither delivered nor aggregated.
            having: A condition on the columns of the answer.
            shown: ``"new"``: the rows of the insert stream; ``"old"``: those of the remove stream; ``"both"``.
            distinct: Whether equal rows of a delivery are one, of those that `limit` leaves.
            order_by: Columns of the answer by which each delivery is ordered; null is the least value.
            descending: Whether the greatest come first; a bool, or one for each column.
            limit: How many rows a delivery has at most, equal ones counted.
            offset: How many are left out before them.
            named: Expressions and aggregates by their names: ``total=g.sum("amount")``.

        Returns:
            A stream of ``turn``, ``row`` (``"new"`` or ``"old"``), and the columns, which `DeliveredStream.output`
            holds back. The lifetime of a row is the tick at which the clock showed its turn's time.

        Raises:
            ColumnError: A column is unknown, or a name is taken.
            PlanError: An argument is no condition, or an aggregate reads lifetimes.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> drawn = pa.table({"at": [0, 1, 2], "account": ["a", "b", "a"], "amount": [5, 7, 9]})
            >>> last = g.arrivals(g.events(drawn, start="at", unit="s")).last(2)
            >>> last.deliveries("amount", shown="both").collect().select(["turn", "row", "amount"]).to_pylist()[-2:]
            [{'turn': 6, 'row': 'new', 'amount': 9}, {'turn': 6, 'row': 'old', 'amount': 5}]
            >>> last.deliveries(total=g.sum("amount"), having=g.col("total") > 6).collect()["total"].to_pylist()
            [12, 16]
        """  # noqa: E501
        word(shown, get_args(Shown), name="shown")
        groups = names(by, where="by=")
        check_known(self._rows.schema, groups)
        rows = self._rows if where is None else Filter(self._rows, self._condition(where, "where="))
        given = {_name_of(each): as_expression(each, where="deliveries") for each in columns}
        if len(given) < len(columns):
            raise ColumnError("Two columns have one name.", remedy="Name them: total=….")
        for name in named:
            if name in given:
                raise ColumnError("Two columns have this name.", column=name, remedy="Give one of them another.")
        if not columns and not named:
            given = {name: nw.col(name) for name in self.schema.names}
        plain = given | {
            name: as_expression(each, where="deliveries")
            for name, each in named.items()
            if not isinstance(each, Combinable)
        }
        read = {name for each in plain.values() for name in self._read(each)}
        rows, made, aggregates = aggregated_rows(
            rows, {name: each for name, each in named.items() if isinstance(each, Combinable)}
        )
        if groups and read <= {*groups} and not aggregates:
            aggregates = (Delivered(replace(count(), name="@value 0")),)  # groups are known by it
        answer = {**given, **{name: plain[name] if name in plain else made[name] for name in named}}
        if self._context is not None and (groups or aggregates):
            groups = tuple(dict.fromkeys((INSTANCE, NUMBER, *groups)))
        return DeliveredStream(
            Question(
                rows,
                self._ticks,
                answer,
                groups,
                aggregates,
                not read <= {*groups},
                None if having is None else as_expression(having, where="having="),
                shown,
                flag(distinct, name="distinct"),
                _order(order_by, descending, answer),
                None if limit is None else whole(limit, name="limit", least=0),
                whole(offset, name="offset", least=0),
                self._in_batches,
                instances=None if self._context is None else self._context._node,  # noqa: SLF001  (the nodes of verbs)
            ),
            self._start,
        )

    def _read(self, expression: nw.Expr) -> list[str]:
        """The columns that an expression of a row reads."""
        refuse_lifetimes(expression)
        return column_names(expression, self._rows.schema.names)

    def _condition(self, given: Expression, where: str) -> nw.Expr:
        condition = as_expression(given, where=where)
        self._read(condition)
        check_boolean(self._rows.schema, condition, where=where)
        return condition


@of_methods
class ArrivalWindow(Delivering):
    """A window on turns: the rows that are in it, from turn to turn. Made by the verbs of an `ArrivalStream`."""

    def __repr__(self) -> str:
        return f"<ArrivalWindow {self._rows.explained()}>"

    def at_ends(self, **aggregates: Combinable) -> Stream:
        """A row for each instance where it ends, with aggregates of what it holds then (Esper: output when terminated).

        An instance that holds nothing has a row too: its counts are 0, other aggregates null.

        Args:
            aggregates: The aggregates by their names.

        Returns:
            A stream of ``turn``, ``row``, ``instance``, the columns of the arrival that started it, and the aggregates.

        Raises:
            PlanError: The rows are within no instances, or an aggregate reads lifetimes.
            ColumnError: A column is unknown, or a name is taken.
        """
        if self._context is None:
            raise PlanError("These rows are within no instances.", remedy="Say .within(logins.until(logouts, on=…)).")
        return Stream(at_ends(self._rows, self._context, aggregates))

    def join(
        self, other: ArrivalWindow, *, on: Any = None, how: TurnJoinKind = "inner", suffix: str = "_right"
    ) -> ArrivalWindow:
        """Pairs of rows of two windows, while both are in (Esper: joins).

        Outer joins do not retract: a row with nulls is new where it enters without a match, and old where it leaves
        without one; no row says that a match has come or gone.

        Args:
            other: A window over another stream of the same `arrivals`.
            on: The key columns: a name, several, or a mapping from left names to right ones. Null equals nothing.
                Without it each row meets all others.
            how: ``"inner"``, ``"left"``, ``"right"`` or ``"full"``.
            suffix: Behind the name of a column of ``other`` that this window has too.

        Raises:
            ColumnError: A column is unknown, key types differ, or a name is taken with the suffix too.
            PlanError: The windows are not of one `arrivals`.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> asks = g.events(pa.table({"at": [0, 2], "item": ["a", "b"], "ask": [3, 4]}), start="at", unit="s")
            >>> bids = g.events(pa.table({"at": [1, 3], "item": ["b", "b"], "bid": [2, 5]}), start="at", unit="s")
            >>> one, two = g.arrivals(asks, bids)
            >>> met = one.last(1).join(two.last(1), on="item").deliveries("item", "ask", "bid", shown="both").collect()
            >>> [(row["turn"], row["row"], row["ask"], row["bid"]) for row in met.to_pylist()]
            [(6, 'new', 4, 2), (8, 'new', 4, 5), (8, 'old', 4, 2)]
        """
        if self._context is not None or getattr(other, "_context", None) is not None:
            raise PlanError("Windows within instances are not joined by verbs.", remedy="Write it in EPL: context C ….")
        if getattr(other, "_ticks", None) is not self._ticks:
            raise PlanError(
                "The windows are not on the turns of one clock.",
                remedy="Make both of one g.arrivals(one, other), and windows of these.",
            )
        mine, theirs = self.schema.names, other.schema.names
        if not isinstance(suffix, str):
            raise PlanError(f"suffix is {shown(suffix)}, not a text.", remedy='Write suffix="_right", for instance.')
        renamed = {name: f"{name}{suffix}" if name in mine else name for name in theirs}
        refuse_names(renamed.values())
        for name in renamed.values():
            if name in mine or list(renamed.values()).count(name) > 1:
                raise ColumnError(
                    "Both windows have a column of this name.", column=name, remedy="Give another suffix=."
                )
        keys = tuple((one, renamed[two]) for one, two in named_keys(on, self._rows, other._rows))
        sides = (
            _of_join(self._rows, {name: name for name in mine}, 0),
            _of_join(other._rows, renamed, 1),
        )
        # A join makes rows after all that falls due at a tick: whatever is output then does not have them.
        last = nw.lit(MAX_TIME).cast(nw.Datetime("us", "UTC"))
        made = extended(TurnJoin(sides, (Further(how, keys),)), [last.alias(DUE), last.alias(BATCH_DUE)])
        return ArrivalWindow(made, self._ticks, start=self._start)


@of_methods
class DeliveredStream(Stream):
    """A stream of deliveries, which may be held back."""

    def __init__(self, question: Question, start: int | None) -> None:
        self._question, self._start = question, start
        super().__init__(question.node)

    def output(
        self,
        which: Which = "",
        *,
        every: int | Duration | None = None,
        after: int | Duration | None = None,
    ) -> Stream:
        """Deliveries at a rate (Esper: output).

        Time rates fire on a grid that begins when the first rows come, as the clock reaches each point of it; over
        several points at once they fire once.

        Args:
            which: Which rows since the last time: ``""`` all, as they came; ``"last"``: the last new and the last old
                one, of groups those of each group that changed; ``"all"``: of groups also the others' last rows;
                ``"first"``: at once the first of each interval, of groups the first of each group; ``"snapshot"``: the
                whole content of the window.
            every: A number of rows that have entered, or left, or a span.
            after: How many rows must have entered before any output, or how much time must have passed since ``start=``
                of `arrivals`. Rows from before are in the first output of ``"last"`` and ``"all"`` without an order;
                in others they are not, if they have no aggregates.

        Raises:
            PlanError: The rate makes no sense, or gpu_ops does not have it for this question.

        Examples:
            >>> import gpu_ops as g
            >>> import pyarrow as pa
            >>> seen = pa.table({"at": [0, 4, 5, 12], "taxi": ["a", "a", "b", "a"], "zone": [1, 2, 3, 4]})
            >>> places = g.arrivals(g.events(seen, start="at", unit="s")).deliveries("taxi", "zone", by="taxi")
            >>> places.output("first", every="10s").collect()["zone"].to_pylist()
            [1, 3, 4]
        """
        word(which, get_args(Which), name="which")
        if every is None and (after is None or which):
            raise PlanError("output needs a rate.", remedy='Say every="1s", or every=100 rows.')
        at: EveryRows | EveryPeriod | None = None
        if every is not None:
            at = EveryRows(every) if isinstance(every, int) else EveryPeriod(clock_span(every, "every"))
        rate = Rate(at)
        if isinstance(after, int):
            rate = replace(rate, after_rows=whole(after, name="after", least=0))
        elif after is not None:
            if self._start is None:
                raise PlanError(
                    "Nothing says when the time before the first output begins.", remedy="Say g.arrivals(…, start=…)."
                )
            rate = replace(rate, after=clock_span(after, "after"), since=self._start)
        return Stream(replace(self._question, rate=rate, which=which).node)


def clock_span(given: Any, name: str) -> ClockSpan:
    """A span of the clock; `name` is the argument's, for errors."""
    return ClockSpan(ticks=positive_ticks(given, name=name))


def _name_of(given: Expression) -> str:
    """What a column is called."""
    expression = as_expression(given, where="deliveries")
    bare = bare_column(expression)
    if bare is not None:
        return bare
    last = expression._nodes[-1]  # noqa: SLF001
    if last.name != "alias":
        raise PlanError(f"deliveries has no name for {text_of(expression)}.", remedy="Give it one: twice=g.col(…) * 2.")
    return str(last.kwargs["name"])


def _order(order_by: Names, descending: bool | Sequence[bool], answer: Mapping[str, Any]) -> tuple[RowKey, ...]:  # noqa: FBT001
    columns = names(order_by, where="order_by=")
    said: object = descending  # whatever was handed in
    if not isinstance(said, bool | Sequence) or isinstance(said, str | bytes):
        raise PlanError(
            f"descending is {shown(descending)}.", remedy="It is True or False, or one of these for each column."
        )
    down = [descending] * len(columns) if isinstance(descending, bool) else list(descending)
    if len(down) != len(columns):
        raise PlanError(
            f"descending says {len(down)} times what is said of {len(columns)} columns.", remedy="Give one for each."
        )
    for name in columns:
        if name not in answer:
            raise unknown_column(name, list(answer), what="answer")
    return tuple(RowKey(name, flag(each, name="descending")) for name, each in zip(columns, down, strict=True))


def _of_join(rows: Node, named: Mapping[str, str], number: int) -> Node:
    """The rows of one side of a join, under names that the other has not."""
    columns = [nw.col(name).alias(other) for name, other in named.items()]
    special = [nw.col(name).alias(of_stream(name, number)) for name in (PLACE, CLOCK)]
    return Project(rows, (*columns, *special), keep=False)
