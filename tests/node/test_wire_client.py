"""The tests' client, connected to a node directly and over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.server import Server
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import ApiVersionsRequest
from tests.node.transactional import create
from tests.support.straight import Straight
from tests.support.whole_server import started
from tests.support.wire import Client, Outcome, Socket


def over_a_socket(node: Server) -> Socket:
    return Socket("127.0.0.1", node.listeners["PLAINTEXT"].port)


@pytest.mark.parametrize("carrier", [Straight, over_a_socket])
async def test_an_answer_is_the_same_whatever_carries_it(
    tmp_path: Path, carrier: Callable[[Server], Straight | Socket]
) -> None:
    node = await started(tmp_path)
    with (
        await asyncio.to_thread(lambda: Client(carrier(node)))
        if carrier is over_a_socket
        else Client(carrier(node)) as client
    ):
        sent = client.send(ApiVersionsRequest(client_software_name="a", client_software_version="b"), 3)
        while (answer := client.receive(sent, within_s=0)) is Outcome.SILENCE:
            await asyncio.sleep(0)
        assert not isinstance(answer, Outcome)
        assert (answer.canonical, answer.correlation_id) == (True, sent.correlation_id)
        assert 18 in {each.api_key for each in answer.message.api_keys}


async def test_an_answer_that_comes_later_is_waited_for(node: Server) -> None:
    create(node, "t")
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=1, min_bytes=1, max_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])]
    )
    with Client(Straight(node)) as client:
        answer = await client.answer(request, 11)
    assert answer.responses[0].partitions[0].error_code == 0


async def test_a_connection_that_the_node_closes_is_seen_to_end(node: Server) -> None:
    with Client(Straight(node)) as client:
        client.send_bytes(b"\xff" * 50)
        assert client.receive_frame(within_s=0) is Outcome.CLOSED
        assert client.closed
