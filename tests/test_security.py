"""What docs/security.md claims: each claim names a test here or elsewhere, and those here try to break it."""

from __future__ import annotations

import ast
import json
import os
import re
import stat
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import gpu_ops as g
from gpu_ops.errors import SourceError
from tests.fuzz import sound

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "gpu_ops"
PAGE = ROOT / "docs" / "security.md"

# What reads objects, and so may run code, from bytes; and what listens.
UNPICKLES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "copyreg"}
LISTENS = {"socketserver", "http", "xmlrpc", "wsgiref", "ssl", "multiprocessing"}
RUNS = {"eval", "exec", "compile", "__import__"}

# Where code of others is run, or a name of the socket module is used.
QUERY_FILES = {"apps/queries/__init__.py", "apps/demo.py", "apps/demo_live.py"}
SENT_BY_SPARK = {"engines/spark/sending.py"}
"""A worker unpickles what the driver made: Spark's own exchange, which is trusted."""
PROCESSES = {"apps/broker.py", "apps/demo.py", "apps/spark_submit.py", "engines/spark/sending.py"}
HOST_NAMES = {"microbatches/folders.py"}
FREE_PORTS = {"apps/broker.py"}
"""The broker that demos and tests start is a process of its own, on ports of the loopback that nobody has."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """The package's modules, by their paths."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def imported(tree: ast.Module) -> set[str]:
    """The first parts of the names of what a module imports, by whichever way."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {each.name.partition(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).partition(".")[0])
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            argument = node.args[0]
            found.add(str(argument.value).partition(".")[0] if isinstance(argument, ast.Constant) else "?")
    return found


def called(tree: ast.Module) -> set[str]:
    """The names that a module calls."""
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


@pytest.mark.slow
def test_nothing_is_unpickled_or_evaluated_and_nothing_listens() -> None:
    for path, tree in modules():
        names, calls = imported(tree), called(tree)
        assert not names & LISTENS, path
        assert not names & UNPICKLES or path in SENT_BY_SPARK, path
        assert not calls & RUNS, path
        assert "runpy" not in names or path in QUERY_FILES, path
        assert not names & {"subprocess", "os.system"} or path in PROCESSES, path
        assert "socket" not in names or path in HOST_NAMES | FREE_PORTS, path
        allowed = "socket.socket" if path in FREE_PORTS else "socket.gethostname"
        assert {call for call in calls if call.startswith("socket.")} <= {allowed}, path
        # Which module is imported is never taken from a file: these names stand in the package, or are the user's.
        assert "?" not in names or path in {"devices/__init__.py", "core/other_names.py"}, path
        assert not {"np.load", "numpy.load", "pd.read_pickle"} & calls, path


WATCHED = """
import os
import sys
from pathlib import Path

import gpu_ops as g
from tests.fuzz import sound

folder, seen = Path(sys.argv[1]), []

def ours_alone():
    # Numba's cache of compiled kernels is Numba's, and trusted (docs/security.md).
    frame = sys._getframe(2)
    while frame is not None:
        if "numba" in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return True

def watch(event, arguments):
    if event.startswith(("pickle.", "socket.", "subprocess.", "os.exec", "os.spawn", "os.posix_spawn", "os.system",
                         "marshal.load", "ctypes.dlopen", "code.__new__", "exec", "compile")) and ours_alone():
        seen.append((event, str(arguments)[:200]))
    if event == "open" and isinstance(arguments[0], str) and arguments[2] & (os.O_WRONLY | os.O_RDWR):
        seen.append((event, arguments[0]))

def work():
    for name in ("given.arrow", "given.parquet", "given.csv"):
        look = g.events(str(folder / name), start="start", end="end").by("k").snapshot().agg(n=g.count())
        assert look.collect(device="cpu").num_rows
    store = g.store(folder / "store")
    assert store.read().num_rows and store.verify().sound
    made, inputs = sound.PLANS["inner"]
    live = g.restore(folder / "query.checkpoint", made(), device="cpu")
    sound.push(live, inputs, 12, 18)
    live.results()

work()  # what is imported and compiled is, once
sys.addaudithook(watch)
work()
print(seen)
"""


@pytest.mark.services
def test_reading_runs_no_code_opens_no_socket_and_writes_nowhere(tmp_path: Path) -> None:
    table = sound.TABLES["int64"]
    (tmp_path / "given.arrow").write_bytes(sound.arrow(table, stream=False, compression="zstd"))
    (tmp_path / "given.csv").write_bytes(sound.csv(table))
    g.events(table, start="start", end="end").write(tmp_path / "given.parquet", device="cpu")
    (tmp_path / "store").mkdir()
    for name, content in sound.store_files("int64").items():
        (tmp_path / "store" / name).write_bytes(content)
    (tmp_path / "query.checkpoint").write_bytes(sound.zipped(sound.checkpoint_parts("inner")))
    command = [sys.executable, "-c", WATCHED, str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"


@pytest.mark.services
def test_the_watch_sees(tmp_path: Path) -> None:
    harm = """
import pickle, socket
pickle.loads(pickle.dumps(Path))
socket.socket().bind(('127.0.0.1', 0))
(folder / 'beside').open('xb')
"""
    script = WATCHED[: WATCHED.index("def work")] + "sys.addaudithook(watch)\n" + harm + "print(seen)"
    command = [sys.executable, "-c", script, str(tmp_path)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "pickle.find_class" in ran.stdout
    assert "socket.bind" in ran.stdout
    assert "beside" in ran.stdout


def test_a_checkpoint_holds_hashes_of_functions_and_no_code(tmp_path: Path) -> None:
    secret = "a text that stands in the function"  # noqa: S105

    def own(table: pa.Table) -> int:
        return int(len(secret) + table.num_rows)

    events = g.events(pa.schema([("at", pa.int64()), ("v", pa.int64())]).empty_table(), start="at", unit="s")
    query = events.tumbling("1min").agg(n=g.window_function(own, returns=pa.int64(), of="v"))
    live = query.start(device="cpu")
    live.push({"at": [1], "v": [2]})
    path = tmp_path / "query.checkpoint"
    live.checkpoint(path)
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        facts = json.loads(archive.read("checkpoint.json"))
        everything = b"".join(archive.read(each) for each in names)
    assert all(name == "checkpoint.json" or re.fullmatch(r"\d{3}\.arrow", name) for name in names)
    assert facts["functions"]
    assert all(re.fullmatch("[0-9a-f]{16}", each) for each in facts["functions"].values())
    for code in (own.__code__.co_code, b"lambda", b"pickle", b"cloudpickle", secret.encode()):
        assert code not in everything


def test_names_in_a_checkpoint_are_no_places(tmp_path: Path) -> None:
    parts = dict(sound.checkpoint_parts("snapshot"))
    facts = json.loads(parts["checkpoint.json"])
    climbing = {file: f"../../{file}" for file in facts["tables"]}
    facts["tables"] = {climbing[file]: name for file, name in facts["tables"].items()}
    moved = {climbing.get(file, file): content for file, content in parts.items()}
    inside = tmp_path / "one" / "two"
    inside.mkdir(parents=True)
    path = inside / "query.checkpoint"
    path.write_bytes(sound.zipped(moved | {"checkpoint.json": json.dumps(facts).encode()}))
    before = sorted(tmp_path.rglob("*"))
    made, _ = sound.PLANS["snapshot"]
    # Whether it is refused or read, it is not unpacked.
    with suppress(SourceError):
        g.restore(path, made(), device="cpu")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_link_that_lies_in_wait_is_not_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched", encoding="utf-8")
    answer = g.events(sound.TABLES["int64"], start="start", end="end")
    # Under the name of what is unfinished, guessed right for once …
    monkeypatch.setattr("secrets.token_hex", lambda size=16: "0" * 2 * size)
    (tmp_path / f".out.parquet.{'0' * 16}.tmp").symlink_to(victim)
    with pytest.raises(SourceError, match="cannot be written"):
        answer.write(tmp_path / "out.parquet", device="cpu")
    assert victim.read_text(encoding="utf-8") == "untouched"
    monkeypatch.undo()
    # … and under the name itself.
    (tmp_path / "out.parquet").symlink_to(victim)
    answer.write(tmp_path / "out.parquet", device="cpu", if_exists="replace")
    assert victim.read_text(encoding="utf-8") == "untouched"
    assert not (tmp_path / "out.parquet").is_symlink()


def test_a_link_in_place_of_a_stores_lock_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched", encoding="utf-8")
    store = tmp_path / "store"
    store.mkdir()
    for name, content in sound.store_files("int64").items():
        (store / name).write_bytes(content)
    (store / ".writer.lock").unlink()
    (store / ".writer.lock").symlink_to(victim)
    with pytest.raises(SourceError, match="is a link"):
        g.store(store).compact()
    assert victim.read_text(encoding="utf-8") == "untouched"
    assert g.store(store).verify().sound


@pytest.mark.parametrize("name", ["e.parquet", "e.arrow", "e.csv", "query.checkpoint", "store/store.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path: Path, name: str) -> None:
    (tmp_path / "store").mkdir()
    for each, content in sound.store_files("int64").items():
        (tmp_path / "store" / each).write_bytes(content)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    asks: dict[str, Callable[[], object]] = {
        "query.checkpoint": lambda: g.restore(tmp_path / name, sound.PLANS["inner"][0](), device="cpu"),
        "store/store.json": lambda: g.store(tmp_path / "store").identity,
    }
    with pytest.raises(SourceError, match="is a pipe or a device, not a file"):
        asks.get(name, lambda: g.events(tmp_path / name, start="start", end="end"))()


def test_a_file_that_is_replaced_keeps_its_mode(tmp_path: Path) -> None:
    made, inputs = sound.PLANS["last"]
    live = made().start(device="cpu")
    answer = g.events(sound.TABLES["int64"], start="start", end="end")

    def write() -> None:
        live.checkpoint(tmp_path / "query.checkpoint", keep=2)
        answer.write(tmp_path / "out.arrow", device="cpu", if_exists="replace")

    write()
    for each in tmp_path.iterdir():
        each.chmod(0o600)
    sound.push(live, inputs, 0, 6)
    write()
    # The older checkpoint, too, which has another name now.
    assert {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir()} == dict.fromkeys(
        ("query.checkpoint", "query.checkpoint.1", "out.arrow"), 0o600
    )


def test_nothing_that_is_written_may_be_run(tmp_path: Path) -> None:
    made, inputs = sound.PLANS["last"]
    live = made().start(device="cpu")
    sound.push(live, inputs, 0, 6)
    live.checkpoint(tmp_path / "query.checkpoint")
    g.store(tmp_path / "store").append(g.events(sound.TABLES["int64"], start="start", end="end").collect(device="cpu"))
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert len(files) > 3
    for each in files:
        assert not each.stat().st_mode & (stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH | stat.S_IWOTH), each


def test_each_claim_names_a_test_that_there_is() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "::" in line]
    assert len(rows) > 10
    named = [each for row in rows for each in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)]
    assert len(named) >= len(rows)
    for path, test in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert test in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}, (path, test)
