"""Only so many passes are made at once, and the next one begins as soon as it may."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from broker.cleaner.log_cleaner import LogCleaner
from broker.cleaner.passes import Pass, Passes, Throttle, Told
from broker.replicas.partition import Partition
from broker.server import Server
from protocol.errors import Error
from storage.background import Then
from storage.cleaning.plan import CleanedSegment, CleaningPlan, CleaningResult
from storage.log.partition_log import PartitionLog
from tests.node.compacted import checkpoint, create, fill, until
from tests.node.test_altered_settings import BROKER, SET, alter
from tests.support.whole_server import started


class Counting:
    """Counts the passes that are being made. An ended pass counts until it has stopped."""

    def __init__(self, passes: Passes) -> None:
        self._passes = passes
        self.alive = self.most = self.begun = 0

    def begin(self, plan: CleaningPlan, told: Told, throttle: Throttle) -> Pass:
        self.begun += 1
        self.alive += 1
        self.most = max(self.most, self.alive)
        made = CountedPass(self, told)
        made.made = self._passes.begin(plan, made, throttle)
        return made

    def rest(self) -> None:
        self._passes.rest()

    def stop(self) -> bool:
        return self._passes.stop()


class CountedPass:
    made: Pass

    def __init__(self, counting: Counting, told: Told) -> None:
        self._counting = counting
        self._told = told

    def cleaned(self, segment: CleanedSegment) -> None:
        self._told.cleaned(segment)

    def finished(self, result: CleaningResult) -> None:
        self._counting.alive -= 1
        self._told.finished(result)

    def failed(self, error: Exception) -> None:
        self._counting.alive -= 1
        self._told.failed(error)

    def end(self, ended: Callable[[], None]) -> None:
        def gone() -> None:
            self._counting.alive -= 1
            ended()

        def wait(turns: int) -> None:  # as for a process
            if turns:
                asyncio.get_running_loop().call_soon(wait, turns - 1)
            else:
                self.made.end(gone)

        wait(10)


async def with_dirty(folder: Path, count: int, *settings: str) -> tuple[Server, Counting, list[str]]:
    """Start a node with this many topics to compact. Returns their names, too."""
    node = await started(folder, *settings)
    counting = Counting(node.cleaner._passes)
    node.cleaner._passes = cast(Passes, counting)
    names = [f"t{number}" for number in range(count)]
    for name in names:
        create(node, name, min_cleanable_dirty_ratio="0.1")
        fill(node, topic=name)
    return node, counting, names


def are_compacted(node: Server, names: list[str]) -> Callable[[], bool]:
    return lambda: all(checkpoint(node, name) == 20 for name in names)


@pytest.mark.parametrize("threads", [1, 2, 3])
async def test_as_many_passes_are_made_at_once_as_there_would_be_threads(
    tmp_path: Path, threads: int
) -> None:
    node, counting, names = await with_dirty(tmp_path, 7, f"log.cleaner.threads={threads}")
    node.cleaner.look()
    await until(are_compacted(node, names))
    assert counting.most == threads
    assert counting.begun == len(names)


async def test_a_pass_that_is_ended_counts_until_it_has_stopped(tmp_path: Path) -> None:
    node, counting, names = await with_dirty(tmp_path, 3)
    node.cleaner.look()
    await until(lambda: counting.alive > 0)
    assert alter(node, BROKER, "", ("log.cleaner.io.buffer.load.factor", SET, "0.5")) is Error.NONE
    await until(are_compacted(node, names))
    assert counting.most == 1
    assert counting.begun == len(names) + 1


async def test_a_partition_that_becomes_dirty_during_a_pass_waits_for_no_other_swap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _, names = await with_dirty(tmp_path, 1, "log.cleaner.backoff.ms=600000")
    create(node, "late", min_cleanable_dirty_ratio="0.1")
    replace = PartitionLog.replace_segments
    waiting: list[Callable[[], None]] = []

    def wait(log: PartitionLog, cleaned: CleanedSegment, then: Then) -> None:
        if log.topic == "late":
            replace(log, cleaned, then)
            return
        fill(node, topic="late")
        waiting.append(lambda: replace(log, cleaned, then))

    monkeypatch.setattr(PartitionLog, "replace_segments", wait)
    node.cleaner.look()
    await until(are_compacted(node, ["late"]))
    monkeypatch.undo()
    [put_in_place] = waiting
    put_in_place()
    await until(are_compacted(node, names))


async def test_a_look_during_a_round_that_has_chosen_starts_another_round_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, _, names = await with_dirty(tmp_path, 1, "log.cleaner.backoff.ms=600000")
    node.cleaner.look()
    await until(are_compacted(node, names))
    create(node, "late", min_cleanable_dirty_ratio="0.1")
    retain = LogCleaner._retain
    looked: list[Partition] = []

    def look_first(cleaner: LogCleaner, partition: Partition) -> Iterator[None]:
        if not looked:
            looked.append(partition)
            fill(node, topic="late")
            cleaner.look()
        return retain(cleaner, partition)

    monkeypatch.setattr(LogCleaner, "_retain", look_first)
    node.cleaner.look()
    await until(are_compacted(node, ["late"]))
