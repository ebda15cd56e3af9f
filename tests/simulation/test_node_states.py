"""What is left of a log's knowledge when its beginning is gone."""

from __future__ import annotations

import pytest

from tests.simulation.node_states import KnownByLog, by_records

HAS_RECORDS = (1, 0, 5, 20, -1)
IS_OPEN = (2, 0, 5, 25, 18)
HAS_NONE = (3, 0, 5, 7, -1)
LEFT_OPEN = (4, 0, 5, 7, 3)


@pytest.mark.parametrize(
    ("producers", "stable", "kept", "stable_then"),
    [
        ([HAS_RECORDS, HAS_NONE], 30, [HAS_RECORDS], 30),
        ([HAS_RECORDS, LEFT_OPEN], 10, [HAS_RECORDS], 30),
        ([IS_OPEN, LEFT_OPEN], 10, [IS_OPEN], 18),
        ([IS_OPEN, HAS_NONE], 18, [IS_OPEN], 18),
    ],
)
def test_a_producer_without_records_is_left_out_with_its_open_transaction(
    producers: list[tuple[int, int, int, int, int]],
    stable: int,
    kept: list[tuple[int, int, int, int, int]],
    stable_then: int,
) -> None:
    assert by_records(KnownByLog(10, 30, stable, producers)) == KnownByLog(10, 30, stable_then, kept)
