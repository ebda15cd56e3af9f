"""Reporting to the controller in which directories this broker has replicas, many in one request, until it
knows.

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
from protocol.waiting import Later, carry_on

if TYPE_CHECKING:
    from broker.controller.broker_records import BrokerIncarnation
    from broker.controller.image import ClusterImage
    from broker.environment.scheduler import Scheduled, Scheduler
    from broker.peers.controller_channel import ToController


log = logging.getLogger("barnabas.peers")

MAX_ASSIGNMENTS_PER_REQUEST = 2_250
"""AssignReplicasToDirsRequest.MAX_ASSIGNMENTS_PER_REQUEST."""
ASSIGNMENTS_TIMEOUT_MS = 60_000
GATHERING_MS = 100
"""How long to wait for other assignments that go with the same request. It doubles with each failed request
in a row, up to the back-off below. (Kafka's waits vary by up to a fiftieth.)"""
ASSIGNMENTS_BACK_OFF_MS = 10_000

AssignedReplica: TypeAlias = "tuple[bytes, int]"
"""Topic id, number of the partition."""


class Assignment(NamedTuple):
    """The directory of a replica, and the Later to reply to once the controller knows it."""

    directory_id: bytes
    known: Later[None]


class AssignmentsManager:
    """Reports one broker's assignments."""

    def __init__(
        self,
        broker: Callable[[], BrokerIncarnation],
        image: ClusterImage,
        channel: ToController,
        scheduler: Scheduler,
    ) -> None:
        """`broker` is called before each request. `image` is the metadata as this broker knows it:
        assignments that don't matter any more are left out."""
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
        """How many assignments the controller may not know (Kafka's metric
        `QueuedReplicaToDirAssignments`)."""
        return len(self._ready) + len(self._asked)

    def is_on_its_way(self, replica: AssignedReplica) -> bool:
        """True while an assignment of the replica waits or is in flight."""
        return replica in self._ready or replica in self._asked

    def assign(self, replica: AssignedReplica, directory_id: bytes) -> Later[None]:
        """Report an assignment. The reply comes in a later turn.

        It never comes if the replica is assigned anew before this one is sent, or if the partition or this
        broker's replica of it goes away.
        """
        known: Later[None] = Later()
        if not self._is_stopped:
            self._ready[replica] = Assignment(directory_id, known)
            self._schedule()
        return known

    def stop(self) -> None:
        """Send and answer nothing more."""
        self._is_stopped = True
        for assignment in (*self._ready.values(), *self._asked.values()):
            assignment.known.abandon()
        self._ready.clear()
        self._asked = {}
        self._cancel()
        self._channel.stop()

    # --- timing ---------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        """Schedule the next request, unless one is due sooner."""
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

    # --- requests -------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Send as many as one request takes. While one is in flight, send nothing: its answer triggers the
        rest."""
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
            carry_on(self._ask(request))
        elif self._ready:
            self._schedule()

    def _take(self, node_id: int) -> Iterator[tuple[AssignedReplica, Assignment]]:
        """Take up to one request's worth of assignments. Those left out count, too, which limits the length
        of a turn."""
        for replica in [*self._ready][:MAX_ASSIGNMENTS_PER_REQUEST]:
            assignment = self._ready.pop(replica)
            partition = self._image.partition_of(*replica)
            if partition is not None and node_id in partition.replicas:
                yield replica, assignment

    # --- answers --------------------------------------------------------------------------------------------

    async def _ask(self, request: AssignReplicasToDirsRequest) -> None:
        try:
            answer = await self._response_to(request)
        except KafkaError as refusal:
            answer = None
            self._failures += 1
            log.warning(
                "can't tell the controller yet in which directories replicas are: %s", refusal.error.name
            )
        asked, self._asked = self._asked, {}
        try:
            if answer is not None:
                self._failures = 0
                self._tell(asked, answer)
        finally:
            if not self._is_stopped:
                self._ready = {**asked, **self._ready}  # newer assignments win
                if self._ready:
                    self._schedule()

    async def _response_to(self, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        """Send a request. Raises KafkaError if all of it is refused."""
        answer = await self._channel.ask(request, timeout_ms=ASSIGNMENTS_TIMEOUT_MS)
        assert isinstance(answer, AssignReplicasToDirsResponse)
        if answer.error_code:
            raise KafkaError(error_of(answer.error_code))
        return answer

    def _tell(self, asked: dict[AssignedReplica, Assignment], response: AssignReplicasToDirsResponse) -> None:
        """Remove the assignments that the controller knows now from `asked`. The others are sent again."""
        refused = 0
        for directory in response.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    replica = (topic.topic_id, partition.partition_index)
                    if partition.error_code != Error.NONE:
                        refused += 1
                    elif replica in asked and not self._is_stopped:
                        asked.pop(replica).known.reply(None)
        if refused:
            log.info(
                "the controller refuses %d assignments of replicas to directories, trying again",
                refused,
            )
