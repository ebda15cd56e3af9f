"""DescribeConfigs and ListConfigResources."""

from __future__ import annotations

from ..config_requests import (
    BROKER,
    DELETE,
    GROUP,
    GROUP_CONFIGS,
    LOGGER,
    METRICS,
    NEEDS,
    SET,
    SHOWN_BROKER_CONFIGS,
    TOPIC,
    broker_name,
    change,
    changed,
    described,
    resource,
    until_set,
)
from ..play import Play, script, versions


@script(needs=NEEDS)
def describe_topics(play: Play) -> None:
    a = play.topic(
        "a", 1, retention_ms="1234", cleanup_policy="compact,delete", min_cleanable_dirty_ratio=".000001"
    )
    b = play.topic("b", 1, internal_segment_bytes="2048", segment_ms=" 60000 ")
    for version in versions("DescribeConfigs"):
        for synonyms in (False, True):
            asked = described(resource(TOPIC, a.name, every=True), synonyms=synonyms)
            play.ask(f"all, synonyms {synonyms} (v{version})", "DescribeConfigs", version, asked)
        play.ask(f"no resources (v{version})", "DescribeConfigs", version, described())
    for case, asked in {
        "a hidden setting": described(resource(TOPIC, b.name)),
        "two, one of them twice": described(
            resource(TOPIC, a.name, "retention.ms"),
            resource(TOPIC, b.name),
            resource(TOPIC, a.name, "segment.ms"),
        ),
        "some settings": described(resource(TOPIC, a.name, "retention.ms", "flush.ms", "segment.bytes")),
        "a setting twice": described(resource(TOPIC, a.name, "retention.ms", "retention.ms")),
        "unknown settings": described(
            resource(TOPIC, a.name, "retention.ms", "no.such", "", "log.retention.ms")
        ),
        "an unknown setting alone": described(resource(TOPIC, a.name, "no.such")),
        "an unknown topic": described(resource(TOPIC, "nowhere"), resource(TOPIC, a.name, "retention.ms")),
        "bad names": described(resource(TOPIC, ""), resource(TOPIC, "a/b"), resource(TOPIC, "..")),
    }.items():
        play.ask(case, "DescribeConfigs", 4, asked)
    for kind in (-128, -1, 0, 1, 3, 5, 64, 127):
        asked = described(resource(kind, a.name), resource(TOPIC, a.name))
        play.ask(f"resource type {kind}", "DescribeConfigs", 4, asked)


@script(needs=NEEDS)
def describe_brokers(play: Play) -> None:
    name = broker_name(play)
    for version in versions("DescribeConfigs"):
        asked = described(resource(BROKER, name, *SHOWN_BROKER_CONFIGS))
        play.ask(f"some (v{version})", "DescribeConfigs", version, asked)
    for case, wanted in {
        "the cluster's": resource(BROKER, "", every=True),
        "some of the cluster's": resource(BROKER, "", "min.insync.replicas", "log.retention.ms"),
        "another broker": resource(BROKER, "77"),
        "no number": resource(BROKER, "x"),
        "a number with a sign": resource(BROKER, f"+{name}", "node.id"),
        "a number with a zero before it": resource(BROKER, f"0{name}", "node.id"),
        "a number with a space": resource(BROKER, f" {name}", "node.id"),
        "unknown settings": resource(BROKER, name, "no.such", "retention.ms", "num.partitions"),
        "loggers of no broker": resource(LOGGER, ""),
        "loggers of another broker": resource(LOGGER, "77"),
        "loggers of no number": resource(LOGGER, "x"),
        "an unknown logger": resource(LOGGER, name, "no.such.logger"),
    }.items():
        play.ask(case, "DescribeConfigs", 4, described(wanted))
    answer = play.quietly("DescribeConfigs", 4, described(resource(BROKER, name, every=True)))
    shown = sorted([c.name, c.read_only, c.config_type, c.is_sensitive] for c in answer.results[0].configs)
    play.note("every setting, whether it is fixed, its type, whether it is hidden", shown)


@script(needs=NEEDS)
def describe_groups_and_metrics(play: Play) -> None:
    for kind, what, keys in ((GROUP, "group", GROUP_CONFIGS), (METRICS, "subscription", ())):
        for version in versions("DescribeConfigs"):
            asked = described(resource(kind, play.name("any"), *keys))
            play.ask(f"a {what} (v{version})", "DescribeConfigs", version, asked)
        play.ask(f"a {what} without a name", "DescribeConfigs", 4, described(resource(kind, "")))
        some = resource(kind, "x", "interval.ms", "consumer.session.timeout.ms", "no.such")
        play.ask(f"some settings of a {what}", "DescribeConfigs", 4, described(some))


@script(needs=NEEDS)
def list_resources(play: Play) -> None:
    play.topic("a")
    group, metrics = play.name("group"), play.name("metrics")
    asked = changed(
        change(GROUP, group, ("consumer.session.timeout.ms", SET, "50000")),
        change(METRICS, metrics, ("interval.ms", SET, "1000")),
    )
    play.ask("a group and a subscription", "IncrementalAlterConfigs", 1, asked)
    until_set(play, METRICS, metrics, "interval.ms", "1000")
    play.ask("v0", "ListConfigResources", 0, {})
    for kinds in (
        [],
        [TOPIC],
        [BROKER],
        [LOGGER],
        [METRICS],
        [GROUP],
        [GROUP, TOPIC],
        [TOPIC, TOPIC],
        [0],
        [1],
        [TOPIC, 64],
    ):
        play.ask(f"types {kinds}", "ListConfigResources", 1, {"resource_types": kinds})


@script(needs=NEEDS, properties="strict")
def describe_with_a_file(play: Play) -> None:
    """A broker whose file overrides the defaults."""
    name = broker_name(play)
    a = play.topic("a", 1, retention_ms="1234", cleanup_policy="delete")
    play.ask("a topic", "DescribeConfigs", 4, described(resource(TOPIC, a.name, every=True)))
    play.ask("the broker", "DescribeConfigs", 4, described(resource(BROKER, name, *SHOWN_BROKER_CONFIGS)))
    play.ask("the cluster", "DescribeConfigs", 4, described(resource(BROKER, "", every=True)))
    minutes = changed(change(BROKER, "", ("log.retention.ms", SET, "60000")))
    play.ask("another unit for all", "IncrementalAlterConfigs", 1, minutes)
    until_set(play, BROKER, "", "log.retention.ms", "60000")
    until_set(play, BROKER, name, "log.retention.ms", "60000")
    kept = resource(BROKER, name, "log.retention.ms", "log.retention.minutes", "log.retention.hours")
    play.ask("a setting in three units", "DescribeConfigs", 4, described(kept))
    play.ask("a topic's", "DescribeConfigs", 4, described(resource(TOPIC, a.name, "retention.ms")))
    gone = changed(change(BROKER, "", ("log.retention.ms", DELETE, None)))
    play.ask("deleted", "IncrementalAlterConfigs", 1, gone)
