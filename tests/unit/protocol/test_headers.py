"""Headers. Kafka's RequestHeaderData wrote the expected bytes."""

import pytest

from protocol.apis import RequestHeader, decode_request_header, encode_request_frame, response_body
from protocol.errors import CodecError
from protocol.messages.security import SaslHandshakeRequest

PRODUCE_8 = bytes.fromhex("000000087fffffff000772646b61666b61")
PRODUCE_9 = bytes.fromhex("000000097fffffff000772646b61666b6100")


def decode(data: bytes) -> RequestHeader:
    return decode_request_header(data, 0, len(data))


def test_a_header_ends_after_the_client_id_before_the_first_flexible_version() -> None:
    assert decode(PRODUCE_8 + b"body") == (0, 8, 2**31 - 1, "rdkafka", 17)


def test_a_header_ends_after_its_tagged_fields_from_the_first_flexible_version_on() -> None:
    assert decode(PRODUCE_9 + b"body") == (0, 9, 2**31 - 1, "rdkafka", 18)


def test_unknown_tagged_fields_are_skipped() -> None:
    header = PRODUCE_9[:-1] + bytes.fromhex("02 0003616263 8101 00")
    assert decode(header + b"body").body_pos == len(header)


@pytest.mark.parametrize("length", ["ffff", "fffe", "8000"])
def test_any_negative_length_is_a_null_client_id(length: str) -> None:
    assert decode(bytes.fromhex(f"000000087fffffff{length}")).client_id is None


def test_an_empty_client_id_is_not_null() -> None:
    assert decode(bytes.fromhex("000000087fffffff0000")).client_id == ""


def test_bad_utf_8_in_a_client_id_is_accepted() -> None:
    assert decode(bytes.fromhex("000000087fffffff0001ff")).client_id == "\ufffd"


def test_api_versions_of_a_version_to_come_has_a_flexible_header() -> None:
    assert decode(bytes.fromhex("001200630000000100016100ff")) == (18, 99, 1, "a", 12)


def test_a_negative_version_has_a_header_without_tagged_fields() -> None:
    assert decode(bytes.fromhex("0012ffff00000001000161")) == (18, -1, 1, "a", 11)


@pytest.mark.parametrize("header", [PRODUCE_8, PRODUCE_9])
def test_a_header_cut_short_is_refused(header: bytes) -> None:
    for size in range(len(header)):
        with pytest.raises(CodecError):
            decode_request_header(header, 0, size)


def test_a_header_may_stand_anywhere_in_the_data() -> None:
    data = b"??" + PRODUCE_9 + b"??"
    assert decode_request_header(memoryview(data), 2, len(data) - 2).body_pos == 2 + len(PRODUCE_9)


@pytest.mark.parametrize("api_key", [-1, 4, 5, 6, 7, 62, 93, 32767])
def test_an_api_that_no_broker_has_is_refused(api_key: int) -> None:
    with pytest.raises(CodecError):
        decode(api_key.to_bytes(2, "big", signed=True) + PRODUCE_8[2:])


def test_a_request_of_an_api_that_is_never_flexible_has_a_plain_header_and_so_has_its_answer() -> None:
    frame = encode_request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1, 7, "me")
    assert frame[4:] == bytes.fromhex("0011 0001 00000007 0002 6d65 0005 504c41494e")
    answer = bytes.fromhex("00000007 0000 00000000")
    assert response_body(answer, SaslHandshakeRequest, 1, 7) == 4
