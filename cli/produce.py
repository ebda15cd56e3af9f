"""Write records, one per line, from the terminal, a pipe or files.

barnabas produce orders                          type lines; Ctrl-D ends
barnabas produce orders lines.txt -K :           lines of a file, `key:value`
barnabas produce orders --whole picture.png      a file is one record
barnabas produce --json < records.jsonl          lines that `barnabas consume --json` wrote
barnabas produce orders --transaction 100        every 100 records are a transaction
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

from cli.errors import CommandError, CommandUsageError
from cli.formats import FORMATS, from_json
from cli.options import add_connection, is_utf8, name_in_kafka
from cli.output import say
from cli.progress import Progress, progress
from cli.sending import ANY_PARTITION, Record, Sending
from cli.wording import number_of

CHUNK_BYTES: Final = 1024 * 1024
MAX_LINE_BYTES: Final = 100 * 1024 * 1024


RecordOf = Callable[[bytes], Record]
"""Turns a line without its end, or a whole file, into a record. Raises ValueError for unreadable input."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `cli.commands.Command`."""
    parser.add_argument(
        "topic",
        nargs="?",
        type=name_in_kafka,
        metavar="TOPIC",
        help="with --json, it replaces the topics in the lines",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="input files (default: the standard input)")
    parser.add_argument("--json", action="store_true", help="each line is an object: key, value, headers, …")
    parser.add_argument("--whole", action="store_true", help="each file is one record")
    parser.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    parser.add_argument(
        "-K", "--key-separator", metavar="TEXT", help="the text between key and value in a line"
    )
    parser.add_argument(
        "-H",
        "--header",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a header of every record; may be repeated",
    )
    parser.add_argument(
        "-p",
        "--partition",
        type=int,
        metavar="N",
        help="the partition of every record (default: by the key, as Java's clients)",
    )
    parser.add_argument(
        "--any-partition", action="store_true", help="with --json, ignore the partitions in the lines"
    )
    parser.add_argument("--null", metavar="TEXT", help="a value (or key) of this text is null")
    parser.add_argument("--key-format", choices=FORMATS, default="text", help="the format of keys")
    parser.add_argument("--value-format", choices=FORMATS, default="text", help="the format of values")
    parser.add_argument(
        "--transaction",
        nargs="?",
        type=int,
        const=0,
        metavar="N",
        help="write everything in one transaction, or every N records in one",
    )
    parser.add_argument(
        "--transactional-id", type=name_in_kafka, metavar="ID", help="the producer's id (default: a new one)"
    )
    add_connection(parser)


def run(options: argparse.Namespace) -> int:
    """See `cli.commands.Command`. Aborts an incomplete transaction, whatever ends this."""
    _check(options)
    sending = Sending(options)
    try:
        with progress("sent", options.files) as shown:
            _send_all(options, sending, shown)
            sending.end()
    except BaseException:
        sending.abandon()
        raise
    say(f"{number_of(sending.sent, 'record')} sent")
    return 0


def _send_all(options: argparse.Namespace, sending: Sending, shown: Progress) -> None:
    headers = _headers_given(options.header)
    is_bare = not (options.json or headers or sending.is_transactional) and all(
        getattr(options, name) is None for name in ("key", "key_separator", "partition", "null")
    )
    try:
        record_of = (_from_json if options.json else _from_text)(options, headers)
    except ValueError as error:
        raise CommandUsageError(f"-k {options.key}: {error}") from None
    for lines in _chunks(options, shown):
        if is_bare and options.value_format == "text":
            sending.send_values(options.topic, lines)
            shown.count += len(lines)
            continue
        for line in lines:
            shown.line += not options.whole
            if options.json and not line.strip():
                continue
            try:
                sending.send(record_of(line))
            except UnicodeDecodeError as error:
                raise CommandError(f"{shown.place()}: it isn't UTF-8: {error.reason}") from None
            except ValueError as error:
                raise CommandError(f"{shown.place()}: {error}") from None
            except RecursionError:
                raise CommandError(f"{shown.place()}: too deeply nested brackets") from None
            shown.count += 1


def _headers_given(given: Sequence[str]) -> list[tuple[str, bytes | None]]:
    """Return the headers. A name may be given twice, as in a record."""
    headers: list[tuple[str, bytes | None]] = []
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CommandUsageError(f"-H {text}: NAME=VALUE is the form")
        if not is_utf8(name):
            raise CommandUsageError(f"-H {text}: the name isn't UTF-8")
        headers.append((name, os.fsencode(value)))
    return headers


def _check(options: argparse.Namespace) -> None:
    if options.topic is None and not options.json:
        raise CommandUsageError(
            "which topic? barnabas produce TOPIC (only lines of --json can name their own)"
        )
    if options.transaction is not None and options.transaction < 0:
        raise CommandUsageError(f"--transaction {options.transaction}: it must be at least 1")
    if options.transactional_id is not None and options.transaction is None:
        raise CommandUsageError("--transactional-id is for --transaction")
    if options.whole and not options.files:
        raise CommandUsageError("--whole: name one FILE or several")
    if options.json and (
        options.key_separator
        or options.null is not None
        or (options.key_format, options.value_format) != ("text", "text")
    ):
        raise CommandUsageError(
            "-K, --null and the formats are for lines of text: with --json the objects say everything"
        )
    if options.key_separator == "":
        raise CommandUsageError("-K: give the text between key and value")
    if options.key is not None and options.key_separator:
        raise CommandUsageError(
            "-k is the key of every record, with -K each line has its own: give one of them"
        )
    if options.key_format != "text" and options.key is None and not options.key_separator:
        raise CommandUsageError("--key-format needs -k or -K")
    if options.any_partition and options.partition is not None:
        raise CommandUsageError("-p chooses a partition, --any-partition allows any: give one of them")
    if options.any_partition and not options.json:
        raise CommandUsageError(
            "--any-partition is for --json: without it lines have no partition of their own"
        )
    if options.whole and (options.json or options.key_separator):
        raise CommandUsageError("--whole takes a file as a record, unchanged: leave out --json and -K")


def _chunks(options: argparse.Namespace, shown: Progress) -> Iterator[list[bytes]]:
    """Yield lines without their ends, as many as come together, or each file as a list of one."""
    if not options.files and sys.stdin.isatty():
        say("each line is a record; Ctrl-D ends")
    for path in options.files or ["-"]:
        with _opened(path) as file:
            shown.begin("the standard input" if path == "-" else path)
            begun: list[bytes] = []  # parts of a line whose end hasn't come
            if options.whole:
                data = file.read(MAX_LINE_BYTES + 1)
                if len(data) > MAX_LINE_BYTES:
                    raise CommandError(f"{path}: more than {MAX_LINE_BYTES:,} bytes can't be a record")
                shown.read += len(data)
                yield [data]
                continue
            while data := file.read1(CHUNK_BYTES):
                shown.read += len(data)
                head, end, tail = data.rpartition(b"\n")
                if end:
                    yield b"".join([*begun, head]).split(b"\n")
                    begun = []
                begun.append(tail)
                if sum(map(len, begun)) > MAX_LINE_BYTES:
                    raise CommandError(f"{shown.place()}: a line of more than {MAX_LINE_BYTES:,} bytes")
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
    """Return the function for lines of text. It prepares once what is the same for all lines."""
    topic = options.topic
    read_key, read_value = FORMATS[options.key_format].read, FORMATS[options.value_format].read
    fixed = None if options.key is None else read_key(os.fsencode(options.key))
    separator = os.fsencode(options.key_separator) if options.key_separator else None
    null = None if options.null is None else os.fsencode(options.null)
    partition = ANY_PARTITION if options.partition is None else options.partition

    def plain(line: bytes) -> Record:
        return Record(topic, line, fixed, partition, headers, 0)

    def told_apart(line: bytes) -> Record:
        key = fixed
        if separator is not None:
            text, found, line = line.partition(separator)
            if not found:
                raise ValueError(f"there is no {options.key_separator!r} between a key and a value")
            key = None if text == null else read_key(text)
        return Record(topic, None if line == null else read_value(line), key, partition, headers, 0)

    is_plain = options.value_format == "text" and null is None and separator is None
    return plain if is_plain else told_apart


def _from_json(options: argparse.Namespace, headers: list[tuple[str, bytes | None]]) -> RecordOf:
    """Return the function for JSON lines. Command-line options win over a line."""
    fixed = None if options.key is None else FORMATS[options.key_format].read(os.fsencode(options.key))

    def record_of(line: bytes) -> Record:
        said = json.loads(line)
        if not isinstance(said, dict):
            raise ValueError('each line must be an object, such as {"key": "a", "value": "b"}')
        topic = options.topic or said.get("topic")
        if not isinstance(topic, str) or not topic:
            raise ValueError("which topic? barnabas produce TOPIC, or a `topic` in the line")
        partition = options.partition
        if partition is None:
            partition = ANY_PARTITION if options.any_partition else said.get("partition", ANY_PARTITION)
        timestamp = said.get("timestamp") or 0
        if any(isinstance(each, bool) or not isinstance(each, int) for each in (partition, timestamp)):
            raise ValueError("partition and timestamp (milliseconds) must be whole numbers")
        key = fixed if fixed is not None else from_json(said.get("key"), "key")
        of_line = _headers(said.get("headers") or [])
        value = from_json(said.get("value"), "value")
        return Record(topic, value, key, partition, [*of_line, *headers], timestamp)

    return record_of


def _headers(said: object) -> list[tuple[str, bytes | None]]:
    """Return the headers from pairs, because a name may occur twice, or from an object, which is easier to type."""
    pairs = [*said.items()] if isinstance(said, dict) else said
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise ValueError('headers are pairs, [["name", "value"]], or an object')
    for name, _ in pairs:
        if not is_utf8(name):
            raise ValueError(f"the header's name {name!r} has half a character (a lone surrogate)")
    return [(name, from_json(value, f"header {name}")) for name, value in pairs]
