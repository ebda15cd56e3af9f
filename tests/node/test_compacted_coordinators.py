"""Internal topics are compacted like any other. Coordinators load from what is left, and during a compaction."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.server import Server
from protocol.errors import Error
from tests.node.compacted import cleaned, partition_of, records, until
from tests.node.hosting import elect_again
from tests.node.test_groups import commit, committed
from tests.node.transactional import Producer, coordinating, find, state
from tests.support.whole_server import clock_of, crash
from tests.support.wishes import tell

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
IDS = ("a", "b", "c")


def transact(node: Server, rounds: int = 12) -> dict[str, tuple[int, int]]:
    """Have three producers run transactions, each of which commits an offset. Returns their ids and epochs at the
    end."""
    producers = [Producer(node, name, version=1 + index % 2).begin() for index, name in enumerate(IDS)]
    for number in range(rounds):
        for producer in producers:
            if producer.version == 1:
                producer.add(("t", 0))
                producer.add_offsets("g")
            assert producer.send() is Error.NONE
            producer.commit_offsets(number, "g")
            assert producer.end(commit=number % 3 != 2) is Error.NONE
        commit(node, number, "plain")
    return {producer.transactional_id: (producer.producer_id, producer.epoch) for producer in producers}


def seen(node: Server) -> tuple[object, ...]:
    return (
        [state(node, name) for name in IDS],
        [node.transactions.shard_of(name).describe(name) for name in IDS],
        committed(node, "g"),
        committed(node, "plain"),
    )


def told(found: tuple[object, ...]) -> str:
    return repr(found)


async def test_coordinators_load_their_whole_state_from_compacted_topics(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    known = transact(node)
    elect_again(node, TRANSACTIONS)  # not everything that is known is written
    before = told(seen(node))
    for topic in (OFFSETS, TRANSACTIONS):
        many = len(records(node, topic))
        assert await cleaned(node, topic, roll=True) is None
        assert len(records(node, topic)) < many / 4
    for end in ("crash", "stop"):
        if end == "crash":
            crash(node)
        else:
            await node.stop()
        node = await coordinating(tmp_path)
        assert told(seen(node)) == before
    for name in IDS:
        producer = Producer(node, name).begin()
        assert producer.producer_id == known[name][0]
        assert producer.epoch > known[name][1]
        assert producer.send() is Error.NONE
        assert producer.end() is Error.NONE


async def test_a_shard_loads_while_its_partition_is_compacted(tmp_path: Path) -> None:
    for turns in (1, 2, 3, 5, 8, 13, 21):
        node = await coordinating(tmp_path / str(turns), "offsets.topic.segment.bytes=1048576")
        transact(node)
        elect_again(node, TRANSACTIONS)
        before = told(seen(node))
        for topic in (OFFSETS, TRANSACTIONS):
            done: list[Exception | None] = []
            tell(node.cleaner.clean_now(partition_of(node, topic), roll=True), done.append)
            for _ in range(turns):
                await asyncio.sleep(0)
            elect_again(node, topic)
            assert told(seen(node)) == before
            await until(lambda done=done: bool(done))  # type: ignore[misc]
            assert done == [None]
            elect_again(node, topic)
            assert told(seen(node)) == before
        await node.stop()


async def test_an_id_that_was_forgotten_leaves_nothing_in_the_compacted_topic(tmp_path: Path) -> None:
    node = await coordinating(tmp_path, "transactional.id.expiration.ms=1000")
    transact(node, 3)
    clock_of(node).advance_ms(10_000_000)
    node.timers.fire_due()
    await until(lambda: any(value is None for _key, value in records(node, TRANSACTIONS).values()))
    assert await cleaned(node, TRANSACTIONS, roll=True) is None
    clock_of(node).advance_ms(100_000_000)
    assert await cleaned(node, TRANSACTIONS) is None
    assert records(node, TRANSACTIONS) == {}
    assert find(node).error_code == Error.NONE
