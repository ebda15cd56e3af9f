"""Other files in a folder that is recovered: files to be deleted, compactions, the topic id."""

from pathlib import Path

import pytest

from storage.log.partition_log import PartitionLog
from storage.log.recovery import InconsistentTopicIdError
from tests.support.partition_logs import (
    NOW_MS,
    TOPIC_ID,
    HeldBackground,
    append,
    batch,
    batches,
    file,
    names,
    open_log,
)


def killed(directory: Path, segments: int = 1, per_segment: int = 10) -> PartitionLog:
    """Return a log of some segments, as a killed process leaves it."""
    log = open_log(directory, background=HeldBackground())
    for at in range(segments * per_segment):
        if at and at % per_segment == 0:
            log.roll(NOW_MS)
        append(log, batch(values=[b"%d" % at], timestamp=NOW_MS + at), leader_epoch=1 + at // 7)
    return log


def reopened(directory: Path, recovery_point: int = 0, **options: object) -> PartitionLog:
    return open_log(directory, clean=False, recovery_point=recovery_point, **options)  # type: ignore[arg-type]


def test_files_on_their_way_out_are_deleted(tmp_path: Path) -> None:
    log = killed(tmp_path)
    directory = Path(log.directory)
    for name in ("00000000000000000000.log.deleted", "00000000000000000000.index.cleaned"):
        (directory / name).write_bytes(b"x")
    kept = "00000000000000000080-0000000001.checkpoint.deleted"
    (directory / kept).write_bytes(b"x")
    log = reopened(tmp_path)
    assert [name for name in names(log) if name.endswith((".deleted", ".cleaned"))] == [kept]


def test_an_index_without_its_log_is_deleted(tmp_path: Path) -> None:
    log = killed(tmp_path)
    file(log, 77, ".index").write_bytes(b"x" * 8)
    file(log, 77, ".txnindex").write_bytes(b"")
    log = reopened(tmp_path)
    assert not [name for name in names(log) if name.startswith("00000000000000000077")]


def test_a_compaction_that_was_complete_is_finished(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=3)
    # the first two segments have become one. It has the first one's base and ends where the second did
    stored = list(batches(log))
    directory = Path(log.directory)
    (directory / "00000000000000000000.log.swap").write_bytes(b"".join(stored[0:20:2] + stored[19:20]))
    (directory / "00000000000000000000.index.swap").write_bytes(b"")
    (directory / "00000000000000000000.timeindex.swap").write_bytes(b"")
    log = reopened(tmp_path)
    assert log.base_offsets == [0, 20]
    assert list(batches(log)) == stored[0:20:2] + stored[19:20] + stored[20:]


def test_a_compaction_that_left_nothing_takes_the_old_segments_side_files_along(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=3)
    stored = list(batches(log))
    directory = Path(log.directory)
    for suffix in (".log", ".index", ".timeindex"):
        (directory / f"00000000000000000000{suffix}.swap").write_bytes(b"")
    (directory / "00000000000000000000.txnindex").write_bytes(bytes(34))
    log = reopened(tmp_path)
    assert log.segments[0].size == 0
    assert log.segments[0].txn_index.records == []
    # the next pass finishes the group's other segments
    assert list(batches(log)) == stored[10:]


def test_a_swap_whose_log_is_renamed_goes_on_with_the_indexes(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=3)
    stored = list(batches(log))
    directory = Path(log.directory)
    (directory / "00000000000000000000.log").write_bytes(b"".join(stored[1:9]))
    for suffix in (".index", ".timeindex"):
        (directory / f"00000000000000000000{suffix}").unlink()
        (directory / f"00000000000000000000{suffix}.swap").write_bytes(b"")
    log = reopened(tmp_path)
    assert list(batches(log)) == stored[1:9] + stored[10:]
    assert not [name for name in names(log) if name.endswith(".swap")]


def test_bytes_after_the_last_batch_of_a_complete_compaction_stay_as_they_were(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=3)
    stored = list(batches(log))
    directory = Path(log.directory)
    # nothing is left of the second segment
    (directory / "00000000000000000000.log.swap").write_bytes(b"".join(stored[2:7]))
    (directory / "00000000000000000000.index.swap").write_bytes(b"")
    (directory / "00000000000000000000.timeindex.swap").write_bytes(b"")
    log = reopened(tmp_path)
    assert log.base_offsets == [0, 10, 20]
    assert list(batches(log)) == stored[2:7] + stored[10:]


def test_a_compaction_that_was_not_complete_is_undone(tmp_path: Path) -> None:
    log = killed(tmp_path, segments=3)
    stored = list(batches(log))
    directory = Path(log.directory)
    (directory / "00000000000000000010.log.swap").write_bytes(stored[10])
    (directory / "00000000000000000005.log.cleaned").write_bytes(stored[5])
    log = reopened(tmp_path)
    assert list(batches(log)) == stored
    assert not [name for name in names(log) if name.endswith((".swap", ".cleaned"))]


def test_the_topic_id_is_taken_from_the_directory(tmp_path: Path) -> None:
    killed(tmp_path)
    assert reopened(tmp_path, topic_id=None).topic_id == TOPIC_ID


def test_a_directory_of_another_topic_is_refused(tmp_path: Path) -> None:
    killed(tmp_path)
    with pytest.raises(InconsistentTopicIdError):
        reopened(tmp_path, topic_id="B" * 22)


def test_a_lost_topic_id_is_written_again(tmp_path: Path) -> None:
    log = killed(tmp_path)
    metadata = Path(log.directory) / "partition.metadata"
    metadata.unlink()
    reopened(tmp_path)
    assert TOPIC_ID in metadata.read_text()


def test_a_directory_with_no_segment_is_an_empty_log(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    log = reopened(tmp_path, log_start_offset=7)
    assert (log.log_start_offset, log.log_end_offset) == (7, 7)
    assert append(log, batch()).base_offset == 7
