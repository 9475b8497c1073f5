"""What the live demo asks an auction in Kafka, NEXMark's question 9: which bid won each auction, and at what price?

    spark-submit --driver-class-path 'JARS/*' winning_bids.py SERVERS AUCTIONS BIDS WINNERS CHECKPOINT EVENTS [--end]

It reads the topics AUCTIONS and BIDS, some EVENTS of both in an epoch, and writes WINNERS, until it is stopped; with
--end until there is no more to read, and then the query ends. Killed, it goes on when it is started again.
"""

from __future__ import annotations

import sys
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

import gpu_ops as g
from gpu_ops.apps import nexmark
from gpu_ops.apps.nexmark import queries, streams

UTC = pa.timestamp("us", "UTC")
WINNERS = pa.schema(
    [("start", UTC), ("end", UTC), *((name, pa.int64()) for name in ("auction", "bidder", "price", "category"))]
)


def query(auctions: g.Stream, bids: g.Stream) -> g.Stream:
    """The winner of each auction, when it expires. Events come with at most ten seconds of delay."""
    timely = [each.advance_time("1s", delay="10s") for each in (auctions, bids)]
    return queries.q9(*timely).select(*WINNERS.names[2:])


def topics(servers: str, auctions: str, bids: str, winners: str) -> tuple[g.Topic, g.Topic, g.Topic]:
    """The topics: two that are read, and one that is written."""
    at: dict[str, Any] = {"servers": servers, "value": "json"}
    return (
        g.kafka(auctions, **at, schema=nexmark.SCHEMAS["auctions"]),
        g.kafka(bids, **at, schema=nexmark.SCHEMAS["bids"]),
        g.kafka(winners, **at, schema=WINNERS, key="auction"),
    )


def main(servers: str, auctions: str, bids: str, winners: str, checkpoint: str, events: int, *, end: bool) -> None:
    read, also_read, written = topics(servers, auctions, bids, winners)
    spark = SparkSession.builder.appName("winning bids").getOrCreate()
    # Of fifty events three are auctions, so both topics are read at one pace.
    few, many = (spark.readStream.option("maxOffsetsPerTrigger", events * part // 49) for part in (3, 46))
    asked = query(streams.auctions(read, spark=few), streams.bids(also_read, spark=many))
    where: dict[str, Any] = {"into": written, "checkpoint": checkpoint}
    asked.start_on_spark(**where, partitions=2, trigger={"availableNow": True} if end else None).awaitTermination()
    asked.end_on_spark(**where)
    spark.stop()


if __name__ == "__main__":
    first, second, third, fourth, fifth, count, *last = sys.argv[1:]
    main(first, second, third, fourth, fifth, int(count), end=last == ["--end"])
