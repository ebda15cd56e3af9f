"""What a topic is made with that nobody has created: the internal ones by settings of their own, all others by the
defaults (Kafka: `AutoTopicCreationManager`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from protocol.messages.topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig


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
