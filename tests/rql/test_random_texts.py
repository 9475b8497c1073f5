"""Random texts give what the interpreter of cycles and DuckDB say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_ops import rql
from tests.support.cycle_texts import TABLE, Case, alerting, queries
from tests.support.examples import by_default


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as made:
        made.execute("set threads = 1")
        made.register("p", TABLE)
        yield made


def answered(answer: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(answer[name].to_pylist() for name in answer.column_names[2:]), strict=True))


@by_default(150)
@given(st.one_of(queries(), queries(), alerting()))
def test_a_random_text_is_answered_as_by_brute_force(database: duckdb.DuckDBPyConnection, case: Case) -> None:
    answer = rql.query(case.text, case.frames, order="id", time="at", tables={"p": TABLE}).collect()
    assert answered(answer) == case.expected(database)
