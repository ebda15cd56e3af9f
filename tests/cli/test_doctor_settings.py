"""`barnabas doctor`: a node's own settings file, and the memory that doctor needs."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest

from cli.errors import CommandUsageError
from protocol.records.batch import build_batch
from storage.disk_files import DiskFiles
from storage.file_examination import LogExpectation, examine_log
from tests.cli.looking import Looker
from tests.node.damage_templates import build


@pytest.fixture(scope="module")
def with_a_gap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stopped node's folder. One of its segments ends with a batch that lies far after the previous one."""
    folder = tmp_path_factory.mktemp("ours") / "data"
    asyncio.run(build(folder, clean=True))
    last = sorted((folder / "t-1").glob("*.log"))[-1]
    with last.open("ab") as file:
        file.write(build_batch([(1, b"k", b"v", ())], base_offset=9_000, leader_epoch=0))
    return folder


def test_folders_and_a_file_that_names_them_are_refused_together(look: Looker, tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path}\n")
    with pytest.raises(CommandUsageError, match="not both"):
        look("doctor", tmp_path, "--config", config)


@pytest.mark.parametrize(
    ("policy", "severity"), [(None, "warning"), ("", "error"), ("delete", "error"), ("compact", None)]
)
def test_a_gap_is_an_error_only_where_the_policy_is_known_to_be_delete(
    look: Looker, with_a_gap: Path, tmp_path: Path, policy: str | None, severity: str | None
) -> None:
    arguments: list[object] = [with_a_gap]
    if policy is not None:
        config = tmp_path / "server.properties"
        line = f"log.cleanup.policy={policy}\n" if policy else ""
        config.write_text(f"log.dirs={with_a_gap}\n{line}")
        arguments = ["--config", config]
    said = look("doctor", *arguments, "--json").json()
    gaps = [each["severity"] for each in said["findings"] if "begins with offset 9000" in each["what"]]
    assert gaps == ([] if severity is None else [severity])


def _peak(folder: Path, segments: int) -> int:
    folder.mkdir()
    for base in range(0, segments * 1_000, 1_000):
        batches = (build_batch([(1, None, b"v", ())], base_offset=base + at) for at in range(1_000))
        (folder / f"{base:020d}.log").write_bytes(b"".join(batches))
    expected = LogExpectation(None, 0, 0, clean=True, compacted=False)
    tracemalloc.start()
    try:
        for _finding in examine_log(DiskFiles(only_reads=True), str(folder), expected):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_many_segments_need_no_more_memory_than_a_few(tmp_path: Path) -> None:
    _peak(tmp_path / "warm-0", 1)
    assert _peak(tmp_path / "many-0", 16) < 2.5 * _peak(tmp_path / "one-0", 1)
