"""Some seeds of the simulation, and two brokers in one process: 8 in passing, 60 with `make test`, and as many as you
like with `make simulation`."""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

import pytest

from broker.handlers import fetch
from broker.replicas.fetching import DelayedFetch, Reading
from coordinator.group.consumer.heartbeats import LongHeartbeat
from protocol.errors import Error
from tests.simulation.course import Result
from tests.simulation.elsewhere import digests_elsewhere
from tests.simulation.machine import Machine, World
from tests.simulation.producers import IdempotentProducer
from tests.simulation.reader import Reader
from tests.simulation.simulation import simulate
from tests.simulation.topics import create_topic
from tests.simulation.virtual_loop import VirtualLoop, run
from tests.simulation.wire_client import WireClient
from tests.simulation.work import Work

IN_PASSING = 9
LONG = 7
"""A seed with KIP-848 consumer groups in which every request is long."""
STREAMS = 3
"""A seed with a streams group."""
FULL = 5
"""A seed in which the disk is full now and then."""
ELSEWHERE = (12, LONG)
"""Seeds that another process plays, too."""

SEEDS = range(1, int(os.environ.get("SIMULATED_SEEDS", "8")) + 1)


class Played(NamedTuple):
    """A seed, and how often something long was continued."""

    result: Result
    long: Counter[str]


@cache
def played(seed: int) -> Played:
    """Play a seed once for all tests that look at it."""
    with pytest.MonkeyPatch.context() as patched:
        done = counted(patched)
        return Played(simulate(seed), done)


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the steps that only long requests have."""
    done: Counter[str] = Counter()

    def count(long: type, step: str) -> None:
        carry_out = getattr(long, step)

        def counting(self: Any) -> Any:
            done[step] += 1
            return carry_out(self)

        monkeypatch.setattr(long, step, counting)

    count(LongHeartbeat, "settle")
    read, wait = Reading.read, DelayedFetch.wait

    def counting_read(reading: Reading, targets: Any) -> None:
        if fetch.PER_TURN == 0:  # it is read in turns
            done["read"] += 1
        read(reading, targets)

    def counting_wait(delayed: DelayedFetch, *ports: Any) -> Any:
        if fetch.PER_TURN == 0:
            done["wait"] += 1
        return wait(delayed, *ports)

    monkeypatch.setattr(Reading, "read", counting_read)
    monkeypatch.setattr(DelayedFetch, "wait", counting_wait)
    return done


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_that_counts_is_lost_however_the_broker_dies(seed: int) -> None:
    assert played(seed).result.anomalies == []


@pytest.mark.parametrize("seed", [IN_PASSING, LONG])
def test_a_seed_has_the_same_history_twice(seed: int) -> None:
    first, second = played(seed).result, simulate(seed)
    assert first.history.lines == second.history.lines
    assert first.history.digest == second.history.digest
    assert first.history.digest != played(1).result.history.digest


def test_in_some_seeds_whatever_is_asked_is_long() -> None:
    assert not played(IN_PASSING).long
    assert {*played(LONG).long} == {"settle", "read", "wait"}


def test_in_some_seeds_there_is_a_group_of_kafka_streams() -> None:
    with_streams, without = (
        any("StreamsMembers-0: owns" in line for line in played(seed).result.history.lines)
        for seed in (STREAMS, IN_PASSING)
    )
    assert with_streams
    assert not without


def test_in_some_seeds_the_disk_is_full_now_and_then() -> None:
    result = played(FULL).result
    assert result.work.counts["writes that a full disk refused"] > 0
    assert result.anomalies == []


def test_the_history_of_a_seed_does_not_depend_on_the_hashes_of_strings() -> None:
    """This process has its own seed for them, or the one that it was given."""
    elsewhere = digests_elsewhere("tests.simulation.simulation", ELSEWHERE)
    assert elsewhere == [str(played(seed).result.history.digest) for seed in ELSEWHERE]


def test_two_brokers_on_one_clock_each_serve_a_producer() -> None:
    async def main(loop: VirtualLoop) -> None:
        world = World(loop, 1)
        machines = [Machine(world, name, port) for name, port in (("one", 9092), ("two", 9093))]
        for machine in machines:
            assert await machine.start()
        servers = [machine.server for machine in machines]
        assert servers[0] is not None
        assert servers[1] is not None
        assert servers[0].cluster_id != servers[1].cluster_id
        works = [Work(), Work()]
        producing = []
        for machine, work in zip(machines, works, strict=True):
            client = WireClient(
                world.network, f"producer-of-{machine.name}", machine.port, world.luck(machine.name)
            )
            await create_topic(client, f"of-{machine.name}", 1)
            producer = IdempotentProducer(client, work, [(f"of-{machine.name}", 0)])
            producing.append(loop.create_task(producer.run(10)))
        for task in producing:
            await task
        for machine, work in zip(machines, works, strict=True):
            client = WireClient(
                world.network, f"reader-of-{machine.name}", machine.port, world.luck("reader")
            )
            reader = Reader(client, work, (f"of-{machine.name}", 0))
            values = await reader.read_all()
            assert values == {sent.offset: sent.value for sent in work.sent}
            assert len(values) >= 10
        # one ends, and the other doesn't notice
        machines[0].die(power_lost=True)
        client = WireClient(world.network, "late", machines[1].port, world.luck("late"))
        late = Reader(client, Work(), ("of-two", 0))
        assert await late.poll() is Error.NONE
        assert len(late.values) == len(works[1].sent)
        await machines[1].stop()
        assert works[0].anomalies == works[1].anomalies == []

    run(main)
