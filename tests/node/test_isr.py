"""The ISR of a partition whose leader is its own controller: when another broker's replica joins and leaves it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata_records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from tests.node.replicated import ME, OTHER, change, fetch, fetched, leader_of, produce, produced, replicated
from tests.support.answers import answered
from tests.support.whole_server import clock_of, crash

EPOCH = 7
LAG_MS = 30_000


async def alone(folder: Path, *settings: str) -> Server:
    """Return a node that leads and is alone in the ISR. The other broker is alive and has a replica."""
    node = await replicated(folder, *settings)
    node.metadata.append([RegisterBrokerRecord(broker_id=OTHER, broker_epoch=EPOCH, fenced=False)])
    change(node, isr=[ME])
    return node


def isr(node: Server) -> list[int]:
    """Return the ISR according to the controller."""
    return node.metadata.image.topics["t"].partitions[0].isr


def follow(node: Server, offset: int, epoch: int = EPOCH) -> Error:
    """Have the other broker fetch from this offset on. Returns the error of the answer."""
    answer = fetched(
        fetch(node, offset, version=17, replica_id=OTHER, replica_epoch=epoch, last_fetched_epoch=-1)
    )
    return Error(answer.error_code)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_replica_that_has_caught_up_joins_the_isr_and_acks_all_waits_for_it(tmp_path: Path) -> None:
    node = await alone(tmp_path)
    assert produced(produce(node)).error_code == Error.NONE
    assert follow(node, 0) is Error.NONE
    await turns()
    assert isr(node) == [ME], "it has nothing yet"
    assert follow(node, 1) is Error.NONE
    await turns()
    assert isr(node) == [ME, OTHER]
    assert leader_of(node).isr == {ME, OTHER}
    waiting = produce(node)
    assert not isinstance(waiting, Error)
    assert leader_of(node).log.high_watermark == 1
    follow(node, 2)
    assert produced(await answered(waiting)).error_code == Error.NONE
    crash(node)


async def test_a_replica_joins_once_it_has_all_records_from_before_this_leaders_epoch(
    tmp_path: Path,
) -> None:
    """That holds even if fewer of them are committed by then (Kafka: `Partition.isFollowerInSync`)."""
    node = await alone(tmp_path)
    third = OTHER + 1
    node.metadata.append([RegisterBrokerRecord(broker_id=third, broker_epoch=EPOCH, fenced=False)])
    change(node, replicas=[ME, OTHER, third], isr=[ME, third])
    for _ in range(3):
        produce(node, acks=1)
    change(node, leader=ME)  # leads again, in a new epoch
    leader = leader_of(node)
    assert (leader.log.high_watermark, leader.leader_epoch_start_offset) == (0, 3)
    follow(node, 2)
    await turns()
    assert isr(node) == [ME, third]
    follow(node, 3)
    await turns()
    assert isr(node) == [ME, OTHER, third]
    crash(node)


async def test_a_replica_that_lags_leaves_the_isr_and_nothing_waits_for_it_any_more(tmp_path: Path) -> None:
    node = await alone(tmp_path)
    follow(node, 0)
    await turns()
    assert isr(node) == [ME, OTHER]
    waiting = produce(node)
    clock_of(node).advance_ms(LAG_MS)
    node.housekeeping.shrink_isrs()
    await turns()
    assert isr(node) == [ME, OTHER]
    clock_of(node).advance_ms(1)
    node.housekeeping.shrink_isrs()
    assert produced(await answered(waiting)).error_code == Error.NONE
    assert isr(node) == [ME]
    crash(node)


async def test_records_are_not_committed_while_the_isr_is_below_its_minimum(tmp_path: Path) -> None:
    node = await alone(tmp_path, "min.insync.replicas=2")
    follow(node, 0)
    await turns()
    produce(node)
    clock_of(node).advance_ms(LAG_MS + 1)
    node.housekeeping.shrink_isrs()
    await turns()
    assert isr(node) == [ME]
    assert leader_of(node).log.high_watermark == 0
    assert produced(produce(node)).error_code == Error.NOT_ENOUGH_REPLICAS
    follow(node, 1)
    await turns()
    assert isr(node) == [ME, OTHER]
    assert leader_of(node).log.high_watermark == 1
    crash(node)


async def test_a_fenced_broker_does_not_join_and_a_fetch_of_its_earlier_run_is_refused(
    tmp_path: Path,
) -> None:
    node = await alone(tmp_path)
    assert follow(node, 0, EPOCH - 1) is Error.NOT_LEADER_OR_FOLLOWER
    fence = BrokerRegistrationChangeRecord(broker_id=OTHER, broker_epoch=EPOCH, fenced=1)
    node.metadata.append([fence])
    assert follow(node, 0) is Error.NONE
    await turns()
    assert isr(node) == [ME]
    crash(node)
