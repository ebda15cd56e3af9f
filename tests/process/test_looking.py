"""A test looks into a broker without a client, and makes things happen now. The same works over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import barnabas
from barnabas.looking import _told
from protocol.errors import Error
from protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from protocol.messages.groups_share import ShareGroupHeartbeatRequest
from protocol.messages.groups_streams import StreamsGroupHeartbeatRequest, Subtopology, Topology
from protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol.records.batch import build_batch
from tests.support.transactional_client import Broker, Producer, amid_transaction, eventually, worst
from tests.support.waiting import until
from tests.support.wire import Client


@pytest.fixture(scope="module")
def shared() -> Iterator[barnabas.Broker]:
    with barnabas.Broker(topics={"first": 2}, config={"group.initial.rebalance.delay.ms": 0}) as running:
        yield running


@pytest.fixture
def broker(shared: barnabas.Broker) -> barnabas.Broker:
    shared.reset()
    return shared


@pytest.fixture
def client(broker: barnabas.Broker) -> Iterator[Client]:
    with Client.of(broker.bootstrap) as connected:
        yield connected


def produce(
    client: Client, topic: str, records: list[tuple[Any, ...]], partition: int = 0, **fields: Any
) -> Error:
    data = PartitionProduceData(index=partition, records=memoryview(build_batch(records, **fields)))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    return Error(client.ask(request, 11).responses[0].partition_responses[0].error_code)


def transaction(client: Client, name: str, topic: str, value: bytes, *, commit: bool) -> Producer:
    asked = Broker(client.ask)
    asked.find_coordinators(name, name)
    producer = Producer(asked, name, 2)
    eventually(producer.init)
    eventually(lambda: worst(producer.produce(topic, {0: value})))
    eventually(lambda: producer.end(commit=commit))
    return producer


def test_topics_exist_from_the_start_on_and_after_a_reset(broker: barnabas.Broker, client: Client) -> None:
    assert broker.records("first") == []
    broker.create_topics({"orders": 3, "log": {"partitions": 1, "configs": {"cleanup.policy": "compact"}}})
    assert produce(client, "orders", [(1_000, b"k", b"v", ())], 2) is Error.NONE
    assert [each.partition for each in broker.records("orders")] == [2]
    with pytest.raises(ValueError, match="orders: TOPIC_ALREADY_EXISTS"):
        broker.create_topics({"orders": 3})
    with pytest.raises(ValueError, match="nonsense"):
        broker.create_topics({"other": {"configs": {"nonsense": "1"}}})


def test_a_record_is_shown_with_all_its_parts(broker: barnabas.Broker, client: Client) -> None:
    assert produce(client, "first", [(1_000, b"k", b"v", ((b"h", b"1"), (b"n", None)))], 1) is Error.NONE
    [found] = broker.records("first")
    assert (found.topic, found.partition, found.offset, found.timestamp_ms) == ("first", 1, 0, 1_000)
    assert (found.key, found.value, found.headers) == (b"k", b"v", (("h", b"1"), ("n", None)))
    assert (found.producer_id, found.transactional_id, found.outcome) == (-1, None, None)
    assert broker.records("first", partition=0) == []
    with pytest.raises(LookupError, match="first-2"):
        broker.records("first", partition=2)
    with pytest.raises(LookupError, match="there is no topic none"):
        broker.records("none")


def test_a_reader_of_committed_records_sees_the_records_it_would_get(
    broker: barnabas.Broker, client: Client
) -> None:
    transaction(client, "payer", "first", b"no", commit=False)
    transaction(client, "payer", "first", b"yes", commit=True)
    open_one = amid_transaction(client.ask, "open", "second", (0,))
    assert [(each.value, each.attempt, each.marker) for each in broker.records("first")] == [(b"yes", 2, 3)]
    both = broker.records("first", committed=False)
    assert [(each.value, each.outcome) for each in both] == [(b"no", "aborted"), (b"yes", "committed")]
    assert "transaction 1 of 'payer' here, which was aborted by the marker at 1" in both[0].story
    assert broker.records("second") == []
    [held] = broker.records("second", committed=False)
    assert (held.outcome, held.producer_id, held.transactional_id) == ("open", open_one.producer_id, "open")
    [opened] = broker.open_transactions()
    assert (opened.topic, opened.first_offset, opened.transactional_id) == ("second", 0, "open")
    states = {each.transactional_id: (each.state, each.partitions) for each in broker.transactions()}
    assert states == {"open": ("Ongoing", (("second", 0),)), "payer": ("CompleteCommit", ())}
    assert broker.hanging_transactions() == []


def test_a_transaction_that_no_coordinator_knows_hangs() -> None:
    with barnabas.Broker(config={"transaction.partition.verification.enable": False}) as other:
        with Client.of(other.bootstrap) as asking:
            other.create_topics({"orders": 1})
            batch = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            data = PartitionProduceData(
                index=0, records=memoryview(build_batch([(1_000, None, b"lost", ())], **batch))
            )
            request = ProduceRequest(
                transactional_id="gone",
                acks=-1,
                timeout_ms=10_000,
                topic_data=[TopicProduceData(name="orders", partition_data=[data])],
            )
            answer = asking.ask(request, 11).responses[0].partition_responses[0]
            assert answer.error_code == Error.NONE
        [hanging] = other.hanging_transactions()
        assert (hanging.producer_id, hanging.first_offset) == (7, 0)


def test_many_records_come_in_pages(broker: barnabas.Broker, client: Client) -> None:
    for start in range(0, 2_500, 500):
        values = [(1_000, None, b"%d" % each, ()) for each in range(start, start + 500)]
        assert produce(client, "first", values) is Error.NONE
    assert [each.value for each in broker.records("first")] == [b"%d" % each for each in range(2_500)]


def test_records_are_waited_for_and_missing_ones_are_reported(
    broker: barnabas.Broker, client: Client
) -> None:
    transaction(client, "payer", "first", b"no", commit=False)
    assert produce(client, "first", [(1_000, None, b"v", ())]) is Error.NONE
    assert [each.value for each in broker.wait_for_records("first", 1)] == [b"v"]
    with pytest.raises(
        TimeoutError, match=r"has 1 records, and not 2; not committed are:\n  first-0@0 .*aborted"
    ):
        broker.wait_for_records("first", 2, timeout=0)
    with pytest.raises(TimeoutError, match="there is no topic none"):
        broker.wait_for_records("none", 1, timeout=0)


def test_a_condition_that_stays_false_is_reported_with_the_open_transactions(
    broker: barnabas.Broker, client: Client
) -> None:
    amid_transaction(client.ask, "open", "second", (0,))
    assert broker.wait_until(lambda: broker.open_transactions())
    with pytest.raises(TimeoutError, match=r"that it is paid: 0\n  open: second-0@0: producer id"):
        broker.wait_until(lambda: 0, timeout=0, what="it is paid")


def join(client: Client, group: str, **fields: Any) -> str:
    Broker(client.ask).find_coordinators("t", group)
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        **fields,
    )
    found: list[str] = []

    def ask() -> Error:
        answer = client.ask(request, 5)
        found.append(answer.member_id)
        error = Error(answer.error_code)
        if error is Error.MEMBER_ID_REQUIRED:
            request.member_id = answer.member_id
            answer = client.ask(request, 5)
            error = Error(answer.error_code)
        return error

    eventually(ask)
    return found[-1]


def joined_consumer(client: Client, group: str) -> str:
    Broker(client.ask).find_coordinators("t", group)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="new-member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["first"],
        topic_partitions=[],
    )
    eventually(lambda: Error(client.ask(request, 1).error_code))
    return "new-member"


def joined_share(client: Client, group: str) -> str:
    Broker(client.ask).find_coordinators("t", group)
    request = ShareGroupHeartbeatRequest(
        group_id=group, member_id="share-member", member_epoch=0, subscribed_topic_names=["first"]
    )
    eventually(lambda: Error(client.ask(request, 1).error_code))
    return "share-member"


def joined_streams(client: Client, group: str) -> str:
    Broker(client.ask).find_coordinators("t", group)
    request = StreamsGroupHeartbeatRequest(
        group_id=group,
        member_id="streams-member",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        topology=Topology(epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=["first"])]),
        active_tasks=[],
        standby_tasks=[],
        warmup_tasks=[],
        process_id="p",
    )
    eventually(lambda: Error(client.ask(request, 0).error_code))
    return "streams-member"


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize(
    ("kind", "joined"),
    [("classic", join), ("consumer", joined_consumer), ("share", joined_share), ("streams", joined_streams)],
)
def test_a_members_session_is_over_now(
    broker: barnabas.Broker, client: Client, kind: str, joined: Any, frozen: bool
) -> None:
    member = joined(client, "g")
    [group] = broker.groups()
    assert (group.group_id, group.type, group.member_count) == ("g", kind, 1)
    assert [each.member_id for each in group.members] == [member]
    if frozen:
        broker.clock.freeze()
    broker.expire_member("g", member)
    [group] = broker.groups()
    assert (group.members, group.state) == ((), "Empty")
    with pytest.raises(LookupError, match="UNKNOWN_MEMBER_ID"):
        broker.expire_member("g", member)
    with pytest.raises(LookupError, match="GROUP_ID_NOT_FOUND"):
        broker.expire_member("none", member)


def test_a_static_member_is_named_by_its_instance(broker: barnabas.Broker, client: Client) -> None:
    join(client, "g", group_instance_id="one")
    broker.expire_member("g", "one")
    assert broker.groups()[0].members == ()


def test_a_transaction_times_out_now(broker: barnabas.Broker, client: Client) -> None:
    producer = amid_transaction(client.ask, "payer", "second", (0,))
    broker.expire_transaction("payer")
    assert broker.transactions()[0].state == "CompleteAbort"
    assert [each.outcome for each in broker.records("second", committed=False)] == ["aborted"]
    assert producer.end(commit=True) is Error.PRODUCER_FENCED
    with pytest.raises(LookupError, match="payer has no open transaction: it is CompleteAbort"):
        broker.expire_transaction("payer")


def test_lag_counts_the_records_a_reader_has_left(broker: barnabas.Broker, client: Client) -> None:
    Broker(client.ask).find_coordinators("t", "g")
    with pytest.raises(LookupError, match="there is no group g"):
        broker.lag("g")
    for value, commit in ((b"1", True), (b"2", False), (b"3", True), (b"4", True)):
        transaction(client, "payer", "first", value, commit=commit)
    paying = Producer(Broker(client.ask), "committer", 2)
    eventually(paying.init)
    eventually(lambda: paying.commit_offset("g", "first", 1))
    eventually(lambda: paying.end(commit=True))
    until(lambda: broker.groups(), "the group has its offset")
    assert broker.lag("g") == broker.lag("g", "first") == 2
    amid_transaction(client.ask, "open", "second", (0,))
    assert broker.lag("g", "second") == 0


def test_a_producer_is_forgotten_now(broker: barnabas.Broker, client: Client) -> None:
    fields = {"producer_id": 7, "producer_epoch": 0}
    assert produce(client, "first", [(1_000, None, b"v", ())], base_sequence=0, **fields) is Error.NONE
    assert broker.expire_producer(7) == [("first", 0)]
    with pytest.raises(LookupError, match="no partition knows producer id 7"):
        broker.expire_producer(7)
    # the broker no longer knows the first one
    assert produce(client, "first", [(1_000, None, b"v", ())], base_sequence=0, **fields) is Error.NONE
    assert len(broker.records("first")) == 2
    opened = amid_transaction(client.ask, "open", "second", (0,))
    with pytest.raises(LookupError, match="its transaction is open there"):
        broker.expire_producer(opened.producer_id)


def test_retention_runs_now(broker: barnabas.Broker, client: Client) -> None:
    broker.create_topics({"short": {"partitions": 2, "configs": {"retention.ms": "1000"}}})
    assert produce(client, "short", [(1_000, None, b"v", ())], 1) is Error.NONE
    assert broker.run_retention("short") == {0: 0, 1: 1}
    assert broker.records("short") == []
    with pytest.raises(LookupError, match="none"):
        broker.run_retention("none")


def test_compaction_runs_now(broker: barnabas.Broker, client: Client) -> None:
    broker.create_topics({"state": {"partitions": 1, "configs": {"cleanup.policy": "compact"}}})
    for value in (b"1", b"2", b"3"):
        assert produce(client, "state", [(1_000, b"k", value, ())]) is Error.NONE
    broker.run_compaction("state")
    assert [(each.offset, each.value) for each in broker.records("state")] == [(2, b"3")]
    with pytest.raises(LookupError, match="first isn't compacted"):
        broker.run_compaction("first")


def test_time_goes_to_the_next_due_event(broker: barnabas.Broker) -> None:
    broker.clock.freeze()
    before_s = broker.clock.now
    broker.clock.skip_to_next()
    after_s = broker.clock.now
    assert before_s < after_s <= before_s + 10
    broker.clock.run()


def test_a_cluster_asks_the_leader(tmp_path: Any) -> None:
    with barnabas.Cluster(brokers=3, topics={"orders": 3}) as cluster:
        with Client.of(cluster[1].bootstrap) as at_first:
            Broker(at_first.ask).find_coordinators("payer", "g")
        coordinator = cluster.coordinator_of(transactional_id="payer")
        leader = cluster.leader_of("orders", 0)
        with Client.of(coordinator.bootstrap) as coordinating, Client.of(leader.bootstrap) as leading:
            producer = Producer(Broker(coordinating.ask), "payer", 1)
            eventually(producer.init)
            eventually(lambda: worst(producer.add("orders", [0])))
            producer.broker = Broker(leading.ask)
            eventually(lambda: worst(producer.produce("orders", {0: b"v"})))
        assert [each.outcome for each in cluster.records("orders", committed=False)] == ["open"]
        assert [each.transactional_id for each in cluster.open_transactions()] == ["payer"]
        assert cluster.hanging_transactions() == []
        cluster.expire_transaction("payer")
        [found] = cluster.records("orders", committed=False)
        assert (found.outcome, found.transactional_id) == ("aborted", "payer")
        assert cluster.records("orders") == []
        cluster.create_topics({"more": {"partitions": 2, "replication": 2}})
        assert len(cluster.replicas_of("more", 1)) == 2


def test_a_marker_in_a_later_page_decides_about_earlier_records() -> None:
    def entry(offset: int, kind: str, producer_id: int, outcome: str | None) -> dict[str, Any]:
        return {
            "offset": offset,
            "kind": kind,
            "producer_id": producer_id,
            "outcome": outcome,
            "marker": None,
            "transactional_id": None,
            "timestamp_ms": 0,
            "key": None,
            "value": None,
            "headers": [],
            "epoch": 0,
            "sequence": 0,
        }

    documents = [
        entry(0, "record", 1, "undecided"),
        entry(1, "record", 2, "undecided"),
        entry(2, "record", 3, "undecided"),
        entry(3, "commit", 1, None),
        entry(4, "abort", 2, None),
        entry(5, "record", 1, "open"),
    ]
    told = [*_told("t", 0, documents, {1: "one"})]
    assert [(each.offset, each.outcome, each.marker, each.attempt) for each in told] == [
        (0, "committed", 3, 1),
        (1, "aborted", 4, 1),
        (2, "open", None, 1),
        (5, "open", None, 2),
    ]
    assert [each.transactional_id for each in told] == ["one", None, None, "one"]
