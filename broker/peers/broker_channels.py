"""What is to be said to other brokers: to each one request at a time, and all that comes up meanwhile in the next.

Source: `InterBrokerSendThread`, of `TransactionMarkerChannelManager` and `AddPartitionsToTxnManager`.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Generic, TypeVar

from broker.controller.listener_view import alive_node
from broker.peers.peer import OnePeer, PeerSettings
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from broker.controller.image import ClusterImage
    from broker.environment.network import Network
    from broker.environment.scheduler import Scheduler
    from protocol.wire.schema import Message

T = TypeVar("T")

MOST_SAID_AT_ONCE = 1_000
"""So many items are in one request. Kafka has no limit."""


class _Channel(Generic[T]):
    """To one broker."""

    __slots__ = ("is_busy", "peer", "waiting")

    def __init__(self, peer: OnePeer) -> None:
        self.peer = peer
        self.waiting: dict[Hashable, T] = {}
        self.is_busy = False


class BrokerChannels(Generic[T]):
    """For one purpose."""

    def __init__(
        self,
        image: ClusterImage,
        listener_name: str,
        settings: PeerSettings,
        network: Network,
        scheduler: Scheduler,
        *,
        request_of: Callable[[Sequence[T]], Message],
        answered: Callable[[Sequence[T], Message | KafkaError], None],
        together: Callable[[Sequence[T]], int] = len,
    ) -> None:
        """`listener_name` is the one that brokers speak to each other by. `answered` is told in a later turn of the
        answer to some items, or of a KafkaError: NETWORK_EXCEPTION, also where the broker isn't alive,
        REQUEST_TIMED_OUT, UNSUPPORTED_VERSION. `together`: how many of the first of these items go into one request,
        one at least."""
        self._image = image
        self._listener_name = listener_name
        self._settings = settings
        self._network = network
        self._scheduler = scheduler
        self._request_of = request_of
        self._answered = answered
        self._together = together
        self._channels: dict[int, _Channel[T]] = {}
        self._is_stopped = False

    def waiting(self, node_id: int, key: Hashable) -> T | None:
        """What was said with this key, and isn't sent yet."""
        channel = self._channels.get(node_id)
        return None if channel is None else channel.waiting.get(key)

    def say(self, node_id: int, item: T, key: Hashable | None = None) -> None:
        """To this broker, as soon as it has answered what was said before. It takes the place of what is waiting with
        the same key, of which nobody is told any more; None: of nothing."""
        if self._is_stopped:
            return
        channel = self._channels.get(node_id)
        if channel is None:
            peer = OnePeer(self._settings, self._network, self._scheduler)
            channel = self._channels[node_id] = _Channel(peer)
        channel.waiting[object() if key is None else key] = item
        if not channel.is_busy:
            channel.is_busy = True
            self._scheduler.call_soon(self._send, node_id, channel)  # with what else comes up in this turn

    def stop(self) -> None:
        """Nobody is told of anything any more."""
        self._is_stopped = True
        for channel in self._channels.values():
            channel.peer.stop()
        self._channels.clear()

    def _send(self, node_id: int, channel: _Channel[T]) -> None:
        if self._is_stopped:
            return
        items = [*islice(channel.waiting.values(), MOST_SAID_AT_ONCE)]
        if not items:
            channel.is_busy = False
            return
        items = items[: self._together(items)]
        for key in [*islice(channel.waiting, len(items))]:
            del channel.waiting[key]

        def answered(answer: Message | KafkaError) -> None:
            if self._is_stopped:
                return
            try:
                self._answered(items, answer)
            finally:
                self._send(node_id, channel)

        node = alive_node(self._image, node_id, self._listener_name)
        if node is None:
            error = KafkaError(Error.NETWORK_EXCEPTION, f"broker {node_id} isn't alive")
            self._scheduler.call_soon(answered, error)
        else:
            channel.peer.at(node.host, node.port).ask(self._request_of(items), answered)
