"""Transactional appends that were announced and await the coordinator's word (KIP-890).

The first transactional batch of a producer must show the guard that its announcement gave: so a batch that was on
its way when its transaction was ended can't open a new one that nobody would end. Source: org.apache.kafka.storage
VerificationStateEntry, VerificationGuard.
"""


class Verification:
    """One announcement, itself the guard to show."""

    __slots__ = ("created_ms", "epoch", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, created_ms: int, sequence: int, epoch: int, supports_epoch_bump: bool) -> None:
        self.created_ms = created_ms
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.supports_epoch_bump = supports_epoch_bump
        """Whether the producer is one of transaction version 2."""


class Verifications(dict[int, Verification]):
    """By producer id."""

    __slots__ = ()

    def start(
        self, producer_id: int, sequence: int, epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> Verification:
        """The guard to show. Of several waiting batches the lowest sequence is kept."""
        verification = self.get(producer_id)
        if verification is None:
            verification = self[producer_id] = Verification(now_ms, sequence, epoch, supports_epoch_bump)
        elif epoch > verification.epoch:
            verification.epoch = epoch
            verification.lowest_sequence = sequence
        elif epoch == verification.epoch and sequence < verification.lowest_sequence:
            verification.lowest_sequence = sequence
        return verification

    def end_by_marker(self, producer_id: int, marker_epoch: int) -> None:
        """A marker voids the announcement, except the marker that ended the epoch before it (version 2)."""
        verification = self.get(producer_id)
        if verification is not None and not (
            verification.supports_epoch_bump and marker_epoch == verification.epoch
        ):
            del self[producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        for producer_id, verification in list(self.items()):
            if now_ms - verification.created_ms >= expiration_ms:
                del self[producer_id]
