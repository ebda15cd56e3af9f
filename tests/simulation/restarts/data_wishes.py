"""Records, transactions, and deletions from logs."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from protocol.errors import Error
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, build_batch
from tests.simulation.restarts.nodes import GROUP, TRANSACTION, Nodes
from tests.simulation.restarts.wishes import Wish, Wishes, wish

TRANSACTIONAL_IDS = ("x", "y")
TIMEOUT_MS = 900_000
"""The longest that a broker allows, so that none ends by itself."""


class Producer:
    """What a producer knows of itself. `transactional_id` None means an idempotent one."""

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = NO_PRODUCER_ID, NO_PRODUCER_EPOCH
        self.sequences: dict[tuple[str, int], int] = {}
        self.version = 2
        """The transactions' version."""

    def becomes(self, producer_id: int, epoch: int) -> None:
        self.producer_id, self.epoch = producer_id, epoch
        self.sequences = {}


class DataWishes(Wishes):
    def __init__(self, nodes: Nodes, luck: random.Random) -> None:
        super().__init__(nodes, luck)
        self._plain = Producer(None)
        self._idempotent = Producer(None)
        self._transactional = {name: Producer(name) for name in TRANSACTIONAL_IDS}

    def made(self) -> Sequence[tuple[int, Callable[[], Wish]]]:
        return (
            (6, lambda: self._produce(self._plain)),
            (6, lambda: self._produce(self._idempotent)),
            (6, lambda: self._produce(self._any_transactional())),
            (1, lambda: self._init(self._idempotent)),
            (2, lambda: self._init(self._any_transactional())),
            (5, lambda: self._end(self._any_transactional())),
            (10, lambda: self._transact(self._any_transactional())),
            (2, lambda: self._add_partitions(self._any_transactional())),
            (5, lambda: self._commit_offsets(self._any_transactional())),
            (3, self._delete_records),
        )

    def _any_transactional(self) -> Producer:
        return self._transactional[self.luck.choice(TRANSACTIONAL_IDS)]

    def _produce(self, producer: Producer) -> Wish:
        place = self.place
        count, acks = self.luck.randint(1, 3), self.luck.choice((-1, -1, 1))
        if producer is not self._plain and producer.producer_id < 0:
            return self._init(producer)

        async def produce() -> None:
            batch = build_batch(
                [(self.nodes.now_ms(), b"k", b"v" * self.luck.choice((1, 50)), ())] * count,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                base_sequence=producer.sequences.get(place, 0) if producer.producer_id >= 0 else -1,
                transactional=producer.transactional_id is not None,
            )
            data = PartitionProduceData(index=place[1], records=memoryview(batch))
            request = ProduceRequest(
                transactional_id=producer.transactional_id,
                acks=acks if producer is self._plain else -1,
                timeout_ms=5_000,
                topic_data=[TopicProduceData(name=place[0], partition_data=[data])],
            )
            version = 12 if producer.version == 2 else 11
            leader = await self.nodes.leader_of(*place)
            [topic] = (await self.nodes.ask(request, version, leader)).responses
            error = topic.partition_responses[0].error_code
            if error == Error.NONE:
                producer.sequences[place] = producer.sequences.get(place, 0) + count
            elif error in (Error.OUT_OF_ORDER_SEQUENCE_NUMBER, Error.INVALID_PRODUCER_EPOCH):
                producer.producer_id = -1

        words = () if producer.transactional_id is None else ("transaction", producer.transactional_id)
        return wish("produce to", produce, place[0], *words)

    def _init(self, producer: Producer) -> Wish:
        known = self.luck.random() < 0.3 and producer.producer_id >= 0
        version = self.luck.choice((1, 2))

        async def init() -> None:
            producer.version = version
            request = InitProducerIdRequest(
                transactional_id=producer.transactional_id,
                transaction_timeout_ms=TIMEOUT_MS,
                producer_id=producer.producer_id if known else -1,
                producer_epoch=producer.epoch if known else -1,
            )
            answer = await self._coordinated(producer, request, 5)
            if answer.error_code == Error.NONE:
                producer.becomes(answer.producer_id, answer.producer_epoch)

        return wish("init", init, *self._of(producer))

    def _of(self, producer: Producer) -> tuple[str, ...]:
        """Its transaction may affect any log and any group's offsets."""
        if producer.transactional_id is None:
            return ()
        return ("transaction", producer.transactional_id, "a", "b", "c", "group")

    async def _coordinated(self, producer: Producer, request: Any, version: int) -> Any:
        if producer.transactional_id is None:
            return await self.nodes.ask(request, version)
        node_id = await self.nodes.coordinator_of(producer.transactional_id, TRANSACTION)
        return await self.nodes.ask(request, version, node_id)

    def _end(self, producer: Producer) -> Wish:
        commit = self.luck.random() < 0.7

        async def end() -> None:
            request = EndTxnRequest(
                transactional_id=producer.transactional_id or "",
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                committed=commit,
            )
            answer = await self._coordinated(producer, request, 5 if producer.version == 2 else 4)
            if answer.error_code == Error.NONE and producer.version == 2:
                producer.becomes(answer.producer_id, answer.producer_epoch)

        return wish("commit" if commit else "abort", end, *self._of(producer))

    def _transact(self, producer: Producer) -> Wish:
        """Mostly a whole transaction."""
        steps = [self._produce(producer), self._commit_offsets(producer), self._end(producer)]
        if producer.producer_id < 0 or self.luck.random() < 0.1:
            steps.insert(0, self._init(producer))

        async def transact() -> None:
            for step in steps:
                await step.grant()

        return wish("transact", transact, *self._of(producer), "g", "h")

    def _add_partitions(self, producer: Producer) -> Wish:
        name, index = self.place

        async def add() -> None:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=producer.transactional_id or "",
                v3_and_below_producer_id=producer.producer_id,
                v3_and_below_producer_epoch=producer.epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[index])],
            )
            await self._coordinated(producer, request, 3)

        return wish("add to transaction", add, "transaction", producer.transactional_id or "", name)

    def _commit_offsets(self, producer: Producer) -> Wish:
        group_id, (name, index) = self.luck.choice(("g", "h")), self.place
        offset = self.luck.randrange(1_000)

        async def commit() -> None:
            if producer.version == 1:
                added = AddOffsetsToTxnRequest(
                    transactional_id=producer.transactional_id or "",
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    group_id=group_id,
                )
                await self._coordinated(producer, added, 3)
            partition = TxnOffsetCommitRequestPartition(
                partition_index=index, committed_offset=offset, committed_metadata="m"
            )
            request = TxnOffsetCommitRequest(
                transactional_id=producer.transactional_id or "",
                group_id=group_id,
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                member_id="",
                topics=[TxnOffsetCommitRequestTopic(name=name, partitions=[partition])],
            )
            node_id = await self.nodes.coordinator_of(group_id, GROUP)
            await self.nodes.ask(request, 5 if producer.version == 2 else 3, node_id)

        return wish("commit in transaction", commit, "transaction", producer.transactional_id or "", group_id)

    def _delete_records(self) -> Wish:
        (name, index), offset = self.place, self.luck.choice((-1, -1, 1, 2))
        topic = DeleteRecordsTopic(
            name=name, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)]
        )

        async def delete() -> None:
            request = DeleteRecordsRequest(topics=[topic], timeout_ms=5_000)
            await self.nodes.ask(request, 2, await self.nodes.leader_of(name, index))

        return wish("delete records of", delete, name, "group")
