"""XXH3, compared with values of the reference implementation. There is one for each of its code paths."""

from __future__ import annotations

import pytest

from coordinator.group.modern.topic_hashes import xxh3_64

# The number of bytes, which count up → the hash.
EXPECTED = {
    0: 0x2D06800538D394C2,
    1: 0xC44BDFF4074EECDB,
    3: 0xC3489259E968AD9E,
    4: 0xD3D60C1519014E89,
    8: 0xB88DEE77F6BF6980,
    9: 0x03688DCAD730D826,
    16: 0x9DA23836ADF2BE1E,
    17: 0xF34C3C9CF5A112D1,
    32: 0x99CB9AD0F1A11FBE,
    64: 0xFAECD52EFFBB854F,
    65: 0xFD2B8A4F15D954D0,
    96: 0x8F8A0C940D32E958,
    97: 0x92B3A831FEBF71AC,
    128: 0x4C659B745F435148,
    129: 0xB85222B83902B6E5,
    200: 0xD12016B53C9565BA,
    240: 0xD6DFBF67B0675B54,
    241: 0xC614C8C3575348C1,
    256: 0xF4186DC163A3283C,
    512: 0x95E4FDA72852917F,
    1024: 0xF22EF3DC84FF47EA,
    1025: 0x43F869A83769A435,
    1088: 0x40D71F037CD0C530,
    2048: 0x3D2649F662A2E191,
    5000: 0xCE29A19460EE1BFC,
}


@pytest.mark.parametrize(("length", "expected"), EXPECTED.items())
def test_a_hash_is_that_of_the_reference(length: int, expected: int) -> None:
    assert xxh3_64(bytes(index * 7 % 251 for index in range(length))) == expected
