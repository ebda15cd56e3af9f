"""Which folder of a partition counts if a broker of a cluster finds two of them in two directories.

That happens if a directory failed, and the partition went to other brokers and came back to another directory.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.definitions import StartError
from broker.controller.image import UNASSIGNED
from broker.disks.opening import find_folders
from storage.directory.log_directory import LogDirectory
from tests.support.disk import files
from tests.support.immediate_background import run_at_once

ME, OTHER = 1, 2
A, B, ELSEWHERE = b"A" * 16, b"B" * 16, b"E" * 16
UNIQUE = "0" * 32


def found(folder: Path, isr: list[int], named: bytes, *, elr: list[int] | None = None) -> bytes:
    """Return the id of the directory whose folder counts."""
    opened = {}
    for name, directory_id in (("a", A), ("b", B)):
        (folder / name / "t-0").mkdir(parents=True)
        opened[directory_id] = LogDirectory.read(str(folder / name), files=files, background=run_at_once)
    partition = SimpleNamespace(
        replicas=[OTHER, ME], directories=[UNASSIGNED, named], isr=isr, elr=elr or [], last_known_elr=[]
    )
    topic = SimpleNamespace(name="t", topic_id=b"t" * 16, partitions={0: partition})
    image: Any = SimpleNamespace(topics={"t": topic})
    try:
        return find_folders(image, ME, opened, lambda: UNIQUE)["t", 0]
    finally:
        for directory in opened.values():
            directory.close(clean=False)


@pytest.mark.parametrize(("named", "kept", "stray"), [(A, "a", "b"), (B, "b", "a")])
@pytest.mark.parametrize("isr", [[OTHER, ME], [OTHER]])
def test_the_recorded_folder_counts_if_others_have_the_records(
    tmp_path: Path, isr: list[int], named: bytes, kept: str, stray: str
) -> None:
    assert found(tmp_path, isr, named) == named
    assert (tmp_path / kept / "t-0").is_dir()
    assert (tmp_path / stray / f"t-0.{UNIQUE}-stray").is_dir()
    assert not (tmp_path / stray / "t-0").exists()


def test_any_folder_counts_if_the_record_names_neither_and_the_replica_is_out_of_sync(
    tmp_path: Path,
) -> None:
    assert found(tmp_path, [OTHER], ELSEWHERE) == A
    assert (tmp_path / "b" / f"t-0.{UNIQUE}-stray").is_dir()


@pytest.mark.parametrize(
    ("isr", "elr", "named"),
    [([ME], [], A), ([], [ME], A), ([OTHER, ME], [], ELSEWHERE), ([OTHER], [ME], ELSEWHERE)],
)
def test_two_folders_are_refused_if_nobody_else_may_have_the_records(
    tmp_path: Path, isr: list[int], elr: list[int], named: bytes
) -> None:
    with pytest.raises(StartError, match=f"t-0 is both in {tmp_path}/a and in {tmp_path}/b"):
        found(tmp_path, isr, named, elr=elr)
    assert not [*tmp_path.glob("*/*-stray")]
