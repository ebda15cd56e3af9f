"""Where new partitions go (KIP-858, KIP-1066; Kafka: `ReplicaPlacer`, and `LogManager.preferredLogDirs`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

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
        directories = usable or directories  # an assignment by hand goes to a cordoned one too
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
