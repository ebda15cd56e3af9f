"""Requests that the controller decides: topics, settings, quotas, credentials; and log directories."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from protocol.messages.cluster_admin import (
    AlterPartitionReassignmentsRequest,
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
    ElectLeadersRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from protocol.messages.configs import (
    AlterableConfig,
    AlterClientQuotasRequest,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterEntryData,
    EntityData,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    OpData,
)
from protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from tests.simulation.restarts.wishes import MOST_PARTITIONS, Wish, Wishes, wish

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32
SET, DELETE = 0, 1
USERS = ("u", "v")
SETTINGS = {
    "retention.ms": ("-1", "90000000000"),
    "retention.bytes": ("-1", "1000000000"),
    "flush.messages": ("1", "10000"),
    "max.message.bytes": ("100000", "1000000"),
    "segment.bytes": ("1048576", "2097152"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "min.insync.replicas": ("1",),
}
OF_BROKERS = {
    "log.retention.ms": ("90000000000",),
    "message.max.bytes": ("900000",),
    "log.flush.interval.messages": ("5", "1000"),
    "follower.replication.throttled.rate": ("100000000",),
    "max.connections.per.ip.overrides": ("127.0.0.1:500",),
}
OF_GROUPS = {
    "share.auto.offset.reset": ("earliest", "latest"),
    "consumer.session.timeout.ms": ("50000", "55000"),
    "share.record.lock.duration.ms": ("20000", "30000"),
    "streams.num.standby.replicas": ("0", "1"),
}
OF_CLIENT_METRICS = {"interval.ms": ("1000", "60000"), "metrics": ("*", "org.apache.kafka.producer.")}


class MetadataWishes(Wishes):
    def made(self) -> Sequence[tuple[int, Callable[[], Wish]]]:
        several = len(self.nodes.broker_ids) > 1
        return (
            (12, self._create),
            (6, self._delete),
            (2, self._add_partitions),
            (5, self._alter_configs),
            (1, self._replace_configs),
            (2, self._alter_quotas),
            (2, self._alter_credentials),
            (2, self._move_between_directories),
            (1, self._elect),
            (2 if several else 0, self._reassign),
        )

    def _create(self) -> Wish:
        name, luck = self.missing_topic, self.luck
        settings = {
            key: luck.choice(SETTINGS[key]) for key in luck.sample([*SETTINGS], luck.choice((0, 0, 1, 3)))
        }
        topic = CreatableTopic(
            name=name,
            num_partitions=luck.randint(1, MOST_PARTITIONS),
            replication_factor=luck.randint(1, len(self.nodes.broker_ids)),
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        return wish("create", lambda: self.nodes.ask(request, 7), name)

    def _delete(self) -> Wish:
        name = self.topic

        async def by_id() -> None:
            known = (await self.nodes.topics()).get(name)
            if known is not None:
                state = DeleteTopicState(name=None, topic_id=known.topic_id)
                await self.nodes.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6)

        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000)
        is_by_id = self.luck.random() < 0.3
        # a share group's states go with it, and its members' assignments change
        words = (name, "group", "transaction")
        return wish("delete", by_id if is_by_id else lambda: self.nodes.ask(request, 5), *words)

    def _add_partitions(self) -> Wish:
        name = self.topic
        topic = CreatePartitionsTopic(
            name=name, count=self.luck.randint(2, MOST_PARTITIONS), assignments=None
        )
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
        return wish("add partitions", lambda: self.nodes.ask(request, 3), name, "group")

    def _resource(self) -> tuple[int, str, dict[str, tuple[str, ...]]]:
        broker = str(self.luck.choice(self.nodes.broker_ids))
        return self.luck.choice(
            (
                (TOPIC, self.topic, SETTINGS),
                (TOPIC, self.topic, SETTINGS),
                (BROKER, "", OF_BROKERS),
                (BROKER, broker, OF_BROKERS),
                (GROUP, self.luck.choice(("k", "s", "w")), OF_GROUPS),
                (CLIENT_METRICS, "m", OF_CLIENT_METRICS),
            )
        )

    def _alter_configs(self) -> Wish:
        kind, name, settings = self._resource()
        key = self.luck.choice([*settings])
        delete = self.luck.random() < 0.3
        config = IncrementalAlterableConfig(
            name=key,
            config_operation=DELETE if delete else SET,
            value=None if delete else self.luck.choice(settings[key]),
        )
        resource = IncrementalAlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        of_brokers = ("configs",) if kind == BROKER else ()
        return wish("alter", lambda: self._of_resource(request, 1, kind, name), name, *of_brokers)

    async def _of_resource(self, request: object, version: int, kind: int, name: str) -> None:
        """Alter a resource's settings. A broker's settings have to go to that broker."""
        await self.nodes.ask(request, version, int(name) if kind == BROKER and name else None)

    def _replace_configs(self) -> Wish:
        kind, name, settings = self._resource()
        chosen = self.luck.sample([*settings], self.luck.randint(0, 2))
        configs = [AlterableConfig(name=key, value=self.luck.choice(settings[key])) for key in chosen]
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
        request = AlterConfigsRequest(resources=[resource])
        of_brokers = ("configs",) if kind == BROKER else ()
        return wish("replace", lambda: self._of_resource(request, 2, kind, name), name, *of_brokers)

    def _alter_quotas(self) -> Wish:
        luck = self.luck
        kinds = luck.choice((("user",), ("client-id",), ("user", "client-id")))
        entity = [EntityData(entity_type=kind, entity_name=luck.choice((*USERS, None))) for kind in kinds]
        key = luck.choice(("producer_byte_rate", "consumer_byte_rate", "request_percentage"))
        value = luck.choice((1e9, 2e9))
        op = OpData(key=key, value=value, remove=luck.random() < 0.3)
        request = AlterClientQuotasRequest(entries=[AlterEntryData(entity=entity, ops=[op])])
        return wish("quotas", lambda: self.nodes.ask(request, 1), "quotas")

    def _alter_credentials(self) -> Wish:
        luck, name = self.luck, self.luck.choice(USERS)
        request = AlterUserScramCredentialsRequest()
        mechanism = luck.choice((1, 2))
        if luck.random() < 0.4:
            request.deletions = [ScramCredentialDeletion(name=name, mechanism=mechanism)]
        else:
            upsertion = ScramCredentialUpsertion(
                name=name,
                mechanism=mechanism,
                iterations=luck.choice((4096, 8192)),
                salt=b"salt",
                salted_password=b"p" * (32 if mechanism == 1 else 64),
            )
            request.upsertions = [upsertion]
        return wish("credentials", lambda: self.nodes.ask(request, 0), name, "credentials")

    def _move_between_directories(self) -> Wish:
        (name, index), node_id = self.place, self.nodes.anyone
        path = self.luck.choice(self.nodes.log_dirs[node_id])
        topic = AlterReplicaLogDirTopic(name=name, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[topic])])
        return wish("move", lambda: self.nodes.ask(request, 2, node_id), name)

    def _elect(self) -> Wish:
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)
        return wish("elect", lambda: self.nodes.ask(request, 2))

    def _reassign(self) -> Wish:
        (name, index), luck, brokers = self.place, self.luck, self.nodes.broker_ids
        replicas = luck.sample(brokers, luck.randint(1, len(brokers)))
        partition = ReassignablePartition(partition_index=index, replicas=replicas)
        topic = ReassignableTopic(name=name, partitions=[partition])
        request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=10_000)
        return wish("reassign", lambda: self.nodes.ask(request, 1), name)
