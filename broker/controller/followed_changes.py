"""What follows from the metadata's changes: one after the other, in steps, while the image may change again."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from protocol.errors import tell_each

if TYPE_CHECKING:
    from collections.abc import Callable

    from protocol.waiting import Waiting

log = logging.getLogger("barnabas.controller")


class Following:
    """How far a node has followed the image that its clients are told of."""

    __slots__ = ("has_changed", "is_under_way", "told")

    def __init__(self) -> None:
        self.has_changed = False
        """The image, and nothing follows that yet."""
        self.is_under_way = False
        self.told: list[Callable[[], None]] = []
        """Called where the node begins to follow, and where nothing is left to follow."""

    @property
    def is_behind(self) -> bool:
        """Whether the image says what isn't followed yet."""
        return self.is_under_way or self.has_changed

    async def follow(
        self, one: Callable[[], Waiting[None]], followed: Callable[[int], None], offset: Callable[[], int]
    ) -> None:
        """`one` follows the image as it is then; `followed` is told of the `offset` that it was committed up to. What
        one of those that are `told` fails with is raised once all is followed."""
        try:
            self._tell()
        finally:
            await self._follow_all(one, followed, offset)

    async def _follow_all(
        self, one: Callable[[], Waiting[None]], followed: Callable[[int], None], offset: Callable[[], int]
    ) -> None:
        while self.has_changed and not self.is_under_way:
            self.has_changed = False
            committed_offset = offset()
            self.is_under_way = True
            try:
                await one()
            finally:
                self.is_under_way = False
            followed(committed_offset)
        self._tell()

    def _tell(self) -> None:
        tell_each(self.told, lambda told: told(), log, "it can't be told that metadata is followed")
