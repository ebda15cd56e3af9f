"""`barnabas produce` and `barnabas consume`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

import barnabas
from tests.cli.conftest import ON_OURS_ALONE, ROOT, Kafka, Run, run_cli

KEEPS_OLD_RECORDS = ("-c", "retention.ms=-1")
ODD = [
    {
        "key": b"a",
        "value": b"1",
        "headers": [("h", b"1"), ("h", b"2"), ("n", None)],
        "timestamp": 1_600_000_000_123,
    },
    {"key": None, "value": None, "headers": None, "timestamp": 1_600_000_000_124},
    {"key": b"", "value": b"", "headers": [("", b"")], "timestamp": 1_600_000_000_125},
    {"key": b"\xff\x00", "value": bytes(range(256)), "headers": [("ä", b"\xfe")], "timestamp": 1},
    {"key": "ключ".encode(), "value": b'{"base64": "no"}', "headers": [], "timestamp": 1_600_000_000_126},
    {"key": b"a\nb\t\x1b[31m", "value": b"line\nline\r\n", "headers": None, "timestamp": 1_600_000_000_127},
    {"key": b"big", "value": b"x" * 900_000, "headers": None, "timestamp": 1_600_000_000_128},
]


def read_all(kafka: Kafka, topic: str, partitions: int) -> list[tuple[Any, ...]]:
    """Read the topic with confluent-kafka itself."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "group.id": "hand",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        message = consumer.poll(30)
        assert message is not None
        if message.error() is not None:
            ended += 1
            continue
        found.append(
            (
                message.partition(),
                message.offset(),
                message.timestamp(),
                message.key(),
                message.value(),
                message.headers() or [],
            )
        )
    consumer.close()
    return sorted(found, key=lambda record: record[:2])


def test_a_topic_is_copied_exactly_by_json_lines(cli: Run, kafka: Kafka, topic: str) -> None:
    copy = f"{topic}-copy"
    for name in (topic, copy):
        assert cli("topics", "create", name, "-p", 3, *KEEPS_OLD_RECORDS).status == 0
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number, record in enumerate(ODD * 3):
        producer.produce(topic, partition=number % 3, **record)
    assert producer.flush(60) == 0
    told = cli("consume", topic, "--json", "-e")
    assert told.status == 0, told.err
    assert cli("produce", copy, "--json", stdin=told.out).status == 0
    original = read_all(kafka, topic, 3)
    assert len(original) == len(ODD) * 3
    assert read_all(kafka, copy, 3) == original


def test_lines_keys_headers_and_nulls_are_written(cli: Run, kafka: Kafka, topic: str) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    sent = cli(
        "produce", topic, "-K", ":", "-H", "a=b", "--null", "NULL", stdin="k1:v1\nk2:NULL\nNULL:v:3\nk4:"
    )
    assert (sent.status, sent.out, sent.err) == (0, "", "4 records sent\n")
    found = [(key, value, headers) for _, _, _, key, value, headers in read_all(kafka, topic, 1)]
    headers = [("a", b"b")]
    assert found == [
        (b"k1", b"v1", headers),
        (b"k2", None, headers),
        (None, b"v:3", headers),
        (b"k4", b"", headers),
    ]
    shown = cli("consume", topic, "-e", "--show", "partition,offset,headers,key")
    assert shown.lines == [
        "0\t0\ta=b\tk1\tv1",
        "0\t1\ta=b\tk2\tnull",
        "0\t2\ta=b\tnull\tv:3",
        "0\t3\ta=b\tk4\t",
    ]


def test_places_say_where_reading_begins_and_ends(cli: Run, topic: str) -> None:
    assert cli("topics", "create", topic, "-p", 1, *KEEPS_OLD_RECORDS).status == 0
    lines = [
        json.dumps({"value": str(number), "timestamp": 1_700_000_000_000 + number * 1000})
        for number in range(10)
    ]
    assert cli("produce", topic, "--json", stdin="\n".join(lines)).status == 0
    for arguments, values in [
        (("-n", 2), "01"),
        (("--from", 3, "--to", 5), "34"),
        (("--from", "-2", "-e"), "89"),
        (("--from", "2023-11-14T22:13:25+00:00", "--to", "2023-11-14T22:13:27+00:00"), "56"),
        (("--from", "latest", "-e"), ""),
        (("--to", "latest", "--from", 8), "89"),
        (("--from", 99, "-e"), ""),
        (("-e", "-p", 0, "-n", 3), "012"),
        (("--from", 9, "--to", "2030-01-01"), "9"),
    ]:
        ran = cli("consume", topic, *arguments)
        assert (ran.status, "".join(ran.lines), ran.err) == (0, values, ""), arguments


def test_uncommitted_records_are_not_read(cli: Run, kafka: Kafka, topic: str) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    committed = cli("produce", topic, "--transaction", 2, stdin="a\nb\nc\n")
    assert committed.status == 0, committed.err
    broken = cli("produce", topic, "--transaction", "--json", stdin='{"value": "d"}\nno json\n')
    assert broken.status == 1
    assert "the standard input:2" in broken.err
    aborting = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic})
    aborting.init_transactions(60)
    aborting.begin_transaction()
    aborting.produce(topic, b"e")
    assert aborting.flush(60) == 0
    aborting.abort_transaction(60)
    assert cli("consume", topic, "-e").lines == ["a", "b", "c"]
    assert cli("consume", topic, "-e", "--uncommitted").lines == ["a", "b", "c", "e"]
    # a marker follows the first two, and another one the third
    assert [record[1] for record in read_all(kafka, topic, 1)] == [0, 1, 3]


def test_a_transaction_begins_when_its_coordinator_has_loaded() -> None:
    with barnabas.Broker() as broker:
        loading = broker.fault("InitProducerId", error="COORDINATOR_LOAD_IN_PROGRESS", times=3)
        sent = run_cli("produce", "orders", "--transaction", stdin="a\n", bootstrap=broker.bootstrap)
        assert (sent.status, loading.fired) == (0, 3), sent.err
        assert run_cli("consume", "orders", "-e", bootstrap=broker.bootstrap).lines == ["a"]


def test_a_group_goes_on_where_it_was(cli: Run, topic: str) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    assert cli("produce", topic, stdin="a\nb\nc\n").status == 0
    assert cli("consume", topic, "--group", topic, "-n", 2).lines == ["a", "b"]
    assert cli("consume", topic, "--group", topic, "-e").lines == ["c"]
    assert cli("consume", topic, "--group", topic, "-e").lines == []


def test_ctrl_c_commits_what_was_written(kafka: Kafka, cli: Run, topic: str) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    assert cli("produce", topic, stdin="a\nb\n").status == 0
    with consuming(kafka, topic, "--group", topic) as reading:
        assert reading.stdout is not None
        assert [reading.stdout.readline() for _ in "ab"] == [b"a\n", b"b\n"]
        reading.send_signal(signal.SIGINT)
        assert reading.wait(60) == 0
    assert cli("produce", topic, stdin="c\n").status == 0
    assert cli("consume", topic, "--group", topic, "-n", 1).lines == ["c"]


@ON_OURS_ALONE
def test_a_reader_that_goes_away_ends_it_quietly(kafka: Kafka, cli: Run, topic: str) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    assert cli("produce", topic, stdin="a\n").status == 0
    with consuming(kafka, topic) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        assert reading.stdout.readline() == b"a\n"
        reading.stdout.close()
        assert reading.wait(60) == 0
        assert reading.stderr.read() == b""


@ON_OURS_ALONE
def test_a_terminal_gets_no_escape_codes(kafka: Kafka, cli: Run, topic: str, tmp_path: Path) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    assert cli("produce", topic, "-k", "\x1b]0;owned\x07", stdin="\x1b[2Jred\n").status == 0
    leader, follower = os.openpty()
    with consuming(kafka, topic, "-n", "1", "--show", "key", stdout=follower) as reading:
        os.close(follower)
        assert reading.wait(60) == 0
    shown = os.read(leader, 10_000)
    os.close(leader)
    assert shown == b"\\x1b]0;owned\\x07\t\\x1b[2Jred\r\n"


@ON_OURS_ALONE
def test_mistakes_are_one_line(cli: Run, topic: str, tmp_path: Path) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    for arguments, stdin, status, words in [
        (("produce",), "", 2, "which topic?"),
        (("produce", topic, "-K", ":"), "no separator", 1, "the standard input:1"),
        (("produce", topic, tmp_path / "nothing"), "", 1, "No such file"),
        (("produce", topic, "--json"), '{"value": "x", "partition": 7}', 1, "partition"),
        (("produce", topic, "--json"), '{"value": "x", "headers": 3}', 1, "headers are pairs"),
        (("produce", topic, "--value-format", "int32"), "many", 1, "the standard input:1"),
        (("produce", topic, "-X", "linger=3"), "", 2, "linger"),
        (("produce", topic, "--bootstrap", "127.0.0.1:1"), "a", 3, "127.0.0.1:1 can't be reached"),
        (("consume", topic, "--from", "yesterday"), "", 2, "--from yesterday"),
        (("consume", topic, "-p", 7), "", 1, "no partition 7"),
        (("consume", topic, "--show", "colour"), "", 2, "--show colour"),
        (("consume", topic, "--group", "g", "--from", "3"), "", 2, "barnabas groups reset"),
        (("consume", f"{topic}-none"), "", 1, "barnabas topics create"),
    ]:
        ran = cli(*arguments, stdin=stdin)
        assert (ran.status, ran.out, ran.err.count("\n")) == (status, "", 1), (arguments, ran)
        assert words in ran.err, (arguments, ran)


def consuming(
    kafka: Kafka, topic: str, *arguments: str, stdout: int = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "barnabas", "consume", topic, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "BARNABAS_BOOTSTRAP": kafka.bootstrap},
    )


@ON_OURS_ALONE
def test_words_may_follow_options(cli: Run, kafka: Kafka, topic: str, tmp_path: Path) -> None:
    (tmp_path / "picture").write_bytes(b"\0\n\xff")
    (tmp_path / "empty").touch()
    assert cli("topics", "create", topic, "-p", 1).status == 0
    sent = cli("produce", topic, "--whole", tmp_path / "picture", tmp_path / "empty")
    assert (sent.status, sent.err) == (0, "2 records sent\n")
    assert [record[4] for record in read_all(kafka, topic, 1)] == [b"\0\n\xff", b""]
    (tmp_path / "lines").write_text("k:v\n")
    assert cli("produce", topic, "-K", ":", tmp_path / "lines").status == 0
    assert cli("topics", "configs", topic, "-X", "client.id=x", "retention.ms=-1").status == 0


@ON_OURS_ALONE
def test_a_header_may_be_given_twice_and_keeps_its_blanks(cli: Run, kafka: Kafka, topic: str) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    assert cli("produce", topic, "-H", "a=1", "-H", "a= 2", stdin="x").status == 0
    assert [record[5] for record in read_all(kafka, topic, 1)] == [[("a", b"1"), ("a", b" 2")]]


@ON_OURS_ALONE
def test_lines_read_before_a_mistake_are_sent_and_counted(cli: Run, topic: str) -> None:
    assert cli("topics", "create", topic, "-p", 1).status == 0
    broken = cli("produce", topic, "--json", stdin='{"value": "a"}\n\n{"value": "b"}\nno\n')
    assert broken.status == 1
    assert broken.err.splitlines()[0] == "2 of 2 records sent"
    assert broken.err.splitlines()[1].startswith("barnabas: the standard input:4: ")
    assert cli("consume", topic, "-e").lines == ["a", "b"]


@ON_OURS_ALONE
def test_one_odd_record_holds_back_no_others(cli: Run, topic: str) -> None:
    any_time = ("-c", f"message.timestamp.after.max.ms={2**63 - 1}")
    assert cli("topics", "create", topic, "-p", 1, *any_time).status == 0
    assert cli("produce", topic, "--value-format", "int32", stdin="1\n2\n").status == 0
    assert (
        cli(
            "produce", topic, "--json", stdin='{"value": "no number", "timestamp": 1700000000000000000}'
        ).status
        == 0
    )
    shown = cli("consume", topic, "-e", "--value-format", "int32")
    assert (shown.status, shown.lines) == (1, ["1", "2"])
    assert f"{topic}-0 at offset 2" in shown.err
    assert cli("consume", topic, "-e", "--from", 2, "--show", "time").lines == [
        "1700000000000000000 ms\tno number"
    ]


@ON_OURS_ALONE
def test_options_that_would_do_nothing_are_refused(cli: Run, topic: str) -> None:
    for arguments in [
        ("produce", topic, "--json", "-K", ":"),
        ("produce", topic, "--json", "--key-format", "int32"),
        ("produce", topic, "--any-partition"),
        ("produce", topic, "-k", "abc", "--key-format", "int32"),
        ("consume", topic, "--json", "--value-format", "hex"),
        ("consume", topic, "--key-format", "hex"),
        ("topics", "--internal", "create", topic),
    ]:
        refused = cli(*arguments)
        assert (refused.status, refused.out, refused.err.count("\n")) == (2, "", 1), (arguments, refused)
