"""The periodic work of a shard of the share coordinator."""

from __future__ import annotations

from itertools import pairwise

from coordinator.share.shard import MANY
from protocol.errors import Error
from protocol.waiting import begun
from tests.unit.coordinator.share.share_shards import ShareShards

SETTINGS = {"cold_snapshot_interval_ms": 1_000, "prune_interval_ms": 10_000_000}
PRUNING = {"cold_snapshot_interval_ms": 10_000_000, "prune_interval_ms": 1_000}


def test_an_idle_state_is_written_again() -> None:
    shards = ShareShards(**SETTINGS)
    shards.initialize(state_epoch=3)
    assert shards.write((0, 4, 2, 1), start=0, count=5, state_epoch=3) is None
    before = shards.read()
    shards.runtime.pass_ms(1_000)
    snapshot = shards.written()[-1].state
    assert len(shards.runtime.log) == 3
    assert snapshot is not None
    assert snapshot.snapshot_epoch == 1
    assert snapshot.write_timestamp - snapshot.create_timestamp == 1_000
    assert [tuple(each) for each in snapshot.state_batches] == [(0, 4, 2, 1)]
    assert shards.read() == before
    assert shards.restarted().read() == before


def test_if_everything_is_cold_nothing_is_written() -> None:
    shards = ShareShards(**SETTINGS)
    shards.initialize()
    shards.runtime.pass_ms(1_000)
    records = len(shards.runtime.log)
    shards.runtime.pass_ms(10_000)
    assert len(shards.runtime.log) == records
    shards.initialize(partition=1)  # the shard is in use again
    shards.runtime.pass_ms(1_000)
    assert [record.key.partition for record in shards.written()[records + 1 :]] == [0, 1]


def test_a_recently_written_state_is_not_written_again() -> None:
    shards = ShareShards(**SETTINGS)
    shards.initialize()
    shards.runtime.pass_ms(500)
    shards.initialize(partition=1)
    shards.runtime.pass_ms(500)
    assert [record.key.partition for record in shards.written()[2:]] == [0]


def test_many_share_partitions_are_written_down_in_parts() -> None:
    shards = ShareShards(**SETTINGS)
    for number in range(MANY + 5):
        shards.initialize(group_id=f"g{number}")
    parts = [len(shards.runtime.log)]
    append = shards.runtime.append

    def counting(*args: object, **kwargs: object) -> int:
        parts.append(append(*args, **kwargs))  # type: ignore[arg-type]
        return parts[-1]

    shards.runtime.append = counting  # type: ignore[method-assign]
    shards.runtime.pass_ms(1_000)
    assert [after - before for before, after in pairwise(parts)] == [MANY, 5]


def test_a_failed_write_is_repeated_next_time() -> None:
    shards = ShareShards(**SETTINGS)
    shards.initialize()
    shards.runtime.failing = Error.NOT_COORDINATOR
    shards.runtime.pass_ms(1_000)
    shards.runtime.failing = None
    assert len(shards.runtime.log) == 1
    shards.runtime.pass_ms(1_000)
    assert len(shards.runtime.log) == 2


def test_everything_before_the_oldest_needed_snapshot_is_deleted() -> None:
    shards = ShareShards(**PRUNING)
    shards.initialize(partition=0)
    shards.initialize(partition=1)
    shards.write((0, 0, 2, 1))
    shards.runtime.pass_ms(1_000)
    assert shards.deleted_before == []  # the very first record is still needed
    shards.initialize(partition=0, state_epoch=2)  # this writes offset 3
    shards.runtime.pass_ms(1_000)
    assert shards.deleted_before == [1]
    shards.runtime.pass_ms(5_000)
    assert shards.deleted_before == [1]
    shards.delete(partition=1)  # this writes offset 4
    shards.runtime.pass_ms(1_000)
    assert shards.deleted_before == [1, 3]
    shards.delete(partition=0)  # this writes offset 5
    shards.runtime.pass_ms(1_000)
    assert shards.deleted_before == [1, 3, 5]


def test_a_restart_remembers_the_deletable_records() -> None:
    shards = ShareShards(**PRUNING)
    for state_epoch in range(3):
        shards.initialize(state_epoch=state_epoch)
    again = shards.restarted()
    again.runtime.pass_ms(1_000)
    assert again.deleted_before == [2]


def test_nothing_is_deleted_for_uncommitted_snapshots() -> None:
    shards = ShareShards(**PRUNING)
    shards.initialize()
    shards.runtime.lags = True
    begun(shards.shard.ask(lambda shard: shard.initialize(next(iter(shard.known.keys())), 2, 0)))
    shards.runtime.pass_ms(1_000)
    assert shards.deleted_before == []
    shards.runtime.commit()
    assert shards.deleted_before == [1]


def test_without_share_partitions_no_timer_runs_and_none_after_the_end() -> None:
    shards = ShareShards(**SETTINGS)
    shards.shard.start()
    assert shards.runtime.timers.next_ms is None
    shards.initialize()
    assert shards.runtime.timers.next_ms is not None
    shards.shard.unload()
    shards.runtime.pass_ms(20_000_000)
    assert len(shards.runtime.log) == 1


def test_nothing_is_done_while_share_groups_are_off() -> None:
    shards = ShareShards(cold_snapshot_interval_ms=1_000, prune_interval_ms=1_000)
    shards.initialize()
    shards.initialize()
    shards.is_served = False
    shards.runtime.pass_ms(10_000)
    assert (len(shards.runtime.log), shards.deleted_before) == (2, [])

    shards.is_served = True
    shards.shard.served_again()
    shards.runtime.pass_ms(999)
    assert (len(shards.runtime.log), shards.deleted_before) == (2, [])
    shards.runtime.pass_ms(1)
    assert (len(shards.runtime.log), shards.deleted_before) == (3, [2])


def test_nothing_is_pruned_while_share_groups_are_off() -> None:
    shards = ShareShards(**PRUNING)
    shards.initialize()
    shards.initialize()
    shards.is_served = False
    shards.runtime.pass_ms(10_000)
    assert shards.deleted_before == []


def test_a_shard_that_is_loaded_then_waits_until_they_are() -> None:
    shards = ShareShards(**SETTINGS)
    shards.initialize()
    shards.is_served = False
    loaded = shards.restarted()
    loaded.runtime.pass_ms(500)
    records = len(loaded.runtime.log)
    loaded.is_served = True
    loaded.shard.served_again()
    loaded.runtime.pass_ms(999)
    assert len(loaded.runtime.log) == records
    loaded.runtime.pass_ms(1)
    assert len(loaded.runtime.log) == records + 1
