"""Snapshots of the metadata: what they hold, when they are written, what goes with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.controller import metadata_versions
from broker.controller.image import ClusterImage, MetadataContradictionError, TopicImage
from broker.controller.metadata_log import image_records
from broker.controller.metadata_versions import (
    decode_metadata_record,
    encode_metadata_record,
    fitted,
    written_version,
)
from broker.controller.snapshots import MetadataSnapshots, SnapshotId, SnapshotPolicy, read_snapshot
from protocol.messages import metadata_records as records
from protocol.waiting import PER_STEP, Waiting
from protocol.wire.schema import Message
from tests.node.metadata_logs import ALWAYS, DIRECTORY, NODE, begin, open_log, topic
from tests.support.manual_clock import ManualClock
from tests.support.partition_logs import HeldBackground
from tests.support.wishes import pauses, wishes


def state(image: ClusterImage) -> Any:
    """Return everything in an image, in a form that can be compared."""

    def of_topic(topic: TopicImage) -> Any:
        return {
            index: {name: getattr(partition, name) for name in partition.__slots__}
            for index, partition in topic.partitions.items()
        }

    return (
        {name: (found.topic_id, of_topic(found)) for name, found in image.topics.items()},
        {topic_id: found.name for topic_id, found in image.topics_by_id.items()},
        image.configs,
        image.features,
        image.next_producer_id,
        {
            key: [getattr(broker, name) for name in broker.__slots__ if name != "record"]
            for key, broker in image.brokers.items()
        },
        image.controllers,
        {kind.__name__: sorted(map(repr, image.kept.of_type(kind))) for kind in KEPT},
    )


KEPT: tuple[type[Message], ...] = (
    records.ClientQuotaRecord,
    records.UserScramCredentialRecord,
    records.AccessControlEntryRecord,
    records.DelegationTokenRecord,
)


def quota(user: str | None, key: str, value: float, *, remove: bool = False) -> records.ClientQuotaRecord:
    entity = [records.EntityData(entity_type="user", entity_name=user)]
    return records.ClientQuotaRecord(entity=entity, key=key, value=value, remove=remove)


EVERYTHING: list[Message] = [
    *topic("a", 3),
    *topic("b"),
    records.PartitionChangeRecord(
        topic_id=b"a".ljust(16, b"-"),
        partition_id=1,
        isr=[],
        leader=-1,
        eligible_leader_replicas=[NODE],
        last_known_elr=[NODE],
    ),
    records.ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="5"),
    records.ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="1"),
    records.RegisterBrokerRecord(
        broker_id=NODE,
        incarnation_id=b"i" * 16,
        broker_epoch=9,
        end_points=[records.BrokerEndpoint(name="PLAINTEXT", host="h", port=65535)],
        features=[records.BrokerFeature(name="x", max_supported_version=3)],
        rack="r",
        log_dirs=[DIRECTORY],
    ),
    records.BrokerRegistrationChangeRecord(broker_id=NODE, broker_epoch=9, fenced=-1, cordoned_log_dirs=[]),
    records.RegisterControllerRecord(controller_id=7, incarnation_id=b"c" * 16),
    records.ProducerIdsRecord(broker_id=NODE, broker_epoch=9, next_producer_id=3000),
    quota("u", "producer_byte_rate", 1.5),
    quota("u", "consumer_byte_rate", 2.5),
    quota(None, "producer_byte_rate", 3.5),
    records.UserScramCredentialRecord(name="u", mechanism=1, salt=b"s", stored_key=b"k", iterations=4096),
    records.UserScramCredentialRecord(name="u", mechanism=2, salt=b"t", stored_key=b"l", iterations=4096),
    records.AccessControlEntryRecord(id=b"1" * 16, resource_name="x", principal="User:u", host="*"),
    records.DelegationTokenRecord(owner="u", requester="u", token_id="t", renewers=["v"]),
    records.NoOpRecord(),
]


def test_an_image_made_of_its_own_records_is_the_same() -> None:
    image, again = ClusterImage(), ClusterImage()
    for record in [*metadata_versions.feature_levels(), *EVERYTHING]:
        image.apply(record)
    for record in image_records(image):
        again.apply(decode_metadata_record(encode_metadata_record(record, written_version(type(record), 30))))
    assert state(again) == state(image)


def test_a_copy_of_an_image_says_the_same_and_goes_its_own_way() -> None:
    image = ClusterImage()
    for record in [*metadata_versions.feature_levels(), *EVERYTHING, *topic("a_b")]:
        image.apply(record)
    copied = image.copy()
    before = state(copied)
    assert before == state(image)
    assert copied.topics_like("a.b") == ["a_b"]
    for changed in (
        records.PartitionChangeRecord(topic_id=b"a".ljust(16, b"-"), partition_id=1, leader=NODE),
        *topic("a_c"),
        records.RemoveTopicRecord(topic_id=b"b".ljust(16, b"-")),
        records.ConfigRecord(resource_type=2, resource_name="a", name="retention.ms", value="6"),
        records.FeatureLevelRecord(name="group.version", feature_level=0),
        records.BrokerRegistrationChangeRecord(broker_id=NODE, broker_epoch=9, fenced=1),
        records.RegisterControllerRecord(controller_id=8),
        records.ProducerIdsRecord(next_producer_id=4000),
        quota("u", "producer_byte_rate", 9),
    ):
        image.apply(changed)
        assert state(copied) == before
        assert state(image) != before
        copied.apply(changed)
        before = state(copied)
        assert before == state(image)
        assert copied.topics_like("a.c") == image.topics_like("a.c")


def test_the_first_record_of_an_image_is_the_metadata_version() -> None:
    image = ClusterImage()
    for record in [*EVERYTHING, *reversed(metadata_versions.feature_levels())]:
        image.apply(record)
    first = next(iter(image_records(image)))
    assert first == records.FeatureLevelRecord(name="metadata.version", feature_level=33)


@pytest.mark.parametrize(
    "removal",
    [
        quota("u", "producer_byte_rate", 0, remove=True),
        records.RemoveUserScramCredentialRecord(name="u", mechanism=1),
        records.RemoveAccessControlEntryRecord(id=b"1" * 16),
        records.RemoveDelegationTokenRecord(token_id="t"),
    ],
)
def test_removed_resources_are_in_no_snapshot(removal: Message) -> None:
    image = ClusterImage()
    for record in [*metadata_versions.feature_levels(), *EVERYTHING]:
        image.apply(record)
    before = list(image_records(image))
    image.apply(removal)
    after = list(image_records(image))
    assert len(after) == len(before) - 1
    assert all(record in before for record in after)


def test_a_later_record_of_the_same_identity_takes_the_place_of_the_earlier() -> None:
    image = ClusterImage()
    image.apply(quota("u", "producer_byte_rate", 1))
    image.apply(quota("u", "producer_byte_rate", 2))
    assert [record.value for record in image.kept.of_type(records.ClientQuotaRecord)] == [2]  # type: ignore[attr-defined]


def test_a_start_from_snapshot_and_log_finds_all_applied_records(tmp_path: Path) -> None:
    metadata = begin(tmp_path, SnapshotPolicy(3000, 0, -1, -1))
    metadata.append(EVERYTHING)
    for index in range(40):
        metadata.append(topic(f"t{index}"))
    newest = metadata.snapshots.newest
    assert newest is not None
    assert metadata.log.log_start_offset < newest.offset < metadata.log.log_end_offset
    again = open_log(tmp_path)
    assert again.snapshots.ids == metadata.snapshots.ids
    assert state(again.image) == state(metadata.image)


def test_a_large_snapshot_is_made_in_steps_and_holds_the_state_at_its_begin(tmp_path: Path) -> None:
    metadata = begin(tmp_path, SnapshotPolicy(50, 0, -1, -1))
    metadata.append(topic("many", 4 * PER_STEP))
    already = metadata.snapshots.newest
    under_way: list[Waiting[None]] = []

    def hold(steps: Waiting[None]) -> None:
        if next(wishes(steps), "done") is None:
            under_way.append(steps)

    metadata.carry_out = hold
    metadata.append(topic("small"))
    (writing,) = under_way
    before = metadata.last_applied_offset
    metadata.append(topic("later"))  # no second snapshot begins meanwhile
    metadata.append(
        [records.PartitionChangeRecord(partition_id=5, topic_id=b"many".ljust(16, b"-"), leader=-1)]
    )
    assert under_way == [writing]
    assert metadata.snapshots.newest == already
    steps = 1 + pauses(writing)
    assert steps >= 3
    newest = metadata.snapshots.newest
    assert newest is not None
    assert newest.offset == before + 1
    found = ClusterImage()
    for record in read_snapshot(metadata.log.files, metadata.snapshots.path_of_newest).records:
        found.apply(record)
    assert [*found.topics] == ["many", "small"]
    assert found.topics["many"].partitions[5].leader == NODE


def test_a_log_that_begins_above_0_needs_only_its_snapshot(tmp_path: Path) -> None:
    clock = ManualClock()
    policy = SnapshotPolicy(1, 0, 1, -1)
    metadata = begin(tmp_path, policy, clock=clock, segment_bytes=1000)
    metadata.append(EVERYTHING[:6])
    metadata.append(EVERYTHING[6:])
    assert len(metadata.snapshots.ids) > 1
    metadata.snapshots.clean(clock.now_ms())
    assert len(metadata.snapshots.ids) == 1
    assert metadata.log.base_offsets[0] > 0
    again = open_log(tmp_path)
    assert again.log.log_start_offset > 0
    assert state(again.image) == state(metadata.image)
    for path in tmp_path.glob("*.checkpoint"):
        path.unlink()
    with pytest.raises(MetadataContradictionError, match="no snapshot"):
        open_log(tmp_path)


def test_a_snapshot_is_due_by_bytes_of_the_log_or_by_time(tmp_path: Path) -> None:
    clock = ManualClock()
    metadata = begin(tmp_path, SnapshotPolicy(2**40, 1000, -1, -1), clock=clock)
    metadata.append(topic("a"))
    assert metadata.snapshots.ids == []
    clock.advance_ms(1000)
    assert metadata.snapshots.ids == []  # never without an append
    metadata.append(topic("b"))
    assert metadata.snapshots.ids == [SnapshotId(metadata.epoch, metadata.log.log_end_offset)]
    metadata.append(topic("c"))
    assert len(metadata.snapshots.ids) == 1


def test_bytes_that_were_replayed_count_towards_the_next_snapshot(tmp_path: Path) -> None:
    metadata = begin(tmp_path)
    metadata.append(topic("a", 100))
    again = begin(tmp_path, SnapshotPolicy(metadata.log.size, 0, -1, -1))
    again.append(topic("b"))
    assert len(again.snapshots.ids) == 1


def test_old_snapshots_go_by_age_but_never_the_newest(tmp_path: Path) -> None:
    clock = ManualClock()
    metadata = begin(tmp_path, SnapshotPolicy(1, 0, -1, 5000), clock=clock)
    for name in ("a", "b", "c"):
        clock.advance_ms(4000)
        metadata.append(topic(name))
    ids = metadata.snapshots.ids[:]
    metadata.snapshots.clean(clock.now_ms())
    assert metadata.snapshots.ids == ids[-2:]
    clock.advance_ms(100_000)
    metadata.snapshots.clean(clock.now_ms())
    assert metadata.snapshots.ids == ids[-1:]
    assert metadata.log.log_start_offset == ids[-1].offset
    assert [path.name for path in tmp_path.glob("*.checkpoint*")] == [f"{ids[-1].name}.checkpoint"]


def test_a_snapshot_below_the_log_start_does_not_stand_in_for_the_newest_one(tmp_path: Path) -> None:
    clock = ManualClock()
    metadata = begin(tmp_path, SnapshotPolicy(1, 0, 1, -1), clock=clock, segment_bytes=1000)
    metadata.append(EVERYTHING[:6])
    metadata.append(EVERYTHING[6:])
    oldest = metadata.snapshots.ids[0]
    below = (tmp_path / f"{oldest.name}.checkpoint").read_bytes()
    metadata.snapshots.clean(clock.now_ms())
    assert metadata.log.log_start_offset > oldest.offset
    (newest,) = metadata.snapshots.ids
    (tmp_path / f"{newest.name}.checkpoint").write_bytes(b"")
    (tmp_path / f"{oldest.name}.checkpoint").write_bytes(below)
    with pytest.raises(MetadataContradictionError, match="no snapshot of what is below"):
        open_log(tmp_path)


def test_one_snapshot_is_written_at_a_time(tmp_path: Path) -> None:
    metadata = begin(tmp_path)
    background = HeldBackground()
    metadata.snapshots = MetadataSnapshots(metadata.log, ALWAYS, background)
    for name in ("a", "b", "c"):
        metadata.append(topic(name))
    assert len(background.waiting) == 1
    background.run_one()
    assert len(metadata.snapshots.ids) == 1
    metadata.append(topic("d"))
    assert len(background.waiting) == 1
    background.run_one()
    assert len(metadata.snapshots.ids) == 2


def test_a_transaction_that_a_killed_leader_left_is_aborted_by_the_next(tmp_path: Path) -> None:
    metadata = begin(tmp_path)
    metadata._append_records([records.BeginTransactionRecord(name="x"), *topic("a")])
    again = begin(tmp_path)
    again.append(topic("b"))
    assert set(open_log(tmp_path).image.topics) == {"b"}


@pytest.mark.parametrize(
    ("metadata_version", "version", "directories", "elr"),
    [
        (30, 2, [DIRECTORY], [NODE]),
        (23, 2, [DIRECTORY], [NODE]),
        (22, 1, [DIRECTORY], None),
        (7, 0, [], None),
    ],
)
def test_records_use_the_versions_that_their_cluster_can_read(
    metadata_version: int, version: int, directories: list[bytes], elr: list[int] | None
) -> None:
    record = records.PartitionRecord(directories=[DIRECTORY], eligible_leader_replicas=[NODE])
    assert written_version(type(record), metadata_version) == version
    found = fitted(record, metadata_version)
    assert isinstance(found, records.PartitionRecord)
    assert (found.directories, found.eligible_leader_replicas) == (directories, elr)
    assert decode_metadata_record(encode_metadata_record(found, version)) == found
