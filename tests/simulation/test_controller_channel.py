"""The channel to the controller, which moves, dies, or isn't known yet."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from broker.controller.observer import LeaderEndpoint
from broker.peers import peer
from broker.peers.controller_channel import ControllerChannel
from broker.peers.peer import PeerSettings
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import BrokerRegistrationRequest, BrokerRegistrationResponse
from protocol.messages.metadata import MetadataRequest, MetadataResponse
from protocol.messages.raft import VoteRequest
from protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from protocol.waiting import begun
from protocol.wire.schema import Message
from tests.simulation.machine import Machine, World
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.virtual_scheduler import NodeScheduler
from tests.support.wishes import tell

FIRST, SECOND = 9092, 9192


class Asker:
    """A node that knows a controller, or none."""

    def __init__(self, world: World) -> None:
        scheduler = NodeScheduler(world.loop)
        self.loop = world.loop
        self.controller: LeaderEndpoint | None = None
        self.why_unknown = ""
        self.channel = ControllerChannel(
            lambda: self.controller,
            PeerSettings("7", "1"),
            world.network.of_node(scheduler),
            scheduler,
            why_unknown=lambda: self.why_unknown,
        )

    def ask(self, request: Message, timeout_ms: int | None = 5_000) -> asyncio.Future[Message | KafkaError]:
        answer: asyncio.Future[Message | KafkaError] = self.loop.create_future()
        asking = self.channel.ask(request, timeout_ms=timeout_ms)
        tell(begun(asking), answer.set_result)
        return answer


def test_a_request_waits_for_a_controller_and_follows_it() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        asker = Asker(world)
        answer = asker.ask(MetadataRequest(topics=[]))
        await asyncio.sleep(1)
        assert not answer.done()
        asker.controller = LeaderEndpoint(1, "localhost", FIRST)  # nobody listens there
        await asyncio.sleep(1)
        assert not answer.done()
        machine = Machine(world, "one", SECOND)
        assert await machine.start()
        asker.controller = LeaderEndpoint(2, "localhost", SECOND)
        found = await answer
        assert isinstance(found, MetadataResponse)
        assert [broker.port for broker in found.brokers] == [SECOND]
        assert not asker.channel.is_busy
        await machine.stop()

    run(main)


def test_a_request_not_answered_in_time_is_given_up_and_the_next_one_goes() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 2)
        asker = Asker(world)
        began_s = loop.time()
        found = await asker.ask(MetadataRequest(topics=[]), 300)
        assert isinstance(found, KafkaError)
        assert (found.error, loop.time() - began_s) == (Error.REQUEST_TIMED_OUT, 0.3)
        silent = world.network.of_node(NodeScheduler(loop)).bind("localhost", FIRST, 1)
        asker.controller = LeaderEndpoint(1, "localhost", FIRST)
        found = await asker.ask(MetadataRequest(topics=[]), 300)
        assert isinstance(found, KafkaError)
        assert found.error is Error.REQUEST_TIMED_OUT
        silent.close()
        machine = Machine(world, "one", FIRST)
        assert await machine.start()
        assert isinstance(await asker.ask(MetadataRequest(topics=[])), MetadataResponse)
        await machine.stop()

    run(main)


def test_a_given_up_request_names_the_trouble() -> None:
    async def main(loop: VirtualLoop) -> None:
        asker = Asker(World(loop, 8))

        async def trouble() -> str | None:
            found = await asker.ask(MetadataRequest(topics=[]), 300)
            assert isinstance(found, KafkaError)
            return found.message

        assert await trouble() == "no controller is known yet"
        asker.why_unknown = "it is of another cluster"
        assert await trouble() == "it is of another cluster"
        asker.controller = LeaderEndpoint(1, "localhost", FIRST)  # nobody listens there
        told = await trouble()
        assert told is not None
        assert told.startswith(f"localhost:{FIRST}: ")

    run(main)


def test_a_request_without_a_time_limit_is_repeated_as_long_as_it_takes() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 6)
        asker = Asker(world)
        answer = asker.ask(MetadataRequest(topics=[]), None)
        await asyncio.sleep(3_600)
        assert not answer.done()
        silent = world.network.of_node(NodeScheduler(loop)).bind("localhost", FIRST, 1)
        asker.controller = LeaderEndpoint(1, "localhost", FIRST)
        await asyncio.sleep(3_600)
        assert not answer.done()
        silent.close()
        machine = Machine(world, "one", FIRST)
        assert await machine.start()
        assert isinstance(await answer, MetadataResponse)
        await machine.stop()

    run(main)


def test_a_node_with_no_common_version_fails_the_request_at_once() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 3)
        machine = Machine(world, "one", FIRST)
        assert await machine.start()
        asker = Asker(world)
        asker.controller = LeaderEndpoint(1, "localhost", FIRST)
        found = await asker.ask(VoteRequest())
        assert isinstance(found, KafkaError)
        assert found.error is Error.UNSUPPORTED_VERSION
        await machine.stop()

    run(main)


def test_after_a_stop_no_callback_is_called() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 4)
        asker = Asker(world)
        answer = asker.ask(MetadataRequest(topics=[]))
        asker.channel.stop()
        await asyncio.sleep(20)
        assert not answer.done()

    run(main)


def registered(error: Error) -> Message:
    return BrokerRegistrationResponse(error_code=error, broker_epoch=5)


def created(error: Error) -> Message:
    """The answer has the error for a topic."""
    return CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_code=error)])


@pytest.mark.parametrize("answer_of", [registered, created])
def test_a_former_controller_is_asked_again_and_then_its_successor(
    monkeypatch: pytest.MonkeyPatch, answer_of: Callable[[Error], Message]
) -> None:
    asked: list[int] = []

    class Moving:
        """A node that says so."""

        def __init__(self, host: str, port: int, *more: Any) -> None:
            self.host, self.port = host, port

        async def ask(self, request: Message, *, timeout_ms: float) -> Message:
            asked.append(self.port)
            return answer_of(Error.NONE if self.port == SECOND else Error.NOT_CONTROLLER)

        def forget(self) -> None:
            pass

        def stop(self) -> None:
            pass

    monkeypatch.setattr(peer, "Peer", Moving)

    async def main(loop: VirtualLoop) -> None:
        asker = Asker(World(loop, 5))
        asker.controller = LeaderEndpoint(1, "localhost", FIRST)
        answer = asker.ask(BrokerRegistrationRequest())
        await asyncio.sleep(0.12)
        asker.controller = LeaderEndpoint(2, "localhost", SECOND)
        found = await answer
        assert found == answer_of(Error.NONE)

    run(main)
    assert asked == [FIRST, FIRST, FIRST, SECOND]
