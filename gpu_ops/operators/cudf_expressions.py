"""Expressions in a form that means on cuDF what the expression means on Polars.

Polars defines what an expression means: NaN equals itself and is greater than every number, and it is no null. cuDF
compares as IEEE 754 does, takes NaN for null where it looks for nulls, and says null to ``null | True``. It has no time
zones, so its frames hold zoned times as they are in UTC (`gpu_ops.devices.cuda.lowering`); literals have to be so too.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import pyarrow as pa

from gpu_ops.devices import Device
from gpu_ops.devices.columns import Step
from gpu_ops.plan.expressions import rewritten
from gpu_ops.plan.forms import once_for_each_form, own_name, remade
from gpu_ops.plan.terms import Term, is_float


def steps_on(device: Device, steps: Sequence[Step]) -> Sequence[Step]:
    """Steps over a device's frames whose expressions mean there what they mean on Polars."""
    return steps if device.columns.POLARS else [partial(_evaluated, step, device) for step in steps]


def _evaluated(step: Step, device: Device, frame: Any) -> Any:
    return step(_Evaluating(frame, device))


class _Evaluating:
    """A frame of Narwhals whose verbs evaluate the forms of expressions."""

    def __init__(self, frame: Any, device: Device) -> None:
        self._frame, self._names, self._device = frame, frame.columns, device
        self._schema = frame.schema.to_arrow()

    def filter(self, *expressions: nw.Expr) -> Any:
        forms = self._forms(expressions)
        return self._without_structs(self._frame.filter(*forms))

    def select(self, *expressions: nw.Expr | str, **named: nw.Expr) -> Any:
        forms, others = self._forms(expressions), self._forms(named.values())
        return self._frame.select(*forms, **dict(zip(named, others, strict=True)))

    def with_columns(self, *expressions: nw.Expr | str, **named: nw.Expr) -> Any:
        forms, others = self._forms(expressions), self._forms(named.values())
        return self._without_structs(self._frame.with_columns(*forms, **dict(zip(named, others, strict=True))))

    def _forms(self, expressions: Iterable[nw.Expr | str]) -> list[nw.Expr | str]:
        made: list[nw.Expr | str] = []
        for each in expressions:
            if isinstance(each, str):
                made.append(each)
                continue
            form = cudf_form(each, self._schema)
            for name, fields in form.structs:
                if name not in self._frame.columns:
                    self._frame = self._frame.with_columns(self._struct(name, fields))
            made.append(form.expression)
        return made

    def _struct(self, name: str, fields: dict[str, nw.Expr]) -> Any:
        """A series of structs: Narwhals makes none of cuDF's columns."""
        parts = {f"@field {at}": each for at, each in enumerate(fields.values())}
        named = (nw.col(part).alias(field) for part, field in zip(parts, fields, strict=True))
        wide = self._frame.with_columns(**parts).select(*named).to_native()
        return nw.from_native(self._device.columns.structs(wide, name), eager_only=True)[name]

    def _without_structs(self, made: Any) -> Any:
        structs = [name for name in self._frame.columns if name not in self._names]
        return made.drop(structs) if structs else made


class Form(NamedTuple):
    """An expression in a form for cuDF, over columns and structs.

    Attributes:
        expression: The expression.
        structs: The structs that it reads as columns: the name of each, and its fields; those within others come first.
    """

    expression: nw.Expr
    structs: tuple[tuple[str, dict[str, nw.Expr]], ...]


@once_for_each_form
def cudf_form(expression: nw.Expr, schema: pa.Schema) -> Form:
    """An expression in the form for cuDF.

    Args:
        expression: One that acts on each row by itself.
        schema: The columns that cuDF holds.

    Examples:
        >>> cudf_form(nw.col("x") > 1, pa.schema([("x", pa.int64())])).expression
        col(x).__gt__(1)
        >>> cudf_form(nw.col("x").is_nan(), pa.schema([("x", pa.float64())])).expression
        col(x).__ne__(col(x)).alias(name=x)
    """
    made = rewritten(without_zones(expression), schema, _form, _FORMS, lifetime=False)
    structs: dict[str, dict[str, nw.Expr]] = {}
    return Form(_apart(made, structs), tuple(structs.items()))


_NUMBERS = itertools.count()
"""A struct's name is its own: what is written alike may differ, as the text ``1`` and the number do."""


def _apart(expression: nw.Expr, structs: dict[str, dict[str, nw.Expr]]) -> nw.Expr:
    """An expression that reads its structs as columns; what these are made of is added to ``structs``."""
    nodes = []
    for node in expression._nodes:  # noqa: SLF001  (as in `gpu_ops.plan.terms`)
        operands = [_apart(each, structs) if isinstance(each, nw.Expr) else each for each in node.exprs]
        made = remade(node, operands) if node.exprs else node
        if node.name == "struct":
            fields = [each if isinstance(each, nw.Expr) else nw.col(str(each)) for each in operands]
            named = (own_name(each) if isinstance(each, nw.Expr) else str(each) for each in node.exprs)
            name = f"@struct {next(_NUMBERS)}"
            structs[name] = {of or "literal": each for of, each in zip(named, fields, strict=True)}
            (made,) = nw.col(name)._nodes  # noqa: SLF001
        nodes.append(made)
    return nw.Expr(*nodes)


def without_zones(expression: nw.Expr) -> nw.Expr:
    """An expression whose zoned times, literals and casts, are local times in UTC.

    Examples:
        >>> noon = datetime.datetime(2024, 1, 1, 13, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
        >>> without_zones(nw.col("at") == noon)
        col(at).__eq__(2024-01-01 12:00:00)
    """
    nodes = []
    for node in expression._nodes:  # noqa: SLF001  (as in `gpu_ops.plan.terms`)
        made = node
        if node.exprs:
            operands = [without_zones(each) if isinstance(each, nw.Expr) else _in_utc(each) for each in node.exprs]
            made = remade(node, operands)
        kept = {name: _in_utc(value) for name, value in made.kwargs.items()}
        if any(kept[name] is not value for name, value in made.kwargs.items()):
            made = type(made)(made.kind, made.name, *made.exprs, **kept)
        nodes.append(made)
    return nw.Expr(*nodes)


def _in_utc(value: Any) -> Any:
    if type(value) is int and 1 << 63 <= value < 1 << 64:
        return np.uint64(value)  # which a C long does not hold
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    if isinstance(value, nw.Datetime) and value.time_zone is not None:
        return nw.Datetime(value.time_unit)
    return value


def _form(term: Term) -> Term:
    if term.name in _LOGIC:
        return _known(term)
    if term.name == "when_then":
        return _without_null(term)
    if term.name == "lit" and term.options["value"] != term.options["value"]:
        # As a literal cuDF takes NaN for null.
        value = nw.lit(math.inf) - nw.lit(math.inf)
        return term.meaning(value.cast(term.dtype) if term.dtype == nw.Float32 else value)
    if term.name in _QUESTIONS:
        return _asked(term)
    if term.name in _COMPARISONS and any(isinstance(each.dtype, nw.Datetime | nw.Duration) for each in term.terms):
        return _compared_times(term)
    rule = _OF_FLOATS.get(term.name)
    return rule(term) if rule is not None and any(is_float(each.dtype) for each in term.terms) else term


def _known(term: Term) -> Term:
    """``and`` and ``or``: what one side decides is known, though the other is null."""
    if any(each.dtype != nw.Boolean for each in term.terms) or term.options.get("ignore_nulls"):
        return term
    value, *others = (each.value for each in term.terms)
    decides = term.name in {"__or__", "any_horizontal"}
    for other in others:
        one, two = value.fill_null(value=not decides), other.fill_null(value=not decides)
        decided = one | two if decides else ~(one & two)
        value = nw.when(decided).then(nw.lit(decides)).otherwise(value | other if decides else value & other)
    return term.meaning(value)


def _without_null(term: Term) -> Term:
    """``when``: no branch is null, as cuDF takes no null of another type than the other branch has."""
    condition, chosen, *rest = term.terms
    if rest and _is_no_value(rest[0]):
        kept, when = chosen, condition.value
    elif rest and _is_no_value(chosen):
        kept, when = rest[0], ~condition.value.fill_null(value=False)
    else:
        return term
    return term.meaning(nw.when(when).then(kept.value if kept.dtype == term.dtype else kept.value.cast(term.dtype)))


def _is_no_value(term: Term) -> bool:
    """Whether it is null, of whatever type."""
    if term.name == "cast":
        return _is_no_value(term.terms[0])
    return term.name == "lit" and term.options["value"] is None


def _is_nan(term: Term) -> nw.Expr:
    """Whether a value is NaN: null of null, as a comparison is."""
    return term.value != term.value


def _may_be_nan(term: Term) -> bool:
    value = term.options.get("value") if term.name == "lit" else None
    return is_float(term.dtype) and (term.name != "lit" or value != value)  # noqa: PLR0124


def _compared(term: Term) -> Term:
    """A comparison with what IEEE 754 says otherwise of NaN."""
    one, other = term.terms
    mine, others = _may_be_nan(one), _may_be_nan(other)
    value = term.value
    if term.name in {"__eq__", "__ne__"}:
        if mine and others:
            both = _is_nan(one) & _is_nan(other)
            value = value | both if term.name == "__eq__" else value & ~both
        return term if value is term.value else term.meaning(value)
    # The side that may be the greater one: its NaN is less than nothing.
    above, below = (one, other) if term.name in {"__gt__", "__ge__"} else (other, one)
    if not _may_be_nan(above):
        return term
    greater = _is_nan(above)
    if _may_be_nan(below):
        strict = term.name in {"__gt__", "__lt__"}
        greater = greater & (~_is_nan(below) if strict else _is_nan(below) | ~_is_nan(below))
    elif below.name != "lit":
        greater = greater & (below.value == below.value)
    return term.meaning(value | greater)


def _null(term: Term) -> nw.Expr:
    """Whether a value is null and not NaN."""
    return term.value.is_null() & ~_is_nan(term).fill_null(value=False)


def _is_null(term: Term) -> Term:
    (given,) = term.terms
    return term.meaning(_null(given))


def _is_number(term: Term) -> Term:
    """``is_nan`` or ``is_finite``: an infinity without itself is NaN, as NaN is."""
    (given,) = term.terms
    if not is_float(given.dtype):
        return term
    if term.name == "is_nan":
        return term.meaning(_is_nan(given))
    rest = given.value - given.value
    return term.meaning(rest == rest)  # noqa: PLR0124


def _nan_filled(term: Term) -> Term:
    (given,), value = term.terms[:1], term.options.get("value")
    if len(term.terms) > 1:
        value = term.terms[1].value
    chosen = nw.when(~_is_nan(given).fill_null(value=False)).then(given.value)
    return term.meaning(chosen if value is None else chosen.otherwise(value))


def _asked(term: Term) -> Term:
    """A question about text, or whether something is in a list: null about null, which cuDF answers with no."""
    (given, *_) = term.terms
    there = ~(_null(given) if is_float(given.dtype) else given.value.is_null())
    return term.meaning(nw.when(there).then(term.value))


def _compared_times(term: Term) -> Term:
    """A comparison with null is null: of times and durations cuDF says no."""
    read = [each for each in term.terms if each.name != "lit"]
    there = nw.all_horizontal(*(~each.value.is_null() for each in read), ignore_nulls=False)
    return term.meaning(nw.when(there).then(term.value)) if read else term


def _filled(term: Term) -> Term:
    """As `_coalesced`; with a strategy it looks at other rows, and is refused elsewhere."""
    return _coalesced(term) if len(term.terms) == 2 else term


def _coalesced(term: Term) -> Term:
    """The first value that is not null."""
    *before, last = term.terms
    value = last.value
    for each in reversed(before):
        here = _null(each) if is_float(each.dtype) else each.value.is_null()
        value = nw.when(~here).then(each.value).otherwise(value)
    return term.meaning(value)


_COMPARISONS = {"__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__", "is_between"}
_OF_FLOATS: dict[str, Callable[[Term], Term]] = {
    **dict.fromkeys(_COMPARISONS - {"is_between"}, _compared),
    "is_null": _is_null,
    "coalesce": _coalesced,
    "fill_null": _filled,
    "is_nan": _is_number,
    "is_finite": _is_number,
    "fill_nan": _nan_filled,
}
_QUESTIONS = {"str.contains", "str.starts_with", "str.ends_with", "is_in"}
_LOGIC = {"__and__", "__or__", "all_horizontal", "any_horizontal"}
_FORMS = _OF_FLOATS.keys() | _COMPARISONS | _QUESTIONS | _LOGIC | {"when_then", "lit"}
