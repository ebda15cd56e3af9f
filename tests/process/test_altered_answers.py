"""Faults that alter a request or its answer: twice, late, stale, throttled, fewer versions, another byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import barnabas
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import ApiVersionsRequest, MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.records.batch import build_batch, crc_is_valid, walk_batches
from tests.support.transactional_client import Broker
from tests.support.wire import Client


@pytest.fixture
def client(broker: barnabas.Broker) -> Iterator[Client]:
    with Client.of(broker.bootstrap) as made:
        yield made


def topic(client: Client, name: str) -> str:
    Broker(client.ask).create_topic(name, 1)
    return name


def produce_request(name: str, value: bytes, **producer: int) -> ProduceRequest:
    records = memoryview(build_batch([(1, None, value, ())], **producer))  # type: ignore[arg-type]
    data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])


def produce(client: Client, name: str, value: bytes, **producer: int) -> Error:
    answer = client.ask(produce_request(name, value, **producer), 11)
    return Error(answer.responses[0].partition_responses[0].error_code)


def fetched(client: Client, name: str) -> memoryview:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, topics=[FetchTopic(topic=name, partitions=[asked])]
    )
    return memoryview(bytes(client.ask(request, 11).responses[0].partitions[0].records))


def end_of(client: Client, name: str) -> int:
    return Broker(client.ask).end(name, 0)


# --- twice --------------------------------------------------------------------------------------------------


def test_a_repeated_request_doubles_a_record(broker: barnabas.Broker, client: Client) -> None:
    name = topic(client, "doubled")
    with broker.fault("Produce", "twice"):
        assert produce(client, name, b"x") is Error.NONE
    assert end_of(client, name) == 2


def test_an_idempotent_producer_is_safe_from_that(broker: barnabas.Broker, client: Client) -> None:
    name = topic(client, "idempotent")
    made = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    with broker.fault("Produce", "twice", topic=name):
        error = produce(client, name, b"x", producer_id=made.producer_id, producer_epoch=0, base_sequence=0)
        assert error is Error.NONE
    assert end_of(client, name) == 1


def test_an_answer_comes_twice(broker: barnabas.Broker, client: Client) -> None:
    with broker.fault("Metadata", "twice", at="answer"):
        sent = client.send(MetadataRequest(topics=[]), 12)
        first, second = client.receive(sent), client.receive(sent)
        assert first.correlation_id == second.correlation_id == sent.correlation_id  # type: ignore[union-attr]


def test_a_fetch_comes_twice_with_all_its_records(broker: barnabas.Broker, client: Client) -> None:
    name = topic(client, "fetched-twice")
    produce(client, name, b"x" * 200_000)
    with broker.fault("Fetch", "twice", at="answer"):
        size = len(fetched(client, name))
        assert size > 200_000
        frame = client.receive_frame()
        assert isinstance(frame, bytes)
        assert len(frame) > 200_000


# --- late ---------------------------------------------------------------------------------------------------


def test_an_answer_comes_after_the_next(broker: barnabas.Broker, client: Client) -> None:
    with broker.fault("Metadata", "late") as fault:
        late = client.send(MetadataRequest(topics=[]), 12)
        fault.reached()
        versions = client.send(ApiVersionsRequest(), 0)
        first = client.receive(versions)
        assert first.correlation_id == versions.correlation_id  # type: ignore[union-attr]
        fault.release()
        second = client.receive(late)
        assert second.correlation_id == late.correlation_id  # type: ignore[union-attr]


def test_an_answer_comes_late(broker: barnabas.Broker, client: Client) -> None:
    with broker.fault("Metadata", "late", delay=0.01) as fault:
        late = client.send(MetadataRequest(topics=[]), 12)
        assert client.receive(late).correlation_id == late.correlation_id  # type: ignore[union-attr]
        assert fault.standing == 0


# --- stale --------------------------------------------------------------------------------------------------


def test_metadata_does_not_change(broker: barnabas.Broker, client: Client) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="appears")], allow_auto_topic_creation=False)
    with broker.fault("Metadata", "stale") as fault:
        errors = [client.ask(asked, 12).topics[0].error_code]
        topic(client, "appears")
        errors += [client.ask(asked, 12).topics[0].error_code for _ in range(2)]
        assert errors == [Error.UNKNOWN_TOPIC_OR_PARTITION] * 3
        assert fault.fired == 3
    assert client.ask(asked, 12).topics[0].error_code == Error.NONE


def test_another_question_is_answered_unchanged(broker: barnabas.Broker, client: Client) -> None:
    with broker.fault("Metadata", "stale"):
        client.ask(MetadataRequest(topics=[]), 12)
        topic(client, "another")
        found = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="another")]), 12)
        assert found.topics[0].error_code == Error.NONE


# --- throttled ----------------------------------------------------------------------------------------------


def test_a_client_learns_that_it_is_throttled(broker: barnabas.Broker, client: Client) -> None:
    with broker.fault("Metadata", "throttle", delay=0.02):
        assert client.ask(MetadataRequest(topics=[]), 12).throttle_time_ms == 20
    assert client.ask(MetadataRequest(topics=[]), 12).throttle_time_ms == 0


def test_nothing_more_of_the_throttled_connection_is_served(broker: barnabas.Broker, client: Client) -> None:
    """A client that exceeds its quota is held up in the same way (KIP-219)."""
    broker.clock.freeze()
    try:
        with broker.fault("Metadata", "throttle", delay=5):
            client.ask(MetadataRequest(topics=[]), 12)
            next_one = client.send(MetadataRequest(topics=[]), 12)
            with Client.of(broker.bootstrap) as other:
                assert other.ask(MetadataRequest(topics=[]), 12).throttle_time_ms == 0
            assert client._have == 0
            broker.clock.advance(seconds=5)
            assert client.receive(next_one).correlation_id == next_one.correlation_id  # type: ignore[union-attr]
    finally:
        broker.clock.run()


# --- fewer versions -----------------------------------------------------------------------------------------


def test_a_client_sees_fewer_versions(broker: barnabas.Broker, client: Client) -> None:
    keys = {api.name: key for key, api in APIS.items()}

    def told() -> dict[int, tuple[int, int]]:
        answer = client.ask(ApiVersionsRequest(), 0)
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    all_of_them = told()
    with broker.fault(do="versions", versions={"Produce": (0, 7), "fetch": (100, 100)}):
        fewer = told()
    lowest = all_of_them[keys["Produce"]][0]
    assert fewer[keys["Produce"]] == (lowest, 7)
    assert keys["Fetch"] not in fewer
    del fewer[keys["Produce"]]
    assert fewer.items() <= all_of_them.items()
    assert told() == all_of_them


# --- another byte -------------------------------------------------------------------------------------------


def test_a_batch_that_is_corrupted_on_its_way_is_refused(broker: barnabas.Broker, client: Client) -> None:
    name = topic(client, "refused-batch")
    with broker.fault("Produce", "corrupt"):
        assert produce(client, name, b"x") is Error.CORRUPT_MESSAGE
    assert end_of(client, name) == 0


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_reader_finds_the_checksum_wrong(broker: barnabas.Broker, client: Client, size: int) -> None:
    name = topic(client, f"read-wrongly-{size}")
    produce(client, name, b"x" * size)
    produce(client, name, b"y")

    def checked() -> list[bool]:
        data = fetched(client, name)
        return [crc_is_valid(data, at, header.size_bytes) for at, header in walk_batches(data)]

    with broker.fault("Fetch", "corrupt", at="answer", topic=name):
        assert checked() == [False, True]
    assert checked() == [True, True]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"do": "late", "at": "request"}, None),
        (
            {"do": "throttle", "delay": 1, "api": "SaslHandshake"},
            "an answer to SaslHandshake has no throttle time",
        ),
        (
            {"do": "corrupt", "api": "Metadata"},
            "only a request of Produce and an answer to Fetch have records",
        ),
        ({"do": "versions"}, r"versions=\.\.\.: it has to be \[lowest, highest\] by API"),
        ({"do": "versions", "versions": {"Fetch": 3}}, "versions of Fetch: 3 isn't"),
        ({"do": "stale", "at": "marker"}, "do='stale' isn't for at='marker', but for answer"),
        ({"do": "hold", "at": "file"}, "do='hold' isn't for at='file'"),
        ({"error": "NOT_LEADER_OR_FOLLOWER", "at": "file"}, "for a file it can be EIO, ENOSPC"),
        (
            {"do": "delay", "delay": 1, "at": "file", "operation": "explode"},
            "it has to be one or more of append,",
        ),
        ({"do": "delay", "delay": 60, "at": "file"}, "a number from 0 to 10000"),
        ({"do": "hold", "operation": "append"}, "a fault has no operation here"),
    ],
)
def test_nonsense_is_refused(broker: barnabas.Broker, said: dict[str, Any], message: str | None) -> None:
    if message is None:  # this fault can stand in one place only
        assert broker.fault(**said, may_not_fire=True).fired == 0
    else:
        with pytest.raises(ValueError, match=message):
            broker.fault(**said)
