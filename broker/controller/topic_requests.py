"""Topics as they are asked for: by clients, and by the broker itself where one is used that isn't there.

Decided by `topic_decisions`, brought to the metadata log by the controller. The partitions follow what is committed;
see `partitions.Partitions.follow`. A topic that is used and isn't there is created once, while any number wait for
it: the internal ones with settings of their own, all others with the defaults. Source: `AutoTopicCreationManager`,
whose `inflightTopics` are asked for once. Kafka answers whoever asks meanwhile UNKNOWN_TOPIC_OR_PARTITION; here they
wait, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from broker.config.setting_checks import Occasion, Proposal, check
from broker.controller import topic_decisions
from broker.controller.controller_result import (
    MAX_RECORDS_PER_REQUEST,
    ControllerResult,
    Pause,
    by_item,
    check_records,
    too_many_records,
)
from broker.controller.topic_decisions import (
    NewPartitions,
    TakeQuota,
    TopicDefaults,
    more_partitions_of_topic,
)
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import PartitionRecord
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreatePartitionsTopic
from protocol.waiting import turn
from protocol.wire.schema import ZERO_UUID, Message

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.controller import Controller, Withdraw
    from broker.controller.image import ClusterImage, TopicImage
    from broker.controller.replica_placer import ReplicaPlacer
    from coordinator.commit_waiters import Failed

    Create: TypeAlias = Callable[
        [Sequence[CreatableTopic], "Callable[[Created | KafkaError], None]", Failed], Withdraw | None
    ]

log = logging.getLogger("barnabas.topics")


def creatable_topic(config: BrokerConfig, name: str) -> CreatableTopic:
    """The topic as it would be asked for."""
    if name == "__consumer_offsets":
        return CreatableTopic(
            name=name,
            num_partitions=config.get_int("offsets.topic.num.partitions"),
            replication_factor=config.get_int("offsets.topic.replication.factor"),
            configs=_configs(
                {
                    "cleanup.policy": "compact",
                    "compression.type": "producer",
                    "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
                }
            ),
        )
    if name == "__transaction_state":
        return CreatableTopic(
            name=name,
            num_partitions=config.get_int("transaction.state.log.num.partitions"),
            replication_factor=config.get_int("transaction.state.log.replication.factor"),
            configs=_configs(
                {
                    "cleanup.policy": "compact",
                    "compression.type": "uncompressed",
                    "min.insync.replicas": str(config.get_int("transaction.state.log.min.isr")),
                    "segment.bytes": str(config.get_int("transaction.state.log.segment.bytes")),
                    "unclean.leader.election.enable": "false",
                }
            ),
        )
    if name == "__share_group_state":
        return CreatableTopic(
            name=name,
            num_partitions=config.get_int("share.coordinator.state.topic.num.partitions"),
            replication_factor=config.get_int("share.coordinator.state.topic.replication.factor"),
            configs=_configs(
                {
                    "cleanup.policy": "delete",
                    "compression.type": "producer",
                    "retention.ms": "-1",
                    "min.insync.replicas": str(config.get_int("share.coordinator.state.topic.min.isr")),
                    "segment.bytes": str(config.get_int("share.coordinator.state.topic.segment.bytes")),
                }
            ),
        )
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)


def _configs(values: dict[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]


# --- Created where they are used ----------------------------------------------------------------------------


Created: TypeAlias = list[tuple[CreatableTopic, bytes | KafkaError]]
"""Each topic with its new id, or with what speaks against it."""


class _Waiter:
    """Who waits for some creations."""

    __slots__ = ("_failed", "_left", "_then")

    def __init__(self, creations: int, then: Callable[[], None], failed: Failed) -> None:
        self._left = creations
        self._then = then
        self._failed = failed

    def one_is_over(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._then()

    def one_failed(self, error: BaseException) -> None:
        if self._left > 0:
            self._left = 0
            self._failed(error)


class _Creation:
    """Topics that one decision creates, and who waits for them."""

    __slots__ = ("names", "waiters", "withdraw")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.waiters: dict[_Waiter, None] = {}
        self.withdraw: Withdraw | None = None


class AutoTopicCreation:
    """Creates what is missing, with the defaults. What can't be created is logged."""

    def __init__(self, config: BrokerConfig, create: Create) -> None:
        self._config = config
        self._create = create
        self._under_way: dict[str, _Creation] = {}

    def create(
        self, names: Sequence[str], then: Callable[[], None], failed: Failed
    ) -> Callable[[], None] | None:
        """`then`, which does no more than take note, is called once each of them is decided and committed, or refused,
        in this call where it can be. `failed` is told of an error of ours, as by `Controller.submit`.

        Returns what is called where nobody waits any more, None where nobody has to: a creation that all have given up
        and that isn't begun is taken back.
        """
        creations: dict[_Creation, None] = {}
        missing: list[str] = []
        for name in names:
            under_way = self._under_way.get(name)
            if under_way is None:
                missing.append(name)
            else:
                creations[under_way] = None
        new = None
        if missing:
            new = _Creation(missing)
            creations[new] = None
        waiter = _Waiter(len(creations), then, failed)
        for creation in creations:
            creation.waiters[waiter] = None
        if new is not None:
            self._begin(new)
        waits_for = [creation for creation in creations if waiter in creation.waiters]
        return partial(self._give_up, waiter, waits_for) if waits_for else None

    def _begin(self, creation: _Creation) -> None:
        def created(outcome: Created | KafkaError) -> None:
            if isinstance(outcome, KafkaError):
                outcome = [(topic, outcome) for topic in wanted]
            for topic, result in outcome:
                if isinstance(result, KafkaError):
                    if result.error is not Error.TOPIC_ALREADY_EXISTS:  # others may have asked for it
                        log.info("topic %s is not created automatically: %s", topic.name, result)
                else:
                    log.info("created topic %s automatically", topic.name)
            for waiter in self._end(creation):
                waiter.one_is_over()

        def failed(error: BaseException) -> None:
            for waiter in self._end(creation):
                waiter.one_failed(error)

        wanted = [creatable_topic(self._config, name) for name in creation.names]
        self._under_way.update(dict.fromkeys(creation.names, creation))
        try:
            creation.withdraw = self._create(wanted, created, failed)
        except Exception:
            self._end(creation)
            raise

    def _end(self, creation: _Creation) -> Sequence[_Waiter]:
        """Nothing of it is under way any more. Returns who waited."""
        for name in creation.names:
            self._under_way.pop(name, None)
        waiters, creation.waiters = [*creation.waiters], {}
        return waiters

    def _give_up(self, waiter: _Waiter, creations: Sequence[_Creation]) -> None:
        for creation in creations:
            creation.waiters.pop(waiter, None)
            if not creation.waiters and creation.withdraw is not None and creation.withdraw():
                self._end(creation)


# --- Asked for ----------------------------------------------------------------------------------------------

T = TypeVar("T")

Deleted: TypeAlias = list[tuple["TopicImage", KafkaError | None]]
"""Each topic with what kept it from being deleted, or None."""

Extended: TypeAlias = list[tuple[CreatePartitionsTopic, KafkaError | None]]
"""Each topic with what speaks against more partitions, or None."""


def no_quota(partitions: int) -> None:
    """Nobody counts."""


class TopicRequests:
    """Creates and deletes topics, adds partitions. Each `reply` is called once, with the outcome of each topic, or
    with a KafkaError where the request as a whole is refused."""

    def __init__(
        self,
        controller: Controller,
        config: BrokerConfig,
        placer: ReplicaPlacer,
        new_topic_id: Callable[[], bytes],
        create_automatically: Create | None = None,
    ) -> None:
        """`create_automatically` asks the controller, where that is another node."""
        self._controller = controller
        self._config = config
        self._placer = placer
        self._new_topic_id = new_topic_id
        self.create_unasked: Create = create_automatically or self.create
        """What no client has asked for by name, wherever the controller is."""
        self._auto_creation = AutoTopicCreation(config, self.create_unasked)

    def create(
        self,
        wanted: Sequence[CreatableTopic],
        reply: Callable[[Created | KafkaError], None],
        failed: Failed,
        *,
        validate_only: bool = False,
        take: TakeQuota = no_quota,
    ) -> Withdraw | None:
        """Create those that nothing speaks against, all in one batch.

        Names are checked against what exists: two that collide with each other both pass, as in Kafka. A name that
        comes again finds the topic that was decided before it: no log that has a topic twice can be read any more. The
        whole is refused where it is too large: POLICY_VIOLATION in records, UNKNOWN_SERVER_ERROR in bytes.
        """

        async def decide(image: ClusterImage) -> ControllerResult[Created]:
            decided, results = await self._decide_creation(image, wanted, take)
            return self._result(image, [] if validate_only else decided, by_item(decided, results).answer)

        return self._controller.submit(decide, reply, failed)

    def _check_configs(self, configs: Mapping[str, str | None]) -> None:
        check(Occasion.CREATE_TOPIC, Proposal(self._config, configs))

    async def _decide_creation(
        self, image: ClusterImage, wanted: Sequence[CreatableTopic], take: TakeQuota
    ) -> tuple[list[Message], Created]:
        decided: list[Message] = []
        results: Created = []
        defaults = TopicDefaults(
            self._config.get_int("num.partitions"), self._config.get_int("default.replication.factor")
        )
        topic_decisions.check_total(wanted, defaults.partitions)
        pause = Pause()
        named: set[str] = set()
        for topic in wanted:
            if pause.is_due(1 + len(topic.configs)):
                await turn()
            topic_id = self._new_topic_id()
            try:
                if topic.name in named:
                    raise topic_decisions.already_exists(topic.name)
                new = await topic_decisions.new_topic(
                    NewPartitions(image, topic.name, topic_id, self._placer),
                    topic,
                    defaults=defaults,
                    check_configs=self._check_configs,
                    pause=pause,
                )
                take(sum(isinstance(record, PartitionRecord) for record in new))
            except KafkaError as error:
                results.append((topic, error.as_value()))
                continue
            named.add(topic.name)
            decided += new
            check_records(decided)
            results.append((topic, topic_id))
        return decided, results

    def auto_create(
        self, names: Sequence[str], then: Callable[[], None], failed: Failed
    ) -> Callable[[], None] | None:
        """`AutoTopicCreation.create`."""
        return self._auto_creation.create(names, then, failed)

    def delete(
        self,
        topics: Sequence[TopicImage],
        reply: Callable[[Deleted | KafkaError], None],
        failed: Failed,
        *,
        take: TakeQuota = no_quota,
    ) -> Withdraw | None:
        """Those past the bound of a request are told UNKNOWN_SERVER_ERROR, as in Kafka, and the others deleted. The
        whole is refused (UNKNOWN_SERVER_ERROR) where the records are too long."""

        async def decide(image: ClusterImage) -> ControllerResult[Deleted]:
            decided: list[Message] = []
            refused: dict[bytes, KafkaError] = {}
            pause = Pause()
            for topic in topics:
                if pause.is_due():
                    await turn()
                try:
                    if topic.topic_id not in image.topics_by_id:  # deleted, and not committed yet
                        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
                    take(len(topic.partitions))
                    if len(decided) == MAX_RECORDS_PER_REQUEST:
                        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                except KafkaError as error:
                    refused[topic.topic_id] = error.as_value()
                    continue
                decided += topic_decisions.removed_topic(topic)
            return ControllerResult(
                decided, lambda error: [(topic, refused.get(topic.topic_id, error)) for topic in topics]
            )

        return self._controller.submit(decide, reply, failed)

    def add_partitions(
        self,
        wanted: Sequence[CreatePartitionsTopic],
        reply: Callable[[Extended | KafkaError], None],
        failed: Failed,
        *,
        validate_only: bool = False,
        take: TakeQuota = no_quota,
    ) -> Withdraw | None:
        """Kafka's controller bounds the records of one request: it answers UNKNOWN_SERVER_ERROR to the topic that goes
        past the bound, and yet creates the partitions up to it. So do we. The whole is refused with POLICY_VIOLATION
        for more topics than that, with UNKNOWN_SERVER_ERROR where the records are too long.
        """

        async def decide(image: ClusterImage) -> ControllerResult[Extended]:
            decided, results = await self._decide_extension(image, wanted, take)
            return self._result(
                image,
                [] if validate_only else decided,
                lambda error: [(topic, refused or error) for topic, refused in results],
            )

        return self._controller.submit(decide, reply, failed)

    async def _decide_extension(
        self, image: ClusterImage, wanted: Sequence[CreatePartitionsTopic], take: TakeQuota
    ) -> tuple[list[Message], Extended]:
        if len(wanted) > MAX_RECORDS_PER_REQUEST:
            raise too_many_records()
        topic_decisions.check_additional(image, wanted)
        decided: list[Message] = []
        results: Extended = []
        pause = Pause()
        for topic in wanted:
            if pause.is_due():
                await turn()
            refused = None
            found = image.topics.get(topic.name)
            topic_id = ZERO_UUID if found is None else found.topic_id
            try:
                new = NewPartitions(image, topic.name, topic_id, self._placer)
                for record in await more_partitions_of_topic(new, topic, take, pause):
                    if pause.is_due(len(record.replicas)):
                        await turn()
                    if len(decided) == MAX_RECORDS_PER_REQUEST:
                        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                    decided.append(record)
            except KafkaError as error:
                refused = error.as_value()
            results.append((topic, refused))
        return decided, results

    def _result(
        self, image: ClusterImage, decided: Sequence[Message], answer: Callable[[KafkaError | None], T]
    ) -> ControllerResult[T]:
        """New partitions are where they were wished for, if anybody did: what is created later goes where it falls."""

        def answered(error: KafkaError | None) -> T:
            if error is None:
                self._tell_created(image, decided)
            return answer(error)

        return ControllerResult(decided, answered)

    def _tell_created(self, image: ClusterImage, decided: Iterable[Message]) -> None:
        for topic_id in dict.fromkeys(
            record.topic_id for record in decided if isinstance(record, PartitionRecord)
        ):
            topic = image.topics_by_id.get(topic_id)
            if topic is not None:
                self._placer.created(topic.name, topic.partitions)
