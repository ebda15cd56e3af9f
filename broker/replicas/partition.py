"""A topic and its partitions on this node (Kafka: `Partition`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.replicas.leader import Leader
from broker.replicas.replica import NO_LEADER_EPOCH, Follower, WaitingFetches
from protocol.errors import Error, KafkaError
from protocol.records.checks import RecordRules
from protocol.wire.primitives import uuid_to_text
from storage.directory import future_log_copying
from storage.log.log_config import LogConfig

if TYPE_CHECKING:
    from broker.controller.image import PartitionImage
    from broker.disks.log_dirs import LogDirMove
    from broker.replicas.in_sync_replicas import Replication
    from coordinator.commit_waiters import Failed
    from storage.directory.log_directory import LogDirectory
    from storage.log.partition_log import PartitionLog


class Partition:
    """A partition with a replica on this node, in the role that the metadata assigns to it."""

    __slots__ = (
        "_failed",
        "_partition_epoch",
        "directory",
        "index",
        "is_being_loaded",
        "is_gone",
        "log",
        "move",
        "role",
        "topic",
        "waiting",
    )

    def __init__(
        self, topic: HostedTopic, index: int, log: PartitionLog, directory: LogDirectory, failed: Failed
    ) -> None:
        """`failed` gets a broken invariant that a callback for a commit raised."""
        self.topic = topic
        self.directory = directory
        self.index = index
        self.log = log
        self.move: LogDirMove | None = None
        self.is_gone = False
        self.is_being_loaded = False
        self.waiting = WaitingFetches()
        self.role: Leader | Follower = Follower(log, self.waiting)
        self._partition_epoch: int | None = None
        self._failed = failed
        self.configure(topic.config)

    @property
    def leader_id(self) -> int:
        return self.role.leader_id

    @property
    def leader_epoch(self) -> int:
        return self.role.leader_epoch

    def leader(self) -> Leader:
        """The leader's role. Raises KafkaError (NOT_LEADER_OR_FOLLOWER) if this node doesn't lead the
        partition."""
        role = self.role
        if role.__class__ is Leader:
            return role
        raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER)

    @property
    def is_replicated(self) -> bool:
        """True if this node leads the partition, and other nodes have or had replicas of it."""
        role = self.role
        return isinstance(role, Leader) and role.replicas is not None

    @property
    def may_be_rewritten(self) -> bool:
        """True if its segments may be rewritten now."""
        log = self.log
        return (
            not self.is_gone
            and not self.is_being_loaded
            and self.move is None
            and log.open_hole is None
            and log.created
            and not log.closed
            and log.failure is None
            and log.cleaning is None
            and log.replacement is None
        )

    def configure(self, config: LogConfig) -> None:
        if self.log.config.compacts and not config.compacts:
            self.log.end_cleaning()  # once it isn't compacted any more, it keeps all its records
        self.log.config = config
        if self.move is not None:
            self.move.log.config = future_log_copying.config_of_future(config)
        self.log.verifies_transactions = config.transaction_partition_verification_enable
        if isinstance(self.role, Leader):
            self.role.configured()

    def replace_log(self, log: PartitionLog, directory: LogDirectory) -> None:
        """Switch to the future log: the partition has moved to another directory.

        Those who waited for the old log's syncs learn what the new one has synced, now that everyone finds
        the new one.
        """
        role = self.role
        self.log = role.log = log
        self.directory = directory
        self.move = None
        self.configure(self.topic.config)
        log.tell_flushed()
        if isinstance(role, Leader):
            role.advance()
            role.recheck_deletions()

    @property
    def low_watermark(self) -> int:
        """The low watermark: the lowest log start of the replicas on live brokers and of the future log,
        which will become the log (Kafka: `lowWatermarkIfLeader`). Raises KafkaError if this node doesn't lead
        the partition."""
        start = self.leader().low_watermark
        return start if self.move is None else min(start, self.move.log.log_start_offset)

    def recheck_deletions(self) -> None:
        """Check deletions that wait: the low watermark may have risen."""
        role = self.role
        if isinstance(role, Leader):
            role.recheck_deletions()

    def check_leader_epoch(self, current_leader_epoch: int) -> None:
        """Raises KafkaError if a client knows an older leader epoch, or one that we don't know yet (KIP-320;
        Kafka: `Partition.checkCurrentLeaderEpoch`)."""
        leader_epoch = self.role.leader_epoch
        if current_leader_epoch not in (NO_LEADER_EPOCH, leader_epoch):
            if current_leader_epoch < leader_epoch:
                raise KafkaError(Error.FENCED_LEADER_EPOCH)
            raise KafkaError(Error.UNKNOWN_LEADER_EPOCH)

    def follow(self, node_id: int, wanted: PartitionImage) -> None:
        """Take the role that the metadata assigns (Kafka: `Partition.makeLeader`, `makeFollower`)."""
        if wanted.partition_epoch == self._partition_epoch:
            return
        role = self.role
        if wanted.leader == node_id:
            if not isinstance(role, Leader):
                role = Leader(node_id, self.log, self.waiting, self._failed)
            if len(wanted.replicas) > 1:
                role.begin_replication((self.topic.topic_id, self.index), self.topic.replication)
            self.log.accept_hole()
            role.lead(wanted.leader_epoch, wanted.partition_epoch, wanted.replicas, wanted.isr)
            self._take(role)
        else:
            leader_id, leader_epoch = wanted.leader, wanted.leader_epoch
            self._take(Follower(self.log, self.waiting, leader_id, leader_epoch, self._log_start_moved))
        self._partition_epoch = wanted.partition_epoch

    def _log_start_moved(self) -> None:
        self.directory.log_start_moved()

    def give_up(self, error: Error) -> None:
        """Give the partition up: it was deleted (NOT_LEADER_OR_FOLLOWER), or its disk failed
        (KAFKA_STORAGE_ERROR)."""
        self.is_gone = True
        self._take(Follower(self.log, self.waiting, leader_epoch=self.role.leader_epoch), error)

    def _take(self, role: Leader | Follower, lost_because: Error = Error.NOT_LEADER_OR_FOLLOWER) -> None:
        before, self.role = self.role, role
        if isinstance(before, Follower):
            before.is_over = True
        elif before is not role:
            before.resign(KafkaError(lost_because))
        if self.waiting:
            self.waiting.wake()


class HostedTopic:
    """A topic with its partitions on this node, and its settings in the forms that the code uses.

    `offline` partitions are in a log directory that can't be used. `to_open` couldn't be opened and will be
    tried again. `elsewhere` are on other nodes.
    """

    __slots__ = (
        "config",
        "elsewhere",
        "is_internal",
        "name",
        "offline",
        "partitions",
        "replication",
        "rules",
        "to_open",
        "topic_id",
        "topic_id_text",
    )

    def __init__(self, name: str, topic_id: bytes, is_internal: bool, replication: Replication) -> None:
        self.name = name
        self.replication = replication
        self.topic_id = topic_id
        self.topic_id_text = uuid_to_text(topic_id)
        self.is_internal = is_internal
        self.partitions: dict[int, Partition] = {}
        self.offline: set[int] = set()
        self.to_open: set[int] = set()
        self.elsewhere: set[int] = set()
        self.configure(LogConfig())

    def configure(self, config: LogConfig) -> None:
        """Apply settings, from the next append on."""
        self.config = config
        self.rules = RecordRules(
            max_message_bytes=config.max_message_bytes,
            max_decompressed_message_bytes=config.max_decompressed_message_bytes,
            message_timestamp_type=config.message_timestamp_type,
            before_max_ms=config.message_timestamp_before_max_ms,
            after_max_ms=config.message_timestamp_after_max_ms,
            compacted="compact" in config.cleanup_policy,
            compression_type=config.compression_type,
            compression_level=_compression_level(config),
        )
        for partition in self.partitions.values():
            partition.configure(config)

    def missing(self, index: int) -> Error:
        """The error for a partition that isn't among `partitions` (Kafka:
        `ReplicaManager.getPartitionOrError`)."""
        if index in self.offline or index in self.to_open:
            return Error.KAFKA_STORAGE_ERROR
        return Error.NOT_LEADER_OR_FOLLOWER if index in self.elsewhere else Error.UNKNOWN_TOPIC_OR_PARTITION


def _compression_level(config: LogConfig) -> int | None:
    """The level for compressing batches anew, or None for the codec's default."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    level = levels.get(config.compression_type)
    return None if config.compression_type == "gzip" and level == -1 else level
