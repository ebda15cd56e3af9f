"""Groups of each kind as a folder's records describe them, with their members and partitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer

import barnabas
from cli.console.folder import FolderKafka
from cli.console.folder_groups import FolderGroups
from cli.console.sections import Sections
from protocol.messages import group_records as streams
from protocol.messages import group_records_share as share
from protocol.records.batch import build_batch
from protocol.records.fates import WalkedLog
from protocol.wire.codec import encode
from protocol.wire.primitives import uuid_to_text
from protocol.wire.schema import Message
from tests.cli.transactional import plain, send_at_once

ORDERS_ID = b"o" * 16
TOPICS = {uuid_to_text(ORDERS_ID): "orders"}


def groups_of(*records: tuple[Message, Message]) -> FolderGroups:
    """The groups, from records as their coordinator would write them."""
    written: Sequence[tuple[int, bytes, bytes, tuple[()]]] = [
        (
            1_000,
            type(key).API_KEY.to_bytes(2, "big") + encode(key, 0),
            b"\0\0" + encode(value, 0),
            (),
        )
        for key, value in records
    ]
    seen = WalkedLog(next=0)
    assert [*seen.take(build_batch(written), frozenset())]
    found = FolderGroups()
    found.read(seen.batches)
    return found


def test_members_of_a_share_group_have_the_partitions_of_their_assignment() -> None:
    member = {"group_id": "g", "member_id": "m"}
    groups = groups_of(
        (share.ShareGroupMetadataKey(group_id="g"), share.ShareGroupMetadataValue(epoch=4)),
        (share.ShareGroupMemberMetadataKey(**member), share.ShareGroupMemberMetadataValue(client_id="app")),
        (
            share.ShareGroupCurrentMemberAssignmentKey(**member),
            share.ShareGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                assigned_partitions=[share.TopicPartitions(topic_id=ORDERS_ID, partitions=[2, 0])],
            ),
        ),
    )
    group = groups.described("g", TOPICS)
    assert group is not None
    [one] = group.members
    assert (one.client_id, one.epoch, one.partitions) == ("app", 3, [("orders", 0), ("orders", 2)])
    assert (group.listed.kind, group.epoch) == ("share", 4)


def test_members_of_a_streams_group_have_the_partitions_of_their_active_tasks() -> None:
    member = {"group_id": "g", "member_id": "m"}
    inner = streams.TopicInfo(name="inner")
    topology = [
        streams.Subtopology(subtopology_id="0", source_topics=["orders"], repartition_source_topics=[inner]),
        streams.Subtopology(subtopology_id="1", source_topics=["other"]),
    ]
    groups = groups_of(
        # before the group's own record, which has another epoch
        (
            streams.StreamsGroupTopologyKey(group_id="g"),
            streams.StreamsGroupTopologyValue(epoch=9, subtopologies=topology),
        ),
        (streams.StreamsGroupMetadataKey(group_id="g"), streams.StreamsGroupMetadataValue(epoch=4)),
        (streams.StreamsGroupMemberMetadataKey(**member), streams.StreamsGroupMemberMetadataValue()),
        (
            streams.StreamsGroupCurrentMemberAssignmentKey(**member),
            streams.StreamsGroupCurrentMemberAssignmentValue(
                member_epoch=3,
                active_tasks=[streams.CurrentTaskIds(subtopology_id="0", partitions=[1])],
                standby_tasks=[streams.CurrentTaskIds(subtopology_id="1", partitions=[0])],
                warmup_tasks=[streams.CurrentTaskIds(subtopology_id="1", partitions=[5])],
            ),
        ),
    )
    group = groups.described("g", TOPICS)
    assert group is not None
    [one] = group.members
    assert one.partitions == [("inner", 1), ("orders", 1)]
    assert one.tasks == ["active 0_1", "standby 1_0", "warm-up 1_5"]
    assert (group.epoch, group.topology_epoch) == (4, 9)
    assert group.subtopologies == {"0": ["inner", "orders"], "1": ["other"]}


def test_members_of_a_kip_848_group_keep_their_partitions_over_a_kill_of_the_broker(
    tmp_path: Path,
) -> None:
    data = tmp_path / "data"
    with barnabas.Broker(data=data, topics={"orders": 2}) as broker:
        send_at_once(plain(broker.bootstrap), "orders", "a")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "g",
                "client.id": "app",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        consumer.commit(message, asynchronous=False)
        broker.kill()
        found = FolderKafka(str(data), Sections()).group("g")
        broker.start()
        consumer.close()
    [member] = found["members"]
    assert member["client"] == "app"
    assert member["partitions"] == [{"topic": "orders", "partition": index} for index in (0, 1)]
    assert {each["member"] for each in found["partitions"]} == {member["member"]}
