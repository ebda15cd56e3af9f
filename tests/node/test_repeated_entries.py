"""Entries that a request repeats are answered again up to a bound, and cost only as much as the distinct ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.handlers import HANDLERS, describe_configs
from broker.network import pieces as repeats
from broker.network.pieces import MOST_REPEATED, Repeats, answered
from protocol.apis import APIS
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from protocol.messages.groups import (
    DescribeGroupsRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from protocol.messages.groups_consumer import ConsumerGroupDescribeRequest
from protocol.messages.groups_share import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    ShareGroupDescribeRequest,
)
from protocol.messages.groups_streams import StreamsGroupDescribeRequest
from protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
)
from protocol.wire.codec import encode
from protocol.wire.schema import Field, Message, Struct
from tests.node.transactional import Producer, ask, coordinating, create
from tests.support.straight import Straight
from tests.support.wire import Client, Outcome

TIMES = 2_000

Listed = Callable[[Any], list[Any]]

# the request, its version, and what is listed in its answer
REPEATED: dict[str, tuple[Message, int, Listed]] = {
    "configs": (
        DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)]
            * TIMES
        ),
        4,
        lambda answer: answer.results,
    ),
    "one partition's producers": (
        DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0] * TIMES)]),
        0,
        lambda answer: answer.topics[0].partitions,
    ),
    "one topic's producers": (
        DescribeProducersRequest(topics=[DescribeProducersTopic(name="t", partition_indexes=[0])] * TIMES),
        0,
        lambda answer: answer.topics,
    ),
    "classic groups": (DescribeGroupsRequest(groups=["g"] * TIMES), 5, lambda answer: answer.groups),
    "consumer groups": (
        ConsumerGroupDescribeRequest(group_ids=["g"] * TIMES),
        0,
        lambda answer: answer.groups,
    ),
    "share groups": (
        ShareGroupDescribeRequest(group_ids=["g"] * TIMES),
        1,
        lambda answer: answer.groups,
    ),
    "streams groups": (
        StreamsGroupDescribeRequest(group_ids=["g"] * TIMES),
        0,
        lambda answer: answer.groups,
    ),
    "all offsets of a share group": (
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)] * TIMES
        ),
        1,
        lambda answer: answer.groups,
    ),
    "transactions": (
        DescribeTransactionsRequest(transactional_ids=["tx"] * TIMES),
        0,
        lambda answer: answer.transaction_states,
    ),
    "all offsets of a group": (
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)] * TIMES),
        8,
        lambda answer: answer.groups,
    ),
    "one partition's offset": (
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id="g",
                    topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0] * TIMES)],
                )
            ]
        ),
        8,
        lambda answer: answer.groups[0].topics[0].partitions,
    ),
}


@pytest.mark.limit("broker.network.pieces.MOST_REPEATED")
@pytest.mark.parametrize("name", REPEATED)
async def test_an_entry_is_answered_again_a_few_times_and_not_as_often_as_it_is_named(
    name: str, tmp_path: Path
) -> None:
    node = await coordinating(tmp_path)
    Producer(node).begin().send()
    request, version, listed = REPEATED[name]

    with Client(Straight(node)) as client:
        answer = await client.answer(request, version)

    assert len(listed(answer)) == 1 + MOST_REPEATED


async def test_the_settings_of_a_topic_are_gathered_no_more_often_than_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await coordinating(tmp_path)
    gathered = []
    describe = describe_configs.describe_topic
    monkeypatch.setattr(
        describe_configs, "describe_topic", lambda *given: gathered.append(1) or describe(*given)
    )

    ask(node, REPEATED["configs"][0], 4)

    assert len(gathered) == 1 + MOST_REPEATED


def test_distinct_entries_are_all_answered_in_order() -> None:
    names = [str(number) for number in range(1000)]
    assert answered([*names, *names], str) == [*names, *names[:MOST_REPEATED]]


def test_a_request_that_names_little_is_not_examined() -> None:
    few = ["a"] * MOST_REPEATED
    assert answered(few, lambda _: pytest.fail("looked at")) is few


def test_the_repeats_of_all_lists_count_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MOST_REPEATED", 1)
    of_request = Repeats()
    assert of_request.admitted("ab", str) == ["a", "b"]
    assert of_request.admitted("abc", str) == ["a", "c"]


# --- every API that takes a list -----------------------------------------------------------------------------------

CHANGES_CONNECTION = {"SaslHandshake", "SaslAuthenticate"}

ANSWERED_BYTES_PER_ASKED = 30
"""The bound for an entry that is repeated. A refusal says a whole sentence, while the entry may have only a few
bytes."""


def of_many(message: type[Struct], version: int, times: int) -> Struct:
    """Return a message whose lists hold `times` equal entries each. Lists within them hold one."""
    return message(
        **{field.name: _value(field, version, times) for field in message.FIELDS if field.in_version(version)}
    )


def _value(field: Field, version: int, times: int) -> Any:
    kind = field.kind
    if kind == "array":
        element = field.element
        if isinstance(element, type):
            return [of_many(element, version, 1)] * times
        return [_SIMPLE.get(element, 0)] * times
    if kind == "struct":
        return None if field.nullable_in(version) else of_many(field.element, version, 1)
    if field.name == "resource_type":
        return 2
    if field.name in ("timeout_ms", "max_bytes", "partition_max_bytes"):
        return 1_000
    if field.tag >= 0:
        return field.default
    return _SIMPLE.get(kind, field.default)


_SIMPLE: dict[Any, Any] = {"string": "t", "uuid": bytes(16)}


def lists() -> Iterator[int]:
    """Yield the keys of the APIs that are served and take a list."""
    for key in HANDLERS:
        api = APIS[key]
        if api.name not in CHANGES_CONNECTION and any(field.kind == "array" for field in api.request.FIELDS):
            yield key


async def test_no_answer_grows_much_faster_than_the_list_that_is_asked_for(tmp_path: Path) -> None:
    node = await coordinating(tmp_path)
    grown = {}
    for key in lists():
        api = APIS[key]
        version = api.max_version
        sizes = []
        for times in (100, TIMES):
            if "t" not in node.metadata.image.topics:
                create(node, "t")
            request: Any = of_many(api.request, version, times)
            sizes.append((len(encode(request, version)), await _answered_bytes(node, request, version)))
        (few, answered_few), (many, answered_many) = sizes
        assert many > few
        grown[api.name] = (answered_many - answered_few) / (many - few)
    assert len(grown) > 40
    assert {name: by for name, by in grown.items() if by > ANSWERED_BYTES_PER_ASKED} == {}


async def _answered_bytes(node: Any, request: Any, version: int) -> int:
    with Client(Straight(node)) as client:
        client.send(request, version)
        for _ in range(1000):
            answer = client.receive_frame(within_s=0)
            if answer is Outcome.CLOSED:
                return 0
            if answer is not Outcome.SILENCE:
                return len(answer)
            await asyncio.sleep(0)
    return 0
