"""What the adapter does where a broker has it wait: a client above its quota."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")
pa = pytest.importorskip("pyarrow", reason="needs pyarrow, of the extra `spark`")

from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from barnabas.spark import arrow_batches
from barnabas.spark.errors import NoAnswerError
from barnabas.spark.wire import READ_COMMITTED, Identity, Wire
from barnabas.spark.wire_connection import CLIENT_ID, check
from barnabas.spark.wire_log import RawLog
from tests.spark.outputs import wait_for_markers
from tests.spark.topics import create_topic

TIMEOUT_MS = 30_000
QUOTA = 14_000
"""Bytes a second. Both brokers look at the last ten seconds: what is more than ten times this is throttled."""

Name = Callable[[str], str]


@pytest.fixture
def throttled(bootstrap: str, name: Name) -> Iterator[Wire]:
    """A client with quotas."""
    client_id = name("client")
    connection = Wire(bootstrap, {}, TIMEOUT_MS, client_id)
    connection.connect()
    shape = AlterClientQuotasRequest.EntryData
    entry = shape(
        entity=[shape.EntityData(entity_type="client-id", entity_name=client_id)],
        ops=[
            shape.OpData(key=key, value=float(QUOTA), remove=False)
            for key in ("producer_byte_rate", "consumer_byte_rate")
        ],
    )
    request = AlterClientQuotasRequest(entries=[entry], validate_only=False, max_version=1)
    (answer,) = connection._finish(connection._begin(connection.any_node(), request)).entries
    check(answer.error_code, "AlterClientQuotas")
    yield connection
    connection.close()


def send(
    connection: Wire, leader: int, transactional_id: str, topic: str, identity: Identity, first: int
) -> int:
    """Send a batch of about 50,000 bytes; its offset."""
    columns = arrow_batches.Columns(None, pa.array([os.urandom(50_000)], pa.binary()), None)
    (batch,) = arrow_batches.build(columns, int(time.time() * 1000), 1 << 20)
    arrow_batches.stamp(batch, identity.producer_id, identity.epoch, first)
    return connection.append(leader, transactional_id, topic, 0, *batch.pieces).base_offset


def write(connection: Wire, transactional_id: str, topic: str, count: int) -> int:
    """Commit so many batches; the leader they went to."""
    identity = connection.init_producer_id(transactional_id, TIMEOUT_MS)
    connection.add_partitions(transactional_id, identity, {topic: [0]})
    wait_for_markers(connection, topic)  # which its leader answers, when it is one
    leader = connection.leaders([topic])[topic][0]
    for number in range(count):
        assert send(connection, leader, transactional_id, topic, identity, number) == number
    connection.end_transaction(transactional_id, identity, commit=True)
    wait_for_markers(connection, topic)
    return leader


def test_a_throttled_fetch_is_made_again_when_its_time_has_passed(
    bootstrap: str, name: Name, throttled: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = create_topic(bootstrap, name("out"))
    writer = Wire(bootstrap, {}, TIMEOUT_MS)
    leader = write(writer, name("id"), topic, 3)
    writer.close()
    empty: list[int] = []
    finish = throttled._finish

    def noticing(future: Any) -> Any:
        answer = finish(future)
        if hasattr(answer, "responses") and not answer.responses:
            empty.append(answer.throttle_time_ms)
        return answer

    monkeypatch.setattr(throttled, "_finish", noticing)
    for offset in range(3):
        one = throttled._fetch(leader, topic, 0, offset, READ_COMMITTED, max_bytes=52_000, max_wait_ms=0)
        assert len(one.records) >= 50_000
    assert empty
    assert min(empty) > 0


def test_a_fetch_that_is_throttled_past_the_request_timeout_is_no_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = Wire("127.0.0.1:1", {}, 1_000)
    answer = SimpleNamespace(error_code=0, responses=[], throttle_time_ms=1_001)
    monkeypatch.setattr(connection, "_begin", lambda node, request: None)
    monkeypatch.setattr(connection, "_finish", lambda future: answer)
    with pytest.raises(NoAnswerError, match="Fetch of out-3: throttled for longer than 1000 ms"):
        connection.read_committed("out", 3, 0, 0)
    connection.close()


def test_a_throttled_writer_goes_on_when_its_time_has_passed(
    bootstrap: str, name: Name, throttled: Wire
) -> None:
    topic = create_topic(bootstrap, name("out"))
    # The third one's answer has the throttle time, and the transaction is still to be ended.
    write(throttled, name("id"), topic, 3)


def test_a_broker_that_throttles_past_the_request_timeout_is_no_answer() -> None:
    connection = Wire("127.0.0.1:1", {}, 100)
    paused: Any = SimpleNamespace(connected=True, paused={"throttle"})
    connection._manager._conns[0] = paused
    try:
        with pytest.raises(NoAnswerError, match="the broker 0 throttles this client for longer than 100 ms"):
            connection._begin(0, None)
    finally:
        del connection._manager._conns[0]
        connection.close()


def test_the_audit_reads_under_its_own_client_id() -> None:
    sink, audit = Wire("127.0.0.1:1", {}, 100), RawLog("127.0.0.1:1", {}, 100)
    ids = [connection._manager.config["client_id"] for connection in (sink, audit)]
    sink.close()
    audit.close()
    assert ids == [CLIENT_ID, "barnabas-spark-audit"]
