"""Faults on their own: how one is described, what a request names, and how many there may be."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.faults.altered_answers import MOST_REMEMBERED, as_it_was
from broker.faults.armed_fault import FaultError
from broker.faults.faults import MOST_FAULTS, Faults
from broker.faults.subjects import ids_of, topics_of, values_of
from protocol.apis import APIS
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups import DeleteGroupsRequest
from protocol.messages.metadata import FindCoordinatorRequest, MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.topics import DeleteTopicsRequest
from protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tests.golden.test_messages import vectors

TOPIC_ID = bytes(range(16))


def faults() -> tuple[Faults, list[str]]:
    """Return faults, and a list of what they did besides: `changed`, `crash`."""
    did: list[str] = []
    made = Faults(
        SimpleNamespace(),  # type: ignore[arg-type]
        SimpleNamespace(),  # type: ignore[arg-type]
        lambda topic_id: None,
        lambda: did.append("crash"),
        lambda: did.append("changed"),
        lambda error: None,
    )
    return made, did


@pytest.mark.limit("broker.faults.faults.MOST_FAULTS")
def test_armed_faults_have_a_limit() -> None:
    made, did = faults()
    numbers = [made.arm({"do": "hold"}) for _ in range(MOST_FAULTS)]
    with pytest.raises(FaultError, match="1000 faults are armed"):
        made.arm({"do": "hold"})
    made.disarm(numbers[0])
    made.arm({"do": "hold"})
    assert did == ["changed"] * (MOST_FAULTS + 2)


@pytest.mark.limit("broker.faults.altered_answers.MOST_REMEMBERED")
def test_remembered_answers_have_a_limit() -> None:
    answered: dict[bytes, Any] = {}
    for number in range(MOST_REMEMBERED + 1):
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=str(number))])
        assert as_it_was(answered, 12, asked, number) == number
    assert as_it_was(answered, 12, asked, "now") == "now"
    assert as_it_was(answered, 12, MetadataRequest(topics=[MetadataRequestTopic(name="0")]), "now") == 0


def test_a_handler_that_no_fault_is_about_is_not_wrapped() -> None:
    made, _ = faults()

    def handle(context: Any, request: Any) -> None: ...

    assert made.around(0, handle, SimpleNamespace()) is handle  # type: ignore[arg-type]
    made.arm({"api": "Fetch", "do": "hold"})
    made.arm({"do": "hold", "at": "marker"})
    assert made.around(0, handle, SimpleNamespace()) is handle  # type: ignore[arg-type]
    assert made.around(1, handle, SimpleNamespace()) is not handle  # type: ignore[arg-type]


def name_of(topic_id: bytes) -> str | None:
    return "by id" if topic_id == TOPIC_ID else None


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (
            ProduceRequest(
                topic_data=[TopicProduceData(name="a", partition_data=[PartitionProduceData(index=3)])]
            ),
            [("a", 3)],
        ),
        (
            FetchRequest(topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(partition=1)])]),
            [("by id", 1)],
        ),
        (FetchRequest(topics=[FetchTopic(topic_id=bytes(16), partitions=[FetchPartition()])]), []),
        (MetadataRequest(topics=[MetadataRequestTopic(name="m")]), [("m", None)]),
        (MetadataRequest(topics=None), []),
        (DeleteTopicsRequest(topic_names=["d"]), [("d", None)]),
        (
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 2])]
                    )
                ]
            ),
            [("t", 0), ("t", 2)],
        ),
    ],
)
def test_the_partitions_that_a_request_names(request_: Any, named: list[tuple[str, int | None]]) -> None:
    assert [*topics_of(request_, name_of)] == named


def test_the_groups_and_transactions_that_a_request_names() -> None:
    assert ids_of(FindCoordinatorRequest(key="g", key_type=0), "group") == {"g"}
    assert ids_of(FindCoordinatorRequest(key="g", key_type=0), "transactional_id") == set()
    assert ids_of(FindCoordinatorRequest(coordinator_keys=["t"], key_type=1), "transactional_id") == {"t"}
    assert ids_of(DeleteGroupsRequest(groups_names=["g", "h"]), "group") == {"g", "h"}
    transaction = AddPartitionsToTxnTransaction(transactional_id="t")
    assert ids_of(AddPartitionsToTxnRequest(transactions=[transaction]), "transactional_id") == {"t"}


def test_the_values_of_a_field() -> None:
    request = FetchRequest(topics=[FetchTopic(topic="a"), FetchTopic(topic="b")], max_wait_ms=7)
    assert values_of(request, "max_wait_ms") == [7]
    assert values_of(request, "topics.topic") == ["a", "b"]
    assert values_of(request, "nothing.here") == [None]


def test_every_request_can_be_looked_at() -> None:
    """The requests are those of Kafka's classes, of all APIs and versions."""
    from protocol.wire.codec import decode

    for api in APIS.values():
        for vector in vectors().get(api.request.__name__, ()):
            request = decode(api.request, vector["version"], bytes.fromhex(vector["hex"]))
            [*topics_of(request, name_of)]
            for kind in ("group", "transactional_id"):
                assert all(isinstance(each, str) for each in ids_of(request, kind))
