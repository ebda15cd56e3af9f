"""Java's hashes. Java 17 computed the expected values."""

from __future__ import annotations

import pytest

from coordinator.java.maps import JavaHashMap, partition_of_key, string_hash

WALKED = (
    "343 2744 1331 4096 10648 8 27000 21952 46656 42875 6859 50653 216 4913 512 BBBB AaBB AaAa 1728 54872 13824 "
    "32768 8000 15625 24389 1000 29791 64 2197 17576 1 5832 0 12167 39304 125"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("abc", 96354),
        ("my-group", -1906497762),
        ("grüße", 98768023),
        ("\U0001f600", 1772899),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_a_string_hashes_as_in_java(text: str, expected: int) -> None:
    assert string_hash(text) == expected


def test_a_group_goes_to_the_partition_of_its_absolute_hash() -> None:
    assert partition_of_key("my-group", 50) == 1906497762 % 50


def test_the_smallest_hash_has_no_absolute_value_and_goes_to_the_first_partition() -> None:
    assert partition_of_key("polygenelubricants", 50) == 0


def test_a_map_is_walked_in_javas_order_after_the_same_history() -> None:
    walked: JavaHashMap[int] = JavaHashMap()
    for number in range(40):
        walked[f"member-{number**3}"] = number
    for number in range(0, 40, 3):
        walked.pop(f"member-{number**3}")
    for number in range(0, 40, 6):
        walked[f"member-{number**3}"] = number
    for key in ("AaAa", "BBBB", "AaBB"):  # these have the same hash
        walked[key] = 1
    walked.pop("AaAa")
    walked["AaAa"] = 2

    assert [key.removeprefix("member-") for key in walked] == WALKED.split()
    assert walked["AaAa"] == 2


def test_a_value_that_is_replaced_keeps_its_place() -> None:
    walked: JavaHashMap[int] = JavaHashMap()
    walked["AaAa"] = 1
    walked["BBBB"] = 2

    walked["AaAa"] = 3

    assert walked.keys() == ["AaAa", "BBBB"]
    assert walked.values() == [3, 2]
