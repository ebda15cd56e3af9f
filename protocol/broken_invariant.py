"""What stops the broker: going on would make things worse than they are."""

from __future__ import annotations


class BrokenInvariantError(Exception):
    """Something that can't be is: the broker stops rather than go on wrong."""


def stops_the_broker(error: BaseException) -> bool:
    return isinstance(error, AssertionError | BrokenInvariantError)
