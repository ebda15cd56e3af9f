"""Which neighbouring segments are merged into one."""

import pytest

from storage.cleaning.cleaner import MAX_SEGMENTS_IN_GROUP, group_segments
from storage.cleaning.plan import CleaningSettings, SegmentSizes

SETTINGS = CleaningSettings(
    segment_bytes=100,
    segment_index_bytes=50,
    index_interval_bytes=4096,
    delete_retention_ms=0,
    max_decompressed_message_bytes=1,
)


def grouped(*segments: tuple[int, int, int, int], end: int = 1000) -> list[list[int]]:
    groups = group_segments([SegmentSizes(*segment) for segment in segments], SETTINGS, end)
    return [[segment.base_offset for segment in group] for group in groups]


def test_segments_join_from_the_left_while_there_is_room() -> None:
    assert grouped((0, 40, 0, 0), (10, 60, 0, 0), (20, 1, 0, 0), (30, 99, 0, 0), (40, 1, 0, 0)) == [
        [0, 10],
        [20, 30],
        [40],
    ]


def test_a_segment_that_is_too_large_stays_alone() -> None:
    assert grouped((0, 500, 0, 0), (10, 1, 0, 0)) == [[0], [10]]


def test_empty_segments_join_their_neighbour() -> None:
    assert grouped((0, 0, 0, 0), (10, 100, 0, 0), (20, 0, 0, 0)) == [[0, 10, 20]]


def test_the_indexes_have_to_fit_too() -> None:
    assert grouped((0, 1, 30, 0), (10, 1, 30, 0), (20, 1, 0, 40), (30, 1, 0, 40)) == [[0], [10, 20], [30]]


def test_offsets_have_to_fit_the_index_entries() -> None:
    far = 2**31
    assert grouped((0, 1, 0, 0), (10, 1, 0, 0), end=far) == [[0, 10]]
    assert grouped((0, 1, 0, 0), (10, 1, 0, 0), end=far + 1) == [[0], [10]]
    assert grouped((0, 1, 0, 0), (10, 1, 0, 0), (far + 1, 1, 0, 0), end=far + 9) == [[0], [10, far + 1]]


def test_an_empty_segment_joins_however_far_it_reaches() -> None:
    assert grouped((0, 1, 0, 0), (10, 0, 0, 0), end=2**40) == [[0, 10]]


@pytest.mark.limit("storage.cleaning.cleaner.MAX_SEGMENTS_IN_GROUP")
def test_a_group_has_no_more_segments_than_can_be_renamed_in_one_go() -> None:
    groups = grouped(*((base_offset, 0, 0, 0) for base_offset in range(MAX_SEGMENTS_IN_GROUP + 1)))
    assert [len(group) for group in groups] == [MAX_SEGMENTS_IN_GROUP, 1]


def test_nothing_makes_no_group() -> None:
    assert grouped() == []
