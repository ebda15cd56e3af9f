"""A broker is removed from the cluster by hand: the partitions in whose ISR it was go on without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.server import Server
from protocol.errors import Error
from protocol.messages.cluster_admin import UnregisterBrokerRequest
from protocol.messages.metadata_records import RegisterBrokerRecord
from tests.node.replicated import ME, OTHER, change, leader_of, produce, produced, replicated
from tests.node.transactional import ask
from tests.support.answers import answered
from tests.support.whole_server import crash


async def unregistered(node: Server, broker_id: int) -> Any:
    return await answered(ask(node, UnregisterBrokerRequest(broker_id=broker_id), 0))


async def beside_another(folder: Path) -> Server:
    node = await replicated(folder)
    node.metadata.append([RegisterBrokerRecord(broker_id=OTHER, broker_epoch=7, fenced=False)])
    return node


async def test_nothing_waits_for_an_unregistered_broker(tmp_path: Path) -> None:
    node = await beside_another(tmp_path)
    waiting = produce(node)
    assert leader_of(node).log.high_watermark == 0
    assert (await unregistered(node, OTHER)).error_code == Error.NONE
    assert OTHER not in node.metadata.image.brokers
    partition = node.metadata.image.topics["t"].partitions[0]
    assert (partition.replicas, partition.isr, partition.leader) == ([ME, OTHER], [ME], ME)
    assert produced(await answered(waiting)).error_code == Error.NONE
    crash(node)


async def test_partitions_in_sync_only_on_the_other_broker_lose_their_leader(tmp_path: Path) -> None:
    node = await beside_another(tmp_path)
    change(node, isr=[OTHER], leader=OTHER)
    assert (await unregistered(node, OTHER)).error_code == Error.NONE
    partition = node.metadata.image.topics["t"].partitions[0]
    assert partition.leader == -1
    assert [*partition.isr, *partition.elr] == [OTHER]
    crash(node)


async def test_missing_brokers_and_the_node_itself_are_refused(tmp_path: Path) -> None:
    node = await beside_another(tmp_path)
    assert (await unregistered(node, 77)).error_code == Error.BROKER_ID_NOT_REGISTERED
    assert (await unregistered(node, ME)).error_code == Error.INVALID_REQUEST
    assert {*node.metadata.image.brokers} == {ME, OTHER}
    crash(node)
