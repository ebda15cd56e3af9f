"""What the adapter uses of kafka-python: an upgrade that breaks it is named here, ahead of any broker."""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from itertools import groupby
from pathlib import Path

import pytest

kafka = pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")

from kafka.net.compat import KafkaNetClient
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.admin import DescribeProducersRequest, DescribeTransactionsRequest
from kafka.protocol.consumer import FetchRequest, FetchResponse, ListOffsetsRequest
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest, MetadataResponse
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
)
from kafka.protocol.producer.transaction import WriteTxnMarkersRequest

from barnabas.spark import errors as codes
from barnabas.spark.errors import (
    BrokerRefusedError,
    NoAnswerError,
    QueryFencedError,
    RecordTooLargeError,
    ResponseError,
    TryFailedError,
    as_sink_error,
)
from barnabas.spark.wire import LATEST, READ_UNCOMMITTED, Outgoing, Produce, Wire
from tests.spark.outputs import create

ROOT = Path(__file__).parents[2]


def test_the_release_is_of_the_line_that_the_extra_takes() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (wanted,) = [line for line in extras["spark"] if line.startswith("kafka-python")]
    assert wanted == "kafka-python[lz4,snappy,zstd]>=3.0.0,<3.1"
    assert re.fullmatch(r"3\.0\.\d+", kafka.__version__)


def test_only_the_adapter_imports_the_library() -> None:
    importing = set()
    for file in (ROOT / "barnabas").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            if any(name.partition(".")[0] == "kafka" for name in names):
                importing.add(file.stem)
    importing.remove("client_configs")  # whose token provider has to be of kafka-python's class
    assert all(name.startswith("wire") for name in importing), importing


def test_connections_are_made_and_asked_as_the_adapter_does() -> None:
    client = KafkaNetClient(bootstrap_servers=["127.0.0.1:1"])
    try:
        assert isinstance(client._manager, KafkaConnectionManager)
        assert not client._manager.bootstrapped
        assert {"timeout_ms", "future"} <= inspect.signature(client._net.poll).parameters.keys()
        assert {"request", "node_id"} <= inspect.signature(client._manager.send).parameters.keys()
        assert client._manager.cluster.controller is None
        assert {"timeout_ms"} <= inspect.signature(client._manager.bootstrap_async).parameters.keys()
        assert {"node_id"} <= inspect.signature(client._manager.get_connection).parameters.keys()
        assert client._manager._conns == {}
        # Whether a broker throttles, and why a connection failed.
        connection = KafkaConnection(client._net, node_id=1, **client._manager.config)
        assert connection.paused == set()
        assert not connection.connected
        assert callable(connection.init_future.add_errback)
    finally:
        client.close()


@pytest.mark.parametrize(
    ("message", "version", "fields"),
    [
        (InitProducerIdRequest, 4, "transactional_id transaction_timeout_ms producer_id producer_epoch"),
        (EndTxnRequest, 3, "transactional_id producer_id producer_epoch committed"),
        (AddOffsetsToTxnRequest, 3, "transactional_id producer_id producer_epoch group_id"),
        (
            AddPartitionsToTxnRequest,
            3,
            "v3_and_below_transactional_id v3_and_below_producer_id "
            "v3_and_below_producer_epoch v3_and_below_topics",
        ),
        (
            TxnOffsetCommitRequest,
            3,
            "transactional_id group_id producer_id producer_epoch generation_id topics",
        ),
        (ProduceRequest, 9, "transactional_id acks timeout_ms topic_data"),
        (
            ProduceResponse.TopicProduceResponse.PartitionProduceResponse,
            None,
            "error_code base_offset log_append_time_ms error_message",
        ),
        (ListOffsetsRequest, 7, "isolation_level topics"),
        (FetchRequest, 11, "max_wait_ms min_bytes max_bytes isolation_level topics"),
        (
            FetchResponse.FetchableTopicResponse.PartitionData,
            None,
            "error_code high_watermark last_stable_offset aborted_transactions records",
        ),
        (FindCoordinatorRequest, 3, "key key_type"),
        (MetadataRequest, 9, "topics allow_auto_topic_creation"),
        (DescribeTransactionsRequest, 0, "transactional_ids"),
        (DescribeProducersRequest, 0, "topics"),
        (
            WriteTxnMarkersRequest.WritableTxnMarker,
            None,
            "producer_id producer_epoch transaction_result topics coordinator_epoch",
        ),
    ],
)
def test_messages_have_the_fields_that_are_used(message: type, version: int | None, fields: str) -> None:
    made = message()
    missing = [field for field in fields.split() if not hasattr(made, field)]
    assert not missing
    if version is not None:
        assert message.max_version >= version  # type: ignore[attr-defined]


def test_a_broker_that_is_not_there_is_no_answer() -> None:
    connection = Wire("127.0.0.1:1", {}, 200)
    try:
        with pytest.raises(NoAnswerError):
            connection.init_producer_id("t", 1000)
    finally:
        connection.close()


def test_a_broker_that_was_away_when_kafka_python_looked_is_found_later(barnabas_bootstrap: str) -> None:
    topic = create(barnabas_bootstrap, "looked-for", 1)
    connection = Wire(barnabas_bootstrap, {}, 10_000)
    manager = connection._manager
    try:
        leader = connection.leaders([topic])[topic][0]
        # It sees another one alone, which answers for this one as any of a cluster does.
        known = manager.cluster._brokers.pop(leader)
        other = MetadataResponse.MetadataResponseBroker(99, known.host, known.port, known.rack)
        manager.cluster._brokers[other.node_id] = other
        connected = manager._conns.pop(leader, None)
        assert connection.offset(topic, 0, leader, LATEST, READ_UNCOMMITTED) == 0
        if connected is not None:
            connected.close()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (codes.PRODUCER_FENCED, QueryFencedError),
        (codes.INVALID_PRODUCER_EPOCH, QueryFencedError),
        (codes.MESSAGE_TOO_LARGE, RecordTooLargeError),
        (codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, BrokerRefusedError),
        (45, TryFailedError),
    ],
)
def test_error_codes_are_distinguished(code: int, kind: type) -> None:
    assert type(as_sink_error(ResponseError(code, "Name", "What"))) is kind


@pytest.mark.parametrize(
    ("transactional_id", "places"),
    [
        ("id", [("t", 0, 100)]),
        (None, [("t", 7, 1), ("t", 300, 200), ("other", 2, 20_000), ("ü" * 100, 70_000, 0)]),
    ],
)
@pytest.mark.parametrize("version", [3, 9])
def test_produce_requests_have_the_bytes_that_the_library_gives_them(
    transactional_id: str | None, places: list[tuple[str, int, int]], version: int
) -> None:
    batches = [(topic, partition, b"x" * size) for topic, partition, size in places]
    shape = ProduceRequest.TopicProduceData
    whole = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            shape(
                name=topic,
                partition_data=[
                    shape.PartitionProduceData(index=partition, records=data) for _, partition, data in of
                ],
            )
            for topic, of in groupby(batches, lambda one: one[0])
        ],
    )
    outgoing = [
        Outgoing(topic, partition, (data[:3], memoryview(data)[3:])) for topic, partition, data in batches
    ]
    made = []
    for request in (whole, Produce(transactional_id, 30_000, outgoing)):  # type: ignore[arg-type]
        request.API_VERSION = version
        request.with_header(correlation_id=12345, client_id="barnabas-spark")
        assert request.expect_response()
        made.append(bytes(request.encode(framed=True, header=True)))
    assert made[0] == made[1]


def test_a_produce_request_is_of_the_version_that_adds_no_partition_to_a_transaction() -> None:
    assert Produce("id", 1, [])._max_version == 9
