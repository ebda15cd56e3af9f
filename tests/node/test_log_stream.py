"""Logging never waits for the reader of the log."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from broker.process.log_stream import MOST_WAITING_BYTES, LogStream


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Yield the ends of a pipe to read from and to write to."""
    reader, writer = os.pipe()
    yield reader, writer
    os.close(reader)
    os.close(writer)


def taken(reader: int, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += os.read(reader, size - len(found))
    return found


def lines_until_missing(reader: int) -> list[str]:
    """Return the lines up to the one that says that others are missing."""
    found: list[str] = []
    with os.fdopen(os.dup(reader), "rb") as log:
        while not found or "missing" not in found[-1]:
            found.append(log.readline().decode())
    return found


def lines(count: int) -> list[str]:
    return [f"{number:06d} {'x' * 120}\n" for number in range(count)]


def test_a_line_is_readable_as_soon_as_it_is_written(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    LogStream(writer, "utf-8").write("Käfer\n")
    assert os.read(reader, 100) == "Käfer\n".encode()


def test_a_line_that_the_encoding_has_no_words_for_is_escaped(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    LogStream(writer, "ascii").write("Käfer\n")
    assert os.read(reader, 100) == b"K\\xe4fer\n"


@pytest.mark.parametrize("waits", [True, False])  # it depends on who opened the descriptor
def test_unread_lines_hold_nobody_up_and_come_in_order(pipe: tuple[int, int], waits: bool) -> None:
    reader, writer = pipe
    os.set_blocking(writer, waits)
    stream = LogStream(writer, "utf-8")
    written = lines(4_000)  # half a mebibyte, of which the pipe takes an eighth
    for line in written:
        stream.write(line)
    whole = "".join(written).encode()
    assert taken(reader, len(whole)) == whole


def test_a_line_longer_than_the_pipe_comes_whole(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = LogStream(writer, "utf-8")
    line = "long " * 40_000 + "\n"
    stream.write(line)
    stream.write("next\n")
    assert taken(reader, len(line) + 5) == (line + "next\n").encode()


@pytest.mark.limit("broker.process.log_stream.MOST_WAITING_BYTES")
def test_past_the_bound_lines_are_dropped_and_their_number_is_reported(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = LogStream(writer, "utf-8")
    written = lines(12_000)
    for line in written:
        stream.write(line)
    *kept, told = lines_until_missing(reader)
    assert kept == written[: len(kept)]
    assert MOST_WAITING_BYTES < len("".join(kept)) < MOST_WAITING_BYTES + 200_000
    assert told == f"{len(written) - len(kept)} lines of the log are missing here: nobody read it\n"


def test_lines_after_a_dropped_one_are_dropped_until_that_is_reported(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = LogStream(writer, "utf-8")
    written = lines(12_000)
    for line in written:
        stream.write(line)
    taken(reader, len("".join(written[:4_000])))  # there would be room again now
    stream.write("behind the gap\n")
    assert "behind the gap\n" not in lines_until_missing(reader)


def test_an_object_that_logs_while_collected_during_a_line_holds_nobody_up(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    stream = LogStream(writer, "utf-8")
    written = []

    def collecting(descriptor: int, data: bytes) -> int:
        if not written:
            written.append(data)
            stream.write("of the object\n")
        return os_write(descriptor, data)

    os_write = os.write
    monkeypatch.setattr(os, "write", collecting)
    stream.write("whole\n")
    assert os.read(reader, 100) == b"of the object\nwhole\n"


def test_if_no_thread_can_be_started_the_next_line_tries_again(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, writer = pipe
    stream = LogStream(writer, "utf-8")
    first = "long " * 40_000 + "\n"

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError):
            stream.write(first)
    stream.write("next\n")
    assert taken(reader, len(first) + 5) == (first + "next\n").encode()


def test_once_the_reader_has_caught_up_lines_go_straight_out_again(pipe: tuple[int, int]) -> None:
    reader, writer = pipe
    stream = LogStream(writer, "utf-8")
    whole = "".join(lines(2_000)).encode()
    for line in lines(2_000):
        stream.write(line)
    assert taken(reader, len(whole)) == whole
    for thread in threading.enumerate():
        if thread.name == "log":
            thread.join()
    stream.write("and on\n")
    assert not [thread for thread in threading.enumerate() if thread.name == "log"]
    assert os.read(reader, 100) == b"and on\n"


def test_without_a_reader_the_next_line_says_so() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with pytest.raises(BrokenPipeError):
        LogStream(writer, "utf-8").write("to nobody\n")
    os.close(writer)
