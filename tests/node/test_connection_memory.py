"""The memory that all connections share: which connection waits for it, is let in, or is closed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from broker.network.answers import MAX_CONTROL_REQUEST_BYTES
from broker.network.connection import DECODED_TIMES, INITIAL_BUFFER_BYTES, RETAINED_BUFFER_BYTES, Connection
from broker.network.memory import (
    MOST_REQUEST_BYTES,
    STALLED_S,
    AnswerMemory,
    Memory,
)
from tests.node.test_connection import FakeDispatcher, FakeListener, FakeTransport, frame

KIB = 1024
MIB = 1024 * 1024


class Timer:
    def __init__(self, at_s: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.at_s, self.callback, self.args = at_s, callback, args
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Schedule:
    """A scheduler whose time a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Callable[..., object], /, *args: Any) -> Timer:
        return self.call_later(0, callback, *args)

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Timer:
        self.timers.append(Timer(self.now_s + delay_s, callback, args))
        return self.timers[-1]

    def tell_failures(self, failed: object) -> Callable[[], None]:
        raise NotImplementedError

    def pending(self) -> list[Timer]:
        return [timer for timer in self.timers if not timer.is_cancelled]

    def advance(self, by_s: float) -> None:
        until_s = self.now_s + by_s
        while due := [timer for timer in self.pending() if timer.at_s <= until_s]:
            timer = min(due, key=lambda timer: timer.at_s)
            self.now_s = max(self.now_s, timer.at_s)
            self.timers.remove(timer)
            timer.callback(*timer.args)
        self.now_s = until_s


class Client:
    """Plays the loop and the client of a connection."""

    def __init__(self, schedule: Schedule, memory: Memory) -> None:
        self.transport = FakeTransport()
        self.dispatcher = FakeDispatcher()
        self.dispatcher.scheduler = schedule
        self.connection = Connection(
            FakeListener(),  # type: ignore[arg-type]
            self.dispatcher,  # type: ignore[arg-type]
            schedule,
            memory,
        )
        self.connection.connection_made(self.transport)  # type: ignore[arg-type]
        self.unsent = b""

    def send(self, data: bytes) -> Client:
        self.unsent += data
        return self.send_on()

    def send_on(self) -> Client:
        """Send as much as the connection reads."""
        left = memoryview(self.unsent)
        while left and self.transport.reading and not self.transport.closing:
            room = self.connection.get_buffer(-1)
            size = min(len(room), len(left))
            room[:size] = left[:size]
            left = left[size:]
            self.connection.buffer_updated(size)
        self.unsent = bytes(left)
        return self

    @property
    def buffer_bytes(self) -> int:
        return len(self.connection._buffer)

    @property
    def is_read_from(self) -> bool:
        return self.transport.reading and not self.transport.closing

    def lose(self) -> None:
        self.connection.connection_lost(None)


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


def half(size: int) -> bytes:
    """Return the first half of a Produce request."""
    return frame(bytes(size))[: size // 2]


def memory_of(schedule: Schedule, request_bytes: int, unread_bytes: int = MIB) -> Memory:
    memory = Memory.of(schedule, 100 * MIB, request_bytes)
    return memory._replace(answers=AnswerMemory(schedule, unread_bytes))


# --- requests ---------------------------------------------------------------------------------------------------


@pytest.mark.limit("broker.network.memory.MOST_REQUEST_BYTES")
def test_there_is_a_default_bound(schedule: Schedule) -> None:
    assert Memory.of(schedule, 100 * MIB, -1).requests.most_bytes == MOST_REQUEST_BYTES == 256 * MIB
    assert Memory.of(schedule, 100 * MIB, 300 * MIB).requests.most_bytes == 300 * MIB


def test_parts_of_requests_are_held_up_to_the_bound(schedule: Schedule) -> None:
    memory = memory_of(schedule, 2 * MIB)
    clients = [Client(schedule, memory).send(half(MIB)) for _ in range(20)]
    assert memory.requests.held_bytes <= 2 * MIB
    assert sum(client.buffer_bytes - INITIAL_BUFFER_BYTES for client in clients) <= 2 * MIB
    assert [client.is_read_from for client in clients[:2]] == [True, True]
    assert not any(client.is_read_from for client in clients[5:])


def test_small_requests_need_no_memory(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB)
    for _ in range(5):
        Client(schedule, memory).send(half(10 * MIB))
    assert memory.requests.is_short
    small = Client(schedule, memory).send(frame(b"small"))
    assert small.dispatcher.served == [b"small"]


def test_a_waiting_connection_goes_on_once_another_is_served(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB + INITIAL_BUFFER_BYTES)
    whole = frame(bytes(MIB - 100))
    first = Client(schedule, memory).send(whole[:-1])
    second = Client(schedule, memory).send(whole)
    assert (first.is_read_from, second.is_read_from) == (True, False)
    first.send(whole[-1:])
    assert len(first.dispatcher.served) == 1
    assert second.send_on().dispatcher.served == [whole[4:]]
    assert memory.requests.held_bytes == second.buffer_bytes - INITIAL_BUFFER_BYTES
    assert not schedule.pending()


def test_smaller_needs_come_first(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB)
    first = Client(schedule, memory).send(half(MIB))
    large = Client(schedule, memory).send(half(10 * MIB))
    small = Client(schedule, memory)
    memory.requests.most_bytes = memory.requests.held_bytes  # there is room for none of them
    small.send(half(40 * KIB))
    assert not large.is_read_from
    assert not small.is_read_from
    memory.requests.most_bytes += INITIAL_BUFFER_BYTES
    memory.requests._let_in()
    assert (large.is_read_from, small.is_read_from) == (False, True)
    assert first.is_read_from


def test_if_all_wait_for_one_another_one_goes_on(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB)
    clients = [Client(schedule, memory).send(half(8 * MIB)) for _ in range(20)]
    assert sum(client.is_read_from for client in clients) == 1
    assert memory.requests.held_bytes < 2 * MIB + 8 * MIB
    (lucky,) = [client for client in clients if client.is_read_from]
    lucky.send(frame(bytes(8 * MIB))[4 * MIB :])
    assert len(lucky.dispatcher.served) == 1
    assert sum(client.is_read_from for client in clients) > 1


def test_one_request_may_be_larger_than_the_bound(schedule: Schedule) -> None:
    client = Client(schedule, memory_of(schedule, MIB)).send(frame(bytes(10 * MIB)))
    assert len(client.dispatcher.served) == 1


def test_a_part_of_a_request_that_others_wait_for_is_given_up(
    schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    memory = memory_of(schedule, MIB)
    stalled = Client(schedule, memory).send(half(MIB))
    schedule.advance(1000)
    assert not stalled.transport.aborted
    waiting = Client(schedule, memory).send(half(MIB))
    schedule.advance(STALLED_S - 1)
    assert not stalled.transport.aborted
    schedule.advance(1)
    assert stalled.transport.aborted
    assert not waiting.transport.aborted
    assert "for 10 s, and others wait for memory" in caplog.text
    stalled.lose()
    assert waiting.send_on().is_read_from
    assert not memory.requests.is_short
    assert not schedule.pending()


def test_a_buffer_kept_for_later_requests_is_given_back_if_another_needs_it(
    schedule: Schedule,
) -> None:
    memory = memory_of(schedule, MIB)
    idle = Client(schedule, memory).send(frame(bytes(600 * KIB)))
    assert idle.buffer_bytes == MIB
    other = Client(schedule, memory).send(half(MIB))
    assert idle.buffer_bytes == INITIAL_BUFFER_BYTES
    assert other.is_read_from
    idle.send(frame(b"again"))
    assert idle.dispatcher.served[-1] == b"again"


def test_no_connection_keeps_a_buffer_while_others_wait(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB)
    whole = frame(bytes(500 * KIB))
    first = Client(schedule, memory).send(whole[:-1])
    for _ in range(4):
        Client(schedule, memory).send(half(900 * KIB))
    assert memory.requests.is_short
    first.send(whole[-1:])
    assert first.buffer_bytes == INITIAL_BUFFER_BYTES


def test_a_buffer_that_another_needs_is_given_back_though_the_next_request_has_begun(
    schedule: Schedule,
) -> None:
    memory = memory_of(schedule, MIB)
    client = Client(schedule, memory).send(frame(b"\0\0wait" + bytes(600 * KIB)) + frame(b"next")[:-1])
    other = Client(schedule, memory).send(half(MIB))
    assert not other.is_read_from
    client.dispatcher.waiting[0].set_result([b"answer"])
    schedule.advance(0)
    assert client.buffer_bytes == INITIAL_BUFFER_BYTES
    assert other.is_read_from
    assert client.send(b"t").dispatcher.served[-1] == b"next"


def test_a_request_that_may_be_decoded_keeps_the_memory_for_it_though_others_need_some(
    schedule: Schedule,
) -> None:
    memory = memory_of(schedule, 2 * MIB)
    busy = Client(schedule, memory).send(half(MIB))
    waiting = Client(schedule, memory).send(frame(bytes([0, 3]) + bytes(120 * KIB)))
    busy.lose()
    waiting.connection.shrink()
    assert memory.requests.held_bytes > DECODED_TIMES * 120 * KIB
    schedule.advance(0)
    assert len(waiting.dispatcher.served) == 1
    assert memory.requests.held_bytes == waiting.buffer_bytes - INITIAL_BUFFER_BYTES


async def test_a_request_in_work_is_counted_until_it_is_answered(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB)
    client = Client(schedule, memory).send(frame(b"\0\0wait" + bytes(MIB - 200)) + frame(bytes(100)))
    assert memory.requests.held_bytes == MIB - INITIAL_BUFFER_BYTES
    client.send(frame(bytes(900 * KIB)))  # comes into another buffer, of the first size
    assert memory.requests.held_bytes == MIB - INITIAL_BUFFER_BYTES
    assert client.buffer_bytes < 256 * KIB
    client.dispatcher.waiting[0].set_result([b"answer"])
    schedule.advance(0)
    assert memory.requests.held_bytes <= 2 * INITIAL_BUFFER_BYTES


def test_a_connection_that_is_lost_gives_all_back(schedule: Schedule) -> None:
    memory = memory_of(schedule, MIB)
    clients = [Client(schedule, memory).send(half(MIB)) for _ in range(5)]
    for client in clients:
        client.lose()
    assert memory.requests.held_bytes == 0
    assert not memory.requests.is_short
    assert not schedule.pending()


def test_a_buffer_larger_than_what_is_retained_goes_at_once_though_answers_are_unread(
    schedule: Schedule,
) -> None:
    memory = memory_of(schedule, 100 * MIB)
    client = Client(schedule, memory)
    client.transport.protocol = client.connection
    client.transport.unread_limit = 10
    client.send(frame(bytes(2 * RETAINED_BUFFER_BYTES)))
    assert client.buffer_bytes == INITIAL_BUFFER_BYTES
    assert memory.requests.held_bytes == 0


def test_a_request_that_becomes_objects_is_counted_as_them_until_it_is_answered(schedule: Schedule) -> None:
    memory = memory_of(schedule, 2 * MIB)
    asking = Client(schedule, memory).send(frame(b"wait" + bytes(100 * KIB)))
    assert len(asking.dispatcher.waiting) == 1
    assert memory.requests.held_bytes > DECODED_TIMES * 100 * KIB
    other = Client(schedule, memory).send(frame(b"wait" + bytes(50 * KIB)))
    assert other.dispatcher.served == []
    small = Client(schedule, memory).send(frame(b"small"))
    assert small.dispatcher.served == [b"small"]
    asking.dispatcher.waiting[0].set_result([b"answer"])
    schedule.advance(0)
    schedule.advance(0)
    assert len(other.dispatcher.waiting) == 1
    other.dispatcher.waiting[0].set_result([b"answer"])
    schedule.advance(0)
    assert asking.transport.written == other.transport.written == b"answer"
    for client in asking, other:
        client.connection.shrink()
    assert memory.requests.held_bytes == 0


def test_a_request_answered_at_once_is_not_counted_any_longer(schedule: Schedule) -> None:
    memory = memory_of(schedule, 2 * MIB)
    client = Client(schedule, memory)
    for _ in range(5):
        client.send(frame(b"asks" + bytes(100 * KIB)))
    assert len(client.dispatcher.served) == 5
    assert memory.requests.held_bytes == client.buffer_bytes - INITIAL_BUFFER_BYTES


def test_a_request_that_only_produce_may_be_is_refused_before_it_takes_any_memory(
    schedule: Schedule, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    memory = memory_of(schedule, 100 * MIB)
    size = MAX_CONTROL_REQUEST_BYTES + 1
    client = Client(schedule, memory).send(frame(bytes([0, 3]) + bytes(size - 2))[:6])
    assert client.transport.closing
    assert f"a request of {size} bytes" in caplog.text
    assert memory.requests.held_bytes == 0
    for accepted in (frame(bytes(size)), frame(bytes([0, 3]) + bytes(size - 3))):
        assert len(Client(schedule, memory).send(accepted).dispatcher.served) == 1
