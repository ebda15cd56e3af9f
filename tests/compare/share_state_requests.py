"""Requests to the share coordinator that scripts send often, and the resulting records in `__share_group_state`
(KIP-932)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from coordinator.share.share_partition_key import SharePartitionKey
from coordinator.share.share_partitions import ShareRecord, decode_record
from protocol.records.batch import read_records

from .group_requests import NO_COORDINATOR_YET, Fields
from .play import Play
from .scene import Topic

STATE_PARTITIONS = 3


def share_state_is_there(play: Play, group: str, topic: Topic, partition: int = 0) -> None:
    """Wait until the topic of states exists, and its coordinators are loaded."""
    key = SharePartitionKey(group, topic.topic_id, partition).text

    def found() -> bool:
        answer = play.quietly("FindCoordinator", 6, {"key_type": 2, "coordinator_keys": [key]})
        return bool(answer.coordinators[0].error_code == 0)

    def answers() -> bool:
        answer = play.quietly("ReadShareGroupStateSummary", 0, summary(group, (topic, partition)))
        return answer.results[0].partitions[0].error_code not in NO_COORDINATOR_YET

    play.until("the coordinator of share states is found", found)
    play.until("the coordinator of share states answers", answers)


def _asked(group: str, topics: Sequence[tuple[Topic | bytes, Fields]]) -> Fields:
    by_id: dict[bytes, list[Fields]] = {}
    for topic, fields in topics:
        topic_id = topic if isinstance(topic, bytes) else topic.topic_id
        by_id.setdefault(topic_id, []).append(fields)
    return {
        "group_id": group,
        "topics": [{"topic_id": topic_id, "partitions": parts} for topic_id, parts in by_id.items()],
    }


def initialize(
    group: str, *parts: tuple[Topic | bytes, int], state_epoch: int = 1, start: int = -1
) -> Fields:
    return _asked(
        group,
        [
            (topic, {"partition": index, "state_epoch": state_epoch, "start_offset": start})
            for topic, index in parts
        ],
    )


def read(group: str, *parts: tuple[Topic | bytes, int], leader_epoch: int = 0) -> Fields:
    return _asked(
        group, [(topic, {"partition": index, "leader_epoch": leader_epoch}) for topic, index in parts]
    )


summary = read


def write(
    group: str,
    *parts: tuple[Topic | bytes, int],
    batches: Sequence[tuple[int, int, int, int]] = (),
    state_epoch: int = 1,
    leader_epoch: int = 0,
    start: int = -1,
    count: int = 0,
) -> Fields:
    """`batches`: first and last offset, delivery state and count."""
    return _asked(
        group,
        [
            (
                topic,
                {
                    "partition": index,
                    "state_epoch": state_epoch,
                    "leader_epoch": leader_epoch,
                    "start_offset": start,
                    "delivery_complete_count": count,
                    "state_batches": [
                        {
                            "first_offset": first,
                            "last_offset": last,
                            "delivery_state": state,
                            "delivery_count": deliveries,
                        }
                        for first, last, state, deliveries in batches
                    ],
                },
            )
            for topic, index in parts
        ],
    )


def delete(group: str, *parts: tuple[Topic | bytes, int]) -> Fields:
    return _asked(group, [(topic, {"partition": index}) for topic, index in parts])


def share_records_of(play: Play, group: str, topic: Topic, partition: int = 0) -> list[Any]:
    """Return the records of a share partition in their order, with names for what depends on the clock."""
    found: list[Any] = []
    for index in range(STATE_PARTITIONS):
        position = 0
        while True:
            asked = {"partition": index, "fetch_offset": position, "partition_max_bytes": 10_000_000}
            answer = play.quietly(
                "Fetch",
                4,
                {
                    "replica_id": -1,
                    "max_wait_ms": 0,
                    "min_bytes": 0,
                    "max_bytes": 10_000_000,
                    "isolation_level": 0,
                    "topics": [{"topic": "__share_group_state", "partitions": [asked]}],
                },
            )
            data = answer.responses[0].partitions[0].records
            if not data:
                break
            for record in read_records(bytes(data)):  # the records of the first batch
                position = record.offset + 1
                assert record.key is not None
                decoded = decode_record(record.key, record.value)
                if decoded is not None and decoded.key == (group, topic.topic_id, partition):
                    found.append(_named(decoded))
    return found


def _named(record: ShareRecord) -> Any:
    state = record.state
    if state is None:
        return "tombstone"
    times = {"create_timestamp", "write_timestamp"}
    values = {
        name: ("<set>" if value else value) if name in times else value
        for name, value in state._asdict().items()
    }
    values["state_batches"] = [list(batch) for batch in state.state_batches]
    return ["update" if record.is_update else "snapshot", values]
