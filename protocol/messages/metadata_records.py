"""The records of `__cluster_metadata`: the whole state of the controller (KIP-500, KIP-631).

`API_KEY` is the record's type. A record's value is framed by three unsigned varints: frame version 1, type
and version, then the body.
"""

from protocol.wire.schema import (
    Message,
    Struct,
    array,
    binary,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class TopicRecord(Message, api_key=2, versions="0", flexible="0+"):
    name: str = string("0+")
    topic_id: bytes = uuid("0+")


class PartitionRecord(Message, api_key=3, versions="0-2", flexible="0+"):
    """v1 directories (KIP-858), v2 eligible leader replicas (KIP-966)."""

    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    replicas: list[int] = array(int32, "0+")
    isr: list[int] = array(int32, "0+")
    removing_replicas: list[int] = array(int32, "0+")
    adding_replicas: list[int] = array(int32, "0+")
    leader: int = int32("0+", default=-1)
    leader_recovery_state: int = int8("0+", tag=0)
    leader_epoch: int = int32("0+", default=-1)
    partition_epoch: int = int32("0+", default=-1)
    directories: list[bytes] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=2)


class ConfigRecord(Message, api_key=4, versions="0", flexible="0+"):
    """`value` null deletes the key."""

    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    name: str = string("0+")
    value: str | None = string("0+", nullable="0+")


class PartitionChangeRecord(Message, api_key=5, versions="0-2", flexible="0+"):
    """Null or the default means no change. v1 directories (KIP-858), v2 eligible leader replicas (KIP-966).
    `leader` -1 is no leader, -2 no change.
    """

    partition_id: int = int32("0+", default=-1)
    topic_id: bytes = uuid("0+")
    isr: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=0)
    leader: int = int32("0+", default=-2, tag=1)
    replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = array(int32, "0+", nullable="0+", default=None, tag=4)
    leader_recovery_state: int = int8("0+", default=-1, tag=5)
    directories: list[bytes] | None = array(uuid, "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tag=7)


class BrokerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class BrokerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterBrokerRecord(Message, api_key=0, versions="0-4", flexible="0+"):
    """v1 controlled shutdown, v2 migration from ZooKeeper (KIP-866), v3 log directories (KIP-858).

    v4 cordoned ones (KIP-1066), null until the broker has told them.
    """

    broker_id: int = int32("0+")
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: bytes = uuid("0+")
    broker_epoch: int = int64("0+")
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint, "0+")
    features: list[BrokerFeature] = array(BrokerFeature, "0+")
    rack: str | None = string("0+", nullable="0+")
    fenced: bool = boolean("0+", default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid, "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "4+", nullable="4+", tag=1, default=None)


class ControllerEndpoint(Struct):
    name: str = string("0+")
    host: str = string("0+")
    port: int = uint16("0+")
    security_protocol: int = int16("0+")


class ControllerFeature(Struct):
    name: str = string("0+")
    min_supported_version: int = int16("0+")
    max_supported_version: int = int16("0+")


class RegisterControllerRecord(Message, api_key=27, versions="0", flexible="0+"):
    controller_id: int = int32("0+")
    incarnation_id: bytes = uuid("0+")
    zk_migration_ready: bool = boolean("0+")
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint, "0+")
    features: list[ControllerFeature] = array(ControllerFeature, "0+")


class UnregisterBrokerRecord(Message, api_key=1, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")


class FenceBrokerRecord(Message, api_key=7, versions="0", flexible="0+"):
    id: int = int32("0+")
    epoch: int = int64("0+")


class UnfenceBrokerRecord(Message, api_key=8, versions="0", flexible="0+"):
    id: int = int32("0+")
    epoch: int = int64("0+")


class BrokerRegistrationChangeRecord(Message, api_key=17, versions="0-3", flexible="0+"):
    """0 means no change. v1 controlled shutdown, v2 directories (KIP-858), v3 cordoned ones (KIP-1066)."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+")
    fenced: int = int8("0+", tag=0)
    in_controlled_shutdown: int = int8("1+", tag=1)
    log_dirs: list[bytes] = array(uuid, "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = array(uuid, "3+", nullable="3+", tag=3, default=None)


class ClearElrRecord(Message, api_key=28, versions="0", flexible="0+"):
    """Forget the eligible leader replicas of a topic, or of all if the name is empty (KIP-966)."""

    topic_name: str = string("0+")


class RemoveTopicRecord(Message, api_key=9, versions="0", flexible="0+"):
    topic_id: bytes = uuid("0+")


class DelegationTokenRecord(Message, api_key=10, versions="0", flexible="0+"):
    owner: str = string("0+")
    requester: str = string("0+")
    renewers: list[str] = array(string, "0+")
    issue_timestamp: int = int64("0+")
    max_timestamp: int = int64("0+")
    expiration_timestamp: int = int64("0+")
    token_id: str = string("0+")


class RemoveDelegationTokenRecord(Message, api_key=26, versions="0", flexible="0+"):
    token_id: str = string("0+")


class UserScramCredentialRecord(Message, api_key=11, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")
    salt: bytes = binary("0+")
    stored_key: bytes = binary("0+")
    server_key: bytes = binary("0+")
    iterations: int = int32("0+")


class RemoveUserScramCredentialRecord(Message, api_key=22, versions="0", flexible="0+"):
    name: str = string("0+")
    mechanism: int = int8("0+")


class FeatureLevelRecord(Message, api_key=12, versions="0", flexible="0+"):
    """A metadata log begins with the record for "metadata.version". It always stays at version 0."""

    name: str = string("0+")
    feature_level: int = int16("0+")


class EntityData(Struct):
    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


class ClientQuotaRecord(Message, api_key=14, versions="0", flexible="0+"):
    """`remove` deletes the key of that entity."""

    entity: list[EntityData] = array(EntityData, "0+")
    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


class ProducerIdsRecord(Message, api_key=15, versions="0", flexible="0+"):
    """Ids below `next_producer_id` are handed out."""

    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    next_producer_id: int = int64("0+")


class AccessControlEntryRecord(Message, api_key=18, versions="0", flexible="0+"):
    id: bytes = uuid("0+")
    resource_type: int = int8("0+")
    resource_name: str = string("0+")
    pattern_type: int = int8("0+")
    principal: str = string("0+")
    host: str = string("0+")
    operation: int = int8("0+")
    permission_type: int = int8("0+")


class RemoveAccessControlEntryRecord(Message, api_key=19, versions="0", flexible="0+"):
    id: bytes = uuid("0+")


class NoOpRecord(Message, api_key=20, versions="0", flexible="0+"):
    """Written from time to time so that the high watermark moves (KIP-835)."""


class ZkMigrationStateRecord(Message, api_key=21, versions="0", flexible="0+"):
    """Left by clusters that came from ZooKeeper (KIP-866)."""

    zk_migration_state: int = int8("0+")


class BeginTransactionRecord(Message, api_key=23, versions="0", flexible="0+"):
    """Records up to the end record count as one (KIP-868)."""

    name: str | None = string("0+", nullable="0+", default=None, tag=0)


class EndTransactionRecord(Message, api_key=24, versions="0", flexible="0+"):
    pass


class AbortTransactionRecord(Message, api_key=25, versions="0", flexible="0+"):
    reason: str | None = string("0+", nullable="0+", default=None, tag=0)


class UnregisterControllerRecord(Message, api_key=29, versions="0", flexible="0+"):
    """Removes the registration of that controller (KIP-1312)."""

    controller_id: int = int32("0+")
