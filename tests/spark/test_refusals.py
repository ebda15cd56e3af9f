"""What no repetition changes is told at once, by its true reason."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kafka", reason="needs kafka-python, of the extra `spark`")
pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import kafka.errors

from barnabas.spark import errors as codes
from barnabas.spark import transaction
from barnabas.spark.errors import (
    BrokerRefusedError,
    NoAnswerError,
    ResponseError,
    SourceOffsetsError,
    as_sink_error,
)
from barnabas.spark.wire import Identity, Wire
from barnabas.spark.wire_connection import _translated

TIMEOUT_MS = 20_000
SASL = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_plain_username": "somebody",
    "sasl_plain_password": "secret",
}


def refused(connection: Wire) -> ResponseError:
    """What connecting raises, long before the time is up."""
    began_s = time.monotonic()
    try:
        with pytest.raises(ResponseError) as caught:
            connection.connect()
    finally:
        connection.close()
    assert time.monotonic() - began_s < TIMEOUT_MS / 2000
    assert isinstance(as_sink_error(caught.value), BrokerRefusedError)
    return caught.value


def test_credentials_for_a_listener_without_them_are_refused_at_once(bootstrap: str) -> None:
    assert refused(Wire(bootstrap, SASL, TIMEOUT_MS)).code == codes.ILLEGAL_SASL_STATE


@pytest.fixture
def talker() -> Iterator[str]:
    """A server that answers each connection in plain text."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            while True:
                try:
                    one, _ = server.accept()
                except OSError:
                    return
                with one:
                    one.recv(1 << 16)
                    one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_server_that_does_not_speak_tls_is_refused_at_once(talker: str) -> None:
    error = refused(Wire(talker, {"security_protocol": "SSL"}, TIMEOUT_MS))
    assert error.code == codes.TLS_HANDSHAKE_FAILED
    assert "WRONG_VERSION_NUMBER" in str(error)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (kafka.errors.SaslAuthenticationFailedError("Invalid username"), codes.SASL_AUTHENTICATION_FAILED),
        (kafka.errors.UnsupportedSaslMechanismError(), codes.UNSUPPORTED_SASL_MECHANISM),
        (kafka.errors.ClusterAuthorizationFailedError(), codes.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_a_failed_authentication_is_no_lost_connection(error: Exception, code: int) -> None:
    with pytest.raises(ResponseError) as caught, _translated():
        raise error
    assert caught.value.code == code
    assert isinstance(as_sink_error(caught.value), BrokerRefusedError)


def test_a_connection_that_ends_during_the_tls_handshake_is_made_again() -> None:
    error = kafka.errors.KafkaConnectionError("Handshake failed")
    error.__context__ = ssl.SSLEOFError("EOF occurred in violation of protocol")
    with pytest.raises(NoAnswerError), _translated():
        raise error


def test_a_broker_that_can_not_be_reached_is_named_with_the_reason() -> None:
    connection = Wire("127.0.0.1:1", {}, 200)
    with pytest.raises(NoAnswerError, match=r"127\.0\.0\.1:1.*ECONNREFUSED"):
        connection.connect()
    connection.close()


@pytest.mark.parametrize("order", [1, -1])
def test_the_partition_that_was_refused_is_named_and_not_those_that_were_not_tried(
    order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = [
        SimpleNamespace(
            name=topic,
            results_by_partition=[SimpleNamespace(partition_index=0, partition_error_code=code)],
        )
        for topic, code in (
            ("marker", codes.OPERATION_NOT_ATTEMPTED),
            ("out", codes.TOPIC_AUTHORIZATION_FAILED),
        )
    ][::order]
    connection = Wire("127.0.0.1:1", {}, 100)
    answer = SimpleNamespace(results_by_topic_v3_and_below=results)
    monkeypatch.setattr(connection, "connect", lambda deadline_s: None)
    monkeypatch.setattr(connection, "_ask_coordinator", lambda kind, key, request: answer)
    with pytest.raises(ResponseError, match="AddPartitionsToTxn of out-0") as caught:
        connection.add_partitions("id", Identity(1, 0), {"marker": [0], "out": [0]})
    connection.close()
    assert caught.value.code == codes.TOPIC_AUTHORIZATION_FAILED


def test_a_group_with_members_is_named_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def commit_offsets(*arguments: object) -> None:
        raise ResponseError(codes.UNKNOWN_MEMBER_ID, "UnknownMemberId", "TxnOffsetCommit")

    work: Any = SimpleNamespace(
        settings=SimpleNamespace(group="readers", transactional_id="id"),
        offsets={"in": {0: 5}},
        connection=SimpleNamespace(commit_offsets=commit_offsets),
    )
    with pytest.raises(SourceOffsetsError, match="the group readers has members"):
        transaction._commit_source_offsets(work, Identity(1, 0))
