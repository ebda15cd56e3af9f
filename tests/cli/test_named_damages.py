"""Kinds of damage by name: what `barnabas doctor` says about each, and about which file."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from storage.producer_snapshot import encode
from storage.producer_state import CachedBatch, Producer
from tests.cli.looking import Looker, add, copied, flip, replace, write_at
from tests.node.damage_templates import build


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small folder of a stopped barnabas, with every kind of file."""
    folder = tmp_path_factory.mktemp("stopped") / "data"
    asyncio.run(build(folder, clean=True))
    return folder


FIRST = "t-1/00000000000000000000"
LAST = "t-1/00000000000000000030"
DAMAGES: dict[str, tuple[Any, str, str]] = {
    "a bit in a batch": (
        lambda f: flip(f / f"{FIRST}.log", 160),
        f"{FIRST}.log",
        r"513 bytes from position 140 on, offset 2, aren't whole batches",
    ),
    "an entry of an index that leads to no batch": (
        lambda f: write_at(f / f"{FIRST}.index", 12, pack(">i", 141)),
        f"{FIRST}.index",
        r".*: entry 1, at byte 8: no batch begins at position 141",
    ),
    "an entry of an index with another offset": (
        lambda f: flip(f / f"{FIRST}.index", 3),
        f"{FIRST}.index",
        r".*: entry 0, at byte 0: the batch at position \d+ ends at offset \d+, and not at \d+",
    ),
    "a time index that lost its last entry": (
        lambda f: (f / "t-0/00000000000000000018.timeindex").write_bytes(b""),
        "t-0/00000000000000000018.timeindex",
        r".*: it has no entry, and the largest of all batches is \d+",
    ),
    "zeros behind an index after a clean stop": (
        lambda f: add(f / f"{FIRST}.index", bytes(8)),
        f"{FIRST}.index",
        r".*: 8 bytes of zeros from byte 32 on aren't entries",
    ),
    "half an entry": (
        lambda f: add(f / f"{FIRST}.txnindex", b"half"),
        f"{FIRST}.txnindex",
        r".*: 38 bytes aren't whole entries of 34",
    ),
    "an aborted transaction that begins too late": (
        lambda f: write_at(f / f"{FIRST}.txnindex", 10, pack(">q", 7)),
        f"{FIRST}.txnindex",
        r".*: entry 0, at byte 0: a transaction from offset 7 on, and its first batch is at 5",
    ),
    "an aborted transaction that isn't there": (
        lambda f: (f / f"{FIRST}.txnindex").write_bytes(b""),
        f"{FIRST}.txnindex",
        r".*: 0 entries for 1 aborted transactions in the segment",
    ),
    "the index of aborted transactions is gone": (
        lambda f: (f / "t-1/00000000000000000018.txnindex").unlink(),
        "t-1/00000000000000000018.txnindex",
        r"it is missing",
    ),
    "an offset that jumps": (
        lambda f: write_at(f / f"{FIRST}.log", 575, pack(">q", 9)),
        f"{FIRST}.log",
        r"the batch at position 575 begins with offset 9 instead of 8",
    ),
    "a leader epoch that a batch contradicts": (
        lambda f: flip(f / f"{FIRST}.log", 15, 4),
        "t-1/leader-epoch-checkpoint",
        r"offset 0 has epoch 4 in its batch, and 0 in the file",
    ),
    "leader epochs out of order": (
        lambda f: (f / "t-1/leader-epoch-checkpoint").write_text("0\n2\n3 0\n1 5\n"),
        "t-1/leader-epoch-checkpoint",
        r"epoch 1 from offset 5 on comes after epoch 3 from 0 on",
    ),
    "no leader epochs": (
        lambda f: (f / "t-1/leader-epoch-checkpoint").unlink(),
        "t-1/leader-epoch-checkpoint",
        r"it is missing",
    ),
    "producers of a later offset": (
        lambda f: (f / "t-1/00000000000000000009.snapshot").write_bytes(
            encode([Producer(0, 0, batches=[CachedBatch(0, 0, 9, 9, 0)])])
        ),
        "t-1/00000000000000000009.snapshot",
        r"producer 0 is at offset 9, beyond the one in its name",
    ),
    "no producers at the end": (
        lambda f: (f / f"{LAST}.snapshot").unlink(),
        f"{LAST}.snapshot",
        r"it is missing: a clean stop saves the log's producers in it",
    ),
    "a file that is no log's": (
        lambda f: (f / f"{FIRST}.log.bak").write_bytes(b"x"),
        f"{FIRST}.log.bak",
        r"it isn't a file of Kafka's",
    ),
    "a quorum-state that is cut": (
        lambda f: write_at(f / "__cluster_metadata-0/quorum-state", 20, b"\0"),
        "__cluster_metadata-0/quorum-state",
        r"it is invalid: .*",
    ),
    "a quorum-state of an earlier epoch": (
        lambda f: replace(f / "__cluster_metadata-0/quorum-state", '"leaderEpoch":1', '"leaderEpoch":0'),
        "__cluster_metadata-0/quorum-state",
        r"it has leader epoch 0, but the log has batches of epoch 1",
    ),
    "a quorum-state without a field": (
        lambda f: replace(f / "__cluster_metadata-0/quorum-state", '"votedId"', '"votedIs"'),
        "__cluster_metadata-0/quorum-state",
        r"it is invalid: votedId missing",
    ),
    "a mark of a clean stop that says nothing": (
        lambda f: (f / ".kafka_cleanshutdown").write_text("{"),
        ".kafka_cleanshutdown",
        r"it doesn't say which run stopped cleanly",
    ),
    "a high watermark beyond the end": (
        lambda f: replace(f / "replication-offset-checkpoint", "t 1 30", "t 1 31"),
        "replication-offset-checkpoint",
        r"it has offset 31 for t-1, which ends at 30",
    ),
    "a recovery point below the end after a clean stop": (
        lambda f: replace(f / "recovery-point-offset-checkpoint", "t 1 30", "t 1 20"),
        "recovery-point-offset-checkpoint",
        r"it has offset 20 for t-1, which ends at 30; a clean stop would have written that",
    ),
    "a checkpoint that is empty": (
        lambda f: (f / "replication-offset-checkpoint").write_bytes(b""),
        "replication-offset-checkpoint",
        r"it is empty",
    ),
    "a checkpoint that says nothing": (
        lambda f: (f / "replication-offset-checkpoint").write_text("0\n0\n"),
        "replication-offset-checkpoint",
        r"it lacks \S+ and 4 more, which a clean stop would have written",
    ),
    "a checkpoint that names another partition": (
        lambda f: replace(f / "replication-offset-checkpoint", "t 1 30", "u 1 30"),
        "replication-offset-checkpoint",
        r"it has offset 30 for u-1, which has no folder here",
    ),
    "a checkpoint that is gone": (
        lambda f: (f / "recovery-point-offset-checkpoint").unlink(),
        "recovery-point-offset-checkpoint",
        r"it is missing",
    ),
    "a directory id that the cluster doesn't know": (
        lambda f: (f / "meta.properties").write_text(
            re.sub(r"(directory.id=).*", r"\1wREDlfRwTCe4wPX-9TfYMw", (f / "meta.properties").read_text())
        ),
        "meta.properties",
        r"directory.id wREDlfRwTCe4wPX-9TfYMw isn't one of node 1's: the cluster knows \S+",
    ),
    "a node that the cluster doesn't know": (
        lambda f: replace(f / "meta.properties", "node.id=1", "node.id=3"),
        "meta.properties",
        r"node.id 3 isn't registered: the cluster knows 1",
    ),
    "a line that is no property": (
        lambda f: add(f / "meta.properties", b"nonsense\n"),
        "meta.properties",
        r"'nonsense' isn't a known name",
    ),
    "a topic id that says nothing": (
        lambda f: (f / "t-1/partition.metadata").write_bytes(b""),
        "t-1/partition.metadata",
        r"it says nothing",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_reported_with_its_place(look: Looker, stopped: Path, tmp_path: Path, name: str) -> None:
    do, path, what = DAMAGES[name]
    folder = copied(stopped, tmp_path / "data")
    do(folder)
    told = [
        each["what"]
        for each in look("doctor", folder, "--json").json()["findings"]
        if each["path"] == str(folder / path)
    ]
    assert [each for each in told if re.fullmatch(what, each)], told


def test_a_gap_in_a_log_that_the_cleaner_has_been_at_is_no_damage(
    look: Looker, stopped: Path, tmp_path: Path
) -> None:
    folder = copied(stopped, tmp_path / "data")
    path = folder / f"{FIRST}.log"
    write_at(path, 575, pack(">q", 9))

    def told() -> list[str]:
        found = look("doctor", folder, "--json").json()["findings"]
        return [
            each["what"] for each in found if each["path"] == str(path) and " instead of " in each["what"]
        ]

    assert len(told()) == 1
    (folder / "cleaner-offset-checkpoint").write_text("0\n1\nt 1 20\n")
    assert told() == []
