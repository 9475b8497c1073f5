"""Which device runs a plan: the requested one, or the CPU if an expression would mean something else on a GPU.

cuDF lacks some types, and stores their values as other types (`gpu_ops.devices.cuda.lowering`). Moving, ordering or
counting values gives the same results, but an expression on a date would there be evaluated on a number. Of the types
that it has, it computes some functions otherwise or not at all: `_OTHERWISE` has those that were seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import narwhals as nw
import pyarrow as pa

from gpu_ops.core.time import LIFETIME, TIME_TYPE
from gpu_ops.devices import Device, choose
from gpu_ops.devices.cuda.lowering import device_type
from gpu_ops.errors import DeviceError
from gpu_ops.plan.expression_text import text_of
from gpu_ops.plan.expressions import column_names, values
from gpu_ops.plan.nodes import Node
from gpu_ops.plan.terms import Term


def place(plan: Node, name: str) -> Device:
    """The device for a plan: as `choose`, but ``"auto"`` is the CPU if an expression means something else on a GPU.

    Raises:
        DeviceError: ``"gpu"`` was requested, and an expression of the plan means something else there; or as `choose`.
        PlanError: As `choose`.
    """
    chosen = choose(name)
    misread = misreading(plan) if chosen.name == "gpu" else None
    if misread is None:
        return chosen
    if name == "auto":
        return replace(choose("cpu"), why=f"auto: a GPU was found, but {misread}")
    raise DeviceError(
        f"The query cannot run on a GPU: {misread}.",
        remedy='Use device="auto" or "cpu"; docs/gpu.md says which expressions mean the same there.',
    )


def misreading(plan: Node) -> str | None:
    """The first part of a plan's expressions that would mean something else on a GPU, in words; None if there is none.

    Examples:
        >>> import datetime, gpu_ops as g
        >>> days = pa.table({"at": pa.array([0]), "day": pa.array([0], pa.date32())})
        >>> stream = g.events(days, start="at", unit="s")
        >>> misreading(stream.filter(g.col("day") == g.col("day"))._node) is None
        True
        >>> misreading(stream.select(year=g.col("day").dt.year())._node)
        "dt.year in day.dt.year() as year reads 'day', a date32[day], which is there as int32"
    """
    found = (_misread(*each) for node in plan.walk() for each in node.computed)
    return next((each for each in found if each is not None), None)


def _misread(expression: nw.Expr, payload: pa.Schema) -> str | None:
    types = {field.name: field.type for field in payload} | dict.fromkeys(LIFETIME, TIME_TYPE)
    try:
        parts = [each for value in values([expression], payload).values() for each in value.walk()]
    except Exception:  # noqa: BLE001  (an expression that fails here has parts that we cannot read)
        read = [values([nw.col(name)], payload)[name] for name in column_names(expression, list(types))]
        lost = [f"{each.options['name']!r}" for each in read if is_stood_for(each.dtype)]
        return f"{text_of(expression)} cannot be looked into and reads {', '.join(lost)}" if lost else None
    # A literal is judged with the function that takes it.
    own = (each for each in parts if not all(map(_is_same, (each, *(one for one in each.terms if one.name == "lit")))))
    wrong = next(own, None)
    if wrong is None:
        return None
    part = f"{wrong.name} in {text_of(expression)}"
    if _is_otherwise(wrong):
        return f"{part} is computed otherwise there, or not at all"
    for each in wrong.walk():
        if each.name == "col" and is_stood_for(each.dtype):
            name = each.options["name"]
            return f"{part} reads {name!r}, a {types[name]}, which is there as {device_type(types[name])}"
    return f"{part} gives a {wrong.dtype}, and there is no column of these there"


def is_stood_for(dtype: nw.dtypes.DType) -> bool:
    """Whether a GPU stores this type, or one within it, as another."""
    if isinstance(dtype, nw.Datetime):
        return dtype.time_zone is not None
    if isinstance(dtype, nw.Struct):
        return any(is_stood_for(_made(field.dtype)) for field in dtype.fields)
    if isinstance(dtype, nw.List | nw.Array):
        return is_stood_for(_made(dtype.inner))
    known = dtype.is_numeric() and not isinstance(dtype, nw.Float16)
    return not (known or isinstance(dtype, nw.Boolean | nw.String | nw.Duration))


def _made(dtype: nw.dtypes.DType | type[nw.dtypes.DType]) -> nw.dtypes.DType:
    return dtype() if isinstance(dtype, type) else dtype


_TEXTS = (nw.Categorical, nw.Enum, nw.String)


def _is_same(term: Term) -> bool:
    """Whether a part of an expression gives the same on a GPU, where its inputs are stored as other types."""
    if term.name == "lit":
        # A zoned time is there as it is in UTC (`gpu_ops.operators.cudf_expressions`).
        return term.options["value"] is None or isinstance(term.dtype, nw.Datetime) or not is_stood_for(term.dtype)
    if _is_otherwise(term):
        return False
    taken = [each for each in term.terms if not (each.name == "lit" and each.options["value"] is None)]
    if not any(is_stood_for(each.dtype) for each in (term, *taken)):
        return True
    rule = _RULES.get(term.name)
    return term.name in _PASSING or (rule is not None and rule(term, [each.dtype for each in taken]))


Rule = Callable[[Term, Sequence[nw.dtypes.DType]], bool]


def _alike(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """All inputs have one type: values are equal there if their stored forms are."""
    return len(set(given)) == 1


def _equal(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    return all(isinstance(each, _TEXTS) for each in given) or _ordered(term, given)


def _ordered(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """Dates, times and bytes have the order of their stored forms; categories may have an order of their own."""
    return isinstance(given[0], nw.Date | nw.Time | nw.Datetime | nw.Binary | nw.Float16) and _alike(term, given)


def _chosen(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """``when``: the values after the condition have one type."""
    return _alike(term, given[1:]) and not is_stood_for(given[0])


def _moved(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """Instants and durations of one unit: their numbers are added, whatever their time zone."""
    times = all(isinstance(each, nw.Datetime | nw.Duration) for each in given)
    if not times or len({each.time_unit for each in given}) != 1:  # type: ignore[attr-defined]
        return False
    instants = [each for each in given if isinstance(each, nw.Datetime)]
    # The difference of two instants is a duration if they have one type, as Narwhals requires.
    return all(each.time_zone is not None for each in instants) and (len(instants) == 1 or _alike(term, instants))


def _instants(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    return isinstance(given[0], nw.Datetime)


def _in_utc(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """Parts of a local time: cuDF has no time zones, so only those in UTC are right there."""
    return isinstance(given[0], nw.Datetime) and given[0].time_zone == "UTC"


def _cast(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    if not given:  # null
        return isinstance(term.dtype, nw.Datetime)
    (source,) = given
    if isinstance(source, _TEXTS):
        return isinstance(term.dtype, nw.String)
    if isinstance(source, nw.Float16):
        return isinstance(term.dtype, nw.Float32 | nw.Float64)
    if isinstance(source, nw.Unknown):  # nulls alone
        return not is_stood_for(term.dtype)
    if isinstance(term.dtype, nw.Datetime) and (isinstance(source, nw.Datetime) or source.is_integer()):
        return term.dtype.time_zone is not None
    return isinstance(source, nw.Date | nw.Time | nw.Datetime) and isinstance(term.dtype, nw.Int32 | nw.Int64)


def _is_in(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    return isinstance(given[0], _TEXTS) and all(isinstance(each, str) for each in term.options["other"])


def _is_otherwise(term: Term) -> bool:
    rule = _OTHERWISE.get(term.name)
    given = [each.dtype for each in term.terms]
    if any(each.is_decimal() for each in given) and not _is_right_of_decimals(term, given):
        return True
    return rule is not None and rule(term, given)


def _is_right_of_decimals(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """Sums and differences of two decimals are right, and what moves them."""
    if term.name in {"__add__", "__sub__"}:
        return all(each.is_decimal() for each in given)
    moved = {"alias", "when_then", "coalesce", "fill_null", "is_null", "__neg__", "abs", "struct.field", "list.get"}
    return term.name in moved or (term.name == "cast" and not term.dtype.is_decimal())


def _always(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """Of all types."""
    return True


def _of_durations(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    return any(isinstance(each, nw.Duration) for each in given)


def _of_floats(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    return any(each.is_float() for each in given)


def _scaled(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """A duration times a float."""
    return _of_durations(term, given) and _of_floats(term, given)


def _written_otherwise(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """``True`` for ``true``, and no cast to a decimal."""
    return term.dtype.is_decimal() or (isinstance(given[0], nw.Boolean) and isinstance(term.dtype, nw.String))


def _null_alone(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """``when`` without a branch that is not null (`gpu_ops.operators.cudf_expressions` leaves out one that is)."""
    return all(each.name == "lit" and each.options["value"] is None for each in term.terms[1:])


def _between_floats(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    """Between bounds that may be NaN, than which nothing is greater."""
    return _of_floats(term, given) and any(each.name != "lit" for each in term.terms[1:])


def _of_whole_numbers(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    return given[0].is_integer()


def _of_other_spans(term: Term, given: Sequence[nw.dtypes.DType]) -> bool:
    return term.options.get("every") not in {"1d", "1h", "1m", "1s"}


_OTHERWISE: dict[str, Callable[[Term, Sequence[nw.dtypes.DType]], bool]] = {
    **dict.fromkeys(("sqrt", "exp", "log", "sin", "cos", "floor", "ceil", "max_horizontal", "min_horizontal"), _always),
    **dict.fromkeys(("list.contains", "list.max", "list.min", "list.sum", "list.mean", "list.sort"), _always),
    "dt.total_nanoseconds": _always,
    **dict.fromkeys(("__neg__", "abs", "__truediv__"), _of_durations),
    "__mul__": _scaled,
    "sum_horizontal": _of_floats,
    "mean_horizontal": _always,
    "is_finite": _of_whole_numbers,
    "is_between": _between_floats,
    "cast": _written_otherwise,
    "when_then": _null_alone,
    "dt.truncate": _of_other_spans,
}
"""What cuDF 26.10 was seen to compute otherwise, or to refuse, over values at the edges of their types."""

_PASSING = {"col", "alias", "is_null", "struct.field", "list.get", "list.len", "name.prefix", "name.suffix"}
_CLOCK = "year month day hour minute second millisecond microsecond nanosecond weekday ordinal_day truncate offset_by"
_RULES: dict[str, Rule] = {
    **dict.fromkeys(("__eq__", "__ne__"), _equal),
    **dict.fromkeys(("__lt__", "__le__", "__gt__", "__ge__", "is_between"), _ordered),
    **dict.fromkeys(("coalesce", "fill_null"), _alike),
    **dict.fromkeys(("__add__", "__sub__"), _moved),
    **dict.fromkeys((f"dt.{each}" for each in _CLOCK.split()), _in_utc),
    "dt.timestamp": _instants,
    "when_then": _chosen,
    "cast": _cast,
    "is_in": _is_in,
}
"""Which stored forms each function may take, by Narwhals' names."""
