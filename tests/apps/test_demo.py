"""The demo, through the real spark-submit."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from gpu_ops import GpuOpsError
from gpu_ops.apps import demo

pytestmark = pytest.mark.spark


@pytest.mark.services
def test_the_whole_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "ORDERS", 40_000)
    output = tmp_path / "demo_output"
    printed = io.StringIO()
    demo.run(output, Console(file=printed, width=80))

    said = printed.getvalue()
    assert "skewed orders" in said
    assert "tasks: 24 succeeded" in said
    assert max(map(len, said.splitlines()[8:-1])) <= 80
    # The second job runs with the file for one machine, whose settings for the log are found.
    job = (output / "spark.log").read_text().split("$ ")[-1]
    assert "local-cpu.properties" in job
    assert "log4j" not in job.lower().replace("default log4j profile", ""), "the log settings were not found"
    assert all(f"{output}/answers/{name}\n" in job for name in demo.ANSWERS), "what was written was not counted"
    assert (output / "timeline.png").read_bytes().startswith(b"\x89PNG")
    for name in demo.ANSWERS:
        # What Spark wrote says when, in UTC.
        assert str(pq.read_schema(next((output / f"{name}.parquet").glob("*.parquet"))).field("start").type) == (
            "timestamp[us, tz=UTC]"
        )
    assert "NEXMark, 6,000 auctions and 92,000 bids" in said
    averages = pq.read_table(output / "closing_prices.parquet", columns=["category", "final"])
    assert set(averages["category"].to_pylist()) == set(range(10, 15))
    assert "13: 31.6" in said
    tasks = pq.read_table(output / "tasks.parquet", columns=["shuffle_read_bytes"])["shuffle_read_bytes"]
    assert pc.max(tasks).as_py() > 5 * pc.quantile(tasks, 0.75)[0].as_py()


@pytest.mark.services
def test_what_spark_said_is_shown_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf" / "demo").mkdir(parents=True)
    (tmp_path / "conf" / "demo" / "workload.py").write_text("raise RuntimeError('no orders')", encoding="utf-8")
    monkeypatch.setattr(demo, "CONF", tmp_path / "conf")
    with pytest.raises(
        GpuOpsError, match=r"(?s)spark-submit failed with exit code 1\..*RuntimeError: no orders.*spark.log"
    ):
        demo.run(tmp_path / "out", Console(file=io.StringIO()))


@pytest.mark.services
def test_what_the_command_said_is_shown_when_it_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "AUCTION", tmp_path / "none.py")
    with pytest.raises(GpuOpsError, match=r"(?s)gpu_ops run failed with exit code 1\..*none.py does not exist"):
        demo._auction(tmp_path)


def test_without_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "CONF", tmp_path / "nowhere")
    assert demo.main() == 1
    assert "Run it in a checkout" in capsys.readouterr().out.replace("\n", " ")
