"""A copy of a broker's folder: what is copied at once, and what later."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.process.renewal import LARGE_BYTES, MOST_LARGE_FILES, Copy, RenewalError


def folder(tmp_path: Path, logs: int = 1) -> Path:
    made = tmp_path / "data"
    (made / "t-0").mkdir(parents=True)
    for number in range(logs):
        (made / "t-0" / f"{number:020d}.log").write_bytes(b"x" * LARGE_BYTES)
    (made / "t-0" / f"{0:020d}.index").write_bytes(b"i" * LARGE_BYTES)
    (made / "meta.properties").write_text("version=1\n")
    (made / ".lock").touch()
    return made


def test_what_grows_or_goes_meanwhile_is_copied_as_it_was(tmp_path: Path) -> None:
    data, to = folder(tmp_path), tmp_path / "copy"
    copy = Copy([str(data)], str(to))
    log = data / "t-0" / f"{0:020d}.log"
    with log.open("ab") as file:
        file.write(b"more")
    log.rename(tmp_path / "gone")
    size = copy.complete()
    assert (to / "t-0" / f"{0:020d}.log").read_bytes() == b"x" * LARGE_BYTES
    assert (to / "t-0" / f"{0:020d}.index").read_bytes() == b"i" * LARGE_BYTES
    assert not (to / ".lock").exists()
    assert size == 2 * LARGE_BYTES + len("version=1\n")


def test_what_was_cut_meanwhile_is_no_copy(tmp_path: Path) -> None:
    data = folder(tmp_path)
    copy = Copy([str(data)], str(tmp_path / "copy"))
    (data / "t-0" / f"{0:020d}.log").write_bytes(b"")
    with pytest.raises(RenewalError, match="was cut while it was copied"):
        copy.complete()


@pytest.mark.limit("broker.process.renewal.MOST_LARGE_FILES")
def test_of_very_many_logs_some_are_copied_at_once(tmp_path: Path) -> None:
    data, to = folder(tmp_path, MOST_LARGE_FILES + 1), tmp_path / "copy"
    copy = Copy([str(data)], str(to))
    at_once = [*to.rglob("*.log")]
    assert len(at_once) == 1
    copy.complete()
    assert len([*to.rglob("*.log")]) == MOST_LARGE_FILES + 1
