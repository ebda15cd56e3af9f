"""A scrape shows what happened."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from broker.metrics import group_metrics
from broker.server import Server
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.messages.security import AclCreation, CreateAclsRequest
from protocol.records.batch import build_batch
from tests.node.transactional import Producer, coordinating, create, delete
from tests.support.scrape import get, scraped, value
from tests.support.straight import Straight
from tests.support.whole_server import clock_of
from tests.support.wire import Client

DATA = Path(__file__).parents[1] / "data"


async def watched(folder: Path) -> tuple[Server, int]:
    node = await coordinating(folder, "barnabas.metrics.listener=127.0.0.1:0")
    assert node.metrics is not None
    return node, node.metrics.port


def produce(client: Client, topic: str, records: int, *, index: int = 0) -> int:
    """Produce a batch. Returns its size in bytes."""
    batch = build_batch([(1, None, b"v", ())] * records)
    data = TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=index, records=memoryview(batch))]
    )
    client.ask(ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[data]), 9)
    return len(batch)


async def test_records_and_bytes_are_counted_by_topic_and_together(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    create(node, "u")
    client = Client(Straight(node))
    size = produce(client, "t", 3) + produce(client, "t", 1)
    produce(client, "u", 5)
    produce(client, "t", 1, index=9)  # there is none
    fetch = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
    client.ask(FetchRequest(max_bytes=1 << 20, topics=[fetch]), 11)
    series = await scraped(port)
    of_topics = "kafka_server_brokertopicmetrics_"
    assert value(series, of_topics + "messagesin_total", topic="t") == 4
    assert value(series, of_topics + "messagesin_total") == 9
    assert value(series, of_topics + "bytesin_total", topic="t") == size
    assert value(series, of_topics + "bytesout_total", topic="t") == size
    assert value(series, of_topics + "totalproducerequests_total", topic="t") == 3
    assert value(series, of_topics + "failedproducerequests_total", topic="t") == 1
    assert value(series, of_topics + "totalfetchrequests_total") == 1
    of_requests = "kafka_network_requestmetrics_"
    assert value(series, of_requests + "requests_total", request="Produce", version="9") == 4
    for name in ("Fetch", "FetchConsumer"):
        assert value(series, of_requests + "requests_total", request=name, version="11") == 1
        assert value(series, of_requests + "totaltimems_count", request=name) == 1
    assert value(series, of_requests + "errors_total", request="Fetch", error="NONE") == 1
    assert not [labels for _, labels in series if {("request", "FetchConsumer"), ("error", "NONE")} <= labels]
    assert (
        value(series, of_requests + "errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION")
        == 1
    )
    assert value(series, of_requests + "totaltimems_count", request="Produce") == 4


async def test_a_deleted_topic_has_no_series(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    produce(Client(Straight(node)), "t", 1)
    delete(node, "t")
    series = await scraped(port)
    assert not [labels for _, labels in series if ("topic", "t") in labels]
    assert value(series, "kafka_server_brokertopicmetrics_messagesin_total") == 1


async def test_errors_are_counted_wherever_they_stand_in_an_answer(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    names = [MetadataRequestTopic(name=name) for name in ("t", "gone", "gone too")]
    Client(Straight(node)).ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
    series = await scraped(port)
    errors = "kafka_network_requestmetrics_errors_total"
    assert value(series, errors, request="Metadata", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert value(series, errors, request="Metadata", error="INVALID_TOPIC_EXCEPTION") == 1
    assert value(series, errors, request="Metadata", error="NONE") >= 3  # the topic, its two partitions


async def test_a_long_request_is_handled_in_pieces_and_counted_as_one(tmp_path: Path) -> None:
    """An earlier version observed each piece, and mistook a waiting piece for the answer."""
    node, port = await watched(tmp_path)
    client = Client(Straight(node))
    names = [f"topic-number-{number:03}" for number in range(300)]
    resources = [DescribeConfigsResource(resource_type=2, resource_name=name) for name in names]
    described = await client.answer(DescribeConfigsRequest(resources=resources), 4)
    assert [each.resource_name for each in described.results] == names
    pairs = [(f"resource-{number:03}", f"User:user-{number:03}") for number in range(500)]
    creations = [
        AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=3,
            principal=principal,
            host="*",
            operation=3,
            permission_type=3,
        )
        for name, principal in pairs
    ]
    created = await client.answer(CreateAclsRequest(creations=creations), 3)
    assert len(created.results) == 500
    series = await scraped(port)
    for api in ("DescribeConfigs", "CreateAcls"):
        assert value(series, "kafka_network_requestmetrics_totaltimems_count", request=api) == 1


async def test_metrics_name_the_open_transaction_that_holds_the_readers_back(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    producer = Producer(node).begin()
    producer.send()
    clock_of(node).advance_ms(2_000)
    producer.send()
    clock_of(node).advance_ms(5_000)
    series = await scraped(port)
    of = {"topic": "t", "partition": "0"}
    assert value(series, "barnabas_transactions", state="Ongoing") == 1
    assert value(series, "barnabas_transactions_oldest_open_seconds") == 7
    assert value(series, "kafka_cluster_partition_laststableoffsetlag", **of) == 2
    oldest, who = "barnabas_partition_oldest_open_transaction_", str(producer.producer_id)
    assert value(series, oldest + "idle_seconds", **of, producer_id=who) == 5
    assert value(series, oldest + "seconds", **of, producer_id=who) == 7
    producer.end()
    series = await scraped(port)
    assert not [name for name, _ in series if name.startswith(oldest)]
    assert value(series, "barnabas_transactions", state="CompleteCommit") == 1
    assert value(series, "barnabas_transactions_oldest_open_seconds") == 0
    assert value(series, "kafka_cluster_partition_laststableoffsetlag", **of) == 0


async def test_metrics_count_the_reasons_that_transactions_ended(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    producer = Producer(node).begin()
    for commit in (True, True, False):
        producer.send()
        producer.end(commit=commit)
    producer.send()
    Producer(node).init()  # somebody else with the same transactional id
    producer = Producer(node).begin()
    producer.send()
    clock_of(node).advance_ms(60_001)
    [shard] = node.transactions.all_shards()
    shard.expiry.abort_timed_out()
    series = await scraped(port)
    ended = "barnabas_transactions_ended_total"
    assert value(series, ended, outcome="commit", reason="committed") == 2
    assert value(series, ended, outcome="abort", reason="aborted") == 1
    assert value(series, ended, outcome="abort", reason="fenced") == 1
    assert value(series, ended, outcome="abort", reason="timed_out") == 1
    assert value(series, "barnabas_transactions_duration_ms_count") == 5
    assert value(series, "barnabas_transactions_duration_ms_sum") == 60_001


async def test_partitions_brokers_and_the_controller_are_counted(tmp_path: Path) -> None:
    _, port = await watched(tmp_path)
    series = await scraped(port)
    for changes in ("isrexpands", "isrshrinks", "failedisrupdates"):
        assert value(series, f"kafka_server_replicamanager_{changes}_total") == 0
    # two of the topic t, one of each internal topic
    assert value(series, "kafka_server_replicamanager_leadercount") == 4
    assert value(series, "kafka_controller_kafkacontroller_globalpartitioncount") == 4
    assert value(series, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(series, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(series, "kafka_brokers") == 1
    assert value(series, "kafka_topic_partitions", topic="t") == 2


async def test_connections_and_those_that_were_refused_are_counted(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    Client(Straight(node)).close()
    Client(Straight(node))
    node.listeners["PLAINTEXT"].not_signed_in("somebody", "PLAIN", "a wrong password")
    node.listeners["PLAINTEXT"].not_encrypted("somebody", "an old protocol")
    while len(node.listeners["PLAINTEXT"].connections) > 1:
        await asyncio.sleep(0)
    series = await scraped(port)
    of = {"listener": "PLAINTEXT", "networkProcessor": "0"}
    of_sockets = "kafka_server_socket_server_metrics_"
    assert value(series, of_sockets + "connection_count", **of) == 1
    assert value(series, of_sockets + "connection_creation_total", **of) == 2
    assert value(series, of_sockets + "failed_authentication_total", **of) == 2


async def test_a_groups_lag_is_its_unconsumed_records(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    client = Client(Straight(node))
    produce(client, "t", 7)
    producer = Producer(node).begin()
    producer.add_offsets()
    producer.commit_offsets(3)
    series = await scraped(port)
    of = {"consumergroup": "g", "topic": "t", "partition": "0"}
    assert ("kafka_consumergroup_lag", frozenset(of.items())) not in series, "pending, not committed"
    producer.end()
    series = await scraped(port)
    assert value(series, "kafka_consumergroup_current_offset", **of) == 3
    assert value(series, "kafka_consumergroup_lag", **of) == 4
    of_topic = {"consumergroup": "g", "topic": "t"}
    assert value(series, "kafka_consumergroup_lag_sum", **of_topic) == 4


async def test_a_topic_with_a_silent_leader_has_no_sum_of_lag_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sum of the other partitions would look as if the group had consumed the one whose lag isn't known."""
    node, port = await watched(tmp_path)
    client = Client(Straight(node))
    for partition in (0, 1):
        produce(client, "t", 7, index=partition)
    producer = Producer(node).begin()
    producer.add_offsets()
    producer.commit_offsets(3, topics=(("t", 0), ("t", 1)))
    producer.end()
    end_here = group_metrics._end_here
    monkeypatch.setattr(
        group_metrics, "_end_here", lambda here, of: None if of == ("t", 1) else end_here(here, of)
    )
    series = await scraped(port)
    told = {
        name
        for name, labels in series
        if name.startswith("kafka_consumergroup_") and ("topic", "t") in labels
    }
    assert value(series, "kafka_consumergroup_current_offset_sum", consumergroup="g", topic="t") == 6
    assert "kafka_consumergroup_lag_sum" not in told
    assert value(series, "kafka_consumergroup_lag", consumergroup="g", topic="t", partition="0") == 4


def in_use(node: Server) -> Producer:
    """Produce records, and commit offsets of a group in a transaction that ends."""
    produce(Client(Straight(node)), "t", 1)
    producer = Producer(node).begin()
    producer.add_offsets()
    producer.commit_offsets(1)
    producer.end()
    return producer


async def test_every_series_of_public_dashboards_exists(tmp_path: Path) -> None:
    """Each series is there, or a reason says why it can't be."""
    node, port = await watched(tmp_path)
    in_use(node)
    names = {name for name, _ in await scraped(port)}
    data = json.loads((DATA / "dashboard_series.json").read_text())
    missing = tuple(data["missing"])
    lacking = {
        title: [name for name in series if name not in names and not name.startswith(missing)]
        for title, series in data["asked"].items()
    }
    assert not any(lacking.values()), lacking
    assert not [name for name in names if name.startswith(missing)], "there, and said to be missing"


OURS = {"kafka_server_transaction_coordinator_metrics_num_partitions"}
"""A series that Kafka has for its other coordinators only."""


async def test_every_series_named_after_kafkas_beans_exists_in_kafka(tmp_path: Path) -> None:
    """`kafka_series.json` has what jmx_exporter 1.0.1 shows of Kafka 4.4.0 by Strimzi's rules, and without a rule where
    these have none."""
    node, port = await watched(tmp_path)
    in_use(node).send()
    told = {name for name, _ in await scraped(port)} - OURS
    data = json.loads((DATA / "kafka_series.json").read_text())
    known = {*data["by_strimzis_rules"], *data["without_a_rule"]}
    known |= {name.replace("_count_total", suffix) for name in known for suffix in ("_count", "_sum")}
    of_beans = {
        name for name in told if re.match("kafka_(server|network|controller|log|cluster|coordinator)_", name)
    }
    assert len(of_beans) > 70
    assert not of_beans - known, of_beans - known


async def test_every_series_of_the_example_dashboard_and_alerts_exists(tmp_path: Path) -> None:
    node, port = await watched(tmp_path)
    in_use(node).send()
    there = {name for name, _ in await scraped(port)}
    folder = Path(__file__).parents[2] / "examples" / "monitoring"
    asked = re.findall(
        r"\b(?:kafka|barnabas)_[a-z_]+",
        "\n".join(
            [
                *(line for line in (folder / "alerts.yaml").read_text().splitlines() if "expr:" in line),
                *re.findall(r'"(?:expr|query)": "(.*)"', (folder / "dashboard.json").read_text()),
            ]
        ),
    )
    assert len(asked) > 20
    assert {*asked} <= there, {*asked} - there


async def test_a_client_that_accepts_openmetrics_is_given_it(tmp_path: Path) -> None:
    _, port = await watched(tmp_path)
    reply = await get(port, "/metrics", "Accept: application/openmetrics-text; version=1.0.0")
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.body.endswith(b"# EOF\n")
