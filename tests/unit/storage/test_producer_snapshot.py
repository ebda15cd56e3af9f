"""The producers' state on the disk."""

from pathlib import Path

import pytest

from storage import producer_snapshot
from storage.producer_snapshot import CorruptSnapshotError
from storage.producer_state import CachedBatch, Producer
from tests.support.partition_logs import NOW_MS, append, batch, end_transaction, file, open_log, produced


def fields(producer: Producer) -> list[object]:
    return [getattr(producer, name) for name in Producer.__slots__]


def test_a_snapshot_is_read_back() -> None:
    producers = [
        Producer(3, 1, 4, NOW_MS, 90, [CachedBatch(5, 7, 97, 99, NOW_MS)]),
        Producer(9, 32767, -1, 77, -1, [CachedBatch(2**31 - 1, 1, 10, 12, 77)]),
    ]
    read_back = producer_snapshot.decode(producer_snapshot.encode(producers))
    assert [fields(producer) for producer in read_back] == [fields(producer) for producer in producers]


def test_only_the_last_of_several_batches_is_kept() -> None:
    batches = [CachedBatch(0, 0, 0, 0, 1), CachedBatch(1, 1, 1, 1, 2)]
    (producer,) = producer_snapshot.decode(producer_snapshot.encode([Producer(3, 0, -1, 2, -1, batches)]))
    assert producer.batches == batches[1:]


def test_a_producer_known_only_by_a_marker_has_no_batch() -> None:
    data = producer_snapshot.encode([Producer(3, 1, 4, NOW_MS)])
    assert len(data) == 56
    (producer,) = producer_snapshot.decode(data)
    assert (producer.batches, producer.last_sequence, producer.last_timestamp_ms) == ([], -1, NOW_MS)


def test_entries_take_46_bytes_after_the_first_10() -> None:
    assert [len(producer_snapshot.encode([Producer(at) for at in range(n)])) for n in (0, 1, 5)] == [
        10,
        56,
        240,
    ]


@pytest.mark.parametrize("at", [0, 1, 2, 5, 6, 9, 10, 30, 55])
def test_any_changed_byte_is_noticed(at: int) -> None:
    data = bytearray(producer_snapshot.encode([Producer(3, 1, 4, NOW_MS)]))
    data[at] ^= 1
    with pytest.raises(CorruptSnapshotError):
        producer_snapshot.decode(bytes(data))


@pytest.mark.parametrize("size", [0, 5, 9, 55])
def test_a_snapshot_cut_short_is_noticed(size: int) -> None:
    data = producer_snapshot.encode([Producer(3, 1, 4, NOW_MS)])
    with pytest.raises(CorruptSnapshotError):
        producer_snapshot.decode(data[:size])


def test_a_snapshot_is_taken_only_where_something_came_since_the_last(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0))
    log.close()
    log = open_log(tmp_path)
    log.close()
    append_again = open_log(tmp_path)
    append(append_again, batch())
    append_again.close()
    assert sorted(path.name for path in (tmp_path / "orders-0").glob("*.snapshot")) == [
        "00000000000000000001.snapshot",
        "00000000000000000002.snapshot",
    ]


def test_a_snapshot_holds_open_transactions(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, produced(0, 2, transactional=True, producer_id=1))
    append(log, produced(0, 2, transactional=True, producer_id=2))
    end_transaction(log, True, producer_id=1, coordinator_epoch=6)
    log.roll(NOW_MS)
    first, second = producer_snapshot.decode(file(log, 5, ".snapshot").read_bytes())
    assert (first.producer_id, first.coordinator_epoch, first.txn_first_offset) == (1, 6, -1)
    assert (second.producer_id, second.coordinator_epoch, second.txn_first_offset) == (2, -1, 2)


def test_the_bytes_are_kafkas() -> None:
    producers = [
        Producer(9, 3, 4, 1000, -1),
        Producer(2, 1, -1, 2000, 55, [CachedBatch(5, 7, 97, 99, 2000)]),
    ]
    assert producer_snapshot.encode(producers).hex(" ") == " ".join(
        [
            "00 01 b4 05 d4 e0 00 00 00 02",
            "00 00 00 00 00 00 00 02 00 01 00 00 00 07 00 00 00 00 00 00 00 63 00 00 00 02",
            "00 00 00 00 00 00 07 d0 ff ff ff ff 00 00 00 00 00 00 00 37",
            "00 00 00 00 00 00 00 09 00 03 ff ff ff ff ff ff ff ff ff ff ff ff 00 00 00 00",
            "00 00 00 00 00 00 03 e8 00 00 00 04 ff ff ff ff ff ff ff ff",
        ]
    )
