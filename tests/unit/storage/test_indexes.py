"""The three indexes of a segment, as their files have them."""

import random
import struct
from pathlib import Path

import pytest

from protocol.messages import transactions as messages
from protocol.wire.codec import encode
from storage import indexes as transaction_index
from storage.indexes import AbortedTxn, OffsetIndex, TimeIndex, TransactionIndex
from tests.support.disk import files
from tests.support.partition_logs import NOW_MS, append, batch, batch_of_bytes, file, ints, open_log


def test_an_entry_is_due_more_than_an_interval_after_the_last_one(tmp_path: Path) -> None:
    # Kafka 4.3.1 gives these numbers for batches of 1001 bytes
    log = open_log(tmp_path)
    for _ in range(12):
        append(log, batch_of_bytes(1001))
    assert ints(file(log, 0, ".index").read_bytes(), (4, 4)) == [(5, 5005), (10, 10010)]


def test_exactly_the_interval_is_not_enough(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=1000)
    for _ in range(4):
        append(log, batch_of_bytes(500))
    assert ints(file(log, 0, ".index").read_bytes(), (4, 4)) == [(3, 1500)]


def test_an_entry_holds_the_last_offset_of_its_batch_and_the_position_of_its_first_byte(
    tmp_path: Path,
) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    first = batch(3)
    append(log, first)
    append(log, batch(4))
    assert ints(file(log, 0, ".index").read_bytes(), (4, 4)) == [(6, len(first))]


def test_a_time_entry_holds_the_largest_time_so_far_and_its_batchs_last_offset(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    append(log, batch(2, timestamp=NOW_MS + 5))
    append(log, batch(2, timestamp=NOW_MS + 3))
    append(log, batch(2, timestamp=NOW_MS + 4))
    append(log, batch(2, timestamp=NOW_MS + 9))
    assert ints(file(log, 0, ".timeindex").read_bytes(), (8, 4)) == [(NOW_MS + 5, 1), (NOW_MS + 9, 7)]


def test_entries_count_from_the_segments_base(tmp_path: Path) -> None:
    log = open_log(tmp_path, index_interval_bytes=0)
    for _ in range(5):
        append(log, batch())
    log.roll(NOW_MS)
    append(log, batch(timestamp=NOW_MS + 1))
    append(log, batch(timestamp=NOW_MS + 2))
    assert ints(file(log, 5, ".index").read_bytes(), (4, 4))[0][0] == 1
    assert ints(file(log, 5, ".timeindex").read_bytes(), (8, 4)) == [(NOW_MS + 2, 1)]


@pytest.fixture
def offsets(tmp_path: Path) -> OffsetIndex:
    """Return an index with the entries (110, 1000), (120, 2000), (130, 3000) over base 100."""
    index = OffsetIndex(files, str(tmp_path / "a.index"), 100)
    index.create()
    for offset, position in ((110, 1000), (120, 2000), (130, 3000)):
        index.append(offset, position)
    return index


@pytest.mark.parametrize(
    ("offset", "position"),
    [(100, 0), (109, 0), (110, 1000), (119, 1000), (120, 2000), (130, 3000), (999, 3000)],
)
def test_an_offset_is_looked_for_from_the_last_entry_not_above_it(
    offsets: OffsetIndex, offset: int, position: int
) -> None:
    assert offsets.lookup(offset) == position


@pytest.mark.parametrize(
    ("position", "offset"), [(0, 110), (999, 110), (1001, 120), (2000, 120), (3000, 130), (3001, None)]
)
def test_the_first_entry_at_or_after_a_position_is_found(
    offsets: OffsetIndex, position: int, offset: int | None
) -> None:
    assert offsets.offset_at_or_after(position) == offset


def test_the_very_first_entry_is_not_found_at_its_own_position(offsets: OffsetIndex, tmp_path: Path) -> None:
    assert offsets.offset_at_or_after(1000) == 120, "as by Kafka's search"
    alone = OffsetIndex(files, str(tmp_path / "b.index"), 100)
    alone.create()
    alone.append(110, 1000)
    assert alone.offset_at_or_after(1000) is None
    assert alone.offset_at_or_after(999) == 110


@pytest.mark.parametrize(("position", "entry"), [(999, (100, 0)), (1000, (110, 1000)), (9999, (130, 3000))])
def test_the_last_entry_at_or_before_a_position_is_found(
    offsets: OffsetIndex, position: int, entry: tuple[int, int]
) -> None:
    assert offsets.entry_at_or_before(position) == entry


@pytest.mark.parametrize(("offset", "left"), [(100, 0), (110, 0), (111, 1), (120, 1), (131, 3)])
def test_truncating_the_offset_index_drops_entries_at_and_above_the_offset(
    offsets: OffsetIndex, offset: int, left: int
) -> None:
    offsets.truncate_to(offset)
    assert offsets.count == left
    assert OffsetIndex(files, offsets.file.path, 100).count == left


def test_an_empty_offset_index_sends_every_search_to_the_front(tmp_path: Path) -> None:
    index = OffsetIndex(files, str(tmp_path / "a.index"), 100)
    index.create()
    assert (index.lookup(500), index.last_entry(), index.offset_at_or_after(0)) == (0, (100, 0), None)


def test_a_missing_index_is_an_error_and_not_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        OffsetIndex(files, str(tmp_path / "a.index"), 0).lookup(5)


def test_zeros_that_kafka_preallocated_after_the_entries_are_cut(
    tmp_path: Path, offsets: OffsetIndex
) -> None:
    path = Path(offsets.file.path)
    path.write_bytes(path.read_bytes() + bytes(10_000))
    index = OffsetIndex(files, str(path), 100)
    index.trim()
    assert index.count == 3
    assert path.stat().st_size == 24


def test_an_offset_index_of_nothing_but_zeros_is_empty(tmp_path: Path) -> None:
    path = tmp_path / "a.index"
    path.write_bytes(bytes(10_485_760))
    index = OffsetIndex(files, str(path), 100)
    index.trim()
    assert (index.count, path.stat().st_size) == (0, 0)


@pytest.fixture
def times(tmp_path: Path) -> TimeIndex:
    """Return an index with the entries (10, 101), (20, 105), (30, 109) over base 100."""
    index = TimeIndex(files, str(tmp_path / "a.timeindex"), 100)
    index.create()
    for timestamp_ms, offset in ((10, 101), (20, 105), (30, 109)):
        assert index.maybe_append(timestamp_ms, offset)
    return index


@pytest.mark.parametrize(
    ("timestamp_ms", "entry"),
    [(9, (-1, 100)), (10, (10, 101)), (29, (20, 105)), (30, (30, 109)), (99, (30, 109))],
)
def test_a_time_is_looked_for_from_the_last_entry_not_above_it(
    times: TimeIndex, timestamp_ms: int, entry: tuple[int, int]
) -> None:
    assert times.lookup(timestamp_ms) == entry


def test_a_time_that_isnt_larger_than_the_last_gets_no_entry(times: TimeIndex) -> None:
    assert not times.maybe_append(30, 110)
    assert times.count == 3


def test_the_last_time_entry_is_read_back(times: TimeIndex) -> None:
    assert TimeIndex(files, times.file.path, 100).last_entry() == (30, 109)


@pytest.mark.parametrize(("offset", "left"), [(101, 0), (102, 1), (105, 1), (106, 2), (500, 3)])
def test_truncating_the_time_index_drops_entries_at_and_above_the_offset(
    times: TimeIndex, offset: int, left: int
) -> None:
    times.truncate_to(offset)
    assert times.count == left
    assert times.last_entry()[0] == (10 * left or -1)


def test_zeros_after_the_time_entries_are_cut(times: TimeIndex) -> None:
    path = Path(times.file.path)
    path.write_bytes(path.read_bytes() + bytes(12 * 500))
    index = TimeIndex(files, str(path), 100)
    index.trim()
    assert (index.count, index.last_entry()) == (3, (30, 109))


def test_an_aborted_transaction_takes_34_bytes(tmp_path: Path) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    index.append(AbortedTxn(producer_id=1, first_offset=2, last_offset=3, last_stable_offset=4))
    index.append(AbortedTxn(5, 6, 7, 8))
    assert ints((tmp_path / "a.txnindex").read_bytes(), (2, 8, 8, 8, 8)) == [(0, 1, 2, 3, 4), (0, 5, 6, 7, 8)]


def test_an_entry_for_an_aborted_transaction_is_a_version_and_kafkas_message(tmp_path: Path) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    entry = AbortedTxn(producer_id=2**40, first_offset=7, last_offset=9, last_stable_offset=8)
    index.append(entry)
    message = messages.AbortedTxn(**entry._asdict())
    assert (tmp_path / "a.txnindex").read_bytes() == b"\0\0" + bytes(encode(message, 0))


def test_the_transaction_index_is_made_at_the_first_abort(tmp_path: Path) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    assert index.records == []
    assert not index.exists()
    index.append(AbortedTxn(1, 2, 3, 4))
    assert index.exists()


def test_transactions_are_collected_that_reach_into_the_range(tmp_path: Path) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    # these are the cases of Kafka's TransactionIndexTest, and one more record, since a single one doesn't end the
    # search here
    txns = [
        AbortedTxn(0, 0, 10, 11),
        AbortedTxn(1, 5, 15, 13),
        AbortedTxn(2, 18, 35, 25),
        AbortedTxn(3, 32, 50, 40),
    ]
    for txn in [*txns, AbortedTxn(4, 45, 60, 45)]:
        index.append(txn)
    assert index.collect(0, 100) == ([*txns, AbortedTxn(4, 45, 60, 45)], False)
    assert index.collect(0, 32) == (txns[:3], True)
    assert index.collect(0, 35) == (txns, True)
    assert index.collect(10, 35) == (txns, True)
    assert index.collect(11, 35) == (txns[1:], True)
    assert index.collect(20, 41) == (txns[2:], False)
    assert index.collect(55, 41) == ([], False)


def test_a_last_stable_offset_that_is_wrong_hides_no_transaction(tmp_path: Path) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    # the second transaction was open when the first one ended, so the last stable offset was 3 then
    for txn in (AbortedTxn(1, 0, 10, 11), AbortedTxn(2, 3, 20, 21), AbortedTxn(1, 21, 30, 31)):
        index.append(txn)
    assert index.collect(0, 9) == ([AbortedTxn(1, 0, 10, 11), AbortedTxn(2, 3, 20, 21)], True)


def collected(txns: list[AbortedTxn], fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
    """Collect transactions one by one."""
    found = []
    said_once = False
    for txn in txns:
        if txn.last_offset < fetch_offset:
            continue
        if txn.first_offset < upper_bound:
            found.append(txn)
        if txn.last_stable_offset >= upper_bound:
            if said_once:
                return found, True
            said_once = True
    return found, False


@pytest.mark.parametrize("seed", range(5))
def test_transactions_that_reach_into_the_range_are_collected(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    txns: list[AbortedTxn] = []
    stable = 0
    for number in range(1500):
        last = 3 * number + 2
        if chance.random() < 0.01:
            stable = chance.randint(stable, last)
        txns.append(AbortedTxn(number, last - min(last, chance.choice((1, 2, 50, 3000))), last, stable))
        index.append(txns[-1])

    def agrees() -> None:
        for _ in range(100):
            fetched, bound = sorted(chance.choices(range(4600), k=2))
            assert index.collect(fetched, bound) == collected(txns, fetched, bound)

    agrees()
    index.truncate_to(3 * 700)
    del txns[700:]
    agrees()
    for number in range(700, 1500):
        txns.append(AbortedTxn(number, 3 * number, 3 * number + 2, stable))
        index.append(txns[-1])
    agrees()
    txns = [AbortedTxn(number, number, number + 5, number) for number in range(1000)]
    index.make_anew([*txns])
    agrees()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the records of a transaction index that each search looks at. One run is kept, and doesn't count."""
    monkeypatch.setattr(transaction_index, "_KEPT_RUNS", 1)
    found: list[int] = []
    records_in = transaction_index._records_in

    def counted(data: bytearray) -> list[AbortedTxn]:
        records = records_in(data)
        found.append(len(records))
        return records

    monkeypatch.setattr(transaction_index, "_records_in", counted)
    return found


def test_a_read_looks_at_few_of_the_transactions_aborted_after_it_during_a_longer_one(
    tmp_path: Path, looks: list[int]
) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    for number in range(10_000):
        index.append(AbortedTxn(1, 10 + 2 * number, 11 + 2 * number, 0))
    first = index.records[:5]
    index.collect(0, 20)
    looks.clear()
    assert index.collect(0, 20) == (first, False)
    assert sum(looks) < 1000


def test_the_first_read_after_a_start_looks_at_few_of_many_aborted_transactions(
    tmp_path: Path, looks: list[int]
) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    txns = [AbortedTxn(1, 2 * number, 2 * number + 1, 2 * number) for number in range(100_000)]
    index.make_anew(txns)
    again = TransactionIndex(files, index.file.path)
    assert again.count == 100_000
    assert again.collect(100_000, 100_010) == (txns[50_000:50_005], True)
    again.append(AbortedTxn(1, 200_000, 200_001, 200_000))
    again.truncate_to(150_000)
    assert again.count == 75_000
    assert sum(looks) < 1000


def test_truncating_the_transaction_index_drops_markers_at_and_above_the_offset(tmp_path: Path) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    for last in (10, 20, 30):
        index.append(AbortedTxn(1, 5, last, 5))
    index.truncate_to(20)
    assert [txn.last_offset for txn in TransactionIndex(files, index.file.path).records] == [10]
    index.append(AbortedTxn(1, 5, 21, 5))
    assert [txn.last_offset for txn in TransactionIndex(files, index.file.path).records] == [10, 21]


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:34] + data[:34],
        lambda data: data[34:] + data[:34],
        lambda data: b"\0\1" + data[2:],
        lambda data: entries((-1, 5, 10, 5), (1, 11, 20, 5)),
        lambda data: entries((1, -5, 10, 5), (1, 11, 20, 5)),
        lambda data: entries((1, 10, 10, 5), (1, 11, 20, 5)),
        lambda data: entries((1, 5, 10, 12), (1, 12, 20, 12)),
        lambda data: entries((1, 5, 10, -1), (1, 11, 20, 5)),
        lambda data: entries((1, 5, 10, 7), (1, 11, 20, 5)),  # a last stable offset never moves back
        # and a transaction that ends later can't have begun before it
        lambda data: entries((1, 5, 10, 7), (2, 6, 20, 7)),
        lambda data: entries((1, 5, 10, 5), (1, 11, 30, 5)),  # this one belongs to the next segment
    ],
)
def test_a_nonsense_transaction_index_is_noticed(tmp_path: Path, damage: object) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    index.append(AbortedTxn(1, 5, 10, 5))
    index.append(AbortedTxn(1, 11, 20, 5))
    assert index.is_sane(0, 30)
    path = Path(index.file.path)
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    assert not TransactionIndex(files, index.file.path).is_sane(0, 30)


def entries(*txns: tuple[int, int, int, int]) -> bytes:
    return b"".join(struct.pack(">hqqqq", 0, *txn) for txn in txns)


def test_the_marker_at_which_a_reader_may_stop(tmp_path: Path) -> None:
    index = TransactionIndex(files, str(tmp_path / "a.txnindex"))
    for number in range(1_000):
        index.append(AbortedTxn(1, 2 * number, 2 * number + 1, 2 * number))
    assert index.marker_behind(0, 1, 1) == 1
    assert index.marker_behind(0, 999, 1) == 1_997
    assert index.marker_behind(2, 300, 1) == 601
    assert index.marker_behind(1_001, 499, 1) == 1_997
    assert index.marker_behind(1_001, 500, 1) is None
    assert index.marker_behind(0, 1_000, 1) is None
    assert index.marker_behind(5_000, 1, 1) is None
