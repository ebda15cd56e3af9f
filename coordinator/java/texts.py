"""What Java takes for blank."""

from __future__ import annotations

_BLANKS = "".join(map(chr, range(0x21)))


def is_blank(text: str) -> bool:
    """Whether `String.trim` leaves nothing: all up to the space counts as blank."""
    return not text.strip(_BLANKS)
