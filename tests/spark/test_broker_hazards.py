"""Hazards that want a broker of their own, which the test may end and start again."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import pyarrow as pa

import barnabas
from barnabas.spark import ExactlyOnceKafkaSink, arrow_batches, wire
from barnabas.spark.wire import Identity, Wire
from coordinator.java.maps import partition_of_key
from protocol.messages.transactions import TransactionLogKey, TransactionLogValue
from protocol.records.batch import build_batch
from protocol.wire.codec import encode
from tests.spark.conftest import BROKERS
from tests.spark.outputs import create, read, values, wait_for_markers
from tests.support.apache_kafka import BROKER_OPTIONS
from tests.support.kafka_server import KafkaServer, Server
from tests.support.requirements import need_apache_kafka
from tests.support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 200
LAST_EPOCH = 32766  # what a client may be given; one more is for the coordinator's own fencing
COMPLETE_COMMIT = 4
TRANSACTIONS = "__transaction_state"
SETTINGS = {
    "transaction.state.log.num.partitions": 1,
    "offsets.topic.num.partitions": 1,
    # So that a test can write behind a marker, as it was before KIP-890.
    "transaction.partition.verification.enable": False,
}


@pytest.fixture(params=BROKERS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A broker that keeps its port over a restart."""
    if request.param == "barnabas":
        with barnabas.Broker(data=tmp_path / "data", config=SETTINGS) as broker:
            yield broker
    else:
        need_apache_kafka()
        with KafkaServer(tmp_path / "kafka", SETTINGS, jvm_options=BROKER_OPTIONS) as kafka:
            yield kafka


def rows(spark: SparkSession, text: str) -> DataFrame:
    return spark.range(0, ROWS, 1, 2).selectExpr(f"concat('{text}', cast(id as string)) value")


def test_epochs_that_run_out_take_another_producer_id_and_lose_nothing(
    spark: SparkSession, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create(server.bootstrap, "out", 2)
    sink = ExactlyOnceKafkaSink(server.bootstrap, query="q", topic=topic)
    sink.write(rows(spark, "0-"), 0)
    identities: list[Identity] = []
    init = Wire.init_producer_id

    def remembered(connection: Wire, *arguments: Any) -> Identity:
        identities.append(init(connection, *arguments))
        return identities[-1]

    monkeypatch.setattr(Wire, "init_producer_id", remembered)
    sink.write(rows(spark, "1-"), 1)
    sink.close()
    say_epoch(server, sink.transactional_id, identities[0].producer_id, LAST_EPOCH - 2)
    server.kill()  # a broker that is stopped may come back on another port
    server.start()
    for batch_id in range(2, 6):
        assert sink.write(rows(spark, f"{batch_id}-"), batch_id).tries == 1
    used = [identity[:2] for identity in identities]
    assert used[1] == (used[0][0], LAST_EPOCH - 1)
    assert len({producer_id for producer_id, _ in used}) == 2
    assert used[-1][1] < 10
    assert values(server.bootstrap, topic) == sorted(f"{b}-{n}" for b in range(6) for n in range(ROWS))
    sink.close()


def say_epoch(server: Server, transactional_id: str, producer_id: int, epoch: int) -> None:
    """Write into the coordinator's own topic that the id has come so far; it is read at the next start."""
    value = TransactionLogValue(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_timeout_ms=60_000,
        transaction_status=COMPLETE_COMMIT,
        transaction_partitions=[],
        transaction_last_update_timestamp_ms=int(time.time() * 1000),
        transaction_start_timestamp_ms=int(time.time() * 1000),
    )
    key = struct.pack(">h", 0) + encode(TransactionLogKey(transactional_id=transactional_id), 0)
    data = struct.pack(">h", 0) + encode(value, 0)
    batch = build_batch([(int(time.time() * 1000), key, data, ())])
    # The one that may write to internal topics.
    connection = Wire(server.bootstrap, {}, 30_000, "__admin_client")
    connection.connect()

    def is_over() -> bool:
        last = connection.describe_transaction(transactional_id)
        return last is not None and last.state == "CompleteCommit"

    # Kafka answers a commit ahead of the last record of it, which would come behind this one.
    until(is_over, "the transaction is over")
    leaders = connection.leaders([TRANSACTIONS])[TRANSACTIONS]
    partition = partition_of_key(transactional_id, len(leaders))
    connection.append(leaders[partition], None, TRANSACTIONS, partition, batch)  # type: ignore[arg-type]
    connection.close()


@pytest.mark.parametrize("request_of", ["add_partitions", "end_transaction"])
def test_a_broker_killed_in_the_midst_of_a_batch_costs_a_try(
    spark: SparkSession, server: Server, monkeypatch: pytest.MonkeyPatch, request_of: str
) -> None:
    topic = create(server.bootstrap, "out", 2)
    sink = ExactlyOnceKafkaSink(server.bootstrap, query="q", topic=topic)
    sink.write(rows(spark, "0-"), 0)
    original: Callable[..., Any] = getattr(Wire, request_of)
    killed: list[bool] = []

    def call(connection: Wire, *arguments: Any, **options: Any) -> Any:
        result = original(connection, *arguments, **options)
        if not killed:
            killed.append(True)
            server.kill()
            server.start()
            if request_of == "end_transaction":
                raise wire.NoAnswerError("killed")
        return result

    monkeypatch.setattr(Wire, request_of, call)
    sink.write(rows(spark, "1-"), 1)
    sink.write(rows(spark, "2-"), 2)
    assert values(server.bootstrap, topic) == sorted(f"{b}-{n}" for b in range(3) for n in range(ROWS))
    assert read(server.bootstrap, sink.marker_topic)[-1].value
    sink.close()


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_whose_markers_the_cluster_lost_ends_as_its_coordinator_decided(
    spark: SparkSession, server: Server, commits: bool
) -> None:
    topic = create(server.bootstrap, "out", 2)
    sink = ExactlyOnceKafkaSink(server.bootstrap, query="q", topic=topic)
    sink.write(rows(spark, "0-"), 0)
    hang(sink, topic, commits)
    assert "hangs" not in values(server.bootstrap, topic)
    sink.write(rows(spark, "1-"), 1)
    expected = [f"{b}-{n}" for b in range(2) for n in range(ROWS)]
    assert values(server.bootstrap, topic) == sorted(expected + ["hangs"] * commits)
    sink.close()


def hang(sink: ExactlyOnceKafkaSink, topic: str, committed: bool) -> None:
    """Write a record that no marker will follow, of the transaction that the coordinator ended last."""
    connection = Wire(sink.settings.bootstrap, {}, 30_000)
    connection.connect()
    if not committed:
        identity = connection.init_producer_id(sink.transactional_id, 60_000)
        connection.add_partitions(sink.transactional_id, identity, {sink.marker_topic: [0]})
        connection.end_transaction(sink.transactional_id, identity, commit=False)
    last = connection.describe_transaction(sink.transactional_id)
    assert last is not None
    columns = arrow_batches.Columns(pa.array([None], pa.binary()), pa.array([b"hangs"], pa.binary()), None)
    (batch,) = arrow_batches.build(columns, int(time.time() * 1000), 1 << 20)
    arrow_batches.stamp(batch, last.producer_id, last.epoch, 0 if not committed else written(sink))
    wait_for_markers(connection, topic)
    leader = connection.leaders([topic])[topic][0]
    connection.append(leader, sink.transactional_id, topic, 0, *batch.pieces)
    connection.close()


def written(sink: ExactlyOnceKafkaSink) -> int:
    """How many records of the last batch the first partition got."""
    assert sink.last_report is not None
    return sum(one.records for one in sink.last_report.partitions if one.partition == 0)
