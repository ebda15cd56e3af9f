"""What a controller serves to brokers at its own listener."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from broker.controller import quorum_requests as delayed_metadata_fetches
from broker.handlers import CONTROLLER_HANDLERS
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.broker_to_controller import (
    AlterPartitionPartition,
    AlterPartitionRequest,
    AlterPartitionTopic,
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    BrokerState,
)
from protocol.messages.cluster_admin import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
    UnregisterBrokerRequest,
)
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.fetch import ReplicaState, SnapshotId
from protocol.messages.metadata import ApiVersionsRequest, DescribeClusterRequest
from protocol.messages.produce import AllocateProducerIdsRequest
from protocol.messages.raft import (
    FetchSnapshotRequest,
    PartitionSnapshotRequest,
    TopicSnapshotRequest,
)
from protocol.records.batch import walk_batches
from tests.node.controllers import (
    NODE,
    PlayedBroker,
    connected,
    controller,
    create,
    fetch,
    pass_ms,
    until,
)
from tests.support.ports_of import ports_of
from tests.support.wire import Client, Outcome

ENVELOPE = 0
CREATE = 7


def last_offset_of(answer: Any) -> int:
    (partition,) = answer.responses[0].partitions
    *_, (_, header) = walk_batches(bytes(partition.records))
    return header.last_offset


async def test_a_controller_lists_its_apis(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
        answer = await connected(node).answer(request, 4)
        listed = {(each.api_key, each.min_version, each.max_version) for each in answer.api_keys}
        apis = (APIS[key] for key in CONTROLLER_HANDLERS)
        assert listed == {(api.key, api.min_version, api.max_version) for api in apis}


async def test_a_broker_registers_runs_is_silent_and_fenced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "barnabas.controller")
    async with controller(tmp_path) as node:
        broker = PlayedBroker(node, 2)
        assert (await broker.register(cluster_id="another")).error_code == Error.INCONSISTENT_CLUSTER_ID
        epoch = node.metadata.next_offset
        assert (await broker.register()).broker_epoch == epoch
        early = await broker.beat(current_metadata_offset=0)
        assert (early.is_caught_up, early.is_fenced) == (False, True)
        late = await broker.beat()
        assert (late.is_caught_up, late.is_fenced) == (True, False)
        assert not node.metadata.image.brokers[2].fenced

        again = PlayedBroker(node, 2, run=2)
        for _ in range(2):
            assert (await again.register()).error_code == Error.DUPLICATE_BROKER_REGISTRATION
        pass_ms(node, 9)
        await until(lambda: node.metadata.image.brokers[2].fenced)
        told = [
            each.getMessage().split(": ") for each in caplog.records if each.name == "barnabas.controller"
        ]
        assert [each[:2] for each in told] == [
            ["broker 2 isn't registered", "INCONSISTENT_CLUSTER_ID"],
            [f"broker 2 registers, with epoch {epoch}"],
            ["broker 2 is unfenced"],
            ["broker 2 isn't registered", "DUPLICATE_BROKER_REGISTRATION"],
            ["broker 2 is fenced"],
        ]
        assert (await again.register()).error_code == 0
        assert (await broker.beat()).error_code == Error.STALE_BROKER_EPOCH


async def test_a_broker_goes_once_others_lead_its_partitions(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        second, third = PlayedBroker(node, 2), PlayedBroker(node, 3)
        await second.start()
        await third.start()
        assert await create(connected(node), "t", 2) is Error.NONE
        partition = node.metadata.image.topics["t"].partitions[0]
        leaving, staying = (second, third) if partition.leader == 2 else (third, second)

        first = await leaving.beat(want_shut_down=True)
        assert (first.is_fenced, first.should_shut_down) == (False, False)
        assert node.metadata.image.topics["t"].partitions[0].leader == staying.broker_id
        await staying.beat()
        told = await leaving.beat(want_shut_down=True)
        assert (told.is_fenced, told.should_shut_down) == (True, True)


async def test_a_topic_is_created_over_brokers_that_lead_and_are_in_sync(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        client = connected(node)
        assert await create(client, "early") is Error.INVALID_REPLICATION_FACTOR
        second, third = PlayedBroker(node, 2), PlayedBroker(node, 3)
        await second.start()
        await third.start()
        assert await create(client, "t", 2) is Error.NONE
        topic = node.metadata.image.topics["t"]
        leader = {2: second, 3: third}[topic.partitions[0].leader]

        answer = await leader.ask(
            AlterPartitionRequest(
                broker_id=leader.broker_id,
                broker_epoch=leader.epoch,
                topics=[
                    AlterPartitionTopic(
                        topic_id=topic.topic_id,
                        partitions=[
                            AlterPartitionPartition(
                                partition_index=0,
                                leader_epoch=0,
                                partition_epoch=0,
                                new_isr_with_epochs=[
                                    BrokerState(broker_id=leader.broker_id, broker_epoch=leader.epoch)
                                ],
                            )
                        ],
                    )
                ],
            ),
            3,
        )
        (altered,) = answer.topics[0].partitions
        assert (altered.error_code, altered.isr, altered.partition_epoch) == (0, [leader.broker_id], 1)
        assert node.metadata.image.topics["t"].partitions[0].isr == [leader.broker_id]


async def test_no_producer_id_is_given_twice(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        broker = PlayedBroker(node, 2)
        await broker.start()
        request = AllocateProducerIdsRequest(broker_id=2, broker_epoch=broker.epoch)
        blocks = [await broker.ask(request, 0) for _ in range(2)]
        assert [(each.producer_id_start, each.producer_id_len) for each in blocks] == [
            (0, 1000),
            (1000, 1000),
        ]
        stale = await broker.ask(AllocateProducerIdsRequest(broker_id=2, broker_epoch=0), 0)
        assert stale.error_code == Error.STALE_BROKER_EPOCH


async def test_a_broker_says_in_which_directory_a_replica_is(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        broker, directories = PlayedBroker(node, 2), [b"1" * 16, b"2" * 16]
        await broker.register(log_dirs=directories)
        await broker.beat()
        assert await create(connected(node), "t") is Error.NONE
        topic = node.metadata.image.topics["t"]
        answer = await broker.ask(
            AssignReplicasToDirsRequest(
                broker_id=2,
                broker_epoch=broker.epoch,
                directories=[
                    AssignedDirectory(
                        id=directories[1],
                        topics=[
                            AssignedTopic(
                                topic_id=topic.topic_id, partitions=[AssignedPartition(partition_index=0)]
                            )
                        ],
                    )
                ],
            ),
            0,
        )
        assert answer.directories[0].topics[0].partitions[0].error_code == 0
        assert node.metadata.image.topics["t"].partitions[0].directories == [directories[1]]


async def test_a_controller_has_each_port_that_its_handlers_name(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        for handler, ports in ports_of(CONTROLLER_HANDLERS.values()).items():
            assert {port for port in ports if not hasattr(node.controller_server, port)} == set(), handler


async def test_settings_of_any_broker_are_altered(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        await PlayedBroker(node, 2).start()
        altered = [
            IncrementalAlterableConfig(name="log.cleaner.threads", config_operation=0, value="2"),
        ]
        resources = [
            IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=altered)
            for kind, name in ((4, "2"), (4, str(NODE)), (4, ""), (4, "7"), (4, "x"), (4, "-2"), (8, "2"))
        ]
        request = IncrementalAlterConfigsRequest(resources=resources)
        answer = await connected(node).answer(request, 1)
        invalid = Error.INVALID_REQUEST
        codes = [0, 0, 0, Error.BROKER_ID_NOT_REGISTERED, invalid, invalid, invalid]
        assert [each.error_code for each in answer.responses] == codes
        assert node.metadata.image.configs[4, "2"] == {"log.cleaner.threads": "2"}


async def test_a_controller_that_is_no_broker_has_no_brokers_to_unregister(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        answer = await connected(node).answer(UnregisterBrokerRequest(broker_id=NODE), 0)
        assert answer.error_code == Error.BROKER_ID_NOT_REGISTERED


# --- the metadata log ---------------------------------------------------------------------------------------


async def test_a_fetch_waits_for_new_records(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        observer = connected(node)
        end_offset = node.metadata.next_offset
        whole = await observer.answer(fetch(node, 0), 18)
        assert last_offset_of(whole) == end_offset - 1
        assert whole.node_endpoints[0].node_id == NODE

        waits = fetch(
            node, end_offset, last_epoch=node.metadata.epoch, max_wait_ms=60_000, high_watermark=end_offset
        )
        sent = observer.send(waits, 18)
        assert observer.receive(sent, within_s=0) is Outcome.SILENCE
        await PlayedBroker(node, 2).register()
        found: list[Any] = []
        await until(lambda: _is_there(observer, sent, found))
        assert last_offset_of(found[0]) >= end_offset


def _is_there(client: Client, sent: Any, found: list[Any]) -> bool:
    answer = client.receive(sent, within_s=0)
    if isinstance(answer, Outcome):
        return False
    found.append(answer.message)
    return True


@pytest.mark.limit("broker.controller.quorum_requests.MOST_WAIT_MS")
async def test_a_fetch_waits_so_long_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_metadata_fetches, "MOST_WAIT_MS", 1)
    async with controller(tmp_path) as node:
        end_offset = node.metadata.next_offset
        waits = fetch(
            node, end_offset, last_epoch=node.metadata.epoch, max_wait_ms=2**31 - 1, high_watermark=end_offset
        )
        answer = await connected(node).answer(waits, 18)
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.records, partition.high_watermark) == (0, b"", end_offset)


async def test_a_client_that_hangs_up_is_not_waited_for(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        end_offset = node.metadata.next_offset
        waits = fetch(
            node, end_offset, last_epoch=node.metadata.epoch, max_wait_ms=60_000, high_watermark=end_offset
        )
        observer = connected(node)
        observer.send(waits, 18)
        fetches = node.controller_server.metadata_fetches
        assert fetches._waiting
        observer.close()
        await until(lambda: not fetches._waiting)


async def test_each_start_begins_and_announces_an_epoch(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        broker = PlayedBroker(node, 2)
        await broker.start()
        epoch = node.metadata.epoch
    async with controller(tmp_path) as node:
        assert node.metadata.epoch == epoch + 1
        answer = await connected(node).answer(fetch(node, 0, epoch=epoch), 18)
        (partition,) = answer.responses[0].partitions
        assert partition.error_code == Error.FENCED_LEADER_EPOCH
        assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (
            NODE,
            epoch + 1,
        )
        # it goes on as it was, for a session from now on
        assert not node.metadata.image.brokers[2].fenced
        again = PlayedBroker(node, 2)
        again.epoch = broker.epoch
        assert not (await again.beat()).is_fenced


async def test_a_missing_snapshot_is_not_found(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        asked = PartitionSnapshotRequest(
            partition=0,
            current_leader_epoch=node.metadata.epoch,
            snapshot_id=SnapshotId(end_offset=5, epoch=1),
            position=0,
        )
        request = FetchSnapshotRequest(
            replica_id=2,
            max_bytes=100,
            topics=[TopicSnapshotRequest(name="__cluster_metadata", partitions=[asked])],
        )
        answer = await connected(node).answer(request, 1)
        assert answer.topics[0].partitions[0].error_code == Error.SNAPSHOT_NOT_FOUND


async def test_the_quorum_is_described_with_its_observers(tmp_path: Path) -> None:
    async with controller(tmp_path) as node:
        client = connected(node)
        await client.answer(fetch(node, 0), 18)
        topic = DescribeQuorumTopic(
            topic_name="__cluster_metadata", partitions=[DescribeQuorumPartition(partition_index=0)]
        )
        answer = await client.answer(DescribeQuorumRequest(topics=[topic]), 2)
        (partition,) = answer.topics[0].partitions
        assert [each.replica_id for each in partition.current_voters] == [NODE]
        assert [each.replica_id for each in partition.observers] == [2]
        described = await client.answer(DescribeClusterRequest(endpoint_type=2), 2)
        assert [each.broker_id for each in described.brokers] == [NODE]
        mistaken = await client.answer(DescribeClusterRequest(endpoint_type=1), 2)
        assert (mistaken.error_code, mistaken.endpoint_type) == (Error.MISMATCHED_ENDPOINT_TYPE, 1)
        assert (await client.answer(DescribeClusterRequest(), 0)).error_code == Error.INVALID_REQUEST


@pytest.mark.parametrize("version", range(13, 19))
async def test_each_version_of_a_fetch_is_answered(tmp_path: Path, version: int) -> None:
    """From version 17 on the answer says where the leader is."""
    async with controller(tmp_path) as node:
        replica = {"replica_state": ReplicaState(), "replica_id": 2} if version < 15 else {}
        for max_wait_ms, offset in ((0, 0), (0, node.metadata.next_offset)):
            request = fetch(node, offset, max_wait_ms=max_wait_ms, **replica)
            answer = await connected(node).answer(request, version)
            assert answer.responses[0].partitions[0].error_code == 0
            assert bool(answer.node_endpoints) is (version >= 17)


@pytest.mark.parametrize("version", [0, 1])
async def test_each_version_of_a_fetch_of_a_snapshot_is_answered(tmp_path: Path, version: int) -> None:
    async with controller(tmp_path) as node:
        asked = PartitionSnapshotRequest(
            current_leader_epoch=node.metadata.epoch, snapshot_id=SnapshotId(end_offset=9, epoch=9)
        )
        request = FetchSnapshotRequest(
            topics=[TopicSnapshotRequest(name="__cluster_metadata", partitions=[asked])]
        )
        answer = await connected(node).answer(request, version)
        assert answer.topics[0].partitions[0].error_code == Error.SNAPSHOT_NOT_FOUND
        assert bool(answer.node_endpoints) is (version >= 1)
