"""Connects faults and the journal to a node: to its listeners, a controller's as well, and to places inside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from broker.faults.armed_fault import OF_MARKERS
from broker.faults.faults import Faults
from broker.faults.places import OF_COORDINATORS, FaultyCoordinators, FaultyMarkers, file_hook
from broker.faults.request_journal import RequestJournal

if TYPE_CHECKING:
    from broker.coordination.hosted_shards import HostedShards
    from broker.coordination.transactions import Transactions
    from broker.faults.faults import Answering, Handle, Process
    from broker.network.dispatch import Dispatcher
    from broker.quorum.controller_server import ControllerNode
    from broker.server import Server


def faults_of(
    node: Server | ControllerNode, process: Process, journal: RequestJournal | None = None
) -> Faults:
    """The faults of a node; none is armed yet. `journal`: the node's journal from now on."""
    dispatchers: list[Dispatcher] = []
    if node.controller_server is not None:
        dispatchers.append(node.controller_server.dispatcher)
    # A pure controller has only the dispatcher of its own listeners, and no coordinators.
    dispatcher: Dispatcher | None = getattr(node, "dispatcher", None)
    if dispatcher is not None:
        dispatchers.append(dispatcher)
    transactions: Transactions | None = getattr(node, "transactions", None)
    coordinators: list[HostedShards[Any]] = [
        owner.hosted
        for owner in (transactions, getattr(node, "groups", None), getattr(node, "share_states", None))
        if owner is not None
    ]

    def kept(api_key: int, handle: Handle, answering: Answering) -> Handle:
        """The journal is wrapped around the faults, so that it has the answers that clients get."""
        assert journal is not None
        return journal.around(api_key, faults.around(api_key, handle, answering))

    def changed() -> None:
        around = kept if journal is not None else faults.around if faults.states() else None
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

    faults = Faults(node.scheduler, node.turns, _names_of(node), process, changed, node.stop_on_failure)
    if journal is not None:
        changed()
    return faults


def journal_of(node: Server | ControllerNode, size: int) -> RequestJournal:
    """A journal for `faults_of`."""
    return RequestJournal(size, node.clock.monotonic_s, node.clock.now_ms, _names_of(node))


def _names_of(node: Server | ControllerNode) -> Callable[[bytes], str | None]:
    """A function that returns a topic's name by its id."""

    def topic_name(topic_id: bytes) -> str | None:
        found = node.metadata.image.topics_by_id.get(topic_id)
        return None if found is None else found.name

    return topic_name
