"""The gpu_ops command: what it prints, what it writes, and that its errors are one message and exit code 1."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import gpu_ops as g
from gpu_ops.apps.cli import app
from tests.support import event_logs as log
from tests.support.ticks import at_us


@pytest.fixture(autouse=True)
def _a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def gpu_ops(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def wages(tmp_path: Path) -> Path:
    path = tmp_path / "app-1"
    path.write_bytes(log.text(*log.wages()))
    return path


def rows(path: Path) -> list[tuple[object, ...]]:
    """The rows of a result, in order; times as seconds since the logs' epoch."""
    table = pq.read_table(path)
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            ticks = column.cast(pa.int64()).to_pylist()
            columns.append([(tick - log.EPOCH * 1000) / 1e6 for tick in ticks])
        else:
            columns.append(column.to_pylist())
    return sorted(zip(*columns, strict=True))


def test_spark_log_writes_its_answers(wages: Path, tmp_path: Path) -> None:
    output, picture = tmp_path / "answers", tmp_path / "pictures" / "wages.png"
    result = gpu_ops("spark-log", wages, "--output", output, "--picture", picture, "--window", "4s", "--every", "2s")
    assert result.exit_code == 0, result.output
    assert {path.stem for path in output.iterdir()} == {
        *("tasks", "executors", "stages", "cores"),
        *("running_tasks", "idle_cores", "shuffled_bytes"),
    }
    # See the picture of event_logs.wages.
    assert rows(output / "running_tasks.parquet") == [
        (1, 2, "1", 0, 2),
        (1, 2, "2", 0, 1),
        (2, 4, "1", 0, 1),
        (5, 6, "2", 1, 1),
        (5, 8, "1", 1, 1),
    ]
    assert rows(output / "idle_cores.parquet") == [
        (0.5, 1, "1", 2),
        (0.5, 1, "2", 2),
        (1, 2, "1", 0),
        (1, 2, "2", 1),
        (2, 4, "1", 1),
        (2, 5, "2", 2),
        (4, 5, "1", 2),
        (5, 6, "2", 1),
        (5, 8, "1", 1),
    ]
    # Tasks 0 and 2 end at 2 s, task 1 at 4 s, task 3 at 6 s, task 4 at 8 s.
    assert rows(output / "shuffled_bytes.parquet") == [
        (0, 4, 2, 0, 150),
        (2, 6, 3, 0, 1050),
        (4, 8, 2, 150, 900),
        (6, 10, 2, 1050, 0),
        (8, 12, 1, 900, 0),
    ]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_spark_log_prints_tables_of_80_columns(wages: Path) -> None:
    result = gpu_ops("spark-log", wages, "--window", "4s", "--every", "2s")
    assert result.exit_code == 0, result.output
    lines = [line.rstrip() for line in result.stdout.splitlines()]
    assert max(map(len, lines)) <= 80
    assert lines[0] == "wages (app-1), Spark 4.1.3, ended 2026-01-01T00:00:08Z"
    assert lines[1] == "tasks: 5 succeeded"
    squeezed = [" ".join(line.split()) for line in lines]
    # 2 cores for 7.5 s, less 1 s, 3 s and 3 s; 2 cores for 5.5 s, less 1 s and 1 s.
    assert "1 2 7.5 s 3 2 7.0 8.0 53%" in squeezed
    assert "2 2 5.5 s 2 1 2.0 9.0 82%" in squeezed
    assert "in total 4 5 3 9.0 17.0 65%" in squeezed
    assert "0 collect at wages.py:10 3 1.0 s 3.0 s 0 B 1.1 kB" in squeezed
    assert "1 0 2 2 00:00:01.000 1.3 3.0 s" in squeezed
    assert "00:00:02 to 00:00:06 3 0 B 1.1 kB ████████████████" in squeezed


def test_spark_log_says_what_it_left_out(tmp_path: Path) -> None:
    events = [*log.wages()[:17], log.task_end(9, 6000, 6000)]
    (tmp_path / "events_2_app-1.compact").write_bytes(log.text(*events))
    (tmp_path / "events_3_app-1").write_bytes(log.text(log.application_end(9000))[:-9])
    result = gpu_ops("spark-log", tmp_path)
    assert result.exit_code == 0, result.output
    assert "last seen 2026-01-01T00:00:06Z" in result.stdout
    assert "tasks: 5 succeeded, 1 still running" in result.stdout
    assert "unfinished tasks, shown to end at the log's last time: 1" in result.stdout
    assert "tasks shorter than a millisecond of the log, shown to last one tick (1 µs): 1" in result.stdout
    assert "the last line is incomplete" in result.stdout
    assert "compacted" in result.stdout


def test_many_executors_are_cut_to_the_most_idle_ones(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    events = [log.executor_added(str(number), 100 * number) for number in range(20)]
    path.write_bytes(log.text(log.log_start(), log.application_start(), *events, log.application_end(9000)))
    result = gpu_ops("spark-log", path)
    assert result.exit_code == 0, result.output
    assert "Idle cores, per executor (the 12 most idle of 20)" in result.stdout
    assert "tasks: none" in result.stdout


def test_a_picture_without_shuffles_and_executors(tmp_path: Path) -> None:
    path = tmp_path / "app-1"
    path.write_bytes(log.text(log.task_end(1, 5, 900, metrics={})))
    result = gpu_ops("spark-log", path, "--picture", tmp_path / "a.svg")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "a.svg").stat().st_size > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere does not exist"),
        (["app-1", "--window", "soon"], "--window 'soon' is not a span of time"),
        (["app-1", "--every", "0s"], "--every must be longer than zero"),
        (["app-1", "--picture", "a.doc"], "no known picture format"),
        (["app-1", "--output", "app-1"], "app-1"),
        (["notes"], "notes is not a Spark event log"),
    ],
)
def test_spark_log_errors(wages: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str) -> None:
    monkeypatch.chdir(wages.parent)
    Path("notes").write_text("Dear diary\n", encoding="utf-8")
    result = gpu_ops("spark-log", *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert "Traceback" not in result.output


QUERY = """
import gpu_ops as g

def query(rides, least=1):
    return g.events(rides, start="a", end="b", unit="s").snapshot().agg(n=g.count()).filter(g.col("n") > least)
"""


@pytest.fixture
def rides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"a": [0, 60], "b": [120, 90], "zone": ["A", "B"]}), "rides.parquet")
    Path("busy.py").write_text(QUERY, encoding="utf-8")


@pytest.mark.usefixtures("rides")
def test_run(device_name: str) -> None:
    arguments = ["busy.py", "--input", "rides=rides.parquet", "--output", "busy.parquet", "--device", device_name]
    for _ in range(2):  # what is there is replaced
        result = gpu_ops("run", *arguments, "--if-exists", "replace")
        assert result.exit_code == 0, result.output
        assert "1 rows: busy.parquet" in result.stderr
        assert pq.read_table("busy.parquet")["n"].to_pylist() == [2]


@pytest.mark.usefixtures("rides")
def test_several_answers() -> None:
    query = f"{QUERY}\none = query\ndef query(rides):\n    return {{'all': one(rides, 0), 'many': one(rides)}}"
    Path("query.py").write_text(query, encoding="utf-8")
    result = gpu_ops("run", "query.py", "--input", "rides=rides.parquet", "--output", "deep/answers")
    assert result.exit_code == 0, result.output
    assert pq.read_table("deep/answers/all.parquet")["n"].to_pylist() == [1, 2, 1]
    assert pq.read_table("deep/answers/many.parquet")["n"].to_pylist() == [2]
    result = gpu_ops("explain", "query.py", "--input", "rides=rides.parquet")
    assert result.exit_code == 0, result.output
    assert "all:\n" in result.stdout
    assert "\n\nmany:\n" in result.stdout


FOLLOWING = "import gpu_ops as g\ndef query(events): return g.events(events).snapshot().agg(n=g.count())"


@pytest.mark.usefixtures("rides")
def test_run_follows_a_store_and_goes_on_from_its_checkpoint() -> None:
    Path("alive.py").write_text(FOLLOWING, encoding="utf-8")
    source = g.store("tasks")
    time = pa.timestamp("us", "UTC")
    times = {name: pa.array(ticks, pa.int64()).cast(time) for name, ticks in (("start", [1, 2]), ("end", [5, 6]))}
    source.append(pa.table(times | {"v": [1, 2]}), cti=at_us(5))
    arguments = ["alive.py", "--follow", "events=tasks", "--output", "out", "--checkpoint", "c", "--timeout", "0"]
    result = gpu_ops("run", *arguments)
    assert result.exit_code == 0, result.output
    assert "2 events in, 2 results out, 1 alive" in result.stderr
    source.advance("2020-01-01T00:00Z")
    result = gpu_ops("run", *arguments)
    assert result.exit_code == 0, result.output
    assert "2 events in, 3 results out, 0 alive" in result.stderr
    assert g.store("out").read()["n"].to_pylist() == [1, 2, 1]


def tasks(starts: list[int]) -> pa.Table:
    time = pa.timestamp("us", "UTC")
    times = {"start": starts, "end": [each + 4 for each in starts]}
    return pa.table({name: pa.array(each, pa.int64()).cast(time) for name, each in times.items()} | {"v": starts})


@pytest.mark.usefixtures("rides")
def test_a_live_run_keeps_to_its_stores_its_functions_and_its_checkpoints() -> None:
    own = "g.window_function(lambda t: t.num_rows * 1, returns=pa.int64(), of='v')"
    text = (
        f"import gpu_ops as g\nimport pyarrow as pa\ndef query(events): return g.events(events).snapshot().agg(n={own})"
    )
    Path("alive.py").write_text(text, encoding="utf-8")
    source = g.store("tasks")
    arguments = ["alive.py", "--follow", "events=tasks", "--output", "out", "--timeout", "0"]
    checkpoint = ["--checkpoint", "c", "--every", "1", "--keep", "3"]
    source.append(tasks([1, 2]), cti=at_us(2))
    for start in (3, 4, 5):
        source.append(tasks([start]), cti=at_us(start))
    result = gpu_ops("run", *arguments, *checkpoint)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in Path().iterdir() if path.name.startswith("c")) == ["c", "c.1", "c.2"]
    # Without its checkpoint it is another run.
    result = gpu_ops("run", *arguments)
    assert result.exit_code == 1
    assert "out holds the results of another run" in result.stderr
    Path("c").rename("lost")
    result = gpu_ops("run", *arguments, "--checkpoint", "c", "--every", "1h", "--adopt")
    assert result.exit_code == 0, result.output
    # With another function it is another query.
    Path("alive.py").write_text(text.replace("* 1", "* 2"), encoding="utf-8")
    source.advance("2020-01-01T00:00Z")
    result = gpu_ops("run", *arguments, *checkpoint)
    assert result.exit_code == 1
    assert "was made with other functions" in result.stderr
    result = gpu_ops("run", *arguments, *checkpoint, "--accept-changes")
    assert result.exit_code == 0, result.output
    assert g.store("out").read()["n"].to_pylist() == [1, 2, 3, 4, 8, 6, 4, 2]
    for every, message in (("0", "after one batch or more"), ("-3", "after one batch"), ("soon", "soon")):
        result = gpu_ops("run", *arguments, "--checkpoint", "c", "--accept-changes", "--every", every)
        assert result.exit_code == 1
        assert message in result.stderr


@pytest.mark.services
@pytest.mark.usefixtures("rides")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_live_run_stops_at_a_signal_with_its_checkpoint_written(number: int) -> None:
    Path("alive.py").write_text(FOLLOWING, encoding="utf-8")
    g.store("tasks").append(tasks([1, 2]), cti=at_us(5))
    arguments = [
        "run",
        "alive.py",
        "--follow",
        "events=tasks",
        "--output",
        "out",
        "--checkpoint",
        "c",
        "--timeout",
        "60s",
    ]
    program = "import sys; from gpu_ops.apps.cli import app; app(sys.argv[1:])"
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, "-c", program, *arguments], env=here) as process:
        until = time.monotonic() + 60
        while time.monotonic() < until and not g.store("out").sequence:
            time.sleep(0.05)
        process.send_signal(number)
        assert process.wait(60) == 128 + number
    g.store("tasks").append(tasks([7]), cti="2020-01-01T00:00Z")
    result = gpu_ops("run", *arguments[1:-1], "0")
    assert result.exit_code == 0, result.output
    assert "3 events in" in result.stderr
    assert g.store("out").read()["n"].to_pylist() == [1, 2, 1, 1]


@pytest.mark.usefixtures("rides")
@pytest.mark.parametrize(
    ("given", "needed"),
    [
        (["--every", "3"], "--every needs --checkpoint"),
        (["--keep", "3"], "--keep needs --checkpoint"),
        (["--accept-changes"], "--accept-changes needs --checkpoint"),
        (["--adopt"], "--adopt needs --follow"),
        (["--checkpoint", "c"], "--checkpoint needs --follow"),
        (["--checkpoint", "c", "--every", "3"], "--checkpoint needs --follow"),
    ],
)
def test_options_go_with_others(given: list[str], needed: str) -> None:
    result = gpu_ops("run", "busy.py", "--input", "rides=rides.parquet", "--output", "a.parquet", *given)
    assert result.exit_code == 1
    assert needed in result.stderr
    assert not Path("a.parquet").exists()


@pytest.mark.usefixtures("rides")
def test_options_of_a_live_run_are_refused_without_one() -> None:
    result = gpu_ops("run", "busy.py", "--input", "rides=rides.parquet", "--output", "a.parquet", "--late", "late")
    assert result.exit_code == 1
    assert "--late needs --follow" in result.stderr


@pytest.mark.usefixtures("rides")
def test_an_answer_that_is_there_is_replaced_only_if_told() -> None:
    arguments = ["busy.py", "--input", "rides=rides.parquet", "--output", "a.parquet"]
    Path("a.parquet").write_text("mine", encoding="utf-8")
    refused = gpu_ops("run", *arguments)
    assert refused.exit_code == 1
    assert refused.stderr == "error: a.parquet exists. Pass --if-exists replace, or another --output.\n"
    assert Path("a.parquet").read_text(encoding="utf-8") == "mine"
    replaced = gpu_ops("run", *arguments, "--if-exists", "replace")
    assert replaced.exit_code == 0, replaced.output
    assert pq.read_table("a.parquet").num_rows > 0


@pytest.mark.usefixtures("rides")
def test_of_several_answers_none_is_written_if_one_is_there() -> None:
    text = QUERY.replace("return ", "one = ") + "\n    return {'one': one, 'two': one}\n"
    Path("both.py").write_text(text, encoding="utf-8")
    Path("out").mkdir()
    Path("out/two.parquet").write_text("mine", encoding="utf-8")
    refused = gpu_ops("run", "both.py", "--input", "rides=rides.parquet", "--output", "out")
    assert refused.exit_code == 1
    assert "error: out/two.parquet exists. Pass --if-exists replace" in refused.stderr
    assert [path.name for path in Path("out").iterdir()] == ["two.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runn"], "No such command 'runn'"),
        (["run"], "Missing argument 'QUERY.py'"),
        (["run", "q.py"], "Missing option '--output'"),
        (["run", "q.py", "--output", "a", "--devise", "cpu"], "No such option: --devise"),
        (["run", "q.py", "--output", "a", "--device", "tpu"], "'tpu' is not one of"),
        (["run", "q.py", "--output", "a", "--if-exists", "append"], "'append' is not one of"),
        (["explain"], "Missing argument"),
    ],
)
def test_a_wrong_command_line_is_one_line_with_what_to_do(arguments: list[str], message: str) -> None:
    result = gpu_ops(*arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stderr.endswith(" --help lists the options.\n")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--timeout", "60"], "--timeout is 60, a number without a unit. Say '60s'"),
        (["--if-exists", "replace"], "with --follow, --output is a store or a topic. Leave --if-exists out."),
    ],
)
def test_what_is_wrong_of_a_live_run_is_said_before_it_starts(given: list[str], message: str) -> None:
    result = gpu_ops("run", "q.py", "--follow", "events=tasks", "--output", "out", *given)
    assert result.exit_code == 1
    assert message in result.stderr


@pytest.mark.usefixtures("rides")
def test_explain() -> None:
    result = gpu_ops("explain", "busy.py", "--input", "rides=rides.parquet", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "snapshot" in result.stdout


@pytest.mark.usefixtures("rides")
@pytest.mark.parametrize(
    ("query", "inputs", "message"),
    [
        (None, ["rides=rides.parquet"], "query.py does not exist"),
        (QUERY, ["rides"], "--input 'rides' is not NAME=PATH"),
        (QUERY, ["rides=a", "rides=b"], "--input rides is given twice"),
        (QUERY, ["rides=nowhere.parquet"], "nowhere.parquet"),
        (QUERY, ["tasks=rides.parquet"], "query(rides, least=1) does not fit the inputs tasks"),
        ("x = 1", ["rides=rides.parquet"], "query.py defines no function query"),
        ("x = (", ["rides=rides.parquet"], "query.py, line 1: SyntaxError: '(' was never closed"),
        ("import nowhere", ["rides=rides.parquet"], "query.py, line 1: ModuleNotFoundError: No module named 'nowhere'"),
        ("def query(rides):\n    return 1 / 0", ["rides=rides.parquet"], "query.py, line 2: ZeroDivisionError"),
        ("def query(rides):\n    return 7", ["rides=rides.parquet"], "query returns a int, not a Stream"),
        (QUERY.replace('col("n")', 'col("m")'), ["rides=rides.parquet"], "'m'"),
    ],
)
def test_bad_query_files(query: str | None, inputs: list[str], message: str) -> None:
    if query is not None:
        Path("query.py").write_text(query, encoding="utf-8")
    options = [option for text in inputs for option in ("--input", text)]
    for command in (["run", "query.py", "--output", "out.parquet"], ["explain", "query.py"]):
        result = gpu_ops(*command, *options)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: ")
        assert message in result.stderr
        assert "Traceback" not in result.output
    assert not Path("out.parquet").exists()


def test_help_names_the_commands() -> None:
    result = gpu_ops("--help")
    assert result.exit_code == 0
    for command in ("spark-log", "run", "explain"):
        assert command in result.stdout
