"""The cluster's metadata, built from the records of `__cluster_metadata-0`.

Only `ClusterImage.apply` changes the metadata. A running broker applies a record once it is committed; a
starting one replays the log through the same function (Kafka: `MetadataDelta.replay`). A snapshot from the
leader replaces the whole image (`become`). A record that contradicts the image raises
`MetadataContradictionError`: neither Kafka nor barnabas wrote such a log.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from broker.controller.acls import Acl
from broker.controller.metadata_versions import KRAFT_VERSION, is_supported
from protocol.errors import BrokenInvariantError
from protocol.messages import metadata_records as records
from protocol.wire.schema import Message

MAX_NAME_LENGTH = 249

INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def invalid_name_reason(name: str) -> str | None:
    """Return why a topic can't have this name, or None if it can."""
    if not name:
        return "the topic name is empty"
    if name in (".", ".."):
        return f"the topic name can't be '{name}'"
    if len(name) > MAX_NAME_LENGTH:
        return f"the topic name is {len(name)} characters long; {MAX_NAME_LENGTH} are allowed"
    if _LEGAL.fullmatch(name) is None:
        return (
            f"the topic name '{name}' has a character other than ASCII letters and digits, '.', '_' and '-'"
        )
    return None


def collision_key(name: str) -> str | None:
    """Return the key that names with equal metric names share: Kafka allows one topic for each key. None if
    the name can't collide."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


# --- Directory ids that name no particular log directory (Kafka: `DirectoryId`; KIP-858) --------------------

MIGRATING = bytes(16)
"""The broker chose a directory before records could name it."""

UNASSIGNED = bytes(15) + b"\x01"
"""The broker will choose a directory, and report it to the controller."""

LOST = bytes(15) + b"\x02"
"""Some offline directory."""


# --- One broker ---------------------------------------------------------------------------------------------


class BrokerNode(NamedTuple):
    """Where clients of one listener find a broker (Kafka: `Node`)."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


class BrokerImage:
    """One broker's registration (Kafka: `BrokerRegistration`)."""

    __slots__ = (
        "broker_epoch",
        "cordoned_log_dirs",
        "fenced",
        "in_controlled_shutdown",
        "log_dirs",
        "record",
    )

    def __init__(self, record: records.RegisterBrokerRecord) -> None:
        self.record = record
        self.broker_epoch = record.broker_epoch
        self.fenced = record.fenced
        self.in_controlled_shutdown = record.in_controlled_shutdown
        self.log_dirs = record.log_dirs
        self.cordoned_log_dirs = record.cordoned_log_dirs

    @property
    def is_active(self) -> bool:
        """True if the broker can be in sync and lead (Kafka: `ClusterControlManager.isActive`)."""
        return not (self.fenced or self.in_controlled_shutdown)

    def node(self, listener_name: str) -> BrokerNode | None:
        """Return the broker's address for a listener, or None if it doesn't advertise that listener."""
        record = self.record
        for endpoint in record.end_points:
            if endpoint.name == listener_name:
                return BrokerNode(record.broker_id, endpoint.host, endpoint.port, record.rack, self.fenced)
        return None

    def has_online_dir(self, directory_id: bytes) -> bool:
        """True if the broker can have a replica that is recorded in this directory. A broker that registered
        none, because the metadata.version doesn't support them, can have any (Kafka:
        `DirectoryId.isOnline`)."""
        if directory_id in (UNASSIGNED, MIGRATING):
            return True
        return directory_id != LOST and (not self.log_dirs or directory_id in self.log_dirs)

    def copy(self) -> BrokerImage:
        """Return a copy."""
        other = BrokerImage(self.record)
        other.broker_epoch = self.broker_epoch
        other.fenced = self.fenced
        other.in_controlled_shutdown = self.in_controlled_shutdown
        other.log_dirs = self.log_dirs
        other.cordoned_log_dirs = self.cordoned_log_dirs
        return other


# --- Records that are kept as they are, and that snapshots write out again ----------------------------------
# The newest record of each identity. Source: Kafka's ClientQuotasImage, ScramImage, AclsImage,
# DelegationTokenImage.


def _quota(record: records.ClientQuotaRecord) -> Hashable:
    return frozenset((part.entity_type, part.entity_name) for part in record.entity), record.key


# In the order of snapshots.
_IDENTITIES: dict[type[Message], Callable[[Any], Hashable]] = {
    records.ClientQuotaRecord: _quota,
    records.AccessControlEntryRecord: lambda record: record.id,
    records.UserScramCredentialRecord: lambda record: (record.mechanism, record.name),
    records.DelegationTokenRecord: lambda record: record.token_id,
}

_REMOVALS: dict[type[Message], tuple[type[Message], Callable[[Any], Hashable]]] = {
    records.RemoveAccessControlEntryRecord: (records.AccessControlEntryRecord, lambda record: record.id),
    records.RemoveUserScramCredentialRecord: (
        records.UserScramCredentialRecord,
        lambda record: (record.mechanism, record.name),
    ),
    records.RemoveDelegationTokenRecord: (records.DelegationTokenRecord, lambda record: record.token_id),
}

KEPT = frozenset({*_IDENTITIES, *_REMOVALS})


MOST_ACL_CHANGES = 10_000
"""The most changes that are kept for followers. With more, followers read all ACLs again."""


class KeptRecords:
    """The records in force, by type and identity. `acls` maps each ACL to its id."""

    __slots__ = ("_acl_changes", "_by_type", "_quotas_changed", "acls")

    def __init__(self) -> None:
        self._quotas_changed = False
        self._acl_changes: list[tuple[Acl, bool]] | None = None
        self._by_type: dict[type[Message], dict[Hashable, Message]] = {
            record_type: {} for record_type in _IDENTITIES
        }
        self.acls: dict[Acl, bytes] = {}

    def copy(self) -> KeptRecords:
        """Return a copy."""
        other = KeptRecords()
        other._by_type = {record_type: {**held} for record_type, held in self._by_type.items()}
        other.acls = {**self.acls}
        return other

    def follow_anew(self) -> None:
        """Have followers read all quotas and ACLs again."""
        self._quotas_changed = True
        self._acl_changes = None

    def apply(self, record: Message) -> None:
        """Store a record in place of the earlier one with its identity, or drop the record that it
        removes."""
        removal = _REMOVALS.get(type(record))
        if removal is not None:
            removed_type, identity_of = removal
            removed = self._by_type[removed_type].pop(identity_of(record), None)
            if isinstance(removed, records.AccessControlEntryRecord):
                self._acl_is_gone(removed)
            return
        if isinstance(record, records.ClientQuotaRecord):
            self._quotas_changed = True
        held = self._by_type[type(record)]
        identity = _IDENTITIES[type(record)](record)
        if isinstance(record, records.ClientQuotaRecord) and record.remove:
            held.pop(identity, None)
            return
        if isinstance(record, records.AccessControlEntryRecord):
            before = held.get(identity)
            if isinstance(before, records.AccessControlEntryRecord):
                self._acl_is_gone(before)
            acl = Acl.of_record(record)
            if self.acls.setdefault(acl, record.id) == record.id:
                self._acl_changed(acl, is_there=True)
        held[identity] = record

    def _acl_is_gone(self, record: records.AccessControlEntryRecord) -> None:
        acl = Acl.of_record(record)
        if self.acls.get(acl) == record.id:  # otherwise another id has the same ACL
            del self.acls[acl]
            self._acl_changed(acl, is_there=False)

    def _acl_changed(self, acl: Acl, *, is_there: bool) -> None:
        changes = self._acl_changes
        if changes is not None:
            changes.append((acl, is_there))
            if len(changes) > MOST_ACL_CHANGES:
                self._acl_changes = None

    def take_acl_changes(self) -> list[tuple[Acl, bool]] | None:
        """Return the ACLs that were added (True) or removed since the last call, in order. None if all may
        have changed."""
        changes, self._acl_changes = self._acl_changes, []
        return changes

    def take_quota_change(self) -> bool:
        """True if there were quota records since the last call."""
        changed, self._quotas_changed = self._quotas_changed, False
        return changed

    def find(self, record_type: type[Message], identity: Hashable) -> Message | None:
        """The record with that identity."""
        return self._by_type[record_type].get(identity)

    def of_type(self, record_type: type[Message]) -> Iterator[Message]:
        """The records of one type."""
        return iter(self._by_type[record_type].values())


# --- The whole image ----------------------------------------------------------------------------------------

NO_LEADER = -1
RECOVERED, RECOVERING = 0, 1
"""LeaderRecoveryState: after an unclean election the leader is RECOVERING until it reports that it has
recovered."""
NO_LEADER_CHANGE = -2  # PartitionChangeRecord.leader if the leader stays

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


class MetadataContradictionError(BrokenInvariantError):
    """A metadata record contradicts those before it. No start can replay such a log, so the broker has to
    stop."""


class PartitionImage:
    """One partition (Kafka: `PartitionRegistration`)."""

    __slots__ = (
        "adding_replicas",
        "directories",
        "elr",
        "isr",
        "last_known_elr",
        "leader",
        "leader_epoch",
        "leader_recovery_state",
        "partition_epoch",
        "removing_replicas",
        "replicas",
    )

    def __init__(self, record: records.PartitionRecord) -> None:
        self.replicas = record.replicas
        self.isr = record.isr
        self.removing_replicas = record.removing_replicas
        self.adding_replicas = record.adding_replicas
        self.leader = record.leader
        self.leader_recovery_state = record.leader_recovery_state
        self.leader_epoch = record.leader_epoch
        self.partition_epoch = record.partition_epoch
        self.directories = record.directories
        self.elr = record.eligible_leader_replicas or []
        self.last_known_elr = record.last_known_elr or []

    def change(self, record: records.PartitionChangeRecord) -> None:
        """Apply a change. Null fields stay. A leader that is set, even −1, increments the leader epoch."""
        if record.isr is not None:
            self.isr = record.isr
        if record.leader != NO_LEADER_CHANGE:
            self.leader = record.leader
            self.leader_epoch += 1
        if record.replicas is not None:
            self.replicas = record.replicas
        if record.removing_replicas is not None:
            self.removing_replicas = record.removing_replicas
        if record.adding_replicas is not None:
            self.adding_replicas = record.adding_replicas
        if record.leader_recovery_state != -1:
            self.leader_recovery_state = record.leader_recovery_state
        if record.directories is not None:
            self.directories = record.directories
        if record.eligible_leader_replicas is not None:
            self.elr = record.eligible_leader_replicas
        if record.last_known_elr is not None:
            self.last_known_elr = record.last_known_elr
        self.partition_epoch += 1

    def copy(self) -> PartitionImage:
        """Return a copy. The lists are shared, as none is ever changed. Fields are copied by name, because
        there may be tens of thousands of partitions."""
        other = PartitionImage.__new__(PartitionImage)
        other.replicas = self.replicas
        other.isr = self.isr
        other.removing_replicas = self.removing_replicas
        other.adding_replicas = self.adding_replicas
        other.leader = self.leader
        other.leader_recovery_state = self.leader_recovery_state
        other.leader_epoch = self.leader_epoch
        other.partition_epoch = self.partition_epoch
        other.directories = self.directories
        other.elr = self.elr
        other.last_known_elr = self.last_known_elr
        return other


class TopicImage:
    """One topic: its id and its partitions by number."""

    __slots__ = ("name", "owner", "partitions", "topic_id")

    def __init__(self, name: str, topic_id: bytes, owner: object) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partitions: dict[int, PartitionImage] = {}
        self.owner = owner
        """The image that may change it. All others share it."""

    def copy(self, owner: object) -> TopicImage:
        """Return a copy that shares its partitions with this one."""
        other = TopicImage(self.name, self.topic_id, owner)
        other.partitions = {**self.partitions}
        return other


class TopicChanges(NamedTuple):
    """The changes of topics since the follower last looked (Kafka: `TopicsDelta`)."""

    touched: dict[str, None]  # names, in the order of the records, so that runs are repeatable
    removed: list[TopicImage]
    bygone: list[TopicImage]
    """Topics that were both created and removed since then: history, like everything that a start replays. A
    living topic may have the same name."""


class ClusterImage:
    """Everything that the metadata log says.

    An image and its copy share whatever neither has changed since, so a copy costs little. Before one changes
    a shared object, it makes its own copy.
    """

    def __init__(self) -> None:
        self._owner = object()  # of the topics that only this image has
        self._shares_partitions = False
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self._names_by_key: dict[
            str, tuple[str, ...]
        ] = {}  # of names that can collide (Kafka: topicsWithCollisionChars)
        self.configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.controllers: dict[int, records.RegisterControllerRecord] = {}
        self.next_producer_id = 0
        self.unclean_elections = 0
        """In the part of the log that was replayed."""
        self.kept = KeptRecords()
        self._changes = TopicChanges({}, [], [])  # since the last `take_changes`
        self._created: set[bytes] = set()  # ids of topics, since then
        self.broker_configs_changed = False
        self.client_metrics_changes = 0
        """How often subscriptions to client metrics have changed. Followers compare it with the number they
        last saw."""

    def copy(self) -> ClusterImage:
        """Return a copy that nobody follows."""
        other = ClusterImage()
        self._owner = object()
        self._shares_partitions = other._shares_partitions = True
        other.topics = {**self.topics}
        other.topics_by_id = {**self.topics_by_id}
        other._names_by_key = {**self._names_by_key}
        other.configs = {**self.configs}
        other.features = {**self.features}
        other.brokers = {broker_id: broker.copy() for broker_id, broker in self.brokers.items()}
        other.controllers = {**self.controllers}
        other.next_producer_id = self.next_producer_id
        other.unclean_elections = self.unclean_elections
        other.kept = self.kept.copy()
        return other

    def become(self, other: ClusterImage) -> None:
        """Take over the contents of another image, which nobody else uses. Followers of this one see all
        differences."""
        known, ids = self.topics_by_id, other.topics_by_id
        for topic in known.values():
            if topic.topic_id not in ids:
                self._note_removed(topic)
        self._created.update(ids.keys() - known.keys())
        self._owner, self._shares_partitions = other._owner, other._shares_partitions
        self.topics, self.topics_by_id, self._names_by_key = other.topics, ids, other._names_by_key
        self.configs, self.features = other.configs, other.features
        self.brokers, self.controllers = other.brokers, other.controllers
        self.next_producer_id = other.next_producer_id
        self.kept = other.kept
        self.kept.follow_anew()
        self._changes = self._changes._replace(touched=dict.fromkeys(self.topics))
        self.broker_configs_changed = True
        self.client_metrics_changes += 1

    def apply(self, record: Message) -> None:
        """Apply one record of the log."""
        replay = _REPLAY.get(type(record))
        if replay is None:
            raise MetadataContradictionError(f"a {type(record).__name__} in the metadata log")
        replay(self, record)

    def take_changes(self) -> TopicChanges:
        """Return the changes since the last call, for the partitions to follow."""
        changes, self._changes = self._changes, TopicChanges({}, [], [])
        self._created.clear()
        return changes

    def take_broker_config_change(self) -> bool:
        """True if settings of brokers changed since the last call."""
        changed, self.broker_configs_changed = self.broker_configs_changed, False
        return changed

    def forget_changes(self) -> None:
        """Drop all changes: nobody follows this image."""
        self.take_changes()
        self.broker_configs_changed = False
        self.kept.take_quota_change()
        self.kept.take_acl_changes()

    def topics_like(self, name: str) -> list[str]:
        """The names of topics that would collide with a topic of this name."""
        key = collision_key(name)
        return [] if key is None else [*self._names_by_key.get(key, ())]

    def partition_of(self, topic_id: bytes, index: int) -> PartitionImage | None:
        """Find a partition by its topic's id. None if there is no such topic or partition."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def config_of_topic(self, name: str) -> Mapping[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), {})

    # --- one function for each type of record ---------------------------------------------------------------

    def _topic(self, record: records.TopicRecord) -> None:
        if record.name in self.topics:
            raise MetadataContradictionError(f"topic {record.name} is created twice")
        if record.topic_id in self.topics_by_id:
            other = self.topics_by_id[record.topic_id].name
            raise MetadataContradictionError(f"topic {record.name} has the id of topic {other}")
        topic = TopicImage(record.name, record.topic_id, self._owner)
        self.topics[record.name] = topic
        self.topics_by_id[record.topic_id] = topic
        key = collision_key(record.name)
        if key is not None:
            self._names_by_key[key] = (*self._names_by_key.get(key, ()), record.name)
        self._changes.touched[record.name] = None
        self._created.add(record.topic_id)

    def _topic_of(self, topic_id: bytes) -> TopicImage:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise MetadataContradictionError(f"a record of the unknown topic id {topic_id.hex()}")
        return topic

    def _own(self, topic: TopicImage) -> TopicImage:
        """Replace a shared topic by a copy that this image may change."""
        own = self.topics[topic.name] = self.topics_by_id[topic.topic_id] = topic.copy(self._owner)
        return own

    def _partition(self, record: records.PartitionRecord) -> None:
        topic = self._topic_of(record.topic_id)
        if topic.owner is not self._owner:
            topic = self._own(topic)
        topic.partitions[record.partition_id] = PartitionImage(record)
        self._changes.touched[topic.name] = None

    def _partition_change(self, record: records.PartitionChangeRecord) -> None:
        topic = self._topic_of(record.topic_id)
        if topic.owner is not self._owner:
            topic = self._own(topic)
        partition = topic.partitions.get(record.partition_id)
        if partition is None:
            raise MetadataContradictionError(
                f"a change of the unknown partition {topic.name}-{record.partition_id}"
            )
        if self._shares_partitions:
            partition = topic.partitions[record.partition_id] = partition.copy()
        partition.change(record)
        self.unclean_elections += record.leader_recovery_state == RECOVERING
        self._changes.touched[topic.name] = None

    def _remove_topic(self, record: records.RemoveTopicRecord) -> None:
        topic = self._topic_of(record.topic_id)
        del self.topics_by_id[record.topic_id]
        del self.topics[topic.name]
        key = collision_key(topic.name)
        if key is not None:
            names = tuple(name for name in self._names_by_key[key] if name != topic.name)
            if names:
                self._names_by_key[key] = names
            else:
                del self._names_by_key[key]
        self.configs.pop((TOPIC_RESOURCE, topic.name), None)
        self._changes.touched.pop(topic.name, None)
        self._note_removed(topic)

    def _note_removed(self, topic: TopicImage) -> None:
        changes = self._changes
        (changes.bygone if topic.topic_id in self._created else changes.removed).append(topic)

    def _clear_elr(self, record: records.ClearElrRecord) -> None:
        if record.topic_name and record.topic_name not in self.topics:
            raise MetadataContradictionError(
                f"eligible leader replicas of the unknown topic {record.topic_name} are cleared"
            )
        topics = [self.topics[record.topic_name]] if record.topic_name else [*self.topics.values()]
        for topic in topics:
            own = topic if topic.owner is self._owner else self._own(topic)
            for index, partition in own.partitions.items():
                if self._shares_partitions:
                    partition = own.partitions[index] = partition.copy()
                partition.elr = []
                partition.last_known_elr = []

    def _config(self, record: records.ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        values = {**self.configs.get(key, {})}
        if record.value is None:
            values.pop(record.name, None)
        else:
            values[record.name] = record.value
        if values:
            self.configs[key] = values
        else:
            self.configs.pop(key, None)
        if record.resource_type == BROKER_RESOURCE:
            self.broker_configs_changed = True
        elif record.resource_type == CLIENT_METRICS_RESOURCE:
            self.client_metrics_changes += 1
        elif record.resource_type == TOPIC_RESOURCE and record.resource_name in self.topics:
            self._changes.touched[record.resource_name] = None

    def _feature_level(self, record: records.FeatureLevelRecord) -> None:
        """Set a feature's level. As in Kafka's controller, kraft.version has no effect here, and unsupported
        levels raise MetadataContradictionError."""
        if record.name == KRAFT_VERSION:
            return
        if not is_supported(record.name, record.feature_level):
            raise MetadataContradictionError(f"there is no {record.name} {record.feature_level}")
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level

    def _producer_ids(self, record: records.ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id

    def _register_broker(self, record: records.RegisterBrokerRecord) -> None:
        self.brokers[record.broker_id] = BrokerImage(record)

    def _unregister_broker(self, record: records.UnregisterBrokerRecord) -> None:
        self.brokers.pop(record.broker_id, None)

    def _broker_registration_change(self, record: records.BrokerRegistrationChangeRecord) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is None:
            raise MetadataContradictionError(f"a change of the unknown broker {record.broker_id}")
        if record.fenced != 0:
            broker.fenced = record.fenced > 0  # 1 fences, −1 unfences, 0 changes nothing
        if record.in_controlled_shutdown != 0:
            broker.in_controlled_shutdown = record.in_controlled_shutdown > 0
        if record.log_dirs:
            broker.log_dirs = record.log_dirs
        if record.cordoned_log_dirs is not None:
            broker.cordoned_log_dirs = record.cordoned_log_dirs

    def _fence_broker(self, record: records.FenceBrokerRecord) -> None:
        self._set_fenced(record.id, True)

    def _unfence_broker(self, record: records.UnfenceBrokerRecord) -> None:
        self._set_fenced(record.id, False)

    def _set_fenced(self, broker_id: int, fenced: bool) -> None:
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise MetadataContradictionError(f"a change of the unknown broker {broker_id}")
        broker.fenced = fenced

    def _register_controller(self, record: records.RegisterControllerRecord) -> None:
        self.controllers[record.controller_id] = record

    def _unregister_controller(self, record: records.UnregisterControllerRecord) -> None:
        if self.controllers.pop(record.controller_id, None) is None:
            raise MetadataContradictionError(f"controller {record.controller_id} isn't registered")

    def _keep(self, record: Message) -> None:
        self.kept.apply(record)

    def _of_no_effect(self, record: Message) -> None:
        """Do nothing for records that Kafka ignores, too."""


_REPLAY: dict[type[Message], Callable[[ClusterImage, Any], None]] = {
    records.TopicRecord: ClusterImage._topic,
    records.PartitionRecord: ClusterImage._partition,
    records.PartitionChangeRecord: ClusterImage._partition_change,
    records.RemoveTopicRecord: ClusterImage._remove_topic,
    records.ClearElrRecord: ClusterImage._clear_elr,
    records.ConfigRecord: ClusterImage._config,
    records.FeatureLevelRecord: ClusterImage._feature_level,
    records.ProducerIdsRecord: ClusterImage._producer_ids,
    records.RegisterBrokerRecord: ClusterImage._register_broker,
    records.UnregisterBrokerRecord: ClusterImage._unregister_broker,
    records.BrokerRegistrationChangeRecord: ClusterImage._broker_registration_change,
    records.FenceBrokerRecord: ClusterImage._fence_broker,
    records.UnfenceBrokerRecord: ClusterImage._unfence_broker,
    records.RegisterControllerRecord: ClusterImage._register_controller,
    records.UnregisterControllerRecord: ClusterImage._unregister_controller,
    records.ZkMigrationStateRecord: ClusterImage._of_no_effect,
    records.NoOpRecord: ClusterImage._of_no_effect,
    **dict.fromkeys(KEPT, ClusterImage._keep),
}


# --------------------------------------------------------------------------------------------------------------
# The cluster as clients of one listener see it: its brokers, leaders and offline replicas.
#
# Source: `KRaftMetadataCache`.


class ListenerView:
    """The brokers that were registered when this was made."""

    __slots__ = ("_reachable", "_registered", "nodes")

    def __init__(self, image: ClusterImage, listener_name: str) -> None:
        self.nodes: dict[int, BrokerNode] = {}
        """The brokers that advertise the listener, including fenced ones, by id. Kafka has them in a hash
        map, which iterates in order of ids unless these are far apart."""
        self._registered = frozenset(image.brokers)
        self._reachable: dict[int, BrokerImage] = {}
        for node_id, broker in sorted(image.brokers.items()):
            node = broker.node(listener_name)
            if node is not None:
                self.nodes[node_id] = node
                if not broker.fenced:
                    self._reachable[node_id] = broker

    def alive_nodes(self) -> list[BrokerNode]:
        """The brokers that a client may connect to."""
        return [self.nodes[node_id] for node_id in self._reachable]

    def leader(self, partition: PartitionImage) -> int:
        """The partition's leader. NO_LEADER if it has none, or if clients of the listener can't reach it."""
        return partition.leader if partition.leader in self.nodes else NO_LEADER

    def has_leader_elsewhere(self, partition: PartitionImage) -> bool:
        """True if the leader is registered, perhaps with other listeners only."""
        return partition.leader in self._registered

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """The replicas on brokers that are fenced, gone or not on the listener, and those whose directory is
        offline."""
        reachable, directories = self._reachable, partition.directories
        named = len(directories)
        return [
            replica
            for place, replica in enumerate(partition.replicas)
            if (broker := reachable.get(replica)) is None
            or not broker.has_online_dir(directories[place] if place < named else MIGRATING)
        ]

    def reachable(self, node_ids: Sequence[int]) -> list[int]:
        """The given brokers that are alive and on the listener."""
        return [node_id for node_id in node_ids if node_id in self._reachable]


def alive_node(image: ClusterImage, node_id: int, listener_name: str) -> BrokerNode | None:
    """Find one broker. None if it isn't alive or doesn't advertise the listener."""
    broker = image.brokers.get(node_id)
    return None if broker is None or broker.fenced else broker.node(listener_name)
