"""A copy of a broker's folder: its files are as they were when it began."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.process.renewal import MOST_LARGE_FILES, SMALL_BYTES, Copy, RenewalError

LARGE_BYTES = SMALL_BYTES + 1


def folder(tmp_path: Path, logs: int = 1) -> Path:
    made = tmp_path / "data"
    (made / "t-0").mkdir(parents=True)
    for number in range(logs):
        (made / "t-0" / f"{number:020d}.log").write_bytes(b"x" * LARGE_BYTES)
    (made / "t-0" / f"{0:020d}.index").write_bytes(b"i" * SMALL_BYTES)
    (made / "meta.properties").write_text("version=1\n")
    (made / ".lock").touch()
    return made


def test_a_copy_has_each_file_as_it_was_when_it_began(tmp_path: Path) -> None:
    data, to = folder(tmp_path), tmp_path / "copy"
    log, index = data / "t-0" / f"{0:020d}.log", data / "t-0" / f"{0:020d}.index"
    os.utime(log, (1_000, 2_000))
    copy = Copy([str(data)], str(to))
    with log.open("ab") as file:
        file.write(b"more")
    log.rename(tmp_path / "gone")
    index.write_bytes(b"another")
    size = copy.complete()
    copied = to / "t-0" / log.name
    assert copied.read_bytes() == b"x" * LARGE_BYTES
    assert copied.stat().st_mtime == 2_000, "retention may go by it"
    assert (to / "t-0" / index.name).read_bytes() == b"i" * SMALL_BYTES
    assert not (to / ".lock").exists()
    assert size == LARGE_BYTES + SMALL_BYTES + len("version=1\n")


def test_a_file_that_was_cut_meanwhile_fails_the_copy(tmp_path: Path) -> None:
    data = folder(tmp_path)
    copy = Copy([str(data)], str(tmp_path / "copy"))
    (data / "t-0" / f"{0:020d}.log").write_bytes(b"")
    with pytest.raises(RenewalError, match="was cut while it was copied"):
        copy.complete()


@pytest.mark.limit("broker.process.renewal.MOST_LARGE_FILES")
def test_the_smallest_of_very_many_large_files_are_read_at_once(tmp_path: Path) -> None:
    data, to = folder(tmp_path, MOST_LARGE_FILES), tmp_path / "copy"
    (data / "large").write_bytes(b"l" * (LARGE_BYTES + 1))
    copy = Copy([str(data)], str(to))
    for each in data.rglob("*.log"):
        each.write_bytes(b"")
    (data / "large").write_bytes(b"")
    read_at_once = sorted(os.path.basename(each.name) for each in copy._files if each.data)
    assert len(read_at_once) == 3, "the two small files, and one that is larger"
    assert "large" not in read_at_once
    with pytest.raises(RenewalError, match="was cut"):
        copy.complete()


def test_nothing_stays_open_after_a_copy(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    copy = Copy([str(folder(tmp_path, 5))], str(tmp_path / "copy"))
    assert len(os.listdir("/proc/self/fd")) == before + 5
    copy.complete()
    assert len(os.listdir("/proc/self/fd")) == before
