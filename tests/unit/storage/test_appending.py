"""What an append stores and returns."""

from pathlib import Path

import pytest

from protocol.errors import Error, KafkaError
from protocol.records.batch import LOG_APPEND_TIME, crc_is_valid, read_header
from storage.log.partition_log import AppendOrigin
from tests.support.partition_logs import (
    NOW_MS,
    TOPIC_ID,
    append,
    batch,
    batch_of_bytes,
    batches,
    file,
    headers,
    names,
    open_log,
    values,
)


def test_the_offset_is_the_log_end_and_stands_in_the_stored_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(3))
    result = append(log, batch(2))
    assert (result.base_offset, result.last_offset, log.log_end_offset) == (3, 4, 5)
    assert [(h.base_offset, h.last_offset) for h in headers(log)] == [(0, 2), (3, 4)]


def test_the_leader_epoch_stands_in_the_stored_batch_and_the_crc_still_holds(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(), leader_epoch=9)
    (stored,) = batches(log)
    assert read_header(stored).partition_leader_epoch == 9
    assert crc_is_valid(stored, 0, len(stored))


def test_a_batch_may_be_a_view_into_its_frame(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = batch(values=[b"in a frame"])
    frame = bytearray(b"before" + data + b"after")
    append(log, memoryview(frame)[6:-5])  # type: ignore[arg-type]
    assert values(log) == [b"in a frame"]
    assert frame.startswith(b"before")
    assert frame.endswith(b"after")


def test_create_time_answers_no_append_time(tmp_path: Path) -> None:
    assert append(open_log(tmp_path), batch(timestamp=5)).log_append_time_ms == -1


def test_log_append_time_answers_the_time_in_the_batch(tmp_path: Path) -> None:
    data = batch(log_append_time=NOW_MS + 77)
    assert read_header(data).timestamp_type == LOG_APPEND_TIME
    assert append(open_log(tmp_path), data).log_append_time_ms == NOW_MS + 77


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=200)
    append(log, batch_of_bytes(200))
    with pytest.raises(KafkaError) as refused:
        append(log, batch_of_bytes(201))
    assert refused.value.error is Error.RECORD_LIST_TOO_LARGE
    assert log.log_end_offset == 1


def test_nothing_is_on_the_disk_before_the_first_append(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.assign_leader_epoch(4)
    assert list(tmp_path.iterdir()) == []
    append(log, batch(), leader_epoch=4)
    assert names(log) == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]


def test_the_topic_id_is_written_as_kafka_writes_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    metadata = (Path(log.directory) / "partition.metadata").read_bytes()
    assert metadata == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
    assert len(metadata) == 43


def test_a_log_without_a_directory_reads_as_empty(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.read(0, 100, upper_bound=0).records == b""
    assert log.offset_for_timestamp(0) is None
    assert log.offset_of_max_timestamp() is None
    assert log.apply_retention(NOW_MS) == 0
    assert (log.size, log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (0, 0, 0, 0)


def test_replicated_batches_keep_their_offsets_and_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(2, base_offset=10, leader_epoch=3), origin=AppendOrigin.REPLICATION, leader_epoch=99)
    append(log, batch(2, base_offset=20, leader_epoch=4), origin=AppendOrigin.REPLICATION, leader_epoch=99)
    assert [(h.base_offset, h.partition_leader_epoch) for h in headers(log)] == [(10, 3), (20, 4)]
    assert log.log_end_offset == 22
    assert log.leader_epochs.entries == [(3, 10), (4, 20)]


def test_a_replicated_batch_below_the_log_end_breaks_an_invariant(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(5))
    with pytest.raises(ValueError, match="log end 5"):
        append(log, batch(base_offset=4), origin=AppendOrigin.REPLICATION)


def test_the_controllers_batches_get_their_offsets_here_too(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(2), origin=AppendOrigin.RAFT_LEADER, leader_epoch=1)
    assert append(log, batch(2), origin=AppendOrigin.RAFT_LEADER, leader_epoch=1).base_offset == 2


def test_a_header_that_the_caller_has_saves_reading_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    data = batch(4)
    assert append(log, data, header=read_header(data)).last_offset == 3


def test_the_size_is_that_of_all_segments(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=250)
    for _ in range(3):
        append(log, batch_of_bytes(200))
    assert log.size == 600
    assert [file(log, base, ".log").stat().st_size for base in (0, 1, 2)] == [200, 200, 200]


def test_a_closed_log_takes_nothing_more(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch())
    log.close()
    with pytest.raises(KafkaError) as refused:
        append(log, batch())
    assert refused.value.error is Error.KAFKA_STORAGE_ERROR


def test_a_batch_without_a_leader_epoch_begins_none(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(), leader_epoch=3)
    append(log, batch(), leader_epoch=-1)
    assert log.leader_epochs.entries == [(3, 0)]
    assert [header.partition_leader_epoch for header in headers(log)] == [3, -1]
