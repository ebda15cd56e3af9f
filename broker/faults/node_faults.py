"""The faults of a node: at whatever of its listeners a request comes in, a controller's too, and inside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from broker.faults.armed_fault import OF_MARKERS
from broker.faults.faults import Faults
from broker.faults.places import OF_COORDINATORS, FaultyCoordinators, FaultyMarkers, file_hook

if TYPE_CHECKING:
    from broker.coordination.hosted_shards import HostedShards
    from broker.coordination.transactions import Transactions
    from broker.faults.faults import Process
    from broker.network.dispatch import Dispatcher
    from broker.quorum.controller_server import ControllerNode
    from broker.server import Server


def faults_of(node: Server | ControllerNode, process: Process) -> Faults:
    """None are armed yet."""
    dispatchers: list[Dispatcher] = []
    if node.controller_server is not None:
        dispatchers.append(node.controller_server.dispatcher)
    # A controller alone has one listener's, and no coordinators.
    dispatcher: Dispatcher | None = getattr(node, "dispatcher", None)
    if dispatcher is not None:
        dispatchers.append(dispatcher)
    transactions: Transactions | None = getattr(node, "transactions", None)
    coordinators: list[HostedShards[Any]] = [
        owner.hosted
        for owner in (transactions, getattr(node, "groups", None), getattr(node, "share_states", None))
        if owner is not None
    ]

    def topic_name(topic_id: bytes) -> str | None:
        found = node.metadata.image.topics_by_id.get(topic_id)
        return None if found is None else found.name

    def changed() -> None:
        around = faults.around if faults.states() else None
        for each in dispatchers:
            each.interpose(around)
        barriers = FaultyCoordinators(faults) if faults.at(*OF_COORDINATORS) else None
        for hosted in coordinators:
            hosted.interpose(barriers)
        if transactions is not None:
            id_of = transactions.id_of
            is_faulty = bool(faults.at(*OF_MARKERS))
            transactions.interpose(
                lambda markers: FaultyMarkers(faults, markers, id_of) if is_faulty else markers
            )
        node.files.set_fault_hook(file_hook(faults))

    faults = Faults(node.scheduler, node.turns, topic_name, process, changed, node.stop_on_failure)
    return faults
