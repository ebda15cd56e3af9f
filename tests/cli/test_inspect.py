"""`barnabas inspect` shows the same contents of a file as Kafka's own tool, with explanations."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.errors import CommandUsageError
from coordinator.persister import StateBatch
from coordinator.share.share_partition_key import SharePartitionKey
from coordinator.share.share_partitions import ShareGroupOffset, ShareRecord
from coordinator.share.share_partitions import encode_record as encode_share_record
from protocol.records.batch import build_batch, build_end_txn_marker
from tests.cli.looking import Looker, copied, flip, state_of, unpacked_kafka, write_at
from tests.node.damage_templates import build
from tests.support import kafka_folders

DumpLog = Callable[..., str]
BATCH = re.compile(r"^baseOffset: .*", re.MULTILINE)
RECORD = re.compile(r"^\| offset: .*", re.MULTILINE)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ours") / "data"
    asyncio.run(build(folder, clean=True))
    return folder


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of a stopped Kafka 4.3."""
    return unpacked_kafka(kafka_folders.DOWN, tmp_path_factory.mktemp("kafkas"))


def fields_of(line: str) -> dict[str, str]:
    """The fields of a line of Kafka's: `name: value name: value`."""
    return dict(re.findall(r"(\w+): (\S+)", line))


def as_kafka_says(batch: dict[str, Any]) -> dict[str, str]:
    """Our fields by the names of kafka-dump-log."""
    stamp = "CreateTime" if batch["timestamp_type"] == "create" else "LogAppendTime"
    found = {
        "baseOffset": batch["base_offset"],
        "lastOffset": batch["last_offset"],
        "count": batch["count"],
        "producerId": batch["producer_id"],
        "producerEpoch": batch["producer_epoch"],
        "partitionLeaderEpoch": batch["partition_leader_epoch"],
        "isTransactional": batch["transactional"],
        "isControl": batch["control"],
        "position": batch["position"],
        stamp: batch["max_timestamp"],
        "size": batch["size"],
        "magic": batch["magic"],
        "compresscodec": batch["codec"],
        "crc": batch["crc"],
        "isvalid": batch["crc_ok"],
    }
    if batch["producer_id"] >= 0:  # Kafka's tool shows a last sequence though the batch has none
        found |= {"baseSequence": batch["base_sequence"], "lastSequence": batch["last_sequence"]}
    return {name: str(value).lower() for name, value in found.items()}


@pytest.mark.parametrize("whose", ["ours", "kafkas"])
def test_batches_read_as_in_kafkas_tool(
    look: Looker, needs_kafka: DumpLog, whose: str, request: pytest.FixtureRequest
) -> None:
    folder: Path = request.getfixturevalue(whose)
    paths = sorted(folder.glob("t*-[01]/*.log")) + sorted(folder.glob("__transaction_state-0/*.log"))
    dumped = needs_kafka("dump-log", "--files", ",".join(map(str, paths)))
    theirs = [fields_of(line) for line in BATCH.findall(dumped)]
    batches = look("inspect", "--json", *paths).of_kind("batch")
    assert len(batches) == len(theirs) > 20
    for batch, known in zip(batches, theirs, strict=True):
        mine = as_kafka_says(batch)
        assert mine == {name: known[name].lower() for name in mine}


def test_indexes_and_snapshots_read_as_in_kafkas_tool(
    look: Looker, needs_kafka: DumpLog, kafkas: Path
) -> None:
    of_kind = {
        suffix: [path for path in sorted(kafkas.glob(f"txn-*/*{suffix}")) if path.stat().st_size]
        for suffix in (".index", ".timeindex", ".txnindex", ".snapshot")
    }
    paths = [path for each in of_kind.values() for path in each]
    dumped = needs_kafka("dump-log", "--files", ",".join(map(str, paths)))
    lines = [fields_of(line) for line in dumped.splitlines() if ": " in line]
    ran = look("inspect", "--json", *paths)
    assert ran.status == 0
    entries = ran.of_kind("entry")
    found = [(str(each["offset"]), str(each["position"])) for each in entries if "position" in each]
    assert found == [
        (line["offset"], line["position"]) for line in lines if {*line} == {"offset", "position"}
    ]
    found = [(str(each["timestamp"]), str(each["offset"])) for each in entries if "timestamp" in each]
    assert found == [
        (line["timestamp"], line["offset"]) for line in lines if {*line} == {"timestamp", "offset"}
    ]
    aborted = [each for each in entries if "producer_id" in each]
    assert [
        tuple(
            str(each[name]) for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset")
        )
        for each in aborted
    ] == [
        (line["producerId"], line["firstOffset"], line["lastOffset"], line["lastStableOffset"])
        for line in lines
        if "lastStableOffset" in line
    ]
    producers = ran.of_kind("producer")
    told = [
        {
            "producerId": str(each["producer_id"]),
            "producerEpoch": str(each["producer_epoch"]),
            "coordinatorEpoch": str(each["coordinator_epoch"]),
            "lastTimestamp": str(each["last_timestamp"]),
        }
        for each in producers
    ]
    known = [line for line in lines if "coordinatorEpoch" in line]
    assert told == [{name: line[name] for name in each} for each, line in zip(told, known, strict=True)]
    assert aborted
    assert producers


def data_of(line: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Key and value of a record as Kafka's tool decodes them."""
    found = re.search(r"key: (\{.*?\}\}) payload: (\{.*\})$", line)
    assert found is not None, line
    return json.loads(found[1])["data"], json.loads(found[2])["data"]


def test_records_of_the_internal_topics_read_as_in_kafkas_tool(
    look: Looker, needs_kafka: DumpLog, kafkas: Path
) -> None:
    offsets = kafkas / "__consumer_offsets-1/00000000000000000000.log"
    dumped = needs_kafka("dump-log", "--offsets-decoder", "--files", offsets)
    theirs = [data_of(line) for line in RECORD.findall(dumped)]
    mine = [each["says"] for each in look("inspect", "--records", "--json", offsets).of_kind("record")]
    assert len(mine) == len(theirs) == 4
    for said, (key, value) in zip(mine[2:], theirs[2:], strict=True):
        assert {name: said[name] for name in key} == key
        assert said["offset"] == value["offset"]
        assert said["commit_timestamp_ms"] == value["commitTimestamp"]
        assert said["topic_id"] == value["topicId"]
    (member,), (known,) = mine[1]["members"], theirs[1][1]["members"]
    assert member["member_id"] == known["memberId"]
    assert member["subscription"]["topics"] == known["subscription"]["topics"] == ["plain"]
    assert member["assignment"]["assigned_partitions"] == known["assignment"]["assignedPartitions"]
    transactions = kafkas / "__transaction_state-0/00000000000000000000.log"
    dumped = needs_kafka("dump-log", "--transaction-log-decoder", "--files", transactions)
    theirs = [data_of(line) for line in RECORD.findall(dumped)]
    mine = [each["says"] for each in look("inspect", "--records", "--json", transactions).of_kind("record")]
    assert len(mine) == len(theirs) > 100
    for said, (key, value) in zip(mine, theirs, strict=True):
        assert said["transactional_id"] == key["transactionalId"]
        assert said["producer_id"] == value["producerId"]
        assert said["producer_epoch"] == value["producerEpoch"]
        assert said["start_timestamp_ms"] == value["transactionStartTimestampMs"]
        partitions = [
            f"{each['topic']}-{number}"
            for each in value["transactionPartitions"] or []
            for number in each["partitionIds"]
        ]
        assert said["partitions"] == partitions
    metadata = kafkas / "__cluster_metadata-0/00000000000000000000.log"
    dumped = needs_kafka("dump-log", "--cluster-metadata-decoder", "--files", metadata)
    types = re.findall(r'payload: \{"type":"(\w+)"', dumped)
    mine = [each["type"] for each in look("inspect", "--records", "--json", metadata).of_kind("record")]
    known = [re.sub(r"(?<=.)(?=[A-Z])", "_", name).upper() for name in mine]
    assert [name for name in known if name != "LEADER_CHANGE_MESSAGE"] == types


def test_share_states_are_shown_in_words_and_a_nonsense_record_as_such(look: Looker, tmp_path: Path) -> None:
    key = SharePartitionKey("sharers", bytes(15) + b"\1", 3)
    state = ShareGroupOffset(4, 1, 2, 10, 1, (StateBatch(10, 12, 2, 1),), 1000, 2000)
    records = [
        encode_share_record(ShareRecord(key, state)),
        encode_share_record(ShareRecord(key, state, is_update=True)),
        encode_share_record(ShareRecord(key, None)),
        (b"\0\x63", b"\0\0"),
        (b"\0", None),
    ]
    path = tmp_path / "__share_group_state-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(build_batch([(1, key, value, ()) for key, value in records]))
    ran = look("inspect", "--records", "--json", path)
    assert ran.status == 1
    snapshot, update, gone, unknown, cut = ran.of_kind("record")
    assert (snapshot["type"], update["type"]) == ("ShareSnapshot", "ShareUpdate")
    assert snapshot["says"]["group"] == "sharers"
    assert snapshot["says"]["topic_id"] == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert snapshot["says"]["state_batches"] == [
        {"first_offset": 10, "last_offset": 12, "delivery_state": 2, "delivery_count": 1}
    ]
    assert gone["says"]["deleted"] is True
    assert unknown["wrong"] == "its key has no type that Kafka 4.3 knows"
    assert cut["wrong"].startswith("it can't be decoded: ")


def test_a_metadata_snapshot_shows_the_clusters_state(look: Looker, tmp_path: Path) -> None:
    folder = unpacked_kafka(kafka_folders.SNAPSHOT, tmp_path)
    path = sorted((folder / "__cluster_metadata-0").glob("*.checkpoint"))[-1]
    records = look("inspect", "--records", "--json", path).of_kind("record")
    types = [each["type"] for each in records]
    assert types[0] == "SnapshotHeaderRecord"
    assert types[-1] == "SnapshotFooterRecord"
    topics = {each["says"]["name"] for each in records if each["type"] == "TopicRecord"}
    assert {"plain", "compacted", "txn", "__consumer_offsets"} <= topics
    flip(path, 300)
    (damage,) = look("inspect", "--json", path).of_kind("damage")
    assert damage["start"] == "a start takes the snapshot before, if there is one"


def test_a_marker_names_the_transaction_that_it_ends_and_where_that_began(look: Looker, ours: Path) -> None:
    first, second, third, _ = sorted((ours / "t-1").glob("*.log"))
    shown = look("inspect", first).out
    assert (
        "(commits the transaction of producer 0 ('tx') that began at 0, 3 records of this segment)" in shown
    )
    assert "(aborts the transaction of producer 0 ('tx') that began at 5, 3 records of this segment)" in shown
    assert "open at its end: producer 0 ('tx') since offset 15" in look("inspect", second).out
    # by the snapshot of producers at the begin of the segment
    assert "(aborts the transaction of producer 0 ('tx') that began at 15)" in look("inspect", third).out
    (last,) = (each for each in sorted((ours / "t-0").glob("*.log"))[-1:])
    (end,) = look("inspect", "--json", last).of_kind("end")
    assert end["open_transactions"] == [{"producer_id": 1, "first_offset": 30, "transactional_id": "open"}]


def test_a_marker_of_a_producer_without_records_here_is_shown_as_such(look: Looker, tmp_path: Path) -> None:
    data = build_end_txn_marker(0, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp=1)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(data)
    assert "aborts a transaction of producer 7 that wrote nothing here" in look("inspect", path).out


def test_an_offset_begins_where_it_is_asked_for(look: Looker, ours: Path) -> None:
    path = ours / "t-1" / "00000000000000000009.log"
    ran = look("inspect", "--records", "--offset", 16, "--json", path)
    assert [each["base_offset"] for each in ran.of_kind("batch")] == [16, 17]
    assert [each["offset"] for each in ran.of_kind("record")] == [16, 17]
    assert ran.of_kind("batch")[0]["why"] == "of the transaction of producer 0 ('tx') that began at 15"


def test_damage_is_shown_in_place_with_what_a_start_would_do(
    look: Looker, ours: Path, tmp_path: Path
) -> None:
    folder = copied(ours, tmp_path / "data")
    path = folder / "t-1" / "00000000000000000000.log"
    flip(path, 160)
    ran = look("inspect", "--json", path)
    assert ran.status == 1
    (damage,) = ran.of_kind("damage")
    assert (damage["position"], damage["offset"], damage["bytes"]) == (140, 2, 70)
    assert (damage["next_position"], damage["next_offset"]) == (210, 3)
    assert re.fullmatch(r"its checksum says \d+, and its bytes have \d+", damage["reason"])
    assert damage["start"].endswith("whoever reads it is told CORRUPT_MESSAGE")
    assert [each["base_offset"] for each in ran.of_kind("batch")] == [0, 1, 3, 4, 5, 6, 7, 8]
    (folder / ".kafka_cleanshutdown").unlink()
    (folder / "recovery-point-offset-checkpoint").unlink()
    (damage,) = look("inspect", "--json", path).of_kind("damage")
    assert damage["start"] == (
        "a start cuts the segment at 140, and drops the segments behind it: offsets from 2 on are gone then"
    )


@pytest.mark.parametrize(
    ("place", "data", "reason"),
    [
        (156, b"\1", "the format's number, at byte 156, is 1 instead of 2"),
        (148, b"\0\1\0\0", "a batch of 65,548 bytes, as its length says, where 513 are left"),
        (140, bytes(8), "it begins with offset 0 instead of 2"),
        (140, bytes(70), "zeros"),
    ],
)
def test_the_reason_that_a_batch_is_invalid_is_shown(
    look: Looker, ours: Path, tmp_path: Path, place: int, data: bytes, reason: str
) -> None:
    path = copied(ours, tmp_path / "data") / "t-1" / "00000000000000000000.log"
    write_at(path, place, data)
    (damage,) = look("inspect", "--json", path).of_kind("damage")
    assert damage["reason"] == reason
    assert damage["next_offset"] == 3


def test_an_entry_that_contradicts_the_log_is_marked(look: Looker, ours: Path, tmp_path: Path) -> None:
    folder = copied(ours, tmp_path / "data")
    path = folder / "t-1" / "00000000000000000000.index"
    write_at(path, 15, b"\1")
    ran = look("inspect", path)
    assert ran.status == 1
    (line,) = (line for line in ran.out.splitlines() if line.startswith("1  at byte 8"))
    assert line.endswith("!! no batch begins at position 257")
    (folder / "t-1" / "00000000000000000000.log").unlink()
    assert (
        "not compared with the batches: 00000000000000000000.log: No such file" in look("inspect", path).out
    )


def test_small_files_are_shown_in_words(look: Looker, ours: Path) -> None:
    for name, words in {
        "recovery-point-offset-checkpoint": "t-1  30  (its log ends at 30)",
        "meta.properties": "node.id  1",
        ".kafka_cleanshutdown": "stopped cleanly: a start checks nothing",
        "t-1/leader-epoch-checkpoint": "epoch 0  from offset 0 to 29",
        "t-1/partition.metadata": "topic id ",
        "__cluster_metadata-0/quorum-state": "leaderEpoch 1",
        "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint": "(SnapshotHeaderRecord",
    }.items():
        ran = look("inspect", ours / name)
        assert ran.status == 0, ran.out
        assert words in ran.out


def test_a_partitions_folder_has_a_line_for_each_file_and_names_open_transactions(
    look: Looker, ours: Path
) -> None:
    before = state_of(ours)
    ran = look("inspect", "--json", ours / "t-0")
    assert state_of(ours) == before
    files = {each["name"]: each for each in ran.of_kind("file")}
    assert files.keys() == {path.name for path in (ours / "t-0").iterdir()}
    (partition,) = ran.of_kind("partition")
    assert (partition["start_offset"], partition["end_offset"]) == (3, 32)
    assert partition["last_stable_offset"] == 30
    assert partition["open_transactions"][0]["transactional_id"] == "open"
    first = files["00000000000000000000.log"]
    assert (first["first_offset"], first["last_offset"]) == (0, 8)


def test_nothing_of_a_record_reaches_the_terminal_raw(look: Looker, tmp_path: Path) -> None:
    evil = b"\x1b[2J\x9b31m\r\n\xe2\x80\xae"
    headers = [(evil, evil)]
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(build_batch([(1, evil, evil, headers), (1, b"\xe2\x80\xaeabc", None, ())]))
    shown = look("inspect", "--records", path).out
    assert all(char.isprintable() or char == "\n" for char in shown)
    assert shown.count("\n") == 4
    of_group = tmp_path / "__share_group_state-0" / path.name
    of_group.parent.mkdir()
    key, value = encode_share_record(
        ShareRecord(SharePartitionKey("\x1b[2J\u202e", bytes(16), 0), ShareGroupOffset())
    )
    of_group.write_bytes(build_batch([(1, key, value, ())]))
    shown = look("inspect", "--records", of_group).out
    assert "group=\\x1b[2J\\u202e" in shown
    assert all(char.isprintable() or char == "\n" for char in shown)
    told = look("inspect", "--records", "--json", path)
    assert told.out.isascii()
    assert told.of_kind("record")[1]["key"] == "\u202eabc"
    assert told.of_kind("record")[0]["key"] == {"base64": base64.b64encode(evil).decode()}


def test_a_long_segment_is_not_held_in_memory(look: Looker, tmp_path: Path) -> None:
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    value = bytes(100_000)
    with path.open("wb") as file:
        for offset in range(400):
            file.write(build_batch([(1, None, value, ())], base_offset=offset))
    tracemalloc.start()
    try:
        ran = look("inspect", "--json", path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(ran.of_kind("batch")) == 400
    assert peak < 8_000_000 < path.stat().st_size


def test_a_file_that_is_not_kafkas_is_named(look: Looker, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for path, words in [
        (tmp_path / "notes.txt", "isn't a Kafka file"),
        (tmp_path / "nowhere", "doesn't exist"),
        (tmp_path, "isn't a Kafka folder"),
    ]:
        with pytest.raises(CommandUsageError, match=words):
            look("inspect", path)


def test_among_several_paths_files_that_are_not_kafkas_are_skipped_with_a_line(
    look: Looker, ours: Path, tmp_path: Path
) -> None:
    notes = tmp_path / "notes.txt"
    notes.write_text("x")
    assert look("inspect", notes, ours / "meta.properties").status == 2
    assert look("inspect", notes, notes).status == 2
