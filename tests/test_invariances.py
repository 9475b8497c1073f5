"""Random plans over random events: the brute force's answer, whatever the order, the cut, the device, the encoding.

Answers are compared bit by bit, floats too, after a sort that knows nothing but the rows. Only variances are compared
with the brute force by size: their last bits are defined by the engine's own sequence of operations. Between orders,
cuts, devices and encodings they too have to agree in every bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gpu_ops as g
from gpu_ops import Stream
from gpu_ops.devices import Device
from gpu_ops.engines.local import engine as local
from gpu_ops.errors import GpuOpsError
from tests.support import reference
from tests.support.examples import examples
from tests.support.reference import NEVER, Aggregate, Event
from tests.support.rows import rows, to_events, to_table
from tests.support.threads import in_blocks, told, with_threads
from tests.support.ticks import at_us, timed, us

Events = list[Event]

PAYLOAD = pa.schema(
    [
        ("word", pa.string()),
        ("real", pa.float64()),
        ("whole", pa.int64()),
        ("price", pa.decimal128(9, 2)),
        ("flag", pa.bool_()),
        ("calm", pa.float64()),
    ]
)

_SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e300, -1e300, 5e-324, 0.1, -2.5, 2.0**53]

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "word": st.sampled_from([None, "", "a", "b", "Zürich", "\U0001f6b2"]),
    "real": st.none() | st.sampled_from(_SPECIAL),
    "whole": st.none() | st.integers(-3, 3) | st.sampled_from([2**62, -(2**62), 2**63 - 1, -(2**63)]),
    "price": st.none() | st.decimals(Decimal("-9.99"), Decimal("9.99"), places=2),
    "flag": st.none() | st.booleans(),
    "calm": st.none() | st.floats(-1e6, 1e6, allow_subnormal=False, width=32) | st.sampled_from([math.nan, math.inf]),
}

HOUR = 3_600_000_000
BASES = st.sampled_from([0, 1_700_000_000_000_000, -50 * 365 * 24 * HOUR])
"""Around 1970, in our days, and well before."""

FAR = [10_000_000, 10_000_005, 40 * 24 * HOUR]
"""Events so far from the others that no table could hold the windows between them."""


@st.composite
def events(draw: st.DrawFn, base: int, values: Mapping[str, st.SearchStrategy[Any]]) -> Events:
    """Points, intervals, open ends; some rows twice; some that go on where another ends."""
    length = st.sampled_from([None, 1, 1, 2, 3, 5, 8, 13, 21])
    row = st.builds(
        lambda start, length, payload: Event(base + start, NEVER if length is None else base + start + length, payload),
        st.integers(-25, 40) | st.sampled_from(FAR),
        length,
        st.fixed_dictionaries(values),
    )
    drawn = draw(st.lists(row, max_size=9))
    for event in draw(st.lists(st.sampled_from(drawn), max_size=4)) if drawn else []:
        longer = draw(length)
        if event.end == NEVER or longer is None:
            drawn.append(event)
        else:
            drawn.append(Event(event.end, event.end + longer, event.payload))
    return drawn


@dataclass(frozen=True)
class Step:
    """One step of a plan, in the API's words and in the brute force's."""

    name: str
    ask: Callable[[Stream], Stream]
    brute: Callable[[Events], Events]

    def __repr__(self) -> str:
        return self.name


def _step(name: str, arguments: str, ask: Callable[[Stream], Stream], brute: Callable[[Events], Events]) -> Step:
    return Step(f"{name}({arguments})", ask, brute)


SPAN = st.integers(1, 30)
ALIGN = st.none() | st.integers(-40, 40)


def _grid(align: int | None) -> dict[str, Any]:
    return {} if align is None else {"align": align}


def _microseconds(count: int) -> Any:
    return g.lit(count).cast(g.Duration("us"))


LIFETIMES: list[st.SearchStrategy[Step]] = [
    st.builds(
        lambda d: _step(
            "set_duration", f"{d}", lambda s: s.set_duration(us(d)), lambda e: reference.set_duration(e, d)
        ),
        SPAN,
    ),
    st.builds(
        lambda d: _step("shift", f"{d}", lambda s: s.shift(us(d)), lambda e: reference.shift(e, d)),
        st.integers(-40, 40),
    ),
    st.builds(
        lambda d: _step("extend", f"{d}", lambda s: s.extend(us(d)), lambda e: reference.extend(e, d)),
        st.integers(-12, 12),
    ),
    st.builds(
        lambda d: _step("clip", f"{d}", lambda s: s.clip_duration(us(d)), lambda e: reference.clip_duration(e, d)),
        SPAN,
    ),
    st.just(_step("to_point", "", lambda s: s.to_point(), reference.to_point)),
    st.just(_step("point_at_end", "", lambda s: s.point_at_end(), reference.point_at_end)),
    st.builds(
        lambda by, d: _step(
            "alter_lifetime",
            f"start + {by}, duration {d}",
            lambda s: s.alter_lifetime(start=g.col("start") + _microseconds(by), duration=_microseconds(d)),
            lambda e: reference.alter_lifetime(e, lambda event: event.start + by, lambda _: d),
        ),
        st.integers(-9, 9),
        st.integers(-2, 9),
    ),
    st.builds(
        lambda size, hop, align: _step(
            "hop_lifetime",
            f"{size}, {hop}, {align}",
            lambda s: s.hop_lifetime(us(size), us(hop), align=at_us(align)),
            lambda e: reference.hop_lifetime(e, size, hop, **_grid(align)),
        ),
        SPAN,
        SPAN,
        ALIGN,
    ),
    st.builds(
        lambda size, progress, times, align: _step(
            "quantize",
            f"{size}, {progress * times}, {align}, progress {progress}",
            lambda s: s.quantize(us(size), us(progress * times), progress=us(progress), align=at_us(align)),
            lambda e: reference.quantize(e, size, progress * times, progress=progress, **_grid(align)),
        ),
        SPAN,
        st.integers(1, 6),
        st.integers(1, 4),
        ALIGN,
    ),
    st.builds(
        lambda period, align: _step(
            "chop",
            f"{period}, {align}",
            lambda s: s.chop(us(period), align=at_us(align)),
            lambda e: reference.chop(e, period, **_grid(align)),
        ),
        SPAN,
        ALIGN,
    ),
]

STEPS = st.one_of(
    *LIFETIMES,
    st.builds(
        lambda least: _step(
            "filter",
            f"whole > {least}",
            lambda s: s.filter(g.col("whole") > least),
            lambda e: reference.where(
                e, lambda event: None if event.payload["whole"] is None else event.payload["whole"] > least
            ),
        ),
        st.integers(-3, 3),
    ),
    st.just(
        _step(
            "with_columns",
            "flag = word is null",
            lambda s: s.with_columns(flag=g.col("word").is_null()),
            lambda e: reference.select(e, lambda event: {**event.payload, "flag": event.payload["word"] is None}),
        )
    ),
    st.just(_step("stitch", "", lambda s: s.stitch(), reference.stitch)),
)

NUMBERS = ["real", "whole", "price"]
AGGREGATES: st.SearchStrategy[Aggregate] = st.one_of(
    st.builds(Aggregate, st.just("count"), st.none() | st.sampled_from(PAYLOAD.names), st.sampled_from([None, "flag"])),
    st.builds(Aggregate, st.sampled_from(["sum", "mean"]), st.sampled_from(NUMBERS), st.sampled_from([None, "flag"])),
    st.builds(
        Aggregate, st.sampled_from(["min", "max"]), st.sampled_from(PAYLOAD.names), st.sampled_from([None, "flag"])
    ),
    st.builds(
        Aggregate,
        st.sampled_from(["variance", "standard_deviation"]),
        st.sampled_from(["calm", "price"]),
        st.sampled_from([None, "flag"]),
        st.sampled_from(["sample", "population"]),
    ),
)


def asked(spec: Aggregate) -> g.Aggregate:
    """An aggregate in the API's words."""
    options: dict[str, Any] = {} if spec.only is None else {"where": g.col(spec.only)}
    if spec.kind in {"variance", "standard_deviation"}:
        options["of"] = spec.of
    made: g.Aggregate = getattr(g, spec.kind)(*([] if spec.column is None else [spec.column]), **options)
    return made


@dataclass(frozen=True)
class Window:
    """A window, its key and its aggregates, as the last step of a plan."""

    name: str
    options: dict[str, Any]
    key: tuple[str, ...]
    aggregates: dict[str, Aggregate] = field(hash=False)

    def ask(self, stream: Stream) -> Stream:
        """In the API's words."""
        windows = getattr(stream.by(*self.key), self.name)(
            **timed(self.options, spans=("size", "every", "duration"), instants=("align", "until"))
        )
        return windows.agg(**{name: asked(spec) for name, spec in self.aggregates.items()})  # type: ignore[no-any-return]

    def brute(self, events: Events) -> Events:
        """In the brute force's."""
        options = dict(self.options)
        if self.name == "snapshot":
            return reference.snapshot(events, self.aggregates, self.key)
        if self.name == "sliding":
            return reference.snapshot(reference.set_duration(events, **options), self.aggregates, self.key)
        options["hop"] = options.pop("every", options["size"])
        return reference.hopping(events, self.aggregates, self.key, **options)


@st.composite
def windows(draw: st.DrawFn, base: int, names: Sequence[str], aggregates: st.SearchStrategy[Aggregate]) -> Window:
    name = draw(st.sampled_from(names))
    options: dict[str, Any] = {}
    if name == "sliding":
        options["duration"] = draw(SPAN)
    elif name != "snapshot":
        options = {"size": draw(SPAN), **_grid(draw(ALIGN))}
        if name == "hopping":
            options["every"] = draw(SPAN)
        options["membership"] = draw(st.sampled_from(["overlap", "start"]))
        options["output"] = draw(st.sampled_from([None, "window", "point", "hop"]))
        options["until"] = draw(st.none() | st.integers(base - 10, base + 60))
    key = tuple(draw(st.lists(st.sampled_from(["word", "real", "flag", "price", "whole"]), max_size=2, unique=True)))
    specs = draw(st.lists(aggregates, min_size=1, max_size=4))
    return Window(name, options, key, {f"a{at}": spec for at, spec in enumerate(specs)})


Plan = tuple[list[Step], Window | None]


@st.composite
def cases(draw: st.DrawFn) -> tuple[Events, Plan]:
    """Events, and what is asked about them."""
    base = draw(BASES)
    steps = draw(st.lists(STEPS, max_size=3))
    window = windows(base, ["snapshot", "sliding", "hopping", "tumbling"], AGGREGATES)
    return draw(events(base, VALUES)), (steps, draw(st.none() | window))


COUNTED = st.builds(
    Aggregate,
    st.sampled_from(["count", "sum", "mean"]),
    st.just("whole"),
    st.sampled_from([None, "flag"]),
)


@st.composite
def counting_cases(draw: st.DrawFn) -> tuple[Events, Plan]:
    """Counts and sums that cannot overflow over windows on a grid, for which there is a shorter way."""
    base = draw(BASES)
    small = VALUES | {"whole": st.none() | st.integers(-3, 3)}
    return draw(events(base, small)), ([], draw(windows(base, ["hopping", "tumbling"], COUNTED)))


def ask(source: Any, plan: Plan) -> Stream:
    """The plan in the API's words."""
    stream = g.events(source, start="start", end="end")
    for step in plan[0]:
        stream = step.ask(stream)
    return stream if plan[1] is None else plan[1].ask(stream)


def expected(given_events: Events, plan: Plan) -> Events:
    """The brute force's answer."""
    answer = given_events
    for step in plan[0]:
        answer = step.brute(answer)
    return answer if plan[1] is None else plan[1].brute(answer)


def answer_of(compute: Callable[[], Any]) -> Any:
    """The rows of an answer, or the kind of error that there is instead."""
    try:
        return rows(compute())
    except GpuOpsError as error:
        return type(error)


def assert_same(answer: Events, brute: Events, window: Window | None) -> None:
    """Bit by bit; variances, of which each row of a window has one, to within their error."""
    specs = {} if window is None else window.aggregates
    inexact = [name for name, spec in specs.items() if spec.kind in {"variance", "standard_deviation"}]
    assert rows(_without(answer, inexact)) == rows(_without(brute, inexact))
    if inexact:
        assert window is not None
        mine, theirs = (_by_place(side, window.key) for side in (answer, brute))
        for place, payload in theirs.items():
            for name in inexact:
                assert _close(mine[place][name], payload[name]), (place, name, mine[place][name], payload[name])


def _without(side: Events, names: Sequence[str]) -> Events:
    return reference.select(side, lambda event: {n: v for n, v in event.payload.items() if n not in names})


def _by_place(side: Events, key: tuple[str, ...]) -> dict[Any, Any]:
    return {rows([Event(e.start, e.end, {name: e.payload[name] for name in key})])[0]: e.payload for e in side}


def _close(mine: float | None, exact: float | None) -> bool:
    if mine is None or exact is None or not math.isfinite(exact):
        return repr(mine) == repr(exact)
    return math.isclose(mine, exact, rel_tol=2.0**-50, abs_tol=1e-300)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(case=cases() | counting_cases())
def test_every_plan_gives_the_answer_of_the_brute_force(device_name: Any, case: tuple[Events, Plan]) -> None:
    given_events, plan = case
    source = to_table(given_events, PAYLOAD)
    try:
        brute = expected(given_events, plan)
    except GpuOpsError as error:
        with pytest.raises(type(error)):
            ask(source, plan).collect(device=device_name)
    else:
        stream = ask(source, plan)
        answer = stream.collect(device=device_name)
        assert answer.schema.names == ["start", "end", *stream.schema.names]
        assert answer.schema.types[2:] == stream.schema.types
        assert_same(to_events(answer), brute, plan[1])


@st.composite
def cuts(draw: st.DrawFn, table: pa.Table) -> list[pa.Table]:
    """A table in any order, cut anywhere, empty pieces too."""
    table = table.take(pa.array(draw(st.permutations(range(table.num_rows))), pa.int64()))
    at = sorted(draw(st.lists(st.integers(0, table.num_rows), max_size=4)))
    return [table.slice(low, high - low) for low, high in pairwise([0, *at, table.num_rows])]


@examples(dear=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases() | counting_cases(), data=st.data())
def test_the_order_and_the_cut_of_the_input_change_no_bit(
    device_name: Any, case: tuple[Events, Plan], data: st.DataObject
) -> None:
    given_events, plan = case
    source = to_table(given_events, PAYLOAD)
    pieces = data.draw(cuts(source))
    whole = answer_of(lambda: ask(source, plan).collect(device="cpu"))
    chunks = answer_of(lambda: ask(pa.concat_tables(pieces), plan).collect(device=device_name))
    batches = [batch for piece in pieces for batch in piece.to_batches()]
    reader = pa.RecordBatchReader.from_batches(source.schema, batches)
    assert answer_of(lambda: ask(reader, plan).to_reader(device=device_name).read_all()) == whole
    assert chunks == whole


@examples(dear=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases() | counting_cases(), size=st.integers(1, 3), threads=st.integers(1, 2))
def test_the_size_of_a_block_and_the_number_of_threads_change_no_bit(
    device: Device, case: tuple[Events, Plan], size: int, threads: int
) -> None:
    given_events, plan = case
    source = to_table(given_events, PAYLOAD)

    def answer(device: Device) -> Any:
        return answer_of(lambda: pa.concat_tables(local.tables(ask(source, plan)._node, device)))

    with with_threads(threads):
        assert answer(replace(device, block_rows=size)) == answer(replace(device, block_rows=None))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(case=cases() | counting_cases(), count=st.integers(2, 5), part=st.integers(1, 4), block=st.integers(1, 6))
def test_the_number_of_threads_changes_no_byte(case: tuple[Events, Plan], count: int, part: int, block: int) -> None:
    given_events, plan = case
    source = to_table(given_events, PAYLOAD)
    with in_blocks(block):
        alone = told(lambda: ask(source, plan).collect(device="cpu"), threads=1, part=part)
        assert told(lambda: ask(source, plan).collect(device="cpu"), threads=count, part=part) == alone


ENCODINGS = {
    "large": pa.large_string(),
    "view": pa.string_view(),
    "dictionary": pa.dictionary(pa.int32(), pa.string()),
    "short dictionary": pa.dictionary(pa.int8(), pa.string()),
    "unsigned dictionary of large": pa.dictionary(pa.uint16(), pa.large_string()),
}


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ENCODINGS)
@examples(12, kinds=True, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_the_encoding_of_a_text_changes_no_bit(device_name: Any, encoding: str, case: tuple[Events, Plan]) -> None:
    given_events, plan = case
    source = to_table(given_events, PAYLOAD)
    at = source.schema.get_field_index("word")
    encoded = source.set_column(at, "word", source["word"].cast(ENCODINGS[encoding]))
    plain = answer_of(lambda: ask(source, plan).collect(device=device_name))
    assert answer_of(lambda: ask(encoded, plan).collect(device=device_name)) == plain


@examples(12, suppress_health_check=[HealthCheck.too_slow])
@given(case=cases())
def test_texts_as_numbers_in_the_same_order_give_the_same_answer(device_name: Any, case: tuple[Events, Plan]) -> None:
    words = ["", "Zürich", "a", "b", "\U0001f6b2"]
    numbers = {word: at for at, word in enumerate(sorted(words, key=str.encode))}
    given_events, plan = case
    source = to_table(given_events, PAYLOAD)
    at = source.schema.get_field_index("word")
    coded = [None if word is None else numbers[word] for word in source["word"].to_pylist()]
    encoded = source.set_column(at, "word", pa.array(coded, pa.int32()))

    def as_numbers(event: Event) -> dict[str, Any]:
        return {name: numbers[v] if isinstance(v, str) else v for name, v in event.payload.items()}

    try:
        texts = to_events(ask(source, plan).collect(device=device_name))
    except GpuOpsError as error:
        with pytest.raises(type(error)):
            ask(encoded, plan).collect(device=device_name)
    else:
        answer = ask(encoded, plan).collect(device=device_name)
        assert rows(answer) == rows(reference.select(texts, as_numbers))
