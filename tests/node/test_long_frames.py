"""Requests and answers that take long to decode and encode are done in steps. Others are served in between."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.controller.controller import MAX_RECORDS_PER_REQUEST
from broker.network import pieces
from broker.network.dispatch import (
    JOINED_CHUNKS_BYTES,
    LONG_FRAME_BYTES,
    Route,
    frame_answer,
    framed_in_steps,
)
from broker.server import Server
from protocol.apis import APIS
from protocol.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from protocol.messages.metadata import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsTopic,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.share_fetch import (
    AcquiredRecords,
    FetchedPartition,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from protocol.wire.codec import ENTRIES_PER_STEP
from storage.files import File, FileRange
from tests.support.disk import files
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome
from tests.support.wishes import pauses

COUNT = 5 * ENTRIES_PER_STEP


def many(count: int = COUNT) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=f"nowhere-{number:08}") for number in range(count)]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


async def turn() -> None:
    await asyncio.sleep(0)


async def test_others_are_served_while_a_request_is_read_and_its_answer_written(node: Server) -> None:
    long, other = Client(Straight(node)), Client(Straight(node))
    sent = long.send(many(), 12)
    after = long.send(MetadataRequest(topics=[]), 12)
    assert long.receive(sent, within_s=0) is Outcome.SILENCE
    served = 0
    while (answer := long.receive(sent, within_s=0)) is Outcome.SILENCE:
        other.ask(MetadataRequest(topics=[]), 12)
        await turn()
        served += 1
    assert not isinstance(answer, Outcome)
    assert [topic.name for topic in answer.message.topics] == [topic.name for topic in many().topics or ()]
    assert served > 2 * COUNT // ENTRIES_PER_STEP
    await turn()
    assert not isinstance(long.receive(after), Outcome)


@pytest.mark.parametrize("is_over", [False, True])
def test_an_answer_is_written_on_until_the_turn_is_over(is_over: bool) -> None:
    # librdkafka leaves its first connection when the first Metadata answer comes. It repeats a request whose answer
    # comes in a later turn, 50 ms later.
    topics = [MetadataResponseTopic(name=f"topic-{number}") for number in range(COUNT)]
    response = MetadataResponse(cluster_id="cluster", controller_id=1, brokers=[], topics=topics)
    steps = framed_in_steps(Route(MetadataRequest.API_KEY, 12), 1, response, lambda: is_over)
    assert pauses(steps) == (COUNT // ENTRIES_PER_STEP if is_over else 0)


def _fetched(records: Any) -> Any:
    partitions = [
        PartitionData.of(partition_index=number, records=records if number == 7 else b"r")
        for number in range(COUNT)
    ]
    return FetchResponse.of(responses=[FetchableTopicResponse.of(topic="t", partitions=partitions)])


def _acquired(records: Any) -> Any:
    holes = [AcquiredRecords(first_offset=at, last_offset=at, delivery_count=1) for at in range(0, COUNT, 2)]
    partition = FetchedPartition(partition_index=0, records=records, acquired_records=holes)
    return ShareFetchResponse(
        responses=[ShareFetchableTopicResponse(topic_id=bytes(16), partitions=[partition])]
    )


@pytest.mark.parametrize("in_files", [0, 2])
@pytest.mark.parametrize(
    ("api_key", "version", "answer"),
    [(FetchRequest.API_KEY, 11, _fetched), (ShareFetchRequest.API_KEY, 2, _acquired)],
    ids=["Fetch", "ShareFetch"],
)
def test_an_answer_of_many_partitions_is_joined_as_it_is_written_but_for_file_ranges(
    tmp_path: Path, in_files: int, api_key: int, version: int, answer: Callable[[Any], Any]
) -> None:
    file = File(str(tmp_path / "0.log"))
    files.create(file)
    ranges = [FileRange(files, file, 0, 100) for _ in range(in_files)]
    response = answer([b"r", *ranges])
    route = Route(api_key, version)
    whole: list[Any] = [b""]
    route.encode(response, whole)
    framed = framed_in_steps(route, 1, response, lambda: False)
    with pytest.raises(StopIteration) as end:
        framed.send(None)
    chunks = end.value.value
    assert len(chunks) < len(whole) // 4
    assert [each for each in chunks if isinstance(each, FileRange)] == ranges
    assert b"".join(each for each in chunks[1:] if not isinstance(each, FileRange)) == b"".join(
        each for each in whole if not isinstance(each, FileRange)
    )


def test_the_rest_of_a_file_range_may_be_all_of_a_short_answer(tmp_path: Path) -> None:
    file = File(str(tmp_path / "0.log"))
    files.create(file)
    end = FileRange(files, file, 0, 78)  # a marker's batch
    response = ShareFetchResponse(
        responses=[ShareFetchableTopicResponse(partitions=[FetchedPartition(records=[end])])]
    )
    chunks = frame_answer(Route(ShareFetchRequest.API_KEY, 2), 1, response)
    assert chunks is not None
    assert sum(map(len, chunks)) < JOINED_CHUNKS_BYTES
    assert [each for each in chunks if isinstance(each, FileRange)] == [end]


async def test_a_frame_is_long_by_its_size(node: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(Straight(node))
    steps: list[Any] = []
    answer = node.turns.answer
    monkeypatch.setattr(
        node.turns, "answer", lambda *given, **options: steps.append(given) or answer(*given, **options)
    )
    client.ask(MetadataRequest(topics=[]), 12)
    short = len(steps)
    client.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), 12)
    assert len(steps) == 2 * short
    request = many(LONG_FRAME_BYTES // 20 + 10)
    await client.answer(request, 12)
    assert len(steps) == 3 * short + 1


async def test_a_request_sent_whole_is_carried_out_though_its_client_hangs_up(node: Server) -> None:
    client = Client(Straight(node))
    names = ["made", *(f"not/a/name-{number}" for number in range(COUNT))]
    client.send(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]), 12)
    client.close()
    for _ in range(10 * COUNT // ENTRIES_PER_STEP):
        await turn()
    assert [*node.metadata.image.topics] == ["made"]


async def test_nonsense_after_a_long_beginning_closes_the_connection(node: Server) -> None:
    client = Client(Straight(node))
    _, data = client.made(many(), 12)
    cut = (len(data) - 4 - 1000).to_bytes(4, "big") + data[4:-1000]
    client.send_bytes(cut)
    while not isinstance(outcome := client.receive_frame(within_s=0), Outcome) or outcome is Outcome.SILENCE:
        await turn()
    assert outcome is Outcome.CLOSED


def test_the_documents_name_all_requests_decided_or_answered_as_one() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    row = next(
        line for line in text.splitlines() if line.startswith("| `broker.network.pieces.MOST_DECIDED`")
    )
    most = pieces.MOST_ENTRIES_BY_API
    named = {name for name in {api.name for api in APIS.values()} if re.search(rf"\b{name}\b", row)}
    assert named == {name for name in most if most[name] == pieces.MOST_DECIDED}


@pytest.mark.limit("broker.network.pieces.MOST_DECIDED")
@pytest.mark.limit("broker.network.pieces.MOST_FETCHED")
@pytest.mark.limit("broker.network.pieces.MOST_JOINED")
@pytest.mark.limit("broker.network.answers.MOST_PRODUCED")
async def test_requests_decided_or_answered_as_one_have_fewer_entries(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pieces.MOST_DECIDED >= 5 * MAX_RECORDS_PER_REQUEST  # an entry may have three lists
    few = 3 * ENTRIES_PER_STEP
    for name in [*pieces.MOST_ENTRIES_BY_API]:
        assert name in {api.name for api in APIS.values()}
        monkeypatch.setitem(pieces.MOST_ENTRIES_BY_API, name, few)
    for entries, is_served in ((few, True), (2 * few, False)):
        deleted = [DeleteTopicState(name=f"nowhere-{number:08}") for number in range(entries)]
        partitions = [PartitionProduceData(index=number) for number in range(entries - 1)]
        produced = [TopicProduceData(name="nowhere", partition_data=partitions)]
        described = [DescribeTopicPartitionsTopic(name=topic.name or "") for topic in deleted]
        protocols = [JoinGroupRequestProtocol(name=topic.name or "", metadata=b"") for topic in deleted]
        assigned = [
            SyncGroupRequestAssignment(member_id=topic.name or "", assignment=b"") for topic in deleted
        ]
        for request, version in (
            (DeleteTopicsRequest(topics=deleted, timeout_ms=1000), 6),
            (DescribeTopicPartitionsRequest(topics=described), 0),
            (ProduceRequest(acks=1, timeout_ms=1000, topic_data=produced), 9),
            (JoinGroupRequest(group_id="g", session_timeout_ms=1, protocols=protocols), 7),
            (SyncGroupRequest(group_id="g", assignments=assigned), 5),
        ):
            asked = Client(Straight(node)).answer(request, version)
            if is_served:
                await asked
            else:
                with pytest.raises(ConnectionError):
                    await asked
