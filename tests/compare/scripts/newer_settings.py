"""Settings that came with Kafka 4.4, and its checks of a group's settings."""

from __future__ import annotations

from ..config_requests import (
    BROKER,
    DELETE,
    GROUP,
    GROUP_CONFIGS,
    NEEDS,
    SET,
    TOPIC,
    broker_name,
    change,
    changed,
    described,
    replacement,
    resource,
    until_set,
)
from ..play import Play, script

TOPIC_SETTINGS = (
    "errors.deadletterqueue.group.enable",
    "max.decompressed.message.bytes",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
)

BROKER_SETTINGS = (
    "errors.deadletterqueue.auto.create.topics.enable",
    "errors.deadletterqueue.topic.name.prefix",
    "group.streams.assignors",
    "group.streams.rack.aware.assignment.tags",
    "group.streams.topology.description.plugin.class",
    "log.remote.copy.lag.bytes",
    "log.remote.copy.lag.ms",
    "max.decompressed.message.bytes",
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
    "group.share.assignor.offload.enable",
    "group.streams.num.warmup.replicas",
)

GROUP_SETTINGS = (
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.topic.name",
    "streams.assignor.name",
    "streams.rack.aware.assignment.tags",
    "streams.num.warmup.replicas",
    "streams.task.offset.interval.ms",
    "streams.acceptable.recovery.lag",
    "consumer.assignor.offload.enable",
    "share.assignor.offload.enable",
    "streams.assignor.offload.enable",
)


@script(needs=NEEDS)
def of_topics(play: Play) -> None:
    a = play.topic("a", 1, max_decompressed_message_bytes="1000", remote_copy_lag_ms="5")
    b = play.topic("b")
    shown = described(resource(TOPIC, a.name, *TOPIC_SETTINGS), resource(TOPIC, b.name, *TOPIC_SETTINGS))
    play.ask("at first", "DescribeConfigs", 4, shown)
    for name, values in {
        "errors.deadletterqueue.group.enable": ("yes", "TRUE"),
        "max.decompressed.message.bytes": ("0", "1", "2147483639", "2147483640", "-1"),
        "remote.copy.lag.bytes": ("-2", "-1", "1000"),
        "remote.copy.lag.ms": ("-2", "-1", "999999999999"),
    }.items():
        for value in values:
            asked = changed(change(TOPIC, a.name, (name, SET, value)))
            play.ask(f"{name}={value}", "IncrementalAlterConfigs", 1, asked)
    for lag, local in (("500", "400"), ("400", "400")):
        asked = changed(
            change(
                TOPIC,
                b.name,
                ("local.retention.bytes", SET, local),
                ("remote.copy.lag.bytes", SET, lag),
            )
        )
        play.ask(f"a lag of {lag} where {local} are kept", "IncrementalAlterConfigs", 1, asked)
    until_set(play, TOPIC, b.name, "remote.copy.lag.bytes", "400")
    play.ask("what came of it", "DescribeConfigs", 4, shown)


@script(needs=NEEDS, properties="second")
def of_brokers(play: Play) -> None:
    name = broker_name(play)
    shown = described(resource(BROKER, name, *BROKER_SETTINGS), resource(BROKER, "", *BROKER_SETTINGS))
    play.ask("at first", "DescribeConfigs", 4, shown)
    for of in (name, ""):
        whose = "one" if of else "all"
        for key, values in {
            "errors.deadletterqueue.auto.create.topics.enable": ("yes", "true"),
            "errors.deadletterqueue.topic.name.prefix": ("", "dead."),
            "group.consumer.assignor.offload.enable": ("false",),
            "group.share.assignor.offload.enable": ("false", "x"),
            "group.streams.assignor.offload.enable": ("false",),
            "group.streams.assignors": ("sticky",),
            "group.streams.rack.aware.assignment.tags": ("a",),
            "group.streams.num.warmup.replicas": ("1",),
            "max.decompressed.message.bytes": ("0", "5000000"),
            "log.remote.copy.lag.bytes": ("-2", "5"),
            "log.remote.copy.lag.ms": ("99999999999", "6"),
            "sasl.oauthbearer.allow.unverified.issuer": ("true",),
        }.items():
            for value in values:
                asked = changed(change(BROKER, of, (key, SET, value)))
                play.ask(f"{key}={value} for {whose}", "IncrementalAlterConfigs", 1, asked)
        # one broker's values limit the values allowed for all brokers
        until_set(play, BROKER, of, "log.remote.copy.lag.ms", "6")
    play.ask("what came of it", "DescribeConfigs", 4, shown)
    play.ask("nothing for one", "AlterConfigs", 2, changed(replacement(BROKER, name)))
    gone = changed(replacement(BROKER, "", min_insync_replicas="1"))
    play.ask("nothing but in sync for all", "AlterConfigs", 2, gone)


@script(needs=NEEDS)
def of_groups(play: Play) -> None:
    group, other = play.name("group"), play.name("other")
    shown = described(resource(GROUP, group, *GROUP_SETTINGS), resource(GROUP, other, *GROUP_CONFIGS))
    play.ask("at first", "DescribeConfigs", 4, described(resource(GROUP, group, *GROUP_SETTINGS)))
    for name, values in {
        "consumer.session.timeout.ms": ("499", "60001", "50000"),
        "share.delivery.count.limit": ("11", "3"),
        "streams.num.standby.replicas": ("3", "-1", "1"),
        "streams.num.warmup.replicas": ("21", "-1", "x", "20"),
        "streams.task.offset.interval.ms": ("14999", "0", "15000"),
        "streams.acceptable.recovery.lag": ("-1", "9999999999"),
        "streams.assignor.name": ("nope", "", "Sticky", " sticky "),
        "streams.rack.aware.assignment.tags": ("a,a", "a,,b", ",", "a, a", "", " a , b ,c"),
        "consumer.assignor.offload.enable": ("no", "false"),
        "share.assignor.offload.enable": ("FALSE",),
        "streams.assignor.offload.enable": ("true",),
        "errors.deadletterqueue.copy.record.enable": ("1", "true"),
        "errors.deadletterqueue.topic.name": ("__dlq", "", " "),
    }.items():
        for value in values:
            asked = changed(change(GROUP, group, (name, SET, value)))
            play.ask(f"{name}={value}", "IncrementalAlterConfigs", 1, asked)
    for case, settings in {
        "a session not above the beats": {"consumer.session.timeout.ms": "45000"},
        "beats not below the session": {"share.heartbeat.interval.ms": "15000"},
        "both, the wrong way round": {
            "streams.session.timeout.ms": "10000",
            "streams.heartbeat.interval.ms": "10000",
        },
    }.items():
        asked = changed(change(GROUP, other, *((name, SET, value) for name, value in settings.items())))
        play.ask(case, "IncrementalAlterConfigs", 1, asked)
    until_set(play, GROUP, group, "errors.deadletterqueue.copy.record.enable", "true")
    play.ask("what came of it", "DescribeConfigs", 4, shown)
    gone = changed(change(GROUP, group, *((name, DELETE, None) for name in GROUP_SETTINGS)))
    play.ask("taken away", "IncrementalAlterConfigs", 1, gone)
    until_set(play, GROUP, group, "errors.deadletterqueue.copy.record.enable", "false")
    play.ask("what is left", "DescribeConfigs", 4, shown)
