"""The shards of a topic: how they come, stay and go with the partitions that are led here."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.coordination import hosted_shards as hosted_shard
from broker.coordination.hosted_shards import NewRecord
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.replicas.leader import Leader
from broker.replicas.replica import Follower
from broker.server import Server
from coordinator.java.maps import partition_of_key
from coordinator.transaction.state_manager import encode_key
from protocol.errors import CodecError, Error, KafkaError
from protocol.messages.topics import CreatePartitionsTopic
from tests.node.hosting import NONSENSE, Hosting, RecordedShard, elect_again
from tests.node.transactional import Producer, coordinating, create, delete, state
from tests.support.disk import files
from tests.support.topics import topics_of
from tests.support.whole_server import started

KEYS = ("a", "b", "c", "d", "e", "f")


async def test_shards_start_once_all_that_came_together_are_replayed(node: Server) -> None:
    create(node, "t", 2)
    hosting = Hosting(node)
    hosting.append(0, b"a")
    hosting.append(1, b"b")

    hosting.follow()

    assert hosting.events == ["replay a", "replay b", "start", "start"]
    assert hosting.shards.all() == [hosting.shards.at(0), hosting.shards.at(1)]


async def test_a_partition_that_cannot_be_opened_counts_among_those_that_keys_belong_to(node: Server) -> None:
    def refuse(operation: str, path: str, _size: int) -> None:
        if operation == "list_directory" and path.endswith("/t-1"):
            raise OSError(5, "refused", path)

    files.set_fault_hook(refuse)
    try:
        create(node, "t", 3)
    finally:
        files.set_fault_hook(None)
    for partitions in ([0, 2], [0, 1, 2]):
        hosting = Hosting(node)
        hosting.follow()
        assert sorted(hosting.loaded()) == partitions
        assert [hosting.shards.partition_of(key) for key in KEYS] == [
            partition_of_key(key, 3) for key in KEYS
        ]
        create(
            node, f"next-{len(partitions)}"
        )  # the next change of the metadata, at which the partition is opened


async def test_a_shard_that_is_hosted_stays_as_it_is(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    hosting.follow()
    shard = hosting.shards.at(0)

    hosting.follow()

    assert hosting.shards.at(0) is shard
    assert hosting.events == ["start"]


async def test_a_shard_goes_with_its_partition_and_its_timers(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    hosting.follow()

    delete(node, "t")
    hosting.follow()
    hosting.fire_timers()

    assert hosting.events == ["start", "unload"]
    assert hosting.error_at(0) is Error.NOT_COORDINATOR
    assert hosting.shards.all() == []


async def test_a_recreated_topic_has_new_shards(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    hosting.append(0, b"a")
    hosting.follow()

    delete(node, "t")
    create(node, "t")
    hosting.follow()

    assert hosting.events == ["replay a", "start", "unload", "start"]


async def test_a_new_leader_epoch_leaves_a_shard_alone(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    hosting.follow()

    elect_again(node, "t")
    hosting.follow()
    hosting.fire_timers()

    assert hosting.events == ["start", "timer"]


async def test_a_new_leader_epoch_reloads_a_shard_that_asks_for_it(node: Server) -> None:
    create(node, "t", 2)
    hosting = Hosting(node, reloads_in_new_epoch=True)
    hosting.append(0, b"a")
    hosting.follow()
    of_one = hosting.shards.at(1)
    hosting.events.clear()

    elect_again(node, "t")
    hosting.follow()

    assert hosting.events == ["unload", "replay a", "start"]
    assert [hosting.shards.at(index).leader_epoch for index in (0, 1)] == [1, 0]
    assert hosting.shards.at(1) is of_one


def test_the_log_names_a_reason_that_clients_do_not_see() -> None:
    error = KafkaError(Error.UNKNOWN_SERVER_ERROR)
    error.__cause__ = CodecError("a topology of epoch -1")
    assert hosted_shard.reason(error) == "a topology of epoch -1"
    assert hosted_shard.reason(KafkaError(Error.UNKNOWN_SERVER_ERROR)) == "UNKNOWN_SERVER_ERROR"


async def test_a_partition_that_can_not_be_read_holds_up_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(tmp_path)
    create(node, "t", 2)
    hosting = Hosting(node)
    hosting.append(0, NONSENSE)

    with caplog.at_level(logging.ERROR, "barnabas.coordination"):
        hosting.follow()

    assert caplog.messages == ["the things of t-0 can't be loaded: at offset 0: nonsense"]
    assert hosting.error_at(0) is Error.COORDINATOR_LOAD_IN_PROGRESS
    assert hosting.shards.readable() == [hosting.shards.at(1)]
    told: list[RecordedShard] = []
    hosting.shards.tell(told.append)
    assert told == [hosting.shards.at(1)]
    assert hosting.events == ["start"]
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        hosting.shards.all()


async def test_a_partition_that_could_not_be_read_is_tried_again_in_a_new_leader_epoch(
    tmp_path: Path,
) -> None:
    node = await started(tmp_path)
    create(node, "t")
    hosting = Hosting(node)
    hosting.append(0, NONSENSE)
    hosting.append(0, b"a")
    hosting.follow()
    node.partitions.get("t", 0).log.delete_records_before(1)

    hosting.follow()
    assert hosting.error_at(0) is Error.COORDINATOR_LOAD_IN_PROGRESS
    elect_again(node, "t")
    hosting.follow()

    assert hosting.events == ["replay a", "start"]
    assert hosting.shards.at(0).leader_epoch == 1


async def test_a_partition_that_can_not_be_read_is_given_up_like_any_other(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    hosting.append(0, NONSENSE)
    hosting.follow()

    delete(node, "t")
    hosting.follow()

    assert hosting.error_at(0) is Error.NOT_COORDINATOR
    assert hosting.events == []


async def test_a_partition_without_a_leader_has_no_shard_yet(node: Server) -> None:
    create(node, "t")
    partition = node.partitions.get("t", 0)
    hosting = Hosting(node)
    leader, partition.role = partition.role, Follower(partition.log, partition.waiting)

    hosting.follow()
    assert hosting.error_at(0) is Error.NOT_COORDINATOR

    partition.role = leader
    hosting.follow()
    assert hosting.shards.at(0).leader_epoch == 0


async def test_a_partition_led_elsewhere_between_two_looks_is_read_again(node: Server) -> None:
    create(node, "t")
    partition = node.partitions.get("t", 0)
    hosting = Hosting(node)
    hosting.follow()
    first = hosting.shards.at(0)
    partition.role = Leader(node.node_id, partition.log, partition.waiting, node.stop_on_failure)
    partition.role.lead(2, 1, [node.node_id], [node.node_id])

    hosting.follow()

    assert hosting.shards.at(0) is not first
    assert hosting.shards.at(0).leader_epoch == 2
    assert hosting.events == ["start", "unload", "start"]


async def test_keys_map_to_the_partitions_that_the_topic_had_when_first_hosted(
    tmp_path: Path,
) -> None:
    node = await started(tmp_path)
    hosting = Hosting(node)
    names = [f"key-{number}" for number in range(20)]

    def places() -> list[int]:
        return [hosting.shards.partition_of(name) for name in names]

    assert places() == [partition_of_key(name, 7) for name in names], "as the setting says"
    create(node, "t", 3)
    hosting.follow()
    assert places() == [partition_of_key(name, 3) for name in names]
    topics_of(node).add_partitions([CreatePartitionsTopic(name="t", count=5, assignments=None)])
    hosting.follow()
    assert places() == [partition_of_key(name, 3) for name in names]
    assert len(hosting.shards.all()) == 5


# --- in a broker --------------------------------------------------------------------------------------------


async def test_transactions_are_coordinated_in_the_epoch_in_which_their_partition_is_led(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    before = node.transactions.shard_of("tx")

    elect_again(node, TRANSACTION_TOPIC)

    after = node.transactions.shard_of("tx")
    assert after.coordinator_epoch == before.coordinator_epoch + 1
    assert before.transactions == {}
    assert state(node) == "Ongoing"
    assert producer.end() is Error.NONE
    assert state(node) == "CompleteCommit"


async def test_groups_stay_as_they_are_in_a_new_leader_epoch_of_their_partition(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    before = node.groups.shard_of("g")

    elect_again(node, "__consumer_offsets")

    assert node.groups.shard_of("g") is before


async def test_records_that_are_too_much_for_a_batch_are_refused_before_one_is_built(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(node, "t")
    runtime = Hosting(node).runtime_of(node.partitions.get("t", 0))
    limit = node.partitions.get("t", 0).topic.config.max_message_bytes
    build = hosted_shard.build_batch_of_one_time
    built: list[int] = []

    def counted(now_ms: int, records: Sequence[NewRecord], **more: Any) -> bytearray:
        built.append(len(records))
        return build(now_ms, records, **more)

    monkeypatch.setattr(hosted_shard, "build_batch_of_one_time", counted)
    for records in (
        [(b"key", bytes(limit - 2))],
        [(b"key", bytes(limit // 2))] * 2,
        [(bytes(limit + 1), None)],
    ):
        with pytest.raises(KafkaError) as refused:
            runtime.append(records)
        assert refused.value.error is Error.UNKNOWN_SERVER_ERROR
        assert not built
    with pytest.raises(KafkaError):
        runtime.append([(b"key", bytes(limit - 3))])  # a batch has other bytes, too
    assert built == [1]
    assert runtime.append([(b"key", bytes(limit - 200)), (b"key", None)]) == 2


async def test_a_node_that_stops_gives_up_its_shards_before_the_background_ends(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    Producer(node).begin()
    there: list[bool] = []
    finish = node.background.finish

    async def finish_looking() -> None:
        there.append(bool(node.transactions.all_shards()))
        await finish()

    node.background.finish = finish_looking  # type: ignore[method-assign]
    await node.stop()
    assert there == [False]


async def test_an_unknown_transaction_version_leaves_the_previous_one_in_force(
    tmp_path: Path,
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    key = encode_key("tx")
    runtime = node.transactions.shard_of("tx").runtime
    runtime.append([(key, b"\x00\x07what a later Kafka writes")])

    elect_again(node, TRANSACTION_TOPIC)

    assert state(node) == "Ongoing"
    assert producer.end() is Error.NONE
