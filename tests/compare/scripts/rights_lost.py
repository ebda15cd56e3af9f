"""Rights that are revoked and granted in the middle of a transaction, a session or a membership."""

from __future__ import annotations

from typing import Any

from broker.security.authorizer import CLUSTER_NAME, Operation, ResourceType

from ..batches import TRANSACTIONAL, batch
from ..consumer_requests import beat, first_beat, topic_is_known
from ..group_requests import (
    commit,
    coordinator_is_there,
    heartbeat,
    leave,
    stable_group,
    subscription,
    sync,
)
from ..play import LONG_MS, Play, script
from ..principals import CHANGING, EVERYTHING, NOBODY, OWNER
from ..requests import create_topics, fetch, metadata, produce
from ..rights import ALL, Table, acl, rows
from ..scene import Topic
from ..share_group_requests import coordinators_are_there
from ..share_requests import ACCEPT, share_acknowledge, share_fetch, share_group
from ..streams_requests import streams_beat, streams_join, subtopology, topic_info, topology
from ..transaction_requests import (
    END_VERSION,
    OFFSETS_VERSION,
    PRODUCE_VERSION,
    add_offsets,
    add_partitions,
    end_txn,
    init,
    rest,
    txn_commit,
)
from ..transaction_requests import coordinator_is_there as transaction_coordinator_is_there

TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
READ, WRITE, CREATE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE


@script(properties="rights")
def in_a_transaction(play: Play) -> None:
    table = Table(play)
    mine, other = table.mine, table.other
    group = play.name("group")
    coordinator_is_there(play, group)
    transaction_coordinator_is_there(play)
    on = table.sign_in(CHANGING)
    for tv in (1, 2):
        name = play.name(f"tv{tv}")
        to_topics = [acl(CHANGING, TOPIC, topic.name, WRITE) for topic in (mine, other)]
        to_topics += [acl(CHANGING, TOPIC, topic.name, READ) for topic in (mine, other)]
        table.give(
            *to_topics, acl(CHANGING, GROUP, group, READ), acl(CHANGING, TRANSACTIONAL_ID, name, WRITE)
        )

        def ask(case: str, api: str, version: int, fields: dict[str, object], tv: int = tv) -> object:
            return play.ask(f"{case} (TV {tv})", api, version, fields, on=on)

        begun = play.quietly("InitProducerId", 5, init(name), on=on)
        who = name, begun.producer_id, begun.producer_epoch
        sequences = iter(range(100))

        def record(who: tuple[str, int, int] = who, sequences: object = sequences) -> bytes:
            return batch(
                attributes=TRANSACTIONAL,
                producer_id=who[1],
                producer_epoch=who[2],
                base_sequence=next(sequences),  # type: ignore[call-overload]
            )

        ask("added", "AddPartitionsToTxn", 3, add_partitions(*who, (mine, 0)))
        first = record()
        ask("written", "Produce", PRODUCE_VERSION[tv], produce((mine, 0, first), transactional_id=name))
        table.take(CHANGING, TOPIC, mine.name, WRITE)
        refused = record()
        both = produce((mine, 0, refused), (other, 0, first), transactional_id=name)
        ask("the topic's right is lost, written", "Produce", PRODUCE_VERSION[tv], both)
        ask("added all the same", "AddPartitionsToTxn", 3, add_partitions(*who, (mine, 0), (other, 0)))
        ask("added without it", "AddPartitionsToTxn", 3, add_partitions(*who, (other, 0)))
        ask("offsets", "AddOffsetsToTxn", 3, add_offsets(*who, group))
        offsets = txn_commit(name, group, *who[1:], (mine, 0, 1), (other, 0, 1))
        ask("committed offsets", "TxnOffsetCommit", OFFSETS_VERSION[tv], offsets)
        table.take(CHANGING, TOPIC, other.name, READ)
        ask("committed offsets, one topic lost", "TxnOffsetCommit", OFFSETS_VERSION[tv], offsets)
        table.take(CHANGING, GROUP, group)
        ask("committed offsets, the group lost", "TxnOffsetCommit", OFFSETS_VERSION[tv], offsets)
        ask("offsets, the group lost", "AddOffsetsToTxn", 3, add_offsets(*who, group))
        table.take(CHANGING, TRANSACTIONAL_ID, name)
        for case, api, version, fields in (
            ("written", "Produce", PRODUCE_VERSION[tv], both),
            ("added", "AddPartitionsToTxn", 3, add_partitions(*who, (other, 0))),
            ("offsets", "AddOffsetsToTxn", 3, add_offsets(*who, group)),
            ("committed offsets", "TxnOffsetCommit", OFFSETS_VERSION[tv], offsets),
            ("committed", "EndTxn", END_VERSION[tv], end_txn(*who, commit=True)),
            ("aborted", "EndTxn", END_VERSION[tv], end_txn(*who, commit=False)),
            ("begun anew", "InitProducerId", 5, init(name)),
            ("described", "DescribeTransactions", 0, {"transactional_ids": [name]}),
        ):
            ask(f"nothing may be done with the id: {case}", api, version, fields)
        table.give(acl(CHANGING, TRANSACTIONAL_ID, name, WRITE))
        ask("given again: described", "DescribeTransactions", 0, {"transactional_ids": [name]})
        ask("given again: aborted", "EndTxn", END_VERSION[tv], end_txn(*who, commit=False))
        rest(play, name)
        for topic in (mine, other):
            asked = fetch((topic, 0, 0), isolation_level=1)
            play.ask(f"what is in {topic.name} (TV {tv})", "Fetch", 12, asked)


class _Session:
    """A fetch session of a client whose rights are revoked and granted."""

    def __init__(self, play: Play, on: str, version: int, *parts: tuple[Topic, int, int]) -> None:
        self._play = play
        self._on = on
        self._version = version
        self._epoch = 0
        self._session_id = 0
        self._session_id = self.asks("opened", *parts).session_id

    def asks(self, case: str, *parts: tuple[Topic, int, int], **how: Any) -> Any:
        asked = fetch(*parts, session_id=self._session_id, session_epoch=self._epoch, **how)
        self._epoch += 1
        return self._play.ask(f"{case} (v{self._version})", "Fetch", self._version, asked, on=self._on)


@script(properties="rights")
def in_a_fetch_session(play: Play) -> None:
    table = Table(play)
    mine, other = table.mine, table.other
    on = table.sign_in(CHANGING)
    for version in (12, 13, 17):
        table.give(*(acl(CHANGING, TOPIC, topic.name, READ) for topic in (mine, other)))
        play.write(mine.name, batch())
        play.write(other.name, batch())
        session = _Session(play, on, version, (mine, 0, 0), (other, 0, 0))
        session.asks("nothing has changed")
        table.take(CHANGING, TOPIC, mine.name)
        session.asks("lost")
        session.asks("told again")
        play.write(mine.name, batch())
        session.asks("something new in it")
        table.give(acl(CHANGING, TOPIC, mine.name, READ))
        session.asks("given again")
        session.asks("given again, further on", (mine, 0, 1))
        table.take(CHANGING, TOPIC, mine.name)
        session.asks("forgotten", forgotten=[(mine, [0])])
        session.asks("added, though lost", (mine, 1, 0))
        table.give(acl(CHANGING, TOPIC, mine.name, READ))
        session.asks("may again")
    # A waiting request has already been authorized.
    end = play.quietly("ListOffsets", 4, _latest(mine.name)).topics[0].partitions[0].offset
    asked = fetch((mine, 0, end), max_wait_ms=LONG_MS, min_bytes=1)
    waiting = play.send("lost while it waits", "Fetch", 12, asked, on=on)
    table.take(CHANGING, TOPIC, mine.name)
    play.write(mine.name, batch())
    play.receive(waiting)


def _latest(name: str) -> dict[str, object]:
    return {
        "replica_id": -1,
        "topics": [{"name": name, "partitions": [{"partition_index": 0, "timestamp": -1}]}],
    }


@script(properties="rights")
def in_groups(play: Play) -> None:
    table = Table(play)
    mine, other = table.mine, table.other
    classic, consumers, shares = (play.name(suffix) for suffix in ("classic", "consumers", "shares"))
    coordinators_are_there(play, mine, classic, consumers, shares)
    for topic in (mine, other):
        topic_is_known(play, topic)
    on = table.sign_in(CHANGING)
    table.give(
        *(acl(CHANGING, GROUP, group, READ) for group in (classic, consumers, shares)),
        *(acl(CHANGING, TOPIC, topic.name, READ) for topic in (mine, other)),
    )
    (member,) = stable_group(play, classic, "classic", protocols=(("range", subscription(mine.name)),))
    generation = {"generation": member.generation, "member_id": member.member_id}
    asked = {
        "beats": ("Heartbeat", 4, heartbeat(classic, member.generation, member.member_id)),
        "commits": ("OffsetCommit", 9, commit(classic, (mine, 0, 1), (other, 0, 1), **generation)),
        "syncs": ("SyncGroup", 5, sync(classic, member.generation, member.member_id)),
    }

    def ask_all(when: str) -> None:
        for case, (api, version, fields) in asked.items():
            play.ask(f"{case}, {when}", api, version, fields, on=on)

    ask_all("may all")
    table.take(CHANGING, TOPIC, mine.name)
    ask_all("lost a topic")
    table.take(CHANGING, GROUP, classic)
    ask_all("lost the group")
    gone = leave(classic, (member.member_id, None))
    play.ask("leaves, lost the group", "LeaveGroup", 5, gone, on=on)
    table.give(acl(CHANGING, TOPIC, mine.name, READ))
    joined = play.ask(
        "joins", "ConsumerGroupHeartbeat", 1, first_beat(consumers, "m", mine.name, other.name), on=on
    )
    table.take(CHANGING, TOPIC, other.name)
    epoch = joined.member_epoch
    play.ask(
        "a consumer beats, lost a topic", "ConsumerGroupHeartbeat", 1, beat(consumers, "m", epoch), on=on
    )
    named = beat(consumers, "m", epoch, names=[mine.name, other.name])
    play.ask("beats with the names, lost a topic", "ConsumerGroupHeartbeat", 1, named, on=on)
    play.ask("described, lost a topic", "ConsumerGroupDescribe", 1, {"group_ids": [consumers]}, on=on)
    moved = commit(consumers, (mine, 0, 1), (other, 0, 1), member_id="m", generation=epoch)
    play.ask("a consumer commits, lost a topic", "OffsetCommit", 9, moved, on=on)
    table.take(CHANGING, GROUP, consumers)
    play.ask(
        "a consumer beats, lost the group", "ConsumerGroupHeartbeat", 1, beat(consumers, "m", epoch), on=on
    )
    play.ask("leaves, lost the consumers", "ConsumerGroupHeartbeat", 1, beat(consumers, "m", -1), on=on)
    play.quietly("ConsumerGroupHeartbeat", 1, beat(consumers, "m", -1))


@script(properties="rights")
def in_a_share_session(play: Play) -> None:
    table = Table(play)
    mine, other = table.mine, table.other
    on = table.sign_in(CHANGING)
    group = share_group(play, "group", (mine, 0), (other, 0))
    table.give(
        acl(CHANGING, GROUP, group, READ),
        *(acl(CHANGING, TOPIC, topic.name, READ) for topic in (mine, other)),
    )
    for topic in (mine, other):
        play.write(topic.name, batch(2))
    member = "m"
    play.ask("opened", "ShareFetch", 2, share_fetch(group, member, 0, (mine, 0), (other, 0)), on=on)
    table.take(CHANGING, TOPIC, mine.name)
    acks = {(mine, 0): [(0, 0, ACCEPT)], (other, 0): [(0, 0, ACCEPT)]}
    play.ask("acknowledged, lost", "ShareAcknowledge", 2, share_acknowledge(group, member, 1, acks), on=on)
    play.ask("fetched, lost", "ShareFetch", 2, share_fetch(group, member, 2), on=on)
    piggybacked = {(mine, 0): [(1, 1, ACCEPT)], (other, 0): [(1, 1, ACCEPT)]}
    both = share_fetch(group, member, 3, acks=piggybacked)
    play.ask("fetched with acknowledgements, lost", "ShareFetch", 2, both, on=on)
    table.take(CHANGING, GROUP, group)
    play.ask("fetched, lost the group", "ShareFetch", 2, share_fetch(group, member, 4), on=on)
    asked = share_acknowledge(group, member, 4, acks)
    play.ask("acknowledged, lost the group", "ShareAcknowledge", 2, asked, on=on)
    play.ask("closed, lost the group", "ShareFetch", 2, share_fetch(group, member, -1), on=on)
    table.give(acl(CHANGING, GROUP, group, READ), acl(CHANGING, TOPIC, mine.name, READ))
    play.ask("fetched, given again", "ShareFetch", 2, share_fetch(group, member, 4), on=on)
    play.ask("closed, given again", "ShareFetch", 2, share_fetch(group, member, -1), on=on)


@script(properties="rights")
def internal_topics_of_streams(play: Play) -> None:
    table = Table(play)
    on = table.sign_in(CHANGING)
    group, through, store = (play.name(suffix) for suffix in ("group", "made-through", "made-store"))
    coordinator_is_there(play, group)
    topic_is_known(play, table.mine)
    making = topology(
        subtopology("0", table.mine.name, sinks=[through]),
        subtopology("1", changelogs=[topic_info(store)], repartitions=[topic_info(through)]),
    )
    table.give(
        acl(CHANGING, GROUP, group, READ),
        *(acl(CHANGING, TOPIC, name, DESCRIBE) for name in (table.mine.name, through)),
    )
    play.ask("may not describe one", "StreamsGroupHeartbeat", 0, streams_join(group, "m", making), on=on)
    table.give(acl(CHANGING, TOPIC, store, DESCRIBE))
    joined = play.ask("may create none", "StreamsGroupHeartbeat", 0, streams_join(group, "m", making), on=on)
    table.give(acl(CHANGING, TOPIC, through, CREATE))
    again = streams_beat(group, "m", joined.member_epoch)
    play.ask("may create one", "StreamsGroupHeartbeat", 0, again, on=on)
    table.give(acl(CHANGING, CLUSTER, CLUSTER_NAME, CREATE))
    play.ask("may create all", "StreamsGroupHeartbeat", 0, again, on=on)
    play.until_there(store)
    table.take(CHANGING, CLUSTER, CLUSTER_NAME)


@script(properties="rights")
def by_host(play: Play) -> None:
    table = Table(play)
    on = table.sign_in(CHANGING)
    topic = table.mine.name
    hosts = (
        "127.0.0.1",
        "127.0.0.2",
        "127.0.0.0/8",
        "128.0.0.0/8",
        "127.0.0.1-127.0.0.9",
        "::1",
        "nobody",
        "",
    )
    for host in hosts:
        made = acl(CHANGING, TOPIC, topic, READ) | {"host": host}
        answer = play.ask(f"from {host!r}", "CreateAcls", 3, {"creations": [made]}, on="scene")
        table.settle()
        play.ask(f"may by {host!r}", "Metadata", 12, metadata(topic, topic_operations=True), on=on)
        if answer.results[0].error_code == 0:
            table.take(CHANGING, TOPIC, topic)
    for host in hosts[:4]:
        table.give(
            acl(CHANGING, TOPIC, topic, ALL), acl(CHANGING, TOPIC, topic, WRITE, denied=True) | {"host": host}
        )
        play.ask(f"may but for {host!r}", "Metadata", 12, metadata(topic, topic_operations=True), on=on)
        table.take(CHANGING, TOPIC, topic)


@script(properties="rights_open")
def where_no_acl_is_everything_is_allowed(play: Play) -> None:
    table = Table(play, is_open=True)
    names = table.names
    users = (NOBODY, OWNER, EVERYTHING)

    def has_producer_ids() -> bool:
        return bool(play.quietly("InitProducerId", 4, init(None)).error_code == 0)

    play.until("there are producer ids", has_producer_ids)

    def ask_all(when: str) -> None:
        shown = metadata(*names, topic_operations=True, cluster_operations=True)
        rows(table, "Metadata", 9, {when: shown}, users=users)
        written = produce(*((topic, 0, batch()) for topic in table.topics))
        rows(table, "Produce", 9, {when: written}, users=users)
        rows(table, "InitProducerId", 4, {when: init(None)}, users=users)
        wishes = create_topics(*({"name": name} for name in names), validate_only=True)
        rows(table, "CreateTopics", 7, {when: wishes}, users=users)

    ask_all("no ACLs")
    table.give(
        acl(OWNER, TOPIC, names.mine, READ), acl(OWNER, TOPIC, names.gone_mine[:-1], WRITE, prefixed=True)
    )
    ask_all("the owner's")
    table.give(acl(NOBODY, TOPIC, names.other, WRITE, denied=True))
    ask_all("one is denied")
    table.give(acl(OWNER, CLUSTER, CLUSTER_NAME, CREATE))
    ask_all("the cluster's")
    table.give(acl(EVERYTHING, TOPIC, "*", ALL))
    ask_all("all topics have an ACL")
    table.take(EVERYTHING, TOPIC, "*")
    table.take(OWNER, CLUSTER, CLUSTER_NAME)
    ask_all("no longer")
