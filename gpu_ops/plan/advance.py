"""The node at which time advances, and the node of late events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from gpu_ops.errors import ColumnError, PlanError
from gpu_ops.ingest.advance import Advance
from gpu_ops.plan.nodes import Arrival, Source, SparkSource, Unary, check_flat

__all__ = ["Advance", "AdvanceTime", "Late"]

LATE_COLUMNS = ("cti", "late_by")
"""The columns of a late event besides its payload."""


@dataclass(frozen=True, eq=False)
class AdvanceTime(Unary):
    """The events of a source that are not late by its CTIs.

    ``follows`` is the input of another stream, whose CTIs are imported (StreamInsight: AdvanceTimeImportSettings).
    """

    settings: Advance
    follows: Source | SparkSource | AdvanceTime | None = None

    def __post_init__(self) -> None:
        if isinstance(self.input, SparkSource):
            self._check_spark(self.input)
        elif not isinstance(self.input, Source):
            raise PlanError(
                f"advance_time must follow the source, and here it follows {self.input.describe().split()[0]}.",
                remedy="Call .advance_time(…) right after g.events(…).",
            )
        self._check_followed()
        for name in self.settings.per:
            check_flat(self.schema, name, "tells no partitions apart")

    def _check_spark(self, source: SparkSource) -> None:
        """Refuse what asks for rows in their order of arrival: a batch of Spark has none, nor has an epoch."""
        if not source.endless:
            raise PlanError(
                "advance_time needs rows in their order of arrival, and a Spark DataFrame has none.",
                remedy="Leave advance_time out: Spark answers a query from all rows at once.",
            )
        if self.settings.every is not None:
            raise PlanError(
                f"every={self.settings.every} counts rows in their order of arrival, and an epoch on Spark has none.",
                remedy='Say a span of time: .advance_time("10s", …) gives a CTI after each epoch that goes so far.',
            )
        if self.settings.per:
            raise PlanError(
                f"per={', '.join(self.settings.per)} gives partitions clocks of their own, by their rows in their "
                "order of arrival, and an epoch on Spark has none.",
                remedy="Leave it out, with a delay= as large as partitions are apart; or run the query locally.",
            )
        if self.settings.reorder is not None:
            raise PlanError(
                "reorder= is about rows in their order of arrival, and an epoch on Spark has none.",
                remedy="Leave it out: delay= says how far CTIs lie behind the latest start of earlier epochs.",
            )

    def _check_followed(self) -> None:
        if self.follows is None:
            return
        if not isinstance(self.follows, Source | SparkSource | AdvanceTime):
            raise PlanError(
                f"advance_with takes a stream at its source; this one is behind {self.follows.describe().split()[0]}.",
                remedy="Give what g.events(…) made, with or without .advance_time(…).",
            )
        if _source(self.follows).name in {None, _source(self).name}:
            raise PlanError(
                "The stream that CTIs are imported from needs a name of its own.",
                remedy='Say g.events(…, name="orders"), and give each stream a name of its own.',
            )

    @property
    def source(self) -> Source:
        """The source of the events."""
        assert isinstance(self.input, Source)  # noqa: S101  (held by __post_init__)
        return self.input

    stateless = False

    takes_ends = "passed on"

    comes_in = True

    @property
    def arrival(self) -> Arrival:
        return Arrival(self, self.source, self.settings, self.follows)

    held = "rows are judged one by one as they arrive, on the host"

    @property
    def time_rule(self) -> str:
        if self.settings.per:
            return "late events are judged by the CTI of their partition; the low watermark leaves"
        return "CTIs are made here, and late events judged"

    def describe(self) -> str:
        follows = "" if self.follows is None else f" with={_source(self.follows).name}"
        return f"AdvanceTime {self.settings}{follows}"


def _source(node: Source | SparkSource | AdvanceTime) -> Source | SparkSource:
    below = node.input if isinstance(node, AdvanceTime) else node
    assert isinstance(below, Source | SparkSource)  # noqa: S101  (held by __post_init__)
    return below


@dataclass(frozen=True, eq=False)
class Late(Unary):
    """The late events (``late="divert"``) as they arrived, each with the CTI that it missed and by how much.

    A late start edge and its end edge are one event; without an end edge it never ends. A late end edge of an event
    that was not late gives that event as it would have been.
    """

    def __post_init__(self) -> None:
        node = self.input
        if not isinstance(node, AdvanceTime) or node.settings.late != "divert":
            raise PlanError(
                "late() needs an advance_time that diverts late events, right before it.",
                remedy='Call .late() right after .advance_time(…, late="divert").',
            )
        for name in LATE_COLUMNS:
            if name in node.schema.names:
                raise ColumnError(
                    "Late events get a column of this name.",
                    column=name,
                    remedy="Rename it in the source.",
                )

    @property
    def advance(self) -> AdvanceTime:
        """The node that diverts these events."""
        assert isinstance(self.input, AdvanceTime)  # noqa: S101  (held by __post_init__)
        return self.input

    @cached_property
    def schema(self) -> pa.Schema:
        cti, late_by = LATE_COLUMNS
        return self.input.schema.append(pa.field(cti, pa.timestamp("us", self.zone))).append(
            pa.field(late_by, pa.duration("us"))
        )

    stateless = False

    comes_in = True

    @property
    def arrival(self) -> Arrival:
        return replace(self.advance.arrival, late=True)

    held = "rows are judged one by one as they arrive, on the host"

    time_rule = "late stream: its CTI stays at minus infinity until the end of input"

    def describe(self) -> str:
        return "Late"
