"""The live demo: a broker, two drivers of which one is killed, and one answer."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import gpu_ops as g
from gpu_ops.apps import broker as brokers
from gpu_ops.apps import demo_live
from gpu_ops.apps.broker import CONNECTOR, Broker


@pytest.mark.services
@pytest.mark.xdist_group("kafka")
@pytest.mark.skipif(not CONNECTOR, reason="there is no connector (`make kafka` fetches it)")
def test_the_whole_demo(kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"EVENTS": 6_000, "EPOCH_EVENTS": 600, "COMMITTED": 2, "FEWEST": 1}.items():
        monkeypatch.setattr(demo_live, name, value)
    output, printed = tmp_path / "demo_live_output", io.StringIO()
    demo_live.run(output, Console(file=printed, width=80), kafka)
    said = printed.getvalue()
    assert "NEXMark, 360 auctions and 5,520 bids in Kafka" in said
    assert re.search(r"The first driver was killed (in the middle of|behind) epoch \d", said)
    found = re.search(r"byte by byte: (\d+) rows", said)
    assert found is not None, said
    winners, expected = (pq.read_table(output / f"{name}.parquet") for name in ("winners", "expected"))
    assert winners.num_rows == int(found[1]) > 300
    assert winners.equals(expected)
    assert (output / "winners.png").read_bytes().startswith(b"\x89PNG")


def test_other_results_are_a_defect() -> None:
    one, other = (pa.table({"auction": [1, 2], "price": [each, 7]}) for each in (5, 6))
    assert "2 rows" in demo_live._compared(one, one.take([1, 0]))
    with pytest.raises(g.GpuOpsError, match="This is a defect"):
        demo_live._compared(one, other)


def test_what_is_missing_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First the broker, then Java, then the connector, then the checkout."""

    def said() -> str:
        assert demo_live.main() == 1
        return capsys.readouterr().out.replace("\n", " ")

    monkeypatch.setattr(brokers, "JARS", tmp_path)
    assert "has no Kafka broker. Fetch it: make kafka." in said()
    (tmp_path / "kafka-broker-4").mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "Java is missing, and a Kafka broker needs it." in said()
    server = Broker(tmp_path, 0)
    lacking: dict[str, tuple[object, str]] = {"CONNECTOR": ([], "no connector of Spark")}
    for name, (value, refused) in (lacking | {"CONF": (tmp_path / "none", "Run it in a checkout")}).items():
        monkeypatch.setattr(demo_live, name, value)
        with pytest.raises(g.GpuOpsError, match=refused):
            demo_live.run(tmp_path, Console(file=io.StringIO()), server)
