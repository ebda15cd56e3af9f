"""Topics of a folder that need a codec whose library isn't installed here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from protocol.messages.topics import CreatableTopic, CreatableTopicConfig
from tests.support.submitting import ask_controller
from tests.support.whole_server import started


async def test_a_codec_that_is_missing_is_warned_of_once_at_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(tmp_path)
    zstd = CreatableTopicConfig(name="compression.type", value="zstd")
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, configs=[zstd])
        for name in ("a", "b")
    ]
    created: list[Any] = []
    ask_controller(node.controller, node.topics.create(topics), created.append, node.stop_on_failure)
    assert [type(result) for _, result in created[0]] == [bytes, bytes]
    assert caplog.records == []
    await node.stop()
    monkeypatch.setitem(sys.modules, "cramjam", None)
    await started(tmp_path)
    assert [record.getMessage() for record in caplog.records] == [
        "topic a: compression.type=zstd: it needs the package cramjam, which isn't installed: pip install "
        "'barnabas[compression]'; until then, this broker stores batches for such topics as they arrive"
    ]
