"""An active controller whose records, memory and clock are open to a test."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import TypeVar

from broker.controller.broker_heartbeats import BrokerHeartbeats
from broker.controller.broker_records import BrokerIncarnation
from broker.controller.cluster_control import (
    BrokerHeartbeatReply,
    RegistrationTerms,
    fence_stale_broker,
    heartbeat,
    register,
    unregister,
)
from broker.controller.controller import ControllerResult
from broker.controller.image import ClusterImage
from broker.controller.metadata_versions import ELR_VERSION
from broker.controller.partition_changes import BrokerChange
from protocol.errors import Error, KafkaError
from protocol.messages import metadata_records as records
from protocol.messages.broker_to_controller import (
    AdvertisedListener,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    SupportedFeature,
)
from protocol.waiting import Waiting, at_once, turn
from protocol.wire.schema import Message

T = TypeVar("T")

CLUSTER = "fPZv1VBsRFmnlRvmGcOW9w"
METADATA_VERSION = "metadata.version"
LATEST = 30
TOPIC_ID = b"T" * 16
MARK = records.NoOpRecord()
"""A record that stands for the changes of partitions."""


class Updates:
    """A stand-in that decides nothing about partitions. It remembers each change, and makes one record of it."""

    def __init__(self) -> None:
        self.changes: list[BrokerChange] = []

    async def __call__(self, image: ClusterImage, change: BrokerChange) -> list[Message]:
        self.changes.append(change)
        await turn()
        return [MARK]


class ActiveController:
    """An active controller of brokers that have one directory each. The next record has offset 100."""

    def __init__(self, metadata_version: int = LATEST, *, elr: int = 0, session_timeout_ms: int = 10) -> None:
        self.image = ClusterImage()
        self.heartbeats = BrokerHeartbeats(session_timeout_ms)
        self.updates = Updates()
        self.now_ms = 0
        self.next_offset = 100
        self.image.apply(records.FeatureLevelRecord(name=METADATA_VERSION, feature_level=metadata_version))
        self.image.apply(records.FeatureLevelRecord(name=ELR_VERSION, feature_level=elr))

    def write(self, decided: Iterable[Message]) -> None:
        for record in decided:
            self.image.apply(record)
            self.heartbeats.replay(record, self.next_offset)
            self.next_offset += 1

    def decide(
        self, decision: ControllerResult[T] | Generator[None, None, ControllerResult[T]]
    ) -> tuple[Sequence[Message], T]:
        """Write a decision's records, and return them and the answer."""
        result = decision if isinstance(decision, ControllerResult) else at_once(decision)
        self.write(result.records)
        return result.records, result.answer(None)

    # --- what is asked --------------------------------------------------------------------------------------

    def registering(
        self, request: BrokerRegistrationRequest, *, version: int = 4, kraft_version: int = 1
    ) -> Waiting[ControllerResult[int | KafkaError]]:
        terms = RegistrationTerms(CLUSTER, kraft_version, self.next_offset, version, self.now_ms)
        return register(self.image, self.heartbeats, request, terms, updates=self.updates)

    def register(
        self, request: BrokerRegistrationRequest, *, version: int = 4, kraft_version: int = 1
    ) -> tuple[Sequence[Message], int | KafkaError]:
        return self.decide(self.registering(request, version=version, kraft_version=kraft_version))

    def unregister(self, broker_id: int) -> Sequence[Message]:
        return self.decide(unregister(self.image, broker_id, self.updates))[0]

    def heartbeat(self, request: BrokerHeartbeatRequest) -> tuple[Sequence[Message], BrokerHeartbeatReply]:
        broker = BrokerIncarnation(request.broker_id, request.broker_epoch)
        self.heartbeats.heard(broker, request.current_metadata_offset, self.now_ms)
        decided, reply = self.decide(heartbeat(self.image, self.heartbeats, request, self.updates))
        assert isinstance(reply, BrokerHeartbeatReply)
        if reply.in_controlled_shutdown:
            self.heartbeats.shutdown_written(broker, self.next_offset - 1)
        return decided, reply

    def fence_stale(self) -> tuple[Sequence[Message], bool | KafkaError]:
        return self.decide(fence_stale_broker(self.image, self.heartbeats, self.now_ms, self.updates))

    def refusal(
        self, request: BrokerRegistrationRequest, *, kraft_version: int = 1
    ) -> tuple[Error, str | None]:
        """Return the error code and the message that refuse a registration."""
        try:
            self.register(request, kraft_version=kraft_version)
        except KafkaError as refused:
            return refused.error, refused.message
        raise AssertionError("it isn't refused")

    # --- in short -------------------------------------------------------------------------------------------

    def start(self, broker_id: int, *, fenced: bool = False) -> BrokerIncarnation:
        """Register a broker. Unless it is to be fenced, it says that it has caught up and wants to run."""
        _, epoch = self.register(registration(broker_id))
        assert isinstance(epoch, int)
        if not fenced:
            self.heartbeat(beat(BrokerIncarnation(broker_id, epoch), self.next_offset - 1))
        self.updates.changes.clear()
        return BrokerIncarnation(broker_id, epoch)

    def lead(self, broker_id: int, *, topic_id: bytes = TOPIC_ID) -> None:
        """Make the broker lead a topic's only partition."""
        self.write(
            (
                records.TopicRecord(name=topic_id.hex(), topic_id=topic_id),
                records.PartitionRecord(
                    partition_id=0, topic_id=topic_id, replicas=[broker_id], isr=[broker_id], leader=broker_id
                ),
            )
        )


def directory(broker_id: int, number: int = 0) -> bytes:
    """Return the id of one of a broker's log directories."""
    return bytes((68, number)) + broker_id.to_bytes(14, "big", signed=True)


def listener(
    name: str = "PLAINTEXT", host: str = "h", port: int = 9092, protocol: int = 0
) -> AdvertisedListener:
    return AdvertisedListener(name=name, host=host, port=port, security_protocol=protocol)


def features(**ranges: tuple[int, int]) -> list[SupportedFeature]:
    """Return features by name, with `_` for the dots in the names."""
    return [
        SupportedFeature(name=name.replace("_", "."), min_supported_version=low, max_supported_version=high)
        for name, (low, high) in ranges.items()
    ]


def all_features() -> list[SupportedFeature]:
    return features(metadata_version=(7, 30), kraft_version=(0, 1), eligible_leader_replicas_version=(0, 1))


def registration(broker_id: int = 1, run: int = 1, **fields: object) -> BrokerRegistrationRequest:
    """Return a registration of one run of a broker. Nothing in it is a reason to refuse it."""
    usual: dict[str, object] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER,
        "incarnation_id": bytes((run,)) * 16,
        "listeners": [listener()],
        "features": all_features(),
        "log_dirs": [directory(broker_id)],
    }
    return BrokerRegistrationRequest(**{**usual, **fields})


def beat(broker: BrokerIncarnation, offset: int = 0, **fields: object) -> BrokerHeartbeatRequest:
    """Return a heartbeat of a broker that wants to run."""
    usual: dict[str, object] = {
        "broker_id": broker.node_id,
        "broker_epoch": broker.broker_epoch,
        "current_metadata_offset": offset,
    }
    return BrokerHeartbeatRequest(**{**usual, **fields})
