"""Read records as they arrive, those of committed transactions, until Ctrl-C.

barnabas consume orders                          from the first record on, then new ones as they arrive
barnabas consume orders -e                       until there are no more
barnabas consume orders --from -10 -e            the last ten offsets of each partition
barnabas consume orders --from 15m --show key,time
barnabas consume orders --json                   lines that `barnabas produce --json` reads
barnabas consume orders --group billing          as a member of a group, from the group's offsets
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from broker.process.printable import printable
from cli.errors import INTERRUPTED, CommandError, CommandUsageError
from cli.formats import FORMATS, to_json
from cli.librdkafka import Client, confluent_kafka, reason
from cli.options import add_connection, name_in_kafka
from cli.output import raise_if_reader_is_gone, say
from cli.places import FORMS, Place, place

AT_ONCE: Final = 1000
FILL_S: Final = 0.01
WAIT_S: Final = 0.2
ASK_S: Final = 10.0
QUEUED_KIB: Final = 65_536
QUEUE_BACKOFF_MS: Final = 5
"""By default, librdkafka fetches nothing in the second after its queue was full."""
SHOWN: Final = ("topic", "partition", "offset", "time", "headers", "key")
LIVES_BY: Final = ("enable.partition.eof", "enable.auto.offset.store")
PAST_ALL: Final = 2**63 - 1

Partition = tuple[str, int]
Line = Callable[[Any], bytes]
Lines = Callable[[Sequence[Any]], bytes]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.commands.Command`."""
    parser.add_argument("topics", nargs="+", type=name_in_kafka, metavar="TOPIC")
    parser.add_argument("--from", dest="start", metavar="PLACE", help=f"{FORMS} (default: earliest)")
    parser.add_argument(
        "--to", dest="end", metavar="PLACE", help="end before this offset or time, in each partition"
    )
    parser.add_argument("-e", "--until-empty", action="store_true", help="end when everything was read")
    parser.add_argument("-n", "--count", type=int, metavar="N", help="end after N records")
    parser.add_argument(
        "-p",
        "--partition",
        type=int,
        action="append",
        metavar="N",
        help="only this partition (default: all; may be repeated)",
    )
    parser.add_argument(
        "-g",
        "--group",
        type=name_in_kafka,
        metavar="NAME",
        help="join this group, and commit the offsets of printed records",
    )
    parser.add_argument(
        "--uncommitted", action="store_true", help="also records of open and aborted transactions"
    )
    parser.add_argument(
        "--json", action="store_true", help="one object per line, with everything that a record has"
    )
    parser.add_argument(
        "--show", metavar="WHAT", help=f"columns before the value, separated by tabs: {', '.join(SHOWN)}"
    )
    parser.add_argument("--key-format", choices=FORMATS, default="text", help="the format of keys")
    parser.add_argument("--value-format", choices=FORMATS, default="text", help="the format of values")
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`. Ctrl-C is a regular end if no option gave another one."""
    shown = _checked(options)
    library = confluent_kafka()
    own: dict[str, object] = {
        "group.id": options.group or "barnabas-cli",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": options.group is not None,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "isolation.level": "read_uncommitted" if options.uncommitted else "read_committed",
        "queued.max.messages.kbytes": QUEUED_KIB,
        "fetch.queue.backoff.ms": QUEUE_BACKOFF_MS,
        "allow.auto.create.topics": False,
    }
    client = Client(options, own)
    client.refuse(dict.fromkeys(LIVES_BY, "consume sets it itself"))
    consumer = client.made(library.Consumer)
    lines = _lines(options, shown)
    try:
        reading = _Reading(client, consumer, options)
        reading.begin()
        with interrupted(reading.enough):
            reading.go_on(lines)
    finally:
        consumer.close()  # commits what was stored
    was_to_end = options.until_empty or options.count is not None or options.end is not None
    return INTERRUPTED if reading.was_interrupted and was_to_end else 0


def _checked(options: argparse.Namespace) -> list[str]:
    """Return the columns to show. Raises CommandUsageError for options that don't go together."""
    if options.count is not None and options.count < 1:
        raise CommandUsageError(f"-n {options.count}: it must be at least 1")
    if options.group and (options.start or options.end or options.partition):
        raise CommandUsageError(
            "--group starts at the group's offsets, in the partitions that it is assigned: "
            "leave out --from, --to and -p (`barnabas groups reset` moves a group)"
        )
    shown = [part.strip() for part in options.show.split(",")] if options.show else []
    for part in shown:
        if part not in SHOWN:
            raise CommandUsageError(f"--show {part}: it takes {', '.join(SHOWN)}")
    if options.json and (options.key_format, options.value_format) != ("text", "text"):
        raise CommandUsageError(
            "--key-format and --value-format are for text: --json writes the bytes as they are"
        )
    if options.key_format != "text" and "key" not in shown:
        raise CommandUsageError("--key-format needs --show key")
    if shown and options.json:
        raise CommandUsageError("--show: --json already shows everything that a record has")
    return shown


@contextlib.contextmanager
def interrupted(then: Callable[[], None]) -> Iterator[None]:
    """Handle the first Ctrl-C (or SIGTERM) by a call, so that the offsets of printed records are committed. The next
    one ends the process at once."""

    def first(*_: object) -> None:
        for number, handler in before.items():
            signal.signal(number, handler)
        then()

    before = {number: signal.signal(number, first) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Reading:
    """What to read, how far, and when to stop. Call `enough` to end early, between two writes."""

    was_interrupted = False

    def __init__(self, client: Client, consumer: Any, options: argparse.Namespace) -> None:
        self._client = client
        self._consumer = consumer
        self._library = confluent_kafka()
        self._options = options
        self._left = options.count
        self._ends: dict[Partition, int] = {}
        self._ended: set[Partition] = set()
        self._assigned: set[Partition] = set()
        self._was_assigned = False

    def enough(self) -> None:
        self.was_interrupted = True

    def begin(self) -> None:
        """Find out what to read. Raises CommandError."""
        options = self._options
        now_ms = int(time.time() * 1000)
        start = place(options.start or "earliest", "--from", now_ms)
        end = place(options.end, "--to", now_ms) if options.end else None
        if end is not None and end.word == "earliest":
            raise CommandUsageError("--to earliest: there is nothing before it")
        partitions = {topic: self._client.partitions(self._consumer, topic) for topic in options.topics}
        if options.group:
            self._consumer.subscribe(
                list(partitions), on_assign=self._took, on_revoke=self._gave, on_lost=self._gave
            )
            return
        chosen: list[Partition] = []
        for topic, there in partitions.items():
            for index in options.partition or there:
                if index not in there:
                    raise CommandError(f"topic {topic} has no partition {index}; it has {len(there)}")
                chosen.append((topic, index))
        try:
            starts = {each: self._start(each, start) for each in chosen}
            if end is not None:
                self._ends = {each: self._end(each, end) for each in chosen}
        except self._library.KafkaException as error:
            raise self._client.refused(error, ", ".join(options.topics)) from None
        self._assigned, self._was_assigned = set(chosen), True
        self._ended = {each for each, end in self._ends.items() if starts[each] >= end}
        at = [
            self._library.TopicPartition(*each, offset)
            for each, offset in starts.items()
            if each not in self._ended
        ]
        self._consumer.assign(at)

    def go_on(self, lines: Lines) -> None:
        """Write a line for each record until it is enough."""
        write, flush = sys.stdout.buffer.write, sys.stdout.buffer.flush
        while not self._is_enough():
            at_once = AT_ONCE if self._left is None else min(AT_ONCE, self._left)
            came = self._consumer.consume(at_once, FILL_S)
            if not came:
                message = self._consumer.poll(WAIT_S)
                came = [] if message is None else [message]
            self._client.check()
            records = [message for message in came if message.error() is None]
            if len(records) != len(came):
                self._notice(came)
            if self._ends:
                records = self._before_the_end(records)
            if not records:
                raise_if_reader_is_gone()
                continue
            try:
                written = lines(records)
            except ValueError:
                records, why = _shown(lines, records)
                write(lines(records))
                raise why from None
            write(written)
            flush()
            if self._left is not None:
                self._left -= len(records)
            if self._options.group:
                self._store(records)

    def _is_enough(self) -> bool:
        if self._left == 0 or self.was_interrupted:
            return True
        ends_of_itself = self._options.until_empty or self._ends
        return bool(ends_of_itself and self._was_assigned and self._ended >= self._assigned)

    def _notice(self, came: Sequence[Any]) -> None:
        """Note the ends of partitions, and raise errors."""
        of_end = self._library.KafkaError._PARTITION_EOF
        for message in came:
            error = message.error()
            if error is None:
                continue
            each = (message.topic(), message.partition())
            if error.code() != of_end:
                raise CommandError(f"{message.topic()}: {reason(error)}")
            if self._options.until_empty or message.offset() >= self._ends.get(each, PAST_ALL):
                self._ended.add(each)

    def _before_the_end(self, records: Sequence[Any]) -> list[Any]:
        kept = []
        for message in records:
            each = (message.topic(), message.partition())
            if message.offset() < self._ends[each]:
                kept.append(message)
            elif each not in self._ended:
                self._ended.add(each)
                self._consumer.pause([self._library.TopicPartition(*each)])
        return kept

    def _store(self, records: Sequence[Any]) -> None:
        """Let the offsets of printed records be committed, except in partitions that went to another member
        meanwhile."""
        next_ones = {(each.topic(), each.partition()): each.offset() + 1 for each in records}
        kept = [
            self._library.TopicPartition(*each, offset)
            for each, offset in next_ones.items()
            if each in self._assigned
        ]
        if kept:
            self._consumer.store_offsets(offsets=kept)

    def _took(self, consumer: Any, partitions: Sequence[Any]) -> None:
        self._was_assigned = True
        self._assigned |= {(each.topic, each.partition) for each in partitions}
        if self._options.until_empty and not self._assigned:
            say(
                f"group {self._options.group} has other members for all partitions; none is left for this one"
            )

    def _gave(self, consumer: Any, partitions: Sequence[Any]) -> None:
        gone = {(each.topic, each.partition) for each in partitions}
        self._assigned -= gone
        self._ended -= gone

    def _start(self, each: Partition, at: Place) -> int:
        """Return where to start reading. A place before the first record becomes the first record, one after the last
        record the end."""
        low, offset, high = self._located(each, at)
        return min(max(low, offset), high)

    def _end(self, each: Partition, at: Place) -> int:
        return self._located(each, at)[1]

    def _located(self, each: Partition, at: Place) -> tuple[int, int, int]:
        """Return the place as an offset, with the log's start and end."""
        low, high = map(int, self._consumer.get_watermark_offsets(self._library.TopicPartition(*each), ASK_S))
        if at.word is not None:
            return low, low if at.word == "earliest" else high, high
        if at.offset is not None:
            return low, at.offset, high
        if at.last is not None:
            return low, high - at.last, high
        return low, self._at_time(each, at.time_ms or 0, high), high

    def _at_time(self, each: Partition, time_ms: int, high: int) -> int:
        asked = [self._library.TopicPartition(*each, time_ms)]
        (found,) = self._consumer.offsets_for_times(asked, ASK_S)
        return int(found.offset) if found.offset >= 0 else high


def _lines(options: argparse.Namespace, shown: Sequence[str]) -> Lines:
    """Return the function that formats records. A long topic is mostly bare values."""
    is_terminal = sys.stdout.isatty()
    if not (options.json or shown or is_terminal) and options.value_format == "text":
        return lambda records: b"\n".join([*[message.value() or b"" for message in records], b""])
    line = _of_json if options.json else _of_text(shown, options, is_terminal)
    return lambda records: b"".join(map(line, records))


def _of_json(message: Any) -> bytes:
    kind, timestamp = message.timestamp()
    said = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp if kind else None,
        "headers": [[name, to_json(value)] for name, value in message.headers() or ()],
        "key": to_json(message.key()),
        "value": to_json(message.value()),
    }
    return json.dumps(said, separators=(",", ":")).encode() + b"\n"


def _of_text(shown: Sequence[str], options: argparse.Namespace, is_terminal: bool) -> Line:
    """Return a function for a line with the columns and the value. It writes only printable characters to a
    terminal."""
    value_of = FORMATS[options.value_format].show
    key_of = FORMATS[options.key_format].show

    def headers(message: Any) -> bytes:
        pairs = ((name, b"" if value is None else value) for name, value in message.headers() or ())
        return b",".join(name.encode() + b"=" + value for name, value in pairs)

    columns: dict[str, Line] = {
        "topic": lambda message: message.topic().encode(),
        "partition": lambda message: b"%d" % message.partition(),
        "offset": lambda message: b"%d" % message.offset(),
        "time": lambda message: _time(message).encode(),
        "headers": headers,
        "key": lambda message: b"null" if message.key() is None else key_of(message.key()),
    }
    chosen = [columns[name] for name in shown]

    def line(message: Any) -> bytes:
        value = message.value()
        parts = [column(message) for column in chosen]
        parts.append(b"null" if value is None and shown else value_of(value) if value is not None else b"")
        if is_terminal:
            parts = [printable(part.decode("utf-8", "backslashreplace")).encode() for part in parts]
        return b"\t".join(parts) + b"\n"

    return line


def _time(message: Any) -> str:
    kind, timestamp = message.timestamp()
    if not kind:
        return "-"
    try:
        return datetime.datetime.fromtimestamp(timestamp / 1000).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp} ms"  # such as microseconds that were taken for milliseconds


def _shown(lines: Lines, records: Sequence[Any]) -> tuple[list[Any], CommandError]:
    """Return the records before the first one that can't be shown, and the error that names that one."""
    for number, message in enumerate(records):
        try:
            lines([message])
        except ValueError as error:
            place = f"{message.topic()}-{message.partition()} at offset {message.offset()}"
            return list(records[:number]), CommandError(f"the record of {place} can't be shown: {error}")
    raise AssertionError("one of them couldn't be shown a moment ago")
