"""What is on the disk at which moment, so that a machine that loses power keeps what was synced."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from protocol.errors import KafkaError
from storage.log.log_state import AppendOrigin
from storage.log.partition_log import PartitionLog, sync_cut
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, HeldBackground, append, batch, file, open_log, produced


def test_the_first_sync_covers_the_name_of_the_partitions_directory(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path, flush_messages=1)
    append(log, batch())
    assert synced[-2:] == ["orders-0", tmp_path.name]
    append(log, batch())
    assert synced[-1] == "00000000000000000000.log"


def test_a_segment_whose_records_are_synced_is_recovered_until_its_indexes_are(tmp_path: Path) -> None:
    background = HeldBackground()
    log = open_log(tmp_path, flush_messages=1, background=background)
    append(log, batch(3))
    background.run_all()
    assert log.recovery_point == 3
    log.roll(NOW_MS)
    assert log.recovery_point == 2
    background.run_all()
    assert log.recovery_point == 3


@pytest.mark.parametrize("flushing", [False, True])
def test_a_raft_leaders_records_are_on_the_disk_before_it_begins_a_segment(
    tmp_path: Path, synced: list[str], flushing: bool
) -> None:
    background = HeldBackground()
    log = open_log(tmp_path, segment_ms=1000, background=background)
    append(log, batch(3, timestamp=NOW_MS), origin=AppendOrigin.RAFT_LEADER)
    if flushing:
        log.flush(NOW_MS)
    append(log, batch(timestamp=NOW_MS + 1001), origin=AppendOrigin.RAFT_LEADER)
    assert log.base_offsets == [0, 3]
    assert "00000000000000000000.log" in synced
    assert synced[-2:] == ["orders-0", tmp_path.name]
    assert not any("3.log" in name for name in synced)
    background.run_all()
    assert log.recovery_point == 3


def test_a_raft_leader_whose_disk_fails_begins_no_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_ms=1000, background=HeldBackground())
    append(log, batch(3, timestamp=NOW_MS), origin=AppendOrigin.RAFT_LEADER)

    def fail(operation: str, path: str, size: int) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "the disk is broken", path)

    files.set_fault_hook(fail)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        append(log, batch(timestamp=NOW_MS + 1001), origin=AppendOrigin.RAFT_LEADER)
    files.set_fault_hook(None)
    assert log.base_offsets == [0]
    # a second sync would succeed, and hide the loss
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        append(log, batch(timestamp=NOW_MS), origin=AppendOrigin.RAFT_LEADER)


def test_a_flush_that_a_roll_overtakes_leaves_the_segment_to_be_recovered(tmp_path: Path) -> None:
    background = HeldBackground()
    log = open_log(tmp_path, background=background)
    append(log, batch(3))
    log.flush(NOW_MS)
    log.roll(NOW_MS)
    background.run_one()
    assert log.recovery_point == 2
    background.run_all()
    assert log.recovery_point == 3


def test_a_roll_syncs_the_indexes_of_a_segment_whose_records_are_synced(
    tmp_path: Path, synced: list[str]
) -> None:
    log = open_log(tmp_path, flush_messages=1)
    append(log, batch(3))
    synced.clear()
    log.roll(NOW_MS)
    assert "00000000000000000000.txnindex" in synced
    assert "00000000000000000003.snapshot" in synced


def test_a_closed_segment_with_rebuilt_indexes_is_synced_again(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    log.roll(NOW_MS)
    append(log, batch(2))
    log.flush(NOW_MS)
    log.close(clean=False)
    file(log, 0, ".timeindex").unlink()
    again = open_log(tmp_path, clean=False, recovery_point=5)
    assert again.recovery_point == 2


def test_a_clean_end_syncs_files_that_the_start_rebuilt(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    log.flush(NOW_MS)
    log.close(clean=False)
    again = open_log(tmp_path, clean=False, recovery_point=3)
    synced.clear()
    again.close()
    assert "00000000000000000000.timeindex" in synced
    assert "00000000000000000003.snapshot" in synced


def test_a_clean_end_of_a_new_log_covers_the_name_of_its_directory(tmp_path: Path, synced: list[str]) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.close()
    assert synced[-2:] == ["orders-0", tmp_path.name]


def test_a_torn_end_that_a_start_cuts_off_is_gone_for_good(tmp_path: Path, synced: list[str]) -> None:
    """Otherwise the next power loss might bring it back. By then its segment is closed, and below a recovery point that
    is no later than the cut. No start would look for it there."""
    log = open_log(tmp_path)
    append(log, batch(3))
    log.flush(NOW_MS)
    append(log, batch(2))
    log.roll(NOW_MS)
    append(log, batch())
    log.close(clean=False)
    path = file(log, 0, ".log")
    path.write_bytes(path.read_bytes()[:-1])
    synced.clear()
    again = open_log(tmp_path, clean=False, recovery_point=3)
    assert again.log_end_offset == 3
    # the later segment's removal is synced first, or the log might continue behind the cut
    assert synced[:2] == ["orders-0", "00000000000000000000.log"]


def test_a_new_leader_epoch_is_synced_with_the_name_of_its_file(tmp_path: Path, synced: list[str]) -> None:
    """Below the recovery point a start trusts the file."""
    log = open_log(tmp_path, flush_messages=1)
    append(log, batch())
    synced.clear()
    append(log, batch(), leader_epoch=1)
    assert synced == ["00000000000000000000.log", "leader-epoch-checkpoint", "orders-0"]
    synced.clear()
    append(log, batch(), leader_epoch=1)
    assert synced == ["00000000000000000000.log"]


def test_epochs_whose_file_the_power_emptied_are_written_when_all_are_known(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.roll(NOW_MS)
    append(log, batch(), leader_epoch=2)
    log.close(clean=False)
    path = Path(log.directory) / "leader-epoch-checkpoint"
    path.write_text("0\n0\n")
    written = []

    def hook(operation: str, path: str, size: int) -> None:
        if operation == "rename" and "leader-epoch-checkpoint" in path:
            written.append(path)

    files.set_fault_hook(hook)
    try:
        open_log(tmp_path, clean=False, recovery_point=1)
    finally:
        files.set_fault_hook(None)
    assert path.read_text() == "0\n2\n0 0\n2 1\n"
    assert len(written) == 1


def test_a_transaction_in_a_lost_segment_is_not_open_though_a_snapshot_says_so(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path)
    append(log, batch(2))
    log.roll(NOW_MS)
    append(log, produced(0, 2, transactional=True))
    log.roll(NOW_MS)
    append(log, batch())
    log.close(clean=False)
    # the disk has the segment's name and the snapshot behind it, but none of its bytes
    file(log, 2, ".log").write_bytes(b"")
    again = open_log(tmp_path, clean=False, recovery_point=2)
    assert again.log_end_offset == 5
    assert again.first_unstable_offset == -1
    assert again.producers.producers == {}
    again.close(clean=False)
    # the side files tell the next start the same
    third = open_log(tmp_path, clean=False, recovery_point=5)
    assert third.first_unstable_offset == -1
    assert third.producers.producers == {}
    third.close()


def test_a_segment_that_compaction_has_replaced_and_the_disk_still_names_is_dropped(tmp_path: Path) -> None:
    log = open_log(tmp_path / "old", cleanup_policy=frozenset({"compact"}))
    append(log, batch(3))
    log.roll(NOW_MS)
    append(log, batch(3))
    log.roll(NOW_MS)
    append(log, batch())
    log.close(clean=False)
    # the power failed when the disk had the compacted segment's new name, but not yet the old segment's
    file(log, 0, ".log").write_bytes(file(log, 0, ".log").read_bytes() + file(log, 3, ".log").read_bytes())
    again = open_log(tmp_path / "old", clean=False, recovery_point=6, cleanup_policy=frozenset({"compact"}))
    assert again.base_offsets == [0, 6]
    found = [header.base_offset for header, _ in again.batches(0, upper_bound=again.log_end_offset)]
    assert found == [0, 3, 6]
    again.close()


@pytest.mark.parametrize(
    ("ends_at", "compacted_up_to", "hole"),
    [(4, 0, None), (3, 0, 3), (2, 0, 2), (0, 0, 0), (3, 3, 3), (3, 4, None)],
)
def test_a_missing_end_of_a_segment_before_the_next_is_a_hole(
    tmp_path: Path, ends_at: int, compacted_up_to: int, hole: int | None
) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        append(log, batch())
    log.roll(NOW_MS)
    for _ in range(3):
        append(log, batch())
    log.close(clean=False)
    first = file(log, 0, ".log")
    data = first.read_bytes()
    first.write_bytes(data[: len(data) // 4 * ends_at])
    if not ends_at:
        first.unlink()
    found = open_log(tmp_path, clean=False, compacted_up_to=compacted_up_to)
    assert (found.hole, found.log_end_offset) == (hole, 7)
    if hole is not None:
        found.truncate_to(hole + 1, NOW_MS)
        assert found.hole == (None if hole == 0 else hole)
        found.truncate_to(hole, NOW_MS)
        assert (found.hole, found.log_end_offset) == (None, hole)


def test_no_hole_is_seen_in_synced_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(4))
    log.roll(NOW_MS)
    append(log, batch(3))
    log.close(clean=False)
    file(log, 0, ".log").unlink()
    assert open_log(tmp_path, clean=False, recovery_point=4, log_start_offset=4).hole is None


class CutLog:
    """A log whose end was cut off. Its background work waits until a test runs it."""

    def __init__(self, directory: Path, cut: Callable[[PartitionLog], object]) -> None:
        self.background = HeldBackground()
        self.log = open_log(directory, background=self.background)
        append(self.log, batch(3))
        self.log.roll(NOW_MS)
        append(self.log, batch(3))
        append(self.log, batch(3))
        self.background.run_all()
        cut(self.log)


CUTS = [
    lambda log: log.truncate_to(6, NOW_MS),
    lambda log: log.truncate_to(0, NOW_MS),
    lambda log: log.truncate_fully_and_start_at(20, NOW_MS),
]


@pytest.mark.parametrize("cut", CUTS)
def test_nothing_is_appended_in_the_place_of_records_that_the_disk_may_bring_back(
    tmp_path: Path, synced: list[str], cut: Callable[[PartitionLog], object]
) -> None:
    log = CutLog(tmp_path, cut).log
    synced.clear()
    append(log, batch())
    assert synced == [f"{log.segments.active.base_offset:020d}.log", "orders-0"]
    synced.clear()
    append(log, batch())
    assert synced == []


@pytest.mark.parametrize("cut", CUTS)
def test_records_synced_by_other_means_need_not_be_waited_for(
    tmp_path: Path, synced: list[str], cut: Callable[[PartitionLog], object]
) -> None:
    scene = CutLog(tmp_path, cut)
    told: list[object] = []
    assert sync_cut(scene.log, told.append)
    assert told == []
    scene.background.run_all()
    assert told == [None]
    synced.clear()
    append(scene.log, batch())
    assert synced == []
    assert not sync_cut(scene.log, told.append)


def test_a_second_cut_is_not_taken_for_synced_with_the_first(tmp_path: Path, synced: list[str]) -> None:
    scene = CutLog(tmp_path, CUTS[0])
    assert sync_cut(scene.log, lambda failure: None)
    append(scene.log, batch(3))
    scene.log.truncate_to(6, NOW_MS)
    scene.background.run_all()
    synced.clear()
    append(scene.log, batch())
    assert "orders-0" in synced


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_clean_end_syncs_a_cut(tmp_path: Path, synced: list[str], epoch: int) -> None:
    log = open_log(tmp_path)
    append(log, batch(3), leader_epoch=0)
    append(log, batch(3), leader_epoch=epoch)
    log.sync()
    log.truncate_to(3, NOW_MS)
    synced.clear()
    log.close()
    assert "00000000000000000000.log" in synced
    assert "orders-0" in synced


def test_a_disk_that_does_not_take_a_cut_takes_nothing_more(tmp_path: Path) -> None:
    scene = CutLog(tmp_path, CUTS[0])
    told: list[object] = []

    def fail(operation: str, path: str, size: int) -> None:
        if operation == "sync":
            raise OSError(errno.EIO, "the disk is broken", path)

    assert sync_cut(scene.log, told.append)
    files.set_fault_hook(fail)
    scene.background.run_all()
    files.set_fault_hook(None)
    assert [type(each) for each in told] == [OSError]
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        append(scene.log, batch())


@pytest.mark.parametrize("cut", CUTS[:2])
def test_a_segment_that_a_start_may_trust_by_the_checkpoint_of_before_is_synced_as_it_ends(
    tmp_path: Path, synced: list[str], cut: Callable[[PartitionLog], object]
) -> None:
    """The checkpoint with the lower offset may still be on its way."""
    scene = CutLog(tmp_path, lambda log: log.sync())
    assert scene.log.recovery_point == 9
    cut(scene.log)
    append(scene.log, batch())
    synced.clear()
    scene.log.roll(NOW_MS)
    old, new = scene.log.base_offsets[-2:]
    assert new < 9
    assert f"{old:020d}.log" in synced
    append(scene.log, batch(10))
    synced.clear()
    scene.log.roll(NOW_MS)  # this is behind the offsets of all checkpoints
    assert synced == []
