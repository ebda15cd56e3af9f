"""Brokers and their controller that sign in at each other: all that they say to each other goes so, and as whom."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.replicas.leader import Leader
from broker.security.authorizer import Principal
from protocol.errors import Error
from protocol.messages.metadata import FindCoordinatorRequest
from tests.node.secured_nodes import AUTHORIZED, BROKER_IDS, SecuredNodes, plain, protocols, secured, until
from tests.support.transactional_client import Broker, Producer, eventually, worst

NODE = Principal("User", "node")
PARTITIONS = (0, 1, 2)


def principals(nodes: SecuredNodes) -> set[Principal]:
    """Whose connections there are at the listeners that are for nodes."""
    listeners = [nodes.controller.listeners["CONTROLLER"]]
    listeners += [broker.listeners["NODES"] for broker in nodes.brokers.values()]
    return {each.principal for listener in listeners for each in listener.connections}


def ends(nodes: SecuredNodes, topic: str) -> list[tuple[int, int]]:
    """Of each partition, by its leader: the high watermark, and the last stable offset."""
    found = {}
    for broker in nodes.brokers.values():
        for index, partition in broker.partitions.by_name[topic].partitions.items():
            if isinstance(partition.role, Leader):
                found[index] = partition.log.high_watermark, partition.log.last_stable_offset
    return [found.get(index, (-1, -1)) for index in PARTITIONS]


async def play(nodes: SecuredNodes) -> None:
    """A topic on all nodes, and a transaction over leaders on each of them. What nodes say to each other for it:
    registrations, heartbeats, the metadata, a topic and producer ids by the controller, replicas, ISRs, markers."""
    await nodes.create("orders", len(PARTITIONS))
    image = nodes.controller.metadata.image
    leaders = {each.leader for each in image.topics["orders"].partitions.values()}
    assert leaders == {*BROKER_IDS}
    await nodes.ask(BROKER_IDS[0], FindCoordinatorRequest(key="t", key_type=1), 3)
    await until(lambda: nodes.is_in_sync("__transaction_state"))
    producer = Producer(Broker(nodes.route), "t", 1)

    def transaction() -> None:
        eventually(producer.init)
        eventually(lambda: worst(producer.add("orders", PARTITIONS)))
        for index in PARTITIONS:
            eventually(lambda index=index: worst(producer.produce("orders", {index: b"x"})))
        assert producer.end(commit=True) is Error.NONE

    await asyncio.to_thread(transaction)
    await until(lambda: ends(nodes, "orders") == [(2, 2)] * len(PARTITIONS))


async def test_nodes_sign_in_at_each_other(tmp_path: Path) -> None:
    async with secured(tmp_path, protocols("SASL_PLAINTEXT"), plain(), AUTHORIZED) as nodes:
        await play(nodes)
        assert principals(nodes) == {NODE}
