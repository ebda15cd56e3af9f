"""A request makes no more records than fit into one batch. Records beyond that are never even made."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.controller import controller, metadata_log
from broker.controller.controller import MAX_RECORDS_PER_REQUEST
from broker.controller.topic_requests import MAX_PARTITIONS_PER_REQUEST, NewPartitions
from broker.handlers import (
    alter_client_quotas,
    delete_topics,
)
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.topics import CreatableTopic, CreatePartitionsTopic
from tests.compare.plain import message_from
from tests.node.admin_requests import (
    BROKER,
    TIMEOUT_MS,
    TOPIC,
    add_replica,
    alter,
    ask,
    codes,
    create,
    elect,
    groups,
    grow,
    leaderless,
    reassign,
    store,
)
from tests.support.disk import files
from tests.support.leadership import take_leadership_away
from tests.support.submitting import ask_controller
from tests.support.topics import topics_of
from tests.support.whole_server import crash, started

FEW = 10


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a small bound, because many records take long to make."""
    import broker.controller.config_decisions
    import broker.controller.partition_requests
    import broker.controller.topic_requests

    for module in (
        controller,
        broker.controller.topic_requests,
        broker.controller.config_decisions,
        broker.controller.partition_requests,
    ):
        monkeypatch.setattr(module, "MAX_RECORDS_PER_REQUEST", FEW)
    monkeypatch.setattr(metadata_log, "MAX_RECORDS_PER_BATCH", FEW)


@pytest.mark.limit("broker.controller.controller.MAX_RECORDS_PER_REQUEST")
async def test_the_record_of_a_topic_counts_as_those_of_its_partitions(node: Server) -> None:
    assert create(node, ("a", MAX_RECORDS_PER_REQUEST - 1), only=True) == [Error.NONE]
    assert create(node, ("a", MAX_RECORDS_PER_REQUEST), ("b", 1), ("a/b", 1), only=True) == (
        [Error.POLICY_VIOLATION] * 3
    )


async def test_a_topic_too_large_leaves_no_part_of_itself(node: Server, few: None) -> None:
    before = node.metadata.next_offset
    assert create(node, ("b", 1), ("a", FEW)) == [Error.POLICY_VIOLATION] * 2
    assert not node.metadata.image.topics
    assert node.metadata.next_offset == before
    assert create(node, ("a", FEW - 1)) == [Error.NONE]
    assert len(node.metadata.image.topics["a"].partitions) == FEW - 1


async def test_a_request_is_one_append_and_in_force_as_a_whole(node: Server) -> None:
    appends: list[str] = []

    def hook(name: str, path: str, size: int) -> None:
        if name == "append" and "__cluster_metadata" in path and path.endswith(".log"):
            appends.append(path)
            raise OSError(errno.ENOSPC, "full", path)

    files.set_fault_hook(hook)
    refused = create(node, ("a", 3000), ("b", 3000))
    files.set_fault_hook(None)
    assert refused == [Error.KAFKA_STORAGE_ERROR] * 2
    assert len(appends) == 1
    assert not node.metadata.image.topics
    assert create(node, ("a", 1)) == [Error.NONE]


@pytest.mark.parametrize(("limit", "largest"), [("MAX_RECORDS_PER_BATCH", FEW), ("MAX_BATCH_BYTES", 1500)])
async def test_credentials_are_stored_as_one_batch_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, largest: int
) -> None:
    node = await started(tmp_path)
    before = node.metadata.next_offset
    users = [f"u{n}" for n in range(FEW)]
    monkeypatch.setattr(metadata_log, limit, largest)
    more = [*users, *(f"v{n}" for n in range(FEW))]
    refused = store(node, *more, "", "twice", "twice")
    assert [*refused] == sorted({*more, "", "twice"})
    assert {*refused.values()} == {(Error.UNKNOWN_SERVER_ERROR, None)}
    assert node.metadata.next_offset == before
    stored = store(node, *users, "")
    assert stored.pop("")[0] is Error.UNACCEPTABLE_CREDENTIAL
    assert stored == dict.fromkeys(users, (Error.NONE, None))
    assert node.metadata.next_offset == before + FEW


async def test_leaders_are_elected_up_to_the_bound_or_none(node: Server, few: None) -> None:
    create(node, ("a", FEW - 1))
    create(node, ("b", FEW - 1))
    node.metadata.append(take_leadership_away(node.metadata.image, node.node_id), may_split=True)
    before = node.metadata.next_offset
    assert elect(node) == (Error.POLICY_VIOLATION, [])
    refused = [Error.POLICY_VIOLATION] * (FEW - 1)
    assert elect(node, "a", "b") == (Error.POLICY_VIOLATION, [("a", refused), ("b", refused)])
    assert node.metadata.next_offset == before
    assert elect(node, "a") == (Error.NONE, [("a", [Error.NONE] * (FEW - 1))])
    assert elect(node) == (Error.NONE, [("a", []), ("b", [Error.NONE] * (FEW - 1))])
    assert leaderless(node) == []


async def test_partitions_are_reassigned_up_to_the_bound(node: Server, few: None) -> None:
    for name in ("a", "b"):
        create(node, (name, FEW - 1))
        add_replica(node, name)
    every = [(name, index) for name in ("a", "b") for index in range(FEW - 1)]
    # Kafka catches the bound's exception for each partition by itself.
    answered = [Error.NONE] * FEW + [Error.UNKNOWN_SERVER_ERROR] * (FEW - 2)
    assert reassign(node, *every) == (Error.NONE, answered)
    topics = node.metadata.image.topics
    alone = [len(topics[name].partitions[index].replicas) == 1 for name, index in every]
    assert alone == [True] * FEW + [False] * (FEW - 2)


async def test_a_start_and_a_stop_write_more_than_one_batch_holds(tmp_path: Path, few: None) -> None:
    node = await started(tmp_path)
    create(node, ("a", FEW - 1))
    create(node, ("b", FEW - 1))
    await node.stop()
    assert node.failure is None
    assert len(leaderless(node)) == 2 * (FEW - 1)
    again = await started(tmp_path)
    assert leaderless(again) == []
    crash(again)
    after_the_crash = await started(tmp_path)
    assert leaderless(after_the_crash) == []


async def test_a_topic_too_large_to_be_created_automatically_is_not(tmp_path: Path) -> None:
    node = await started(tmp_path, "num.partitions=20000")
    ask_controller(node.controller, node.topics.auto_create(["a"]), lambda _: None)
    assert not node.metadata.image.topics


async def test_partitions_are_added_up_to_the_bound(node: Server, few: None) -> None:
    assert create(node, ("a", 1), ("b", 1)) == [Error.NONE] * 2
    # Strings' hashes give the order: a is before b.
    assert grow(node, ("b", 2), ("a", FEW + 2)) == {
        "a": Error.UNKNOWN_SERVER_ERROR,
        "b": Error.UNKNOWN_SERVER_ERROR,
    }
    topics = node.metadata.image.topics
    assert {name: len(topics[name].partitions) for name in "ab"} == {"a": FEW + 1, "b": 1}
    assert grow(node, ("b", FEW + 1)) == {"b": Error.NONE}


async def test_partitions_past_the_bound_are_never_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    create(node, ("a", 1))
    made: list[int] = []
    make = NewPartitions.record

    def counted(self: NewPartitions, index: int, replicas: Sequence[int]) -> records.PartitionRecord:
        made.append(index)
        return make(self, index, replicas)

    monkeypatch.setattr(NewPartitions, "record", counted)
    assert grow(node, ("a", 2**31 - 1), only=True) == {"a": Error.POLICY_VIOLATION}
    assert made == []


@pytest.mark.limit("broker.controller.topic_requests.MAX_PARTITIONS_PER_REQUEST")
async def test_more_additional_partitions_than_may_be_are_refused_to_every_topic(node: Server) -> None:
    most = MAX_PARTITIONS_PER_REQUEST
    create(node, ("a", 1), ("b", 2))
    assert grow(node, ("a", most), ("b", 4), ("nowhere", 5), only=True) == {
        "a": Error.POLICY_VIOLATION,
        "b": Error.POLICY_VIOLATION,
        "nowhere": Error.POLICY_VIOLATION,
    }
    assert grow(node, ("a", most), ("b", 3), ("nowhere", most), only=True) == {
        "a": Error.NONE,
        "b": Error.NONE,
        "nowhere": Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert grow(node, ("a", most + 1), ("b", 1), only=True) == {
        "a": Error.NONE,
        "b": Error.INVALID_PARTITIONS,
    }


async def test_the_quota_is_asked_before_assignments_are_looked_at(node: Server) -> None:
    create(node, ("a", 1))
    taken: list[int] = []

    def take(partitions: int) -> None:
        taken.append(partitions)
        raise KafkaError(Error.THROTTLING_QUOTA_EXCEEDED)

    def refused(count: int, *assignments: list[int]) -> Error:
        wanted = message_from(
            CreatePartitionsTopic,
            {"name": "a", "count": count, "assignments": [{"broker_ids": ids} for ids in assignments]},
            3,
        )
        ((_, error),) = topics_of(node).add_partitions([wanted], take=take)
        assert error is not None
        return error.error

    assert refused(3, [1]) is Error.INVALID_REPLICA_ASSIGNMENT
    assert taken == []
    assert refused(3, [7], [7]) is Error.THROTTLING_QUOTA_EXCEEDED
    assert taken == [2]


async def test_more_topics_than_records_are_refused_in_one(node: Server, few: None) -> None:
    nowhere = [(f"t{n}", 2) for n in range(FEW)]
    assert {*grow(node, *nowhere).values()} == {Error.UNKNOWN_TOPIC_OR_PARTITION}
    assert {*grow(node, *nowhere, ("t", 2)).values()} == {Error.POLICY_VIOLATION}


async def test_topics_are_deleted_up_to_the_bound(node: Server, few: None) -> None:
    names = [f"t{n}" for n in range(FEW + 2)]
    for name in names:
        create(node, (name, 1))
    fields = {"topic_names": names, "timeout_ms": TIMEOUT_MS}
    answered = codes(ask(node, delete_topics, 20, 5, fields).responses)
    assert sorted(answered) == [Error.UNKNOWN_SERVER_ERROR] * 2 + [Error.NONE] * FEW
    assert len(node.metadata.image.topics) == 2


@pytest.mark.limit("broker.controller.controller.MAX_RECORDS_PER_REQUEST")
async def test_settings_are_altered_as_one_batch_or_not_at_all(node: Server) -> None:
    before = node.metadata.next_offset
    nowhere = (TOPIC, "nowhere", {"flush.ms": "1"})
    bad = (BROKER, "", {"log.roll.ms": "x"})
    answered = alter(node, *groups(MAX_RECORDS_PER_REQUEST + 1), nowhere, bad)
    # Requests that the broker itself refuses never reach the controller.
    assert answered == [Error.POLICY_VIOLATION] * (MAX_RECORDS_PER_REQUEST + 2) + [Error.INVALID_REQUEST]
    assert node.metadata.next_offset == before
    assert {*alter(node, *groups(MAX_RECORDS_PER_REQUEST))} == {Error.NONE}


async def test_eligible_replicas_count_for_the_setting_that_clears_them(node: Server, few: None) -> None:
    create(node, ("a", 1))
    in_sync = (TOPIC, "a", {"min.insync.replicas": "2"})
    assert alter(node, *groups(FEW - 1), in_sync, only=True) == [Error.POLICY_VIOLATION] * FEW
    assert alter(node, *groups(FEW - 2), in_sync, only=True) == [Error.NONE] * (FEW - 1)


async def test_quotas_are_altered_as_one_batch_or_not_at_all(node: Server, few: None) -> None:
    def entries(number: int) -> dict[str, Any]:
        ops = [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]
        return {
            "entries": [
                {"entity": [{"entity_type": "user", "entity_name": f"u{n}"}], "ops": ops}
                for n in range(number)
            ],
            "validate_only": False,
        }

    refused = ask(node, alter_client_quotas, 49, 1, entries(FEW + 1)).entries
    assert codes(refused) == [Error.POLICY_VIOLATION] * (FEW + 1)
    assert [entry.entity[0].entity_name for entry in refused] == [f"u{n}" for n in range(FEW + 1)]
    assert not node.quotas.enforced
    assert codes(ask(node, alter_client_quotas, 49, 1, entries(FEW)).entries) == [Error.NONE] * FEW
    assert node.quotas.enforced


async def test_a_new_topic_with_min_insync_replicas_says_that_nobody_is_eligible(node: Server) -> None:
    appended: list[str] = []
    append = node.metadata.append

    def spy(decided: Any, *, may_split: bool = False) -> int:
        appended.extend(type(record).__name__ for record in decided)
        return append(decided, may_split=may_split)

    node.metadata.append = spy  # type: ignore[method-assign]
    configs = [{"name": "min.insync.replicas", "value": "1"}]
    wanted = message_from(
        CreatableTopic, {"name": "a", "num_partitions": 1, "replication_factor": 1, "configs": configs}, 7
    )
    topics_of(node).create([wanted])
    assert appended == ["TopicRecord", "ConfigRecord", "ClearElrRecord", "PartitionRecord"]
    del node.metadata.append
