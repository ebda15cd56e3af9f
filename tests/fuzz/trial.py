"""Feeding a parser, and what is left of it: time and memory."""

from __future__ import annotations

import gc
import resource
import sys
import time
from random import Random
from typing import NamedTuple

from tests.fuzz.damage import damaged
from tests.fuzz.doors import Door

_FIRST_INPUTS = 20_000
"""They fill caches, the regular expressions' and OpenSSL's."""


class Trial(NamedTuple):
    longest_s: float
    """Of the processor's time, for one input."""
    blocks_kept: int
    """Of Python's memory, more than after the first inputs."""
    kilobytes_kept: int
    """Of the process at most, the same."""


def tried(door: Door, count: int, seed: int) -> Trial:
    """Raises what the parser raises, with a note that has the input."""
    for each in door.seeds:
        door.enter(each) if door.name != "SASL frames" else None
    first = min(count // 2, _FIRST_INPUTS)
    _feed(door, first, Random(seed))
    blocks, kilobytes = _blocks(), _kilobytes()
    longest_s = _feed(door, count - first, Random(seed + 1))
    return Trial(longest_s, _blocks() - blocks, _kilobytes() - kilobytes)


def _feed(door: Door, count: int, random: Random) -> float:
    longest_s = 0.0
    enter, seeds, clock = door.enter, door.seeds, time.thread_time
    for _ in range(count):
        data = damaged(random, seeds)
        began_s = clock()
        try:
            enter(data)
        except Exception as error:
            error.add_note(f"{door.name}: {data!r}")
            raise
        longest_s = max(longest_s, clock() - began_s)
    return longest_s


def _blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def _kilobytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
