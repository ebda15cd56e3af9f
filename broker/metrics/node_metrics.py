"""A node's state at one moment, and its counts, as families of metrics.

The names are those that jmx_exporter makes from Kafka's beans, by the rules of Strimzi and most dashboards; those of
kafka_exporter for topics, groups and lag; and `barnabas_…` for the rest. Families are made in turns of the loop, some
partitions at a time. Source: Kafka's beans, whose classes are in each section's heading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import ProcessCollector

from broker.controller.image import NO_LEADER
from broker.coordination.groups import OFFSETS_TOPIC
from broker.coordination.share_states import SHARE_STATE_TOPIC
from broker.coordination.transactions import TRANSACTION_TOPIC
from broker.metrics.client_telemetry import KAFKAS_NAMES
from broker.metrics.families import Families
from broker.metrics.group_metrics import WatchedGroups, count_groups
from broker.metrics.request_metrics import TopicCounts
from broker.replicas.leader import Leader
from broker.security.node_authorizer import denials_of
from coordinator.ports import EndedBy
from coordinator.transaction.states import STATE_NAMES
from protocol.errors import KafkaError, error_name
from protocol.waiting import Pause, turn

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from broker.controller.metadata_log import MetadataLog
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Clock
    from broker.metrics.client_telemetry import ClientTelemetry
    from broker.metrics.request_metrics import RequestMetrics
    from broker.network.listener import Listener
    from broker.replicas.partition import Partition
    from broker.security.authorizer import Authorizer

RUNNING = 3
"""Kafka: `BrokerState`."""

LATE_TRANSACTION_BUFFER_MS = 300_000
"""Kafka: `ProducerStateManager`. A transaction is late once it has been open for this much longer than the longest
timeout."""


class Watched(Protocol):
    """The parts of every node that metrics come from."""

    node_id: int
    clock: Clock
    log_dirs: LogDirs
    metadata: MetadataLog
    authorizer: Authorizer

    @property
    def listeners(self) -> Mapping[str, Listener]: ...


class WatchedBroker(Watched, WatchedGroups, Protocol):
    """The parts of a broker that metrics come from."""

    telemetry: ClientTelemetry


async def controller_metrics(node: Watched, requests: RequestMetrics) -> list[Metric]:
    """All families of a pure controller."""
    families = Families()
    pause = Pause()
    await _count_requests(families, requests, pause)
    _process(families, node, requests, "ControllerServer")
    await _cluster(families, node, pause)
    return families.all()


async def broker_metrics(node: WatchedBroker, requests: RequestMetrics) -> list[Metric]:
    """All families of a broker. Other requests are served meanwhile."""
    families = Families()
    pause = Pause()
    await _count_requests(families, requests, pause)
    requests.forget_topics(node.metadata.image.topics.__contains__)
    await _count_topics(families, requests, pause)
    _process(families, node, requests, "KafkaServer")
    await _partitions(families, node, pause)
    await _cluster(families, node, pause)
    await _transactions(families, node, pause)
    await count_groups(families, node, pause)
    _shards(families, node)
    await _clients(families, node, pause)
    return families.all()


# --- Requests (`RequestMetrics`, `BrokerTopicMetrics`) ------------------------------------------------------------


async def _count_requests(families: Families, requests: RequestMetrics, pause: Pause) -> None:
    of_api: Final = "kafka_network_requestmetrics_"
    for api, counts in [*requests.apis.items()]:
        if pause.is_due(5):
            await turn()
        for name, named in counts.by_name.items():
            for version, of_version in named.versions().items():
                if count := of_version.count:
                    families.counter(
                        of_api + "requests",
                        "Requests, by API and version",
                        count,
                        request=name,
                        version=str(version),
                    )
            families.summary(
                of_api + "totaltimems",
                "Milliseconds from a request to its answer",
                named.times(),
                request=name,
            )
        for code, count in counts.errors.items():
            families.counter(
                of_api + "errors",
                "Errors in answers, NONE included",
                count,
                request=api,
                error=error_name(code),
            )
        if counts.hung_up:
            families.counter(
                "barnabas_requests_hung_up", "Requests whose client didn't wait", counts.hung_up, request=api
            )


_OF_TOPICS: Mapping[str, tuple[str, str]] = {
    "messages_in": ("messagesin", "Records that clients have produced"),
    "bytes_in": ("bytesin", "Bytes that clients have produced"),
    "bytes_out": ("bytesout", "Bytes that consumers have fetched"),
    "replication_bytes_out": ("replicationbytesout", "Bytes that followers have fetched"),
    "produces": ("totalproducerequests", "Produces, counted for each partition of a request"),
    "fetches": ("totalfetchrequests", "Fetches, counted for each partition of an answer"),
    "failed_produces": ("failedproducerequests", "Produces whose answer was an error"),
    "failed_fetches": ("failedfetchrequests", "Fetches whose answer was an error"),
}


async def _count_topics(families: Families, requests: RequestMetrics, pause: Pause) -> None:
    def add(counts: TopicCounts, **labels: str) -> None:
        for attribute, (name, doc) in _OF_TOPICS.items():
            value = getattr(counts, attribute)
            families.counter("kafka_server_brokertopicmetrics_" + name, doc, value, **labels)

    together = TopicCounts()
    together.add(requests.others)
    for topic, counts in [*requests.topics.items()]:
        if pause.is_due(len(_OF_TOPICS)):
            await turn()
        add(counts, topic=topic)
        together.add(counts)
    add(together)


# --- The process (`KafkaServer`, `SocketServer`, `KafkaRequestHandlerPool`) ---------------------------------------


def _process(families: Families, node: Watched, requests: RequestMetrics, bean: str) -> None:
    """Add metrics of the process. `bean`: the one that has the disk's counts in Kafka."""
    families.gauge("kafka_server_kafkaserver_brokerstate", "3 while it runs", RUNNING)
    idle = requests.idleness.since_last()
    for name in (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    ):
        families.gauge(
            name, "The part of the time in which the broker's only loop was idle, from 0 to 1", idle
        )
    for name, count in _disk_bytes().items():
        families.gauge(
            f"kafka_server_{bean.lower()}_linux_disk_{name}", "Bytes written to or read from disks", count
        )
    _connections(families, node)
    for (operation, resource_type), count in [*denials_of(node.authorizer).items()]:
        families.counter(
            "barnabas_authorization_denied",
            "Denials that are logged",
            count,
            operation=operation.name,
            resource_type=resource_type.name,
        )
    for family in ProcessCollector(registry=None).collect():
        families.add(family)
    offline = len(node.log_dirs.offline_paths)
    families.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount", "Log directories that have failed", offline
    )


def _connections(families: Families, node: Watched) -> None:
    of_sockets: Final = "kafka_server_socket_server_metrics_"
    for listener in node.listeners.values():
        labels = {"listener": listener.name, "networkProcessor": "0"}
        families.gauge(
            of_sockets + "connection_count", "Open connections", len(listener.connections), **labels
        )
        families.counter(
            of_sockets + "connection_creation", "Connections since the start", listener.connected, **labels
        )
        families.counter(
            of_sockets + "failed_authentication",
            "Clients that failed in TLS or SASL",
            sum(listener.failed_authentications.values()),
            **labels,
        )
        for mechanism, count in listener.failed_authentications.items():
            families.counter(
                "barnabas_authentications_failed",
                "The same by mechanism: a SASL mechanism, TLS, or unknown if none was agreed on",
                count,
                listener=listener.name,
                mechanism=mechanism,
            )


def _disk_bytes() -> dict[str, int]:
    """Linux's counts of this process; empty on other systems (`LinuxIoMetricsCollector`)."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return {}
    counts = dict(line.split(": ") for line in lines)
    return {name: int(counts[name]) for name in ("read_bytes", "write_bytes") if name in counts}


# --- Partitions (`Partition`, `ReplicaManager`, `UnifiedLog`) -----------------------------------------------------


async def _partitions(families: Families, node: WatchedBroker, pause: Pause) -> None:
    totals: Counter[str] = Counter()
    now_ms = node.clock.now_ms()
    late_ms = now_ms - node.coordinators.transactions.settings.max_timeout_ms - LATE_TRANSACTION_BUFFER_MS
    for partition in node.partitions.all():
        if pause.is_due(10):
            await turn()
        if partition.is_gone:
            continue
        totals["partitioncount"] += 1
        producers = partition.log.producers
        totals["produceridcount"] += len(producers.producers)
        oldest = producers.oldest_open()
        totals["partitionswithlatetransactionscount"] += oldest is not None and (
            0 < oldest.last_timestamp_ms < late_ms
        )
        labels = {"topic": partition.topic.name, "partition": str(partition.index)}
        _log(families, partition, labels)
        role = partition.role
        if isinstance(role, Leader):
            totals["leadercount"] += 1
            topic = node.metadata.image.topics.get(partition.topic.name)
            found = None if topic is None else topic.partitions.get(partition.index)
            is_preferred = found is not None and found.replicas[0] == role.leader_id
            _led(families, role, totals, labels, now_ms, is_preferred=is_preferred)
    totals["offlinereplicacount"] = len(node.partitions.offline())
    for name, doc in {
        "partitioncount": "Replicas on this node",
        "leadercount": "Partitions that this node leads",
        "offlinereplicacount": "Replicas in log directories that have failed",
        "underreplicatedpartitions": "Led partitions with fewer replicas in sync than replicas",
        "underminisrpartitioncount": "Led partitions with fewer replicas in sync than min.insync.replicas",
        "atminisrpartitioncount": "Led partitions with as many replicas in sync as min.insync.replicas",
        "produceridcount": "Producers that replicas on this node remember, counted in each",
        "partitionswithlatetransactionscount": (
            "Replicas with a hanging transaction: its producer has been silent for longer than any timeout"
        ),
    }.items():
        families.gauge("kafka_server_replicamanager_" + name, doc, totals[name])
    changes = node.partitions.isr_changes
    for name, doc, value in (
        ("isrexpands", "Replicas that joined the ISR of a leader here", changes.expanded),
        ("isrshrinks", "Times that lagging replicas left the ISR of a leader here", changes.shrunk),
        ("failedisrupdates", "Changes of an ISR that the controller refused", changes.failed),
    ):
        families.counter("kafka_server_replicamanager_" + name, doc, value)


def _log(families: Families, partition: Partition, labels: dict[str, str]) -> None:
    log = partition.log
    of_log: Final = "kafka_log_log_"
    families.gauge_of(labels, of_log + "size", "Bytes of a partition's log", log.size)
    families.gauge_of(labels, of_log + "logstartoffset", "The log's first offset", log.log_start_offset)
    families.gauge_of(labels, of_log + "logendoffset", "The offset after the log's last", log.log_end_offset)
    families.gauge_of(labels, of_log + "numlogsegments", "The log's segments", len(log.base_offsets))


def _led(
    families: Families,
    role: Leader,
    totals: Counter[str],
    labels: dict[str, str],
    now_ms: int,
    *,
    is_preferred: bool,
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
        ("underreplicated", "1 if replicas lag behind", is_under_replicated),
        ("underminisr", "1 if too few replicas are in sync for acks=all", in_sync < least),
        ("atminisr", "1 if just enough replicas are in sync for acks=all", in_sync == least),
        (
            "laststableoffsetlag",
            "High watermark minus last stable offset",
            log.high_watermark - log.last_stable_offset,
        ),
    ):
        families.gauge_of(labels, of_partition + name, doc, value)
    oldest = log.producers.oldest_open()
    if oldest is not None:
        of_oldest: Final = "barnabas_partition_oldest_open_transaction_"
        who = {**labels, "producer_id": str(oldest.producer_id)}
        families.gauge_of(
            who,
            of_oldest + "idle_seconds",
            "Since the producer that holds the last stable offset wrote to the partition",
            max(0, now_ms - oldest.last_timestamp_ms) / 1000,
        )
        began_ms = _began_ms(role, oldest.txn_first_offset)
        if began_ms is not None:
            families.gauge_of(
                who,
                of_oldest + "seconds",
                "Since the first record of the transaction that holds the last stable offset",
                max(0, now_ms - began_ms) / 1000,
            )
    exporter: Final = "kafka_topic_partition_"
    for name, doc, value in (
        ("current_offset", "The high watermark", log.high_watermark),
        ("oldest_offset", "The first offset", log.log_start_offset),
        ("leader", "The leader's id", role.leader_id),
        ("leader_is_preferred", "1 if its first replica leads it", is_preferred),
        ("replicas", "Replicas", role.replica_count),
        ("in_sync_replica", "Replicas in sync", in_sync),
        ("under_replicated_partition", "1 if replicas lag behind", is_under_replicated),
    ):
        families.gauge_of(labels, exporter + name, doc, value)


def _began_ms(role: Leader, first_offset: int) -> int | None:
    """The time of a transaction's first record, by its header on the disk: no memory is kept for it between scrapes.
    None where it was deleted, can't be read, or has no time."""
    try:
        header = role.log.header_at(first_offset)
    except KafkaError:
        return None
    return None if header is None or header.base_timestamp < 0 else header.base_timestamp


# --- The cluster (`KafkaController`, `QuorumController`, `KafkaRaftMetrics`) --------------------------------------


async def _cluster(families: Families, node: Watched, pause: Pause) -> None:
    """Add metrics of the cluster. Those that only the active controller knows are left out on other nodes."""
    image = node.metadata.image
    of_controller: Final = "kafka_controller_kafkacontroller_"
    leads = node.metadata.is_leader
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
    families.gauge("kafka_brokers", "Brokers of the cluster that aren't fenced", len(image.brokers) - fenced)
    for broker_id, broker in image.brokers.items():
        for endpoint in [] if broker.fenced else broker.record.end_points[:1]:
            families.gauge(
                "kafka_broker_info",
                "1 for each broker that isn't fenced",
                1,
                id=str(broker_id),
                address=f"{endpoint.host}:{endpoint.port}",
            )
    if leads:
        for name, doc, value in (
            ("activebrokercount", "Brokers that aren't fenced", len(image.brokers) - fenced),
            ("fencedbrokercount", "Brokers that are fenced", fenced),
            ("globaltopiccount", "Topics", len(image.topics)),
            ("globalpartitioncount", "Partitions", partitions),
            ("offlinepartitionscount", "Partitions without a leader", offline),
            (
                "preferredreplicaimbalancecount",
                "Partitions that their first replica doesn't lead",
                imbalanced,
            ),
        ):
            families.gauge(of_controller + name, doc, value)
        families.counter(
            "kafka_controller_controllerstats_uncleanleaderelections",
            "Leaders that were elected although they weren't in sync",
            image.unclean_elections,
        )
    _quorum(families, node)


def _quorum(families: Families, node: Watched) -> None:
    metadata = node.metadata
    leads = metadata.is_leader
    of_raft: Final = "kafka_server_raftmetrics_"
    families.gauge(of_raft + "current_epoch", "The metadata quorum's epoch", metadata.epoch)
    families.gauge(
        of_raft + "current_leader",
        "The metadata quorum's leader, -1 if it is another node",
        node.node_id if leads else -1,
    )
    families.gauge(
        of_raft + "current_state",
        "1 for this node's role in the metadata quorum",
        1,
        current_state="leader" if leads else "observer",
    )
    families.gauge(
        of_raft + "current_vote",
        "The node that this one has voted for, -1 for none",
        node.node_id if leads else -1,
    )
    families.gauge(
        of_raft + "high_watermark", "The metadata log's high watermark", metadata.log.high_watermark
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
    families.gauge("barnabas_transactions_pending", "Ids that are between two states", pending)
    families.gauge(
        "barnabas_transactions_oldest_open_seconds", "Age of the oldest Ongoing transaction", oldest_ms / 1000
    )
    families.gauge(
        "barnabas_transactions_markers_waiting", "Markers under way, or to be sent again", waiting_markers
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
    of_verification: Final = "kafka_server_addpartitionstotxnmanager_"
    families.summary(
        of_verification + "verificationtimems",
        "Milliseconds to verify that a partition is in a transaction",
        statistics.verifications,
    )
    families.counter(
        of_verification + "verificationfailurerate_count",
        "Partitions for which a transaction's coordinator has refused an append here",
        statistics.verification_failures,
    )
    producer_ids = node.coordinators.producer_ids
    families.counter(
        "barnabas_producer_ids_blocks", "Blocks of producer ids that this node has got", producer_ids.blocks
    )
    families.gauge("barnabas_producer_ids_left", "Producer ids left in its block", producer_ids.left_count)


# --- The coordinators' shards (`CoordinatorRuntimeMetrics`, `TransactionStateManager`) ----------------------------

_COORDINATORS = {
    OFFSETS_TOPIC: "kafka_server_group_coordinator_metrics_",
    TRANSACTION_TOPIC: "kafka_server_transaction_coordinator_metrics_",
    SHARE_STATE_TOPIC: "kafka_server_share_coordinator_metrics_",
}


def _shards(families: Families, node: WatchedBroker) -> None:
    """Add metrics of the shards. Times are those of all shards that were loaded since the start; Kafka's are those of
    the last 30 s. `num_partitions` of transactions is barnabas's own."""
    for topic, prefix in _COORDINATORS.items():
        hosted = node.coordinators.hosted[topic]
        by_state = hosted.by_state()
        for state in ("active", "loading", "failed"):
            families.gauge(
                prefix + "num_partitions", f"Partitions of {topic}, by state", by_state[state], state=state
            )
        times = hosted.load_times
        families.gauge(
            prefix + "partition_load_time_max",
            f"Milliseconds to load the slowest partition of {topic}",
            max(times.last, default=0),
        )
        families.gauge(
            prefix + "partition_load_time_avg",
            f"Milliseconds to load a partition of {topic}, on average",
            times.sum_ms / times.count if times.count else 0,
        )


# --- Metrics that clients have pushed (KIP-714) -------------------------------------------------------------------

_NO_NAME = re.compile(r"[^a-zA-Z0-9_]+")
_LABEL = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")


async def _clients(families: Families, node: WatchedBroker, pause: Pause) -> None:
    """Add clients' metrics. OpenTelemetry's names are turned into Prometheus':
    `org.apache.kafka.producer.record.send.rate` becomes `kafka_client_producer_record_send_rate`.

    Clients choose the names. An attribute whose name can't be a label is left out, and if two series get the same name,
    the first one counts. Otherwise one client could spoil the page for all.
    """
    for client in node.telemetry.pushed():
        who = client.attributes
        labels = {name: who[name] for name in ("client_id", "client_instance_id", "client_software_name")}
        told = set()
        for (name, attributes), value in [*client.series.items()]:
            if pause.is_due(3):
                await turn()
            family = "kafka_client_" + _NO_NAME.sub("_", name.removeprefix(KAFKAS_NAMES))
            said = {
                label: text for key, text in attributes if _LABEL.fullmatch(label := _NO_NAME.sub("_", key))
            }
            said |= labels
            identity = (family, frozenset(said.items()))
            if identity not in told:
                told.add(identity)
                families.gauge(family, "As the client has pushed it", value, **said)
