"""Records of internal topics that no broker should have written: their form is right, but what they say is wrong.

Chance is an argument, so that a seed makes the same ones again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from struct import pack
from typing import Any, TypeVar

from coordinator.java.maps import partition_of_key
from protocol.messages import group_records as classic
from protocol.messages import group_records as consumer
from protocol.messages import group_records_share as share
from protocol.messages.transactions import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from protocol.records.batch import ABORT, COMMIT, build_batch, build_end_txn_marker
from protocol.wire.codec import encode
from protocol.wire.schema import Message

T = TypeVar("T")

Keyed = tuple[bytes | None, bytes | None]

INT32 = (-(2**31), -2, -1, 0, 1, 2, 2**31 - 1)
INT64 = (-(2**63), -2, -1, 0, 1, 2**63 - 1)
TOPIC_IDS = (bytes(16), b"\1" * 16, b"\xff" * 16)
NAMES = ("t", "", "no-such-topic", "t" * 249, "\x00", "../t", "ünï", "__consumer_offsets")
REGEXES = ("t.*", "", "(", "a{1001}", "[z-a]", "(?P<x", "\\", "(a*)*b")


class Poisoner:
    """Makes records for one partition of an internal topic: the ids in them belong there."""

    def __init__(self, chance: Random, partition: int, partitions: int) -> None:
        self.chance = chance
        candidates = (f"{stem}{number}" for number in range(10_000) for stem in ("g", "x"))
        self.ids: list[str] = []
        for each in candidates:
            if partition_of_key(each, partitions) == partition:
                self.ids.append(each)
            if len(self.ids) == 3:
                break

    # --- values -------------------------------------------------------------------------------------------------

    def some(self, usual: T, *unusual: Any) -> Any:
        """Return the usual value mostly, and sometimes an unusual one."""
        return self.chance.choice(unusual) if unusual and self.chance.random() < 0.2 else usual

    def _key(self, message: Message, kind: int) -> bytes:
        kind = self.some(kind, 0, 1, 2, 9, 11, 18, 99, -1, 32767) if self.chance.random() < 0.2 else kind
        return pack(">h", kind) + bytes(encode(message, 0))

    def _value(self, message: Message, version: int, highest: int) -> bytes | None:
        if self.chance.random() < 0.05:
            return None
        prefix = self.some(version, -1, highest + 1, 0, 32767) if self.chance.random() < 0.2 else version
        return pack(">h", prefix) + bytes(encode(message, version))

    def _member(self) -> str:
        return self.some(f"m{self.chance.randrange(3)}", "", "m" * 300)

    def _bytes(self) -> bytes:
        chance = self.chance
        subscription = b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0"
        return self.some(subscription, b"", b"\0", b"\0\1\xff\xff\xff\xfe", chance.randbytes(9), b"\x7f" * 40)

    # --- records of groups --------------------------------------------------------------------------------------

    def offset(self) -> Keyed:
        key = classic.OffsetCommitKey(
            group=self.chance.choice(self.ids),
            topic=self.some("t", *NAMES),
            partition=self.some(0, *INT32),
        )
        version = self.chance.randrange(5)
        value = classic.OffsetCommitValue(
            offset=self.some(7, *INT64),
            leader_epoch=self.some(0, *INT32),
            metadata=self.some("", "m" * 5000, "\x00"),
            commit_timestamp=self.some(1, *INT64),
            expire_timestamp=self.some(-1, *INT64),
        )
        return self._key(key, 1), self._value(value, version, 4)

    def classic_group(self) -> Keyed:
        chance = self.chance
        members = [
            classic.MemberMetadata(
                member_id=self._member(),
                group_instance_id=self.some(None, "i0", "i1", ""),
                client_id=self.some("c", "", "\n"),
                client_host=self.some("/127.0.0.1", ""),
                rebalance_timeout=self.some(1000, *INT32),
                session_timeout=self.some(10_000, *INT32),
                subscription=self._bytes(),
                assignment=self._bytes(),
            )
            for _ in range(chance.randrange(4))
        ]
        if chance.random() < 0.7:
            members = [*{member.member_id: member for member in members}.values()]
        version = chance.randrange(5)
        value = classic.GroupMetadataValue(
            protocol_type=self.some("consumer", "", "connect", "share"),
            generation=self.some(3, *INT32),
            protocol=self.some("range", None, ""),
            leader=self.some(members[0].member_id if members else None, None, "", "nobody"),
            current_state_timestamp=self.some(1, *INT64),
            members=members,
        )
        key = classic.GroupMetadataKey(group=chance.choice(self.ids))
        return self._key(key, 2), self._value(value, version, 4)

    def consumer_group(self) -> Keyed:
        chance = self.chance
        group_id = chance.choice(self.ids)
        member_id = self._member()
        kind = chance.choice((3, 4, 5, 5, 6, 7, 8, 8, 16))
        key: Message
        value: Message
        if kind == 3:
            key = consumer.ConsumerGroupMetadataKey(group_id=group_id)
            value = consumer.ConsumerGroupMetadataValue(epoch=self.some(4, *INT32), metadata_hash=1)
        elif kind == 4:
            key = consumer.ConsumerGroupPartitionMetadataKey(group_id=group_id)
            value = consumer.ConsumerGroupPartitionMetadataValue(topics=[])
        elif kind == 5:
            key = consumer.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
            value = self._consumer_member()
        elif kind == 6:
            key = consumer.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
            value = consumer.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=self.some(4, *INT32), assignment_timestamp=self.some(1, *INT64)
            )
        elif kind == 7:
            key = consumer.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            value = consumer.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    consumer.TopicPartition(
                        topic_id=chance.choice(TOPIC_IDS),
                        partitions=self.some([0], [0, 0], [], [-1], [2**31 - 1]),
                    )
                    for _ in range(chance.randrange(3))
                ]
            )
        elif kind == 8:
            key = consumer.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            value = consumer.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=self.some(4, *INT32),
                previous_member_epoch=self.some(3, *INT32),
                state=self.some(0, -128, -1, 1, 2, 3, 55, 127),
                assigned_partitions=self._assigned(),
                partitions_pending_revocation=self._assigned(),
            )
        else:
            regex = self.some("t.*", *REGEXES)
            key = consumer.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
            value = consumer.ConsumerGroupRegularExpressionValue(
                topics=self.some(["t"], [], ["t", "t"], [""]),
                version=self.some(1, *INT64),
                timestamp=self.some(1, *INT64),
            )
        return self._key(key, kind), self._value(value, 0, 0)

    def _consumer_member(self) -> consumer.ConsumerGroupMemberMetadataValue:
        classic_member = consumer.ClassicMemberMetadata(
            session_timeout_ms=self.some(10_000, *INT32),
            supported_protocols=[
                consumer.ClassicProtocol(name=self.some("range", ""), metadata=self._bytes())
                for _ in range(self.chance.randrange(3))
            ],
        )
        return consumer.ConsumerGroupMemberMetadataValue(
            instance_id=self.some(None, "i0", "i0", ""),
            rack_id=self.some(None, ""),
            client_id="c",
            client_host="/127.0.0.1",
            subscribed_topic_names=self.some(["t"], [], ["t", "t"], ["", "\x00"]),
            subscribed_topic_regex=self.some(None, *REGEXES),
            rebalance_timeout_ms=self.some(1000, *INT32),
            server_assignor=self.some(None, "range", "uniform", "", "nonsense"),
            classic_member_metadata=self.some(None, classic_member),
        )

    def _assigned(self) -> list[consumer.TopicPartitions]:
        return [
            consumer.TopicPartitions(
                topic_id=self.chance.choice(TOPIC_IDS),
                partitions=self.some([0], [0, 0], [], [-1], [5]),
                assignment_epochs=self.some(None, [4], [], [-1], [4, 4]),
            )
            for _ in range(self.chance.randrange(3))
        ]

    def share_group(self) -> Keyed:
        group_id = self.chance.choice(self.ids)
        member_id = self._member()
        kind = self.chance.choice((10, 11, 11, 12, 13, 14, 14, 15, 15))
        key: Message
        value: Message
        if kind == 10:
            key = share.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
            value = share.ShareGroupMemberMetadataValue(
                rack_id=self.some(None, ""),
                client_id="c",
                client_host="/127.0.0.1",
                subscribed_topic_names=self.some(["t"], [], ["t", "t"], ["", "\x00"]),
            )
        elif kind == 11:
            key = share.ShareGroupMetadataKey(group_id=group_id)
            value = share.ShareGroupMetadataValue(epoch=self.some(4, *INT32), metadata_hash=1)
        elif kind == 12:
            key = share.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
            value = share.ShareGroupTargetAssignmentMetadataValue(
                assignment_epoch=self.some(4, *INT32), assignment_timestamp=self.some(1, *INT64)
            )
        elif kind == 13:
            key = share.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            value = share.ShareGroupTargetAssignmentMemberValue(topic_partitions=self._shared())
        elif kind == 14:
            key = share.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            value = share.ShareGroupCurrentMemberAssignmentValue(
                member_epoch=self.some(4, *INT32),
                previous_member_epoch=self.some(3, *INT32),
                state=self.some(0, -128, -1, 1, 127),
                assigned_partitions=self._shared(),
            )
        else:
            key = share.ShareGroupStatePartitionMetadataKey(group_id=group_id)
            value = share.ShareGroupStatePartitionMetadataValue(
                initializing_topics=self._of_states(),
                initialized_topics=self._of_states(),
                deleting_topics=[
                    share.TopicInfo(topic_id=self.chance.choice(TOPIC_IDS), topic_name=self.some("t", *NAMES))
                    for _ in range(self.chance.randrange(2))
                ],
            )
        return self._key(key, kind), self._value(value, 0, 0)

    def _shared(self) -> list[share.TopicPartitions]:
        return [
            share.TopicPartitions(
                topic_id=self.chance.choice(TOPIC_IDS),
                partitions=self.some([0], [0, 0], [], [-1], [2**31 - 1]),
            )
            for _ in range(self.chance.randrange(3))
        ]

    def _of_states(self) -> list[share.TopicPartitionsInfo]:
        return [
            share.TopicPartitionsInfo(
                topic_id=self.chance.choice(TOPIC_IDS),
                topic_name=self.some("t", *NAMES),
                partitions=self.some([0], [0, 0], [], [-1], [2**31 - 1]),
            )
            for _ in range(self.chance.randrange(3))
        ]

    # --- records of transactions --------------------------------------------------------------------------------

    def transaction(self) -> Keyed:
        chance = self.chance
        status = self.some(chance.choice((0, 1, 2, 3, 4, 5)), -1, 6, 7, 99)
        partitions = [
            PartitionsSchema(
                topic=self.some("t", *NAMES), partition_ids=self.some([0], [0, 0], [], [-1], [2**31 - 1])
            )
            for _ in range(chance.randrange(3))
        ]
        version = chance.randrange(2)
        value = TransactionLogValue(
            producer_id=self.some(5, *INT64),
            previous_producer_id=-1 if version == 0 else self.some(-1, *INT64),
            next_producer_id=-1 if version == 0 else self.some(-1, *INT64),
            producer_epoch=self.some(1, -32768, -1, 0, 32766, 32767),
            transaction_timeout_ms=self.some(60_000, *INT32),
            transaction_status=status,
            transaction_partitions=self.some(None if status == 0 else partitions, None, []),
            transaction_last_update_timestamp_ms=self.some(1, *INT64),
            transaction_start_timestamp_ms=self.some(1, *INT64),
            client_transaction_version=0 if version == 0 else self.some(2, -1, 0, 1, 3, 32767),
        )
        key = TransactionLogKey(transactional_id=self.some(chance.choice(self.ids), ""))
        return self._key(key, 0), self._value(value, version, 1)

    # --- bytes ------------------------------------------------------------------------------------------------------

    def mutated(self, record: Keyed) -> Keyed:
        """Return the record with some of its bytes changed, cut off or added, or without a key."""
        key, value = record
        what = self.chance.randrange(8)
        if what == 0:
            return None, value
        if what < 3:
            return self._damaged(key), value
        return key, self._damaged(value)

    def _damaged(self, data: bytes | None) -> bytes | None:
        if not data:
            return data
        chance = self.chance
        place = chance.randrange(len(data))
        what = chance.randrange(4)
        if what == 0:
            return data[:place]
        if what == 1:
            return data + chance.randbytes(chance.randrange(1, 5))
        if what == 2:
            return data[:place] + bytes([data[place] ^ 1 << chance.randrange(8)]) + data[place + 1 :]
        return data[:place] + b"\xff\xff\xff\xff"[: len(data) - place] + data[place + 4 :]

    # --- batches ----------------------------------------------------------------------------------------------------

    def batches(self, makers: Sequence[Callable[[], Keyed]]) -> list[bytearray]:
        """Return a few batches whose checksums are right."""
        chance = self.chance
        made: list[bytearray] = []
        for _ in range(chance.randrange(1, 5)):
            records = []
            for _ in range(chance.randrange(1, 6)):
                record = chance.choice(makers)()
                if chance.random() < 0.15:
                    record = self.mutated(record)
                records.append((1 + chance.randrange(3), *record, ()))
            in_transaction = chance.random() < 0.2
            made.append(
                build_batch(
                    records,
                    producer_id=9 if in_transaction else -1,
                    producer_epoch=0 if in_transaction else -1,
                    transactional=in_transaction,
                )
            )
            if in_transaction and chance.random() < 0.7:
                made.append(
                    build_end_txn_marker(
                        chance.choice((ABORT, COMMIT)),
                        producer_id=9,
                        producer_epoch=0,
                        coordinator_epoch=0,
                        timestamp=1,
                    )
                )
        return made
