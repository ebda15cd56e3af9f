"""Answers of a broker that isn't the leader: in every version, to clients and to anyone that claims to be a
replica."""

from __future__ import annotations

from ..batches import batch
from ..cluster_properties import CLUSTER
from ..play import Play, script, versions
from ..requests import Fields, fetch, list_offsets, produce
from ..scene import Topic
from .leader_epochs import epochs


def delete_records(topic: Topic, offset: int, timeout_ms: int = 10_000) -> Fields:
    partitions = [{"partition_index": 0, "offset": offset}]
    return {"topics": [{"name": topic.name, "partitions": partitions}], "timeout_ms": timeout_ms}


@script(properties=CLUSTER)
def asked_to_lead(play: Play) -> None:
    """Broker 1 is the leader, broker 2 a follower, and broker 3 has no replica."""
    topic = play.topic("a", replicas=(1, 2))
    play.write(topic.name, batch(3))
    for broker in (2, 3):
        on = f"broker {broker}"
        for version in versions("Produce"):
            for acks in (-1, 1):
                asked = produce((topic, 0, batch()), (topic, 9, batch()), acks=acks)
                play.ask(f"acks {acks} of {on} (v{version})", "Produce", version, asked, on=on)
        play.silent(f"acks 0 of {on}", "Produce", 9, produce((topic, 0, batch()), acks=0), on=on)
        for version in versions("ListOffsets"):
            for timestamp in (-1, -2, 5):
                asked = list_offsets((topic.name, 0, timestamp), (topic.name, 9, timestamp))
                play.ask(f"{timestamp} of {on} (v{version})", "ListOffsets", version, asked, on=on)
        for version in versions("OffsetForLeaderEpoch"):
            for current in (-1, 0, 1):
                asked = epochs((topic.name, 0, 0), (topic.name, 9, 0), current=current)
                case = f"the end of epoch 0, current {current}, of {on} (v{version})"
                play.ask(case, "OffsetForLeaderEpoch", version, asked, on=on)
        for version in versions("DeleteRecords"):
            asked = delete_records(topic, 1)
            play.ask(f"records deleted by {on} (v{version})", "DeleteRecords", version, asked, on=on)
        asked = {"topics": [{"name": topic.name, "partition_indexes": [0, 9]}]}
        play.ask(f"producers of {on}", "DescribeProducers", 0, asked, on=on)
    play.ask("what there is", "Fetch", 12, fetch((topic, 0, 0)))


@script(properties=CLUSTER)
def fetched_from(play: Play) -> None:
    """Any replica serves consumers of Fetch's newer versions, up to the offset that it knows as committed."""
    topic = play.topic("a", replicas=(1, 2))
    play.write(topic.name, batch(3))
    play.cluster.until_committed(topic.name, 3, on=2)
    for broker in (1, 2, 3):
        on = f"broker {broker}"
        for version in versions("Fetch"):
            asked = fetch((topic, 0, 1), (topic, 9, 0))
            play.ask(f"{on} (v{version})", "Fetch", version, asked, on=on)
        for version in (9, 12, 16, 18):
            for current in (-1, 0, 1):
                for offset in (0, 3, 4, -1):
                    asked = fetch((topic, 0, offset, {"current_leader_epoch": current}))
                    case = f"{on}, offset {offset}, current epoch {current} (v{version})"
                    play.ask(case, "Fetch", version, asked, on=on)
        for last in (-1, 0, 1):
            asked = fetch((topic, 0, 2, {"last_fetched_epoch": last}))
            play.ask(f"{on}, last fetched epoch {last}", "Fetch", 16, asked, on=on)
        for level in (0, 1):
            asked = fetch((topic, 0, 0), isolation_level=level, rack_id="b")
            play.ask(f"{on}, level {level}, a rack", "Fetch", 16, asked, on=on)


@script(properties=CLUSTER)
def fetched_by_replicas(play: Play) -> None:
    """Clients that claim to be brokers fetch, at the brokers' listener and at the clients' one."""
    topic = play.topic("a", replicas=(1, 2))
    play.write(topic.name, batch(3))
    play.cluster.until_committed(topic.name, 3, on=2)
    for on in ("broker 1", "broker 1 inter-broker", "broker 2 inter-broker"):
        for replica_id in (2, 3, 9, -2):
            for offset in (0, 3, 4):
                asked = fetch((topic, 0, offset), replica_id=replica_id)
                play.ask(f"{on}, replica {replica_id}, offset {offset} (v12)", "Fetch", 12, asked, on=on)
        for replica_id, replica_epoch in ((3, -1), (9, -1), (3, 0), (-2, -1)):
            state = {"replica_id": replica_id, "replica_epoch": replica_epoch}
            asked = fetch((topic, 0, 3), replica_state=state)
            play.ask(f"{on}, replica {replica_id}, epoch {replica_epoch} (v18)", "Fetch", 18, asked, on=on)
