"""A broker of ours and Apache Kafka's controller: it fetches the metadata log, is registered, and follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from broker.controller.metadata_log import MetadataLog
from broker.environment.network import SocketNetwork
from broker.environment.scheduler import LoopScheduler, SystemClock
from broker.peers.controller_channel import ControllerChannel
from broker.peers.lifecycle import BrokerLifecycle, BrokerState, Listening
from broker.peers.peer import Peer, PeerSettings
from broker.peers.replica_fetcher_manager import ReplicaFetching
from broker.replicas.replica import Follower, WaitingFetches
from broker.replicas.replica_fetcher import ReplicaFetcher
from storage.disk_files import DiskFiles
from storage.log.log_config import LogConfig
from storage.log.partition_log import PartitionLog
from tests.interop.observing import NODE, PATIENCE_S, Node, registration, until
from tests.support import apache_kafka, waiting
from tests.support.apache_kafka import ApacheKafka
from tests.support.immediate_background import run_at_once
from tests.support.replication_quota import AdjustableQuota
from tests.support.requirements import need_apache_kafka

SNAPSHOTS_OFTEN = ("metadata.log.max.record.bytes.between.snapshots=2000", "metadata.max.idle.interval.ms=0")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    need_apache_kafka()
    with apache_kafka.running(tmp_path_factory.mktemp("kafka"), *SNAPSHOTS_OFTEN) as kafka:
        yield kafka


async def create(kafka: ApacheKafka, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made = admin.create_topics([NewTopic(name, 3, 1) for name in names])
    for each in made.values():
        await asyncio.to_thread(each.result, PATIENCE_S)


async def test_an_observer_gets_the_records_of_kafkas_controller(tmp_path: Path, kafka: ApacheKafka) -> None:
    node = Node(tmp_path, kafka)
    node.fetcher.start()
    await create(kafka, "before")
    await node.until_it_has({"before"})
    names = [f"many-{number}" for number in range(40)]
    await create(kafka, *names)
    await node.until_it_has({"before", *names})
    node.fetcher.stop()
    image = node.metadata.image
    assert [*image.topics["before"].partitions] == [0, 1, 2]
    assert {partition.leader for partition in image.topics["before"].partitions.values()} == {1}
    assert image.brokers[1].record.broker_id == 1
    assert _is_the_same_log(node.metadata, kafka)


async def test_a_late_observer_begins_with_a_snapshot_and_a_restart_continues_after_it(
    tmp_path: Path, kafka: ApacheKafka
) -> None:
    names = {f"more-{number}" for number in range(40)}
    await create(kafka, *names)
    await asyncio.to_thread(
        waiting.until, lambda: snapshots_of(kafka), "Kafka has written a snapshot", PATIENCE_S
    )
    node = Node(tmp_path, kafka)
    node.fetcher.start()
    await node.until_it_has(names)
    node.fetcher.stop()
    newest = node.metadata.snapshots.newest
    assert newest is not None
    assert node.metadata.log.log_start_offset == newest.offset > 0
    assert _is_the_same_log(node.metadata, kafka)
    node.metadata.log.close(clean=True)

    again = Node(tmp_path, kafka)
    assert again.metadata.last_applied_offset == newest.offset - 1  # later records may not be committed
    await create(kafka, "last")
    again.fetcher.start()
    await again.until_it_has({*names, "last"})
    again.fetcher.stop()
    assert again.metadata.log.log_end_offset > newest.offset
    assert _is_the_same_log(again.metadata, kafka)


def snapshots_of(kafka: ApacheKafka) -> list[Path]:
    """The snapshots, except for the first one of a new cluster."""
    files = kafka.data.glob("__cluster_metadata-0/*.checkpoint")
    return [file for file in files if not file.name.startswith(20 * "0" + "-")]


def _is_the_same_log(metadata: MetadataLog, kafka: ApacheKafka) -> bool:
    """Byte for byte, from where this one begins to where it ends, which may be the same right behind a snapshot."""
    log = metadata.log
    ours = b"".join(
        bytes(batch) for _, batch in log.batches(log.log_start_offset, upper_bound=log.log_end_offset)
    )
    theirs = b"".join(file.read_bytes() for file in sorted(kafka.data.glob("__cluster_metadata-0/*.log")))
    return ours in theirs


async def test_a_broker_is_registered_unfenced_and_let_go(tmp_path: Path, kafka: ApacheKafka) -> None:
    node = Node(tmp_path, kafka)
    scheduler = LoopScheduler()
    told: list[str] = []
    heard = asyncio.Event()

    def tell(what: str) -> None:
        told.append(what)
        heard.set()
        if what == "caught up":
            lifecycle.ready()

    channel = ControllerChannel(
        lambda: node.observer.leader, PeerSettings(str(NODE), "0"), SocketNetwork(), scheduler
    )
    lifecycle = BrokerLifecycle(
        registration(node),
        channel,
        scheduler,
        lambda: node.metadata.last_applied_offset,
        Listening(
            caught_up=lambda: tell("caught up"),
            unfenced=lambda: tell("unfenced"),
            let_go=lambda: tell("let go"),
            not_registered=lambda: tell("not registered"),
        ),
        heartbeat_interval_ms=200,
        cordoned=tuple,
    )

    async def until_told(what: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while what not in told:
                heard.clear()
                await heard.wait()

    lifecycle.start()  # before the controller's address is known
    node.fetcher.start()
    await until_told("unfenced")
    assert lifecycle.state is BrokerState.RUNNING
    await until(
        node, lambda: NODE in node.metadata.image.brokers and not node.metadata.image.brokers[NODE].fenced
    )
    assert node.metadata.image.brokers[NODE].broker_epoch == lifecycle.broker_epoch > 0
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    shown = lambda: NODE in admin.list_topics(timeout=PATIENCE_S).brokers  # noqa: E731
    await asyncio.to_thread(waiting.until, shown, "Kafka's broker shows it", PATIENCE_S)

    lifecycle.begin_controlled_shutdown()
    await until_told("let go")
    assert lifecycle.state is BrokerState.SHUTTING_DOWN
    await until(node, lambda: node.metadata.image.brokers[NODE].fenced)
    node.fetcher.stop()
    assert told == ["caught up", "unfenced", "let go"]


class Following:
    """A partition that this node follows."""

    def __init__(self, node: Node, name: str, folder: Path, broker_epoch: Callable[[], int]) -> None:
        image = node.metadata.image
        topic = image.topics[name]
        leader = image.brokers[topic.partitions[0].leader].record.end_points[0]
        clock = SystemClock()
        self.log = PartitionLog.open(
            str(folder),
            name,
            0,
            LogConfig(),
            now_ms=clock.now_ms(),
            clean=False,
            files=DiskFiles(),
            background=run_at_once,
        )
        partition = topic.partitions[0]
        role = Follower(self.log, WaitingFetches(), partition.leader, partition.leader_epoch)
        fetcher = ReplicaFetcher(NODE, broker_epoch, clock, AdjustableQuota(clock))
        fetcher.follow(topic.topic_id, name, 0, role)
        settings = PeerSettings(f"broker-{NODE}-fetcher-0", "0")
        scheduler = LoopScheduler()
        peer = Peer(leader.host, leader.port, settings, SocketNetwork(), scheduler)
        self.fetching = ReplicaFetching(fetcher, peer, scheduler, node.failures.append)


async def test_a_follower_of_ours_comes_in_sync_and_has_its_leaders_bytes(
    tmp_path: Path, kafka: ApacheKafka
) -> None:
    node = Node(tmp_path / "node", kafka)
    scheduler = LoopScheduler()
    channel = ControllerChannel(
        lambda: node.observer.leader, PeerSettings(str(NODE), "0"), SocketNetwork(), scheduler
    )
    gone = asyncio.Event()
    lifecycle = BrokerLifecycle(
        registration(node),
        channel,
        scheduler,
        lambda: node.metadata.last_applied_offset,
        Listening(
            caught_up=lambda: None, unfenced=lambda: None, let_go=gone.set, not_registered=lambda: None
        ),
        heartbeat_interval_ms=200,
        cordoned=tuple,
    )
    lifecycle.start()
    node.fetcher.start()
    await until(node, lambda: NODE in node.metadata.image.brokers)
    # Before it is unfenced: then clients take either broker for the controller, and ours serves nobody here.
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    made = admin.create_topics(
        [NewTopic("followed", 1, replica_assignment=[[1, NODE]], config={"min.insync.replicas": "2"})]
    )
    await asyncio.to_thread(made["followed"].result, PATIENCE_S)
    await until(node, lambda: "followed" in node.metadata.image.topics)
    following = Following(node, "followed", tmp_path / "followed-0", lambda: lifecycle.broker_epoch)
    following.fetching.wake()
    lifecycle.ready()
    partition = node.metadata.image.topics["followed"].partitions[0]
    assert partition.isr == [1]
    await until(node, lambda: node.metadata.image.topics["followed"].partitions[0].isr == [1, NODE])

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(1_000):
        producer.produce("followed", b"x" * 100, b"%d" % number)
    assert (
        await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
    )  # each is acknowledged, so each is in this log
    assert following.log.log_end_offset == 1_000
    ours = b"".join(bytes(batch) for _, batch in following.log.batches(0, upper_bound=1_000))
    assert ours == (kafka.data / "followed-0" / "00000000000000000000.log").read_bytes()
    producer.produce("followed", b"the high watermark comes with it")
    assert await asyncio.to_thread(producer.flush, PATIENCE_S) == 0
    assert following.log.high_watermark >= 1_000

    following.fetching.stop()
    lifecycle.begin_controlled_shutdown()
    async with asyncio.timeout(PATIENCE_S):
        await gone.wait()
    node.fetcher.stop()
