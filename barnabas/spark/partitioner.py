"""Which partition a key goes to: Java's default partitioner, `toPositive(murmur2(key)) % partitions`, by columns.

The hash is Austin Appleby's MurmurHash2 with the seed of `org.apache.kafka.common.utils.Utils.murmur2`.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24
MASK = 0xFFFFFFFF

# The columns are walked word by word together: a key that is longer than this would hold up all others.
LONGEST_TOGETHER = 256

Uint32s = npt.NDArray[np.uint32]


def murmur2(data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> Uint32s:
    """The hashes of the keys `data[offsets[i]:offsets[i + 1]]`, as unsigned numbers; shape (len(offsets) - 1,)."""
    starts = offsets[:-1].astype(np.int64)
    lengths = offsets[1:] - starts
    hashes = np.uint32(SEED) ^ lengths.astype(np.uint32)
    multiplier = np.uint32(MULTIPLIER)
    long = lengths > LONGEST_TOGETHER
    words = np.where(long, 0, lengths // 4)
    # Whole words anywhere in the buffer, three bytes of which may lie behind its end.
    padded = np.concatenate([data, np.zeros(4, np.uint8)])
    all_words: Uint32s = np.ndarray((len(data) + 1,), np.dtype("<u4"), padded.data, strides=(1,))
    most = int(words.max(initial=0))
    fewest = int(words.min(initial=0)) if not long.any() else 0
    for number in range(most):
        rows = slice(None) if number < fewest else np.flatnonzero(words > number)
        word = all_words[starts[rows] + 4 * number] * multiplier
        word ^= word >> np.uint32(SHIFT)
        word *= multiplier
        hashes[rows] = (hashes[rows] * multiplier) ^ word
    rest = np.where(long, 0, lengths & 3)
    if rest.any():
        tail = all_words[starts + 4 * words] & np.array([0, 0xFF, 0xFFFF, 0xFFFFFF], np.uint32)[rest]
        np.copyto(hashes, (hashes ^ tail) * multiplier, where=rest > 0)
    hashes ^= hashes >> np.uint32(13)
    hashes *= multiplier
    hashes ^= hashes >> np.uint32(15)
    for row in np.flatnonzero(long):
        hashes[row] = murmur2_of(data[starts[row] : offsets[row + 1]].tobytes())
    return hashes


def murmur2_of(key: bytes) -> int:
    """The hash of one key, as an unsigned number."""
    value = SEED ^ len(key)
    whole = len(key) & ~3
    for place in range(0, whole, 4):
        word = int.from_bytes(key[place : place + 4], "little") * MULTIPLIER & MASK
        word = (word ^ word >> SHIFT) * MULTIPLIER & MASK
        value = (value * MULTIPLIER & MASK) ^ word
    if whole < len(key):
        value = (value ^ int.from_bytes(key[whole:], "little")) * MULTIPLIER & MASK
    value = (value ^ value >> 13) * MULTIPLIER & MASK
    return value ^ value >> 15


def partitions_of(hashes: Uint32s, counts: npt.NDArray[np.int64] | int) -> npt.NDArray[np.int64]:
    """The partitions that these hashes fall into, of a topic with so many (one count for all, or one a row)."""
    return (hashes & np.uint32(0x7FFFFFFF)).astype(np.int64) % counts
