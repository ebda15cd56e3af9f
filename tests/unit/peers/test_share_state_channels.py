"""Requests to share coordinators elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordination.share_persister import DELETE, READ, SUMMARIZE, WRITE, ShareStateAsk, ShareStateKind
from broker.peers.other_brokers import ShareStateChannels
from coordinator.persister import ShareState, ShareStateSummary, StateBatch
from coordinator.share.share_partition_key import SharePartitionKey
from protocol.errors import Error, KafkaError
from protocol.messages import share_state as messages
from tests.unit.peers.several_brokers import SECOND, Channels

T, U = b"t" * 16, b"u" * 16


class ShareChannels(Channels):
    """Channels that also keep how many items go into one request."""

    together: Any = None

    def __call__(self, *, together: Any, **how: Any) -> Any:
        self.together = together
        return super().__call__(**how)


class Asking:
    """A node that keeps answers by group, the topic's first letter and partition. A KafkaError is kept as its code."""

    def __init__(self) -> None:
        self.channels = ShareChannels()
        self.share_states = ShareStateChannels(self.channels)
        self.answers: list[tuple[str, str, int, Any]] = []

    def ask(self, kind: ShareStateKind, part: Any, group_id: str = "g", topic_id: bytes = T) -> None:
        key = SharePartitionKey(group_id, topic_id, part.partition)

        def answered(answer: Any) -> None:
            told = answer.error if isinstance(answer, KafkaError) else answer
            self.answers.append((group_id, topic_id[:1].decode(), part.partition, told))

        def no_shard(shard: Any) -> Any:
            raise AssertionError("it is asked of another node")

        answer = self.share_states.ask(SECOND, ShareStateAsk(key, kind, ask=no_shard, part=lambda: part))
        answer.when_answered(lambda: answered(answer.result()))

    @property
    def said(self) -> list[Any]:
        return self.channels.items(SECOND)


def delete(partition: int) -> Any:
    return messages.DeletePartition(partition=partition)


def test_one_request_is_of_one_kind_and_group_and_names_no_share_partition_twice() -> None:
    node = Asking()
    node.ask(DELETE, delete(0))
    node.ask(DELETE, delete(1))
    node.ask(DELETE, delete(0), topic_id=U)
    node.ask(DELETE, delete(1))
    node.ask(DELETE, delete(2), group_id="h")
    node.ask(READ, messages.ReadPartition(partition=3), group_id="h")
    counts = []
    said = node.said
    while said:
        counts.append(node.channels.together(said))
        said = said[counts[-1] :]
    assert counts == [3, 1, 1, 1]
    request = node.channels.request_of(node.said[:3])
    assert isinstance(request, messages.DeleteShareGroupStateRequest)
    assert request.group_id == "g"
    assert [(topic.topic_id, [part.partition for part in topic.partitions]) for topic in request.topics] == [
        (T, [0, 1]),
        (U, [0]),
    ]
    node.share_states.stop()
    assert node.channels.is_stopped


def test_each_entry_gets_its_own_answer() -> None:
    node = Asking()
    for partition in range(4):
        node.ask(WRITE, messages.WritePartition(partition=partition))
    result = messages.PartitionResult
    parts = [
        result(partition=0),
        result(partition=1, error_code=Error.FENCED_STATE_EPOCH),
        result(partition=2, error_code=9_999),
    ]
    answer = messages.WriteShareGroupStateResponse(
        results=[messages.WriteStateResult(topic_id=T, partitions=parts)]
    )
    node.channels.answered(node.said, answer)
    assert [told for *_, told in node.answers] == [
        None,
        Error.FENCED_STATE_EPOCH,
        Error.UNKNOWN_SERVER_ERROR,
        Error.UNKNOWN_SERVER_ERROR,
    ]


def test_a_state_and_a_summary_read_as_from_a_shard_here() -> None:
    node = Asking()
    node.ask(READ, messages.ReadPartition(partition=0))
    batch = messages.StateBatch(first_offset=1, last_offset=2, delivery_state=4, delivery_count=3)
    part = messages.ReadPartitionResult(partition=0, state_epoch=5, start_offset=6, state_batches=[batch])
    read = messages.ReadStateResult(topic_id=T, partitions=[part])
    node.channels.answered(node.said, messages.ReadShareGroupStateResponse(results=[read]))
    assert node.answers[-1][-1] == ShareState(5, 6, [StateBatch(1, 2, 4, 3)])

    node = Asking()
    node.ask(SUMMARIZE, messages.SummaryPartition(partition=0))
    summed = messages.SummaryPartitionResult(
        partition=0, state_epoch=5, leader_epoch=4, start_offset=6, delivery_complete_count=7
    )
    summary = messages.ReadStateSummaryResult(topic_id=T, partitions=[summed])
    node.channels.answered(node.said, messages.ReadShareGroupStateSummaryResponse(results=[summary]))
    assert node.answers[-1][-1] == ShareStateSummary(5, 4, 6, 7)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (Error.NETWORK_EXCEPTION, Error.NETWORK_EXCEPTION),
        (Error.REQUEST_TIMED_OUT, Error.REQUEST_TIMED_OUT),
        (Error.UNSUPPORTED_VERSION, Error.UNKNOWN_SERVER_ERROR),
    ],
)
def test_all_entries_fail_if_the_node_cannot_be_asked(failure: Error, told: Error) -> None:
    node = Asking()
    node.ask(DELETE, delete(0))
    node.ask(DELETE, delete(1))
    node.channels.answered(node.said, KafkaError(failure))
    assert [answer for *_, answer in node.answers] == [told, told]
