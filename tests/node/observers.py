"""An observer of the metadata log, and its leader, which answers over the wire and back."""

from __future__ import annotations

from pathlib import Path

from broker.controller.metadata_log import MetadataLog
from broker.controller.observer import AfterAnswer, LeaderEndpoint, Observer, ObserverIdentity
from broker.controller.quorum_requests import QuorumRequests
from protocol.messages.fetch import FetchRequest, FetchResponse
from protocol.messages.raft import FetchSnapshotRequest, FetchSnapshotResponse
from protocol.wire.codec import decode, encode
from tests.node.metadata_logs import open_log
from tests.support.manual_clock import ManualClock

CLUSTER = "Y2x1c3RlcgAAAAAAAAAAAA"
DIRECTORY = bytes(range(16))
LEADER = LeaderEndpoint(1, "controller.example", 9093)


class Controller:
    """The leader of the log. On demand it loses everything that isn't committed."""

    def __init__(self, metadata: MetadataLog) -> None:
        self.metadata = metadata
        self.requests = QuorumRequests(metadata, CLUSTER)
        self.requests.lead(LEADER)

    def answer(self, request: FetchRequest | FetchSnapshotRequest) -> FetchResponse | FetchSnapshotResponse:
        """Answer the request. Both are encoded and decoded, as over the wire."""
        if isinstance(request, FetchRequest):
            asked = decode(FetchRequest, 18, encode(request, 18))
            return decode(FetchResponse, 18, encode(self.requests.fetch(asked, 0).response, 18))
        wanted = decode(FetchSnapshotRequest, 1, encode(request, 1))
        return decode(FetchSnapshotResponse, 1, encode(self.requests.fetch_snapshot(wanted), 1))


def observer_in(folder: Path, cluster: str = CLUSTER) -> Observer:
    metadata = open_log(folder, only_voter=False)
    return Observer(metadata, ObserverIdentity(7, cluster, DIRECTORY), ManualClock())


def catch_up(observer: Observer, controller: Controller, most: int = 100) -> int:
    """Have the observer fetch until it is level with the controller. Returns how many requests that took."""
    for count in range(most):
        request = observer.request()
        then = observer.answered(controller.answer(request))
        if then is AfterAnswer.BACK_OFF:
            return count + 1
        leader = controller.metadata
        here = (observer._log.log_end_offset, observer.epoch, observer.high_watermark)
        if here == (leader.log.log_end_offset, leader.epoch, leader.log.high_watermark):
            return count + 1
    raise AssertionError("it never comes level")


def bytes_of(metadata: MetadataLog, offset: int = 0) -> bytes:
    log = metadata.log
    first = max(offset, log.log_start_offset)
    return b"".join(bytes(batch) for _, batch in log.batches(first, upper_bound=log.log_end_offset))


def end_of(metadata: MetadataLog) -> tuple[int, int]:
    """Return the last epoch and the end offset. Two logs that agree in both are the same."""
    return metadata.log.leader_epochs.latest, metadata.log.log_end_offset


def names(metadata: MetadataLog) -> list[str]:
    return sorted(metadata.image.topics)


def catch_up_some(observer: Observer, controller: Controller, requests: int) -> None:
    for _ in range(requests):
        observer.answered(controller.answer(observer.request()))
