import pytest

from protocol.errors import CodecError
from protocol.frames import DEFAULT_LARGEST_REQUEST_BYTES, decode_size, encode_size


def test_a_size_is_four_bytes_the_most_significant_first() -> None:
    assert encode_size(258) == b"\0\0\1\2"
    assert decode_size(b"\xff\0\0\1\2", 1) == 258


def test_an_empty_frame_has_a_size() -> None:
    assert decode_size(bytes(4)) == 0


def test_exactly_the_limit_is_fine() -> None:
    assert decode_size(encode_size(DEFAULT_LARGEST_REQUEST_BYTES)) == 104857600


@pytest.mark.parametrize("size", [DEFAULT_LARGEST_REQUEST_BYTES + 1, -1, -(2**31), 0x16030100, 0x47455420])
def test_a_size_that_no_request_has_is_refused(size: int) -> None:
    """Among them the first bytes of TLS and of HTTP."""
    with pytest.raises(CodecError):
        decode_size(encode_size(size))


def test_the_limit_is_the_callers() -> None:
    assert decode_size(encode_size(100), largest=100) == 100
    with pytest.raises(CodecError):
        decode_size(encode_size(101), largest=100)
