"""A real broker, killed by SIGKILL at every kind of operation on its files: each restart finds what was acknowledged.

A *point* is an operation of `storage.files` on a kind of file. They are found by recording runs: topics made, filled,
rolled, cut by retention, deleted and made again, the metadata's snapshots, a clean shutdown; on a new folder, on what
a killed broker left, and on what a stopped one left. A few are tried here, by a seed; `make crash` tries them all
(CRASH_POINTS=all).
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from broker.server import Server
from coordinator.transaction.producer_ids import NoProducerIdError
from protocol.records.batch import read_records, walk_batches
from storage.checkpoints import read_offsets
from storage.files import OPERATIONS
from storage.log.partition_log import PartitionLog
from tests.crash.doomed_broker import AT_THE_STOP
from tests.crash.workload import TOPICS, Workload
from tests.support.disk import files
from tests.support.ports import free_ports
from tests.support.waiting import until
from tests.support.whole_server import started, take_turns

ROOT = Path(__file__).parents[2]
WANTED = os.environ.get("CRASH_POINTS", "12")
SEED = int(os.environ.get("CRASH_SEED", "1"))
SETTINGS = {
    "replica.high.watermark.checkpoint.interval.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.flush.offset.checkpoint.interval.ms": "100",
    "log.flush.start.offset.checkpoint.interval.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.retention.ms": "86400000",
    "metadata.log.max.record.bytes.between.snapshots": "600",
    "metadata.max.retention.bytes": "1",
    "internal.metadata.log.segment.bytes": "1500",
}
NEW = "new"
TORN_OPERATIONS = ("append", "write_whole")


@dataclass(frozen=True)
class Death:
    stage: str
    point: str
    count: int
    torn: bool

    def __str__(self) -> str:
        return f"{self.stage}: {self.point} #{self.count}{' torn' * self.torn}"


class Doomed:
    """The broker as a process that has a plan."""

    def __init__(self, data: Path, plan: dict[str, object]) -> None:
        (self.port,) = free_ports(1)
        self._output_path = data.parent / "output.txt"
        self._output = self._output_path.open("wb")
        arguments = ["--data", str(data), "--port", str(self.port)]
        for name, value in SETTINGS.items():
            arguments += ["-o", f"{name}={value}"]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.doomed_broker", json.dumps(plan), *arguments],
            cwd=ROOT,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def run(self, workload: Workload) -> None:
        """Until it dies, or after the workload to a clean stop."""
        self.wait_until_it_listens()
        try:
            if self.process.poll() is None:
                workload.run(self.port)
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
        finally:
            self.kill()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._output.close()

    def wait_until_it_listens(self) -> None:
        try:
            until(self._listens_or_ended, "the broker listens")
        except BaseException:
            self.kill()
            raise

    def _listens_or_ended(self) -> bool:
        if self.process.poll() is not None:
            return True
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
        except OSError:
            return False
        return True

    @property
    def output(self) -> str:
        return self._output_path.read_text(errors="replace")


def prepare(folder: Path) -> Workload:
    """What a killed broker leaves, at its worst: a torn batch, a half-made snapshot, a topic on its way out."""
    workload = Workload()
    recorded = folder.parent / "prepared.points"
    broker = Doomed(folder / "data", {"record": str(recorded)})
    broker.wait_until_it_listens()
    try:
        workload.run(broker.port)
    finally:
        broker.kill()
    data = folder / "data"
    with max(data.glob("kept-0/*.log")).open("ab") as log:
        log.write(bytes(30))
    (data / "__cluster_metadata-0" / f"{10**6:020d}-{1:010d}.checkpoint.part").write_bytes(b"half")
    (data / f"gone-0.{'0' * 32}-delete").mkdir()
    (data / "nobody-0").mkdir()
    return workload


def stop_cleanly(folder: Path) -> Workload:
    """What a broker leaves that was stopped."""
    workload = Workload()
    broker = Doomed(folder / "data", {"record": str(folder / "points")})
    broker.run(workload)
    assert broker.process.returncode == 0, broker.output
    return workload


Prepared = dict[str, tuple[Path, Workload]]
"""For each stage, by its name, the folder it begins with, and what is known of it."""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    found = {}
    for stage, make in (("after a kill", prepare), ("after a stop", stop_cleanly)):
        folder = tmp_path_factory.mktemp("prepared")
        found[stage] = folder, make(folder)
    return found


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> dict[str, Counter[str]]:
    """How often each point is passed in each stage."""
    found = {}
    for stage in (NEW, *prepared):
        folder = tmp_path_factory.mktemp("recorded")
        workload = begin(stage, folder, prepared)
        recorded = folder / "points"
        broker = Doomed(folder / "data", {"record": str(recorded)})
        broker.run(workload)
        assert broker.process.returncode == 0, broker.output
        found[stage] = Counter(recorded.read_text().splitlines())
    return found


def begin(stage: str, folder: Path, prepared: Prepared) -> Workload:
    """The folder as a stage finds it, and what is known of it."""
    if stage == NEW:
        return Workload()
    begun, workload = prepared[stage]
    shutil.copytree(begun / "data", folder / "data")
    return copy.deepcopy(workload)


def deaths(points: dict[str, Counter[str]]) -> Iterator[Death]:
    """Every point at its first time and amid its times, and torn where it writes."""
    for stage, counts in points.items():
        for point, count in sorted(counts.items()):
            for at in sorted({1, max(1, count // 2)}):
                yield Death(stage, point, at, False)
            if point.split()[0] in TORN_OPERATIONS:
                yield Death(stage, point, 1, True)


def test_every_operation_has_a_point(points: dict[str, Counter[str]]) -> None:
    passed = {point.split()[0] for counts in points.values() for point in counts}
    # the cleaner's, see test_cleaning_crashes.py; and what changes nothing: what a connection reads of a file, and the
    # size of a disk, which nobody asks for here
    assert passed == set(OPERATIONS) - {"set_modified_ms", "read_into", "volume"}


def test_the_points_are_operations_of_a_broker(points: dict[str, Counter[str]]) -> None:
    everything = {point.removesuffix(AT_THE_STOP) for counts in points.values() for point in counts}
    for expected in (
        "append topic/*.log",
        "create topic/*.log",
        "write_whole topic/*.snapshot",
        "rename topic/*.log",
        "rename topic/.",
        "remove topic/*.log.deleted",
        "remove_tree topic/.-delete",
        "append metadata/*.log",
        "write_whole metadata/*.checkpoint.part",
        "rename metadata/*.checkpoint.part",
        "rename metadata/*.checkpoint",
        "rename metadata/*.log",
        "write_whole metadata/quorum-state.tmp",
        "write_whole data/meta.properties.tmp",
        "write_whole data/.kafka_cleanshutdown.tmp",
        "remove data/.kafka_cleanshutdown",
        "sync topic/*.log",
        "truncate topic/*.log",
    ):
        assert expected in everything, sorted(everything)


def test_each_restart_finds_every_acknowledged_record(
    tmp_path: Path, points: dict[str, Counter[str]], prepared: Prepared
) -> None:
    every = list(deaths(points))
    if WANTED != "all":
        every = random.Random(SEED).sample(every, int(WANTED))
    reached = 0
    for number, death in enumerate(every):
        folder = tmp_path / str(number)
        folder.mkdir()
        workload = begin(death.stage, folder, prepared)
        broker = Doomed(folder / "data", {"point": death.point, "count": death.count, "torn": death.torn})
        try:
            broker.run(workload)
            # 1: the last write of all was torn, and no operation came to die at
            assert broker.process.returncode in (0, -signal.SIGKILL, 1 if death.torn else 0)
            reached += broker.process.returncode != 0
            asyncio.run(check(folder / "data", workload))
        except BaseException as failure:
            failure.add_note(f"killed at {death}\n{broker.output[-3000:]}")
            raise
        shutil.rmtree(folder)
    print(f"{reached} of {len(every)} deaths")
    # by the clock alone a point may be passed less often than it was when it was recorded
    assert reached >= len(every) * 0.9


async def check(data: Path, workload: Workload) -> None:
    """Twice: on what the killed one left, and on what that start made of it."""
    check_mark(data)
    for _ in range(2):
        node = await started(data, *(f"{key}={value}" for key, value in SETTINGS.items()))
        check_topics(node, workload)
        assert await next_producer_id(node) > max(workload.producer_ids, default=-1)
        await node.stop()
        assert (data / ".kafka_cleanshutdown").exists()


async def next_producer_id(node: Server) -> int:
    """The first one of a block, which is asked for."""
    with pytest.raises(NoProducerIdError):
        node.producer_ids.next()
    await asyncio.sleep(0)
    take_turns(node)
    return node.producer_ids.next()


def check_mark(data: Path) -> None:
    """Where the mark of a clean stop is, everything was synced and written down before it."""
    if not (data / ".kafka_cleanshutdown").exists():
        return
    recovery_points = read_offsets(files, str(data / "recovery-point-offset-checkpoint"))
    for name in TOPICS:
        logs = sorted((data / f"{name}-0").glob("*.log"))
        if logs:
            end = int(logs[-1].stem)
            for _, header in walk_batches(logs[-1].read_bytes()):
                end = header.last_offset + 1
            assert recovery_points[name, 0] == end, f"{name}-0 isn't as a clean stop leaves it"


def check_topics(node: Server, workload: Workload) -> None:
    there = set(node.partitions.by_name)
    assert there - workload.doubtful == set(workload.known) - workload.doubtful
    for name, known in workload.known.items():
        if name not in workload.doubtful:
            log = node.partitions.get(name, 0).log
            found = dict(stored(log))
            wanted = {
                offset: value
                for offset, value in known.acknowledged.items()
                if offset >= log.log_start_offset
            }
            assert {offset: found.get(offset) for offset in wanted} == wanted
            assert set(found.values()) <= known.sent
            if name == "kept":
                assert log.log_start_offset == 0


def stored(log: PartitionLog) -> Iterator[tuple[int, bytes | None]]:
    """(offset, value) of every record."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read(offset, 1 << 20, upper_bound=log.log_end_offset, min_one_batch=True).records
        for position, header in walk_batches(data):
            for record in read_records(memoryview(data)[position : position + header.size_bytes]):
                if record.offset >= offset:
                    yield record.offset, record.value
            offset = header.last_offset + 1
