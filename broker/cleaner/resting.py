"""Partitions that no pass is made of for a while, since the last one failed through no fault of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.environment.clock import Clock
    from broker.replicas.partition import Partition

RETRY_S = 15.0
LONGEST_RETRY_S = 600.0


class Resting:
    """Where the disk refuses, or the log isn't any more what was read, 15 s. Where the pass was lost, its process being
    killed or memory short, twice as long each time, up to ten minutes: what the system kills for its memory it kills
    again, and all that was read and written until then is for nothing. The offset map is what a pass needs most memory
    for: each time it takes half of the keys, down to a sixteenth, so that the pass gets less far and may come through.

    A pass on the loop would need as much memory, in the process that must not be killed.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_s: dict[Partition, float] = {}
        self._losses: dict[Partition, int] = {}

    def __contains__(self, partition: Partition) -> bool:
        return self._until_s.get(partition, 0.0) > self._clock.monotonic_s()

    def keys_for(self, partition: Partition, max_keys: int) -> int:
        """How many keys the next pass may take, of so many that the settings allow."""
        return max(1, max_keys >> min(self._losses.get(partition, 0), 4))

    def rest(self, partition: Partition, *, is_lost: bool = False) -> float:
        """For how long it rests from now on."""
        rest_s = RETRY_S
        if is_lost:
            losses = self._losses[partition] = self._losses.get(partition, 0) + 1
            rest_s = min(RETRY_S * 2.0 ** min(losses - 1, 10), LONGEST_RETRY_S)
        self._until_s[partition] = self._clock.monotonic_s() + rest_s
        return rest_s

    def came_through(self, partition: Partition) -> None:
        """A pass was made to its end."""
        self._losses.pop(partition, None)

    def forget_others(self) -> None:
        """Those that rest no longer, and of those that are gone what was lost."""
        self._until_s = {each: until_s for each, until_s in self._until_s.items() if each in self}
        self._losses = {each: losses for each, losses in self._losses.items() if not each.is_gone}
