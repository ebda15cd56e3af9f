"""`barnabas inspect --records` of batches whose records are packed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from crc32c import crc32c

from protocol.records import compression
from protocol.records.batch import build_batch
from tests.cli.looking import Looker

_CRC_AT, _COVERED_FROM, _PAYLOAD_AT = 17, 21, 61


def _segment(folder: Path, *batches: bytes | bytearray) -> Path:
    path = folder / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(b"".join(batches))
    return path


def _packed(codec: int, base_offset: int) -> bytearray:
    return build_batch([(1, b"k", b"value" * 20, ())], base_offset=base_offset, codec=codec)


def _unpackable(codec: int, base_offset: int) -> bytearray:
    batch = _packed(codec, base_offset)
    batch[_PAYLOAD_AT:] = b"\xff" * (len(batch) - _PAYLOAD_AT)
    batch[_CRC_AT:_COVERED_FROM] = crc32c(bytes(batch[_COVERED_FROM:])).to_bytes(4)
    return batch


@pytest.mark.parametrize("codec", [compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_a_missing_codec_is_named_with_its_package_and_is_no_damage(
    look: Looker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    path = _segment(tmp_path, _packed(codec, 0), build_batch([(1, b"k", b"plain", ())], base_offset=1))
    monkeypatch.setitem(sys.modules, "cramjam", None)
    ran = look("inspect", "--records", path)
    assert ran.status == 0
    assert ran.out.count("pip install 'barnabas[compression]'") == 1
    assert "'plain'" in ran.out


@pytest.mark.parametrize("codec", [compression.GZIP, compression.SNAPPY, compression.LZ4, compression.ZSTD])
def test_a_batch_that_doesnt_unpack_is_damage_at_its_place_and_the_next_is_shown(
    look: Looker, tmp_path: Path, codec: int
) -> None:
    path = _segment(tmp_path, _unpackable(codec, 0), build_batch([(1, b"k", b"plain", ())], base_offset=1))
    ran = look("inspect", "--records", "--json", path)
    assert ran.status == 1
    first, second = ran.of_kind("batch")
    assert "can't be read" in first["wrong"]
    assert "wrong" not in second
    assert [each["offset"] for each in ran.of_kind("record")] == [1]


def test_transactional_ids_are_found_beside_batches_of_the_state_topic_that_dont_unpack(
    look: Looker, tmp_path: Path
) -> None:
    of_states = tmp_path / "__transaction_state-0" / "00000000000000000000.log"
    of_states.parent.mkdir()
    of_states.write_bytes(_unpackable(compression.GZIP, 0))
    path = _segment(
        tmp_path, build_batch([(1, b"k", b"v", ())], producer_id=7, producer_epoch=0, transactional=True)
    )
    ran = look("inspect", path)
    assert ran.status == 0
    assert "begins a transaction of producer 7" in ran.out
