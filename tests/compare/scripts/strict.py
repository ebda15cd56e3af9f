"""A broker with switched options and changed defaults: `PROPERTIES["strict"]`."""

from __future__ import annotations

from ..batches import GZIP, batch, record
from ..play import Play, script, versions
from ..requests import configs, create_topics, fetch, metadata, produce
from .cluster import describe
from .fetch_sessions import Session
from .topics_deleted import deletion


@script(properties="strict")
def no_auto_creation(play: Play) -> None:
    for version in versions("Metadata"):
        play.ask(f"an unknown topic (v{version})", "Metadata", version, metadata("nowhere", create=True))
    play.ask("an internal one", "Metadata", 12, metadata("__consumer_offsets", create=True))
    play.ask("a bad name", "Metadata", 12, metadata("a/b", create=True))
    play.ask("it is still not there", "Metadata", 12, metadata("nowhere", "__consumer_offsets"))


@script(properties="strict")
def no_deletion(play: Play) -> None:
    topic = play.topic("a")
    for version in versions("DeleteTopics"):
        for case, asked in {
            "a topic": deletion(topic),
            "an unknown one": deletion("nowhere"),
            "several": deletion(topic, "nowhere", "a/b"),
            "none": deletion(),
            "a timeout of 0": deletion(topic, timeout_ms=0),
            "a name twice": deletion(topic, topic),
        }.items():
            play.ask(f"{case} (v{version})", "DeleteTopics", version, asked)
    for case, asked in {
        "an id": deletion(topic.topic_id),
        "an id and a name": deletion((topic.name, topic.topic_id)),
    }.items():
        play.ask(case, "DeleteTopics", 6, asked)
    play.ask("it is still there", "Metadata", 12, metadata(topic.name))


@script(properties="strict")
def no_fetch_sessions(play: Play) -> None:
    """There are fewer slots than shards, so no session has room."""
    topic = play.topic("a")
    session = Session(play)
    session.open("asked for one", (topic, 0, 0))
    session.ask("went on all the same")


@script(properties="strict")
def defaults_of_topics_from_the_broker(play: Play) -> None:
    """Sources of configs: the topic's own, the broker's file, Kafka's defaults."""
    play.ask("nothing given", "CreateTopics", 7, create_topics({"name": play.name("a")}))
    given = configs(compression_type="producer", retention_ms="7", cleanup_policy="delete", segment_ms="8")
    play.ask("some given", "CreateTopics", 7, create_topics({"name": play.name("b"), "configs": given}))
    play.ask("in an old version", "CreateTopics", 4, create_topics({"name": play.name("c")}))


@script(properties="strict")
def produce_under_other_defaults(play: Play) -> None:
    """LogAppendTime, gzip, compaction, at most 2000 bytes, and min.insync.replicas of two with one replica."""
    topic = play.topic("a")
    for acks in (1, -1):
        play.ask(f"acks {acks}", "Produce", 9, produce((topic, 0, batch(2)), acks=acks))
    play.ask("no key", "Produce", 9, produce((topic, 0, batch([record(key=None)]))))
    play.ask("too large", "Produce", 9, produce((topic, 0, batch([record(b"x" * 2000)]))))
    play.ask("small as gzip", "Produce", 9, produce((topic, 0, batch([record(b"x" * 3000)], codec=GZIP))))
    play.ask("what was stored", "Fetch", 12, fetch((topic, 0, 0)))


@script(properties="strict")
def fetch_has_a_limit_of_the_brokers(play: Play) -> None:
    topic = play.topic("a", 2, compression_type="producer", max_message_bytes="20000")
    for partition in (0, 1):
        play.write(topic.name, *(batch([record(b"x" * 930)]) for _ in range(6)), partition=partition)
    for most in (1000, 4095, 4096, 5000, 2**31 - 1):
        play.ask(f"max_bytes {most}", "Fetch", 12, fetch((topic, 0, 0), (topic, 1, 0), max_bytes=most))
    play.write(topic.name, batch([record(b"x" * 10_000)]))
    play.ask("a batch larger than the limit", "Fetch", 12, fetch((topic, 0, 6)))
    play.ask(
        "min_bytes above the limit", "Fetch", 12, fetch((topic, 0, 0), min_bytes=10**6, max_wait_ms=30_000)
    )


@script(properties="strict")
def partitions_described_at_once_have_a_limit(play: Play) -> None:
    a, b = play.topic("a", 4), play.topic("b", 2)
    for limit in (0, 1, 2, 3, 4, 2000):
        play.ask(f"limit {limit}", "DescribeTopicPartitions", 0, describe(a.name, b.name, limit=limit))
    play.ask("from the rest on", "DescribeTopicPartitions", 0, describe(a.name, b.name, cursor=(a.name, 3)))
