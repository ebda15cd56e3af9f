"""The share coordinator: how clients find it, what brokers ask it, and what it stores (KIP-932)."""

from __future__ import annotations

import random

from protocol.wire.primitives import uuid_to_text

from ..play import Play, script
from ..share_state_requests import (
    delete,
    initialize,
    read,
    share_records_of,
    share_state_is_there,
    summary,
    write,
)

UNKNOWN = b"\7" * 16
NEEDS = (
    "InitializeShareGroupState",
    "ReadShareGroupState",
    "WriteShareGroupState",
    "DeleteShareGroupState",
    "ReadShareGroupStateSummary",
)


@script(properties="shares", needs=NEEDS)
def finding(play: Play) -> None:
    topic = play.topic("t")
    group = play.name("g")
    share_state_is_there(play, group, topic)
    topic_id = uuid_to_text(topic.topic_id)
    other_id = uuid_to_text(UNKNOWN)
    for case, key in (
        ("a share partition", f"{group}:{topic_id}:0"),
        ("a topic that isn't there", f"{group}:{other_id}:0"),
        ("a partition that isn't there", f"{group}:{topic_id}:77"),
        ("a partition below 0", f"{group}:{topic_id}:-1"),
        ("a partition with a sign", f"{group}:{topic_id}:+1"),
        ("a group with colons", f"a:b:{group}:{topic_id}:0"),
        ("a colon behind it", f"{group}:{topic_id}:0:"),
        ("nothing", ""),
        ("colons", "::"),
        ("no group", f":{topic_id}:0"),
        ("a blank group", f"  :{topic_id}:0"),
        ("no partition", f"{group}:{topic_id}"),
        ("an empty partition", f"{group}:{topic_id}:"),
        ("a partition that is no number", f"{group}:{topic_id}:x"),
        ("a partition too large", f"{group}:{topic_id}:2147483648"),
        ("a topic id that is none", f"{group}:abc:0"),
        ("a topic id too long", f"{group}:{topic_id}AA:0"),
    ):
        for version in (4, 5, 6):
            fields = {"key_type": 2, "coordinator_keys": [key]}
            answer = play.quietly("FindCoordinator", version, fields)
            (found,) = answer.coordinators
            play.note(f"{case} (v{version})", [found.error_code, found.node_id, found.error_message])


@script(properties="shares", needs=NEEDS)
def good_and_bad_requests(play: Play) -> None:
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    share_state_is_there(play, group, topic)
    absent = [("an unknown topic", UNKNOWN, 0), ("an unknown partition", topic, 7), ("below 0", topic, -1)]

    def ask_all(state: str) -> None:
        for version in (0, 1):
            play.ask(
                f"summary ({state}, v{version})",
                "ReadShareGroupStateSummary",
                version,
                summary(group, (topic, 0), (topic, 1)),
            )
        for leader_epoch in (-1, 0):
            fields = read(group, (topic, 0), leader_epoch=leader_epoch)
            play.ask(f"read by leader epoch {leader_epoch} ({state})", "ReadShareGroupState", 0, fields)

    ask_all("nothing there")
    play.ask("delete what isn't there", "DeleteShareGroupState", 0, delete(group, (topic, 0)))
    play.ask(
        "write what isn't there", "WriteShareGroupState", 1, write(group, (topic, 0), batches=[(0, 0, 2, 1)])
    )
    for case, where, index in absent:
        play.ask(f"initialize {case}", "InitializeShareGroupState", 0, initialize(group, (where, index)))
        play.ask(f"read {case}", "ReadShareGroupState", 0, read(group, (where, index)))
        play.ask(f"write {case}", "WriteShareGroupState", 0, write(group, (where, index)))
        play.ask(f"delete {case}", "DeleteShareGroupState", 0, delete(group, (where, index)))
        for version in (0, 1):
            fields = summary(group, (where, index))
            play.ask(f"summary of {case} (v{version})", "ReadShareGroupStateSummary", version, fields)
    play.ask("initialize", "InitializeShareGroupState", 0, initialize(group, (topic, 0), state_epoch=3))
    ask_all("initialized")
    for state_epoch in (2, 3, -1, 4, 3):
        fields = initialize(group, (topic, 0), state_epoch=state_epoch, start=10)
        case = f"initialize again by state epoch {state_epoch}"
        play.ask(f"{case} ({len(play.transcript)})", "InitializeShareGroupState", 0, fields)
    ask_all("initialized again")
    for number, (leader_epoch, state_epoch) in enumerate(((0, 4), (5, 4), (0, 3), (0, 9), (-1, -1), (0, 4))):
        fields = write(
            group,
            (topic, 0),
            batches=[(10 + number, 12 + number, 0, 1)],
            leader_epoch=leader_epoch,
            state_epoch=state_epoch,
            start=10,
            count=number,
        )
        case = f"write {number} by leader epoch {leader_epoch}, state epoch {state_epoch}"
        play.ask(case, "WriteShareGroupState", number % 2, fields)
    for leader_epoch in (4, 4, 3, 6):
        case = f"read by leader epoch {leader_epoch} ({len(play.transcript)})"
        play.ask(case, "ReadShareGroupState", 0, read(group, (topic, 0), leader_epoch=leader_epoch))
    for leader_epoch in (5, 6, 7):
        fields = write(group, (topic, 0), leader_epoch=leader_epoch, state_epoch=4, batches=[(10, 10, 2, 1)])
        play.ask(f"write by leader epoch {leader_epoch}, read by 6", "WriteShareGroupState", 1, fields)
    ask_all("written")
    play.note("its records", share_records_of(play, group, topic))
    both = [(topic, 0), (topic, 1)]
    play.ask("initialize two", "InitializeShareGroupState", 0, initialize(group, *both, state_epoch=5))
    play.ask(
        "read one of two", "ReadShareGroupState", 0, read(group, (topic, 0), (UNKNOWN, 0), leader_epoch=-1)
    )
    play.ask("delete two", "DeleteShareGroupState", 0, delete(group, *both))
    play.ask("delete them again", "DeleteShareGroupState", 0, delete(group, *both))
    ask_all("deleted")
    play.ask("initialize what was deleted", "InitializeShareGroupState", 0, initialize(group, (topic, 0)))
    play.note("its records in the end", share_records_of(play, group, topic))


@script(properties="shares", needs=NEEDS)
def empty_requests(play: Play) -> None:
    topic = play.topic("t")
    group = play.name("g")
    share_state_is_there(play, group, topic)
    apis = {
        "InitializeShareGroupState": initialize,
        "ReadShareGroupState": read,
        "WriteShareGroupState": write,
        "DeleteShareGroupState": delete,
        "ReadShareGroupStateSummary": summary,
    }
    for api, fields_of in apis.items():
        play.ask(f"{api} of no group", api, 0, fields_of("", (topic, 0)))
        play.ask(f"{api} of no topic", api, 0, {"group_id": group, "topics": []})
        fields = fields_of(group, (UNKNOWN, 0))
        fields["topics"].append({"topic_id": topic.topic_id, "partitions": []})
        play.ask(f"{api} of a topic without partitions", api, 0, fields)
        play.ask(f"{api} of one partition twice", api, 0, fields_of(group, (topic, 0), (topic, 0)))


@script(properties="shares", needs=NEEDS)
def batches_over_each_other(play: Play) -> None:
    """The broker writes a snapshot after every five updates, and restarts in between."""
    topic = play.topic("t")
    chance = random.Random(11)
    for number in range(3):
        group = play.name(f"g{number}")
        share_state_is_there(play, group, topic)
        play.quietly("InitializeShareGroupState", 0, initialize(group, (topic, 0)))
        start = 0
        for step in range(14):
            batches = [
                (first, first + chance.randrange(7), chance.choice((0, 0, 2, 4)), chance.randrange(3))
                for first in (start + chance.randrange(25) for _ in range(chance.randrange(5)))
            ]
            start += chance.randrange(4)
            fields = write(
                group, (topic, 0), batches=batches, start=chance.choice((start, -1)), count=step - 1
            )
            play.ask(f"{group[-2:]}: write {step}", "WriteShareGroupState", 1, fields)
            fields = read(group, (topic, 0), leader_epoch=step // 4)
            play.ask(f"{group[-2:]}: read {step}", "ReadShareGroupState", 0, fields)
        play.note(f"{group[-2:]}: records", share_records_of(play, group, topic))


@script(properties="second", needs=NEEDS)
def a_restart(play: Play) -> None:
    topic = play.topic("t", partitions=3)
    group = play.name("g")
    share_state_is_there(play, group, topic)
    every = [(topic, 0), (topic, 1), (topic, 2)]
    play.quietly("InitializeShareGroupState", 0, initialize(group, *every, state_epoch=2))
    play.quietly("ReadShareGroupState", 0, read(group, (topic, 0), leader_epoch=4))
    for first in range(6):
        fields = write(
            group,
            (topic, 0),
            batches=[(first, first + 3, 0, 1), (first, first, 2, 1)],
            leader_epoch=4,
            state_epoch=2,
            start=first,
        )
        play.quietly("WriteShareGroupState", 1, fields)
    play.quietly("DeleteShareGroupState", 0, delete(group, (topic, 1)))
    for kill in (False, True):
        play.restart(kill=kill)
        for index in range(3):
            share_state_is_there(play, group, topic, index)
        how = "killed" if kill else "stopped"
        play.ask(f"summary ({how})", "ReadShareGroupStateSummary", 1, summary(group, *every))
        play.ask(f"read ({how})", "ReadShareGroupState", 0, read(group, *every, leader_epoch=-1))
        for leader_epoch, state_epoch in ((3, 2), (4, 1), (4, 2)):
            fields = write(group, (topic, 0), leader_epoch=leader_epoch, state_epoch=state_epoch)
            case = f"write by leader epoch {leader_epoch}, state epoch {state_epoch} ({how})"
            play.ask(case, "WriteShareGroupState", 1, fields)


@script(properties="shares", needs=NEEDS)
def a_deleted_topic(play: Play) -> None:
    topic, other = play.topic("t"), play.topic("u")
    group = play.name("g")
    share_state_is_there(play, group, topic)
    share_state_is_there(play, group, other)
    play.quietly("InitializeShareGroupState", 0, initialize(group, (topic, 0), (other, 0)))
    fields = {"topics": [{"name": topic.name, "topic_id": bytes(16)}], "timeout_ms": 20_000}
    play.quietly("DeleteTopics", 6, fields)
    play.until("the state is gone", lambda: share_records_of(play, group, topic)[-1] == "tombstone")
    play.note("its records", share_records_of(play, group, topic))
    play.note("those of the other topic", share_records_of(play, group, other))
    play.ask("summaries", "ReadShareGroupStateSummary", 1, summary(group, (topic, 0), (other, 0)))


@script(properties="shares", needs=("FindCoordinator", *NEEDS))
def the_topic_of_states(play: Play) -> None:
    topic = play.topic("t")
    share_state_is_there(play, play.name("g"), topic)
    answer = play.quietly(
        "DescribeConfigs",
        4,
        {
            "resources": [
                {"resource_type": 2, "resource_name": "__share_group_state", "configuration_keys": None}
            ]
        },
    )
    own = [[each.name, each.value] for each in answer.results[0].configs if each.config_source == 1]
    play.note("its configs", sorted(own))
    metadata = play.quietly("Metadata", 9, {"topics": [{"name": "__share_group_state"}]})
    (found,) = metadata.topics
    play.note("its partitions", [found.is_internal, len(found.partitions)])
