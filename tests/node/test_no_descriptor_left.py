"""If the system has no descriptor left for a file, nothing is lost and no disk has failed. The node tries again."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.config.definitions import StartError
from broker.coordination import imports
from broker.coordination.groups import OFFSETS_TOPIC
from broker.environment.environment import Environment
from protocol.errors import Error
from protocol.messages.topics import CreatableTopic
from tests.node.log_dirs import LOST, filled, write
from tests.support.disk import files
from tests.support.held_syncs import HeldSyncs
from tests.support.manual_clock import ManualClock
from tests.support.nodes import begin
from tests.support.submitting import ask_controller
from tests.support.whole_server import configured, started, take_turns


def refuse(operation: str, part: str) -> None:
    """Have this operation fail with EMFILE from now on, for paths with this part."""

    def hook(name: str, path: str, _size: int) -> None:
        if name == operation and part in path:
            raise OSError(errno.EMFILE, "too many", path)

    files.set_fault_hook(hook)


async def test_a_directory_has_not_failed(tmp_path: Path) -> None:
    node = await filled(tmp_path)
    refuse("append", "/b/")
    assert write(node, LOST) is Error.KAFKA_STORAGE_ERROR
    files.set_fault_hook(None)
    assert not node.log_dirs.failing
    assert write(node, LOST) is Error.NONE
    await asyncio.sleep(0)
    assert len(node.log_dirs.all()) == 3


async def test_a_change_of_the_metadata_is_answered_once_it_could_be_synced(
    tmp_path: Path,
) -> None:
    syncs = HeldSyncs()
    here = replace(Environment.of_this_machine(ManualClock(), files), background=syncs)
    node = await begin(configured(tmp_path), here)
    node.metadata.commit_when_synced()
    syncs.is_held = True
    answers: list[object] = []
    refuse("sync", "__cluster_metadata")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    ask_controller(node.controller, node.topics.create([topic]), answers.append)
    syncs.run_one()
    node.housekeeping.make_up()
    syncs.run_one()
    take_turns(node)
    assert answers == []
    files.set_fault_hook(None)
    node.housekeeping.make_up()
    syncs.run_one()
    take_turns(node)
    assert len(answers) == 1
    assert "t" in node.metadata.image.topics
    await node.stop()
    assert node.failure is None


async def test_coordinators_that_cannot_be_imported_are_imported_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(name: str) -> None:
        raise OSError(errno.EMFILE, "too many", name)

    node = await started(tmp_path)
    monkeypatch.setattr(imports, "sys", SimpleNamespace(modules={}))
    monkeypatch.setattr(imports, "importlib", SimpleNamespace(import_module=refused))
    answers: list[object] = []
    topic = CreatableTopic(name=OFFSETS_TOPIC, num_partitions=1, replication_factor=1)
    ask_controller(node.controller, node.topics.create([topic]), answers.append)
    assert len(answers) == 1
    assert node.failure is None
    assert len(node.groups.all_shards()) == 1


async def test_a_start_says_so(tmp_path: Path) -> None:
    refuse("sync", "__cluster_metadata-0/00000000000000000000.log")
    with pytest.raises(StartError, match=r"can't sync .*__cluster_metadata-0: too many files are open"):
        await started(tmp_path)
