"""The files of a snapshot and of the quorum: how they are laid out, and what is taken from broken ones."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from broker.controller.metadata_versions import encode_metadata_record
from broker.controller.quorum_state import Quorum
from broker.controller.snapshots import (
    MAX_BATCH_BYTES,
    SnapshotError,
    SnapshotId,
    SnapshotPolicy,
    encode_snapshot,
    parse_name,
    read_snapshot,
)
from protocol.messages.raft import KRaftVersionFeature, Voter, VotersRecord
from protocol.records.batch import walk_batches
from protocol.waiting import PER_STEP, at_once
from tests.node.metadata_logs import ALWAYS, DIRECTORY, LEVEL, NODE, begin, open_log, topic
from tests.support.disk import files
from tests.support.manual_clock import ManualClock
from tests.support.wishes import pauses


def test_the_file_is_a_header_the_records_and_a_footer(tmp_path: Path) -> None:
    metadata = begin(tmp_path, ALWAYS)
    (newest,) = metadata.snapshots.ids
    path = tmp_path / f"{newest.name}.checkpoint"
    assert path.name == f"{newest.offset:020d}-{newest.epoch:010d}.checkpoint"
    batches = [header for _, header in walk_batches(path.read_bytes())]
    assert [header.is_control for header in batches] == [True, False, True]
    offsets = [(header.base_offset, header.last_offset) for header in batches]
    assert offsets == [(0, 0), (1, 6), (7, 7)]
    assert {header.partition_leader_epoch for header in batches} == {newest.epoch}
    assert read_snapshot(files, str(path)).last_contained_log_timestamp_ms == ManualClock().now_ms()


@pytest.mark.limit("broker.controller.snapshots.MAX_RECORDS_PER_BATCH")
def test_records_are_spread_over_batches_of_1024(tmp_path: Path) -> None:
    metadata = begin(tmp_path, SnapshotPolicy(20_000, 0, -1, -1))
    metadata.append(topic("a", 3000))
    (newest,) = metadata.snapshots.ids
    data = (tmp_path / f"{newest.name}.checkpoint").read_bytes()
    counts = [header.records_count for _, header in walk_batches(data)]
    assert counts == [1, 1024, 1024, 6 + 3001 - 2048, 1]


def test_values_so_large_that_a_batch_takes_few_are_gone_through_in_steps_too() -> None:
    value = bytes(MAX_BATCH_BYTES // 100)
    written = encode_snapshot(
        itertools.repeat(value, 3 * PER_STEP),
        Quorum(),
        epoch=1,
        last_contained_log_timestamp_ms=0,
        now_ms=0,
    )
    assert pauses(written) == 3


@pytest.mark.parametrize("damage", ["cut", "flip", "no footer", "empty"])
def test_an_incomplete_snapshot_is_invalid(tmp_path: Path, damage: str) -> None:
    data = bytearray(
        at_once(
            encode_snapshot(
                [encode_metadata_record(LEVEL, 0)],
                Quorum(),
                epoch=1,
                last_contained_log_timestamp_ms=0,
                now_ms=0,
            )
        )
    )
    if damage == "cut":
        del data[-1:]
    elif damage == "flip":
        data[100] ^= 1
    elif damage == "no footer":
        del data[[pos for pos, _ in walk_batches(data)][-1] :]
    else:
        data.clear()
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(SnapshotError):
        read_snapshot(files, str(path))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("00000000000000000097-0000000001.checkpoint", (SnapshotId(1, 97), ".checkpoint")),
        ("00000000000000000097-0000000001.checkpoint.deleted", (SnapshotId(1, 97), ".checkpoint.deleted")),
        ("00000000000000000097-0000000001-5.checkpoint.part", (SnapshotId(1, 97), "-5.checkpoint.part")),
        ("00000000000000000097.snapshot", None),
        ("bootstrap.checkpoint", None),
        ("leader-epoch-checkpoint", None),
    ],
)
def test_the_name_of_a_snapshot_says_where_it_ends(name: str, found: object) -> None:
    assert parse_name(name) == found


def test_the_voters_of_a_dynamic_quorum_survive_snapshot_and_log(tmp_path: Path) -> None:
    voters = VotersRecord(
        voters=[
            Voter(
                voter_id=NODE,
                voter_directory_id=DIRECTORY,
                kraft_version_feature=KRaftVersionFeature(max_supported_version=1),
            )
        ]
    )
    quorum = Quorum(1, voters)
    data = at_once(encode_snapshot((), quorum, epoch=0, last_contained_log_timestamp_ms=0, now_ms=0))
    (tmp_path / f"{SnapshotId(0, 0).name}.checkpoint").write_bytes(data)
    metadata = begin(tmp_path, ALWAYS)
    assert metadata.quorum == quorum
    assert metadata.snapshots.newest is not None
    assert metadata.snapshots.newest.offset > 0
    assert open_log(tmp_path).quorum == quorum
    assert json.loads((tmp_path / "quorum-state").read_text()) == {
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }


def test_the_quorum_state_is_as_kafka_writes_it_with_static_voters(tmp_path: Path) -> None:
    begin(tmp_path)
    assert (tmp_path / "quorum-state").read_text() == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":1,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )


@pytest.mark.parametrize("text", ['{"leaderEpoch":8}', '{"leaderEpoch":7}\n'])
def test_an_epoch_that_the_quorum_state_has_seen_is_not_used_again(tmp_path: Path, text: str) -> None:
    begin(tmp_path)
    (tmp_path / "quorum-state").write_text(text)
    assert begin(tmp_path).epoch == json.loads(text)["leaderEpoch"] + 1


@pytest.mark.parametrize("text", ["", "{", "[]", '{"leaderEpoch":null}'])
def test_a_nonsense_quorum_state_is_rewritten(tmp_path: Path, text: str) -> None:
    begin(tmp_path)
    (tmp_path / "quorum-state").write_text(text)
    assert begin(tmp_path).epoch == 2
    assert json.loads((tmp_path / "quorum-state").read_text())["leaderEpoch"] == 2
