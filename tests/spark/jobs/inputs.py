"""The jobs' input: records from a seed, in chunks of an hour of event time each.

A job's final results must not depend on how its batches are cut. So no record comes late: within a chunk records are
at most an hour early or late, and watermarks lag many hours behind. A closing record moves them past everything.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

BASE_MS = 1_767_225_600_000  # 2026-01-01, UTC
HOUR_MS = 3_600_000
CLOSING_MS = BASE_MS + 100_000 * HOUR_MS
USERS = 7
CLOSING_USER = "closing"

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """topic: which of the job's inputs."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


Chunks = list[list[Record]]


def events(seed: int, chunks: int, size: int) -> Chunks:
    """`in`: the users' actions. Each record has its own number."""
    chance = random.Random(seed)
    return [[_event(chance, chunk, chunk * size + index) for index in range(size)] for chunk in range(chunks)]


def repeated(seed: int, chunks: int, size: int) -> Chunks:
    """`in`: events. Every third one is repeated, some of them twice, and some up to three chunks later."""
    chance = random.Random(seed)
    came: Chunks = [[] for _ in range(chunks)]
    for chunk in range(chunks):
        for index in range(2 * size // 3):
            event = _event(chance, chunk, chunk * size + index)
            came[chunk].append(event)
            for _ in range(chance.choice((0, 0, 0, 1, 2))):
                came[min(chunks - 1, chunk + chance.randrange(4))].append(event)
    for one in came:
        chance.shuffle(one)
    return came


def orders(seed: int, chunks: int, size: int) -> Chunks:
    """`orders`, and `payments` for most of them: within three hours, too late, or in two parts."""
    chance = random.Random(seed)
    came: Chunks = [[] for _ in range(chunks)]
    for chunk in range(chunks):
        for index in range(size):
            order = chunk * size + index
            at_ms = _at_ms(chance, chunk)
            user = f"user-{chance.randrange(USERS)}"
            came[chunk].append(
                _record("orders", user, order=order, at_ms=at_ms, user=user, amount=chance.randrange(1000))
            )
            for part in range(chance.choice((0, 1, 1, 1, 2))):
                paid_ms = at_ms + chance.randrange(4 * HOUR_MS)
                paid_in = min(chunks - 1, max(chunk, (paid_ms - BASE_MS) // HOUR_MS))
                payment = _record("payments", f"{order}", paid_order=order, paid_ms=paid_ms, part=part)
                came[paid_in].append(payment)
    return came


def messages(seed: int, chunks: int, size: int) -> Chunks:
    """`in`: records with and without key, value and headers. The headers `to` and `partition` say where they go."""
    chance = random.Random(seed)

    def message(number: int) -> Record:
        key = chance.choice([None, b"", *(f"k{one}".encode() for one in range(9))])
        value = chance.choice([None, b"", *[f"message {number}".encode()] * 6])
        headers: list[Header] = []
        if chance.random() < 0.8:
            headers.append(("to", chance.choice([b"a", b"a", b"b", b"c", None])))
        if chance.random() < 0.3:
            headers.append(("partition", f"{chance.randrange(3)}".encode()))
        headers += [
            ("trace", chance.choice([None, b"", b"\x00\xff", f"{number}".encode()]))
        ] * chance.randrange(3)
        return Record("in", key, value, tuple(headers))

    return [[message(chunk * size + index) for index in range(size)] for chunk in range(chunks)]


def closing_events() -> list[Record]:
    return [_record("in", CLOSING_USER, number=-1, at_ms=CLOSING_MS, user=CLOSING_USER, amount=0)]


def closing_orders() -> list[Record]:
    return [
        _record("orders", CLOSING_USER, order=-1, at_ms=CLOSING_MS, user=CLOSING_USER, amount=0),
        _record("payments", CLOSING_USER, paid_order=-2, paid_ms=CLOSING_MS, part=0),
    ]


def closing_messages() -> list[Record]:
    """Return one record. Nothing waits for a watermark there. The record is in the last batch."""
    return [Record("in", b"k0", b"the last", (("to", b"c"),))]


Make = Callable[[int, int, int], Chunks]


def total(chunks: Chunks) -> int:
    return sum(map(len, chunks))


def _event(chance: random.Random, chunk: int, number: int) -> Record:
    user = f"user-{chance.randrange(USERS)}"
    at_ms = _at_ms(chance, chunk)
    return _record("in", user, number=number, at_ms=at_ms, user=user, amount=chance.randrange(1000))


def _at_ms(chance: random.Random, chunk: int) -> int:
    return BASE_MS + chunk * HOUR_MS + chance.randrange(-HOUR_MS, HOUR_MS)


def _record(topic: str, key: str, **fields: int | str) -> Record:
    return Record(topic, key.encode(), json.dumps(fields).encode())


def topics(chunks: Chunks) -> Iterator[str]:
    yield from sorted({record.topic for chunk in chunks for record in chunk})
