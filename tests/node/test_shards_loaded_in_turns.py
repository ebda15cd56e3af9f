"""A long log is loaded in turns of the loop: what is served meanwhile, and what a shard knows in the end."""

from __future__ import annotations

import asyncio
import logging

import pytest

from broker.coordination.hosted_shard import STEP_COST
from broker.coordination.hosted_shards import AT_ONCE
from broker.server import Server
from protocol.errors import Error, KafkaError
from tests.node.hosting import NONSENSE, Hosting, elect_again
from tests.node.transactional import create, delete


def append_many(hosting: Hosting, index: int, steps: int) -> None:
    """So many steps of loading."""
    batch = [(b"%d" % number, b"value") for number in range(STEP_COST)]
    for _ in range(steps):
        hosting.runtime_of(hosting.node.partitions.get("t", index)).append(batch)


async def loaded(hosting: Hosting, index: int) -> None:
    """Some turns of the loop, and no more than it takes."""
    for _ in range(2 * AT_ONCE):
        if index in hosting.loaded():
            return
        await asyncio.sleep(0)
    raise AssertionError(f"the shard of {index} isn't loaded")


@pytest.mark.limit("broker.coordination.hosted_shards.AT_ONCE")
async def test_a_long_log_is_loaded_in_turns_and_the_next_partition_waits_for_it(node: Server) -> None:
    create(node, "t", 3)
    hosting = Hosting(node)
    append_many(hosting, 0, AT_ONCE - 1)
    append_many(hosting, 1, 3)
    hosting.append(2, b"a")

    hosting.shards.follow()

    assert hosting.loaded() == [0]
    assert hosting.error_at(1) is hosting.error_at(2) is Error.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        hosting.shards.all()
    await asyncio.sleep(0)
    assert hosting.loaded() == [0]
    await loaded(hosting, 1)
    await loaded(hosting, 2)
    assert hosting.events[-1] == "start"
    assert "replay a" in hosting.events
    assert hosting.events.count("start") == 3


async def test_a_shard_has_all_that_came_to_its_log_while_it_was_loaded(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, AT_ONCE + 1)
    hosting.shards.follow()

    hosting.append(0, b"late")
    await loaded(hosting, 0)

    assert hosting.events[-2:] == ["replay late", "start"]


async def test_what_a_shard_is_told_while_it_is_loaded_it_learns_once_it_has_started(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, AT_ONCE + 1)
    hosting.shards.follow()

    hosting.shards.tell(lambda shard: shard.told("first"))
    hosting.shards.tell(lambda shard: shard.told("second"))
    await loaded(hosting, 0)

    assert hosting.events[-3:] == ["start", "first", "second"]


async def test_a_shard_that_goes_while_it_is_loaded_never_starts(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, AT_ONCE + 1)
    hosting.shards.follow()

    delete(node, "t")
    hosting.shards.follow()
    for _ in range(AT_ONCE):
        await asyncio.sleep(0)

    assert hosting.error_at(0) is Error.NOT_COORDINATOR
    assert {event.split()[0] for event in hosting.events} == {"replay"}


@pytest.mark.parametrize("reloads", [False, True])
async def test_a_new_leader_epoch_comes_while_a_shard_is_loaded(node: Server, reloads: bool) -> None:
    create(node, "t")
    hosting = Hosting(node, reloads_in_new_epoch=reloads)
    append_many(hosting, 0, AT_ONCE + 1)
    hosting.shards.follow()
    replayed = len(hosting.events)

    elect_again(node, "t")
    hosting.shards.follow()
    assert len(hosting.events) == (2 if reloads else 1) * replayed
    await loaded(hosting, 0)

    assert hosting.shards.at(0).leader_epoch == (1 if reloads else 0)
    assert hosting.events.count("start") == 1
    assert hosting.events.count("replay 0") == AT_ONCE + 1 + (AT_ONCE if reloads else 0)


async def test_a_partition_that_turns_out_not_to_be_readable_holds_up_no_other(
    node: Server, caplog: pytest.LogCaptureFixture
) -> None:
    create(node, "t", 2)
    hosting = Hosting(node)
    append_many(hosting, 0, AT_ONCE + 1)
    hosting.append(0, NONSENSE)
    hosting.shards.follow()

    with caplog.at_level(logging.ERROR, "barnabas.coordination"):
        await loaded(hosting, 1)

    assert caplog.messages == [
        f"the things of t-0 can't be loaded: at offset {STEP_COST * (AT_ONCE + 1)}: nonsense"
    ]
    assert hosting.error_at(0) is Error.COORDINATOR_LOAD_IN_PROGRESS
    hosting.shards.tell(lambda shard: shard.told("all who can be told"))
    assert hosting.events[-2:] == ["start", "all who can be told"]


async def test_nothing_is_compacted_while_it_is_loaded(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, AT_ONCE + 1)
    partition = node.partitions.get("t", 0)
    hosting.shards.follow()

    assert not node.cleaner._may_be_cleaned(partition)
    await loaded(hosting, 0)
    assert node.cleaner._may_be_cleaned(partition)


async def test_who_stops_loads_nothing_more(node: Server) -> None:
    create(node, "t")
    hosting = Hosting(node)
    append_many(hosting, 0, AT_ONCE + 1)
    hosting.shards.follow()

    hosting.shards.stop_loading()
    for _ in range(AT_ONCE):
        await asyncio.sleep(0)

    assert hosting.loaded() == []
    assert hosting.error_at(0) is Error.COORDINATOR_LOAD_IN_PROGRESS
