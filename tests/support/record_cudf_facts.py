"""Writes `cudf_facts.json`: which Arrow types cuDF takes and as what, asked of the wheel itself. It needs no GPU.

In an environment of its own, since cuDF is no part of the lock: ``pip install cudf-cu13==26.8.*``, then
``python tests/support/record_cudf_facts.py``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa

INTEGERS = [getattr(pa, f"{sign}int{bits}")() for sign in ("", "u") for bits in (8, 16, 32, 64)]
UNITS = ("s", "ms", "us", "ns")
LEAVES = [
    *(pa.null(), pa.bool_(), *INTEGERS, pa.float16(), pa.float32(), pa.float64()),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in UNITS),
    *(pa.timestamp(unit, "UTC") for unit in UNITS),
    *(pa.duration(unit) for unit in UNITS),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view()),
    pa.binary(16),
    pa.dictionary(pa.int32(), pa.string()),
]
NESTED = {
    "decimal128": pa.decimal128(38, 9),
    "list": pa.list_(pa.int8()),
    "large_list": pa.large_list(pa.int8()),
    "fixed_size_list": pa.list_(pa.int8(), 2),
    "struct": pa.struct([("x", pa.int8())]),
    "map": pa.map_(pa.string(), pa.int8()),
}


def held(kind: pa.DataType) -> str | None:
    """The type of the column that cuDF makes of a type; None where it refuses it."""
    from cudf.utils.dtypes import cudf_dtype_from_pa_type, dtype_to_pylibcudf_type

    try:
        made = cudf_dtype_from_pa_type(kind)
        dtype_to_pylibcudf_type(made)
    except (KeyError, NotImplementedError, TypeError):
        return None
    return str(made)


def main() -> None:
    import cudf

    facts = {
        "source": f"the wheel cudf-cu13 {cudf.__version__}, with pyarrow {pa.__version__}",
        "leaves": {str(kind): held(kind) for kind in LEAVES},
        "nested": {name: held(kind) for name, kind in NESTED.items()},
    }
    Path(__file__).with_name("cudf_facts.json").write_text(json.dumps(facts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
