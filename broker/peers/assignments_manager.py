"""In which of its directories this broker has replicas: told to the controller, many in one request, until it knows.

Source: `AssignmentsManager`, `AssignmentsManagerDeadlineFunction`; KIP-858.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from protocol.errors import Error, KafkaError, error_of
from protocol.messages.broker_to_controller import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage
    from broker.controller.registration import BrokerIncarnation
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.peers.controller_channel import ToController
    from protocol.wire.schema import Message


log = logging.getLogger("barnabas.peers")

MAX_ASSIGNMENTS_PER_REQUEST = 2_250
"""AssignReplicasToDirsRequest.MAX_ASSIGNMENTS_PER_REQUEST."""
ASSIGNMENTS_TIMEOUT_MS = 60_000
GATHERING_MS = 100
"""How long others are waited for, which go with the same request. Where requests fail it doubles with each in a row, up
to the next. (Kafka's differ by up to a fiftieth from time to time.)"""
ASSIGNMENTS_BACK_OFF_MS = 10_000

AssignedReplica: TypeAlias = "tuple[bytes, int]"
"""Topic id, number of the partition."""


class Assignment(NamedTuple):
    """Where a replica is, and who is told once the controller knows."""

    directory_id: bytes
    known: Callable[[], None]


class AssignmentsManager:
    """Of one broker."""

    def __init__(
        self,
        broker: Callable[[], BrokerIncarnation],
        image: ClusterImage,
        channel: ToController,
        scheduler: Scheduler,
    ) -> None:
        """`broker` is asked before each request; by `image`, the metadata as this broker knows it, what doesn't matter
        any more is left out."""
        self._broker = broker
        self._image = image
        self._channel = channel
        self._scheduler = scheduler
        self._ready: dict[AssignedReplica, Assignment] = {}
        self._asked: dict[AssignedReplica, Assignment] = {}
        self._failures = 0  # of whole requests, in a row
        self._timer: Scheduled | None = None
        self._due_s = 0.0
        self._is_stopped = False

    @property
    def pending(self) -> int:
        """Assignments that the controller may not know (Kafka's metric `QueuedReplicaToDirAssignments`)."""
        return len(self._ready) + len(self._asked)

    def is_on_its_way(self, replica: AssignedReplica) -> bool:
        """Whether the controller is being told of the replica."""
        return replica in self._ready or replica in self._asked

    def assign(self, replica: AssignedReplica, assignment: Assignment) -> None:
        """Tell the controller. `known` is called in a later turn, unless the replica is assigned anew before that is
        sent, or the partition or this broker's replica of it goes: then nobody is told."""
        if not self._is_stopped:
            self._ready[replica] = assignment
            self._schedule()

    def stop(self) -> None:
        """Nothing more is asked, and nobody is told of anything."""
        self._is_stopped = True
        self._ready.clear()
        self._asked = {}
        self._cancel()
        self._channel.stop()

    # --- when -----------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """The next request, unless one is due sooner."""
        delay_s = self._delay_ms() / 1000
        due_s = self._scheduler.time() + delay_s
        if self._timer is not None and self._due_s <= due_s:
            return
        self._cancel()
        self._due_s = due_s
        self._timer = self._scheduler.call_later(delay_s, self._send)

    def _delay_ms(self) -> int:
        if self._failures > 0:
            return min(GATHERING_MS << min(self._failures, 10), ASSIGNMENTS_BACK_OFF_MS)
        if len(self._ready) > MAX_ASSIGNMENTS_PER_REQUEST and not self._asked:
            return 0
        return GATHERING_MS

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- asking ---------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """As many as one request takes; nothing while one is on its way, whose answer sees to the rest."""
        self._timer = None
        if self._asked:
            return
        broker = self._broker()
        directories: dict[bytes, AssignedDirectory] = {}
        topics: dict[tuple[bytes, bytes], AssignedTopic] = {}
        for replica, assignment in self._take(broker.node_id):
            topic_id, index = replica
            directory_id = assignment.directory_id
            self._asked[replica] = assignment
            topic = topics.get((directory_id, topic_id))
            if topic is None:
                topic = topics[directory_id, topic_id] = AssignedTopic(topic_id=topic_id)
                directory = directories.get(directory_id)
                if directory is None:
                    directory = directories[directory_id] = AssignedDirectory(id=directory_id)
                directory.topics.append(topic)
            topic.partitions.append(AssignedPartition(partition_index=index))
        if self._asked:
            request = AssignReplicasToDirsRequest(
                broker_id=broker.node_id,
                broker_epoch=broker.broker_epoch,
                directories=[*directories.values()],
            )
            self._channel.ask(request, self._answered, timeout_ms=ASSIGNMENTS_TIMEOUT_MS)
        elif self._ready:
            self._schedule()

    def _take(self, node_id: int) -> Iterator[tuple[AssignedReplica, Assignment]]:
        """Out of those that are ready, at most a request's. What is left out counts, so that a turn has an end."""
        for replica in [*self._ready][:MAX_ASSIGNMENTS_PER_REQUEST]:
            assignment = self._ready.pop(replica)
            partition = self._image.partition_of(*replica)
            if partition is not None and node_id in partition.replicas:
                yield replica, assignment

    # --- answers --------------------------------------------------------------------------------------------

    def _answered(self, answer: Message | KafkaError) -> None:
        asked, self._asked = self._asked, {}
        try:
            error = _refusal_of_all(answer)
            if error is Error.NONE:
                assert isinstance(answer, AssignReplicasToDirsResponse)
                self._failures = 0
                self._tell(asked, answer)
            else:
                self._failures += 1
                log.warning("the controller isn't told yet in which directories replicas are: %s", error.name)
        finally:
            if not self._is_stopped:
                self._ready = {**asked, **self._ready}  # what came meanwhile counts
                if self._ready:
                    self._schedule()

    def _tell(self, asked: dict[AssignedReplica, Assignment], response: AssignReplicasToDirsResponse) -> None:
        """Those that it knows now are no longer among `asked`: the others are asked again."""
        refused = 0
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    replica = (topic.topic_id, partition.partition_index)
                    if partition.error_code != Error.NONE:
                        refused += 1
                    elif replica in asked and not self._is_stopped:
                        asked.pop(replica).known()
        if refused:
            log.info(
                "the controller refuses %d assignments of replicas to directories, and is asked again",
                refused,
            )


def _refusal_of_all(answer: Message | KafkaError) -> Error:
    if isinstance(answer, KafkaError):
        return answer.error
    assert isinstance(answer, AssignReplicasToDirsResponse)
    return error_of(answer.error_code)
