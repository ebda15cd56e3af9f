"""Brokers' requests to their controller: registrations, heartbeats, ISRs, directories, producer ids. The script plays a
fourth broker, which sends them."""

from __future__ import annotations

from typing import Any

from ..cluster_properties import CLUSTER
from ..placed_replicas import described
from ..play import Play, script, versions
from ..played_broker import DIRECTORY, FEATURES, ID, PlayedBroker, listener, ranges
from ..requests import UNKNOWN_ID, ZERO_ID
from ..scene import Topic

ANOTHER_RUN = b"5" * 16


@script(properties=CLUSTER)
def registrations(play: Play) -> None:
    """Registrations that are refused, accepted, and repeated."""
    broker = PlayedBroker(play)
    for case, fields in {
        "another cluster": {"cluster_id": "4L6g3nShT-eMCtK--X86sx"},
        "no cluster": {"cluster_id": ""},
        "no listeners": {"listeners": []},
        "a listener twice": {"listeners": [listener("PLAINTEXT"), listener("PLAINTEXT")]},
        "no features": {"features": []},
        "no metadata version": {"features": ranges(*FEATURES[1:])},
        "metadata versions that are too low": {
            "features": ranges(("metadata.version", 1, 29), *FEATURES[1:])
        },
        "metadata versions that are too high": {
            "features": ranges(("metadata.version", 34, 40), *FEATURES[1:])
        },
        "a feature below what is": {
            "features": ranges(*FEATURES[:2], ("transaction.version", 0, 1), *FEATURES[3:])
        },
        "a feature above what is": {
            "features": ranges(*FEATURES[:3], ("group.version", 2, 3), *FEATURES[4:])
        },
        "a range upside down": {"features": ranges(*FEATURES[:3], ("group.version", 1, 0), *FEATURES[4:])},
        "no directories": {"log_dirs": []},
        "a directory twice": {"log_dirs": [DIRECTORY, DIRECTORY]},
        "a reserved directory": {"log_dirs": [bytes(15) + b"\x02"]},
        "no directory's id": {"log_dirs": [ZERO_ID]},
        "from ZooKeeper": {"is_migrating_zk_broker": True},
        "a broker that runs": {"broker_id": 1},
    }.items():
        for version in (0, 3, 4):
            if version < 2 and ("director" in case or case == "from ZooKeeper"):
                continue  # an absent value can't be wrong
            broker.register(f"{case} (v{version})", version, **fields)
    for version in versions("BrokerRegistration"):
        broker.register(f"taken (v{version})", version)
        broker.register(f"taken again (v{version})", version)
        broker.register(f"another run of it (v{version})", version, incarnation_id=ANOTHER_RUN)
    broker.register("its epoch before", previous_broker_epoch=broker.epoch)
    broker.register("another rack", rack=None)
    broker.register("an unknown feature", features=ranges(*FEATURES, ("no.such", 1, 2)))
    broker.register("an unknown listener", listeners=[listener("PLAINTEXT"), listener("X")])
    for fenced in (True, False):
        asked = {"include_fenced_brokers": fenced, "endpoint_type": 1}
        play.ask(f"fenced brokers {fenced}", "DescribeCluster", 2, asked, on="controller")
    broker.end()


def _assign(play: Play, case: str, topic: Topic, broker_ids: list[int]) -> None:
    """Only validate the creations, and cancel the reassignment."""
    new = {
        "name": f"{topic.name}-new",
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": broker_ids}],
        "configs": [],
    }
    asked = {"topics": [new], "timeout_ms": 10_000, "validate_only": True}
    play.ask(f"a topic, {case}", "CreateTopics", 7, asked, on="controller")
    more = {"name": topic.name, "count": 2, "assignments": [{"broker_ids": broker_ids}]}
    asked = {"topics": [more], "timeout_ms": 10_000, "validate_only": True}
    play.ask(f"a partition, {case}", "CreatePartitions", 3, asked, on="controller")
    for told, replicas in {"replicas": broker_ids, "replicas as before": None}.items():
        partition = {"partition_index": 0, "replicas": replicas}
        asked = {"topics": [{"name": topic.name, "partitions": [partition]}], "timeout_ms": 10_000}
        play.ask(f"{told}, {case}", "AlterPartitionReassignments", 1, asked, on="controller")


@script(properties=CLUSTER)
def heartbeats(play: Play) -> None:
    a = play.topic("a", replicas=(1, 2))
    broker = PlayedBroker(play)
    broker.register("registered")
    for version in versions("BrokerHeartbeat"):
        broker.beat(f"fenced (v{version})", version, want_fence=True)
        broker.beat(f"not caught up (v{version})", version, current_metadata_offset=0)
        broker.beat(f"knows nothing (v{version})", version, current_metadata_offset=-1)
        broker.beat(f"fenced and caught up (v{version})", version, want_fence=True)
        broker.beat(f"an epoch before (v{version})", version, broker_epoch=broker.epoch - 1)
        broker.beat(f"an epoch to come (v{version})", version, broker_epoch=broker.epoch + 1)
        broker.beat(f"no epoch (v{version})", version, broker_epoch=-1)
        for unknown in (5, -1, 100):
            broker.beat(f"of broker {unknown} (v{version})", version, broker_id=unknown)
        broker.beat(f"of a broker that runs (v{version})", version, broker_id=1)
    broker.beat("of a broker that runs, no epoch", broker_id=1, broker_epoch=-1)
    broker.beat("caught up")
    broker.beat("caught up, and again")
    broker.beat("lagging, once it is there", current_metadata_offset=0)
    broker.beat("an unknown directory is offline", offline_log_dirs=[b"?" * 16])
    broker.beat("an unknown directory is cordoned", cordoned_log_dirs=[b"?" * 16])
    for case, cordoned in {"cordoned": [DIRECTORY], "no longer cordoned": []}.items():
        broker.beat(case, cordoned_log_dirs=cordoned)
        for broker_ids in ([1, ID], [ID, ID], [7, ID], [7, 1, 1]):
            _assign(play, f"{case}: {broker_ids} by hand", a, broker_ids)
    broker.register("registered again, with a run of its own", incarnation_id=ANOTHER_RUN)
    broker.register("registered again, as it is")
    broker.beat("then")
    broker.beat("fenced by itself", want_fence=True)
    broker.beat("and back")
    broker.beat("shut down", want_shut_down=True)
    broker.beat("shut down, and again", want_shut_down=True)
    broker.beat("and back again")
    broker.beat("offline", offline_log_dirs=[DIRECTORY])
    broker.end()
    broker.beat("unregistered")


def _isr(
    topic_id: bytes,
    *isr: tuple[int, int],
    leader_epoch: int = 0,
    partition_epoch: int = 0,
    index: int = 0,
    recovery: int = 0,
) -> dict[str, Any]:
    return {
        "topic_id": topic_id,
        "partitions": [
            {
                "partition_index": index,
                "leader_epoch": leader_epoch,
                "new_isr": [node_id for node_id, _ in isr],
                "new_isr_with_epochs": [
                    {"broker_id": node_id, "broker_epoch": epoch} for node_id, epoch in isr
                ],
                "leader_recovery_state": recovery,
                "partition_epoch": partition_epoch,
            }
        ],
    }


@script(properties=CLUSTER)
def in_sync_replicas(play: Play) -> None:
    """The script plays the leader that proposes them.

    It proposes no unknown recovery state, because Kafka's controller resigns over one.
    """
    broker = PlayedBroker(play).begin()
    topic_id = broker.lead("a", 1, 2)
    topic = Topic(play.name("a"), topic_id)
    epoch = broker.epoch

    def alter(case: str, version: int, *topics: dict[str, Any], **fields: Any) -> None:
        broker.beat()
        asked = {"broker_id": ID, "broker_epoch": broker.epoch, "topics": list(topics)} | fields
        play.ask(f"{case} (v{version})", "AlterPartition", version, asked, on="controller")

    me = (ID, epoch)
    current = 0
    for version in versions("AlterPartition"):
        for case, asked in {
            "nothing": [],
            "an unknown topic": [_isr(UNKNOWN_ID, me)],
            "no topic's id": [_isr(ZERO_ID, me)],
            "an unknown partition": [_isr(topic_id, me, index=1)],
            "a leader epoch before": [_isr(topic_id, me, leader_epoch=-1, partition_epoch=current)],
            "a leader epoch to come": [_isr(topic_id, me, leader_epoch=1, partition_epoch=current)],
            "a partition epoch before": [_isr(topic_id, me, partition_epoch=current - 1)],
            "a partition epoch to come": [_isr(topic_id, me, partition_epoch=current + 1)],
            "nobody": [_isr(topic_id, partition_epoch=current)],
            "without the leader": [_isr(topic_id, (1, -1), partition_epoch=current)],
            "no replica": [_isr(topic_id, me, (3, -1), partition_epoch=current)],
            "no broker": [_isr(topic_id, me, (77, -1), partition_epoch=current)],
            "one twice": [_isr(topic_id, me, me, partition_epoch=current)],
            "recovering": [_isr(topic_id, me, partition_epoch=current, recovery=1)],
            "several": [_isr(UNKNOWN_ID, me), _isr(topic_id, me, index=9)],
        }.items():
            alter(case, version, *asked)
        for other, case in (
            (epoch - 1, "an epoch before"),
            (epoch + 1, "an epoch to come"),
            (-1, "no epoch"),
        ):
            alter(
                f"{case} of its own", version, _isr(topic_id, me, partition_epoch=current), broker_epoch=other
            )
        alter("an unknown broker", version, _isr(topic_id, me), broker_id=77)
        alter("a broker that runs", version, _isr(topic_id, me), broker_id=1)
        alter("as it is", version, _isr(topic_id, me, (1, -1), (2, -1), partition_epoch=current))
        current = _partition_epoch(broker, topic_id, epoch, current)
        alter("fewer", version, _isr(topic_id, me, partition_epoch=current))
        current = _partition_epoch(broker, topic_id, epoch, current)
        alter("another's epoch is wrong", version, _isr(topic_id, me, (1, 1), partition_epoch=current))
        current = _partition_epoch(broker, topic_id, epoch, current)
        alter("more", version, _isr(topic_id, (2, -1), me, (1, -1), partition_epoch=current))
        current = _partition_epoch(broker, topic_id, epoch, current)
    play.until("it is known what came of it", lambda: len(_known_isr(play, topic)) == 3)
    play.ask("what came of it", "DescribeTopicPartitions", 0, described(topic))
    broker.end("a")


def _known_isr(play: Play, topic: Topic) -> list[int]:
    answer = play.quietly("DescribeTopicPartitions", 0, described(topic))
    return list(answer.topics[0].partitions[0].isr_nodes)


def _partition_epoch(broker: PlayedBroker, topic_id: bytes, epoch: int, current: int) -> int:
    """Find the partition epoch by trying the next few in turn."""
    broker.beat()
    for guess in range(current, current + 4):
        part = _isr(
            topic_id, (ID, epoch), (3, -1), partition_epoch=guess
        )  # it has no replica, so nothing changes
        asked = {"broker_id": ID, "broker_epoch": epoch, "topics": [part]}
        answer = broker.play.quietly("AlterPartition", 3, asked, on="controller: scene")
        if answer.topics and answer.topics[0].partitions[0].error_code == 42:
            return guess
    return current
