"""Requests with long lists are handled in pieces: the answer is the same, and others are served in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.network import dispatch
from broker.network.pieces import ENTRY_LISTS, MOST_OF_PIECE, MOST_REPEATED, EntryList
from broker.network.turns import Turns
from broker.server import Server
from protocol.apis import APIS
from protocol.messages.metadata import MetadataRequest
from tests.node.admin_requests import create
from tests.support.large_requests import large_requests
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome

NAMED = {api.name: api for api in APIS.values()}
ENTRIES = 2 * MOST_OF_PIECE + 50
LARGE = {str(large): large for large in large_requests(ENTRIES)}


def lists() -> list[Any]:
    return [
        pytest.param(large, id=name)
        for name, large in LARGE.items()
        if (entries := ENTRY_LISTS.get(APIS[large.message.API_KEY].name)) is not None
        and "repeated" not in large.path
        and large.path in (entries.asked, f"{entries.asked}.{entries.inner_asked}")
    ]


def told(answer: Any, entries: EntryList) -> list[str]:
    """Return each entry of the answer by itself, sorted, because the order differs if some are refused."""
    inner = entries.inner_answered
    return sorted(
        repr((*(getattr(entry, name) for name in entries.names), each))
        for entry in getattr(answer, entries.answered)
        for each in (getattr(entry, inner) if inner else [entry])
    )


@pytest.fixture(autouse=True)
def _lists_of_few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "LIST_BYTES", 0)


def test_each_list_exists_in_the_request_and_in_the_answer() -> None:
    for name, entries in ENTRY_LISTS.items():
        api = NAMED[name]
        asked = {field.name: field for field in api.request.FIELDS}[entries.asked]
        told = {field.name: field for field in api.response.FIELDS}[entries.answered]
        if entries.inner_asked:
            assert isinstance(asked.element, type)
            assert isinstance(told.element, type)
            assert entries.inner_asked in {field.name for field in asked.element.FIELDS}
            assert {entries.inner_answered, *entries.names} <= {field.name for field in told.element.FIELDS}


@pytest.mark.limit("broker.network.pieces.MOST_OF_PIECE")
@pytest.mark.parametrize("large", lists())
async def test_in_pieces_the_answer_is_the_same(
    node: Server, large: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(node, *((str(number), 3) for number in range(5)))
    client = Client(Straight(node))
    # the first request creates the coordinators' topics
    await client.answer(large.message, large.version)
    in_pieces = await client.answer(large.message, large.version)
    monkeypatch.setattr(dispatch, "LIST_BYTES", 1 << 30)
    whole = await client.answer(large.message, large.version)
    entries = ENTRY_LISTS[APIS[large.message.API_KEY].name]
    assert told(in_pieces, entries) == told(whole, entries)


async def test_others_are_served_between_pieces(node: Server) -> None:
    large = LARGE["FindCoordinatorRequest v6 coordinator_keys"]
    long, other = Client(Straight(node)), Client(Straight(node))
    await long.answer(large.message, large.version)
    sent = long.send(large.message, large.version)
    served = 0
    while (answer := long.receive(sent, within_s=0)) is Outcome.SILENCE:
        await other.answer(MetadataRequest(topics=[]), 12)
        await asyncio.sleep(0)
        served += 1
    assert not isinstance(answer, Outcome)
    assert served >= 2
    assert [each.key for each in answer.message.coordinators] == [str(number) for number in range(ENTRIES)]


async def test_repeated_entries_are_counted_over_all_pieces(node: Server) -> None:
    create(node, ("0", 1))
    for path in (
        "DescribeConfigsRequest v4 resources",
        "DescribeProducersRequest v0 topics.partition_indexes",
    ):
        large = LARGE[f"{path} repeated"]
        answer = await Client(Straight(node)).answer(large.message, large.version)
        found = answer.results if "Configs" in path else answer.topics[0].partitions
        assert len(found) == 1 + MOST_REPEATED


async def test_a_request_goes_on_after_a_hangup_only_if_it_changes_something(node: Server) -> None:
    turns: Turns = node.turns
    for name, goes_on in (
        ("ListOffsetsRequest v11 topics", False),
        ("WriteTxnMarkersRequest v2 markers", True),
    ):
        large = LARGE[name]
        client = Client(Straight(node))
        client.send(large.message, large.version)
        assert len(turns._waiting) == 1
        client._carrier._connection.connection_lost(None)  # type: ignore[attr-defined]
        assert len(turns._waiting) == int(goes_on)
