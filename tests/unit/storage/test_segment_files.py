"""The names of a partition's files."""

import pytest

from storage.files import file_path, offset_of


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000369.log", 369),
        ("00000000000000000369.timeindex.deleted", 369),
        ("09223372036854775807.snapshot", 2**63 - 1),
        ("00000000000000000369", None),
        ("0000000000000000369.log", None),
        ("00000000000000000080-0000000001.checkpoint", None),
        ("leader-epoch-checkpoint", None),
        ("partition.metadata", None),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠.log", None),
    ],
)
def test_the_offset_stands_in_the_first_twenty_digits(name: str, offset: int | None) -> None:
    assert offset_of(name) == offset


def test_a_path_is_read_back() -> None:
    assert file_path("/data/t-0", 42, ".index") == "/data/t-0/00000000000000000042.index"
