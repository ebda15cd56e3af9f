"""`barnabas doctor`: nothing is found in a folder that is sound, and each damage where it is."""

from __future__ import annotations

import asyncio
import fcntl
import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from struct import pack
from typing import Any

import pytest

from cli.errors import CommandUsageError
from storage.producers.producer import CachedBatch, Producer
from storage.producers.producer_snapshot import encode
from tests.cli.looking import Looker, copied, state_of, unpacked_kafka
from tests.node.damage_templates import build
from tests.node.damages import Damage, damage
from tests.support import kafka_folders

OURS = ("barnabas, stopped", "barnabas, killed")
KAFKAS = (*kafka_folders.NAMES,)
DAMAGED = 130
LEAST_FOUND = 100


@pytest.fixture
def look(capsys: pytest.CaptureFixture[str]) -> Looker:
    return Looker(capsys)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By name: two of barnabas, three of Kafka 4.3."""
    found = {}
    for name in OURS:
        folder = tmp_path_factory.mktemp("ours") / "data"
        asyncio.run(build(folder, clean=name == OURS[0]))
        found[name] = folder
    for name in KAFKAS:
        found[name] = unpacked_kafka(name, tmp_path_factory.mktemp("kafkas"))
    return found


@pytest.fixture(scope="module")
def stopped(folders: dict[str, Path]) -> Path:
    """One of barnabas' that was stopped: small, with every kind of file."""
    return folders[OURS[0]]


@pytest.mark.parametrize("name", [*OURS, *KAFKAS])
def test_a_sound_folder_is_found_sound_and_stays_as_it_is(
    look: Looker, folders: dict[str, Path], name: str
) -> None:
    before = state_of(folders[name])
    ran = look("doctor", folders[name], "--json")
    inspected = look("inspect", "--json", folders[name])
    assert state_of(folders[name]) == before
    assert (ran.status, inspected.status) == (0, 0)
    said = ran.json()
    of_a_kill = name not in (OURS[0], kafka_folders.DOWN)
    assert [each["path"] for each in said["findings"]] == [
        f"{folders[name]}/.kafka_cleanshutdown"
    ] * of_a_kill
    assert said["clean_shutdown"] is not of_a_kill
    assert said["a_start"].startswith("reads again" if of_a_kill else "checks nothing")
    assert said["metadata_version"] == "4.3-IV0 (30)"
    assert said["node_id"] == "1"
    properties = (folders[name] / "meta.properties").read_text()
    assert f"cluster.id={said['cluster_id']}\n" in properties
    assert [f"directory.id={each}" in properties for each in said["directory_ids"]] == [True]
    assert said["open_transactions"] == (1 if name in OURS else 2)
    shown = look("doctor", folders[name]).out
    assert shown.splitlines()[-1].startswith("sound")
    assert f"cluster id         {said['cluster_id']}" in shown


def test_planted_damages_are_found_and_told_with_the_file_unless_nobody_can_tell(
    look: Looker, folders: dict[str, Path], tmp_path: Path
) -> None:
    names = [OURS[0], OURS[1], kafka_folders.DOWN, OURS[0], kafka_folders.DOWN, OURS[1]]
    sound = {name: _told(look, folders[name], folders[name]) for name in {*names}}
    found, untold = 0, []
    for seed in range(DAMAGED):
        name = names[seed % len(names)]
        folder = copied(folders[name], tmp_path / str(seed))
        done = damage(folder, Random(seed))
        if state_without_times(folder) == state_without_times(folders[name]):
            continue  # as where an empty file was emptied
        told = _told(look, folder, folder)
        new = [each for each in told if each not in sound[name]]
        if any(_is_about(done, folder / path) for path, _what in new) or _inspected(look, done):
            found += 1
        elif not nobody_can_tell(done):
            untold.append(f"{seed} {name}: {done.told}: {new}")
    assert not untold, "\n".join(untold)
    assert found >= LEAST_FOUND


def state_without_times(folder: Path) -> dict[str, str]:
    return {str(Path(path).relative_to(folder)): digest for path, (digest, _, _) in state_of(folder).items()}


def _told(look: Looker, folder: Path, root: Path) -> list[tuple[str, str]]:
    """(path in the folder, what), and what the summary has of it."""
    said = look("doctor", folder, "--json").json()
    found = [
        (each["path"].removeprefix(f"{root}/"), each["what"].replace(str(root), ""))
        for each in said["findings"]
    ]
    return [*found, *((name, "it has no folder") for name in said["without_a_folder"])]


def _is_about(done: Damage, path: Path) -> bool:
    """The file itself; one that was made of it; what it is in, where it is gone or was a whole folder; and of a segment
    an index, which says what isn't there any more."""
    of_it = {path, path.parent}
    beside = path.parent == done.path.parent and path.name[:20] == done.path.name[:20]
    is_made_of_it = path.name in (done.detail[3:], done.path.name + done.detail[3:])
    return done.path in of_it or path == done.path.parent or beside or is_made_of_it


def _inspected(look: Looker, done: Damage) -> bool:
    if not done.path.is_file():
        return False
    try:
        return look("inspect", done.path, "--json").status == 1
    except CommandUsageError:
        return False


def nobody_can_tell(done: Damage) -> bool:
    """What has no checksum, says something that may be, and nothing else says the same: 9 of 500."""
    loses_entries = done.action in ("truncate", "empty", "an older copy", "swap")
    return (
        # one has to look further from the entry before
        (done.kind == ".index" and loses_entries)
        # what the cleaner has cleaned, and where DeleteRecords has cut: there may be nothing to say
        or (done.kind in ("cleaner-offset-checkpoint", "log-start-offset-checkpoint") and loses_entries)
        # an id that is another one
        or (done.kind == "meta.properties" and done.action.startswith("flip"))
        # producers at an older offset, which are read where a log is cut back
        or (done.kind == ".snapshot" and done.action == "delete")
    )


# --- by name: what is told, and where ---------------------------------------------------------------------------------


def flip(path: Path, place: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= bit
    path.write_bytes(data)


def write_at(path: Path, place: int, data: bytes) -> None:
    whole = bytearray(path.read_bytes())
    whole[place : place + len(data)] = data
    path.write_bytes(whole)


def add(path: Path, data: bytes) -> None:
    path.write_bytes(path.read_bytes() + data)


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


FIRST = "t-1/00000000000000000000"
LAST = "t-1/00000000000000000030"
DAMAGES: dict[str, tuple[Any, str, str]] = {
    "a bit in a batch": (
        lambda f: flip(f / f"{FIRST}.log", 160),
        f"{FIRST}.log",
        r"513 bytes from position 140 on, offset 2, are no whole batches",
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
        r".*: 8 bytes of zeros from byte 32 on are no entries",
    ),
    "half an entry": (
        lambda f: add(f / f"{FIRST}.txnindex", b"half"),
        f"{FIRST}.txnindex",
        r".*: 38 bytes are no whole entries of 34",
    ),
    "an aborted transaction that begins too late": (
        lambda f: write_at(f / f"{FIRST}.txnindex", 10, pack(">q", 7)),
        f"{FIRST}.txnindex",
        r".*: entry 0, at byte 0: a transaction from offset 7 on, and its first batch is at 5",
    ),
    "an aborted transaction that isn't there": (
        lambda f: (f / f"{FIRST}.txnindex").write_bytes(b""),
        f"{FIRST}.txnindex",
        r".*: 0 entries, and 1 transactions are aborted in the segment",
    ),
    "the index of aborted transactions is gone": (
        lambda f: (f / "t-1/00000000000000000018.txnindex").unlink(),
        "t-1/00000000000000000018.txnindex",
        r"it is missing",
    ),
    "an offset that jumps": (
        lambda f: write_at(f / f"{FIRST}.log", 575, pack(">q", 9)),
        f"{FIRST}.log",
        r"the batch at position 575 begins with offset 9, and 8 is the next one",
    ),
    "a leader epoch that a batch contradicts": (
        lambda f: flip(f / f"{FIRST}.log", 15, 4),
        "t-1/leader-epoch-checkpoint",
        r"offset 0 is of epoch 4 by its batch, and the file says 0",
    ),
    "leader epochs out of order": (
        lambda f: (f / "t-1/leader-epoch-checkpoint").write_text("0\n2\n3 0\n1 5\n"),
        "t-1/leader-epoch-checkpoint",
        r"epoch 1 from offset 5 on comes behind epoch 3 from 0 on",
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
        r"producer 0 is at offset 9, beyond its name",
    ),
    "no producers at the end": (
        lambda f: (f / f"{LAST}.snapshot").unlink(),
        f"{LAST}.snapshot",
        r"it is missing: the producers at the end of the log, as a clean stop leaves them",
    ),
    "a file that is no log's": (
        lambda f: (f / f"{FIRST}.log.bak").write_bytes(b"x"),
        f"{FIRST}.log.bak",
        r"it is no file of Kafka's",
    ),
    "a quorum-state that is cut": (
        lambda f: write_at(f / "__cluster_metadata-0/quorum-state", 20, b"\0"),
        "__cluster_metadata-0/quorum-state",
        r"it makes no sense: .*",
    ),
    "a quorum-state of an earlier epoch": (
        lambda f: replace(f / "__cluster_metadata-0/quorum-state", '"leaderEpoch":1', '"leaderEpoch":0'),
        "__cluster_metadata-0/quorum-state",
        r"it says leader epoch 0, and the log has batches of 1",
    ),
    "a quorum-state without a field": (
        lambda f: replace(f / "__cluster_metadata-0/quorum-state", '"votedId"', '"votedIs"'),
        "__cluster_metadata-0/quorum-state",
        r"it makes no sense: votedId missing",
    ),
    "a mark of a clean stop that says nothing": (
        lambda f: (f / ".kafka_cleanshutdown").write_text("{"),
        ".kafka_cleanshutdown",
        r"it doesn't say which run stopped cleanly",
    ),
    "a high watermark beyond the end": (
        lambda f: replace(f / "replication-offset-checkpoint", "t 1 30", "t 1 31"),
        "replication-offset-checkpoint",
        r"it says offset 31 of t-1, which ends at 30",
    ),
    "a recovery point below the end after a clean stop": (
        lambda f: replace(f / "recovery-point-offset-checkpoint", "t 1 30", "t 1 20"),
        "recovery-point-offset-checkpoint",
        r"it says offset 20 of t-1, which ends at 30, as a clean stop would",
    ),
    "a checkpoint that is empty": (
        lambda f: (f / "replication-offset-checkpoint").write_bytes(b""),
        "replication-offset-checkpoint",
        r"it is empty",
    ),
    "a checkpoint that says nothing": (
        lambda f: (f / "replication-offset-checkpoint").write_text("0\n0\n"),
        "replication-offset-checkpoint",
        r"it says nothing of \S+ and 4 more, as a clean stop would",
    ),
    "a checkpoint that names another partition": (
        lambda f: replace(f / "replication-offset-checkpoint", "t 1 30", "u 1 30"),
        "replication-offset-checkpoint",
        r"it says offset 30 of u-1, which has no folder here",
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
        r"directory.id wREDlfRwTCe4wPX-9TfYMw is none of node 1's: the cluster knows \S+",
    ),
    "a node that the cluster doesn't know": (
        lambda f: replace(f / "meta.properties", "node.id=1", "node.id=3"),
        "meta.properties",
        r"node.id 3 is registered nowhere: the cluster knows 1",
    ),
    "a line that is no property": (
        lambda f: add(f / "meta.properties", b"nonsense\n"),
        "meta.properties",
        r"'nonsense' is no name in it",
    ),
    "a topic id that says nothing": (
        lambda f: (f / "t-1/partition.metadata").write_bytes(b""),
        "t-1/partition.metadata",
        r"it says nothing",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damage_is_told_with_its_place(look: Looker, stopped: Path, tmp_path: Path, name: str) -> None:
    do, path, what = DAMAGES[name]
    folder = copied(stopped, tmp_path / "data")
    do(folder)
    told = [
        each["what"]
        for each in look("doctor", folder, "--json").json()["findings"]
        if each["path"] == str(folder / path)
    ]
    assert [each for each in told if re.fullmatch(what, each)], told


def test_an_older_snapshot_of_the_metadata_that_is_damaged_is_told_though_a_later_one_is_taken(
    look: Looker, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(folders[kafka_folders.SNAPSHOT], tmp_path / "data")
    oldest, *_, _newest = sorted((folder / "__cluster_metadata-0").glob("*.checkpoint"))
    flip(oldest, oldest.stat().st_size // 2)
    (finding,) = (
        each for each in look("doctor", folder, "--json").json()["findings"] if each["severity"] != "note"
    )
    assert finding["path"] == str(oldest)
    assert finding["what_to_do"] == "nothing: a later one is there"


def test_a_partition_that_is_gone_is_told_by_what_checkpoints_say_of_it(
    look: Looker, stopped: Path, tmp_path: Path
) -> None:
    folder = copied(stopped, tmp_path / "data")
    (folder / "t-1").rename(tmp_path / "elsewhere")
    ran = look("doctor", folder)
    assert ran.status == 1
    assert f"error: {folder}/t-1: t-1 has no folder, and was synced up to offset 30; " in ran.out
    assert "without a folder   empty-0, t-1" in ran.out


def test_several_directories_are_looked_at_as_one_node(look: Looker, stopped: Path, tmp_path: Path) -> None:
    first = copied(stopped, tmp_path / "first")
    second = tmp_path / "second"
    second.mkdir()
    (first / "t-1").rename(second / "t-1")
    for name in ("meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (second / name).write_bytes((first / name).read_bytes())
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={first},{second}\n")
    said = look("doctor", "--config", config, "--json").json()
    assert said["directories"] == [str(first), str(second)]
    assert said["partitions"] == 5
    assert not [each for each in said["findings"] if each["what"].endswith("has no folder")]
    replace(second / "meta.properties", "cluster.id=", "cluster.id=x")
    ran = look("doctor", first, second)
    assert ran.status == 1
    assert "the folders are of several clusters" in ran.out


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_folder_that_a_broker_uses_now_is_told_as_such(look: Looker, stopped: Path, tmp_path: Path) -> None:
    folder = copied(stopped, tmp_path / "data")
    assert "in_use" not in look("doctor", folder, "--json").json()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, folder / ".lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        said = look("doctor", folder, "--json").json()
        with (folder / ".lock").open("r+") as file, pytest.raises(BlockingIOError):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # who holds it still does
        holder.stdin.close()
    (in_use,) = said["in_use"]
    assert in_use.startswith(f"{folder} by process {holder.pid} ")
    assert in_use.endswith("what is found may be in motion")


def test_what_is_no_data_folder_is_said_with_what_to_give_instead(
    look: Looker, stopped: Path, tmp_path: Path
) -> None:
    for arguments, words in [
        ([tmp_path], "no data folder of Kafka's"),
        ([tmp_path / "nowhere"], "isn't there"),
        ([stopped / "t-1"], f"it is a partition's. Give {stopped}, or `barnabas inspect"),
        ([], "barnabas doctor data"),
        (["--config", tmp_path / "nowhere"], "nowhere"),
    ]:
        with pytest.raises(CommandUsageError, match=re.escape(words)) as refused:
            look("doctor", *arguments)
        assert refused.value.status == 2


def test_it_needs_no_client_library(stopped: Path) -> None:
    script = (
        "import sys; from cli.main import main; status = main(sys.argv[1:]);"
        "assert not {'confluent_kafka', 'rich'} & {*sys.modules}; sys.exit(status)"
    )
    for command in ("doctor", "inspect"):
        ended = subprocess.run(
            [sys.executable, "-c", script, command, str(stopped), "--json"],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        assert ended.returncode == 0, ended.stderr
        assert json.loads(ended.stdout.splitlines()[0] if command == "inspect" else ended.stdout)
