"""Groups' offsets over the wire, and clients outside of any group that commit and read them."""

from __future__ import annotations

import asyncio

from protocol.errors import Error
from protocol.messages.groups import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from tests.simulation.commits import Commit
from tests.simulation.producers import NOBODY, TRIES
from tests.simulation.wire_client import NOT_YET, NoAnswer, WireClient
from tests.simulation.work import Place, Work

REFUSED = frozenset(
    {
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.FENCED_INSTANCE_ID,
        Error.GROUP_ID_NOT_FOUND,
        Error.ILLEGAL_GENERATION,
        Error.REBALANCE_IN_PROGRESS,
        Error.STALE_MEMBER_EPOCH,
        Error.UNKNOWN_MEMBER_ID,
    }
)
"""After these errors nothing was written."""


async def commit_offset(
    client: WireClient,
    group: str,
    place: Place,
    commit: Commit,
    member: tuple[str, int, str | None] = NOBODY,
) -> Error:
    """Commit an offset. `member`: its id, epoch and instance id. `commit` records what becomes of it. Raises NoAnswer
    once the request can't arrive any more."""
    topic, index = place
    member_id, epoch, instance_id = member
    partition = OffsetCommitRequestPartition(
        partition_index=index, committed_offset=commit.offset, committed_metadata=commit.tag
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    try:
        answer = await client.ask(request, 9)
    except NoAnswer:
        await client.wait_out()
        raise
    error = Error(answer.topics[0].partitions[0].error_code)
    if error is Error.NONE:
        commit.in_force(client.now_s())
    elif error in REFUSED:
        commit.is_refused = True
    return error


async def fetch_offset(
    client: WireClient, work: Work, group: str, place: Place, member: tuple[str | None, int] = (None, -1)
) -> tuple[Error, int, str]:
    """Return the committed offset and its tag, after comparing it with everything known about the group's commits.
    `member`: its id and epoch. Raises NoAnswer."""
    topic, index = place
    asked = OffsetFetchRequestGroup(
        group_id=group,
        member_id=member[0],
        member_epoch=member[1],
        topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[index])],
    )
    began_s = client.now_s()
    answer = (await client.ask(OffsetFetchRequest(groups=[asked], require_stable=True), 9)).groups[0]
    if answer.error_code:
        return Error(answer.error_code), -1, ""
    (partition,) = answer.topics[0].partitions
    if partition.error_code:
        return Error(partition.error_code), -1, ""
    offset, tag = partition.committed_offset, partition.metadata or ""
    complaint = work.commits_of(group, place).complaint(
        offset, tag, began_s, client.now_s(), may_lose=work.may_lose, may_be_old=client.asked_in is None
    )
    if complaint is not None:
        work.complain(f"{group}, {place} at {client.now_s():.6f}: {complaint}")
    work.count("offsets fetched")
    return Error.NONE, offset, tag


class Committer:
    """Commits offsets of a group without members, each larger than the last."""

    def __init__(self, client: WireClient, work: Work, place: Place, group: str) -> None:
        self.client = client
        self.work = work
        self.place = place
        self.group = group

    async def run(self, commits: int) -> None:
        for offset in range(1, commits + 1):
            await asyncio.sleep(self.client.luck.expovariate(3))
            error = await self.client.insist(lambda offset=offset: self._commit(offset), TRIES)  # type: ignore[misc]
            if error is Error.NONE:
                self.work.count("commits")
            elif error is not None and not (self.work.is_refused_now_and_then and error in NOT_YET):
                self.work.complain(f"{self.client.name} may not commit: {error!r}")

    async def _commit(self, offset: int) -> Error:
        commits = self.work.commits_of(self.group, self.place)
        commit = commits.begin(offset, self.client.now_s(), self.client.name)
        return await commit_offset(self.client, self.group, self.place, commit)


class OffsetReader:
    """Now and then reads what anybody has committed."""

    def __init__(self, client: WireClient, work: Work) -> None:
        self.client = client
        self.work = work

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self.client.luck.expovariate(3))
            known = [*self.work.commits]
            if not known:
                continue
            group, place = self.client.luck.choice(known)
            try:
                await fetch_offset(self.client, self.work, group, place)
            except NoAnswer:
                continue
