"""The requests to a Kafka while a page is open, tested without a Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from cli.client.cluster import KafkaCluster
from cli.client.offsets import LATEST_OFFSET as LATEST
from cli.client.offsets import NO_LEADER, Partition
from cli.client.transactions import CoordinatedTransaction
from cli.console import watching
from cli.console.lanes import UNKNOWN, Lanes
from cli.console.sections import Sections
from cli.console.watching import BUSY_BYTES, METADATA_S, Asker, Round, TransactionLog, Watch
from cli.errors import CommandError
from protocol.messages.fetch import PartitionData
from protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from tests.support.partition_logs import batch_of_bytes

ORDERS = ("orders", 0)
LEADER = 1


class Leading:
    """The leader of `orders`-0, which notes the requests that it receives."""

    def __init__(self) -> None:
        self.end = 0
        self.appended_bytes = 0
        self.asked: list[str] = []

    def fetch(self, _: object, leader: int, offsets: Mapping[Partition, int], *__: object) -> dict[Any, Any]:
        assert (leader, [*offsets]) == (LEADER, [ORDERS])
        self.asked.append("fetch")
        records = memoryview(bytes(self.appended_bytes)) if offsets[ORDERS] < self.end else None
        data = PartitionData(high_watermark=self.end, last_stable_offset=self.end, records=records)
        data.log_start_offset = 0
        return {ORDERS: data}

    def list_offsets(self, _: object, wanted: Mapping[Partition, int], *__: object, **___: object) -> Any:
        return dict.fromkeys(wanted, 0)

    def stable_and_ends(self, _: object, partitions: Iterable[Partition], *__: object) -> Any:
        self.asked.append("offsets")
        ends = dict.fromkeys(partitions, self.end)
        return ends, ends


@pytest.mark.parametrize(
    ("appended_bytes", "asked"),
    [
        (BUSY_BYTES + 1, ["fetch", "fetch", "offsets", "offsets", "offsets", "fetch"]),
        (BUSY_BYTES, ["fetch"] * 5),
    ],
)
async def test_a_busy_log_is_only_asked_for_its_offsets(
    appended_bytes: int, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page of such a log used to fetch its batches, ten megabytes a second, to show where the log ends."""
    leading, sections = Leading(), Sections()
    monkeypatch.setattr(watching, "fetch_from_leader", leading.fetch)
    monkeypatch.setattr(watching, "list_offsets", leading.list_offsets)
    monkeypatch.setattr(watching, "stable_and_ends", leading.stable_and_ends)
    watch = Watch({}, sections, lambda topics: {}, lambda brokers: None)
    watch._leaders = {ORDERS: LEADER}
    sections.enter(["log:orders:0"])
    cluster = cast("KafkaCluster", None)
    leading.appended_bytes = appended_bytes
    for end in (0, 10, 20, 30, 30):
        leading.end = end
        watch._ask_logs(cluster)
        assert json.loads(sections.value("log:orders:0")[1]) == [0, end, end]
    assert leading.asked == asked


async def test_a_topic_that_goes_while_its_log_is_asked_for_ends_no_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another thread looks up the leader."""
    leading, sections = Leading(), Sections()
    watch = Watch({}, sections, lambda topics: {}, lambda brokers: None)
    payments = ("payments", 0)

    def stable_and_ends(*asked: Any) -> Any:
        watch._leaders = {}
        return leading.stable_and_ends(*asked)

    monkeypatch.setattr(watching, "list_offsets", leading.list_offsets)
    monkeypatch.setattr(watching, "stable_and_ends", stable_and_ends)
    watch._leaders = {ORDERS: LEADER, payments: 2}
    watch._ends = {ORDERS: 0, payments: 0}
    watch._busy = {ORDERS, payments}
    leading.end = 7
    sections.enter(["log:orders:0", "log:payments:0"])
    watch._ask_logs(cast("KafkaCluster", None))
    assert sections.value("log:payments:0")[1] == sections.value("log:orders:0")[1] == "[0,7,7]"


def test_a_fault_of_the_consoles_own_is_shown_and_is_in_its_log_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ask(_: object) -> None:
        raise KeyError("orders")

    sections = Sections()
    each = Round(0.0, ask, bool)
    asker = Asker("cluster", {}, sections, [each])
    for _ in range(3):
        asker._go(cast("KafkaCluster", None), each)
    assert json.loads(sections.value("problem:cluster")[1]) == "the console failed: KeyError('orders')"
    [logged] = caplog.records
    assert logged.exc_info is not None


async def test_a_problem_is_no_longer_shown_once_nobody_asks() -> None:
    def ask(_: object) -> None:
        raise CommandError("nobody leads it")

    sections = Sections()
    each = Round(0.0, ask, lambda wanted: "log:orders:0" in wanted)
    asker = Asker("log", {}, sections, [each])
    number, _ = sections.enter(["log:orders:0"])
    asker._go(cast("KafkaCluster", None), each)
    asker._forget_unwanted(sections.wanted)
    assert json.loads(sections.value("problem:log")[1]) == "nobody leads it"
    sections.leave(number)
    asker._forget_unwanted(sections.wanted)
    assert json.loads(sections.value("problem:log")[1]) == ""


class Topics:
    """The metadata of `__transaction_state`, and how often it was requested."""

    def __init__(self) -> None:
        self.asked = 0
        self.topic: MetadataResponseTopic | None = None

    def metadata(self, _: object) -> MetadataResponse:
        self.asked += 1
        return MetadataResponse(topics=[] if self.topic is None else [self.topic])


@pytest.fixture
def transactions_log(monkeypatch: pytest.MonkeyPatch) -> tuple[TransactionLog, Topics, dict[str, float]]:
    """The log with its metadata and its clock. Each of its topics has two records when it is found."""
    clock = {"s": 100.0}
    monkeypatch.setattr(watching.time, "monotonic", lambda: clock["s"])
    monkeypatch.setattr(
        watching,
        "list_offsets",
        lambda _, wanted: {key: 2 * (which == LATEST) for key, which in wanted.items()},
    )
    monkeypatch.setattr(watching, "fetch_from_leader", lambda *_: {})
    return TransactionLog(Lanes(Sections().list_of("lanes", 10))), Topics(), clock


def test_a_missing_topic_of_transactions_is_requested_once_in_a_while(
    transactions_log: tuple[TransactionLog, Topics, dict[str, float]],
) -> None:
    log, topics, clock = transactions_log
    for _ in range(8):
        log.read_on(cast("KafkaCluster", topics))
        clock["s"] += METADATA_S / 10
    assert topics.asked == 1
    clock["s"] += METADATA_S
    log.read_on(cast("KafkaCluster", topics))
    assert topics.asked == 2


def test_another_topic_of_the_same_name_is_read_from_its_own_begin(
    transactions_log: tuple[TransactionLog, Topics, dict[str, float]],
) -> None:
    log, topics, clock = transactions_log
    partition = MetadataResponsePartition(partition_index=0, leader_id=LEADER)
    place = {("__transaction_state", 0): 0}
    for topic_id in (b"a" * 16, b"b" * 16):
        topics.topic = MetadataResponseTopic(
            name="__transaction_state", topic_id=topic_id, partitions=[partition]
        )
        log.read_on(cast("KafkaCluster", topics))
        assert log._next == place
        log._next = dict.fromkeys(place, 900)
        clock["s"] += METADATA_S
        log.read_on(cast("KafkaCluster", topics))
        assert log._next == dict.fromkeys(place, 900), "it is the same topic still"
        clock["s"] += METADATA_S


def test_very_many_transactions_take_a_fiftieth_of_the_time_after_a_first_burst(
    transactions_log: tuple[TransactionLog, Topics, dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, topics, clock = transactions_log
    decoding_s, steps = 0.02, 10_000
    answers = {("__transaction_state", 0): PartitionData(high_watermark=2, records=memoryview(b""))}
    monkeypatch.setattr(watching, "fetch_from_leader", lambda *_: answers)
    pauses: list[float] = []

    def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        clock["s"] += pause_s

    def decode(*_: object) -> None:
        clock["s"] += decoding_s

    monkeypatch.setattr(watching.time, "sleep", pause)
    monkeypatch.setattr(log._lanes, "read", decode)
    partition = MetadataResponsePartition(partition_index=0, leader_id=LEADER)
    topics.topic = MetadataResponseTopic(
        name="__transaction_state", topic_id=b"a" * 16, partitions=[partition]
    )
    began_s = clock["s"]
    for _ in range(24):
        log.read_on(cast("KafkaCluster", topics))
    assert pauses == []
    for _ in range(steps):
        log.read_on(cast("KafkaCluster", topics))
    assert steps * decoding_s / (clock["s"] - began_s) < 0.021
    assert max(pauses) <= 1


def test_a_small_fetch_begins_with_partitions_that_were_not_read_lately(
    transactions_log: tuple[TransactionLog, Topics, dict[str, float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    log, topics, clock = transactions_log
    batch = batch_of_bytes(79)
    asked_first: list[int] = []

    def first_alone(_: object, __: int, asked: Mapping[Partition, int], *___: object) -> Any:
        first = next(iter(asked))
        asked_first.append(first[1])
        return {first: PartitionData(high_watermark=9, records=memoryview(batch))}

    monkeypatch.setattr(watching, "fetch_from_leader", first_alone)
    monkeypatch.setattr(log._lanes, "read", lambda *_: None)
    partitions = [MetadataResponsePartition(partition_index=index, leader_id=LEADER) for index in range(3)]
    topics.topic = MetadataResponseTopic(
        name="__transaction_state", topic_id=b"a" * 16, partitions=partitions
    )
    for _ in range(6):
        log.read_on(cast("KafkaCluster", topics))
        clock["s"] += METADATA_S
    assert asked_first == [0, 1, 2, 0, 1, 2]


def test_a_problem_is_shown_until_the_same_question_succeeds() -> None:
    """A user who may not list groups saw that only for as long as a request for the metadata took."""
    wrong = {"groups": "you may not", "offsets": "you may not"}

    def asking(name: str) -> Round:
        def ask(_: object) -> None:
            if name in wrong:
                raise CommandError(wrong[name])

        return Round(0.0, ask, bool)

    sections = Sections()
    rounds = {name: asking(name) for name in ("groups", "offsets", "metadata")}
    asker = Asker("cluster", {}, sections, [*rounds.values()])

    def told_after(name: str) -> str:
        asker._go(cast("KafkaCluster", None), rounds[name])
        return str(json.loads(sections.value("problem:cluster")[1]))

    assert [told_after(name) for name in rounds] == ["you may not"] * 3
    wrong["offsets"] = "nobody leads it"
    assert told_after("offsets") == "you may not; nobody leads it"
    wrong.clear()
    assert [told_after(name) for name in rounds] == ["nobody leads it", "", ""]


async def test_a_transaction_is_over_only_if_all_coordinators_know_nothing_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While a partition of `__transaction_state` has no leader, nobody reports its transactions."""
    sections, topics = Sections(), Topics()
    watch = Watch({}, sections, lambda topics: {}, lambda brokers: None)
    cluster = cast("KafkaCluster", topics)
    one = CoordinatedTransaction("pay", LEADER, "Ongoing", 7, 0, 1_000, 60_000, frozenset({ORDERS}))
    watch._lanes.told([one], 2_000)
    assert watch._lanes.still_running() == {}

    def state(*leaders: int) -> str:
        """The shown state once nobody has reported the transaction, by the leaders before and after that."""
        answers = [*leaders]

        def list_transactions(*_: object) -> list[CoordinatedTransaction]:
            lead(answers[-1])
            return []

        def lead(leader_id: int) -> None:
            partition = MetadataResponsePartition(partition_index=0, leader_id=leader_id)
            topics.topic = MetadataResponseTopic(name="__transaction_state", partitions=[partition])

        monkeypatch.setattr(watching, "list_transactions", list_transactions)
        lead(answers[0])
        watch._ask_running(cluster)
        _, [document] = sections.lists["lanes"].since(0, 10)
        return str(document["state"])

    assert state(NO_LEADER, NO_LEADER) == "Ongoing"
    assert state(LEADER, LEADER + 1) == "Ongoing"
    assert state(LEADER, LEADER) == UNKNOWN
