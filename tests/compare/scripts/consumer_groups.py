"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: refusals, epochs, leaving, static members (KIP-848)."""

from __future__ import annotations

from ..consumer_requests import beat, describe, first_beat, owned_in, records_of, topic_is_known
from ..group_requests import (
    commit,
    coordinator_is_there,
    join,
    leave,
    sync,
)
from ..play import Play, script

VERSIONS = (0, 1)


@script(properties="consumers")
def refused(play: Play) -> None:
    topic = play.topic("t", partitions=3)
    group = play.name("g")
    none = play.name("none")
    coordinator_is_there(play, group, none)
    topic_is_known(play, topic)
    play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, "m", topic.name))
    for version in VERSIONS:
        for case, fields in {
            "no member id": first_beat(group, "", topic.name),
            "a blank member id": first_beat(group, " ", topic.name),
            "no member id later": beat(group, "", 1),
            "no member id to leave": beat(group, "", -1),
            "no group id": first_beat("", "m", topic.name),
            "a blank group id": first_beat(" ", "m", topic.name),
            "an empty instance id": first_beat(group, "m", topic.name, instance_id=""),
            "an empty rack": first_beat(group, "m", topic.name, rack_id=""),
            "no rebalance timeout": first_beat(group, "m", topic.name) | {"rebalance_timeout_ms": -1},
            "no partitions": first_beat(group, "m", topic.name) | {"topic_partitions": None},
            "some partitions": first_beat(group, "m", topic.name)
            | {"topic_partitions": [{"topic_id": topic.topic_id, "partitions": [0]}]},
            "no subscription": first_beat(group, "m") | {"subscribed_topic_names": None},
            "to leave for a while without an instance id": beat(group, "m", -2),
            "epoch -3": beat(group, "m", -3),
            "an unknown assignor": first_beat(group, "m", topic.name, server_assignor="mine"),
            "an empty assignor": first_beat(group, "m", topic.name, server_assignor=""),
            "an unknown group": beat(none, "m", 1),
            "an unknown group to leave": beat(none, "m", -1),
            "an unknown member": beat(group, "nobody", 1),
            "an unknown member to leave": beat(group, "nobody", -1),
            "an unknown instance": beat(group, "m", 1, instance_id="i"),
            "an unknown instance to leave": beat(group, "m", -1, instance_id="i"),
            "an unknown instance to leave for a while": beat(group, "m", -2, instance_id="i"),
            "an epoch too great": beat(group, "m", 77),
            "an epoch too small": beat(group, "m", 1),
            "an epoch too small, with nothing owned": beat(group, "m", 1, owned=()),
        }.items():
            if version == 0 and case == "no member id":
                continue
            play.ask(f"{case} (v{version})", "ConsumerGroupHeartbeat", version, fields)
        play.ask(f"as it should be (v{version})", "ConsumerGroupHeartbeat", version, beat(group, "m", 2))
    generated = play.name("generated")
    coordinator_is_there(play, generated)
    answer = play.quietly("ConsumerGroupHeartbeat", 0, first_beat(generated, "", topic.name))
    play.note("a member id of the server's", [len(answer.member_id), answer.member_epoch])
    for version in VERSIONS:
        for operations in (False, True):
            fields = {"group_ids": [group, none, "", group], "include_authorized_operations": operations}
            play.ask(f"described (v{version}, {operations})", "ConsumerGroupDescribe", version, fields)
        play.ask(f"none (v{version})", "ConsumerGroupDescribe", version, {"group_ids": []})
    play.note("records", records_of(play, group, topic))


@script(properties="consumers")
def a_life(play: Play) -> None:
    """Two members join, share partitions, change their subscriptions and leave."""
    topic = play.topic("t", partitions=3)
    group = play.name("g")
    coordinator_is_there(play, group)

    def one(case: str, epoch: int, **more: object) -> object:
        return play.ask(case, "ConsumerGroupHeartbeat", 1, beat(group, "one", epoch, **more))  # type: ignore[arg-type]

    def two(case: str, epoch: int, **more: object) -> object:
        return play.ask(case, "ConsumerGroupHeartbeat", 1, beat(group, "two", epoch, **more))  # type: ignore[arg-type]

    def ask(case: str, fields: object) -> object:
        return play.ask(case, "ConsumerGroupHeartbeat", 1, fields)  # type: ignore[arg-type]

    ask("one joins", first_beat(group, "one", topic.name))
    describe(play, "one alone", group)
    one("one lives", 2)
    one("one says what it has", 2, owned=[(topic, (0, 1, 2))])
    one("one says everything", 2, names=[topic.name], owned=[(topic, (0, 1, 2))], rebalance_timeout_ms=60_000)
    one("one says its subscription", 2, names=[topic.name])
    ask("one joins again", first_beat(group, "one", topic.name))
    ask("two joins", first_beat(group, "two", topic.name))
    describe(play, "one has to give up something", group)
    two("two has to wait", 3)
    one("one isn't told twice", 2)
    one("one is told what is left to it", 2, owned=[(topic, (0, 1, 2))])
    describe(play, "one still has it", group)
    one("one has given it up", 2, owned=[(topic, (0, 1))])
    one("the answer was lost", 2, owned=[(topic, (0, 1))])
    one("the answer was lost, and it has more than it should", 2, owned=[(topic, (0, 1, 2))])
    one("the answer was lost, and it doesn't say what it has", 2)
    describe(play, "two has to fetch it", group)
    two("two gets it", 3)
    describe(play, "all is well", group)
    two("two subscribes to another topic", 3, names=[play.name("nowhere")], owned=[(topic, (2,))])
    describe(play, "two gives up what it isn't subscribed to", group)
    two("two has given it up", 3, owned=())
    describe(play, "two has nothing", group)
    one("one", 3, owned=[(topic, (0, 1))])
    one("one again", 4, owned=[(topic, (0, 1))])
    two("two subscribes to nothing", 4, names=[])
    two("two subscribes again", 5, names=[topic.name])
    two("two later", 6)
    one("one is asked again", 4)
    one("one at last", 6, owned=[(topic, (0, 1, 2))])
    one("one gives up", 4, owned=[(topic, (0, 1))])
    two("two has it", 6)
    two("two leaves", 6 - 7)
    describe(play, "without two", group)
    one("one comes to have all", 6)
    one("one has all", 7)
    one("one leaves", -1)
    one("one leaves twice", -1)
    describe(play, "empty", group)
    one("one lives in an empty group", 7)
    ask("one joins an empty group", first_beat(group, "one", topic.name, server_assignor="range"))
    describe(play, "with another assignor", group)
    play.note("records", records_of(play, group, topic))


@script(properties="consumers")
def static_members(play: Play) -> None:
    topic = play.topic("t", partitions=4)
    group = play.name("g")
    coordinator_is_there(play, group)

    def ask(case: str, fields: object) -> object:
        return play.ask(case, "ConsumerGroupHeartbeat", 1, fields)  # type: ignore[arg-type]

    ask("it joins", first_beat(group, "one", topic.name, instance_id="i"))
    ask("it joins twice", first_beat(group, "one", topic.name, instance_id="i"))
    ask("another one of its instance id", first_beat(group, "two", topic.name, instance_id="i"))
    ask("it lives", beat(group, "one", 2, instance_id="i"))
    ask("it lives without its instance id", beat(group, "one", 2))
    ask("another one of its instance id lives", beat(group, "two", 2, instance_id="i"))
    ask("another one leaves for it", beat(group, "two", -1, instance_id="i"))
    ask("another one leaves for it for a while", beat(group, "two", -2, instance_id="i"))
    ask("it leaves for a while", beat(group, "one", -2, instance_id="i"))
    ask("it leaves for a while again", beat(group, "one", -2, instance_id="i"))
    describe(play, "it is away", group)
    ask("it goes on where it was", beat(group, "one", 2, instance_id="i"))
    fields = commit(group, (topic, 0, 1), member_id="one", generation=2)
    play.ask("it commits though it is away", "OffsetCommit", 9, fields)
    ask("a dynamic one comes meanwhile", first_beat(group, "three", topic.name))
    describe(play, "it is away, and another has come", group)
    ask("it comes back", first_beat(group, "four", topic.name, instance_id="i"))
    describe(play, "it is back", group)
    ask("the old id", beat(group, "one", 2, instance_id="i"))
    ask("it gives up", beat(group, "four", 2, instance_id="i", owned=[(topic, (0, 1))]))
    ask("the dynamic one", beat(group, "three", 3))
    ask("it leaves for good", beat(group, "four", -1, instance_id="i"))
    describe(play, "it is gone", group)
    ask("the dynamic one leaves for a while", beat(group, "three", -2, instance_id="i"))
    ask("a static one without change", first_beat(group, "five", topic.name, instance_id="j"))
    ask("it leaves for a while, too", beat(group, "five", -2, instance_id="j"))
    ask("it comes back with another subscription", first_beat(group, "six", instance_id="j"))
    play.note("records", records_of(play, group, topic))


@script(properties="consumers")
def limits(play: Play) -> None:
    """`group.consumer.max.size` is 3 here."""
    topic = play.topic("t", partitions=2)
    group = play.name("g")
    coordinator_is_there(play, group)
    for member in ("one", "two", "three"):
        play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, member, topic.name))
    for case, fields in {
        "one too many": first_beat(group, "four", topic.name),
        "a static one too many": first_beat(group, "four", topic.name, instance_id="i"),
        "nobody": beat(group, "nobody", 3),
        "a member": beat(group, "one", 2),
        "a member again": first_beat(group, "one", topic.name),
    }.items():
        play.ask(case, "ConsumerGroupHeartbeat", 1, fields)


@script(properties="consumers")
def metadata(play: Play) -> None:
    """Topics are created, grow and are deleted."""
    name = play.name("later")
    group = play.name("g")
    coordinator_is_there(play, group)

    def ask(case: str, fields: object) -> object:
        return play.ask(case, "ConsumerGroupHeartbeat", 1, fields)  # type: ignore[arg-type]

    ask("a topic that isn't there", first_beat(group, "one", name))
    ask("still not", beat(group, "one", 2))
    topic = play.topic("later", partitions=2)
    play.ask_until(
        "it is there",
        lambda answer: answer.member_epoch == 3,
        "ConsumerGroupHeartbeat",
        1,
        beat(group, "one", 2),
    )
    grown = {"topics": [{"name": name, "count": 4, "assignments": None}], "timeout_ms": 10_000}
    play.quietly("CreatePartitions", 3, grown)
    answer = play.ask_until(
        "it grows",
        lambda answer: answer.member_epoch == 4,
        "ConsumerGroupHeartbeat",
        1,
        beat(group, "one", 3),
    )
    play.note("it has all", [list(indexes) for _, indexes in owned_in(answer, topic)])
    play.quietly("DeleteTopics", 5, {"topic_names": [name], "timeout_ms": 10_000})
    play.ask_until(
        "it is gone",
        lambda answer: answer.member_epoch != 4 or answer.assignment is not None,
        "ConsumerGroupHeartbeat",
        1,
        beat(group, "one", 4),
    )
    play.ask_until(
        "the member has given it up",
        lambda answer: answer.member_epoch == 5,
        "ConsumerGroupHeartbeat",
        1,
        beat(group, "one", 4, owned=()),
    )
    describe(play, "in the end", group)
    play.note("records", records_of(play, group, topic))


@script(properties="consumers")
def after_a_restart(play: Play) -> None:
    topic = play.topic("t", partitions=4)
    groups = [play.name(f"g{number}") for number in range(2)]
    coordinator_is_there(play, *groups)
    for group in groups:
        play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, "one", topic.name))
        play.quietly("ConsumerGroupHeartbeat", 1, first_beat(group, "two", topic.name, instance_id="i"))
    play.quietly("ConsumerGroupHeartbeat", 1, beat(groups[0], "one", 2, owned=[(topic, (0, 1, 2, 3))]))
    for kill in (False, True):
        play.restart(kill=kill)
        coordinator_is_there(play, *groups)
        describe(play, f"after {'a kill' if kill else 'a stop'}", *groups)
    group = groups[0]
    for case, fields in {
        "one lives": beat(group, "one", 2),
        "one gives up": beat(group, "one", 2, owned=[(topic, (0, 1))]),
        "two gets it": beat(group, "two", 3, instance_id="i"),
        "nobody": beat(group, "nobody", 3),
    }.items():
        play.ask(case, "ConsumerGroupHeartbeat", 1, fields)
    play.note("records", records_of(play, group, topic))


@script(properties="consumers")
def without_a_client_id(play: Play) -> None:
    """A client doesn't have to send a client id. Kafka's records have no null for it."""
    topic = play.topic("t")
    group, classic = play.name("g"), play.name("classic")
    coordinator_is_there(play, group, classic)
    api = "ConsumerGroupHeartbeat"
    play.ask("it joins", api, 1, first_beat(group, "one", topic.name), client_id=None)
    describe(play, "described", group)
    for version in (3, 5):
        fields = join(classic)
        answer = play.ask(f"an id (v{version})", "JoinGroup", version, fields, client_id=None)
        member = answer.member_id
        play.note(f"how it begins (v{version})", member[: member.find("-")])
        if version == 5:
            fields = join(classic, member)
            answer = play.ask("it joins the classic one", "JoinGroup", version, fields, client_id=None)
        generation = answer.generation_id
        fields = sync(classic, generation, member, {member: b"x"})
        play.ask(f"it syncs (v{version})", "SyncGroup", 3, fields, client_id=None)
        play.ask(f"described as classic (v{version})", "DescribeGroups", 5, {"groups": [classic]})
        play.quietly("LeaveGroup", 4, leave(classic, (member, None)))


@script(properties="consumers")
def times(play: Play) -> None:
    """Sessions and time limits expire, by a group's own settings."""
    topic = play.topic("t", partitions=4)
    silent, late = play.name("silent"), play.name("late")
    coordinator_is_there(play, silent, late)
    configs = {"consumer.session.timeout.ms": "600", "consumer.heartbeat.interval.ms": "150"}
    altered = {
        "resource_type": 32,
        "resource_name": silent,
        "configs": [{"name": name, "config_operation": 0, "value": value} for name, value in configs.items()],
    }
    play.quietly("IncrementalAlterConfigs", 1, {"resources": [altered]})
    api = "ConsumerGroupHeartbeat"

    def members(group: str) -> int:
        return len(play.quietly("ConsumerGroupDescribe", 1, {"group_ids": [group]}).groups[0].members)

    play.ask_until(
        "the group's own heartbeat interval",
        lambda answer: answer.heartbeat_interval_ms == 150,
        api,
        1,
        first_beat(silent, "one", topic.name),
    )
    play.until("its session is over", lambda: members(silent) == 0)
    play.ask("it was too silent", api, 1, beat(silent, "one", 2))
    describe(play, "without it", silent)

    fields = first_beat(late, "one", topic.name) | {"rebalance_timeout_ms": 300}
    play.quietly(api, 1, fields)
    play.quietly(api, 1, first_beat(late, "two", topic.name))
    play.ask("one has to give up", api, 1, beat(late, "one", 2))
    play.until("its time is over", lambda: members(late) == 1)
    play.ask("one is too late", api, 1, beat(late, "one", 2, owned=[(topic, (0, 1))]))
    play.ask("two gets all", api, 1, beat(late, "two", 3))
    play.note("records", [records_of(play, group, topic) for group in (silent, late)])
