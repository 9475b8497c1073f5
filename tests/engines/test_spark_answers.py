"""Answers in their places on Spark: any name and URL, whole or as it was, and never reported where they are not."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyarrow import parquet

import gpu_ops as g
from gpu_ops.engines.spark.answers import write_files
from gpu_ops.engines.spark.hadoop import Hadoop, place
from gpu_ops.errors import PlanError, SourceError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).parents[2]

NAMES = ["two words, größe", "a#1 100%25 a+b", "what? all* [1 {a,b} back\\slash", "12:30", "~"]


def rows_of(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).repartition(1)


def there(path: Path) -> int:
    """How many rows there are; nothing else may be beside the answer."""
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    return int(pa.concat_tables(parquet.ParquetFile(each).read() for each in path.glob("*.parquet")).num_rows)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_what_it_says(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / f"{name}.parquet"
    frame = rows_of(spark, 3)
    report = write_files(frame, path if len(name) % 2 else str(path), "parquet")
    assert (report.path, report.rows, report.row_groups) == (path, 3, 1)
    assert report.size == sum(each.stat().st_size for each in path.iterdir() if not each.name.endswith(".crc"))
    assert there(path) == 3
    with pytest.raises(SourceError, match="exists"):
        write_files(frame, str(path), "parquet")


def test_names_that_other_formats_are_read_back_by(spark: SparkSession, tmp_path: Path) -> None:
    for form in ("csv", "json", "orc"):
        path = tmp_path / f"{{a,b}} *.{form}"
        report = write_files(rows_of(spark, 3), path, form)
        assert (report.path, report.rows, report.row_groups) == (path, 3, 1)


def test_urls_are_what_they_are_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    said = {
        f"file://{tmp_path}/one two.parquet": "one two.parquet",
        f"file:{tmp_path}/three.parquet/": "three.parquet",
        f"file://{tmp_path}/one%20two.parquet": "one%20two.parquet",
        f"{tmp_path}/deep/./x/../er//four.parquet": "deep/er/four.parquet",
    }
    for url, name in said.items():
        frame = g.events(rows_of(spark, 2), start="id", unit="s")
        report = frame.write(url)
        assert (report.path, report.rows) == (tmp_path / name, 2)
        assert spark.read.parquet(url).count() == 2


def test_a_relative_path(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text is relative to where Spark is, a Path to where Python is."""
    monkeypatch.chdir(tmp_path)
    assert write_files(rows_of(spark, 1), Path("~/x.parquet"), "parquet").path == tmp_path / "~" / "x.parquet"
    told = place(spark, "~/x.parquet").path
    assert told == f"file:{spark._jvm.java.lang.System.getProperty('user.dir')}/~/x.parquet"  # type: ignore[union-attr]


WRONG = {
    "s3://bucket/x.parquet": r"no file system for s3://.*hadoop-aws:\d.*s3a://",
    "s3a://bucket/x.parquet": r"no file system for s3a://.*spark\.jars\.packages=org\.apache\.hadoop:hadoop-aws:\d",
    "gs://bucket/x.parquet": "gcs-connector",
    "abfss://box@account/x.parquet": "hadoop-azure:",
    "nowhere://host/x.parquet": r"no file system for nowhere://.*spark\.hadoop\.fs",
    "12:30.parquet": r"no path that Spark takes.*begins with \"\./\"",
    "": "no path that Spark takes",
    "/": "whole file system",
    "file://host/x.parquet": "Wrong FS",
}


@pytest.mark.parametrize("url", WRONG)
def test_what_spark_has_no_place_for_is_refused_before_anything_runs(spark: SparkSession, url: str) -> None:
    frame = spark.range(1).selectExpr("raise_error('it ran') AS x")
    with pytest.raises(SourceError, match=WRONG[url]):
        write_files(frame, url, "parquet")


def test_a_url_is_no_path(spark: SparkSession) -> None:
    with pytest.raises(SourceError, match="Give the URL as text"):
        place(spark, Path("s3a://bucket/x.parquet"))


def test_letters_that_the_jvm_does_not_have(spark: SparkSession, tmp_path: Path) -> None:
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr]
    before = system.setProperty("sun.jnu.encoding", "US-ASCII")
    try:
        with pytest.raises(SourceError, match=r"US-ASCII.*größe.*LC_ALL=C\.UTF-8"):
            place(spark, tmp_path / "größe.parquet")
        assert place(spark, tmp_path / "size.parquet").path.endswith("/size.parquet")
    finally:
        system.setProperty("sun.jnu.encoding", before)


def test_a_folder_that_may_not_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    frame = spark.range(1).selectExpr("raise_error('it ran') AS x")
    with pytest.raises(SourceError, match="cannot be written or read back"):
        write_files(frame, tmp_path / "file" / "x.parquet", "parquet")


def test_arguments(spark: SparkSession, tmp_path: Path) -> None:
    stream = g.events(rows_of(spark, 2), start="id", unit="s")
    with pytest.raises(PlanError, match="no policy"):
        stream.write(tmp_path / "x.parquet", if_exists="append")  # type: ignore[arg-type]
    with pytest.raises(PlanError, match="at least one row"):
        stream.write(tmp_path / "x.parquet", row_group_rows=0)


@pytest.fixture
def answer(spark: SparkSession, tmp_path: Path) -> Path:
    """An answer of five rows."""
    path = tmp_path / "answer.parquet"
    write_files(rows_of(spark, 5), path, "parquet")
    return path


def test_a_worker_that_fails_leaves_the_old_answer(spark: SparkSession, answer: Path) -> None:
    """Of two tasks one has written its file when the other one's Python fails."""

    def fails(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch["id"][0].as_py():
                raise ValueError("a worker has failed")
            yield batch

    frame = spark.range(0, 8, 1, 2).mapInArrow(fails, "id long")
    with pytest.raises(Exception, match="a worker has failed"):
        write_files(frame, answer, "parquet", replace=True)
    assert there(answer) == 5


def test_an_answer_may_replace_what_it_was_made_from(spark: SparkSession, answer: Path) -> None:
    assert write_files(spark.read.parquet(str(answer)).where("id > 1"), answer, "parquet", replace=True).rows == 3
    assert there(answer) == 3


def test_a_file_may_be_replaced_by_an_answer(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "answer.parquet"
    parquet.write_table(pa.table({"id": [1]}), path)
    assert write_files(rows_of(spark, 2), path, "parquet", replace=True).rows == 2
    assert there(path) == 2


def test_who_is_overtaken_is_refused(spark: SparkSession, answer: Path) -> None:
    """The second begins, and ends, while the first one's tasks run: they then have no folder to write to."""

    class Overtaken:
        def __init__(self, frame: DataFrame) -> None:
            self.sparkSession = frame.sparkSession
            self.schema = frame.schema
            self._frame = frame

        @property
        def write(self) -> Any:
            write_files(rows_of(spark, 2), answer, "parquet", replace=True)
            return self._frame.write

    with pytest.raises(SourceError, match="has taken the place"):
        write_files(Overtaken(rows_of(spark, 9)), answer, "parquet", replace=True)  # type: ignore[arg-type]
    assert there(answer) == 2


def test_what_is_not_found_is_not_reported(spark: SparkSession, answer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where workers have another disk than the driver."""
    found = Hadoop.sizes

    def elsewhere(files: Hadoop, path: str) -> Any:
        return {"_SUCCESS": 0} if ".new-" in path else found(files, path)

    monkeypatch.setattr(Hadoop, "sizes", elsewhere)
    with pytest.raises(SourceError, match="finds none of its files"):
        write_files(rows_of(spark, 9), answer, "parquet", replace=True)
    monkeypatch.undo()
    assert there(answer) == 5


def test_what_is_found_in_part_is_not_reported(
    spark: SparkSession, answer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the driver has the disk of some of the workers."""
    found = Hadoop.sizes

    def elsewhere(files: Hadoop, path: str) -> Any:
        sizes = found(files, path)
        return {name: size for name, size in sizes.items() if "part-00001" not in name} if sizes else sizes

    with monkeypatch.context() as hidden:
        hidden.setattr(Hadoop, "sizes", elsewhere)
        with pytest.raises(SourceError, match=r"8 rows of an answer .* finds 4 of them\. .* see alike"):
            write_files(spark.range(0, 8, 1, 2), answer, "parquet", replace=True)
    assert there(answer) == 5


def test_more_lines_than_rows_are_no_fault(spark: SparkSession, tmp_path: Path) -> None:
    """A reader of CSV takes each line for a row."""
    frame = spark.createDataFrame(pa.table({"text": ["two\nlines", "one"]}))
    assert write_files(frame, tmp_path / "text.csv", "csv").rows >= 2


DRIVERS = """
import os, signal, sys
from pathlib import Path
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
from gpu_ops.engines.spark.answers import write_files
from gpu_ops.engines.spark.hadoop import Hadoop

def drive(path, steps):
    # Killed before its next change of the file system.
    def killing(change):
        def run(files, *arguments):
            nonlocal steps
            if not steps:
                os.kill(os.getpid(), signal.SIGKILL)
            steps -= 1
            return change(files, *arguments)
        return run
    for name in ("write", "rename", "delete", "delete_empty"):
        setattr(Hadoop, name, killing(getattr(Hadoop, name)))
    gateway = launch_gateway()
    running = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    running = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(running)
    context = SparkContext(gateway=gateway, jsc=running, conf=SparkConf(_jconf=running.getConf()))
    write_files(SparkSession(context).range(9), path, "parquet", replace=True)

for number, path in enumerate(sys.argv[1:]):
    child = os.fork()
    if not child:
        drive(Path(path), number)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.services
def test_a_driver_that_is_killed_leaves_one_of_the_two_answers(spark: SparkSession, answer: Path) -> None:
    """Drivers of their own in the suite's JVM, each killed before one more change of the file system than the last."""
    gateway: Any = spark.sparkContext._gateway
    parameters = gateway.gateway_parameters
    environment = {
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        "PYTHONPATH": str(ROOT),
    }
    places = [answer.parent / f"killed {number}" / "answer.parquet" for number in range(9)]
    for each in places:
        shutil.copytree(answer, each)
    command = [sys.executable, "-c", DRIVERS, *map(str, places)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    ends = [int(each) for each in done.stdout.split()]
    assert ends == [-signal.SIGKILL] * (len(places) - 1) + [0], done.stderr
    found = []
    for each in places:
        with pytest.raises(SourceError, match="exists"):
            write_files(spark.range(1), each, "parquet")
        found.append(there(each))
    assert found == sorted(found)
    assert set(found) == {5, 9}
