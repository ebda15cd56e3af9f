"""CreateTopics and CreatePartitions."""

from __future__ import annotations

from typing import Any

from ..batches import batch
from ..play import Play, script, versions
from ..requests import configs, create_topics, fetch, metadata, produce


def assigned(**brokers: list[int]) -> list[dict[str, Any]]:
    """p0=[1], p1=[1], …"""
    return [{"partition_index": int(key[1:]), "broker_ids": ids} for key, ids in brokers.items()]


@script
def create_in_every_version(play: Play) -> None:
    for version in versions("CreateTopics"):
        name = play.name(f"v{version}")
        for only in (True, False):
            say = "validated" if only else "created"
            play.ask(
                f"{say} (v{version})",
                "CreateTopics",
                version,
                create_topics({"name": name}, validate_only=only),
            )
            play.ask(
                f"no topics, {say} (v{version})", "CreateTopics", version, create_topics(validate_only=only)
            )
        play.ask(f"exists (v{version})", "CreateTopics", version, create_topics({"name": name}))
        play.ask(f"a bad name (v{version})", "CreateTopics", version, create_topics({"name": "a/b"}))
        defaults = {"name": f"{name}-defaults", "num_partitions": -1, "replication_factor": -1}
        play.ask(f"defaults (v{version})", "CreateTopics", version, create_topics(defaults))
        with_configs = {
            "name": f"{name}-configs",
            "configs": configs(retention_ms="1000", cleanup_policy="compact"),
        }
        play.ask(f"configs (v{version})", "CreateTopics", version, create_topics(with_configs))
        by_hand = {
            "name": f"{name}-assigned",
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": assigned(p0=[1], p1=[1], p2=[1]),
        }
        play.ask(f"assigned (v{version})", "CreateTopics", version, create_topics(by_hand))


@script
def names(play: Play) -> None:
    dotted = play.topic("d.t")
    for case, name in {
        "empty": "",
        "a dot": ".",
        "two dots": "..",
        "three dots": "...",
        "249 characters": play.name("x").ljust(249, "x"),
        "250 characters": play.name("x").ljust(250, "x"),
        "a slash": "a/b",
        "a space": "a b",
        "a letter that is none of ours": "ä",
        "a line's end": "a\n",
        "the metadata log": "__cluster_metadata",
        "two underscores": "__" + play.name("inner"),
        "exists": dotted.name,
        "collides with a dot": dotted.name.replace(".", "_"),
    }.items():
        play.ask(case, "CreateTopics", 7, create_topics({"name": name}))
        play.ask(
            f"{case}, and bad counts",
            "CreateTopics",
            7,
            create_topics({"name": name, "num_partitions": 0, "replication_factor": 9}),
        )
    colliding = (play.name("e.f"), play.name("e_f"))
    play.ask(
        "two that collide in one request",
        "CreateTopics",
        7,
        create_topics(*({"name": name} for name in colliding)),
    )
    play.until_there(colliding[0])
    play.until_there(colliding[1])
    play.ask(
        "one more that collides",
        "CreateTopics",
        7,
        create_topics({"name": play.name("e.f").replace("e.f", "e_f")}),
    )
    three = play.name("three")
    play.ask(
        "a name twice",
        "CreateTopics",
        7,
        create_topics({"name": three}, {"name": play.name("once")}, {"name": three}),
    )
    play.ask("a name three times", "CreateTopics", 7, create_topics(*([{"name": three}] * 3)))
    play.ask("a bad name twice", "CreateTopics", 7, create_topics({"name": "a/b"}, {"name": "a/b"}))
    play.ask("a name twice is not there", "Metadata", 12, metadata(three))
    play.ask(
        "several, good and bad",
        "CreateTopics",
        7,
        create_topics(
            {"name": play.name("z")},
            {"name": "a/b"},
            {"name": dotted.name},
            {"name": play.name("y"), "num_partitions": 3},
        ),
    )


@script
def counts(play: Play) -> None:
    n = iter(range(1000))

    def topic(**fields: Any) -> dict[str, Any]:
        return {"name": play.name(f"t{next(n)}")} | fields

    for partitions in (-(2**31), -2, -1, 0, 1, 2, 10):
        for factor in (-2, -1, 0, 1, 2, 32767, -32768):
            asked = create_topics(topic(num_partitions=partitions, replication_factor=factor))
            play.ask(f"{partitions} partitions, factor {factor}", "CreateTopics", 7, asked)
    for case, fields in {
        "one more than may be": {"num_partitions": 10_001},
        "the greatest number": {"num_partitions": 2**31 - 1},
        "as many as may be, with a factor too high": {"num_partitions": 10_000, "replication_factor": 2},
    }.items():
        play.ask(case, "CreateTopics", 7, create_topics(topic(**fields)))
    asked = create_topics(topic(num_partitions=6000), topic(num_partitions=4001), topic())
    play.ask("too many in sum", "CreateTopics", 7, asked)
    asked = create_topics(topic(num_partitions=10_001), {"name": "a/b"}, validate_only=True)
    play.ask("too many, a bad name, validated only", "CreateTopics", 7, asked)
    asked = create_topics(topic(num_partitions=10_001, replication_factor=5))
    play.ask("too many, and a factor too high", "CreateTopics", 7, asked)


@script
def assignments(play: Play) -> None:
    n = iter(range(1000))
    for case, fields in {
        "one": {"assignments": assigned(p0=[1])},
        "three": {"assignments": assigned(p0=[1], p1=[1], p2=[1])},
        "in another order": {"assignments": assigned(p2=[1], p0=[1], p1=[1])},
        "partitions given too": {"num_partitions": 1, "assignments": assigned(p0=[1])},
        "a factor given too": {"replication_factor": 1, "assignments": assigned(p0=[1])},
        "both given too": {"num_partitions": 1, "replication_factor": 1, "assignments": assigned(p0=[1])},
        "no brokers": {"assignments": assigned(p0=[])},
        "an unknown broker": {"assignments": assigned(p0=[9])},
        "a negative broker": {"assignments": assigned(p0=[-1])},
        "a broker twice": {"assignments": assigned(p0=[1, 1])},
        "a known and an unknown broker": {"assignments": assigned(p0=[1, 2])},
        "unequal numbers of brokers": {"assignments": assigned(p0=[1], p1=[1, 2])},
        "a gap": {"assignments": assigned(p0=[1], p2=[1])},
        "not from 0": {"assignments": assigned(p1=[1])},
        "a negative index": {"assignments": [{"partition_index": -1, "broker_ids": [1]}]},
        "an index twice": {"assignments": [*assigned(p0=[1]), *assigned(p0=[1])]},
        "an index twice, unknown brokers": {"assignments": [*assigned(p0=[8]), *assigned(p0=[9])]},
    }.items():
        asked = {"name": play.name(f"t{next(n)}"), "num_partitions": -1, "replication_factor": -1} | fields
        play.ask(case, "CreateTopics", 7, create_topics(asked))


@script
def configs_of_new_topics(play: Play) -> None:
    n = iter(range(1000))
    for case, given in {
        "unknown": configs(no_such_thing="1"),
        "an empty name": [{"name": "", "value": "1"}],
        "null": configs(retention_ms=None),
        "unknown and null": configs(no_such_thing=None),
        "not a number": configs(retention_ms="soon"),
        "a number with spaces": configs(retention_ms=" 5000 "),
        "a number with a sign": configs(retention_ms="+5000"),
        "a fraction": configs(retention_ms="1.5"),
        "an empty number": configs(retention_ms=""),
        "too small": configs(retention_ms="-2"),
        "as small as may be": configs(retention_ms="-1"),
        "beyond 64 bits": configs(retention_ms="9223372036854775808"),
        "beyond 32 bits": configs(max_message_bytes="2147483648"),
        "a segment too small": configs(segment_bytes="1048575"),
        "a segment just large enough": configs(segment_bytes="1048576"),
        "a segment for tests": configs(internal_segment_bytes="100"),
        "true": configs(preallocate="true"),
        "True": configs(preallocate="True"),
        "yes": configs(preallocate="yes"),
        "an empty boolean": configs(preallocate=""),
        "compact": configs(cleanup_policy="compact"),
        "compact and delete": configs(cleanup_policy="compact,delete"),
        "with spaces": configs(cleanup_policy=" compact , delete "),
        "a policy twice": configs(cleanup_policy="delete,delete"),
        "an unknown policy": configs(cleanup_policy="shred"),
        "no policy": configs(cleanup_policy=""),
        "a comma": configs(cleanup_policy=","),
        "a timestamp type": configs(message_timestamp_type="LogAppendTime"),
        "a timestamp type in small letters": configs(message_timestamp_type="logappendtime"),
        "a codec": configs(compression_type="zstd"),
        "an unknown codec": configs(compression_type="brotli"),
        "none as a codec": configs(compression_type="none"),
        "a codec in capitals": configs(compression_type="ZSTD"),
        "gzip at level 9": configs(compression_gzip_level="9"),
        "gzip at level 10": configs(compression_gzip_level="10"),
        "gzip at level 0": configs(compression_gzip_level="0"),
        "gzip at level -1": configs(compression_gzip_level="-1"),
        "lz4 at level 18": configs(compression_lz4_level="18"),
        "zstd at level 23": configs(compression_zstd_level="23"),
        "zstd at level -131073": configs(compression_zstd_level="-131073"),
        "a lag that is too small": configs(min_compaction_lag_ms="10", max_compaction_lag_ms="5"),
        "a lag that just fits": configs(min_compaction_lag_ms="5", max_compaction_lag_ms="5"),
        "max compaction lag 0": configs(max_compaction_lag_ms="0"),
        "a ratio": configs(min_cleanable_dirty_ratio="0.25"),
        "a ratio of 1.1": configs(min_cleanable_dirty_ratio="1.1"),
        "a ratio that is no number": configs(min_cleanable_dirty_ratio="half"),
        "a ratio in another form": configs(min_cleanable_dirty_ratio="5e-1"),
        "in sync replicas": configs(min_insync_replicas="1"),
        "no in sync replicas": configs(min_insync_replicas="0"),
        "more in sync replicas than there are": configs(min_insync_replicas="3"),
        "a format version": configs(message_format_version="3.0"),
        "remote storage": configs(remote_storage_enable="true"),
        "no remote storage": configs(remote_storage_enable="false"),
        "local retention": configs(local_retention_ms="5"),
        "local retention above retention": configs(local_retention_ms="5000", retention_ms="1000"),
        "throttled replicas": [{"name": "leader.replication.throttled.replicas", "value": "0:1,1:1"}],
        "all throttled replicas": [{"name": "leader.replication.throttled.replicas", "value": "*"}],
        "throttled replicas that make no sense": [
            {"name": "leader.replication.throttled.replicas", "value": "0-1"}
        ],
        "a config twice": [
            {"name": "retention.ms", "value": "1000"},
            {"name": "retention.ms", "value": "2000"},
        ],
        "a config twice, the first one bad": [
            {"name": "retention.ms", "value": "x"},
            {"name": "retention.ms", "value": "2000"},
        ],
        "a config twice, the last one null": [
            {"name": "retention.ms", "value": "5"},
            {"name": "retention.ms", "value": None},
        ],
        "good and bad": configs(retention_ms="1000", flush_ms="x"),
        "an index too small": configs(segment_index_bytes="3"),
        "an index interval of -1": configs(index_interval_bytes="-1"),
        "no message bytes": configs(max_message_bytes="0"),
        "negative message bytes": configs(max_message_bytes="-1"),
        "flush never": configs(flush_messages="0"),
        "timestamps before": configs(message_timestamp_before_max_ms="-1"),
        "timestamps after": configs(message_timestamp_after_max_ms="0"),
        "jitter": configs(segment_jitter_ms="5"),
        "segment ms 0": configs(segment_ms="0"),
        "delete delay": configs(file_delete_delay_ms="0"),
        "unclean election": configs(unclean_leader_election_enable="true"),
        "hexadecimal": configs(retention_ms="0x10"),
        "digits of other scripts": configs(retention_ms="١٢"),
    }.items():
        play.ask(case, "CreateTopics", 7, create_topics({"name": play.name(f"t{next(n)}"), "configs": given}))
    bad = {"num_partitions": 0, "configs": configs(no_such_thing="1")}
    play.ask(
        "a bad config and a bad count", "CreateTopics", 7, create_topics({"name": play.name("bad")} | bad)
    )
    bad = {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assigned(p0=[7]),
        "configs": configs(retention_ms="x"),
    }
    play.ask(
        "a bad config and a bad assignment",
        "CreateTopics",
        7,
        create_topics({"name": play.name("bad")} | bad),
    )
    play.ask(
        "a bad config and a bad name",
        "CreateTopics",
        7,
        create_topics({"name": "a/b", "configs": configs(no_such="1")}),
    )


@script
def timeouts(play: Play) -> None:
    for timeout_ms in (0, -1, -(2**31)):
        name = play.name(f"t{timeout_ms}")
        play.ask(
            f"create, {timeout_ms} ms",
            "CreateTopics",
            7,
            create_topics({"name": name}, timeout_ms=timeout_ms),
        )
        play.ask(
            f"create two and a bad one, {timeout_ms} ms",
            "CreateTopics",
            7,
            create_topics({"name": name}, {"name": "a/b"}, timeout_ms=timeout_ms),
        )
        play.ask(
            f"validate, {timeout_ms} ms",
            "CreateTopics",
            7,
            create_topics({"name": name}, timeout_ms=timeout_ms, validate_only=True),
        )
        play.ask(f"nothing was created, {timeout_ms} ms", "Metadata", 12, metadata(name))
    topic = play.topic("a")
    for timeout_ms in (0, -1):
        asked: dict[str, Any] = {
            "topics": [{"name": topic.name}, {"name": "nowhere"}],
            "topic_names": [topic.name, "nowhere"],
            "timeout_ms": timeout_ms,
        }
        for version in (1, 5, 6):
            play.ask(f"delete, {timeout_ms} ms (v{version})", "DeleteTopics", version, asked)
        asked = {
            "topics": [{"name": topic.name, "count": 5}, {"name": "nowhere", "count": 5}],
            "timeout_ms": timeout_ms,
        }
        for version in (0, 3):
            play.ask(f"more partitions, {timeout_ms} ms (v{version})", "CreatePartitions", version, asked)
    play.ask("all as before", "Metadata", 12, metadata(topic.name))


@script
def validation_alone_creates_nothing(play: Play) -> None:
    name = play.name("a")
    first = play.ask("once", "CreateTopics", 7, create_topics({"name": name}, validate_only=True))
    second = play.ask("twice", "CreateTopics", 7, create_topics({"name": name}, validate_only=True))
    play.note("another id each time", first.topics[0].topic_id != second.topics[0].topic_id)
    play.ask("not there", "Metadata", 12, metadata(name))
    play.ask(
        "a bad name", "CreateTopics", 7, create_topics({"name": "a/b"}, {"name": name}, validate_only=True)
    )


def more(*topics: tuple[str, int] | tuple[str, int, Any], only: bool = False) -> dict[str, Any]:
    return {
        "topics": [
            {"name": name, "count": count, "assignments": rest[0] if rest else None}
            for name, count, *rest in topics
        ],
        "timeout_ms": 20_000,
        "validate_only": only,
    }


@script
def create_partitions(play: Play) -> None:
    one = [{"broker_ids": [1]}]
    for version in versions("CreatePartitions"):
        topic = play.topic(f"v{version}", 2)
        ask = topic.name
        for case, asked in {
            "validated": more((ask, 3), only=True),
            "one more": more((ask, 3)),
            "as many": more((ask, 3)),
            "fewer": more((ask, 2)),
            "none": more((ask, 0)),
            "a negative number": more((ask, -1)),
            "two more, assigned": more((ask, 5, one * 2)),
            "unknown": more(("nowhere", 5)),
            "a bad name": more(("a/b", 5)),
            "an empty name": more(("", 5)),
            "a topic twice": more((ask, 6), (ask, 7)),
            "no topics": more(),
            "too few assignments": more((ask, 8, one)),
            "too many assignments": more((ask, 6, one * 2)),
            "no assignments": more((ask, 6, [])),
            "assignments without brokers": more((ask, 6, [{"broker_ids": []}])),
            "an unknown broker": more((ask, 6, [{"broker_ids": [7]}])),
            "a broker twice": more((ask, 6, [{"broker_ids": [1, 1]}])),
            "a broker too many": more((ask, 6, [{"broker_ids": [1, 2]}])),
            "fewer, assigned": more((ask, 1, one)),
            "validated, and wrong": more((ask, 1), only=True),
            "good and bad": more(("nowhere", 5), (ask, 6), ("a/b", 1)),
            "validated far more": more((ask, 10_007), only=True),
        }.items():
            play.ask(f"{case} (v{version})", "CreatePartitions", version, asked)
        play.until_there(topic.name, 6)
        play.ask(f"what came of it (v{version})", "Metadata", 12, metadata(topic.name))


@script
def a_topic_grows(play: Play) -> None:
    """New partitions serve at once. Old ones keep their records."""
    topic = play.topic("a")
    play.write(topic.name, batch(2))
    play.ask("a second one", "CreatePartitions", 3, more((topic.name, 2)))
    play.until_there(topic.name, 2)
    play.ask("written to", "Produce", 13, produce((topic, 1, batch()), (topic, 0, batch())))
    play.ask("read back", "Fetch", 13, fetch((topic, 0, 0), (topic, 1, 0)))
    play.ask("described", "Metadata", 12, metadata(topic.name))
