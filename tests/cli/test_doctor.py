"""`barnabas doctor` finds nothing in a sound folder, and each damage in its place."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import barnabas
from broker.controller.snapshots import BOOTSTRAP_ID
from cli.errors import CommandUsageError
from storage.disk_files import DiskFiles, locked_by
from tests.cli.looking import Looker, copied, flip, replace, state_of, unpacked_kafka
from tests.node.damage_templates import build
from tests.node.damages import Damage, damage
from tests.support import kafka_folders

OURS = ("barnabas, stopped", "barnabas, killed")
KAFKAS = (*kafka_folders.NAMES,)
DAMAGED = 130
LEAST_FOUND = 100


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Folders by name: two of barnabas, three of Kafka 4.3."""
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
    """A small folder of a stopped barnabas, with every kind of file."""
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
    assert said["a_start"].startswith("reads everything after" if of_a_kill else "checks nothing")
    assert said["metadata_version"] == ("4.4-IV2 (33)" if name in OURS else "4.3-IV0 (30)")
    assert said["node_id"] == "1"
    properties = (folders[name] / "meta.properties").read_text()
    assert f"cluster.id={said['cluster_id']}\n" in properties
    assert [f"directory.id={each}" in properties for each in said["directory_ids"]] == [True]
    assert said["open_transactions"] == (1 if name in OURS else 2)
    shown = look("doctor", folders[name]).out
    assert shown.splitlines()[-1].startswith("sound")
    assert f"cluster id         {said['cluster_id']}" in shown


def test_planted_damage_is_reported_with_its_file_unless_nobody_can_tell(
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
            continue  # for example, if an empty file was emptied
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
    """(path in the folder, damage), and the summary's part about it."""
    said = look("doctor", folder, "--json").json()
    found = [
        (each["path"].removeprefix(f"{root}/"), each["what"].replace(str(root), ""))
        for each in said["findings"]
    ]
    return [*found, *((name, "it has no folder") for name in said["without_a_folder"])]


def _is_about(done: Damage, path: Path) -> bool:
    """Whether the finding is about the file itself, a file derived from it, or its folder, if the file is gone or was a
    whole folder. For a segment it may be an index with entries for records that are gone."""
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
    """Damage without a checksum, with possible contents and nothing to compare them with: 9 of 500."""
    loses_entries = done.action in ("truncate", "empty", "an older copy", "swap")
    return (
        # a search has to look further from the previous entry
        (done.kind == ".index" and loses_entries)
        # Kafka creates these files empty; they are found after a clean stop if they should have contents
        or (done.kind.endswith("-offset-checkpoint") and (loses_entries or done.action == "delete"))
        # another id
        or (done.kind == "meta.properties" and done.action.startswith("flip"))
        # producers at an older offset, which are read when a log is cut back
        or (done.kind == ".snapshot" and done.action == "delete")
        # a cluster's first records, which its log has too
        or (done.path.name == f"{BOOTSTRAP_ID.name}.checkpoint" and done.action == "delete")
    )


def test_an_older_damaged_metadata_snapshot_is_reported_though_a_later_one_is_used(
    look: Looker, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(folders[kafka_folders.SNAPSHOT], tmp_path / "data")
    oldest, *_, _newest = sorted((folder / "__cluster_metadata-0").glob("*.checkpoint"))
    flip(oldest, oldest.stat().st_size // 2)
    (finding,) = (
        each for each in look("doctor", folder, "--json").json()["findings"] if each["severity"] != "note"
    )
    assert finding["path"] == str(oldest)
    assert finding["what_to_do"] == "nothing: there is a later one"


def test_a_missing_partition_is_reported_from_the_checkpoints(
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
    assert "the folders belong to several clusters" in ran.out


HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_folder_in_use_by_a_broker_is_reported_as_such(look: Looker, stopped: Path, tmp_path: Path) -> None:
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
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the holder still holds it
        holder.stdin.close()
    (in_use,) = said["in_use"]
    assert in_use.startswith(f"{folder} by process {holder.pid} ")
    assert in_use.endswith("the findings may be changing")


def test_asking_for_our_own_lock_does_not_give_it_back(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    assert locked_by(path) is None
    assert not Path(path).exists()
    files = DiskFiles()
    files.lock(path)
    held = locked_by(path)
    assert held is not None
    assert held.holder == os.getpid()
    script = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    refused = subprocess.run([sys.executable, "-c", script, path], capture_output=True, check=False)
    assert b"BlockingIOError" in refused.stderr
    files.unlock(path)
    assert locked_by(path) is None


def test_fresh_folders_of_a_cluster_are_sound_while_it_runs_and_when_it_has_stopped(
    look: Looker, tmp_path: Path
) -> None:
    with barnabas.Cluster(brokers=2, data=tmp_path):
        folders = sorted(path.parent for path in tmp_path.rglob("meta.properties"))
        running = [look("doctor", folder, "--json") for folder in folders]
    assert [each.status for each in running] == [0, 0, 0]
    for ran in running:
        assert len(ran.json()["in_use"]) == 1
    stopped = [look("doctor", folder, "--json") for folder in folders]
    for ran in stopped:
        said = ran.json()
        assert (said["findings"], said["clean_shutdown"]) == ([], True)
    kinds = [ran.json()["kind"] for ran in stopped]
    assert kinds == ["data of a broker", "data of a broker", "data of a controller"]


def test_a_folder_without_data_is_refused_with_what_to_give_instead(
    look: Looker, stopped: Path, tmp_path: Path
) -> None:
    for arguments, words in [
        ([tmp_path], "isn't a Kafka data folder"),
        ([tmp_path / "nowhere"], "doesn't exist"),
        ([stopped / "t-1"], f"it is a partition's folder. Give {stopped}, or run `barnabas inspect"),
        ([], "barnabas doctor data"),
        (["--config", tmp_path / "nowhere"], "nowhere"),
    ]:
        with pytest.raises(CommandUsageError, match=re.escape(words)) as refused:
            look("doctor", *arguments)
        assert refused.value.status == 2


def test_doctor_and_inspect_need_no_client_library(stopped: Path) -> None:
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


def test_an_irregular_file_is_reported_and_not_waited_for(
    look: Looker, stopped: Path, tmp_path: Path
) -> None:
    folder = copied(stopped, tmp_path / "data")
    log = next(folder.glob("*/*.log"))
    for path in (log, log.with_suffix(".index"), folder / "recovery-point-offset-checkpoint"):
        path.unlink()
        os.mkfifo(path)
    log.with_suffix(".timeindex").unlink()
    log.with_suffix(".timeindex").symlink_to("/dev/zero")
    findings = look("doctor", folder, "--json").json()["findings"]
    told = {each["path"] for each in findings if each["what"] == "it is no regular file"}
    assert {str(log), f"{folder}/recovery-point-offset-checkpoint"} <= told
    assert look("inspect", log.parent).status == 1
    assert "no regular file" in look("inspect", log.with_suffix(".timeindex")).out


def test_an_empty_segment_without_indexes_yet_is_sound(
    look: Looker, folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = copied(folders[kafka_folders.DOWN], tmp_path / "data")
    log = next(path for path in sorted(folder.glob("*/*.log")) if not path.stat().st_size)
    log.with_suffix(".index").unlink()
    ran = look("doctor", folder, "--json")
    assert ran.status == 0
    assert [each["path"] for each in ran.json()["findings"]] == [str(log.with_suffix(".index"))]
