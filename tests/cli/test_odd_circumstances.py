"""Commands with closed or full streams, with wrong names or records, or with nothing to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from socket import create_server
from types import SimpleNamespace
from typing import Any, cast

import pytest

import cli.client.connection
from cli.client.answers import the_one
from cli.client.connection import Connection
from cli.client.fetching import fetch
from cli.errors import CommandError
from cli.explaining import Tail
from cli.explanation_words import _tail
from cli.places import place
from protocol.messages.fetch import FetchResponse
from protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from tests.cli.conftest import ON_OURS_ALONE, ROOT, Kafka, Run, run_cli
from tests.support.ports import free_ports

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/dev/full is Linux's")


def by_shell(kafka: Kafka | None, line: str) -> tuple[int, str, str]:
    """Run `barnabas` in a shell command that opens and closes its streams."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "BARNABAS_BOOTSTRAP": kafka.bootstrap if kafka else ""}
    told = line.replace("barnabas", f"{sys.executable} -m barnabas", 1)
    done = subprocess.run(["sh", "-c", told], capture_output=True, timeout=60, env=environ, check=False)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@ON_OURS_ALONE
@ON_LINUX
@pytest.mark.parametrize(
    "command", ["topics", "consume TOPIC -e", "--help", "consume --help", "completion bash"]
)
@pytest.mark.parametrize("stream", [">&-", ">/dev/full"])
def test_an_output_that_takes_nothing_is_reported_in_one_line(
    kafka: Kafka, cli: Run, topic: str, command: str, stream: str
) -> None:
    cli("produce", topic, stdin="a\n")
    status, _, err = by_shell(kafka, f"barnabas {command.replace('TOPIC', topic)} {stream}")
    assert (status, err.count("\n")) == (1, 1)
    assert err.startswith("barnabas: [Errno ")


@ON_OURS_ALONE
def test_without_a_standard_input_nothing_is_sent_or_asked(kafka: Kafka, cli: Run, topic: str) -> None:
    cli("topics", "create", topic)
    assert by_shell(kafka, f"barnabas produce {topic} <&-") == (
        1,
        "",
        "barnabas: [Errno 9] Bad file descriptor\n",
    )
    assert by_shell(kafka, f"barnabas topics delete {topic} <&-")[0] == 0


@ON_OURS_ALONE
@ON_LINUX
@pytest.mark.parametrize("stream", ["2>&-", "2>/dev/full"])
def test_sent_records_stay_sent_though_the_output_is_closed(
    kafka: Kafka, cli: Run, topic: str, stream: str
) -> None:
    assert by_shell(kafka, f"barnabas produce {topic} /etc/hosts {stream}") == (0, "", "")
    assert cli("consume", topic, "-e").out
    status, out, _ = by_shell(kafka, f"barnabas topics no-{topic} {stream}")
    assert (status, out) == (1, "")


@pytest.mark.parametrize(
    "command",
    [
        ("topics", "NAME"),
        ("topics", "create", "NAME"),
        ("topics", "configs", "NAME"),
        ("groups", "NAME"),
        ("groups", "delete", "NAME"),
        ("groups", "reset", "NAME", "--all-topics", "--to", "earliest"),
        ("transactions", "show", "NAME"),
        ("transactions", "explain", "NAME"),
        ("transactions", "abort", "--id", "NAME"),
        ("produce", "NAME"),
        ("produce", "t", "--transaction", "--transactional-id", "NAME"),
        ("consume", "NAME"),
        ("consume", "t", "--group", "NAME"),
    ],
)
@pytest.mark.parametrize(("name", "why"), [("", "is empty"), (os.fsdecode(b"a\xff"), "isn't UTF-8")])
def test_an_impossible_name_is_refused_before_anybody_is_asked(
    command: tuple[str, ...], name: str, why: str
) -> None:
    ran = run_cli(*(name if each == "NAME" else each for each in command), bootstrap="127.0.0.1:1")
    assert (ran.status, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert why in ran.err


def test_a_setting_that_is_not_utf_8_is_refused() -> None:
    ran = run_cli("consume", "t", "-X", "client.id=" + os.fsdecode(b"\xff"), bootstrap="127.0.0.1:1")
    assert (ran.status, ran.err) == (2, "barnabas: the setting client.id isn't UTF-8\n")


@ON_OURS_ALONE
def test_a_name_that_a_request_has_no_room_for_is_the_users_mistake(kafka: Kafka, cli: Run) -> None:
    ran = cli("topics", "a" * 40_000)
    assert ran.status == 2
    assert "MetadataRequest can't say that" in ran.err


@ON_OURS_ALONE
@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"headers": [["\\ud800", "x"]]}', "lone surrogate"),
        ('{"value": ' + "[" * 100_000 + "]" * 100_000 + "}", "too deeply nested"),
        ('{"value": {"base64": "!"}}', "base64"),
        ('{"timestamp": true}', "whole numbers"),
    ],
    ids=["half a character", "deep", "no base64", "no number"],
)
def test_a_line_that_is_no_record_is_reported_with_its_place(
    cli: Run, topic: str, line: str, why: str
) -> None:
    ran = cli("produce", topic, "--json", stdin=line + "\n")
    assert (ran.status, ran.err.count("\n")) == (1, 1)
    assert ran.err.startswith("barnabas: the standard input:1: ")
    assert why in ran.err


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (("-k", "a", "-K", ":"), "give one of them"),
        (("-K", ""), "between key and value"),
        (("--key-format", "int32"), "--key-format needs -k or -K"),
        (("--json", "-p", "1", "--any-partition"), "give one of them"),
        (("-X", "transactional.id=a"), "--transactional-id"),
    ],
)
def test_options_of_produce_that_contradict_each_other_are_refused(
    options: tuple[str, ...], why: str
) -> None:
    ran = run_cli("produce", "t", *options, stdin="a\n", bootstrap="127.0.0.1:1")
    assert ran.status == 2
    assert why in ran.err


def test_consume_keeps_the_settings_that_it_ends_by() -> None:
    ran = run_cli("consume", "t", "-e", "-X", "enable.partition.eof=false", bootstrap="127.0.0.1:1")
    assert (ran.status, "enable.partition.eof" in ran.err) == (2, True)


@ON_OURS_ALONE
def test_a_missing_partition_is_reported_with_the_command_that_lists_them(cli: Run, topic: str) -> None:
    cli("topics", "create", topic)
    assert f"barnabas topics {topic} lists" in cli("produce", topic, "-p", "9", stdin="a\n").err
    assert "--any-partition" in cli("produce", topic, "--json", stdin='{"partition": 9}\n').err


@ON_OURS_ALONE
@ON_LINUX
def test_a_file_without_an_end_is_no_record(cli: Run, topic: str) -> None:
    ran = cli("produce", topic, "--whole", "/dev/zero")
    assert ran.status == 1
    assert "be a record" in ran.err


@ON_OURS_ALONE
def test_consume_from_past_the_end_reads_nothing_and_ends(kafka: Kafka, cli: Run, topic: str) -> None:
    cli("topics", "create", topic)
    cli("produce", topic, stdin="a\nb\nc\nd\n")
    for start, end in (("3", "2"), ("2", "2"), ("latest", "4")):
        assert cli("consume", topic, "--from", start, "--to", end, timeout_s=30).out == ""
    assert cli("consume", topic, "--from", "2", "--to", "3", "--json", timeout_s=30).json()["value"] == "c"


@pytest.mark.parametrize("text", ["99999999999999999999999d", "30000d", "1969-12-31T00:00:00+00:00"])
def test_a_time_before_all_times_is_the_first_one(text: str) -> None:
    assert place(text, "--from", 1_700_000_000_000).time_ms == 0


def test_a_listener_that_stays_silent_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli.client.connection, "CONNECT_TIMEOUT_S", 0.1)
    (port,) = free_ports(1)
    with create_server(("127.0.0.1", port)):
        began_s = time.monotonic()
        with pytest.raises(CommandError, match="doesn't answer"):
            Connection("127.0.0.1", port, {})
        assert time.monotonic() - began_s < 10


@pytest.mark.parametrize("found", [[], [1, 2]])
def test_an_answer_with_no_or_several_entries_for_one_is_reported(found: list[int]) -> None:
    with pytest.raises(
        CommandError, match=f"topic t: the broker's answer has {len(found)} entries instead of one"
    ):
        the_one(found, "topic t")


def test_a_broker_that_omits_the_partition_being_read_is_reported() -> None:
    there = MetadataResponseTopic(
        name="t", partitions=[MetadataResponsePartition(partition_index=0, leader_id=1)]
    )
    cluster = SimpleNamespace(
        topics=lambda _: [there],
        ask=lambda *_, **__: FetchResponse(),
        until_passed=lambda ask, _error_of: ask(),
    )
    with pytest.raises(CommandError, match="topic t: the broker's answer has 0 entries"):
        fetch(cast(Any, cluster), ("t", 0), 0, 1)


def test_an_unknown_verb_is_answered_with_the_nearest() -> None:
    ran = run_cli("transactions", "explane", bootstrap="127.0.0.1:1")
    assert (ran.status, ran.out) == (2, "")
    assert "no verb explane, but `barnabas transactions explain`" in ran.err


@ON_OURS_ALONE
@pytest.mark.parametrize("command", ["topics", "groups"])
def test_list_is_the_default_verb(cli: Run, topic: str, command: str) -> None:
    cli("topics", "create", topic)
    assert cli(command, "list", "--json").json() == cli(command, "--json").json()
    assert f"barnabas {command} show --help" in cli(command, "--help").out


@pytest.mark.parametrize(
    ("offsets", "is_all", "told"),
    [
        (1, True, "the last offset holds no"),
        (1, False, "at least 1 offset hold no"),
        (2, True, "2 offsets hold no"),
    ],
)
def test_the_end_without_records_is_reported_by_number(offsets: int, is_all: bool, told: str) -> None:
    assert told in _tail(Tail(("t", 0), offsets, is_all))
