"""What stops the broker: going on would make things worse than they are."""

from __future__ import annotations


class BrokenInvariantError(Exception):
    """Something that can't be is: the broker stops rather than go on wrong."""


def cannot_apply(error: Exception) -> BrokenInvariantError:
    """For a record that is in the log and yet isn't in force, be it for too little memory: what goes on would write
    behind it what no start could replay, or tell otherwise than the next start."""
    return BrokenInvariantError(f"a record that is written can't be applied: {error}")


def stops_the_broker(error: BaseException) -> bool:
    return isinstance(error, AssertionError | BrokenInvariantError)
