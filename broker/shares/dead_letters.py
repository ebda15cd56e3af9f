"""The dead letter queues of share groups: records that are rejected or were delivered too often go to a topic
(Kafka: `ShareGroupDLQStateManager`, `ShareGroupDLQRecordFetcher`, KIP-1191).

Each share partition has a line. Whatever waits in it becomes one record batch, as far as the queue accepts
that. The next batch begins once that one is committed. A line is no longer than what the share partition may
have in flight: its records are ARCHIVING. Originals are read as they are written, 1 MiB at a time.

A queue gets a dead letter at least once: if the answer is lost, it is written again. There are two conscious
differences from Kafka. If a queue has too few replicas in sync or a failed disk, barnabas tries again; Kafka
gives up. If an original doesn't fit into the queue, its dead letter has headers only; Kafka writes none at
all if the headers don't fit.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.config.definitions import ConfigError
from broker.config.group_config import parsed_group_value
from broker.config.topic_config import log_config_of_topic
from broker.controller.image import GROUP_RESOURCE, NO_LEADER
from broker.environment.scheduler import passed
from broker.replicas.append_records import ALL_IN_SYNC, Appends, checking
from protocol.errors import Error, KafkaError, error_of, stops_the_broker
from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from protocol.records.batch import (
    BATCH_OVERHEAD,
    CorruptRecordError,
    Record,
    append_record,
    read_header,
    read_records,
    seal_of_one_time,
)
from protocol.records.compression import CodecUnavailableError, DecompressionError
from protocol.records.validation_budget import ANY
from protocol.waiting import Later, Pause, compute, turn

if TYPE_CHECKING:
    from broker.config.broker_config import BrokerConfig
    from broker.controller.image import ClusterImage, TopicImage
    from broker.controller.topic_requests import Create
    from broker.environment.scheduler import Clock, Scheduler
    from broker.network.turns import Turns
    from broker.replicas.partition import Partition
    from broker.replicas.partitions import Partitions
    from coordinator.share_partition.ports import DeadLetter
    from coordinator.share_partition.share_partition import SharePartition

log = logging.getLogger("barnabas.shares")

Header = tuple[bytes, bytes]

RETRIES_S = (1.0, 2.0, 4.0, 8.0)
"""How long to wait before trying a queue again. Kafka's waits vary by up to a fifth."""
PRODUCE_TIMEOUT_MS = 30_000
MOST_READ_BYTES = 1 << 20
"""The most bytes of originals to read at once."""
LETTERS_PER_STEP = 200
"""The dead letters to encode before others get a turn. Each takes some ten microseconds."""

TOPIC_NAME = "errors.deadletterqueue.topic.name"
COPIES = "errors.deadletterqueue.copy.record.enable"
GROUP_ENABLE = "errors.deadletterqueue.group.enable"
AUTO_CREATE = "errors.deadletterqueue.auto.create.topics.enable"
PREFIX = "errors.deadletterqueue.topic.name.prefix"

ASK_AGAIN = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.NETWORK_EXCEPTION,
        Error.REQUEST_TIMED_OUT,
        Error.TOPIC_ALREADY_EXISTS,
        Error.THROTTLING_QUOTA_EXCEEDED,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.UNKNOWN_TOPIC_ID,
        Error.NOT_ENOUGH_REPLICAS,
        Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Error.KAFKA_STORAGE_ERROR,
        Error.NOT_CONTROLLER,
    }
)


class Dying(Protocol):
    """A share partition that this node leads, and its partition: `LedSharePartition`."""

    @property
    def partition(self) -> Partition: ...

    @property
    def share(self) -> SharePartition: ...


class Produced(NamedTuple):
    """A record batch for the leader of a queue's partition."""

    topic_id: bytes
    name: str
    partition: int
    batch: bytes
    answer: Later[Error]


class ProduceElsewhere(Protocol):
    """Sends record batches to the leaders of partitions on other nodes."""

    def __call__(self, node_id: int, produced: Produced, /) -> None:
        """Send a batch. The answer comes in a later turn."""
        ...


class _Line:
    """A share partition's dead letters for its queue, in the order in which they came."""

    __slots__ = ("letters", "next_offset")

    def __init__(self) -> None:
        self.letters: deque[tuple[DeadLetter, Callable[[DeadLetter], None]]] = deque()
        self.next_offset = -1
        """The first letter's offsets before this one are already in the queue."""

    def done(self, count: int) -> None:
        """Remove the first letters: they are in the queue, or given up."""
        for _ in range(count):
            letter, done = self.letters.popleft()
            self.next_offset = -1
            done(letter)


class _Batch(NamedTuple):
    data: bytearray
    whole: int
    """How many of the line's letters end in the batch."""
    next_offset: int
    """If the next letter begins in the batch, its next offset; otherwise -1."""


class DeadLetterQueues:
    """The dead letter queues of all share groups, as far as this broker writes to them."""

    def __init__(
        self,
        node_id: int,
        config: BrokerConfig,
        image: ClusterImage,
        partitions: Partitions,
        create: Create,
        clock: Clock,
        scheduler: Scheduler,
        turns: Turns,
        failed: Callable[[BaseException], None],
        elsewhere: ProduceElsewhere | None,
    ) -> None:
        """`elsewhere` is None if there can be no other nodes. `failed` gets broken invariants."""
        self._node_id = node_id
        self._config = config
        self._image = image
        self._partitions = partitions
        self._create = create
        self._clock = clock
        self._scheduler = scheduler
        self._turns = turns
        self._failed = failed
        self._elsewhere = elsewhere
        self._lines: dict[Dying, _Line] = {}

    def bury(self, led: Dying, letters: Sequence[DeadLetter], done: Callable[[DeadLetter], None]) -> None:
        """See `Bury`. Once the share partition is dropped, `done` isn't called any more: its next leader
        buries again."""
        line = self._lines.get(led)
        is_new = line is None
        if line is None:
            line = self._lines[led] = _Line()
        line.letters += [(letter, done) for letter in letters]
        if is_new:
            self._turns.carry_out(self._send_all(led, line), self._failed)

    async def _send_all(self, led: Dying, line: _Line) -> None:
        try:
            await turn()
            while line.letters and not led.share.is_over:
                await self._send_some(led, line)
        finally:
            self._lines.pop(led, None)

    async def _send_some(self, led: Dying, line: _Line) -> None:
        """Send one batch, as often as that makes sense."""
        for tries in range(len(RETRIES_S) + 1):
            batch = _Batch(bytearray(), len(line.letters), -1)  # given up if there is no queue
            try:
                topic = await self._topic(led.share.group_id)
                batch = await self._batch_of(led, line, self._most_bytes(topic))
                if led.share.is_over:
                    return
                await self._produce(topic, led.share.partition % len(topic.partitions), batch.data)
            except KafkaError as error:
                if error.error not in ASK_AGAIN or tries == len(RETRIES_S):
                    self._give_up(led, error)
                    line.done(max(batch.whole, 1))  # if one has begun, its rest goes, too
                    return
                await passed(self._scheduler, RETRIES_S[tries])
                if led.share.is_over:
                    return
            except Exception as error:
                if stops_the_broker(error):
                    raise
                log.error("can't write dead letters of %s", led.share.group_id, exc_info=error)
                line.done(max(batch.whole, 1))
                return
            else:
                line.done(batch.whole)
                line.next_offset = batch.next_offset
                return

    def _give_up(self, led: Dying, error: KafkaError) -> None:
        log.error(
            "giving up dead letters of %s for %s-%d, the records are archived nevertheless: %s",
            led.share.group_id,
            led.partition.topic.name,
            led.partition.index,
            error,
        )

    # --- the topic ------------------------------------------------------------------------------------------

    def _group_value(self, group_id: str, name: str) -> object:
        text = self._image.configs.get((GROUP_RESOURCE, group_id), {}).get(name)
        if text is None:
            return ""
        try:
            return parsed_group_value(name, text)
        except ConfigError:
            return ""

    async def _topic(self, group_id: str) -> TopicImage:
        """Return the group's queue. Create it if that is allowed. Raises KafkaError: INVALID_CONFIG, and the
        controller's errors."""
        name = str(self._group_value(group_id, TOPIC_NAME))
        self._check_name(group_id, name)
        topic = self._image.topics.get(name)
        if topic is None:
            await self._make(name)
            topic = self._image.topics.get(name)
            if topic is None:
                raise KafkaError(
                    Error.UNKNOWN_TOPIC_OR_PARTITION, f"{name} was created, but isn't known here yet"
                )
        return topic

    def _check_name(self, group_id: str, name: str) -> None:
        wrong = ""
        prefix = self._config.get_string(PREFIX) or ""
        if not name:
            wrong = "it doesn't have a dead letter queue any more"
        elif name.startswith("__"):
            wrong = f"{name} begins like an internal topic"
        elif not name.startswith(prefix):
            wrong = f"{name} doesn't begin with {prefix}, the value of {PREFIX}"
        elif name in self._image.topics:
            if not _is_true(self._image.config_of_topic(name), GROUP_ENABLE):
                wrong = f"{name} doesn't have {GROUP_ENABLE}"
        elif not self._config.get_boolean(AUTO_CREATE):
            wrong = f"there is no {name}, and {AUTO_CREATE} isn't set"
        if wrong:
            raise KafkaError(Error.INVALID_CONFIG, f"share group {group_id}: {wrong}")

    async def _make(self, name: str) -> None:
        wanted = CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            configs=[
                CreatableTopicConfig(name=GROUP_ENABLE, value="true"),
                CreatableTopicConfig(name="message.timestamp.type", value="CreateTime"),
            ],
        )
        outcome = await self._create([wanted])
        if isinstance(outcome, KafkaError):
            raise KafkaError(outcome.error, outcome.message)
        for _, result in outcome:
            if isinstance(result, KafkaError):
                raise KafkaError(result.error, result.message)
        log.info("created topic %s as a dead letter queue", name)

    def _most_bytes(self, topic: TopicImage) -> int:
        overrides = self._image.config_of_topic(topic.name)
        return log_config_of_topic(self._config, overrides).max_message_bytes

    # --- the batch ------------------------------------------------------------------------------------------

    async def _batch_of(self, led: Dying, line: _Line, most_bytes: int) -> _Batch:
        """Encode the first letters of the line: at least one, and as many as the queue accepts in one
        batch."""
        letters = [letter for letter, _ in line.letters]  # the line may grow at each `await`
        begin = began = max(line.next_offset, letters[0].first_offset)
        last = max(letter.last_offset for letter in letters)  # they may come in any order
        originals, known_to = await self._originals(led, began, last)
        now_ms = self._clock.now_ms()
        headers = _headers_of(led)
        payload = bytearray()
        count = whole = 0
        pause = Pause(LETTERS_PER_STEP)
        for letter in letters:
            for offset in range(max(begin, letter.first_offset), letter.last_offset + 1):
                following = offset if offset > letter.first_offset else -1
                if count and known_to is not None and not began <= offset <= known_to:
                    return _Batch(seal_of_one_time(now_ms, payload, count), whole, following)
                if pause.is_due():
                    await turn()
                size = len(payload)
                _append(payload, count, headers, letter, offset, originals.get(offset))
                if BATCH_OVERHEAD + len(payload) - size > most_bytes and offset in originals:
                    del payload[size:]
                    _append(payload, count, headers, letter, offset, None)
                if count and BATCH_OVERHEAD + len(payload) > most_bytes:
                    del payload[size:]
                    return _Batch(seal_of_one_time(now_ms, payload, count), whole, following)
                count += 1
            whole += 1
            begin = 0
        return _Batch(seal_of_one_time(now_ms, payload, count), whole, -1)

    async def _originals(
        self, led: Dying, offset: int, last_offset: int
    ) -> tuple[Mapping[int, Record], int | None]:
        """Read the originals at these offsets. Returns them, and the offset up to which they are complete.

        Returns nothing and None if the group doesn't copy originals, or they can't be read. Then dead letters
        have headers only.
        """
        if self._group_value(led.share.group_id, COPIES) is not True:
            return {}, None
        source = led.partition.log
        try:
            data = source.read(offset, MOST_READ_BYTES, source.high_watermark, min_one_batch=True).records
            return await compute(lambda: _records_in(data, offset, last_offset))
        except (
            KafkaError,
            CorruptRecordError,
            CodecUnavailableError,
            DecompressionError,
            MemoryError,
        ) as error:
            log.warning(
                "%s-%d: no originals from %d on: %s",
                led.partition.topic.name,
                led.partition.index,
                offset,
                error,
            )
            return {}, None

    # --- the produce ----------------------------------------------------------------------------------------

    async def _produce(self, topic: TopicImage, index: int, batch: bytearray) -> None:
        """Return once the batch is committed. Raises KafkaError."""
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            raise KafkaError(Error.NOT_LEADER_OR_FOLLOWER, f"nobody leads {topic.name}-{index}")
        if leader == self._node_id or self._elsewhere is None:
            error = await self._append(self._partitions.get(topic.name, index), batch)
        else:
            produced = Produced(topic.topic_id, topic.name, index, bytes(batch), Later())
            self._elsewhere(leader, produced)
            error = await produced.answer
        if error is not Error.NONE:
            raise KafkaError(error, f"{topic.name}-{index} doesn't take them")

    async def _append(self, partition: Partition, batch: bytearray) -> Error:
        view = memoryview(batch)
        key = (partition.topic.name, partition.index)
        appends = Appends(ALL_IN_SYNC, False)
        appends.append({key: (partition, view)}, self._clock, {})
        if appends.left:
            now_ms = self._clock.now_ms()
            checked = await compute(checking(partition, view, now_ms, ANY))
            assert checked is not None
            appends.append_checked(key, checked, now_ms, {})
        if appends.awaited:
            await self._turns.all_done(appends.awaited, PRODUCE_TIMEOUT_MS, self._scheduler)
        return error_of(appends.answers[key].error_code)


def _is_true(overrides: Mapping[str, str], name: str) -> bool:
    return overrides.get(name, "").strip().lower() == "true"


def _headers_of(led: Dying) -> tuple[Header, Header, Header]:
    """The headers that all dead letters of a share partition share: topic, partition and group."""
    topic = led.partition.topic.name.encode()
    return (
        (b"__dlq.errors.topic", topic),
        (b"__dlq.errors.partition", b"%d" % led.partition.index),
        (b"__dlq.errors.group", led.share.group_id.encode()),
    )


def _append(
    payload: bytearray,
    place: int,
    headers: tuple[Header, Header, Header],
    letter: DeadLetter,
    offset: int,
    original: Record | None,
) -> None:
    """Append the dead letter of one offset, as the batch's record at this place."""
    topic, partition, group = headers
    of_record = (
        topic,
        partition,
        (b"__dlq.errors.offset", b"%d" % offset),
        group,
        (b"__dlq.errors.delivery.count", b"%d" % letter.delivery_count),
        (b"__dlq.errors.message", letter.cause.encode()),
    )
    key, value = (None, None) if original is None else (original.key, original.value)
    append_record(payload, 0, place, key, value, of_record)


def _records_in(data: bytes, first: int, last: int) -> tuple[dict[int, Record], int | None]:
    """Return the records at these offsets from the whole batches in `data`, whose last batch may be torn.

    It stops after the batch with which they exceed the bytes to read at once: decompressed records may be
    much larger.
    """
    found: dict[int, Record] = {}
    known_to: int | None = None
    position = found_bytes = 0
    while len(data) - position >= BATCH_OVERHEAD:
        header = read_header(data[position : position + BATCH_OVERHEAD])
        if position + header.size_bytes > len(data):
            break
        if header.base_offset > last or found_bytes >= MOST_READ_BYTES:
            break
        if header.last_offset >= first:
            for record in read_records(memoryview(data)[position : position + header.size_bytes]):
                if first <= record.offset <= last:
                    found[record.offset] = record
                    found_bytes += len(record.key or b"") + len(record.value or b"")
        known_to = header.last_offset
        position += header.size_bytes
    return found, known_to
