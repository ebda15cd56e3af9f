"""If a client hangs up while its request is made ready in turns, nothing is decided for it any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.controller.controller import Controller
from broker.server import Server
from protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from protocol.messages.transactions import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from protocol.waiting import turn
from tests.node.admin_requests import create
from tests.node.transactional import Producer, coordinating
from tests.support.straight import Straight
from tests.support.wire import Client

NAMES = ["t", *(f"n{number}" for number in range(2_000))]
NAME, VALUE = "retention.ms", "1000"


def requests() -> dict[str, tuple[Any, int]]:
    """Return requests that take more than one turn to make ready, and what they ask of `t` can be done."""
    setting = IncrementalAlterableConfig(name=NAME, config_operation=0, value=VALUE)
    return {
        "DeleteTopics": (
            DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in NAMES], timeout_ms=1000),
            6,
        ),
        "CreatePartitions": (
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=name, count=2, assignments=None) for name in NAMES],
                timeout_ms=1000,
            ),
            3,
        ),
        "IncrementalAlterConfigs": (
            IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsResource(resource_type=2, resource_name=name, configs=[setting])
                    for name in NAMES
                ]
            ),
            1,
        ),
        "AlterConfigs": (
            AlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=2,
                        resource_name=name,
                        configs=[AlterableConfig(name=NAME, value=VALUE)],
                    )
                    for name in NAMES
                ]
            ),
            2,
        ),
    }


def state(node: Server) -> Any:
    topics = {name: len(topic.partitions) for name, topic in node.metadata.image.topics.items()}
    return topics, {name: dict(configs) for name, configs in node.metadata.image.configs.items()}


async def settle(node: Server) -> None:
    for _ in range(200):
        await asyncio.sleep(0)
    assert not node.turns._waiting


@pytest.mark.parametrize("name", requests())
async def test_work_prepared_for_a_client_that_hangs_up_is_dropped(node: Server, name: str) -> None:
    create(node, ("t", 1))
    before = state(node)
    request, version = requests()[name]
    client = Client(Straight(node))
    client.send(request, version)
    assert len(node.turns._waiting) == 1
    client._carrier._connection.connection_lost(None)  # type: ignore[attr-defined]
    assert not node.turns._waiting
    await settle(node)
    assert state(node) == before
    await Client(Straight(node)).answer(request, version)
    assert state(node) != before


@pytest.mark.parametrize("name", requests())
async def test_work_that_the_controller_has_begun_is_finished(
    node: Server, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(node, ("t", 1))
    before = state(node)
    request, version = requests()[name]
    client = Client(Straight(node))
    submit = Controller.submit
    begun: list[Any] = []

    def submitted(*given: Any, **more: Any) -> Any:
        begun.append(given)
        return submit(*given, **more)

    monkeypatch.setattr(Controller, "submit", submitted)
    client.send(request, version)
    while not begun:
        await asyncio.sleep(0)
    client._carrier._connection.connection_lost(None)  # type: ignore[attr-defined]
    await settle(node)
    assert state(node) != before


@pytest.mark.parametrize("name", requests())
async def test_an_error_of_ours_in_a_decision_is_logged_though_its_client_has_gone(
    node: Server, name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    create(node, ("t", 1))
    submit = Controller.submit
    begun: list[Any] = []

    def submitted(self: Controller, decide: Any, *more: Any) -> Any:
        async def stumbles(_image: Any) -> Any:
            await turn()
            raise KeyError("ours")

        begun.append(decide)
        return submit(self, stumbles, *more)

    monkeypatch.setattr(Controller, "submit", submitted)
    request, version = requests()[name]
    client = Client(Straight(node))
    client.send(request, version)
    while not begun:
        await asyncio.sleep(0)
    caplog.clear()
    client._carrier._connection.connection_lost(None)  # type: ignore[attr-defined]
    await settle(node)
    assert [record for record in caplog.records if record.exc_info and "ours" in str(record.exc_info[1])]


async def test_partitions_are_added_to_no_transaction_of_a_client_that_hung_up(tmp_path: Any) -> None:
    node = await coordinating(tmp_path)
    producer = Producer(node, version=1).begin()
    topics = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in NAMES]
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.epoch,
        v3_and_below_topics=topics,
    )
    client = Client(Straight(node))
    client.send(request, 3)
    assert len(node.turns._waiting) == 1
    client._carrier._connection.connection_lost(None)  # type: ignore[attr-defined]
    assert not node.turns._waiting
