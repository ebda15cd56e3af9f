"""Every number of `/metrics` is the one that the command line and Kafka's own tools show of the same partitions, groups
and transactions: of committed, aborted, open and hanging ones, on one broker and on three."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import barnabas
from tests.cli.conftest import run_cli
from tests.cli.transactional import (
    aborted,
    commit,
    committed,
    new_producer,
    plain,
    send_at_once,
    send_each,
    table,
    without_verification,
)
from tests.clients.confluent import PATIENCE_S
from tests.clients.test_transactions_tools import rows
from tests.support.ports import free_ports
from tests.support.scrape import Series, series_in
from tests.support.waiting import until

Tool = Callable[..., str]
Partition = tuple[str, str]
LISTENER = "barnabas.metrics.listener"
HANGING_ID = 4_710
"""Whose record `without_verification` tries it with."""
TOPIC, HANGING, GROUP = "orders", "hanging", "billing"
OF_PARTITIONS = "kafka_topic_partition_"

pytestmark = pytest.mark.xdist_group("metrics-agreement")
"""One history for all of them: it takes longer to make than to look at."""


@dataclass(frozen=True)
class Watched:
    """One that is watched at each node: `urls` are those of the brokers' metrics, `controller` is that of the
    controller's."""

    bootstrap: str
    brokers: int
    urls: tuple[str, ...]
    controller: str

    def scraped(self) -> list[Series]:
        """Of each broker."""
        return [self.scraped_at(url) for url in self.urls]

    @staticmethod
    def scraped_at(url: str) -> Series:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return series_in(answer.read().decode())

    def cli(self, *arguments: object) -> Any:
        """The JSON output of one of our commands."""
        ran = run_cli(*arguments, "--json", bootstrap=self.bootstrap)
        assert ran.status == 0, ran.err
        return ran.json()


@pytest.fixture(scope="module", params=[1, pytest.param(3, marks=pytest.mark.one_run_in(2))])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    if request.param == 1:
        (port,) = free_ports(1)
        with barnabas.Broker(config={LISTENER: f"127.0.0.1:{port}"}) as broker:
            url = f"http://127.0.0.1:{port}/metrics"
            yield Watched(broker.bootstrap, 1, (url,), url)
        return
    folder = tmp_path_factory.mktemp("cluster")
    with barnabas.Cluster(3, data=folder, config={LISTENER: "127.0.0.1:0"}) as cluster:
        logs = [(folder / f"{name}.log").read_text() for name in ("1", "2", "3", "controller")]
        *urls, controller = [re.findall(r"metrics at (http://\S+/metrics)", log)[-1] for log in logs]
        yield Watched(cluster.bootstrap, 3, tuple(urls), controller)


@pytest.fixture(scope="module")
def history(kafka: Watched, needs_kafka: Tool) -> Iterator[Watched]:
    """Records and transactions of every kind, one of which is open, and one hangs; a group that has read some."""
    bootstrap = kafka.bootstrap
    for topic in (TOPIC, HANGING):
        made = run_cli("topics", "create", topic, "-p", 2, "-r", kafka.brokers, bootstrap=bootstrap)
        assert made.status == 0, made.err
    send_each(plain(bootstrap), TOPIC, "abc")
    send_each(plain(bootstrap), TOPIC, "de", partition=1)
    committed(bootstrap, TOPIC, "commits", "fg")
    aborted(bootstrap, TOPIC, "aborts", "hi")
    with without_verification(bootstrap, HANGING):
        pass
    holder = new_producer(bootstrap, "holds")
    holder.begin_transaction()
    send_at_once(holder, TOPIC, "jk")
    send_each(plain(bootstrap), TOPIC, "l")
    commit(kafka, GROUP, TOPIC, 4, 1)  # type: ignore[arg-type]
    yield kafka
    holder.abort_transaction(PATIENCE_S)


def by(nodes: list[Series], name: str, *labels: str, **of: str) -> dict[Any, float]:
    """The sums over all nodes, by the values of these labels (of one label by the value itself), of the series that
    have those others."""
    found: Counter[Any] = Counter()
    for series in nodes:
        for (each, pairs), value in series.items():
            given = dict(pairs)
            if each == name and of.items() <= given.items():
                key = tuple(given.get(label, "") for label in labels)
                found[key if len(key) > 1 else key[0] if key else ()] += value
    return dict(found)


def total(nodes: list[Series], name: str, **of: str) -> float:
    return sum(by(nodes, name, **of).values())


# --- What is said of each thing, once by metrics and once by somebody else ------------------------------------------


def partitions_by_metrics(nodes: list[Series]) -> dict[Partition, tuple[float, ...]]:
    """First offset, end, last stable offset, leader, replicas, those in sync."""
    names = ("oldest_offset", "current_offset", "leader", "replicas", "in_sync_replica")
    found = [by(nodes, OF_PARTITIONS + name, "topic", "partition") for name in names]
    lag = by(nodes, "kafka_cluster_partition_laststableoffsetlag", "topic", "partition")
    start, end, leader, replicas, in_sync = found
    return {
        key: (start[key], end[key], end[key] - lag[key], leader[key], replicas[key], in_sync[key])
        for key in end
    }


def partitions_by_command(kafka: Watched) -> dict[Partition, tuple[float, ...]]:
    return {
        (each["topic"], str(each["partition"])): (
            each["start"],
            each["end"],
            each["last_stable"],
            each["leader"],
            len(each["replicas"]),
            len(each["in_sync"]),
        )
        for each in kafka.cli("topics", "show", "--internal")
    }


def ends_by_tool(kafka: Watched, needs_kafka: Tool) -> dict[Partition, int]:
    told = needs_kafka("get-offsets", "--bootstrap-server", kafka.bootstrap)
    lines = (line.rsplit(":", 2) for line in told.split())
    return {(topic, partition): int(end) for topic, partition, end in lines}


def sizes_by_tool(kafka: Watched, needs_kafka: Tool) -> dict[Partition, int]:
    """Of all replicas of a partition together."""
    told = needs_kafka("log-dirs", "--bootstrap-server", kafka.bootstrap, "--describe")
    (line,) = (line for line in told.splitlines() if line.startswith("{"))
    found: Counter[Partition] = Counter()
    for broker in json.loads(line)["brokers"]:
        for log_dir in broker["logDirs"]:
            for each in log_dir["partitions"]:
                topic, _, partition = each["partition"].rpartition("-")
                found[topic, partition] += each["size"]
    return dict(found)


# --------------------------------------------------------------------------------------------------------------------


def test_partitions_have_the_offsets_sizes_and_replicas_that_others_show(
    history: Watched, needs_kafka: Tool
) -> None:
    def agree() -> bool:
        """Compare again if they differ: followers and the last markers may lag for a moment."""
        nodes = history.scraped()
        found = partitions_by_metrics(nodes)
        sizes = by(nodes, "kafka_log_log_size", "topic", "partition")
        sizes.pop(("__cluster_metadata", "0"), None)
        return (
            found == partitions_by_command(history)
            and {key: each[1] for key, each in found.items()} == ends_by_tool(history, needs_kafka)
            and sizes == sizes_by_tool(history, needs_kafka)
            and found[TOPIC, "0"][1:3] == (12, 9)
            and found[HANGING, "0"][1:3] == (1, 0)
        )

    until(agree, "the same of each partition")
    nodes = history.scraped()
    count = len(partitions_by_metrics(nodes))
    assert total(nodes, "kafka_server_replicamanager_leadercount") == count
    assert total(nodes, "kafka_server_replicamanager_partitioncount") == count * history.brokers
    assert {*by(nodes, "kafka_brokers").values()} == {history.brokers**2}, "each node knows of all"
    assert total(nodes, "kafka_topic_partitions", topic=TOPIC) == 2 * history.brokers
    # whatever became of it; of the record that hangs each try was a request, and one was taken
    messages = by(nodes, "kafka_server_brokertopicmetrics_messagesin_total", "topic")
    assert messages[TOPIC] == len("abcdefghijkl")
    assert messages[HANGING] == 1


def test_the_controllers_counts_agree_with_the_lists(history: Watched, needs_kafka: Tool) -> None:
    told = needs_kafka("topics", "--bootstrap-server", history.bootstrap, "--describe")
    partitions = [line for line in told.splitlines() if "\tPartition: " in line]
    topics = [line for line in told.splitlines() if "\tPartitionCount: " in line]
    series = [history.scraped_at(history.controller)]
    of_controller = "kafka_controller_kafkacontroller_"
    assert total(series, of_controller + "activecontrollercount") == 1
    assert total(series, of_controller + "globaltopiccount") == len(topics)
    assert total(series, of_controller + "globalpartitioncount") == len(partitions)
    assert total(series, of_controller + "activebrokercount") == history.brokers
    assert total(series, of_controller + "offlinepartitionscount") == 0
    assert total(series, "kafka_controller_controllerstats_uncleanleaderelections_total") == 0
    assert {**by(series, "kafka_topic_partitions", "topic")} == Counter(
        line.split("Topic: ", 1)[1].split("\t")[0] for line in partitions
    )


def test_transactions_are_those_that_others_list(history: Watched, needs_kafka: Tool) -> None:
    nodes = history.scraped()
    states = {state: count for state, count in by(nodes, "barnabas_transactions", "state").items() if count}
    ours = history.cli("transactions", "list")
    assert states == Counter(each["state"] for each in ours)
    of_kafka = ("transactions", "--bootstrap-server", history.bootstrap)
    assert states == Counter(each["TransactionState"] for each in rows(needs_kafka(*of_kafka, "list")))
    ended = by(nodes, "barnabas_transactions_ended_total", "reason")
    assert (ended["committed"], ended["aborted"], ended["timed_out"], ended["fenced"]) == (1, 1, 0, 0)
    (holder,) = (each for each in ours if each["transactional_id"] == "holds")
    oldest_s = max(total([each], "barnabas_transactions_oldest_open_seconds") for each in nodes)
    assert 0 <= time.time() - holder["started_ms"] / 1000 - oldest_s < 60

    idle = "barnabas_partition_oldest_open_transaction_idle_seconds"
    who = {
        key: producer
        for key in by(nodes, idle, "topic", "partition")
        for producer in holders(nodes, idle, key)
    }
    waiting = history.cli("transactions", "explain")["waiting"]
    assert who == {
        (each["topic"], str(each["partition"])): str(each["transactions"][0]["producer_id"])
        for each in waiting
    }
    assert who == {(TOPIC, "0"): str(holder["producer_id"]), (HANGING, "0"): str(HANGING_ID)}
    for (topic, partition), producer_id in who.items():
        asked = ("describe-producers", "--topic", topic, "--partition", partition)
        open_ones = [
            each
            for each in rows(needs_kafka(*of_kafka, *asked))
            if each["CurrentTransactionStartOffset"] != "None"
        ]
        assert [each["ProducerId"] for each in open_ones] == [producer_id]
        since_ms = int(open_ones[0]["LastTimestamp"])
        idle_s = total(nodes, idle, topic=topic, partition=partition)
        assert 0 <= time.time() - since_ms / 1000 - idle_s < 60
        began_s = total(nodes, idle.replace("_idle_", "_"), topic=topic, partition=partition)
        assert idle_s <= began_s < idle_s + 60
    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"
    assert total(nodes, late) == history.brokers, "in each replica"
    hanging = rows(needs_kafka(*of_kafka, "find-hanging", "--topic", HANGING))
    assert [(each["Topic"], each["Partition"]) for each in hanging] == [(HANGING, "0")]


def holders(nodes: list[Series], idle: str, key: Partition) -> list[str]:
    topic, partition = key
    return [*by(nodes, idle, "producer_id", topic=topic, partition=partition)]


def test_groups_have_the_offsets_and_the_lag_that_others_show(history: Watched, needs_kafka: Tool) -> None:
    nodes = history.scraped()
    current = by(nodes, "kafka_consumergroup_current_offset", "topic", "partition", consumergroup=GROUP)
    lag = by(nodes, "kafka_consumergroup_lag", "topic", "partition", consumergroup=GROUP)
    assert (current, lag) == ({(TOPIC, "0"): 4, (TOPIC, "1"): 1}, {(TOPIC, "0"): 8, (TOPIC, "1"): 1})
    (found,) = history.cli("groups", "show", GROUP)
    ours = {(each["topic"], str(each["partition"])): each for each in found["partitions"]}
    assert current == {key: each["committed"] for key, each in ours.items()}
    assert lag == {key: each["offsets"] for key, each in ours.items()}
    of_kafka = ("groups", "--bootstrap-server", history.bootstrap)
    told = table(needs_kafka(*of_kafka, "--describe", "--group", GROUP))
    theirs = {(each["TOPIC"], each["PARTITION"]): each for each in told}
    assert current == {key: int(each["CURRENT-OFFSET"]) for key, each in theirs.items()}
    assert lag == {key: int(each["LAG"]) for key, each in theirs.items()}
    assert total(nodes, "kafka_consumergroup_lag_sum", consumergroup=GROUP, topic=TOPIC) == sum(lag.values())
    states = Counter(each["STATE"] for each in table(needs_kafka(*of_kafka, "--list", "--state")))
    of_classic = by(nodes, "kafka_server_group_coordinator_metrics_classic_group_count", "state")
    assert {state: count for state, count in of_classic.items() if count} == states
    assert total(nodes, "kafka_coordinator_group_groupmetadatamanager_numgroups") == len(
        history.cli("groups", "list")
    )
