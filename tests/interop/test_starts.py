"""Special kinds of folders that the two brokers hand to each other."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from broker.disks import moves
from broker.environment.environment import Environment
from broker.process.command_line import parse_command_line
from broker.server import Server
from broker.starting import start
from protocol.messages import metadata_records as records
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import build_batch
from protocol.wire.primitives import uuid_to_text
from tests.interop.nodes import Turns
from tests.support.apache_kafka import RUNNER, tool
from tests.support.kafka_server import CLUSTER_ID
from tests.support.requirements import need_apache_kafka
from tests.support.submitting import ask_controller
from tests.support.waiting import until
from tests.support.whole_server import crash, in_loop, started

PATIENCE_S = 240.0
SHORT = (
    "metadata.log.max.record.bytes.between.snapshots=500",
    "metadata.max.retention.bytes=1",
    "internal.metadata.log.segment.bytes=1500",
)


async def create(node: Server, name: str, partitions: int = 1, **configs: str) -> bytes:
    """Create a topic. Return its id once its records are on the disk."""
    entries = [
        CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
    ]
    wanted = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=entries)
    replies: list[Any] = []
    ask_controller(node.controller, node.topics.create([wanted]), replies.append)
    while not replies:
        await asyncio.sleep(0)
    [((_, topic_id),)] = replies
    assert isinstance(topic_id, bytes)
    return topic_id


async def written(node: Server) -> None:
    """Until the snapshot of the metadata that may be on its way is there."""
    while node.metadata.snapshots.is_writing:
        await asyncio.sleep(0)


def retention_ms(turns: Turns, topic: str) -> str:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient({"bootstrap.servers": turns.bootstrap})
    value = admin.describe_configs([resource])[resource].result(PATIENCE_S)["retention.ms"].value
    assert isinstance(value, str)
    return value


def produce(turns: Turns, topic: str, partition: int = 0) -> int:
    """Produce one more record. Return its offset."""
    offsets: list[int] = []
    producer = Producer({"bootstrap.servers": turns.bootstrap})
    producer.produce(
        topic,
        b"x",
        partition=partition,
        on_delivery=lambda error, message: offsets.append(-1 if error else message.offset()),
    )
    assert producer.flush(PATIENCE_S) == 0
    return offsets[0]


@in_loop
async def test_kafka_starts_on_a_metadata_log_that_begins_at_our_snapshot(tmp_path: Path) -> None:
    need_apache_kafka()
    with Turns(tmp_path) as turns:
        node = await started(turns.data, *SHORT)
        for index in range(12):
            await create(node, f"t{index}", 2, retention_ms=str(1_000_000 + index))
            await written(node)
        node.metadata.append(
            [
                records.ClientQuotaRecord(
                    entity=[records.EntityData(entity_type="user", entity_name="u")],
                    key="producer_byte_rate",
                    value=4321.0,
                ),
                records.UserScramCredentialRecord(
                    name="v",
                    mechanism=1,
                    salt=b"salt",
                    stored_key=b"k" * 32,
                    server_key=b"s" * 32,
                    iterations=4096,
                ),
            ]
        )
        await create(node, "last")
        await written(node)
        node.housekeeping.clean_metadata()
        assert node.metadata.log.base_offsets[0] > 0
        assert len(node.metadata.snapshots.ids) == 1
        await node.stop()

        turns.start_kafka()
        topics = AdminClient({"bootstrap.servers": turns.bootstrap}).list_topics(timeout=PATIENCE_S).topics
        assert set(topics) == {*(f"t{index}" for index in range(12)), "last"}
        assert retention_ms(turns, "t7") == "1000007"
        users = tool("configs", "--bootstrap-server", turns.bootstrap, "--describe", "--entity-type", "users")
        assert "producer_byte_rate=4321.0" in users
        assert "SCRAM-SHA-256=iterations=4096" in users
        turns.kill()

        again = await started(turns.data)
        assert set(again.metadata.image.topics) == set(topics)
        assert len(list(again.metadata.image.kept.of_type(records.ClientQuotaRecord))) == 1
        await again.stop()


@in_loop
async def test_kafka_and_barnabas_share_several_folders(tmp_path: Path) -> None:
    need_apache_kafka()
    paths = [tmp_path / "data", tmp_path / "other"]
    log_dirs = ",".join(map(str, paths))
    port = ["--port", "0", "-o", f"log.dirs={log_dirs}"]
    with Turns(tmp_path, {"log.dirs": log_dirs}) as turns:
        node = await start(parse_command_line(port, {}).config, Environment.of_this_machine())
        await create(node, "t", 4)
        await node.stop()

        turns.start_kafka()
        assert [produce(turns, "t", index) for index in range(4)] == [0] * 4
        turns.kill()
        where = {path.name: path.parent for path in tmp_path.glob("*/t-?")}
        assert [list(where.values()).count(path) for path in paths] == [2, 2]
        moved_to = paths[1 - paths.index(where["t-0"])]
        (where["t-0"] / "t-0").rename(moved_to / "t-0")

        again = await start(parse_command_line(port, {}).config, Environment.of_this_machine())
        assert [again.partitions.get("t", index).log.log_end_offset for index in range(4)] == [1] * 4
        await again.stop()

        turns.start_kafka()
        assert [produce(turns, "t", index) for index in range(4)] == [1] * 4
        turns.stop()
        assert not list(tmp_path.glob("*/*-stray"))


@in_loop
async def test_the_two_end_each_others_moves_between_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need_apache_kafka()
    paths = [tmp_path / "data", tmp_path / "other"]
    log_dirs = ",".join(map(str, paths))
    port = ["--port", "0", "-o", f"log.dirs={log_dirs}"]

    def place() -> list[str]:
        return sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/t-0"))

    with Turns(tmp_path, {"log.dirs": log_dirs}) as turns:
        node = await start(parse_command_line(port, {}).config, Environment.of_this_machine())
        await create(node, "t")
        partition = node.partitions.get("t", 0)
        for _ in range(500):
            batch = build_batch([(node.clock.now_ms(), None, b"x" * 100, ())])
            partition.log.append(batch, leader_epoch=0, now_ms=node.clock.now_ms())
            partition.leader().advance()
        monkeypatch.setattr(moves, "SLICE_BATCHES", 1)
        assert place() == ["data/t-0"]
        ids = {Path(directory.path).name: node.log_dirs.id_of(directory) for directory in node.log_dirs.all()}
        node.moves.begin(partition, ids["other"])
        for _ in range(100):
            await asyncio.sleep(0)
        await node.stop()
        assert list(tmp_path.glob("other/t-0.*-future"))

        turns.start_kafka()
        until(lambda: place() == ["other/t-0"], "Apache Kafka has moved it")
        assert produce(turns, "t") == 500
        turns.kill()

        again = await start(parse_command_line(port, {}).config, Environment.of_this_machine())
        partition = again.partitions.get("t", 0)
        assert partition.log.log_end_offset == 501
        again.moves.begin(partition, ids["data"])
        while partition.move is not None:
            await asyncio.sleep(0)
        assert place() == ["data/t-0"]
        crash(again)

        turns.start_kafka()
        assert produce(turns, "t") == 501
        printed = json.loads(
            tool(
                "log-dirs", "--bootstrap-server", turns.bootstrap, "--describe", "--topic-list", "t"
            ).splitlines()[-1]
        )
        [broker] = printed["brokers"]
        assert [each["logDir"] for each in broker["logDirs"] if each["partitions"]] == [str(paths[0])]
        turns.stop()
        assert not turns.kafka_errors
        assert not list(tmp_path.glob("*/*-stray"))


@in_loop
async def test_a_folder_that_kafka_formatted_for_a_dynamic_quorum_goes_to_and_fro(tmp_path: Path) -> None:
    need_apache_kafka()
    turns = Turns(tmp_path)
    controller = f"127.0.0.1:{turns.controller_port}"
    turns.settings |= {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": controller}
    properties = tmp_path / "format.properties"
    properties.write_text(
        "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\n"
        f"listeners=PLAINTEXT://{turns.bootstrap},CONTROLLER://{controller}\n"
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n"
        f"controller.quorum.bootstrap.servers={controller}\nlog.dirs={turns.data}\n"
    )
    wanted = ["--standalone", "--feature", "transaction.version=1", "-t", CLUSTER_ID, "-c", properties]
    subprocess.run([RUNNER, "storage", "format", *wanted], check=True, stdout=subprocess.DEVNULL)
    with turns:
        node = await started(turns.data)
        assert node.metadata.quorum.kraft_version == 1
        assert node.metadata.image.features["transaction.version"] == 1
        topic_id = await create(node, "t", retention_ms="1234567")
        await node.stop()
        turns.start_kafka()
        assert produce(turns, "t") == 0
        assert retention_ms(turns, "t") == "1234567"
        turns.kill()
        again = await started(turns.data, *SHORT)
        assert again.partitions.get("t", 0).log.log_end_offset == 1
        await create(again, "u")
        await written(again)
        assert again.metadata.snapshots.ids
        await again.stop()
        turns.start_kafka()
        assert produce(turns, "t") == 1
        assert produce(turns, "u") == 0
        described = tool("topics", "--bootstrap-server", turns.bootstrap, "--describe", "--topic", "t")
        assert uuid_to_text(topic_id) in described
        turns.stop()
