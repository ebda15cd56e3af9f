"""Decisions about brokers on a real metadata log: written, replayed and read again, at several metadata versions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.controller.broker_heartbeats import BrokerHeartbeats
from broker.controller.broker_records import BrokerIncarnation, supported_features
from broker.controller.cluster_control import (
    BrokerHeartbeatReply,
    RegistrationTerms,
    fence_stale_broker,
    heartbeat,
    register,
)
from broker.controller.controller import Controller, ControllerResult
from broker.controller.image import ClusterImage
from broker.controller.partition_changes import BrokerChange
from protocol.errors import Error, KafkaError
from protocol.messages.broker_to_controller import (
    AdvertisedListener,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    SupportedFeature,
)
from protocol.messages.metadata_records import FeatureLevelRecord
from protocol.waiting import Waiting, turn
from protocol.wire.schema import Message
from tests.node.metadata_logs import begin, open_log
from tests.support.submitting import submit_to, unexpected

CLUSTER = "fPZv1VBsRFmnlRvmGcOW9w"
DIRECTORIES = [b"a" * 16, b"b" * 16]


async def no_partitions(image: ClusterImage, change: BrokerChange) -> list[Message]:
    await turn()
    return []


class Quorum:
    """A controller in a folder, which is the only voter of its quorum."""

    def __init__(self, folder: Path, metadata_version: int) -> None:
        self.metadata = begin(folder)
        self.metadata.append([FeatureLevelRecord(name="metadata.version", feature_level=metadata_version)])
        self.controller = Controller(self.metadata)
        self.heartbeats = BrokerHeartbeats()
        self.heartbeats.become_active(self.metadata.image, self.metadata.last_applied_offset, 0)
        self.now_ms = 0

    def submit(self, decide: Callable[[ClusterImage], Any]) -> Any:
        """Submit the decision, and return the reply. The heartbeats learn of the records as they are written."""
        written: list[Message] = []
        replies: list[object] = []

        def note(records: Sequence[Message]) -> None:
            written.extend(records)

        def watched(image: ClusterImage) -> Any:
            decided = decide(image)
            if isinstance(decided, ControllerResult):
                note(decided.records)
                return decided
            return self._noted(decided, note)

        first = self.metadata.next_offset
        submit_to(self.controller, watched, replies.append, unexpected)
        for offset, record in enumerate(written, first):
            self.heartbeats.replay(record, offset)
        (reply,) = replies
        return reply

    @staticmethod
    async def _noted(
        deciding: Waiting[ControllerResult[Any]], note: Callable[[Sequence[Message]], None]
    ) -> ControllerResult[Any]:
        result = await deciding
        note(result.records)
        return result

    def register(self, run: int) -> int | KafkaError:
        request = BrokerRegistrationRequest(
            broker_id=5,
            cluster_id=CLUSTER,
            incarnation_id=bytes((run,)) * 16,
            listeners=[AdvertisedListener(name="PLAINTEXT", host="h", port=9092)],
            features=[
                SupportedFeature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in supported_features().items()
            ],
            log_dirs=DIRECTORIES,
        )

        def decide(image: ClusterImage) -> Waiting[ControllerResult[int | KafkaError]]:
            terms = RegistrationTerms(CLUSTER, 1, self.metadata.next_offset, 4, self.now_ms)
            return register(image, self.heartbeats, request, terms, updates=no_partitions)

        answer: int | KafkaError = self.submit(decide)
        return answer

    def heartbeat(self, epoch: int, **fields: Any) -> BrokerHeartbeatReply:
        request = BrokerHeartbeatRequest(
            broker_id=5,
            broker_epoch=epoch,
            current_metadata_offset=self.metadata.last_applied_offset,
            **fields,
        )
        broker = BrokerIncarnation(5, epoch)
        self.heartbeats.heard(broker, request.current_metadata_offset, self.now_ms)
        reply = self.submit(lambda image: heartbeat(image, self.heartbeats, request, no_partitions))
        assert isinstance(reply, BrokerHeartbeatReply)
        return reply


@pytest.mark.parametrize("metadata_version", [7, 16, 17, 29, 30])
def test_a_decision_about_a_broker_is_found_at_the_next_start(tmp_path: Path, metadata_version: int) -> None:
    quorum = Quorum(tmp_path, metadata_version)
    next_offset = quorum.metadata.next_offset
    epoch = quorum.register(1)
    assert epoch == next_offset
    assert quorum.heartbeat(epoch).is_fenced is False
    quorum.heartbeat(epoch, cordoned_log_dirs=DIRECTORIES[:1], offline_log_dirs=DIRECTORIES[1:])
    broker = quorum.metadata.image.brokers[5]
    assert (broker.broker_epoch, broker.fenced) == (epoch, False)
    assert broker.log_dirs == (DIRECTORIES[:1] if metadata_version >= 17 else [])
    assert broker.cordoned_log_dirs == (DIRECTORIES[:1] if metadata_version >= 30 else None)

    again = open_log(tmp_path).image.brokers[5]
    assert (again.record.end_points, again.record.features) == (
        broker.record.end_points,
        broker.record.features,
    )
    assert (again.broker_epoch, again.fenced) == (epoch, False)
    assert (again.log_dirs, again.cordoned_log_dirs) == (broker.log_dirs, broker.cordoned_log_dirs)


def test_a_run_that_was_killed_is_fenced_and_the_next_one_has_another_epoch(tmp_path: Path) -> None:
    quorum = Quorum(tmp_path, 30)
    first = quorum.register(1)
    assert isinstance(first, int)
    quorum.heartbeat(first)
    refusal = quorum.register(2)
    assert isinstance(refusal, KafkaError)
    assert refusal.error is Error.DUPLICATE_BROKER_REGISTRATION
    quorum.now_ms += 9_001
    found = [
        quorum.submit(
            lambda image: fence_stale_broker(image, quorum.heartbeats, quorum.now_ms, no_partitions)
        )
        for _ in range(2)
    ]
    assert found == [True, False]
    assert quorum.metadata.image.brokers[5].fenced
    next_offset = quorum.metadata.next_offset
    second = quorum.register(2)
    assert second == next_offset
    assert quorum.heartbeat(second).is_fenced is False
