"""AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from ..config_requests import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    GROUP_CONFIGS,
    LOGGER,
    METRICS,
    NEEDS,
    SET,
    SUBTRACT,
    TOPIC,
    broker_name,
    change,
    changed,
    described,
    replacement,
    resource,
    until_set,
)
from ..play import SILENCE_S, Play, script, versions


@script(needs=NEEDS)
def alter_topics(play: Play) -> None:
    a, b = play.topic("a"), play.topic("b")
    c = play.topic("c", 1, cleanup_policy="compact", retention_ms="5000")
    for case, asked in {
        "set": changed(
            change(TOPIC, a.name, ("retention.ms", SET, "777"), ("segment.bytes", SET, "2097152"))
        ),
        "set to what it is": changed(change(TOPIC, a.name, ("retention.ms", SET, "777"))),
        "set with spaces": changed(change(TOPIC, a.name, ("preallocate", SET, " TRUE "))),
        "only validated": changed(change(TOPIC, a.name, ("retention.ms", SET, "1")), only=True),
        "bad, only validated": changed(change(TOPIC, a.name, ("retention.ms", SET, "x")), only=True),
        "delete": changed(change(TOPIC, a.name, ("segment.bytes", DELETE, None))),
        "delete what is not set": changed(change(TOPIC, a.name, ("segment.ms", DELETE, None))),
        "delete with a value": changed(change(TOPIC, a.name, ("preallocate", DELETE, "false"))),
        "delete an unknown one": changed(change(TOPIC, a.name, ("no.such", DELETE, None))),
        "append": changed(change(TOPIC, a.name, ("cleanup.policy", APPEND, "compact"))),
        "append what is there": changed(change(TOPIC, a.name, ("cleanup.policy", APPEND, "delete"))),
        "append what is not allowed": changed(change(TOPIC, a.name, ("cleanup.policy", APPEND, "shred"))),
        "append nothing but a comma": changed(change(TOPIC, a.name, ("cleanup.policy", APPEND, ","))),
        "append with a comma at the end": changed(
            change(TOPIC, a.name, ("cleanup.policy", APPEND, "delete,,"))
        ),
        "append with a comma before": changed(change(TOPIC, a.name, ("cleanup.policy", APPEND, ",delete"))),
        "append nothing": changed(change(TOPIC, a.name, ("cleanup.policy", APPEND, ""))),
        "append to a number": changed(change(TOPIC, a.name, ("retention.ms", APPEND, "1"))),
        "append to an unknown one": changed(change(TOPIC, a.name, ("no.such", APPEND, "1"))),
        "subtract": changed(change(TOPIC, a.name, ("cleanup.policy", SUBTRACT, "delete"))),
        "subtract the last": changed(change(TOPIC, c.name, ("cleanup.policy", SUBTRACT, "compact"))),
        "subtract what is not there": changed(change(TOPIC, b.name, ("cleanup.policy", SUBTRACT, "compact"))),
        "subtract from a number": changed(change(TOPIC, a.name, ("retention.ms", SUBTRACT, "1"))),
        "append and subtract several": changed(
            change(
                TOPIC,
                b.name,
                ("leader.replication.throttled.replicas", APPEND, "0:1,0:2,0:1"),
                ("cleanup.policy", SUBTRACT, "delete,compact"),
            )
        ),
        "all or nothing": changed(
            change(TOPIC, b.name, ("retention.ms", SET, "5"), ("segment.ms", SET, "x"))
        ),
        "one resource good, one bad": changed(
            change(TOPIC, a.name, ("retention.ms", SET, "x")), change(TOPIC, b.name, ("flush.ms", SET, "9"))
        ),
        "a resource twice": changed(
            change(TOPIC, a.name, ("retention.ms", SET, "8")),
            change(TOPIC, b.name, ("retention.ms", SET, "8")),
            change(TOPIC, a.name, ("segment.ms", SET, "8")),
        ),
        "a setting twice": changed(
            change(TOPIC, a.name, ("retention.ms", SET, "8"), ("retention.ms", DELETE, None))
        ),
        "null": changed(change(TOPIC, a.name, ("retention.ms", SET, None))),
        "append null": changed(change(TOPIC, a.name, ("cleanup.policy", APPEND, None))),
        "nothing": changed(change(TOPIC, a.name)),
        "no resources": changed(),
        "an unknown setting": changed(change(TOPIC, a.name, ("no.such", SET, "1"))),
        "a broker's setting": changed(change(TOPIC, a.name, ("log.retention.ms", SET, "1"))),
        "out of range": changed(change(TOPIC, a.name, ("segment.bytes", SET, "1"))),
        "against another": changed(
            change(TOPIC, a.name, ("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8"))
        ),
        "tiered storage": changed(change(TOPIC, a.name, ("remote.storage.enable", SET, "true"))),
        "an unknown topic": changed(change(TOPIC, "nowhere", ("retention.ms", SET, "1"))),
        "an unknown topic and a bad value": changed(change(TOPIC, "nowhere", ("retention.ms", SET, "x"))),
        "nothing of an unknown topic": changed(change(TOPIC, "nowhere")),
        "a bad name": changed(change(TOPIC, "a/b", ("retention.ms", SET, "1"))),
        "no name": changed(change(TOPIC, "", ("retention.ms", SET, "1"))),
        "in sync": changed(change(TOPIC, a.name, ("min.insync.replicas", SET, "2"))),
    }.items():
        play.ask(case, "IncrementalAlterConfigs", 1, asked)
    for operation in (-1, 4, 5, 127):
        asked = changed(
            change(TOPIC, a.name, ("retention.ms", operation, "1")),
            change(TOPIC, b.name, ("flush.ms", SET, "11")),
        )
        play.ask(f"operation {operation}", "IncrementalAlterConfigs", 1, asked)
    for kind in (-1, 0, 1, 3, 64):
        play.ask(
            f"resource type {kind}", "IncrementalAlterConfigs", 1, changed(change(kind, "x", ("y", SET, "z")))
        )
    for version in versions("IncrementalAlterConfigs"):
        asked = changed(change(TOPIC, b.name, ("flush.messages", SET, f"{version + 1}")))
        play.ask(f"in v{version}", "IncrementalAlterConfigs", version, asked)
    until_set(play, TOPIC, b.name, "flush.messages", "2")
    for topic in (a, b, c):
        asked = described(resource(TOPIC, topic.name))
        play.ask(f"what came of {topic.name}", "DescribeConfigs", 4, asked)


@script(needs=NEEDS)
def replace(play: Play) -> None:
    a, b = play.topic("a", 1, retention_ms="5"), play.topic("b")
    subscription, group = play.name("subscription"), play.name("group")
    for case, asked in {
        "set": changed(replacement(TOPIC, a.name, segment_ms="6", flush_ms="7")),
        "the same": changed(replacement(TOPIC, a.name, segment_ms="6", flush_ms="7")),
        "only validated": changed(replacement(TOPIC, a.name, segment_ms="8"), only=True),
        "one of them": changed(replacement(TOPIC, a.name, segment_ms="6")),
        "null": changed(replacement(TOPIC, a.name, segment_ms=None)),
        "an unknown one": changed(replacement(TOPIC, a.name, no_such="1")),
        "a bad value": changed(replacement(TOPIC, a.name, segment_ms="x")),
        "an unknown topic": changed(replacement(TOPIC, "nowhere", segment_ms="6")),
        "a bad name": changed(replacement(TOPIC, "a/b", segment_ms="6")),
        "no name": changed(replacement(TOPIC, "", segment_ms="6")),
        "no resources": changed(),
        "loggers": changed(replacement(LOGGER, broker_name(play), root="WARN")),
        "another broker": changed(replacement(BROKER, "77", log_retention_ms="6")),
        "a group": changed(replacement(GROUP, group, consumer_session_timeout_ms="50000")),
        "a bad group": changed(replacement(GROUP, group, consumer_session_timeout_ms="1")),
        "a group without a name": changed(replacement(GROUP, "", consumer_session_timeout_ms="50000")),
        "a subscription": changed(replacement(METRICS, subscription, interval_ms="1000")),
        "a bad subscription": changed(replacement(METRICS, subscription, interval_ms="1")),
    }.items():
        play.ask(case, "AlterConfigs", 2, asked)
    for kind in (-1, 0, 1, 3, 64):
        play.ask(f"resource type {kind}", "AlterConfigs", 2, changed(replacement(kind, "x", y="z")))
    for version in versions("AlterConfigs"):
        asked = changed(replacement(TOPIC, b.name, flush_messages=str(version + 1)))
        play.ask(f"in v{version}", "AlterConfigs", version, asked)
    everything = described(
        resource(TOPIC, a.name),
        resource(TOPIC, b.name),
        resource(GROUP, group, *GROUP_CONFIGS),
        resource(METRICS, subscription),
    )
    until_set(play, TOPIC, b.name, "flush.messages", "3")
    play.ask("what came of them", "DescribeConfigs", 4, everything)
    asked = changed(replacement(TOPIC, a.name), replacement(GROUP, group), replacement(METRICS, subscription))
    play.ask("an empty list takes all away", "AlterConfigs", 2, asked)
    until_set(play, TOPIC, a.name, "segment.ms", "604800000")
    play.ask("what is left", "DescribeConfigs", 4, everything)


@script(needs=NEEDS)
def two_replacements(play: Play) -> None:
    a, b = play.topic("a"), play.topic("b")
    twice = (replacement(TOPIC, a.name), replacement(TOPIC, b.name, flush_ms="5"), replacement(TOPIC, a.name))
    play.ask("a resource twice", "AlterConfigs", 2, changed(*twice), within_s=SILENCE_S)
    until_set(play, TOPIC, b.name, "flush.ms", "5")
    play.ask("the others are altered", "DescribeConfigs", 4, described(resource(TOPIC, b.name, "flush.ms")))


@script(needs=NEEDS, properties="second")
def alter_brokers(play: Play) -> None:
    name = broker_name(play)
    topic = play.topic("a")
    shown = described(
        resource(
            BROKER, name, "log.retention.ms", "log.retention.hours", "log.segment.bytes", "num.io.threads"
        ),
        resource(BROKER, ""),
        resource(BROKER, name, "no.such", "retention.ms", "min.insync.replicas"),
        resource(TOPIC, topic.name, "retention.ms", "segment.bytes", "min.insync.replicas"),
    )
    for case, asked in {
        "set for all": changed(change(BROKER, "", ("log.retention.ms", SET, "7777"))),
        "set for one": changed(change(BROKER, name, ("log.segment.bytes", SET, "3000000"))),
        "set for one over all": changed(change(BROKER, name, ("log.retention.ms", SET, "8888"))),
        "only validated": changed(change(BROKER, "", ("log.retention.ms", SET, "1")), only=True),
    }.items():
        play.ask(case, "IncrementalAlterConfigs", 1, asked)
    until_set(play, BROKER, name, "log.retention.ms", "8888")
    play.ask("what came of it", "DescribeConfigs", 4, shown)
    for case, asked in {
        "deleted for one": changed(
            change(BROKER, name, ("log.retention.ms", DELETE, None), ("log.segment.bytes", DELETE, None))
        ),
        "deleted, though not set": changed(change(BROKER, name, ("log.roll.ms", DELETE, None))),
        "fixed": changed(change(BROKER, name, ("num.partitions", SET, "3"))),
        "fixed, for all": changed(change(BROKER, "", ("auto.create.topics.enable", SET, "false"))),
        "a bad value": changed(change(BROKER, name, ("log.retention.ms", SET, "x"))),
        "out of range": changed(change(BROKER, "", ("log.segment.bytes", SET, "1"))),
        "unknown": changed(change(BROKER, name, ("no.such", SET, "1"))),
        "a topic's name for it": changed(change(BROKER, "", ("retention.ms", SET, "1"))),
        "unknown and fixed": changed(change(BROKER, name, ("no.such", SET, "1"), ("node.id", SET, "5"))),
        "for one broker only": changed(change(BROKER, "", ("ssl.keystore.type", SET, "PKCS12"))),
        "another broker": changed(change(BROKER, "77", ("log.retention.ms", SET, "1"))),
        "no number": changed(change(BROKER, "x", ("log.retention.ms", SET, "1"))),
        "more than twice the threads": changed(change(BROKER, name, ("num.io.threads", SET, "17"))),
        "less than half the threads": changed(change(BROKER, name, ("num.io.threads", SET, "3"))),
        "twice the threads": changed(change(BROKER, name, ("num.io.threads", SET, "16"))),
        "append": changed(change(BROKER, "", ("log.cleanup.policy", APPEND, "compact"))),
        "append to a number": changed(change(BROKER, "", ("log.retention.ms", APPEND, "1"))),
        "append to an unknown one": changed(change(BROKER, "", ("no.such", APPEND, "1"))),
        "in sync, for one": changed(change(BROKER, name, ("min.insync.replicas", SET, "2"))),
        "in sync, for all": changed(change(BROKER, "", ("min.insync.replicas", SET, "2"))),
        "in sync, deleted": changed(change(BROKER, "", ("min.insync.replicas", DELETE, None))),
        "operation 4": changed(change(BROKER, name, ("log.retention.ms", 4, "1"))),
        "null": changed(change(BROKER, name, ("log.retention.ms", SET, None))),
        "nothing": changed(change(BROKER, name)),
    }.items():
        play.ask(case, "IncrementalAlterConfigs", 1, asked)
    until_set(play, BROKER, "", "min.insync.replicas", "2")
    until_set(play, BROKER, name, "num.io.threads", "16")
    play.ask("what came of all that", "DescribeConfigs", 4, shown)
    play.restart()
    play.ask("what a restart finds", "DescribeConfigs", 4, shown)
    play.ask("replaced for one", "AlterConfigs", 2, changed(replacement(BROKER, name, log_roll_ms="6000000")))
    play.ask(
        "in sync can't be replaced away",
        "AlterConfigs",
        2,
        changed(replacement(BROKER, "", log_roll_ms="7000000")),
    )
    kept = changed(replacement(BROKER, "", min_insync_replicas="1", log_roll_ms="7000000"))
    play.ask("replaced for all", "AlterConfigs", 2, kept)
    until_set(play, BROKER, "", "log.roll.ms", "7000000")
    until_set(play, BROKER, name, "log.roll.ms", "6000000")
    play.ask("a fixed one", "AlterConfigs", 2, changed(replacement(BROKER, "", num_partitions="7")))
    play.ask(
        "what is left",
        "DescribeConfigs",
        4,
        described(resource(BROKER, ""), resource(BROKER, name, "log.roll.ms")),
    )
    play.ask("nothing for one", "AlterConfigs", 2, changed(replacement(BROKER, name)))
    play.ask(
        "nothing but in sync for all",
        "AlterConfigs",
        2,
        changed(replacement(BROKER, "", min_insync_replicas="1")),
    )


@script(needs=NEEDS)
def alter_loggers(play: Play) -> None:
    name = broker_name(play)
    for case, asked in {
        "only validated": changed(change(LOGGER, name, ("root", SET, "ERROR")), only=True),
        "an unknown logger": changed(change(LOGGER, name, ("no.such.logger", SET, "INFO"))),
        "an unknown level": changed(change(LOGGER, name, ("root", SET, "LOUD"))),
        "a level in small letters": changed(change(LOGGER, name, ("root", SET, "error"))),
        "the root's level deleted": changed(change(LOGGER, name, ("root", DELETE, None))),
        "append": changed(change(LOGGER, name, ("root", APPEND, "INFO"))),
        "subtract": changed(change(LOGGER, name, ("root", SUBTRACT, "INFO"))),
        "operation 4": changed(change(LOGGER, name, ("root", 4, "INFO"))),
        "another broker": changed(change(LOGGER, "77", ("root", SET, "ERROR"))),
        "no broker": changed(change(LOGGER, "", ("root", SET, "ERROR"))),
        "null": changed(change(LOGGER, name, ("root", SET, None))),
        "set": changed(change(LOGGER, name, ("root", SET, "ERROR"))),
    }.items():
        play.ask(case, "IncrementalAlterConfigs", 1, asked)
    play.ask("what came of it", "DescribeConfigs", 4, described(resource(LOGGER, name, "root")))
    play.ask("back", "IncrementalAlterConfigs", 1, changed(change(LOGGER, name, ("root", SET, "WARN"))))


@script(needs=NEEDS)
def alter_groups_and_metrics(play: Play) -> None:
    group, metrics = play.name("group"), play.name("metrics")
    for case, asked in {
        "a group": changed(change(GROUP, group, ("consumer.session.timeout.ms", SET, "50000"))),
        "another of the group's": changed(
            change(GROUP, group, ("consumer.heartbeat.interval.ms", SET, "6000"))
        ),
        "below the broker's bound": changed(
            change(GROUP, group, ("consumer.session.timeout.ms", SET, "1000"))
        ),
        "above the broker's bound": changed(
            change(GROUP, group, ("consumer.session.timeout.ms", SET, "99999"))
        ),
        "an interval above": changed(change(GROUP, group, ("share.assignment.interval.ms", SET, "99999"))),
        "locks below": changed(change(GROUP, group, ("share.record.lock.duration.ms", SET, "1000"))),
        "standbys above": changed(change(GROUP, group, ("streams.num.standby.replicas", SET, "3"))),
        "no number": changed(change(GROUP, group, ("consumer.session.timeout.ms", SET, "x"))),
        "unknown": changed(change(GROUP, group, ("no.such", SET, "1"))),
        "a broker's name for it": changed(
            change(GROUP, group, ("group.consumer.session.timeout.ms", SET, "50000"))
        ),
        "append to a number": changed(change(GROUP, group, ("consumer.session.timeout.ms", APPEND, "50000"))),
        "an isolation level": changed(change(GROUP, group, ("share.isolation.level", SET, "read_committed"))),
        "a bad isolation level": changed(
            change(GROUP, group, ("share.isolation.level", SET, "READ_COMMITTED"))
        ),
        "a duration": changed(
            change(GROUP, group, ("share.auto.offset.reset", SET, "by_duration:P1DT2H3.5S"))
        ),
        "a bad duration": changed(change(GROUP, group, ("share.auto.offset.reset", SET, "by_duration:1d"))),
        "no duration": changed(change(GROUP, group, ("share.auto.offset.reset", SET, "by_duration:"))),
        "a negative duration": changed(
            change(GROUP, group, ("share.auto.offset.reset", SET, "by_duration:-PT1S"))
        ),
        "half a duration": changed(
            change(GROUP, group, ("share.auto.offset.reset", SET, "by_duration:P1DT"))
        ),
        "a bad reset": changed(change(GROUP, group, ("share.auto.offset.reset", SET, "none"))),
        "no group": changed(change(GROUP, "", ("consumer.session.timeout.ms", SET, "50000"))),
        "a subscription": changed(
            change(
                METRICS,
                metrics,
                ("interval.ms", SET, "1000"),
                ("metrics", SET, "org.apache.kafka.consumer., x"),
                ("match", SET, "client_id=a.*,client_software_name=librdkafka"),
            )
        ),
        "append to a subscription": changed(change(METRICS, metrics, ("metrics", APPEND, "y"))),
        "subtract from a subscription": changed(change(METRICS, metrics, ("metrics", SUBTRACT, "x"))),
        "append to its interval": changed(change(METRICS, metrics, ("interval.ms", APPEND, "1"))),
        "an interval too short": changed(change(METRICS, metrics, ("interval.ms", SET, "99"))),
        "an interval too long": changed(change(METRICS, metrics, ("interval.ms", SET, "3600001"))),
        "an interval of no number": changed(change(METRICS, metrics, ("interval.ms", SET, "x"))),
        "an unknown match": changed(change(METRICS, metrics, ("match", SET, "nobody=a"))),
        "a match without a pattern": changed(change(METRICS, metrics, ("match", SET, "client_id"))),
        "a match with a bad pattern": changed(change(METRICS, metrics, ("match", SET, "client_id=["))),
        "an unknown setting": changed(change(METRICS, metrics, ("no.such", SET, "1"))),
        "no subscription": changed(change(METRICS, "", ("interval.ms", SET, "1000"))),
    }.items():
        play.ask(case, "IncrementalAlterConfigs", 1, asked)
    shown = described(resource(GROUP, group, *GROUP_CONFIGS), resource(METRICS, metrics))
    until_set(play, METRICS, metrics, "interval.ms", "1000")
    play.ask("what came of it", "DescribeConfigs", 4, shown)
    gone = changed(
        change(METRICS, metrics, *((key, DELETE, None) for key in ("interval.ms", "metrics", "match"))),
        change(
            GROUP,
            group,
            *(
                (key, DELETE, None)
                for key in (
                    "consumer.session.timeout.ms",
                    "consumer.heartbeat.interval.ms",
                    "share.isolation.level",
                    "share.auto.offset.reset",
                )
            ),
        ),
    )
    play.ask("taken away", "IncrementalAlterConfigs", 1, gone)
    until_set(play, METRICS, metrics, "interval.ms", "300000")
    play.ask("what is left", "DescribeConfigs", 4, shown)
