"""What a node is in at one moment, and what it has counted, as families of metrics.

The names are those that jmx_exporter makes of Kafka's beans by the rules that Strimzi and most dashboards have, those
of kafka_exporter for topics, groups and lag, and `barnabas_…` for what neither has. Families are made in turns of the
loop, some partitions at a time. Source: Kafka's beans, by their classes in each section's heading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import Metric

from broker.controller.image import NO_LEADER
from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.replicas.leader import Leader
from coordinator.transaction.states import STATE_NAMES
from coordinator.transaction.statistics import EndedBy
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from broker.controller.metadata_log import MetadataLog
    from broker.coordination.coordinators import Coordinators
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Clock
    from broker.metrics.client_telemetry import ClientTelemetry
    from broker.metrics.request_metrics import RequestMetrics, TopicCounts
    from broker.network.listener import Listener
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from coordinator.transaction.statistics import Durations

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms."""

RUNNING = 3
"""Kafka: `BrokerState`."""


class Watched(Protocol):
    """What is looked at of every node."""

    node_id: int
    clock: Clock
    log_dirs: LogDirs
    metadata: MetadataLog

    @property
    def listeners(self) -> Mapping[str, Listener]: ...


class WatchedBroker(Watched, Protocol):
    """And of a broker."""

    partitions: Partitions
    coordinators: Coordinators
    telemetry: ClientTelemetry


class Families:
    """All families of one scrape, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Metric] = {}

    def all(self) -> list[Metric]:
        return [*self._by_name.values()]

    def add(self, family: Metric) -> None:
        self._by_name[family.name] = family

    def gauge(self, name: str, doc: str, value: float, **labels: str) -> None:
        self._family(name, doc, "gauge").add_sample(name, labels, value)

    def counter(self, name: str, doc: str, value: float, **labels: str) -> None:
        """`name` without its ending `_total`."""
        self._family(name, doc, "counter").add_sample(f"{name}_total", labels, value)

    def summary(self, name: str, doc: str, times: Durations, **labels: str) -> None:
        """Of what has `count`, `sum_ms` and the `last` durations."""
        family = self._family(name, doc, "summary")
        last = sorted(times.last)
        for quantile in QUANTILES if last else ():
            place = min(int(quantile * len(last)), len(last) - 1)
            family.add_sample(name, {**labels, "quantile": f"{quantile:g}"}, last[place])
        family.add_sample(f"{name}_count", labels, times.count)
        family.add_sample(f"{name}_sum", labels, times.sum_ms)

    def _family(self, name: str, doc: str, kind: str) -> Metric:
        family = self._by_name.get(name)
        if family is None:
            family = self._by_name[name] = Metric(name, doc, kind)
        return family


async def controller_metrics(node: Watched, requests: RequestMetrics) -> list[Metric]:
    """All families of a node that is a controller and no broker."""
    families = Families()
    pause = Pause()
    await _count_requests(families, requests, pause)
    _process(families, node)
    await _cluster(families, node, pause)
    return families.all()


async def broker_metrics(node: WatchedBroker, requests: RequestMetrics) -> list[Metric]:
    """All families of this moment. Others are served while it goes on."""
    families = Families()
    pause = Pause()
    await _count_requests(families, requests, pause)
    requests.forget_topics(node.metadata.image.topics.__contains__)
    await _count_topics(families, requests, pause)
    _process(families, node)
    await _partitions(families, node, pause)
    await _cluster(families, node, pause)
    await _transactions(families, node, pause)
    await _groups(families, node, pause)
    await _clients(families, node, pause)
    return families.all()


# --- Requests (`RequestMetrics`, `BrokerTopicMetrics`) ------------------------------------------------------------


async def _count_requests(families: Families, requests: RequestMetrics, pause: Pause) -> None:
    of_api: Final = "kafka_network_requestmetrics_"
    for (api, version), count in [*requests.requests.items()]:
        if pause.is_due():
            await turn()
        families.counter(
            of_api + "requests", "Requests, by API and version", count, request=api, version=str(version)
        )
    for (api, error), count in [*requests.errors.items()]:
        if pause.is_due():
            await turn()
        families.counter(
            of_api + "errors", "Errors in answers, NONE among them", count, request=api, error=error
        )
    for api, times in [*requests.times.items()]:
        if pause.is_due(3):
            await turn()
        families.summary(
            of_api + "totaltimems", "Milliseconds from a request to its answer", times, request=api
        )
    for api, count in [*requests.hung_up.items()]:
        families.counter("barnabas_requests_hung_up", "Requests whose client didn't wait", count, request=api)


_OF_TOPICS: Mapping[str, tuple[str, str]] = {
    "messages_in": ("messagesin", "Records that clients have produced"),
    "bytes_in": ("bytesin", "Bytes that clients have produced"),
    "bytes_out": ("bytesout", "Bytes that consumers have fetched"),
    "replication_bytes_out": ("replicationbytesout", "Bytes that followers have fetched"),
    "produces": ("totalproducerequests", "Produces, counted for each partition of a request"),
    "fetches": ("totalfetchrequests", "Fetches, counted for each partition of an answer"),
    "failed_produces": ("failedproducerequests", "Produces that were answered with an error"),
    "failed_fetches": ("failedfetchrequests", "Fetches that were answered with an error"),
}


async def _count_topics(families: Families, requests: RequestMetrics, pause: Pause) -> None:
    def add(counts: TopicCounts, **labels: str) -> None:
        for attribute, (name, doc) in _OF_TOPICS.items():
            value = getattr(counts, attribute)
            families.counter("kafka_server_brokertopicmetrics_" + name, doc, value, **labels)

    add(requests.all_topics)
    for topic, counts in [*requests.topics.items()]:
        if pause.is_due(len(_OF_TOPICS)):
            await turn()
        add(counts, topic=topic)


# --- The process (`KafkaServer`, `SocketServer`) ------------------------------------------------------------------


def _process(families: Families, node: Watched) -> None:
    families.gauge("kafka_server_kafkaserver_brokerstate", "3 while it runs", RUNNING)
    of_sockets: Final = "kafka_server_socket_server_metrics_"
    for listener in node.listeners.values():
        labels = {"listener": listener.name, "networkProcessor": "0"}
        families.gauge(
            of_sockets + "connection_count", "Connections that are open", len(listener.connections), **labels
        )
        families.counter(
            of_sockets + "connection_creation", "Connections that were made", listener.connected, **labels
        )
        families.counter(
            of_sockets + "failed_authentication",
            "Clients that TLS or SASL has refused",
            listener.failed_authentications,
            **labels,
        )
    offline = len(node.log_dirs.offline_paths)
    for family in ProcessCollector(registry=None).collect():
        families.add(family)
    families.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed", offline
    )


# --- Partitions (`Partition`, `ReplicaManager`, `UnifiedLog`) -----------------------------------------------------


async def _partitions(families: Families, node: WatchedBroker, pause: Pause) -> None:
    totals: Counter[str] = Counter()
    now_ms = node.clock.now_ms()
    for partition in node.partitions.all():
        if pause.is_due(10):
            await turn()
        if partition.is_gone:
            continue
        totals["partitioncount"] += 1
        labels = {"topic": partition.topic.name, "partition": str(partition.index)}
        _log(families, partition, labels)
        role = partition.role
        if isinstance(role, Leader):
            totals["leadercount"] += 1
            _led(families, role, totals, labels, now_ms)
    totals["offlinereplicacount"] = len(node.partitions.offline())
    for name, doc in {
        "partitioncount": "Replicas on this node",
        "leadercount": "Partitions that this node leads",
        "offlinereplicacount": "Replicas in log directories that have failed",
        "underreplicatedpartitions": "Led partitions with fewer replicas in sync than replicas",
        "underminisrpartitioncount": "Led partitions with fewer replicas in sync than min.insync.replicas",
        "atminisrpartitioncount": "Led partitions with as many replicas in sync as min.insync.replicas",
    }.items():
        families.gauge("kafka_server_replicamanager_" + name, doc, totals[name])


def _log(families: Families, partition: Partition, labels: Mapping[str, str]) -> None:
    log = partition.log
    of_log: Final = "kafka_log_log_"
    families.gauge(of_log + "size", "Bytes of a partition's log", log.size, **labels)
    families.gauge(of_log + "logstartoffset", "Its first offset", log.log_start_offset, **labels)
    families.gauge(of_log + "logendoffset", "The offset after its last", log.log_end_offset, **labels)
    families.gauge(of_log + "numlogsegments", "Its segments", len(log.base_offsets), **labels)


def _led(
    families: Families, role: Leader, totals: Counter[str], labels: Mapping[str, str], now_ms: int
) -> None:
    in_sync, least = len(role.isr), role.min_isr
    log = role.log
    is_under_replicated = in_sync < role.replica_count
    totals["underreplicatedpartitions"] += is_under_replicated
    totals["underminisrpartitioncount"] += in_sync < least
    totals["atminisrpartitioncount"] += in_sync == least
    of_partition: Final = "kafka_cluster_partition_"
    for name, doc, value in (
        ("replicascount", "Replicas", role.replica_count),
        ("insyncreplicascount", "Replicas in sync", in_sync),
        ("underreplicated", "1 where replicas lag behind", is_under_replicated),
        ("underminisr", "1 where too few are in sync for acks=all", in_sync < least),
        ("atminisr", "1 where one less in sync would be too few", in_sync == least),
        (
            "laststableoffsetlag",
            "High watermark less last stable offset",
            log.high_watermark - log.last_stable_offset,
        ),
    ):
        families.gauge(of_partition + name, doc, value, **labels)
    oldest = log.producers.oldest_open()
    if oldest is not None:
        age_s = max(0, now_ms - oldest.last_timestamp_ms) / 1000
        families.gauge(
            "barnabas_partition_oldest_open_transaction_idle_seconds",
            "Since the producer that holds the last stable offset wrote to the partition",
            age_s,
            **labels,
            producer_id=str(oldest.producer_id),
        )
    exporter: Final = "kafka_topic_partition_"
    for name, doc, value in (
        ("current_offset", "The high watermark", log.high_watermark),
        ("oldest_offset", "The first offset", log.log_start_offset),
        ("leader", "The leader's id", role.leader_id),
        ("replicas", "Replicas", role.replica_count),
        ("in_sync_replica", "Replicas in sync", in_sync),
        ("under_replicated_partition", "1 where replicas lag behind", is_under_replicated),
    ):
        families.gauge(exporter + name, doc, value, **labels)


# --- The cluster (`KafkaController`, `QuorumController`, `KafkaRaftMetrics`) --------------------------------------


async def _cluster(families: Families, node: Watched, pause: Pause) -> None:
    image, metadata = node.metadata.image, node.metadata
    of_controller: Final = "kafka_controller_kafkacontroller_"
    leads = metadata.is_leader
    families.gauge(of_controller + "activecontrollercount", "1 on the node that is the controller", leads)
    brokers = image.brokers.values()
    fenced = sum(broker.fenced for broker in brokers)
    offline = partitions = imbalanced = 0
    for topic in [*image.topics.values()]:
        if pause.is_due(1 + len(topic.partitions)):
            await turn()
        families.gauge(
            "kafka_topic_partitions", "Partitions of a topic", len(topic.partitions), topic=topic.name
        )
        for each in topic.partitions.values():
            partitions += 1
            offline += each.leader == NO_LEADER
            imbalanced += each.leader != each.replicas[0]
    families.gauge("kafka_brokers", "Brokers that are in the cluster", len(image.brokers) - fenced)
    if leads:
        for name, doc, value in (
            ("activebrokercount", "Brokers that aren't fenced", len(image.brokers) - fenced),
            ("fencedbrokercount", "Brokers that are fenced", fenced),
            ("globaltopiccount", "Topics", len(image.topics)),
            ("globalpartitioncount", "Partitions", partitions),
            ("offlinepartitionscount", "Partitions that nobody leads", offline),
            (
                "preferredreplicaimbalancecount",
                "Partitions that their first replica doesn't lead",
                imbalanced,
            ),
        ):
            families.gauge(of_controller + name, doc, value)
    of_raft: Final = "kafka_server_raftmetrics_"
    families.gauge(of_raft + "current_epoch", "Of the metadata quorum", metadata.epoch)
    families.gauge(
        of_raft + "current_leader",
        "Its leader's id, -1 where another node leads",
        node.node_id if leads else -1,
    )
    families.gauge(
        of_raft + "high_watermark", "The metadata log, as far as it is committed", metadata.log.high_watermark
    )
    families.gauge(of_raft + "log_end_offset", "The metadata log's end", metadata.log.log_end_offset)


# --- Transactions -------------------------------------------------------------------------------------------------


async def _transactions(families: Families, node: WatchedBroker, pause: Pause) -> None:
    now_ms = node.clock.now_ms()
    by_state: Counter[str] = Counter()
    pending = oldest_ms = waiting_markers = 0
    for shard in node.coordinators.transactions.hosted.readable():
        for metadata in [*shard.transactions.values()]:
            if pause.is_due():
                await turn()
            by_state[STATE_NAMES[metadata.state]] += 1
            pending += metadata.pending_state is not None
            if STATE_NAMES[metadata.state] == "Ongoing":
                oldest_ms = max(oldest_ms, now_ms - metadata.start_timestamp_ms)
        waiting_markers += sum(len(each.metadata.partitions) for each in shard.completions.values())
    for name in STATE_NAMES.values():
        families.gauge("barnabas_transactions", "Transactional ids by state", by_state[name], state=name)
    families.gauge("barnabas_transactions_pending", "Those that are between two states", pending)
    families.gauge(
        "barnabas_transactions_oldest_open_seconds", "Age of the oldest that is Ongoing", oldest_ms / 1000
    )
    families.gauge(
        "barnabas_transactions_markers_waiting", "Markers that are under way, or retried", waiting_markers
    )
    statistics = node.coordinators.transactions.statistics
    for ended_by, count in statistics.ended.items():
        families.counter(
            "barnabas_transactions_ended",
            "Transactions whose outcome is logged",
            count,
            outcome="commit" if ended_by is EndedBy.COMMITTED else "abort",
            reason=ended_by.name.lower(),
        )
    families.counter(
        "barnabas_transactions_markers_retried", "Markers sent again", statistics.retried_markers
    )
    families.counter(
        "barnabas_transactions_given_up", "Completions left to the next coordinator", statistics.given_up
    )
    families.summary(
        "barnabas_transactions_duration_ms", "From the first partition to the end", statistics.durations
    )
    families.summary("barnabas_transactions_fan_out_ms", "From Prepare* to Complete*", statistics.fan_outs)


# --- Groups (`GroupMetadataManager`; kafka_exporter) --------------------------------------------------------------


async def _groups(families: Families, node: WatchedBroker, pause: Pause) -> None:
    by_state: Counter[tuple[str, str]] = Counter()
    for shard in node.coordinators.groups.hosted.readable():
        for group in shard.groups.all_with_offsets():
            if pause.is_due(5):
                await turn()
            listed = group.listed()
            by_state[listed.group_type, listed.group_state] += 1
            families.gauge(
                "kafka_consumergroup_members",
                "Members of a group",
                group.member_count,
                consumergroup=group.group_id,
            )
            committed = [
                (topic, index, each.offset)
                for topic, partitions in shard.offsets.of_group(group.group_id).items()
                for index, each in partitions.items()
            ]
            for topic, index, offset in committed:
                if pause.is_due(5):
                    await turn()
                _committed(families, node, group.group_id, topic, index, offset)
    for (group_type, state), count in by_state.items():
        families.gauge("barnabas_groups", "Groups", count, type=group_type, state=state)
    families.gauge("kafka_coordinator_group_groupmetadatamanager_numgroups", "Groups", sum(by_state.values()))
    for name, topic in (("groups", OFFSETS_TOPIC), ("transactions", TRANSACTION_TOPIC)):
        loading = node.coordinators.hosted[topic].is_loading
        families.gauge("barnabas_coordinator_loading", "1 while a shard is being loaded", loading, of=name)


def _committed(
    families: Families, node: WatchedBroker, group_id: str, topic: str, index: int, offset: int
) -> None:
    labels = {"consumergroup": group_id, "topic": topic, "partition": str(index)}
    families.gauge("kafka_consumergroup_current_offset", "What a group has committed", offset, **labels)
    lag = _lag(node, topic, index, offset)
    if lag is not None:
        families.gauge(
            "kafka_consumergroup_lag",
            "What it hasn't consumed yet, of partitions that this node leads",
            lag,
            **labels,
        )


def _lag(node: WatchedBroker, topic: str, index: int, committed: int) -> int | None:
    """Up to the high watermark, as kafka-consumer-groups has it; None where another node leads the partition."""
    partition = node.partitions.find(topic, index)
    if partition is None or not isinstance(partition.role, Leader):
        return None
    return max(0, partition.log.high_watermark - committed)


# --- What clients have pushed (KIP-714) ---------------------------------------------------------------------------

_KAFKAS = "org.apache.kafka."
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]+")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


async def _clients(families: Families, node: WatchedBroker, pause: Pause) -> None:
    """By the names of OpenTelemetry, as Prometheus can have them: `org.apache.kafka.producer.record.send.rate` is
    `kafka_client_producer_record_send_rate`.

    The names are the clients': an attribute whose name can't be a label is left out, and of two series that have the
    same name here the first stands. Else one client could spoil the page for all.
    """
    for client, series in node.telemetry.pushed():
        labels = {name: client[name] for name in ("client_id", "client_instance_id", "client_software_name")}
        told = set()
        for (name, attributes), value in [*series.items()]:
            if pause.is_due(3):
                await turn()
            family = "kafka_client_" + _NO_NAME.sub("_", name.removeprefix(_KAFKAS))
            said = {
                label: text for key, text in attributes if _LABEL.fullmatch(label := _NO_NAME.sub("_", key))
            }
            said |= labels
            identity = (family, frozenset(said.items()))
            if identity not in told:
                told.add(identity)
                families.gauge(family, "As the client has pushed it", value, **said)
