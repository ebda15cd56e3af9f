"""Bounds on the memory that all connections together hold: for incoming requests, and for answers that clients don't
read (Kafka, for requests: `SimpleMemoryPool`, by `queued.max.request.bytes`).

Above the bound nothing grows. A connection that needs more isn't read from until there is room; one that needs less may
go first. So that none waits forever, one connection at a time may exceed the bound, as one request may in Kafka: the
one that has waited longest, after some time, or any if all wait for one another. Connections that hold memory which
others wait for, and make no progress, are closed.

No address has a bound of its own: most brokers of this kind run on one machine, where all clients have one address.
"""

from __future__ import annotations

import mmap
from collections import Counter, deque
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.environment.scheduler import TURN_S

if TYPE_CHECKING:
    from broker.environment.scheduler import Scheduled, Scheduler


MOST_REQUEST_BYTES = 256 * 1024 * 1024
"""The bound for requests if `queued.max.request.bytes` sets none. Kafka has no bound then."""
MOST_UNREAD_BYTES = 256 * 1024 * 1024
"""The bound for unread answers."""
STALLED_S = 10
"""How long a connection may hold memory that others wait for without making progress."""
LONG_WAIT_S = 2 * STALLED_S
"""How long others may go before a connection that waits for memory. Stalled connections are closed by then."""
MOST_CHECKS_FULL = 6
"""A request may be in work for so many times `STALLED_S` while others have long waited for its memory. If answers fill
the memory for that time, although clients read some of them, the connection that holds the most is closed."""


PASSAGE_BYTES = 1024 * 1024
"""As much as a client usually asks for of a partition: the client is woken once for all of it."""


class Receiving(Protocol):
    """A connection, as the memory for requests sees it."""

    peer_host: str

    @property
    def is_receiving(self) -> bool:
        """True if a part of a request has come, and the rest is up to the client."""
        ...

    def shrink(self) -> None:
        """Give back memory that is held for future requests."""
        ...

    def abort(self, reason: str) -> None: ...


class _Share:
    __slots__ = ("held_bytes", "since_s")

    def __init__(self, since_s: float) -> None:
        self.held_bytes = 0
        self.since_s = since_s


class _Need(NamedTuple):
    more_bytes: int
    then: Callable[[], None]
    since_s: float


class RequestMemory:
    """The memory for requests, beside the few kilobytes that each connection always has.

    All connections but one together hold no more than the bound. If there is room for several waiting connections,
    addresses that hold the least come first, then smaller needs. Connections that have waited for `LONG_WAIT_S` come
    before all, in the order of waiting. The first of them may exceed the bound as soon as no other one does.
    """

    __slots__ = (
        "_above",
        "_by_host",
        "_check",
        "_scheduler",
        "_shares",
        "_waiting",
        "held_bytes",
        "is_short",
        "most_bytes",
    )

    def __init__(self, scheduler: Scheduler, most_bytes: int = MOST_REQUEST_BYTES) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self.is_short = False
        """True while a connection waits. Then no connection keeps memory that it doesn't need."""
        self._scheduler = scheduler
        self._shares: dict[Receiving, _Share] = {}
        self._by_host: Counter[str] = Counter()
        self._above: Receiving | None = None  # the connection that exceeds the bound, if one does
        self._waiting: dict[Receiving, _Need] = {}  # the longest wait first
        self._check: Scheduled | None = None

    def ask(self, connection: Receiving, more_bytes: int, then: Callable[[], None]) -> bool:
        """Returns True if the connection may hold so much more, and counts it. Else `then` is called once it may and
        is counted. It may ask again for the same meanwhile."""
        if connection in self._waiting:
            return False
        if not self.has_room(more_bytes) and not self.is_short:
            for holder in [*self._shares]:
                if holder is not connection:
                    holder.shrink()
        if self.has_room(more_bytes) or connection is self._above or not self._others_move(connection):
            self._grant(connection, more_bytes)
            return True
        self._waiting[connection] = _Need(more_bytes, then, self._scheduler.time())
        self._begin_to_check()
        return False

    def hold(self, connection: Receiving, more_bytes: int) -> None:
        """Count so much more for the connection: it holds it already."""
        self._grant(connection, more_bytes)

    def free(self, connection: Receiving, freed_bytes: int) -> None:
        """Count so much less for the connection."""
        share = self._shares[connection]
        share.held_bytes -= freed_bytes
        share.since_s = self._scheduler.time()
        if not share.held_bytes:
            del self._shares[connection]
        self._take_back(connection, freed_bytes)

    def forget(self, connection: Receiving) -> None:
        """The connection is gone: it neither holds memory nor waits for it."""
        if self._waiting.pop(connection, None) is not None and not self._waiting:
            self._is_short_no_more()
        share = self._shares.pop(connection, None)
        if share is not None:
            self._take_back(connection, share.held_bytes)

    def has_room(self, more_bytes: int) -> bool:
        """True if so much more is within the bound."""
        return self.held_bytes + more_bytes <= self.most_bytes

    def _grant(self, connection: Receiving, more_bytes: int) -> None:
        now_s = self._scheduler.time()
        share = self._shares.get(connection)
        if share is None:
            share = self._shares[connection] = _Share(now_s)
        share.since_s = now_s
        share.held_bytes += more_bytes
        self._by_host[connection.peer_host] += more_bytes
        self.held_bytes += more_bytes
        if self.held_bytes > self.most_bytes:
            self._above = connection

    def _take_back(self, connection: Receiving, freed_bytes: int) -> None:
        self.held_bytes -= freed_bytes
        self._by_host[connection.peer_host] -= freed_bytes
        if not self._by_host[connection.peer_host]:
            del self._by_host[connection.peer_host]
        if self.held_bytes <= self.most_bytes:
            self._above = None
        if self._waiting:
            self._let_in()

    def _others_move(self, connection: Receiving | None) -> bool:
        return any(holder is not connection and holder not in self._waiting for holder in self._shares)

    def _waits_since(self, since_s: float) -> bool:
        """True if a connection has waited since then."""
        longest = next(iter(self._waiting.values()), None)
        return longest is not None and longest.since_s <= since_s

    def _let_in(self) -> None:
        """Let in waiting connections for which there is room, in order; and one above the bound if it is its turn."""
        if self._above is not None:
            return  # there is no room
        long_since_s = self._scheduler.time() - LONG_WAIT_S

        def order(item: tuple[Receiving, _Need]) -> tuple[bool, int, int]:
            connection, need = item
            if need.since_s <= long_since_s:
                return False, 0, 0  # in the order of waiting
            return True, self._by_host[connection.peer_host], need.more_bytes

        nobody_moves = not self._others_move(None)
        least_bytes = min((need.more_bytes for need in self._waiting.values()), default=0)
        if not self.has_room(least_bytes) and not nobody_moves and not self._waits_since(long_since_s):
            return  # none can be let in, so there is no need to sort them
        for connection, (more_bytes, then, since_s) in sorted(self._waiting.items(), key=order):
            if not self.has_room(more_bytes) and (
                self._above is not None or not (nobody_moves or since_s <= long_since_s)
            ):
                if not self.has_room(least_bytes):
                    break
                continue
            if self._waiting.pop(connection, None) is None:
                continue
            nobody_moves = False
            self._grant(connection, more_bytes)
            then()
        if not self._waiting:
            self._is_short_no_more()

    def _begin_to_check(self) -> None:
        self.is_short = True
        if self._check is None:
            self._check = self._scheduler.call_later(STALLED_S, self._look_who_waits)

    def _is_short_no_more(self) -> None:
        self.is_short = False
        if self._check is not None:
            self._check.cancel()
            self._check = None

    def _look_who_waits(self) -> None:
        now_s = self._scheduler.time()
        self._check = self._scheduler.call_later(STALLED_S, self._look_who_waits)
        self._close_stalled(now_s - STALLED_S)
        if self._waits_since(now_s - LONG_WAIT_S):
            self._close_largest(now_s - MOST_CHECKS_FULL * STALLED_S)
            self._let_in()

    def _close_stalled(self, since_s: float) -> None:
        for connection, share in [*self._shares.items()]:
            if share.since_s <= since_s and connection.is_receiving and connection not in self._waiting:
                connection.abort(
                    f"its incomplete request has held {share.held_bytes} bytes for {STALLED_S} s, "
                    f"and others wait for memory"
                )

    def _close_largest(self, since_s: float) -> None:
        """Close the largest of the requests that have been in work since then.

        It is at least as large as the one that exceeds the bound, if that is one of them: so another one may go on."""
        held = [
            (share.held_bytes, connection)
            for connection, share in self._shares.items()
            if share.since_s <= since_s and connection not in self._waiting
        ]
        if held:
            held_bytes, connection = max(held, key=itemgetter(0))
            connection.abort(
                f"its request has been in work for {MOST_CHECKS_FULL * STALLED_S} s, others wait for memory, and its "
                f"{held_bytes} bytes are the most"
            )


class Unread(Protocol):
    """A connection, as the memory for unread answers sees it."""

    peer_host: str

    def unread_bytes(self) -> int:
        """The bytes that it holds now."""
        ...

    def abort(self, reason: str) -> None: ...


class AnswerMemory:
    """The memory for answers that clients haven't read. Records of a Fetch don't count: they stay in files."""

    __slots__ = (
        "_check",
        "_checks",
        "_scheduler",
        "_shares",
        "_waiting",
        "held_bytes",
        "is_full",
        "most_bytes",
    )

    def __init__(self, scheduler: Scheduler, most_bytes: int = MOST_UNREAD_BYTES) -> None:
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self.is_full = False
        """While True, no connection is served: any answer might be left unread, too."""
        self._scheduler = scheduler
        self._shares: dict[Unread, int] = {}
        self._waiting: dict[Unread, Callable[[], None]] = {}  # the longest wait first
        self._check: Scheduled | None = None
        self._checks = 0  # checks since it is full

    def hold(self, connection: Unread, held_bytes: int) -> None:
        """Set how many bytes of the connection's answers are unread; 0 if none are."""
        self.held_bytes += held_bytes - self._shares.pop(connection, 0)
        if held_bytes:
            self._shares[connection] = held_bytes
        is_full = self.held_bytes > self.most_bytes
        if is_full is not self.is_full:
            self.is_full = is_full
            if is_full:
                self._check = self._scheduler.call_later(STALLED_S, self._close_stalled)
            else:
                self._end_wait()

    def when_room(self, connection: Unread, then: Callable[[], None]) -> None:
        """Call `then` once there is room again, in a turn of its own."""
        self._waiting[connection] = then

    def forget(self, connection: Unread) -> None:
        """The connection is gone."""
        self._waiting.pop(connection, None)
        self.hold(connection, 0)

    def _end_wait(self) -> None:
        if self._check is not None:
            self._check.cancel()
            self._check = None
        self._checks = 0
        waiting, self._waiting = self._waiting, {}
        held_bytes = _by_host(self._shares.items())
        for connection in sorted(waiting, key=lambda connection: held_bytes[connection.peer_host]):
            self._scheduler.call_soon(waiting[connection])

    def _close_stalled(self) -> None:
        self._check = self._scheduler.call_later(STALLED_S, self._close_stalled)
        self._checks += 1
        largest = self._close_largest() if self._checks >= MOST_CHECKS_FULL else None
        for connection, held_bytes in [*self._shares.items()]:
            if connection is largest:
                continue
            left_bytes = connection.unread_bytes()
            if left_bytes < held_bytes:
                self.hold(connection, left_bytes)
            else:
                connection.abort(
                    f"its client has read none of {held_bytes} bytes for {STALLED_S} s, and others wait for memory"
                )

    def _close_largest(self) -> Unread:
        """Close the largest connection of the address that holds the most. Else a client that reads a byte now and then
        would keep all others waiting forever."""
        by_host = _by_host(self._shares.items())

        def order(item: tuple[Unread, int]) -> tuple[int, int]:
            return by_host[item[0].peer_host], item[1]

        connection, held_bytes = max(self._shares.items(), key=order)
        connection.abort(f"its {held_bytes} unread bytes are the most, and others wait for memory")
        return connection


def _by_host(shares: Iterable[tuple[Unread, int]]) -> Counter[str]:
    held_bytes: Counter[str] = Counter()
    for connection, size in shares:
        held_bytes[connection.peer_host] += size
    return held_bytes


class Memory(NamedTuple):
    """The memory of all connections of a node."""

    max_frame_bytes: int
    """The largest request (`socket.request.max.bytes`)."""
    requests: RequestMemory
    answers: AnswerMemory
    passage: memoryview
    """Bytes from files to sockets pass through it, within one call. (The system allocates it when it is first used.)"""
    next_turns: NextTurns
    """The line of connections that wait for their next turn."""

    @classmethod
    def of(cls, scheduler: Scheduler, max_frame_bytes: int, queued_max_request_bytes: int) -> Memory:
        """`queued_max_request_bytes`: the setting; 0 or less means that the operator sets no bound."""
        most_bytes = queued_max_request_bytes if queued_max_request_bytes > 0 else MOST_REQUEST_BYTES
        passage = memoryview(mmap.mmap(-1, PASSAGE_BYTES))
        requests, answers = RequestMemory(scheduler, most_bytes), AnswerMemory(scheduler)
        return cls(max_frame_bytes, requests, answers, passage, NextTurns(scheduler))


# --- Connections that have had their turn and have more requests: others go first -----------------------------
#
# One turn of the loop lets in only as many of them as it can serve in `TURN_S`. (Else a hundred connections whose
# requests take some ms each would keep all others waiting for half a second.)

ServeOn = Callable[[], float]
"""Serves some requests of a connection, and returns for how many seconds that held the loop."""


class _Place:
    """A place in the line. After `cancel` it is empty."""

    __slots__ = ("serve_on",)

    def __init__(self, serve_on: ServeOn) -> None:
        self.serve_on: ServeOn | None = serve_on

    def cancel(self) -> None:
        self.serve_on = None


class NextTurns:
    """The line of all connections of a node. Each has at most one place in it, so it is bounded."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._call_soon = scheduler.call_soon
        self._waiting: deque[_Place] = deque()
        self._is_due = False

    def wait(self, serve_on: ServeOn) -> _Place:
        """Call `serve_on` in a later turn of the loop."""
        place = _Place(serve_on)
        self._waiting.append(place)
        if not self._is_due:
            self._is_due = True
            self._call_soon(self._let_in)
        return place

    def _let_in(self) -> None:
        """Let in some of the connections that wait now, the first one first."""
        left_s = TURN_S
        count = len(self._waiting)
        try:
            while count and left_s > 0:
                count -= 1
                serve_on = self._waiting.popleft().serve_on
                if serve_on is not None:
                    left_s -= serve_on()
        finally:
            self._is_due = bool(self._waiting)
            if self._is_due:
                self._call_soon(self._let_in)
