"""Spark at a broker where everybody signs in: its own source and sink, and the exactly-once one, by what
`client_config` gives each."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import barnabas
from barnabas.spark import ExactlyOnceKafkaSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WAYS = [
    ("sasl_plaintext", "PLAIN"),
    ("sasl_plaintext", "SCRAM-SHA-256"),
    ("sasl_plaintext", "SCRAM-SHA-512"),
    ("sasl_ssl", "SCRAM-SHA-512"),
    ("ssl", None),
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(filter(None, way)))
def test_spark_reads_and_writes_by_its_own_sink_and_by_the_exactly_once_one(
    spark: SparkSession, way: tuple[str, str | None]
) -> None:
    security, mechanism = way
    if security != "sasl_plaintext":
        pytest.importorskip("cryptography", reason="needs the extra security")
    with barnabas.Broker(security=security, users={"alice": "secret"}) as broker:
        broker.allow("alice", "all")
        options = broker.client_config("alice", "spark", mechanism)
        client = broker.client_config("alice", "kafka-python", mechanism)
        client.pop("bootstrap_servers")
        rows = spark.range(0, 10, numPartitions=2).selectExpr("CAST(id AS STRING) AS value")

        rows.write.format("kafka").options(**options, topic="ours").save()
        with closing(ExactlyOnceKafkaSink(broker.bootstrap, query="q", topic="ours", client=client)) as sink:
            sink(rows, 0)

        reader = spark.read.format("kafka").options(**options, subscribe="ours")
        read = reader.option("kafka.isolation.level", "read_committed").load()
        found = [row.value.decode() for row in read.select("value").collect()]
        assert sorted(found) == sorted(2 * list(map(str, range(10))))
