"""Topics as they are asked for: by clients, and by the broker itself where one is used that isn't there.

Decided by `controller.topic_decisions`, brought to the metadata log by the controller. The partitions follow what is
committed; see `partitions.Partitions.follow`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from broker.config.checks.table import Occasion, Proposal, check
from broker.controller import topic_decisions
from broker.controller.auto_topic_creation import AutoTopicCreation, Created
from broker.controller.controller_result import ControllerResult, by_item
from broker.controller.partition_assignments import NewPartitions, TopicDefaults, more_partitions_of_topic
from broker.controller.pause import Pause
from broker.controller.record_bounds import MAX_RECORDS_PER_REQUEST, check_records, too_many_records
from broker.controller.topic_decisions import TakeQuota
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import PartitionRecord
from protocol.messages.topics import CreatableTopic, CreatePartitionsTopic
from protocol.waiting import turn
from protocol.wire.schema import ZERO_UUID, Message

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.auto_topic_creation import Create
    from broker.controller.controller import Controller, Withdraw
    from broker.controller.image import ClusterImage, TopicImage
    from broker.controller.replica_placer import ReplicaPlacer
    from coordinator.commit_waiters import Failed

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
