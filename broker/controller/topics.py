"""Topics as clients ask for them: decide (`controller.topic_decisions`), append and apply (`controller.metadata_log`).

The partitions follow what was applied; see `partitions.Partitions.follow`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from broker.controller import topic_decisions
from broker.controller.image import TopicImage
from broker.controller.placement import Placement
from broker.controller.record_bounds import MAX_RECORDS_PER_REQUEST, check_records, too_many_records
from broker.controller.topic_decisions import TakeQuota
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import PartitionRecord
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig, CreatePartitionsTopic
from protocol.wire.schema import Message

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.metadata_log import MetadataLog

log = logging.getLogger("barnabas.topics")


def no_quota(partitions: int) -> None:
    """Nobody counts."""


class Topics:
    """Creates and deletes topics, adds partitions."""

    def __init__(
        self,
        metadata: MetadataLog,
        config: BrokerConfig,
        placement: Placement,
        new_topic_id: Callable[[], bytes],
        check_configs: Callable[[Mapping[str, str | None]], None],
    ) -> None:
        self._metadata = metadata
        self._config = config
        self._placement = placement
        self._new_topic_id = new_topic_id
        self._check_configs = check_configs

    def create(
        self,
        wanted: Sequence[CreatableTopic],
        *,
        validate_only: bool = False,
        take: TakeQuota = no_quota,
    ) -> list[tuple[CreatableTopic, bytes | KafkaError]]:
        """Each topic with its new id, or with what speaks against it. The others are created, all in one batch.

        Names are checked against what exists: two that collide with each other both pass, as in Kafka. Raises
        KafkaError where the request as a whole is too large: POLICY_VIOLATION in records, UNKNOWN_SERVER_ERROR in
        bytes.
        """
        decided: list[Message] = []
        results: list[tuple[CreatableTopic, bytes | KafkaError]] = []
        default_partitions = self._config.get_int("num.partitions")
        topic_decisions.check_total(wanted, default_partitions)
        for topic in wanted:
            topic_id = self._new_topic_id()
            try:
                new = topic_decisions.new_topic(
                    self._metadata.image,
                    topic,
                    topic_id=topic_id,
                    placement=self._placement,
                    default_partitions=default_partitions,
                    default_replication_factor=self._config.get_int("default.replication.factor"),
                    check_configs=self._check_configs,
                )
                take(sum(isinstance(record, PartitionRecord) for record in new))
            except KafkaError as error:
                results.append((topic, error))
                continue
            decided += new
            check_records(decided)
            results.append((topic, topic_id))
        failure = None if validate_only else self._append(decided)
        if failure is not None:
            return [
                (topic, result if isinstance(result, KafkaError) else failure) for topic, result in results
            ]
        return results

    def _append(self, decided: Sequence[Message]) -> KafkaError | None:
        """What kept the decision out of the metadata log; None where it is in force. Raises as `try_append`."""
        try:
            return self._metadata.try_append(decided)
        finally:
            self._forget_preferred(decided)

    def _forget_preferred(self, decided: Sequence[Message]) -> None:
        topics = self._metadata.image.topics_by_id
        for topic_id in {record.topic_id for record in decided if isinstance(record, PartitionRecord)}:
            topic = topics.get(topic_id)
            if topic is not None:
                self._placement.forget_preferred(topic.name, topic.partitions)

    def auto_create(self, names: Sequence[str]) -> None:
        """Create topics with the defaults (Kafka: `AutoTopicCreationManager`); what can't be created is logged."""
        wanted = [self._auto_created(name) for name in names]
        try:
            created = self.create(wanted)
        except KafkaError as error:
            created = [(topic, error) for topic in wanted]
        for topic, result in created:
            if isinstance(result, KafkaError):
                log.info("topic %s is not created automatically: %s", topic.name, result)
            else:
                log.info("created topic %s automatically", topic.name)

    def _auto_created(self, name: str) -> CreatableTopic:
        config = self._config
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
                        "retention.ms": "-1",
                        "min.insync.replicas": str(config.get_int("share.coordinator.state.topic.min.isr")),
                        "segment.bytes": str(config.get_int("share.coordinator.state.topic.segment.bytes")),
                    }
                ),
            )
        return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)

    def delete(
        self, topics: Sequence[TopicImage], *, take: TakeQuota = no_quota
    ) -> list[tuple[TopicImage, KafkaError | None]]:
        """Each topic with what kept it from being deleted, or None: UNKNOWN_SERVER_ERROR, as in Kafka, for those
        past the bound of a request. Raises KafkaError (UNKNOWN_SERVER_ERROR) where the records are too long."""
        decided: list[Message] = []
        refused: dict[bytes, KafkaError] = {}
        for topic in topics:
            try:
                take(len(topic.partitions))
                if len(decided) == MAX_RECORDS_PER_REQUEST:
                    raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
            except KafkaError as error:
                refused[topic.topic_id] = error
                continue
            decided += topic_decisions.removed_topic(topic)
        failure = self._append(decided)
        return [(topic, refused.get(topic.topic_id, failure)) for topic in topics]

    def add_partitions(
        self,
        wanted: Sequence[CreatePartitionsTopic],
        *,
        validate_only: bool = False,
        take: TakeQuota = no_quota,
    ) -> list[tuple[CreatePartitionsTopic, KafkaError | None]]:
        """Each topic with what speaks against it, or None.

        Kafka's controller bounds the records of one request: it answers UNKNOWN_SERVER_ERROR to the topic that goes
        past the bound, and yet creates the partitions up to it. So do we. Raises KafkaError: POLICY_VIOLATION for more
        topics than that, UNKNOWN_SERVER_ERROR where the records are too long.
        """
        if len(wanted) > MAX_RECORDS_PER_REQUEST:
            raise too_many_records()
        decided: list[Message] = []
        results: list[tuple[CreatePartitionsTopic, KafkaError | None]] = []
        for topic in wanted:
            error = None
            try:
                for record in topic_decisions.more_partitions(
                    self._metadata.image, topic, self._placement, take
                ):
                    if len(decided) == MAX_RECORDS_PER_REQUEST:
                        raise KafkaError(Error.UNKNOWN_SERVER_ERROR)
                    decided.append(record)
            except KafkaError as refused:
                error = refused
            results.append((topic, error))
        failure = None if validate_only else self._append(decided)
        if failure is not None:
            return [(topic, error or failure) for topic, error in results]
        return results


def _configs(values: dict[str, str]) -> list[CreatableTopicConfig]:
    return [CreatableTopicConfig(name=name, value=value) for name, value in values.items()]
