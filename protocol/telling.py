"""Telling several of one thing, each of whom goes on by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from logging import Logger
from typing import TypeVar

from protocol.broken_invariant import stops_the_broker

T = TypeVar("T")


def tell_each(whom: Iterable[T], tell: Callable[[T], object], log: Logger, failed: str) -> None:
    """Call `tell` with each. A failure of one harms none of the others: it is raised once all have been told.

    Of several failures the first is raised, but for a broken invariant, which goes before; the others are logged as
    `failed`.
    """
    first: Exception | None = None
    for each in whom:
        try:
            tell(each)
        except Exception as failure:
            if first is None:
                first = failure
                continue
            if stops_the_broker(failure) and not stops_the_broker(first):
                first, failure = failure, first
            log.error("%s: %s", failed, failure, exc_info=failure)
    if first is not None:
        try:
            raise first
        finally:
            del first  # else it would hold this frame, and this frame it
