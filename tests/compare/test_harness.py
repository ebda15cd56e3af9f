"""Tests of the comparison itself: masks hide no more than they say, and differences are found."""

from __future__ import annotations

from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from . import recordings
from .batches import GZIP, batch, describe, record
from .diff import differences
from .known_differences import DIFFERENCES, FAULTS, expected_of_barnabas
from .mask_actions import Names
from .masking import ALL_MASKS, masked
from .on_cluster import LEFT_OUT
from .play import load_scripts
from .replica_records import log_bytes

A_ID, ANOTHER_ID, ZERO_ID = "aa" * 16, "bb" * 16, "00" * 16
START_MS = 1_700_000_000_000


def fresh() -> Names:
    return Names(port=4711, topic_prefix="ours-", start_ms=START_MS)


def topics(*ids: str) -> dict[str, Any]:
    return {
        "topics": [
            {"name": f"t{i}", "topic_id": topic_id, "error_code": "0 NONE"} for i, topic_id in enumerate(ids)
        ]
    }


def test_a_random_id_has_one_name_wherever_it_turns_up() -> None:
    once = masked("CreateTopics", topics(A_ID, ANOTHER_ID, A_ID), fresh(), "s")
    assert once == masked("CreateTopics", topics(ANOTHER_ID, A_ID, ANOTHER_ID), fresh(), "s")
    assert once != masked("CreateTopics", topics(A_ID, ANOTHER_ID, ANOTHER_ID), fresh(), "s")


def test_the_zero_id_keeps_its_value() -> None:
    assert masked("CreateTopics", topics(ZERO_ID), fresh(), "s") == topics(ZERO_ID)


def test_an_error_message_is_any_text_but_neither_null_nor_empty() -> None:
    given = {"results": [{"error_message": text} for text in ("a", "b", None, "")]}
    shown = masked("CreatePartitions", {"x": given}, fresh(), "s")["x"]["results"]
    assert [entry["error_message"] for entry in shown] == ["<text>", "<text>", None, ""]


def test_lists_in_a_free_order_are_named_after_they_are_put_in_order() -> None:
    one = {"responses": [{"name": "b", "topic_id": A_ID}, {"name": "a", "topic_id": ANOTHER_ID}]}
    other = {"responses": [{"name": "a", "topic_id": A_ID}, {"name": "b", "topic_id": ANOTHER_ID}]}
    assert masked("DeleteTopics", one, fresh(), "s") == masked("DeleteTopics", other, fresh(), "s")


def test_a_known_topic_may_not_follow_an_unknown_one() -> None:
    known, unknown = {"name": "ours-a", "error_code": "0 NONE"}, {"name": "x", "error_code": "3 UNKNOWN"}
    right = masked("Metadata", {"topics": [known, unknown]}, fresh(), "s")
    assert right != masked("Metadata", {"topics": [unknown, known]}, fresh(), "s")


def test_topics_of_other_scripts_are_left_out() -> None:
    listed = [{"name": name, "error_code": "0 NONE"} for name in ("ours-a", "theirs-a")]
    assert [t["name"] for t in masked("Metadata", {"topics": listed}, fresh(), "s")["topics"]] == ["ours-a"]


def test_times_of_the_script_are_distinguished_from_times_of_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.compare.mask_actions.time", SimpleNamespace(time=lambda: START_MS / 1000))
    given = {
        f"t{i}": {"timestamp": at} for i, at in enumerate((START_MS, START_MS + 60_000, START_MS + 37, -1, 5))
    }
    shown = masked("ListOffsets", given, fresh(), "s")
    assert [entry["timestamp"] for entry in shown.values()] == [
        "<start +0 min>",
        "<start +1 min>",
        "<now>",
        -1,
        5,
    ]


def test_differences_name_the_case_and_the_field() -> None:
    theirs = [{"case": "a", "answer": {"x": [{"y": 1}, {"y": 2}]}}, {"case": "b", "outcome": "closed"}]
    ours = [{"case": "a", "answer": {"x": [{"y": 1}, {"y": 3}]}}, {"case": "c", "outcome": "closed"}]
    first, second, third = differences(theirs, ours)
    assert "answer.x[1].y" in first
    assert second.startswith("  b")
    assert third.startswith("  c")


def test_equal_transcripts_have_no_differences() -> None:
    transcript = [{"case": "a", "answer": {"x": [1, None, ""]}}]
    assert not differences(transcript, [{"case": "a", "answer": {"x": [1, None, ""]}}])
    assert differences(transcript, [{"case": "a", "answer": {"x": [1, "", None]}}])


def test_batches_are_read_back_as_they_were_made() -> None:
    made = batch(
        [record(b"one"), record(b"two", offset_delta=1)], base_offset=7, codec=GZIP, producer_id=5, crc=1
    )
    whole, torn = describe(made + made[:40])
    assert (whole["base_offset"], whole["count"], whole["producer_id"], whole["crc"]) == (7, 2, 5, "wrong")
    assert whole["records"] == (record(b"one") + record(b"two", offset_delta=1)).hex()
    assert torn == {"torn_bytes": 40}


def test_every_mask_and_every_difference_says_why() -> None:
    assert all(entry.reason for entry in (*ALL_MASKS, *DIFFERENCES, *FAULTS))


@pytest.mark.parametrize(
    "difference", DIFFERENCES, ids=lambda difference: f"{difference.script}: {difference.case}"
)
def test_kafka_answers_differently_for_each_listed_difference(difference: Any) -> None:
    recorded = recordings.read(difference.script)
    assert recorded is not None
    assert difference.case in {entry["case"] for entry in recorded}
    assert differences(recorded, expected_of_barnabas(difference.script, recorded))


def test_every_recording_belongs_to_a_script() -> None:
    families = {script.key.rpartition("/")[0] for script in load_scripts().values()}
    assert recordings.recorded_families() == families


def test_no_script_mistakes_anothers_topics_for_its_own() -> None:
    scripts = [script for script in load_scripts().values() if not script.is_for_one_on_cluster]
    prefixes = sorted(script.prefix for script in scripts)
    begun_alike = [pair for pair in pairwise(prefixes) if pair[1].startswith(pair[0])]
    assert not begun_alike


@pytest.mark.parametrize("pattern", LEFT_OUT)
def test_each_script_left_out_of_clusters_exists_and_has_a_reason(pattern: str) -> None:
    assert LEFT_OUT[pattern]
    assert any(fnmatchcase(name, pattern) for name in load_scripts())


def test_the_bytes_of_a_replica_do_not_tell_where_its_segments_begin(tmp_path: Path) -> None:
    first, second = batch(2), batch(1, base_offset=2)
    for name, segments in {"one": [first + second], "two": [first + bytes(100), second]}.items():
        folder = tmp_path / name
        folder.mkdir()
        for base_offset, segment in enumerate(segments):
            (folder / f"{2 * base_offset:020}.log").write_bytes(segment)
        assert log_bytes(folder) == first + second
