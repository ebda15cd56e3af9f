"""A real broker, killed by SIGKILL amid transactions: each is wholly committed or wholly aborted, and nothing hangs.

The points are the operations of `storage.files` that change a folder, from the request on to the last write of what it
sets off: InitProducerId (a first one, one that fences), AddPartitionsToTxn, AddOffsetsToTxn, Produce, TxnOffsetCommit,
EndTxn, and the abort of what has timed out; for clients of transactions version 1 and of version 2. They are found by
recording a run. One of each request is tried here, by a seed; `make crash` tries them all (CRASH_POINTS=all).
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from broker.server import Server
from protocol.errors import Error
from storage.files import OPERATIONS
from tests.crash import doomed_coordinator
from tests.crash.doomed_coordinator import ANSWER, BEGIN, LOG_APPEND, LOOKING, PASSED_OVER, TIMEOUT
from tests.crash.test_broker_crashes import ROOT, SEED, TORN_OPERATIONS, WANTED
from tests.crash.transactions import (
    GROUP,
    MAY_BE_WHOLE,
    MUST_BE_WHOLE,
    PARTITIONS,
    TOPIC,
    TRANSACTIONAL_ID,
    Fate,
    Transaction,
    Workload,
    is_at_rest,
)
from tests.node import transactional
from tests.support.ports import free_ports
from tests.support.transactional_client import Broker, Producer, Reader, connected, eventually
from tests.support.waiting import until
from tests.support.whole_server import clock_of, in_loop, started

VERSIONS = (1, 2)
SETTINGS = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "20",
}
MOST_ANSWERS = 4
OLD = (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_TXN_STATE)


@dataclass(frozen=True)
class Death:
    version: int
    point: str
    count: int
    torn: bool

    def __str__(self) -> str:
        return f"version {self.version}, {self.point} #{self.count}{' torn' * self.torn}"


class Doomed:
    """The broker as a process that has a plan."""

    def __init__(self, folder: Path, plan: dict[str, object]) -> None:
        folder.mkdir(exist_ok=True)
        (self.port,) = free_ports(1)
        self.time_is_up = folder / "time-is-up"
        self._output_path = folder / "output.txt"
        self._output = self._output_path.open("wb")
        arguments = ["--data", str(folder / "data"), "--port", str(self.port)]
        for name, value in SETTINGS.items():
            arguments += ["-o", f"{name}={value}"]
        plan = {**plan, "time_is_up": str(self.time_is_up)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", doomed_coordinator.__name__, json.dumps(plan), *arguments],
            cwd=ROOT,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )

    def run(self, version: int) -> Workload:
        """Until it dies, or else to the end of the workload, and a kill there."""
        workload = Workload(version, self.time_is_up)
        try:
            until(self._listens, "the broker listens")
            workload.run(self.port)
        finally:
            self.kill()
        return workload

    def _listens(self) -> bool:
        assert self.process.poll() is None, self.output
        try:
            with connected(self.port):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._output.close()

    @property
    def output(self) -> str:
        return self._output_path.read_text(errors="replace")


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[str]]:
    """The points in their order, for each version of transactions."""
    found = {}
    for version in VERSIONS:
        folder = tmp_path_factory.mktemp("recorded")
        broker = Doomed(folder, {"record": str(folder / "points")})
        workload = broker.run(version)
        assert [transaction.fate for transaction in workload.transactions] == [
            Fate.COMMITTED,
            Fate.ABORTED,
            Fate.ABORTED,
            Fate.COMMITTED,
            Fate.ABORTED,
            Fate.COMMITTED,
            Fate.OPEN,
        ], broker.output
        found[version] = [
            point for point in (folder / "points").read_text().splitlines() if point != PASSED_OVER
        ]
    return found


def of_a_log(point: str) -> bool:
    return point.split(": ")[1].startswith(f"{LOG_APPEND} ")


def deaths(passed: dict[int, list[str]]) -> Iterator[Death]:
    """Every point each time that it is passed, and torn where it writes."""
    for version, points in passed.items():
        for point, count in Counter(point for point in points if not of_a_log(point)).items():
            operation = point.split(": ")[1].split()[0]
            if operation in (BEGIN, ANSWER):
                count = min(count, MOST_ANSWERS)
            for at in range(1, count + 1):
                yield Death(version, point, at, False)
                if operation in TORN_OPERATIONS:
                    yield Death(version, point, at, True)


def few(every: list[Death]) -> list[Death]:
    """One of each request of each version."""
    of_request: dict[tuple[int, str], list[Death]] = {}
    for death in every:
        of_request.setdefault((death.version, death.point.split(": ")[0]), []).append(death)
    chance = random.Random(SEED)
    return [chance.choice(candidates) for candidates in of_request.values()]


# --- the points ---------------------------------------------------------------------------------------------


def test_every_operation_either_changes_a_folder_or_only_looks() -> None:
    """One that is new has to be put where it belongs."""
    changing = {
        "append",
        "create",
        "make_directory",
        "remove",
        "remove_tree",
        "rename",
        "set_modified_ms",
        "sync",
        "sync_directory",
        "truncate",
        "write_whole",
    }
    assert changing | LOOKING == set(OPERATIONS)
    assert not changing & LOOKING


@pytest.mark.parametrize("version", VERSIONS)
def test_every_append_to_a_log_has_its_point(passed: dict[int, list[str]], version: int) -> None:
    awaited = None
    for point in passed[version]:
        if of_a_log(point):
            assert awaited is None, f"an append without a point: {awaited}"
            awaited = point.replace(f": {LOG_APPEND} ", ": append ") + "*.log"
        elif point == awaited:
            awaited = None
    assert awaited is None


@pytest.mark.parametrize("version", VERSIONS)
def test_every_step_of_a_transaction_has_its_points(passed: dict[int, list[str]], version: int) -> None:
    points = set(passed[version])
    state, data, offsets = (
        f"append {folder}/*.log"
        for folder in ("__transaction_state-0", f"{TOPIC}-{PARTITIONS[-1]}", "__consumer_offsets-0")
    )
    aborted = f"append {TOPIC}-0/*.txnindex"
    expected = {
        "InitProducerId": {"append __cluster_metadata-0/*.log", state, data, offsets, aborted},
        "Produce": {data} | ({state} if version == 2 else set()),
        "TxnOffsetCommit": {offsets} | ({state} if version == 2 else set()),
        "EndTxn": {state, data, offsets, aborted},
        TIMEOUT: {state, data, offsets, aborted},
    }
    if version == 1:
        expected |= {"AddPartitionsToTxn": {state}, "AddOffsetsToTxn": {state}}
    missing = {f"{api}: {point}" for api, each in expected.items() for point in each} - points
    assert not missing, sorted(points)


# --- the deaths ---------------------------------------------------------------------------------------------


@pytest.mark.timeout(1800 if WANTED == "all" else 120)
def test_each_transaction_is_whole_or_not_at_all(tmp_path: Path, passed: dict[int, list[str]]) -> None:
    every = list(deaths(passed))
    if WANTED != "all":
        every = few(every)
    reached = 0
    for number, death in enumerate(every):
        folder = tmp_path / str(number)
        broker = Doomed(folder, {"point": death.point, "count": death.count, "torn": death.torn})
        workload = None
        try:
            workload = broker.run(death.version)
            reached += not workload.survived
            check(folder / "data", workload, by_the_clock=number % 2 == 0)
        except BaseException as failure:
            fates = workload and [transaction.fate.name for transaction in workload.transactions]
            failure.add_note(f"killed at {death}: {fates}\n{broker.output[-3000:]}")
            raise
        shutil.rmtree(folder)
    print(f"{reached} of {len(every)} deaths")
    # an id that is asked for while markers are out is asked for again, more or less often
    assert reached >= len(every) * 0.95


@in_loop
async def check(data: Path, workload: Workload, *, by_the_clock: bool) -> None:
    settings = [f"{key}={value}" for key, value in SETTINGS.items()]
    now_ms = time.time_ns() // 1_000_000
    node = await started(data, *settings, now_ms=now_ms)
    broker = of(node)
    numbers = check_transactions(broker, workload)
    if workload.transactions:
        numbers = go_on(node, workload, numbers, by_the_clock=by_the_clock)
    numbers.append(new_transaction(broker, workload))
    await node.stop()

    again = await started(data, *settings, now_ms=now_ms)
    assert is_at_rest(of(again))
    assert whole(of(again), workload) == numbers
    await again.stop()


def of(node: Server) -> Broker:
    def ask(request: Any, version: int) -> Any:
        answer = transactional.ask(node, request, version)
        assert not asyncio.iscoroutine(answer), "it is at rest: nothing has to wait"
        return answer

    return Broker(ask)


def whole(broker: Broker, workload: Workload) -> list[int]:
    """The transactions that a new read_committed consumer finds, which it finds in every partition or in none."""
    found = []
    for partition in PARTITIONS:
        values = Reader(broker, TOPIC, partition).read_on()
        numbers = [int(value.split()[0]) for value in values]
        assert values == [Transaction(number).values[partition] for number in numbers]
        assert numbers == sorted(set(numbers)), "in the order of the producer, and none twice"
        found.append(numbers)
        seen = workload.readings.seen.get(partition, [])
        assert values[: len(seen)] == seen, "what a consumer was given while the first broker lived stays"
    assert found.count(found[0]) == len(found), f"torn: {found}"
    offset, error = broker.committed_offset(GROUP, TOPIC)
    if error is Error.UNSTABLE_OFFSET_COMMIT:
        assert broker.state(TRANSACTIONAL_ID) == "Ongoing"
    else:
        assert (offset, error) == (max(found[0], default=-1), Error.NONE)
    return found[0]


def check_transactions(broker: Broker, workload: Workload) -> list[int]:
    """After the start: all are over but the one that nobody had asked the end of, or not in time."""
    numbers = whole(broker, workload)
    for transaction in workload.transactions:
        if transaction.fate in MUST_BE_WHOLE:
            assert transaction.number in numbers, "a commit that was acknowledged is lost"
        elif transaction.fate not in MAY_BE_WHOLE:
            assert transaction.number not in numbers, "nobody has committed it"
    if broker.state(TRANSACTIONAL_ID) != "Ongoing":
        assert is_at_rest(broker)
    else:
        assert workload.transactions[-1].fate not in (Fate.COMMITTED, Fate.ABORTED)
    return numbers


def go_on(node: Server, workload: Workload, numbers: list[int], *, by_the_clock: bool) -> list[int]:
    """As a client does: what wasn't answered is asked again, or the time runs out over it, or another takes over."""
    broker, last = of(node), workload.transactions[-1]
    assert workload.producer is not None
    old = Producer(broker, TRANSACTIONAL_ID, workload.version)
    old.producer_id, old.epoch = workload.producer.producer_id, workload.producer.epoch
    if last.fate in (Fate.COMMITTING, Fate.ABORTING):
        assert old.end(commit=last.fate is Fate.COMMITTING) is Error.NONE
        if last.fate is Fate.COMMITTING:
            assert whole(broker, workload) in (numbers, [*numbers, last.number])
            last.fate = Fate.COMMITTED
    elif last.fate in (Fate.OPEN, Fate.FENCING, Fate.TIMING_OUT):
        was_open = broker.state(TRANSACTIONAL_ID) == "Ongoing"
        if by_the_clock or last.fate is Fate.TIMING_OUT:
            clock_of(node).advance_ms(70_000)
            node.timers.fire_due()
        else:
            eventually(Producer(broker, TRANSACTIONAL_ID, workload.version).init)
        if was_open or last.fate is not Fate.OPEN:
            assert old.end(commit=True) in OLD, "it is fenced"
    assert is_at_rest(broker)
    return check_transactions(broker, workload)


def new_transaction(broker: Broker, workload: Workload) -> int:
    producer = Producer(broker, TRANSACTIONAL_ID, workload.version)
    eventually(producer.init)
    assert producer.epoch > workload.last_epochs.get(producer.producer_id, -1), "an epoch was given twice"
    transaction = Transaction(len(workload.transactions))
    producer.send(TOPIC, transaction.values, GROUP, transaction.number)
    assert producer.end(commit=True) is Error.NONE
    assert is_at_rest(broker)
    assert whole(broker, workload)[-1] == transaction.number
    return transaction.number
