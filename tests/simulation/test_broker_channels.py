"""What is said to other brokers: together, one after the other, and to those that come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from broker.controller.image import ClusterImage
from broker.peers import other_brokers as broker_channels
from broker.peers.other_brokers import BrokerChannels
from broker.peers.peer import PeerSettings
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol.wire.schema import Message
from tests.simulation.machine import Machine, World
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.virtual_scheduler import NodeScheduler

PORT = 9092
ALIVE, FENCED, UNKNOWN = 1, 2, 3
Told = tuple[list[str], Error | None]
"""Items that were said together, and the error in the answer."""


class Saying:
    """Each item is the name of a topic, asked for with Metadata."""

    def __init__(self, world: World, together: Callable[[Sequence[str]], int] = len) -> None:
        image = ClusterImage()
        for node_id in (ALIVE, FENCED):
            end_points = [records.BrokerEndpoint(name="INTERNAL", host="localhost", port=PORT)]
            image.apply(
                records.RegisterBrokerRecord(
                    broker_id=node_id, end_points=end_points, fenced=node_id == FENCED
                )
            )
        scheduler = NodeScheduler(world.loop)
        self.told: list[Told] = []
        self.channels: BrokerChannels[str] = BrokerChannels(
            image,
            "INTERNAL",
            PeerSettings("7", "1"),
            world.network.of_node(scheduler),
            scheduler,
            request_of=lambda names: MetadataRequest(
                topics=[MetadataRequestTopic(name=name) for name in names]
            ),
            answered=self._answered,
            together=together,
        )

    def _answered(self, names: Sequence[str], answer: Message | KafkaError) -> None:
        if isinstance(answer, KafkaError):
            self.told.append(([*names], answer.error))
        else:
            assert isinstance(answer, MetadataResponse)
            assert {topic.name for topic in answer.topics} == {*names}
            self.told.append(([*names], None))

    def say(self, *names: str, to: int = ALIVE) -> None:
        for name in names:
            self.channels.say(to, name)

    async def until_told(self, count: int) -> None:
        while len(self.told) < count:
            await asyncio.sleep(0.01)


def test_messages_of_one_turn_go_together_and_later_ones_wait() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        saying = Saying(world)
        saying.say("a", "b")
        await asyncio.sleep(0)
        saying.say("c")
        saying.say("d")
        await saying.until_told(2)
        assert saying.told == [(["a", "b"], None), (["c", "d"], None)]
        saying.say("e")
        await saying.until_told(3)
        await machine.stop()

    run(main)


def test_a_waiting_message_makes_way_for_the_next_with_the_same_key() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 6)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        saying = Saying(world)
        saying.channels.say(ALIVE, "a", "key")
        await asyncio.sleep(0)
        assert saying.channels.waiting(ALIVE, "key") is None, "it is sent"
        for name, key in [("b", "key"), ("c", None), ("d", "key"), ("e", None)]:
            saying.channels.say(ALIVE, name, key)
        assert saying.channels.waiting(ALIVE, "key") == "d"
        assert saying.channels.waiting(UNKNOWN, "key") is None
        await saying.until_told(2)
        assert saying.told == [(["a"], None), (["d", "c", "e"], None)]
        await machine.stop()

    run(main)


@pytest.mark.limit("broker.peers.other_brokers.MOST_SAID_AT_ONCE")
def test_messages_that_go_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_channels, "MOST_SAID_AT_ONCE", 2)

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 2)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        saying = Saying(world)
        saying.say("a", "b", "c", "d", "e")
        await saying.until_told(3)
        assert [names for names, _ in saying.told] == [["a", "b"], ["c", "d"], ["e"]]
        await machine.stop()

    run(main)


@pytest.mark.parametrize("node_id", [FENCED, UNKNOWN])
def test_a_message_to_a_dead_node_fails_in_a_later_turn(node_id: int) -> None:
    async def main(loop: VirtualLoop) -> None:
        saying = Saying(World(loop, 3))
        saying.say("a", to=node_id)
        assert saying.told == []
        await saying.until_told(1)
        assert saying.told == [(["a"], Error.NETWORK_EXCEPTION)]

    run(main)


def test_messages_that_a_dead_node_left_unanswered_fail_and_the_next_goes_once_it_is_back() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 4)
        saying = Saying(world)
        saying.say("a")  # nobody is there
        await saying.until_told(1)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        saying.say("b")
        await saying.until_told(2)
        assert saying.told == [(["a"], Error.NETWORK_EXCEPTION), (["b"], None)]
        await machine.stop()

    run(main)


def test_after_a_stop_no_callback_is_called() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 5)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        saying = Saying(world)
        saying.say("a")
        saying.say("b", to=UNKNOWN)
        await asyncio.sleep(0)
        saying.channels.stop()
        saying.say("c")
        await asyncio.sleep(60)
        assert saying.told == []
        await machine.stop()

    run(main)


def test_messages_that_cannot_go_together_go_one_after_the_other() -> None:
    """Here names that begin alike can."""

    def together(names: Sequence[str]) -> int:
        return next((count for count, name in enumerate(names) if name[0] != names[0][0]), len(names))

    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machine = Machine(world, "one", PORT)
        assert await machine.start()
        saying = Saying(world, together)
        saying.say("a1", "a2", "b1", "a3", "b2", "b3")
        await saying.until_told(4)
        assert saying.told == [
            (["a1", "a2"], None),
            (["b1"], None),
            (["a3"], None),
            (["b2", "b3"], None),
        ]
        saying.channels.stop()
        await machine.stop()

    run(main)
