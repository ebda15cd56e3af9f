"""Java's random numbers and those of Kafka's own tests, as `Draw` of `replica_placer`."""

from __future__ import annotations

INT_BITS = 31


class JavaRandom:
    """java.util.Random: 48 bits of state, the highest of which are returned."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ 0x5DEECE66D) & (1 << 48) - 1

    def bits(self, count: int) -> int:
        """Return the next `count` bits as a number; at most 31."""
        self._state = (self._state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        return self._state >> 48 - count

    def draw(self, bound: int) -> int:
        """Return `nextInt(bound)`."""
        drawn = self.bits(INT_BITS)
        if bound & bound - 1 == 0:
            return bound * drawn >> INT_BITS
        while drawn - drawn % bound + bound - 1 >= 1 << INT_BITS:
            drawn = self.bits(INT_BITS)
        return drawn % bound


class MockRandom(JavaRandom):
    """org.apache.kafka.server.util.MockRandom: it draws the same numbers in each test."""

    def __init__(self) -> None:
        super().__init__(0)
        self._state = 17

    def bits(self, count: int) -> int:
        """Return the next `count` bits as a number; at most 31."""
        self._state = (self._state * 2862933555777941757 + 3037000493) & (1 << 64) - 1
        return self._state >> 64 - count
