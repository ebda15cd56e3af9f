"""Transactional appends that wait for the coordinator's word (KIP-890).

The first transactional batch of a producer must show the guard that it was given when the coordinator was asked. So a
batch that was on its way when its transaction ended can't open a new one that nobody would end.
Source: org.apache.kafka.storage VerificationStateEntry, VerificationGuard.
"""

from itertools import islice

from storage.producers import producer_memory


class VerificationGuard:
    """What one waiting append is known by: the guard to show, and Kafka's entry of it in one."""

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, created_ms: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.created_ms = created_ms
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        """Whether the producer is one of transaction version 2."""


class Verifications(dict[int, VerificationGuard]):
    """The guards that were given out, by producer id, the oldest first."""

    __slots__ = ()

    def start(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard:
        """The guard to show. Of several waiting batches the lowest sequence is kept."""
        guard = self.get(producer_id)
        if guard is None:
            most = producer_memory.MOST_IN_PARTITION
            if len(self) >= most:
                self.forget_oldest(producer_memory.share(most))
            guard = self[producer_id] = VerificationGuard(now_ms, sequence, epoch, supports_epoch_bump)
        elif epoch > guard.epoch:
            guard.epoch = epoch
            guard.lowest_sequence = sequence
        elif epoch == guard.epoch and sequence < guard.lowest_sequence:
            guard.lowest_sequence = sequence
        return guard

    def end_by_marker(self, producer_id: int, marker_epoch: int) -> None:
        """A marker voids the guard, except the marker that ended the epoch before it (version 2)."""
        guard = self.get(producer_id)
        if guard is not None and not (guard.supports_epoch_bump and marker_epoch == guard.epoch):
            del self[producer_id]

    def forget_oldest(self, count: int) -> None:
        """An append that still shows one of them is refused."""
        for producer_id in [*islice(self, count)]:
            del self[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id, guard in list(self.items()):
            if now_ms - guard.created_ms >= expiration_ms:
                del self[producer_id]
