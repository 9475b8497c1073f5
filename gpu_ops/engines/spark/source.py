"""Spark DataFrames as events: their rows are validated here, before anything else reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (its usual name)
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from gpu_ops.core.time import LIFETIME, MAX_TIME, MIN_TIME, TICK
from gpu_ops.engines.spark.checks import checked, shown
from gpu_ops.engines.spark.pushing import cheap_to_look_at
from gpu_ops.engines.spark.sending import Sent
from gpu_ops.engines.spark.session import check_names, check_session
from gpu_ops.engines.spark.types import arrow_type, column, to_ticks
from gpu_ops.errors import ColumnError, PlanError, unknown_column
from gpu_ops.ingest.kinds import KindColumns
from gpu_ops.ingest.opening import check_options, refuse_kept_names, time_columns
from gpu_ops.ingest.rules import (
    AMBIGUOUS,
    NEGATIVE_LENGTH,
    NONEXISTENT,
    NULL,
    OUTSIDE,
    TOO_FINE,
    UNKNOWN_KIND,
    ZERO_LENGTH,
    Ambiguous,
    Nonexistent,
    NullEnd,
    OnInvalid,
    Round,
    TimeRule,
    Unit,
)
from gpu_ops.ingest.sources import payload_columns
from gpu_ops.ingest.times import TimeColumn, TimePolicy
from gpu_ops.ingest.validate import BREACHES, Breach
from gpu_ops.ingest.zones import Zone
from gpu_ops.plan.nodes import SparkSource

_OF_MESSAGES = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns that Spark's connector for Kafka has for a message."""

FAULT = "__gpu_ops_fault"
"""The column that says of a row what was dropped where it was made: it is no event."""

CTI = "__gpu_ops_cti"
"""The column with the CTI of a row that is one, and no event."""

_START, _END = "__gpu_ops_start", "__gpu_ops_end"
_LOCAL = {"start": "__gpu_ops_local_start", "end": "__gpu_ops_local_end"}
_TICKS = {"s": 1_000_000, "ms": 1_000, "us": 1}
_FAULTS = {AMBIGUOUS: -(1 << 63), NONEXISTENT: -(1 << 63) + 1}
"""The instants that stand for refused local times: far outside the years 1 to 9999."""


def open_spark(
    frame: DataFrame,
    *,
    start: str,
    end: str | None = None,
    unit: Unit | None = None,
    zone: str | None = None,
    round: Round | None = None,  # noqa: A002  (the word that users look for)
    null_end: NullEnd = "raise",
    on_invalid: OnInvalid = "raise",
    ambiguous: Ambiguous = "raise",
    nonexistent: Nonexistent = "raise",
    name: str | None = None,
    faults: str | None = None,
    kind: str | None = None,
) -> SparkSource:
    """A Spark DataFrame as a source of events; nothing runs. The arguments are those of `gpu_ops.events`.

    Rows that have something in the column ``faults`` are no events: they pass as they are, with null times. So do rows
    that are CTIs by the column ``kind``, with the CTI in a column of its own.

    Times may be TIMESTAMP, TIMESTAMP_NTZ (with ``zone``), DATE (midnight in ``zone``, else in UTC) or integers (with
    ``unit``). All rows are validated where they are read, before any filter of the query; or, where such a filter can
    be left to Parquet or ORC files, by a look at the time columns alone before that.

    Raises:
        ColumnError: A column is unknown, twice there, of a type that events cannot carry, or called ``start`` or
            ``end`` without being the lifetime.
        TimeError: A time column's type needs a zone or a unit, or is no time.
        PlanError: A policy that does not exist; a session whose zone is not UTC.

    Examples:
        >>> frame = spark.createDataFrame([(0, 60, "A")], "pickup long, dropoff long, zone string")
        >>> open_spark(frame, start="pickup", end="dropoff", unit="s").schema
        zone: string
    """
    check_options(
        start,
        end,
        null_end=null_end,
        on_invalid=on_invalid,
        ambiguous=ambiguous,
        nonexistent=nonexistent,
        unit=unit,
        round=round,
    )
    check_session(frame)
    times = [start] if end is None else [start, end]
    policy = TimePolicy(unit, None if zone is None else Zone(zone), round, ambiguous, nonexistent)
    _refuse_undecoded(frame, times)
    known = pa.schema([(field.name, _time_type(field.dataType)) for field in frame.schema])
    latest = MAX_TIME if end is not None else MAX_TIME - 2 * TICK  # a point must end, and before the open end
    sides = [_instants(each, null_end, latest) for each in time_columns(known, times, policy, text=False)]
    payload = payload_columns([name for name in frame.columns if name not in (faults, kind)], times)
    refuse_kept_names(payload, ["rule"] if on_invalid == "divert" else [])
    check_names(frame, list(payload))
    read = {name: frame.schema[source] for name, source in payload.items()}
    schema = pa.schema(
        [pa.field(name, arrow_type(each.name, each.dataType), each.nullable) for name, each in read.items()]
    )
    said = None
    if kind is not None:
        _check_kind(frame, kind)
        at = time_columns(known, times[:1], policy, text=False)[0]
        said = _Said(F.lower(column(kind)), _instants(at, "raise", MAX_TIME))
    judged = _judged(frame, sides, latest, faults, said)
    raises = on_invalid == "raise"
    message = _message(judged.broken, times)
    good = checked(judged.frame, judged.valid, message) if raises else judged.frame.where(judged.valid)

    def events(rows: DataFrame) -> DataFrame:
        lifetime = [column(name).alias(side) for name, side in zip((_START, _END), LIFETIME, strict=False)]
        read = [column(source).alias(name) for name, source in payload.items()]
        beside = [name for name in (faults, None if kind is None else CTI) if name is not None]
        return rows.select(*lifetime[: len(times)], *read, *map(column, beside))

    def refused() -> DataFrame:
        named = judged.frame.withColumn("rule", _rule_name(judged.broken))
        return named.where(column("rule").isNotNull()).select(*(column(name) for name in frame.columns), "rule")

    def validated_first() -> DataFrame | None:
        return events(_validated_first(judged, message)) if raises and cheap_to_look_at(frame) else None

    return SparkSource(
        events(good),
        schema,
        "UTC",
        end is None,
        None if "rule" in frame.columns else refused,
        validated_first,
        drops=not raises,
        name=name,
        endless=frame.isStreaming,
        faults=faults,
        ctis=None if kind is None else CTI,
    )


def _check_kind(frame: DataFrame, kind: str) -> None:
    """Refuse a column of kinds that is none, or that no stream reads."""
    if not frame.isStreaming:
        raise PlanError(
            "kind= is about rows in their order of arrival, and a batch DataFrame of Spark has none.",
            remedy="Leave out rows that are CTIs: Spark answers a query from all rows at once.",
        )
    if kind not in frame.columns:
        raise unknown_column(kind, frame.columns, what="DataFrame")
    KindColumns(kind).check(pa.schema([(kind, _time_type(frame.schema[kind].dataType))]))


def _refuse_undecoded(frame: DataFrame, times: Sequence[str]) -> None:
    """Refuse messages of Kafka as Spark's connector reads them, where the times are still in their values.

    Raises:
        ColumnError: They are.
    """
    missing = [name for name in times if name not in frame.columns]
    if missing and set(_OF_MESSAGES) <= set(frame.columns):
        raise ColumnError(
            "The DataFrame has the messages of a topic of Kafka, whose values are not decoded.",
            column=missing[0],
            remedy='Have them decoded: g.events(g.kafka("bids", servers="…", value="json", schema=…), start="at", '
            'spark=spark). Or decode them: frame.select(F.from_json(F.col("value").cast("string"), "at timestamp, '
            'item string").alias("v")).select("v.*").',
        )


def _time_type(dtype: spark_types.DataType) -> pa.DataType:
    """The Arrow type by which `TimeColumn` decides whether a column can hold times."""
    try:
        return to_arrow_type(dtype)
    except Exception:  # noqa: BLE001  (types without an Arrow type are no times; PySpark raises errors of several kinds)
        return pa.null()


@dataclass(frozen=True)
class _Instants:
    """The instants of one of the two time columns, as expressions.

    Attributes:
        time: TIMESTAMP; null or any value where a rule is broken.
        faults: The conditions under which a row breaks a rule.
        local: The LONG instant of a local time that Python has to find. It becomes a column that the others read.
    """

    time: Column
    faults: dict[TimeRule, Column]
    local: Column | None = None


def _instants(times: TimeColumn, null_end: NullEnd, latest: int) -> _Instants:
    """The instants of a column, of which ``latest`` is the last that is valid."""
    value, kind = column(times.name), times.kind
    nulls = {NULL: value.isNull()}
    if pa.types.is_integer(kind):
        made = _counted(value.cast("long"), times.policy, latest)
    elif pa.types.is_timestamp(kind) and kind.tz is not None:
        made = _Instants(value, {OUTSIDE: _outside(value, latest)})
    else:
        made = _local(value, times, latest)
    if times.side == "end" and null_end == "open":
        return _Instants(F.when(value.isNull(), _instant(MAX_TIME)).otherwise(made.time), made.faults, made.local)
    return _Instants(made.time, nulls | made.faults, made.local)


def _instant(ticks: int) -> Column:
    return F.timestamp_micros(_long(ticks))


def _long(value: int) -> Column:
    return F.lit(value).cast("long")


def _outside(time: Column, latest: int) -> Column:
    return (time < _instant(MIN_TIME)) | (time > _instant(latest))


def _counted(count: Column, policy: TimePolicy, latest: int) -> _Instants:
    """Instants of counts since 1970."""
    unit = policy.unit or "us"
    if unit != "ns":
        factor = _TICKS[unit]
        inside = count.between(-(-MIN_TIME // factor), latest // factor)
        return _Instants(F.timestamp_micros(F.when(inside, count * _long(factor))), {OUTSIDE: ~inside})
    thousand = _long(1000)
    rest = F.pmod(count, thousand)
    # `div` cuts towards zero; division by `/` would go through double and lose digits.
    whole = F.call_function("div", count, thousand) - F.when((rest != 0) & (count < 0), _long(1)).otherwise(_long(0))
    if policy.round is None:
        time = F.timestamp_micros(whole)
        return _Instants(time, {OUTSIDE: _outside(time, latest), TOO_FINE: rest != 0})
    odd = F.pmod(whole, _long(2)) == 1
    up = {"floor": F.lit(False), "ceil": rest != 0, "half_even": (rest > 500) | ((rest == 500) & odd)}[policy.round]
    time = F.timestamp_micros(whole + up.cast("long"))
    return _Instants(time, {OUTSIDE: _outside(time, latest)})


def _local(value: Column, times: TimeColumn, latest: int) -> _Instants:
    """Instants of dates and local times. The session's zone is UTC, so a cast reads them as UTC."""
    shown_there = value.cast("timestamp")
    if times.policy.zone is None or times.policy.zone.name == "UTC":
        return _Instants(shown_there, {OUTSIDE: _outside(shown_there, latest)})
    inside = shown_there.between(_instant(MIN_TIME), _instant(MAX_TIME))
    ticks = column(_LOCAL[times.side])
    marks = {rule: ticks == _long(mark) for rule, mark in _FAULTS.items()}
    instant = F.when(ticks > max(_FAULTS.values()), F.timestamp_micros(ticks))
    outside = ~inside | _outside(instant, latest)
    return _Instants(
        instant, {OUTSIDE: outside, **marks}, _in_zone(times.policy)(F.when(inside, to_ticks(shown_there)))
    )


def _in_zone(policy: TimePolicy) -> Any:
    """A column function from local ticks to ticks, by the same rules as in local sources (`Zone.to_utc`)."""
    run = Sent(partial(_local_to_utc, policy))

    def to_utc(shown_there: pa.Array) -> pa.Array:
        return run(shown_there)

    # Nondeterministic, so that Spark keeps the column and does not compute it again where it is read.
    made: Any = arrow_udf(to_utc, "long")  # type: ignore[call-overload]  # the hints above say which kind it is
    return made.asNondeterministic()


def _local_to_utc(policy: TimePolicy, shown_there: pa.Array) -> pa.Array:
    missing = shown_there.is_null().to_numpy(zero_copy_only=False)
    zone: Any = policy.zone
    ticks, found = zone.to_utc(shown_there.fill_null(0).to_numpy(), policy.ambiguous, policy.nonexistent)
    ticks = np.array(ticks)
    for rule, mask in found.items():
        ticks[mask] = _FAULTS[rule]
    return pa.array(ticks, mask=missing)


@dataclass(frozen=True)
class _Judged:
    """A frame whose rows have lifetimes, with conditions that say which are valid.

    Attributes:
        frame: All rows, with the columns that the conditions read.
        valid: Whether a row is an event; null counts as no.
        broken: The conditions under which a row breaks a rule, in the order of the rules.
    """

    frame: DataFrame
    valid: Column
    broken: list[tuple[Breach, Column]]


def _validated_first(judged: _Judged, message: Column) -> DataFrame:
    """All rows, of which Spark reads none before it has looked at the times of all: an invalid one is an error.

    It looks by a subquery of its own, which reads the time columns alone, and of files whose statistics exclude that a
    start is null or outside of all years, no rows of points. So no filter needs to stand above the validation, and
    Spark moves those of the query to the files. The rows that are left are validated again, where they are read.
    """
    refused = F.raise_error(message).cast("boolean")
    broken = reduce(Column.__or__, (condition for _, condition in judged.broken))
    found = judged.frame.where(broken).select(F.max(refused)).scalar()
    return judged.frame.where(found.isNull()).where(F.when(judged.valid, F.lit(True)).otherwise(refused))


@dataclass(frozen=True)
class _Said:
    """What a column of kinds says of rows.

    Attributes:
        kind: The kind, in small letters.
        cti: The CTI of a row that is one, which may be at infinity.
    """

    kind: Column
    cti: _Instants

    @property
    def is_cti(self) -> Column:
        """Whether a row is a CTI; never null."""
        return F.coalesce(self.kind == "cti", F.lit(False))

    @property
    def unknown(self) -> Column:
        """Whether it is neither a CTI nor an event."""
        return F.coalesce(~self.kind.isin("insert", "cti"), F.lit(True))


def _judged(
    frame: DataFrame, sides: list[_Instants], latest: int, faults: str | None, said: _Said | None = None
) -> _Judged:
    local = {name: side.local for name, side in zip(_LOCAL.values(), sides, strict=False) if side.local is not None}
    located = frame.withColumns(local) if local else frame
    times = {name: side.time for name, side in zip((_START, _END), sides, strict=False)}
    if said is not None:
        times = {name: F.when(~said.is_cti, time) for name, time in times.items()}
        times[CTI] = F.when(said.is_cti, said.cti.time)
    timed = located.withColumns(times)
    start, end = column(_START), column(_END)
    if len(sides) == 2:
        valid = (start >= _instant(MIN_TIME)) & (start < end) & (end <= _instant(MAX_TIME))
    else:
        valid = (start >= _instant(MIN_TIME)) & (start <= _instant(latest))
    found: dict[tuple[TimeRule, str], Column] = {}
    for name, side in zip(LIFETIME, sides, strict=False):
        found |= {(rule, name): condition for rule, condition in side.faults.items()}
        if TOO_FINE in side.faults:  # every other fault of a side gives no time, or one outside of all years
            valid = valid & ~side.faults[TOO_FINE]
    if len(sides) == 2:
        found |= {(NEGATIVE_LENGTH, "end"): start > end, (ZERO_LENGTH, "end"): start == end}
    if said is not None:
        found = {rule: condition & ~said.is_cti for rule, condition in found.items()}
        for rule, condition in said.cti.faults.items():
            found[rule, "start"] |= condition & said.is_cti
        promised = column(CTI).between(_instant(MIN_TIME), _instant(MAX_TIME))
        promised &= ~said.cti.faults.get(TOO_FINE, F.lit(False))
        valid = F.when(said.is_cti, promised).otherwise(valid & ~said.unknown)
        found[UNKNOWN_KIND, "kind"] = said.unknown
    broken = [(breach, found[breach.rule, breach.side]) for breach in BREACHES if (breach.rule, breach.side) in found]
    if faults is not None:
        valid = valid | column(faults).isNotNull()
        broken = [(breach, condition & column(faults).isNull()) for breach, condition in broken]
    return _Judged(timed, valid, broken)


def _rule_name(broken: list[tuple[Breach, Column]]) -> Column:
    """The first rule that a row breaks; null where it breaks none."""
    return F.coalesce(*(F.when(condition, F.lit(breach.name)) for breach, condition in broken))


def _message(broken: list[tuple[Breach, Column]], times: list[str]) -> Column:
    """The error's text for a row: the rule that it breaks, its times, and what to do."""
    values = [part for name in times for part in (F.lit(", "), shown(name, column(name)))][1:]
    said = []
    for breach, condition in broken:
        place = f"[column {times[-1 if breach.side == 'end' else 0]!r}, "
        problem = F.lit(f"gpu_ops.errors.TimeError: {breach.problem} ({breach.name}). {place}")
        text = F.concat(problem, *values, F.lit(f"] {breach.remedy}"))
        said.append(F.when(condition, text))
    return F.coalesce(*said)
