"""The log directories of a broker of ours whose controller is Apache Kafka's: chosen, moved between, found, failed."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from broker.controller.image import ClusterImage
from protocol.messages.cluster_admin import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from protocol.wire.primitives import uuid_from_text
from tests.compare.brokers import BarnabasInDirectories, in_directories
from tests.interop.joining import (
    KAFKAS,
    OURS,
    PATIENCE_S,
    admin,
    formatted,
    kafka_that_is_joined,
    wait_until_both_are_there,
)
from tests.interop.observing import Node, properties_of, until
from tests.support import waiting
from tests.support.apache_kafka import ApacheKafka
from tests.support.ports import free_ports
from tests.support.wire import Client

PARTITIONS = 4


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    with kafka_that_is_joined(tmp_path / "kafka") as kafka:
        yield kafka


@pytest.fixture
def ours(tmp_path: Path, kafka: ApacheKafka) -> Iterator[BarnabasInDirectories]:
    (port,) = free_ports(1)
    log_dirs = [tmp_path / name for name in "abc"]
    file = formatted(tmp_path, kafka, port, log_dirs)
    with in_directories(file, ",".join(map(str, log_dirs)), port) as broker:
        yield broker


def folders(tmp_path: Path) -> dict[int, str]:
    """The directory that each of our replicas has its folder in."""
    return {
        int(folder.name.removeprefix("t-")): name
        for name in "abc"
        for folder in (tmp_path / name).glob("t-?")
    }


async def recorded(tmp_path: Path, kafka: ApacheKafka, is_so: Callable[[dict[int, str]], bool]) -> None:
    """Waits until the controller knows the directories of our replicas so: by their names, as far as they have some."""
    names = {
        uuid_from_text(properties_of(tmp_path / name / "meta.properties")["directory.id"]): name
        for name in "abc"
        if (tmp_path / name).exists()
    }

    def known(image: ClusterImage) -> dict[int, str]:
        topic = image.topics.get("t")
        return {
            index: names.get(partition.directories[partition.replicas.index(OURS)], "?")
            for index, partition in (() if topic is None else topic.partitions.items())
        }

    await committed(tmp_path, kafka, lambda image: is_so(known(image)))


async def committed(tmp_path: Path, kafka: ApacheKafka, is_so: Callable[[ClusterImage], bool]) -> None:
    """Waits until the metadata says so."""
    observer = Node(tmp_path / "observer", kafka)
    observer.fetcher.start()
    await until(observer, lambda: observer.observer.has_caught_up and is_so(observer.metadata.image))
    observer.fetcher.stop()


def cordon(asking: AdminClient, path: str) -> None:
    entry = ConfigEntry("cordoned.log.dirs", path, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(OURS), incremental_configs=[entry])
    (altered,) = asking.incremental_alter_configs([resource]).values()
    altered.result(PATIENCE_S)


def fill(ours: BarnabasInDirectories, kafka: ApacheKafka) -> None:
    errors: list[object] = []
    both = f"{kafka.bootstrap},127.0.0.1:{ours.port}"
    producer = Producer({"bootstrap.servers": both, "acks": "all", "log_level": 0})
    for number in range(400):
        producer.produce(
            "t",
            b"%d" % number,
            partition=number % PARTITIONS,
            on_delivery=lambda error, _: errors.append(error),
        )
    assert producer.flush(PATIENCE_S) == 0
    assert {*errors} == {None}


def test_directories_are_chosen_moved_between_found_again_and_failed(
    tmp_path: Path, kafka: ApacheKafka, ours: BarnabasInDirectories
) -> None:
    asking = wait_until_both_are_there(kafka)
    wanted = NewTopic("t", num_partitions=PARTITIONS, replica_assignment=[[OURS, KAFKAS]] * PARTITIONS)
    asking.create_topics([wanted])["t"].result(PATIENCE_S)
    fill(ours, kafka)
    chosen = folders(tmp_path)
    assert [*sorted(chosen)] == [*range(PARTITIONS)]
    assert {*chosen.values()} == {*"abc"}
    asyncio.run(recorded(tmp_path, kafka, lambda known: known == chosen))

    # by Kafka's protocol, as kafka-reassign-partitions asks it
    target = "c" if chosen[0] != "c" else "b"
    directory = AlterReplicaLogDir(
        path=str(tmp_path / target), topics=[AlterReplicaLogDirTopic(name="t", partitions=[0])]
    )
    with Client.connect(ours.port) as client:
        answer = client.ask(AlterReplicaLogDirsRequest(dirs=[directory]), 2)
    assert answer.results[0].partitions[0].error_code == 0
    asyncio.run(recorded(tmp_path, kafka, lambda known: known == chosen | {0: target}))
    waiting.until(lambda: folders(tmp_path) == chosen | {0: target}, "the folder has moved", PATIENCE_S)

    # what is cordoned the controller knows by the heartbeats, at once and after a start
    cordoned = uuid_from_text(properties_of(tmp_path / "a" / "meta.properties")["directory.id"])
    cordon(admin(f"127.0.0.1:{ours.port}"), str(tmp_path / "a"))
    asyncio.run(committed(tmp_path, kafka, lambda image: image.brokers[OURS].cordoned_log_dirs == [cordoned]))

    # somebody moves a folder while the broker is down: the folder counts
    ours.end()
    elsewhere = "b" if target == "c" else "c"
    shutil.move(tmp_path / target / "t-0", tmp_path / elsewhere / "t-0")
    ours.begin()
    asyncio.run(recorded(tmp_path, kafka, lambda known: known == chosen | {0: elsewhere}))
    asyncio.run(committed(tmp_path, kafka, lambda image: image.brokers[OURS].cordoned_log_dirs == [cordoned]))
    fill(ours, kafka)

    lost = {index for index, name in folders(tmp_path).items() if name == "c"}
    assert lost
    shutil.rmtree(tmp_path / "c")

    def others_lead() -> bool:
        partitions = asking.list_topics("t", timeout=PATIENCE_S).topics["t"].partitions
        return all(partitions[index].leader == KAFKAS for index in lost)

    waiting.until(others_lead, "Kafka's broker leads what was in it", PATIENCE_S)
    fill(ours, kafka)
    ours.end()
