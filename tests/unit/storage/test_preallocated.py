"""The zeros at the end of an index that Kafka allocated in full length."""

from __future__ import annotations

import pytest

from storage.indexes import used_bytes

BLOCK = 64 * 1024


@pytest.mark.parametrize("used", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("zeros", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK])
def test_trailing_zeros_are_left_out_and_no_others(used: int, zeros: int) -> None:
    data = bytes(used - 1) + b"x" if used else b""
    assert used_bytes(data + bytes(zeros)) == used


def test_ten_megabytes_of_zeros_are_skipped_in_blocks() -> None:
    class Counted(bytes):
        slices = 0

        def __getitem__(self, key):  # type: ignore[no-untyped-def]
            Counted.slices += key.stop - key.start
            return super().__getitem__(key)

    assert used_bytes(Counted(b"x" + bytes(10_485_760))) == 1
    assert Counted.slices <= BLOCK
