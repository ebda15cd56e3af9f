"""The display of offsets, sizes and settings if a broker leaves some out or a topic is deleted meanwhile."""

from __future__ import annotations

import os
import pty
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from cli import configs, confirming, resetting
from cli.client import offsets, sizes
from cli.client.cluster import KafkaCluster
from cli.errors import CommandError
from cli.topics import summed
from protocol.errors import Error
from protocol.messages.cluster_admin import DescribeLogDirsResponse, DescribeLogDirsResult
from protocol.messages.configs import DescribeConfigsResourceResult, DescribeConfigsSynonym
from protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

NOWHERE = cast(KafkaCluster, None)
THERE = MetadataResponseTopic(name="there", partitions=[MetadataResponsePartition(leader_id=1)])
GONE = MetadataResponseTopic(name="gone", error_code=Error.UNKNOWN_TOPIC_OR_PARTITION)


def test_records_added_between_two_questions_are_neither_open_nor_below_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = iter([10, 15])
    monkeypatch.setattr(offsets, "list_offsets", lambda *_: {("t", 0): next(log)})
    stable, ends = offsets.stable_and_ends(NOWHERE, [("t", 0)])
    assert (stable, ends) == ({("t", 0): 15}, {("t", 0): 15})


def test_a_sum_is_unknown_if_a_broker_leaves_out_a_part() -> None:
    topic = MetadataResponseTopic(name="t")
    whole = ["t", 0, 1, [1], [1], 2, 9, 8, 100]
    assert summed(topic, [whole, whole]) == ["t", 2, 1, 14, 2, 200]
    assert summed(topic, [whole, [*whole[:7], None, None]]) == ["t", 2, 1, None, None, None]


def test_an_inaccessible_disk_has_no_size() -> None:
    refused = DescribeLogDirsResult(error_code=Error.KAFKA_STORAGE_ERROR, log_dir="/d")
    asked = SimpleNamespace(ask=lambda *_: DescribeLogDirsResponse(results=[refused]))
    assert sizes.sizes_of_leaders(cast(KafkaCluster, asked), {("t", 0): 1}) == {}


def test_a_topic_deleted_meanwhile_is_left_out_unless_it_was_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = KafkaCluster({})
    monkeypatch.setattr(cluster, "metadata", lambda _=None: MetadataResponse(topics=[THERE, GONE]))
    assert cluster.topics() == [THERE]
    with pytest.raises(CommandError, match="topic gone: there is no such topic"):
        cluster.topics(["there", "gone"])
    answered: Callable[..., object] = lambda *_: {("there", 0): (0, 7)}  # noqa: E731
    monkeypatch.setattr(offsets, "_of_node", answered)
    wanted = {("there", 0): offsets.EARLIEST, ("gone", 0): offsets.EARLIEST}
    assert offsets.list_offsets(cluster, wanted) == {("there", 0): 7}
    assert offsets.that_are_there(cluster, wanted) == [("there", 0)]


def test_the_value_without_a_setting_shows_no_secret_and_no_none() -> None:
    setting = DescribeConfigsResourceResult(
        name="s",
        config_source=1,
        is_sensitive=True,
        synonyms=[DescribeConfigsSynonym(name="s", value="hidden", source=5)],
    )
    assert configs._else(setting) == "(secret) (Kafka's default, s)"
    setting.is_sensitive = False
    setting.synonyms[0].value = None
    assert configs._else(setting) == " (Kafka's default, s)"


@pytest.mark.parametrize(("answer", "is_done"), [("y\n", True), ("n\n", False)])
def test_a_script_may_act_unasked_where_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, answer: str, is_done: bool
) -> None:
    here, there = pty.openpty()
    os.write(here, answer.encode())
    with os.fdopen(there) as terminal, open(os.devnull) as script:
        monkeypatch.setattr("sys.stdin", script)
        confirming.confirm_at_terminal("Delete?", yes=False)
        monkeypatch.setattr("sys.stdin", terminal)
        confirming.confirm_at_terminal("Delete?", yes=True)
        if is_done:
            confirming.confirm_at_terminal("Delete?", yes=False)
        else:
            with pytest.raises(CommandError, match="nothing was done"):
                confirming.confirm_at_terminal("Delete?", yes=False)
    os.close(here)


def test_all_topics_of_a_group_are_those_that_still_exist(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = KafkaCluster({})
    monkeypatch.setattr(cluster, "metadata", lambda _=None: MetadataResponse(topics=[THERE, GONE]))
    before = {("there", 0): 1, ("gone", 0): 2}
    assert resetting._partitions(cluster, "g", [], before, all_topics=True) == [("there", 0)]
    assert "gone: the topic is gone" in capsys.readouterr().err
    with pytest.raises(CommandError, match="only of topics that are gone"):
        resetting._partitions(cluster, "g", [], {("gone", 0): 2}, all_topics=True)
