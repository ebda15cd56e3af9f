"""Two hundred members with the defaults of Kafka's clients join, die and leave. In the end all partitions are shared
again."""

from __future__ import annotations

import random

from coordinator.settings import ConsumerTimeouts
from tests.unit.coordinator.group.consumer.consumers import Consumers, FakeTopics

MEMBERS = 200
PARTITIONS = 1_000
HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
TICK_MS = 250


class Consumer:
    """A client that sends heartbeats at its interval, or at once when its assignment changes. If it is fenced, it joins
    again."""

    def __init__(self, groups: Consumers, name: str, first_ms: int) -> None:
        self.groups = groups
        self.name = name
        self.next_ms = first_ms
        self.epoch = 0
        self.owned: list[int] | None = []

    def act(self, now_ms: int) -> None:
        if now_ms < self.next_ms:
            return
        if self.epoch == 0:
            answer = self.groups.enter(self.name)
        else:
            answer = self.groups.beat(self.name, self.epoch, owned={"t": self.owned or ()})
        self.next_ms = now_ms + HEARTBEAT_MS
        if answer.error_code != 0:
            self.epoch, self.owned = 0, []
            self.next_ms = now_ms
            return
        self.epoch = answer.member_epoch
        assigned = self.groups.assigned(answer)
        if assigned is not None:
            given = assigned.get("t", [])
            if not set(self.owned or ()) <= {*given}:
                self.next_ms = now_ms + TICK_MS  # it reports at once that it has given something up
            self.owned = given


def settle(groups: Consumers, clients: list[Consumer], limit_ms: int) -> int:
    """Go on until all partitions are shared, and return how long that took."""
    started_ms = groups.runtime.elapsed_ms
    while groups.runtime.elapsed_ms - started_ms <= limit_ms:
        for client in clients:
            client.act(groups.runtime.elapsed_ms)
        owned = [partition for client in clients for partition in client.owned or ()]
        assert len(owned) <= PARTITIONS
        if len(owned) == PARTITIONS and groups.state == "Stable":
            assert len({*owned}) == PARTITIONS
            counts = [len(client.owned or ()) for client in clients]
            assert max(counts) - min(counts) <= 1
            return groups.runtime.elapsed_ms - started_ms
        groups.runtime.pass_ms(TICK_MS)
    raise AssertionError(f"{groups.state} after {limit_ms} ms")


def test_two_hundred_members_share_a_thousand_partitions_in_time() -> None:
    chance = random.Random(5)
    groups = Consumers(FakeTopics(t=PARTITIONS), timeouts=ConsumerTimeouts())
    clients = [Consumer(groups, f"member-{number}", chance.randrange(5_000)) for number in range(MEMBERS)]
    # The last member comes after 5 s. Then come two rounds of heartbeats: one to give up, one to get.
    settle(groups, clients, 5_000 + 3 * HEARTBEAT_MS)

    epoch = groups.group.epoch
    for _ in range(8):
        groups.runtime.pass_ms(HEARTBEAT_MS)
        for client in clients:
            client.act(groups.runtime.elapsed_ms)
    assert groups.group.epoch == epoch, "a group that nobody changes doesn't rebalance"

    dead, clients = clients[:40], clients[40:]
    assert dead
    settle(groups, clients, SESSION_MS + 3 * HEARTBEAT_MS)

    for client in clients[:30]:
        groups.beat(client.name, -1)
    clients = clients[30:]
    settle(groups, clients, 3 * HEARTBEAT_MS)

    again = groups.restarted()
    for client in clients:
        client.groups = again
    assert settle(again, clients, 3 * HEARTBEAT_MS) == 0
