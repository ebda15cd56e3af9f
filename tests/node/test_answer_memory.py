"""The memory that all connections share for answers that their clients don't read."""

from __future__ import annotations

import pytest

from broker.network.memory import MOST_UNREAD_BYTES, STALLED_S, Memory
from tests.node.test_connection import frame
from tests.node.test_connection_memory import MIB, Client, Schedule, memory_of


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


def unread(schedule: Schedule, memory: Memory, times: int) -> Client:
    """Return a client with this many answers of 500,000 bytes, none of which it reads."""
    client = Client(schedule, memory)
    client.transport.protocol = client.connection
    client.transport.unread_limit = 500_000 * times - 1
    return client.send(frame(b"large") * times)


def read_all(client: Client) -> None:
    client.transport.written.clear()
    client.connection.resume_writing()


@pytest.mark.limit("broker.network.memory.MOST_UNREAD_BYTES")
def test_unread_answers_have_a_bound(schedule: Schedule) -> None:
    assert Memory.of(schedule, 100 * MIB, 300 * MIB).answers.most_bytes == MOST_UNREAD_BYTES == 256 * MIB


def test_while_too_much_is_unread_no_connection_is_served(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB, unread_bytes=900_000)
    slow = unread(schedule, memory, 1)
    assert memory.answers.held_bytes == 500_000
    other = Client(schedule, memory).send(frame(b"one"))
    assert other.dispatcher.served == [b"one"]
    slower = unread(schedule, memory, 1)
    assert memory.answers.is_full
    other.send(frame(b"two") + frame(b"three"))
    assert other.dispatcher.served == [b"one"]
    assert not other.is_read_from
    read_all(slow)
    schedule.advance(0)
    assert other.send_on().dispatcher.served == [b"one", b"two", b"three"]
    assert memory.answers.held_bytes == 500_000
    read_all(slower)
    assert memory.answers.held_bytes == 0
    assert not schedule.pending()


def test_a_connection_that_reads_nothing_while_others_wait_is_closed(
    schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    memory = memory_of(schedule, MIB, unread_bytes=900_000)
    stalled, slow = unread(schedule, memory, 1), unread(schedule, memory, 1)
    waiting = Client(schedule, memory).send(frame(b"one"))
    schedule.advance(STALLED_S - 1)
    del slow.transport.written[:10]
    schedule.advance(1)
    assert (stalled.transport.aborted, slow.transport.aborted) == (True, False)
    assert "its client has read none of 500000 bytes for 10 s" in caplog.text
    stalled.lose()
    schedule.advance(0)
    assert waiting.dispatcher.served == [b"one"]
    assert not schedule.pending()


def test_a_connection_lost_while_it_waits_is_not_served_again(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB, unread_bytes=400_000)
    slow = unread(schedule, memory, 1)
    waiting = Client(schedule, memory).send(frame(b"one"))
    waiting.lose()
    slow.lose()
    schedule.advance(0)
    assert waiting.dispatcher.served == []
    assert memory.answers.held_bytes == 0
    assert not schedule.pending()


def test_an_answer_queued_after_unread_ones_is_counted(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB)
    client = Client(schedule, memory)
    client.transport.protocol = client.connection
    client.transport.unread_limit = 400_000
    client.send(frame(b"large") + frame(b"wait"))
    assert memory.answers.held_bytes == 500_000
    client.dispatcher.waiting[0].set_result([bytes(300_000)])
    client.transport.protocol = None  # says no more
    schedule.advance(0)
    assert memory.answers.held_bytes == 800_000
    read_all(client)
    assert memory.answers.held_bytes == 0
