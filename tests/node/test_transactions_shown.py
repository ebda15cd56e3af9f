"""ListTransactions and DescribeTransactions: what they show of a node's transactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from broker.server import Server
from protocol.errors import Error
from protocol.messages.transactions import (
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from tests.node.transactional import (
    Producer,
    ask,
    coordinating,
)
from tests.support.whole_server import clock_of


def listed(node: Server, version: int = 2, **filters: Any) -> set[str]:
    answer = ask(node, ListTransactionsRequest(**filters), version)
    assert answer.error_code == Error.NONE
    return {each.transactional_id for each in answer.transaction_states}


async def test_transactions_are_listed_by_state_producer_age_and_name(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    idle, busy = Producer(node, "idle-1").begin(), Producer(node, "busy-2").begin()
    busy.send()
    clock_of(node).advance_ms(1_000)
    late = Producer(node, "late-3").begin()
    late.send()

    assert listed(node) == {"idle-1", "busy-2", "late-3"}
    assert listed(node, state_filters=["Ongoing"]) == {"busy-2", "late-3"}
    assert listed(node, producer_id_filters=[idle.producer_id]) == {"idle-1"}
    assert listed(node, duration_filter=500) == {"idle-1", "busy-2"}
    assert listed(node, transactional_id_pattern=r"\w+-[12]") == {"idle-1", "busy-2"}
    assert listed(node, transactional_id_pattern="busy") == set(), "all of it has to match"
    assert listed(node, transactional_id_pattern="") == {"idle-1", "busy-2", "late-3"}


async def test_unknown_states_are_reported_as_unknown(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    Producer(node).begin()

    answer = ask(node, ListTransactionsRequest(state_filters=["ongoing", "Empty", "Dead"]), 2)

    assert answer.unknown_state_filters == ["ongoing"]
    assert [each.transaction_state for each in answer.transaction_states] == ["Empty"]


async def test_an_invalid_pattern_is_refused(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)

    answer = ask(node, ListTransactionsRequest(transactional_id_pattern="("), 2)

    assert answer.error_code == Error.INVALID_REGULAR_EXPRESSION


async def test_a_transaction_is_described_with_its_partitions(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node).begin()
    producer.send(index=1)
    producer.send(index=0)

    answer = ask(node, DescribeTransactionsRequest(transactional_ids=["tx", "unknown", ""]), 0)

    known, unknown, nameless = answer.transaction_states
    assert (known.transaction_state, known.producer_id, known.producer_epoch) == (
        "Ongoing",
        producer.producer_id,
        producer.epoch,
    )
    assert (known.transaction_timeout_ms, known.transaction_start_time_ms) == (60_000, node.clock.now_ms())
    assert [(topic.topic, topic.partitions) for topic in known.topics] == [("t", [1, 0])]
    assert (unknown.error_code, unknown.transaction_state) == (Error.TRANSACTIONAL_ID_NOT_FOUND, "")
    assert nameless.error_code == Error.INVALID_REQUEST
