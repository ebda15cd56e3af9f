"""The journal of requests on its own: what it keeps, what it tells, and where it stops."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.faults.armed_fault import FaultError
from broker.faults.request_journal import MOST_PAGE_BYTES, MOST_PLACES, MOST_SCANNED, RequestJournal
from broker.network.answers import CloseConnectionError
from broker.network.observed_requests import ObservedLater
from protocol.apis import APIS
from protocol.errors import Error
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.messages.security import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from protocol.records.batch import build_batch_of_one_time
from protocol.waiting import Later


class Asked:
    """A journal, and a node that answers what a test says."""

    def __init__(self, size: int = 100) -> None:
        self.now_s = 50.0
        self.journal = RequestJournal(
            size, lambda: self.now_s, lambda: int(self.now_s * 1000), lambda topic_id: None
        )

    def ask(self, request: Any, answer: Any, version: int = 0, client_id: str = "a") -> Any:
        """Return what the node returns. If the answer is an exception, raise it."""

        def handle(context: Any, asked: Any) -> Any:
            self.now_s += 0.25
            if isinstance(answer, Exception):
                raise answer
            return answer

        api_key = next(key for key, api in APIS.items() if api.request is type(request))
        context: Any = SimpleNamespace(
            connection=SimpleNamespace(peer_port=4000),
            api_version=version,
            client_id=client_id,
            principal="User:alice",
            peer_host="127.0.0.1",
        )
        return self.journal.around(api_key, handle)(context, request)

    def told(self, **about: Any) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.journal.page(about)["requests"]
        return found


def end_txn(transactional_id: str = "payer", *, committed: bool = True) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id, producer_id=7, producer_epoch=2, committed=committed
    )


def produced(records: memoryview) -> ProduceRequest:
    data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=3, records=records)])
    return ProduceRequest(transactional_id="payer", acks=-1, topic_data=[data])


def offset_of(offset: int) -> ProduceResponse:
    partition = PartitionProduceResponse(index=3, base_offset=offset)
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[partition])])


def batch() -> bytearray:
    return build_batch_of_one_time(1, [(b"key", b"ten")], producer_id=7, producer_epoch=2)


def test_an_entry_holds_the_client_the_request_the_answer_and_the_time() -> None:
    asked = Asked()
    answer = asked.ask(end_txn(), EndTxnResponse(error_code=Error.NOT_COORDINATOR), 3)
    assert answer == EndTxnResponse(error_code=Error.NOT_COORDINATOR)
    [told] = asked.told()
    assert told == {
        "n": 1,
        "at_ms": 50_000.0,
        "took_ms": 250.0,
        "connection": "127.0.0.1:4000",
        "client_id": "a",
        "principal": "User:alice",
        "api": "EndTxn",
        "version": 3,
        "transactional_ids": ["payer"],
        "request": {
            "transactional_id": "payer",
            "producer_id": 7,
            "producer_epoch": 2,
            "committed": True,
        },
        "errors": {"NOT_COORDINATOR": 1},
    }


def test_a_produce_is_shown_by_its_batches_and_its_buffer_is_released() -> None:
    asked = Asked()
    buffer = batch()
    asked.ask(produced(memoryview(buffer)), offset_of(12), 9)
    buffer.clear()  # this raises BufferError if anybody still holds the buffer
    [told] = asked.told()
    assert told["topics"] == {"orders": [3]}
    assert told["batches"] == [
        {
            "topic": "orders",
            "partition": 3,
            "producer_id": 7,
            "producer_epoch": 2,
            "sequence": -1,
            "records": 1,
            "offset": 12,
        }
    ]


def test_an_answer_that_comes_later_ends_it_when_it_is_taken() -> None:
    asked = Asked()
    later: Later[Any] = Later()
    pending = asked.ask(end_txn(), later)
    [told] = asked.told()
    assert (told["took_ms"], told["outcome"]) == (None, "under way")
    later.reply(EndTxnResponse())
    asked.now_s += 2
    assert pending.result() == EndTxnResponse()
    [told] = asked.told()
    assert told["took_ms"] == 2250.0
    assert "outcome" not in told


def test_a_produce_whose_client_has_hung_up_keeps_its_records_for_its_handler() -> None:
    asked = Asked()
    buffer = batch()
    request = produced(memoryview(buffer))
    later: Later[Any] = Later()
    pending: ObservedLater = asked.ask(request, later, 9)
    pending.abandon()
    assert bytes(request.topic_data[0].partition_data[0].records or b"") == bytes(buffer)
    [told] = asked.told()
    assert told["outcome"] == "its client has hung up"
    assert told["batches"][0]["producer_id"] == 7


def test_a_connection_that_is_closed_instead() -> None:
    asked = Asked()
    with pytest.raises(CloseConnectionError):
        asked.ask(end_txn(), CloseConnectionError("away"))
    assert asked.told()[0]["outcome"] == "its connection was closed"


def test_the_errors_of_a_fetch_stay_and_its_records_do_not() -> None:
    asked = Asked()
    buffer = bytearray(b"records")
    partitions = [
        PartitionData(partition_index=0, records=memoryview(buffer)),
        PartitionData(partition_index=1, error_code=Error.NOT_LEADER_OR_FOLLOWER),
    ]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])
    asked.ask(FetchRequest(isolation_level=1), answer, 12)
    del answer, partitions
    buffer.clear()
    [told] = asked.told()
    assert told["errors"] == {"NOT_LEADER_OR_FOLLOWER": 1}
    assert told["request"]["isolation_level"] == 1


def test_no_secret_is_shown() -> None:
    asked = Asked()
    asked.ask(SaslAuthenticateRequest(auth_bytes=b"secret"), SaslAuthenticateResponse())
    assert "secret" not in str(asked.told())


@pytest.mark.parametrize(
    ("about", "count"),
    [
        ({}, 3),
        ({"api": "EndTxn"}, 2),
        ({"transactional_id": "payer"}, 1),
        ({"client_id": "b"}, 1),
        ({"principal": "User:alice"}, 3),
        ({"topic": "orders"}, 1),
        ({"fields": {"committed": False}}, 1),
    ],
)
def test_the_journal_is_filtered_as_a_fault_is(about: dict[str, Any], count: int) -> None:
    asked = Asked()
    asked.ask(end_txn(), EndTxnResponse())
    asked.ask(end_txn("other", committed=False), EndTxnResponse(), client_id="b")
    asked.ask(MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), MetadataResponse(), 9)
    assert len(asked.told(**about)) == count


@pytest.mark.parametrize("about", [{"api": "EndTransaction"}, {"do": "drop"}, {"nth": 2}])
def test_an_unknown_filter_is_refused(about: dict[str, Any]) -> None:
    with pytest.raises(FaultError):
        Asked().told(**about)


def test_the_journal_has_the_last_requests() -> None:
    asked = Asked(size=3)
    for _ in range(5):
        asked.ask(end_txn(), EndTxnResponse())
    page = asked.journal.page({}, after=1)
    assert [each["n"] for each in page["requests"]] == [3, 4, 5]
    assert page["lost"] == 1


@pytest.mark.limit("broker.faults.request_journal.MOST_SCANNED")
def test_one_question_looks_at_a_bounded_number() -> None:
    asked = Asked(size=MOST_SCANNED + 1)
    for _ in range(MOST_SCANNED + 1):
        asked.ask(end_txn(), EndTxnResponse())
    assert asked.journal.page({"transactional_id": "nobody"})["next"] == MOST_SCANNED
    assert asked.journal.page({"transactional_id": "nobody"}, MOST_SCANNED)["next"] is None


@pytest.mark.limit("broker.faults.request_journal.MOST_PAGE_BYTES")
def test_an_answer_comes_in_pages() -> None:
    asked = Asked(size=MOST_SCANNED)
    for _ in range(MOST_SCANNED):
        asked.ask(end_txn(), EndTxnResponse())
    page = asked.journal.page({})
    told = len(page["requests"])
    assert 0 < told < MOST_SCANNED
    assert len(str(page)) < 2 * MOST_PAGE_BYTES
    following = asked.journal.page({}, page["next"])
    assert following["requests"][0]["n"] == told + 1


@pytest.mark.limit("broker.faults.request_journal.MOST_PLACES")
def test_only_the_first_places_of_a_long_request_are_kept() -> None:
    asked = Asked()
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(MOST_PLACES + 1)]
    request = MetadataRequest(topics=topics)
    asked.ask(request, MetadataResponse(), 9)
    assert len(request.topics or ()) == MOST_PLACES + 1  # the handler gets all topics
    assert len(asked.told()[0]["topics"]) == MOST_PLACES
