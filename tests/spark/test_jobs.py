"""A job of those that users write, killed amid its batches, writes what its input says, once."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs pyspark, of the extra `spark`")

import barnabas
from tests.spark.jobs.driver import PREFIX
from tests.spark.jobs.inputs import CLOSING_USER, HOUR_MS, Record
from tests.spark.jobs.queries import KINDS
from tests.spark.jobs.trial import PARTITIONS, Trial, Written
from tests.spark.kills.outputs import difference
from tests.spark.kills.plan import Kill

# A taste of it: `make spark-jobs` kills five kinds of jobs, their executors and drivers among what dies, on Apache
# Kafka, too. What comes out stands beside an undisturbed run's there; here a second JVM is spared.
CHUNKS, SIZE = 5, 40
SEED = 1
KILLS = [Kill("worker", 0, 0.4), Kill("broker", 2, 0.4)]


def partition_of(key: bytes) -> int:
    from kafka.partitioner.default import murmur2

    return (murmur2(key) & 0x7FFFFFFF) % PARTITIONS


def as_they_came(records: list[Record]) -> Written:
    written: Written = Counter()
    for _, key, value, headers in records:
        named = dict(headers[::-1])  # the first of a name
        number = -1 if key is None else partition_of(key)
        if "partition" in named:
            number = int(named["partition"] or b"")
        topic = f"{PREFIX}-{(named.get('to') or b'c').decode()}"
        written[topic, number, key, value, headers] += 1
    return written


def by_user_and_hour(records: list[Record]) -> Written:
    hours: dict[str, dict[int, list[int]]] = {}
    for record in records:
        event = json.loads(record.value or b"")
        of_user = hours.setdefault(event["user"], {})
        of_user.setdefault(event["at_ms"] // HOUR_MS, []).append(event["amount"])
    del hours[CLOSING_USER]  # whose hour is never over
    written: Written = Counter()
    for user, of_user in hours.items():
        checksum, key = 0, user.encode()
        for hour, amounts in sorted(of_user.items()):
            text = f"{user} {hour} {len(amounts)} {sum(amounts)}"
            checksum = zlib.crc32(text.encode(), checksum)
            written[f"{PREFIX}-out", partition_of(key), key, f"{text} {checksum}".encode(), ()] += 1
    return written


@pytest.mark.timeout(1800)
@pytest.mark.one_run_in(2)
@pytest.mark.parametrize(
    ("kind", "expected"), [("dynamic", as_they_came), ("pandas-state", by_user_and_hour)]
)
def test_a_job_whose_worker_and_broker_are_killed_writes_each_result_once(
    needs_spark: None, tmp_path: Path, kind: str, expected: Callable[[list[Record]], Written]
) -> None:
    chunks = KINDS[kind].make(SEED, CHUNKS, SIZE)
    with barnabas.Broker() as broker:
        run, found = Trial(kind, broker, tmp_path, [chunks], SIZE, "local[2,4]").run(KILLS, SEED)
    assert run.kills == {"worker": 1, "broker": 1}
    records = [record for chunk in [*chunks, KINDS[kind].close()] for record in chunk]
    assert difference(found, expected(records)) == (0, 0)
