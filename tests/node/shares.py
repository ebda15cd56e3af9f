"""A node whose share partitions keep their durable state in memory, with short functions for what share consumers
ask."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from broker.handlers import share_acknowledge, share_fetch
from broker.network.dispatch import with_ports
from broker.server import Server
from broker.shares.share_partition_manager import SharePartitionManager, share_settings
from protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)
from protocol.messages.topics import CreatableTopic
from protocol.waiting import Later
from protocol.wire.codec import encoder
from tests.support.partition_logs import append, batch
from tests.support.share_persister import MemoryPersisters
from tests.support.topics import topics_of
from tests.support.whole_server import clock_of, started, take_turns

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP = "g"


class Shares:
    """The share partitions of topic `t`, which has two partitions, on a node. `overrides` has the group's settings."""

    def __init__(self, node: Server, most_sessions: int = 10) -> None:
        self.node = node
        self.overrides: dict[str, str] = {"share.auto.offset.reset": "earliest"}
        self.persisters = MemoryPersisters()
        self.shares = SharePartitionManager(
            node.partitions,
            self.persisters,
            node.timers,
            node.clock,
            lambda group_id: share_settings(node.config, self.overrides),
            most_sessions,
            lambda steps: node.turns.carry_out(steps, node.stop_on_failure),
            lambda: node.turns.is_over,
        )
        node.coordinators.shares = self.shares
        self.epochs: dict[str, int] = {}
        topics_of(node).create([CreatableTopic(name="t", num_partitions=2, replication_factor=1)])
        self.topic_id = node.metadata.image.topics["t"].topic_id
        for index in range(2):
            self.persisters.initialize(GROUP, self.topic_id, index)

    @classmethod
    async def on(cls, folder: Path, *settings: str, most_sessions: int = 10) -> Shares:
        return cls(await started(folder, *settings), most_sessions)

    def produce(self, *sizes: int, index: int = 0) -> None:
        """Append one batch of each of these numbers of records."""
        partition = self.node.partitions.get("t", index)
        for size in sizes:
            append(partition.log, batch(size))
            partition.leader().advance()

    def client(self, connection: Any = None) -> Client:
        return Client(self, connection or SimpleNamespace(when_lost=None))

    def pass_ms(self, by_ms: int) -> None:
        clock_of(self.node).advance_ms(by_ms)
        self.node.timers.fire_due()


class Client:
    """A client that asks on one connection."""

    def __init__(self, shares: Shares, connection: Any) -> None:
        self.shares = shares
        self.connection = connection

    def _context(self, version: int) -> Any:
        return SimpleNamespace(
            api_version=version,
            listener_name="PLAINTEXT",
            connection=self.connection,
            principal=SimpleNamespace(name="ANONYMOUS"),
            client_id="c",
        )

    def send(self, request: ShareFetchRequest | ShareAcknowledgeRequest, version: int = 2) -> Any:
        """Return the response, or a `Later` if it hasn't come yet."""
        handler = share_fetch if isinstance(request, ShareFetchRequest) else share_acknowledge
        answer = with_ports(handler.handle, self.shares.node)(self._context(version), request)
        if not isinstance(answer, Later):
            encoder(type(answer), version)(answer, [b""])
        return answer

    def fetch(
        self,
        epoch: int,
        *partitions: int,
        acks: dict[int, list[tuple[int, int, int]]] | None = None,
        forget: tuple[int, ...] = (),
        member: str = "m",
        group: str | None = GROUP,
        version: int = 2,
        topic_id: bytes | None = None,
        **fields: Any,
    ) -> Any:
        acks = acks or {}
        wanted = [
            FetchPartition(partition_index=index, acknowledgement_batches=_batches(acks.get(index, [])))
            for index in dict.fromkeys([*partitions, *acks])
        ]
        topic_id = topic_id or self.shares.topic_id
        request = ShareFetchRequest(
            **{
                "group_id": group,
                "member_id": member,
                "share_session_epoch": epoch,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "batch_size": 500,
                "topics": [FetchTopic(topic_id=topic_id, partitions=wanted)] if wanted else [],
                "forgotten_topics_data": [ForgottenTopic(topic_id=topic_id, partitions=[*forget])],
            }
            | fields
        )
        return self.send(request, version)

    def acknowledge(
        self,
        epoch: int,
        acks: dict[int, list[tuple[int, int, int]]],
        *,
        member: str = "m",
        group: str | None = GROUP,
        version: int = 2,
        topic_id: bytes | None = None,
        renews: bool = False,
    ) -> Any:
        partitions = [
            AcknowledgePartition(partition_index=index, acknowledgement_batches=_batches(batches))
            for index, batches in acks.items()
        ]
        request = ShareAcknowledgeRequest(
            group_id=group,
            member_id=member,
            share_session_epoch=epoch,
            is_renew_ack=renews,
            topics=[AcknowledgeTopic(topic_id=topic_id or self.shares.topic_id, partitions=partitions)],
        )
        return self.send(request, version)


def _batches(acks: list[tuple[int, int, int]]) -> list[AcknowledgementBatch]:
    return [
        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
        for first, last, kind in acks
    ]


def told(shares: Shares, later: Any) -> Any:
    """Take all turns, and return the answer."""
    take_turns(shares.node)
    return later.result()


def acquired(response: Any) -> dict[int, list[tuple[int, int, int]]]:
    """Return (first offset, last offset, delivery count) of the acquired records by partition. Check that the answer as
    a whole has no error."""
    assert response.error_code == 0
    return {
        answer.partition_index: [
            (each.first_offset, each.last_offset, each.delivery_count) for each in answer.acquired_records
        ]
        for topic in response.responses
        for answer in topic.partitions
    }


def errors(response: Any) -> dict[int, int]:
    return {
        answer.partition_index: answer.error_code
        for topic in response.responses
        for answer in topic.partitions
    }


def ack_errors(response: Any) -> dict[int, int]:
    return {
        answer.partition_index: answer.acknowledge_error_code
        for topic in response.responses
        for answer in topic.partitions
    }
