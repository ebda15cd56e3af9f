"""What is left of a pass that was ended or has failed, what is said about its partition, and who is told."""

from __future__ import annotations

import asyncio
import errno
import mmap
from pathlib import Path

import pytest

from broker.cleaner.log_cleaner import PassEndedError
from broker.cleaner.passes import Pass, PassLostError, Throttle, Told
from broker.replicas.partition import Partition
from broker.server import Server
from protocol.errors import Error, KafkaError
from protocol.messages.metadata_records import ConfigRecord
from storage.cleaning.plan import CleaningPlan
from storage.log import replaced_segments as log_to_clean
from tests.node.compacted import (
    append,
    checkpoint,
    cleaned,
    create,
    delete,
    fill,
    partition_of,
    until,
    with_topic,
)
from tests.node.test_altered_settings import BROKER, SET, alter
from tests.node.test_cleaning_rounds import EndlessPasses
from tests.support.cleaning import active_producers
from tests.support.disk import files
from tests.support.wishes import pauses, tell


async def test_truncation_ends_a_pass_whose_segment_is_about_to_be_swapped_in(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node, 200, 200)
    await cleaned(node)
    for number in range(100):
        append(node, b"x%d" % number)
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node), roll=True), done.append)
    log = partition_of(node).log
    await until(lambda: log.replacement is not None)
    log.truncate_to(50, node.clock.now_ms())
    lowered = checkpoint(node)
    assert lowered is not None
    assert lowered <= 50
    for number in range(260):
        append(node, b"y%d" % number)
    await until(lambda: bool(done))
    assert isinstance(done[0], PassEndedError)
    assert checkpoint(node) == lowered
    assert partition_of(node) not in node.cleaner._resting


def set_policy(node: Server, policy: str, *others: tuple[str, str]) -> None:
    node.metadata.append(
        [
            ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)
            for name, value in (("cleanup.policy", policy), *others)
        ]
    )


async def test_a_topic_no_longer_compacted_keeps_its_records(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node, 200, 200)
    log = partition_of(node).log
    size = log.size
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    await until(lambda: log.cleaning is not None)
    set_policy(node, "delete")
    await until(lambda: bool(done))
    assert isinstance(done[0], PassEndedError)
    assert log.size == size


async def test_a_topic_that_is_compacted_again_goes_on_from_where_it_was(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    await cleaned(node)
    fill(node, 200, 200)
    log = partition_of(node).log
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    await until(lambda: log.cleaning is not None)
    set_policy(node, "delete")
    await until(lambda: bool(done))
    assert node.cleaner._under_way == {}
    assert not [*tmp_path.rglob("*.cleaned"), *tmp_path.rglob("*.swap")]
    assert checkpoint(node) == 20
    set_policy(node, "compact")
    assert checkpoint(node) == 20
    assert await cleaned(node) is None
    assert checkpoint(node) == 220


async def test_a_topic_no_longer_compacted_after_a_round_chose_it_has_no_pass(
    tmp_path: Path,
) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    set_policy(node, "delete", ("min.cleanable.dirty.ratio", "0"))
    node.cleaner._wanted = [partition_of(node)]
    assert pauses(node.cleaner._begin_some())
    assert node.cleaner._under_way == {}


async def test_a_pass_that_is_lost_again_is_made_later_and_with_fewer_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    keys: list[int] = []
    begin = node.cleaner._passes.begin

    def noted(plan: CleaningPlan, told: Told, throttle: Throttle) -> Pass:
        keys.append(plan.max_keys)
        return begin(plan, told, throttle)

    def refused(_fd: int, _size: int) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr(node.cleaner._passes, "begin", noted)
    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", refused)
        for _ in range(2):
            assert isinstance(await cleaned(node), PassLostError)
    assert await cleaned(node) is None
    assert [keys[0] // each for each in keys] == [1, 2, 4]
    told = [line for line in caplog.messages if "compacting" in line and "again in" in line]
    assert [line.split(" s,")[0].split()[-1] for line in told] == ["15", "30"]
    await cleaned(node)
    assert keys[-1] == keys[0]


@pytest.mark.limit("storage.log.replaced_segments.PRODUCERS_PER_TURN")
async def test_listing_the_last_writes_of_many_producers_takes_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_to_clean, "PRODUCERS_PER_TURN", 2)
    node = await with_topic(tmp_path)
    for producer_id in range(5):
        append(node, b"k", producer_id=producer_id, producer_epoch=1, base_sequence=0)
    fill(node)
    log = partition_of(node).log
    turns = 0
    plans: list[CleaningPlan] = []
    begin = node.cleaner._passes.begin

    def noted(plan: CleaningPlan, told: Told, throttle: Throttle) -> Pass:
        plans.append(plan)
        return begin(plan, told, throttle)

    monkeypatch.setattr(node.cleaner._passes, "begin", noted)
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    await until(lambda: log.cleaning is not None)
    while not plans:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 2
    assert [*active_producers(plans[0])] == [(number, 1, number) for number in range(5)]
    await until(lambda: bool(done))
    assert done == [None]

    done.clear()
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    await until(lambda: log.cleaning is not None)
    log.end_cleaning()
    await until(lambda: bool(done))
    assert isinstance(done[0], PassEndedError)
    assert len(plans) == 1


async def test_a_pass_that_lacks_memory_while_listing_producers_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_to_clean, "PRODUCERS_PER_TURN", 2)
    node = await with_topic(tmp_path)
    for producer_id in range(5):
        append(node, b"k", producer_id=producer_id, producer_epoch=1, base_sequence=0)
    fill(node)

    def refused(*_of: object) -> Pass:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(node.cleaner._passes, "begin", refused)
        assert isinstance(await cleaned(node), MemoryError)
    assert partition_of(node).log.cleaning is None
    assert await cleaned(node) is None


async def test_a_pass_that_fails_leaves_earlier_compaction_in_place(tmp_path: Path) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    await cleaned(node)

    def broken(operation: str, path: str, _size: int) -> None:
        if operation == "rename" and ".cleaned" in path:
            raise OSError(5, "Input/output error", path)

    files.set_fault_hook(broken)
    # over all that is clean, once more
    assert isinstance(await cleaned(node), OSError)
    files.set_fault_hook(None)
    assert checkpoint(node) == 20


async def test_a_changed_setting_says_nothing_of_a_topic_that_was_deleted_under_a_pass(
    tmp_path: Path,
) -> None:
    node = await with_topic(tmp_path)
    fill(node, 200, 200)
    await cleaned(node)
    fill(node, 100)
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    log = partition_of(node).log
    await until(lambda: log.cleaning is not None)
    delete(node, "t")
    assert not done  # the pass is still being made
    assert alter(node, BROKER, "", ("log.cleaner.io.buffer.load.factor", SET, "0.5")) is Error.NONE
    create(node, "t")
    assert checkpoint(node) is None
    await until(lambda: bool(done))
    assert checkpoint(node) is None


async def test_leftovers_of_a_pass_over_a_deleted_topic_are_not_sought_in_a_new_topics_folder(
    tmp_path: Path,
) -> None:
    """The new topic has the same folder name as the old one."""
    node = await with_topic(tmp_path)
    fill(node)
    node.cleaner._passes = EndlessPasses()
    done: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), done.append)
    log = partition_of(node).log
    await until(lambda: log.cleaning is not None)
    delete(node, "t")
    create(node, "t")
    append(node, b"k")
    being_written = tmp_path / "t-0" / "00000000000000000000.log.cleaned"
    being_written.touch()
    assert not done
    await until(lambda: bool(done))
    assert isinstance(done[0], PassEndedError)
    assert being_written.exists()
    await node.stop()


async def test_a_failed_roll_is_reported_to_the_caller_and_no_pass_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await with_topic(tmp_path)
    fill(node)
    append(node, b"k0")
    begun: list[Partition] = []
    begin = node.cleaner._begin

    def noted(partition: Partition, first_dirty_offset: int, first_uncleanable_offset: int) -> None:
        begun.append(partition)
        begin(partition, first_dirty_offset, first_uncleanable_offset)

    monkeypatch.setattr(node.cleaner, "_begin", noted)
    first: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node)), first.append)
    await until(lambda: partition_of(node).log.cleaning is not None)

    def full(operation: str, path: str, _size: int) -> None:
        if operation == "create" and path.endswith("21.log"):
            raise OSError(28, "No space left on device", path)

    files.set_fault_hook(full)
    second: list[Exception | None] = []
    tell(node.cleaner.clean_now(partition_of(node), roll=True), second.append)
    files.set_fault_hook(None)
    assert partition_of(node) not in node.cleaner._asked_for
    await until(lambda: bool(first) and bool(second))
    assert first == [None]
    assert isinstance(second[0], KafkaError)
    assert await cleaned(node) is None
    assert len(begun) == 2
