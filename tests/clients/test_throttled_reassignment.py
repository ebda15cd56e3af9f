"""kafka-reassign-partitions with --throttle: the replica is copied no faster, and --verify removes the limit."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from tests.clients.confluent import send
from tests.process.clusters import QUICK, create
from tests.support.waiting import until

RATE = 400_000
RECORD = 10_000
RECORDS = 120
FETCHED_AT_ONCE = 64 * 1024

Tool = Callable[..., str]


@pytest.fixture
def cluster() -> Iterator[barnabas.Cluster]:
    settings = {**QUICK, "replica.fetch.max.bytes": FETCHED_AT_ONCE}
    with barnabas.Cluster(brokers=2, config=settings) as running:
        yield running


def log_of(cluster: barnabas.Cluster, broker: int) -> Path:
    return cluster[broker].data / "moved-0" / f"{0:020}.log"


def throttles(kafka: Tool, cluster: barnabas.Cluster) -> set[str]:
    """The settings on the topic and the brokers, as `name=value`."""
    found = set()
    for kind, name in (("topics", "moved"), ("brokers", "1"), ("brokers", "2")):
        printed = kafka(
            "configs",
            *("--bootstrap-server", cluster.bootstrap),
            *("--describe", "--entity-type", kind, "--entity-name", name),
        )
        set_ones = re.findall(r"^  (\S*throttled\S*=\S*) sensitive=", printed, re.MULTILINE)
        found |= {f"{kind}-{name} {each}" for each in set_ones}
    return found


def test_a_throttled_reassignment_keeps_to_its_rate_and_is_taken_back(
    needs_kafka: Tool, cluster: barnabas.Cluster, tmp_path: Path
) -> None:
    create(cluster, "moved", replicas=1)
    cluster.move_leader("moved", 0, 1)
    value = b"x" * (RECORD - 100)
    send(cluster.bootstrap, "moved", [{"value": value}] * RECORDS, **{"batch.size": RECORD, "acks": 1})
    size = log_of(cluster, 1).stat().st_size
    assert size > RECORD * RECORDS * 0.97
    plan = tmp_path / "plan.json"
    wanted = {"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2]}]}
    plan.write_text(json.dumps(wanted))

    def reassign(*arguments: str) -> str:
        file = ("--reassignment-json-file", str(plan))
        return needs_kafka("reassign-partitions", "--bootstrap-server", cluster.bootstrap, *file, *arguments)

    printed = reassign("--execute", "--throttle", str(RATE))
    assert f"The inter-broker throttle limit was set to {RATE} B/s" in printed
    assert throttles(needs_kafka, cluster) == {
        "topics-moved leader.replication.throttled.replicas=0:1",
        "topics-moved follower.replication.throttled.replicas=0:2",
        *(
            f"brokers-{broker} {side}.replication.throttled.rate={RATE}"
            for broker in (1, 2)
            for side in ("leader", "follower")
        ),
    }
    until(lambda: cluster.replicas_of("moved") == [cluster[2]], "the replica has moved")

    came = log_of(cluster, 2).stat()
    assert came.st_size == size
    began_s = log_of(cluster, 2).with_name("partition.metadata").stat().st_mtime
    took_s = came.st_mtime - began_s
    # the last fetch was allowed by all that came before it
    assert took_s > (size - FETCHED_AT_ONCE) / RATE - 0.1

    printed = reassign("--verify")
    assert "Reassignment of partition moved-0 is completed." in printed
    assert throttles(needs_kafka, cluster) == set()
