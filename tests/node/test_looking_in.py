"""A test can look into a broker without a client. It sees pages of a bounded size."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.process import looking_in
from broker.process.looking_in import LOOKING_IN
from broker.process.questions import QuestionError
from broker.server import Server
from protocol.waiting import at_once
from tests.node.transactional import Producer, coordinating, create


def asked(node: Server, name: str, **question: object) -> Any:
    return at_once(LOOKING_IN[name](node, question))


def all_pages(node: Server, name: str, place: str) -> list[list[Any]]:
    pages: list[list[Any]] = []
    after: dict[str, object] = {}
    while page := asked(node, name, **after):
        pages.append(page)
        after = {"after": page[-1][place]}
    return pages


async def test_an_open_transaction_is_decided_by_the_marker_that_comes(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    committed, aborted = Producer(node, "c").begin(), Producer(node, "a").begin()
    committed.send()
    aborted.send()

    def outcomes(**how: object) -> list[tuple[object, ...]]:
        found = asked(node, "records", topic="t", partition=0, **how)["records"]
        return [(each["kind"], each["transactional_id"], each["outcome"], each["marker"]) for each in found]

    assert outcomes() == []
    both = {"committed": False, "markers": True}
    assert outcomes(**both) == [("record", "c", "open", None), ("record", "a", "open", None)]
    committed.end(commit=True)
    assert outcomes() == [("record", "c", "committed", 2)]
    assert outcomes(**both)[1] == ("record", "a", "open", None)
    aborted.end(commit=False)
    assert outcomes(**both) == [
        ("record", "c", "committed", 2),
        ("record", "a", "aborted", 3),
        ("commit", "c", None, None),
        ("abort", "a", None, None),
    ]
    assert outcomes() == [("record", "c", "committed", 2)]


async def test_a_page_that_begins_inside_a_transaction_knows_that_it_was_aborted(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, "a").begin()
    producer.send()
    producer.send()
    producer.end(commit=False)
    page = asked(node, "records", topic="t", partition=0, offset=1, most=1, committed=False)
    assert [(each["offset"], each["outcome"]) for each in page["records"]] == [(1, "aborted")]
    assert asked(node, "records", topic="t", partition=0, offset=1)["records"] == []


@pytest.mark.limit("broker.process.looking_in.MOST_RECORDS_TOLD")
async def test_records_come_in_pages_that_go_on_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking_in, "MOST_RECORDS_TOLD", 2)
    node = await coordinating(tmp_path)
    producer = Producer(node, "c").begin()
    for _ in range(5):
        producer.send()
    producer.end(commit=True)
    pages = []
    at = 0
    while True:
        page = asked(node, "records", topic="t", partition=0, offset=at)
        pages.append([each["offset"] for each in page["records"]])
        at = page["next"]
        if at == page["end"]:
            break
    assert pages == [[0, 1], [2, 3], [4]]
    with pytest.raises(QuestionError, match="a number from 0 to 2"):
        asked(node, "records", topic="t", partition=0, most=3)


@pytest.mark.limit("broker.process.looking_in.MOST_ENTRIES_TOLD")
async def test_transactions_come_in_pages_whether_open_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looking_in, "MOST_ENTRIES_TOLD", 2)
    node = await coordinating(tmp_path)
    for name in ("c", "a", "b"):
        Producer(node, name).begin().send()
    pages = all_pages(node, "transactions", "transactional_id")
    assert [[each["transactional_id"] for each in page] for page in pages] == [["a", "b"], ["c"]]
    first = asked(node, "open_transactions")
    assert [each["transactional_id"] for each in first] == ["c", "a"]
    place = [first[-1][each] for each in ("topic", "partition", "producer_id")]
    assert [each["transactional_id"] for each in asked(node, "open_transactions", after=place)] == ["b"]


@pytest.mark.limit("broker.process.looking_in.MOST_MEMBERS_TOLD")
def test_only_some_members_of_a_group_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looking_in, "MOST_MEMBERS_TOLD", 2)
    members = {
        name: SimpleNamespace(member_id=name, instance_id=None, client_id="c", client_host="h")
        for name in "abc"
    }
    listed = SimpleNamespace(group_type="classic", group_state="Stable")
    group: Any = SimpleNamespace(group_id="g", member_count=3, members=members, listed=lambda: listed)
    told = looking_in._group(group)
    assert [each["member"] for each in told["members"]] == ["a", "b"]
    assert told["member_count"] == 3


async def test_questions_about_partitions_led_elsewhere_or_nonsense_are_refused(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    create(node, "other")
    with pytest.raises(QuestionError, match=r"^UNKNOWN_TOPIC_OR_PARTITION: none-0 isn't led here"):
        asked(node, "records", topic="none", partition=0)
    with pytest.raises(QuestionError, match="it has to be a text"):
        asked(node, "records", topic=7)
    with pytest.raises(QuestionError, match="there is no group g"):
        asked(node, "lag", group="g")
    with pytest.raises(QuestionError, match=r"a topic has partitions, replication, configs, not replicas"):
        asked(node, "create_topics", topics={"x": {"replicas": 3}})
