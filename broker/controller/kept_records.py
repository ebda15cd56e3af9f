"""Records that are held as they are, and that a snapshot must write out again: quotas, credentials, ACLs, tokens.

The newest record of each identity is held. Source: Kafka's ClientQuotasImage, ScramImage, AclsImage,
DelegationTokenImage.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from protocol.messages import metadata_records as records
from protocol.wire.schema import Message


def _quota(record: records.ClientQuotaRecord) -> Hashable:
    return frozenset((part.entity_type, part.entity_name) for part in record.entity), record.key


# In the order in which a snapshot has them.
_IDENTITIES: dict[type[Message], Callable[[Any], Hashable]] = {
    records.ClientQuotaRecord: _quota,
    records.AccessControlEntryRecord: lambda record: record.id,
    records.UserScramCredentialRecord: lambda record: (record.mechanism, record.name),
    records.DelegationTokenRecord: lambda record: record.token_id,
}

_REMOVALS: dict[type[Message], tuple[type[Message], Callable[[Any], Hashable]]] = {
    records.RemoveAccessControlEntryRecord: (records.AccessControlEntryRecord, lambda record: record.id),
    records.RemoveUserScramCredentialRecord: (
        records.UserScramCredentialRecord,
        lambda record: (record.mechanism, record.name),
    ),
    records.RemoveDelegationTokenRecord: (records.DelegationTokenRecord, lambda record: record.token_id),
}

KEPT = frozenset({*_IDENTITIES, *_REMOVALS})


class KeptRecords:
    """The records in force, by type and identity."""

    __slots__ = ("_by_type", "_quotas_changed")

    def __init__(self) -> None:
        self._quotas_changed = False
        self._by_type: dict[type[Message], dict[Hashable, Message]] = {
            record_type: {} for record_type in _IDENTITIES
        }

    def copy(self) -> KeptRecords:
        """Another one that holds the same."""
        other = KeptRecords()
        other._by_type = {record_type: {**held} for record_type, held in self._by_type.items()}
        return other

    def follow_quotas(self) -> None:
        """They may be others than whoever follows them knows."""
        self._quotas_changed = True

    def apply(self, record: Message) -> None:
        """Hold a record in place of an earlier one of its identity, or drop the one that it removes."""
        removal = _REMOVALS.get(type(record))
        if removal is not None:
            removed_type, identity_of = removal
            self._by_type[removed_type].pop(identity_of(record), None)
            return
        if isinstance(record, records.ClientQuotaRecord):
            self._quotas_changed = True
        held = self._by_type[type(record)]
        identity = _IDENTITIES[type(record)](record)
        if isinstance(record, records.ClientQuotaRecord) and record.remove:
            held.pop(identity, None)
        else:
            held[identity] = record

    def take_quota_change(self) -> bool:
        """Whether there were records of quotas since this was last asked."""
        changed, self._quotas_changed = self._quotas_changed, False
        return changed

    def of_type(self, record_type: type[Message]) -> Iterator[Message]:
        """Those of one type."""
        return iter(self._by_type[record_type].values())
