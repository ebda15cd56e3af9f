"""Long requests are done in turns of the loop: how much is done in one turn, and who is served in between."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from broker.environment.scheduler import TURN_S, Watchdog
from broker.environment.threads import Asker, Compute, Computed, ComputingAtOnce
from broker.handlers import metadata
from broker.handlers.list_transactions import MOST_COMPILED_IN_PASSING
from broker.network.turns import PER_TURN, Turns, portions
from broker.server import Server
from protocol.errors import Error
from protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    ListTransactionsRequest,
)
from protocol.waiting import Later, turn
from storage import producer_state
from tests.node.transactional import Producer, coordinating
from tests.support.manual_clock import ManualClock
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome


class ManualScheduler:
    """A scheduler that calls when the test says so."""

    def __init__(self) -> None:
        self.calls: deque[Callable[[], object]] = deque()

    def call_soon(self, call: Callable[[], object]) -> ManualScheduler:
        self.calls.append(call)
        return self

    def cancel(self) -> None:
        self.calls.clear()

    def turn(self) -> None:
        self.calls.popleft()()


async def work(name: str, steps: int, done: list[str]) -> str:
    for step in range(steps):
        done.append(f"{name}{step}")
        if step < steps - 1:
            await turn()
    return name


def under_way() -> tuple[Turns, ManualScheduler, list[str]]:
    scheduler = ManualScheduler()
    return Turns(scheduler), scheduler, []  # type: ignore[arg-type]


def test_work_of_one_step_is_answered_at_once() -> None:
    turns, scheduler, done = under_way()
    assert turns.answer(work("a", 1, done)) == "a"
    assert not scheduler.calls


def test_each_that_is_long_takes_a_step_in_a_turn() -> None:
    turns, scheduler, done = under_way()
    answers = [turns.answer(work(name, 3, done)) for name in "ab"]
    assert done == ["a0", "b0"]
    for steps in (4, 6):
        assert len(scheduler.calls) == 1
        scheduler.turn()
        assert done == ["a0", "b0", "a1", "b1", "a2", "b2"][:steps]
    assert [answer.result() for answer in answers if isinstance(answer, Later)] == ["a", "b"]
    assert not scheduler.calls


def test_a_turn_that_is_over_leaves_the_others_their_step_in_the_next() -> None:
    scheduler, done, clock = ManualScheduler(), [], ManualClock()
    turns = Turns(scheduler, None, Watchdog(clock.monotonic_s))  # type: ignore[arg-type]

    async def long(name: str) -> None:
        await turn()
        done.append(name)
        clock.advance_ms(1_000 * TURN_S + 1)
        await turn()

    for name in "abc":
        turns.answer(long(name))
    for count in (1, 2, 3):
        scheduler.turn()
        assert len(done) == count


def test_an_error_in_a_later_step_fails_the_request() -> None:
    turns, scheduler, _ = under_way()

    async def failing() -> str:
        await turn()
        raise ValueError("on the way")

    answer = turns.answer(failing())
    assert isinstance(answer, Later)
    scheduler.turn()
    with pytest.raises(ValueError, match="on the way"):
        answer.result()


def test_nothing_more_is_done_after_a_hang_up_or_a_stop() -> None:
    turns, scheduler, done = under_way()
    first, second = (turns.answer(work(name, 3, done)) for name in "ab")
    assert isinstance(first, Later)
    assert isinstance(second, Later)
    first.abandon()
    scheduler.turn()
    assert done == ["a0", "b0", "b1"]
    turns.stop()
    assert not scheduler.calls
    second.abandon()


@pytest.mark.limit("broker.network.turns.PER_TURN")
def test_a_list_is_gone_through_in_portions_and_a_short_one_as_it_is() -> None:
    short = [*range(PER_TURN)]
    assert [*portions(short)] == [short]
    assert next(iter(portions(short))) is short
    assert [len(some) for some in portions(range(2 * PER_TURN + 1))] == [PER_TURN, PER_TURN, 1]


async def served_meanwhile(node: Server, request: Any, version: int) -> tuple[Any, int]:
    """Return the answer to a long request, and how many answers another client got before it."""
    with Client(Straight(node)) as long, Client(Straight(node)) as short:
        sent = long.send(request, version)
        served = 0
        while (answer := long.receive(sent, within_s=0)) is Outcome.SILENCE:
            await short.answer(MetadataRequest(topics=[]), 12)
            await asyncio.sleep(0)
            served += 1
        assert not isinstance(answer, Outcome)
        return answer.message, served


async def test_others_are_served_while_a_client_asks_for_many_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    looked_up: list[int] = []
    find = metadata._Topics._find_by_name

    def counted(self: Any, names: list[str], *given: Any) -> Any:
        looked_up.append(len(names))
        return find(self, names, *given)

    monkeypatch.setattr(metadata._Topics, "_find_by_name", counted)
    names = ["t", *(f"nowhere-{number}" for number in range(5 * PER_TURN - 1))]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )

    answer, served = await served_meanwhile(node, request, 12)

    assert [count for count in looked_up if count] == [PER_TURN] * 5
    assert served >= 5
    assert [topic.name for topic in answer.topics] == names


async def test_others_are_served_while_all_transactional_ids_are_gone_through(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    Producer(node, "wanted").begin()
    [shard] = node.transactions.all_shards()
    known = shard.transactions["wanted"]
    for number in range(3 * PER_TURN):
        shard.transactions[f"other-{number}"] = known
    request = ListTransactionsRequest(transactional_id_pattern="want.*")

    answer, served = await served_meanwhile(node, request, 2)

    assert served >= 6  # the letters of all ids, then the ids
    assert {each.transactional_id for each in answer.transaction_states} == {"wanted"}


async def test_ids_of_many_shards_take_turns_as_those_of_one_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    Producer(node, "wanted").begin()
    [shard] = node.transactions.all_shards()
    known = shard.transactions["wanted"]
    for number in range(PER_TURN // 5):
        shard.transactions[f"other-{number}"] = known
    monkeypatch.setattr(node.transactions, "all_shards", lambda: [shard] * 15)

    _, served = await served_meanwhile(node, ListTransactionsRequest(transactional_id_pattern="want.*"), 2)

    assert served >= 6


async def test_others_are_served_while_a_few_ids_are_expensive_to_match(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    Producer(node, "wanted").begin()
    [shard] = node.transactions.all_shards()
    known = shard.transactions["wanted"]
    luck = random.Random(1)
    for _ in range(30):
        transactional_id = "".join(luck.choice("ab") for _ in range(60))
        shard.transactions[transactional_id] = replace(known, transactional_id=transactional_id)
    request = ListTransactionsRequest(transactional_id_pattern="(.*a.{300}){5}")

    _, served = await served_meanwhile(node, request, 2)

    assert served >= 5


@pytest.mark.limit("broker.handlers.list_transactions.MOST_COMPILED_IN_PASSING")
@pytest.mark.parametrize(
    "text",
    ["a" * (MOST_COMPILED_IN_PASSING + 1), "(" * (MOST_COMPILED_IN_PASSING + 1)],
    ids=["right", "wrong"],
)
async def test_a_long_expression_is_compiled_beside_the_loop(tmp_path: Path, text: str) -> None:
    node = await coordinating(tmp_path)
    computed: list[Compute] = []

    class Counted(ComputingAtOnce):
        def __call__(self, compute: Compute, then: Computed, asker: Asker | None = None, /) -> None:
            computed.append(compute)
            super().__call__(compute, then, asker)

    node.turns._computing = Counted()
    for pattern, beside in ((text[:MOST_COMPILED_IN_PASSING], 0), (text, 1)):
        answer, _ = await served_meanwhile(node, ListTransactionsRequest(transactional_id_pattern=pattern), 2)
        assert len(computed) == beside
        assert answer.error_code == (Error.INVALID_REGULAR_EXPRESSION if "(" in text else Error.NONE)


async def test_others_are_served_while_all_producers_of_a_partition_are_described(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    partition = node.partitions.find("t", 0)
    assert partition is not None
    partition.log.producers.producers.update(
        (number, producer_state.Producer(number)) for number in range(3 * PER_TURN)
    )
    request = DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0])])

    answer, served = await served_meanwhile(node, request, 0)

    assert served >= 3
    [described] = answer.topics[0].partitions
    assert [each.producer_id for each in described.active_producers] == [*range(3 * PER_TURN)]
    partition.log.producers.producers.clear()  # none of them has written anything
