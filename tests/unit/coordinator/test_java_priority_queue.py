"""The order of java.util.PriorityQueue among entries of equal priority."""

from __future__ import annotations

from coordinator.java.maps import JavaPriorityQueue


def filled(*entries: tuple[str, int]) -> JavaPriorityQueue[tuple[str, int]]:
    queue: JavaPriorityQueue[tuple[str, int]] = JavaPriorityQueue(lambda entry: entry[1])
    for entry in entries:
        queue.add(entry)
    return queue


def drained(queue: JavaPriorityQueue[tuple[str, int]]) -> str:
    names = ""
    while (entry := queue.poll()) is not None:
        names += entry[0]
    return names


def test_the_lightest_comes_first() -> None:
    queue = filled(("c", 3), ("a", 1), ("d", 4), ("b", 2))
    assert len(queue) == 4
    assert drained(queue) == "abcd"
    assert queue.poll() is None


def test_equal_ones_come_as_java_gives_them() -> None:
    """A program in Java printed the expected orders."""
    assert drained(filled(*((name, 0) for name in "abcdefg"))) == "agfedcb"
    assert drained(filled(("a", 0), ("b", 0), ("c", 1), ("d", 0), ("e", 1))) == "abdce"
    some = zip("abcdefghij", (1, 1, 0, 1, 0, 1, 1, 0, 1, 1), strict=True)
    assert drained(filled(*some)) == "cehdgfbjai"
