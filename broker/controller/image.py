"""The cluster's metadata as the records of `__cluster_metadata-0` make it.

`ClusterImage.apply` is the only way that the metadata changes: a running broker applies a record once it is committed,
a starting one replays the log through the same function (Kafka: `MetadataDelta.replay`); with a snapshot that comes
from the leader another image takes the place of all (`become`). A record that contradicts what is there raises
`MetadataContradictionError`: such a log was not written by Kafka or by us.
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
    """Why a topic can't have this name; None where it can."""
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
    """Two names with the same key would have the same metric names: Kafka allows one of them. None for a name that
    collides with no other."""
    return name.replace(".", "_") if "." in name or "_" in name else None


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS


# --- Ids that stand for no log directory in particular (Kafka: `DirectoryId`; KIP-858) ----------------------

MIGRATING = bytes(16)
"""The broker has chosen a directory before records could say which."""

UNASSIGNED = bytes(15) + b"\x01"
"""The broker is yet to choose one, and will tell the controller."""

LOST = bytes(15) + b"\x02"
"""One that is offline, whichever it is."""


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
        """Whether it can be in sync and lead (Kafka: `ClusterControlManager.isActive`)."""
        return not (self.fenced or self.in_controlled_shutdown)

    def node(self, listener_name: str) -> BrokerNode | None:
        """None where it isn't advertised to clients of the listener."""
        record = self.record
        for endpoint in record.end_points:
            if endpoint.name == listener_name:
                return BrokerNode(record.broker_id, endpoint.host, endpoint.port, record.rack, self.fenced)
        return None

    def has_online_dir(self, directory_id: bytes) -> bool:
        """Whether it can have what is said to be in the directory. One that has registered none, by a metadata.version
        that knows of none, has any (Kafka: `DirectoryId.isOnline`)."""
        if directory_id in (UNASSIGNED, MIGRATING):
            return True
        return directory_id != LOST and (not self.log_dirs or directory_id in self.log_dirs)

    def copy(self) -> BrokerImage:
        """Another one that says the same."""
        other = BrokerImage(self.record)
        other.broker_epoch = self.broker_epoch
        other.fenced = self.fenced
        other.in_controlled_shutdown = self.in_controlled_shutdown
        other.log_dirs = self.log_dirs
        other.cordoned_log_dirs = self.cordoned_log_dirs
        return other


# --- Records that are held as they are, and that a snapshot must write out again ----------------------------
#
# The newest record of each identity is held. Source: Kafka's ClientQuotasImage, ScramImage, AclsImage,
# DelegationTokenImage.


def _quota(record: records.ClientQuotaRecord) -> Hashable:
    return frozenset((part.entity_type, part.entity_name) for part in record.entity), record.key


# In the order in which a snapshot has them.
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
"""That are held for whoever follows them; past that, all are gone through."""


class KeptRecords:
    """The records in force, by type and identity; `acls` has the ids by what the records say."""

    __slots__ = ("_acl_changes", "_by_type", "_quotas_changed", "acls")

    def __init__(self) -> None:
        self._quotas_changed = False
        self._acl_changes: list[tuple[Acl, bool]] | None = None
        self._by_type: dict[type[Message], dict[Hashable, Message]] = {
            record_type: {} for record_type in _IDENTITIES
        }
        self.acls: dict[Acl, bytes] = {}

    def copy(self) -> KeptRecords:
        """Another one that holds the same."""
        other = KeptRecords()
        other._by_type = {record_type: {**held} for record_type, held in self._by_type.items()}
        other.acls = {**self.acls}
        return other

    def follow_anew(self) -> None:
        """Quotas and ACLs may be others than whoever follows them knows."""
        self._quotas_changed = True
        self._acl_changes = None

    def apply(self, record: Message) -> None:
        """Hold a record in place of an earlier one of its identity, or drop the one that it removes."""
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
        if self.acls.get(acl) == record.id:  # else another id says the same, as no controller would write
            del self.acls[acl]
            self._acl_changed(acl, is_there=False)

    def _acl_changed(self, acl: Acl, *, is_there: bool) -> None:
        changes = self._acl_changes
        if changes is not None:
            changes.append((acl, is_there))
            if len(changes) > MOST_ACL_CHANGES:
                self._acl_changes = None

    def take_acl_changes(self) -> list[tuple[Acl, bool]] | None:
        """The ACLs that came (True) and went since this was last asked, in order; None where all may be others."""
        changes, self._acl_changes = self._acl_changes, []
        return changes

    def take_quota_change(self) -> bool:
        """Whether there were records of quotas since this was last asked."""
        changed, self._quotas_changed = self._quotas_changed, False
        return changed

    def find(self, record_type: type[Message], identity: Hashable) -> Message | None:
        """The one of that identity."""
        return self._by_type[record_type].get(identity)

    def of_type(self, record_type: type[Message]) -> Iterator[Message]:
        """Those of one type."""
        return iter(self._by_type[record_type].values())


# --- The whole image ----------------------------------------------------------------------------------------

NO_LEADER = -1
RECOVERED, RECOVERING = 0, 1
"""LeaderRecoveryState: after an unclean election the leader is RECOVERING until it says that it no longer is."""
NO_LEADER_CHANGE = -2  # PartitionChangeRecord.leader where the leader stays

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
CLIENT_METRICS_RESOURCE = 16
GROUP_RESOURCE = 32


class MetadataContradictionError(BrokenInvariantError):
    """A metadata record that can't follow the ones before it: no start can replay the log, so nothing may go on."""


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
        """Fields that are null stay; a leader that is set, −1 included, adds one to the leader epoch."""
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
        """Another one that says the same. Lists are shared: none is ever changed. Each field by its name, since there
        may be tens of thousands of partitions."""
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
        """Who may change it; all others have it in common."""

    def copy(self, owner: object) -> TopicImage:
        """Another one that says the same. It has the partitions in common with this one."""
        other = TopicImage(self.name, self.topic_id, owner)
        other.partitions = {**self.partitions}
        return other


class TopicChanges(NamedTuple):
    """What became of topics since whoever follows the image last looked (Kafka: `TopicsDelta`)."""

    touched: dict[str, None]  # names, in the order of the records, so that a run can be repeated
    removed: list[TopicImage]
    bygone: list[TopicImage]
    """Made and removed since: history, as all that a start replays. Of such a name there may be a living one."""


class ClusterImage:
    """Everything that the metadata log says.

    An image and its copy have in common what neither has changed since, so that a copy costs little: of what is in
    common, the one that changes it makes another first.
    """

    def __init__(self) -> None:
        self._owner = object()  # of the topics that this image alone has
        self._shares_partitions = False
        self.topics: dict[str, TopicImage] = {}
        self.topics_by_id: dict[bytes, TopicImage] = {}
        self._names_by_key: dict[
            str, tuple[str, ...]
        ] = {}  # those that can collide (Kafka: topicsWithCollisionChars)
        self.configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self.features: dict[str, int] = {}
        self.brokers: dict[int, BrokerImage] = {}
        self.controllers: dict[int, records.RegisterControllerRecord] = {}
        self.next_producer_id = 0
        self.unclean_elections = 0
        """As far back as the log was replayed."""
        self.kept = KeptRecords()
        self._changes = TopicChanges({}, [], [])  # since the last `take_changes`
        self._created: set[bytes] = set()  # topics, by id, since then
        self.broker_configs_changed = False
        self.client_metrics_changes = 0
        """Of subscriptions to clients' metrics: who follows these looks at them when this is another number."""

    def copy(self) -> ClusterImage:
        """Another one that says the same, and that nobody follows."""
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
        """Say what the other one says, which nobody else has; whoever follows this one finds all that differs."""
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
        """Change the image by one record of the log."""
        replay = _REPLAY.get(type(record))
        if replay is None:
            raise MetadataContradictionError(f"a {type(record).__name__} in the metadata log")
        replay(self, record)

    def take_changes(self) -> TopicChanges:
        """Since the last call: what the partitions follow."""
        changes, self._changes = self._changes, TopicChanges({}, [], [])
        self._created.clear()
        return changes

    def take_broker_config_change(self) -> bool:
        """Whether settings of brokers changed since the last call."""
        changed, self.broker_configs_changed = self.broker_configs_changed, False
        return changed

    def forget_changes(self) -> None:
        """Nobody follows this image."""
        self.take_changes()
        self.broker_configs_changed = False
        self.kept.take_quota_change()
        self.kept.take_acl_changes()

    def topics_like(self, name: str) -> list[str]:
        """The names of the topics that one of this name would collide with."""
        key = collision_key(name)
        return [] if key is None else [*self._names_by_key.get(key, ())]

    def partition_of(self, topic_id: bytes, index: int) -> PartitionImage | None:
        """By the topic's id; None where there is no such topic or partition."""
        topic = self.topics_by_id.get(topic_id)
        return None if topic is None else topic.partitions.get(index)

    def config_of_topic(self, name: str) -> Mapping[str, str]:
        return self.configs.get((TOPIC_RESOURCE, name), {})

    # --- one function a record ------------------------------------------------------------------------------

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
        """The topic, which others have too, as one that may be changed here."""
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
        """Kafka's controller, too, passes over kraft.version, and fails on what it doesn't support."""
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
            broker.fenced = record.fenced > 0  # 1 fences, −1 lifts the fence, 0 leaves it
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
        """Records that Kafka passes over, too."""


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
# The cluster as clients of one listener are told of it: who is there, who leads, which replicas are
# offline.
#
# Source: `KRaftMetadataCache`.


class ListenerView:
    """Of the brokers as they are registered when this is made."""

    __slots__ = ("_reachable", "_registered", "nodes")

    def __init__(self, image: ClusterImage, listener_name: str) -> None:
        self.nodes: dict[int, BrokerNode] = {}
        """Those that are advertised to clients of the listener, fenced ones among them, by id: Kafka has them in a hash
        map, whose order is that of ids where they aren't far apart."""
        self._registered = frozenset(image.brokers)
        self._reachable: dict[int, BrokerImage] = {}
        for node_id, broker in sorted(image.brokers.items()):
            node = broker.node(listener_name)
            if node is not None:
                self.nodes[node_id] = node
                if not broker.fenced:
                    self._reachable[node_id] = broker

    def alive_nodes(self) -> list[BrokerNode]:
        """Those that a client may connect to."""
        return [self.nodes[node_id] for node_id in self._reachable]

    def leader(self, partition: PartitionImage) -> int:
        """NO_LEADER where nobody leads it, and where clients of the listener can't find who does."""
        return partition.leader if partition.leader in self.nodes else NO_LEADER

    def has_leader_elsewhere(self, partition: PartitionImage) -> bool:
        """Whether the leader is registered, with other listeners perhaps."""
        return partition.leader in self._registered

    def offline_replicas(self, partition: PartitionImage) -> list[int]:
        """Of brokers that are fenced, gone or not to be found by the listener, or whose directory is offline."""
        reachable, directories = self._reachable, partition.directories
        named = len(directories)
        return [
            replica
            for place, replica in enumerate(partition.replicas)
            if (broker := reachable.get(replica)) is None
            or not broker.has_online_dir(directories[place] if place < named else MIGRATING)
        ]

    def reachable(self, node_ids: Sequence[int]) -> list[int]:
        """Those among them that are alive and to be found by the listener."""
        return [node_id for node_id in node_ids if node_id in self._reachable]


def alive_node(image: ClusterImage, node_id: int, listener_name: str) -> BrokerNode | None:
    """One broker; None where it isn't alive, or isn't advertised to clients of the listener."""
    broker = image.brokers.get(node_id)
    return None if broker is None or broker.fenced else broker.node(listener_name)
