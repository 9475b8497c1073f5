"""Topics as the command line writes them: what an address may say, and what is said of one that is wrong."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import gpu_ops as g
from gpu_ops.topics.addresses import topic_at

AT = "kafka://one:9092,two:9093/bids?value=json"


def test_it_says_what_the_function_says(tmp_path: Path) -> None:
    settings = tmp_path / "client.properties"
    settings.write_text("# of our cluster\nsecurity.protocol = SSL\n\nssl.ca.location=/etc/a=b\n", encoding="utf-8")
    found = topic_at(f"{AT}&columns=at:timestamp,n:int64&key=item&since=newest&writer=w&config={settings}")
    assert found == g.kafka(
        "bids",
        servers=["one:9092", "two:9093"],
        value="json",
        schema=pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())]),
        key="item",
        since="newest",
        writer="w",
        config={"security.protocol": "SSL", "ssl.ca.location": "/etc/a=b"},
    )


def test_a_file_has_the_columns(tmp_path: Path) -> None:
    columns = pa.schema([("at", pa.timestamp("ms", "UTC")), ("price", pa.decimal128(9, 2))])
    pq.write_table(columns.empty_table(), tmp_path / "bids.parquet")
    assert topic_at(f"{AT}&schema={tmp_path / 'bids.parquet'}").columns == columns
    record = '{"type": "record", "name": "Bid", "fields": [{"name": "n", "type": "long"}]}'
    (tmp_path / "bids.avsc").write_text(record, encoding="utf-8")
    assert topic_at(f"kafka://h:1/bids?value=avro&schema={tmp_path / 'bids.avsc'}").columns.names == ["n"]


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("kafka:/h:1/bids", "is no address of a topic: kafka://BROKERS/TOPIC.*in quotes, since a shell ends it at &"),
        ("kafka://h:1/?value=json", "is no address of a topic"),
        ("kafka://h:1/a/b?value=json", "is no address of a topic"),
        ("kafka://h:1/bids", "does not say value=json, avro or arrow"),
        ("kafka://h:1/bids?value", "NAME=VALUE"),
        ("kafka://h:1/bids?value=xml", '"json", "avro" or "arrow"'),
        (f"{AT}&colums=at:timestamp", "unknown option 'colums'. It has: value, key"),
        (f"{AT}&since=newest&since=oldest", "says something twice"),
        (f"{AT}&columns=at", "'at', which is not NAME:TYPE"),
        (f"{AT}&columns=at:time", "no such name in Arrow. Write string"),
        (f"{AT}&columns=a:int64&schema=b", "columns= and schema="),
        (f"{AT}&config=none.properties", "none.properties cannot be read"),
    ],
)
def test_a_wrong_address_says_how_it_is_written(address: str, says: str) -> None:
    with pytest.raises(g.GpuOpsError, match=says):
        topic_at(address)


def test_a_setting_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("a=b\nsecurity.protocol\n", encoding="utf-8")
    with pytest.raises(g.PlanError, match=r"line 2: 'security\.protocol' is not name=value"):
        topic_at(f"{AT}&config={tmp_path / 'wrong'}")
