"""Dead letters go to the leader of their queue: what one request holds, and what is made of the answer."""

from __future__ import annotations

import pytest

from broker.peers import other_brokers
from broker.peers.other_brokers import _produce_answered, _produce_request, _produced_together
from broker.shares.dead_letters import Produced
from protocol.errors import Error, KafkaError
from protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from protocol.waiting import Later

ID, OTHER = bytes(15) + b"\1", bytes(15) + b"\2"


def produced(
    topic_id: bytes, partition: int, told: list[tuple[int, Error]] | None = None, size: int = 100
) -> Produced:
    then = (told if told is not None else []).append
    answer: Later[Error] = Later()
    answer.when_answered(lambda: then((partition, answer.result())))
    return Produced(topic_id, f"t{topic_id[-1]}", partition, bytes(size), answer)


@pytest.mark.limit("broker.peers.other_brokers.MOST_PRODUCED_BYTES")
def test_dead_letters_go_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_brokers, "MOST_PRODUCED_BYTES", 300)
    assert _produced_together([produced(ID, 0), produced(ID, 1), produced(OTHER, 0), produced(OTHER, 1)]) == 3
    assert _produced_together([produced(ID, 0, size=301), produced(ID, 1)]) == 1
    # a request has one batch for each partition
    assert _produced_together([produced(ID, 0), produced(ID, 0)]) == 1


def test_a_request_names_each_topic_once() -> None:
    request = _produce_request([produced(ID, 0), produced(OTHER, 0), produced(ID, 1)])
    assert request.acks == -1
    assert [(topic.topic_id, topic.name, len(topic.partition_data)) for topic in request.topic_data] == [
        (ID, "t1", 2),
        (OTHER, "t2", 1),
    ]


@pytest.mark.parametrize("by_id", [False, True])
def test_each_partition_gets_its_own_error(by_id: bool) -> None:
    told: list[tuple[int, Error]] = []
    answer = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name="" if by_id else "t1",
                topic_id=ID if by_id else bytes(16),
                partition_responses=[
                    PartitionProduceResponse(index=0, error_code=0, base_offset=3),
                    PartitionProduceResponse(
                        index=1, error_code=Error.NOT_LEADER_OR_FOLLOWER, base_offset=-1
                    ),
                ],
            )
        ]
    )
    _produce_answered([produced(ID, 0, told), produced(ID, 1, told), produced(ID, 2, told)], answer)
    assert told == [
        (0, Error.NONE),
        (1, Error.NOT_LEADER_OR_FOLLOWER),
        (2, Error.UNKNOWN_SERVER_ERROR),
    ]
    told.clear()
    _produce_answered([produced(ID, 0, told)], KafkaError(Error.NETWORK_EXCEPTION))
    assert told == [(0, Error.NETWORK_EXCEPTION)]
