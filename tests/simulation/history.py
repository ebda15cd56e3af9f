"""What happened, line by line, and a digest that distinguishes two runs."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable


class History:
    def __init__(self, time: Callable[[], float]) -> None:
        self.lines: list[str] = []
        self._time = time
        self._digest = hashlib.blake2b(digest_size=16)

    def note(self, who: str, what: str) -> None:
        line = f"{self._time():14.6f} {who}: {what}"
        self.lines.append(line)
        self._digest.update(line.encode() + b"\n")

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


def short(data: bytes | bytearray | memoryview) -> str:
    """Return bytes in a few characters: their number and checksum."""
    return f"{len(data)}:{zlib.crc32(data):08x}"
