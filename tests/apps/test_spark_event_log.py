"""Spark's event log: every form in which Spark leaves one, and what is read from it."""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cramjam
import lz4.block
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from gpu_ops.apps import spark_log_files
from gpu_ops.apps.spark_event_log import CORES, EXECUTORS, STAGES, TASKS, SparkLog
from gpu_ops.errors import SourceError
from tests.support import event_logs as log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def seconds(column: pa.ChunkedArray) -> list[float | None]:
    """Times as seconds since the logs' epoch."""
    ticks = column.cast(pa.int64()).to_pylist()
    return [None if tick is None else (tick - log.EPOCH * 1000) / 1_000_000 for tick in ticks]


def written(path: Path, *events: log.Event) -> SparkLog:
    path.write_bytes(log.text(*events))
    return SparkLog(path)


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def zstd_frames(data: bytes) -> bytes:
    """A frame for every 700 bytes, as flushing makes them."""
    return b"".join(zstd(data[at : at + 700]) for at in range(0, len(data), 700))


def lz4_blocks(data: bytes) -> bytes:
    """lz4-java's LZ4BlockOutputStream with blocks of 1000 bytes, the second one stored as it is; two streams."""
    out = b""
    for at in range(0, len(data), 1000):
        piece = data[at : at + 1000]
        packed = lz4.block.compress(piece, store_size=False)
        method = 0x20
        if at == 1000 or len(packed) >= len(piece):
            packed, method = piece, 0x10
        out += (
            b"LZ4Block"
            + bytes([method])
            + b"".join(number.to_bytes(4, "little") for number in (len(packed), len(piece), 0))
            + packed
        )
        if at == 2000:
            out += b"LZ4Block" + bytes([0x10]) + bytes(12)
    return out + b"LZ4Block" + bytes([0x10]) + bytes(12)


def snappy_blocks(data: bytes) -> bytes:
    """snappy-java's SnappyOutputStream with blocks of 1000 bytes; two streams."""
    header = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
    out = header
    for at in range(0, len(data), 1000):
        packed = bytes(cramjam.snappy.compress_raw(data[at : at + 1000]))
        out += (header if at == 2000 else b"") + len(packed).to_bytes(4, "big") + packed
    return out


CODECS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".zstd": zstd, ".lz4": lz4_blocks, ".snappy": snappy_blocks}


def test_columns_and_values(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "app-1", *log.wages())
    tasks = spark_log.read()
    assert tasks.schema == TASKS
    assert tasks["task"].to_pylist() == [0, 2, 1, 3, 4]
    assert seconds(tasks["launch"]) == [1, 1, 1, 5, 5]
    assert seconds(tasks["finish"]) == [2, 2, 4, 6, 8]
    row = tasks.slice(3, 1).to_pylist()[0]
    at = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    assert row == {
        "application": "app-1",
        "stage": 1,
        "stage_attempt": 0,
        "task": 3,
        "index": 3,
        "attempt": 0,
        "executor": "2",
        "host": "10.0.0.1",
        "launch": at + datetime.timedelta(seconds=5),
        "finish": at + datetime.timedelta(seconds=6),
        "speculative": False,
        "locality": "PROCESS_LOCAL",
        "run_time_ms": 1000,
        "cpu_time_ns": 57_800_167,
        "gc_time_ms": 1,
        "deserialize_time_ms": 3,
        "result_serialization_time_ms": 0,
        "result_bytes": 2_293,
        "peak_memory_bytes": 262_144,
        "memory_spilled_bytes": 0,
        "disk_spilled_bytes": 0,
        "shuffle_remote_read_bytes": 100,
        "shuffle_local_read_bytes": 50,
        "shuffle_read_records": 9,
        "shuffle_fetch_wait_ms": 2,
        "shuffle_write_bytes": 0,
        "shuffle_write_records": 7,
        "shuffle_write_time_ns": 978_240,
        "input_bytes": 11,
        "input_records": 12,
        "output_bytes": 13,
        "output_records": 14,
        "status": "success",
        "cpus": 1,
        "shuffle_read_bytes": 150,
    }


def test_about_the_application(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "app-1", *log.wages("3.5.6"))
    spark_log.read()
    assert (spark_log.application, spark_log.name, spark_log.spark_version) == ("app-1", "wages", "3.5.6")
    assert spark_log.ended
    assert not spark_log.compacted
    assert spark_log.last_time == (log.EPOCH + 8000) * 1000
    assert (spark_log.counts.lines, spark_log.counts.finished, spark_log.counts.unfinished) == (len(log.wages()), 5, 0)

    executors = spark_log.executors()
    assert executors.schema == EXECUTORS
    assert executors["executor"].to_pylist() == ["1", "2"]
    assert executors["host"].to_pylist() == ["10.0.0.1", "10.0.0.2"]
    assert executors["cores"].to_pylist() == [2, 2]
    assert seconds(executors["added"]) == [0.5, 0.5]
    assert seconds(executors["removed"]) == [None, 6]
    assert executors["removed_reason"].to_pylist() == [None, "worker lost"]

    stages = spark_log.stages()
    assert stages.schema == STAGES
    assert stages["name"].to_pylist() == ["collect at wages.py:10", "collect at wages.py:11"]
    assert stages["tasks"].to_pylist() == [3, 2]
    assert seconds(stages["submitted"]) == [0.9, 4.9]
    assert seconds(stages["completed"]) == [4, 8]


@pytest.mark.parametrize("suffix", CODECS)
@pytest.mark.parametrize("ending", ["", ".inprogress"])
def test_one_file_in_every_compression(tmp_path: Path, suffix: str, ending: str) -> None:
    path = tmp_path / f"app-1{suffix}{ending}"
    path.write_bytes(CODECS[suffix](log.text(*log.wages())))
    assert SparkLog(path).read() == written(tmp_path / "plain", *log.wages()).read()


@pytest.mark.parametrize("suffix", CODECS)
def test_rolled_files_are_read_in_the_order_of_their_numbers(tmp_path: Path, suffix: str) -> None:
    events = log.wages()
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "appstatus_app-1").touch()
    for number, event in enumerate(events, start=1):  # up to 19: as texts, 10 would come before 2
        (folder / f"events_{number}_app-1{suffix}").write_bytes(CODECS[suffix](log.text(event)))
        (folder / f".events_{number}_app-1{suffix}.crc").write_bytes(b"crc")
    expected = written(tmp_path / "plain", *events).read()
    assert SparkLog(folder).read() == expected
    (tmp_path / "plain").unlink()
    assert SparkLog(tmp_path).read() == expected  # the only log in the folder of logs


def test_a_compacted_file_stands_for_those_up_to_its_number(tmp_path: Path) -> None:
    events = log.wages()
    (tmp_path / "events_1_app-1").write_bytes(log.text(*events[:3]))
    (tmp_path / "events_3_app-1").write_bytes(b"not read")
    (tmp_path / "events_3_app-1.compact").write_bytes(log.text(*events[:5], *events[13:16]))
    (tmp_path / "events_4_app-1").write_bytes(log.text(*events[16:]))
    spark_log = SparkLog(tmp_path)
    assert spark_log.compacted
    assert spark_log.read()["task"].to_pylist() == [3, 4]


def test_an_executor_that_a_compacted_log_does_not_know(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "a", log.executor_removed("9", 5), log.task_end(1, 0, 4, executor="9"))
    tasks = spark_log.read()
    assert spark_log.executors().num_rows == 0
    assert spark_log.cores(tasks).num_rows == 0


def test_spark_s_own_codecs(spark: SparkSession, tmp_path: Path) -> None:
    text = log.text(*log.wages() * 300)
    jvm = spark._jvm
    assert jvm is not None
    codecs = getattr(jvm.org.apache.spark.io, "CompressionCodec$").__getattr__("MODULE$")
    expected = None
    for codec in ("lz4", "snappy", "zstd", "lzf"):
        path = tmp_path / f"app-1.{codec}"
        configuration = spark.sparkContext._jsc.sc().conf()
        stream = codecs.createCodec(configuration, codec).compressedOutputStream(
            jvm.java.io.FileOutputStream(str(path))
        )
        stream.write(text[: len(text) // 2])
        stream.flush()
        stream.write(text[len(text) // 2 :])
        stream.close()
        if codec == "lzf":
            with pytest.raises(SourceError, match=r"LZF.*compress-lzf"):
                SparkLog(path).read()
            continue
        tasks = SparkLog(path).read()
        expected = expected or tasks
        assert tasks == expected
        assert tasks.num_rows == 1500


def test_a_torn_last_line_is_left_out_and_counted(tmp_path: Path) -> None:
    whole = log.text(*log.wages())
    last = log.text(log.wages()[-1])
    for cut in range(1, len(last)):
        path = tmp_path / "torn"
        path.write_bytes(whole[:-cut])
        spark_log = SparkLog(path)
        assert spark_log.read().num_rows == 5
        # Without its line end alone, the line is whole.
        assert spark_log.counts.torn_lines == (cut > 1)
        assert spark_log.ended == (cut == 1)


def test_a_line_that_tears_after_an_inner_bracket_is_torn(tmp_path: Path) -> None:
    text = log.text(*log.wages()[:17])
    path = tmp_path / "torn"
    path.write_bytes(text[: text.rindex(b',"Task Metrics"')])
    assert path.read_bytes().endswith(b"}")
    spark_log = SparkLog(path)
    tasks = spark_log.read()
    assert tasks["task"].to_pylist() == [0, 2, 1, 3, 4]
    assert tasks["status"].to_pylist()[3:] == ["running", "running"]
    assert spark_log.counts.torn_lines == 1


def whole_lines(path: Path) -> bool:
    return any(len(block.lines) > block.torn for block in spark_log_files.line_blocks(path))


@pytest.mark.slow
@pytest.mark.parametrize("pack", [zstd, zstd_frames, lz4_blocks, snappy_blocks], ids=lambda pack: pack.__name__)
def test_an_unfinished_compressed_log_breaks_off_anywhere(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    packed = pack(log.text(*log.wages()))
    whole = written(tmp_path / "whole", *log.wages()).read()
    path = tmp_path / "app-1.inprogress"
    before = 0
    for cut in range(16, len(packed), 37):
        path.write_bytes(packed[:cut])
        if not whole_lines(path):
            continue
        tasks = SparkLog(path).read()
        tasks = tasks.filter(pa.compute.is_valid(tasks["finish"]))
        assert tasks == whole.slice(0, tasks.num_rows)
        assert tasks.num_rows >= before
        before = tasks.num_rows
    if pack is not zstd:  # a single small frame is one block: all or nothing
        assert before > 0


def test_tasks_that_have_not_ended(tmp_path: Path) -> None:
    events = [*log.wages()[:14], log.task_start(4, 5000, stage=1), log.task_end(3, 5000, 6000, executor="2", stage=1)]
    spark_log = written(tmp_path / "a.inprogress", *events)
    tasks = spark_log.read()
    assert tasks["task"].to_pylist() == [0, 2, 1, 3, 4]
    assert tasks["status"].to_pylist() == ["success"] * 4 + ["running"]
    assert seconds(tasks["finish"]) == [2, 2, 4, 6, None]
    assert tasks["run_time_ms"].to_pylist()[-1] is None
    assert spark_log.counts.unfinished == 1
    assert not spark_log.ended
    assert seconds(spark_log.bound(tasks)["finish"]) == [2, 2, 4, 6, 6]


def test_an_open_task_launched_at_the_last_time_lasts_one_tick(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "a", log.task_start(1, 7000))
    assert seconds(spark_log.bound(spark_log.read())["finish"]) == [7.000001]


def test_tasks_shorter_than_the_log_s_clock_last_one_tick(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "a", log.task_end(1, 7, 7), log.task_end(2, 9, 8), log.task_end(3, 9, 10))
    assert seconds(spark_log.read()["finish"]) == [0.007001, 0.009001, 0.01]
    assert (spark_log.counts.zero_length, spark_log.counts.backwards) == (1, 1)


def test_how_tasks_ended(tmp_path: Path) -> None:
    reasons = ["Success", "ExceptionFailure", "TaskKilled", "TaskCommitDenied", "FetchFailed", "ExecutorLostFailure"]
    ends = [log.task_end(task, 0, 5, reason=reason, metrics={}) for task, reason in enumerate(reasons)]
    tasks = written(tmp_path / "a", *ends).read()
    assert tasks["status"].to_pylist() == ["success", "failed", "killed", "killed", "failed", "failed"]
    assert tasks["shuffle_read_bytes"].null_count == len(reasons)


def test_a_task_whose_output_was_lost_ends_once(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "a", log.task_end(1, 0, 5), log.task_end(1, 0, 5, reason="Resubmitted"))
    assert spark_log.read().num_rows == 1
    assert spark_log.counts.resubmitted == 1


def test_cores(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "a", *log.wages())
    cores = spark_log.cores(spark_log.bound(spark_log.read()))
    assert cores.schema == CORES
    rows = zip(
        cores["executor"].to_pylist(),
        seconds(cores["start"]),
        seconds(cores["end"]),
        cores["cores"].to_pylist(),
        strict=True,
    )
    assert list(rows) == [
        ("1", 0.5, 8, 2),
        ("2", 0.5, 6, 2),
        ("1", 1, 2, -1),
        ("2", 1, 2, -1),
        ("1", 1, 4, -1),
        ("2", 5, 6, -1),
        ("1", 5, 8, -1),
    ]  # fmt: skip


def test_a_task_takes_the_cores_of_its_stage_s_profile_while_its_executor_is_there(tmp_path: Path) -> None:
    spark_log = written(
        tmp_path / "a",
        log.profile_added(0, 1.0),
        log.profile_added(3, 2.0),
        log.executor_added("1", 100, cores=4),
        log.stage(5, profile=3),
        log.task_end(0, 50, 400, stage=5),  # launched before the executor is known
        log.task_end(1, 200, 350),  # of a stage that the log does not know
        log.executor_removed("1", 300),
        log.task_end(2, 300, 310),  # after it was removed
    )
    tasks = spark_log.read()
    assert tasks["cpus"].to_pylist() == [2, 1, 1]
    cores = spark_log.cores(tasks)
    assert cores["cores"].to_pylist() == [4, -2, -1]
    assert seconds(cores["start"]) == [0.1, 0.1, 0.2]
    assert seconds(cores["end"]) == [0.3, 0.3, 0.3]


def test_blocks_of_lines_do_not_change_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = written(tmp_path / "a", *log.wages(), log.task_start(9, 6000), log.task_start(8, 7000)).read()
    for size in (1, 100, 2000):
        monkeypatch.setattr(spark_log_files, "BLOCK_BYTES", size)
        assert SparkLog(tmp_path / "a").read() == expected


def test_each_reading_starts_anew(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "a", *log.wages(), log.task_start(9, 6000))
    first, counts = spark_log.read(), spark_log.counts
    assert spark_log.read() == first
    assert spark_log.counts == counts
    spark_log.write(tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "tasks.parquet") == spark_log.bound(first)


def test_fields_in_another_order_and_with_spaces(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("".join(json.dumps(dict(reversed(event.items()))) + "\n" for event in log.wages()))
    assert SparkLog(path).read() == written(tmp_path / "b", *log.wages()).read()


def test_written_as_parquet(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "a", *log.wages()[:-2], log.task_start(7, 6500, stage=1))
    spark_log.write(tmp_path / "out" / "deep")
    tables = {path.stem: pq.read_table(path) for path in (tmp_path / "out" / "deep").iterdir()}
    assert set(tables) == {"tasks", "executors", "stages", "cores"}
    assert tables["tasks"]["status"].to_pylist()[-1] == "running"
    assert seconds(tables["tasks"]["finish"])[-1] == 8
    assert seconds(tables["executors"]["removed"]) == [None, 6]
    assert tables["cores"]["cores"].to_pylist() == [2, 2, *[-1] * 6]


def test_nothing_is_written_of_a_bad_log(tmp_path: Path) -> None:
    spark_log = written(tmp_path / "a", *log.wages(), log.task_end(1, 2, 3), {"Event": 3})
    with pytest.raises(SourceError):
        spark_log.write(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def line(event: log.Event, **changes: Any) -> str:
    return json.dumps({**event, **changes}, separators=(",", ":"))


BAD_LINES = {
    "text in between": ("garbage", "line 3 is not a JSON object with an 'Event'; only the last line may be incomplete"),
    "cut off in between": (line(log.wages()[7])[:60], "line 3 is not a JSON object"),
    "no event": ('{"Stage ID":1}', "line 3 is not a JSON object with an 'Event'"),
    "a list": ("[1]", "line 3 is not a JSON object with an 'Event'"),
    "broken inside a task": (line(log.task_end(9, 1, 2)).replace(":{", ":[", 1), "line 3 is not an event as Spark"),
    "wrong type": (
        line(log.task_end(9, 1, 2)).replace('"Task ID":9', '"Task ID":"nine"'),
        "line 3 is not an event as Spark",
    ),
    "no launch time": (
        line(log.task_end(9, 1, 2), **{"Task Info": {"Task ID": 9, "Executor ID": "1"}}),
        "line 3 .* it has no 'Task Info / Launch Time'",
    ),
    "no task info": (line(log.task_end(9, 1, 2), **{"Task Info": None}), "line 3 .* it has no 'Task Info / Task ID'"),
    "launched too late": (line(log.task_end(9, 10**18, 2)), "line 3 .* outside the years 1970 to 9999"),
    "an executor without cores": (line(log.executor_added("7", 1), **{"Executor Info": {}}), "line 3 .*Host"),
    "an executor out of time": (line(log.executor_added("7", 10**18)), "line 3 .*outside the years 1970 to 9999"),
    "an executor at no time": (line(log.executor_added("7", 0), Timestamp="noon"), "line 3 .*ExecutorAdded"),
}


@pytest.mark.parametrize(("bad", "message"), BAD_LINES.values(), ids=BAD_LINES.keys())
def test_a_bad_line_is_named(tmp_path: Path, bad: str, message: str) -> None:
    path = tmp_path / "app-1"
    good = log.text(log.log_start(), log.task_end(1, 2, 3))
    path.write_bytes(good + bad.encode() + b"\n" + log.text(log.task_end(4, 5, 6)))
    with pytest.raises(SourceError, match=f"app-1, {message}") as caught:
        SparkLog(path).read()
    assert caught.value.remedy


def test_what_is_no_event_log(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    for content, message in (
        (b"Dear diary,\n", "notes.txt is not a Spark event log: line 1"),
        (b"Dear diary", "notes.txt"),
        (b"", "holds no event"),
        (b"PAR1\x00\x01\xff\n", "is not a Spark event log"),
    ):
        path.write_bytes(content)
        with pytest.raises(SourceError, match=message):
            SparkLog(path).read()


def test_a_line_that_is_too_deep_is_no_event(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    path.write_text("[" * 100_000 + "\n")
    with pytest.raises(SourceError, match="not a Spark event log"):
        SparkLog(path).read()


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    text = log.text(*log.wages() * 50)
    for suffix, at in ((".zstd", 1200), (".lz4", 600), (".snappy", 600)):
        packed = bytearray(CODECS[suffix](text))
        packed[at : at + 60] = b"\xff" * 60
        path = tmp_path / f"app-1{suffix}"
        path.write_bytes(packed)
        with pytest.raises(SourceError, match=rf"app-1{suffix}.*"):
            SparkLog(path).read()


def test_a_line_without_end_is_not_unpacked_whole(tmp_path: Path) -> None:
    path = tmp_path / "app-1.zstd"
    path.write_bytes(zstd(b'{"Event":"' + bytes(300 << 20)))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(SourceError, match="longer than 256 MiB"):
        SparkLog(path).read()


def test_a_rolled_file_in_between_may_not_be_torn(tmp_path: Path) -> None:
    text = log.text(*log.wages())
    (tmp_path / "events_1_app-1").write_bytes(text[:-20])
    (tmp_path / "events_2_app-1").write_bytes(log.text(log.application_end(9000)))
    with pytest.raises(SourceError, match=r"events_1_app-1, line 21 is incomplete"):
        SparkLog(tmp_path).read()


def test_folders_that_are_not_one_log(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere does not exist"):
        SparkLog(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"it holds 0 files"):
        SparkLog(tmp_path)
    (tmp_path / "app-1").touch()
    (tmp_path / "app-2.inprogress").touch()
    with pytest.raises(SourceError, match=r"it holds 2 files or logs \(app-1, app-2.inprogress\)"):
        SparkLog(tmp_path)
    rolled = tmp_path / "eventlog_v2_app-3"
    rolled.mkdir()
    for number in (1, 2, 4):
        (rolled / f"events_{number}_app-3").touch()
    with pytest.raises(SourceError, match=r"lacks the file events_3_"):
        SparkLog(rolled)
    shutil.rmtree(rolled)
    rolled.mkdir()
    (rolled / "appstatus_app-3.inprogress").touch()
    with pytest.raises(SourceError, match=r"it holds"):
        SparkLog(rolled)
