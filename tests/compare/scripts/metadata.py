"""Metadata: all topics, topics by name and by id, automatic creation, authorized operations."""

from __future__ import annotations

from ..batches import batch, legacy_message_set
from ..play import Play, script, versions
from ..requests import UNKNOWN_ID, ZERO_ID, metadata, produce, unknown

ALL = {"topics": None, "allow_auto_topic_creation": True}


@script
def every_version(play: Play) -> None:
    topic = play.topic("a", 3)
    for version in versions("Metadata"):
        play.ask(f"a topic (v{version})", "Metadata", version, metadata(topic.name))
        play.ask(f"no topics (v{version})", "Metadata", version, metadata())
        if version >= 1:
            play.ask(f"all topics (v{version})", "Metadata", version, ALL)
        if version >= 4:
            play.ask(f"an unknown topic (v{version})", "Metadata", version, metadata("nowhere"))
            play.ask(
                f"a good one and a bad one (v{version})", "Metadata", version, metadata("nowhere", topic.name)
            )
        play.ask(f"a name that is not allowed (v{version})", "Metadata", version, metadata("a/b"))


@script
def names(play: Play) -> None:
    topic = play.topic("a.b")
    other = play.topic("c")
    collides = topic.name.replace(".", "_")
    for create in (False, True):
        say = "may be created" if create else "may not be created"
        for case, name in {
            "an empty name": "",
            "a dot": ".",
            "two dots": "..",
            "249 characters": None if create else "x" * 249,
            "250 characters": "x" * 250,
            "a slash": "a/b",
            "a space": "a b",
            "a letter that is none of ours": "ä",
            "a name that collides": collides,
            "the metadata log": "__cluster_metadata",
        }.items():
            if name is not None:
                play.ask(f"{case}, {say}", "Metadata", 12, metadata(name, create=create))
    play.ask("a topic twice", "Metadata", 12, metadata(topic.name, topic.name))
    play.ask("an unknown topic twice", "Metadata", 12, metadata("nowhere", "nowhere"))
    play.ask("a bad name twice", "Metadata", 12, metadata("a/b", "a/b"))
    play.ask("several", "Metadata", 12, metadata("nowhere", other.name, "a/b", topic.name, "", "there"))
    play.ask("no collision came to be", "Metadata", 12, metadata(collides))


@script
def creation(play: Play) -> None:
    """The answer says that the topic is unknown. After that the broker creates it."""
    for version in versions("Metadata"):
        name = play.name(f"v{version}")
        play.ask(f"an unknown topic (v{version})", "Metadata", version, metadata(name, create=True))
        play.until_there(name, 2)
        play.ask(f"a moment later (v{version})", "Metadata", 9, metadata(name))
    name = play.name("not")
    for version in (4, 8, 12):
        play.ask(f"creation not allowed (v{version})", "Metadata", version, metadata(name, create=False))
    play.ask(
        "two at once, and a bad name",
        "Metadata",
        12,
        metadata(play.name("one"), "a/b", play.name("two"), create=True),
    )
    play.until_there(play.name("one"), 2)
    play.until_there(play.name("two"), 2)
    play.ask("both are there", "Metadata", 12, metadata(play.name("one"), play.name("two"), create=True))
    play.ask("the one that was not allowed is not", "Metadata", 12, metadata(name))


@script
def by_id(play: Play) -> None:
    topic = play.topic("a", 2)
    other = play.topic("b")
    for version in (12, 13):
        for case, topics in {
            "an id": [{"topic_id": topic.topic_id, "name": None}],
            "two ids": [
                {"topic_id": other.topic_id, "name": None},
                {"topic_id": topic.topic_id, "name": None},
            ],
            "an id twice": [{"topic_id": topic.topic_id, "name": None}] * 2,
            "an unknown id": [{"topic_id": UNKNOWN_ID, "name": None}],
            "a known and an unknown id": [
                {"topic_id": UNKNOWN_ID, "name": None},
                {"topic_id": topic.topic_id, "name": None},
            ],
            "an id and its name": [{"topic_id": topic.topic_id, "name": topic.name}],
            "an id and another name": [{"topic_id": topic.topic_id, "name": "nowhere"}],
            "an id and an empty name": [{"topic_id": topic.topic_id, "name": ""}],
            "an unknown id and a known name": [{"topic_id": UNKNOWN_ID, "name": topic.name}],
            "an id, and a name in another entry": [
                {"topic_id": topic.topic_id, "name": None},
                {"name": other.name},
            ],
            "a name, and an id in another entry": [
                {"name": other.name},
                {"topic_id": topic.topic_id, "name": None},
            ],
            "a zero id and no name": [{"topic_id": ZERO_ID, "name": None}],
            "a zero id and no name beside a name": [
                {"topic_id": ZERO_ID, "name": None},
                {"name": topic.name},
            ],
            "a zero id and no name beside an id": [
                {"topic_id": ZERO_ID, "name": None},
                {"topic_id": topic.topic_id, "name": None},
            ],
            "a zero id and a name": [{"topic_id": ZERO_ID, "name": topic.name}],
        }.items():
            for create in (False, True):
                asked = {
                    "topics": topics,
                    "allow_auto_topic_creation": create,
                    "include_topic_authorized_operations": False,
                }
                play.ask(f"{case}, creation {create} (v{version})", "Metadata", version, asked)


@script
def ids_before_their_time(play: Play) -> None:
    """v10 and v11 have a field for a topic id that clients may not use."""
    topic = play.topic("a")
    for version in (10, 11):
        for case, topics in {
            "no name": [{"topic_id": ZERO_ID, "name": None}],
            "an id": [{"topic_id": topic.topic_id, "name": None}],
            "an id and a name": [{"topic_id": topic.topic_id, "name": topic.name}],
            "no name beside a name": [{"topic_id": ZERO_ID, "name": None}, {"name": topic.name}],
            "a name beside an id": [{"name": topic.name}, {"topic_id": topic.topic_id, "name": None}],
        }.items():
            asked = {"topics": topics, "allow_auto_topic_creation": False}
            play.ask(f"{case} (v{version})", "Metadata", version, asked)


@script
def authorized_operations(play: Play) -> None:
    topic = play.topic("a")
    for version in range(8, 14):
        for cluster in (False, True):
            if cluster and version > 10:
                continue
            for topics in (False, True):
                asked = metadata(
                    topic.name, "nowhere", "a/b", cluster_operations=cluster, topic_operations=topics
                )
                play.ask(
                    f"of the cluster {cluster}, of topics {topics} (v{version})", "Metadata", version, asked
                )
                asked["topics"] = []
                play.ask(
                    f"no topics; of the cluster {cluster}, of topics {topics} (v{version})",
                    "Metadata",
                    version,
                    asked,
                )


@script(properties="third")
def internal_topics(play: Play) -> None:
    """The broker treats these topics as internal before they exist, and creates them with their own settings."""
    names = ("__consumer_offsets", "__share_group_state", "__transaction_state")
    play.names.other_topics = frozenset(names)
    play.ask("none of them is there", "Metadata", 12, ALL)
    for name in names:
        for version in (4, 9, 12):
            play.ask(f"{name} before it is there (v{version})", "Metadata", version, metadata(name))
        play.ask(f"{name} created", "Metadata", 12, metadata(name, create=True))
        play.until_there(name, 3)
        play.ask(f"{name} once it is there", "Metadata", 12, metadata(name, topic_operations=True))
    play.ask("the metadata log", "Metadata", 12, metadata("__cluster_metadata", create=True))
    play.ask("the metadata log by its id", "Metadata", 12, metadata(ids=[bytes(15) + b"\1"]))
    play.ask("all of them", "Metadata", 12, ALL)
    play.ask("a record for one", "Produce", 9, _record_for("__consumer_offsets"))
    play.ask("a record for one, with acks=7", "Produce", 9, _record_for("__consumer_offsets", acks=7))
    play.ask(
        "a record of the admin client's",
        "Produce",
        9,
        _record_for("__consumer_offsets"),
        client_id="__admin_client",
    )
    play.ask("a record of old format for one", "Produce", 9, _record_for("__transaction_state", old=True))
    play.ask(
        "partitions for one",
        "CreatePartitions",
        3,
        {"topics": [{"name": "__consumer_offsets", "count": 4}], "timeout_ms": 10_000},
    )
    play.ask(
        "one is created again",
        "CreateTopics",
        7,
        {
            "topics": [{"name": "__consumer_offsets", "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 10_000,
        },
    )
    play.ask(
        "one is deleted",
        "DeleteTopics",
        6,
        {"topics": [{"name": "__share_group_state"}], "timeout_ms": 10_000},
    )


def _record_for(name: str, *, acks: int = -1, old: bool = False) -> dict[str, object]:
    return produce((unknown(name), 0, legacy_message_set(1) if old else batch()), acks=acks)
