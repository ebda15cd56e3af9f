"""The table of rights: requests about the records of topics."""

from __future__ import annotations

from ..batches import batch
from ..play import Play, script
from ..requests import fetch, list_offsets, metadata, produce
from ..rights import Table, rows
from ..scene import Topic

PROPERTIES = "rights"
ZERO = bytes(16)


@script(properties=PROPERTIES)
def topics_shown(play: Play) -> None:
    table = Table(play)
    names = [*table.names]
    for version in (9, 13):
        rows(
            table,
            "Metadata",
            version,
            {
                "by name": metadata(*names),
                "by name, with operations": metadata(*names, topic_operations=True),
                "made where it isn't there": metadata("a b", create=True),
            },
        )
    rows(table, "Metadata", 9, {"with the cluster's": metadata(cluster_operations=True)})
    ids = [topic.topic_id for topic in table.topics]
    rows(table, "Metadata", 13, {"by id": metadata(ids=ids, topic_operations=True)})
    rows(table, "Metadata", 13, {"all": {"topics": None}})
    partitions = {
        "topics": [{"name": name} for name in names],
        "response_partition_limit": 100,
        "cursor": None,
    }
    rows(
        table,
        "DescribeTopicPartitions",
        0,
        {
            "by name": partitions,
            "few": partitions | {"response_partition_limit": 1},
            "from a cursor": partitions | {"cursor": {"topic_name": table.names.mine, "partition_index": 1}},
            "all": partitions | {"topics": []},
        },
    )


@script(properties=PROPERTIES)
def records(play: Play) -> None:
    table = Table(play)
    play.write(table.mine.name, batch())
    play.write(table.other.name, batch())
    parts: list[tuple[Topic, int, int]] = [(topic, 0, 0) for topic in table.topics]
    for version in (12, 17):
        rows(
            table,
            "Fetch",
            version,
            {
                "all": fetch(*parts),
                "with a session": fetch(*parts, session_epoch=0),
                "as a replica": fetch(*parts, **_replica(version)),
            },
        )
    rows(
        table,
        "ListOffsets",
        10,
        {
            "ends": list_offsets(*((topic.name, 0, -1) for topic in table.topics)),
            "as a replica": list_offsets(*((topic.name, 0, -1) for topic in table.topics), replica_id=1),
        },
    )
    epochs = {
        "replica_id": -1,
        "topics": [
            {
                "topic": topic.name,
                "partitions": [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}],
            }
            for topic in table.topics
        ],
    }
    rows(
        table, "OffsetForLeaderEpoch", 4, {"as a client": epochs, "as a replica": epochs | {"replica_id": 1}}
    )
    deleted = {
        "timeout_ms": 10_000,
        "topics": [
            {"name": topic.name, "partitions": [{"partition_index": 0, "offset": 0}]}
            for topic in table.topics
        ],
    }
    rows(table, "DeleteRecords", 2, {"none of them": deleted})
    producers = {"topics": [{"name": topic.name, "partition_indexes": [0]} for topic in table.topics]}
    rows(table, "DescribeProducers", 0, {"of all": producers})
    for version in (9, 13):
        written = produce(*((topic, 0, batch()) for topic in table.topics))
        rows(table, "Produce", version, {"a record each": written})


def _replica(version: int) -> dict[str, object]:
    if version < 15:
        return {"replica_id": 1}
    return {"replica_state": {"replica_id": 1, "replica_epoch": -1}}
