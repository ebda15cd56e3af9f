"""Errors whose text quotes what a client sent, which may be as long as a string can be."""

from __future__ import annotations

from pathlib import Path

import pytest

from protocol.errors import MOST_MESSAGE_CHARACTERS, Error, KafkaError
from protocol.messages.configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from protocol.messages.groups_consumer import ConsumerGroupHeartbeatRequest
from tests.node.transactional import coordinating
from tests.support.straight import Straight
from tests.support.wire import Client

BROKER = 4


@pytest.mark.limit("protocol.errors.MOST_MESSAGE_CHARACTERS")
def test_a_text_is_cut_where_it_is_too_long_and_left_as_it_is_where_it_fits() -> None:
    fits = "x" * MOST_MESSAGE_CHARACTERS
    assert KafkaError(Error.INVALID_CONFIG, fits).message is fits
    cut = KafkaError(Error.INVALID_CONFIG, "\U0001f600" * 30_000).message
    assert cut is not None
    assert len(cut) == MOST_MESSAGE_CHARACTERS
    assert len(cut.encode()) < 32_767
    assert cut.endswith("\U0001f600…")


async def test_an_error_that_quotes_a_long_text_is_answered(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    setting = IncrementalAlterableConfig(name="principal.builder.class", value="9," * 16_000)
    resource = IncrementalAlterConfigsResource(resource_type=BROKER, resource_name="", configs=[setting])
    heartbeat = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_regex="(" + "a" * 32_700,
        topic_partitions=[],
    )
    with Client(Straight(node)) as client:
        altered = await client.answer(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        [response] = altered.responses
        assert response.error_code == Error.INVALID_REQUEST
        assert len(response.error_message) == MOST_MESSAGE_CHARACTERS
        beaten = await client.answer(heartbeat, 1)
        assert beaten.error_code == Error.INVALID_REGULAR_EXPRESSION
        assert len(beaten.error_message) == MOST_MESSAGE_CHARACTERS
