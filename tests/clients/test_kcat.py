from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.clients.confluent import CODECS, create_topic, stored_codecs


@pytest.fixture
def kcat(needs_kcat: str, bootstrap: str) -> Any:
    """Runs kcat against the broker: `kcat("-C", "-t", topic, stdin="")` gives what it printed."""

    def run(*arguments: str, stdin: str = "") -> str:
        ended = subprocess.run(
            [needs_kcat, "-b", bootstrap, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    return run


def read(kcat: Any, topic: str, *arguments: str) -> list[dict[str, Any]]:
    """Every record of the topic up to its end, as kcat describes it in JSON."""
    printed = kcat("-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J", *arguments)
    return [json.loads(line) for line in printed.splitlines()]


def test_records_come_back_with_keys_and_headers(kcat: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    kcat("-P", "-t", topic, "-K:", "-H", "name=value", stdin="a:1\nb:2\n")

    first, second = read(kcat, topic)

    assert (first["key"], first["payload"], first["offset"]) == ("a", "1", 0)
    assert (second["key"], second["payload"], second["offset"]) == ("b", "2", 1)
    assert first["headers"] == ["name", "value"]


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_records_come_back(kcat: Any, bootstrap: str, topic: str, codec: str) -> None:
    create_topic(bootstrap, topic)
    lines = [f"{number} " * 30 for number in range(300)]
    kcat("-P", "-t", topic, "-z", codec, stdin="\n".join(lines) + "\n")

    assert [record["payload"] for record in read(kcat, topic)] == lines
    assert stored_codecs(bootstrap, topic) == {codec}


def test_an_idempotent_producer_is_served(kcat: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    lines = [str(number) for number in range(500)]
    many_batches = ("-X", "enable.idempotence=true", "-X", "batch.num.messages=10")
    kcat("-P", "-t", topic, *many_batches, stdin="\n".join(lines) + "\n")

    assert [record["payload"] for record in read(kcat, topic)] == lines


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_records_arrive_with_acks(kcat: Any, bootstrap: str, topic: str, acks: str) -> None:
    create_topic(bootstrap, topic)
    kcat("-P", "-t", topic, "-X", f"acks={acks}", stdin="one\ntwo\n")

    printed = kcat("-C", "-t", topic, "-o", "beginning", "-c", "2", "-q")

    assert printed == "one\ntwo\n"


def test_null_values_come_back(kcat: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    kcat("-P", "-t", topic, "-K:", "-Z", stdin="a:\nb:2\n")

    assert [record["payload"] for record in read(kcat, topic)] == [None, "2"]


def test_the_first_record_creates_its_topic(kcat: Any, topic: str) -> None:
    kcat("-P", "-t", topic, stdin="v\n")

    assert [record["payload"] for record in read(kcat, topic)] == ["v"]


def test_the_cluster_and_its_topics_are_listed(kcat: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic, partitions=3)

    listed = json.loads(kcat("-L", "-J"))

    assert [broker["name"] for broker in listed["brokers"]] == [bootstrap]
    assert listed["controllerid"] == listed["brokers"][0]["id"]
    (described,) = [one for one in listed["topics"] if one["topic"] == topic]
    assert sorted(partition["partition"] for partition in described["partitions"]) == [0, 1, 2]


def test_an_offset_is_found_by_timestamp(kcat: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    kcat("-P", "-t", topic, stdin="one\ntwo\nthree\n")
    (first, *_, last) = read(kcat, topic)

    assert kcat("-Q", "-t", f"{topic}:0:{first['ts']}") == f"{topic} [0] offset 0\n"
    # Debian's kcat prints -1, which is librdkafka's OFFSET_END, where there is no such record.
    assert kcat("-Q", "-t", f"{topic}:0:{last['ts'] + 1}") == f"{topic} [0] offset -1\n"


def test_the_last_records_are_read_by_an_offset_from_the_end(kcat: Any, bootstrap: str, topic: str) -> None:
    create_topic(bootstrap, topic)
    kcat("-P", "-t", topic, stdin="one\ntwo\nthree\n")

    assert kcat("-C", "-t", topic, "-o", "-2", "-e", "-q") == "two\nthree\n"
