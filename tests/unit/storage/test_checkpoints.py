"""Kafka's text files, byte for byte, and how broken ones are read."""

from pathlib import Path

import pytest

from storage import checkpoints
from storage.checkpoints import CheckpointError
from tests.support.disk import files


def test_offsets_are_written_as_kafka_writes_them_and_read_back(tmp_path: Path) -> None:
    offsets = {("orders", 0): 17, ("a-b.c_d", 11): 0, ("__consumer_offsets", 49): 2**40}
    path = tmp_path / "checkpoint"
    path.write_bytes(checkpoints.encode_offsets(offsets))
    assert path.read_text() == "0\n3\norders 0 17\na-b.c_d 11 0\n__consumer_offsets 49 1099511627776\n"
    assert checkpoints.read_offsets(files, str(path)) == offsets


def test_no_offsets_are_two_lines(tmp_path: Path) -> None:
    assert checkpoints.encode_offsets({}) == b"0\n0\n"


@pytest.mark.parametrize("text", [None, "", "0\n", "0\n0\n"])
def test_a_missing_or_empty_checkpoint_says_nothing(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "checkpoint"
    if text is not None:
        path.write_text(text)
    assert checkpoints.read_offsets(files, str(path)) == {}
    assert checkpoints.read_leader_epochs(files, str(path)) == []


@pytest.mark.parametrize(
    "text",
    [
        "1\n0\n",
        "0\n2\norders 0 1\n",
        "0\n1\norders 0\n",
        "0\n1\norders x 1\n",
        "0\nmany\n",
        "0\n1\norders 0 1 2\n",
    ],
)
def test_a_malformed_checkpoint_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError):
        checkpoints.read_offsets(files, str(path))


def test_bytes_that_are_no_text_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(b"0\n1\n\xff\xfe 0 1\n")
    with pytest.raises(CheckpointError):
        checkpoints.read_offsets(files, str(path))


@pytest.mark.parametrize("text", ["0\n1\n5\n", "0\n1\n5 6 7\n", "0\n1\nfive 6\n"])
def test_malformed_leader_epochs_are_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError):
        checkpoints.read_leader_epochs(files, str(path))


def test_partition_metadata_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "partition.metadata"
    path.write_bytes(checkpoints.encode_partition_metadata("3Pmu4qSUSGKsNgkHuKpq1Q"))
    assert checkpoints.read_partition_metadata(files, str(path)) == "3Pmu4qSUSGKsNgkHuKpq1Q"


@pytest.mark.parametrize("data", [None, b"", bytes(43)])
def test_partition_metadata_that_a_lost_power_supply_emptied_says_nothing(
    tmp_path: Path, data: bytes | None
) -> None:
    path = tmp_path / "partition.metadata"
    if data is not None:
        path.write_bytes(data)
    assert checkpoints.read_partition_metadata(files, str(path)) is None


@pytest.mark.parametrize(
    "text", ["version: 1\ntopic_id: " + "A" * 22, "version: 0\ntopic_id: short", "nonsense"]
)
def test_malformed_partition_metadata_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "partition.metadata"
    path.write_text(text)
    with pytest.raises(CheckpointError):
        checkpoints.read_partition_metadata(files, str(path))


def test_meta_properties_are_read_as_java_wrote_them(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_text(
        "#\n#Sat Nov 21 07:27:45 UTC 2026\nnode.id=1\ndirectory.id=bHqe5RBLgqa5wkxO6iXQHg\n"
        "version=1\ncluster.id = 4L6g3nShT-eMCtK--X86sw\n"
    )
    assert checkpoints.read_meta_properties(files, str(path)) == {
        "node.id": "1",
        "directory.id": "bHqe5RBLgqa5wkxO6iXQHg",
        "version": "1",
        "cluster.id": "4L6g3nShT-eMCtK--X86sw",
    }


def test_properties_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "meta.properties"
    path.write_bytes(checkpoints.encode_properties({"version": "1", "node.id": "7"}))
    assert checkpoints.read_meta_properties(files, str(path)) == {"version": "1", "node.id": "7"}
    assert checkpoints.read_meta_properties(files, str(tmp_path / "missing")) is None


def test_the_clean_mark_says_the_brokers_epoch(tmp_path: Path) -> None:
    path = tmp_path / ".kafka_cleanshutdown"
    path.write_bytes(checkpoints.encode_clean_shutdown(11))
    assert path.read_text() == '{"version":0,"brokerEpoch":11}'
    assert checkpoints.read_clean_shutdown(files, str(path)) == 11


@pytest.mark.parametrize("text", ["", "{}", "nonsense", "[]", '{"version":0,"brokerEpoch":null}'])
def test_an_empty_mark_counts_all_the_same(tmp_path: Path, text: str) -> None:
    path = tmp_path / ".kafka_cleanshutdown"
    path.write_text(text)
    assert checkpoints.read_clean_shutdown(files, str(path)) == -1
    assert checkpoints.read_clean_shutdown(files, str(tmp_path / "missing")) is None
