"""Tables of Delta Lake and Apache Iceberg: read with filters that reach them, written at rest, and live exactly once.

What `tests.support.on_lake` asks is one Spark, as each takes seconds to start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpu_ops as g
from gpu_ops.engines.spark import SparkTable
from tests.support.on_lake import ASKED, LAKE

ROOT = Path(__file__).parents[2]
HERE = len(sorted(LAKE.glob("spark-*"))) > 1


@pytest.fixture(scope="module")
def probed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str | None]:
    """What went wrong with each probe."""
    folder = tmp_path_factory.mktemp("lake") / "the lake"
    folder.mkdir()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.support.on_lake", str(folder)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    print(*(f"{name}: {seconds} s" for name, _, seconds in found), sep="\n")
    return {name: failed for name, failed, _ in found}


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.skipif(not HERE, reason="the jars of Delta and Iceberg are not there (`make lake` fetches them)")
@pytest.mark.parametrize("name", ASKED)
def test_a_session_with_tables_finds_what_it_would_find_locally(probed: dict[str, str | None], name: str) -> None:
    assert probed[name] is None, probed[name]


@pytest.mark.parametrize(
    ("arguments", "refused"),
    [
        (("", "delta"), "name is ''"),
        (("top", "parquet"), 'format \'parquet\' is unknown.*"delta" or "iceberg"'),
        (("top", "delta", "item"), "partition_by is 'item'"),
        (("top", "delta", [1]), r"partition_by is \[1\]"),
    ],
)
def test_what_is_no_table(arguments: tuple[str, ...], refused: str) -> None:
    with pytest.raises(g.PlanError, match=refused):
        SparkTable(*arguments)  # type: ignore[arg-type]
