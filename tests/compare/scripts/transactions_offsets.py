"""TxnOffsetCommit, and the offsets of a transaction before and after its end."""

from __future__ import annotations

from ..group_requests import commit, fetch_offsets, stable_group
from ..group_requests import coordinator_is_there as group_coordinator_is_there
from ..play import Play, script, versions
from ..requests import unknown
from ..transaction_requests import (
    STRANGER,
    Producer,
    add_offsets,
    coordinator_is_there,
    describe,
    txn_commit,
)
from .transactions_ending import relations
from .transactions_init import histories


@script
def every_state(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    other = Producer(play, "other").init()
    group = play.name("g")
    group_coordinator_is_there(play, group)
    for version in (2, 4, 5):
        for index, relation in enumerate(relations(other, other)):
            for state, producer in histories(play, topic, f"{index}-v{version}"):
                producer_id, epoch = relations(producer, other)[relation]
                asked = txn_commit(producer.transactional_id, group, producer_id, epoch, (topic, 0, 1))
                case = f"{state}, {relation} (v{version})"
                play.ask(case, "TxnOffsetCommit", version, asked)
                play.ask(
                    f"what is known: {case}", "DescribeTransactions", 0, describe(producer.transactional_id)
                )


@script
def every_version(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t", 3)
    nowhere = unknown(play.name("nowhere"))
    for version in versions("TxnOffsetCommit"):
        producer = Producer(play, f"p{version}", tv=2 if version == 5 else 1).init()
        name, producer_id, epoch = producer.who
        group = play.name(f"g{version}")
        group_coordinator_is_there(play, group)
        mine = (name, group, producer_id, epoch)
        asked = txn_commit(*mine, (topic, 0, 1))
        play.ask(f"not added (v{version})", "TxnOffsetCommit", version, asked)
        play.ask(f"what is known then (v{version})", "DescribeTransactions", 0, describe(name))
        producer.add_offsets(group)
        for case, asked in {
            "one": txn_commit(*mine, (topic, 0, 1)),
            "one again": txn_commit(*mine, (topic, 0, 2, "two")),
            "metadata null": txn_commit(*mine, (topic, 1, 3, None)),
            "metadata too long": txn_commit(*mine, (topic, 1, 4, "m" * 4097), (topic, 0, 5)),
            "a negative offset": txn_commit(*mine, (topic, 2, -1)),
            "an unknown partition": txn_commit(*mine, (topic, 7, 1), (topic, 0, 6)),
            "an unknown topic": txn_commit(*mine, (nowhere, 0, 1), (topic, 0, 7)),
            "an unknown topic alone": txn_commit(*mine, (nowhere, 0, 1)),
            "nothing": txn_commit(*mine),
            "a topic twice": txn_commit(*mine, (topic, 0, 8), (topic, 1, 9), (topic, 0, 10)),
            "no group": txn_commit(name, "", producer_id, epoch, (topic, 0, 1)),
            "no group and an unknown topic": txn_commit(name, "", producer_id, epoch, (nowhere, 0, 1)),
            "no transactional id": txn_commit("", group, producer_id, epoch, (topic, 0, 11)),
            "another transactional id": txn_commit(
                play.name("other"), group, producer_id, epoch, (topic, 0, 12)
            ),
            "a stranger": txn_commit(name, group, STRANGER, epoch, (topic, 0, 13)),
            "an old epoch": txn_commit(name, group, producer_id, epoch - 1, (topic, 0, 14)),
            "a new epoch": txn_commit(name, group, producer_id, epoch + 1, (topic, 0, 15)),
            "an unknown transactional id": txn_commit(
                play.name("unknown"), group, STRANGER, 0, (topic, 0, 16)
            ),
        }.items():
            play.ask(f"{case} (v{version})", "TxnOffsetCommit", version, asked)
        offsets = fetch_offsets(8, group, [(topic, (0, 1, 2))])
        stable = offsets | {"require_stable": True}
        for when in ("open", "ended"):
            play.ask(f"the offsets, {when} (v{version})", "OffsetFetch", 8, offsets)
            play.ask(f"the stable offsets, {when} (v{version})", "OffsetFetch", 8, stable)
            play.ask(f"the group, {when} (v{version})", "DescribeGroups", 6, {"groups": [group]})
            if when == "open":
                producer.end()


@script
def topics_without_partitions(play: Play) -> None:
    """A topic without partitions is answered even if it's unknown."""
    coordinator_is_there(play)
    topic, nowhere = play.topic("t", 2), unknown(play.name("nowhere"))
    group = play.name("g")
    group_coordinator_is_there(play, group)
    for api, lowest in (("TxnOffsetCommit", 5), ("OffsetCommit", 9)):
        for version in (lowest, lowest + 1):
            for case, named in {
                "an unknown one": [(nowhere, ())],
                "an unknown one, and then a partition of it": [(nowhere, ()), (nowhere, (1,))],
                "an unknown one behind an unknown partition": [(topic, (9,)), (nowhere, ())],
                "an unknown one twice": [(nowhere, ()), (nowhere, ())],
                "a known one": [(topic, ())],
                "a known one, and then an unknown partition of it": [(topic, ()), (topic, (9,))],
            }.items():
                of_transaction = {
                    "transactional_id": play.name("p"),
                    "producer_id": STRANGER,
                    "producer_epoch": 0,
                }
                asked = {
                    **(of_transaction if api == "TxnOffsetCommit" else {}),
                    "group_id": group,
                    "generation_id_or_member_epoch": -1,
                    "member_id": "",
                    "topics": [
                        {
                            "name": each.name,
                            "topic_id": each.topic_id,
                            "partitions": [
                                {"partition_index": index, "committed_offset": 1, "committed_metadata": ""}
                                for index in indexes
                            ],
                        }
                        for each, indexes in named
                    ],
                }
                play.ask(f"{api} v{version}: {case}", api, version, asked)


@script
def offsets_before_and_after_the_end(play: Play) -> None:
    """Pending offsets of several producers, plain commits among them, and the effect of each end on them."""
    coordinator_is_there(play)
    topic = play.topic("t", 3)
    group = play.name("g")
    group_coordinator_is_there(play, group)
    a, b, c = (Producer(play, name, tv=tv).init() for name, tv in (("a", 1), ("b", 2), ("c", 2)))

    def look(when: str) -> None:
        for version in (6, 7, 8):
            asked = fetch_offsets(version, group, [(topic, (0, 1, 2))])
            play.ask(f"{when} (v{version})", "OffsetFetch", version, asked)
            if version >= 7:
                stable = asked | {"require_stable": True}
                play.ask(f"{when}, stable (v{version})", "OffsetFetch", version, stable)
        everything = fetch_offsets(8, group, None) | {"require_stable": True}
        play.ask(f"{when}, all topics, stable", "OffsetFetch", 8, everything)

    look("nothing yet")
    a.commit_offsets(group, (topic, 0, 10), (topic, 1, 10))
    look("a's are pending")
    b.commit_offsets(group, (topic, 1, 20), (topic, 2, 20))
    look("a's and b's are pending")
    play.quietly("OffsetCommit", 6, commit(group, (topic, 1, 15)))
    look("a plain one between them")
    b.end(commit=True)
    look("b has committed")
    a.end(commit=True)
    look("a has committed, whose offsets are older")
    c.commit_offsets(group, (topic, 0, 30))
    look("c's are pending")
    c.end(commit=False)
    look("c has aborted")
    a.commit_offsets(group, (topic, 0, 41))
    a.commit_offsets(group, (topic, 0, 40))
    a.end()
    look("the last of a's two")
    b.commit_offsets(group, (topic, 2, 50))
    play.quietly("OffsetCommit", 6, commit(group, (topic, 2, 51)))
    b.end()
    look("b's was older than the plain one")
    c.commit_offsets(group, (topic, 2, 60))
    c.init()
    look("c was fenced")


@script
def pending_offsets_and_the_group(play: Play) -> None:
    """Pending offsets prevent some changes of the group."""
    coordinator_is_there(play)
    topic = play.topic("t", 2)
    for tv in (1, 2):
        for committed in (True, False):
            group = play.name(f"g{tv}{committed}")
            group_coordinator_is_there(play, group)
            producer = Producer(play, f"p{tv}{committed}", tv=tv).init()
            producer.commit_offsets(group, (topic, 0, 1))
            label = f"V{tv}, {'commit' if committed else 'abort'}"
            deleted = {"name": topic.name, "partitions": [{"partition_index": 0}, {"partition_index": 1}]}
            offset_delete = {"group_id": group, "topics": [deleted]}
            stable = fetch_offsets(8, group, [(topic, (0, 1))]) | {"require_stable": True}
            play.ask(f"the group is deleted ({label})", "DeleteGroups", 2, {"groups_names": [group]})
            play.ask(f"the group then ({label})", "DescribeGroups", 6, {"groups": [group]})
            play.ask(f"the offsets then ({label})", "OffsetFetch", 8, stable)
            producer.commit_offsets(group, (topic, 0, 2), (topic, 1, 2))
            play.ask(f"the offset is deleted ({label})", "OffsetDelete", 0, offset_delete)
            play.ask(f"the offsets after that ({label})", "OffsetFetch", 8, stable)
            producer.end(commit=committed)
            play.ask(f"the offsets after the end ({label})", "OffsetFetch", 8, stable)
            play.ask(f"the group after the end ({label})", "DescribeGroups", 6, {"groups": [group]})
            play.ask(f"the group is deleted at last ({label})", "DeleteGroups", 2, {"groups_names": [group]})
            play.ask(f"the group at last ({label})", "DescribeGroups", 6, {"groups": [group]})


@script
def with_members(play: Play) -> None:
    coordinator_is_there(play)
    topic = play.topic("t")
    for version in versions("TxnOffsetCommit"):
        group = play.name(f"v{version}")
        group_coordinator_is_there(play, group)
        producer = Producer(play, f"p{version}", tv=1).init()

        def cases(
            state: str,
            members: dict[str, tuple[str, int, str | None]],
            version: int = version,
            group: str = group,
            producer: Producer = producer,
        ) -> None:
            for case, (member_id, generation, instance) in members.items():
                producer.add_offsets(group)
                asked = txn_commit(
                    producer.transactional_id,
                    group,
                    producer.producer_id,
                    producer.producer_epoch,
                    (topic, 0, 1),
                    member_id=member_id,
                    generation=generation,
                    group_instance_id=instance,
                )
                play.ask(f"{case}, {state} (v{version})", "TxnOffsetCommit", version, asked)

        strangers: dict[str, tuple[str, int, str | None]] = {
            "nothing": ("", -1, None),
            "a generation": ("", 7, None),
            "a member id": ("nobody", -1, None),
            "a member id and a generation": ("nobody", 0, None),
            "an instance id": ("", -1, "instance"),
            "an instance id and all": ("nobody", 0, "instance"),
        }
        some = ("a generation", "a member id and a generation", "an instance id and all")
        cases("no such group", {case: strangers[case] for case in some})
        cases("an empty group", strangers)
        static = Producer(play, f"other{version}").init()
        static_group = play.name(f"static{version}")
        group_coordinator_is_there(play, static_group)
        (me,) = stable_group(play, group, f"me{version}")
        members: dict[str, tuple[str, int, str | None]] = {
            "as it should be": (me.member_id, me.generation, None),
            "the last generation": (me.member_id, me.generation - 1, None),
            "the next generation": (me.member_id, me.generation + 1, None),
            "generation -1": (me.member_id, -1, None),
            "an instance id that is not its": (me.member_id, me.generation, "instance"),
        }
        cases("a stable group", strangers | members)
        producer.end()
        asked = add_offsets(*static.who, static_group)
        play.ask(f"offsets of another group (v{version})", "AddOffsetsToTxn", 3, asked)
        play.ask(f"the offsets (v{version})", "OffsetFetch", 8, fetch_offsets(8, group, [(topic, (0,))]))
        play.drop(f"me{version}")
