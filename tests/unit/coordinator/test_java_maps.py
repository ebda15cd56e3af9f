"""Maps are iterated in the order of Java 17, after thousands of random histories with colliding keys and small
tables."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.java.maps import JavaMap, JavaSet, TimelineTable, java_hash, uuid_hash

VECTORS = Path(__file__).parent / "data" / "java_maps.jsonl.gz"


def histories() -> list[dict[str, Any]]:
    """Return {capacity, operations: [[put | compute | remove, key]], keys}. The keys are those of a
    java.util.HashMap."""
    return [json.loads(line) for line in gzip.decompress(VECTORS.read_bytes()).splitlines()]


@pytest.mark.parametrize("history", histories(), ids=lambda history: f"{len(history['operations'])}")
def test_a_map_is_walked_in_javas_order(history: dict[str, Any]) -> None:
    walked: JavaMap[Any, int] = JavaMap(history["capacity"])
    in_trees: set[Any] = set()
    for operation, key in history["operations"]:
        if operation == "put":
            walked[key] = 1
        elif operation == "compute":
            walked.compute_if_absent(key, 1)
        else:
            walked.pop(key)
        in_trees.update(*_trees(walked))

    assert {*walked} == {*history["keys"]}
    assert [key for key in walked if key not in in_trees] == [
        key for key in history["keys"] if key not in in_trees
    ]


def _trees(walked: JavaMap[Any, int]) -> list[list[Any]]:
    """Return the buckets that Java turns into trees. Their order isn't defined."""
    return [keys for keys in walked._buckets.values() if walked._capacity >= 64 and len(keys) >= 8]


def test_some_histories_are_long() -> None:
    longest = max(len(history["operations"]) for history in histories())
    assert longest > 300


def test_a_set_is_sized_by_the_number_given() -> None:
    assert [*JavaSet.of([17, 1])] == [17, 1]
    assert [*JavaSet.of([17, 1], 13)] == [1, 17]


def test_a_uuid_hashes_as_in_kafka() -> None:
    assert uuid_hash(bytes(15) + b"\x01") == 1
    assert uuid_hash(b"\xff" * 8 + bytes(8)) == 0
    assert uuid_hash(b"\x80" + bytes(15)) == -(2**31)


def test_maps_are_equal_whatever_their_order() -> None:
    one: JavaMap[int, str] = JavaMap()
    two: JavaMap[int, str] = JavaMap(1)
    for key in (1, 17):
        one[key] = "x"
    for key in (17, 1):
        two[key] = "x"

    assert one == two
    two[17] = "y"
    assert one != two


def test_a_timeline_table_walks_a_slot_from_the_newest_to_the_oldest() -> None:
    table: TimelineTable[int] = TimelineTable()
    for key in ("AaAa", "BBBB", "AaBB"):  # these have the same hash
        table[key] = 1
    table["AaAa"] = 2

    assert [*table] == ["AaBB", "BBBB", "AaAa"]
    assert table.pop("BBBB") == 1
    assert table.items() == [("AaBB", 1), ("AaAa", 2)]


def test_records_are_walked_as_java_walks_them() -> None:
    """A program in Java 17 printed this order for records of a string and a number."""
    walked: JavaSet[tuple[str, int]] = JavaSet()
    walked.update([(text, number) for text in ("33", "11", "1", "2", "10") for number in (40, 0, 31, 7)])
    assert java_hash(("11", 3)) == 48_611
    assert " ".join(f"{text}_{number}" for text, number in walked) == (
        "33_0 11_0 10_31 10_0 33_7 11_7 33_40 11_40 10_7 10_40 2_31 1_31 2_0 1_0 2_7 1_7 2_40 1_40 33_31 11_31"
    )


def test_a_map_grows_for_bulk_puts_as_in_java() -> None:
    def of(*keys: int) -> JavaMap[int, int]:
        made: JavaMap[int, int] = JavaMap()
        for key in keys:
            made[key] = 0
        return made

    walked = JavaMap.copy_of(of(3))
    walked.put_all(of(4))
    assert walked.keys() == [4, 3]
    walked.put_all(of(*range(5, 12)))
    assert walked.keys() == [3, 4, 5, 6, 7, 8, 9, 10, 11]
