"""Words for a person: times, durations, and counted things."""

from __future__ import annotations

from datetime import datetime


def moment(time_ms: int) -> str:
    """Return a local time with its offset from UTC."""
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(" ", "seconds")
    except (OverflowError, OSError, ValueError):
        return f"{time_ms} ms"


def span(duration_ms: float) -> str:
    """Return a duration in its two largest units: `3 h 5 min`."""
    seconds = max(round(duration_ms / 1000), 0)
    for unit_s, unit, next_s, next_unit in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit_s:
            rest = seconds % unit_s // next_s
            return f"{seconds // unit_s} {unit}" + (f" {rest} {next_unit}" if rest else "")
    return f"{seconds} s"


def number_of(count: int, thing: str, *, is_exact: bool = True) -> str:
    """Return `1 record`, `2,000 records`, `at least 5 records`."""
    text = f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"
    return text if is_exact else f"at least {text}"
