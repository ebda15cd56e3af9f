"""Write records: a line each, from the terminal, a pipe or files.

barnabas produce orders                          type lines; Ctrl-D ends
barnabas produce orders lines.txt -K :           lines of a file, `key:value`
barnabas produce orders --whole picture.png      a file is one record
barnabas produce --json < records.jsonl          what `barnabas consume --json` wrote
barnabas produce orders --transaction 100        every 100 records are a transaction
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, cast

from cli.errors import CommandError, CommandUsageError
from cli.formats import FORMATS, from_json
from cli.librdkafka import Client, confluent_kafka, reason
from cli.options import add_connection, key_values
from cli.output import say
from cli.progress import Progress, progress

POLL_EVERY: Final = 1000
CHUNK_BYTES: Final = 1024 * 1024
FLUSH_S: Final = 60.0
LINGER_MS: Final = 5
QUEUE_KIB: Final = 256 * 1024
QUEUE_RECORDS: Final = 1_000_000
ANY_PARTITION: Final = -1


class _Record(NamedTuple):
    topic: str
    value: bytes | None
    key: bytes | None
    partition: int
    headers: list[tuple[str, bytes | None]] | None
    timestamp_ms: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """As `cli.commands.Command` has it."""
    parser.add_argument(
        "topic", nargs="?", metavar="TOPIC", help="with --json, instead of those of the lines"
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="what is read (default: the standard input)")
    parser.add_argument("--json", action="store_true", help="each line is an object: key, value, headers, …")
    parser.add_argument("--whole", action="store_true", help="each file is one record")
    parser.add_argument("-k", "--key", metavar="KEY", help="of every record")
    parser.add_argument(
        "-K", "--key-separator", metavar="TEXT", help="what stands between key and value of a line"
    )
    parser.add_argument(
        "-H", "--header", metavar="NAME=VALUE", action="append", default=[], help="may be repeated"
    )
    parser.add_argument(
        "-p", "--partition", type=int, metavar="N", help="(default: by the key, as Java's clients)"
    )
    parser.add_argument("--any-partition", action="store_true", help="with --json: not those of the lines")
    parser.add_argument("--null", metavar="TEXT", help="a value (or key) of this text is null")
    parser.add_argument(
        "--key-format", choices=FORMATS, default="text", help="what the text of a key stands for"
    )
    parser.add_argument(
        "--value-format", choices=FORMATS, default="text", help="what the text of a value stands for"
    )
    parser.add_argument(
        "--transaction",
        nargs="?",
        type=int,
        const=0,
        metavar="N",
        help="all of it is one transaction, or every N records are one",
    )
    parser.add_argument("--transactional-id", metavar="ID", help="(default: one that nobody has)")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    """As `cli.commands.Command` has it. A transaction that isn't complete is aborted, whatever ends this."""
    _check(options)
    sending = _Sending(options)
    try:
        with progress("sent", options.files) as shown:
            _send_all(options, sending, shown)
            sending.end()
    except BaseException:
        sending.abandon()
        raise
    say(f"{sending.sent:,} records sent")
    return 0


def _send_all(options: argparse.Namespace, sending: _Sending, shown: Progress) -> None:
    headers: list[tuple[str, bytes | None]] = [
        (name, value.encode()) for name, value in key_values(options.header, "-H").items()
    ]
    is_bare = not (options.json or headers or sending.is_transactional) and all(
        getattr(options, name) is None for name in ("key", "key_separator", "partition", "null")
    )
    record_of = (_from_json if options.json else _from_text)(options, headers)
    for lines in _chunks(options, shown):
        if is_bare and options.value_format == "text":
            sending.send_values(options.topic, lines)
            shown.count += len(lines)
            continue
        for line in lines:
            shown.line += not options.whole
            try:
                record = record_of(line)
            except UnicodeDecodeError as error:
                raise CommandError(f"{shown.place()}: it isn't UTF-8: {error.reason}") from None
            except ValueError as error:
                raise CommandError(f"{shown.place()}: {error}") from None
            sending.send(record)
            shown.count += 1


def _check(options: argparse.Namespace) -> None:
    if options.topic is None and not options.json:
        raise CommandUsageError(
            "which topic? barnabas produce TOPIC (only lines of --json can name their own)"
        )
    if options.transaction is not None and options.transaction < 0:
        raise CommandUsageError(f"--transaction {options.transaction}: every how many records?")
    if options.transactional_id is not None and options.transaction is None:
        raise CommandUsageError("--transactional-id is for --transaction")
    if options.whole and not options.files:
        raise CommandUsageError("--whole: name a FILE, or several")
    if options.whole and (options.json or options.key_separator):
        raise CommandUsageError("--whole: a file is a record as it is, without --json and -K")


RecordOf = Callable[[bytes], _Record]
"""Of a line without its end, or of a whole file. ValueError for what can't be read."""


class _Sending:
    """Hands records to librdkafka, and sees to transactions and failures."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._library = confluent_kafka()
        self._every = options.transaction
        self.is_transactional = options.transaction is not None
        own: dict[str, object] = {
            "linger.ms": LINGER_MS,
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "queue.buffering.max.kbytes": QUEUE_KIB,
            "queue.buffering.max.messages": QUEUE_RECORDS,
            "delivery.report.only.error": True,
            "on_delivery": self._delivered,
        }
        if self.is_transactional:
            own["transactional.id"] = options.transactional_id or f"barnabas-cli-{uuid.uuid4()}"
        self._client = Client(options, own)
        self._producer = self._client.made(self._library.Producer)
        self.sent = 0
        self._in_transaction = 0
        self._known: set[str] = set()
        self._failure: str | None = None

    def send(self, record: _Record) -> None:
        """CommandError where it, or one before it, can't be sent."""
        if record.topic not in self._known:
            self._meet(record.topic)
        if self.is_transactional and not self._in_transaction:
            self._producer.begin_transaction()
        arguments: dict[str, Any] = {}
        if record.key is not None:
            arguments["key"] = record.key
        if record.partition != ANY_PARTITION:
            arguments["partition"] = record.partition
        if record.headers:
            arguments["headers"] = record.headers
        if record.timestamp_ms:
            arguments["timestamp"] = record.timestamp_ms
        self._queue(record.topic, record.value, **arguments)
        self.sent += 1
        self._in_transaction += 1
        if self._every and self._in_transaction >= self._every:
            self._commit()
        elif self.sent % POLL_EVERY == 0:
            self._producer.poll(0)
            self._look()

    def send_values(self, topic: str, values: Sequence[bytes]) -> None:
        """As `send` for records that are values alone, outside of transactions: what a long input mostly is."""
        if topic not in self._known:
            self._meet(topic)
        produce = self._producer.produce
        for value in values:
            try:
                produce(topic, value)
            except (BufferError, self._library.KafkaException):
                self._queue(topic, value)
        self.sent += len(values)
        self._producer.poll(0)
        self._look()

    def _queue(self, topic: str, value: bytes | None, **arguments: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, **arguments)
                return
            except BufferError:
                self._producer.poll(0.1)
                self._look()
            except self._library.KafkaException as error:
                raise self._aborted(f"record {self.sent + 1}: {reason(error)}") from None

    def end(self) -> None:
        """All of it is there, or CommandError."""
        if self.is_transactional:
            self._commit()
            return
        try:
            left = self._producer.flush(FLUSH_S)
            while left and self._failure is None:
                left = self._producer.flush(FLUSH_S)
        except KeyboardInterrupt:
            self._producer.purge()
            raise
        self._look()

    def abandon(self) -> None:
        """What isn't committed is aborted."""
        if self.is_transactional and self._in_transaction:
            with contextlib.suppress(self._library.KafkaException):
                self._producer.abort_transaction(FLUSH_S)
            self._in_transaction = 0

    def _meet(self, topic: str) -> None:
        if not self._known and self.is_transactional:
            self._client.partitions(self._producer, topic, creates=True)
            try:
                self._producer.init_transactions(FLUSH_S)
            except self._library.KafkaException as error:
                raise CommandError(f"no transaction can be begun: {reason(error)}") from None
        else:
            self._client.partitions(self._producer, topic, creates=True)
        self._known.add(topic)

    def _commit(self) -> None:
        if not self._in_transaction:
            return
        try:
            self._producer.commit_transaction(FLUSH_S)
        except self._library.KafkaException as error:
            raise self._aborted(
                f"the transaction can't be committed: {self._failure or reason(error)}"
            ) from None
        self._in_transaction = 0
        self._look()

    def _look(self) -> None:
        self._client.check()
        if self._failure is not None:
            raise self._aborted(self._failure)

    def _aborted(self, why: str) -> CommandError:
        self.abandon()
        return CommandError(why + (" (its transaction is aborted)" if self.is_transactional else ""))

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None and self._failure is None:
            self._failure = (
                f"a record of {message.topic()}-{message.partition()} isn't there: {reason(error)}"
            )


def _chunks(options: argparse.Namespace, shown: Progress) -> Iterator[list[bytes]]:
    """Lines without their ends, as many as come together; or each file as the only one of its list."""
    if not options.files and sys.stdin.isatty():
        say("a line is a record; Ctrl-D ends")
    for path in options.files or ["-"]:
        with _opened(path) as file:
            shown.begin("the standard input" if path == "-" else path)
            begun: list[bytes] = []  # of a line whose end hasn't come
            while data := file.read() if options.whole else file.read1(CHUNK_BYTES):
                shown.read += len(data)
                if options.whole:
                    yield [data]
                    continue
                head, end, tail = data.rpartition(b"\n")
                if end:
                    yield b"".join([*begun, head]).split(b"\n")
                    begun = []
                begun.append(tail)
            last = b"".join(begun)
            if last:
                yield [last]


def _opened(path: str) -> contextlib.AbstractContextManager[io.BufferedReader]:
    if path == "-":
        return contextlib.nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    try:
        return open(path, "rb")
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from None


def _from_text(options: argparse.Namespace, headers: list[tuple[str, bytes | None]]) -> RecordOf:
    """What is the same for all lines is looked at once."""
    topic = options.topic
    read_key, read_value = FORMATS[options.key_format].read, FORMATS[options.value_format].read
    fixed = None if options.key is None else read_key(options.key.encode())
    separator = options.key_separator.encode() if options.key_separator else None
    null = None if options.null is None else options.null.encode()
    partition = ANY_PARTITION if options.partition is None else options.partition

    def plain(line: bytes) -> _Record:
        return _Record(topic, line, fixed, partition, headers, 0)

    def told_apart(line: bytes) -> _Record:
        key = fixed
        if separator is not None:
            text, found, line = line.partition(separator)
            if not found:
                raise ValueError(f"there is no {options.key_separator!r} between a key and a value")
            key = None if text == null else read_key(text)
        return _Record(topic, None if line == null else read_value(line), key, partition, headers, 0)

    is_plain = options.value_format == "text" and null is None and separator is None
    return plain if is_plain else told_apart


def _from_json(options: argparse.Namespace, headers: list[tuple[str, bytes | None]]) -> RecordOf:
    """What the command line says is stronger than what a line says."""
    fixed = None if options.key is None else options.key.encode()

    def record_of(line: bytes) -> _Record:
        said = json.loads(line)
        if not isinstance(said, dict):
            raise ValueError('each line is an object, such as {"key": "a", "value": "b"}')
        topic = options.topic or said.get("topic")
        if not isinstance(topic, str) or not topic:
            raise ValueError("which topic? barnabas produce TOPIC, or a `topic` in the line")
        partition = options.partition
        if partition is None:
            partition = ANY_PARTITION if options.any_partition else said.get("partition", ANY_PARTITION)
        timestamp = said.get("timestamp") or 0
        if not isinstance(partition, int) or not isinstance(timestamp, int):
            raise ValueError("partition and timestamp (milliseconds) are whole numbers")
        key = fixed if fixed is not None else from_json(said.get("key"), "key")
        of_line = _headers(said.get("headers") or [])
        value = from_json(said.get("value"), "value")
        return _Record(topic, value, key, partition, [*of_line, *headers], timestamp)

    return record_of


def _headers(said: object) -> list[tuple[str, bytes | None]]:
    """Pairs, since a name may be there twice; or an object, which is easier to type."""
    pairs = [*said.items()] if isinstance(said, dict) else said
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise ValueError('headers are pairs, [["name", "value"]], or an object')
    return [(name, from_json(value, f"header {name}")) for name, value in pairs]
