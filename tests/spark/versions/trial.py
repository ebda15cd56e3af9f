"""One trial: the input is fed, a Python runs the three jobs on it, and what readers see then is compared with it."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from tests.spark.outputs import create, read
from tests.spark.versions.jobs import KINDS

JOBS = Path(__file__).with_name("jobs.py")
ROWS = 400
PARTITIONS = 3
PATIENCE_S = 600.0
GOOD = "equal"
FAILURE = re.compile(r"[\w.]+(Error|Exception): ")

Records = Counter[tuple[bytes | None, bytes | None]]


@dataclass(frozen=True, slots=True)
class Trial:
    """versions: of pyspark, Python, kafka-python, as the jobs printed them. outcomes: of each kind, GOOD or what is
    wrong.
    """

    versions: tuple[str, ...]
    outcomes: dict[str, str]

    @property
    def is_good(self) -> bool:
        return set(self.outcomes.values()) == {GOOD}


def attempt(
    python: Path | str,
    bootstrap: str,
    folder: Path,
    prefix: str,
    environment: Mapping[str, str],
    *arguments: str,
) -> Trial:
    """environment: beside this process's own. arguments: of `jobs.py`, a master and settings."""
    for topic in ("in", *KINDS):
        create(bootstrap, f"{prefix}-{topic}", PARTITIONS)
    fed = _feed(bootstrap, f"{prefix}-in")
    done = subprocess.run(
        [str(python), str(JOBS), bootstrap, str(folder), prefix, *arguments],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": str(python), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    versions = next((tuple(words[1:]) for words in lines if words[:1] == ["versions"]), ())
    if done.returncode:
        (folder / "stderr.log").write_text(done.stderr)
        said = [line for line in done.stderr.splitlines() if FAILURE.match(line)]
        return Trial(versions, dict.fromkeys(KINDS, said[-1] if said else f"status {done.returncode}"))
    written = [words[1:] for words in lines if words[:1] == ["wrote"]]
    outcomes = {}
    for kind in KINDS:
        tries = [int(words[1]) for words in written if words[0] == kind]
        outcomes[kind] = _outcome(kind, tries, fed, _found(bootstrap, f"{prefix}-{kind}"))
    return Trial(versions, outcomes)


def _feed(bootstrap: str, topic: str) -> Records:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    records: Records = Counter()
    for number in range(ROWS):
        key, value = f"k{number % 17}".encode(), f"v{number}".encode()
        producer.produce(topic, value, key)
        records[key, value] += 1
    assert producer.flush(PATIENCE_S) == 0
    return records


def _found(bootstrap: str, topic: str) -> Records:
    return Counter((one.key, one.value) for one in read(bootstrap, topic))


def _outcome(kind: str, tries: list[int], fed: Records, found: Records) -> str:
    expected = (
        fed if kind == "keyed" else Counter({(None, value): count for (_, value), count in fed.items()})
    )
    doubled, lost = (found - expected).total(), (expected - found).total()
    if doubled or lost:
        return f"{doubled} doubled, {lost} lost"
    more = sum(tries) - len(tries)
    # What was killed costs one or more: the other tasks of its try may still run as the next one begins.
    if bool(more) != (kind == "killed"):
        return f"{more} tries more than batches"
    return GOOD if len(tries) > 1 else f"{len(tries)} batch"
