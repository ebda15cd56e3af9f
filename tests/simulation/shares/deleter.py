"""Deletes records now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protocol.errors import Error
from protocol.messages.offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.simulation.wire_client import WireClient
from tests.simulation.work import Place

LATEST_TIMESTAMP = -1


class Deleter:
    def __init__(self, client: WireClient, places: Sequence[Place]) -> None:
        self.client = client
        self.places = places
        self.deleted: dict[Place, int] = {}
        """Records below these offsets may be gone."""

    async def run(self, deletions: int) -> None:
        for _ in range(deletions):
            await asyncio.sleep(self.client.luck.expovariate(0.5))
            place = self.client.luck.choice(self.places)
            end = 0

            async def look(place: Place = place) -> Error:
                nonlocal end
                asked = ListOffsetsPartition(partition_index=place[1], timestamp=LATEST_TIMESTAMP)
                request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=place[0], partitions=[asked])])
                answer = (await self.client.ask(request, 7)).topics[0].partitions[0]
                end = answer.offset
                return Error(answer.error_code)

            if await self.client.insist(look) is not Error.NONE:
                continue
            offset = self.client.luck.choice((end, end, end // 2))
            self.deleted[place] = max(self.deleted.get(place, 0), offset)

            async def delete(place: Place = place, offset: int = offset) -> Error:
                asked = DeleteRecordsPartition(partition_index=place[1], offset=offset)
                request = DeleteRecordsRequest(
                    topics=[DeleteRecordsTopic(name=place[0], partitions=[asked])], timeout_ms=5_000
                )
                answer = await self.client.ask(request, 2)
                return Error(answer.topics[0].partitions[0].error_code)

            error = await self.client.insist(delete, 20)
            self.client.note(f"{place} is deleted below {offset}: {error!r}")
