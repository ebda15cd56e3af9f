"""The faults of a node: at whatever of its listeners a request comes in, a controller's too."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from broker.faults.faults import Faults

if TYPE_CHECKING:
    from broker.coordination.transactions import Transactions
    from broker.network.dispatch import Dispatcher
    from broker.quorum.controller_server import ControllerNode
    from broker.server import Server


def faults_of(node: Server | ControllerNode, crash: Callable[[], None]) -> Faults:
    """None are armed yet. `crash` ends the process at once."""
    own: list[Dispatcher] = []
    if node.controller_server is not None:
        own.append(node.controller_server.dispatcher)
    dispatcher: Dispatcher | None = getattr(node, "dispatcher", None)  # a controller alone has one listener's
    if dispatcher is not None:
        own.append(dispatcher)

    transactions: Transactions | None = getattr(node, "transactions", None)

    def topic_name(topic_id: bytes) -> str | None:
        found = node.metadata.image.topics_by_id.get(topic_id)
        return None if found is None else found.name

    def changed() -> None:
        around = faults.around if faults.states() else None
        for each in own:
            each.interpose(around)
        if transactions is not None:
            transactions.interpose(lambda markers: faults.around_markers(markers, transactions.id_of))

    faults = Faults(node.scheduler, node.turns, topic_name, crash, changed, node.stop_on_failure)
    return faults
