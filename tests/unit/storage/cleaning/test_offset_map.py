"""The latest offset of each key, in bounded memory."""

import mmap
import random

import pytest

from storage.cleaning import offset_map
from storage.cleaning.offset_map import NOT_FOUND, OffsetMap, keys_for


def put(found: OffsetMap, key: bytes, offset: int) -> bool:
    return found.put([(0, 0, key, 0)], offset, offset, 0)


def test_a_key_has_the_offset_that_was_put_last() -> None:
    found = OffsetMap(100, 0, 1000)
    assert put(found, b"a", 1)
    assert put(found, b"b", 2)
    assert put(found, b"a", 3)
    assert (found.get(b"a"), found.get(b"b"), found.get(b"c")) == (3, 2, NOT_FOUND)
    assert found.count == 2
    assert found.latest == 3


def test_the_empty_key_is_a_key() -> None:
    found = OffsetMap(100, 0, 1000)
    assert found.get(b"") == NOT_FOUND
    put(found, b"", 0)
    assert found.get(b"") == 0


def test_a_full_map_takes_not_even_a_key_that_it_has() -> None:
    found = OffsetMap(2, 0, 1000)
    assert put(found, b"a", 1)
    assert put(found, b"b", 2)
    assert not put(found, b"a", 3)
    assert found.get(b"a") == 1
    assert found.latest == 2


def test_thousands_of_keys_are_distinguished_while_there_is_room() -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(chance.randrange(1, 40)) for _ in range(5000)]
    known: dict[bytes, int] = {}
    found = OffsetMap(len(set(keys)), 0, 1 << 40)
    for offset, key in enumerate(keys):
        if len(known) < found.max_keys:
            assert put(found, key, offset)
            known[key] = offset
    assert {key: found.get(key) for key in keys} == known
    assert found.count == len(known)


def test_there_is_no_more_room_than_there_are_offsets() -> None:
    found = OffsetMap(10**9, 0, 3)
    for offset in range(3):
        put(found, b"%d" % offset, offset)
    assert [found.get(b"%d" % offset) for offset in range(3)] == [0, 1, 2]


def test_the_keys_of_kafkas_default_buffer() -> None:
    assert keys_for(134_217_728, 0.9) == 5_033_164
    assert keys_for(2**40, 1.0) == (2**31 - 1) // 24


def test_the_end_only_moves_forward() -> None:
    found = OffsetMap(10, 0, 10)
    found.reach(5)
    found.reach(3)
    assert found.latest == 5


def test_lack_of_memory_is_no_error_of_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_fd: int, _size: int) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refused)
    with pytest.raises(MemoryError):
        OffsetMap(100, 0, 100)


def test_the_map_of_kafkas_default_buffer_takes_no_more_than_the_buffer() -> None:
    found = OffsetMap(keys_for(134_217_728, 0.9), 0, 1 << 40)
    assert len(found._hashes) + found._offsets.nbytes <= 134_217_728
    found.close()


@pytest.mark.parametrize("room", range(1, 40))
def test_a_map_of_any_size_can_be_filled_and_still_misses_absent_keys(room: int) -> None:
    found = OffsetMap(room, 0, room)
    for offset in range(room):
        assert put(found, b"%d" % offset, offset)
    assert [found.get(b"%d" % offset) for offset in range(room)] == [*range(room)]
    assert all(found.get(b"no %d" % number) == NOT_FOUND for number in range(100))


def test_offsets_without_the_latest_record_of_a_key_are_known() -> None:
    found = OffsetMap(10, 100, 6)
    assert found.has_latest_within(100, 100)  # as far as the map knows
    for offset, key in [(100, b"a"), (101, b"b"), (103, b"a"), (104, b"b")]:
        put(found, key, offset)
    assert not found.has_latest_within(100, 102)
    assert found.has_latest_within(100, 103)
    assert found.has_latest_within(104, 104)
    assert found.has_latest_within(105, 105)  # 105 isn't in the map yet
    found.reach(105)
    assert not found.has_latest_within(105, 105)
    assert found.has_latest_within(99, 100)  # this begins before the map's offsets
    assert found.has_latest_within(105, 106)  # and this ends behind them


def test_of_two_records_at_one_offset_neither_is_forgotten() -> None:
    found = OffsetMap(10, 0, 10)
    for offset, key in [(3, b"a"), (3, b"b"), (4, b"a")]:
        put(found, key, offset)
    assert found.has_latest_within(3, 3)


def test_offsets_past_a_limit_are_not_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "_MOST_MARKS", 3)
    found = OffsetMap(10, 0, 10)
    for offset in range(5):
        put(found, b"a", offset)
    assert not found.has_latest_within(0, 2)
    assert found.has_latest_within(3, 3)
    assert found.get(b"a") == 4


def test_keys_no_longer_at_hand_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_map, "_MOST_FAMILIAR", 4)
    found = OffsetMap(50, 0, 100)
    # some keys are too long to be kept as familiar
    keys = [b"%d" % number + bytes(number * 3) for number in range(30)]
    for offset in range(90):
        assert put(found, keys[offset % 30], offset)
        assert len(found._familiar) <= 4
    assert [found.get(key) for key in keys] == [*range(60, 90)]
    assert found.count == 30
    assert found.has_latest_within(60, 60)
    assert not found.has_latest_within(0, 59)


def test_more_keys_than_offsets_fill_the_map() -> None:
    """Several records may lie at one offset. A search for a key ends all the same."""
    found = OffsetMap(1000, 0, 2)
    taken = [put(found, b"%d" % number, 1) for number in range(10)]
    assert taken == sorted(taken, reverse=True)
    assert not taken[-1]
    assert [found.get(b"%d" % number) for number in range(10)] == [1 if each else NOT_FOUND for each in taken]
