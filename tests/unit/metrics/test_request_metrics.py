"""The metrics of requests and their answers, without a node."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.image import ClusterImage
from broker.metrics.request_metrics import _WITH_ONE_ERROR, RequestMetrics
from protocol.errors import Error
from protocol.messages.configs import ListConfigResourcesResponse
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ReplicaState,
)
from protocol.messages.metadata_records import TopicRecord
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
    EndTxnResponse,
)
from protocol.records.batch import build_batch
from protocol.waiting import Later
from protocol.wire.schema import error_codes
from tests.support.manual_clock import ManualClock

TOPIC_ID = b"t" * 16


class Counting:
    """One client's requests, which a test answers."""

    def __init__(self) -> None:
        image = ClusterImage()
        image.apply(TopicRecord(name="t", topic_id=TOPIC_ID))
        self.clock = ManualClock()
        self.metrics = RequestMetrics(self.clock.monotonic_s, image)

    def ask(self, api: str, request: Any, response: Any, version: int = 9) -> Any:
        def handle(context: Any, request: Any) -> Any:
            if isinstance(response, Exception):
                raise response
            return response

        return self.metrics.counted(api, version, handle)(SimpleNamespace(), request)  # type: ignore[arg-type]

    def counts(self, api: str) -> dict[str, dict[int, int]]:
        """Return the counts by name and version."""
        return {
            name: {version: each.count for version, each in named.versions().items()}
            for name, named in self.metrics.apis[api].by_name.items()
        }


def batch(records: int) -> bytes:
    return bytes(build_batch([(1, None, b"v", ())] * records))


def produced(*data: tuple[str, bytes, int, bytes]) -> ProduceRequest:
    """Return a Produce of (topic name, topic id, partition, batches)."""
    return ProduceRequest(
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[PartitionProduceData(index=index, records=memoryview(records))],
            )
            for name, topic_id, index, records in data
        ]
    )


def answered(*data: tuple[str, bytes, int, Error]) -> ProduceResponse:
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[PartitionProduceResponse(index=index, error_code=error)],
            )
            for name, topic_id, index, error in data
        ]
    )


NO_ID = bytes(16)


def test_a_produce_of_one_partition_is_counted_by_name_and_by_id() -> None:
    node, two = Counting(), batch(2) + batch(3)
    node.ask("Produce", produced(("t", NO_ID, 0, two)), answered(("t", NO_ID, 0, Error.NONE)))
    node.ask("Produce", produced(("", TOPIC_ID, 0, two)), answered(("", TOPIC_ID, 0, Error.NONE)))
    counts = node.metrics.topics["t"]
    assert (counts.produces, counts.messages_in, counts.bytes_in) == (2, 10, 2 * len(two))
    assert node.metrics.apis["Produce"].errors == {Error.NONE: 2}


def test_each_of_several_partitions_is_counted_in_whatever_order_they_are_answered() -> None:
    node = Counting()
    asked = produced(("t", NO_ID, 0, batch(1)), ("t", NO_ID, 1, batch(2)), ("gone", NO_ID, 0, batch(4)))
    node.ask(
        "Produce",
        asked,
        answered(
            ("gone", NO_ID, 0, Error.UNKNOWN_TOPIC_OR_PARTITION),
            ("t", NO_ID, 1, Error.NONE),
            ("t", NO_ID, 0, Error.NOT_LEADER_OR_FOLLOWER),
        ),
    )
    counts = node.metrics.topics["t"]
    assert (counts.produces, counts.failed_produces, counts.messages_in) == (2, 1, 2)
    assert (node.metrics.others.produces, node.metrics.others.failed_produces) == (1, 1)
    assert [*node.metrics.topics] == ["t"], "nobody makes series of topics that aren't there"


@pytest.mark.parametrize("records", [b"", b"short", bytes(100), batch(1)[:30] + bytes(40)])
def test_nonsense_has_no_messages(records: bytes) -> None:
    node = Counting()
    node.ask("Produce", produced(("t", NO_ID, 0, records)), answered(("t", NO_ID, 0, Error.CORRUPT_MESSAGE)))
    assert node.metrics.topics["t"].failed_produces == 1
    assert node.metrics.topics["t"].messages_in == 0


def test_a_deleted_topic_stays_in_the_sums() -> None:
    node = Counting()
    node.ask("Produce", produced(("t", NO_ID, 0, batch(1))), answered(("t", NO_ID, 0, Error.NONE)))
    node.metrics.forget_topics(lambda name: False)
    assert node.metrics.topics == {}
    assert node.metrics.others.messages_in == 1


def test_followers_are_distinguished_from_consumers() -> None:
    node = Counting()
    data = [PartitionData(partition_index=0, records=[b"12", b"345"]), PartitionData(partition_index=1)]
    response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=data)])
    node.ask("Fetch", FetchRequest(), response)
    node.ask("Fetch", FetchRequest(replica_id=2), response)
    node.ask("Fetch", FetchRequest(replica_state=ReplicaState(replica_id=2)), response)
    counts = node.metrics.topics["t"]
    assert (counts.fetches, counts.bytes_out, counts.replication_bytes_out) == (2, 5, 10)
    assert node.counts("Fetch") == {"Fetch": {9: 3}, "FetchConsumer": {9: 1}, "FetchFollower": {9: 2}}
    assert node.metrics.apis["Fetch"].errors == {Error.NONE: 6}


def test_waiting_requests_count_under_both_names_with_their_time() -> None:
    node, later = Counting(), Later[Any]()
    answer = node.ask("Fetch", FetchRequest(replica_id=2), later)
    node.clock.advance_ms(30)
    later.reply(FetchResponse())
    answer.result()
    node.ask("Fetch", FetchRequest(), FetchResponse())
    times = {name: [*named.times().last] for name, named in node.metrics.apis["Fetch"].by_name.items()}
    assert times == {"Fetch": [30, 0], "FetchFollower": [30], "FetchConsumer": [0]}


def test_verifying_brokers_have_their_own_name() -> None:
    node = Counting()
    adds, verifies = (
        AddPartitionsToTxnTransaction(transactional_id="t", verify_only=only) for only in (False, True)
    )
    for transactions in ([verifies], [adds], [adds, verifies]):
        node.ask(
            "AddPartitionsToTxn",
            AddPartitionsToTxnRequest(transactions=transactions),
            AddPartitionsToTxnResponse(),
            4,
        )
    node.ask("AddPartitionsToTxn", AddPartitionsToTxnRequest(), AddPartitionsToTxnResponse(), 3)
    assert node.counts("AddPartitionsToTxn") == {
        "AddPartitionsToTxnVerification": {4: 1},
        "AddPartitionsToTxn": {4: 2, 3: 1},
    }


def test_the_first_version_of_list_config_resources_has_its_old_name_too() -> None:
    node = Counting()
    for version in (0, 1, 1):
        node.ask("ListConfigResources", None, ListConfigResourcesResponse(), version)
    assert node.counts("ListConfigResources") == {
        "ListConfigResources": {0: 1, 1: 2},
        "ListClientMetricsResources": {0: 1},
    }


def test_a_later_answer_counts_when_it_is_there() -> None:
    node, later = Counting(), Later[Any]()
    answer = node.ask("EndTxn", None, later)
    named = node.metrics.apis["EndTxn"].named("EndTxn")
    assert named.times().count == 0
    node.clock.advance_ms(30)
    later.reply(EndTxnResponse(error_code=Error.INVALID_TXN_STATE))
    answer.result()
    times = named.times()
    assert (named.versions()[9].count, times.count, times.sum_ms, [*times.last]) == (1, 1, 30, [30])
    assert node.metrics.apis["EndTxn"].errors == {Error.INVALID_TXN_STATE: 1}


@pytest.mark.parametrize("kind", sorted(_WITH_ONE_ERROR, key=repr))
def test_an_answer_with_one_error_has_no_place_for_another(kind: type[Any]) -> None:
    node = Counting()
    node.ask("Any", None, kind(error_code=Error.NOT_COORDINATOR))
    assert node.metrics.apis["Any"].errors == {Error.NOT_COORDINATOR: 1}
    assert [*error_codes(kind(error_code=3))] == [3]


def test_the_errors_in_an_answer_of_the_controller_are_not_read() -> None:
    node = Counting()
    node.ask("CreateTopics", None, b"as it came")
    assert node.counts("CreateTopics") == {"CreateTopics": {9: 1}}
    assert node.metrics.apis["CreateTopics"].errors == {}


def test_a_request_that_fails_or_is_given_up_counts_as_such() -> None:
    node = Counting()
    with pytest.raises(ZeroDivisionError):
        node.ask("EndTxn", None, ZeroDivisionError())
    node.ask("EndTxn", None, Later()).abandon()
    node.ask("EndTxn", None, None)  # the client wants no answer
    counts = node.metrics.apis["EndTxn"]
    assert counts.errors == {Error.UNKNOWN_SERVER_ERROR: 1}
    assert (counts.hung_up, counts.named("EndTxn").times().count) == (1, 3)
