"""Several folders for data (JBOD): where partitions go, where they are found, and what a folder's failure takes."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.controller.image import UNASSIGNED
from broker.environment.environment import Environment
from broker.process.command_line import parse_command_line
from broker.server import Server
from protocol.messages import metadata_records as records
from protocol.messages.topics import CreatableTopic
from protocol.records.batch import build_batch
from protocol.wire.primitives import uuid_from_text
from storage.checkpoints import read_meta_properties
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.topics import topics_of
from tests.support.whole_server import crash

PARTITIONS = 6


@pytest.fixture(autouse=True)
def _a_whole_disk_afterwards() -> Iterator[None]:
    yield
    files.set_fault_hook(None)


async def started(folder: Path, *names: str, metadata: str | None = None) -> Server:
    arguments = ["--port", "0", "-o", "log.dirs=" + ",".join(str(folder / name) for name in names)]
    if metadata is not None:
        arguments += ["-o", f"metadata.log.dir={folder / metadata}"]
    environment = Environment.of_this_machine(ManualClock(), files)
    return await begin(parse_command_line(arguments, {}).config, environment)


async def filled(folder: Path, *names: str, metadata: str | None = None) -> Server:
    """Start a node with a topic that has a record in each partition."""
    server = await started(folder, *names, metadata=metadata)
    topics_of(server).create([CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1)])
    for index in range(PARTITIONS):
        append(server, index)
    return server


def append(server: Server, index: int) -> None:
    partition = server.partitions.get("t", index)
    batch = build_batch([(0, None, b"%d" % index, ())])
    partition.log.append(batch, leader_epoch=partition.leader_epoch, now_ms=0)
    partition.leader().advance()


def folders(folder: Path, name: str) -> set[str]:
    return {path.name for path in (folder / name).glob("t-*") if path.name[2:].isdigit()}


def id_of(folder: Path, name: str) -> bytes:
    properties = read_meta_properties(files, str(folder / name / "meta.properties"))
    assert properties is not None
    return uuid_from_text(properties["directory.id"])


def recorded(server: Server, index: int) -> list[bytes]:
    return server.metadata.image.topics["t"].partitions[index].directories


async def test_partitions_are_spread_and_their_records_say_where(tmp_path: Path) -> None:
    server = await filled(tmp_path, "a", "b")
    assert len(folders(tmp_path, "a")) == len(folders(tmp_path, "b")) == PARTITIONS // 2
    for name in ("a", "b"):
        for found in folders(tmp_path, name):
            assert recorded(server, int(found[2:])) == [id_of(tmp_path, name)]
    await server.stop()
    for name in ("a", "b"):
        assert (tmp_path / name / ".kafka_cleanshutdown").exists()


async def test_the_folders_share_a_cluster_id_and_have_different_directory_ids(tmp_path: Path) -> None:
    server = await started(tmp_path, "a", "b")
    found = [read_meta_properties(files, str(tmp_path / name / "meta.properties")) for name in ("a", "b")]
    assert {properties["cluster.id"] for properties in found if properties} == {server.cluster_id}
    assert id_of(tmp_path, "a") != id_of(tmp_path, "b")
    broker = server.metadata.image.brokers[1]
    assert broker.log_dirs == sorted([id_of(tmp_path, "a"), id_of(tmp_path, "b")])


@pytest.mark.parametrize("clean", [True, False])
async def test_a_restart_finds_all_partitions_where_they_are(tmp_path: Path, clean: bool) -> None:
    server = await filled(tmp_path, "a", "b")
    if clean:
        await server.stop()
    else:
        crash(server)
    again = await started(tmp_path, "a", "b")
    assert [again.partitions.get("t", index).log.log_end_offset for index in range(PARTITIONS)] == [1] * 6
    assert not list(tmp_path.glob("*/*-stray"))


async def test_a_folder_that_was_moved_counts_and_its_record_is_corrected(tmp_path: Path) -> None:
    server = await filled(tmp_path, "a", "b")
    await server.stop()
    (moved, *_) = folders(tmp_path, "a")
    (tmp_path / "a" / moved).rename(tmp_path / "b" / moved)
    again = await started(tmp_path, "a", "b")
    index = int(moved[2:])
    partition = again.partitions.get("t", index)
    assert partition.log.log_end_offset == 1
    assert partition.directory.path == str(tmp_path / "b")
    assert recorded(again, index) == [id_of(tmp_path, "b")]
    append(again, index)
    await again.stop()
    assert moved not in folders(tmp_path, "a")


async def test_partitions_of_a_directory_with_a_new_id_are_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that isn't mounted leaves such a directory."""
    server = await filled(tmp_path, "a", "b")
    await server.stop()
    lost = folders(tmp_path, "b")
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").mkdir()
    again = await started(tmp_path, "a", "b")
    said = f"{len(lost)} partitions were in a log directory that isn't there any more, the first is t-"
    assert said in caplog.text
    await again.stop()
    caplog.clear()
    await started(tmp_path, "a", "b")
    assert said not in caplog.text


async def test_two_folders_of_one_partition_are_reported(tmp_path: Path) -> None:
    server = await filled(tmp_path, "a", "b")
    await server.stop()
    (twice, *_) = folders(tmp_path, "a")
    shutil.copytree(tmp_path / "a" / twice, tmp_path / "b" / twice)
    with pytest.raises(StartError, match=f"{twice} is both in {tmp_path}/a and in {tmp_path}/b"):
        await started(tmp_path, "a", "b")
    assert not [*tmp_path.glob("*/*-stray")]


async def test_partitions_of_a_folder_that_failed_have_no_leader_and_come_back_with_it(
    tmp_path: Path,
) -> None:
    server = await filled(tmp_path, "a", "b")
    await server.stop()
    lost = {int(name[2:]) for name in folders(tmp_path, "b")}
    (tmp_path / "b").rename(tmp_path / "away")
    (tmp_path / "b").write_text("a file, and no folder")
    without = await started(tmp_path, "a", "b")
    image = without.metadata.image.topics["t"]
    for index, partition in image.partitions.items():
        assert partition.leader == (-1 if index in lost else 1)
        assert (without.partitions.find("t", index) is None) == (index in lost)
        assert partition.directories == [
            id_of(tmp_path, "a") if index not in lost else partition.directories[0]
        ]
    assert without.metadata.image.brokers[1].log_dirs == [id_of(tmp_path, "a")]
    await without.stop()
    (tmp_path / "b").unlink()
    (tmp_path / "away").rename(tmp_path / "b")
    again = await started(tmp_path, "a", "b")
    assert [again.partitions.get("t", index).log.log_end_offset for index in range(PARTITIONS)] == [1] * 6


async def test_partitions_of_a_folder_that_was_replaced_begin_empty_elsewhere(tmp_path: Path) -> None:
    server = await filled(tmp_path, "a", "b")
    await server.stop()
    lost = {int(name[2:]) for name in folders(tmp_path, "b")}
    (tmp_path / "b").rename(tmp_path / "away")
    again = await started(tmp_path, "a", "b")  # a new disk
    for index in range(PARTITIONS):
        partition = again.partitions.get("t", index)
        assert partition.log.log_end_offset == (0 if index in lost else 1)
        assert recorded(again, index)[0] in again.log_dirs.ids


@pytest.mark.parametrize("setting", ["node.id=7", "log.dirs"])
async def test_a_start_that_is_refused_changes_nothing(tmp_path: Path, setting: str) -> None:
    server = await filled(tmp_path, "a", "b")
    topics_of(server).delete([server.metadata.image.topics["t"]])
    await server.stop()
    assert list((tmp_path / "a").glob("*-delete"))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    arguments = ["--port", "0", "-o", f"log.dirs={tmp_path / 'a'},{tmp_path / 'b'}"]
    arguments += (
        ["-o", "node.id=7"] if setting == "node.id=7" else ["-o", f"metadata.log.dir={tmp_path / 'b'}"]
    )
    environment = Environment.of_this_machine(ManualClock(), files)
    with pytest.raises(StartError):
        await begin(parse_command_line(arguments, {}).config, environment)
    await environment.background.finish()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


@pytest.mark.parametrize("name", ["a", "b"])
async def test_a_folder_that_cannot_be_used_counts_as_failed(tmp_path: Path, name: str) -> None:
    server = await filled(tmp_path, "a", "b")
    await server.stop()

    def hook(operation: str, path: str, size: int) -> None:
        if operation == "remove" and path == f"{tmp_path}/{name}/.kafka_cleanshutdown":
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(hook)
    if name == "a":  # the metadata's
        with pytest.raises(StartError, match=f"{tmp_path}/a can't be used"):
            await started(tmp_path, "a", "b")
        assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    else:
        again = await started(tmp_path, "a", "b")
        assert again.log_dirs.offline_paths == [str(tmp_path / "b")]
        await again.stop()
    files.set_fault_hook(None)
    again = await started(tmp_path, "a", "b")
    assert [again.partitions.get("t", index).log.log_end_offset for index in range(PARTITIONS)] == [1] * 6


async def test_the_metadatas_folder_must_not_fail(tmp_path: Path) -> None:
    server = await filled(tmp_path, "a", "b")
    await server.stop()
    (tmp_path / "a").rename(tmp_path / "away")
    (tmp_path / "a").write_text("")
    with pytest.raises(StartError, match=f"{tmp_path}/a can't be used"):
        await started(tmp_path, "a", "b")


async def test_the_metadata_may_have_its_own_folder(tmp_path: Path) -> None:
    server = await filled(tmp_path, "a", "b", metadata="m")
    assert (tmp_path / "m" / "__cluster_metadata-0").is_dir()
    assert (tmp_path / "m" / "meta.properties").exists()
    assert folders(tmp_path, "m") == set()
    assert id_of(tmp_path, "m") not in server.metadata.image.brokers[1].log_dirs
    await server.stop()
    again = await started(tmp_path, "a", "b", metadata="m")
    assert set(again.metadata.image.topics) == {"t"}


async def test_the_metadata_may_be_in_any_of_the_folders(tmp_path: Path) -> None:
    server = await filled(tmp_path, "a", "b", metadata="b")
    assert (tmp_path / "b" / "__cluster_metadata-0").is_dir()
    await server.stop()
    with pytest.raises(StartError, match="has a metadata log, but it is expected in"):
        await started(tmp_path, "a", "b")


async def test_a_folder_named_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="twice"):
        await started(tmp_path, "a", "b", "a/../a")


@pytest.mark.fault("real_path")
async def test_a_folder_whose_path_leads_nowhere_counts_as_failed(tmp_path: Path) -> None:
    def hook(operation: str, path: str, size: int) -> None:
        if operation == "real_path" and path == f"{tmp_path}/b":
            raise OSError(errno.EIO, "refused", path)

    files.set_fault_hook(hook)
    server = await started(tmp_path, "a", "b")
    assert server.log_dirs.offline_paths == [str(tmp_path / "b")]


async def test_a_partition_without_a_directory_in_its_record_is_given_one(tmp_path: Path) -> None:
    server = await started(tmp_path, "a", "b")
    topic_id = b"T" * 16
    server.metadata.append(
        [
            records.TopicRecord(name="t", topic_id=topic_id),
            records.PartitionRecord(
                partition_id=0, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=0
            ),
        ]
    )
    append(server, 0)
    await server.stop()
    again = await started(tmp_path, "a", "b")
    assert recorded(again, 0) == [id_of(tmp_path, "a")] != [UNASSIGNED]
    assert again.partitions.get("t", 0).log.log_end_offset == 1


async def test_a_leaders_lost_records_are_not_looked_for_again(tmp_path: Path) -> None:
    """Else no start would ever be a clean one again."""
    server = await filled(tmp_path, "a")
    log = server.partitions.get("t", 0).log
    log.roll(0)
    append(server, 0)
    crash(server)
    (Path(log.directory) / f"{0:020d}.log").write_bytes(b"")
    server = await started(tmp_path, "a")
    found = server.partitions.get("t", 0).log
    assert (found.hole, found.open_hole, found.log_end_offset) == (0, None, 2)
    await server.stop()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
