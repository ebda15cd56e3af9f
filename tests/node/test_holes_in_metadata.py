"""If power is lost while the log below a snapshot of the metadata is deleted, any of its segments may be left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from broker.config.definitions import StartError
from broker.server import Server
from protocol.messages.topics import CreatableTopic
from tests.support.submitting import ask_controller
from tests.support.whole_server import clock_of, crash, in_loop, started

SETTINGS = ("metadata.log.segment.ms=1", "metadata.log.max.record.bytes.between.snapshots=1")
TOPICS = ("a", "b", "c", "d", "e")


async def segments(folder: Path, *settings: str) -> list[Path]:
    """Return the segments of a killed node's metadata log. Each has a topic or two."""
    node = await started(folder, *settings)
    for name in TOPICS:
        clock_of(node).advance_ms(10)
        await created(node, name)
        while node.metadata.snapshots.is_writing:
            await asyncio.sleep(0)
    await node.background.finish()
    crash(node)
    found = sorted((folder / "__cluster_metadata-0").glob("*.log"))
    assert len(found) >= len(TOPICS)
    return found


async def created(node: Server, name: str) -> None:
    told = asyncio.get_running_loop().create_future()
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    ask_controller(node.controller, node.topics.create(wanted), told.set_result, told.set_exception)
    await told


def snapshots(folder: Path) -> list[Path]:
    return sorted((folder / "__cluster_metadata-0").glob("*.checkpoint"))


@pytest.mark.parametrize("missing", [(1,), (0, 2), (1, 2, 3)])
@in_loop
async def test_a_hole_below_a_snapshot_does_no_harm(tmp_path: Path, missing: tuple[int, ...]) -> None:
    found = await segments(tmp_path, *SETTINGS)
    newest = int(snapshots(tmp_path)[-1].name[:20])
    assert int(found[4].stem) <= newest
    for each in missing:
        found[each].unlink()
    node = await started(tmp_path, *SETTINGS)
    assert {*TOPICS} <= {*node.metadata.image.topics}
    # else a follower could be given what lies before the hole, and go on behind it
    assert node.metadata.log.log_start_offset == int(found[missing[-1] + 1].stem)
    await node.stop()


@in_loop
async def test_a_hole_above_a_snapshot_is_a_loss(tmp_path: Path) -> None:
    found = await segments(tmp_path, *SETTINGS)
    for path in snapshots(tmp_path):
        if int(path.name[:20]) >= int(found[3].stem):
            path.unlink()
    found[2].unlink()
    with pytest.raises(StartError, match=f"the next segment begins at {int(found[3].stem)}"):
        await started(tmp_path, *SETTINGS)


@in_loop
async def test_a_snapshot_that_is_not_whole_has_nothing(tmp_path: Path) -> None:
    found = await segments(tmp_path, *SETTINGS)
    for path in snapshots(tmp_path):
        path.write_bytes(path.read_bytes()[:-1])
    found[2].unlink()
    with pytest.raises(StartError, match="the next segment begins at"):
        await started(tmp_path, *SETTINGS)
    assert snapshots(tmp_path)  # nothing was changed
