"""Damages that say by their seed what they are."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_INTERESTING = (
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\x80",
    b"\n",
    b"\r\n",
    b",",
    b"=",
    b'"',
    b"\\",
    b";",
    b"-",
)
_LONGEST_RUN = 4096
_LARGEST = 64 * 1024


def damaged(random: Random, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds with one to four damages."""
    data = bytearray(random.choice(seeds))
    for _ in range(random.randint(1, 4)):
        _DAMAGES[random.randrange(len(_DAMAGES))](random, data, seeds)
    return bytes(data[:_LARGEST])


def _flip(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _overwrite(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    value = random.choice(_INTERESTING)
    data[at : at + len(value)] = value


def _insert(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    data[at:at] = random.choice(_INTERESTING)


def _cut(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    del data[at : at + random.randint(1, 16)]


def _end(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    del data[random.randrange(len(data) + 1) :]


def _repeat(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    if data:
        at = random.randrange(len(data))
        part = bytes(data[at : at + random.randint(1, 8)])
        data[at:at] = part * random.randint(1, _LONGEST_RUN // len(part) if random.random() < 0.02 else 8)


def _mix(random: Random, data: bytearray, seeds: Sequence[bytes]) -> None:
    other = random.choice(seeds)
    start = random.randrange(len(other) + 1)
    at = random.randrange(len(data) + 1)
    data[at : at + random.randint(0, 16)] = other[start : start + random.randint(0, 64)]


_DAMAGES = (_flip, _overwrite, _insert, _cut, _end, _repeat, _mix)
