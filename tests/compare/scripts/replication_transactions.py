"""Transactions whose coordinator, partitions and group coordinator are on different brokers."""

from __future__ import annotations

from typing import Any

from ..cluster_properties import CLUSTER
from ..group_requests import fetch_offsets
from ..moved_coordinators import (
    NOT_YET,
    OFFSETS,
    TRANSACTIONS,
    Routed,
    coordinated_as_before,
    coordinated_by,
    on_all,
)
from ..play import Play, script, versions
from ..requests import fetch, list_offsets, produce
from ..scene import Topic
from ..transaction_log import partition_of
from ..transaction_requests import (
    END_VERSION,
    Producer,
    add_offsets,
    add_partitions,
    coordinator_is_there,
    describe,
    end_txn,
    init,
    marker,
    markers,
    producers,
    state_of,
    transactional,
    txn_commit,
)


def look(play: Play, when: str, **topics: tuple[Topic, int]) -> None:
    """Read each topic at its leader, at both isolation levels."""
    for name, (topic, leader) in topics.items():
        on = f"broker {leader}"
        for level in (0, 1):
            asked = fetch((topic, 0, 0), isolation_level=level)
            play.ask(f"{name} at level {level}, {when}", "Fetch", 12, asked, on=on)
            asked = list_offsets((topic.name, 0, -1), isolation_level=level)
            play.ask(f"the end of {name} at level {level}, {when}", "ListOffsets", 7, asked, on=on)
        play.ask(f"the producers of {name}, {when}", "DescribeProducers", 0, producers((topic, 0)), on=on)


def _there(play: Play, routed: Routed) -> None:
    """Wait until the coordinators of all ids serve."""
    coordinator_is_there(routed.as_play())
    group = play.name("g")

    def served() -> bool:
        answer = routed.quietly("OffsetFetch", 8, fetch_offsets(8, group, None))
        return all(each.error_code == 0 for each in answer.groups)

    play.until("the group coordinator is there", served)


def _handed_over(play: Play, transactional_id: str, old: int, new: int) -> None:
    """Wait until the old coordinator of an id knows that it no longer is one, and the new one serves."""

    def told_by(broker: int) -> int:
        asked = describe(transactional_id)
        answer = play.quietly("DescribeTransactions", 0, asked, on=f"broker {broker}: scene")
        return int(answer.transaction_states[0].error_code)

    play.until(
        "the transaction coordinator is another", lambda: told_by(old) == 16 and told_by(new) not in NOT_YET
    )


@script(properties=CLUSTER)
def everything_elsewhere(play: Play) -> None:
    """Broker 2 coordinates transactions, and broker 3 groups."""
    a, b, c = play.topic("a"), play.topic("b", replicas=(3, 1)), play.topic("c", replicas=(2,))
    coordinated_by(play, TRANSACTIONS, 2)
    coordinated_by(play, OFFSETS, 3)
    routed = Routed(play, transactions=2, groups=3, leaders={a.name: 1, b.name: 3, c.name: 2})
    _there(play, routed)
    group = play.name("g")
    for version, kind in ((4, 0), (4, 1), (1, 0), (1, 1)):
        asked = {"key": group, "key_type": kind, "coordinator_keys": [group]}
        for case, on in on_all(f"the coordinator of kind {kind} (v{version})"):
            play.ask(case, "FindCoordinator", version, asked, on=on)
    for tv in (1, 2):
        for commit in (True, False):
            when = f"{'committed' if commit else 'aborted'} at {tv}"
            producer = Producer(routed.as_play(), f"{'c' if commit else 'a'}{tv}", tv=tv).init()
            for topic in (a, b, c):
                producer.send(topic, 0, 2)
            producer.commit_offsets(group, (a, 0, 10 * tv + commit))
            for case, on in on_all(f"the transaction before it is {when}"):
                play.ask(case, "DescribeTransactions", 0, describe(producer.transactional_id), on=on)
            producer.end(commit=commit)
            look(play, when, a=(a, 1), b=(b, 3), c=(c, 2))
            for case, on in on_all(f"offsets {when}"):
                play.ask(case, "OffsetFetch", 8, fetch_offsets(8, group, None), on=on)
    for case, on in on_all("all transactions"):
        play.ask(case, "ListTransactions", 1, {"duration_filter": -1}, on=on)
    _asked_of_others(play, routed, a, group)
    coordinated_as_before(play)


def _asked_of_others(play: Play, routed: Routed, topic: Topic, group: str) -> None:
    """Send requests to brokers that aren't, or no longer are, responsible for them."""
    old = Producer(routed.as_play(), "old", tv=1).init()
    old.send(topic)
    asked: dict[str, dict[str, Any]] = {
        "InitProducerId": init(old.transactional_id),
        "AddPartitionsToTxn": add_partitions(*old.who, (topic, 0)),
        "AddOffsetsToTxn": add_offsets(*old.who, group),
        "EndTxn": end_txn(*old.who, commit=True),
        "TxnOffsetCommit": txn_commit(old.transactional_id, group, *old.who[1:], (topic, 0, 5)),
    }
    for broker in (1, 3):
        for api, fields in asked.items():
            for version in versions(api):
                if (api, broker) != ("TxnOffsetCommit", 3):
                    play.ask(
                        f"{api} v{version} of broker {broker}", api, version, fields, on=f"broker {broker}"
                    )
    late = marker(old.producer_id, old.producer_epoch, (topic, 0), coordinator_epoch=-5)
    for broker in (2, 3):
        play.ask(f"a marker of broker {broker}", "WriteTxnMarkers", 1, markers(late), on=f"broker {broker}")
    before = old.who
    old.crash().init()
    data = transactional(play, 1, producer_id=before[1], producer_epoch=before[2])
    play.ask(
        "written by the fenced one", "Produce", 11, produce((topic, 0, data), transactional_id=before[0])
    )
    asked["AddPartitionsToTxn"] = add_partitions(*before, (topic, 0))
    for api, version in (("AddPartitionsToTxn", 3), ("AddPartitionsToTxn", 5), ("EndTxn", 4), ("EndTxn", 5)):
        play.ask(f"{api} v{version} of the fenced one", api, version, asked[api], on="broker 2")
    asked["TxnOffsetCommit"] = txn_commit(before[0], group, *before[1:], (topic, 0, 5))
    for version in (3, 4, 5):
        case = f"offsets of the fenced one (v{version})"
        play.ask(case, "TxnOffsetCommit", version, asked["TxnOffsetCommit"], on="broker 3")
    look(play, "once it is fenced", a=(topic, 1))


@script(properties=CLUSTER)
def a_coordinator_that_moves(play: Play) -> None:
    """The coordinator moves from broker 1 to 2 and back, with one transaction open and one that is being ended."""
    topic = play.topic("a", replicas=(3, 1, 2))
    routed = Routed(play, leaders={topic.name: 3})
    _there(play, routed)
    for tv in (1, 2):
        producer = Producer(routed.as_play(), f"p{tv}", tv=tv).init()
        index = partition_of(producer.transactional_id)
        producer.send(topic, 0, 2)
        for old, new in ((1, 2), (2, 3)):
            coordinated_by(play, TRANSACTIONS, new, index)
            routed.transactions = new
            _handed_over(play, producer.transactional_id, old, new)
            when = f"at {tv}, moved from {old} to {new}"
            name = producer.transactional_id
            play.ask(
                f"described by the old one {when}",
                "DescribeTransactions",
                0,
                describe(name),
                on=f"broker {old}",
            )
            play.ask(
                f"described by the new one {when}",
                "DescribeTransactions",
                0,
                describe(name),
                on=f"broker {new}",
            )
            for api, version, fields in (
                ("InitProducerId", 4, init(name)),
                ("AddPartitionsToTxn", 3, add_partitions(*producer.who, (topic, 0))),
                ("AddOffsetsToTxn", 3, add_offsets(*producer.who, "g")),
                ("EndTxn", END_VERSION[tv], end_txn(*producer.who, commit=True)),
            ):
                play.ask(f"{api} of the old one {when}", api, version, fields, on=f"broker {old}")
            producer.send(topic, 0, 1)
        producer.end(commit=tv == 1)
        producer.send(topic, 0, 1)
        producer.crash().init()
        look(play, f"at {tv}", a=(topic, 3))
        coordinated_by(play, TRANSACTIONS, 1, index)
        routed.transactions = 1
        _handed_over(play, producer.transactional_id, 3, 1)


@script(properties=CLUSTER)
def markers_that_wait(play: Play) -> None:
    """The markers wait for a leader that was killed, until another broker leads.

    A partition without a leader isn't compared: Kafka's coordinator forgets it, and the transaction hangs there for
    good.
    """
    waiting = {commit: play.topic(f"waiting-{commit}", replicas=(2, 1)) for commit in (True, False)}
    others = {commit: play.topic(f"other-{commit}", replicas=(1, 3)) for commit in (True, False)}
    coordinated_by(play, TRANSACTIONS, 3, followers=(1,))
    leaders = {topic.name: 2 for topic in waiting.values()} | {topic.name: 1 for topic in others.values()}
    routed = Routed(play, transactions=3, leaders=leaders)
    _there(play, routed)
    ends = {}
    for commit in (True, False):
        producer = Producer(routed.as_play(), f"p-{commit}", tv=2).init()
        producer.send(waiting[commit], 0, 2)
        producer.send(others[commit], 0, 2)
        ends[commit] = producer
    play.cluster.kill(2)
    for commit, producer in ends.items():
        asked = end_txn(*producer.who, commit=commit)
        play.ask(f"ended, commit {commit}", "EndTxn", 5, asked, on="broker 3")
        play.ask(f"ended again, commit {commit}", "EndTxn", 5, asked, on="broker 3")
        name = producer.transactional_id
        play.ask(f"a new run, commit {commit}", "InitProducerId", 5, init(name), on="broker 3")
        play.until("the marker is at the other one", lambda at=others[commit]: _stable_end(play, at, 1) == 3)
        look(play, f"while the other waits, commit {commit}", other=(others[commit], 1))
    for commit, producer in ends.items():
        play.cluster.until_led(waiting[commit].name, by=1, isr=(1,))
        name = producer.transactional_id
        play.until("it is complete", lambda name=name: _state(routed, name).startswith("Complete"))
        play.ask(f"complete, commit {commit}", "DescribeTransactions", 0, describe(name), on="broker 3")
        play.ask(f"a new run at last, commit {commit}", "InitProducerId", 5, init(name), on="broker 3")
        look(play, f"in the end, commit {commit}", waiting=(waiting[commit], 1))
    play.cluster.settle()
    coordinated_as_before(play)


def _state(routed: Routed, name: str) -> str:
    return state_of(routed.as_play(), name)


def _stable_end(play: Play, topic: Topic, broker: int) -> int:
    asked = list_offsets((topic.name, 0, -1), isolation_level=1)
    answer = play.quietly("ListOffsets", 7, asked, on=f"broker {broker}: scene")
    return int(answer.topics[0].partitions[0].offset)


@script(properties=CLUSTER)
def a_coordinator_killed(play: Play) -> None:
    """The broker is killed with a transaction open that has offsets of a group, which the broker coordinates too."""
    topic = play.topic("a", replicas=(1, 2))
    group = play.name("g")
    for internal in (OFFSETS, TRANSACTIONS):
        coordinated_by(play, internal, 3)
    routed = Routed(play, transactions=3, groups=3, leaders={topic.name: 1})
    _there(play, routed)
    open_ones = []
    for name, tv in (("p1", 1), ("p2", 2)):
        producer = Producer(routed.as_play(), name, tv=tv).init()
        producer.send(topic, 0, 2)
        producer.commit_offsets(group, (topic, 0, tv))
        open_ones.append(producer)
    play.cluster.kill(3)
    for internal in (OFFSETS, TRANSACTIONS):
        for index in range(3):
            play.cluster.until_led(internal, by=1, isr=(1, 2), partition=index)
    routed.transactions = routed.groups = 1
    _there(play, routed)
    for producer in open_ones:
        name = producer.transactional_id
        play.ask(f"described, {producer.suffix}", "DescribeTransactions", 0, describe(name))
        producer.send(topic, 0, 1)
        stable = {"require_stable": True}
        asked = fetch_offsets(8, group, None) | stable
        play.ask(f"offsets that are stable, {producer.suffix}", "OffsetFetch", 8, asked)
        producer.end(commit=producer.tv == 2)
        look(play, f"after the end of {producer.suffix}", a=(topic, 1))
        play.ask(f"offsets, {producer.suffix}", "OffsetFetch", 8, fetch_offsets(8, group, None))
    play.cluster.settle()
    coordinated_as_before(play)
