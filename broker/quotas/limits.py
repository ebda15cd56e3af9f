"""Which quota holds for a client: the most specific one (Kafka: `ClientQuotaManager.DefaultQuotaCallback`)."""

from __future__ import annotations

from typing import NamedTuple


class _Missing:
    """The entity that a quota doesn't name at all; None stands for the default entity."""

    __slots__ = ()


MISSING = _Missing()

Name = str | None | _Missing


class Found(NamedTuple):
    """A quota, and who shares it: (user, client id), "" where either doesn't matter."""

    limit: float
    sharers: tuple[str, str]


class Limits:
    """The quotas of one kind by (user, client id)."""

    __slots__ = ("_limits",)

    def __init__(self) -> None:
        self._limits: dict[tuple[Name, Name], float] = {}

    def __len__(self) -> int:
        return len(self._limits)

    def set(self, user: Name, client_id: Name, limit: float) -> None:
        self._limits[user, client_id] = limit

    def find(self, user: str, client_id: str) -> Found | None:
        """The first that there is, in Kafka's order: a user with a client id, a user, a client id; each time
        the one that is named before the default."""
        limits = self._limits
        both, of_user, of_client = (user, client_id), (user, ""), ("", client_id)
        wanted: tuple[tuple[tuple[Name, Name], tuple[str, str]], ...] = (
            ((user, client_id), both),
            ((user, None), both),
            ((user, MISSING), of_user),
            ((None, client_id), both),
            ((None, None), both),
            ((None, MISSING), of_user),
            ((MISSING, client_id), of_client),
            ((MISSING, None), of_client),
        )
        for entity, sharers in wanted:
            limit = limits.get(entity)
            if limit is not None:
                return Found(limit, sharers)
        return None
