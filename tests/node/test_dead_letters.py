"""The dead letter queues of share groups on a whole node: what they contain, and what becomes of the records."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.controller.image import GROUP_RESOURCE
from broker.environment.threads import ComputingAtOnce
from broker.replicas.partition import Partition
from broker.server import Server
from broker.shares import dead_letters
from broker.shares.dead_letters import DeadLetterQueues, Produced
from broker.shares.share_partition_manager import share_settings
from coordinator.persister import StateBatch
from coordinator.share_partition.ports import DeadLetter
from protocol.errors import Error
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import Record, build_batch, read_records
from tests.node.shares import ACCEPT, GROUP, REJECT, RELEASE, Shares, acquired, errors
from tests.support.topics import topics_of
from tests.support.whole_server import started, take_turns
from tests.support.wishes import pauses

ARCHIVING, ARCHIVED, ACKNOWLEDGED = 3, 4, 2
QUEUE = "dlq.t"
RETRIES = len(dead_letters.RETRIES_S)


class Dying(Shares):
    """A group with a dead letter queue, whose topic doesn't exist yet."""

    def __init__(self, node: Server, **settings: str) -> None:
        super().__init__(node)
        self.overrides |= {dead_letters.TOPIC_NAME: QUEUE} | settings
        node.metadata.image.configs[GROUP_RESOURCE, GROUP] = dict(self.overrides)
        self.created: list[CreatableTopic] = []
        self.waits: list[tuple[float, Callable[[], object]]] = []
        node.turns._computing = ComputingAtOnce()
        self.queues = self.shares._dead_letters = DeadLetterQueues(
            node.node_id,
            node.config,
            node.metadata.image,
            node.partitions,
            self._create,
            node.clock,
            self,  # type: ignore[arg-type]
            node.turns,
            node.stop_on_failure,
            None,
        )
        self.shares.settings_of = lambda group_id: share_settings(
            node.config, self.overrides, has_dead_letters=True
        )

    async def _create(self, wanted):  # type: ignore[no-untyped-def]
        self.created += wanted
        return await self.node.topics.create(wanted)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: object) -> Any:
        """Note the call, in place of the queues' scheduler."""
        self.waits.append((delay_s, partial(callback, *args)))
        return SimpleNamespace(cancel=self.waits.clear)

    def wait(self) -> float:
        """Wait until the queue is asked again. Returns how long that takes."""
        [(delay_s, callback)] = self.waits
        self.waits.clear()
        callback()
        take_turns(self.node)
        return delay_s

    def make_queue(self, partitions: int = 1, **configs: str) -> None:
        configs = {"errors.deadletterqueue.group.enable": "true"} | {
            name.replace("_", "."): value for name, value in configs.items()
        }
        topics_of(self.node).create(
            [
                CreatableTopic(
                    name=QUEUE,
                    num_partitions=partitions,
                    replication_factor=1,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
                )
            ]
        )

    def queued(self, index: int = 0) -> list[Record]:
        """Return the records of the queue."""
        log = self.node.partitions.get(QUEUE, index).log
        return [
            record
            for _, batch in log.batches(log.log_start_offset, upper_bound=log.log_end_offset)
            for record in read_records(batch)
        ]

    def offsets(self, index: int = 0) -> list[int]:
        return [int(dict(record.headers)[b"__dlq.errors.offset"] or b"") for record in self.queued(index)]

    def state(self, index: int = 0):  # type: ignore[no-untyped-def]
        return self.persisters.states[GROUP, self.topic_id, index]

    def written(self, index: int = 0) -> list[StateBatch]:
        return [batch for _, _, batches in self.state(index).writes for batch in batches]


def go_on(dying: Dying) -> None:
    """Do everything that can be done without time passing."""
    take_turns(dying.node)


def reject(dying: Dying, *offsets: int, index: int = 0, count: int = 5) -> None:
    dying.produce(count, index=index)
    client = dying.client()
    client.fetch(0, index)
    acks = [(offset, offset, REJECT) for offset in offsets]
    assert errors(client.acknowledge(1, {index: acks})) == {index: 0}


async def test_rejected_records_are_in_the_queue_and_accepted_ones_are_not(node: Server) -> None:
    dying = Dying(node)
    dying.make_queue()
    dying.produce(5)
    client = dying.client()
    client.fetch(0, 0)
    acks = [(0, 1, ACCEPT), (2, 3, REJECT), (4, 4, ACCEPT)]
    assert errors(client.acknowledge(1, {0: acks})) == {0: 0}  # the answer doesn't wait for the letters
    assert dying.written()[1] == StateBatch(2, 3, ARCHIVING, 1)
    assert acquired(client.fetch(2, 0)) == {}
    go_on(dying)
    assert dying.written()[-1] == StateBatch(2, 3, ARCHIVED, 1)
    assert dying.state().writes[-1][0] == 2  # the start moves with the next write
    first, _ = dying.queued()
    assert (first.key, first.value) == (None, None)
    assert first.headers == (
        (b"__dlq.errors.topic", b"t"),
        (b"__dlq.errors.partition", b"0"),
        (b"__dlq.errors.offset", b"2"),
        (b"__dlq.errors.group", b"g"),
        (b"__dlq.errors.delivery.count", b"1"),
        (b"__dlq.errors.message", b"Offset rejected by client."),
    )
    assert dying.offsets() == [2, 3]
    share = dying.shares.find(GROUP, (dying.topic_id, 0)).share  # type: ignore[union-attr]
    assert (share.records.start_offset, share.burying) == (5, 0)


async def test_records_delivered_too_often_are_in_the_queue(node: Server) -> None:
    dying = Dying(node, **{"share.delivery.count.limit": "2"})
    dying.make_queue()
    dying.produce(3)
    client = dying.client()
    client.fetch(0, 0)
    assert errors(client.acknowledge(1, {0: [(0, 2, RELEASE)]})) == {0: 0}
    client.fetch(2, 0)
    go_on(dying)
    assert dying.queued() == []
    dying.pass_ms(30_000)  # the locks end
    go_on(dying)
    while dying.offsets() != [0, 1, 2]:  # the last deliveries are one record each
        client.fetch(0, 0, member="n")
        dying.pass_ms(30_000)
        go_on(dying)
    assert {dict(record.headers)[b"__dlq.errors.message"] for record in dying.queued()} == {
        b"Offset delivery count exceeded the threshold."
    }


async def test_originals_are_copied_where_the_group_wants_them(node: Server) -> None:
    dying = Dying(node, **{dead_letters.COPIES: "true"})
    dying.make_queue(partitions=2)
    reject(dying, 1, 3, index=1)
    go_on(dying)
    log = node.partitions.get("t", 1).log
    originals = {
        record.offset: record
        for _, batch in log.batches(0, upper_bound=log.log_end_offset)
        for record in read_records(batch)
    }
    assert dying.queued(0) == []  # letters go to the partition with the same index
    assert [(record.key, record.value) for record in dying.queued(1)] == [
        (originals[offset].key, originals[offset].value) for offset in (1, 3)
    ]


async def test_originals_that_do_not_fit_leave_their_headers(node: Server) -> None:
    dying = Dying(node, **{dead_letters.COPIES: "true"})
    dying.make_queue(max_message_bytes="300")
    dying.produce(3)
    client = dying.client()
    client.fetch(0, 0)
    client.acknowledge(1, {0: [(0, 2, REJECT)]})
    go_on(dying)
    assert dying.offsets() == [0, 1, 2]


async def test_a_queue_that_takes_little_gets_many_batches(node: Server) -> None:
    dying = Dying(node)
    dying.make_queue(max_message_bytes="500")
    dying.produce(20)
    client = dying.client()
    client.fetch(0, 0)
    client.acknowledge(1, {0: [(0, 19, REJECT)]})
    go_on(dying)
    assert dying.offsets() == [*range(20)]
    assert dying.written() == [StateBatch(0, 19, ARCHIVING, 1), StateBatch(0, 19, ARCHIVED, 1)]


@pytest.mark.parametrize("case", ["missing", "not enabled", "prefix", "no name", "internal", "illegal"])
async def test_without_a_queue_the_record_is_archived_all_the_same(tmp_path: Path, case: str) -> None:
    settings = {"illegal": [f"{dead_letters.AUTO_CREATE}=true"], "prefix": [f"{dead_letters.PREFIX}=dead."]}
    dying = Dying(await started(tmp_path, *settings.get(case, ())))
    configs = dying.node.metadata.image.configs[GROUP_RESOURCE, GROUP]
    if case == "not enabled":
        dying.make_queue(errors_deadletterqueue_group_enable="false")
    elif case == "no name":
        del configs[dead_letters.TOPIC_NAME]  # type: ignore[attr-defined]
    elif case == "internal":
        configs[dead_letters.TOPIC_NAME] = "__dlq"  # type: ignore[index]
    elif case == "illegal":
        configs[dead_letters.TOPIC_NAME] = "dlq. no"  # type: ignore[index]
    elif case == "prefix":
        dying.make_queue()
    reject(dying, 0, 1)
    go_on(dying)
    assert dying.written()[-1] == StateBatch(1, 1, ARCHIVED, 1)
    if QUEUE in dying.node.metadata.image.topics:
        assert dying.queued() == []
    assert len(dying.created) == (case == "illegal")


async def test_a_missing_queue_is_made_where_it_may_be(tmp_path: Path) -> None:
    dying = Dying(await started(tmp_path, f"{dead_letters.AUTO_CREATE}=true", "num.partitions=3"))
    reject(dying, 0, 4)
    go_on(dying)
    assert dying.offsets() == [0, 4]
    image = dying.node.metadata.image
    assert len(image.topics[QUEUE].partitions) == 3
    assert image.config_of_topic(QUEUE) == {
        "errors.deadletterqueue.group.enable": "true",
        "message.timestamp.type": "CreateTime",
    }


async def test_burials_under_way_are_finished_by_the_next_leader(node: Server) -> None:
    dying = Dying(node)
    dying.make_queue()
    state = dying.state()
    state.start_offset = 0
    for offset, kept in {0: (1, ARCHIVING), 1: (1, ACKNOWLEDGED), 2: (5, ARCHIVING)}.items():
        state.offsets[offset] = kept
    dying.produce(5)
    assert acquired(dying.client().fetch(0, 0)) == {0: [(3, 4, 1)]}
    go_on(dying)
    assert dying.offsets() == [0, 2]
    assert [dict(record.headers)[b"__dlq.errors.message"] for record in dying.queued()] == [
        b"Offset rejected by client.",
        b"Offset delivery count exceeded the threshold.",
    ]
    assert dying.written() == [StateBatch(0, 0, ARCHIVED, 1), StateBatch(2, 2, ARCHIVED, 5)]


async def test_a_dropped_share_partition_leaves_the_rest_to_the_next(node: Server) -> None:
    dying = Dying(node)
    dying.make_queue()
    reject(dying, 0)
    led = dying.shares.find(GROUP, (dying.topic_id, 0))
    assert led is not None
    dying.shares.drop(led)
    go_on(dying)
    assert dying.queued() == []
    assert dying.written() == [StateBatch(0, 0, ARCHIVING, 1)]
    dying.client().fetch(0, 0, member="n")
    go_on(dying)
    assert dying.offsets() == [0]
    assert dying.written()[-1] == StateBatch(0, 0, ARCHIVED, 1)


async def test_a_group_without_sessions_is_forgotten_once_all_is_buried(node: Server) -> None:
    dying = Dying(node)
    dying.make_queue()
    reject(dying, 0)
    dying.client().fetch(-1)
    dying.shares.forget([GROUP])
    dying.shares.end_session(GROUP, "m")
    assert len(dying.shares) == 1
    go_on(dying)
    assert dying.offsets() == [0]
    assert dying.written()[-1] == StateBatch(0, 0, ARCHIVED, 1)
    assert len(dying.shares) == 0


@pytest.mark.parametrize("error", sorted(dead_letters.ASK_AGAIN))
async def test_a_queue_that_may_come_back_is_asked_again(node: Server, error: Error) -> None:
    dying, told = Dying(node), [error] * RETRIES
    dying.make_queue()
    append_to = dying.queues._append

    async def append(partition: Partition, batch: bytearray) -> Error:
        return told.pop() if told else await append_to(partition, batch)

    dying.queues._append = append  # type: ignore[method-assign]
    reject(dying, 0)
    go_on(dying)
    assert tuple(dying.wait() for _ in range(RETRIES)) == dead_letters.RETRIES_S
    assert dying.offsets() == [0]
    assert dying.written()[-1] == StateBatch(0, 0, ARCHIVED, 1)


@pytest.mark.parametrize(
    ("error", "waits"), [(Error.NOT_LEADER_OR_FOLLOWER, RETRIES), (Error.MESSAGE_TOO_LARGE, 0)]
)
async def test_a_queue_that_does_not_take_them_is_given_up(node: Server, error: Error, waits: int) -> None:
    dying = Dying(node)
    dying.make_queue()

    async def append(partition: Partition, batch: bytearray) -> Error:
        return error

    dying.queues._append = append  # type: ignore[method-assign]
    reject(dying, 0)
    go_on(dying)
    for _ in range(waits):
        dying.wait()
    assert (dying.queued(), dying.waits) == ([], [])
    assert dying.written() == [StateBatch(0, 0, ARCHIVING, 1), StateBatch(0, 0, ARCHIVED, 1)]


async def test_nothing_waits_for_a_queue_once_the_share_partition_is_dropped(node: Server) -> None:
    dying = Dying(node)
    dying.make_queue()

    async def append(partition: Partition, batch: bytearray) -> Error:
        return Error.NOT_ENOUGH_REPLICAS

    dying.queues._append = append  # type: ignore[method-assign]
    reject(dying, 0)
    go_on(dying)
    led = dying.shares.find(GROUP, (dying.topic_id, 0))
    assert led is not None
    dying.shares.drop(led)
    dying.wait()
    assert (dying.waits, dying.queues._lines) == ([], {})
    assert dying.written() == [StateBatch(0, 0, ARCHIVING, 1)]


async def test_the_leader_of_the_queue_may_be_another_node(node: Server) -> None:
    dying = Dying(node)
    dying.make_queue()
    sent: list[tuple[int, Produced]] = []
    dying.queues._elsewhere = lambda node_id, produced: sent.append((node_id, produced))
    dying.queues._node_id = node.node_id + 1
    reject(dying, 0, 2)
    go_on(dying)
    [(node_id, produced)] = sent
    queue = node.metadata.image.topics[QUEUE]
    assert (node_id, produced[:3]) == (node.node_id, (queue.topic_id, QUEUE, 0))
    assert len(read_records(produced.batch)) == 2
    assert dying.written() == [StateBatch(0, 0, ARCHIVING, 1), StateBatch(2, 2, ARCHIVING, 1)]
    produced.answer.reply(Error.NONE)
    go_on(dying)
    assert dying.written()[2:] == [StateBatch(0, 0, ARCHIVED, 1), StateBatch(2, 2, ARCHIVED, 1)]


@pytest.mark.limit("broker.shares.dead_letters.MOST_READ_BYTES")
async def test_originals_are_read_in_parts(node: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    dying = Dying(node, **{dead_letters.COPIES: "true"})
    dying.make_queue()
    dying.produce(*[2] * 6)
    log = node.partitions.get("t", 0).log
    sizes = [header.size_bytes for header, _ in log.batches(0, upper_bound=log.log_end_offset)]
    monkeypatch.setattr(dead_letters, "MOST_READ_BYTES", sum(sizes[:2]))
    batches: list[int] = []
    append_to = dying.queues._append

    async def append(partition: Partition, batch: bytearray) -> Error:
        batches.append(len(read_records(batch)))
        return await append_to(partition, batch)

    dying.queues._append = append  # type: ignore[method-assign]
    client = dying.client()
    client.fetch(0, 0)
    client.acknowledge(1, {0: [(0, 11, REJECT)]})
    go_on(dying)
    assert batches == [4, 4, 4]
    assert dying.offsets() == [*range(12)]
    assert all(record.value for record in dying.queued())


async def test_originals_are_those_of_each_however_the_letters_come(node: Server) -> None:
    """A record that is rejected later may lie before the one that was rejected first."""
    dying = Dying(node, **{dead_letters.COPIES: "true"})
    dying.make_queue()
    dying.produce(5, 5)
    client = dying.client()
    client.fetch(0, 0)
    for epoch, offset in enumerate((8, 2, 9, 0), 1):
        assert errors(client.acknowledge(epoch, {0: [(offset, offset, REJECT)]})) == {0: 0}
    go_on(dying)
    assert sorted(dying.offsets()) == [0, 2, 8, 9]
    assert all(record.value for record in dying.queued())


async def test_letters_that_come_while_originals_are_read_have_theirs_as_well(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Dying(node, **{dead_letters.COPIES: "true"})
    dying.make_queue()
    dying.produce(5)
    client = dying.client()
    client.fetch(0, 0)
    records_in, later = dead_letters._records_in, [4]

    def read_slowly(*given: object) -> object:
        if later:
            offset = later.pop()
            assert errors(client.acknowledge(2, {0: [(offset, offset, REJECT)]})) == {0: 0}
        return records_in(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(dead_letters, "_records_in", read_slowly)
    client.acknowledge(1, {0: [(0, 0, REJECT)]})
    go_on(dying)
    assert dying.offsets() == [0, 4]
    assert all(record.value for record in dying.queued())


async def test_others_are_let_in_while_many_records_become_a_batch(node: Server) -> None:
    dying = Dying(node)
    dying.make_queue()
    dying.produce(500, 500)
    client = dying.client()
    client.fetch(0, 0, max_records=1000)
    led = dying.shares.find(GROUP, (dying.topic_id, 0))
    assert led is not None
    line = dead_letters._Line()
    line.letters.append((DeadLetter(0, 999, 1, "cause"), lambda letter: None))
    assert pauses(dying.queues._batch_of(led, line, 1 << 20)) == 1000 // dead_letters.LETTERS_PER_STEP


async def test_a_share_partition_that_is_dropped_while_its_batch_is_made_is_left_to_the_next(
    node: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    dying = Dying(node, **{dead_letters.COPIES: "true"})
    dying.make_queue()
    records_in = dead_letters._records_in

    def read_too_slowly(*given: object) -> object:
        led = dying.shares.find(GROUP, (dying.topic_id, 0))
        assert led is not None
        dying.shares.drop(led)
        return records_in(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(dead_letters, "_records_in", read_too_slowly)
    reject(dying, 0)
    go_on(dying)
    assert dying.queued() == []
    assert dying.written() == [StateBatch(0, 0, ARCHIVING, 1)]


async def test_a_burial_that_cannot_be_written_is_logged_once_in_a_while(
    node: Server, caplog: pytest.LogCaptureFixture
) -> None:
    dying = Dying(node)
    dying.make_queue()
    dying.produce(5)
    client = dying.client()
    client.fetch(0, 0)
    state = dying.state()
    client.acknowledge(1, {0: [(0, 0, REJECT), (2, 2, REJECT)]})
    state.error = Error.COORDINATOR_NOT_AVAILABLE
    go_on(dying)
    dying.pass_ms(30_000)  # the locks of the others end
    client.fetch(2, 0)
    dying.pass_ms(30_000)
    told = [line.getMessage() for line in caplog.records if "can't write a state" in line.getMessage()]
    assert told == [
        "share partition t-0 of g: can't write a state: COORDINATOR_NOT_AVAILABLE: text",
        "share partition t-0 of g: can't write a state: COORDINATOR_NOT_AVAILABLE: text"
        " (1 more since the last such line)",
        "share partition t-0 of g: can't write a state: COORDINATOR_NOT_AVAILABLE: text"
        " (2 more since the last such line)",
    ]


async def test_a_change_of_leader_is_not_logged(node: Server, caplog: pytest.LogCaptureFixture) -> None:
    dying = Dying(node)
    dying.make_queue()
    reject(dying, 0)
    dying.state().error = Error.FENCED_LEADER_EPOCH
    go_on(dying)
    assert not [line for line in caplog.records if "can't write a state" in line.getMessage()]


def test_originals_end_with_the_batch_that_fills_one_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is kept of other records, however much a batch unpacks to."""
    monkeypatch.setattr(dead_letters, "MOST_READ_BYTES", 10)
    data = b""
    for base in range(0, 30, 10):
        batch = build_batch([(0, None, b"value", ())] * 10)
        batch[:8] = base.to_bytes(8)
        data += bytes(batch)
    found, known_to = dead_letters._records_in(data, 12, 29)
    assert ([*found], known_to) == ([*range(12, 20)], 19)
    found, known_to = dead_letters._records_in(data, 25, 25)
    assert ([*found], known_to) == ([25], 29)
    found, known_to = dead_letters._records_in(data, 3, 3)
    assert ([*found], known_to) == ([3], 9)
