"""A transactional Produce of many partitions: its coordinator is asked in turns of the loop, with the same answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from broker.coordination import produce_verification
from broker.coordination import produce_verification as add_partitions_to_txn_manager
from broker.coordination.produce_verification import AddPartitionsToTxnManager
from broker.handlers import produce
from broker.network import turns
from broker.network.turns import Turns
from broker.server import Server
from coordinator.transaction.shard import TransactionShard
from protocol.errors import Error, KafkaError
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import build_batch
from tests.node.transactional import CLIENT, Producer, ask, coordinating, errors_of
from tests.support.answers import answered
from tests.support.whole_server import clock_of, take_turns

COUNT = 7
ALL = [("t", index) for index in range(COUNT)]


class Noted:
    """Notes which entries are handled in which turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.turn = 0
        self.seen: dict[tuple[str, int], int] = {}
        step = Turns._step

        def stepped(*under_way: Any) -> None:
            self.turn += 1
            step(*under_way)

        monkeypatch.setattr(Turns, "_step", stepped)
        self._note(monkeypatch, AddPartitionsToTxnManager, "_announce", 2)
        self._note(monkeypatch, produce_verification, "transactional_producer", 1)
        self._note(monkeypatch, produce, "refuse", 0)

    def _note(self, monkeypatch: pytest.MonkeyPatch, where: Any, name: str, argument: int) -> None:
        function = getattr(where, name)

        def noted(*given: Any, **options: Any) -> Any:
            key = name, self.turn
            self.seen[key] = self.seen.get(key, 0) + len(given[argument])
            return function(*given, **options)

        monkeypatch.setattr(where, name, noted)

    def of(self, name: str) -> list[int]:
        return [count for (each, _), count in self.seen.items() if each == name]


def take_few(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Have every Produce of more than two partitions count as one of many from now on."""
    monkeypatch.setattr(CLIENT, "hold_produced", lambda _entries: None, raising=False)
    for module in (produce, produce_verification, add_partitions_to_txn_manager, turns):
        monkeypatch.setattr(module, "PER_TURN", 2)
    return Noted(monkeypatch)


@pytest.mark.parametrize("version", [1, 2])
async def test_the_coordinator_of_a_long_produce_is_asked_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    node = await coordinating(tmp_path, partitions=COUNT)
    answers = []
    for transactional_id in ("at once", "in turns"):
        producer = Producer(node, transactional_id, version=version).begin()
        if version == 1:
            producer.add(*ALL[::2])
        if transactional_id == "in turns":
            noted = take_few(monkeypatch)
        answers.append(errors_of(await answered(producer.produce(*ALL))))
    assert sorted(answers[0]) == sorted(answers[1])
    refused = {Error.TRANSACTION_ABORTABLE} if version == 1 else set()
    assert {*answers[1]} == {Error.NONE} | refused
    assert noted.of("transactional_producer") == noted.of("_announce") == [2, 2, 2, 1]
    assert noted.of("refuse") == ([2, 2, 2, 1] if version == 1 else [])


@pytest.mark.parametrize(
    ("strangers", "cut"), [((6,), ()), ((1,), ()), ((1,), (6,)), ((), (4,)), ((5,), (0,))]
)
async def test_a_long_produce_fails_as_if_checked_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strangers: tuple[int, ...], cut: tuple[int, ...]
) -> None:
    """The request has batches of another producer, and batches that end too soon."""
    node = await coordinating(tmp_path, partitions=COUNT)
    producer = Producer(node).begin()

    def send() -> Any:
        data = []
        for index in range(COUNT):
            batch = build_batch(
                [(node.clock.now_ms(), b"k", b"v", ())],
                producer_id=producer.producer_id + (index in strangers),
                producer_epoch=producer.epoch,
                base_sequence=0,
                transactional=True,
            )
            records = bytearray(batch)
            if index in cut:
                del records[52:]
                records[8:12] = (40).to_bytes(4, "big")
            data.append(PartitionProduceData(index=index, records=memoryview(records)))
        topics = [TopicProduceData(name="t", partition_data=data)]
        request = ProduceRequest(transactional_id="tx", acks=-1, timeout_ms=1_000, topic_data=topics)
        return answered(ask(node, request, 11))

    at_once = errors_of(await send())
    take_few(monkeypatch)
    assert errors_of(await send()) == at_once
    error = Error.UNKNOWN_SERVER_ERROR if cut else Error.INVALID_PRODUCER_ID_MAPPING
    assert {*at_once} == {error}


async def asked_again(node: Server, monkeypatch: pytest.MonkeyPatch) -> tuple[Noted, Any]:
    """Produce while the end of the previous transaction is under way. The coordinator is about to be asked again."""
    producer = Producer(node).begin()
    noted = take_few(monkeypatch)
    add = TransactionShard.add_partitions

    def busy(*_given: Any, **_options: Any) -> KafkaError:
        return KafkaError(Error.CONCURRENT_TRANSACTIONS)

    monkeypatch.setattr(TransactionShard, "add_partitions", busy)
    waiting = asyncio.ensure_future(answered(producer.produce(*ALL)))
    for _ in range(5):
        await asyncio.sleep(0)
    monkeypatch.setattr(TransactionShard, "add_partitions", add)
    noted.seen.clear()
    clock_of(node).advance_ms(20)
    return noted, waiting


async def test_the_coordinator_is_asked_again_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path, partitions=COUNT)
    noted, waiting = await asked_again(node, monkeypatch)
    node.timers.fire_due()
    node.turns._take_turn()
    assert noted.of("_announce") == [2]
    take_turns(node)
    assert noted.of("_announce") == [2, 2, 2, 1]
    assert errors_of(await waiting) == [Error.NONE] * COUNT


async def test_nothing_is_asked_for_a_client_that_has_gone_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path, partitions=COUNT)
    _noted, waiting = await asked_again(node, monkeypatch)
    waiting.cancel()
    await asyncio.sleep(0)
    node.timers.fire_due()
    take_turns(node)
    assert node.transactions.shard_of("tx").describe("tx").partitions == {}
