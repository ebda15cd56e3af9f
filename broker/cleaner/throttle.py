"""`log.cleaner.io.max.bytes.per.second`: how long to rest so that all passes together keep to it.

Source: org.apache.kafka.storage.internals.utils Throttler. Its wart is kept: time in which nothing was done counts into
the average, so that what is over within 300 ms isn't slowed.
"""

from __future__ import annotations

_CHECK_S = 0.3
_LONGEST_REST_S = 3600.0  # a rate of 0 is legal, and means never


class Throttle:
    """Looks at the average of a period, which ends when there has been a rest."""

    def __init__(self, bytes_per_s: float, now_s: float) -> None:
        self.bytes_per_s = bytes_per_s
        self._begun_s = now_s
        self._handled = 0

    def rest_s(self, handled: int, now_s: float) -> float:
        """So many bytes were read or written: for how long nothing may be, 0 where it goes on at once."""
        self._handled += handled
        elapsed_s = now_s - self._begun_s
        if elapsed_s <= _CHECK_S or not self._handled:
            return 0.0
        due_s = self._handled / self.bytes_per_s if self.bytes_per_s else _LONGEST_REST_S
        rest_s = min(max(0.0, due_s - elapsed_s), _LONGEST_REST_S)
        self._begun_s = now_s + rest_s
        self._handled = 0
        return rest_s
