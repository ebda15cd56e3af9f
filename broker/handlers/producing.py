"""What Produce is made of: what a request asks for, sorted; what is appended later, or in turns; the answer.

`produce` goes the short way that nearly every request takes, with the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from broker.coordination.produce_verification import (
    Verifying,
    is_transactional,
    sender_in_turns,
    told_to_producer,
)
from broker.environment.computing import Alone, Brief
from broker.handlers.produce_answers import (
    FIRST_VERSION_WITH_IDS,
    ProduceAnswer,
    failures,
    put_behind,
    response_of,
)
from broker.network.later import Later
from broker.network.pieces import EntryList, pieces
from broker.network.turns import PER_TURN, in_turns, portions
from broker.replicas.append_records import Answers, Appends, Batches, Key, checking, refused
from broker.replicas.delayed_produce import DelayedProduce
from broker.security.authorizer import TOPIC, TRANSACTIONAL_ID, WRITE
from protocol.errors import Error, KafkaError
from protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from protocol.records.checks import RequestFailedError, check_shape
from protocol.records.validation_budget import ANY, BRIEF, MODERATE, MOST_OF_REQUEST, Unpacked
from protocol.waiting import Waiting, compute, turn

if TYPE_CHECKING:
    from broker.coordination.add_partitions_to_txn_manager import Verified
    from broker.coordination.produce_verification import ProduceVerification
    from broker.environment.clock import Clock
    from broker.environment.scheduler import Scheduler
    from broker.network.context import RequestContext
    from broker.network.turns import Turns
    from broker.replicas.current_leaders import CurrentLeaders
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from broker.security.authorizer import Authorizer
    from storage.producer_state import VerificationGuard

ADMIN_CLIENT_ID = "__admin_client"  # AdminUtils: the one client that may write to internal topics
FIRST_VERSION_TOLD_LEADERS = 10

ID_REFUSED = RequestFailedError(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
NO_GUARDS: Mapping[Partition, VerificationGuard] = MappingProxyType({})

PARTITIONS_OF_TOPICS = EntryList(
    "topic_data", "responses", "partition_data", "partition_responses", at_once=PER_TURN
)
"""What one turn goes through of a request."""


class SortedRequest:
    """What of a request can be appended, and what is refused before."""

    __slots__ = ("_authorizer", "_by_id", "_context", "_partitions", "batches", "refusals")

    def __init__(self, partitions: Partitions, authorizer: Authorizer, context: RequestContext) -> None:
        self._partitions = partitions
        self._authorizer = authorizer
        self._context = context
        self._by_id = context.api_version >= FIRST_VERSION_WITH_IDS
        self.batches: Batches = {}
        self.refusals: Answers = {}

    def take(self, topics: Sequence[TopicProduceData], sizes: Iterator[int | Error]) -> None:
        """`sizes`: what the check of shapes said of each partition in turn."""
        by_id, batches, refusals = self._by_id, self.batches, self.refusals
        partitions = self._partitions
        for topic in topics:
            name: str | bytes = topic.topic_id if by_id else topic.name
            hosted = partitions.by_id.get(topic.topic_id) if by_id else partitions.by_name.get(topic.name)
            known_name = topic.name if hosted is None else hosted.name
            refusal = None
            if by_id and hosted is None:
                refusal = Error.UNKNOWN_TOPIC_ID
            elif not self._authorizer.allows(self._context, WRITE, TOPIC, known_name):
                refusal = Error.TOPIC_AUTHORIZATION_FAILED
            elif hosted is None:
                refusal = Error.UNKNOWN_TOPIC_OR_PARTITION
            for data in topic.partition_data:
                index = data.index
                size = next(sizes)
                if refusal is not None or hosted is None:
                    refusals[name, index] = refused(index, refusal or Error.UNKNOWN_TOPIC_OR_PARTITION)
                    continue
                partition = hosted.partitions.get(index)
                if partition is None:
                    refusals[name, index] = refused(index, hosted.missing(index))
                elif isinstance(size, Error):
                    refusals[name, index] = refused(index, size)
                else:
                    records = data.records
                    assert records is not None
                    batches[name, index] = (partition, records if len(records) == size else records[:size])


def may_use_id(request: ProduceRequest, authorizer: Authorizer, context: RequestContext) -> bool:
    return request.transactional_id is not None and authorizer.allows(
        context, WRITE, TRANSACTIONAL_ID, request.transactional_id
    )


def check_shapes(topics: Sequence[TopicProduceData], version: int) -> tuple[list[int | Error], bool]:
    """For each partition in turn the size of its batch, or what is wrong with its records; nothing is looked up yet.

    And whether the first batch of any has the flag of a transaction (Kafka: `RequestUtils.hasTransactionalRecords`).
    """
    found: list[int | Error] = []
    transactional = False
    for topic in topics:
        for data in topic.partition_data:
            try:
                found.append(check_shape(data.records, version))
            except KafkaError as failure:
                found.append(failure.error)
            transactional = transactional or is_transactional(data.records)
    return found, transactional


def refuse(
    keys: Iterable[Key], batches: Batches, verified: Verified, refusals: Answers, version: int
) -> None:
    """Take out of the batches, of these partitions, what the transaction's coordinator refuses."""
    for key in keys:
        partition = batches[key][0]
        error = verified.errors.get(partition)
        if error is not None:
            told, message = told_to_producer(error, version)
            refusals[key] = refused(partition.index, told, message)
            del batches[key]


class Producing:
    """A request that isn't simply appended and answered."""

    __slots__ = ("_clock", "_context", "_leaders", "_request", "_scheduler", "_turns")

    def __init__(
        self,
        context: RequestContext,
        request: ProduceRequest,
        leaders: CurrentLeaders,
        clock: Clock,
        scheduler: Scheduler,
        turns: Turns,
    ) -> None:
        self._context = context
        self._request = request
        self._leaders = leaders
        self._clock = clock
        self._scheduler = scheduler
        self._turns = turns

    def in_turns(
        self, found: SortedRequest, verification: ProduceVerification, authorizer: Authorizer
    ) -> ProduceAnswer | Later[ProduceAnswer]:
        """A request of many partitions: what `handle` does at once, in the same order."""
        later: Later[ProduceAnswer] = Later()
        self._carry_out(self._long(found, verification, authorizer, later), later)
        return later.answer()

    def append_rest(
        self,
        appends: Appends,
        rest: Batches,
        refusals: Answers,
        guards: Mapping[Partition, VerificationGuard],
        later: Later[ProduceAnswer],
    ) -> None:
        """Append what one turn of the loop had no time for, from the next turn on, and what takes long to check. The
        connection's next request waits, and others may append before."""
        self._carry_out(self._append_rest(appends, rest, refusals, guards, later), later)

    def _carry_out(self, steps: Waiting[None], later: Later[ProduceAnswer]) -> None:
        """To the end, for what is written counts, whether its client waits or not. They reply to `later` by
        themselves, unless they fail."""
        ended = self._turns.answer(steps, self._context, to_the_end=True)
        if isinstance(ended, Later):

            def then() -> None:
                try:
                    ended.result()
                except Exception as error:
                    later.fail(error)

            ended.when_answered(then)

    async def _long(
        self,
        found: SortedRequest,
        verification: ProduceVerification,
        authorizer: Authorizer,
        later: Later[ProduceAnswer],
    ) -> None:
        request, context = self._request, self._context
        gone_through: list[list[TopicProduceData]] = []
        shapes: list[list[int | Error]] = []
        transactional = False
        try:
            for part, _ in pieces(request, PARTITIONS_OF_TOPICS):
                piece = part.topic_data
                sizes, any_of_piece = check_shapes(piece, context.api_version)
                transactional = transactional or any_of_piece
                gone_through.append(piece)
                shapes.append(sizes)
                await turn()
        except RequestFailedError as failure:
            await self._fail_all(failure, later)
            return
        if transactional and not may_use_id(request, authorizer, context):
            await self._fail_all(ID_REFUSED, later)
            return
        for piece, sizes in zip(gone_through, shapes, strict=True):
            found.take(piece, iter(sizes))
            await turn()
        if transactional:
            assert request.transactional_id is not None
            try:
                batches = [*found.batches.values()]
                sender = await sender_in_turns(request.transactional_id, batches)
            except RequestFailedError as failure:
                await self._fail_all(failure, later)
                return
            if sender is not None:
                verified = await verification.verify_in_turns(*sender, context.api_version)
                if isinstance(verified, Verifying):
                    verifying = self.append_once_verified(verified, found)
                    if isinstance(verifying, Later):
                        verifying.pass_on(later)
                    else:
                        later.reply(verifying)
                    return
                await turn()
                await self._append_verified(found, verified, later)
                return
        await self._append(found, NO_GUARDS, later)

    async def _append_verified(
        self, found: SortedRequest, verified: Verified, later: Later[ProduceAnswer]
    ) -> None:
        """What the transaction's coordinator doesn't refuse."""
        if verified.errors:
            batches, version = found.batches, self._context.api_version
            take_out = partial(
                refuse, batches=batches, verified=verified, refusals=found.refusals, version=version
            )
            await in_turns([*batches], take_out)
        await self._append(found, verified.guards, later)

    async def _append(
        self, found: SortedRequest, guards: Mapping[Partition, VerificationGuard], later: Later[ProduceAnswer]
    ) -> None:
        appends = Appends(self._request.acks, self._context.client_id == ADMIN_CLIENT_ID)
        rest = appends.append_for_a_turn(found.batches, self._clock, guards)
        await self._append_rest(appends, rest, found.refusals, guards, later)

    async def _append_rest(
        self,
        appends: Appends,
        rest: Batches,
        refusals: Answers,
        guards: Mapping[Partition, VerificationGuard],
        later: Later[ProduceAnswer],
    ) -> None:
        while rest:
            await turn()
            rest = appends.append_for_a_turn(rest, self._clock, guards)
        await self._append_left(appends, refusals, guards, later)

    async def _append_left(
        self,
        appends: Appends,
        refusals: Answers,
        guards: Mapping[Partition, VerificationGuard],
        later: Later[ProduceAnswer],
    ) -> None:
        unpacked_bytes = 0
        for key, (partition, batch) in appends.left.items():
            if unpacked_bytes > MOST_OF_REQUEST:
                refusal = KafkaError(Error.MESSAGE_TOO_LARGE)  # on which producers split the batch
                appends.append_checked(key, refusal, self._clock.now_ms(), guards)
                continue
            unpacked = Unpacked()
            checked = await compute(Brief(checking(partition, batch, self._clock.now_ms(), BRIEF, unpacked)))
            if checked is None:
                checked = await compute(checking(partition, batch, self._clock.now_ms(), MODERATE, unpacked))
            if checked is None:
                checked = await compute(
                    Alone(checking(partition, batch, self._clock.now_ms(), ANY, unpacked))
                )
            unpacked_bytes += unpacked.size_bytes
            appends.append_checked(key, checked, self._clock.now_ms(), guards)
        self.reply(appends, refusals, later)

    def append_once_verified(
        self, verifying: Verifying, found: SortedRequest
    ) -> ProduceAnswer | Later[ProduceAnswer]:
        """Append what the transaction's coordinator lets pass, once it has said so."""
        later: Later[ProduceAnswer] = Later()

        def then(verified: Verified) -> None:
            later.on_abandon = None
            try:
                self._carry_out(self._append_verified(found, verified, later), later)
            except Exception as error:
                later.fail(error)

        later.on_abandon = verifying.abandon
        verifying.when_verified(then)
        return later.answer()

    def reply(self, appends: Appends, refusals: Answers, later: Later[ProduceAnswer]) -> None:
        """Answer once nothing is waited for any more. Raises CloseConnectionError, as `response_of`."""
        answers = appends.answers
        answers.update(refusals)
        if not appends.awaited:
            if len(answers) > PER_TURN:
                self._turns.reply(self._told_in_turns(answers), later, self._context)
            else:
                later.reply(self._told(answers))
            return

        def then() -> None:
            if len(answers) > PER_TURN:
                self._turns.reply(self._told_in_turns(answers), later, self._context)
                return
            try:
                answer = self._told(answers)
            except Exception as error:
                later.fail(error)
            else:
                later.reply(answer)

        delayed = DelayedProduce(appends.awaited, then, later.fail, self._turns)
        later.waits_for(delayed.abandon)
        delayed.start(self._scheduler, self._request.timeout_ms)

    def _told(self, answers: Answers) -> ProduceAnswer:
        response = response_of(self._request.acks, answers)
        if response is not None and self._context.api_version >= FIRST_VERSION_TOLD_LEADERS:
            for topic in response.responses:
                for each in topic.partition_responses:
                    if each.error_code == Error.NOT_LEADER_OR_FOLLOWER:
                        self._tell_leader(response, topic, each)
        return response

    async def _told_in_turns(self, answers: Answers) -> ProduceAnswer:
        """As `_told`, of many."""
        await turn()
        if self._request.acks == 0:
            return self._told(answers)
        whole = ProduceResponse.of(responses=[])
        topics: dict[str | bytes, int] = {}
        for some in portions([*answers.items()]):
            part = self._told(dict(some))
            assert part is not None
            put_behind(whole, part, topics)
            await turn()
        return whole

    async def _fail_all(self, failure: RequestFailedError, later: Later[ProduceAnswer]) -> None:
        """As `fail_all`, of many."""
        answers: Answers = {}
        for part, _ in pieces(self._request, PARTITIONS_OF_TOPICS):
            answers.update(failures(part, failure, self._context))
            await turn()
        later.reply(await self._told_in_turns(answers))

    def _tell_leader(
        self, response: ProduceResponse, topic: TopicProduceResponse, answer: PartitionProduceResponse
    ) -> None:
        if self._context.api_version >= FIRST_VERSION_WITH_IDS:
            leader_id, leader_epoch = self._leaders.of_topic_id(topic.topic_id, answer.index)
        else:
            leader_id, leader_epoch = self._leaders.of(topic.name, answer.index)
        answer.current_leader = LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        node = self._leaders.node(leader_id, self._context.listener_name)
        if node is not None and all(each.node_id != leader_id for each in response.node_endpoints):
            response.node_endpoints.append(
                NodeEndpoint(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            )
