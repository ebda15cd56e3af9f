"""Which members may commit and fetch: those at the current epoch, and those behind it for partitions that were theirs
then."""

from __future__ import annotations

import pytest

from coordinator.group.offsets.commit import Committer, NewOffset, OffsetProducer
from protocol.errors import Error, KafkaError
from tests.support.staged_offsets import staged
from tests.unit.coordinator.group.consumer.consumers import Consumers

T = b"t".ljust(16, b"\1")


def pair() -> Consumers:
    """Have `one` hold 0 to 2 since epoch 2, and be at epoch 3. `two` holds the others since epoch 3."""
    groups = Consumers()
    groups.enter("one")
    groups.enter("two")
    groups.beat("one", 2)
    groups.beat("one", 2, owned={"t": [0, 1, 2]})
    groups.beat("two", 3)
    return groups


def commit(groups: Consumers, member: str, epoch: int, partition: int = 0, version: int = 9) -> Error:
    (error,) = groups.commit(
        ("t", partition, 5), member_id=member, generation=epoch, version=version, topic_id=T
    )
    return error


@pytest.mark.parametrize(
    ("member", "epoch", "partition", "expected"),
    [
        ("one", 3, 0, Error.NONE),
        ("one", 3, 5, Error.NONE),
        ("one", 2, 0, Error.NONE),
        ("one", 1, 0, Error.STALE_MEMBER_EPOCH),
        ("one", 2, 5, Error.STALE_MEMBER_EPOCH),
        ("one", 4, 0, Error.STALE_MEMBER_EPOCH),
        ("two", 3, 5, Error.NONE),
        ("two", 2, 5, Error.STALE_MEMBER_EPOCH),
        ("nobody", 3, 0, Error.UNKNOWN_MEMBER_ID),
        ("", -1, 0, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_commit_needs_an_epoch_in_which_the_member_owned_the_partition(
    member: str, epoch: int, partition: int, expected: Error
) -> None:
    assert commit(pair(), member, epoch, partition) is expected


def test_a_member_may_still_commit_for_partitions_that_it_is_giving_up() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.enter("two")
    groups.beat("one", 2)
    groups.group.members["one"].pending[T]

    assert commit(groups, "one", 2, 5) is Error.NONE


def test_old_versions_are_not_for_members_of_the_new_protocol() -> None:
    assert commit(pair(), "one", 3, version=8) is Error.UNSUPPORTED_VERSION


def test_anybody_may_commit_to_an_empty_group() -> None:
    groups = Consumers()
    groups.enter("one")
    groups.beat("one", -1)

    assert commit(groups, "", -1) is Error.NONE
    assert commit(groups, "one", 2) is Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "epoch", "expected"),
    [
        (None, -1, Error.NONE),
        ("one", 3, Error.NONE),
        ("one", 2, Error.STALE_MEMBER_EPOCH),
        ("nobody", 3, Error.UNKNOWN_MEMBER_ID),
        ("", -1, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_fetch_needs_the_members_epoch(member: str | None, epoch: int, expected: Error) -> None:
    groups = pair()
    if expected is Error.NONE:
        groups.shard.check_fetch("g", member, epoch)
        return
    with pytest.raises(KafkaError) as refused:
        groups.shard.check_fetch("g", member, epoch)
    assert refused.value.error is expected


def commit_in_transaction(groups: Consumers, committer: Committer, partition: int, version: int) -> Error:
    offsets = staged(groups.shard, committer.group_id, [NewOffset("t", T, partition, 1, -1, "")])
    try:
        groups.shard.commit_offsets_in_transaction(
            committer, offsets, OffsetProducer(1, 0), api_version=version
        )
    except KafkaError as error:
        return error.error
    return Error.NONE


@pytest.mark.parametrize(
    ("version", "stale", "unknown_group"),
    [
        (5, Error.ILLEGAL_GENERATION, Error.ILLEGAL_GENERATION),
        (6, Error.STALE_MEMBER_EPOCH, Error.GROUP_ID_NOT_FOUND),
    ],
)
def test_a_transaction_learns_of_an_old_epoch_and_of_no_group_by_its_versions_errors(
    version: int, stale: Error, unknown_group: Error
) -> None:
    groups = pair()
    assert commit_in_transaction(groups, Committer("g", "one", None, 4), 0, version) is stale
    assert (
        commit_in_transaction(groups, Committer("g", "nobody", None, 3), 0, version)
        is Error.UNKNOWN_MEMBER_ID
    )
    assert commit_in_transaction(groups, Committer("h", "one", None, 0), 0, version) is unknown_group
    assert commit_in_transaction(groups, Committer("h"), 0, version) is Error.NONE


def test_a_transaction_may_commit_by_an_older_epoch_for_the_members_partitions_then() -> None:
    """KIP-1251, since Kafka 4.4. In a transaction the topic's id has to be known, too."""
    groups = pair()
    assert [commit(groups, "one", 2, partition) for partition in range(6)] == [
        commit_in_transaction_as_commit(groups, partition) for partition in range(6)
    ]


def commit_in_transaction_as_commit(groups: Consumers, partition: int) -> Error:
    return commit_in_transaction(groups, Committer("g", "one", None, 2), partition, 6)


def test_offsets_of_topics_that_nobody_subscribes_to_expire_and_the_empty_group_with_them() -> None:
    groups = Consumers(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=10_000)
    groups.shard.start()
    groups.enter("one")
    groups.commit(("t", 0, 5), ("u", 0, 6), member_id="one", generation=2, topic_id=T)
    groups.runtime.pass_ms(10_000)
    assert (groups.committed("t"), groups.committed("u")) == (5, -1)

    groups.beat("one", -1)
    groups.runtime.pass_ms(10_000)

    assert groups.committed("t") == -1
    assert groups.shard.groups.consumer == {}
