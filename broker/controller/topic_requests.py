"""Creating and deleting topics: for clients, and by the broker itself when someone uses a topic that doesn't
exist.

The functions below decide, and the controller writes their decisions to the metadata log. Partitions follow
what is committed; see `partitions.Partitions.follow`. A missing topic that is used is created once, and any
number of requests wait for it. The internal topics get settings of their own, all others the defaults.
Source: `AutoTopicCreationManager`, which requests each of its `inflightTopics` once. Kafka answers other
requests UNKNOWN_TOPIC_OR_PARTITION meanwhile; here they wait, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from broker.config.setting_checks import Occasion, Proposal, check
from broker.controller.config_decisions import cleared_elr
from broker.controller.controller import (
    MAX_RECORDS_PER_REQUEST,
    ControllerResult,
    by_item,
    check_records,
    too_many_records,
)
from broker.controller.image import TOPIC_RESOURCE, ClusterImage, TopicImage, invalid_name_reason
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.messages import metadata_records as records
from protocol.messages.metadata_records import PartitionRecord
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreatePartitionsTopic
from protocol.waiting import Later, Pause, turn
from protocol.wire.schema import ZERO_UUID, Message
from storage.directory.log_directory import METADATA_TOPIC

if TYPE_CHECKING:
    from broker.controller.replica_placer import ReplicaPlacer


# --------------------------------------------------------------------------------------------------------------
# Creating and deleting topics and adding partitions: a request and the image become records, or an error.
#
# None of this changes the metadata. It does move the placement to the next directory, and takes from the
# client's quota. Either the request names the brokers of each partition, or the placer finds them. The checks
# are in Kafka's order, as observed on 4.3.1. Records of partitions come one at a time, since nothing has
# limited their number yet: the caller pauses according to their replicas. The image must not change
# meanwhile. Source: `ReplicationControlManager` (createTopic, createPartitions,
# validateManualPartitionAssignment, buildPartitionRegistration).


class TopicDefaults(NamedTuple):
    """The meaning of −1 (`num.partitions`, `default.replication.factor`)."""

    partitions: int
    replication_factor: int


class NewPartitions(NamedTuple):
    """The topic of new partitions, and what decides where they go. The image may not have the topic yet."""

    image: ClusterImage
    topic: str
    topic_id: bytes
    placer: ReplicaPlacer

    def record(self, index: int, replicas: Sequence[int]) -> records.PartitionRecord:
        """Return the record of a new partition. Its active replicas are in sync, and the first of these
        leads.

        Raises KafkaError (INVALID_REPLICATION_FACTOR) if none is active.
        """
        isr = [broker_id for broker_id in replicas if is_active(self.image, broker_id)]
        if not isr:
            raise KafkaError(
                Error.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {len(replicas)} time(s): All brokers are currently fenced or in "
                "controlled shutdown.",
            )
        return records.PartitionRecord(
            partition_id=index,
            topic_id=self.topic_id,
            replicas=[*replicas],
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
            directories=[
                self.placer.directory(self.image, broker_id, self.topic, index) for broker_id in replicas
            ],
        )


def is_active(image: ClusterImage, broker_id: int) -> bool:
    """True if the broker exists and can be in sync and lead."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


async def partitions_of_new_topic(
    new: NewPartitions, wanted: CreatableTopic, defaults: TopicDefaults, pause: Pause
) -> Iterator[records.PartitionRecord]:
    """Return the partitions of a new topic, by the requested assignments, or by number and replication
    factor. The caller has checked how many there are (`check_total`).

    Raises KafkaError before it returns, for the first check that fails: INVALID_REQUEST if assignments come
    with numbers, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, INVALID_PARTITIONS.
    """
    if wanted.assignments:
        by_index = await _assigned(new, wanted, pause)
        return _records(new, 0, (by_index[index] for index in range(len(by_index))))
    if wanted.replication_factor == 0 or wanted.replication_factor < -1:
        raise KafkaError(
            Error.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if wanted.num_partitions == 0 or wanted.num_partitions < -1:
        raise KafkaError(
            Error.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    count = defaults.partitions if wanted.num_partitions == -1 else wanted.num_partitions
    factor = defaults.replication_factor if wanted.replication_factor == -1 else wanted.replication_factor
    if pause.is_due(len(new.image.brokers)):
        await turn()
    try:
        placed = new.placer.place(new.image, count, factor)
    except KafkaError as refused:
        raise KafkaError(
            refused.error, f"Unable to replicate the partition {factor} time(s): {refused.message}"
        ) from refused
    return _records(new, 0, placed)


async def more_partitions_of_topic(
    new: NewPartitions, wanted: CreatePartitionsTopic, take: Callable[[int], None], pause: Pause
) -> Iterator[records.PartitionRecord]:
    """Return the partitions to add. Each gets as many replicas as the topic's first one. `take(number)` is
    called when the partitions could be created, and may refuse with a KafkaError.

    Raises KafkaError before it returns, for the first check that fails: UNKNOWN_TOPIC_OR_PARTITION,
    INVALID_PARTITIONS if they would not be more, INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    topic = new.image.topics.get(wanted.name)
    if topic is None:
        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
    first = len(topic.partitions)
    additional = _additional(topic, wanted)
    take(additional)
    if not first:
        raise KafkaError(Error.UNKNOWN_SERVER_ERROR, f"The topic {wanted.name} has no partitions.")
    factor = len(next(iter(topic.partitions.values())).replicas)
    if wanted.assignments is None:
        if pause.is_due(len(new.image.brokers)):
            await turn()
        return _records(new, first, new.placer.place(new.image, additional, factor))
    for index, assignment in enumerate(wanted.assignments, first):
        await _check_assignment(new, assignment.broker_ids, factor, pause)
        _check_active(new.image, assignment.broker_ids, index)
    return _records(new, first, (assignment.broker_ids for assignment in wanted.assignments))


def _additional(topic: TopicImage, wanted: CreatePartitionsTopic) -> int:
    count = len(topic.partitions)
    if wanted.count == count:
        raise KafkaError(Error.INVALID_PARTITIONS, f"Topic already has {count} partition(s).")
    if wanted.count < count:
        raise KafkaError(
            Error.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {count} partition(s); {wanted.count} would not be an increase.",
        )
    additional = wanted.count - count
    if wanted.assignments is not None and len(wanted.assignments) != additional:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"{additional} partition(s) would be added, but {len(wanted.assignments)} assignment(s) were given.",
        )
    return additional


async def _assigned(new: NewPartitions, wanted: CreatableTopic, pause: Pause) -> dict[int, list[int]]:
    """Return the brokers of each partition, by its number."""
    if wanted.replication_factor != -1:
        raise KafkaError(
            Error.INVALID_REQUEST, "With a manual partition assignment the replication factor has to be -1."
        )
    if wanted.num_partitions != -1:
        raise KafkaError(
            Error.INVALID_REQUEST, "With a manual partition assignment the number of partitions has to be -1."
        )
    by_index: dict[int, list[int]] = {}
    factor = None
    for assignment in wanted.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise KafkaError(
                Error.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        await _check_assignment(new, assignment.broker_ids, factor, pause)
        _check_active(new.image, assignment.broker_ids, index)
        factor = len(assignment.broker_ids)
        by_index[index] = assignment.broker_ids
    if any(index not in by_index for index in range(len(by_index))):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "The partitions have to be numbered from 0 without a gap."
        )
    return by_index


async def _check_assignment(
    new: NewPartitions, broker_ids: Sequence[int], replication_factor: int | None, pause: Pause
) -> None:
    """Raises KafkaError if the assignment is invalid. It names the lowest bad id, as in Kafka, which sorts
    them."""
    if not broker_ids:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment has an empty replica list."
        )
    registered = new.image.brokers
    seen: set[int] = set()
    wrong = []
    for broker_id in broker_ids:
        if pause.is_due():
            await turn()
        if broker_id in seen or broker_id not in registered or not new.placer.has_room(new.image, broker_id):
            wrong.append(broker_id)
        seen.add(broker_id)
    if wrong:
        lowest = min(wrong)
        if lowest not in registered:
            what = "which is not registered"
        elif not new.placer.has_room(new.image, lowest):
            what = "all of whose log directories are cordoned"
        else:
            what = "more than once"
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment has broker {lowest}, {what}.",
        )
    if replication_factor is not None and len(broker_ids) != replication_factor:
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment has a partition with {len(broker_ids)} replica(s), "
            f"others have {replication_factor}.",
        )


def _check_active(image: ClusterImage, broker_ids: Iterable[int], index: int) -> None:
    if not any(is_active(image, broker_id) for broker_id in broker_ids):
        raise KafkaError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers of the manual partition assignment for partition {index} are fenced or in controlled "
            "shutdown.",
        )


def _records(
    new: NewPartitions, first: int, replicas: Iterable[Sequence[int]]
) -> Iterator[records.PartitionRecord]:
    return (new.record(index, each) for index, each in enumerate(replicas, first))


# --- Topics -------------------------------------------------------------------------------------------------

TakeQuota = Callable[[int], None]
"""Takes so many partitions from a client's quota on changes, or raises KafkaError (THROTTLING_QUOTA_EXCEEDED)."""

MAX_PARTITIONS_PER_REQUEST = 10_000  # ReplicationControlManager.MAX_PARTITIONS_PER_BATCH


def already_exists(name: str) -> KafkaError:
    """Return the error for creating a topic whose name is taken."""
    return KafkaError(Error.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def check_new_name(image: ClusterImage, name: str) -> None:
    """Raises KafkaError if no topic with this name can be created."""
    reason = invalid_name_reason(name)
    if name == METADATA_TOPIC:
        raise KafkaError(Error.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics:
        raise already_exists(name)
    if reason is not None:
        raise KafkaError(Error.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
    collides = image.topics_like(name)
    if collides:
        raise KafkaError(
            Error.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {collides[0]}"
        )


async def new_topic(
    new: NewPartitions,
    wanted: CreatableTopic,
    *,
    defaults: TopicDefaults,
    check_configs: Callable[[Mapping[str, str | None]], None],
    pause: Pause,
) -> list[Message]:
    """Return the records of a new topic. Raises KafkaError for the first check that fails."""
    check_new_name(new.image, wanted.name)
    configs = {config.name: config.value for config in wanted.configs}
    check_configs(configs)
    partitions = await partitions_of_new_topic(new, wanted, defaults, pause)
    altered = [
        records.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=wanted.name, name=key, value=value)
        for key, value in configs.items()
    ]
    decided: list[Message] = [records.TopicRecord(name=wanted.name, topic_id=new.topic_id)]
    decided += altered
    if altered:
        decided += cleared_elr(new.image, altered)
    for record in partitions:
        if pause.is_due(len(record.replicas)):
            await turn()
        decided.append(record)
    return decided


def check_total(topics: Iterable[CreatableTopic], default_partitions: int) -> None:
    """Check how many partitions a request would create, before anything else. Raises KafkaError
    (POLICY_VIOLATION)."""
    total = 0
    for topic in topics:
        if topic.assignments:
            total += len(topic.assignments)
        elif topic.num_partitions > 0:
            total += topic.num_partitions
        elif topic.num_partitions == -1:
            total += default_partitions
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            Error.POLICY_VIOLATION,
            "Excessively large number of partitions per request: "
            f"at most {MAX_PARTITIONS_PER_REQUEST} can be created at once.",
        )


def check_additional(image: ClusterImage, topics: Iterable[CreatePartitionsTopic]) -> None:
    """Like `check_total`, for added partitions. Those that will be refused anyway don't count."""
    total = 0
    for wanted in topics:
        topic = image.topics.get(wanted.name)
        if topic is not None:
            total += max(0, wanted.count - len(topic.partitions))
    if total > MAX_PARTITIONS_PER_REQUEST:
        raise KafkaError(
            Error.POLICY_VIOLATION, "Excessively large number of additional partitions per request."
        )


def removed_topic(topic: TopicImage) -> list[Message]:
    return [records.RemoveTopicRecord(topic_id=topic.topic_id)]


# --------------------------------------------------------------------------------------------------------------

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage, TopicImage
    from broker.controller.replica_placer import ReplicaPlacer
    from protocol.waiting import Waiting

    Create: TypeAlias = Callable[[Sequence[CreatableTopic]], Waiting["Created | KafkaError"]]

log = logging.getLogger("barnabas.topics")


def creatable_topic(config: BrokerConfig, name: str) -> CreatableTopic:
    """Return the request that creates this topic."""
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


# --- Creating topics when they are used ---------------------------------------------------------------------


Created: TypeAlias = list[tuple[CreatableTopic, bytes | KafkaError]]
"""Each topic with its new id, or its error."""


class _Creation:
    """The topics that one decision creates, and the requests that wait for them."""

    __slots__ = ("names", "under_way", "waiters")

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.waiters: list[Later[None]] = []
        self.under_way: Later[None] | None = None


class AutoTopicCreation:
    """Creates missing topics, with the defaults. Logs what it can't create."""

    def __init__(self, config: BrokerConfig, create: Create, controller: Controller) -> None:
        self._config = config
        self._create = create
        self._controller = controller
        self._creations: dict[str, _Creation] = {}

    async def create(self, names: Sequence[str]) -> None:
        """Return once each topic is committed or refused. Raises errors of our own.

        If all waiting requests are abandoned before the creation begins, it is withdrawn.
        """
        creations = dict.fromkeys(self._creations[name] for name in names if name in self._creations)
        missing = [name for name in names if name not in self._creations]
        waits_for = [self._waiting(creation) for creation in creations]
        if missing:
            creation = _Creation(missing)
            self._creations.update(dict.fromkeys(missing, creation))
            waits_for.append(self._waiting(creation))
        try:
            if missing:
                creation.under_way = self._controller.begin(self._carry_out(creation))
            for waiter in waits_for:
                await waiter[1]
        finally:
            for creation, later in waits_for:
                if later in creation.waiters:
                    creation.waiters.remove(later)
                    under_way = creation.under_way
                    if not creation.waiters and under_way is not None and under_way.on_abandon is not None:
                        under_way.abandon()

    def _waiting(self, creation: _Creation) -> tuple[_Creation, Later[None]]:
        later: Later[None] = Later()
        creation.waiters.append(later)
        return creation, later

    async def _carry_out(self, creation: _Creation) -> None:
        try:
            wanted = [creatable_topic(self._config, name) for name in creation.names]
            outcome = await self._create(wanted)
            if isinstance(outcome, KafkaError):
                outcome = [(topic, outcome) for topic in wanted]
            for topic, result in outcome:
                if isinstance(result, KafkaError):
                    if result.error is not Error.TOPIC_ALREADY_EXISTS:  # another request may have created it
                        log.info("topic %s is not created automatically: %s", topic.name, result)
                else:
                    log.info("created topic %s automatically", topic.name)
        except Exception as error:
            for waiter in self._end(creation):
                waiter.fail(error)
            if stops_the_broker(error):
                raise
        else:
            for waiter in self._end(creation):
                waiter.reply(None)
        finally:
            self._end(creation)  # if it is withdrawn

    def _end(self, creation: _Creation) -> Sequence[Later[None]]:
        """End the creation. Returns the requests that wait for it."""
        for name in creation.names:
            if self._creations.get(name) is creation:
                del self._creations[name]
        waiters, creation.waiters = creation.waiters, []
        return waiters


# --- Creating, extending and deleting topics on request -----------------------------------------------------

T = TypeVar("T")

Deleted: TypeAlias = list[tuple["TopicImage", KafkaError | None]]
"""Each topic with the error that kept it from being deleted, or None."""

Extended: TypeAlias = list[tuple[CreatePartitionsTopic, KafkaError | None]]
"""Each topic with the error that kept it from getting more partitions, or None."""


def no_quota(partitions: int) -> None:
    """Count nothing."""


class TopicRequests:
    """Creates and deletes topics, and adds partitions. Returns each topic's outcome, or a KafkaError if the
    whole request is refused."""

    def __init__(
        self,
        controller: Controller,
        config: BrokerConfig,
        placer: ReplicaPlacer,
        new_topic_id: Callable[[], bytes],
        create_automatically: Create | None = None,
    ) -> None:
        """`create_automatically` sends the request to another node, if the controller is there."""
        self._controller = controller
        self._config = config
        self._placer = placer
        self._new_topic_id = new_topic_id
        self.create_automatically: Create = create_automatically or self.create
        """Creates topics that no client has asked for by name, wherever the controller is."""
        self.has_room = placer.has_room
        self.auto_create = AutoTopicCreation(config, self.create_automatically, controller).create

    async def create(
        self,
        wanted: Sequence[CreatableTopic],
        *,
        validate_only: bool = False,
        take: TakeQuota = no_quota,
    ) -> Created | KafkaError:
        """Create the topics that pass all checks, in one batch.

        Names are checked against existing topics. As in Kafka, two new names that collide with each other
        both pass. If a name comes twice, the second one finds that the topic exists: a log with the same
        topic twice could never be read again. The whole request is refused if it is too large:
        POLICY_VIOLATION for too many records, UNKNOWN_SERVER_ERROR for too many bytes.
        """

        async def decide(image: ClusterImage) -> ControllerResult[Created]:
            decided, results = await self._decide_creation(image, wanted, take)
            return self._result(image, [] if validate_only else decided, by_item(decided, results).answer)

        return await self._controller.submit(decide)

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
        check_total(wanted, defaults.partitions)
        pause = Pause()
        named: set[str] = set()
        for topic in wanted:
            if pause.is_due(1 + len(topic.configs)):
                await turn()
            topic_id = self._new_topic_id()
            try:
                if topic.name in named:
                    raise already_exists(topic.name)
                new = await new_topic(
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

    async def delete(
        self,
        topics: Sequence[TopicImage],
        *,
        take: TakeQuota = no_quota,
    ) -> Deleted | KafkaError:
        """Delete topics. As in Kafka, those past the bound of a request get UNKNOWN_SERVER_ERROR, and the
        others are deleted.

        The whole request is refused (UNKNOWN_SERVER_ERROR) if the records have too many bytes.
        """

        async def decide(image: ClusterImage) -> ControllerResult[Deleted]:
            decided: list[Message] = []
            refused: dict[bytes, KafkaError] = {}
            pause = Pause()
            for topic in topics:
                if pause.is_due():
                    await turn()
                try:
                    if topic.topic_id not in image.topics_by_id:  # already deleted, but not committed yet
                        raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)
                    take(len(topic.partitions))
                    if len(decided) == MAX_RECORDS_PER_REQUEST:
                        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                except KafkaError as error:
                    refused[topic.topic_id] = error.as_value()
                    continue
                decided += removed_topic(topic)
            return ControllerResult(
                decided, lambda error: [(topic, refused.get(topic.topic_id, error)) for topic in topics]
            )

        return await self._controller.submit(decide)

    async def add_partitions(
        self,
        wanted: Sequence[CreatePartitionsTopic],
        *,
        validate_only: bool = False,
        take: TakeQuota = no_quota,
    ) -> Extended | KafkaError:
        """Add partitions.

        Kafka's controller limits the records of a request. It answers UNKNOWN_SERVER_ERROR to the topic that
        exceeds the limit, but creates its partitions up to there. So do we. The whole request is refused with
        POLICY_VIOLATION if it names more topics than that, and with UNKNOWN_SERVER_ERROR if the records have
        too many bytes.
        """

        async def decide(image: ClusterImage) -> ControllerResult[Extended]:
            decided, results = await self._decide_extension(image, wanted, take)
            return self._result(
                image,
                [] if validate_only else decided,
                lambda error: [(topic, refused or error) for topic, refused in results],
            )

        return await self._controller.submit(decide)

    async def _decide_extension(
        self, image: ClusterImage, wanted: Sequence[CreatePartitionsTopic], take: TakeQuota
    ) -> tuple[list[Message], Extended]:
        if len(wanted) > MAX_RECORDS_PER_REQUEST:
            raise too_many_records()
        check_additional(image, wanted)
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
        """Return the result. New partitions are in the directories named for them, so these names are
        forgotten: a later topic gets any directory."""

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
