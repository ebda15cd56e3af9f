"""The table of rights: administering topics, settings and the cluster. Only DeleteTopics changes anything."""

from __future__ import annotations

from typing import Any

from broker.security.authorizer import Operation, ResourceType

from ..config_requests import (
    BROKER,
    GROUP,
    LOGGER,
    METRICS,
    SET,
    TOPIC,
    change,
    changed,
    described,
    replacement,
    resource,
)
from ..play import Play, script
from ..principals import USERS
from ..requests import create_topics
from ..rights import Table, acl, rows

PROPERTIES = "rights"


@script(properties=PROPERTIES)
def topics(play: Play) -> None:
    table = Table(play)
    names = table.names
    wishes = create_topics(*({"name": name} for name in names), validate_only=True)
    for version in (4, 7):
        rows(table, "CreateTopics", version, {"all": wishes})
    more = [{"name": name, "count": 3, "assignments": None} for name in names]
    rows(table, "CreatePartitions", 3, {"all": {"topics": more, "timeout_ms": 20_000, "validate_only": True}})
    elections = {
        "topic_partitions": [{"topic": name, "partitions": [0]} for name in names],
        "timeout_ms": 5000,
    }
    rows(table, "ElectLeaders", 2, {"some": elections | {"election_type": 0}})
    rows(table, "ElectLeaders", 1, {"unclean": elections | {"election_type": 1}})
    moves = [{"name": name, "partitions": [{"partition_index": 0, "replicas": None}]} for name in names]
    rows(table, "AlterPartitionReassignments", 1, {"ended": {"topics": moves, "timeout_ms": 5000}})
    rows(
        table,
        "ListPartitionReassignments",
        0,
        {
            "all": {"topics": None},
            "some": {"topics": [{"name": name, "partition_indexes": [0]} for name in names]},
        },
    )
    rows(
        table,
        "DescribeLogDirs",
        5,
        {"some": {"topics": [{"topic": name, "partitions": [0]} for name in names]}},
    )
    nowhere = [{"path": "/nowhere", "topics": [{"name": name, "partitions": [0]} for name in names]}]
    rows(table, "AlterReplicaLogDirs", 2, {"nowhere": {"dirs": nowhere}})


@script(properties=PROPERTIES)
def deleted_topics(play: Play) -> None:
    table = Table(play)
    names = table.names
    ids = {"mine": table.mine.topic_id, "other": table.other.topic_id}

    def there() -> None:
        asked = {"topics": [{"name": name} for name in (names.mine, names.other)]}
        found = play.quietly("Metadata", 12, asked | {"allow_auto_topic_creation": False}).topics
        for suffix, topic in zip(ids, sorted(found, key=lambda topic: str(topic.name)), strict=True):
            if topic.error_code or topic.topic_id != ids[suffix]:
                ids[suffix] = play.topic(suffix).topic_id

    def by_name(user: str) -> dict[str, Any]:
        there()
        return {"topics": [{"name": name} for name in names], "topic_names": [*names], "timeout_ms": 20_000}

    def by_id(user: str) -> dict[str, Any]:
        there()
        asked = [{"name": None, "topic_id": topic_id} for topic_id in (*ids.values(), b"\1" * 16)]
        return {"topics": asked, "timeout_ms": 20_000}

    for version, asked in ((5, by_name), (6, by_name), (6, by_id)):
        for user in USERS:
            case = f"{asked.__name__} (DeleteTopics v{version}): {user}"
            answer = play.ask(case, "DeleteTopics", version, asked(user), on=table.sign_in(user))
            gone = [topic.name for topic in answer.responses if topic.error_code == 0]
            if gone:
                play.until_gone(*gone)


@script(properties=PROPERTIES)
def settings(play: Play) -> None:
    table = Table(play)
    names = table.names
    each = [
        *((TOPIC, name) for name in names),
        *((GROUP, name) for name in names),
        (BROKER, "1"),
        (BROKER, ""),
        (LOGGER, "1"),
        (METRICS, names.mine),
    ]
    key_of = {
        TOPIC: ("retention.ms", "100000"),
        GROUP: ("consumer.session.timeout.ms", "50000"),
        BROKER: ("log.retention.ms", "100000"),
        LOGGER: ("org.apache.kafka", "INFO"),
        METRICS: ("interval.ms", "10000"),
    }
    asked = [resource(kind, name, key_of[kind][0]) for kind, name in each if kind != LOGGER]
    rows(table, "DescribeConfigs", 4, {"all": described(*asked)})
    rows(table, "DescribeConfigs", 4, {"a logger": described(resource(LOGGER, "1", "nothing"))})
    altered = changed(
        *(replacement(kind, name, **dict([key_of[kind]])) for kind, name in each if kind != LOGGER), only=True
    )
    rows(table, "AlterConfigs", 2, {"all": altered})
    steps = changed(
        *(change(kind, name, (key_of[kind][0], SET, key_of[kind][1])) for kind, name in each), only=True
    )
    rows(table, "IncrementalAlterConfigs", 1, {"all": steps})
    rows(table, "ListConfigResources", 0, {"all": {}})
    rows(
        table,
        "ListConfigResources",
        1,
        {"all": {"resource_types": []}, "topics": {"resource_types": [TOPIC]}},
    )
    quotas: dict[str, Any] = {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": names.mine}],
                "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
            }
        ],
        "validate_only": True,
    }
    rows(table, "AlterClientQuotas", 1, {"one": quotas})
    whose = [{"entity_type": "user", "match_type": 0, "match": names.mine}]
    rows(table, "DescribeClientQuotas", 1, {"one": {"components": whose, "strict": False}})
    rows(table, "DescribeUserScramCredentials", 0, {"one": {"users": [{"name": names.mine}]}})
    gone = {"deletions": [{"name": names.mine, "mechanism": 1}], "upsertions": []}
    rows(table, "AlterUserScramCredentials", 0, {"one": gone})


@script(properties=PROPERTIES)
def cluster(play: Play) -> None:
    table = Table(play)
    names = table.names
    for version in (0, 2):
        rows(
            table,
            "DescribeCluster",
            version,
            {
                "plain": {"include_cluster_authorized_operations": False},
                "with operations": {"include_cluster_authorized_operations": True},
            },
        )
    rows(table, "DescribeCluster", 2, {"controllers": {"endpoint_type": 2}})
    parts = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    rows(table, "DescribeQuorum", 2, {"of the metadata": {"topics": parts}})
    update = {"feature": "metadata.version", "max_version_level": 1, "upgrade_type": 1}
    rows(
        table,
        "UpdateFeatures",
        2,
        {"one": {"timeout_ms": 5000, "feature_updates": [update], "validate_only": True}},
    )
    rows(table, "UnregisterBroker", 0, {"nobody": {"broker_id": 77}})
    voter = {"voter_id": 77, "voter_directory_id": b"\1" * 16, "cluster_id": None}
    rows(table, "AddRaftVoter", 1, {"one": voter | {"timeout_ms": 1000, "listeners": []}})
    rows(table, "RemoveRaftVoter", 0, {"one": voter})
    rows(table, "UnregisterController", 0, {"nobody": {"controller_id": 77}})
    match = {
        "resource_type_filter": int(ResourceType.TOPIC),
        "resource_name_filter": names.other,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    rows(table, "DescribeAcls", 3, {"of a topic": match})
    rows(table, "DeleteAcls", 3, {"of a topic": {"filters": [match]}})
    made = acl("owner", ResourceType.TOPIC, names.mine, Operation.READ)
    rows(table, "CreateAcls", 3, {"one": {"creations": [made]}})
