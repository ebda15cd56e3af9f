"""A node that asks another one, over sockets, on either loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.environment.network import SocketNetwork
from broker.environment.scheduler import LoopScheduler
from broker.peers.peer import Peer, PeerSettings, PeerState
from protocol.errors import KafkaError
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.wire.schema import Message
from tests.support.whole_server import started
from tests.support.wishes import tell

RUNS = [pytest.param(asyncio.run, id="asyncio"), pytest.param(uvloop.run, id="uvloop")]
PATIENCE_S = 60


@pytest.mark.parametrize("run", RUNS)
def test_a_peer_is_answered(run: Callable[[Coroutine[Any, Any, None]], None], tmp_path: Path) -> None:
    async def asked(peer: Peer) -> Message | KafkaError:
        answer: asyncio.Future[Message | KafkaError] = asyncio.get_running_loop().create_future()
        tell(peer.ask(MetadataRequest(topics=[])), answer.set_result)
        return await asyncio.wait_for(answer, PATIENCE_S)

    async def main() -> None:
        node = await started(tmp_path)
        port = node.listeners["PLAINTEXT"].port
        peer = Peer("127.0.0.1", port, PeerSettings("2", "0"), SocketNetwork(), LoopScheduler())
        for _ in range(2):
            answer = await asked(peer)
            assert isinstance(answer, MetadataResponse)
            assert [broker.port for broker in answer.brokers] == [port]
            assert peer.state is PeerState.FREE
        peer.stop()
        await node.stop()

    run(main())
