import gzip
import sys

import cramjam
import pytest

from protocol.records import compression
from protocol.records.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    CodecUnavailableError,
    DecompressedTooLargeError,
    DecompressionError,
    compress,
    decompress,
    is_available,
)

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
# Several blocks of snappy (32 KiB) and lz4 (64 KiB). Half of them can't be compressed.
DATA = b"".join((i * i * 2654435761 % 2**32).to_bytes(4, "big") for i in range(40_000)) + bytes(100_000)
LIMIT = 1_000_000


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED_BYTES", LIMIT)


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cramjam", None)


@pytest.mark.parametrize("codec", [NONE, *CODECS])
@pytest.mark.parametrize("data", [b"", b"x", DATA], ids=["empty", "a byte", "blocks"])
def test_data_is_read_as_it_was_packed(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(bytearray(compress(codec, memoryview(data))))) == data


@pytest.mark.parametrize("codec", CODECS)
def test_data_is_packed(codec: int) -> None:
    assert len(compress(codec, bytes(10_000))) < 1000


@pytest.mark.parametrize(("codec", "low", "high"), [(GZIP, 1, 9), (LZ4, 9, 12), (ZSTD, 1, 19)])
def test_a_higher_level_packs_more(codec: int, low: int, high: int) -> None:
    text = b"".join(b"%d little pigs and %d wolves; " % (i, i * i % 97) for i in range(3000))
    assert len(compress(codec, text, high)) < len(compress(codec, text, low))
    assert decompress(codec, compress(codec, text, high)) == text


@pytest.mark.limit("protocol.records.compression.MAX_DECOMPRESSED_BYTES")
@pytest.mark.parametrize("codec", CODECS)
def test_unpacking_to_the_limit_is_fine_and_one_byte_more_is_refused(codec: int, small_limit: None) -> None:
    assert len(decompress(codec, compress(codec, bytes(LIMIT)))) == LIMIT
    with pytest.raises(DecompressedTooLargeError):
        decompress(codec, compress(codec, bytes(LIMIT + 1)))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("rubbish", [b"hello world, hello world, hello world", b"\xff" * 40, b"\0" * 40])
def test_rubbish_is_refused(codec: int, rubbish: bytes) -> None:
    with pytest.raises(DecompressionError):
        decompress(codec, rubbish)


@pytest.mark.parametrize("codec", CODECS)
def test_a_stream_cut_short_is_refused(codec: int) -> None:
    packed = compress(codec, DATA)
    for cut in (1, 5, len(packed) // 2):
        with pytest.raises(DecompressionError):
            decompress(codec, packed[:-cut])


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_an_unknown_codec_is_refused(codec: int) -> None:
    assert not is_available(codec)
    with pytest.raises(DecompressionError):
        decompress(codec, b"data")


def test_without_the_library_only_gzip_is_available(no_library: None) -> None:
    assert [codec for codec in range(8) if is_available(codec)] == [NONE, GZIP]
    assert decompress(GZIP, compress(GZIP, DATA)) == DATA
    for codec in (SNAPPY, LZ4, ZSTD):
        with pytest.raises(CodecUnavailableError):
            compress(codec, DATA)
        with pytest.raises(CodecUnavailableError):
            decompress(codec, DATA)


def test_with_the_library_all_codecs_are_available() -> None:
    assert [codec for codec in range(8) if is_available(codec)] == [NONE, *CODECS]


def test_gzip_may_have_several_members_and_rubbish_after_them() -> None:
    assert decompress(GZIP, gzip.compress(b"one") + gzip.compress(b" two")) == b"one two"
    assert decompress(GZIP, gzip.compress(b"one") + b"rubbish") == b"one"


def test_the_members_of_gzip_count_together(small_limit: None) -> None:
    half = gzip.compress(bytes(LIMIT // 2 + 1))
    with pytest.raises(DecompressedTooLargeError):
        decompress(GZIP, half + half)


def test_snappy_is_written_with_the_header_of_javas_library() -> None:
    assert compress(SNAPPY, b"x")[:16].hex() == "82534e41505059000000000100000001"


def test_snappy_is_read_without_any_framing() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(DATA))) == DATA


def test_snappy_streams_may_follow_each_other() -> None:
    assert decompress(SNAPPY, compress(SNAPPY, b"one") + compress(SNAPPY, b" two")) == b"one two"


def test_a_snappy_block_that_claims_too_much_is_refused_before_memory_is_taken() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + bytes(cramjam.snappy.compress_raw(DATA))[3:]
    with pytest.raises(DecompressionError, match="claims"):
        decompress(SNAPPY, claims_4_gib)


@pytest.mark.parametrize("size", [-1, 10**6])
def test_a_snappy_block_beyond_the_data_is_refused(size: int) -> None:
    framed = bytearray(compress(SNAPPY, b"x"))
    framed[16:20] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(DecompressionError):
        decompress(SNAPPY, framed)


def test_lz4_blocks_are_independent_since_java_reads_no_others() -> None:
    packed = compress(LZ4, DATA)
    assert packed[:7].hex() == "04224d18604082"
    assert packed[-4:] == bytes(4)


def test_lz4_is_read_by_its_library() -> None:
    assert bytes(cramjam.lz4.decompress(compress(LZ4, DATA))) == DATA


def test_lz4_with_linked_blocks_is_refused_as_by_java() -> None:
    linked = bytes(cramjam.lz4.compress(DATA))
    assert not linked[4] & 0x20
    with pytest.raises(DecompressionError, match="depend"):
        decompress(LZ4, linked)


# The reference library packed these 40 zero bytes: once with a checksum of each block, once with checksums of the
# content
# and its size, too.
LZ4_BLOCK_CHECKSUM = bytes.fromhex("04224d187040ad0b0000001f0001000f50000000000042087b1700000000")
LZ4_ALL_CHECKSUMS = bytes.fromhex(
    "04224d187c4028000000000000004d0b0000001f0001000f50000000000042087b170000000033cf779a"
)


@pytest.mark.parametrize("frame", [LZ4_BLOCK_CHECKSUM, LZ4_ALL_CHECKSUMS])
def test_lz4_is_read_with_checksums_and_a_size(frame: bytes) -> None:
    assert decompress(LZ4, frame) == bytes(40)


@pytest.mark.parametrize(
    ("frame", "pos"),
    [
        pytest.param(LZ4_BLOCK_CHECKSUM, -5, id="a block's checksum"),
        pytest.param(LZ4_BLOCK_CHECKSUM, 6, id="the header's checksum"),
        pytest.param(LZ4_ALL_CHECKSUMS, 14, id="the header's checksum, with a size"),
        pytest.param(LZ4_ALL_CHECKSUMS, 6, id="the size, of which the header's checksum is too"),
    ],
)
def test_a_wrong_checksum_in_lz4_is_refused(frame: bytes, pos: int) -> None:
    wrong = bytearray(frame)
    wrong[pos] ^= 1
    with pytest.raises(DecompressionError):
        decompress(LZ4, wrong)


def test_the_checksum_of_the_content_is_ignored_as_by_java_but_must_exist() -> None:
    assert decompress(LZ4, LZ4_ALL_CHECKSUMS[:-1] + b"?") == bytes(40)
    with pytest.raises(DecompressionError):
        decompress(LZ4, LZ4_ALL_CHECKSUMS[:-1])


def test_bytes_after_an_lz4_frame_are_skipped() -> None:
    assert decompress(LZ4, compress(LZ4, b"x") + b"rubbish") == b"x"


@pytest.mark.parametrize("descriptor", [0x30, 0x41, 0xC0])
def test_an_lz4_block_size_that_does_not_exist_is_refused(descriptor: int) -> None:
    frame = bytearray(compress(LZ4, b"x"))
    frame[5] = descriptor
    with pytest.raises(DecompressionError, match="descriptor"):
        decompress(LZ4, frame)


def test_an_lz4_block_above_the_frames_own_limit_is_refused() -> None:
    frame = compress(LZ4, b"")[:-4] + (0x80000000 | 65537).to_bytes(4, "little") + bytes(65537) + bytes(4)
    with pytest.raises(DecompressionError, match="limit"):
        decompress(LZ4, frame)


def test_zstd_that_packs_better_than_most_is_read() -> None:
    assert decompress(ZSTD, compress(ZSTD, bytes(LIMIT))) == bytes(LIMIT)


def test_frames_of_zstd_may_follow_each_other() -> None:
    assert decompress(ZSTD, compress(ZSTD, b"one") + compress(ZSTD, b" two")) == b"one two"
