"""What a power loss leaves of a log's `partition.metadata`."""

from pathlib import Path

import pytest

from storage.checkpoints import CheckpointError
from tests.support.partition_logs import NOW_MS, append, batch, open_log


@pytest.mark.parametrize("size", [1, 11, 30, 42])
def test_a_partitions_metadata_that_the_power_cut_short_is_rebuilt(tmp_path: Path, size: int) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.close(clean=False)
    path = Path(log.directory) / "partition.metadata"
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    with pytest.raises(CheckpointError):
        open_log(tmp_path, clean=True)
    again = open_log(tmp_path, clean=False)
    assert path.read_bytes() == whole
    assert again.log_end_offset == 1


@pytest.mark.parametrize("size", [1, 42])
def test_a_log_without_records_gets_its_metadata_rebuilt_though_its_end_was_clean(
    tmp_path: Path, size: int
) -> None:
    log = open_log(tmp_path)
    log.create(NOW_MS)
    log.close()
    path = Path(log.directory) / "partition.metadata"
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    again = open_log(tmp_path, clean=True)
    assert path.read_bytes() == whole
    append(again, batch())
    again.close()
    path.write_bytes(whole[:size])
    with pytest.raises(CheckpointError):
        open_log(tmp_path, clean=True)


def test_a_partitions_rebuilt_metadata_is_synced(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.close(clean=False)
    path = Path(log.directory) / "partition.metadata"
    path.write_bytes(b"version")
    open_log(tmp_path, clean=False, recovery_point=1)
    assert synced == ["partition.metadata.tmp", "orders-0"]
