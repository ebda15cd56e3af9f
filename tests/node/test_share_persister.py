"""The way to the durable state of share partitions, in a whole broker and to others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.controller.image import NO_LEADER
from broker.coordination.share_persister import RETRIES_S, SharePersister, ShareStateAsk
from broker.coordination.share_states import SHARE_STATE_TOPIC
from broker.server import Server
from coordinator.persister import ShareState, ShareStateSummary, StateBatch
from protocol.errors import Error, KafkaError
from protocol.waiting import Later
from tests.node.test_share_states import coordinating, topic_id_of
from tests.node.transactional import create
from tests.unit.peers.several_brokers import OWN, SECOND, cluster

TOPIC = b"t" * 16


def told_by(answers: list[Any]) -> Callable[[Later[Any]], None]:
    """Return a callback that puts an answer into the list once it is there. A KafkaError is put there as its code."""

    def told(later: Later[Any]) -> None:
        answer = later.result()
        answers.append(answer.error if isinstance(answer, KafkaError) else answer)

    return lambda later: later.when_answered(lambda: told(later))


def answered(answer: Any) -> Later[Any]:
    later: Later[Any] = Later()
    later.reply(answer)
    return later


async def test_on_one_node_every_answer_comes_in_the_same_call(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    topic_id, persister = topic_id_of(node), node.share_persister
    answers: list[Any] = []
    told = told_by(answers)
    told(persister.initialize("g", topic_id, 0, 1, -1))
    told(persister.read("g", topic_id, 0, 3))
    told(persister.write("g", topic_id, 0, 1, 3, 5, 2, [StateBatch(5, 6, 2, 1)]))
    told(persister.read("g", topic_id, 0, 3))
    told(persister.read("g", topic_id, 0, 2))
    told(persister.read_summary("g", topic_id, 0, 3))
    told(persister.read_summary("g", topic_id, 9, 3))
    told(persister.delete("g", topic_id, 0))
    told(persister.read("g", topic_id, 0, 3))
    assert answers == [
        None,
        ShareState(1, -1, ()),
        None,
        ShareState(1, 5, (StateBatch(5, 6, 2, 1),)),
        Error.FENCED_LEADER_EPOCH,
        ShareStateSummary(1, 3, 5, 2),
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        None,
        Error.INVALID_REQUEST,
    ]


async def test_the_first_request_creates_the_topic_of_states(node: Server) -> None:
    create(node, "t")
    answers: list[Any] = []
    told_by(answers)(node.share_persister.initialize("g", topic_id_of(node), 0, 1, -1))
    assert answers == [None]
    assert SHARE_STATE_TOPIC in node.metadata.image.topics


async def test_a_node_that_has_stopped_tells_nobody(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    await node.stop()
    answers: list[Any] = []
    told_by(answers)(node.share_persister.initialize("g", topic_id_of(node), 0, 1, -1))
    assert answers == []


# --- to other nodes, by a scheduler that a test moves on ----------------------------------------------------------


class Scheduler:
    """A scheduler of retries, which wait until the test lets them come."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_s: float, callback: Callable[..., object], /, *args: Any) -> Scheduler:
        self.waiting.append((delay_s, lambda: callback(*args) and None))
        return self

    def cancel(self) -> None:
        self.waiting.clear()

    def go_on(self) -> float:
        """Make the next retry. Returns its delay."""
        delay_s, callback = self.waiting.pop(0)
        callback()
        return delay_s


class Elsewhere:
    """A cluster in which another node leads the only partition of states. `codes` are that node's next answers."""

    def __init__(self, leader: int = SECOND, codes: Sequence[Error] = ()) -> None:
        self.scheduler = Scheduler()
        self.codes = [*codes]
        self.asked: list[tuple[int, int, str]] = []
        self.answers: list[Any] = []
        self.created: list[str] = []
        self.image = cluster(SHARE_STATE_TOPIC, [leader])
        self.here: list[Error] = []
        self.persister = SharePersister(
            OWN,
            self.image,
            self,
            self.scheduler,
            self.create,
            self.elsewhere,  # type: ignore[arg-type]
        )

    def partition_of(self, key: str) -> int:
        return 0

    async def ask(self, key: Any, question: Any) -> KafkaError | None:
        """Answer as `ShareStates.ask` does."""
        code = self.here.pop(0)
        return KafkaError(code) if code else None

    def create(self, names: Sequence[str]) -> Later[None]:
        self.created += names
        return answered(None)

    def elsewhere(self, node_id: int, asked: ShareStateAsk) -> Later[Any]:
        part: Any = asked.part()
        self.asked.append((node_id, part.partition, asked.kind.request.__name__))  # type: ignore[attr-defined]
        code = self.codes.pop(0) if self.codes else Error.NONE
        return answered(KafkaError(code) if code else None)

    def write(self, partition: int) -> None:
        told_by(self.answers)(self.persister.write("g", TOPIC, partition, 1, 1, 0, 0, ()))


def test_the_leader_elsewhere_is_asked() -> None:
    node = Elsewhere()
    told = told_by(node.answers)
    told(node.persister.initialize("g", TOPIC, 4, 1, -1))
    told(node.persister.read("g", TOPIC, 5, 1))
    node.write(6)
    told(node.persister.delete("g", TOPIC, 7))
    told(node.persister.read_summary("g", TOPIC, 8, 1))
    assert node.asked == [
        (SECOND, 4, "InitializeShareGroupStateRequest"),
        (SECOND, 5, "ReadShareGroupStateRequest"),
        (SECOND, 6, "WriteShareGroupStateRequest"),
        (SECOND, 7, "DeleteShareGroupStateRequest"),
        (SECOND, 8, "ReadShareGroupStateSummaryRequest"),
    ]
    assert node.answers == [None] * 5


@pytest.mark.parametrize(
    "code",
    [
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NETWORK_EXCEPTION,
        Error.NOT_COORDINATOR,
        Error.REQUEST_TIMED_OUT,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_a_passing_error_is_tried_again_and_no_longer_than_with_kafka(code: Error) -> None:
    node = Elsewhere(codes=[code])
    node.write(0)
    assert node.answers == []
    assert node.scheduler.go_on() == RETRIES_S[0]
    assert node.answers == [None]

    node = Elsewhere(codes=[code] * 9)
    node.write(0)
    assert tuple(node.scheduler.go_on() for _ in RETRIES_S) == RETRIES_S
    assert node.answers == [code]
    assert node.scheduler.waiting == []


@pytest.mark.parametrize(
    "code", [Error.FENCED_STATE_EPOCH, Error.INVALID_REQUEST, Error.UNKNOWN_SERVER_ERROR]
)
def test_a_lasting_error_is_reported_at_once(code: Error) -> None:
    node = Elsewhere(codes=[code])
    node.write(0)
    assert node.answers == [code]


def test_an_unknown_partition_in_this_nodes_shard_is_not_asked_again() -> None:
    node = Elsewhere(leader=OWN)
    node.here = [Error.UNKNOWN_TOPIC_OR_PARTITION, Error.NOT_COORDINATOR, Error.NONE]
    node.write(0)
    assert node.answers == [Error.UNKNOWN_TOPIC_OR_PARTITION]
    node.write(0)
    node.scheduler.go_on()
    assert node.answers == [Error.UNKNOWN_TOPIC_OR_PARTITION, None]


def test_later_requests_wait_behind_one_that_is_tried_again() -> None:
    node = Elsewhere(codes=[Error.NOT_COORDINATOR, Error.NOT_COORDINATOR])
    for partition in (0, 1, 0, 0, 2):
        node.write(partition)
    assert [partition for _, partition, _ in node.asked] == [0, 1, 2]
    node.scheduler.go_on()  # the first one again, and what waited behind it
    assert [partition for _, partition, _ in node.asked] == [0, 1, 2, 0, 0, 0]
    assert node.answers == [None] * 4
    node.scheduler.go_on()
    assert node.answers == [None] * 5


def test_if_one_of_the_waiting_requests_is_tried_again_the_rest_waits_behind_it() -> None:
    node = Elsewhere(codes=[Error.NOT_COORDINATOR, Error.NONE, Error.NOT_COORDINATOR])
    for _ in range(3):
        node.write(0)
    node.scheduler.go_on()
    assert (len(node.asked), node.answers) == (3, [None])
    assert node.scheduler.go_on() == RETRIES_S[0]
    assert (len(node.asked), node.answers) == (5, [None] * 3)


def test_later_requests_wait_while_another_node_is_asked() -> None:
    """Else the later write would come first if the first one has to be repeated, and the older start offset would
    follow the later one."""
    node = Elsewhere()
    held: list[Callable[[Any], None]] = []
    said: list[int] = []

    def elsewhere(node_id: int, asked: ShareStateAsk) -> Later[Any]:
        part: Any = asked.part()
        said.append(part.start_offset)
        later: Later[Any] = Later()
        held.append(later.reply)
        return later

    node.persister._elsewhere = elsewhere
    for start_offset in (0, 5, 9):
        told_by(node.answers)(node.persister.write("g", TOPIC, 0, 1, 1, start_offset, 0, ()))
    assert said == [0]
    held.pop()(KafkaError(Error.NETWORK_EXCEPTION))
    assert said == [0]
    node.scheduler.go_on()
    held.pop()(None)
    held.pop()(None)
    assert (said, node.answers) == ([0, 0, 5, 9], [None, None])
    held.pop()(None)
    assert (node.answers, node.persister._ahead, node.persister._behind) == ([None] * 3, {}, {})


def test_without_a_leader_the_persister_tries_again() -> None:
    node = Elsewhere(leader=NO_LEADER)
    node.write(0)
    assert node.asked == []
    node.image.topics[SHARE_STATE_TOPIC].partitions[0].leader = SECOND
    node.scheduler.go_on()
    assert node.answers == [None]


def test_a_topic_that_cant_be_made_is_made_later() -> None:
    node = Elsewhere()
    topic = node.image.topics.pop(SHARE_STATE_TOPIC)
    node.write(0)
    assert node.created == [SHARE_STATE_TOPIC]
    node.image.topics[SHARE_STATE_TOPIC] = topic
    node.scheduler.go_on()
    assert node.answers == [None]


def test_after_a_stop_no_request_is_answered() -> None:
    node = Elsewhere(codes=[Error.NOT_COORDINATOR])
    node.write(0)
    node.write(0)
    node.persister.stop()
    assert node.scheduler.waiting == []
    node.write(0)
    assert node.answers == []


def test_waiting_requests_are_not_woken_after_an_answer_that_stops_the_persister() -> None:
    node = Elsewhere(codes=[Error.NOT_COORDINATOR])
    node.persister.write("g", TOPIC, 0, 1, 1, 0, 0, ()).when_answered(node.persister.stop)
    node.write(0)
    node.scheduler.go_on()
    assert [partition for _, partition, _ in node.asked] == [0, 0]
    assert node.answers == []
