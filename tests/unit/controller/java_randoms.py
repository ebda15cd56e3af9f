"""The random numbers of Java, and those of Kafka's own tests, as `Draw` of `replica_placer`."""

from __future__ import annotations

INT_BITS = 31


class JavaRandom:
    """java.util.Random: 48 bits, of which the highest are given."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ 0x5DEECE66D) & (1 << 48) - 1

    def bits(self, count: int) -> int:
        """So many, at most 31, as a number."""
        self._state = (self._state * 0x5DEECE66D + 0xB) & (1 << 48) - 1
        return self._state >> 48 - count

    def draw(self, bound: int) -> int:
        """`nextInt(bound)`."""
        drawn = self.bits(INT_BITS)
        if bound & bound - 1 == 0:
            return bound * drawn >> INT_BITS
        while drawn - drawn % bound + bound - 1 >= 1 << INT_BITS:
            drawn = self.bits(INT_BITS)
        return drawn % bound


class MockRandom(JavaRandom):
    """org.apache.kafka.server.util.MockRandom: the same numbers in each test."""

    def __init__(self) -> None:
        super().__init__(0)
        self._state = 17

    def bits(self, count: int) -> int:
        """So many, at most 31, as a number."""
        self._state = (self._state * 2862933555777941757 + 3037000493) & (1 << 64) - 1
        return self._state >> 64 - count
