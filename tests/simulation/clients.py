"""Clients at work: each is a coroutine that goes on until its work is done, whatever becomes of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protocol.errors import Error
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.groups_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.producer_ids import InitProducerIdRequest
from protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import walk_batches
from protocol.records.records import ABORT, build_batch, read_control_type, read_records
from tests.simulation.wire_client import NoAnswer, WireClient
from tests.simulation.work import Outcome, Place, Sent, Transaction, Work

TRANSACTION_TIMEOUT_MS = 8_000
READ_COMMITTED = 1
TRIES = 6


class Producer:
    """What both kinds share: a producer id, and a sequence for each partition."""

    def __init__(self, client: WireClient, work: Work, places: Sequence[Place], *, may_lose: bool) -> None:
        """`may_lose`: whether the broker's machine may lose what it acknowledged."""
        self.client = client
        self.work = work
        self.places = places
        self.may_lose = may_lose
        self.luck = client.luck
        self.transactional_id: str | None = None
        self.producer_id = self.epoch = -1
        self.sequences: dict[Place, int] = {}
        self._values = 0

    async def _init(self) -> Error:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        answer = await self.client.ask(request, 4)
        if answer.error_code == 0:
            self.becomes(answer.producer_id, answer.producer_epoch)
        return Error(answer.error_code)

    def becomes(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences = {}
        self.producer_id, self.epoch = producer_id, epoch

    def new_value(self) -> bytes:
        self._values += 1
        return f"{self.client.name}/{self._values:04}/".encode() + b"x" * self.luck.choice((0, 10, 300))

    def batch(self, place: Place, values: Sequence[bytes]) -> bytearray:
        return build_batch(
            [(self.client.now_ms(), None, value, ()) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequences.get(place, 0),
            transactional=self.transactional_id is not None,
        )

    async def produce(self, place: Place, batch: bytearray, version: int) -> tuple[Error, int]:
        """And the offset of its first record."""
        topic, index = place
        data = PartitionProduceData(index=index, records=memoryview(batch))
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )
        answer = (await self.client.ask(request, version)).responses[0].partition_responses[0]
        return Error(answer.error_code), answer.base_offset


class IdempotentProducer(Producer):
    """Sends each batch until it is acknowledged, one at a time."""

    async def run(self, batches: int) -> None:
        await self.client.insist(self._init)
        for _ in range(batches):
            await asyncio.sleep(self.luck.expovariate(4))
            place = self.luck.choice(self.places)
            values = [self.new_value() for _ in range(self.luck.randint(1, 3))]
            sent = [Sent(value, place) for value in values]
            self.work.sent += sent
            batch = self.batch(place, values)
            offset = -1

            async def send(place: Place = place, batch: bytearray = batch) -> Error:
                nonlocal offset
                error, offset = await self.produce(place, batch, 9)
                return error

            error = await self.client.insist(send)
            if error is Error.NONE or error is Error.DUPLICATE_SEQUENCE_NUMBER:
                self.sequences[place] = self.sequences.get(place, 0) + len(values)
                for number, each in enumerate(sent):
                    each.acknowledged = True
                    each.offset = offset + number if error is Error.NONE else None
            else:
                self.client.note(f"gives up a batch: {error}")
                if not self.may_lose:
                    self.work.complain(f"{self.client.name} was refused: {error!r}")
                self.producer_id = -1
                await self.client.insist(self._init)


class Refused(Exception):
    """The transaction can't go on, since the broker said so or nothing."""


class TransactionalProducer(Producer):
    """Version 1 adds partitions itself, version 2 leaves it to the broker (KIP-890)."""

    def __init__(
        self,
        client: WireClient,
        work: Work,
        places: Sequence[Place],
        *,
        may_lose: bool,
        version: int,
        group: str,
    ) -> None:
        super().__init__(client, work, places, may_lose=may_lose)
        self.transactional_id = client.name
        self.version = version
        self.group = group
        self._offset = 0

    async def run(self, transactions: int) -> None:
        ready = False
        for number in range(transactions):
            await asyncio.sleep(self.luck.expovariate(4))
            if not ready or self.luck.random() < 0.1:
                self.producer_id = -1
                await self.client.insist(self._init)
            transaction = Transaction(f"{self.client.name} {number}")
            self.work.transactions.append(transaction)
            try:
                await self._fill(transaction)
                if self.luck.random() < 0.08:
                    self.client.note("leaves a transaction open")
                    await asyncio.sleep(TRANSACTION_TIMEOUT_MS / 1000 * self.luck.choice((0.5, 3)))
                await self._end(transaction)
                ready = True
            except Refused as refusal:
                self.client.note(f"{transaction.name} fails: {refusal}")
                ready = False
            if not transaction.sent_commit:
                transaction.outcome = Outcome.ABORTED

    async def _must(self, what: str, error: Error | None) -> None:
        if error is not Error.NONE:
            raise Refused(f"{what}: {error!r}")

    async def _fill(self, transaction: Transaction) -> None:
        places = self.luck.sample(self.places, self.luck.randint(1, len(self.places)))
        for place in places:
            if self.version == 1:
                await self._must("add", await self.client.insist(lambda place=place: self._add(place), TRIES))  # type: ignore[misc]
            for _ in range(self.luck.choice((1, 1, 2))):
                values = [self.new_value() for _ in range(self.luck.randint(1, 2))]
                transaction.values.setdefault(place, []).extend(values)
                batch = self.batch(place, values)

                async def send(place: Place = place, batch: bytearray = batch) -> Error:
                    error, _ = await self.produce(place, batch, 12 if self.version == 2 else 11)
                    return error

                error = await self.client.insist(send, TRIES)
                if error is Error.DUPLICATE_SEQUENCE_NUMBER:
                    error = Error.NONE
                await self._must("produce", error)
                self.sequences[place] = self.sequences.get(place, 0) + len(values)
                transaction.acknowledged.update(values)
        if self.luck.random() < 0.6:
            self._offset += 1
            transaction.offset = self._offset
            if self.version == 1:
                await self._must("add offsets", await self.client.insist(self._add_offsets, TRIES))
            await self._must("commit offset", await self.client.insist(self._commit_offset, TRIES))

    async def _add(self, place: Place) -> Error:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place[0], partitions=[place[1]])],
        )
        answer = await self.client.ask(request, 3)
        of_topic = answer.results_by_topic_v3_and_below[0]
        return Error(of_topic.results_by_partition[0].partition_error_code)

    async def _add_offsets(self) -> Error:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=self.group,
        )
        return Error((await self.client.ask(request, 3)).error_code)

    async def _commit_offset(self) -> Error:
        topic, index = self.places[0]
        partition = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=self._offset, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            member_id="",
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        answer = await self.client.ask(request, 5 if self.version == 2 else 3)
        return Error(answer.topics[0].partitions[0].error_code)

    async def _end(self, transaction: Transaction) -> None:
        commit = self.luck.random() < 0.7
        transaction.sent_commit = commit
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

        async def end() -> Error:
            answer = await self.client.ask(request, 5 if self.version == 2 else 4)
            if self.version == 2 and answer.error_code == 0:
                self.becomes(answer.producer_id, answer.producer_epoch)
            return Error(answer.error_code)

        error = await self.client.insist(end, TRIES)
        if error is Error.NONE:
            transaction.outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
            self.client.note(f"{transaction.name} {transaction.outcome.value}")
        await self._must("end", error)


class Committer:
    """A consumer that commits offsets of a group without members, each larger than the last."""

    def __init__(self, client: WireClient, work: Work, place: Place, group: str) -> None:
        self.client = client
        self.work = work
        self.place = place
        self.group = group

    async def run(self, commits: int) -> None:
        told = self.work.committed_offsets.setdefault(self.group, [])
        for offset in range(1, commits + 1):
            await asyncio.sleep(self.client.luck.expovariate(3))
            told.append((offset, False))
            error = await self.client.insist(lambda offset=offset: self._commit(offset), TRIES)  # type: ignore[misc]
            told[-1] = (offset, error is Error.NONE)

    async def _commit(self, offset: int) -> Error:
        topic, index = self.place
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_metadata=""
        )
        request = OffsetCommitRequest(
            group_id=self.group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
        )
        answer = await self.client.ask(request, 8)
        return Error(answer.topics[0].partitions[0].error_code)


class Reader:
    """A consumer of one partition. It now and then begins again somewhere, and is to be given the same then."""

    def __init__(self, client: WireClient, work: Work, place: Place, *, committed: bool = True) -> None:
        self.client = client
        self.work = work
        self.place = place
        self.committed = committed
        self.offset = 0
        self.last_stable_offset = -1
        self.high_watermark = -1
        self.values: dict[int, bytes] = {}
        """By offset, what this one was given."""

    async def run(self) -> None:
        while True:
            if self.client.luck.random() < 0.05:
                self.offset = self.client.luck.randint(0, self.offset)
            try:
                error = await self.poll(max_wait_ms=400)
            except NoAnswer:
                await asyncio.sleep(0.3)
                continue
            if error is Error.OFFSET_OUT_OF_RANGE:
                self.offset = 0
            await asyncio.sleep(self.client.luck.expovariate(5))

    async def read_all(self) -> dict[int, bytes]:
        """What there is for it now, from the first offset on."""
        self.offset = 0
        self.values = {}
        while True:
            error = await self.client.insist(self.poll)
            assert error is Error.NONE, error
            if self.offset >= (self.last_stable_offset if self.committed else self.high_watermark):
                return self.values

    async def poll(self, max_wait_ms: int = 0) -> Error:
        topic, index = self.place
        start = self.offset
        asked = FetchPartition(partition=index, fetch_offset=start, partition_max_bytes=1 << 14)
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=READ_COMMITTED if self.committed else 0,
            topics=[FetchTopic(topic=topic, partitions=[asked])],
        )
        answer = (await self.client.ask(request, 11)).responses[0].partitions[0]
        if answer.error_code:
            return Error(answer.error_code)
        self.last_stable_offset, self.high_watermark = answer.last_stable_offset, answer.high_watermark
        data = memoryview(bytes(answer.records or b""))
        aborted = sorted(
            ((each.first_offset, each.producer_id) for each in answer.aborted_transactions or ()),
            reverse=True,
        )
        being_aborted: set[int] = set()
        expected = None
        for position, header in walk_batches(data):
            if expected is not None and header.base_offset != expected:
                self.work.complain(f"{self.place}: {header.base_offset} follows {expected}")
            expected = header.last_offset + 1
            while aborted and aborted[-1][0] <= header.last_offset:
                being_aborted.add(aborted.pop()[1])
            records = [*read_records(data[position : position + header.size_bytes])]
            if header.is_control:
                if read_control_type(records[0].key) == ABORT:
                    being_aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in being_aborted):
                for each in records:
                    if each.offset >= start:
                        self._given(each.offset, bytes(each.value or b""))
            self.offset = max(start, header.last_offset + 1)
        return Error.NONE

    def _given(self, offset: int, value: bytes) -> None:
        self.values[offset] = value
        if not self.committed:
            return
        known = self.work.seen.setdefault(self.place, {}).setdefault(offset, value)
        if known != value:
            self.work.complain(f"{self.place}: offset {offset} is {value!r}, and was {known!r}")


async def create_topic(client: WireClient, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)

    async def create() -> Error:
        answer = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 4)
        return Error(answer.topics[0].error_code)

    error = await client.insist(create)
    assert error in (Error.NONE, Error.TOPIC_ALREADY_EXISTS), error
