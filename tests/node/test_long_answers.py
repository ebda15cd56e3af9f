"""The answer to a Produce of many partitions is made in turns of the loop, and is the same as if it were made in
one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.handlers import produce
from broker.network import turns
from broker.server import Server
from protocol.errors import Error
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.node.admin_requests import create
from tests.node.computing import SHORT
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome

TOPICS = ("t", "nowhere", "t", "u")


def of_many(records: bytes, acks: int = -1) -> ProduceRequest:
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=index, records=records) for index in range(5)],
        )
        for name in TOPICS
    ]
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)


@pytest.mark.parametrize(
    ("records", "acks"),
    [(SHORT, -1), (SHORT, 7), (SHORT[:8] + b"\x7f\xff\xff\xff" + SHORT[12:], 1)],
    ids=["some are appended", "none is", "all fail"],
)
@pytest.mark.parametrize("version", [9, 12])
async def test_an_answer_is_made_in_turns_of_limited_size(
    node: Server, monkeypatch: pytest.MonkeyPatch, records: bytes, acks: int, version: int
) -> None:
    create(node, ("t", 3), ("u", 3))
    client = Client(Straight(node))
    at_once = client.ask(of_many(records, acks), version)
    many = produce.PARTITIONS_OF_TOPICS._replace(at_once=2)
    monkeypatch.setattr("broker.handlers.produce.PER_TURN", 2)
    monkeypatch.setattr(produce, "PARTITIONS_OF_TOPICS", many)
    monkeypatch.setattr(produce, "PER_TURN", 2)
    monkeypatch.setattr(turns, "PER_TURN", 2)
    made: list[int] = []
    make = produce.response_of

    def counted(acks: int, answers: Any) -> Any:
        made.append(len(answers))
        return make(acks, answers)

    monkeypatch.setattr(produce, "response_of", counted)
    sent = client.send(of_many(records, acks), version)
    for _ in range(100):
        answer = client.receive(sent, within_s=0)
        if answer is not Outcome.SILENCE:
            break
        await asyncio.sleep(0)
    assert not isinstance(answer, Outcome)
    assert max(made) == 2
    assert shown(answer.message) == shown(at_once)


def shown(answer: Any) -> Any:
    return [
        (topic.name, [(each.index, Error(each.error_code)) for each in topic.partition_responses])
        for topic in answer.responses
    ]
