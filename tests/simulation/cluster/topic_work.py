"""Topics that come and go. The next topic of the name, or the final check, would find what their replicas leave
behind."""

from __future__ import annotations

import asyncio

from protocol.errors import Error
from protocol.messages.topics import CreatePartitionsRequest, CreatePartitionsTopic, DeleteTopicsRequest
from tests.simulation.topics import create_topic
from tests.simulation.wire_client import NoAnswer, WireClient
from tests.simulation.work import Work

TIMEOUT_MS = 10_000


class TopicWork:
    def __init__(self, client: WireClient, work: Work, replication_factor: int) -> None:
        self.client = client
        self.work = work
        self.replication_factor = replication_factor
        self._may_vanish: set[str] = set()
        """Topics whose deletion got no answer. A broker may forward the request to the controller at any time, as
        Kafka's do, and delete whatever has the name by then."""

    async def run(self, topics: int) -> None:
        luck = self.client.luck
        for number in range(topics):
            await asyncio.sleep(luck.expovariate(1))
            # now and then another topic with the same name
            name = f"passing-{luck.choice((0, number))}"
            await create_topic(self.client, name, luck.randint(1, 2), {}, self.replication_factor)
            self.work.count("topics created")
            if luck.random() < 0.5:
                await self._must("grow", await self.client.insist(lambda name=name: self._grow(name)))  # type: ignore[misc]
            if luck.random() < 0.7:
                await asyncio.sleep(luck.expovariate(1))
                await self._must("delete", await self.client.insist(lambda name=name: self._delete(name)))  # type: ignore[misc]
                self.work.count("topics deleted")

    async def _must(self, what: str, error: Error | None) -> None:
        if error is not Error.NONE:
            self.work.complain(f"{self.client.name} can't {what}: {error!r}")

    async def _grow(self, name: str) -> Error:
        topic = CreatePartitionsTopic(name=name, count=4, assignments=None)
        answer = await self.client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS), 3)
        error = Error(answer.results[0].error_code)
        # at a second try it has them already
        is_expected = error is Error.INVALID_PARTITIONS or (
            error is Error.UNKNOWN_TOPIC_OR_PARTITION and name in self._may_vanish
        )
        return Error.NONE if is_expected else error

    async def _delete(self, name: str) -> Error:
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=TIMEOUT_MS)
        try:
            answer = await self.client.ask(request, 5)
        except NoAnswer:
            self._may_vanish.add(name)
            raise
        error = Error(answer.responses[0].error_code)
        # a second try may find that it is gone
        return Error.NONE if error is Error.UNKNOWN_TOPIC_OR_PARTITION else error
