"""All fetching from other nodes: one connection for each leader, one request after the other, and each
partition with its current leader.

Kafka has `num.replica.fetchers` for each leader, with a thread each. Here, a second one would share the loop.

Source: `ReplicaFetcherManager`, `AbstractFetcherManager`, `ReplicaManager.applyLocalFollowersDelta`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.controller.image import alive_node
from broker.environment.scheduler import Waker
from broker.peers.peer import Peer, PeerSettings
from broker.replicas.replica import Follower
from broker.replicas.replica_fetcher import FETCH_VERSION, LIST_OFFSETS_VERSION, FetchSettings, ReplicaFetcher
from protocol.errors import KafkaError
from protocol.messages.fetch import FetchRequest
from protocol.waiting import carry_on, step

if TYPE_CHECKING:
    from broker.controller.broker_records import BrokerIncarnation
    from broker.controller.image import ClusterImage, TopicChanges
    from broker.environment.environment import Environment
    from broker.environment.scheduler import Scheduler
    from broker.network.endpoints import Address
    from broker.quotas import ReplicationQuota
    from broker.replicas.in_sync_replicas import PartitionKey
    from broker.replicas.partition import HostedTopic
    from broker.replicas.partitions import Partitions
    from protocol.messages.offsets import ListOffsetsRequest
    from protocol.wire.schema import Message


class ReplicaFetching:
    """Drives one fetcher, through a peer that doesn't negotiate versions."""

    def __init__(
        self,
        fetcher: ReplicaFetcher,
        peer: Peer,
        scheduler: Scheduler,
        failed: Callable[[Exception], None],
    ) -> None:
        """`failed` gets the broken invariant that ends the fetching. A failed disk only affects its
        partitions."""
        self._fetcher = fetcher
        self._peer = peer
        self._failed = failed
        self._waker = Waker(scheduler)
        self._turns = Waker(scheduler)
        self._has_begun = False
        self._is_stopped = False
        fetcher.wake = self.wake

    def wake(self) -> None:
        """Look for something to fetch: another partition is followed, or there is a new epoch."""
        if self._has_begun:
            self._waker.wake()
        elif not self._is_stopped:
            self._has_begun = True
            carry_on(self._fetch_on())

    def stop(self) -> None:
        """Stop fetching."""
        self._is_stopped = True
        self._waker.stop()
        self._turns.stop()
        self._peer.stop()

    async def _fetch_on(self) -> None:
        while not self._is_stopped:
            try:
                request = self._fetcher.request()
                if request is not None:
                    await self._ask(request)
                    continue
                wait_s = self._fetcher.wait_s()
            except MemoryError:
                self._peer.forget()
                wait_s = self._fetcher.backoff_s  # what wasn't applied is fetched again
            except Exception as error:
                self.stop()
                self._failed(error)
                return
            await self._waker.wait(wait_s)

    async def _ask(self, request: FetchRequest | ListOffsetsRequest) -> None:
        """Send a request and apply its answer, in as many turns as that takes. The next request waits for
        that."""
        version = FETCH_VERSION if isinstance(request, FetchRequest) else LIST_OFFSETS_VERSION
        answer: Message | KafkaError
        try:
            answer = await self._peer.ask(request, version=version)
        except KafkaError as error:
            answer = error
        taking = self._fetcher.answered(request, answer)  # type: ignore[arg-type]
        while not step(taking):
            await self._turns.turn()


# --- For all leaders ----------------------------------------------------------------------------------------


class _OfLeader(NamedTuple):
    address: Address
    fetcher: ReplicaFetcher
    fetching: ReplicaFetching


class ReplicaFetchers:
    """The fetchers of one node."""

    def __init__(
        self,
        broker: BrokerIncarnation,
        image: ClusterImage,
        partitions: Partitions,
        *,
        listener_name: str,
        peer_settings: PeerSettings,
        environment: Environment,
        settings: FetchSettings,
        quota: ReplicationQuota,
        failed: Callable[[BaseException], None],
    ) -> None:
        """`listener_name` is the listener for connections between brokers. `peer_settings` are those of the
        connections. `quota` limits the throttled partitions of all fetchers together. `failed` gets errors
        that the node has to stop for."""
        self._broker = broker
        self._image = image
        self._partitions = partitions
        self._listener_name = listener_name
        self._peer_settings = peer_settings
        self._environment = environment
        self._settings = settings
        self._quota = quota
        self._failed = failed
        self._of_leaders: dict[int, _OfLeader] = {}
        self._leader_ids: dict[PartitionKey, int] = {}
        """The leaders of followed partitions, even if they can't be reached."""

    def follow(self, changes: TopicChanges) -> None:
        """Follow the partitions in their new roles."""
        for topic in changes.removed:
            for index in topic.partitions:
                self._forget((topic.topic_id, index))
        for name in changes.touched:
            hosted = self._partitions.by_name.get(name)
            if hosted is not None:
                self._follow_topic(hosted)
        self._follow_leaders()

    def stop(self) -> None:
        """Stop fetching."""
        for each in self._of_leaders.values():
            each.fetching.stop()
        self._of_leaders.clear()

    def _follow_topic(self, hosted: HostedTopic) -> None:
        for index in (*hosted.elsewhere, *hosted.offline, *hosted.to_open):
            self._forget((hosted.topic_id, index))
        for index, partition in hosted.partitions.items():
            key = hosted.topic_id, index
            role = partition.role
            if not isinstance(role, Follower) or role.leader_id < 0:
                self._forget(key)
                continue
            if self._leader_ids.get(key) != role.leader_id:
                self._forget(key)
                self._leader_ids[key] = role.leader_id
            of_leader = self._of_leaders.get(role.leader_id)
            if of_leader is not None:
                of_leader.fetcher.follow(hosted.topic_id, hosted.name, index, role)

    def _forget(self, key: PartitionKey) -> None:
        leader_id = self._leader_ids.pop(key, None)
        of_leader = None if leader_id is None else self._of_leaders.get(leader_id)
        if of_leader is not None:
            of_leader.fetcher.forget(*key)

    def _follow_leaders(self) -> None:
        """Fetch from each leader at its current address. Leaders that aren't alive are left alone until they
        are. Those without followed partitions are dropped (Kafka: `shutdownIdleFetcherThreads`)."""
        leader_ids = {*self._leader_ids.values()}
        for leader_id in self._of_leaders.keys() - leader_ids:
            self._of_leaders.pop(leader_id).fetching.stop()
        for leader_id in leader_ids:
            node = alive_node(self._image, leader_id, self._listener_name)
            address = None if node is None else (node.host, node.port)
            known = self._of_leaders.get(leader_id)
            if known is not None and known.address != address:
                known.fetching.stop()
                del self._of_leaders[leader_id]
                known = None
            if known is None and address is not None:
                known = self._begin(leader_id, address)
            if known is not None:
                known.fetching.wake()

    def _begin(self, leader_id: int, address: Address) -> _OfLeader:
        environment, node_id = self._environment, self._broker.node_id
        fetcher = ReplicaFetcher(
            node_id, lambda: self._broker.broker_epoch, environment.clock, self._quota, self._settings
        )
        for (topic_id, index), of in self._leader_ids.items():
            hosted = self._partitions.by_id.get(topic_id)
            partition = None if hosted is None else hosted.partitions.get(index)
            if of == leader_id and partition is not None and isinstance(partition.role, Follower):
                fetcher.follow(topic_id, partition.topic.name, index, partition.role)
        peer = Peer(*address, self._peer_settings, environment.network, environment.scheduler)
        fetching = ReplicaFetching(fetcher, peer, environment.scheduler, self._failed)
        self._of_leaders[leader_id] = found = _OfLeader(address, fetcher, fetching)
        return found
