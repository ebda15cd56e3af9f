"""Places in a partition, as users type them: `earliest`, `latest`, an offset, the last N offsets, or a time."""

from __future__ import annotations

import datetime
import re
from typing import Final, NamedTuple

from cli.errors import CommandUsageError

_AGO: Final = re.compile(r"(\d{1,30})(ms|s|m|h|d)")
_UNIT_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
FORMS: Final = (
    "earliest, latest, an offset (42), the last N offsets (-10), a time (2026-11-28T12:00), "
    "or a time ago (15m)"
)


class Place(NamedTuple):
    """One of the four: `word` (earliest, latest), `offset`, `last` (this many before the end), `time_ms`."""

    word: str | None = None
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None


def place(text: str, option: str, now_ms: int) -> Place:
    """Return what was typed. A time without a zone is in the machine's. A time before 1970 becomes 1970, because a
    negative one has another meaning. Raises CommandUsageError for anything else."""
    if text in ("earliest", "beginning", "start"):
        return Place(word="earliest")
    if text in ("latest", "end"):
        return Place(word="latest")
    if re.fullmatch(r"\d{1,18}", text):
        return Place(offset=int(text))
    if re.fullmatch(r"-\d{1,30}", text):
        return Place(last=-int(text))
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return Place(time_ms=max(now_ms - int(ago[1]) * _UNIT_MS[ago[2]], 0))
    try:
        return Place(time_ms=max(int(datetime.datetime.fromisoformat(text).timestamp() * 1000), 0))
    except (ValueError, OverflowError, OSError):
        raise CommandUsageError(f"{option} {text}: it takes {FORMS}") from None
