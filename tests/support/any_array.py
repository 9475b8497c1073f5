"""Arrow arrays of any type."""

from __future__ import annotations

import decimal
from typing import Any

import pyarrow as pa
import pyarrow.ipc
from hypothesis import strategies as st

ZONES = (None, "UTC", "America/New_York", "+02:00")


def _decimals(kind: pa.DataType) -> st.SearchStrategy[decimal.Decimal]:
    context = decimal.Context(prec=40)
    most = 10**kind.precision - 1
    return st.integers(-most, most).map(lambda digits: decimal.Decimal(digits).scaleb(-kind.scale, context))


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    *(
        (kind, st.integers(low, high))
        for kind, low, high in [
            (pa.int8(), -(2**7), 2**7 - 1),
            (pa.int16(), -(2**15), 2**15 - 1),
            (pa.int32(), -(2**31), 2**31 - 1),
            (pa.int64(), -(2**63), 2**63 - 1),
            (pa.uint8(), 0, 2**8 - 1),
            (pa.uint16(), 0, 2**16 - 1),
            (pa.uint32(), 0, 2**32 - 1),
            (pa.uint64(), 0, 2**64 - 1),
            (pa.date32(), -(2**31), 2**31 - 1),
            (pa.time32("s"), 0, 86_399),
            (pa.time32("ms"), 0, 86_399_999),
            (pa.time64("us"), 0, 86_399_999_999),
            (pa.time64("ns"), 0, 86_399_999_999_999),
            (pa.duration("s"), -(2**53), 2**53),
            (pa.duration("ms"), -(2**63), 2**63 - 1),
            (pa.duration("us"), -(2**63), 2**63 - 1),
            (pa.duration("ns"), -(2**63), 2**63 - 1),
        ]
    ),
    *((pa.timestamp("s", zone), st.integers(-(2**53), 2**53)) for zone in ZONES),
    *((pa.timestamp(unit, zone), st.integers(-(2**63), 2**63 - 1)) for unit in ("ms", "us", "ns") for zone in ZONES),
    (pa.float16(), st.floats(width=16)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.bool_(), st.booleans()),
    (pa.null(), st.none()),
    *((kind, st.text(max_size=20)) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, st.binary(max_size=20)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    *((kind, _decimals(kind)) for kind in (pa.decimal32(9, 2), pa.decimal64(18, 18))),
    *((kind, _decimals(kind)) for kind in (pa.decimal128(38, 0), pa.decimal128(38, 37))),
]


def _nested(inner: st.SearchStrategy[tuple[pa.DataType, st.SearchStrategy[Any]]]) -> st.SearchStrategy[Any]:
    def optional(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.none() | values

    def struct(left: Any, right: Any) -> Any:
        fields = [pa.field("a", left[0]), pa.field("b", right[0], nullable=pa.types.is_null(right[0]))]
        return pa.struct(fields), st.fixed_dictionaries({"a": optional(left[1]), "b": right[1]})

    def mapping(key: Any, item: Any) -> Any:
        return pa.map_(key[0], item[0]), st.lists(st.tuples(key[1], optional(item[1])), max_size=3)

    lists = (pa.list_, pa.large_list)
    keys = st.sampled_from([leaf for leaf in LEAVES if not pa.types.is_null(leaf[0])])
    return st.one_of(
        st.tuples(st.sampled_from(lists), inner).map(
            lambda pair: (pair[0](pair[1][0]), st.lists(optional(pair[1][1]), max_size=3))
        ),
        inner.map(lambda pair: (pa.list_(pair[0], 2), st.lists(optional(pair[1]), min_size=2, max_size=2))),
        st.builds(struct, inner, inner),
        st.builds(mapping, keys, inner),
    )


@st.composite
def arrays(draw: st.DrawFn) -> pa.Array:
    kind, values = draw(st.recursive(st.sampled_from(LEAVES), _nested, max_leaves=4))
    nullable = st.none() | values
    array = pa.array(draw(st.lists(nullable, max_size=8)), kind)
    first = draw(st.integers(0, len(array)))
    return array.slice(first, draw(st.integers(0, len(array))))


def comparable(array: pa.Array) -> pa.Array:
    """As integers where Python's own types hold less than Arrow's."""
    kind = array.type
    temporal = pa.types.is_temporal(kind) or pa.types.is_duration(kind)
    return array.view(pa.int32() if kind.bit_width == 32 else pa.int64()) if temporal else array
