"""Topics that the environment asks for are created at the start. If their brokers come later, the start waits."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from broker.config.given_settings import FirstTopic
from broker.process.first_topics import MOST_TIMES_ASKED, RETRY_S, create_first_topics
from broker.process.log_stream import LineFormatter
from protocol.errors import BrokenInvariantError, Error, KafkaError
from protocol.waiting import Later
from tests.support.submitting import drive
from tests.support.whole_server import started


async def test_topics_are_made_as_written_and_existing_ones_stay(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node = await started(tmp_path)
    for partitions in (3, 5):
        tried = asyncio.Event()
        topics = [FirstTopic("orders", partitions, 1, "compact"), FirstTopic("bad/name", 1, 1, None)]
        await create_first_topics(node, [*topics, FirstTopic("wide", 1, 3, None)], tried)
        assert tried.is_set()
    image = node.metadata.image
    assert [*image.topics] == ["orders"]
    assert len(image.topics["orders"].partitions) == 3
    assert node.partitions.get("orders", 0).log.config.cleanup_policy == {"compact"}
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert [line.partition("created: ")[0] for line in errors] == [
        "KAFKA_CREATE_TOPICS: topic bad/name can't be ",
        "KAFKA_CREATE_TOPICS: topic wide can't be ",
    ] * 2


class OfCluster:
    """A broker whose controller gives these answers in turn, and then repeats the last one."""

    def __init__(self, *answers: KafkaError | bytes) -> None:
        self.answers = [*answers]
        self.asked = 0
        self.slept: list[float] = []
        self.config = SimpleNamespace(joins=True, controller_listeners=())
        self.topics = SimpleNamespace(create_automatically=self._create)
        self.controller = SimpleNamespace(begin=drive)
        self.failures: list[BaseException] = []
        self.stop_on_failure = self.failures.append
        self.tried = asyncio.Event()

    async def _create(self, wanted: Any) -> Any:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [(topic, answer) for topic in wanted]

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    async def make(self) -> None:
        server: Any = self
        await create_first_topics(server, [FirstTopic("orders", 1, 3, None)], self.tried, self.sleep)


async def test_brokers_that_come_later_are_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    too_few = KafkaError(Error.INVALID_REPLICATION_FACTOR, "two brokers")
    cluster = OfCluster(too_few, KafkaError(Error.NOT_CONTROLLER), bytes(16))
    await cluster.make()
    assert cluster.slept == [RETRY_S] * 2
    assert [record.getMessage().partition(": topic ")[0] for record in caplog.records] == [
        "KAFKA_CREATE_TOPICS",
        "KAFKA_CREATE_TOPICS: created topic orders",
    ]


@pytest.mark.limit("broker.process.first_topics.MOST_TIMES_ASKED")
async def test_brokers_that_never_come_are_given_up(caplog: pytest.LogCaptureFixture) -> None:
    cluster = OfCluster(KafkaError(Error.INVALID_REPLICATION_FACTOR, "two brokers"))
    await cluster.make()
    assert cluster.asked == MOST_TIMES_ASKED
    assert caplog.records[-1].getMessage() == (
        "KAFKA_CREATE_TOPICS: topic orders can't be created: INVALID_REPLICATION_FACTOR: two brokers"
    )


@pytest.mark.parametrize("when", ["at once", "later"])
@pytest.mark.parametrize(
    ("error", "stops"),
    [(MemoryError(), False), (OSError("disk"), False), (BrokenInvariantError("two of one"), True)],
)
async def test_an_error_of_ours_is_reported_in_one_line_and_delays_nobody(
    caplog: pytest.LogCaptureFixture, when: str, error: Exception, stops: bool
) -> None:
    class Failing(OfCluster):
        async def _create(self, wanted: Any) -> Any:
            if when == "at once":
                raise error
            later: Later[Any] = Later()
            asyncio.get_running_loop().call_soon(later.fail, error)
            return await later

    cluster = Failing()
    await cluster.make()
    assert cluster.tried.is_set()
    (record,) = caplog.records
    line = LineFormatter().format(record)
    assert line.endswith(f"KAFKA_CREATE_TOPICS: the topics can't be created: {str(error) or 'MemoryError'}")
    assert cluster.failures == [error] * stops
