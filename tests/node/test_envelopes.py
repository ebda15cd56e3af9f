"""Requests that a broker forwards to the controller on behalf of its clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.security.authorizer import AllowEverything
from protocol.errors import Error
from protocol.messages.broker_to_controller import EnvelopeRequest
from protocol.messages.configs import (
    AlterClientQuotasRequest,
    AlterEntryData,
    DescribeConfigsRequest,
    EntityData,
    OpData,
)
from protocol.messages.produce import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from protocol.wire.codec import decode
from tests.node.controllers import CREATE, PlayedBroker, connected, controller, create, creation, envelope

ENVELOPE = 0


async def test_nonsense_in_an_envelope_is_reported(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        client = connected(node)
        good = envelope(creation("t"), CREATE)

        async def refusal(**fields: Any) -> Error:
            given = {
                "request_data": good.request_data,
                "request_principal": good.request_principal,
                "client_host_address": good.client_host_address,
            }
            answer = await client.answer(EnvelopeRequest(**{**given, **fields}), ENVELOPE)
            assert answer.response_data is None
            return Error(answer.error_code)

        principal = Error.PRINCIPAL_DESERIALIZATION_FAILURE
        assert await refusal(request_principal=None) is principal
        assert await refusal(request_principal=b"\0\1xyz") is principal
        assert await refusal(request_principal=b"\0\0\xff") is principal
        assert await refusal(client_host_address=b"abc") is Error.INVALID_REQUEST
        data = bytes(good.request_data)
        for unreadable in (b"", b"\0", data[:-3], data[:2] + b"\0\x63" + data[4:], b"\3\xe7" + data[2:]):
            assert await refusal(request_data=unreadable) is Error.UNSUPPORTED_VERSION
        described = envelope(DescribeConfigsRequest(), 4)  # brokers answer it themselves
        assert await refusal(request_data=described.request_data) is Error.INVALID_REQUEST


async def test_producer_ids_are_asked_for_in_an_envelope_too(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        asked = envelope(AllocateProducerIdsRequest(broker_id=77, broker_epoch=1), 0)
        answer = await connected(node).answer(asked, ENVELOPE)
        assert answer.error_code == 0
        told = decode(AllocateProducerIdsResponse, 0, bytes(answer.response_data), 5)
        assert told.error_code == Error.STALE_BROKER_EPOCH


async def test_an_envelope_counts_for_the_client_who_sent_its_contents(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []
    async with controller(tmp_path) as node:

        class Noting(AllowEverything):
            def allows(self, context: Any, *of: Any, **how: Any) -> bool:
                seen.append((str(context.principal), context.peer_host))
                return True

        node.controller_server.authorizer = Noting()
        await create(connected(node), "t")
    assert seen[0] == ("User:ANONYMOUS", "127.0.0.1")
    assert {*seen[1:]} == {("User:alice", "10.0.0.1")}


async def test_a_client_above_its_quota_learns_it_and_the_forwarding_broker_is_not_held_up(
    tmp_path: Path,
) -> None:
    """The broker mutes its client for as long as the answer says."""
    async with controller(tmp_path) as node:
        await PlayedBroker(node, 2).start()
        client = connected(node)
        quota = AlterClientQuotasRequest(
            entries=[
                AlterEntryData(
                    entity=[EntityData(entity_type="user", entity_name="alice")],
                    ops=[OpData(key="controller_mutation_rate", value=1.0)],
                )
            ]
        )
        assert not (await client.answer(quota, 1)).entries[0].error_code
        told = []
        for number in range(2):
            topic = CreatableTopic(name=f"t{number}", num_partitions=100, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=1000)
            answer = await client.answer(envelope(request, CREATE), ENVELOPE)
            created = decode(CreateTopicsResponse, CREATE, bytes(answer.response_data), 5)
            told.append((Error(created.topics[0].error_code), created.throttle_time_ms > 0))
        assert told == [(Error.NONE, False), (Error.THROTTLING_QUOTA_EXCEEDED, True)]
        assert await create(connected(node), "another") is Error.THROTTLING_QUOTA_EXCEEDED


async def test_an_envelope_waits_for_a_decision_that_is_long(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        await PlayedBroker(node, 2).start()
        client = connected(node)
        topics = [CreatableTopic(name=f"t{i}", num_partitions=30, replication_factor=1) for i in range(200)]
        request = CreateTopicsRequest(topics=topics, timeout_ms=1000)
        answer = await client.answer(envelope(request, CREATE), ENVELOPE)
        created = decode(CreateTopicsResponse, CREATE, bytes(answer.response_data), 5).topics
        assert {each.error_code for each in created} == {0}
        assert len(node.metadata.image.topics) == 200
