"""A process that is killed at any operation on its files loses nothing that it had acknowledged, and invents nothing.

`kill -9` leaves the page cache as it is: what was written is there, synced or not.
"""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from storage.directory.log_directory import LogDirectory
from storage.files import OPERATIONS
from storage.log.log_config import LogConfig
from storage.log.partition_log import AppendOrigin, PartitionLog
from tests.support.disk import files
from tests.support.immediate_background import run_at_once
from tests.support.killing import WRITES, Killer, run
from tests.support.log_model import LogModel, Stored, committed_values, stored_batches
from tests.support.partition_logs import NOW_MS, TOPIC_ID, append, batch, marker

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=200, retention_ms=500)
PARTITIONS = (0, 1)
UNIQUE = "0123456789abcdef" * 2
SEEDS = (1, 2)


@pytest.fixture(autouse=True)
def page_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.fsync", lambda _descriptor: None)


@dataclass
class Acknowledged:
    """What a partition's clients were told, and what one of them was waiting for when the process died."""

    model: LogModel = field(default_factory=LogModel)
    pending: Stored | None = None
    pending_start: int = 0
    """The log start may have moved so far."""


class Broker:
    """Does by chance whatever a broker does to a log directory, keeping account of what it acknowledged."""

    def __init__(self, path: Path, seed: int) -> None:
        self.path = path
        self.chance = random.Random(seed)
        self.accounts = {partition: Acknowledged() for partition in PARTITIONS}
        self.records = 0
        self.now_ms = NOW_MS

    def work(self) -> None:
        for _run in range(2):
            self.start()
            for _step in range(18):
                self.now_ms += self.chance.randrange(100)
                self.step(self.chance.choice(PARTITIONS))
            self.directory.close()

    def start(self) -> None:
        self.directory, self.logs = start(self.path, self.now_ms)

    def step(self, partition: int) -> None:
        log, account = self.logs[partition], self.accounts[partition]
        kind = self.chance.choices(
            ["plain", "produced", "end", "roll", "flush", "checkpoint", "delete"], [6, 6, 3, 1, 1, 1, 1]
        )[0]
        if kind == "plain":
            self.append(log, account, -1, False)
        elif kind == "produced":
            producer_id = self.chance.choice([1, 2])
            transactional = producer_id == 2 or producer_id in account.model.open_transactions()
            self.append(log, account, producer_id, transactional)
        elif kind == "end":
            self.end_transaction(log, account)
        elif kind == "roll":
            log.roll(self.now_ms)
        elif kind == "flush":
            log.flush(self.now_ms)
        elif kind == "checkpoint":
            self.directory.checkpoint_recovery_points()
            self.directory.checkpoint_high_watermarks()
            self.directory.checkpoint_log_starts()
        else:
            self.delete(log, account)

    def append(self, log: PartitionLog, account: Acknowledged, producer_id: int, transactional: bool) -> None:
        count = self.chance.randint(1, 3)
        values = tuple(b"%d" % (self.records + at) for at in range(count))
        self.records += count
        sequence = account.model.next_sequence(producer_id) if producer_id >= 0 else -1
        stored = Stored(
            account.model.end_offset, (self.now_ms,) * count, values, producer_id, sequence, transactional
        )
        data = batch(
            timestamp=self.now_ms,
            timestamps=[self.now_ms] * count,
            values=list(values),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        self.acknowledge(log, account, stored, data, AppendOrigin.CLIENT)

    def end_transaction(self, log: PartitionLog, account: Acknowledged) -> None:
        commits = self.chance.random() < 0.5
        stored = Stored(account.model.end_offset, (self.now_ms,), (), 2, -1, True, commits)
        data = marker(commits, producer_id=2, timestamp=self.now_ms)
        self.acknowledge(log, account, stored, data, AppendOrigin.COORDINATOR)

    def acknowledge(
        self, log: PartitionLog, account: Acknowledged, stored: Stored, data: bytearray, origin: AppendOrigin
    ) -> None:
        account.pending = stored
        result = append(log, data, now_ms=self.now_ms, origin=origin)
        assert result.base_offset == stored.base_offset
        account.model.add(stored)
        account.pending = None

    def delete(self, log: PartitionLog, account: Acknowledged) -> None:
        if account.model.open_transactions():
            return
        account.pending_start = account.model.end_offset
        log.delete_records_before(self.chance.randint(log.log_start_offset, account.model.end_offset))
        log.apply_retention(self.now_ms)
        account.model.log_start_offset = account.pending_start = log.log_start_offset


def start(path: Path, now_ms: int = NOW_MS) -> tuple[LogDirectory, dict[int, PartitionLog]]:
    directory = LogDirectory.open(str(path), files=files, background=run_at_once)
    logs = {}
    for partition in PARTITIONS:
        log = directory.open_log("orders", partition, CONFIG, now_ms=now_ms, topic_id=TOPIC_ID)
        log.update_high_watermark(log.log_end_offset)
        logs[partition] = log
    return directory, logs


def check(broker: Broker, path: Path) -> None:
    """Starts on what was left behind and holds it against what was acknowledged."""
    directory, logs = start(path, broker.now_ms)
    for partition, log in logs.items():
        check_log(log, broker.accounts[partition])
    directory.close(clean=False)


def check_log(log: PartitionLog, account: Acknowledged) -> None:
    model = account.model
    found = stored_batches(log)
    possible = list(model.batches)
    if account.pending is not None and log.log_end_offset == account.pending.next_offset:
        possible.append(account.pending)
    assert found == possible[len(possible) - len(found) :]
    gone = possible[: len(possible) - len(found)]
    assert all(stored.next_offset <= max(model.log_start_offset, account.pending_start) for stored in gone)
    assert log.log_end_offset == (possible[-1].next_offset if possible else 0)

    recovered = LogModel(possible, log.log_start_offset, log.log_end_offset)
    assert log.last_stable_offset == recovered.last_stable_offset
    assert committed_values(log) == recovered.committed_values()
    check_producers(log, recovered)


def check_producers(log: PartitionLog, model: LogModel) -> None:
    for producer_id in (1, 2):
        last = model.last_batch(producer_id)
        if last is None or last.next_offset <= log.log_start_offset:
            continue
        retried = batch(
            len(last.values),
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=last.sequence,
            transactional=last.transactional,
        )
        result = append(log, retried)
        assert (result.base_offset, result.duplicate) == (last.base_offset, True)
        following = batch(
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=last.sequence + len(last.values),
            transactional=producer_id == 2,
        )
        assert append(log, following).base_offset == log.log_end_offset - 1


def deaths(work: Callable[[], object], torn: bool) -> list[int]:
    """The numbers of the operations to die at: all, or those that a death may leave half-done."""
    operations = run(work).operations
    return [at for at, name in enumerate(operations, 1) if not torn or name in WRITES]


def killed_broker(path: Path, seed: int, at: int, torn: bool) -> tuple[Broker, Killer]:
    shutil.rmtree(path, ignore_errors=True)
    broker = Broker(path, seed)
    return broker, run(broker.work, at=at, torn=torn)


@pytest.mark.parametrize("torn", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_killed_at_any_operation_loses_nothing_and_invents_nothing(
    tmp_path: Path, seed: int, torn: bool
) -> None:
    every = deaths(Broker(tmp_path / "whole", seed).work, torn)
    assert len(every) > 50
    for at in every[:: 1 if seed == SEEDS[0] else 3]:
        broker, killer = killed_broker(tmp_path / "data", seed, at, torn)
        try:
            check(broker, tmp_path / "data")
        except BaseException as failure:
            failure.add_note(f"killed at operation {at}: {killer.name}")
            raise


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_killed_again_while_it_recovers_loses_nothing(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    every = deaths(Broker(tmp_path / "whole", seed).work, torn=False)
    for _round in range(40):
        at = chance.choice(every)
        broker, first = killed_broker(tmp_path / "data", seed, at, torn=chance.random() < 0.5)
        again = chance.randint(1, 60)
        second = run(lambda: start(tmp_path / "data"), at=again, torn=chance.random() < 0.5)
        try:
            check(broker, tmp_path / "data")
        except BaseException as failure:
            failure.add_note(f"killed at {at}: {first.name}; then at {again}: {second.name}")
            raise


def test_a_recovery_that_cuts_leaves_no_hole_where_it_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "data"

    def damaged() -> None:
        shutil.rmtree(path, ignore_errors=True)
        directory, logs = start(path)
        for number in range(12):
            append(logs[0], batch(values=[b"%d" % number + b"x" * 100]))
        directory.close(clean=False)
        with (path / "orders-0" / f"{logs[0].base_offsets[1]:020d}.log").open("r+b") as stream:
            stream.truncate(250)

    damaged()
    for at in deaths(lambda: start(path), torn=False):
        damaged()
        run(lambda: start(path), at=at)
        directory, logs = start(path)
        found = stored_batches(logs[0])
        assert [stored.base_offset for stored in found] == list(range(4))
        directory.close(clean=False)


def test_a_broker_that_is_not_killed_keeps_everything(tmp_path: Path) -> None:
    broker = Broker(tmp_path, 3)
    assert not run(broker.work).dead
    check(broker, tmp_path)


def test_every_kind_of_operation_was_a_place_to_die(tmp_path: Path) -> None:
    seen = set()
    for seed in SEEDS:
        broker = Broker(tmp_path / str(seed), seed)
        killer = Killer()

        def note(operation: str, path: str, size: int, killer: Killer = killer) -> int | None:
            seen.add(operation)
            return killer(operation, path, size)

        files.set_fault_hook(note)
        try:
            broker.work()
        finally:
            files.set_fault_hook(None)
    # `remove_tree` belongs to deletions of topics, which have a test of their own; `truncate` to recoveries, those with
    # the times of files to the cleaner, `read_into` to connections, and paths and volumes to the broker
    assert set(OPERATIONS) - seen == {
        "remove_tree",
        "truncate",
        "modified_ms",
        "set_modified_ms",
        "read_into",
        "real_path",
        "volume",
    }


@pytest.mark.parametrize("torn", [False, True])
def test_a_topic_deletion_killed_at_any_operation_is_done_or_not_done(tmp_path: Path, torn: bool) -> None:
    path = tmp_path / "data"

    def fill() -> LogDirectory:
        shutil.rmtree(path, ignore_errors=True)
        directory, logs = start(path)
        for _ in range(12):
            append(logs[0], batch(5))
        logs[0].delete_records_before(30)
        directory.checkpoint_log_starts()
        return directory

    def delete(directory: LogDirectory) -> None:
        directory.delete_log(directory.logs["orders", 0], UNIQUE)
        log = directory.open_log("orders", 0, CONFIG, now_ms=NOW_MS, topic_id="B" * 22)
        append(log, batch(values=[b"new"]))

    whole = fill()
    for at in deaths(lambda: delete(whole), torn):
        directory = fill()
        run(lambda directory=directory: delete(directory), at=at, torn=torn)  # type: ignore[misc]
        again = LogDirectory.open(str(path), files=files, background=run_at_once)
        (folder, *_rest) = [f for f in again.folders() if f.partition == 0] or [None]
        assert not list(path.glob("*-delete"))
        if folder is not None:
            log = again.open_log("orders", 0, CONFIG, now_ms=NOW_MS, topic_id=folder.topic_id)
            offsets = (log.log_start_offset, log.log_end_offset)
            assert offsets in ([(30, 60)] if log.topic_id == TOPIC_ID else [(0, 0), (0, 1)])
        again.close(clean=False)
