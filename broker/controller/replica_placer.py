"""Placing the replicas of new partitions on brokers and their directories.

This is Kafka's striped placement. Racks take turns, and so do the brokers in each rack. Each partition starts
one rack and one broker further than the one before; chance picks the first start. After as many partitions as
there are unfenced brokers, chance reorders everything. The draws and their order are Kafka's, too, so the
same random numbers give the same replicas.

Source: `StripedReplicaPlacer`, `ClusterDescriber`, `BrokerHeartbeatManager.usableBrokers`; for a node's own
directories `LogManager.preferredLogDirs`; KIP-858, KIP-1066.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain, cycle
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, TypeVar

from broker.controller.image import MIGRATING, UNASSIGNED
from broker.controller.metadata_versions import DIRECTORIES_SINCE, METADATA_VERSION
from coordinator.java.maps import JavaMap
from protocol.errors import Error, KafkaError

if TYPE_CHECKING:
    from broker.controller.image import ClusterImage


MOST_PREFERRED = 10_000  # of partitions that clients name but that don't exist; Kafka has no bound


def _is_never_cordoned(directory_id: bytes) -> bool:
    return False


class Placement:
    """Chooses a log directory of this node for each new partition."""

    __slots__ = ("_directories", "_is_cordoned", "_next", "_preferred", "node_id")

    def __init__(
        self,
        node_id: int,
        directories: Collection[bytes],
        is_cordoned: Callable[[bytes], bool] = _is_never_cordoned,
    ) -> None:
        """`directories` holds the ids of the usable ones. It is read on each call, and so is
        `is_cordoned`."""
        self.node_id = node_id
        self._directories = directories
        self._is_cordoned = is_cordoned
        self._next = 0
        self._preferred: dict[tuple[str, int], bytes] = {}

    def directory(self) -> bytes:
        """Return the next directory, in turn (Kafka: `StripedReplicaPlacer` leaves the balance to the
        broker)."""
        directories = [*self._directories]
        if len(directories) == 1:
            return directories[0]
        usable = [directory for directory in directories if not self._is_cordoned(directory)]
        directories = usable or directories  # all may have been cordoned since then
        chosen = directories[self._next % len(directories)]
        self._next += 1
        return chosen

    def prefer(self, topic: str, index: int, directory_id: bytes) -> None:
        """Name the directory for a partition that doesn't exist yet (Kafka:
        `LogManager.maybeUpdatePreferredLogDir`)."""
        if len(self._preferred) < MOST_PREFERRED:
            self._preferred[topic, index] = directory_id

    def directory_of(self, topic: str, index: int) -> bytes:
        """Return the directory of a new partition: the one named for it, unless that has failed since."""
        preferred = self._preferred.get((topic, index))
        if preferred is None or preferred not in self._directories:
            return self.directory()
        return preferred

    def forget_preferred(self, topic: str, partitions: Iterable[int]) -> None:
        """Forget the named directories: the partitions exist now, and a later topic with that name shouldn't
        get them."""
        if self._preferred:
            for index in partitions:
                self._preferred.pop((topic, index), None)

    @property
    def has_room(self) -> bool:
        """True if one of the directories isn't cordoned."""
        return not all(map(self._is_cordoned, self._directories))


# --- Placing among the cluster's brokers --------------------------------------------------------------------

T = TypeVar("T")

Draw: TypeAlias = Callable[[int], int]
"""Draws a number from 0 up to, but not including, the given one. All are equally likely."""


class UsableBroker(NamedTuple):
    """A broker that can get replicas."""

    broker_id: int
    rack: str | None
    fenced: bool


class ReplicaPlacer(Protocol):
    """Decides where new partitions go."""

    def place(self, image: ClusterImage, count: int, replication_factor: int) -> Iterator[list[int]]:
        """Return an iterator over so many partitions' broker ids. Each starts with the preferred leader, and
        is made when it is taken.

        Raises KafkaError (INVALID_REPLICATION_FACTOR) in this call, never later.
        """

    def directory(self, image: ClusterImage, broker_id: int, topic: str, index: int) -> bytes:
        """The directory id of a new partition on a broker."""

    def has_room(self, image: ClusterImage, broker_id: int) -> bool:
        """True if a registered broker can get a partition: one of its directories isn't cordoned."""

    def created(self, topic: str, indexes: Iterable[int]) -> None:
        """Note that the metadata has these partitions now."""


class OwnDirectories(Protocol):
    """The directories of the broker in this process, if any. The controller knows their state."""

    @property
    def node_id(self) -> int: ...

    @property
    def has_room(self) -> bool:
        """True if one of them isn't cordoned."""

    def directory_of(self, topic: str, index: int) -> bytes:
        """The directory of a new partition."""

    def forget_preferred(self, topic: str, partitions: Iterable[int]) -> None:
        """Note that the partitions exist now."""


def usable_brokers(image: ClusterImage, own: OwnDirectories | None = None) -> list[UsableBroker]:
    """All brokers except those about to stop and those with all directories cordoned.

    A broker that left by a controlled shutdown is fenced, and as usable as any fenced broker. Kafka reads
    from heartbeats instead of records whether a broker is about to stop, so a controller of Kafka that has
    just begun to lead doesn't know.
    """
    return [
        UsableBroker(broker_id, broker.record.rack, broker.fenced)
        for broker_id, broker in image.brokers.items()
        if (broker.fenced or not broker.in_controlled_shutdown) and has_room(image, broker_id, own)
    ]


def has_room(image: ClusterImage, broker_id: int, own: OwnDirectories | None = None) -> bool:
    """True if one of a registered broker's directories isn't cordoned (Kafka:
    `BrokerRegistration.hasUncordonedDirs`).

    Also True if its directories, or the cordoned ones, aren't known.
    """
    if own is not None and broker_id == own.node_id:
        return own.has_room
    broker = image.brokers[broker_id]
    if not broker.log_dirs or broker.cordoned_log_dirs is None:
        return True
    return not {*broker.log_dirs} <= {*broker.cordoned_log_dirs}


def default_directory(image: ClusterImage, broker_id: int) -> bytes:
    """The directory id of a new partition on a broker.

    That is the id of its only directory; UNASSIGNED if the broker chooses or doesn't exist; MIGRATING if the
    broker or the metadata.version names none.
    """
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
        return MIGRATING
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


class StripedReplicaPlacer:
    """Places by the racks and brokers in the image. Each call of `place` reads them once."""

    __slots__ = ("_draw", "_own")

    def __init__(self, draw: Draw, own: OwnDirectories | None = None) -> None:
        """`own` chooses the directories for its node. All other brokers choose for themselves."""
        self._draw = draw
        self._own = own

    def place(self, image: ClusterImage, count: int, replication_factor: int) -> Iterator[list[int]]:
        """`ReplicaPlacer.place`. No partition has a broker twice, and its first broker isn't fenced.

        Fenced brokers are used if their rack has no others left, and sometimes earlier, after turns start
        over.

        Raises KafkaError (INVALID_REPLICATION_FACTOR): the factor isn't positive, no broker is unfenced, or
        there are too few.
        """
        racks = _RackList(usable_brokers(image, self._own), self._draw)
        racks.check(replication_factor)
        return (racks.place(replication_factor) for _ in range(count))

    def directory(self, image: ClusterImage, broker_id: int, topic: str, index: int) -> bytes:
        """`ReplicaPlacer.directory`."""
        if self._own is not None and broker_id == self._own.node_id:
            return self._own.directory_of(topic, index)
        return default_directory(image, broker_id)

    def has_room(self, image: ClusterImage, broker_id: int) -> bool:
        """`ReplicaPlacer.has_room`."""
        return has_room(image, broker_id, self._own)

    def created(self, topic: str, indexes: Iterable[int]) -> None:
        """`ReplicaPlacer.created`."""
        if self._own is not None:
            self._own.forget_preferred(topic, indexes)


class _BrokerList:
    """A rack's fenced brokers, or its unfenced ones. Each comes once in a turn. Each turn starts one further
    than the last."""

    __slots__ = ("_start", "_taken", "_turn", "brokers")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._start = 0
        self._taken = 0
        self._turn = 0

    def begin(self, draw: Draw) -> None:
        """Start: no more brokers are added."""
        if self.brokers:
            self.brokers.sort()
            self._start = draw(len(self.brokers))

    def next(self, turn: int) -> int | None:
        """Return the next broker, or None if this turn has had all of them."""
        count = len(self.brokers)
        if self._turn != turn and count:
            self._turn = turn
            self._taken = 0
            self._start = (self._start + 1) % count
        if self._taken >= count:
            return None
        self._taken += 1
        return self.brokers[(self._start + self._taken - 1) % count]


class _Rack:
    __slots__ = ("fenced", "unfenced")

    def __init__(self) -> None:
        self.fenced = _BrokerList()
        self.unfenced = _BrokerList()

    def next(self, turn: int) -> int | None:
        """Return the next broker, unfenced ones first."""
        broker = self.unfenced.next(turn)
        return self.fenced.next(turn) if broker is None else broker


class _RackList:
    """All racks, for the partitions of one topic. Each partition is one turn."""

    def __init__(self, brokers: Iterable[UsableBroker], draw: Draw) -> None:
        self._draw = draw
        self._brokers = self._unfenced = 0
        by_name: JavaMap[str | int, _Rack] = JavaMap()
        for broker_id, name, fenced in brokers:
            key = 0 if name is None else name  # Java: the hash of an empty Optional
            rack = by_name.get(key)
            if rack is None:
                rack = by_name[key] = _Rack()
            (rack.fenced if fenced else rack.unfenced).brokers.append(broker_id)
            self._brokers += 1
            self._unfenced += not fenced
        self._in_table_order = by_name.values()
        for rack in self._in_table_order:
            rack.fenced.begin(draw)
            rack.unfenced.begin(draw)
        self._racks = [by_name[name] for name in sorted(by_name, key=_name_order)]
        self._start = draw(len(self._racks)) if self._racks else 0
        self._turn = 0

    def check(self, replication_factor: int) -> None:
        """Raises KafkaError (INVALID_REPLICATION_FACTOR) if no partition can be placed."""
        if replication_factor <= 0:
            raise _refused(
                f"Invalid replication factor {replication_factor}: the replication factor must be positive."
            )
        if not self._unfenced:
            raise _refused("All brokers are currently fenced, or have all their log directories cordoned.")
        if replication_factor > self._brokers:
            raise _refused(
                f"The target replication factor of {replication_factor} cannot be reached because only "
                f"{self._brokers} broker(s) are registered or some brokers have all their log directories cordoned."
            )

    def place(self, replication_factor: int) -> list[int]:
        """Return the replicas of the next partition. The factor was checked, and is the same each time.

        After a shuffle, turns count from 0 again. As in Kafka, a list whose last turn has this turn's number
        is then skipped. The loop ends nevertheless: the lists of the turn before it have as many brokers as
        needed, and aren't skipped.
        """
        if self._turn == self._unfenced > 1:
            self._shuffle()
            self._turn = 0
        turn = self._turn
        racks = self._racks[self._start :] + self._racks[: self._start]
        place = -1
        leader = None
        while leader is None:
            place += 1
            leader = racks[place].unfenced.next(turn)
        replicas = [leader]
        others = chain(racks[:place], racks[place + 1 :], cycle(racks))
        while len(replicas) < replication_factor:
            broker = next(others).next(turn)
            if broker is not None:
                replicas.append(broker)
        self._turn += 1
        self._start = (self._start + 1) % len(self._racks)
        return replicas

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._draw)
        for rack in self._in_table_order:
            _shuffle(rack.fenced.brokers, self._draw)
            _shuffle(rack.unfenced.brokers, self._draw)


def _shuffle(items: list[T], draw: Draw) -> None:
    """java.util.Collections.shuffle"""
    for last in range(len(items) - 1, 0, -1):
        other = draw(last + 1)
        items[last], items[other] = items[other], items[last]


def _name_order(name: str | int) -> tuple[bool, bytes]:
    """Sort the rack without a name first, then as Java compares strings."""
    return (True, name.encode("utf-16-be", "surrogatepass")) if isinstance(name, str) else (False, b"")


def _refused(reason: str) -> KafkaError:
    return KafkaError(Error.INVALID_REPLICATION_FACTOR, reason)
