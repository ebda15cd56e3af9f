"""Files that say which node a folder belongs to, and which topic a partition. If they make no sense, a start says what
to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.disks.examination import examine
from storage.checkpoints import META_PROPERTIES_TODO, partition_metadata_todo
from storage.disk_files import DiskFiles
from storage.file_examination import Severity
from tests.support.whole_server import started

METADATA_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
WHOLE = "version=1\nnode.id=1\ncluster.id=uG0CYMf7S9OrTLO8mT3xaA\ndirectory.id=wREDlfRwTCe4wPX-9TfYMw\n"


async def folder_of(folder: Path) -> Path:
    node = await started(folder)
    await node.stop()
    return folder


async def refused(folder: Path) -> str:
    with pytest.raises(StartError) as refusal:
        await started(folder)
    return str(refusal.value)


def found(folder: Path, path: Path) -> list[tuple[str, str]]:
    findings = examine(DiskFiles(only_reads=True), [str(folder)], str(folder))
    return [
        (each.what, each.what_to_do)
        for each in findings
        if each.path == str(path) and each.severity is Severity.ERROR
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "version, node.id, cluster.id, directory.id are missing"),
        ("version=1\ncluster.id=abc\n", "node.id, directory.id are missing"),
        (WHOLE.replace("node.id=1\n", "node.id=\n"), "node.id is missing"),
        (WHOLE.replace("version=1\n", ""), "version is missing"),
        (WHOLE.replace("wREDlfRwTCe4wPX-9TfYMw", "?"), "directory.id ? isn't a valid id"),
    ],
)
async def test_a_start_without_ids_in_meta_properties_says_which_and_what_to_do(
    tmp_path: Path, text: str, what: str
) -> None:
    path = await folder_of(tmp_path) / "meta.properties"
    path.write_text(text)
    assert await refused(tmp_path) == f"{path}: {what}; {META_PROPERTIES_TODO}"
    assert path.read_text() == text
    assert found(tmp_path, path) == [(what, META_PROPERTIES_TODO)]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (WHOLE.replace("node.id=1", "node.id=2"), "the folder belongs to node 2, but node.id is 1"),
        (WHOLE.replace("version=1", "version=7"), "version 7, but this broker knows version 1"),
        ("version=0\nbroker.id=1\n", "version 0, but this broker knows version 1"),
    ],
)
async def test_a_folder_of_another_node_or_version_is_reported_as_such(
    tmp_path: Path, text: str, what: str
) -> None:
    path = await folder_of(tmp_path) / "meta.properties"
    path.write_text(text)
    assert await refused(tmp_path) == f"{path}: {what}"


@pytest.mark.parametrize("text", ["garbage", "version: 7\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"])
async def test_nonsense_in_the_metadata_logs_partition_metadata_is_reported_with_the_right_contents(
    tmp_path: Path, text: str
) -> None:
    path = await folder_of(tmp_path) / "__cluster_metadata-0" / "partition.metadata"
    whole = path.read_text()
    path.write_text(text)
    todo = partition_metadata_todo(METADATA_ID)
    refusal = await refused(tmp_path)
    assert str(path) in refusal
    assert refusal.endswith(f"; {todo}")
    [(_, what_to_do)] = found(tmp_path, path)
    assert what_to_do == todo
    path.write_text(f"version: 0\ntopic_id: {METADATA_ID}\n")
    node = await started(tmp_path)
    await node.stop()
    assert METADATA_ID in whole
