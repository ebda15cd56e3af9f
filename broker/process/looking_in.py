"""Shows a test a broker's topics, records, transactions and groups, without a client.

An answer is about what this node leads or coordinates. It has a bounded number of entries; the next question goes on
from the last one.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from broker.process.questions import QuestionError, broker_of, led_here, number_in, refusal, text_in
from broker.replicas.leader import Leader
from coordinator.transaction.states import STATE_NAMES
from protocol.errors import Error, KafkaError
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import NO_PRODUCER_ID, UNREADABLE, CorruptRecordError, parse_from, read_payload
from protocol.records.fates import COMMITTED, DATA_BATCH, NO_MARKER, WalkedBatch, WalkedLog
from protocol.waiting import Later
from storage.log.log_config import LONG_MAX

if TYPE_CHECKING:
    from broker.controller.topic_requests import Created
    from broker.process.questions import AnyNode, Question
    from broker.server import Server
    from coordinator.group.kinds import Group
    from coordinator.group.shard import GroupShard
    from coordinator.transaction.state_manager import TransactionMetadata
    from protocol.records.batch import Record
    from protocol.waiting import Waiting
    from storage.log.partition_log import PartitionLog

PAGE_BYTES: Final = 256 * 1024
"""Most bytes of batches that one answer reads, and of keys and values in it. It always has at least one record."""
MOST_RECORDS_TOLD: Final = 1_000
MOST_ENTRIES_TOLD: Final = 500
"""Transactions, open transactions or groups in one answer."""
MOST_MEMBERS_TOLD: Final = 1_000
"""Members of a group that an answer names."""
COUNTED_BYTES: Final = 32 * 1024 * 1024
"""Bytes of a partition that are read to count the records that a group hasn't read."""


# --- Topics -----------------------------------------------------------------------------------------------------


async def _create_topics(node: AnyNode, question: Question) -> Any:
    """`topics`: for each name the number of partitions, or an object of `partitions`, `replication` and `configs`;
    `if_missing`: leave existing topics as they are → the names of the created topics."""
    wanted = [_creatable(name, said) for name, said in _topics_said(question).items()]
    outcome: Later[Created | KafkaError] = Later()

    async def create() -> None:
        try:
            outcome.reply(await node.topics.create_automatically(wanted))
        except Exception as error:
            outcome.fail(error)

    node.controller.begin(create())
    found = await outcome
    if isinstance(found, KafkaError):
        raise refusal(found.error, found.message)
    made, refused = [], []
    for topic, result in found:
        if not isinstance(result, KafkaError):
            made.append(topic.name)
        elif result.error is not Error.TOPIC_ALREADY_EXISTS or not question.get("if_missing"):
            refused.append(f"{topic.name}: {refusal(result.error, result.message)}")
    if refused:
        raise QuestionError("; ".join(refused))
    return made


def _topics_said(question: Question) -> Mapping[str, Any]:
    topics = question.get("topics")
    if not isinstance(topics, Mapping) or not topics:
        raise QuestionError(f"topics={topics!r}: it has to be an object of topics by name")
    return topics


_OF_A_TOPIC = ("partitions", "replication", "configs")


def _creatable(name: str, said: Any) -> CreatableTopic:
    if not isinstance(said, Mapping):
        said = {"partitions": said}
    unknown = [each for each in said if each not in _OF_A_TOPIC]
    if unknown:
        raise QuestionError(f"{name}: a topic has {', '.join(_OF_A_TOPIC)}, not {', '.join(unknown)}")
    numbers = [said.get(each, -1) for each in _OF_A_TOPIC[:2]]
    configs = said.get("configs", {})
    if not all(type(each) is int and -1 <= each < 1 << 15 for each in numbers):
        raise QuestionError(f"{name}: partitions and replication have to be numbers, not {numbers}")
    if not isinstance(configs, Mapping):
        raise QuestionError(f"{name}: configs={configs!r}: it has to be an object")
    return CreatableTopic(
        name=name,
        num_partitions=numbers[0],
        replication_factor=numbers[1],
        configs=[CreatableTopicConfig(name=each, value=str(value)) for each, value in configs.items()],
    )


async def _topic(node: AnyNode, question: Question) -> Any:
    """`topic` → `leaders`: the leader's id of each partition, in order; `here`: the partitions that this node leads,
    and can be asked about."""
    name = text_in(question, "topic")
    topic = node.metadata.image.topics.get(name)
    if topic is None:
        raise QuestionError(f"there is no topic {name}")
    leaders = [topic.partitions[index].leader for index in sorted(topic.partitions)]
    return {"leaders": leaders, "here": [each.index for each in led_here(broker_of(node), name)]}


# --- Records ----------------------------------------------------------------------------------------------------


def _led_log(node: Server, topic: str, index: int) -> PartitionLog:
    try:
        return node.partitions.get(topic, index).leader().log
    except KafkaError as error:
        raise refusal(error.error, f"{topic}-{index} isn't led here") from None


def _walked(log: PartitionLog, offset: int, max_bytes: int = PAGE_BYTES) -> WalkedLog:
    """A page of batches from the offset on, up to the high watermark."""
    start, end = log.log_start_offset, log.high_watermark
    seen = WalkedLog(start, log.last_stable_offset, end, max(offset, start))
    if seen.next < end:
        read = log.read(seen.next, max_bytes, end, min_one_batch=True)
        aborted = log.aborted_transactions(seen.next, read, end)
        before = seen.next
        try:
            for _ in seen.take(read.records, ((each.producer_id, each.first_offset) for each in aborted)):
                pass
        except CorruptRecordError as error:
            raise QuestionError(f"{log.topic}-{log.partition}: {error}") from None
        if seen.next == before:  # there is no later batch
            seen.next = end
    seen.judge()
    return seen


async def _records(node: AnyNode, question: Question) -> Any:
    """`topic`, `partition`; `offset`: where to begin; `most`: how many; `committed`: only those that a reader of
    committed records gets (else those of open and aborted transactions, too); `markers`: the markers of transactions,
    too → `records`; `start`, `stable`, `end` of the partition; and `next`, the offset to go on from."""
    broker = broker_of(node)
    topic, index = text_in(question, "topic"), number_in(question, "partition", 0, (1 << 31) - 1)
    most = number_in(question, "most", MOST_RECORDS_TOLD, MOST_RECORDS_TOLD) or 1
    offset = number_in(question, "offset", 0, LONG_MAX)
    is_committed = bool(question.get("committed", True))
    seen = _walked(_led_log(broker, topic, index), offset)
    names = _transactional_ids(broker)
    found: list[dict[str, Any]] = []
    following, size_bytes = seen.next, 0
    for batch in seen.batches:
        if not _is_wanted(batch, seen.stable, is_committed, bool(question.get("markers"))):
            continue
        for document, length in _documents(f"{topic}-{index}", batch, names, max(offset, seen.start)):
            if found and (len(found) == most or size_bytes + length > PAGE_BYTES):
                following = document["offset"]
                break
            found.append(document)
            size_bytes += length
        else:
            continue
        break
    return {"start": seen.start, "stable": seen.stable, "end": seen.end, "next": following, "records": found}


def _is_wanted(batch: WalkedBatch, stable: int, is_committed: bool, markers: bool) -> bool:
    if batch.kind != DATA_BATCH:
        return markers
    return not is_committed or (batch.header.base_offset < stable and batch.fate in ("", COMMITTED))


def _documents(
    where: str, batch: WalkedBatch, names: Mapping[int, str], offset: int
) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the batch's records from the offset on, each as a document with its size in bytes."""
    header = batch.header
    of_batch = {
        "kind": "record" if batch.kind == DATA_BATCH else batch.kind,
        "producer_id": header.producer_id,
        "epoch": header.producer_epoch,
        "transactional_id": names.get(header.producer_id),
        "outcome": batch.fate or None,
        "marker": None if batch.marker == NO_MARKER else batch.marker,
    }
    try:
        _, payload = read_payload(batch.data)
        for record in parse_from(header, payload, offset):
            yield {**_document(record), **of_batch}, _bytes_of(record)
    except UNREADABLE as error:
        raise QuestionError(f"{where}: the batch at {header.base_offset} can't be read: {error}") from None


def _document(record: Record) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name.decode(errors="replace"), _text(value)] for name, value in record.headers],
        "sequence": record.sequence,
    }


def _bytes_of(record: Record) -> int:
    in_headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + in_headers


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


# --- Transactions -----------------------------------------------------------------------------------------------


def _known_transactions(node: Server) -> list[TransactionMetadata]:
    return [each for shard in node.transactions.all_shards() for each in shard.transactions.values()]


def _transactional_ids(node: Server) -> dict[int, str]:
    """Transactional ids by producer id: by the present one, and by the previous one if it has changed."""
    found: dict[int, str] = {}
    for each in _known_transactions(node):
        if each.previous_producer_id != NO_PRODUCER_ID:
            found.setdefault(each.previous_producer_id, each.transactional_id)
        found[each.producer_id] = each.transactional_id
    return found


async def _transactions(node: AnyNode, question: Question) -> Any:
    """`after`: a transactional id, or nothing → the next ids that this node coordinates, with their `state`,
    `producer_id`, `epoch`, `started_ms`, `timeout_ms`, and the partitions in which their transaction isn't ended."""
    after = question.get("after", "")
    known = sorted(_known_transactions(broker_of(node)), key=lambda each: each.transactional_id)
    wanted = [each for each in known if each.transactional_id > after]
    return [_transaction(each) for each in wanted[:MOST_ENTRIES_TOLD]]


def _transaction(metadata: TransactionMetadata) -> dict[str, Any]:
    return {
        "transactional_id": metadata.transactional_id,
        "state": STATE_NAMES[metadata.state],
        "producer_id": metadata.producer_id,
        "epoch": metadata.producer_epoch,
        "timeout_ms": metadata.timeout_ms,
        "started_ms": metadata.start_timestamp_ms if metadata.start_timestamp_ms > 0 else None,
        "partitions": sorted([topic, index] for topic, index in metadata.partitions),
    }


async def _open_transactions(node: AnyNode, question: Question) -> Any:
    """`after`: topic, partition and producer id, or nothing → the next open transactions in partitions that this node
    leads, with the `first_offset` at which readers of committed records wait, and the `transactional_id`, if this node
    coordinates it."""
    broker = broker_of(node)
    names = _transactional_ids(broker)
    after = tuple(question.get("after", ()))
    found = sorted(_opened(broker))
    wanted = [each for each in found if each[:3] > after]
    return [
        {
            "topic": topic,
            "partition": index,
            "producer_id": producer_id,
            "epoch": epoch,
            "first_offset": first,
            "transactional_id": names.get(producer_id),
        }
        for topic, index, producer_id, epoch, first in wanted[:MOST_ENTRIES_TOLD]
    ]


def _opened(node: Server) -> Iterator[tuple[str, int, int, int, int]]:
    for partition in node.partitions.all():
        if isinstance(partition.role, Leader):
            log = partition.log
            for each in log.producers.producers.values():
                if each.txn_first_offset >= 0:
                    yield log.topic, log.partition, each.producer_id, each.epoch, each.txn_first_offset


# --- Groups -----------------------------------------------------------------------------------------------------


async def _groups(node: AnyNode, question: Question) -> Any:
    """`after`: a group, or nothing → the next groups that this node coordinates, with their `type`, `state`, members,
    and the topics that they subscribe to, if known."""
    after = question.get("after", "")
    groups = {
        each.group_id: each for shard in broker_of(node).groups.all_shards() for each in shard.groups.all()
    }
    wanted = sorted(name for name in groups if name > after)
    return [_group(groups[name]) for name in wanted[:MOST_ENTRIES_TOLD]]


def _group(group: Group) -> dict[str, Any]:
    listed = group.listed()
    members: Iterable[Any] = [*getattr(group, "members", {}).values()]
    return {
        "group": group.group_id,
        "type": listed.group_type,
        "state": listed.group_state,
        "member_count": group.member_count,
        "members": [
            {
                "member": each.member_id,
                "instance": getattr(each, "instance_id", None),
                "client_id": each.client_id,
                "host": each.client_host,
            }
            for each in [*members][:MOST_MEMBERS_TOLD]
        ],
        "topics": _subscribed(group),
    }


def _subscribed(group: Group) -> list[str] | None:
    topics = getattr(group, "topics", None)
    if topics is None:
        topics = getattr(group, "subscribed_topics", None)
    return None if topics is None else sorted(topics)


async def _lag(node: AnyNode, question: Question) -> Any:
    """`group`; `topic`: one, or nothing for all in which the group has offsets or to which it subscribes → for each
    partition the `committed` offset and, if this node leads it, the `lag`: how many records a reader of committed ones
    has left. If `exact` is false, it is at least so many."""
    broker = broker_of(node)
    name = text_in(question, "group")
    shard = broker.groups.shard_of(name)
    committed = _committed(shard, name, question.get("topic"))
    image = broker.metadata.image.topics
    found = []
    for topic in sorted(committed):
        for index in sorted(image[topic].partitions if topic in image else ()):
            found.append(_lag_of(broker, topic, index, committed[topic].get(index)))
    return found


def _committed(shard: GroupShard, name: str, topic: str | None) -> dict[str, dict[int, int]]:
    """The group's offsets by topic and partition. Raises QuestionError if there is no such group, or if it is a share
    group, which has none."""
    group = shard.groups.find(name)
    if group is None:
        raise QuestionError(f"there is no group {name}")
    if name in shard.groups.share:
        raise QuestionError(f"{name} is a share group, which commits no offsets")
    offsets = {
        each: {index: found.offset for index, found in partitions.items()}
        for each, partitions in shard.offsets.of_group(name).items()
    }
    for each in _subscribed(group) or ():
        offsets.setdefault(each, {})
    return offsets if topic is None else {topic: offsets.get(topic, {})}


async def _partition_lag(node: AnyNode, question: Question) -> Any:
    """`topic`, `partition`, `committed`: an offset, or nothing → an entry as in `lag`."""
    broker = broker_of(node)
    topic, index = text_in(question, "topic"), number_in(question, "partition", 0, (1 << 31) - 1)
    committed = question.get("committed")
    _led_log(broker, topic, index)
    return _lag_of(broker, topic, index, None if committed is None else int(committed))


def _lag_of(node: Server, topic: str, index: int, committed: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"topic": topic, "partition": index, "committed": committed}
    partition = node.partitions.find(topic, index)
    if partition is None or not isinstance(partition.role, Leader):
        return {**found, "lag": None, "exact": False}
    lag, at, counted_bytes = 0, committed or 0, 0
    stable = partition.log.last_stable_offset
    while at < stable and counted_bytes < COUNTED_BYTES:
        seen = _walked(partition.log, at)
        for batch in seen.batches:
            counted_bytes += len(batch.data)
            if _is_wanted(batch, stable, is_committed=True, markers=False):
                lag += _counted(batch, at)
        at = seen.next
    return {**found, "lag": lag, "exact": at >= stable}


def _counted(batch: WalkedBatch, offset: int) -> int:
    """How many records the batch has from the offset on."""
    if batch.header.base_offset >= offset:
        return batch.header.records_count
    return sum(1 for _ in parse_from(*read_payload(batch.data), offset))


LOOKING_IN: Mapping[str, Callable[[AnyNode, Question], Waiting[Any]]] = {
    "create_topics": _create_topics,
    "groups": _groups,
    "lag": _lag,
    "open_transactions": _open_transactions,
    "partition_lag": _partition_lag,
    "records": _records,
    "topic": _topic,
    "transactions": _transactions,
}
"""The questions by name, as `broker.process.control.CLUSTER_QUESTIONS`. They may also raise KafkaError."""
