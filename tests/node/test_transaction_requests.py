"""The requests of transactions: what each version is told, and in which form."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import HANDLERS, add_partitions_to_txn
from broker.server import Server
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.cluster_admin import FeatureUpdateKey, UpdateFeaturesRequest
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import ApiVersionsRequest, FindCoordinatorRequest
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.waiting import turn
from storage.producer_state import Producer as KnownProducer
from tests.node.transactional import (
    Producer,
    ask,
    committed,
    coordinating,
    create,
    find,
    state,
)
from tests.support.answers import answered
from tests.support.whole_server import clock_of

FENCED_BEFORE = {"AddPartitionsToTxn": 2, "AddOffsetsToTxn": 2, "EndTxn": 2, "InitProducerId": 4}
"""The first versions that know PRODUCER_FENCED."""


def test_every_version_of_kafkas_transactional_requests_is_served() -> None:
    served = {
        APIS[key].name: (APIS[key].min_version, APIS[key].max_version)
        for key in (22, 24, 25, 26, 27, 28, 61, 65, 66)
        if key in HANDLERS
    }
    assert served == {
        "InitProducerId": (0, 5),
        "AddPartitionsToTxn": (0, 5),
        "AddOffsetsToTxn": (0, 4),
        "EndTxn": (0, 5),
        "WriteTxnMarkers": (1, 2),
        "TxnOffsetCommit": (0, 6),
        "DescribeProducers": (0, 0),
        "DescribeTransactions": (0, 0),
        "ListTransactions": (0, 2),
    }


async def test_older_versions_know_no_fenced_producer(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()
    producer.epoch = 9

    def told(version: int) -> dict[str, Error]:
        return {
            "AddPartitionsToTxn": producer.add(("t", 0), version=min(version, 3))[0],
            "AddOffsetsToTxn": producer.add_offsets(version=version),
            "EndTxn": producer.end(version=version),
            "InitProducerId": Error(producer.init(version=max(version, 3), known=True).error_code),
        }

    old = Error.INVALID_PRODUCER_EPOCH
    fenced = Error.PRODUCER_FENCED
    assert told(1) == dict.fromkeys(FENCED_BEFORE, old)
    assert told(2) == dict.fromkeys(FENCED_BEFORE, fenced) | {"InitProducerId": old}
    assert told(4) == dict.fromkeys(FENCED_BEFORE, fenced)


@pytest.mark.parametrize("version", range(7))
async def test_every_version_finds_the_coordinator_of_a_transactional_id(node: Server, version: int) -> None:
    request = FindCoordinatorRequest(key="tx", key_type=1, coordinator_keys=["tx", "other"])
    answer = ask(node, request, version)
    found = answer.coordinators if version >= 4 else [answer]
    assert [each.error_code for each in found] == [Error.NONE] * (2 if version >= 4 else 1)
    assert {each.node_id for each in found} == {node.node_id}


# --- AddPartitionsToTxn -------------------------------------------------------------------------------------


async def test_an_unknown_partition_keeps_all_of_them_out(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()

    answers = producer.add(("t", 0), ("nowhere", 0), ("t", 7), ("t", 1))

    assert sorted(answers) == sorted(
        [Error.UNKNOWN_TOPIC_OR_PARTITION] * 2 + [Error.OPERATION_NOT_ATTEMPTED] * 2
    )
    assert answers[0] is Error.UNKNOWN_TOPIC_OR_PARTITION, "the refused ones come first"
    assert state(node) == "Empty"


async def test_no_partitions_begin_a_transaction_as_well(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()

    assert producer.add() == []

    assert state(node) == "Ongoing"
    assert producer.end() is Error.NONE


@pytest.mark.parametrize(
    ("topics", "partitions", "is_long"), [(1, 99, False), (1, 100, True), (2, 49, False), (2, 50, True)]
)
async def test_a_long_list_is_gone_through_in_steps_however_it_is_made_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: int, partitions: int, is_long: bool
) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    taken: list[object] = []
    monkeypatch.setattr(add_partitions_to_txn, "PER_TURN", 100)
    monkeypatch.setattr(add_partitions_to_txn, "turn", lambda: taken.append(None) or turn())

    errors = producer.add(
        *((f"nowhere-{topic}", index) for topic in range(topics) for index in range(partitions))
    )

    assert errors == [Error.UNKNOWN_TOPIC_OR_PARTITION] * (topics * partitions)
    assert bool(taken) is is_long


def add_for_brokers(node: Server, *transactions: AddPartitionsToTxnTransaction, version: int = 5) -> Any:
    answer = ask(node, AddPartitionsToTxnRequest(transactions=[*transactions]), version)
    assert answer.error_code == Error.NONE
    return {
        result.transactional_id: {
            (topic.name, partition.partition_index): Error(partition.partition_error_code)
            for topic in result.topic_results
            for partition in topic.results_by_partition
        }
        for result in answer.results_by_transaction
    }


def of_broker(
    producer: Producer, *indexes: int, verify_only: bool = False, topic: str = "t"
) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=[AddPartitionsToTxnTopic(name=topic, partitions=[*indexes])],
    )


async def test_several_transactions_are_answered_separately(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    adding, verifying, lost = (Producer(node, name).begin() for name in ("adding", "verifying", "lost"))
    verifying.add(("t", 0))

    answers = add_for_brokers(
        node,
        of_broker(adding, 1),
        of_broker(verifying, 0, 1, verify_only=True),
        of_broker(lost, 0, topic="nowhere"),
    )

    assert answers == {
        "adding": {("t", 1): Error.NONE},
        "verifying": {("t", 0): Error.NONE, ("t", 1): Error.TRANSACTION_ABORTABLE},
        "lost": {("nowhere", 0): Error.UNKNOWN_TOPIC_OR_PARTITION},
    }
    assert [state(node, name) for name in ("adding", "verifying", "lost")] == ["Ongoing", "Ongoing", "Empty"]


async def test_partitions_that_brokers_add_are_of_version_2(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    for version, client_version in ((3, 0), (4, 2)):
        if version == 3:
            producer.add(("t", 0))
        else:
            add_for_brokers(node, of_broker(producer, 0), version=version)
        described = node.transactions.shard_of("tx").describe("tx")
        assert described.client_transaction_version == client_version
        producer.end()


async def test_no_transactions_are_answered_with_none(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    assert add_for_brokers(node) == {}


# --- TxnOffsetCommit ----------------------------------------------------------------------------------------


async def test_offsets_need_their_partition_in_the_transaction(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()

    assert producer.commit_offsets(7, version=3) == [Error.INVALID_TXN_STATE]
    assert producer.commit_offsets(7, version=4) == [Error.TRANSACTION_ABORTABLE]
    assert producer.add_offsets() is Error.NONE
    assert producer.commit_offsets(7, version=3) == [Error.NONE]


async def test_version_5_adds_the_partition_of_the_offsets_automatically(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()

    assert producer.commit_offsets(7) == [Error.NONE]

    assert [*node.transactions.shard_of("tx").describe("tx").partitions] == [("__consumer_offsets", 0)]


async def test_offsets_of_missing_partitions_are_refused_first(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    stranger = Producer(node, "unknown")

    unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
    assert stranger.commit_offsets(7, "", topics=[("nowhere", 0), ("t", 9)]) == [unknown, unknown]
    assert stranger.commit_offsets(7, "", topics=[("t", 9), ("t", 0)]) == [unknown, Error.INVALID_GROUP_ID]


async def test_version_6_names_topics_by_their_ids(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    known = node.metadata.image.topics["t"].topic_id

    def topic(topic_id: bytes, *indexes: int) -> TxnOffsetCommitRequestTopic:
        return TxnOffsetCommitRequestTopic(
            topic_id=topic_id,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=index, committed_offset=7, committed_metadata=""
                )
                for index in indexes
            ],
        )

    request = TxnOffsetCommitRequest(
        transactional_id="tx",
        group_id="g",
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        member_id="",
        topics=[topic(known, 0, 9, 1), topic(bytes(16), 0), topic(b"nobody's........", 0, 1)],
    )
    found = [
        (each.name, each.topic_id, [(one.partition_index, one.error_code) for one in each.partitions])
        for each in ask(node, request, 6).topics
    ]
    assert found == [
        ("", known, [(9, Error.UNKNOWN_TOPIC_OR_PARTITION), (0, 0), (1, 0)]),
        ("", bytes(16), [(0, Error.UNKNOWN_TOPIC_ID)]),
        ("", b"nobody's........", [(0, Error.UNKNOWN_TOPIC_ID), (1, Error.UNKNOWN_TOPIC_ID)]),
    ]
    assert producer.end() is Error.NONE
    [shard] = node.groups.all_shards()
    assert [each.topic_id for each in shard.offsets.of_group("g")["t"].values()] == [known, known]


async def test_offsets_of_a_wrong_producer_are_refused(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.epoch += 1
    assert producer.commit_offsets(7) == [Error.INVALID_PRODUCER_EPOCH]
    producer.producer_id += 1
    assert producer.commit_offsets(7) == [Error.INVALID_PRODUCER_ID_MAPPING]
    producer.transactional_id = "unknown"
    assert producer.commit_offsets(7) == [Error.INVALID_PRODUCER_ID_MAPPING]


async def test_offsets_of_a_wrong_member_are_refused(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()

    assert producer.commit_offsets(7, generation_id_or_member_epoch=3) == [Error.ILLEGAL_GENERATION]
    assert producer.commit_offsets(7) == [Error.NONE]
    assert producer.commit_offsets(7, generation_id_or_member_epoch=3, member_id="me") == [
        Error.UNKNOWN_MEMBER_ID
    ]


async def test_offsets_without_their_topics_find_no_coordinator(node: Server) -> None:
    create(node, "t")
    producer = Producer(node)
    producer.producer_id = producer.epoch = 0
    assert producer.commit_offsets(7) == [Error.COORDINATOR_NOT_AVAILABLE]

    ask(node, FindCoordinatorRequest(key="g"), 3)
    assert producer.commit_offsets(7) == [Error.COORDINATOR_NOT_AVAILABLE], "of the transaction"


async def test_a_fetched_offset_is_that_of_the_last_commit_in_the_log(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    first, second = Producer(node, "first").begin(), Producer(node, "second").begin()
    first.commit_offsets(7)
    second.commit_offsets(9)

    second.end()
    assert committed(node) == (-1, Error.UNSTABLE_OFFSET_COMMIT), "the first one's are pending still"
    first.end()
    assert committed(node) == (9, Error.NONE)


async def test_kafka_17507_the_next_transactions_offsets_stay_pending(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.commit_offsets(7)
    producer.end()
    producer.commit_offsets(8)

    store = node.groups.shard_of("g").offsets
    assert store.has_open_transaction("g")
    producer.end(commit=False)
    assert committed(node) == (7, Error.NONE)
    assert not store.has_open_transaction("g")


# --- readers ------------------------------------------------------------------------------------------------


def fetch(node: Server, offset: int, *, isolation_level: int = 1) -> Any:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1_000_000,
        isolation_level=isolation_level,
        topics=[FetchTopic(topic="t", partitions=[partition])],
    )
    return ask(node, request, 11)


@pytest.mark.parametrize("commit", [True, False])
async def test_the_end_wakes_a_reader_of_committed_records(tmp_path: Path, commit: bool) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    waiting = fetch(node, 0)
    [reader] = node.partitions.get("t", 0).waiting

    producer.end(commit=commit)

    await asyncio.sleep(0)
    assert reader.is_over, "in the next turn of the loop"
    answer = await answered(waiting)
    [found] = answer.responses[0].partitions
    assert (found.last_stable_offset, found.high_watermark) == (2, 2)
    assert len(found.records) > 0
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions]
    assert aborted == ([] if commit else [(producer.producer_id, 0)])


async def test_a_reader_of_committed_records_waits_on_for_another_open_transaction(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    first, second = Producer(node, "first").begin(), Producer(node, "second").begin()
    first.send()
    second.send()
    waiting = fetch(node, 0)
    [reader] = node.partitions.get("t", 0).waiting

    second.end()
    for _ in range(3):
        await asyncio.sleep(0)
    assert not reader.is_over
    first.end()
    await asyncio.sleep(0)
    assert reader.is_over
    [found] = (await answered(waiting)).responses[0].partitions
    assert found.last_stable_offset == 4


async def test_a_producer_with_a_young_marker_is_not_forgotten(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    clock_of(node).advance_ms(86_000_000)
    producer.end()
    clock_of(node).advance_ms(86_000_000)

    node.housekeeping.expire_producers()
    states: dict[int, KnownProducer] = node.partitions.get("t", 0).log.producers.producers
    assert len(states) == 1, "KAFKA-9144: the marker's time counts"
    clock_of(node).advance_ms(400_000)
    node.housekeeping.expire_producers()
    assert states == {}


async def test_the_level_of_transactions_is_announced_to_clients_and_can_be_lowered(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()

    def level() -> int:
        answer = ask(node, ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4)
        return {each.name: each.max_version_level for each in answer.finalized_features}.get(
            "transaction.version", 0
        )

    def set_level(wanted: int, upgrade_type: int) -> Error:
        update = FeatureUpdateKey(
            feature="transaction.version", max_version_level=wanted, upgrade_type=upgrade_type
        )
        answer = ask(node, UpdateFeaturesRequest(timeout_ms=1_000, feature_updates=[update]), 1)
        return Error(answer.error_code)

    assert level() == 2
    for wanted in (1, 0):
        assert set_level(wanted, 2) is Error.NONE
        assert level() == wanted
        producer.add(("t", 0))
        assert producer.end(version=4) is Error.NONE
    producer.add(("t", 0))
    assert producer.end(version=5) is Error.UNSUPPORTED_VERSION
    assert set_level(3, 1) is Error.INVALID_UPDATE_VERSION
    assert set_level(2, 1) is Error.NONE
    assert producer.end(version=5) is Error.NONE
    assert find(node).error_code == Error.NONE
