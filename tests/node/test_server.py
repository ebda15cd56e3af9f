"""A whole broker in this process: what it writes to its folder, and how it starts on what it finds there."""

import asyncio
import os
from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.environment.environment import Environment
from broker.process.command_line import parse_command_line
from broker.server import Server
from protocol.messages.topics import CreatableTopic
from protocol.records.batch import build_batch
from tests.support.disk import files
from tests.support.nodes import begin
from tests.support.topics import topics_of
from tests.support.whole_server import crash, started, take_turns


def create(node: Server, name: str, partitions: int = 1) -> None:
    topics_of(node).create([CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)])


def append(node: Server, topic: str, *values: bytes) -> None:
    partition = node.partitions.get(topic, 0)
    batch = build_batch([(node.clock.now_ms(), None, value, ()) for value in values])
    partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=node.clock.now_ms())
    partition.leader().advance()


async def refusal(folder: Path, *settings: str, port: int = 0) -> str:
    with pytest.raises(StartError) as refused:
        await started(folder, *settings, port=port)
    text = str(refused.value)
    assert "\n" not in text
    return text


async def test_a_restart_finds_topics_and_records(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "a", 3)
    append(node, "a", b"1", b"2")
    topic_id = node.partitions.by_name["a"].topic_id
    await node.stop()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    again = await started(tmp_path)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    assert again.partitions.by_name["a"].topic_id == topic_id
    assert sorted(again.partitions.by_name["a"].partitions) == [0, 1, 2]
    assert again.partitions.get("a", 0).log.high_watermark == 2


async def test_a_crash_loses_nothing_that_was_appended(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "a")
    append(node, "a", b"1")
    crash(node)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = await started(tmp_path)
    assert again.partitions.get("a", 0).log.log_end_offset == 1


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restart_adds_two_to_the_leader_epoch(tmp_path: Path, clean: bool) -> None:
    node = await started(tmp_path)
    create(node, "a")
    if clean:
        await node.stop()
    else:
        crash(node)
    again = await started(tmp_path)
    partition = again.partitions.get("a", 0)
    assert partition.leader_epoch == 2
    assert partition.log.leader_epochs.entries == [(2, 0)]


async def test_cluster_and_directory_keep_their_ids(tmp_path: Path) -> None:
    node = await started(tmp_path)
    ids = (node.cluster_id, [*node.log_dirs.ids])
    await node.stop()
    again = await started(tmp_path)
    assert (again.cluster_id, [*again.log_dirs.ids]) == ids


async def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    node = await started(tmp_path)
    recorded(node)
    first = [node.producer_ids.next() for _ in range(3)]
    crash(node)
    again = await started(tmp_path)
    assert first == [0, 1, 2]
    recorded(again)
    assert again.producer_ids.next() == 1000


def recorded(node: Server) -> None:
    """Return the record of a block of producer ids."""
    node.producer_ids.left()
    take_turns(node)


async def test_two_brokers_cannot_share_a_folder(tmp_path: Path) -> None:
    await started(tmp_path)
    assert "in use by another broker" in await refusal(tmp_path)


async def test_a_folder_in_use_names_the_process_that_uses_it(tmp_path: Path) -> None:
    await started(tmp_path)
    text = await refusal(tmp_path)
    assert f"{tmp_path} is in use by another broker, process {os.getpid()} (" in text
    assert text.endswith("; --data takes another folder")


async def test_a_port_in_use_suggests_another(tmp_path: Path) -> None:
    node = await started(tmp_path / "a")
    text = await refusal(tmp_path / "b", port=node.listeners["PLAINTEXT"].port)
    assert "Address already in use; --port takes another one, --port 0 any that is free" in text


async def test_a_default_folder_that_cannot_be_used_suggests_another(tmp_path: Path) -> None:
    (tmp_path / "barnabas").touch()
    config = parse_command_line(["--port", "0"], {"XDG_DATA_HOME": str(tmp_path)}).config
    with pytest.raises(StartError, match=r"barnabas can't be used: .*; --data takes another folder"):
        await begin(config, Environment.of_this_machine(files=files))


async def test_a_port_in_use_is_reported_with_its_listener(tmp_path: Path) -> None:
    node = await started(tmp_path / "one")
    port = node.listeners["PLAINTEXT"].port
    assert f"127.0.0.1:{port}" in await refusal(tmp_path / "two", port=port)
    assert not (tmp_path / "two").exists()


async def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file" / "data") in await refusal(tmp_path / "file" / "data")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("node.id=1", "node.id=7"), "belongs to node 7"),
        (("version=1", "version=2"), "version 2"),
        (("directory.id=", "x="), "missing"),
    ],
)
async def test_a_folder_of_another_node_is_not_touched(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    await (await started(tmp_path)).stop()
    properties = tmp_path / "meta.properties"
    properties.write_text(properties.read_text().replace(*change))
    before = properties.read_text()
    assert said in await refusal(tmp_path)
    assert properties.read_text() == before


async def test_a_nonsense_metadata_log_is_reported(tmp_path: Path) -> None:
    node = await started(tmp_path)
    log = node.metadata.log
    batch = build_batch([(0, None, b"\x01\x7f\x00", ())])
    log.append(batch, leader_epoch=node.metadata.epoch, now_ms=0)
    crash(node)
    assert "unknown type 127" in await refusal(tmp_path)


async def test_a_folder_that_is_no_topics_is_set_aside(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "a")
    append(node, "a", b"1")
    await node.stop()
    (tmp_path / "a-0").rename(tmp_path / "lost-0")
    again = await started(tmp_path)
    assert not (tmp_path / "lost-0").exists()
    assert [path.name[:7] for path in tmp_path.glob("*-stray")] == ["lost-0."]
    assert again.partitions.get("a", 0).log.log_end_offset == 0


async def test_a_deleted_topic_is_gone_from_names_ids_and_folder(tmp_path: Path) -> None:
    node = await started(tmp_path)
    create(node, "a")
    append(node, "a", b"1")
    topic = node.metadata.image.topics["a"]
    partition = node.partitions.get("a", 0)
    topics_of(node).delete([topic])
    assert partition.is_gone
    assert node.partitions.find("a", 0) is None
    assert topic.topic_id not in node.partitions.by_id
    assert not (tmp_path / "a-0").exists()
    create(node, "a")
    assert node.partitions.get("a", 0).log.log_end_offset == 0
    assert node.partitions.by_name["a"].topic_id != topic.topic_id


async def test_idle_connections_are_closed_and_the_others_stay(tmp_path: Path) -> None:
    node = await started(tmp_path, "connections.max.idle.ms=1000")
    port = node.listeners["PLAINTEXT"].port
    idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
    _, busy_writer = await asyncio.open_connection("127.0.0.1", port)
    listener = node.listeners["PLAINTEXT"]
    while len(listener.connections) < 2:
        await asyncio.sleep(0)
    idle_port = idle_writer.get_extra_info("sockname")[1]
    for connection in listener.connections:
        connection.last_active_s -= 2 if connection.peer_port == idle_port else 0
    node.housekeeping.close_idle_connections()
    assert await idle_reader.read() == b""
    assert [connection.peer_port for connection in listener.connections] != [idle_port]
    assert len(listener.connections) == 1
    idle_writer.close()
    busy_writer.close()


async def test_a_broken_invariant_stops_without_the_mark_of_a_clean_shutdown(tmp_path: Path) -> None:
    node = await started(tmp_path)
    node.stop_on_failure(AssertionError("impossible"))
    assert node.stopped.is_set()
    await node.stop()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
