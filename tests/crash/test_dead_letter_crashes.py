"""A real broker, killed by SIGKILL between a reject and the queue, and between the queue and what is durable of it:
each rejected record is in the dead letter queue then, none is there that was accepted, and none of them comes again.

The points are the changes of files of the share coordinator's log and of the queue, found by recording a run. A few
are tried here, by a seed, and those that lie between the three writes always; `make crash` tries them all.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.crash import doomed_burial
from tests.crash.burials import IN_BATCH, RECORDS, Workload, is_to_die, value_of
from tests.crash.doomed_burial import WATCHED
from tests.crash.doomed_coordinator import PASSED_OVER
from tests.crash.test_broker_crashes import ROOT, SEED, TORN_OPERATIONS, WANTED
from tests.support.ports import free_ports, is_listening
from tests.support.waiting import until

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
    "group.share.initialize.retry.interval.ms": "3000",
}
OF_STATES, OF_QUEUE = (f"append {folder}/*.log" for folder in WATCHED)


@dataclass(frozen=True)
class Death:
    point: str
    count: int
    torn: bool

    def __str__(self) -> str:
        return f"{self.point} #{self.count}{' torn' * self.torn}"


class Doomed:
    """The broker as a process that has a plan; {} is to live."""

    def __init__(self, folder: Path, plan: dict[str, object]) -> None:
        folder.mkdir(exist_ok=True)
        (self.port,) = free_ports(1)
        self._output_path = folder / "output.txt"
        arguments = ["--data", str(folder / "data"), "--port", str(self.port)]
        for name, value in SETTINGS.items():
            arguments += ["-o", f"{name}={value}"]
        with self._output_path.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", doomed_burial.__name__, json.dumps(plan), *arguments],
                cwd=ROOT,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> Doomed:
        until(lambda: self.process.poll() is not None or is_listening("127.0.0.1", self.port), "it listens")
        return self

    def __exit__(self, *exception: object) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def output(self) -> str:
        return self._output_path.read_text(errors="replace")


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The points in their order."""
    folder = tmp_path_factory.mktemp("recorded")
    workload = Workload()
    with Doomed(folder, {"record": str(folder / "points")}) as broker:
        workload.run(broker.port)
        assert workload.is_done, broker.output
    assert workload.dead == {offset for offset in range(RECORDS) if is_to_die(offset)}
    points = (folder / "points").read_text().splitlines()
    return [point for point in points if point != PASSED_OVER]


def deaths(passed: list[str]) -> Iterator[Death]:
    """Each point at each of its times, and torn where it writes."""
    counts = dict.fromkeys(passed, 0)
    for point in passed:
        counts[point] += 1
        yield Death(point, counts[point], False)
        if point.split()[0] in TORN_OPERATIONS:
            yield Death(point, counts[point], True)


def between_the_writes(passed: list[str]) -> list[Death]:
    """Of the first dead letters: before what is said of them is written down, before they are in the queue, and before
    it is written down that they are."""
    in_queue = passed.index(OF_QUEUE)
    said = sum(point == OF_STATES for point in passed[:in_queue])
    return [Death(OF_STATES, said, False), Death(OF_QUEUE, 1, False), Death(OF_STATES, said + 1, False)]


def test_the_points_are_those_of_a_burial(passed: list[str]) -> None:
    appended = [point for point in passed if point in (OF_STATES, OF_QUEUE)]
    assert appended.count(OF_QUEUE) >= RECORDS // IN_BATCH
    first = appended.index(OF_QUEUE)
    assert appended[first - 1 : first + 2] == [OF_STATES, OF_QUEUE, OF_STATES]


def test_each_rejected_record_is_in_the_queue_and_no_accepted_one(tmp_path: Path, passed: list[str]) -> None:
    always = between_the_writes(passed)
    every = [each for each in deaths(passed) if each not in always]
    if WANTED != "all":
        every = random.Random(SEED).sample(every, int(WANTED))
    reached = 0
    in_between: list[set[int]] = []
    for number, death in enumerate([*always, *every]):
        folder = tmp_path / str(number)
        workload = Workload()
        plan = {"point": death.point, "count": death.count, "torn": death.torn}
        with Doomed(folder, plan) as broker:
            workload.run(broker.port)
            if not workload.is_done:
                broker.process.wait(30)
                reached += 1
            output = broker.output
        try:
            with Doomed(folder, {}) as broker:
                doubled = check(workload, broker.port)
        except BaseException as failure:
            failure.add_note(f"killed at {death}\n{output[-3000:]}\n{broker.output[-3000:]}")
            raise
        if death in always:
            in_between.append(doubled)
        shutil.rmtree(folder)
    print(f"{reached} of {len(always) + len(every)} deaths")
    assert reached >= len([*always, *every]) * 0.9
    # what lay in the queue, and wasn't written down as being there, is written once more
    assert [bool(doubled) for doubled in in_between] == [False, False, True]


def check(workload: Workload, port: int) -> set[int]:
    """With the next broker on the folder. Returns what is in the queue twice."""
    queue = workload.go_on(port)
    assert workload.dead <= queue.keys()
    for offset in range(RECORDS):
        is_there, came_again = offset in queue, offset in workload.came_again
        if is_to_die(offset):
            assert is_there is not came_again, f"{offset}: in the queue {is_there}, came again {came_again}"
        else:
            assert not is_there, f"{offset} was accepted, and is in the queue"
        assert not (came_again and offset in workload.accepted), f"{offset} was accepted, and came again"
    for offset, records in queue.items():
        assert [record.value for record in records] == [value_of(offset)] * len(records)
        assert len(records) <= 2
    return {offset for offset, records in queue.items() if len(records) > 1}
