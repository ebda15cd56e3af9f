"""What stops the broker: going on would make things worse than they are."""

from __future__ import annotations

from broker.controller.image import MetadataContradictionError


class BrokenInvariantError(Exception):
    """Something that can't be is: the broker stops rather than go on wrong."""


def stops_the_broker(error: BaseException) -> bool:
    """A contradiction while we run is a record in the log that no start can replay: nothing may follow it."""
    return isinstance(error, AssertionError | BrokenInvariantError | MetadataContradictionError)
