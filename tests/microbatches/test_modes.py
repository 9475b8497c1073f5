"""What is written anew keeps its mode, and a link is replaced instead of what it leads to."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

import gpu_ops as g
from gpu_ops.engines.live.checkpoints import read_checkpoint, write_checkpoint


@contextmanager
def _umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_checkpoint_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with _umask(0o022):
        write_checkpoint(path, {}, {})
        assert _mode(path) == 0o644
        path.chmod(0o600)
        write_checkpoint(path, {}, {}, keep=3)
        write_checkpoint(path, {}, {}, keep=3)
        assert [_mode(each) for each in (path, tmp_path / "c.1", tmp_path / "c.2")] == [0o600] * 3
        path.chmod(0o664)
        write_checkpoint(path, {}, {})
        assert _mode(path) == 0o664


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    kept, path = tmp_path / "kept", tmp_path / "c"
    kept.write_text("somebody's")
    path.symlink_to(kept)
    for mode, expected in ((0o666, 0o644), (0o600, 0o600)):
        kept.chmod(mode)
        path.unlink()
        path.symlink_to(kept)
        with _umask(0o022):
            write_checkpoint(path, {"n": mode}, {}, keep=2)
        assert (kept.read_text(), path.is_symlink(), _mode(path)) == ("somebody's", False, expected)
        assert read_checkpoint(path)[0]["n"] == mode
    assert (tmp_path / "c.1").is_symlink()
    write_checkpoint(path, {"n": 1}, {}, keep=2)
    assert kept.read_text() == "somebody's"
    path.unlink()
    path.symlink_to(tmp_path / "nowhere")
    write_checkpoint(path, {"n": 2}, {})
    assert (path.is_symlink(), (tmp_path / "nowhere").exists()) == (False, False)


def test_an_answer_that_replaces_a_file_keeps_its_mode_and_replaces_a_link(tmp_path: Path) -> None:
    stream = g.events(pa.table({"at": [1], "n": [2]}), start="at", unit="s")
    secret, link = tmp_path / "secret.parquet", tmp_path / "link.parquet"
    stream.write(secret)
    secret.chmod(0o600)
    before = secret.read_bytes()
    link.symlink_to(secret)
    stream.shift("1s").write(link, if_exists="replace")
    assert (secret.read_bytes(), link.is_symlink(), _mode(link)) == (before, False, 0o600)
    stream.shift("1s").write(secret, if_exists="replace")
    assert (_mode(secret), secret.read_bytes() != before) == (0o600, True)


def test_a_stores_identity_keeps_its_mode(tmp_path: Path) -> None:
    store = g.store(tmp_path / "s")
    store.append(
        pa.table({"start": pa.array([1], pa.timestamp("us", "UTC")), "end": pa.array([2], pa.timestamp("us", "UTC"))})
    )
    (tmp_path / "s" / "store.json").chmod(0o600)
    with store.writer() as writer:
        writer.claim("somebody", 0)
    assert _mode(tmp_path / "s" / "store.json") == 0o600
    assert g.store(tmp_path / "s").identity is not None
