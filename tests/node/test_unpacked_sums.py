"""How much the batches of one request may unpack to in all."""

from __future__ import annotations

import pytest

from broker.server import Server
from protocol.errors import Error
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import build_batch
from protocol.records.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from protocol.records.validation_budget import BRIEF, LITTLE
from tests.node.admin_requests import create
from tests.node.computing import LONG, Held, produce, told
from tests.support.attacks import packed
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome


@pytest.fixture
def held(node: Server, monkeypatch: pytest.MonkeyPatch) -> Held:
    create(node, ("t", 2))
    computing = Held()
    monkeypatch.setattr(node.turns, "_computing", computing)
    return computing


@pytest.mark.limit("protocol.records.validation_budget.MOST_OF_REQUEST")
@pytest.mark.parametrize("codec", [GZIP, LZ4, SNAPPY, ZSTD])
async def test_the_batches_of_one_request_unpack_to_a_bound_together(
    node: Server, held: Held, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    create(node, ("u", 4))
    monkeypatch.setattr("broker.handlers.produce.MOST_OF_REQUEST", 2 * LITTLE.unpacked_bytes)
    long = bytes(build_batch([(1, None, bytes(LITTLE.unpacked_bytes), ())], codec=codec))
    client = Client(Straight(node))
    data = [PartitionProduceData(index=index, records=long) for index in range(4)]
    request = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="u", partition_data=data)]
    )
    sent = client.send(request, 9)
    for _ in range(2):
        await held.let_go()
    assert held.waiting == []
    assert sorted(told(client.receive(sent))) == [
        *((0, Error.NONE, 0), (1, Error.NONE, 0)),
        *((2, Error.MESSAGE_TOO_LARGE, -1), (3, Error.MESSAGE_TOO_LARGE, -1)),
    ]
    again = client.send(request, 9)  # the next request has a bound of its own
    assert client.receive(again, within_s=0) is Outcome.SILENCE
    assert len(held.waiting) == 1


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
async def test_a_corrupt_batch_counts_as_if_it_had_unpacked_to_the_most(
    node: Server, held: Held, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    monkeypatch.setattr("broker.handlers.produce.MOST_OF_REQUEST", BRIEF.unpacked_bytes - 1)
    torn = packed(codec, compress(codec, bytes(BRIEF.unpacked_bytes * 3 // 4))[:-1])
    client = Client(Straight(node))
    sent = client.send(produce((0, torn), (1, LONG)), 9)
    await held.let_go()
    assert held.waiting == []
    assert sorted(told(client.receive(sent))) == [
        (0, Error.UNKNOWN_SERVER_ERROR, -1),
        (1, Error.MESSAGE_TOO_LARGE, -1),
    ]
