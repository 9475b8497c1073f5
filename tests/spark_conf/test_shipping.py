"""What a cluster is sent: tried on a small one, whose executors are processes of their own and have no gpu_ops."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import gpu_ops as g
from tests.support.cluster import CONF, JAVA, NO_CLUSTER, spark_home, surroundings, without_gpu_ops

pytestmark = [pytest.mark.services, pytest.mark.spark]

# Each ride learns from the worker that reads it where that worker has gpu_ops from; others match and count.
QUERY = """
import gpu_ops as g
def query(rides, zones):
    def located(batches):
        import gpu_ops, os, sys
        for batch in batches:
            found = [f"{os.path.abspath(gpu_ops.__file__)} {os.path.abspath(sys.prefix)}"] * batch.num_rows
            yield batch.append_column("worker", found)
    rides = rides.mapInArrow(located, "pickup long, dropoff long, zone string, worker string")
    rides = g.events(rides, start="pickup", end="dropoff", unit="s")
    zones = g.events(zones, start="opened", end="closed", unit="s")
    return rides.join(zones, on="zone").by("zone", "worker").snapshot().agg(n=g.count(), fee=g.sum("fee"))
"""

RIDES = pa.table({"pickup": [0, 60, 70], "dropoff": [120, 90, 95], "zone": ["A", "A", "B"]})
ZONES = pa.table({"opened": [0, 80], "closed": [75, 100], "zone": ["A", "B"], "fee": [1, 2]})


def package(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, str(CONF / "package.py"), str(folder), *arguments], check=True, cwd=folder)


@pytest.fixture
def dependencies(tmp_path: Path) -> Path:
    """An interpreter with all that gpu_ops depends on."""
    return without_gpu_ops(tmp_path)


def submitted(folder: Path, settings: Sequence[str], *arguments: str) -> pa.Table:
    """What the job answers on a cluster."""
    home = spark_home(folder)
    for name, table in (("rides", RIDES), ("zones", ZONES)):
        parquet.write_table(table, folder / f"{name}.parquet")
    (folder / "query.py").write_text(QUERY)
    cluster = (
        *("spark.master=local-cluster[1,2,1024]", "spark.executor.memory=600m", "spark.driver.host=127.0.0.1"),
        *(f"spark.executor.extraJavaOptions={JAVA}", f"spark.local.dir={folder / 'local'}"),
        f"spark.driver.extraJavaOptions={JAVA} -Dlog4j2.configurationFile={(CONF / 'log4j2.properties').as_uri()}",
        "spark.sql.shuffle.partitions=2",
    )
    command = [
        *(str(home / "bin" / "spark-submit"), "--properties-file", str(CONF / "local-cpu.properties")),
        *(part for setting in (*cluster, *settings) for part in ("--conf", setting)),
        *arguments,
        *(str(CONF / "job.py"), "query.py", "--input", "rides=rides.parquet", "--input", "zones=zones.parquet"),
        *("--output", str(folder / "answer")),
    ]
    environment = surroundings(SPARK_HOME=str(home), SPARK_LOCAL_IP="127.0.0.1")
    log = folder / "log"
    done = False
    with log.open("w") as written, contextlib.suppress(subprocess.TimeoutExpired):
        run = subprocess.run(command, stderr=written, check=False, cwd=folder, env=environment, timeout=300)
        done = run.returncode == 0
    said = log.read_text()
    if not done and (why := NO_CLUSTER.search(said)):
        pytest.skip(f"local-cluster does not start here: {why[0]}")
    assert done, said
    return parquet.read_table(folder / "answer")


def check(answer: pa.Table) -> tuple[Path, Path]:
    """Hold an answer against this process's; the worker's gpu_ops, and its interpreter's folder."""
    rides = g.events(RIDES, start="pickup", end="dropoff", unit="s")
    zones = g.events(ZONES, start="opened", end="closed", unit="s")
    here = rides.join(zones, on="zone").by("zone").snapshot().agg(n=g.count(), fee=g.sum("fee")).collect()
    order = [("zone", "ascending"), ("start", "ascending")]
    assert answer.drop(["worker"]).sort_by(order).to_pylist() == here.sort_by(order).to_pylist()
    (said,) = set(answer["worker"].to_pylist())
    found, prefix = map(Path, said.split())
    return found, prefix


def test_the_package_as_a_zip_file(tmp_path: Path, dependencies: Path) -> None:
    package(tmp_path)
    settings = (f"spark.pyspark.python={dependencies}", "spark.executorEnv.XDG_CACHE_HOME=./cache")
    found, prefix = check(submitted(tmp_path, settings, "--py-files", "gpu_ops.zip"))
    assert found.is_relative_to(tmp_path / "spark" / "work")
    assert found.parts[-3:] == ("gpu_ops.zip", "gpu_ops", "__init__.py")
    assert prefix == dependencies.parents[1]
    kept = found.parents[2] / "cache"
    assert list(kept.rglob("*.nbc")), "each worker compiled the kernels for itself"


@pytest.mark.deep
def test_a_packed_environment(tmp_path: Path) -> None:
    package(tmp_path, "--environment", "cpu")
    settings = (
        "spark.master=local-cluster[2,1,1024]",
        "spark.pyspark.python=./environment/bin/python",
        f"spark.pyspark.driver.python={sys.executable}",
    )
    found, prefix = check(submitted(tmp_path, settings, "--archives", "environment.tar.gz#environment"))
    assert prefix.is_relative_to(tmp_path / "spark" / "work")
    assert prefix.name == "environment"
    assert found.is_relative_to(prefix)
    compiled = (tmp_path / "spark" / "work").glob("*/*/environment/lib/*/site-packages/gpu_ops/**/*.nbc")
    assert list(compiled), "each worker compiled the kernels for itself"
