"""Damaged data folders: the broker rebuilds what it can, tells what it can't, and never silently serves wrong data.

`DAMAGES=340` tries so many seeds (`make damages`), and `DAMAGES_FROM` is the first one. A failure names its damage.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from pathlib import Path
from random import Random
from typing import Any

import pytest

from broker.config.definitions import StartError
from broker.controller.metadata_log import MetadataLog
from broker.disks.examination import examine
from broker.disks.log_dirs import LogDirs
from broker.disks.opening import open_log_dirs
from broker.environment.environment import Environment
from broker.server import Server
from broker.starting import read_metadata, start
from protocol.errors import Error, KafkaError
from protocol.records.batch import CorruptRecordError
from storage.disk_files import DiskFiles
from storage.file_examination import Severity
from tests.node.damage_templates import (
    SETTINGS,
    Template,
    build,
    committed_offset,
    read,
    state_of,
)
from tests.node.damages import Damage, damage
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.whole_server import configured, crash

only_read = DiskFiles(only_reads=True)
FIRST = int(os.environ.get("DAMAGES_FROM", "0"))
COUNT = int(os.environ.get("DAMAGES", "40"))


@pytest.fixture(scope="session")
def templates(tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Template]:
    found = {}
    for clean in (True, False):
        folder = tmp_path_factory.mktemp("template") / "data"
        found[clean] = Template(folder, asyncio.run(build(folder, clean=clean)))
    return found


def copied(template: Template, folder: Path) -> Path:
    shutil.copytree(template.folder, folder)
    return folder


@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
async def test_a_damaged_folder_is_mended_or_reported(
    seed: int, tmp_path: Path, templates: dict[bool, Template], caplog: pytest.LogCaptureFixture
) -> None:
    chance = Random(seed)
    clean = chance.random() < 0.6
    template = templates[clean]
    folder = copied(template, tmp_path / "data")
    done = damage(folder, chance)
    print("seed", seed, "after a clean stop:" if clean else "after a kill:", done.told)
    caplog.set_level(logging.INFO)
    before = contents(folder)
    findings = examine(only_read, [str(folder)], str(folder))
    assert contents(folder) == before
    for finding in findings:
        assert not {"\n", "Traceback"} & {*finding.what, *finding.what_to_do}
    is_found = any(finding.severity is not Severity.NOTE for finding in findings)
    environment = Environment.of_this_machine(ManualClock(), files)
    refusal = ""
    try:
        node = await start(configured(folder, *SETTINGS), environment)
    except StartError as error:
        refusal = str(error)
    if refusal:
        _check_refusal(done, refusal, folder)
        assert is_found, f"an examination finds nothing of what the start says: {refusal}"
        return
    try:
        _check_served(node, template, done, caplog)
        told = [line for line in _told(caplog) if not line.endswith(EVERY_KILL)]
        assert is_found or not told, f"an examination finds nothing of what the start says: {told}"
    finally:
        await node.stop()
    for line in _told(caplog):
        assert "\n" not in line
    assert not [record for record in caplog.records if record.exc_info]


EVERY_KILL = "was not shut down cleanly: checking its logs"


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


async def test_an_examination_finds_nothing_in_a_folder_that_is_whole(
    templates: dict[bool, Template], monkeypatch: pytest.MonkeyPatch
) -> None:
    accesses: set[int] = set()
    really_open = os.open

    def noting(path: str, flags: int, mode: int) -> int:
        accesses.add(flags & os.O_ACCMODE)
        return really_open(path, flags, mode)

    monkeypatch.setattr(os, "open", noting)
    for clean, template in templates.items():
        found = examine(only_read, [str(template.folder)], str(template.folder))
        assert not [finding for finding in found if finding.severity is not Severity.NOTE]
        assert ["didn't stop cleanly" in finding.what for finding in found] == [True] * (not clean)
    assert accesses == {os.O_RDONLY}


def _told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def _check_refusal(done: Damage, refusal: str, folder: Path) -> None:
    """Check that Kafka refuses this as well: a damage to the metadata, to the folder's identity, or to a file of the
    whole folder that the disk can't read."""
    assert "\n" not in refusal
    assert str(folder) in refusal, refusal
    is_of_metadata = "__cluster_metadata-0" in (done.path.name, done.path.parent.name)
    is_of_all = done.kind in ("meta.properties", "bootstrap.checkpoint")
    is_unreadable = done.action == "make a directory of" and done.path.parent == folder
    assert is_of_metadata or is_of_all or is_unreadable, f"the start is refused for a partition: {refusal}"


def _is_taken_for_true(done: Damage) -> bool:
    """Return whether the file is believed, as Kafka does: the format has no checksum here, and nothing else says the
    same. The entries of a `.txnindex` are compared with the batches before they count. Only an examination finds that
    some are missing."""
    loses_whole_entries = done.action in ("truncate", "empty", "an older copy", "swap")
    return done.kind == "log-start-offset-checkpoint" or (done.kind == ".txnindex" and loses_whole_entries)


def _check_served(node: Server, template: Template, done: Damage, caplog: pytest.LogCaptureFixture) -> None:
    lines = _told(caplog)
    known = template.known
    is_metadata = "__cluster_metadata-0" in (done.path.name, done.path.parent.name)

    def told(name: str) -> bool:
        about = "__cluster_metadata-0" if is_metadata else name
        return any(about in line or done.path.name in line for line in lines)

    for place in known.all:
        name = f"{place[0]}-{place[1]}"
        for committed in (False, True):
            expected = (known.committed if committed else known.all)[place]
            try:
                found = read(node, place, committed=committed)
            except (ValueError, CorruptRecordError):
                continue  # the client notices this
            except KafkaError as error:
                refused = error.error
            else:
                refused = Error.NONE
            if refused is not Error.NONE:
                assert refused in (Error.KAFKA_STORAGE_ERROR, Error.CORRUPT_MESSAGE) or is_metadata
                assert refused is Error.CORRUPT_MESSAGE or told(name), lines
                continue
            wrong = {offset: record for offset, record in found.items() if expected.get(offset) != record}
            lost = expected.keys() - found.keys()
            if _is_taken_for_true(done):
                continue
            if place[0] == "c" and (done.kind, done.action, done.detail) == (".log", "rename", "to .deleted"):
                continue  # a kill amid a deletion leaves this, and compaction leaves gaps
            # A lost segment may hold the end of a transaction, which is told. If that was an abort, the records then
            # count as committed.
            assert not wrong or (committed and told(name)), f"{name}, committed={committed}: {wrong}"
            assert not lost or told(name), f"{name} has lost {sorted(lost)}, committed={committed}: {lines}"
    for of, found_of, topic in (
        (known.offsets, committed_offset, "__consumer_offsets"),
        (known.transactions, state_of, "__transaction_state"),
    ):
        for key, value in of.items():
            try:
                again: Any = found_of(node, key)
            except KafkaError:
                assert told(topic), lines
                continue
            assert again == value or told(topic), f"{key}: {again} for {value}: {lines}"


# --- damages by name ------------------------------------------------------------------------------------------------


async def _started(folder: Path) -> Server:
    return await start(configured(folder, *SETTINGS), Environment.of_this_machine(ManualClock(), files))


async def test_a_flipped_sign_bit_in_an_index_is_mended(
    tmp_path: Path, templates: dict[bool, Template]
) -> None:
    folder = copied(templates[True], tmp_path / "data")
    index = next(path for path in sorted((folder / "t-0").glob("*.index")) if path.stat().st_size)
    whole = index.read_bytes()
    for place in range(0, len(whole), 4):
        index.write_bytes(whole[:place] + bytes([whole[place] ^ 0x80]) + whole[place + 1 :])
        node = await _started(folder)
        assert read(node, ("t", 0), committed=False) == templates[True].known.all["t", 0]
        await node.stop()


async def test_a_missing_middle_segment_is_reported(
    tmp_path: Path, templates: dict[bool, Template], caplog: pytest.LogCaptureFixture
) -> None:
    folder = copied(templates[True], tmp_path / "data")
    _first, middle, following, *_ = sorted((folder / "t-0").glob("*.log"))
    middle.unlink()
    node = await _started(folder)
    await node.stop()
    told = _told(caplog)
    assert f"{middle} is missing beside its indexes: its records are lost" in told
    assert any(
        f"the next segment begins at {int(following.stem)}: the records in between are lost" in line
        for line in told
    )


async def test_a_damaged_metadata_log_is_refused_and_nothing_is_changed(
    tmp_path: Path, templates: dict[bool, Template]
) -> None:
    folder = copied(templates[True], tmp_path / "data")
    [log] = (folder / "__cluster_metadata-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    before = contents(folder)
    with pytest.raises(
        StartError, match=rf"{log}: damaged at position \d+, offset \d+: .*; put the folder back"
    ):
        await _started(folder)
    after = contents(folder)
    after.pop(folder / ".lock", None)
    before.pop(folder / ".lock", None)
    assert after == before


async def run_briefly(folder: Path) -> tuple[Path, int]:
    """Start a run and kill it. Returns the metadata log, and the position where that run's own batches begin."""
    [log] = (folder / "__cluster_metadata-0").glob("*.log")
    begins = log.stat().st_size
    node = await _started(folder)
    crash(node)
    await node.background.finish()
    return log, begins


def flip(log: Path, place: int) -> None:
    data = bytearray(log.read_bytes())
    data[place] ^= 1
    log.write_bytes(data)


@pytest.mark.parametrize("runs", [1, 2])
async def test_damage_that_a_later_run_has_seen_whole_is_no_torn_end(
    tmp_path: Path, templates: dict[bool, Template], runs: int
) -> None:
    folder = copied(templates[False], tmp_path / "data")
    for _ in range(runs):
        log, begins = await run_briefly(folder)
    flip(log, begins // 2)
    with pytest.raises(StartError, match=f"whole batches follow, up to leader epoch {1 + runs}"):
        await _started(folder)


async def test_records_that_another_node_has_too_are_cut_off_to_be_fetched_again(
    tmp_path: Path, templates: dict[bool, Template]
) -> None:
    """This is what a loss of power leaves of a cluster's broker, which doesn't sync what it fetches of the metadata
    log."""
    folder = copied(templates[False], tmp_path / "data")
    log, begins = await run_briefly(folder)
    config, environment = configured(folder), Environment.of_this_machine()

    def opened() -> tuple[LogDirs, MetadataLog]:
        log_dirs = open_log_dirs(config, files, environment.background, environment.chance.uuid)
        return log_dirs, read_metadata(config, environment, log_dirs, only_voter=False)

    flip(log, begins // 2)
    log_dirs, metadata = opened()
    end_offset = metadata.log.log_end_offset
    assert end_offset > 0
    assert 0 < log.stat().st_size <= begins // 2
    log_dirs.close(clean=False)
    # the same holds if a later segment is there, but not the part before it
    later = log.with_name(f"{end_offset + 1:020d}.log")
    later.write_bytes(b"")
    log_dirs, metadata = opened()
    assert metadata.log.log_end_offset == end_offset
    assert not later.exists()
    log_dirs.close(clean=False)
    await environment.background.finish()


async def test_the_first_batch_of_a_run_that_the_disk_does_not_have_is_a_torn_end_though_others_follow(
    tmp_path: Path, templates: dict[bool, Template]
) -> None:
    """This is what is left if power was lost twice in a row, each time before the run had synced its first batch."""
    folder = copied(templates[False], tmp_path / "data")
    log, begins = await run_briefly(folder)
    whole = log.read_bytes()[:begins]
    log.write_bytes(whole)
    log, _ = await run_briefly(folder)
    flip(log, begins + 70)
    assert log.stat().st_size > begins + 200  # more batches follow
    node = await _started(folder)
    assert "t" in node.metadata.image.topics
    await node.stop()


async def test_a_lost_metadata_log_is_no_empty_cluster_unless_the_folder_is_not_formatted(
    tmp_path: Path, templates: dict[bool, Template]
) -> None:
    folder = copied(templates[True], tmp_path / "data")
    shutil.rmtree(folder / "__cluster_metadata-0")
    with pytest.raises(StartError, match=r"is missing or empty, but there are folders of \d+ partitions"):
        await _started(folder)
    (folder / "meta.properties").unlink()
    node = await _started(folder)
    assert not node.metadata.image.topics
    assert [path for path in folder.iterdir() if path.name.endswith("-stray")]
    await node.stop()


async def test_a_file_that_is_another_segments_takes_its_partition_offline(
    tmp_path: Path, templates: dict[bool, Template], caplog: pytest.LogCaptureFixture
) -> None:
    folder = copied(templates[True], tmp_path / "data")
    first, second, *_ = sorted((folder / "t-0").glob("*.log"))
    first.write_bytes(second.read_bytes())
    node = await _started(folder)
    with pytest.raises(KafkaError, match="KAFKA_STORAGE_ERROR"):
        node.partitions.get("t", 0)
    assert read(node, ("t", 1), committed=False) == templates[True].known.all["t", 1]
    assert any(
        f"t-0 is offline: CORRUPT_MESSAGE: {first} begins with offset" in line for line in _told(caplog)
    )
    await node.stop()
    assert first.read_bytes() == second.read_bytes()


async def test_an_examination_finds_damage_that_a_start_believes(
    tmp_path: Path, templates: dict[bool, Template]
) -> None:
    folder = copied(templates[True], tmp_path / "data")
    index = next(path for path in sorted((folder / "t-1").glob("*.txnindex")) if path.stat().st_size)
    index.write_bytes(bytes([index.read_bytes()[0]]) + b"\0\xff" + index.read_bytes()[3:])
    segment = sorted((folder / "t-0").glob("*.log"))[0]
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    found = examine(only_read, [str(folder)], str(folder))
    assert {finding.path for finding in found if finding.severity is not Severity.NOTE} >= {
        str(index),
        str(segment),
    }


async def test_an_examination_misses_synced_records_that_are_gone(
    tmp_path: Path, templates: dict[bool, Template]
) -> None:
    folder = copied(templates[True], tmp_path / "data")
    shutil.rmtree(folder / "t-0")
    first, *_, last = sorted((folder / "t-1").glob("*.log"))
    last.write_bytes(b"")
    gap = sorted((folder / "t-1").glob("*.log"))[1]
    gap.unlink()
    found = {finding.path: finding.what for finding in examine(only_read, [str(folder)], str(folder))}
    assert re.fullmatch(r"t-0 has no folder, and was synced up to offset \d+", found[str(folder / "t-0")])
    assert re.fullmatch(r"it ends at offset \d+, and was synced up to \d+", found[str(folder / "t-1")])
    assert re.fullmatch(r"it ends at offset \d+, and the next segment begins at \d+", found[str(first)])
