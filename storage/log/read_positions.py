"""Where the readers of a log will go on: their next `read` then needs no search."""

REMEMBERED_POSITIONS = 16
"""Per log: so many consumers read on from where they were without a search."""


class ReadPositions(dict[int, tuple[int, int]]):
    """offset -> (segment's base offset, position in it), of offsets that are likely to be read next."""

    __slots__ = ()

    def remember(self, offset: int, base_offset: int, position: int) -> None:
        """The oldest one makes way where there are too many."""
        self[offset] = (base_offset, position)
        if len(self) > REMEMBERED_POSITIONS:
            del self[next(iter(self))]
