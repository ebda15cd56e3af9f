"""A request is refused if the records that it decides don't fit into one batch of the metadata log."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.controller import metadata_log
from broker.handlers import (
    alter_client_quotas,
    delete_topics,
)
from protocol.errors import Error
from tests.node.admin_requests import (
    GROUP,
    TIMEOUT_MS,
    TOPIC,
    add_replica,
    alter,
    ask,
    codes,
    create,
    elect,
    groups,
    grow,
    reassign,
)
from tests.support.leadership import take_leadership_away
from tests.support.whole_server import started


@pytest.mark.limit("broker.controller.metadata_log.MAX_BATCH_BYTES")
async def test_a_batch_too_large_in_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await started(tmp_path)
    before = node.metadata.next_offset
    monkeypatch.setattr(metadata_log, "MAX_BATCH_BYTES", 2000)
    assert create(node, ("a", 100), ("a/b", 1), ("b", 1), ("b", 1)) == [Error.UNKNOWN_SERVER_ERROR] * 4
    assert node.metadata.next_offset == before
    assert create(node, ("a", 1)) == [Error.NONE]

    assert grow(node, ("a", 100), ("a/b", 2), ("b", 1), ("b", 1)) == dict.fromkeys(
        ("a", "a/b", "b"), Error.UNKNOWN_SERVER_ERROR
    )
    assert node.metadata.next_offset == before + 2
    assert grow(node, ("a", 2)) == {"a": Error.NONE}


async def test_a_deletion_too_large_in_bytes_is_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    create(node, ("a", 1))
    monkeypatch.setattr(metadata_log, "MAX_BATCH_BYTES", 10)
    fields = {"topic_names": ["a", "nowhere", "b", "b"], "timeout_ms": TIMEOUT_MS}
    answered = ask(node, delete_topics, 20, 5, fields).responses
    assert [(topic.name, topic.error_message) for topic in answered] == [
        ("a", None),
        ("nowhere", None),
        ("b", None),
        ("b", None),
    ]
    assert codes(answered) == [Error.UNKNOWN_SERVER_ERROR] * 4
    assert "a" in node.metadata.image.topics
    monkeypatch.undo()


async def test_settings_too_long_in_all_are_refused_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    before = node.metadata.next_offset
    monkeypatch.setattr(metadata_log, "MAX_BATCH_BYTES", 2000)
    nowhere = (TOPIC, "nowhere", {"flush.ms": "1"})
    twice = (GROUP, "twice", {"consumer.session.timeout.ms": "50000"})
    answered = alter(node, *groups(100), nowhere, twice, twice)
    # Requests that the broker itself refuses never reach the controller.
    assert answered == [Error.UNKNOWN_SERVER_ERROR] * 101 + [Error.INVALID_REQUEST] * 2
    assert node.metadata.next_offset == before
    assert alter(node, *groups(1)) == [Error.NONE]


async def test_an_election_too_large_in_bytes_is_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    create(node, ("a", 1))
    create(node, ("b", 1))
    node.metadata.append(take_leadership_away(node.metadata.image, node.node_id, "a"))
    monkeypatch.setattr(metadata_log, "MAX_BATCH_BYTES", 10)
    refused = [Error.UNKNOWN_SERVER_ERROR]
    assert elect(node, "a", "b") == (Error.UNKNOWN_SERVER_ERROR, [("a", refused), ("b", refused)])
    monkeypatch.undo()
    assert elect(node, "a", "b") == (Error.NONE, [("a", [Error.NONE]), ("b", [Error.ELECTION_NOT_NEEDED])])


async def test_a_reassignment_too_large_in_bytes_is_refused_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    create(node, ("a", 1))
    add_replica(node, "a")
    monkeypatch.setattr(metadata_log, "MAX_BATCH_BYTES", 10)
    refused = [Error.UNKNOWN_SERVER_ERROR] * 2
    assert reassign(node, ("a", 0), ("a", 7)) == (Error.UNKNOWN_SERVER_ERROR, refused)
    monkeypatch.undo()
    assert reassign(node, ("a", 0), ("a", 7)) == (
        Error.NONE,
        [Error.NONE, Error.UNKNOWN_TOPIC_OR_PARTITION],
    )


async def test_quotas_too_long_in_all_are_refused_in_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await started(tmp_path)
    monkeypatch.setattr(metadata_log, "MAX_BATCH_BYTES", 2000)
    ops = [
        {"key": key, "value": 5.0, "remove": False} for key in ("producer_byte_rate", "consumer_byte_rate")
    ]
    names = ["u" * 2000, ""]
    fields = {
        "entries": [{"entity": [{"entity_type": "user", "entity_name": name}], "ops": ops} for name in names],
        "validate_only": False,
    }
    refused = ask(node, alter_client_quotas, 49, 1, fields).entries
    assert codes(refused) == [Error.UNKNOWN_SERVER_ERROR] * 2
    assert all(entry.error_message for entry in refused)
    assert not node.quotas.enforced
