"""Producers at work: each goes on until its work is done, whatever happens to the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from protocol.errors import Error
from protocol.messages.produce import (
    InitProducerIdRequest,
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from protocol.records.batch import build_batch
from tests.simulation.commits import Commit
from tests.simulation.wire_client import NOT_YET, NoAnswer, WireClient
from tests.simulation.work import Outcome, Place, Sent, Transaction, Work

TRANSACTION_TIMEOUT_MS = 8_000
TRIES = 6
NOBODY = ("", -1, None)
"""Commits without being a member of the group: no id, epoch or instance id."""


class Producer:
    """What both kinds share: a producer id, and a sequence for each partition."""

    def __init__(self, client: WireClient, work: Work, places: Sequence[Place]) -> None:
        self.client = client
        self.work = work
        self.places = places
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
        """Return the error, and the offset of the first record."""
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
                if error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER and self.client.asked_in is None:
                    return Error.NOT_LEADER_OR_FOLLOWER  # it lacks what the present leader has
                return error

            error = await self.client.insist(send)
            if error is Error.NONE or error is Error.DUPLICATE_SEQUENCE_NUMBER:
                self.sequences[place] = self.sequences.get(place, 0) + len(values)
                for number, each in enumerate(sent):
                    each.acknowledged = True
                    each.offset = offset + number if error is Error.NONE else None
                self.work.count("records", len(values))
            else:
                self.client.note(f"gives up a batch: {error}")
                if not self.work.may_lose:
                    self.work.complain(f"{self.client.name} was refused: {error!r}")
                self.producer_id = -1
                await self.client.insist(self._init)


class Identity(NamedTuple):
    producer_id: int
    epoch: int
    sequences: dict[Place, int]


class Refused(Exception):
    """The transaction can't go on: the broker refused it, or didn't answer."""


class TransactionalProducer(Producer):
    """Version 1 adds partitions itself; version 2 leaves that to the broker (KIP-890)."""

    def __init__(
        self, client: WireClient, work: Work, places: Sequence[Place], *, version: int, group: str
    ) -> None:
        super().__init__(client, work, places)
        self.transactional_id = client.name
        self.version = version
        self.group = group
        self._offset = 0
        self._cut_off: list[Place] = []
        """Where the last transaction has records, if it was never ended. These partitions learn the next epoch from its
        abort."""

    async def run(self, transactions: int) -> None:
        ready = False
        for number in range(transactions):
            await asyncio.sleep(self.luck.expovariate(4))
            if not ready or self.luck.random() < 0.1:
                before = Identity(self.producer_id, self.epoch, {**self.sequences})
                self.producer_id = -1
                error = await self.client.insist(self._init)
                if error is not Error.NONE:
                    # The coordinator's record may be lost with the power, while a partition knows a later epoch. Then
                    # the transaction stays prepared, as in Kafka with one replica.
                    self.client.note(f"no producer id: {error!r}")
                    # During faults its partitions may have no leader for that long. The final checks find what stays
                    # open.
                    is_away = self.work.is_refused_now_and_then and (error is None or error in NOT_YET)
                    if not self.work.may_lose and not is_away:
                        self.work.complain(f"{self.client.name} gets no producer id: {error!r}")
                    continue
                if before.producer_id >= 0 and self.luck.random() < 0.7:
                    await self._come_late(before, f"{self.client.name} {number} late")
            transaction = Transaction(f"{self.client.name} {number}")
            self.work.transactions.append(transaction)
            self._cut_off = []
            try:
                await self._fill(transaction)
                self._cut_off = []
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
                if transaction.commit is not None:
                    transaction.commit.is_refused = True

    async def _come_late(self, before: Identity, name: str) -> None:
        """Act as the previous producer, which doesn't know yet that it is replaced. The broker must accept nothing from
        it."""
        transaction = Transaction(name, outcome=Outcome.ABORTED)
        self.work.transactions.append(transaction)
        present = Identity(self.producer_id, self.epoch, self.sequences)
        self._take(before)
        accepted = []
        try:
            for place in self._cut_off:
                values = [self.new_value()]
                transaction.values[place] = values
                error, _ = await self.produce(place, self.batch(place, values), 11)
                if error is Error.NONE:
                    accepted.append(f"a batch in {place}")
            # A partition that is already in the transaction isn't written again, so an old coordinator may also accept
            # it.
            if await self._add(self.places[0]) is Error.NONE and self.client.asked_in is not None:
                accepted.append("a partition in its transaction")
            if await self._ask_to_end(commit=self.luck.random() < 0.5) is Error.NONE:
                accepted.append("its end")
        except NoAnswer:
            await self.client.wait_out()
        finally:
            self._take(present)
        self.work.count("producers that came late")
        if accepted and not self.work.may_lose:
            self.work.complain(f"{name}, of epoch {before.epoch} where {present.epoch} is, has {accepted}")

    def _take(self, identity: Identity) -> None:
        self.producer_id, self.epoch, self.sequences = identity

    async def _ask_to_end(self, *, commit: bool) -> Error:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )
        return Error((await self.client.ask(request, 4)).error_code)

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
                self._cut_off.append(place)
        if self.luck.random() < 0.6:
            self._offset += 1
            commits = self.work.commits_of(self.group, self.places[0])
            transaction.commit = commits.begin(
                self._offset, self.client.now_s(), self.client.name, in_transaction=True
            )
            if self.version == 1:
                await self._must("add offsets", await self.client.insist(self._add_offsets, TRIES))
            commit = transaction.commit
            await self._must(
                "commit offset",
                await self.client.insist(lambda: self._commit_offset(commit, self.places[0]), TRIES),
            )
            commit.written(self.client.now_s())

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

    async def _commit_offset(
        self, commit: Commit, place: Place, member: tuple[str, int, str | None] = NOBODY
    ) -> Error:
        topic, index = place
        member_id, epoch, instance_id = member
        partition = TxnOffsetCommitRequestPartition(
            partition_index=index, committed_offset=commit.offset, committed_metadata=commit.tag
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            member_id=member_id,
            generation_id_or_member_epoch=epoch,
            group_instance_id=instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
        )
        try:
            answer = await self.client.ask(request, 5 if self.version == 2 else 3)
        except NoAnswer:
            # If it came late, it would count in the next transaction, because both have the same epoch.
            await self.client.wait_out()
            raise
        return Error(answer.topics[0].partitions[0].error_code)

    async def _end(self, transaction: Transaction) -> None:
        commit = self.luck.random() < 0.7
        transaction.sent_commit = commit
        if commit and transaction.commit is not None:
            transaction.commit.visible_s = self.client.now_s()
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

        async def end() -> Error:
            try:
                answer = await self.client.ask(request, 5 if self.version == 2 else 4)
            except NoAnswer:
                if self.version == 1:
                    # If it came late, it would end the next transaction, which has the same epoch: the problem that
                    # KIP-890 solves.
                    await self.client.wait_out()
                raise
            if self.version == 2 and answer.error_code == 0:
                self.becomes(answer.producer_id, answer.producer_epoch)
            return Error(answer.error_code)

        error = await self.client.insist(end, TRIES)
        if error is Error.NONE:
            transaction.outcome = Outcome.COMMITTED if commit else Outcome.ABORTED
            self.client.note(f"{transaction.name} {transaction.outcome.value}")
            self.work.count(f"transactions {transaction.outcome.value}")
            self.work.count("records", len(transaction.acknowledged))
            if commit and transaction.commit is not None:
                transaction.commit.in_force(self.client.now_s())
        await self._must("end", error)


class CommittingProducer(TransactionalProducer):
    """The producer of a group's member: its transactions are commits of one offset each."""

    def __init__(self, client: WireClient, work: Work, group: str) -> None:
        super().__init__(client, work, (), version=2, group=group)
        self._is_ready = False

    async def commit(self, place: Place, commit: Commit, member: tuple[str, int, str | None]) -> Error:
        """Commit, and return whether it was written. `commit` records what becomes of it. `member`: its id, epoch and
        instance id. Raises NoAnswer."""
        ready, self._is_ready = self._is_ready, False
        if not ready:
            self.producer_id = -1
            if await self.client.insist(self._init, TRIES) is not Error.NONE:
                raise NoAnswer
        error = await self.client.insist(lambda: self._commit_offset(commit, place, member), TRIES)
        if error is not Error.NONE:
            commit.is_refused = True  # the next transaction's beginning aborts it
            if error is None:
                raise NoAnswer
            return error
        commit.written(self.client.now_s())
        transaction = Transaction(commit.tag, commit=commit)
        try:
            await self._end(transaction)
            self._is_ready = True
        except Refused as refusal:
            self.client.note(f"{commit.tag} fails: {refusal}")
        if not transaction.sent_commit:
            commit.is_refused = True
        return error
