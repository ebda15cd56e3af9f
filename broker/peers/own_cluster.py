"""The cluster from one broker's point of view (`Cluster`), and its form on a node that is the controller,
alone or with other brokers. The other form is `JoinedCluster`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, Protocol

from broker.controller.cluster_control import leaving
from broker.controller.controller import ControllerResult
from broker.controller.partition_changes import leader_and_isr_updates
from broker.controller.replica_directories import assignment
from broker.coordination.producer_id_blocks import ProducerIdBlocks
from broker.disks.failures import RecordedLosses
from broker.fault_handler import FaultHandler, Milestone
from broker.security.authorizer import ANONYMOUS, AllowEverything, Authorizer, Principal
from protocol.apis import APIS
from protocol.errors import Error, KafkaError, stops_the_broker
from protocol.waiting import Later, turn

if TYPE_CHECKING:
    from broker.controller.broker_records import BrokerIncarnation
    from broker.controller.controller import Controller
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.controller.partition_changes import OwnSettings
    from broker.controller.topic_requests import Create
    from broker.coordination.latest_offsets import AskLatestOffset
    from broker.coordination.produce_verification import AskElsewhere
    from broker.coordination.share_persister import AskShareStates
    from broker.disks.failures import DirectoryLosses
    from broker.disks.log_dirs import LogDirs
    from broker.environment.scheduler import Scheduler
    from broker.peers.controller_channel import ToController
    from broker.peers.forwarding import Forwarding
    from broker.peers.other_brokers import OtherBrokers
    from broker.quotas import ReplicationQuota
    from broker.replicas.partitions import Partitions
    from broker.shares.dead_letters import ProduceElsewhere
    from coordinator.ports import Markers
    from protocol.wire.schema import Message


log = logging.getLogger("barnabas.directories")
peers_log = logging.getLogger("barnabas.peers")
server_log = logging.getLogger("barnabas.server")


class Cluster(Protocol):
    """`OwnCluster`, or `JoinedCluster`."""

    @property
    def forwarding(self) -> Forwarding | None:
        """Forwards clients' requests to the controller. None if this node decides them."""

    @property
    def create_automatically(self) -> Create | None:
        """Asks the controller for missing topics that clients use. None if this node creates them."""

    def allocate_producer_ids(self, size: int) -> Later[int | KafkaError]:
        """See `coordinator.transaction.producer_ids.AllocateBlock`."""

    def assign(self, replica: tuple[bytes, int], directory_id: bytes) -> Later[None]:
        """See `AssignDirectory`."""

    def losses(self, log_dirs: LogDirs, partitions: Partitions) -> DirectoryLosses:
        """How the controller learns of failed directories."""

    def to_controller(self) -> ToController:
        """Return a new channel to the controller, which stays open until the end."""

    def markers(self, own: Markers) -> Markers:
        """Return the object that writes markers to all partitions. `own` writes them to those led here."""

    def coordinators(self, partition_of: Callable[[str], int]) -> AskElsewhere | None:
        """Return the function that asks transaction coordinators on other nodes, or None if there are none.
        `partition_of` returns the partition of `__transaction_state` for a transactional id."""

    def share_states(self) -> AskShareStates | None:
        """Return the function that asks share coordinators on other nodes, or None if there are none."""

    def dead_letters(self) -> ProduceElsewhere | None:
        """Return the function that sends dead letters to leaders on other nodes, or None if there are none."""

    def latest_offsets(self) -> AskLatestOffset | None:
        """Return the function that asks leaders on other nodes, or None if there are none."""

    def following(self, partitions: Partitions, quota: ReplicationQuota) -> Callable[[TopicChanges], None]:
        """Return the callback for changes of the partitions' roles. It fetches partitions that other nodes
        lead; throttled ones stay within the quota."""

    async def leave(self) -> None:
        """Return once other brokers, if any, lead this node's partitions: it is about to stop. Raises errors
        that the node has to stop for."""

    def stop(self) -> None:
        """Send nothing more."""


# --- The controller in this process: asked like another node's, but without a connection --------------------


class _OwnPorts(NamedTuple):
    """The ports of a controller's handlers (`node_ports.ControllerPorts`), as far as requests of the broker
    in the same process need them. That broker may do anything."""

    controller: Controller
    own_settings: OwnSettings
    authorizer: Authorizer = AllowEverything()


class _OwnContext(NamedTuple):
    """The context of requests from the broker in the same process."""

    api_key: int
    api_version: int
    listener_name: str = ""
    peer_host: str = ""
    principal: Principal = ANONYMOUS


class OwnController:
    """Takes the place of a `ControllerChannel`: one request at a time, answered by the controller's own
    handlers, in a later turn."""

    def __init__(self, controller: Controller, own_settings: OwnSettings) -> None:
        self._ports = _OwnPorts(controller, own_settings)
        self._asked: Later[Message] | None = None
        self.trouble = ""

    @property
    def is_busy(self) -> bool:
        return self._asked is not None

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        return {}

    async def ask(self, request: Message, *, timeout_ms: int | None) -> Message:
        """Return the answer. Only the disk can delay it. Raises KafkaError (UNKNOWN_SERVER_ERROR) for an
        error of ours."""
        assert self._asked is None, "one request at a time"
        asked: Later[Message] = Later()
        self._asked = asked
        self._ports.controller.begin(self._answer(request))
        return await asked

    def stop(self) -> None:
        """Stop. Answers that come later are dropped."""
        if self._asked is not None:
            self._asked.abandon()
            self._asked = None

    async def _answer(self, request: Message) -> None:
        # Imported here, so that it doesn't delay the start.
        from broker.handlers import CONTROLLER_HANDLERS

        await turn()
        key = type(request).API_KEY
        handler = import_module(f"broker.handlers.{CONTROLLER_HANDLERS[key]}")
        answer: Message | KafkaError
        try:
            answer = await handler.handle(self._ports, _OwnContext(key, APIS[key].max_version), request)
        except Exception as error:
            if stops_the_broker(error):
                raise
            peers_log.error("the controller failed on a request of the broker in its process", exc_info=error)
            answer = KafkaError(Error.UNKNOWN_SERVER_ERROR, str(error))
        asked, self._asked = self._asked, None
        if asked is None:
            return
        if isinstance(answer, KafkaError):
            asked.fail(answer)
        else:
            asked.reply(answer)


# --- Controlled shutdown ------------------------------------------------------------------------------------


MOST_LEAVE_S = 5.0
"""How long a stop waits for other brokers. Kafka's brokers wait five minutes for a controller that may come
back; here the controller is in this process."""
CHECK_S = 0.02


class ControlledShutdown:
    """The controlled shutdown of one run. `others` are the channels to other brokers."""

    def __init__(
        self,
        broker: BrokerIncarnation,
        controller: Controller,
        others: OtherBrokers,
        scheduler: Scheduler,
        faults: FaultHandler,
        settings: OwnSettings,
        others_know: Callable[[], bool],
    ) -> None:
        """`others_know` returns True if every active broker has all metadata written so far."""
        self.others = others
        self._broker = broker
        self._controller = controller
        self._scheduler = scheduler
        self._settings = settings
        self._others_know = others_know
        self._has_left = Milestone(faults)
        self._until_s = 0.0

    async def leave(self) -> None:
        """Return once the other brokers know, or the wait is over."""
        self._until_s = self._scheduler.time() + MOST_LEAVE_S
        self._controller.begin(self._begin_to_leave())
        await self._has_left.wait()

    async def _begin_to_leave(self) -> None:
        updates = partial(leader_and_isr_updates, own=self._settings)
        failure = await self._controller.submit_own(
            lambda image: leaving(image, self._broker, updates),
            server_log,
            "can't decide who takes over this broker's partitions",
        )
        if failure is not None:
            server_log.warning("can't begin the controlled shutdown: %s", failure)
            self._has_left.reached()
        else:
            self._check()

    def _check(self) -> None:
        if self._others_know() or self._scheduler.time() > self._until_s:
            self._has_left.reached()
        else:
            self._scheduler.call_later(CHECK_S, self._check)


# --- Directories of replicas --------------------------------------------------------------------------------


class OwnAssignments:
    """Records the directories of replicas, for one run."""

    def __init__(self, controller: Controller, node_id: int) -> None:
        self._controller = controller
        self._node_id = node_id

    def assign(self, replica: tuple[bytes, int], directory_id: bytes) -> Later[None]:
        """See `AssignDirectory`."""
        topic_id, index = replica
        recorded: Later[None] = Later()

        def decide(image: ClusterImage) -> ControllerResult[KafkaError | None]:
            if topic_id not in image.topics_by_id:
                raise KafkaError(Error.UNKNOWN_TOPIC_OR_PARTITION)  # its deletion isn't committed yet
            record = assignment(image, topic_id, index, self._node_id, directory_id)
            return ControllerResult([] if record is None else [record], lambda error: error)

        async def record() -> None:
            error = await self._controller.submit_own(
                decide, log, f"can't record the directory of partition {index} of a topic"
            )
            if error is None:
                recorded.reply(None)
            else:
                recorded.fail(error)

        self._controller.begin(record())
        return recorded


# --- The cluster of a node with the controller --------------------------------------------------------------


class OwnCluster:
    """A `Cluster` whose controller is in this process."""

    forwarding = None
    create_automatically = None

    def __init__(
        self,
        controller: Controller,
        own_settings: OwnSettings,
        broker: BrokerIncarnation,
        shutdown: ControlledShutdown | None,
    ) -> None:
        """`shutdown` is None if there can be no other brokers."""
        self._controller = controller
        self._own_settings = own_settings
        self._others = None if shutdown is None else shutdown.others
        self._shutdown = shutdown
        self._broker = broker
        self._assignments = OwnAssignments(controller, broker.node_id)
        self._producer_ids = ProducerIdBlocks(self.to_controller(), broker)

    def allocate_producer_ids(self, size: int) -> Later[int | KafkaError]:
        """See `Cluster`."""
        return self._producer_ids.allocate(size)

    def assign(self, replica: tuple[bytes, int], directory_id: bytes) -> Later[None]:
        """See `AssignDirectory`."""
        return self._assignments.assign(replica, directory_id)

    def losses(self, log_dirs: LogDirs, partitions: Partitions) -> DirectoryLosses:
        return RecordedLosses(self._broker, log_dirs, partitions, self._controller, self._own_settings)

    def to_controller(self) -> ToController:
        return OwnController(self._controller, self._own_settings)

    def markers(self, own: Markers) -> Markers:
        """See `Cluster`."""
        return own if self._others is None else self._others.markers(own)

    def coordinators(self, partition_of: Callable[[str], int]) -> AskElsewhere | None:
        """See `Cluster`."""
        return None if self._others is None else self._others.coordinators(partition_of)

    def share_states(self) -> AskShareStates | None:
        """See `Cluster`."""
        return None if self._others is None else self._others.share_states()

    def dead_letters(self) -> ProduceElsewhere | None:
        """See `Cluster`."""
        return None if self._others is None else self._others.dead_letters()

    def latest_offsets(self) -> AskLatestOffset | None:
        """See `Cluster`."""
        return None if self._others is None else self._others.latest_offsets()

    def following(self, partitions: Partitions, quota: ReplicationQuota) -> Callable[[TopicChanges], None]:
        """See `Cluster`."""
        if self._others is None:
            return lambda changes: None
        return self._others.following(self._broker, partitions, quota)

    async def leave(self) -> None:
        """See `Cluster`. This controller tells the other brokers, and serves them until they know."""
        if self._shutdown is not None:
            await self._shutdown.leave()

    def stop(self) -> None:
        """Send nothing more."""
        if self._others is not None:
            self._others.stop()
