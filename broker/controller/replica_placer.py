"""Where the replicas of new partitions go: on which brokers, and in which of their directories.

Kafka's stripes: racks take turns, and in each rack its brokers. Every partition begins one rack and one broker further
than the one before, from where chance has put the first; after as many partitions as there are unfenced brokers chance
orders all anew. What is drawn, and when, is Kafka's too, so that the same draws come to the same replicas.
Source: `StripedReplicaPlacer`, `ClusterDescriber`, `BrokerHeartbeatManager.usableBrokers`; of a node's own directories
`LogManager.preferredLogDirs`; KIP-858, KIP-1066.
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


MOST_PREFERRED = 10_000  # of what clients name without it being there; Kafka has no bound


def _is_never_cordoned(directory_id: bytes) -> bool:
    return False


class Placement:
    """New partitions go to the node, and to one of its log directories each."""

    __slots__ = ("_directories", "_is_cordoned", "_next", "_preferred", "node_id")

    def __init__(
        self,
        node_id: int,
        directories: Collection[bytes],
        is_cordoned: Callable[[bytes], bool] = _is_never_cordoned,
    ) -> None:
        """`directories`: the ids of those that can be used, asked each time, as is whether one is cordoned."""
        self.node_id = node_id
        self._directories = directories
        self._is_cordoned = is_cordoned
        self._next = 0
        self._preferred: dict[tuple[str, int], bytes] = {}

    def directory(self) -> bytes:
        """Log directories take turns (Kafka: `StripedReplicaPlacer` leaves it to the broker's balance)."""
        directories = [*self._directories]
        if len(directories) == 1:
            return directories[0]
        usable = [directory for directory in directories if not self._is_cordoned(directory)]
        directories = usable or directories  # all may have been cordoned since
        chosen = directories[self._next % len(directories)]
        self._next += 1
        return chosen

    def prefer(self, topic: str, index: int, directory_id: bytes) -> None:
        """Where a partition is to go that isn't there yet (Kafka: `LogManager.maybeUpdatePreferredLogDir`)."""
        if len(self._preferred) < MOST_PREFERRED:
            self._preferred[topic, index] = directory_id

    def directory_of(self, topic: str, index: int) -> bytes:
        """The directory of a new partition: the one that was named for it, unless that has failed since."""
        preferred = self._preferred.get((topic, index))
        if preferred is None or preferred not in self._directories:
            return self.directory()
        return preferred

    def forget_preferred(self, topic: str, partitions: Iterable[int]) -> None:
        """They are created now: what is created under that name later goes where it falls."""
        if self._preferred:
            for index in partitions:
                self._preferred.pop((topic, index), None)

    @property
    def has_room(self) -> bool:
        """Whether one of the directories isn't cordoned."""
        return not all(map(self._is_cordoned, self._directories))


# --- Among the cluster's brokers ----------------------------------------------------------------------------

T = TypeVar("T")

Draw: TypeAlias = Callable[[int], int]
"""A number from 0 to below the one that is given, each as likely."""


class UsableBroker(NamedTuple):
    """One that can be given replicas."""

    broker_id: int
    rack: str | None
    fenced: bool


class ReplicaPlacer(Protocol):
    """Who decides where new partitions go."""

    def place(self, image: ClusterImage, count: int, replication_factor: int) -> Iterator[list[int]]:
        """The broker ids of so many partitions, each one's preferred leader first, made as they are taken.

        Raises KafkaError (INVALID_REPLICATION_FACTOR) in this call, never later.
        """

    def directory(self, image: ClusterImage, broker_id: int, topic: str, index: int) -> bytes:
        """The id of the directory that a new partition has on a broker."""

    def has_room(self, image: ClusterImage, broker_id: int) -> bool:
        """Whether a registered broker can be given a partition: one of its directories isn't cordoned."""

    def created(self, topic: str, indexes: Iterable[int]) -> None:
        """The metadata has these partitions now."""


class OwnDirectories(Protocol):
    """The directories of the broker in this process, if there is one: the controller sees them."""

    @property
    def node_id(self) -> int: ...

    @property
    def has_room(self) -> bool:
        """Whether one of them isn't cordoned."""

    def directory_of(self, topic: str, index: int) -> bytes:
        """The one that a new partition goes to."""

    def forget_preferred(self, topic: str, partitions: Iterable[int]) -> None:
        """They are created."""


def usable_brokers(image: ClusterImage, own: OwnDirectories | None = None) -> list[UsableBroker]:
    """All but those that are about to go, and those whose directories are all cordoned.

    One that went by a controlled shutdown is fenced, and can be used as any that is. Kafka asks its heartbeats instead
    of the records whether a broker is about to go: a controller of its that has just begun to lead doesn't know.
    """
    return [
        UsableBroker(broker_id, broker.record.rack, broker.fenced)
        for broker_id, broker in image.brokers.items()
        if (broker.fenced or not broker.in_controlled_shutdown) and has_room(image, broker_id, own)
    ]


def has_room(image: ClusterImage, broker_id: int, own: OwnDirectories | None = None) -> bool:
    """Whether one of a registered broker's directories isn't cordoned (Kafka: `BrokerRegistration.hasUncordonedDirs`).
    Where it isn't known which there are, or which are cordoned, it is taken to have one."""
    if own is not None and broker_id == own.node_id:
        return own.has_room
    broker = image.brokers[broker_id]
    if not broker.log_dirs or broker.cordoned_log_dirs is None:
        return True
    return not {*broker.log_dirs} <= {*broker.cordoned_log_dirs}


def default_directory(image: ClusterImage, broker_id: int) -> bytes:
    """The directory id of a new partition on a broker: that of its only one; UNASSIGNED where it is the broker that
    chooses, or where there is no such broker; MIGRATING where the broker or the metadata.version names none."""
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
        return MIGRATING
    broker = image.brokers.get(broker_id)
    if broker is None:
        return UNASSIGNED
    if not broker.log_dirs:
        return MIGRATING
    return broker.log_dirs[0] if len(broker.log_dirs) == 1 else UNASSIGNED


class StripedReplicaPlacer:
    """Places by the racks and brokers of the image, which is looked at once for each call of `place`."""

    __slots__ = ("_draw", "_own")

    def __init__(self, draw: Draw, own: OwnDirectories | None = None) -> None:
        """`own`: has the choice for partitions on its node, where every other broker has it itself."""
        self._draw = draw
        self._own = own

    def place(self, image: ClusterImage, count: int, replication_factor: int) -> Iterator[list[int]]:
        """`ReplicaPlacer.place`. No broker is there twice in one partition, and the first one isn't fenced. Fenced
        ones are taken where their rack has no other left, and now and then before, once turns are counted anew.

        Raises KafkaError (INVALID_REPLICATION_FACTOR): the factor isn't positive, no broker is unfenced, or there are
        too few.
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
    """The fenced brokers of a rack, or its unfenced ones: each once in a turn, which begins one further than the one
    before."""

    __slots__ = ("_start", "_taken", "_turn", "brokers")

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._start = 0
        self._taken = 0
        self._turn = 0

    def begin(self, draw: Draw) -> None:
        """No more are added."""
        if self.brokers:
            self.brokers.sort()
            self._start = draw(len(self.brokers))

    def next(self, turn: int) -> int | None:
        """None where this turn has had all of them."""
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
        """The unfenced ones first."""
        broker = self.unfenced.next(turn)
        return self.fenced.next(turn) if broker is None else broker


class _RackList:
    """All racks, for the partitions of one topic, which take turns: one partition each."""

    def __init__(self, brokers: Iterable[UsableBroker], draw: Draw) -> None:
        self._draw = draw
        self._brokers = self._unfenced = 0
        by_name: JavaMap[str | int, _Rack] = JavaMap()
        for broker_id, name, fenced in brokers:
            key = 0 if name is None else name  # Java: the hash of an Optional without a value
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
        """Raises KafkaError (INVALID_REPLICATION_FACTOR) where no partition can be placed."""
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
        """The replicas of the next partition, by a factor that was checked and is always the same.

        Turns are counted anew when all is shuffled. Whose last turn had the number of this one is passed over then, as
        in Kafka. It ends nevertheless: those that had the turn before are as many as are wanted, and not among them.
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
    """java.util.Collections.shuffle."""
    for last in range(len(items) - 1, 0, -1):
        other = draw(last + 1)
        items[last], items[other] = items[other], items[last]


def _name_order(name: str | int) -> tuple[bool, bytes]:
    """First the rack without a name, then as Java compares strings."""
    return (True, name.encode("utf-16-be", "surrogatepass")) if isinstance(name, str) else (False, b"")


def _refused(reason: str) -> KafkaError:
    return KafkaError(Error.INVALID_REPLICATION_FACTOR, reason)
