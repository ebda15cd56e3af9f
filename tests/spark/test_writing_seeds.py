"""A task's writer against brokers that follow Kafka's rules for sequences, with leaders that move amid it, by seeds."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

from barnabas.spark import arrow_batches
from barnabas.spark import errors as codes
from barnabas.spark import tasks as writing
from barnabas.spark.batch_format import read_header
from barnabas.spark.errors import DuplicateWriteError, ResponseError
from barnabas.spark.plan import Blob, Plan, Target
from barnabas.spark.tasks import Writer
from barnabas.spark.wire import Appended, Outgoing, Pending

PRODUCER = (7, 3)
BEFORE_AN_APPEND = (codes.NOT_LEADER_OR_FOLLOWER, codes.LEADER_NOT_AVAILABLE, codes.NOT_ENOUGH_REPLICAS)
OUT_OF_ORDER = 45
DUPLICATE_AT_MS = 1
Place = tuple[str, int]


@dataclass
class Log:
    leader: int
    batches: list[tuple[int, int, bytes]] = field(default_factory=list)  # sequence, records, body
    end: int = 0


@dataclass
class Brokers:
    """Each works its requests off in their order, some time before the answer is waited for."""

    chance: random.Random
    nodes: int
    logs: dict[Place, Log]
    lost_answers: bool
    waiting: dict[int, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    most: int = 0

    def send(self, leader: int, transactional_id: str, batches: Sequence[Outgoing]) -> Pending:
        future: list[Any] = []
        for one in batches:  # as they are when they are sent: what changes after that is of no account
            future.append((one.topic, one.partition, b"".join(one.pieces)))
        topics = [one.topic for one in batches]
        assert len({*topics}) == 1 + sum(a != b for a, b in pairwise(topics))
        self.waiting[leader].append((batches, future))
        self.most = max(self.most, sum(map(len, self.waiting.values())))
        return Pending([(one.topic, one.partition) for one in batches], (leader, future))

    def wait(self, pending: Pending) -> list[Appended | ResponseError]:
        leader, future = pending.future
        for other in self.waiting:
            while self.waiting[other] and self.chance.random() < 0.3:
                self._work(other)
        while any(one is future for _, one in self.waiting[leader]):
            self._work(leader)
        return future

    def _work(self, leader: int) -> None:
        batches, future = self.waiting[leader].popleft()
        for number, (topic, partition, data) in enumerate(future):
            assert data == b"".join(batches[number].pieces)
            if self.chance.random() < 0.05:
                self.logs[topic, partition].leader = self.chance.randrange(self.nodes)
            future[number] = self._append(leader, (topic, partition), data)

    def _append(self, leader: int, place: Place, data: bytes) -> Appended | ResponseError:
        log = self.logs[place]
        if log.leader != leader:
            return ResponseError(codes.NOT_LEADER_OR_FOLLOWER, "NotLeader", "Produce")
        if self.chance.random() < 0.05:
            return ResponseError(self.chance.choice(BEFORE_AN_APPEND), "Refused", "Produce")
        header = read_header(data, 0)
        assert (header.producer_id, header.producer_epoch) == PRODUCER
        last = log.batches[-1] if log.batches else None
        if last is not None and (header.base_sequence, header.record_count) == last[:2]:
            return Appended(log.end - last[1], DUPLICATE_AT_MS)
        if header.base_sequence != (last[0] + last[1] if last else 0):
            return ResponseError(OUT_OF_ORDER, "OutOfOrderSequenceNumber", "Produce")
        base = log.end
        log.end += header.record_count + self.chance.randrange(2)  # others write, too
        log.batches.append((header.base_sequence, header.record_count, data[61:]))
        if self.lost_answers and self.chance.random() < 0.02:
            log.end = base + header.record_count
            return ResponseError(codes.NOT_LEADER_OR_FOLLOWER, "NotLeader", "behind the append")
        return Appended(base, -1)

    def leaders(self, topics: list[str]) -> dict[str, dict[int, int]]:
        found: dict[str, dict[int, int]] = {topic: {} for topic in topics}
        for (topic, partition), log in self.logs.items():
            found[topic][partition] = log.leader
        return found


@pytest.mark.parametrize("lost_answers", [False, True])
@pytest.mark.parametrize("seed", range(100))
def test_each_batch_exists_once_and_in_order_or_the_try_fails(
    monkeypatch: pytest.MonkeyPatch, seed: int, lost_answers: bool
) -> None:
    monkeypatch.setattr(writing, "PAUSE_S", 0)
    monkeypatch.setattr(writing, "REQUEST_BYTES", 1500)
    chance = random.Random(seed)
    monkeypatch.setattr(writing, "IN_FLIGHT_BYTES", chance.choice([2000, 16 << 20]))
    targets = [Target(topic, number) for topic in ("a", "b") for number in range(chance.randrange(1, 8))]
    brokers = Brokers(chance, 3, {target: Log(chance.randrange(3)) for target in targets}, lost_answers)
    plan = Plan(
        "", {}, 1, "id", *PRODUCER, 0, None, "none", 1 << 20, tuple(targets),
        tuple(chance.randrange(3) for _ in targets), {"a": 1 << 20, "b": 1 << 20}, 1,
    )  # fmt: skip
    connection: Any = brokers
    writer = Writer(plan, connection, leaders=list(plan.leaders))
    sent: dict[Place, list[bytes]] = defaultdict(list)
    failure = None
    try:
        for number in range(200):
            target = chance.randrange(len(targets))
            body = b"%d " % number * chance.randrange(1, 200)
            batch = arrow_batches._sealed(memoryview(body), chance.randrange(1, 5), 0, 0, None)
            sent[targets[target]].append(body)
            writer.send(Blob(target, batch))
        writer.finish()
    except (ResponseError, DuplicateWriteError) as error:
        failure = error
    assert brokers.most <= writing.IN_FLIGHT
    if failure is None:
        held = {
            place: [body for _, _, body in log.batches] for place, log in brokers.logs.items() if log.batches
        }
        assert held == sent
        told = {targets[one.target]: one.records for one in writer.partitions.values()}
        assert told == {
            place: sum(records for _, records, _ in brokers.logs[place].batches) for place in sent
        }
    else:
        assert lost_answers or isinstance(failure, ResponseError)
        assert getattr(failure, "code", None) != OUT_OF_ORDER
    for (
        place,
        log,
    ) in brokers.logs.items():  # whatever failed, what is there is the beginning of what was sent
        assert [body for _, _, body in log.batches] == sent[place][: len(log.batches)]
