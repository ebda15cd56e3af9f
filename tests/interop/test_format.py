"""`barnabas format` beside Kafka's `storage format`: the same files but for ids, and either starts on the other's."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.controller.snapshots import BOOTSTRAP_FILE, read_snapshot
from protocol.messages.raft import VotersRecord
from protocol.records.batch import walk_batches
from protocol.wire.codec import encode
from tests.interop.nodes import Turns
from tests.interop.observing import properties_of
from tests.support import apache_kafka
from tests.support.apache_kafka import tool
from tests.support.disk import files

ROOT = Path(__file__).parents[2]
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
FIRST_SNAPSHOT = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"
DIRECTORY_ID = "JEXY6aqzQY-32P5TStzaFg"

STATIC = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093",
}
DYNAMIC = {**STATIC, "controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "localhost:9093"}
BROKER = {**DYNAMIC, "process.roles": "broker", "node.id": "7"}
CREDENTIAL = '[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]'
PASSWORD = 'SCRAM-SHA-256=[name=bob,salt="N3E=",password="pass=word"]'
VOTERS = f"1@localhost:9093:{DIRECTORY_ID},2@[::1]:9094:MvDxzVmcRsaTz33bUuRU6A"


def config(folder: Path, settings: dict[str, str], *directories: str) -> Path:
    folder.mkdir()
    listeners = {
        "broker": "PLAINTEXT://localhost:9092",
        "controller": "CONTROLLER://localhost:9093",
        "broker,controller": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    }
    all_settings = {
        **settings,
        "listeners": listeners[settings["process.roles"]],
        "controller.listener.names": "CONTROLLER",
        "log.dirs": ",".join(str(folder / directory) for directory in directories or ("data",)),
    }
    file = folder / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in all_settings.items() if value))
    return file


def ours(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "barnabas", "format", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def told(path: Path) -> tuple[list[Any], int, bytes | None, list[tuple[int, int, bool, int]]]:
    """Records, kraft.version, voters without ids that are drawn, and the shape of the batches."""
    snapshot = read_snapshot(files, str(path))
    data = path.read_bytes()
    shape = [
        (header.base_offset, header.records_count, header.is_control, header.partition_leader_epoch)
        for _, header in walk_batches(data)
    ]
    voters = snapshot.quorum.voters
    if voters is not None:
        voters = VotersRecord(version=voters.version, voters=[*voters.voters])
        for voter in voters.voters:
            voter.voter_directory_id = bytes(16)
    encoded = None if voters is None else bytes(encode(voters, 0))
    return snapshot.records, snapshot.quorum.kraft_version, encoded, shape


@pytest.mark.parametrize(
    ("settings", "arguments"),
    [
        (STATIC, []),
        (DYNAMIC, ["--standalone"]),
        (DYNAMIC, ["--initial-controllers", VOTERS]),
        (BROKER, ["-N"]),
        (STATIC, ["-r", "4.4-IV0", "-f", "share.version=1", "-S", f"SCRAM-SHA-512={CREDENTIAL}"]),
        (STATIC, ["-r", "4.3"]),
        (DYNAMIC, ["-r", "4.3-IV0", "--standalone"]),
        (DYNAMIC, ["-r", "4.3-IV0", "--initial-controllers", VOTERS]),
        (BROKER, ["-N", "-r", "3.9", "--feature", "group.version=1"]),
        (
            STATIC,
            ["-r", "4.1", "-f", "transaction.version=1", "-S", f"SCRAM-SHA-512={CREDENTIAL}", "-S", PASSWORD],
        ),
    ],
    ids=[
        *("static", "standalone", "initial-controllers", "broker", "levels"),
        *("static 4.3", "standalone 4.3", "initial-controllers 4.3", "broker 3.9", "levels 4.1"),
    ],
)
def test_the_format_is_the_releases(
    needs_kafka: Callable[..., str], tmp_path: Path, settings: dict[str, str], arguments: list[str]
) -> None:
    """A folder at a level of 4.3 or before is written as 4.3 writes it, which 4.4 reads as well."""
    is_older = "-r" in arguments and not arguments[arguments.index("-r") + 1].startswith("4.4")
    theirs_file = config(tmp_path / "kafka", settings, "data", "more")
    ours_file = config(tmp_path / "ours", settings, "data", "more")
    version = apache_kafka.BEFORE if is_older else None
    tool("storage", "format", "-t", CLUSTER_ID, "-c", theirs_file, *arguments, version=version)
    done = ours("-t", CLUSTER_ID, "-c", ours_file, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    theirs, found = tmp_path / "kafka", tmp_path / "ours"
    names = {str(path.relative_to(theirs)) for path in theirs.rglob("*")}
    assert {str(path.relative_to(found)) for path in found.rglob("*")} == names
    for directory in ("data", "more"):
        his, mine = (properties_of(folder / directory / "meta.properties") for folder in (theirs, found))
        if "--initial-controllers" in arguments and directory == "data":
            assert mine["directory.id"] == his["directory.id"] == DIRECTORY_ID
        assert len(mine.pop("directory.id")) == len(his.pop("directory.id")) == 22
        assert mine == his
        if f"{directory}/{BOOTSTRAP_FILE}" in names:
            assert told(found / directory / BOOTSTRAP_FILE) == told(theirs / directory / BOOTSTRAP_FILE)
    if f"data/{FIRST_SNAPSHOT}" in names:
        assert told(found / "data" / FIRST_SNAPSHOT) == told(theirs / "data" / FIRST_SNAPSHOT)


@pytest.mark.parametrize("formats", ["barnabas", "kafka"])
@pytest.mark.parametrize("quorum", ["static", "standalone"])
def test_each_broker_starts_on_the_others_formatted_folder(
    needs_kafka: Callable[..., str], tmp_path: Path, formats: str, quorum: str
) -> None:
    turns = Turns(tmp_path)
    controller = f"127.0.0.1:{turns.controller_port}"
    of_quorum = {"controller.quorum.voters": f"1@{controller}"}
    if quorum == "standalone":
        of_quorum = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": controller}
        turns.settings = {
            **of_quorum,
            "listeners": f"PLAINTEXT://127.0.0.1:{turns.port},CONTROLLER://{controller}",
        }
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{turns.port},CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(turns.data),
        **of_quorum,
    }
    file = tmp_path / "format.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items() if value))
    flags = ["--standalone"] if quorum == "standalone" else []
    if formats == "kafka":
        tool("storage", "format", "-t", CLUSTER_ID, "-c", file, *flags)
    else:
        done = ours("-t", CLUSTER_ID, "-c", file, *flags)
        assert (done.returncode, done.stderr) == (0, "")
    formatted = properties_of(turns.data / "meta.properties")
    with turns:
        turns.start("kafka" if formats == "barnabas" else "barnabas")
    assert properties_of(turns.data / "meta.properties") == formatted
    assert not turns.kafka_errors
