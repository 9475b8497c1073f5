"""A small Spark job whose tasks are of very unequal length: seven of ten orders are one customer's.

`make demo` submits it with event logging on, and asks its log what its executors did. It takes the number of orders.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

CUSTOMERS = 300


def main(count: int) -> None:
    # Adaptive execution would mend the skew that is to be seen.
    spark = SparkSession.builder.appName("skewed orders").config("spark.sql.adaptive.enabled", "false").getOrCreate()

    number = f.col("id")
    orders = spark.range(count, numPartitions=6).select(
        f.when(number % 10 < 7, 0).otherwise(number % CUSTOMERS).alias("customer"),
        (number * 7919 % 10_007).alias("amount"),
        f.sha2(number.cast("string"), 256).alias("note"),
    )
    customers = spark.range(CUSTOMERS, numPartitions=2).select(
        number.alias("customer"), f.concat(f.lit("region "), number % 7).alias("region")
    )

    # One task sorts the large customer's orders, while the others have long ended.
    largest = orders.withColumn("place", f.rank().over(Window.partitionBy("customer").orderBy(f.desc("amount"))))
    by_region = largest.hint("merge").join(customers, "customer").groupBy("region")
    by_region.agg(f.sum("amount"), f.max("place"), f.max("note")).collect()
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]))
