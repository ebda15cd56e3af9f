"""The cluster as its brokers and its controller describe it, and the requests that only one of them answers."""

from __future__ import annotations

from typing import Any

from protocol.apis import APIS
from tests.support.wire import header

from ..batches import batch
from ..cluster_properties import CLUSTER
from ..config_requests import BROKER, DELETE, SET, change, changed, described, resource
from ..placed_replicas import show
from ..play import Play, script, versions
from ..requests import configs
from .log_dirs import log_dirs
from .quorum import features, quorum

NODES = ("broker 1", "broker 2", "broker 3", "controller")
UPGRADE, SAFE_DOWNGRADE = 1, 2


@script(properties=CLUSTER)
def nodes_described(play: Play) -> None:
    """Ask all nodes, first while all of them run and then while one is down."""
    for on in NODES:
        for version in versions("DescribeCluster"):
            for endpoint_type in (0, 1, 2, 3):
                asked = {"endpoint_type": endpoint_type, "include_cluster_authorized_operations": True}
                case = f"endpoint type {endpoint_type} of {on} (v{version})"
                play.ask(case, "DescribeCluster", version, asked, on=on)
            for name, partition in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("nowhere", 0)):
                asked = quorum((name, [partition]))
                case = f"quorum of {name}-{partition} of {on} (v{version})"
                play.ask(case, "DescribeQuorum", version, asked, on=on)
        play.ask(f"fenced ones too, of {on}", "DescribeCluster", 2, {"include_fenced_brokers": True}, on=on)
    play.cluster.stop(3)
    play.until("broker 3 has gone", lambda: all(3 not in each.brokers for each in play.cluster.state.seen()))
    for on in ("broker 2", "controller"):
        for fenced in (False, True):
            asked = {"include_fenced_brokers": fenced, "endpoint_type": 1}
            case = f"fenced ones {fenced}, of {on}, one has gone"
            play.ask(case, "DescribeCluster", 2, asked, on=on)
    for broker in (77, -1, 100):
        for on in ("broker 1", "controller"):
            asked = {"broker_id": broker}
            play.ask(f"broker {broker} unregistered by {on}", "UnregisterBroker", 0, asked, on=on)
    _made_without_one(play)


def _made_without_one(play: Play) -> None:
    """Create topics while broker 3 is down."""
    for case, topic in {
        "3 replicas": {"replication_factor": 3},
        "2 replicas": {"replication_factor": 2},
        "4 replicas": {"replication_factor": 4},
        "as many as are made by default": {"replication_factor": -1},
        "some on it": {"assignments": [[1, 3], [2, 3]]},
        "the first on it": {"assignments": [[3, 1]]},
        "it alone": {"assignments": [[1], [3]]},
        "it twice": {"assignments": [[3, 3]]},
    }.items():
        asked = _topic(play.name(case.replace(" ", "-")), **topic)
        play.ask(f"made: {case}", "CreateTopics", 7, asked)
    topic = play.topic("a", replicas=(1, 2))
    for case, placed in {"on it": [[3, 1]], "it alone": [[3]], "it and too few": [[1, 2], [3]]}.items():
        more: dict[str, Any] = {"name": topic.name, "count": 1 + len(placed)}
        more["assignments"] = [{"broker_ids": ids} for ids in placed]
        play.ask(f"more: {case}", "CreatePartitions", 3, {"topics": [more], "timeout_ms": 30_000})
    play.cluster.until_led(topic.name, by=1, isr=(1,), partition=1)
    show(play, "one has gone", topic)


def _topic(name: str, **fields: Any) -> dict[str, Any]:
    placed = fields.pop("assignments", [])
    topic = {"name": name, "num_partitions": -1 if placed else 1, "replication_factor": -1} | fields
    topic["assignments"] = [{"partition_index": i, "broker_ids": ids} for i, ids in enumerate(placed)]
    topic["configs"] = configs(retention_ms="-1")
    return {"topics": [topic], "timeout_ms": 30_000}


@script(properties=CLUSTER)
def made(play: Play) -> None:
    """Create topics and partitions while all brokers are up."""
    for on in ("broker 2", "controller"):
        for case, topic in {
            "4 replicas": {"replication_factor": 4},
            "0 replicas": {"replication_factor": 0},
            "-2 replicas": {"replication_factor": -2},
            "an unknown broker": {"assignments": [[1, 7]]},
            "the controller": {"assignments": [[1, 100]]},
            "a negative broker": {"assignments": [[-1]]},
            "a broker twice": {"assignments": [[1, 2, 1]]},
            "not as many": {"assignments": [[1, 2], [3]]},
            "no brokers": {"assignments": [[]]},
            "an assignment and a number": {"assignments": [[1, 2]], "replication_factor": 2},
        }.items():
            asked = _topic(play.name("refused"), **topic)
            play.ask(f"made by {on}: {case}", "CreateTopics", 7, asked, on=on)
        name = play.name(f"by-{on[:6]}")
        play.ask(f"validated by {on}", "CreateTopics", 7, _topic(name) | {"validate_only": True}, on=on)
        asked = _topic(name, assignments=[[1, 2], [2, 3], [3, 1]])
        play.ask(f"made by {on}", "CreateTopics", 7, asked, on=on)
        for partition, by in enumerate((1, 2, 3)):
            play.cluster.until_led(name, by=by, partition=partition)
        for case, count, placed in (
            ("an unknown broker", 4, [[1, 7]]),
            ("too few replicas", 4, [[1]]),
            ("too many replicas", 4, [[1, 2, 3]]),
            ("a broker twice", 4, [[1, 1]]),
            ("none placed", 5, [[1, 2]]),
            ("one too many", 4, [[1, 2], [2, 3]]),
            ("fewer", 2, None),
            ("as many", 3, None),
            ("one more", 4, [[3, 2]]),
        ):
            more = {
                "name": name,
                "count": count,
                "assignments": placed and [{"broker_ids": ids} for ids in placed],
            }
            asked = {"topics": [more], "timeout_ms": 30_000}
            play.ask(f"partitions by {on}: {case}", "CreatePartitions", 3, asked, on=on)
        play.cluster.until_led(name, by=3, partition=3)
        for version in (1, 5):
            asked = {"topics": [{"name": name}], "topic_names": [name], "timeout_ms": 30_000}
            play.ask(f"deleted by {on} (v{version})", "DeleteTopics", version, asked, on=on)
            play.until_gone(name)


@script(properties=CLUSTER)
def folders_described(play: Play) -> None:
    topic = play.topic("a", 2, replicas=(1, 2))
    play.write(topic.name, batch(3))
    play.cluster.until_committed(topic.name, 3, on=2)
    for on in NODES:
        for version in versions("DescribeLogDirs"):
            asked = log_dirs((topic.name, [0, 1]), ("nowhere", [0]))
            play.ask(f"by {on} (v{version})", "DescribeLogDirs", version, asked, on=on)
        asked = {"dirs": [{"path": "/nowhere", "topics": [{"name": topic.name, "partitions": [0]}]}]}
        play.ask(f"moved to nowhere by {on}", "AlterReplicaLogDirs", 2, asked, on=on)


KEY = "log.cleaner.threads"


@script(properties=CLUSTER)
def settings_of_brokers(play: Play) -> None:
    """Ask each broker for its own settings, for another broker's and for the cluster-wide ones."""
    for on in NODES:
        for name in ("1", "2", "100", "77", "-1", "x", ""):
            case = f"broker {name!r}, by {on}"
            asked = changed(change(BROKER, name, (KEY, SET, "2")))
            play.ask(f"altered for {case}", "IncrementalAlterConfigs", 1, asked, on=on)
            asked = described(resource(BROKER, name, KEY, "num.io.threads"))
            if not name or on.endswith(name) or (name, on) == ("100", "controller"):
                _until_told(play, name, on, "2")
            play.ask(f"told of {case}", "DescribeConfigs", 4, asked, on=on)
        for name in ("1", "2", ""):
            asked = changed(change(BROKER, name, (KEY, DELETE, None)))
            play.ask(f"taken back for broker {name!r}, by {on}", "IncrementalAlterConfigs", 1, asked, on=on)
        bad = changed(change(BROKER, "", (KEY, SET, "0")), change(BROKER, "1", ("no.such", SET, "1")))
        play.ask(f"bad ones, by {on}", "IncrementalAlterConfigs", 1, bad, on=on)
        asked = changed(change(BROKER, "", (KEY, DELETE, None)))
        play.ask(f"what came of the bad ones taken back, by {on}", "IncrementalAlterConfigs", 1, asked, on=on)
        for each in NODES:
            _until_told(play, "", each, None)
        bad = {
            "resources": [
                {"resource_type": 4, "resource_name": "2", "configs": [{"name": KEY, "value": "3"}]}
            ]
        }
        play.ask(f"replaced for 2, by {on}", "AlterConfigs", 2, bad, on=on)
        bad["resources"][0]["configs"] = []
        play.ask(f"replaced by nothing for 2, by {on}", "AlterConfigs", 2, bad, on=on)


def _until_told(play: Play, name: str, on: str, value: str | None) -> None:
    """Return None if nothing is set."""

    def told() -> bool:
        (result,) = play.quietly(
            "DescribeConfigs", 4, described(resource(BROKER, name, KEY)), on=f"{on}: scene"
        ).results
        return result.error_code != 0 or [each.value for each in result.configs] == (
            [] if value is None else [value]
        )

    play.until(f"{on} is told of {KEY} of broker {name!r}", told)


@script(properties=CLUSTER)
def apis(play: Play) -> None:
    """The APIs that a controller and a broker serve, and their answers to others, in each version."""
    asked = {"client_software_name": "compare", "client_software_version": "1"}
    for on in NODES:
        for version in versions("ApiVersions"):
            play.ask(f"of {on} (v{version})", "ApiVersions", version, asked, on=on)
        play.ask(f"features of {on}", "UpdateFeatures", 2, features(("group.version", 1, UPGRADE)), on=on)
        lower = features(("transaction.version", 1, SAFE_DOWNGRADE), only=True)
        play.ask(f"features validated by {on}", "UpdateFeatures", 2, lower, on=on)
    for on, others in (("controller", OF_BROKERS), ("broker 1", OF_CONTROLLERS)):
        for name in others:
            (api,) = (each for each in APIS.values() if each.name == name)
            for version in sorted({api.min_version, api.max_version}):
                payload = header(api.key, version, 5, client_id="compare")
                play.raw_frame(f"{name} v{version} of {on}", payload, on=f"{on}: {name} {version}")


OF_BROKERS = (
    "Produce",
    "ListOffsets",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "FindCoordinator",
    "JoinGroup",
    "Heartbeat",
    "LeaveGroup",
    "SyncGroup",
    "DescribeGroups",
    "ListGroups",
    "DeleteRecords",
    "InitProducerId",
    "OffsetForLeaderEpoch",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "EndTxn",
    "WriteTxnMarkers",
    "TxnOffsetCommit",
    "AlterReplicaLogDirs",
    "DescribeLogDirs",
    "DeleteGroups",
    "OffsetDelete",
    "DescribeClientQuotas",
    "DescribeUserScramCredentials",
    "DescribeProducers",
    "DescribeTransactions",
    "ListTransactions",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "DescribeTopicPartitions",
    "ListConfigResources",
)
OF_CONTROLLERS = (
    "AlterPartition",
    "Envelope",
    "FetchSnapshot",
    "BrokerRegistration",
    "BrokerHeartbeat",
    "AllocateProducerIds",
    "ControllerRegistration",
    "AssignReplicasToDirs",
)
